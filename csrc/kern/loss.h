/* Losses of elements and their gradients, in one pass over the operands, the mean or the sum with it.
 *
 * Ownership: pointers are borrowed. Threads: pure functions; dycl_kern_loss starts several of its own. */
#ifndef DYCL_KERN_LOSS_H
#define DYCL_KERN_LOSS_H

#include "kern/isa.h"
#include "kern/kern.h"

/* kinds; LOGITS_POSITIVE: with a weight of what is positive. CHECKED: of shares, which lie within [0, 1]; WORK: how
 * much one element is, in streams of memory */
#define DYCL_LOSS_ROWS(X)                                                                                              \
    X(SMOOTH_L1, smooth_l1, 0, 2)                                                                                      \
    X(HUBER, huber, 0, 2)                                                                                              \
    X(SOFT_MARGIN, soft_margin, 0, 4)                                                                                  \
    X(BCE, bce, 1, 4)                                                                                                  \
    X(LOGITS, logits, 0, 4)                                                                                            \
    X(LOGITS_POSITIVE, logits_positive, 0, 4)                                                                          \
    X(SMOOTH_L1_BACK, smooth_l1_back, 0, 3)                                                                            \
    X(HUBER_BACK, huber_back, 0, 3)                                                                                    \
    X(SOFT_MARGIN_BACK, soft_margin_back, 0, 4)                                                                        \
    X(BCE_BACK, bce_back, 0, 3)

#define DYCL_LOSS_ENUM_(NAME, ...) DYCL_LOSS_##NAME,
typedef enum { DYCL_LOSS_ROWS(DYCL_LOSS_ENUM_) DYCL_LOSS_COUNT } dycl_loss;

/* Operands: each has one element for all, or as many as there are, or repeats. */
enum { DYCL_LOSS_X, DYCL_LOSS_TARGET, DYCL_LOSS_WEIGHT, DYCL_LOSS_POSITIVE, DYCL_LOSS_GRADIENT, DYCL_LOSS_OPERANDS };

typedef struct {
    double at;      /* beta or delta */
    double scale;   /* of gradients: 1, or 1 / elements */
    double inverse; /* of `at`, where that is a power of two, else 0; dycl_kern_loss sets it */
} dycl_loss_numbers;

typedef struct {
    dycl_loss kind;
    dycl_dtype dtype; /* f32 or f64 */
    int sums, mean;   /* sums: the result is one element */
    int64_t n;
    dycl_loss_numbers numbers;
    int64_t period[DYCL_LOSS_OPERANDS]; /* elements; 0: one for all */
} dycl_loss_desc;

size_t dycl_kern_loss_scratch(const dycl_loss_desc *desc);
/* in: those of the kind, a weight that is NULL is 1. The order in which a sum is made depends on n only. 0: an element
 * that must be a share is none, and what was written means nothing. */
int dycl_kern_loss(const dycl_loss_desc *desc, void *to, const void *const *in, void *scratch);

/* ---- The loops under it. ones: bits of operands with one element for all; 0: an element is no share */
typedef int (*dycl_loss_fn)(const dycl_loss_numbers *numbers, void *to, const void *const *in, unsigned ones, size_t n);
typedef struct {
    dycl_loss_fn loss[DYCL_LOSS_COUNT][2]; /* f32, f64 */
} dycl_loss_table;
DYCL_ISA_TABLES(const dycl_loss_table, dycl_loss_table)

#endif
