#include "check/reference.h"

#include "base/alloc.h"

#include <math.h>
#include <string.h>

/* Products: matrices, groups of rows, recurrences, attention. */

/* Weights as bfloat16, where the model asked for it: 8 bits of each factor. */
static dycl_number product_total(const dycl_reference *r, dycl_dtype dtype, dycl_number_sum *s) {
    if (r->graph->options & DYCL_OPTION_BF16) s->error += s->magnitude / 64;
    return dycl_number_total(dtype, s, 1);
}

/* Floats in the sum, integers in `whole`: the terms x[i] y[i] of two lines of k elements. */
static void add_pairs(dycl_number_sum *s, uint64_t *whole, const dycl_number *x, int64_t x_step, const dycl_number *y,
                      int64_t y_step, int64_t k) {
    for (int64_t i = 0; i < k; i++) {
        dycl_number a = x[i * x_step], b = y[i * y_step];
        *whole += (uint64_t)a.i * (uint64_t)b.i;
        dycl_number_add_product(s, a, b);
    }
}

static dycl_number pairs_total(const dycl_reference *r, dycl_dtype dtype, dycl_number_sum *s, uint64_t whole) {
    if (dycl_dtype_is_float(dtype)) return product_total(r, dtype, s);
    return s->unknown ? dycl_number_unknown() : dycl_number_i(dtype, (int64_t)whole);
}

/* The sum over k of a[..., k at dimension dl] b[..., k at dimension dr]; both indices have `rank` dimensions. */
static dycl_number dot(const dycl_reference *r, dycl_dtype dtype, uint32_t a, int64_t *left, int dl, uint32_t b,
                       int64_t *right, int dr, int rank, int64_t k) {
    dycl_number_sum s = {0};
    uint64_t whole = 0;
    int64_t x_step, y_step;
    left[dl] = right[dr] = 0;
    const dycl_number *x = dycl_reference_line(r, a, left, rank, dl, &x_step),
                      *y = dycl_reference_line(r, b, right, rank, dr, &y_step);
    add_pairs(&s, &whole, x, x_step, y, y_step, k);
    return pairs_total(r, dtype, &s, whole);
}

/* A sum that begins with an element of a bias, or with nothing. */
static dycl_number_sum begin_with(const dycl_reference *r, uint32_t bias, const int64_t *at) {
    dycl_number_sum s = {0};
    if (bias == DYCL_NONE) return s;
    dycl_number x = dycl_reference_get(r, bias, at, 1);
    dycl_number_add(&s, x.f, x.error);
    s.unknown = !dycl_number_known(x);
    return s;
}

static dycl_status linear(dycl_reference *r, const dycl_node *node, const uint32_t *o) {
    const dycl_value *x = dycl_reference_value(r, o[0]), *out = dycl_reference_value(r, node->out);
    int64_t index[DYCL_MAX_RANK] = {0}, left[DYCL_MAX_RANK], k = x->sizes[x->rank - 1], x_step, w_step;
    int last = out->rank - 1;
    do {
        int64_t row[2] = {index[last], 0};
        dycl_number_sum s = begin_with(r, o[2], row);
        uint64_t whole = o[2] == DYCL_NONE ? 0 : (uint64_t)dycl_reference_get(r, o[2], row, 1).i;
        memcpy(left, index, sizeof left);
        left[last] = 0;
        const dycl_number *from = dycl_reference_line(r, o[0], left, out->rank, last, &x_step),
                          *weights = dycl_reference_line(r, o[1], row, 2, 1, &w_step);
        add_pairs(&s, &whole, from, x_step, weights, w_step, k);
        dycl_reference_set(r, node->out, index, pairs_total(r, (dycl_dtype)out->dtype, &s, whole));
    } while (dycl_reference_next(index, out->sizes, out->rank));
    return DYCL_OK;
}

dycl_status dycl_reference_matmul(dycl_reference *r, const dycl_node *node, const uint32_t *o, const int64_t *attrs) {
    const dycl_value *a = dycl_reference_value(r, o[0]), *out = dycl_reference_value(r, node->out);
    int64_t index[DYCL_MAX_RANK] = {0}, left[DYCL_MAX_RANK], right[DYCL_MAX_RANK], k = a->sizes[a->rank - 1];
    int rank = out->rank;
    (void)attrs;
    if (dycl_value_numel(out) == 0) return DYCL_OK;
    if (node->op == DYCL_OP_linear) return linear(r, node, o);
    do {
        memcpy(left, index, sizeof left);
        memcpy(right, index, sizeof right);
        dycl_reference_set(r, node->out, index,
                           dot(r, (dycl_dtype)out->dtype, o[0], left, rank - 1, o[1], right, rank - 2, rank, k));
    } while (dycl_reference_next(index, out->sizes, rank));
    return DYCL_OK;
}

