/* Diagonals: a matrix of one, and one of a matrix. */
#include "grad/hosted.h"

/* The view of a gradient that torch's diagonal() is. */
static void give_diagonal(dycl_chain *c, int64_t offset, int64_t first, int64_t second) {
    int64_t strides[DYCL_MAX_RANK];
    const dycl_value x = *dycl_chain_operand(c, 0);
    uint32_t view = 0;
    int rank = 0;
    if (c->status != DYCL_OK) return;
    const dycl_value *g = dycl_chain_meta(c, c->gradient);
    if (first < 0) first += g->rank;
    if (second < 0) second += g->rank;
    for (int i = 0; i < g->rank; i++)
        if (i != first && i != second) strides[rank++] = g->strides[i];
    strides[rank] = g->strides[first] + g->strides[second];
    int64_t start = offset < 0 ? -offset * g->strides[first] : offset * g->strides[second];
    c->status = dycl_build_view(&c->b->recorder, c->gradient, start, x.rank, x.sizes, strides, &view);
    dycl_chain_give(c, 0, view);
}

/* Zeros but for the diagonal of a matrix. */
static void give_matrix(dycl_chain *c, uint32_t diagonal, int64_t offset) {
    dycl_value x = *dycl_chain_operand(c, 0);
    const int64_t words[3] = {offset, 0, 1};
    dycl_infer_contiguous(&x);
    uint32_t operands[2] = {dycl_chain_zeros(c, &x), diagonal};
    dycl_chain_give(c, 0, dycl_chain_hosted_laid(c, DYCL_OP_aten_diagonal_scatter, 0, &x, 2, operands, 3, words));
}

/* offset */
void dycl_grad_diag(dycl_chain *c) {
    const int64_t offset = dycl_words_given(c)[0];
    if (dycl_chain_operand(c, 0)->rank == 1)
        give_diagonal(c, offset, 0, 1);
    else
        give_matrix(c, c->gradient, offset);
}

/* offset, the two dimensions of the matrices */
void dycl_grad_diag_embed(dycl_chain *c) {
    const int64_t *a = dycl_words_given(c);
    give_diagonal(c, a[0], a[1], a[2]);
}

void dycl_grad_trace(dycl_chain *c) {
    const dycl_value *x = dycl_chain_operand(c, 0);
    const int64_t size = x->sizes[0];
    if (x->sizes[1] != size) dycl_chain_fail(c);
    give_matrix(c, dycl_chain_expand(c, c->gradient, 1, &size), 0);
}
