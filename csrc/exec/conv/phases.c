#include "exec/builder/blocked.h"
#include "exec/conv/few_pixels.h"

#include <math.h>
#include <string.h>

/* Transposed convolutions with a stride, as the gradient of an image is, and the layers of a decoder: pixels of the
 * result that are `stride` apart see the image through the same places of the window. So each such phase is a
 * convolution with stride 1 and a part of the window, and a product of windows (product.c), whose rows are written
 * `stride` pixels apart. Nothing is multiplied with the zeros between the pixels, and nothing added up afterwards. */

#define MOST_PHASES 16

typedef struct {
    dycl_conv_args conv; /* its part of the weights */
    dycl_gemm_rows rows;
    int64_t from, to; /* its first window and pixel: bytes of the image that is read, elements of the result */
    int empty;        /* no place of the window: the bias alone */
} phase;

typedef struct {
    dycl_conv_desc d;
    dycl_pad pad;
    dycl_ref src, padded, bias, dst;
    int64_t src_strides[4];
    int pads, has_bias, threads, count;
    phase phases[MOST_PHASES];
    dycl_conv_zeros zeros;
    dycl_conv_few *few;      /* NULL: there are many pixels, or few weights */
    dycl_ref weights;        /* all of them */
    dycl_autotune *autotune; /* phases or few pixels, with weights that are packed at each run */
} phases_args;

/* One dimension of a phase. */
typedef struct {
    int64_t out;    /* pixels of the result */
    int64_t places; /* of the window, */
    int64_t last;   /* of which this is the first that the window turned around has */
    int64_t before; /* pixels before the image that the first window sees; negative: it begins within */
} side;

static side side_of(int64_t number, int64_t out, int64_t window, int64_t stride, int64_t pad) {
    int64_t first = (number + pad) % stride;
    side s = {.out = number < out ? dycl_divided_up(out - number, stride) : 0,
              .places = first < window ? dycl_divided_up(window - first, stride) : 0};
    s.last = first + stride * (s.places - 1);
    s.before = s.places - 1 - (number + pad - first) / stride;
    return s;
}

/* ---- The run */

static void fill(const phases_args *a, const phase *p, const float *bias, float *dst) {
    const dycl_gemm_rows *r = &p->rows;
    for (int64_t run = 0; run < r->runs; run++)
        for (int64_t i = 0; i < r->run; i++) {
            float *to = dst + p->to + run / r->run_inner * r->c_outer + run % r->run_inner * r->c_run + i * r->c_row;
            if (bias)
                memcpy(to, bias, (size_t)a->d.oc * sizeof *to);
            else
                memset(to, 0, (size_t)a->d.oc * sizeof *to);
        }
}

/* Whether the weights are packed once: a phase that has some says it for all. */
static int are_known(const phases_args *a, const dycl_plan *plan) {
    for (int i = 0; i < a->count; i++) {
        dycl_packing *packing = a->phases[i].conv.packing;
        if (!a->phases[i].empty) return packing && dycl_packing_came_before(plan, packing);
    }
    return 1;
}

static dycl_status phases_multiply(const phases_args *a, dycl_plan *plan) {
    const float *src = dycl_at(plan, a->src), *bias = a->has_bias ? dycl_at(plan, a->bias) : NULL;
    const dycl_gemm_finish finish = {bias, NULL, -INFINITY, INFINITY};
    float *dst = dycl_at(plan, a->dst), *padded = a->pads ? dycl_at(plan, a->padded) : NULL;
    const char *image = (const char *)(padded ? padded : src);
    int made = !a->pads, stay = are_known(a, plan);
    for (int i = 0; i < a->count; i++) {
        const phase *p = &a->phases[i];
        if (p->empty) {
            fill(a, p, bias, dst);
            continue;
        }
        dycl_gemm_rows rows = p->rows;
        rows.a = image + p->from;
        rows.c = dst + p->to;
        if (!made) rows.source = (dycl_gemm_source){&a->pad, src, a->src_strides, padded};
        made = 1;
        dycl_status status = dycl_conv_multiply(plan, &p->conv, &rows, &finish, a->threads);
        if (status != DYCL_OK) return status;
    }
    dycl_conv_look_at_zeros(&a->zeros, plan, stay, dst);
    return DYCL_OK;
}

static dycl_status phases_run(const dycl_step *step, dycl_plan *plan) { return phases_multiply(step->args, plan); }

