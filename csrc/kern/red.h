/* What the reduction drivers (reduce.c, group_norm.c) take from the per-ISA bodies beyond kern.h.
 *
 * Ownership: tables are immutable statics. Threads: pure functions. */
#ifndef DYCL_KERN_RED_H
#define DYCL_KERN_RED_H

#include <math.h>

#include "kern/isa.h"
#include "kern/kern.h"

/* acc[j] op= a[r * stride + j] for r < rows, j < n. operand: n elements, the m of MOMENTS. Elements and acc are of
 * one float type. Sums are plain chains: give at most DYCL_COLUMN_ROWS rows a call and fold the result into
 * something wider. */
typedef enum {
    DYCL_COLUMN_SUM,
    DYCL_COLUMN_SUMABS,
    DYCL_COLUMN_SUMSQ,
    DYCL_COLUMN_MOMENTS, /* x - m into acc[j] and (x - m)^2 into acc[DYCL_COLUMN_TILE + j] */
    DYCL_COLUMN_AMAX,
    DYCL_COLUMN_AMIN,
    DYCL_COLUMN_PROD,
    DYCL_COLUMN_COUNT
} dycl_column;
#define DYCL_COLUMN_ROWS 32
#define DYCL_COLUMN_TILE 512 /* n is at most this */
typedef void (*dycl_column_fn)(void *acc, const void *a, int64_t stride, size_t rows, const void *operand, size_t n);

/* out[j]: the row of the first largest (smallest) of a[r * stride + j] for r < rows, where a NaN is the largest
 * (smallest) of all; 0 < rows <= INT32_MAX. */
typedef void (*dycl_column_arg_fn)(int64_t *out, const void *a, int64_t stride, size_t rows, size_t n);

/* out[0] = sum (x - m), out[1] = sum (x - m)^2; m: one element, best near the mean. */
typedef void (*dycl_moments_fn)(double out[2], const void *a, const void *m, size_t n);

typedef struct {
    dycl_red_fn red[DYCL_RED_COUNT][DYCL_DTYPE_COUNT];
    dycl_column_fn column[DYCL_COLUMN_COUNT][2]; /* f32, f64 */
    dycl_column_arg_fn column_arg[2][2];         /* max, min */
    dycl_moments_fn moments[2];
    /* dst[i] = (a[i] - mean) * scale + shift */
    void (*center_scale)(float *dst, const float *a, float mean, float scale, float shift, size_t n);
} dycl_red_table;
DYCL_ISA_TABLES(const dycl_red_table, dycl_red_table)

const dycl_red_table *dycl_kern_red_table(dycl_isa isa);

/* A sum with Neumaier's correction: the error does not grow with the number of terms. */
typedef struct {
    double sum, lost;
} dycl_running_sum;

static inline void dycl_sum_add(dycl_running_sum *s, double x) {
    double t = s->sum + x;
    s->lost += fabs(s->sum) >= fabs(x) ? (s->sum - t) + x : (x - t) + s->sum;
    s->sum = t;
}

/* Infinities make the correction NaN while the sum itself is right. */
static inline double dycl_sum_value(dycl_running_sum s) { return isfinite(s.lost) ? s.sum + s.lost : s.sum; }

/* A running count, mean and sum of squared deviations; two of them merge exactly (Chan, Golub, LeVeque 1979). */
typedef struct {
    double n, mean, m2;
} dycl_moments;

static inline dycl_moments dycl_moments_merge(dycl_moments a, dycl_moments b) {
    if (a.n == 0) return b;
    if (b.n == 0) return a;
    double n = a.n + b.n, delta = b.mean - a.mean;
    return (dycl_moments){n, a.mean + delta * (b.n / n), a.m2 + b.m2 + delta * delta * (a.n / n * b.n)};
}

/* From the sums of x - m and (x - m)^2. */
static inline dycl_moments dycl_moments_from(const double sums[2], double m, double n) {
    double m2 = sums[1] - sums[0] * sums[0] / n;
    return (dycl_moments){n, m + sums[0] / n, m2 < 0 ? 0 : m2};
}

/* Divides as torch's Welford does: NaN of nothing, inf where the correction eats all of n. */
static inline double dycl_variance(dycl_red op, double m2, double n, double correction) {
    double variance = n > 0 ? m2 / (n > correction ? n - correction : 0) : (double)NAN;
    return op == DYCL_RED_STD ? sqrt(variance) : variance;
}

/* Whether squares of floats were of a size that a float holds: else dycl_moments_wide has to add them up. */
static inline int dycl_m2_fits_f32(double m2) { return m2 > 1e-30 && m2 < INFINITY; }
dycl_moments dycl_moments_wide(const float *a, int64_t stride, size_t n); /* in doubles; stride in elements */

/* Moments of one contiguous run of f32 or f64, any length. */
dycl_moments dycl_kern_moments(const dycl_red_table *table, dycl_dtype dtype, const void *a, size_t n);
/* The same in pieces, by several threads. */
dycl_moments dycl_kern_group_moments(dycl_dtype dtype, const void *a, int64_t n, int threads);

#endif
