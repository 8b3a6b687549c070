/* Batch norm in training: statistics of a batch, and what goes back. Sums are of doubles, as torch's.
 *
 * Ownership: none. Threads: parallel drivers (kern.h); the results do not depend on the number of threads. */
#ifndef DYCL_KERN_BATCH_NORM_H
#define DYCL_KERN_BATCH_NORM_H

#include "kern/isa.h"
#include "kern/kern.h"

typedef struct {
    int64_t n, c, inner; /* [n, c, inner] */
    int channels_last;   /* [n, inner, c] */
    dycl_dtype dtype;    /* F32, F64 */
    double momentum, eps;
    int float_sums; /* f32: torch sums in floats, by the value's own strides: see dycl_kern_batch_stats */
} dycl_batch;

typedef enum { DYCL_BATCH_MEAN, DYCL_BATCH_INVSTD, DYCL_BATCH_RUNNING_MEAN, DYCL_BATCH_RUNNING_VAR } dycl_batch_result;
#define DYCL_BATCH_RESULTS 4

size_t dycl_kern_batch_scratch(const dycl_batch *batch); /* bytes, of both */
/* out: by dycl_batch_result, NULL where it is not wanted. running: mean and variance as they were, for those results;
 * they may be the results. 0: a sum of floats may be infinite where ours is not: nothing is written. */
int dycl_kern_batch_stats(const dycl_batch *batch, const void *x, const void *const running[2],
                          void *const out[DYCL_BATCH_RESULTS], void *scratch);
/* out: the gradients of x, weight and bias, NULL where not wanted. weight: NULL: none. */
void dycl_kern_batch_norm_back(const dycl_batch *batch, const void *gradient, const void *x, const void *const mean,
                               const void *invstd, const void *weight, void *const out[3], void *scratch);

/* Rows of contiguous elements `stride` apart, of one channel: out[0] += sum of g, out[1] += sum of g * (x - m); g
 * NULL: of x - m and its square. Channels last: of so many pixels, for each channel out[i] and out[c + i]. `back`:
 * ((g - k[1]) - (x - k[0]) * k[2]) * k[3]; channels last: k has c elements of each. */
typedef struct {
    void (*sums)(double *out, const void *g, const void *x, double m, int64_t rows, int64_t stride, size_t n);
    void (*pixels)(double *out, const void *g, const void *x, const double *m, int64_t rows, size_t c);
    void (*back)(void *out, const void *g, const void *x, const void *k, int64_t rows, int64_t stride, size_t n);
    void (*back_pixels)(void *out, const void *g, const void *x, const void *k, int64_t rows, size_t c);
} dycl_batch_row;
typedef struct {
    dycl_batch_row row[2]; /* f32, f64 */
} dycl_batch_table;
DYCL_ISA_TABLES(const dycl_batch_table, dycl_batch_table)

#endif