enum { PHASES, FEW };
static const char *const variants[] = {"phases", "few pixels"};

static void forget(const phases_args *a) {
    for (int i = 0; i < a->count; i++) {
        dycl_packing *packing = a->phases[i].conv.packing;
        if (packing && packing->pack) dycl_packing_forget(packing);
    }
}

static dycl_status either_run(const dycl_step *step, dycl_plan *plan) {
    const phases_args *a = step->args;
    uint64_t began;
    dycl_status status = DYCL_OK;
    if (are_known(a, plan)) return phases_multiply(a, plan);
    int variant = dycl_autotune_next(a->autotune, &began);
    if (variant == FEW) {
        const dycl_gemm_finish finish = {a->has_bias ? dycl_at(plan, a->bias) : NULL, NULL, -INFINITY, INFINITY};
        if (!began) forget(a);
        dycl_few_pixels_step(a->few, plan, dycl_at(plan, a->src), a->src_strides, dycl_at(plan, a->weights), &finish,
                             dycl_at(plan, a->dst));
    } else {
        status = phases_multiply(a, plan);
    }
    if (began) dycl_autotune_note(a->autotune, variant, began);
    return status;
}

/* ---- The plan */

static void describe_rows(const phases_args *a, const side *y, const side *x, int64_t height, int64_t width,
                          dycl_gemm_rows *r) {
    const dycl_conv_desc *d = &a->d;
    int64_t pixel = d->c * (int64_t)sizeof(float);
    *r = (dycl_gemm_rows){.run = x->out,
                          .runs = d->n * y->out,
                          .a_row = pixel,
                          .run_inner = y->out,
                          .run_stride = width * pixel,
                          .run_outer_stride = height * width * pixel,
                          .segment_count = y->places,
                          .segment_stride = width * pixel,
                          .depth = x->places * d->c,
                          .unique = pixel,
                          .c_row = d->stride[1] * d->oc,
                          .c_run = d->stride[0] * d->ow * d->oc,
                          .c_outer = d->oh * d->ow * d->oc};
}

/* The weights [c, oc, kh, kw] of a phase: every stride-th place, from the last. */
static dycl_status describe_weights(dycl_builder *b, const dycl_tensor *w, const phases_args *a, const side *y,
                                    const side *x, phase *p) {
    const dycl_conv_desc *d = &a->d;
    const dycl_gemm_kernel *kernel = dycl_kern_gemm(dycl_cpu_isa());
    int64_t window = d->kh * d->kw;
    p->conv.as = (dycl_weights){.kind = DYCL_WEIGHTS_GEMM,
                                .gemm = {.kernel = kernel,
                                         .n = d->oc,
                                         .sizes = {y->places, x->places, d->c},
                                         .strides = {-d->stride[0] * d->kw, -d->stride[1], d->oc * window},
                                         .column = window,
                                         .vectors = dycl_gemm_vectors(kernel, x->out, d->oc)},
                                .start = y->last * d->kw + x->last};
    return dycl_conv_read_columns(b, &p->conv, w, &p->rows, a->threads);
}

/* Zeros around the image that any phase sees, on one side of it: how many before and behind, and how much of it. */
static int look(const side *sides, int64_t count, int64_t size, int64_t *before, int64_t *inner, int64_t *after) {
    int64_t end = 0;
    *before = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!sides[i].out || !sides[i].places) continue;
        if (sides[i].before < 0) return 0;
        if (sides[i].before > *before) *before = sides[i].before;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t last = *before - sides[i].before + sides[i].out + sides[i].places - 1;
        if (sides[i].out && sides[i].places && last > end) end = last;
    }
    *inner = end - *before < size ? end - *before : size;
    if (*inner < 0) *inner = 0;
    *after = end - *before - *inner;
    return 1;
}

/* 0: a window begins within the image, or there are more zeros than pixels. */
static int describe_sides(phases_args *a, side *y, side *x) {
    const dycl_conv_desc *d = &a->d;
    dycl_pad *p = &a->pad;
    for (int64_t i = 0; i < d->stride[0]; i++) y[i] = side_of(i, d->oh, d->kh, d->stride[0], d->pad_before[0]);
    for (int64_t i = 0; i < d->stride[1]; i++) x[i] = side_of(i, d->ow, d->kw, d->stride[1], d->pad_before[1]);
    *p = (dycl_pad){.images = d->n, .channels = d->c};
    if (!look(y, d->stride[0], d->h, &p->above, &p->height, &p->below)) return 0;
    if (!look(x, d->stride[1], d->w, &p->left, &p->width, &p->right)) return 0;
    a->pads = dycl_pad_has_zeros(p);
    return dycl_pad_height(p) * dycl_pad_width(p) < 4 * d->h * d->w + 64;
}

