/* Convolutions and pools. An image's gradient is a convolution the other way; the other gradients come from torch's own
 * kernels, or from kernels of ours. */
#include <omp.h>
#include <string.h>

#include "grad/formula.h"
#include "ir/infer.h"

static int push(int64_t *words, int at, int count, const int64_t *numbers) {
    words[at++] = count;
    memcpy(words + at, numbers, (size_t)count * sizeof *words);
    return at + count;
}

/* Whether torch asks oneDNN (ConvParams::use_mkldnn). */
static int is_onednns(const dycl_chain *c) {
    const dycl_value *x = dycl_chain_operand(c, 0), *w = dycl_chain_operand(c, 1);
    const int64_t *stride = c->attrs, *dilation = c->attrs + 4, *window = w->sizes + 2;
    if (window[0] == 1 && window[1] == 1 && stride[0] == 1 && stride[1] == 1 && dilation[0] == 1 && dilation[1] == 1 &&
        x->sizes[0] < 16 && omp_get_max_threads() == 1)
        return 0;
    return c->attrs[6] > 1 || (window[0] > 3 && window[1] > 3) || x->sizes[0] > 1 || dycl_value_numel(x) > 20480;
}

/* How torch's gradient of an image (0) or a weight (1) lies: in channels last where one of both suggests it. What is
 * not oneDNN's is made as the weight lies, and moved only where that is another order of elements. */
static dycl_value lying(const dycl_chain *c, int nth) {
    const dycl_value *x = dycl_chain_operand(c, 0), *w = dycl_chain_operand(c, 1);
    dycl_value like = *dycl_chain_operand(c, nth);
    int moves = w->sizes[1] > 1 && w->sizes[2] * w->sizes[3] > 1;
    if (dycl_value_channels_last(w) || (dycl_value_channels_last(x) && (nth == 0 || moves || is_onednns(c))))
        dycl_infer_channels_last(&like);
    else
        dycl_infer_contiguous(&like);
    return like;
}

static void give_lying(dycl_chain *c, int nth, uint32_t gradient) {
    if (c->status != DYCL_OK) return;
    dycl_value form = lying(c, nth);
    dycl_chain_give(c, nth, dycl_chain_laid(c, gradient, &form));
}

static int is_dense(const dycl_value *v) { return v->canonical || dycl_value_channels_last_dense(v); }

/* A node where it can be one. 0: torch's kernel has to do it. */
static int made(dycl_chain *c, dycl_op op, int operand_count, const uint32_t *operands, int attr_count,
                const int64_t *attrs, uint32_t *out) {
    dycl_status status = c->status;
    if (status == DYCL_OK)
        status = dycl_build_node(&c->b->recorder, op, operand_count, operands, attr_count, attrs, out);
    if (status == DYCL_BAIL) return 0;
    c->status = status;
    return 1;
}

/* The gradient of a convolution's image is what the transposed convolution makes of the result's, and the reverse: it
 * lies and runs as any other convolution. */
static int image_of(dycl_chain *c, const dycl_value *x, uint32_t weight, uint32_t gradient, int transposed,
                    uint32_t *out) {
    uint32_t operands[3] = {gradient, weight, DYCL_NONE};
    int64_t attrs[9], before[4] = {0}, unseen[4] = {0};
    if (c->status != DYCL_OK || x->dtype != DYCL_F32 || !is_dense(x)) return 0;
    const dycl_value *w = dycl_chain_meta(c, weight), *g = dycl_chain_meta(c, gradient);
    memcpy(attrs, c->attrs, 7 * sizeof *attrs);
    for (int i = 0; i < 2 && !transposed; i++) { /* what the last window left over, of padding and of the image */
        int64_t window = attrs[4 + i] * (w->sizes[2 + i] - 1) + 1, padding = attrs[2 + i];
        int64_t left = x->sizes[2 + i] + 2 * padding - window - (g->sizes[2 + i] - 1) * attrs[i];
        attrs[7 + i] = left < padding ? left : padding;
        unseen[2 + i] = left - attrs[7 + i];
    }
    if (!made(c, transposed ? DYCL_OP_conv2d : DYCL_OP_conv_transpose2d, 3, operands, transposed ? 7 : 9, attrs, out))
        return 0;
    if (unseen[2] || unseen[3]) *out = dycl_chain_padded(c, *out, before, unseen, 4);
    return 1;
}

static int image_by_convolution(dycl_chain *c, int transposed) {
    uint32_t out = 0;
    if (!image_of(c, dycl_chain_operand(c, 0), dycl_chain_take(c, 1), c->gradient, transposed, &out)) return 0;
    give_lying(c, 0, out);
    return 1;
}