static void grouped_row(dycl_reference *r, const dycl_node *node, const uint32_t *o, int64_t group, int64_t row) {
    const dycl_value *x = dycl_reference_value(r, o[0]), *w = dycl_reference_value(r, o[1]);
    for (int64_t column = 0; column < w->sizes[2]; column++) {
        int64_t at[2] = {row, column}, left[3] = {0, row, 0}, right[3] = {group, 0, column};
        dycl_reference_set(r, node->out, at, dot(r, DYCL_F32, o[0], left, 2, o[1], right, 1, 3, x->sizes[1]));
    }
}

/* A group is the slice between the end before it and its own, as torch slices: a negative end counts from behind.
 * Groups may share rows, and then the last one's product stays. Rows of no group are 0. */
dycl_status dycl_reference_grouped(dycl_reference *r, const dycl_node *node, const uint32_t *o, const int64_t *attrs) {
    int64_t rows = dycl_reference_value(r, o[0])->sizes[0], groups = dycl_reference_value(r, o[1])->sizes[0], first = 0;
    (void)attrs;
    for (int64_t group = 0; group < groups; group++) {
        dycl_number e = dycl_reference_get(r, o[2], &group, 1);
        if (!dycl_number_known(e)) return dycl_error_bail("ends of groups that are not known");
        int64_t end = e.i < 0 ? e.i + rows : e.i;
        end = end < 0 ? 0 : end > rows ? rows : end;
        for (int64_t row = first; row < end; row++) grouped_row(r, node, o, group, row);
        first = end;
    }
    return DYCL_OK;
}

/* ---- Recurrent layers: gates in torch's order */

typedef struct {
    dycl_reference *r;
    const uint32_t *o;
    int64_t width;
    dycl_number *state, *cell, *fresh; /* of one row of the batch */
    dycl_number *kept;                 /* [4 * width]: its gates, GRU: and what the state gave to the last of them */
} recurrence;

/* What the state gives to a gate's element. */
static dycl_number from_state(const recurrence *c, int64_t gate, int64_t i) {
    int64_t row[2] = {gate * c->width + i, 0};
    dycl_number_sum s = begin_with(c->r, c->o[2], row);
    for (row[1] = 0; row[1] < c->width; row[1]++)
        dycl_number_add_product(&s, c->state[row[1]], dycl_reference_get(c->r, c->o[1], row, 2));
    return product_total(c->r, DYCL_F32, &s);
}

static dycl_number gate(const recurrence *c, int64_t *at, int64_t which, int64_t i) {
    at[2] = which * c->width + i;
    return dycl_number_f32_2(DYCL_EW_add, from_state(c, which, i), dycl_reference_get(c->r, c->o[0], at, 3));
}

static dycl_number next_state(recurrence *c, dycl_recurrent_kind kind, int64_t *at, int64_t i) {
    if (kind == DYCL_RECURRENT_TANH || kind == DYCL_RECURRENT_RELU)
        return dycl_number_f32_1(kind == DYCL_RECURRENT_TANH ? DYCL_EW_tanh : DYCL_EW_relu, gate(c, at, 0, i));
    dycl_number *kept = c->kept + i;
    int64_t n = c->width;
    if (kind == DYCL_RECURRENT_LSTM) {
        for (int64_t g = 0; g < 4; g++)
            kept[g * n] = dycl_number_f32_1(g == 2 ? DYCL_EW_tanh : DYCL_EW_sigmoid, gate(c, at, g, i));
        c->cell[i] = dycl_number_f32_2(DYCL_EW_add, dycl_number_f32_2(DYCL_EW_mul, kept[n], c->cell[i]),
                                       dycl_number_f32_2(DYCL_EW_mul, kept[0], kept[2 * n]));
        return dycl_number_f32_2(DYCL_EW_mul, kept[3 * n], dycl_number_f32_1(DYCL_EW_tanh, c->cell[i]));
    }
    for (int64_t g = 0; g < 2; g++) kept[g * n] = dycl_number_f32_1(DYCL_EW_sigmoid, gate(c, at, g, i));
    kept[3 * n] = from_state(c, 2, i);
    at[2] = 2 * n + i;
    dycl_number fresh =
        dycl_number_f32_1(DYCL_EW_tanh, dycl_number_f32_2(DYCL_EW_add, dycl_reference_get(c->r, c->o[0], at, 3),
                                                          dycl_number_f32_2(DYCL_EW_mul, kept[0], kept[3 * n])));
    kept[2 * n] = fresh;
    return dycl_number_f32_2(
        DYCL_EW_add, fresh,
        dycl_number_f32_2(DYCL_EW_mul, kept[n], dycl_number_f32_2(DYCL_EW_sub, c->state[i], fresh)));
}

