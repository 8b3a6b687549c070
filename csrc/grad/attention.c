/* Attention, whose weights are computed again: [b, h, l, s] of them for a while. */
#include <math.h>

#include "grad/formula.h"

#define MUL(a, b)     dycl_chain_2(c, DYCL_OP_mul, a, b)
#define SUB(a, b)     dycl_chain_2(c, DYCL_OP_sub, a, b)
#define PRODUCT(a, b) dycl_chain_product(c, a, b)
#define TRANSPOSED(a) dycl_chain_transpose(c, a)
#define SCALED(a)     dycl_chain_number(c, DYCL_OP_mul, a, scale)
#define MOST_WEIGHTS  (INT64_C(1) << 24) /* 64 MiB; torch's own backward pass keeps none */

int dycl_grad_suits_attention(const dycl_value *q, const dycl_value *k, const dycl_value *v) {
    int64_t heads = q->sizes[0] * q->sizes[1], weights = heads * q->sizes[2] * k->sizes[2];
    return k->sizes[1] == q->sizes[1] && k->sizes[0] == q->sizes[0] && weights > 0 && weights <= MOST_WEIGHTS &&
           q->sizes[3] > 0 && v->sizes[3] > 0;
}

static int mask_is_added(const dycl_chain *c) {
    return c->operands[3] != DYCL_NONE && dycl_chain_operand(c, 3)->dtype != DYCL_BOOL;
}

/* A mask of floats is added; one of bools, and a causal one, hides scores. */
static uint32_t masked(dycl_chain *c, uint32_t scores) {
    uint32_t seen;
    if (c->status != DYCL_OK) return 0;
    dycl_value v = *dycl_chain_meta(c, scores);
    if (mask_is_added(c)) return dycl_chain_2(c, DYCL_OP_add, scores, dycl_chain_take(c, 3));
    if (c->operands[3] != DYCL_NONE) {
        seen = dycl_chain_take(c, 3);
    } else if (c->attrs[0]) {
        seen = dycl_chain_2(c, DYCL_OP_ge, dycl_chain_positions(c, 4, 2, v.sizes[2]),
                            dycl_chain_positions(c, 4, 3, v.sizes[3]));
    } else {
        return scores;
    }
    return dycl_chain_where(c, seen, scores, dycl_chain_constant(c, scores, -INFINITY));
}

/* torch takes exp(score - (largest + log(sum))), which is no softmax where the smallest number hides a whole row: the
 * logarithm is lost, and each weight is one. */
static uint32_t as_rounded(dycl_chain *c, uint32_t scores, uint32_t w) {
    uint32_t largest = dycl_chain_reduce(c, DYCL_OP_amax, scores, 8);
    uint32_t log = dycl_chain_1(c, DYCL_OP_log, dycl_chain_reduce(c, DYCL_OP_amax, w, 8)); /* -log(sum) */
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
    int64_t row = 3;
    uint32_t w = 0, first = 0;
    if (c->status == DYCL_OK) c->status = dycl_build_node(&c->b->recorder, DYCL_OP_softmax, 1, &scores, 1, &row, &w);
    if (in_steps(c)) {
        uint32_t largest = dycl_chain_reduce(c, DYCL_OP_amax, scores, 8);
        return dycl_chain_drop(c, dycl_chain_number(c, DYCL_OP_eq, largest, -INFINITY), w);
    }
    uint32_t y = dycl_chain_result(c);
    if (mask_is_added(c)) w = as_rounded(c, scores, w);
    if (c->status == DYCL_OK) c->status = dycl_build_slice(&c->b->recorder, y, 3, 0, 1, 1, &first);
    return dycl_chain_where(c, dycl_chain_1(c, DYCL_OP_isnan, w), dycl_chain_number(c, DYCL_OP_mul, first, 0), w);
}

/* q, k, v, mask*; attributes: causal, scale */
void dycl_grad_attention(dycl_chain *c) {
    double scale = dycl_attr_f64(c->attrs[1]);
    if (!dycl_grad_suits_attention(dycl_chain_operand(c, 0), dycl_chain_operand(c, 1), dycl_chain_operand(c, 2)) ||
        dycl_chain_wants(c, 3))
        dycl_chain_fail(c);
    uint32_t q = dycl_chain_take(c, 0), k = dycl_chain_take(c, 1), v = dycl_chain_take(c, 2);
    uint32_t weights = weights_of(c, masked(c, SCALED(PRODUCT(q, TRANSPOSED(k)))));
    if (dycl_chain_wants(c, 2)) dycl_chain_give(c, 2, PRODUCT(TRANSPOSED(weights), c->gradient));
    if (!dycl_chain_wants(c, 0) && !dycl_chain_wants(c, 1)) return;
    uint32_t of_weights = PRODUCT(c->gradient, TRANSPOSED(v));
    uint32_t terms = in_steps(c) ? MUL(of_weights, weights) : MUL(c->gradient, dycl_chain_result(c));
    uint32_t scores = SCALED(MUL(weights, SUB(of_weights, dycl_chain_reduce(c, DYCL_OP_sum, terms, 8))));
    if (dycl_chain_wants(c, 0)) dycl_chain_give(c, 0, PRODUCT(scores, k));
    if (dycl_chain_wants(c, 1)) dycl_chain_give(c, 1, PRODUCT(TRANSPOSED(scores), q));
}
