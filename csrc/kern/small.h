/* Products with few rows: C[m, n] = A[m, k] B[k, n] + bias[n], where calling a BLAS costs as much as the product.
 *
 * B is packed once: panels of `width` columns (a multiple of the vector length, less in the last panel), each row
 * after row.
 *
 * Ownership: none. Threads: pure, serial. */
#ifndef DYCL_KERN_SMALL_H
#define DYCL_KERN_SMALL_H

#include "kern/isa.h"
#include "kern/kern.h"

/* a: rows at lda, columns at 1. bias: n elements or NULL. */
typedef void (*dycl_small_fn)(float *c, int64_t ldc, const float *a, int64_t lda, const float *packed,
                              const float *bias, int64_t m, int64_t n, int64_t k);
typedef struct {
    dycl_small_fn run;
    int vector, panel; /* floats */
} dycl_small;

const dycl_small *dycl_kern_small(dycl_isa isa);
size_t dycl_small_bytes(const dycl_small *small, int64_t n, int64_t k);
void dycl_small_pack(const dycl_small *small, float *packed, const float *b, int64_t row_stride, int64_t column_stride,
                     int64_t n, int64_t k);

DYCL_ISA_TABLES(const dycl_small, dycl_small)

#endif
