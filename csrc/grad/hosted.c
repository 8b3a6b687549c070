/* Elements in other places, by torch's own kernels; and what else torch's backward operator takes as it is. */
#include "grad/hosted.h"

/* ---- What torch's backward operator takes as they are: arguments, and the operand */

static const struct {
    dycl_op op, back;
    int contiguous; /* of volumes it answers so */
} with_operand[] = {
    {DYCL_OP_aten_reflection_pad1d, DYCL_OP_aten_reflection_pad1d_backward, 0},
    {DYCL_OP_aten_reflection_pad2d, DYCL_OP_aten_reflection_pad2d_backward, 0},
    {DYCL_OP_aten_reflection_pad3d, DYCL_OP_aten_reflection_pad3d_backward, 0},
    {DYCL_OP_aten_replication_pad1d, DYCL_OP_aten_replication_pad1d_backward, 0},
    {DYCL_OP_aten_replication_pad2d, DYCL_OP_aten_replication_pad2d_backward, 0},
    {DYCL_OP_aten_replication_pad3d, DYCL_OP_aten_replication_pad3d_backward, 0},
    {DYCL_OP_aten_avg_pool2d, DYCL_OP_aten_avg_pool2d_backward, 0},
    {DYCL_OP_aten_avg_pool3d, DYCL_OP_aten_avg_pool3d_backward, 1},
};

void dycl_grad_with_operand(dycl_chain *c) {
    dycl_words a = dycl_words_same(c);
    uint32_t operands[2] = {c->gradient, dycl_chain_take(c, 0)};
    size_t i = 0;
    while (with_operand[i].op != (dycl_op)c->node->op) i++;
    const dycl_value *x = dycl_chain_operand(c, 0);
    dycl_chain_give(c, 0,
                    with_operand[i].contiguous ? dycl_chain_back(c, with_operand[i].back, 0, x, 2, operands, &a)
                                               : dycl_chain_back_as(c, with_operand[i].back, x, 2, operands, &a));
}

/* ---- Elements in other places */

void dycl_grad_pixel_shuffle(dycl_chain *c) {
    dycl_words a = dycl_words_same(c);
    dycl_op op = c->node->op == DYCL_OP_aten_pixel_shuffle ? DYCL_OP_aten_pixel_unshuffle : DYCL_OP_aten_pixel_shuffle;
    dycl_value x = dycl_chain_as_gradient(c, dycl_chain_operand(c, 0));
    dycl_chain_give(c, 0, dycl_chain_back(c, op, 0, &x, 1, &c->gradient, &a));
}

void dycl_grad_channel_shuffle(dycl_chain *c) {
    dycl_value x = dycl_chain_as_gradient(c, dycl_chain_operand(c, 0));
    dycl_words a = {{x.sizes[1] / dycl_words_given(c)[0]}, 1};
    dycl_chain_give(c, 0, dycl_chain_back(c, DYCL_OP_aten_channel_shuffle, 0, &x, 1, &c->gradient, &a));
}

/* how often, the plane: turned back. A flip lies as what it flips does, then the plane's dimensions change places. */
void dycl_grad_rot90(dycl_chain *c) {
    const int64_t *given = dycl_words_given(c), turns = ((-given[0]) % 4 + 4) % 4;
    if (c->status != DYCL_OK) return;
    const dycl_value g = *dycl_chain_meta(c, c->gradient);
    int a = (int)(given[2] < 0 ? given[2] + g.rank : given[2]), b = (int)(given[3] < 0 ? given[3] + g.rank : given[3]);
    const int64_t words[4] = {turns, 2, a, b};
    dycl_value form = g;
    if (turns)
        dycl_infer_preserve(&g, &form);
    else
        dycl_infer_contiguous(&form);
    if (turns % 2) {
        const dycl_value flipped = form;
        form.sizes[a] = flipped.sizes[b];
        form.sizes[b] = flipped.sizes[a];
        form.strides[a] = flipped.strides[b];
        form.strides[b] = flipped.strides[a];
    }
    dycl_chain_give(c, 0, dycl_chain_hosted_laid(c, DYCL_OP_aten_rot90, 0, &form, 1, &c->gradient, 4, words));
}

