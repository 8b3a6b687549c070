/* Recurrent layers after their inputs' products: the steps of one direction, for some rows of the batch.
 *
 * Ownership: none. Threads: pure; rows are independent of each other, so threads may take some each. */
#ifndef DYCL_KERN_RECURRENT_H
#define DYCL_KERN_RECURRENT_H

#include "kern/small.h"

typedef enum {
    DYCL_RECURRENT_TANH,
    DYCL_RECURRENT_RELU,
    DYCL_RECURRENT_LSTM,
    DYCL_RECURRENT_GRU,
    DYCL_RECURRENT_COUNT
} dycl_recurrent_kind;

#define DYCL_RECURRENT_WORTH_A_THREAD 500000 /* operations of the products */

static inline int64_t dycl_recurrent_gates(int64_t kind) {
    return kind == DYCL_RECURRENT_LSTM ? 4 : kind == DYCL_RECURRENT_GRU ? 3 : 1;
}

typedef struct {
    dycl_recurrent_kind kind;
    int reversed;
    int64_t steps, batch, width, gates; /* gates: of all rows of the weights, 1, 3 or 4 times the width */
    const float *x;                     /* [steps, batch, gates] */
    const float *packed, *bias;         /* the weights as dycl_small_pack made them; [gates] or NULL */
    const float *h, *c;                 /* [batch, width]; c: LSTM only */
    float *states, *last;               /* [steps, batch, width]; [batch, width], LSTM only */
    float *kept; /* LSTM, GRU: [steps, batch, 4 * width], the gates; GRU: and what the state gave to the last of them;
                    or NULL */
    const dycl_small *product;
    dycl_ew_fn add, sub, mul, sigmoid, tanh, relu;
} dycl_recurrent;

size_t dycl_recurrent_scratch(const dycl_recurrent *r, int64_t rows); /* floats */
void dycl_recurrent_rows(const dycl_recurrent *r, int64_t first, int64_t end, float *scratch);

#endif
