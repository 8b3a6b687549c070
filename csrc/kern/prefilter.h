/* The place of the largest element in each row of C[m, n] = A[m, k] B[k, n] + bias[n] without computing all of C. Its
 * time is the reading of B, so all columns are read in 8 bits first; only those whose sum may be the largest, as the
 * error of their 8 bits is known, are then computed as they are.
 *
 * A column w is kept as whole numbers q of a scale s; with r = w - s q, |a w - s (a q)| <= |a| |r| (Cauchy and
 * Schwarz), to which the rounding of both sums is added: its slack, times the norm of a. A column of which that cannot
 * be said (an infinity, a NaN) has an infinite slack: it is always computed.
 *
 * Packed: a header, slack and scale of each column, the columns one after the other, each filled up to a multiple
 * of 64.
 *
 * Ownership: none. Threads: pure; packing uses OpenMP inside. */
#ifndef DYCL_KERN_PREFILTER_H
#define DYCL_KERN_PREFILTER_H

#include <stddef.h>
#include <stdint.h>

#include "kern/isa.h"

#define DYCL_PREFILTER_ROWS   4         /* of A, at most */
#define DYCL_PREFILTER_K      (1 << 17) /* at most */
#define DYCL_PREFILTER_STORED 2

typedef struct {
    int64_t n, k, column; /* n 0: not this form. B's columns are contiguous, `column` elements apart */
    int64_t rounded;      /* 1: B's elements are meant as bfloat16; DYCL_PREFILTER_STORED: they are */
} dycl_prefilter_layout;

typedef struct {
    int usable;                 /* 0: many columns would always have to be computed */
    int64_t bytes;              /* of a column */
    const float *scale, *slack; /* n each; inside the packed memory, as what follows */
    const int8_t *columns;
} dycl_prefilter_header;

typedef struct {
    const float *a, *bias; /* bias: n elements or NULL */
    const dycl_prefilter_header *packed;
    float *c;                        /* what 8 bits say */
    int64_t lda, ldc, k;             /* A's and C's columns are contiguous */
    float norm[DYCL_PREFILTER_ROWS]; /* of A's rows, dycl_prefilter_norm */
    int m;
} dycl_prefilter;

typedef struct {
    /* Columns [from, end) of C; floor[i]: what the largest element of row i there is at least. */
    void (*scores)(const dycl_prefilter *g, int64_t from, int64_t end, float *floor);
    /* Columns of [from, end) whose element in row i may reach the floor, into out (end - from places); how many. */
    int64_t (*above)(const dycl_prefilter *g, int i, float floor, int64_t from, int64_t end, uint32_t *out);
    void (*quantise)(const void *w, int64_t k, int rounded, int8_t *to, int64_t bytes, float *scale, float *slack);
} dycl_prefilter_table;

const dycl_prefilter_table *dycl_kern_prefilter(dycl_isa isa); /* NULL: the ISA has none */
DYCL_ISA_TABLES(const dycl_prefilter_table, dycl_prefilter)

size_t dycl_prefilter_bytes(const dycl_prefilter_layout *form);
void dycl_prefilter_pack(const dycl_prefilter_table *table, const dycl_prefilter_layout *form, const void *b,
                         void *packed, int threads);
/* An upper bound of a row's norm; infinite where sums with it cannot be bounded: it is not finite, or products may
 * overflow. */
float dycl_prefilter_norm(const float *a, int64_t k);

#endif
