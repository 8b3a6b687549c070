/* Means over windows of f32 images, as torch's avg_pool2d and adaptive_avg_pool2d, and their gradients. Sums are added
 * along one axis after the other.
 *
 * Ownership: none. Threads: planes and channels are independent; the functions are parallel drivers (kern.h). */
#ifndef DYCL_KERN_MEAN_POOL_H
#define DYCL_KERN_MEAN_POOL_H

#include "kern/isa.h"
#include "kern/kern.h"

typedef struct {
    int64_t n, c, h, w, oh, ow;
    int64_t kernel[2], stride[2], pad[2]; /* pad: above and left */
    int adaptive;                         /* windows from floor(i * in / out) to ceil((i + 1) * in / out) instead */
    int padded;                           /* padding counts, as far as it is as wide below and right */
    int channels_last;                    /* [n, h, w, c], and so is the result; else [n, c, h, w] */
} dycl_mean_pool;

void dycl_kern_mean_pool2d(float *out, const float *in, const dycl_mean_pool *pool);
/* The gradient of `in` from that of the result. */
void dycl_kern_mean_pool2d_back(float *out, const float *gradient, const dycl_mean_pool *pool);

/* begin..end: planes of all images, or of one image channels. pixels: one row of the result. */
typedef struct {
    void (*planes)(float *out, const float *in, const dycl_mean_pool *pool, int64_t begin, int64_t end);
    void (*pixels)(float *out, const float *image, const dycl_mean_pool *pool, int64_t oy, int64_t begin, int64_t end);
    void (*planes_back)(float *out, const float *gradient, const dycl_mean_pool *pool, int64_t begin, int64_t end);
    void (*pixels_back)(float *out, const float *gradient, const dycl_mean_pool *pool, int64_t begin, int64_t end);
} dycl_mean_pool_table;
DYCL_ISA_TABLES(const dycl_mean_pool_table, dycl_mean_pool)

#endif
