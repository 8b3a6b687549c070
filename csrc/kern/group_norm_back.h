/* What goes back through a group norm. A layer norm is one of a single group whose channels are the elements of a row.
 *
 * Ownership: none. Threads: a parallel driver (kern.h); the results do not depend on the number of threads. */
#ifndef DYCL_KERN_GROUP_NORM_BACK_H
#define DYCL_KERN_GROUP_NORM_BACK_H

#include "kern/isa.h"
#include "kern/kern.h"

typedef struct {
    int64_t n, c, inner, groups; /* [n, c, inner]: c / groups channels are normalised together */
    dycl_dtype dtype;            /* F32, F64 */
    double eps;
    int layer; /* a layer norm: what is infinite goes back to the weights otherwise */
} dycl_groups;

size_t dycl_kern_group_norm_back_scratch(const dycl_groups *groups); /* bytes */
/* out: the gradients of x, weight and bias, NULL where not wanted. weight: NULL: none. */
void dycl_kern_group_norm_back(const dycl_groups *groups, const void *gradient, const void *x, const void *weight,
                               void *const out[3], void *scratch);

#define DYCL_GROUP_ROWS 4 /* at most so many rows at a time; so many planes are summed side by side */

typedef struct {
    /* Rows `stride` elements apart, each a group with n weights. along, plain: what the rows give to the gradients of
     * weight and bias is added there. out: NULL: not wanted. */
    void (*rows)(void *out, const void *g, const void *x, const void *w, int64_t stride, size_t rows, size_t n,
                 double eps, void *along, void *plain, int layer);
    double (*deviation)(double *mean, const void *x, size_t n); /* the sum of squared distances from the mean */
    /* Of each plane, in pairs: the sum of g, and of g (x - m). */
    void (*sums)(double *out, const void *g, const void *x, double m, size_t planes, size_t n);
    /* Of each plane, with its weight: g w k0 + (x - k1) k2 + k3. */
    void (*planes)(void *out, const void *g, const void *x, const double *weight, const double k[4], size_t planes,
                   size_t n);
} dycl_group_row;
typedef struct {
    dycl_group_row row[2]; /* f32, f64 */
} dycl_group_table;
DYCL_ISA_TABLES(const dycl_group_table, dycl_group_table)

const dycl_group_row *dycl_kern_group_row(dycl_dtype dtype);

#endif
