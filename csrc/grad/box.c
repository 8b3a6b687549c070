#include "grad/box.h"

static int starts(const dycl_value *root, int64_t offset, int64_t *start) {
    int done[DYCL_MAX_RANK] = {0};
    for (int n = 0; n < root->rank; n++) {
        int widest = -1;
        for (int i = 0; i < root->rank; i++)
            if (!done[i] && root->sizes[i] > 1 && (widest < 0 || root->strides[i] > root->strides[widest])) widest = i;
        if (widest < 0) break;
        if (root->strides[widest] <= 0) return 0;
        done[widest] = 1;
        start[widest] = offset / root->strides[widest];
        offset %= root->strides[widest];
    }
    for (int i = 0; i < root->rank; i++)
        if (!done[i]) start[i] = 0;
    return offset == 0;
}

/* A dimension of size 1 that torch's unsqueeze could have put there, by its stride. */
static int looks_added(const dycl_value *view, int k) {
    return view->strides[k] == (k + 1 < view->rank ? view->sizes[k + 1] * view->strides[k + 1] : 1);
}

/* Dimensions of size 1 say nothing of where a view lies, but in a permutation they have their places, too. Where some
 * were added as well, the others are the root's. */
static void find_ones(const dycl_value *root, const dycl_value *view, dycl_box *out) {
    for (int added = 0; added < 2; added++)
        for (int k = 0; k < view->rank; k++) {
            if (view->sizes[k] != 1 || (view->rank != root->rank && looks_added(view, k)) != added) continue;
            int i = 0;
            while (i < root->rank && (out->dim[i] >= 0 || root->sizes[i] != 1 || root->strides[i] != view->strides[k]))
                i++;
            if (i < root->rank) out->dim[i] = k;
        }
}

int dycl_box_is_whole(const dycl_value *root, const dycl_box *at) {
    for (int i = 0; i < root->rank; i++)
        if (at->size[i] != root->sizes[i]) return 0;
    return 1;
}

int dycl_box_of(const dycl_value *root, const dycl_value *view, dycl_box *out) {
    int empty = dycl_value_numel(root) == 0;
    if (!starts(root, view->offset, out->start)) return 0;
    for (int i = 0; i < root->rank; i++) {
        out->size[i] = 1;
        out->dim[i] = -1;
    }
    for (int k = 0; k < view->rank; k++) {
        int found = -1;
        if (view->sizes[k] == 1) continue;
        for (int i = 0; i < root->rank && found < 0; i++)
            if (out->dim[i] < 0 && root->sizes[i] != 1 && root->strides[i] == view->strides[k] &&
                (!empty || root->sizes[i] == view->sizes[k]))
                found = i;
        if (found < 0) return 0;
        out->dim[found] = k;
        out->size[found] = view->sizes[k];
    }
    for (int i = 0; i < root->rank; i++)
        if (out->start[i] + out->size[i] > root->sizes[i]) return 0;
    find_ones(root, view, out);
    return !empty || dycl_box_is_whole(root, out);
}

int dycl_boxes_are_apart(int rank, const dycl_box *a, const dycl_box *b) {
    for (int i = 0; i < rank; i++)
        if (a->start[i] + a->size[i] <= b->start[i] || b->start[i] + b->size[i] <= a->start[i]) return 1;
    return 0;
}

void dycl_box_turned(const dycl_value *root, const dycl_box *at, const dycl_value *gradient, int64_t *strides) {
    int64_t next = 1;
    for (int i = root->rank; i-- > 0;) {
        strides[i] = at->dim[i] >= 0 ? gradient->strides[at->dim[i]] : next;
        next = strides[i] * (at->size[i] ? at->size[i] : 1);
    }
}
