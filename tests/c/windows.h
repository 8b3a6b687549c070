/* Images and what windows see of them, for tests of kernels that work on windows. */
#ifndef DYCL_TESTS_WINDOWS_H
#define DYCL_TESTS_WINDOWS_H

#include "base/alloc.h"
#include "random.h"

#define ZONE 64 /* bytes behind what is written */

static inline float *floats(int64_t count) {
    float *x = dycl_aligned_alloc((size_t)count * sizeof *x + ZONE);
    for (int64_t i = 0; i < count; i++) x[i] = (float)below(2001) / 1000 - 1;
    return x;
}

/* What the windows see of a line of the image, by the rules of exec/conv. */
static inline void look(int64_t size, int64_t before, int64_t out, int64_t window, int64_t stride, int64_t dilation,
                        int64_t *inner, int64_t *first, int64_t *after) {
    int64_t see = (out - 1) * stride + (window - 1) * dilation + 1;
    *first = before < see ? before : see;
    *inner = size > see - *first ? see - *first : size;
    *after = see - *first - *inner;
}

#endif