/* attributes: kernel, dilation, padding, stride; col2im's begin with the output's size */
void dycl_grad_im2col(dycl_chain *c) {
    dycl_value x = *dycl_chain_operand(c, 0);
    dycl_words a = {.count = 0}, rest = dycl_words_same(c);
    dycl_infer_contiguous(&x);
    dycl_words_push_list(&a, 2, x.sizes + x.rank - 2);
    memcpy(a.words + a.count, rest.words, (size_t)rest.count * sizeof *a.words);
    a.count += rest.count;
    dycl_chain_give(c, 0, dycl_chain_back(c, DYCL_OP_aten_col2im, 0, &x, 1, &c->gradient, &a));
}

void dycl_grad_col2im(dycl_chain *c) {
    dycl_words a = dycl_words_same(c);
    int skipped = 1 + (int)a.words[0];
    a.count -= skipped;
    memmove(a.words, a.words + skipped, (size_t)a.count * sizeof *a.words);
    dycl_chain_give(c, 0, dycl_chain_back(c, DYCL_OP_aten_im2col, 0, dycl_chain_operand(c, 0), 1, &c->gradient, &a));
}

void dycl_grad_affine_grid_generator(dycl_chain *c) {
    dycl_words a = dycl_words_same(c);
    dycl_value like = *dycl_chain_operand(c, 0);
    like.strides[0] = like.sizes[1] * like.sizes[2];
    like.strides[1] = 1;
    like.strides[2] = like.sizes[1]; /* the product's transpose */
    dycl_chain_give(c, 0,
                    dycl_chain_hosted_laid(c, DYCL_OP_aten_affine_grid_generator_backward, 0, &like, 1, &c->gradient,
                                           a.count, a.words));
}

/* input, grid: both gradients come from one call */
void dycl_grad_grid_sampler(dycl_chain *c) {
    dycl_words a = dycl_words_same(c);
    int64_t wanted[2] = {dycl_chain_wants(c, 0), dycl_chain_wants(c, 1)};
    uint32_t operands[3] = {c->gradient, dycl_chain_take(c, 0), dycl_chain_take(c, 1)};
    dycl_op op = dycl_chain_operand(c, 0)->rank == 4 ? DYCL_OP_aten_grid_sampler_2d_backward
                                                     : DYCL_OP_aten_grid_sampler_3d_backward;
    dycl_words_push_list(&a, 2, wanted);
    for (int i = 0; i < 2; i++) {
        dycl_value like = *dycl_chain_operand(c, i);
        dycl_infer_contiguous(&like);
        if (wanted[i]) dycl_chain_give(c, i, dycl_chain_hosted_laid(c, op, i, &like, 3, operands, a.count, a.words));
    }
}

/* What was taken from the other end goes back there: one dimension after the other. */
void dycl_grad_pad_circular(dycl_chain *c) {
    const dycl_value x = *dycl_chain_operand(c, 0);
    const int64_t *pad = dycl_words_given(c) + 1;
    int64_t none[DYCL_MAX_RANK] = {0}, before[DYCL_MAX_RANK] = {0};
    uint32_t g = c->gradient;
    for (int i = 0; 2 * i < dycl_words_given(c)[0] && c->status == DYCL_OK; i++) {
        int dim = x.rank - 1 - i;
        int64_t size = x.sizes[dim], left = pad[2 * i], right = pad[2 * i + 1];
        uint32_t middle = g, end = 0;
        dycl_recorder *r = &c->b->recorder;
        if (left < 0 || right < 0) dycl_chain_fail(c); /* parts are cut off, others wrapped */
        if (c->status == DYCL_OK) c->status = dycl_build_slice(r, g, dim, left, left + size, 1, &middle);
        if (left && c->status == DYCL_OK) {
            c->status = dycl_build_slice(r, g, dim, 0, left, 1, &end);
            before[dim] = size - left;
            middle = dycl_chain_2(c, DYCL_OP_add, middle, dycl_chain_padded(c, end, before, none, x.rank));
            before[dim] = 0;
        }
        if (right && c->status == DYCL_OK) {
            c->status = dycl_build_slice(r, g, dim, left + size, left + size + right, 1, &end);
            before[dim] = size - right;
            middle = dycl_chain_2(c, DYCL_OP_add, middle, dycl_chain_padded(c, end, none, before, x.rank));
            before[dim] = 0;
        }
        g = middle;
    }
    if (c->status != DYCL_OK) return;
    const dycl_value *made = dycl_chain_meta(c, g); /* torch's is contiguous and its own */
    if (made->root == dycl_chain_meta(c, c->gradient)->root || !made->canonical)
        c->status = dycl_build_node(&c->b->recorder, DYCL_OP_contiguous, 1, &g, 1, none, &g);
    dycl_chain_give(c, 0, g);
}
