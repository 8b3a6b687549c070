/* Convolutions and pools, by torch's own kernels: what was a row there is one step here. */
#include <string.h>

#include "grad/formula.h"
#include "ir/infer.h"

static int push(int64_t *words, int at, int count, const int64_t *numbers) {
    words[at++] = count;
    memcpy(words + at, numbers, (size_t)count * sizeof *words);
    return at + count;
}

/* x, weight, bias*; attributes: stride, padding, dilation, groups, output padding (transposed) */
static void conv(dycl_chain *c, int transposed) {
    static const int64_t none[2] = {0, 0};
    int64_t words[24], mask[3], channels = dycl_chain_meta(c, c->gradient)->sizes[1];
    int at = 0, biased = c->operands[2] != DYCL_NONE;
    for (int i = 0; i < 3; i++) mask[i] = dycl_chain_wants(c, i);
    if (dycl_value_numel(dycl_chain_operand(c, 0)) == 0 || dycl_value_numel(dycl_chain_operand(c, 1)) == 0)
        dycl_chain_fail(c);
    at = biased ? push(words, at, 1, &channels) : (words[0] = -1, 1);
    for (int i = 0; i < 3; i++) at = push(words, at, 2, c->attrs + 2 * i);
    words[at++] = transposed;
    at = push(words, at, 2, transposed ? c->attrs + 7 : none);
    words[at++] = c->attrs[6];
    at = push(words, at, 3, mask);
    uint32_t operands[3] = {c->gradient, dycl_chain_take(c, 0), dycl_chain_take(c, 1)};
    for (int i = 0; i < 3; i++) {
        if (!mask[i]) continue;
        dycl_value like = *dycl_chain_operand(c, i);
        dycl_chain_give(c, i,
                        dycl_chain_hosted(c, DYCL_OP_aten_convolution_backward, i, &like, 3, operands, at, words));
    }
}

void dycl_grad_conv2d(dycl_chain *c) { conv(c, 0); }
void dycl_grad_conv_transpose2d(dycl_chain *c) { conv(c, 1); }

/* By our own kernel, which sees which element was the largest. 0: it is for other kinds. */
static int own_max_pool2d(dycl_chain *c, const dycl_value *x) {
    uint32_t operands[2] = {0, c->gradient}, out = 0;
    if (x->dtype != DYCL_F32 || !x->canonical || c->attrs[6] != 1 || c->attrs[7] != 1) return 0;
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

/* attributes: kernel, stride, padding, ceil mode, count_include_pad */
void dycl_grad_avg_pool2d(dycl_chain *c) {
    dycl_value x = *dycl_chain_operand(c, 0);
    int64_t words[16];
    int at = 0;
    for (int i = 0; i < 3; i++) at = push(words, at, 2, c->attrs + 2 * i);
    words[at++] = c->attrs[6];
    words[at++] = c->attrs[7];
    words[at++] = 0; /* divisor_override: None */
    words[at++] = 0;
    if (dycl_value_numel(&x) == 0) dycl_chain_fail(c);
    uint32_t operands[2] = {c->gradient, dycl_chain_take(c, 0)};
    dycl_chain_give(c, 0, dycl_chain_hosted(c, DYCL_OP_aten_avg_pool2d_backward, 0, &x, 2, operands, at, words));
}

/* attributes: output. To one element it is a mean, which needs nothing of what was pooled. */
void dycl_grad_adaptive_avg_pool2d(dycl_chain *c) {
    dycl_value x = *dycl_chain_operand(c, 0);
    if (dycl_value_numel(&x) == 0) dycl_chain_fail(c);
    if (c->attrs[0] == 1 && c->attrs[1] == 1) {
        double count = (double)x.sizes[2] * (double)x.sizes[3];
        dycl_chain_give(c, 0, dycl_chain_number(c, DYCL_OP_div, c->gradient, count));
        return;
    }
    uint32_t operands[2] = {c->gradient, dycl_chain_take(c, 0)};
    dycl_chain_give(c, 0,
                    dycl_chain_hosted(c, DYCL_OP_aten__adaptive_avg_pool2d_backward, 0, &x, 2, operands, 0, NULL));
}
