/* Max pooling of f32 images, as torch's: a NaN in a window is its largest element, and what lies outside counts as
 * -inf.
 *
 * Ownership: none. Threads: rows are independent; dycl_kern_max_pool2d is a parallel driver (kern.h). */
#ifndef DYCL_KERN_MAX_POOL_H
#define DYCL_KERN_MAX_POOL_H

#include "kern/isa.h"
#include "kern/kern.h"

typedef struct {
    int64_t n, c, h, w, oh, ow;
    int64_t kernel[2], stride[2], pad[2], dilation[2]; /* pad: above and left; windows end where the image ends */
    int channels_last;                                 /* [n, h, w, c], and so is the result; else [n, c, h, w] */
} dycl_max_pool;

void dycl_kern_max_pool2d(float *out, const float *in, const dycl_max_pool *pool);
/* The gradient of `in` from that of the result: a window's goes to its first largest element, or its last NaN, as
 * torch's. Without dilation; planes have less than 2^31 elements, and each window some of them. */
void dycl_kern_max_pool2d_back(float *out, const float *gradient, const float *in, const dycl_max_pool *pool);

typedef struct {
    void (*pixels)(float *out, const float *image, const dycl_max_pool *pool,
                   int64_t oy); /* channels last: that row of the result */
    void (*plane)(float *out, const float *in, const dycl_max_pool *pool, int64_t oy_begin,
                  int64_t oy_end); /* these rows of the plane `out` */
    void (*plane_back)(float *out, const float *gradient, const float *in, const dycl_max_pool *pool);
    void (*pixels_back)(float *out, const float *gradient, const float *in, const dycl_max_pool *pool, int64_t begin,
                        int64_t end); /* channels last: these channels of an image */
} dycl_max_pool_table;
DYCL_ISA_TABLES(const dycl_max_pool_table, dycl_max_pool)

#endif
