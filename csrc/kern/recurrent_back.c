#include "kern/recurrent_back.h"

#include <string.h>

DYCL_ISA_CHOICE(const dycl_recurrent_row, dycl_recurrent_row)

const dycl_recurrent_row *dycl_kern_recurrent_row(dycl_isa isa) { return dycl_recurrent_row_for(isa); }

/* Of what one call works on: rows [first, first + rows) of the batch. */
typedef struct {
    const dycl_recurrent_back *r;
    int64_t first, rows;
    float *cells; /* [steps, rows, width]: after each step; LSTM only */
    float *spare; /* [rows, width] */
} share;

size_t dycl_recurrent_back_scratch(const dycl_recurrent_back *r, int64_t rows) {
    return (size_t)(rows * r->width) * (size_t)(r->kind == DYCL_RECURRENT_LSTM ? r->steps + 1 : 1);
}

static int64_t time_of(const dycl_recurrent_back *r, int64_t step) { return r->reversed ? r->steps - 1 - step : step; }

/* The cells of all steps once more. */
static void all_cells(const share *s) {
    const dycl_recurrent_back *r = s->r;
    const float *before = r->c + s->first * r->width;
    for (int64_t step = 0; step < r->steps; step++) {
        const float *gate = r->kept + (time_of(r, step) * r->batch + s->first) * r->gates;
        float *c = s->cells + step * s->rows * r->width;
        for (int64_t i = 0; i < s->rows; i++)
            r->row->cell(c + i * r->width, gate + i * r->gates, before + i * r->width, (size_t)r->width);
        before = c;
    }
}

static void lstm_step(const share *s, int64_t step, int64_t at) {
    const dycl_recurrent_back *r = s->r;
    int64_t n = r->width, first = s->first * n;
    const float *c = s->cells + step * s->rows * n, *before = step ? c - s->rows * n : r->c + first;
    r->tanh(s->spare, c, NULL, NULL, (size_t)(s->rows * n));
    for (int64_t i = 0; i < s->rows; i++)
        r->row->lstm(r->dx + (at + i) * r->gates, r->dc + first + i * n, r->kept + (at + i) * r->gates,
                     s->spare + i * n, before + i * n, r->g + (at + i) * n, r->dh + first + i * n, (size_t)n);
}

static void gru_step(const share *s, int64_t at) {
    const dycl_recurrent_back *r = s->r;
    int64_t n = r->width;
    for (int64_t i = 0; i < s->rows; i++)
        r->row->gru(r->dx + (at + i) * r->gates, r->by_state + (at + i) * r->gates, r->dh + (s->first + i) * n,
                    r->kept + (at + i) * 4 * n, r->states + (at + i) * n, r->g + (at + i) * n, (size_t)n);
}

static void plain_step(const share *s, int64_t at) {
    const dycl_recurrent_back *r = s->r;
    void (*row)(float *, const float *, const float *, const float *, size_t) =
        r->kind == DYCL_RECURRENT_TANH ? r->row->tanh : r->row->relu;
    at *= r->width;
    row(r->dx + at, r->states + at, r->g + at, r->dh + s->first * r->width, (size_t)(s->rows * r->width));
}

void dycl_recurrent_back_rows(const dycl_recurrent_back *r, int64_t first, int64_t end, float *scratch) {
    int64_t rows = end - first, n = r->width;
    size_t all = (size_t)(rows * n);
    share s = {r, first, rows, scratch, scratch + (dycl_recurrent_back_scratch(r, rows) - all)};
    float *dh = r->dh + first * n;
    memset(dh, 0, all * sizeof *dh);
    if (r->kind == DYCL_RECURRENT_LSTM) {
        memcpy(r->dc + first * n, r->g + (r->steps * r->batch + first) * n, all * sizeof *dh);
        all_cells(&s);
    }
    for (int64_t step = r->steps; step-- > 0;) {
        int64_t at = time_of(r, step) * r->batch + first;
        if (r->kind == DYCL_RECURRENT_LSTM)
            lstm_step(&s, step, at);
        else if (r->kind == DYCL_RECURRENT_GRU)
            gru_step(&s, at);
        else
            plain_step(&s, at);
        const float *d = (r->kind == DYCL_RECURRENT_GRU ? r->by_state : r->dx) + at * r->gates;
        float *out = r->kind == DYCL_RECURRENT_GRU ? s.spare : dh;
        r->product->run(out, n, d, r->gates, r->packed, NULL, rows, n, r->gates);
        if (out != dh) r->add(dh, dh, out, NULL, all);
    }
}
