#include "exec/builder/blocked.h"
#include "exec/conv/few_pixels.h"

#include <math.h>
#include <string.h>

/* Convolutions without groups as products of windows and packed weights (kern/gemm.h). The pixels lie channels last, so
 * that a row of a window is one run of memory; where windows reach over the border, the image is copied into one with
 * zeros around it first. */

typedef struct {
    dycl_conv_args conv; /* weights, bias, scale */
    dycl_gemm_rows rows; /* pointers are set at each run */
    dycl_ref src, padded, residual, dst;
    int pads, has_residual, threads;
    dycl_pad pad;
    int64_t src_strides[4];
    float low, high;
    dycl_weights winograd_weights;
    dycl_packing *transformed; /* those that are constant, or NULL */
    dycl_ref retransformed;    /* room for others, if they are not transformed panel by panel */
    int by_panels;
    dycl_winograd winograd;
    dycl_ref winograd_scratch;
    dycl_conv_few *few; /* NULL: there are many, or its weights are few */
    int squares;        /* Winograd's may be a variant */
    dycl_guard *look;   /* at the weights, for that alone; NULL: a step of its own has looked */
    dycl_conv_zeros zeros;
    dycl_autotune *autotune, *anew; /* anew: of weights that are packed at each run */
} product_args;

static dycl_gemm_finish finish_at(const product_args *a, const dycl_plan *plan) {
    const float *bias = a->conv.has_bias ? dycl_at(plan, a->conv.bias) : NULL,
                *residual = a->has_residual ? dycl_at(plan, a->residual) : NULL;
    return (dycl_gemm_finish){bias, residual, a->low, a->high};
}

static dycl_status windows_run(const product_args *a, dycl_plan *plan) {
    dycl_gemm_rows rows = a->rows;
    const float *src = dycl_at(plan, a->src);
    rows.a = (const char *)src;
    if (a->pads) {
        float *padded = dycl_at(plan, a->padded);
        rows.source = (dycl_gemm_source){&a->pad, src, a->src_strides, padded};
        rows.a = (const char *)padded;
    }
    rows.c = dycl_at(plan, a->dst);
    dycl_gemm_finish finish = finish_at(a, plan);
    int stay = a->conv.packing && dycl_packing_came_before(plan, a->conv.packing);
    dycl_status status = dycl_conv_multiply(plan, &a->conv, &rows, &finish, a->threads);
    dycl_conv_look_at_zeros(&a->zeros, plan, stay, rows.c);
    return status;
}

static dycl_status product_run(const dycl_step *step, dycl_plan *plan) {
    const product_args *a = step->args;
    return windows_run(a, plan);
}

/* Winograd's products, the windows' own or those of few pixels, whichever is measured to be fastest: with weights that
 * came before, which are packed once, and with others (of a model that trains, or that are computed), which are packed
 * at each run, if at all. */
enum { WINOGRAD, WINDOWS, FEW };
static const char *const variants[] = {"Winograd", "windows", "few pixels"};

static void forget(dycl_packing *packing) {
    if (packing && packing->pack) dycl_packing_forget(packing);
}

static dycl_status few_run(const product_args *a, dycl_plan *plan) {
    dycl_gemm_finish finish = finish_at(a, plan);
    dycl_few_pixels_step(a->few, plan, dycl_at(plan, a->src), a->src_strides, dycl_at(plan, a->conv.weights), &finish,
                         dycl_at(plan, a->dst));
    dycl_conv_look_at_zeros(&a->zeros, plan, 0, dycl_at(plan, a->dst));
    return DYCL_OK;
}

/* Where sums overflow, another order of them shows; Winograd looks at its input itself. */
static dycl_status guarded_run(const product_args *a, dycl_plan *plan, int way) {
    const dycl_winograd *w = &a->winograd;
    if (a->squares)
        plan->suspect |= !dycl_guard_is_small(
            dycl_at(plan, a->src), (size_t)(w->images * w->height * w->width * w->channels), DYCL_GUARD_ELEMENT);
    return way == FEW ? few_run(a, plan) : windows_run(a, plan);
}

/* Weights for Winograd's products. known: they came before. */
static dycl_status transformed_weights(const product_args *a, dycl_plan *plan, int known, dycl_winograd_weights *out) {
    const float *scale = a->conv.has_scale ? dycl_at(plan, a->conv.scale) : NULL,
                *from = dycl_at(plan, a->conv.weights);
    const void *packed = NULL;
    dycl_status status = known ? dycl_packing_get(plan, a->transformed, scale, &packed) : DYCL_OK;
    if (status == DYCL_OK && !packed && !a->by_panels) {
        packed = dycl_at(plan, a->retransformed);
        status = dycl_weights_pack(&a->winograd_weights, from, scale, NULL, dycl_at(plan, a->retransformed));
    }
    *out = (dycl_winograd_weights){packed, from + a->winograd_weights.start, scale};
    return status;
}

