/* Products whose time is the reading of B: C[m, n] = A[m, k] B[k, n] + bias[n] with at most DYCL_GEMV_ROWS rows, B as
 * it lies.
 *
 * Several places of B are read at once: the prefetchers of a core follow each of them, and more lines are under way
 * than one sequential reader gets (two cores of a Granite Rapids server: 31 GB/s with one stream each, 36 with eight).
 *
 * Ownership: none. Threads: pure, serial. */
#ifndef DYCL_KERN_GEMV_H
#define DYCL_KERN_GEMV_H

#include "kern/isa.h"
#include "kern/kern.h"

#define DYCL_GEMV_ROWS 4

typedef struct {
    const float *a, *bias; /* bias: n elements or NULL */
    const void *b;         /* of the function's type */
    float *c;
    int64_t lda, ldb, ldc, n,
        k; /* A's and C's columns are contiguous; ldb: between rows of B, or its columns in `dot` */
    int m;
    const char *next;  /* dot: what is read after this call, or NULL; it is fetched meanwhile, */
    int64_t next_step; /* so many bytes with each vector of A, at most 128 */
} dycl_gemv;

/* dot: the columns of B are contiguous (the weights of a linear); columns [from, end) of C.
 * axpy: the rows of B are; C = bias + its rows [from, end) times A's columns there, so that a team that shares the rows
 * adds up. */
typedef void (*dycl_gemv_fn)(const dycl_gemv *g, int64_t from, int64_t end);
typedef struct {
    dycl_gemv_fn dot, axpy; /* of float32 */
    struct {
        dycl_gemv_fn dot, axpy;
    } bf16, f16; /* B; all else is float32 */
} dycl_gemv_table;

const dycl_gemv_table *dycl_kern_gemv(dycl_isa isa);
DYCL_ISA_TABLES(const dycl_gemv_table, dycl_gemv)

#endif
