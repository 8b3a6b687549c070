#include "exec/blocked.h"
#include "exec/conv.h"

#include <math.h>
#include <string.h>

/* Convolutions without groups as products of windows and packed weights (kern/gemm.h). The pixels lie channels last, so that a row of a window is
 * one run of memory; where windows reach over the border, the image is copied into one with zeros around it first. */

typedef struct {
    dycl_conv_args conv; /* weights, bias, scale */
    dycl_gemm_rows rows; /* pointers are set at each run */
    dycl_gemm_form form;
    dycl_ref src, padded, residual, dst;
    int pads, has_residual, threads;
    dycl_pad pad;
    int64_t src_strides[4];
    float low, high;
} product_args;

static dycl_status product_run(const dycl_step *step, dycl_plan *plan) {
    const product_args *a = step->args;
    const void *packed;
    dycl_status status = dycl_conv_weights(plan, &a->conv, &packed);
    if (status != DYCL_OK) return status;
    dycl_gemm_rows rows = a->rows;
    rows.a = dycl_at(plan, a->src);
    if (a->pads) {
        rows.source = (dycl_gemm_source){&a->pad, (const float *)rows.a, a->src_strides};
        rows.a = dycl_at(plan, a->padded);
    }
    rows.c = dycl_at(plan, a->dst);
    dycl_gemm_finish finish = {a->conv.has_bias ? dycl_at(plan, a->conv.bias) : NULL, a->has_residual ? dycl_at(plan, a->residual) : NULL, a->low, a->high};
    dycl_gemm_run(&a->form, &rows, packed, &finish, a->threads);
    return DYCL_OK;
}

void dycl_channels_last(const dycl_tensor *t, dycl_layout *out) {
    int64_t c = t->sizes[1], h = t->sizes[2], w = t->sizes[3], strides[4] = {c * h * w, 1, w * c, c};
    dycl_layout_plain(out, 4, t->sizes, strides);
}

/* What follows as a residual and clamps, in this order; 0: something else follows. */
static int finish_of(const dycl_post_ops *post, const uint32_t *residuals, product_args *a, uint32_t *residual) {
    *residual = DYCL_NONE;
    a->low = -INFINITY;
    a->high = INFINITY;
    for (int i = 0; i < post->count; i++) {
        const dycl_post_op *op = &post->op[i];
        if (op->kind == DYCL_POST_ADD && i == 0)
            *residual = residuals[i];
        else if (op->kind == DYCL_POST_RELU)
            a->low = 0;
        else if (op->kind == DYCL_POST_CLAMP) { /* to [0, beta] */
            a->low = 0;
            if (op->beta < a->high) a->high = op->beta;
        } else
            return 0;
    }
    return 1;
}

/* Few output channels fill no vector; a dilated window has no runs longer than a pixel. */
static int suits(const dycl_conv_desc *d) {
    return !d->transposed && d->groups == 1 && d->oc >= 8 && (d->dilation[1] == 1 || d->kw == 1);
}

/* How the windows lie in images of that height and width. */
static void describe_rows(const dycl_conv_desc *d, int64_t height, int64_t width, dycl_gemm_rows *rows) {
    int64_t pixel = d->c * (int64_t)sizeof(float);
    rows->run = d->ow;
    rows->runs = d->n * d->oh;
    rows->a_row = d->stride[1] * pixel;
    rows->run_inner = d->oh;
    rows->run_stride = d->stride[0] * width * pixel;
    rows->run_outer_stride = height * width * pixel;
    rows->segment_count = d->kh;
    rows->segment_stride = d->dilation[0] * width * pixel;
    rows->depth = d->kw * d->c;
    rows->unique = d->stride[0] * d->stride[1] * pixel;
    rows->c_row = d->oc;
    if (d->kh == 1 && d->kw == 1 && d->stride[0] == 1 && d->stride[1] == 1 && height == d->oh && width == d->ow) { /* every pixel: one run */
        rows->run *= rows->runs;
        rows->runs = 1;
    }
}

/* The pixels that windows see, and the zeros around them. */
static void describe_pad(const dycl_conv_desc *d, dycl_pad *pad) {
    int64_t see_h = (d->oh - 1) * d->stride[0] + (d->kh - 1) * d->dilation[0] + 1, see_w = (d->ow - 1) * d->stride[1] + (d->kw - 1) * d->dilation[1] + 1;
    *pad = (dycl_pad){.images = d->n, .channels = d->c, .height = d->h, .width = d->w, .above = d->pad_before[0], .left = d->pad_before[1]};
    if (pad->height > see_h - pad->above) pad->height = see_h - pad->above;
    if (pad->width > see_w - pad->left) pad->width = see_w - pad->left;
    if (pad->height < 0) pad->height = 0;
    if (pad->width < 0) pad->width = 0;
    pad->below = see_h - pad->above - pad->height;
    pad->right = see_w - pad->left - pad->width;
}