static dycl_status winograd_run(const product_args *a, dycl_plan *plan, int known) {
    dycl_winograd_weights weights;
    dycl_status status = transformed_weights(a, plan, known, &weights);
    if (status != DYCL_OK) return status;
    if (a->look) dycl_guard_run(a->look, plan);
    dycl_gemm_finish finish = finish_at(a, plan);
    if (!dycl_winograd_run(&a->winograd, &a->winograd_weights.gemm, dycl_at(plan, a->src), &weights, &finish,
                           dycl_at(plan, a->dst), dycl_at(plan, a->winograd_scratch), a->threads))
        plan->suspect = 1;
    return DYCL_OK;
}

static dycl_status either_run(const dycl_step *step, dycl_plan *plan) {
    const product_args *a = step->args;
    dycl_packing *first = a->squares ? a->transformed : a->conv.packing;
    int known = first && dycl_packing_came_before(plan, first);
    dycl_autotune *autotune = known ? a->autotune : a->anew;
    uint64_t began;
    if (known && !a->squares) return windows_run(a, plan);
    int variant = dycl_autotune_next(autotune, &began), way = a->squares ? variant : variant + WINDOWS;
    dycl_packing *packing = way == WINDOWS ? a->conv.packing : way == WINOGRAD ? a->transformed : NULL;
    if (packing) packing->fresh = 0;
    /* what windows read of weights that change is packed for one run, and kept until the next */
    if (!began && way != WINDOWS) forget(a->conv.packing);
    if (!began && known && way != WINOGRAD) forget(a->transformed);
    dycl_status status = way == WINOGRAD ? winograd_run(a, plan, known) : guarded_run(a, plan, way);
    /* a run that packs for all says nothing about the others */
    if (began && (!known || (packing && packing->pack && !packing->fresh)))
        dycl_autotune_note(autotune, variant, began);
    return status;
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

/* A transposed convolution with stride 1, as the gradient of an image is, sees the image through the window turned
 * around, with what is left of the window around it. 0: it is another one, or cuts something off. */
static int turned_around(const dycl_conv_desc *d, dycl_conv_desc *out) {
    *out = *d;
    out->transposed = 0;
    const int64_t reach[2] = {(d->kh - 1) * d->dilation[0], (d->kw - 1) * d->dilation[1]};
    for (int i = 0; i < 2; i++) {
        out->pad_before[i] = reach[i] - d->pad_before[i];
        out->pad_after[i] = reach[i] - d->pad_after[i];
        if (d->stride[i] != 1 || out->pad_before[i] < 0 || out->pad_after[i] < 0) return 0;
    }
    return 1;
}

/* The convolution whose windows are multiplied, which may see it in another way. */
typedef struct {
    dycl_conv_desc d;
    int turns;
    int64_t folded; /* places of a line of the window, which are channels of d; 0: none are */
} window_view;

/* Transposed, to one channel, of images one pixel wide (the gradient of a convolution over words, whose windows are as
 * wide as its lines): the places of a line of the window are channels then, side by side as they are in the result. */
static int is_folded(const dycl_conv_desc *d, const dycl_conv_args *conv) {
    return d->transposed && d->groups == 1 && d->oc == 1 && d->w == 1 && d->ow == d->kw && d->kw > 1 &&
           d->dilation[1] == 1 && !d->pad_before[1] && !conv->has_bias && !conv->has_scale;
}

/* 0: it has no such windows. */
static int find_windows(const dycl_conv_desc *d, const dycl_conv_args *conv, window_view *out) {
    dycl_conv_desc f = *d;
    *out = (window_view){.turns = d->transposed};
    if (is_folded(d, conv)) {
        out->folded = f.oc = d->kw;
        f.kw = f.ow = f.stride[1] = 1;
        f.pad_after[1] = 0;
    }
    out->d = f;
    return (!out->turns || turned_around(&f, &out->d)) && suits(&out->d);
}

/* The weights as B: [oc, c, kh, kw], or (turns) [c, oc, kh, kw] with each window from its end. */
static dycl_weights describe_weights(const window_view *w, const dycl_gemm_kernel *kernel, int64_t run) {
    const dycl_conv_desc *d = &w->d;
    int64_t window = d->kh * d->kw, way = w->turns ? -1 : 1;
    dycl_gemm_layout form = {.kernel = kernel,
                             .n = d->oc,
                             .sizes = {d->kh, d->kw, d->c},
                             .strides = {way * d->kw, way, w->turns ? d->oc * window : window},
                             .column = w->turns ? window : window * d->c,
                             .vectors = dycl_gemm_vectors(kernel, run, d->oc)};
    if (w->folded) { /* [c, 1, kh, oc] */
        form.strides[0] = -w->folded;
        form.column = 1;
    }
    return (dycl_weights){.kind = DYCL_WEIGHTS_GEMM,
                          .gemm = form,
                          .start = w->folded  ? (window - 1) * w->folded
                                   : w->turns ? window - 1
                                              : 0};
}

#define SHORT 4 /* rows of a tile that wait for their sums */

/* How the windows lie in images of that height and width. Runs go along lines, or, where these are short, along
 * columns: the rows of a tile are of one run. */
static void describe_rows(const dycl_conv_desc *d, int64_t height, int64_t width, dycl_gemm_rows *rows) {
    int64_t pixel = d->c * (int64_t)sizeof(float), along = d->stride[1] * pixel, down = d->stride[0] * width * pixel,
            line = d->ow * d->oc;
    int columns = d->ow < SHORT && d->oh > d->ow;
    rows->run = columns ? d->oh : d->ow;
    rows->run_inner = columns ? d->ow : d->oh;
    rows->runs = d->n * rows->run_inner;
    rows->a_row = columns ? down : along;
    rows->run_stride = columns ? along : down;
    rows->run_outer_stride = height * width * pixel;
    rows->segment_count = d->kh;
    rows->segment_stride = d->dilation[0] * width * pixel;
    rows->depth = d->kw * d->c;
    rows->unique = d->stride[0] * d->stride[1] * pixel;
    rows->c_row = columns ? line : d->oc;
    rows->c_run = columns ? d->oc : line;
    rows->c_outer = d->oh * line;
    if (d->kh == 1 && d->kw == 1 && d->stride[0] == 1 && d->stride[1] == 1 && height == d->oh &&
        width == d->ow) { /* every pixel: one run */
        rows->run = d->n * d->oh * d->ow;
        rows->runs = rows->run_inner = 1;
        rows->a_row = pixel;
        rows->c_row = d->oc;
    }
}

/* Where the input is read from, in which strides: as it lies, when the copy with zeros is made anyway. */
static dycl_status read_input(dycl_builder *b, uint32_t value, product_args *a) {
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

static dycl_status offer_winograd(dycl_builder *b, const dycl_conv_desc *d, const dycl_tensor *w, product_args *a) {
    dycl_status status;
    const dycl_gemm_layout *windows = &a->conv.as.gemm;
    a->winograd_weights = (dycl_weights){.kind = DYCL_WEIGHTS_WINOGRAD,
                                         .gemm = {.kernel = windows->kernel,
                                                  .n = d->oc,
                                                  .sizes = {1, 1, d->c},
                                                  .strides = {0, windows->strides[1], windows->strides[2]},
                                                  .column = windows->column,
                                                  .vectors = dycl_gemm_vectors(windows->kernel, 128, d->oc)},
                                         .start = a->conv.as.start,
                                         .channels = d->oc};
    a->winograd = dycl_conv_squares(d);
    DYCL_TRY(dycl_make_packing(b, w, &a->winograd_weights, a->conv.has_scale, &a->transformed));
    dycl_make_variant(b, 2);
    a->by_panels = dycl_winograd_is_one_block(&a->winograd, &a->winograd_weights.gemm);
    if (!a->by_panels) DYCL_TRY(dycl_make_scratch(b, dycl_weights_bytes(&a->winograd_weights), &a->retransformed));
    return dycl_make_scratch(b,
                             dycl_winograd_scratch(&a->winograd, &a->winograd_weights.gemm, a->by_panels, a->threads),
                             &a->winograd_scratch);
fail:
    return status;
}

/* Transforms subtract: an infinity from itself, perhaps; the other operand is looked at while it is transformed. Many
 * weights are looked at where they are transformed only. */
static dycl_status guard_weights(dycl_builder *b, uint32_t value, const dycl_tensor *w, int many, product_args *a) {
    size_t count = (size_t)dycl_tensor_numel(w);
    return many ? dycl_guard_make(b, value, w->ref, count, DYCL_GUARD_WEIGHT, &a->look)
                : dycl_guard_look(b, value, w->ref, count, DYCL_GUARD_WEIGHT);
}

/* d: of the windows. A gradient's few pixels take another time than those of a convolution. */
static dycl_status measure(dycl_builder *b, const dycl_conv_desc *d, int back, product_args *a) {
    dycl_status status;
    const int first = a->squares ? WINOGRAD : WINDOWS, count = (a->few ? FEW : WINDOWS) + 1 - first;
    if (count > 1)
        DYCL_TRY(dycl_conv_measure(b, d, variants + first, count, a->threads, a->few && back ? " anew, back" : " anew",
                                   &a->anew));
    if (a->squares) DYCL_TRY(dycl_conv_measure(b, d, variants, 2, a->threads, "", &a->autotune));
    return DYCL_OK;
fail:
    return status;
}

dycl_status dycl_make_conv_product(dycl_builder *b, const dycl_block *block, const dycl_conv_desc *d,
                                   const dycl_conv_args *conv, const dycl_tensor *w, const uint32_t *residuals) {
    const dycl_graph *g = &b->program->graph;
    const dycl_node *node = &g->nodes[block->first];
    const dycl_gemm_kernel *kernel = dycl_kern_gemm(dycl_cpu_isa());
    uint32_t input = dycl_node_operands(g, node)[0], result = g->nodes[block->last].out, residual, slot;
    window_view seen;
    if (!kernel || !find_windows(d, conv, &seen)) return DYCL_BAIL;
    const dycl_conv_desc *whole = d;
    d = &seen.d;
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
    if (!dycl_conv_pad(d, &a->pad)) return DYCL_BAIL;
    a->pads = dycl_pad_has_zeros(&a->pad);
    if (a->pads && b->plan->mode == DYCL_PLAN_EXACT) return DYCL_BAIL;
    double flops = 2 * (double)(d->n * d->oh * d->ow) * (double)d->oc * (double)(d->kh * d->kw * d->c);
    a->threads = flops > 400000 ? b->plan->threads : 1;
    int squares = a->squares = dycl_conv_suits_winograd(b, d, kernel, 12);
    int few = !seen.folded && dycl_conv_has_few_pixels(b, whole, conv);
    int64_t height = a->pads ? dycl_pad_height(&a->pad) : d->h, width = a->pads ? dycl_pad_width(&a->pad) : d->w;
    describe_rows(d, height, width, &a->rows);
    if (a->pads && !squares) {
        DYCL_TRY(read_input(b, input, a));
    } else {
        DYCL_TRY(dycl_make_as(b, input, &src, &a->src));
        memcpy(a->src_strides, src.strides, sizeof a->src_strides);
    }
    if (squares) DYCL_TRY(guard_weights(b, dycl_node_operands(g, node)[1], w, few, a));
    if (a->pads && (few || !squares))
        DYCL_TRY(dycl_conv_guard_zeros(b, dycl_node_operands(g, node)[1], w, d, &a->zeros));
    if (residual != DYCL_NONE) {
        DYCL_TRY(dycl_make_as(b, residual, &dst, &a->residual));
        a->has_residual = 1;
        dycl_make_read_at(b, a->residual, dycl_layout_bytes(&dst));
    }
    DYCL_TRY(dycl_make_result(b, result, &dst, &slot));
    a->dst.slot = slot;
    dycl_layout_plain(&src, 4, x.sizes, a->src_strides);
    dycl_make_read_at(b, a->src, dycl_layout_bytes(&src));
    dycl_make_write_at(b, a->dst, dycl_layout_bytes(&dst));
    if (conv->has_bias) dycl_make_read_at(b, conv->bias, (size_t)d->oc * sizeof(float));
    if (conv->has_scale) dycl_make_read_at(b, conv->scale, (size_t)d->oc * sizeof(float));
    a->conv.as = describe_weights(&seen, kernel, a->rows.run);
    if (squares || few) dycl_make_variant(b, 1);
    DYCL_TRY(dycl_conv_read_columns(b, &a->conv, w, &a->rows, a->threads));
    if (a->pads) {
        DYCL_TRY(dycl_make_scratch(b, (size_t)(d->n * height * width * d->c) * sizeof(float), &a->padded));
    }
    if (squares) DYCL_TRY(offer_winograd(b, d, w, a));
    if (few) {
        dycl_make_variant(b, 3);
        DYCL_TRY(dycl_make_few_pixels(b, whole, a->threads, &a->few));
    }
    DYCL_TRY(dycl_make_step(b, squares || a->few ? either_run : product_run, a, "window product",
                            500 + flops / 150 / a->threads));
    DYCL_TRY(measure(b, d, whole->transposed, a));
    return dycl_make_result_done(b, result);
fail:
    return status;
}
