#include "kern/small.h"

DYCL_ISA_CHOICE(const dycl_small, dycl_small)
const dycl_small *dycl_kern_small(dycl_isa isa) { return dycl_small_for(isa); }

size_t dycl_small_bytes(const dycl_small *small, int64_t n, int64_t k) {
    int64_t padded = (n + small->vector - 1) / small->vector * small->vector;
    return (size_t)(padded * k) * sizeof(float);
}

void dycl_small_pack(const dycl_small *small, float *packed, const float *b, int64_t row_stride, int64_t column_stride,
                     int64_t n, int64_t k) {
    for (int64_t j = 0; j < n; j += small->panel) {
        int64_t columns = n - j < small->panel ? n - j : small->panel;
        int64_t width = (columns + small->vector - 1) / small->vector * small->vector;
        for (int64_t p = 0; p < k; p++)
            for (int64_t i = 0; i < width; i++)
                *packed++ = i < columns ? b[p * row_stride + (j + i) * column_stride] : 0;
    }
}