/* Where the input is read from, in which strides: as it lies, when the copy with zeros is made anyway. */
static dycl_status read_input(dycl_maker *b, uint32_t value, product_args *a) {
    const struct dycl_blocked *blocked = dycl_blocked_of(b, value);
    dycl_layout layout;
    dycl_tensor x;
    dycl_status status;
    dycl_make_tensor(b, value, &x);
    if (blocked && !blocked->layout.opaque) {
        a->src = (dycl_ref){blocked->slot, 0, 0};
        memcpy(a->src_strides, blocked->layout.strides, sizeof a->src_strides);
    } else if (blocked) {
        dycl_channels_last(&x, &layout);
        DYCL_TRY(dycl_make_as(b, value, &layout, &a->src));
        memcpy(a->src_strides, layout.strides, sizeof a->src_strides);
    } else {
        DYCL_TRY(dycl_make_operand_plain(b, value));
        a->src = x.ref;
        memcpy(a->src_strides, x.strides, sizeof a->src_strides);
    }
    return DYCL_OK;
fail:
    return status;
}

dycl_status dycl_make_conv_product(dycl_maker *b, const dycl_block *block, const dycl_conv_desc *d, const dycl_conv_args *conv, const dycl_tensor *w,
                                   const uint32_t *residuals) {
    const dycl_graph *g = &b->program->graph;
    const dycl_node *node = &g->nodes[block->first];
    const dycl_gemm_kernel *kernel = dycl_kern_gemm(dycl_cpu_isa());
    uint32_t input = dycl_node_operands(g, node)[0], result = g->nodes[block->last].out, residual, slot;
    if (!kernel || !suits(d)) return DYCL_BAIL;
    product_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    if (!finish_of(&d->post, residuals, a, &residual)) return DYCL_BAIL;
    dycl_tensor x, out;
    dycl_layout src, dst;
    dycl_status status;
    dycl_make_tensor(b, input, &x);
    dycl_make_tensor(b, node->out, &out);
    dycl_channels_last(&x, &src);
    dycl_channels_last(&out, &dst);
    a->conv = *conv;
    describe_pad(d, &a->pad);
    a->pads = a->pad.above || a->pad.below || a->pad.left || a->pad.right;
    if (a->pads) {
        int64_t height = a->pad.above + a->pad.height + a->pad.below, width = a->pad.left + a->pad.width + a->pad.right;
        DYCL_TRY(read_input(b, input, a));
        describe_rows(d, height, width, &a->rows);
    } else {
        DYCL_TRY(dycl_make_as(b, input, &src, &a->src));
        describe_rows(d, d->h, d->w, &a->rows);
    }
    if (residual != DYCL_NONE) {
        DYCL_TRY(dycl_make_as(b, residual, &dst, &a->residual));
        a->has_residual = 1;
        dycl_make_read(b, a->residual.slot);
    }
    DYCL_TRY(dycl_make_result(b, result, &dst, &slot));
    a->dst.slot = slot;
    dycl_make_read(b, a->src.slot);
    dycl_make_write(b, slot);
    if (conv->has_bias) dycl_make_read(b, conv->bias.slot);
    if (conv->has_scale) dycl_make_read(b, conv->scale.slot);
    int64_t window = d->kh * d->kw;
    a->form = (dycl_gemm_form){kernel, d->oc, {d->kh, d->kw, d->c}, {d->kw, 1, window}, window * d->c, dycl_gemm_vectors(kernel, a->rows.run, d->oc)};
    a->conv.once.gemm = a->form;
    DYCL_TRY(dycl_conv_read_weights(b, &a->conv, w, d->oc));
    if (a->pads) {
        size_t pixels = (size_t)(d->n * (a->pad.above + a->pad.height + a->pad.below) * (a->pad.left + a->pad.width + a->pad.right));
        DYCL_TRY(dycl_make_scratch(b, pixels * (size_t)d->c * sizeof(float), &a->padded));
    }
    double flops = 2 * (double)(d->n * d->oh * d->ow) * (double)d->oc * (double)(window * d->c);
    a->threads = flops > 400000 ? b->plan->threads : 1;
    DYCL_TRY(dycl_make_step(b, product_run, a, "window product", 500 + flops / 150 / a->threads));
    return dycl_make_result_done(b, result);
fail:
    return status;
}