static int suits(const dycl_conv_desc *d) {
    return d->transposed && d->groups == 1 && d->oc >= 8 && d->dilation[0] == 1 && d->dilation[1] == 1 && !d->bf16 &&
           d->stride[0] * d->stride[1] > 1 && d->stride[0] * d->stride[1] <= MOST_PHASES && !d->post.count &&
           dycl_kern_gemm(dycl_cpu_isa());
}

dycl_status dycl_make_conv_phases(dycl_builder *b, const dycl_node *node, const dycl_conv_desc *d,
                                  const dycl_conv_args *conv, const dycl_tensor *w) {
    const uint32_t *operands = dycl_node_operands(&b->program->graph, node), input = operands[0];
    dycl_tensor x, out;
    dycl_layout src, dst;
    side rows[MOST_PHASES], columns[MOST_PHASES];
    uint32_t slot;
    dycl_status status;
    if (!suits(d)) return DYCL_BAIL;
    phases_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    a->d = *d;
    if (!describe_sides(a, rows, columns) || (a->pads && b->plan->mode == DYCL_PLAN_EXACT)) return DYCL_BAIL;
    dycl_make_tensor(b, input, &x);
    dycl_make_tensor(b, node->out, &out);
    dycl_channels_last(&x, &src);
    dycl_channels_last(&out, &dst);
    double flops = 2 * (double)(d->n * d->h * d->w) * (double)d->oc * (double)(d->kh * d->kw * d->c);
    a->threads = flops > 400000 ? b->plan->threads : 1;
    DYCL_TRY(dycl_make_as(b, input, &src, &a->src));
    memcpy(a->src_strides, src.strides, sizeof a->src_strides);
    DYCL_TRY(dycl_make_result(b, node->out, &dst, &slot));
    a->dst.slot = slot;
    a->has_bias = conv->has_bias;
    a->bias = conv->bias;
    dycl_make_read_at(b, a->src, dycl_layout_bytes(&src));
    dycl_make_write_at(b, a->dst, dycl_layout_bytes(&dst));
    if (a->has_bias) dycl_make_read_at(b, a->bias, (size_t)d->oc * sizeof(float));
    int64_t height = a->pads ? dycl_pad_height(&a->pad) : d->h, width = a->pads ? dycl_pad_width(&a->pad) : d->w;
    int few = dycl_conv_has_few_pixels(b, d, conv);
    if (few) dycl_make_variant(b, 1);
    for (int64_t i = 0; i < d->stride[0] * d->stride[1]; i++) {
        const side *r = &rows[i / d->stride[1]], *c = &columns[i % d->stride[1]];
        phase *p = &a->phases[a->count];
        if (!r->out || !c->out) continue;
        a->count++;
        p->empty = !r->places || !c->places;
        p->to = (i / d->stride[1] * d->ow + i % d->stride[1]) * d->oc;
        p->from = ((a->pad.above - r->before) * width + a->pad.left - c->before) * d->c * (int64_t)sizeof(float);
        describe_rows(a, r, c, height, width, &p->rows);
        if (!p->empty) DYCL_TRY(describe_weights(b, w, a, r, c, p));
    }
    if (a->pads) DYCL_TRY(dycl_make_scratch(b, (size_t)(d->n * height * width * d->c) * sizeof(float), &a->padded));
    if (a->pads) DYCL_TRY(dycl_conv_guard_zeros(b, operands[1], w, d, &a->zeros));
    if (few) {
        a->weights = w->ref;
        dycl_make_variant(b, 2);
        DYCL_TRY(dycl_make_few_pixels(b, d, a->threads, &a->few));
    }
    DYCL_TRY(dycl_make_step(b, few ? either_run : phases_run, a, "phases' products", 500 + flops / 150 / a->threads));
    if (few) DYCL_TRY(dycl_conv_measure(b, d, variants, 2, a->threads, " phases anew", &a->autotune));
    return dycl_make_result_done(b, node->out);
fail:
    return status;
}
