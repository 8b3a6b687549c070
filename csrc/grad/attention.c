/* Attention, whose weights are computed again: [b, h, l, s] of them for a while. */
#include <math.h>

#include "grad/formula.h"
#include "ir/infer.h"

#define MUL(a, b)     dycl_chain_2(c, DYCL_OP_mul, a, b)
#define SUB(a, b)     dycl_chain_2(c, DYCL_OP_sub, a, b)
#define PRODUCT(a, b) dycl_chain_product(c, a, b)
#define TRANSPOSED(a) dycl_chain_transpose(c, a)
#define SCALED(a)     dycl_chain_number(c, DYCL_OP_mul, a, scale)
#define MOST_WEIGHTS  (INT64_C(1) << 24) /* 64 MiB; torch's own backward pass keeps none */

/* Heads may share keys and values. */
int dycl_grad_suits_attention(const dycl_value *q, const dycl_value *k, const dycl_value *v) {
    int64_t heads = q->sizes[0] * q->sizes[1], weights = heads * q->sizes[2] * k->sizes[2];
    return k->sizes[1] > 0 && q->sizes[1] % k->sizes[1] == 0 && v->sizes[1] == k->sizes[1] &&
           k->sizes[0] == q->sizes[0] && weights > 0 && weights <= MOST_WEIGHTS && q->sizes[3] > 0 && v->sizes[3] > 0;
}

static int is_flash(const dycl_chain *c) {
    return c->attrs[2] == 4 &&
           dycl_attention_is_flash(dycl_chain_operand(c, 0), dycl_chain_operand(c, 1), dycl_chain_operand(c, 2),
                                   c->operands[3] == DYCL_NONE ? NULL : dycl_chain_operand(c, 3));
}

static int is_grouped(const dycl_chain *c) {
    return dycl_chain_operand(c, 0)->sizes[1] != dycl_chain_operand(c, 1)->sizes[1];
}

/* Where heads share keys and values, those that share them are a dimension of their own: [b, h, l, e] of these heads,
 * [b, h, 1, s, e] of keys, and a mask for both. */
static uint32_t in_groups(dycl_chain *c, uint32_t a) {
    if (c->status != DYCL_OK || !is_grouped(c) || dycl_chain_meta(c, a)->rank < 4) return a;
    const dycl_value *v = dycl_chain_meta(c, a);
    int64_t heads = dycl_chain_operand(c, 0)->sizes[1], groups = dycl_chain_operand(c, 1)->sizes[1];
    int64_t first = v->sizes[1] == heads ? groups : v->sizes[1];
    const int64_t sizes[5] = {v->sizes[0], first, v->sizes[1] / first, v->sizes[2], v->sizes[3]};
    return dycl_chain_reshape(c, a, 5, sizes);
}

/* Of torch's flash kernel rows stand before heads in memory (ATen/native/transformers/attention.cpp). Its products
 * multiply by the transposed keys, whose gradient is what lies in rows. */
static dycl_value form_of(const dycl_chain *c, int nth) {
    static const uint8_t orders[3][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {0, 1, 3, 2}};
    const uint8_t *order = orders[is_flash(c) ? 1 : nth == 1 ? 2 : 0];
    dycl_value form = *dycl_chain_operand(c, nth);
    int64_t stride = 1;
    for (int i = 3; i >= 0; stride *= form.sizes[order[i--]]) form.strides[order[i]] = stride;
    return form;
}

/* The gradient of an operand: its heads in one dimension again, those of keys and values summed over who shared them.
 */
static void give(dycl_chain *c, int nth, uint32_t gradient) {
    const dycl_value *operand = dycl_chain_operand(c, nth);
    if (c->status == DYCL_OK && is_grouped(c)) {
        if (nth) gradient = dycl_chain_reduce(c, DYCL_OP_sum, gradient, 4);
        gradient = dycl_chain_reshape(c, gradient, 4, operand->sizes);
    }
    const dycl_value form = form_of(c, nth);
    dycl_chain_give(c, nth, dycl_chain_laid(c, gradient, &form));
}

static int mask_is_added(const dycl_chain *c) {
    return c->operands[3] != DYCL_NONE && dycl_chain_operand(c, 3)->dtype != DYCL_BOOL;
}