dycl_status dycl_reference_recurrent(dycl_reference *r, const dycl_node *node, const uint32_t *o,
                                     const int64_t *attrs) {
    const dycl_value *x = dycl_reference_value(r, o[0]), *w = dycl_reference_value(r, o[1]);
    int64_t steps = x->sizes[0], batch = x->sizes[1], width = w->sizes[1];
    dycl_recurrent_kind kind = (dycl_recurrent_kind)attrs[0];
    dycl_number *room = dycl_alloc_zero((size_t)(7 * width) * sizeof *room);
    if (!room) return dycl_error_set("out of memory");
    recurrence c = {r, o, width, room, room + width, room + 2 * width, room + 3 * width};
    for (int64_t b = 0; b < batch; b++) {
        for (int64_t i = 0; i < width; i++) {
            int64_t at[2] = {b, i};
            c.state[i] = dycl_reference_get(r, o[3], at, 2);
            if (o[4] != DYCL_NONE) c.cell[i] = dycl_reference_get(r, o[4], at, 2);
        }
        for (int64_t s = 0; s < steps; s++) {
            int64_t t = attrs[1] ? steps - 1 - s : s, at[3] = {t, b, 0};
            for (int64_t i = 0; i < width; i++) c.fresh[i] = next_state(&c, kind, at, i);
            memcpy(c.state, c.fresh, (size_t)width * sizeof *room);
            for (int64_t i = 0; i < 4 * width && attrs[2]; i++)
                dycl_reference_set(r, node->out, (int64_t[]){t, b, i}, c.kept[i]);
            for (int64_t i = 0; i < width && !attrs[2]; i++)
                dycl_reference_set(r, node->out, (int64_t[]){(t * batch + b) * width + i}, c.state[i]);
        }
        for (int64_t i = 0; kind == DYCL_RECURRENT_LSTM && i < width && !attrs[2]; i++)
            dycl_reference_set(r, node->out, (int64_t[]){(steps * batch + b) * width + i}, c.cell[i]);
    }
    dycl_free(room);
    return DYCL_OK;
}

/* ---- Attention */

/* Scores of one query; `*worst` their largest error. 0: not all are finite numbers, and what then follows is torch's
 * business (replay). */
static int scores_of(const dycl_reference *r, const uint32_t *o, const int64_t *attrs, const int64_t *query,
                     int64_t kv_head, int64_t keys, double *scores, double *worst, double *most) {
    int64_t left[4] = {query[0], query[1], query[2], 0}, right[4] = {query[0], kv_head, 0, 0},
            k = dycl_reference_value(r, o[0])->sizes[3];
    int regular = 1;
    *worst = 0;
    *most = -INFINITY;
    for (int64_t j = 0; j < keys; j++) {
        right[2] = j;
        dycl_number s = dot(r, DYCL_F32, o[0], left, 3, o[1], right, 3, 4, k);
        double scale = dycl_attr_f64(attrs[1]), value = s.f * (double)(float)scale,
               error = s.error * fabs(scale) + fabs(value) * dycl_number_epsilon(DYCL_F32);
        regular &= dycl_number_known(s) && isfinite(value);
        if (o[3] != DYCL_NONE) {
            dycl_number m = dycl_reference_get(r, o[3], (int64_t[]){query[0], query[1], query[2], j}, 4);
            regular &= dycl_number_known(m);
            if (dycl_reference_dtype(r, o[3]) == DYCL_BOOL)
                value += m.i ? 0 : -INFINITY;
            else
                value += m.f, error += m.error + (isfinite(m.f) ? fabs(m.f) * dycl_number_epsilon(DYCL_F32) : 0);
        }
        if (attrs[0] && j > query[2]) value = -INFINITY;
        regular &= !isnan(value) && value < INFINITY;
        scores[j] = value;
        *worst = fmax(*worst, error);
        *most = fmax(*most, value);
    }
    return regular;
}

dycl_status dycl_reference_attention(dycl_reference *r, const dycl_node *node, const uint32_t *o,
                                     const int64_t *attrs) {
    const dycl_value *q = dycl_reference_value(r, o[0]), *k = dycl_reference_value(r, o[1]),
                     *out = dycl_reference_value(r, node->out);
    int64_t index[4] = {0}, rows[4] = {q->sizes[0], q->sizes[1], q->sizes[2], 1}, keys = k->sizes[2];
    double *scores = dycl_alloc((size_t)keys * sizeof *scores + 8), worst, most;
    if (!scores) return dycl_error_set("out of memory");
    do {
        int64_t kv_head = index[1] / (q->sizes[1] / k->sizes[1]);
        int regular = scores_of(r, o, attrs, index, kv_head, keys, scores, &worst, &most);
        double total = 0;
        for (int64_t j = 0; j < keys; j++) total += most == -INFINITY ? 0 : exp(scores[j] - most);
        for (int64_t c = 0; c < out->sizes[3]; c++) {
            dycl_number_sum s = {.unknown = !regular};
            for (int64_t j = 0; j < keys; j++) {
                dycl_number v = dycl_reference_get(r, o[2], (int64_t[]){index[0], kv_head, j, c}, 4);
                double p = total > 0 ? exp(scores[j] - most) / total : 0;
                dycl_number_add_product(&s, (dycl_number){p, 0, p * expm1(fmin(2 * worst, 600)) + 1e-37}, v);
            }
            dycl_reference_set(r, node->out, (int64_t[]){index[0], index[1], index[2], c},
                               dycl_number_total((dycl_dtype)dycl_reference_value(r, node->out)->dtype, &s, 1));
        }
    } while (dycl_reference_next(index, rows, 4));
    dycl_free(scores);
    return DYCL_OK;
}
