#include "opt/program.h"

#include <string.h>

void dycl_space_of(dycl_space *out, int rank, const int64_t *sizes) {
    out->rank = 0;
    for (int i = 0; i < rank; i++)
        if (sizes[i] != 1) out->sizes[out->rank++] = sizes[i];
}

int dycl_space_refine(dycl_space *space, const dycl_space *other) {
    if (space->rank == other->rank && !memcmp(space->sizes, other->sizes, (size_t)space->rank * sizeof(int64_t)))
        return 1;
    int64_t reversed[2 * DYCL_SPACE_RANK];
    int count = 0, i = space->rank, j = other->rank;
    int64_t a = 1, b = 1;
    for (;;) {
        if (a == 1 && i > 0) a = space->sizes[--i];
        if (b == 1 && j > 0) b = other->sizes[--j];
        if (a == 1 && b == 1 && i == 0 && j == 0) break;
        int64_t step = a < b ? a : b;
        if (step <= 1 || a % step || b % step || count == DYCL_SPACE_RANK) return 0;
        reversed[count++] = step;
        a /= step;
        b /= step;
    }
    space->rank = count;
    for (int k = 0; k < count; k++) space->sizes[k] = reversed[count - 1 - k];
    return 1;
}

int dycl_space_access(const dycl_space *space, int64_t row, const dycl_value *value, int rank, const int64_t *sizes,
                      int64_t *out_strides) {
    int at = space->rank;
    for (int64_t left = row; left > 1;) {
        if (at == 0) return 0;
        at--;
        if (left % space->sizes[at]) return 0;
        left /= space->sizes[at];
        out_strides[at] = 0;
    }
    for (int i = rank - 1; i >= 0; i--) {
        if (sizes[i] == 1) continue;
        int own = i - (rank - value->rank);
        int64_t stride = own >= 0 && value->sizes[own] != 1 ? value->strides[own] : 0;
        for (int64_t left = sizes[i]; left > 1;) {
            if (at == 0) return 0;
            at--;
            if (left % space->sizes[at]) return 0;
            out_strides[at] = stride;
            left /= space->sizes[at];
            stride *= space->sizes[at];
        }
    }
    return at == 0;
}
