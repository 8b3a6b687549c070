/* Resampling: by our own operator or by torch's, it goes back through torch's kernels. */
#include "grad/hosted.h"
#include "kern/kern.h"

static const struct {
    dycl_op op, back;
    int aligned; /* has align_corners */
    int cubic;
} resampling[] = {
    {DYCL_OP_aten_upsample_nearest1d, DYCL_OP_aten_upsample_nearest1d_backward, 0, 0},
    {DYCL_OP_aten_upsample_nearest2d, DYCL_OP_aten_upsample_nearest2d_backward, 0, 0},
    {DYCL_OP_aten_upsample_nearest3d, DYCL_OP_aten_upsample_nearest3d_backward, 0, 0},
    {DYCL_OP_aten_upsample_nearest_exact1d, DYCL_OP_aten_upsample_nearest_exact1d_backward, 0, 0},
    {DYCL_OP_aten_upsample_nearest_exact2d, DYCL_OP_aten_upsample_nearest_exact2d_backward, 0, 0},
    {DYCL_OP_aten_upsample_nearest_exact3d, DYCL_OP_aten_upsample_nearest_exact3d_backward, 0, 0},
    {DYCL_OP_aten_upsample_linear1d, DYCL_OP_aten_upsample_linear1d_backward, 1, 0},
    {DYCL_OP_aten_upsample_bilinear2d, DYCL_OP_aten_upsample_bilinear2d_backward, 1, 0},
    {DYCL_OP_aten_upsample_trilinear3d, DYCL_OP_aten_upsample_trilinear3d_backward, 1, 0},
    {DYCL_OP_aten_upsample_bicubic2d, DYCL_OP_aten_upsample_bicubic2d_backward, 1, 1},
    {DYCL_OP_aten_upsample_bilinear2d_aa, DYCL_OP_aten_upsample_bilinear2d_aa_backward, 1, 0},
    {DYCL_OP_aten_upsample_bicubic2d_aa, DYCL_OP_aten_upsample_bicubic2d_aa_backward, 1, 1},
};

/* Cubic kernels answer in contiguous tensors, the others as the gradient lies. */
static dycl_value answered(const dycl_chain *c, const dycl_value *x, int cubic) {
    dycl_value made = dycl_chain_as_gradient(c, x);
    if (cubic) dycl_infer_contiguous(&made);
    return made;
}

/* attributes: output size or None, align_corners (some), scales or None */
void dycl_grad_upsample(dycl_chain *c) {
    const dycl_value *x = dycl_chain_operand(c, 0), *y = dycl_chain_meta(c, c->gradient);
    const int64_t *at = dycl_words_given(c);
    dycl_words a = {.count = 0};
    int n = x->rank - 2;
    size_t i = 0;
    while (resampling[i].op != (dycl_op)c->node->op) i++;
    dycl_words_push_list(&a, n, y->sizes + 2);
    dycl_words_push_list(&a, x->rank, x->sizes);
    at += 1 + (at[0] > 0 ? at[0] : 0);
    if (resampling[i].aligned) dycl_words_push(&a, *at++);
    for (int k = 0; k < n; k++) {
        dycl_words_push(&a, at[0] > k);
        dycl_words_push(&a, at[0] > k ? at[1 + k] : 0);
    }
    dycl_value made = answered(c, x, resampling[i].cubic);
    if (resampling[i].op == DYCL_OP_aten_upsample_trilinear3d && dycl_value_channels_last(y))
        dycl_infer_channels_last(&made);
    dycl_chain_give(c, 0, dycl_chain_hosted_laid(c, resampling[i].back, 0, &made, 1, &c->gradient, a.count, a.words));
}

/* Our own operator: attributes: kind, align corners (1) + only the width is resampled (2), output h w, scale h w. A
 * height of 1 would meet weights of zero: one dimension goes back as one. */
void dycl_grad_resize2d(dycl_chain *c) {
    static const dycl_op ops[2][4] = {
        {DYCL_OP_aten_upsample_nearest1d_backward, DYCL_OP_aten_upsample_nearest_exact1d_backward,
         DYCL_OP_aten_upsample_linear1d_backward, DYCL_OP_COUNT},
        {DYCL_OP_aten_upsample_nearest2d_backward, DYCL_OP_aten_upsample_nearest_exact2d_backward,
         DYCL_OP_aten_upsample_bilinear2d_backward, DYCL_OP_aten_upsample_bicubic2d_backward}};
    dycl_value x = *dycl_chain_operand(c, 0), like = answered(c, &x, c->attrs[0] == DYCL_RESIZE_CUBIC);
    int64_t kind = c->attrs[0], sizes[3];
    int n = c->attrs[1] & 2 ? 1 : 2;
    dycl_words a = {.count = 0};
    uint32_t g = c->gradient;
    if (n == 1) {
        const dycl_value *y = dycl_chain_meta(c, g);
        sizes[0] = y->sizes[0], sizes[1] = y->sizes[1], sizes[2] = y->sizes[3];
        g = dycl_chain_reshape(c, g, 3, sizes);
        like.rank = 3;
        like.sizes[2] = x.sizes[3];
        dycl_infer_contiguous(&like);
    }
    dycl_words_push_list(&a, n, c->attrs + 4 - n);
    dycl_words_push_list(&a, like.rank, like.sizes);
    if (kind >= DYCL_RESIZE_LINEAR) dycl_words_push(&a, c->attrs[1] & 1);
    for (int i = 2 - n; i < 2; i++) {
        dycl_words_push(&a, dycl_attr_f64(c->attrs[4 + i]) != 0);
        dycl_words_push(&a, c->attrs[4 + i]);
    }
    g = dycl_chain_back(c, ops[n - 1][kind], 0, &like, 1, &g, &a);
    dycl_chain_give(c, 0, n == 1 ? dycl_chain_reshape(c, g, 4, x.sizes) : g);
}
