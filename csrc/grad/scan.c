/* Running sums and products that the host computes: along any dimension, in another dtype. */
#include "grad/hosted.h"

#define MUL(a, b) dycl_chain_2(c, DYCL_OP_mul, a, b)
#define DIV(a, b) dycl_chain_2(c, DYCL_OP_div, a, b)

/* The dimension. A result of another dtype, and what has one element, are left: 0. */
static int begins(dycl_chain *c, int64_t *out_dim) {
    const dycl_value *x = dycl_chain_operand(c, 0);
    *out_dim = dycl_words_given(c)[0];
    if (*out_dim < 0) *out_dim += x->rank;
    if (c->attrs[1] != x->dtype) dycl_chain_fail(c);
    if (c->status != DYCL_OK) return 0;
    if (x->rank && x->sizes[*out_dim] != 1 && dycl_value_numel(x) > 1) return 1;
    dycl_chain_give(c, 0, c->gradient);
    return 0;
}

static uint32_t scan(dycl_chain *c, dycl_op op, uint32_t a, int64_t dim) {
    dycl_words w = {{dim, -1}, 2};
    if (c->status != DYCL_OK) return 0;
    dycl_value form = *dycl_chain_meta(c, a);
    dycl_infer_preserve(dycl_chain_meta(c, a), &form);
    return dycl_chain_hosted_laid(c, op, 0, &form, 1, &a, w.count, w.words);
}

/* Summed up from the other end. */
static uint32_t sum_back(dycl_chain *c, uint32_t a, int64_t dim) {
    a = scan(c, DYCL_OP_aten_cumsum, dycl_chain_flip(c, a, (int)dim), dim);
    return dycl_chain_flip(c, a, (int)dim);
}

void dycl_grad_hosted_cumsum(dycl_chain *c) {
    int64_t dim;
    if (begins(c, &dim)) dycl_chain_give(c, 0, sum_back(c, c->gradient, dim));
}

static uint32_t one(dycl_chain *c, uint32_t like) { return dycl_chain_constant(c, like, 1); }

/* In front of the first zero of a row sum_back(g y) / x. The first zero gets what the products behind it would be
 * without it, up to the second one; what comes later multiplies zeros only (torch's cumprod_backward, the case with
 * zeros, which gives the same where there are none). */
void dycl_grad_cumprod(dycl_chain *c) {
    const dycl_value shape = *dycl_chain_operand(c, 0);
    int64_t dim, last;
    if (!begins(c, &dim)) return;
    uint32_t x = dycl_chain_take(c, 0), y = dycl_chain_result(c), g = c->gradient, number = 0;
    uint32_t zero = dycl_chain_number(c, DYCL_OP_eq, x, 0);
    if (c->status == DYCL_OK) c->status = dycl_build_cast(&c->b->recorder, zero, (dycl_dtype)shape.dtype, &number);
    uint32_t zeros = scan(c, DYCL_OP_aten_cumsum, number, dim);
    uint32_t none = dycl_chain_number(c, DYCL_OP_eq, zeros, 0), single = dycl_chain_number(c, DYCL_OP_eq, zeros, 1);
    uint32_t first = dycl_chain_2(c, DYCL_OP_logical_and, single, zero);
    uint32_t ahead = DIV(sum_back(c, dycl_chain_keep(c, none, MUL(y, g)), dim), x);
    uint32_t behind = scan(c, DYCL_OP_aten_cumprod,
                           dycl_chain_where(c, single, dycl_chain_where(c, zero, one(c, x), x), one(c, x)), dim);
    behind = dycl_chain_reduce(c, DYCL_OP_sum, MUL(behind, dycl_chain_keep(c, single, g)), UINT32_C(1) << dim);
    uint32_t before = scan(c, DYCL_OP_aten_cumprod, dycl_chain_where(c, none, x, one(c, x)), dim);
    last = shape.sizes[dim] - 1;
    if (c->status == DYCL_OK)
        c->status = dycl_build_slice(&c->b->recorder, before, (int)dim, last, last + 1, 1, &before);
    uint32_t at_first = dycl_chain_keep(c, first, MUL(behind, before));
    dycl_chain_give(c, 0, dycl_chain_contiguous(c, dycl_chain_where(c, none, ahead, at_first)));
}