/* A mask of floats is added; one of bools, and a causal one, hides scores. */
static uint32_t masked(dycl_chain *c, uint32_t scores) {
    uint32_t seen;
    if (c->status != DYCL_OK) return 0;
    dycl_value v = *dycl_chain_meta(c, scores);
    if (mask_is_added(c)) return dycl_chain_2(c, DYCL_OP_add, scores, in_groups(c, dycl_chain_take(c, 3)));
    if (c->operands[3] != DYCL_NONE) {
        seen = in_groups(c, dycl_chain_take(c, 3));
    } else if (c->attrs[0]) {
        int row = v.rank - 2, column = v.rank - 1;
        seen = dycl_chain_2(c, DYCL_OP_ge, dycl_chain_positions(c, v.rank, row, v.sizes[row]),
                            dycl_chain_positions(c, v.rank, column, v.sizes[column]));
    } else {
        return scores;
    }
    return dycl_chain_where(c, seen, scores, dycl_chain_constant(c, scores, -INFINITY));
}

static uint32_t along_row(dycl_chain *c, dycl_op op, uint32_t a) {
    return c->status == DYCL_OK ? dycl_chain_reduce(c, op, a, 1u << (dycl_chain_meta(c, a)->rank - 1)) : 0;
}

/* torch takes exp(score - (largest + log(sum))), which is no softmax where the smallest number hides a whole row: the
 * logarithm is lost, and each weight is one. */
static uint32_t as_rounded(dycl_chain *c, uint32_t scores, uint32_t w) {
    uint32_t largest = along_row(c, DYCL_OP_amax, scores);
    uint32_t log = dycl_chain_1(c, DYCL_OP_log, along_row(c, DYCL_OP_amax, w)); /* -log(sum) */
    uint32_t lost = SUB(SUB(largest, SUB(largest, log)), log);
    return MUL(w, dycl_chain_1(c, DYCL_OP_exp, lost));
}

/* With fewer dimensions torch takes products and a softmax, whose node saves the weights and not the result: the
 * program may write that. */
static int in_steps(const dycl_chain *c) { return c->attrs[2] != 4; }

/* softmax of the rows. Where nothing is seen, or a score is infinite, torch's kernel gives zeros: the weights, which
 * are NaN here, were none. A result of NaN says that it did not. In steps only rows of which nothing is seen are zeros.
 */
static uint32_t weights_of(dycl_chain *c, uint32_t scores) {
    uint32_t w = 0, first = 0;
    if (c->status != DYCL_OK) return 0;
    int64_t row = dycl_chain_meta(c, scores)->rank - 1;
    c->status = dycl_build_node(&c->b->recorder, DYCL_OP_softmax, 1, &scores, 1, &row, &w);
    if (in_steps(c)) {
        uint32_t largest = along_row(c, DYCL_OP_amax, scores);
        return dycl_chain_drop(c, dycl_chain_number(c, DYCL_OP_eq, largest, -INFINITY), w);
    }
    uint32_t y = in_groups(c, dycl_chain_result(c));
    if (mask_is_added(c)) w = as_rounded(c, scores, w);
    if (c->status == DYCL_OK) c->status = dycl_build_slice(&c->b->recorder, y, (int)row, 0, 1, 1, &first);
    return dycl_chain_where(c, dycl_chain_1(c, DYCL_OP_isnan, w), dycl_chain_number(c, DYCL_OP_mul, first, 0), w);
}

/* q, k, v, mask*; attributes: causal, scale */
void dycl_grad_attention(dycl_chain *c) {
    double scale = dycl_attr_f64(c->attrs[1]);
    if (!dycl_grad_suits_attention(dycl_chain_operand(c, 0), dycl_chain_operand(c, 1), dycl_chain_operand(c, 2)) ||
        dycl_chain_wants(c, 3))
        dycl_chain_fail(c);
    uint32_t q = in_groups(c, dycl_chain_take(c, 0)), k = in_groups(c, dycl_chain_take(c, 1)),
             v = in_groups(c, dycl_chain_take(c, 2)), gradient = in_groups(c, c->gradient);
    uint32_t weights = weights_of(c, masked(c, SCALED(PRODUCT(q, TRANSPOSED(k)))));
    if (dycl_chain_wants(c, 2)) give(c, 2, PRODUCT(TRANSPOSED(weights), gradient));
    if (!dycl_chain_wants(c, 0) && !dycl_chain_wants(c, 1)) return;
    uint32_t of_weights = PRODUCT(gradient, TRANSPOSED(v));
    uint32_t terms = in_steps(c) ? MUL(of_weights, weights) : MUL(gradient, in_groups(c, dycl_chain_result(c)));
    uint32_t scores = SCALED(MUL(weights, SUB(of_weights, along_row(c, DYCL_OP_sum, terms))));
    if (dycl_chain_wants(c, 0)) give(c, 0, PRODUCT(scores, k));
    if (dycl_chain_wants(c, 1))
        give(c, 1, is_flash(c) ? PRODUCT(TRANSPOSED(scores), q) : TRANSPOSED(PRODUCT(TRANSPOSED(q), scores)));
}
