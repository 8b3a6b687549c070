/* Attention's scores between its two products: rows become the numerators of their softmax, and the second product's
 * rows are scaled after it, which is less than the scores themselves (FlashAttention, Dao et al. 2022, section 3.1).
 *
 * Ownership: none. Threads: pure, serial. */
#ifndef DYCL_KERN_SCORES_H
#define DYCL_KERN_SCORES_H

#include <stdint.h>

#include "kern/isa.h"

typedef struct {
    float *x;            /* rows at multiples of ld; each has room up to the next multiple of DYCL_SCORES_PAD */
    int64_t ld, rows, n; /* n: keys */
    int64_t seen;        /* causal: keys that the first row sees, every row one more; 0: each sees all */
    float scale;         /* of the scores, before the mask */
    const float *mask;   /* added; n beside each other; or NULL */
    int64_t mask_row;
    float *factors; /* out, a row each: 1 / the sum of exp(x - max) */
} dycl_scores;

#define DYCL_SCORES_PAD 16

typedef struct {
    /* x = exp(x * scale + mask - the row's largest), 0 for keys that are not seen and where all are masked (-inf) */
    void (*exponentials)(const dycl_scores *s);
    /* row: from one to the next. 1; 0: not all of the results are finite */
    int (*scale)(float *x, int64_t row, int64_t rows, int64_t n, const float *factors);
} dycl_scores_table;

const dycl_scores_table *dycl_kern_scores(dycl_isa isa);
DYCL_ISA_TABLES(const dycl_scores_table, dycl_scores)

#endif