/* A convolution's windows go over the larger image: its own, or what the transposed one made. */
static int weight_by_windows(dycl_chain *c, int transposed) {
    const dycl_value *w = dycl_chain_operand(c, 1);
    uint32_t operands[2], out = 0, x;
    int64_t attrs[9];
    if (c->status != DYCL_OK || w->dtype != DYCL_F32 || !is_dense(w)) return 0;
    memcpy(attrs, c->attrs, 7 * sizeof *attrs);
    memcpy(attrs + 7, w->sizes + 2, 2 * sizeof *attrs);
    x = dycl_chain_take(c, 0);
    operands[transposed] = x;
    operands[!transposed] = c->gradient;
    if (!made(c, DYCL_OP_conv2d_back, 2, operands, 9, attrs, &out)) return 0;
    give_lying(c, 1, out);
    return 1;
}

static void bias_by_sum(dycl_chain *c) {
    const dycl_value *bias = dycl_chain_operand(c, 2);
    uint32_t sum = dycl_chain_reduce(c, DYCL_OP_sum, c->gradient, 1 << 0 | 1 << 2 | 1 << 3);
    dycl_chain_give(c, 2, dycl_chain_reshape(c, sum, bias->rank, bias->sizes));
}

/* x, weight, bias*; attributes: stride, padding, dilation, groups, output padding (transposed) */
static void conv(dycl_chain *c, int transposed) {
    static const int64_t none[2] = {0, 0};
    int64_t words[24], mask[3], channels = dycl_chain_meta(c, c->gradient)->sizes[1];
    int at = 0, biased = c->operands[2] != DYCL_NONE;
    for (int i = 0; i < 3; i++) mask[i] = dycl_chain_wants(c, i);
    if (dycl_value_numel(dycl_chain_operand(c, 0)) == 0 || dycl_value_numel(dycl_chain_operand(c, 1)) == 0)
        dycl_chain_fail(c);
    c->tied_nothing = 1;
    for (int i = 0; i < 2; i++) { /* whoever wants a gradient, torch saves both */
        dycl_chain_take(c, i);
        dycl_chain_tie(c, i);
    }
    if (mask[0] && image_by_convolution(c, transposed)) mask[0] = 0;
    if (mask[1] && weight_by_windows(c, transposed)) mask[1] = 0;
    if (mask[2] && !mask[1]) { /* torch's kernel computes the weight's once more for it */
        bias_by_sum(c);
        mask[2] = 0;
    }
    if (!mask[0] && !mask[1] && !mask[2]) return;
    at = biased ? push(words, at, 1, &channels) : (words[0] = -1, 1);
    for (int i = 0; i < 3; i++) at = push(words, at, 2, c->attrs + 2 * i);
    words[at++] = transposed;
    at = push(words, at, 2, transposed ? c->attrs + 7 : none);
    words[at++] = c->attrs[6];
    at = push(words, at, 3, mask);
    uint32_t operands[3] = {c->gradient, dycl_chain_take(c, 0), dycl_chain_take(c, 1)};
    for (int i = 0; i < 3; i++) {
        if (!mask[i]) continue;
        dycl_value like = i < 2 ? lying(c, i) : *dycl_chain_operand(c, i);
        uint32_t gradient = dycl_chain_hosted(c, DYCL_OP_aten_convolution_backward, i, &like, 3, operands, at, words);
        if (i < 2)
            give_lying(c, i, gradient);
        else
            dycl_chain_give(c, i, gradient);
    }
}

/* x, g, for gradients that are differentiated themselves: what comes is as a weight, of the same convolution. */
void dycl_grad_conv2d_back(dycl_chain *c) {
    dycl_value x = *dycl_chain_operand(c, 0);
    uint32_t operands[3] = {dycl_chain_take(c, 0), c->gradient, DYCL_NONE}, out = 0;
    if (c->status != DYCL_OK || !dycl_chain_is_plain(&x) || !dycl_chain_is_plain(dycl_chain_operand(c, 1)) ||
        !dycl_chain_is_plain(dycl_chain_meta(c, c->gradient)))
        dycl_chain_fail(c);
    if (dycl_chain_wants(c, 1)) {
        if (!made(c, DYCL_OP_conv2d, 3, operands, 7, c->attrs, &out)) dycl_chain_fail(c);
        dycl_chain_give(c, 1, out);
    }
    if (dycl_chain_wants(c, 0)) {
        if (!image_of(c, &x, c->gradient, dycl_chain_take(c, 1), 0, &out)) dycl_chain_fail(c);
        dycl_chain_give(c, 0, out);
    }
}

void dycl_grad_conv2d(dycl_chain *c) { conv(c, 0); }
void dycl_grad_conv_transpose2d(dycl_chain *c) { conv(c, 1); }

