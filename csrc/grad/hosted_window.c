/* Pools and convolutions that torch's own kernels compute: volumes, one dimension, dtypes that ours do not take. */
#include "grad/hosted.h"

/* ---- Pools */

/* What torch pools with a height of 1: of the operand or the gradient. */
static uint32_t with_height(dycl_chain *c, uint32_t value) {
    int64_t sizes[DYCL_MAX_RANK];
    if (c->status != DYCL_OK) return 0;
    const dycl_value *v = dycl_chain_meta(c, value);
    int rank = v->rank;
    memcpy(sizes, v->sizes, sizeof sizes);
    sizes[rank] = sizes[rank - 1];
    sizes[rank - 1] = 1;
    return dycl_chain_reshape(c, value, rank + 1, sizes);
}

/* The gradient of the operand; one spatial dimension is the second of two. */
static void give_pooled(dycl_chain *c, int spatial, dycl_op op, int count, uint32_t *operands, const dycl_words *a) {
    dycl_value like = *dycl_chain_operand(c, 0);
    for (int i = 0; i < count && spatial == 1; i++) operands[i] = with_height(c, operands[i]);
    if (spatial == 1) {
        like.sizes[like.rank] = like.sizes[like.rank - 1];
        like.sizes[like.rank - 1] = 1;
        like.rank++;
        dycl_infer_contiguous(&like);
    }
    uint32_t g = op == DYCL_OP_aten_max_pool3d_with_indices_backward
                     ? dycl_chain_back_as(c, op, &like, count, operands, a)
                     : dycl_chain_back(c, op, 0, &like, count, operands, a);
    const dycl_value *x = dycl_chain_operand(c, 0);
    dycl_chain_give(c, 0, spatial == 1 ? dycl_chain_reshape(c, g, x->rank, x->sizes) : g);
}

/* Lists of one number become lists of two, for a height of 1. */
static void push_high(dycl_words *a, const int64_t **at, int64_t high) {
    int64_t pair[2] = {high, (*at)[1]};
    dycl_words_push_list(a, (*at)[0] ? 2 : 0, pair);
    *at += 1 + (*at)[0];
}

void dycl_grad_avg_pool1d(dycl_chain *c) { /* attributes: kernel, stride, padding, ceil mode, count_include_pad */
    const int64_t *at = dycl_words_given(c);
    uint32_t operands[2] = {c->gradient, dycl_chain_take(c, 0)};
    dycl_words a = {.count = 0};
    push_high(&a, &at, 1);
    push_high(&a, &at, 1);
    push_high(&a, &at, 0);
    dycl_words_push(&a, at[0]);
    dycl_words_push(&a, at[1]);
    dycl_words_push(&a, 0); /* divisor_override: None */
    dycl_words_push(&a, 0);
    give_pooled(c, 1, DYCL_OP_aten_avg_pool2d_backward, 2, operands, &a);
}

/* To one element it is a mean, which needs nothing of what was pooled. */
static void adaptive_avg_pool(dycl_chain *c, int spatial, dycl_op op) {
    const dycl_value *x = dycl_chain_operand(c, 0), *y = dycl_chain_meta(c, c->gradient);
    dycl_words a = {.count = 0};
    double count = 1;
    int one = 1;
    for (int i = 0; i < spatial; i++) {
        count *= (double)x->sizes[x->rank - 1 - i];
        one &= y->sizes[y->rank - 1 - i] == 1;
    }
    if (one) {
        dycl_chain_give(c, 0, dycl_chain_mean_back(c, c->gradient, x, count));
        return;
    }
    uint32_t operands[2] = {c->gradient, dycl_chain_take(c, 0)};
    give_pooled(c, spatial, op, 2, operands, &a);
}

void dycl_grad_adaptive_avg_pool1d(dycl_chain *c) {
    adaptive_avg_pool(c, 1, DYCL_OP_aten__adaptive_avg_pool2d_backward);
}
void dycl_grad_hosted_adaptive_avg_pool2d(dycl_chain *c) {
    adaptive_avg_pool(c, 2, DYCL_OP_aten__adaptive_avg_pool2d_backward);
}
void dycl_grad_adaptive_avg_pool3d(dycl_chain *c) {
    adaptive_avg_pool(c, 3, DYCL_OP_aten__adaptive_avg_pool3d_backward);
}

/* attributes: kernel, stride, padding, dilation, ceil mode */
static void max_pool(dycl_chain *c, int spatial, dycl_op op) {
    const int64_t *at = dycl_words_given(c);
    uint32_t operands[3] = {c->gradient, dycl_chain_take(c, 0), dycl_chain_sibling(c, 1)};
    dycl_words a = dycl_words_same(c);
    if (spatial == 1) {
        a.count = 0;
        for (int i = 0; i < 4; i++) push_high(&a, &at, i != 2);
        dycl_words_push(&a, at[0]);
    }
    give_pooled(c, spatial, op, 3, operands, &a);
}

void dycl_grad_max_pool1d_with_indices(dycl_chain *c) { max_pool(c, 1, DYCL_OP_aten_max_pool2d_with_indices_backward); }
void dycl_grad_max_pool2d_with_indices(dycl_chain *c) { max_pool(c, 2, DYCL_OP_aten_max_pool2d_with_indices_backward); }
void dycl_grad_max_pool3d_with_indices(dycl_chain *c) { max_pool(c, 3, DYCL_OP_aten_max_pool3d_with_indices_backward); }

static void adaptive_max_pool(dycl_chain *c, int spatial, dycl_op op) {
    uint32_t operands[3] = {c->gradient, dycl_chain_take(c, 0), dycl_chain_sibling(c, 1)};
    dycl_words a = {.count = 0};
    give_pooled(c, spatial, op, 3, operands, &a);
}

