#include "check/reference.h"

#include "base/alloc.h"

#include <string.h>

/* Recurrent layers back through time, a row of the batch after the other. */

static dycl_number add(dycl_number x, dycl_number y) { return dycl_number_f32_2(DYCL_EW_add, x, y); }
static dycl_number mul(dycl_number x, dycl_number y) { return dycl_number_f32_2(DYCL_EW_mul, x, y); }
static dycl_number less_than_one(dycl_number y) {
    return dycl_number_f32_2(DYCL_EW_sub, dycl_number_f(DYCL_F32, 1, 0), y);
}
static dycl_number through_sigmoid(dycl_number g, dycl_number y) { return mul(mul(g, less_than_one(y)), y); }
static dycl_number through_tanh(dycl_number g, dycl_number y) { return mul(g, less_than_one(mul(y, y))); }

typedef struct {
    dycl_reference *r;
    const uint32_t *o;
    dycl_recurrent_kind kind;
    int64_t steps, batch, width, gates, row;
    int reversed;
    dycl_number *cells;           /* [1 + steps, width]: the first, and after each step */
    dycl_number *carry, *d_cell;  /* [width]: of the state and the cell after this step */
    dycl_number *d_gates, *d_fed; /* [gates] */
} recurrence;

static dycl_number at3(const recurrence *c, int operand, int64_t t, int64_t i) {
    return dycl_reference_get(c->r, c->o[operand], (int64_t[]){t, c->row, i}, 3);
}

static int64_t time_of(const recurrence *c, int64_t step) { return c->reversed ? c->steps - 1 - step : step; }

/* What reads all states in one row, and behind them the last cell, gave back. */
static dycl_number given(const recurrence *c, int64_t t, int64_t i) {
    return dycl_reference_get(c->r, c->o[4], (int64_t[]){(t * c->batch + c->row) * c->width + i}, 1);
}

/* What the layer kept of a step. */
static dycl_number gate(const recurrence *c, int64_t t, int64_t which, int64_t i) {
    return at3(c, 0, t, which * c->width + i);
}

static void all_cells(recurrence *c) {
    for (int64_t step = 0; step < c->steps; step++)
        for (int64_t i = 0; i < c->width; i++) {
            int64_t t = time_of(c, step);
            c->cells[(step + 1) * c->width + i] =
                add(mul(gate(c, t, 1, i), c->cells[step * c->width + i]), mul(gate(c, t, 0, i), gate(c, t, 2, i)));
        }
}

static void lstm(recurrence *c, int64_t step, int64_t t, int64_t i, dycl_number d) {
    int64_t n = c->width;
    dycl_number in = gate(c, t, 0, i), forget = gate(c, t, 1, i), fresh = gate(c, t, 2, i), out = gate(c, t, 3, i);
    dycl_number squashed = dycl_number_f32_1(DYCL_EW_tanh, c->cells[(step + 1) * n + i]),
                cell = add(c->d_cell[i], through_tanh(mul(d, out), squashed));
    c->d_gates[i] = through_sigmoid(mul(cell, fresh), in);
    c->d_gates[n + i] = through_sigmoid(mul(cell, c->cells[step * n + i]), forget);
    c->d_gates[2 * n + i] = through_tanh(mul(cell, in), fresh);
    c->d_gates[3 * n + i] = through_sigmoid(mul(d, squashed), out);
    c->d_cell[i] = mul(cell, forget);
    c->carry[i] = dycl_number_f(DYCL_F32, 0, 0);
}

static void gru(recurrence *c, int64_t t, int64_t i, dycl_number d) {
    int64_t n = c->width;
    dycl_number reset = gate(c, t, 0, i), update = gate(c, t, 1, i), fresh = gate(c, t, 2, i), fed = gate(c, t, 3, i);
    dycl_number kept = mul(d, update), d_fresh = through_tanh(dycl_number_f32_2(DYCL_EW_sub, d, kept), fresh);
    c->d_gates[i] = c->d_fed[i] = through_sigmoid(mul(d_fresh, fed), reset);
    c->d_gates[n + i] = c->d_fed[n + i] =
        through_sigmoid(mul(d, dycl_number_f32_2(DYCL_EW_sub, at3(c, 2, t, i), fresh)), update);
    c->d_gates[2 * n + i] = d_fresh;
    c->d_fed[2 * n + i] = mul(d_fresh, reset);
    c->carry[i] = kept;
}

