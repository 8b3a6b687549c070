/* Running sums that the host computes: along any dimension, in another dtype. */
#include "grad/hosted.h"

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

/* Summed up from the other end. */
void dycl_grad_hosted_cumsum(dycl_chain *c) {
    int64_t dim;
    if (!begins(c, &dim)) return;
    const int64_t words[2] = {dim, -1};
    uint32_t g = dycl_chain_flip(c, c->gradient, (int)dim);
    if (c->status != DYCL_OK) return;
    dycl_value form = *dycl_chain_meta(c, g);
    dycl_infer_preserve(dycl_chain_meta(c, g), &form);
    g = dycl_chain_hosted_laid(c, DYCL_OP_aten_cumsum, 0, &form, 1, &g, 2, words);
    dycl_chain_give(c, 0, dycl_chain_flip(c, g, (int)dim));
}
