/* Products of few rows over weights in fewer bits, without any rounding: C[m, n] = A[m, k] B[k, n] + bias[n]. Their
 * time is the reading of B, and the weights of a model do not need their 32 bits.
 *
 * 28 bits: sign and mantissa as they are, the exponent as one of fifteen that follow one another; the sixteenth code is
 * zero. A weight with another exponent (one in ten thousand, when they are normally distributed) stands as a zero and
 * is kept aside: it is added at the end. 16 bits: where the low halves of all weights are zero, as in models that were
 * saved in bfloat16.
 *
 * Packed: a header; the columns of B one after the other, in groups of 32 weights; per column where its kept weights
 * begin, and these. A group of 28 bits is 32 low halves, 32 bytes of sign, code and three bits, 16 bytes of two times
 * four bits (weight i, weight i + 16). A group of 16 bits is 16 words of two upper halves (weight i, weight i + 16).
 *
 * Ownership: none. Threads: pure; packing uses OpenMP inside. */
#ifndef DYCL_KERN_NARROW_H
#define DYCL_KERN_NARROW_H

#include <stddef.h>
#include <stdint.h>

#include "kern/isa.h"

#define DYCL_NARROW_ROWS  4 /* of A, at most */
#define DYCL_NARROW_GROUP 32

typedef struct {
    int64_t n, k, row, column; /* n 0: not this form. Strides of B in elements */
} dycl_narrow_layout;

typedef struct {
    uint32_t position; /* in its column */
    float weight;
} dycl_narrow_kept;

typedef struct {
    int usable;             /* 0: too many weights would have to be kept aside */
    int bits;               /* 28 or 16 */
    int base;               /* of 28 bits: the exponent before the fifteen */
    int64_t groups;         /* of a column */
    const uint32_t *begins; /* n + 1; inside the packed memory, as all that follows */
    const dycl_narrow_kept *kept;
    const uint8_t *columns;
} dycl_narrow_header;

typedef struct {
    const float *a, *bias;            /* bias: n elements or NULL */
    const dycl_narrow_header *packed; /* usable */
    float *c;
    int64_t first;       /* column of B that makes C's first */
    int64_t lda, ldc, k; /* A's and C's columns are contiguous */
    int m;
} dycl_narrow;

typedef struct {
    void (*run)(const dycl_narrow *g, int64_t from, int64_t end); /* columns [from, end) of C */
    int (*encode28)(uint8_t *group, const float *weights,
                    int base); /* DYCL_NARROW_GROUP weights; how many have to be kept */
    int (*encode16)(uint8_t *group, const float *weights, int base);
} dycl_narrow_table;

const dycl_narrow_table *dycl_kern_narrow(dycl_isa isa); /* NULL: the ISA has none */
DYCL_ISA_TABLES(const dycl_narrow_table, dycl_narrow)

size_t dycl_narrow_bytes(const dycl_narrow_layout *form); /* most of it is touched only when it is needed */
void dycl_narrow_pack(const dycl_narrow_table *table, const dycl_narrow_layout *form, const float *b, void *packed,
                      int threads);

static inline int dycl_narrow_group_bytes(int bits) { return DYCL_NARROW_GROUP * bits / 8; }
/* The sum of row i of A with column j of B, where `sum` lacks the weights that are kept aside. */
double dycl_narrow_complete(const dycl_narrow *g, int i, int64_t j, double sum);

#endif