static void plain(recurrence *c, int64_t t, int64_t i, dycl_number d) {
    dycl_number y = at3(c, 2, t, i), zero = dycl_number_f(DYCL_F32, 0, 0),
                below = dycl_number_f32_2(DYCL_EW_le, y, zero);
    dycl_number three[3] = {below, zero, d};
    c->d_gates[i] =
        c->kind == DYCL_RECURRENT_TANH ? through_tanh(d, y) : dycl_number_apply(DYCL_EW_where, DYCL_F32, 3, three);
    c->carry[i] = zero;
}

/* Through the weights to the state before. */
static void carry_on(recurrence *c) {
    const dycl_number *d = c->kind == DYCL_RECURRENT_GRU ? c->d_fed : c->d_gates;
    for (int64_t i = 0; i < c->width; i++) {
        dycl_number_sum s = {0};
        for (int64_t g = 0; g < c->gates; g++)
            dycl_number_add_product(&s, d[g], dycl_reference_get(c->r, c->o[1], (int64_t[]){g, i}, 2));
        if (c->r->graph->options & DYCL_OPTION_BF16) s.error += s.magnitude / 64;
        dycl_number through = dycl_number_total(DYCL_F32, &s, 1);
        c->carry[i] = c->kind == DYCL_RECURRENT_GRU ? add(c->carry[i], through) : through;
    }
}

static void set(const recurrence *c, uint32_t out, int64_t at, const dycl_number *from, int64_t count) {
    for (int64_t i = 0; i < count; i++) dycl_reference_set(c->r, out, (int64_t[]){at + i}, from[i]);
}

static void one_row(recurrence *c, uint32_t out) {
    int64_t n = c->width, all = c->steps * c->batch * c->gates, first = all + c->batch * n;
    for (int64_t i = 0; i < n; i++) {
        c->carry[i] = dycl_number_f(DYCL_F32, 0, 0);
        if (c->kind != DYCL_RECURRENT_LSTM) continue;
        c->cells[i] = dycl_reference_get(c->r, c->o[3], (int64_t[]){c->row, i}, 2);
        c->d_cell[i] = dycl_reference_get(c->r, c->o[4], (int64_t[]){(c->steps * c->batch + c->row) * n + i}, 1);
    }
    if (c->kind == DYCL_RECURRENT_LSTM) all_cells(c);
    for (int64_t step = c->steps; step-- > 0;) {
        int64_t t = time_of(c, step), at = (t * c->batch + c->row) * c->gates;
        for (int64_t i = 0; i < n; i++) {
            dycl_number d = add(given(c, t, i), c->carry[i]);
            if (c->kind == DYCL_RECURRENT_LSTM)
                lstm(c, step, t, i, d);
            else if (c->kind == DYCL_RECURRENT_GRU)
                gru(c, t, i, d);
            else
                plain(c, t, i, d);
        }
        carry_on(c);
        set(c, out, at, c->d_gates, c->gates);
        if (c->kind == DYCL_RECURRENT_GRU) set(c, out, first + at, c->d_fed, c->gates);
    }
    set(c, out, all + c->row * n, c->carry, n);
    if (c->kind == DYCL_RECURRENT_LSTM) set(c, out, first + c->row * n, c->d_cell, n);
}

dycl_status dycl_reference_recurrent_back(dycl_reference *r, const dycl_node *node, const uint32_t *o,
                                          const int64_t *attrs) {
    const dycl_value *of = dycl_reference_value(r, o[0] != DYCL_NONE ? o[0] : o[2]), *w = dycl_reference_value(r, o[1]);
    int64_t n = w->sizes[1], gates = w->sizes[0], steps = of->sizes[0];
    dycl_number *room = dycl_alloc_zero((size_t)((steps + 3) * n + 2 * gates) * sizeof *room);
    if (!room) return dycl_error_set("out of memory");
    recurrence c = {.r = r, .o = o, .kind = (dycl_recurrent_kind)attrs[0], .reversed = attrs[1] != 0};
    c.steps = steps, c.batch = of->sizes[1], c.width = n, c.gates = gates;
    c.cells = room, c.carry = room + (steps + 1) * n, c.d_cell = c.carry + n;
    c.d_gates = c.d_cell + n, c.d_fed = c.d_gates + gates;
    for (c.row = 0; c.row < c.batch; c.row++) one_row(&c, node->out);
    dycl_free(room);
    return DYCL_OK;
}
