/* Body of the rows of recurrent layers that go back. Before including: DYCL_LEVEL, DYCL_RECURRENT_ROW.
 *
 * Formulas are torch's: sigmoid's gradient is g * (1 - y) * y, tanh's g * (1 - y * y), relu's 0 where y <= 0. */
#include "kern/recurrent_back.h"
#include "kern/rowvec.h"

/* What is left of a row is a part of a vector. */
static inline __attribute__((always_inline)) vf get(const float *p, size_t n) {
    return n == vf_lanes ? vf_load(p) : vf_load_part(p, n, (vf){0});
}

static inline __attribute__((always_inline)) void put(float *p, size_t n, vf v) {
    if (n == vf_lanes)
        vf_store(p, v);
    else
        vf_store_part(p, n, v);
}

#define ROWS(count, body)                                                                                              \
    do {                                                                                                               \
        size_t i = 0;                                                                                                  \
        for (; i + vf_lanes <= (count); i += vf_lanes) body(vf_lanes);                                                 \
        if (i < (count)) body((count)-i);                                                                              \
    } while (0)

static inline vf through_sigmoid(vf g, vf y) { return g * (1.0f - y) * y; }
static inline vf through_tanh(vf g, vf y) { return g * (1.0f - y * y); }

static void tanh_row(float *out, const float *state, const float *g, const float *carry, size_t n) {
#define PART(k) put(out + i, k, through_tanh(get(g + i, k) + get(carry + i, k), get(state + i, k)))
    ROWS(n, PART);
#undef PART
}

static void relu_row(float *out, const float *state, const float *g, const float *carry, size_t n) {
#define PART(k)                                                                                                        \
    put(out + i, k, vf_select((vf_int)(get(state + i, k) <= (vf){0}), (vf){0}, get(g + i, k) + get(carry + i, k)))
    ROWS(n, PART);
#undef PART
}

static void cell_row(float *c, const float *gate, const float *before, size_t n) {
#define PART(k) put(c + i, k, get(gate + n + i, k) * get(before + i, k) + get(gate + i, k) * get(gate + 2 * n + i, k))
    ROWS(n, PART);
#undef PART
}

static inline __attribute__((always_inline)) void lstm_part(float *d, float *dc, const float *gate, const float *c,
                                                            const float *before, const float *g, const float *carry,
                                                            size_t n, size_t k) {
    vf in = get(gate, k), forget = get(gate + n, k), fresh = get(gate + 2 * n, k), out = get(gate + 3 * n, k);
    vf state = get(g, k) + get(carry, k), squashed = get(c, k);
    vf cell = get(dc, k) + through_tanh(state * out, squashed);
    put(d, k, through_sigmoid(cell * fresh, in));
    put(d + n, k, through_sigmoid(cell * get(before, k), forget));
    put(d + 2 * n, k, through_tanh(cell * in, fresh));
    put(d + 3 * n, k, through_sigmoid(state * squashed, out));
    put(dc, k, cell * forget);
}

static void lstm_row(float *out, float *dc, const float *gate, const float *c, const float *before, const float *g,
                     const float *carry, size_t n) {
#define PART(k) lstm_part(out + i, dc + i, gate + i, c + i, before + i, g + i, carry + i, n, k)
    ROWS(n, PART);
#undef PART
}

/* new + update * (before - new), new = tanh(x + reset * fed) */
static inline __attribute__((always_inline)) void gru_part(float *d, float *by_state, float *carry, const float *gate,
                                                           const float *before, const float *g, size_t n, size_t k) {
    vf reset = get(gate, k), update = get(gate + n, k), fresh = get(gate + 2 * n, k), fed = get(gate + 3 * n, k);
    vf state = get(g, k) + get(carry, k), kept = state * update;
    vf d_fresh = through_tanh(state - kept, fresh);
    vf d_reset = through_sigmoid(d_fresh * fed, reset);
    vf d_update = through_sigmoid(state * (get(before, k) - fresh), update);
    put(d, k, d_reset), put(by_state, k, d_reset);
    put(d + n, k, d_update), put(by_state + n, k, d_update);
    put(d + 2 * n, k, d_fresh), put(by_state + 2 * n, k, d_fresh * reset);
    put(carry, k, kept);
}

static void gru_row(float *out, float *by_state, float *carry, const float *gate, const float *before, const float *g,
                    size_t n) {
#define PART(k) gru_part(out + i, by_state + i, carry + i, gate + i, before + i, g + i, n, k)
    ROWS(n, PART);
#undef PART
}

const dycl_recurrent_row DYCL_RECURRENT_ROW = {tanh_row, relu_row, cell_row, lstm_row, gru_row};
