#include "kern/recurrent.h"

#include <string.h>

size_t dycl_recurrent_scratch(const dycl_recurrent *r, int64_t rows) { return (size_t)(rows * r->gates + r->width); }

/* Gates in torch's order: input, forget, cell, output. */
static void lstm_row(const dycl_recurrent *r, float *g, float *c, float *h, float *spare) {
    size_t n = (size_t)r->width;
    float *in = g, *forget = g + n, *cell = g + 2 * n, *out = g + 3 * n;
    r->sigmoid(in, in, NULL, NULL, 2 * n);
    r->tanh(cell, cell, NULL, NULL, n);
    r->sigmoid(out, out, NULL, NULL, n);
    r->mul(c, forget, c, NULL, n);
    r->mul(spare, in, cell, NULL, n);
    r->add(c, c, spare, NULL, n);
    r->tanh(spare, c, NULL, NULL, n);
    r->mul(h, out, spare, NULL, n);
}

/* reset, update, new; the reset gate applies after the product, so what comes from the input stays apart there, and
 * what comes from the state is kept. */
static void gru_row(const dycl_recurrent *r, float *g, const float *x, const float *before, float *h, float *spare) {
    size_t n = (size_t)r->width;
    float *reset = g, *update = g + n, *fresh = g + 2 * n;
    r->add(g, g, x, NULL, 2 * n);
    r->sigmoid(g, g, NULL, NULL, 2 * n);
    if (r->kept) memcpy(g + 3 * n, fresh, n * sizeof *g);
    r->mul(fresh, fresh, reset, NULL, n);
    r->add(fresh, x + 2 * n, fresh, NULL, n);
    r->tanh(fresh, fresh, NULL, NULL, n);
    r->sub(spare, before, fresh, NULL, n);
    r->mul(spare, spare, update, NULL, n);
    r->add(h, spare, fresh, NULL, n);
}

void dycl_recurrent_rows(const dycl_recurrent *r, int64_t first, int64_t end, float *scratch) {
    int64_t rows = end - first, width = r->width, gates = r->gates, apart = r->kept ? 4 * width : gates;
    float *g = scratch, *spare = scratch + rows * gates;
    const float *before = r->h + first * width;
    float *c = r->last ? r->last + first * width : NULL;
    if (c) memcpy(c, r->c + first * width, (size_t)(rows * width) * sizeof *c);
    for (int64_t s = 0; s < r->steps; s++) {
        int64_t t = r->reversed ? r->steps - 1 - s : s, at = t * r->batch + first;
        const float *x = r->x + at * gates;
        float *h = r->states + at * width;
        if (r->kept) g = r->kept + at * apart;
        r->product->run(g, apart, before, width, r->packed, r->bias, rows, gates, width);
        if (r->kind != DYCL_RECURRENT_GRU) r->add(g, g, x, NULL, (size_t)(rows * gates));
        if (r->kind == DYCL_RECURRENT_TANH) r->tanh(h, g, NULL, NULL, (size_t)(rows * width));
        if (r->kind == DYCL_RECURRENT_RELU) r->relu(h, g, NULL, NULL, (size_t)(rows * width));
        for (int64_t i = 0; i < rows && gates != width; i++) {
            if (r->kind == DYCL_RECURRENT_LSTM)
                lstm_row(r, g + i * apart, c + i * width, h + i * width, spare);
            else
                gru_row(r, g + i * apart, x + i * gates, before + i * width, h + i * width, spare);
        }
        before = h;
    }
}
