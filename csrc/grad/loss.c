/* Losses that the host computes in one kernel, and its sums of exponentials. */
#include "grad/hosted.h"

#define MUL(a, b) dycl_chain_2(c, DYCL_OP_mul, a, b)
#define SUB(a, b) dycl_chain_2(c, DYCL_OP_sub, a, b)
#define DIV(a, b) dycl_chain_2(c, DYCL_OP_div, a, b)

#define PLACE(op, a, b) dycl_chain_in_place(c, DYCL_OP_##op, a, b)

enum { NONE, MEAN, SUM }; /* at::Reduction */

/* smooth_l1_loss, huber_loss (reduction, beta), soft_margin_loss (reduction): torch's own kernels, for the target with
 * both turned round */
static void distance(dycl_chain *c, dycl_op back, int turns) {
    dycl_words a = dycl_words_same(c);
    const dycl_value *x = dycl_chain_operand(c, 0), *y = dycl_chain_operand(c, 1);
    if (!dycl_chain_same_sizes(x, y) || x->dtype != y->dtype || (!turns && dycl_chain_wants(c, 1))) dycl_chain_fail(c);
    if (!dycl_chain_is_plain(x) || !dycl_chain_is_plain(y)) dycl_chain_fail(c);
    uint32_t operands[3] = {c->gradient, dycl_chain_take(c, 0), dycl_chain_take(c, 1)};
    if (dycl_chain_wants(c, 0)) dycl_chain_give(c, 0, dycl_chain_back(c, back, 0, x, 3, operands, &a));
    if (!dycl_chain_wants(c, 1)) return;
    uint32_t other[3] = {c->gradient, operands[2], operands[1]};
    dycl_chain_give(c, 1, dycl_chain_back(c, back, 0, dycl_chain_operand(c, 1), 3, other, &a));
}

void dycl_grad_smooth_l1_loss(dycl_chain *c) { distance(c, DYCL_OP_aten_smooth_l1_loss_backward, 1); }
void dycl_grad_huber_loss(dycl_chain *c) { distance(c, DYCL_OP_aten_huber_loss_backward, 1); }
void dycl_grad_soft_margin_loss(dycl_chain *c) { distance(c, DYCL_OP_aten_soft_margin_loss_backward, 0); }

/* shares, target, weight*; attribute: reduction. Torch's own kernel, which has a second gradient of its own, too. */
void dycl_grad_bce(dycl_chain *c) {
    dycl_words a = dycl_words_same(c);
    for (int i = 1; i < 3; i++)
        if (c->operands[i] != DYCL_NONE && dycl_chain_wants(c, i)) dycl_chain_fail(c);
    uint32_t operands[4] = {c->gradient, dycl_chain_take(c, 0), dycl_chain_take(c, 1), DYCL_NONE};
    if (c->operands[2] != DYCL_NONE) operands[3] = dycl_chain_take(c, 2);
    dycl_chain_give(
        c, 0,
        dycl_chain_back(c, DYCL_OP_aten_binary_cross_entropy_backward, 0, dycl_chain_operand(c, 0), 4, operands, &a));
}

/* logits, target, weight*, pos_weight*; attribute: reduction */
void dycl_grad_bce_with_logits(dycl_chain *c) {
    dycl_value x = *dycl_chain_operand(c, 0);
    for (int i = 1; i < 4; i++)
        if (c->operands[i] != DYCL_NONE && dycl_chain_wants(c, i)) dycl_chain_fail(c);
    uint32_t logits = dycl_chain_take(c, 0), y = dycl_chain_take(c, 1), p = dycl_chain_1(c, DYCL_OP_sigmoid, logits), g;
    if (c->operands[3] != DYCL_NONE) {
        uint32_t t = MUL(dycl_chain_take(c, 3), y);
        g = PLACE(sub, PLACE(mul, PLACE(sub, dycl_chain_number(c, DYCL_OP_add, t, 1), y), p), t);
    } else {
        g = SUB(p, y);
    }
    g = PLACE(mul, g, c->gradient);
    if (c->operands[2] != DYCL_NONE) g = PLACE(mul, g, dycl_chain_take(c, 2));
    if (dycl_words_given(c)[0] == MEAN) g = dycl_chain_number(c, DYCL_OP_div, g, (double)dycl_value_numel(&x));
    dycl_chain_give(c, 0, g);
}

