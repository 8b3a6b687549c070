/* What torch asks of strides: dense, overlapping, channels last. */
#include "ir/infer.h"

int dycl_value_dense(const dycl_value *value) {
    int order[DYCL_MAX_RANK], rank = value->rank;
    for (int i = 0; i < rank; i++) {
        int k = i;
        for (; k > 0; k--) {
            const int p = order[k - 1];
            if (value->sizes[i] < 2 || (value->sizes[p] >= 2 && value->strides[p] <= value->strides[i])) break;
            order[k] = p;
        }
        order[k] = i;
        if (value->sizes[i] == 0) return 1; /* whatever its strides */
    }
    int64_t expected = 1;
    for (int i = 0; i < rank; i++) {
        int64_t size = value->sizes[order[i]];
        if (size < 2) return 1;
        if (value->strides[order[i]] != expected) return 0;
        expected *= size;
    }
    return 1;
}

int dycl_value_overlaps(const dycl_value *value) {
    int done[DYCL_MAX_RANK] = {0};
    int64_t reach = 0;
    for (int n = 0; n < value->rank; n++) {
        int least = -1;
        for (int i = 0; i < value->rank; i++)
            if (!done[i] && value->sizes[i] > 1 && (least < 0 || value->strides[i] < value->strides[least])) least = i;
        if (least < 0) break;
        done[least] = 1;
        if (value->strides[least] <= reach) return 1;
        reach += value->strides[least] * (value->sizes[least] - 1);
    }
    return 0;
}

/* From the dimension whose elements are closest, of images and of volumes (c10/core/MemoryFormat.h). */
static const int *channels_last_order(int rank) {
    static const int image[4] = {1, 3, 2, 0}, volume[5] = {1, 4, 3, 2, 0};
    return rank == 4 ? image : rank == 5 ? volume : NULL;
}

void dycl_infer_channels_last(dycl_value *out) {
    const int *order = channels_last_order(out->rank);
    int64_t stride = 1;
    for (int i = 0; i < out->rank; i++) {
        out->strides[order[i]] = stride;
        stride *= out->sizes[order[i]];
    }
    out->canonical = (uint8_t)dycl_strides_canonical(out);
}

int dycl_value_channels_last(const dycl_value *value) {
    const int *order = channels_last_order(value->rank);
    int64_t least = 0;
    if (!order || value->strides[1] == 0) return 0;
    for (int i = 0; i < value->rank; i++) {
        int d = order[i];
        if (value->sizes[d] == 0 || value->strides[d] < least) return 0;
        if (d == 0 && least == value->strides[1]) return 0;
        least = value->strides[d];
        if (value->sizes[d] > 1) least *= value->sizes[d];
    }
    return value->rank == 4 ? 1 : 3;
}

int dycl_value_channels_last_dense(const dycl_value *value) {
    const int *order = channels_last_order(value->rank);
    int64_t expected = 1;
    for (int i = 0; order && i < value->rank; i++) {
        if (value->sizes[order[i]] == 1) continue;
        if (value->strides[order[i]] != expected) return 0;
        expected *= value->sizes[order[i]];
    }
    return !order ? 0 : value->rank == 4 ? 1 : 3;
}
