/* Gradients of views that show elements of their root several times (windows of unfold, as_strided), or of a root with
 * gaps: summed by memory. */
#include "grad/hosted.h"

/* Where each of the view's elements lies, counted from the root's first one. */
static uint32_t places(dycl_chain *c, const dycl_value *view) {
    uint32_t sum = DYCL_NONE;
    for (int k = 0; k < view->rank; k++) {
        uint32_t at = dycl_chain_positions(c, view->rank, k, view->sizes[k]);
        if (c->status != DYCL_OK) return 0;
        at = dycl_chain_2(c, DYCL_OP_mul, at, dycl_chain_integer(c, at, view->strides[k]));
        sum = sum == DYCL_NONE ? at : dycl_chain_2(c, DYCL_OP_add, sum, at);
    }
    if (sum == DYCL_NONE) sum = dycl_chain_positions(c, 0, 0, 1);
    return c->status == DYCL_OK ? dycl_chain_2(c, DYCL_OP_add, sum, dycl_chain_integer(c, sum, view->offset)) : 0;
}

uint32_t dycl_chain_summed(dycl_chain *c, const dycl_value *root, const dycl_value *view, uint32_t g) {
    const int64_t count = dycl_value_numel(view);
    const dycl_words along = {{0}, 1};
    const dycl_value whole = *root;
    dycl_value flat = {.dtype = root->dtype, .rank = 1, .sizes = {dycl_value_extent(root)}};
    dycl_infer_contiguous(&flat);
    uint32_t operands[3] = {dycl_chain_zeros(c, &flat), dycl_chain_reshape(c, places(c, view), 1, &count),
                            dycl_chain_reshape(c, g, 1, &count)};
    uint32_t sums = dycl_chain_back(c, DYCL_OP_aten_scatter_add, 0, &flat, 3, operands, &along), out = 0;
    if (c->status == DYCL_OK)
        c->status = dycl_build_view(&c->b->recorder, sums, 0, whole.rank, whole.sizes, whole.strides, &out);
    return c->status == DYCL_OK ? out : 0;
}

/* ---- unfold: the operand's dimensions, of which one is steps now, and the window */

static int is_window(const dycl_value *x, const dycl_value *view, int dim) {
    const int last = x->rank;
    if (view->rank != last + 1 || x->strides[dim] <= 0 || view->strides[last] != x->strides[dim]) return 0;
    for (int i = 0; i < last; i++)
        if (i != dim && (view->sizes[i] != x->sizes[i] || view->strides[i] != x->strides[i])) return 0;
    const int64_t size = view->sizes[last], step = view->strides[dim] / x->strides[dim];
    return step > 0 && view->strides[dim] == step * x->strides[dim] && size <= x->sizes[dim] &&
           view->sizes[dim] == (x->sizes[dim] - size) / step + 1;
}

int dycl_chain_unfolded(dycl_chain *c) {
    if (dycl_way_of(c->b->job->graph, c->node) != DYCL_BACK_UNFOLD) return 0;
    const dycl_value *view = &c->b->job->graph->values[c->node->out];
    dycl_value x = *dycl_chain_operand(c, 0);
    dycl_words a = {.count = 0};
    int dim = 0;
    while (dim < x.rank && !is_window(&x, view, dim)) dim++; /* where several are, the windows are of one element */
    if (dim == x.rank) {
        dycl_chain_fail(c);
        return 1;
    }
    dycl_words_push_list(&a, x.rank, x.sizes);
    dycl_words_push(&a, dim);
    dycl_words_push(&a, view->sizes[x.rank]);
    dycl_words_push(&a, view->strides[dim] / x.strides[dim]);
    dycl_infer_contiguous(&x);
    dycl_chain_give(c, 0,
                    dycl_chain_hosted_laid(c, DYCL_OP_aten_unfold_backward, 0, &x, 1, &c->gradient, a.count, a.words));
    return 1;
}