/* dimensions, keepdim */
static uint32_t reduced_dims(dycl_chain *c) {
    const int64_t *given = dycl_words_given(c);
    int rank = dycl_chain_operand(c, 0)->rank;
    uint32_t dims = 0;
    for (int i = 0; i < given[0] && rank; i++)
        dims |= UINT32_C(1) << (given[1 + i] < 0 ? given[1 + i] + rank : given[1 + i]);
    return dims;
}

void dycl_grad_logsumexp(dycl_chain *c) {
    uint32_t dims = reduced_dims(c), y = dycl_chain_restored(c, dycl_chain_result(c), dims);
    uint32_t share = dycl_chain_1(c, DYCL_OP_exp, SUB(dycl_chain_take(c, 0), y));
    dycl_chain_give(c, 0, MUL(dycl_chain_restored(c, c->gradient, dims), share));
}

/* log-probabilities [c], [n, c] or [n, c, ...], targets, the weight of each class*; attributes: reduction, which target
 * is ignored. The targets' classes get what they weigh. */
void dycl_grad_nll_loss_nd(dycl_chain *c) {
    const int64_t reduction = dycl_words_given(c)[0], ignored = dycl_words_given(c)[1];
    const dycl_value x = *dycl_chain_operand(c, 0), at = *dycl_chain_operand(c, 1);
    const int dim = x.rank > 1, weighs = c->operands[2] != DYCL_NONE;
    int64_t count = dycl_value_numel(&at), first = 0, sizes[DYCL_MAX_RANK];
    if ((weighs && dycl_chain_wants(c, 2)) || at.dtype != DYCL_I64 || at.rank != x.rank - 1 ||
        (x.rank == 4 && !dycl_value_contiguous(&x)))
        dycl_chain_fail(c);
    dycl_chain_take(c, 0); /* torch saves it */
    uint32_t target = dycl_chain_take(c, 1), weight = 0, g = c->gradient;
    uint32_t counts = dycl_chain_2(c, DYCL_OP_ne, target, dycl_chain_integer(c, target, ignored));
    target = dycl_chain_where(c, counts, target, dycl_chain_integer(c, target, 0));
    if (weighs) {
        uint32_t picked[2] = {dycl_chain_take(c, 2), dycl_chain_reshape(c, target, 1, &count)};
        weight = dycl_chain_node(c, DYCL_OP_index_select, 2, picked, 1, &first);
        weight = dycl_chain_keep(c, counts, dycl_chain_reshape(c, weight, at.rank, at.sizes));
    } else {
        weight = dycl_chain_cast(c, counts, (dycl_dtype)x.dtype);
    }
    if (reduction == MEAN)
        g = DIV(g, at.rank ? dycl_chain_reduce(c, DYCL_OP_sum, weight, (UINT32_C(1) << at.rank) - 1) : weight);
    g = dycl_chain_keep(c, counts, MUL(dycl_chain_1(c, DYCL_OP_neg, g), weight));
    for (int i = 0; i < x.rank; i++) sizes[i] = i == dim ? 1 : x.sizes[i];
    g = dycl_chain_reshape(c, g, x.rank, sizes);
    target = dycl_chain_reshape(c, target, x.rank, sizes);
    uint32_t own = dycl_chain_2(c, DYCL_OP_eq, dycl_chain_positions(c, x.rank, dim, x.sizes[dim]), target);
    dycl_chain_give(c, 0, dycl_chain_contiguous(c, dycl_chain_keep(c, own, g)));
}