void dycl_grad_adaptive_max_pool1d(dycl_chain *c) {
    adaptive_max_pool(c, 1, DYCL_OP_aten_adaptive_max_pool2d_backward);
}
void dycl_grad_adaptive_max_pool2d(dycl_chain *c) {
    adaptive_max_pool(c, 2, DYCL_OP_aten_adaptive_max_pool2d_backward);
}
void dycl_grad_adaptive_max_pool3d(dycl_chain *c) {
    adaptive_max_pool(c, 3, DYCL_OP_aten_adaptive_max_pool3d_backward);
}

/* ---- Convolutions */

/* Without a batch, with one of 1. */
static uint32_t batched(dycl_chain *c, uint32_t value, int rank) {
    int64_t sizes[DYCL_MAX_RANK] = {1};
    if (c->status != DYCL_OK || dycl_chain_meta(c, value)->rank == rank) return value;
    memcpy(sizes + 1, dycl_chain_meta(c, value)->sizes, (size_t)(rank - 1) * sizeof *sizes);
    return dycl_chain_reshape(c, value, rank, sizes);
}

/* What torch's kernels see, a height of 1 in front of one spatial dimension, suggests channels last. */
static int suggests_channels_last(const dycl_value *v, int spatial) {
    dycl_value image = *v;
    if (spatial == 1 && v->rank == 3) {
        image.rank = 4;
        image.sizes[3] = v->sizes[2];
        image.strides[3] = v->strides[2];
        image.sizes[2] = 1;
        image.strides[2] = v->strides[2] * v->sizes[2];
    }
    return image.rank == 4 && dycl_value_channels_last(&image);
}

/* A gradient of a convolution: in channels last where the image or the weight suggests it. */
static uint32_t conv_back(dycl_chain *c, int which, const dycl_value *like, int channels_last, const uint32_t *operands,
                          const dycl_words *a) {
    int64_t step = 1;
    static const int order[2][4] = {{1, 2, 0}, {1, 3, 2, 0}}; /* of dimensions, the nearest first */
    dycl_value made = *like;
    dycl_infer_contiguous(&made);
    for (int i = 0; i < made.rank && channels_last; i++) {
        int dim = order[made.rank - 3][i];
        made.strides[dim] = step;
        step *= made.sizes[dim];
    }
    return dycl_chain_hosted_laid(c, DYCL_OP_aten_convolution_backward, which, &made, 3, operands, a->count, a->words);
}

/* x, weight, bias*; attributes: stride, padding, dilation, groups; transposed: stride, padding, output padding, groups,
 * dilation. */
static dycl_words conv_arguments(const dycl_chain *c, int n, int transposed) {
    const int64_t *at = dycl_words_given(c), none[3] = {0, 0, 0};
    int64_t stride[3], padding[3], extra[3], dilation[3], wanted[3] = {dycl_chain_wants(c, 0), dycl_chain_wants(c, 1)};
    dycl_words a = {.count = 0};
    dycl_words_read(&at, n, stride);
    dycl_words_read(&at, n, padding);
    dycl_words_read(&at, n, transposed ? extra : dilation);
    int64_t groups = *at++;
    if (transposed) dycl_words_read(&at, n, dilation);
    dycl_words_push(&a, -1); /* bias_sizes: its gradient is a sum */
    dycl_words_push_list(&a, n, stride);
    dycl_words_push_list(&a, n, padding);
    dycl_words_push_list(&a, n, dilation);
    dycl_words_push(&a, transposed);
    dycl_words_push_list(&a, n, transposed ? extra : none);
    dycl_words_push(&a, groups);
    dycl_words_push_list(&a, 3, wanted);
    return a;
}

/* Whoever wants a gradient, torch saves both. */
static void hosted_conv(dycl_chain *c, int transposed) {
    dycl_value x = *dycl_chain_operand(c, 0), w = *dycl_chain_operand(c, 1), image = x;
    int n = w.rank - 2, unbatched = x.rank < w.rank;
    dycl_words a = conv_arguments(c, n, transposed);
    uint32_t operands[3] = {batched(c, c->gradient, w.rank), batched(c, dycl_chain_take(c, 0), w.rank),
                            dycl_chain_take(c, 1)};
    if (c->status != DYCL_OK) return;
    c->tied_nothing = 1;
    dycl_chain_tie(c, 0);
    dycl_chain_tie(c, 1);
    if (unbatched) image = *dycl_chain_meta(c, operands[1]);
    int channels_last = suggests_channels_last(&image, n) || suggests_channels_last(&w, n);
    if (dycl_chain_wants(c, 0)) {
        uint32_t g = conv_back(c, 0, &image, channels_last, operands, &a);
        dycl_chain_give(c, 0, unbatched ? dycl_chain_reshape(c, g, x.rank, x.sizes) : g);
    }
    if (dycl_chain_wants(c, 1)) dycl_chain_give(c, 1, conv_back(c, 1, &w, channels_last, operands, &a));
    if (dycl_chain_wants(c, 2)) {
        uint32_t all = (UINT32_C(1) << w.rank) - 1;
        uint32_t sum = dycl_chain_reduce(c, DYCL_OP_sum, operands[0], all & ~UINT32_C(2));
        dycl_chain_give(c, 2, dycl_chain_reshape(c, sum, 1, dycl_chain_operand(c, 2)->sizes));
    }
}

void dycl_grad_hosted_conv(dycl_chain *c) { hosted_conv(c, 0); }
void dycl_grad_hosted_conv_transpose(dycl_chain *c) { hosted_conv(c, 1); }