/* By our own kernel, which sees which element was the largest. 0: it is for other kinds. */
static int own_max_pool2d(dycl_chain *c, const dycl_value *x) {
    uint32_t operands[2] = {0, c->gradient}, out = 0;
    if (x->dtype != DYCL_F32 || c->attrs[6] != 1 || c->attrs[7] != 1) return 0;
    if (x->sizes[2] > INT32_MAX / x->sizes[3]) return 0;
    operands[0] = dycl_chain_take(c, 0);
    if (c->status == DYCL_OK)
        c->status = dycl_build_node(&c->b->recorder, DYCL_OP_max_pool2d_back, 2, operands, 9, c->attrs, &out);
    dycl_chain_give(c, 0, out);
    return 1;
}

/* attributes: kernel, stride, padding, dilation, ceil mode. Which element was the largest is asked again. */
void dycl_grad_max_pool2d(dycl_chain *c) {
    dycl_value x = *dycl_chain_operand(c, 0), positions = *dycl_chain_meta(c, c->gradient);
    int64_t words[16];
    int at = 0;
    if (dycl_value_numel(&x) == 0) dycl_chain_fail(c);
    if (c->status != DYCL_OK || own_max_pool2d(c, &x)) return;
    for (int i = 0; i < 4; i++) at = push(words, at, 2, c->attrs + 2 * i);
    words[at++] = c->attrs[8];
    positions.dtype = DYCL_I64;
    uint32_t operands[3] = {c->gradient, dycl_chain_take(c, 0), 0};
    operands[2] = dycl_chain_hosted(c, DYCL_OP_aten_max_pool2d_with_indices, 1, &positions, 1, &operands[1], at, words);
    dycl_chain_give(c, 0,
                    dycl_chain_hosted(c, DYCL_OP_aten_max_pool2d_with_indices_backward, 0, &x, 3, operands, at, words));
}

/* x, g: what comes, where the largest elements were. */
void dycl_grad_max_pool2d_back(dycl_chain *c) {
    const dycl_value *g = dycl_chain_operand(c, 1);
    dycl_value x = *dycl_chain_operand(c, 0), positions = *g;
    int64_t words[16], flat[3] = {x.sizes[0], x.sizes[1], x.sizes[2] * x.sizes[3]}, dim = 2;
    int64_t few[3] = {g->sizes[0], g->sizes[1], g->sizes[2] * g->sizes[3]}, sizes[4];
    int at = 0;
    memcpy(sizes, g->sizes, sizeof sizes);
    if (!dycl_chain_is_plain(&x) || !dycl_chain_is_plain(g)) dycl_chain_fail(c);
    for (int i = 0; i < 4; i++) at = push(words, at, 2, c->attrs + 2 * i);
    words[at++] = c->attrs[8];
    positions.dtype = DYCL_I64;
    if (dycl_chain_wants(c, 1)) {
        uint32_t image = dycl_chain_take(c, 0);
        uint32_t index =
            dycl_chain_hosted(c, DYCL_OP_aten_max_pool2d_with_indices, 1, &positions, 1, &image, at, words);
        uint32_t operands[2] = {dycl_chain_reshape(c, c->gradient, 3, flat), dycl_chain_reshape(c, index, 3, few)};
        uint32_t found = dycl_chain_node(c, DYCL_OP_gather, 2, operands, 1, &dim);
        dycl_chain_give(c, 1, dycl_chain_reshape(c, found, 4, sizes));
    }
    if (dycl_chain_wants(c, 0)) dycl_chain_give(c, 0, dycl_chain_zeros(c, &x));
}

/* By our own kernel, which asks only for the sizes of what was pooled. Torch saves it. */
static void mean_back(dycl_chain *c, dycl_op op, int attr_count) {
    if (dycl_value_numel(dycl_chain_operand(c, 0)) == 0) dycl_chain_fail(c);
    uint32_t operands[2] = {dycl_chain_take(c, 0), c->gradient};
    dycl_chain_give(c, 0, dycl_chain_node(c, op, 2, operands, attr_count, c->attrs));
}

void dycl_grad_avg_pool2d(dycl_chain *c) { mean_back(c, DYCL_OP_avg_pool2d_back, 8); }

/* attributes: output. To one element it is a mean, which needs nothing of what was pooled. */
void dycl_grad_adaptive_avg_pool2d(dycl_chain *c) {
    const dycl_value *x = dycl_chain_operand(c, 0);
    if (c->attrs[0] != 1 || c->attrs[1] != 1) {
        mean_back(c, DYCL_OP_adaptive_avg_pool2d_back, 2);
        return;
    }
    if (dycl_value_numel(x) == 0) dycl_chain_fail(c);
    double count = (double)x->sizes[2] * (double)x->sizes[3];
    dycl_chain_give(c, 0, dycl_chain_mean_back(c, c->gradient, x, count));
}
