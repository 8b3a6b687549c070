/* Recurrent layers back through time: gradients of what inputs and states gave to the gates, for some rows of the
 * batch. Weights' gradients are products of all steps at once, and no part of this.
 *
 * Ownership: none. Threads: pure; rows are independent of each other, so threads may take some each. */
#ifndef DYCL_KERN_RECURRENT_BACK_H
#define DYCL_KERN_RECURRENT_BACK_H

#include "kern/recurrent.h"

/* Rows of n elements. gate: as recurrent.h keeps them; out: their gradients. carry: the gradient of the state from the
 * steps after it; g: from what reads it. */
typedef struct {
    void (*tanh)(float *out, const float *state, const float *g, const float *carry, size_t n);
    void (*relu)(float *out, const float *state, const float *g, const float *carry, size_t n);
    void (*cell)(float *c, const float *gate, const float *before, size_t n); /* forget * before + input * cell */
    /* c: tanh of the cell; dc: the cell's gradient, afterwards that of the one before */
    void (*lstm)(float *out, float *dc, const float *gate, const float *c, const float *before, const float *g,
                 const float *carry, size_t n);
    /* by_state: the gradients of what the state gave to the gates; carry: afterwards that of the state before, without
     * what comes through the gates */
    void (*gru)(float *out, float *by_state, float *carry, const float *gate, const float *before, const float *g,
                size_t n);
} dycl_recurrent_row;
DYCL_ISA_TABLES(const dycl_recurrent_row, dycl_recurrent_row)

const dycl_recurrent_row *dycl_kern_recurrent_row(dycl_isa isa);

typedef struct {
    dycl_recurrent_kind kind;
    int reversed;
    int64_t steps, batch, width, gates;
    const float *kept;    /* [steps, batch, 4 * width]; LSTM, GRU only */
    const float *packed;  /* the weights [gates, width], as dycl_small_pack made them */
    const float *states;  /* [steps, batch, width]: after each step, GRU: before each; LSTM: none */
    const float *c;       /* first cell [batch, width]; LSTM only */
    const float *g;       /* gradient of all states [steps, batch, width], behind it that of the last cell (LSTM) */
    float *dx, *by_state; /* [steps, batch, gates]; by_state: GRU only, elsewhere both are the same */
    float *dh, *dc;       /* of the first state and cell [batch, width]; dc: LSTM only */
    const dycl_small *product;
    const dycl_recurrent_row *row;
    dycl_ew_fn add, tanh;
} dycl_recurrent_back;

size_t dycl_recurrent_back_scratch(const dycl_recurrent_back *r, int64_t rows); /* floats */
void dycl_recurrent_back_rows(const dycl_recurrent_back *r, int64_t first, int64_t end, float *scratch);

#endif
