#include "exec/builder/blocked.h"
#include "exec/builder/guard.h"
#include "exec/conv/conv.h"
#include "kern/product.h"
#include "kern/window_gradient.h"

#include <string.h>

/* Gradients of the weights of convolutions, by oneDNN or by ways of our own: windows as products, or by Winograd's
 * squares, and single pixels as one product. oneDNN chooses the layouts: what image and gradient are reordered to,
 * other steps find ready, and what it makes is reordered to the weight's. Where several are possible, they are measured
 * from channels last, which is what the convolutions around leave; what oneDNN wants otherwise is reordered in the step
 * then. */

/* To or from the primitive's own layout. prim: the plan's; NULL: the other side lies so. */
typedef struct {
    dycl_prim *prim;
    dycl_ref own, scratch;
} reordering;

typedef enum { BY_SQUARES, BY_PIXELS, BY_WINDOWS, BY_PRIMITIVE, WAYS } way;
static const char *const names[] = {
    [BY_SQUARES] = "Winograd", [BY_PIXELS] = "product", [BY_WINDOWS] = "windows", [BY_PRIMITIVE] = "oneDNN"};

typedef struct {
    dycl_prim *prim; /* the plan's */
    reordering x_as, gradient_as, back;
    dycl_ref x, gradient, dst, scratch;
    way ways[WAYS]; /* that are measured */
    int way_count, threads;
    const dycl_gemm_kernel *kernel;
    dycl_winograd squares;
    dycl_product pixels;
    dycl_window_gradient windows;
    dycl_ref work[WAYS]; /* of our own ways */
    size_t gradient_numel;
    dycl_autotune *autotune; /* NULL: the primitive */
} gradient_args;

static dycl_status reorder(const reordering *r, dycl_plan *plan, dycl_ref from, dycl_ref to) {
    if (!r->prim) return DYCL_OK;
    return dycl_prim_execute(
        r->prim,
        &(dycl_prim_args){.src = dycl_at(plan, from), .dst = dycl_at(plan, to), .scratch = dycl_at(plan, r->scratch)});
}

/* Where the primitive reads or writes, for what lies at `outside`. */
static dycl_ref inside(const reordering *r, dycl_ref outside) { return r->prim ? r->own : outside; }

static dycl_status gradient_run(const dycl_step *step, dycl_plan *plan) {
    const gradient_args *a = step->args;
    dycl_status status;
    DYCL_TRY(reorder(&a->x_as, plan, a->x, a->x_as.own));
    DYCL_TRY(reorder(&a->gradient_as, plan, a->gradient, a->gradient_as.own));
    DYCL_TRY(
        dycl_prim_execute(a->prim, &(dycl_prim_args){.src = dycl_at(plan, inside(&a->x_as, a->x)),
                                                     .weights = dycl_at(plan, inside(&a->gradient_as, a->gradient)),
                                                     .dst = dycl_at(plan, inside(&a->back, a->dst)),
                                                     .scratch = dycl_at(plan, a->scratch)}));
    return reorder(&a->back, plan, a->back.own, a->dst);
fail:
    return status;
}

static void own_run(const gradient_args *a, dycl_plan *plan, way by) {
    const float *x = dycl_at(plan, a->x), *gradient = dycl_at(plan, a->gradient);
    float *dst = dycl_at(plan, a->dst);
    char *work = dycl_at(plan, a->work[by]);
    int sound = 1;
    switch (by) {
    case BY_PIXELS: dycl_product_run(&a->pixels, gradient, x, NULL, dst, work); break;
    case BY_SQUARES:
        sound = dycl_winograd_gradient(&a->squares, a->kernel, x, gradient, dst, (float *)work, a->threads);
        break;
    default: /* zeros around an image times what is no number */
        sound = dycl_guard_is_small(gradient, a->gradient_numel, DYCL_GUARD_ELEMENT);
        dycl_window_gradient_run(&a->windows, x, gradient, dst, work);
    }
    if (!sound) plan->suspect = 1;
}

static dycl_status measured_run(const dycl_step *step, dycl_plan *plan) {
    const gradient_args *a = step->args;
    dycl_status status = DYCL_OK;
    uint64_t began;
    int variant = dycl_autotune_next(a->autotune, &began);
    if (a->ways[variant] == BY_PRIMITIVE)
        status = gradient_run(step, plan);
    else
        own_run(a, plan, a->ways[variant]);
    if (began) dycl_autotune_note(a->autotune, variant, began);
    return status;
}

/* The weight with a dimension of its own for groups, as oneDNN has it. */
static void weight_layout(const dycl_conv_desc *d, dycl_layout *out) {
    int64_t dense[4] = {d->oc, d->c, d->kh, d->kw}, strides[5],
            grouped[5] = {d->groups, d->oc / d->groups, d->c / d->groups, d->kh, d->kw};
    int rank = d->groups == 1 ? 4 : 5;
    dycl_strides_contiguous(rank, rank == 4 ? dense : grouped, strides);
    dycl_layout_plain(out, rank, rank == 4 ? dense : grouped, strides);
}

/* own: of the two, the primitive's. */
static dycl_status make_reordering(dycl_builder *b, const dycl_layout *from, const dycl_layout *to,
                                   const dycl_layout *own, reordering *out) {
    dycl_status status;
    if (dycl_layout_equal(from, to)) return DYCL_OK;
    DYCL_TRY(dycl_prim_reorder(from, to, &out->prim));
    DYCL_TRY(dycl_make_prim(b, out->prim));
    DYCL_TRY(dycl_make_scratch(b, dycl_layout_bytes(own), &out->own));
    DYCL_TRY(dycl_make_scratch(b, dycl_prim_scratch(out->prim), &out->scratch));
fail:
    return status;
}

/* What oneDNN makes, as the weight lies. */
static dycl_status reorder_back(dycl_builder *b, gradient_args *a, const dycl_conv_desc *d) {
    dycl_layout made, wanted;
    dycl_prim_dst_layout(a->prim, &made);
    weight_layout(d, &wanted);
    return make_reordering(b, &made, &wanted, &made, &a->back);
}

static dycl_status make_primitive(dycl_builder *b, gradient_args *a, const dycl_conv_desc *d, const dycl_layout *image,
                                  const dycl_layout *of_result) {
    dycl_layout wanted;
    dycl_status status;
    dycl_prim_src_layout(a->prim, &wanted);
    DYCL_TRY(make_reordering(b, image, &wanted, &wanted, &a->x_as));
    dycl_prim_gradient_layout(a->prim, &wanted);
    DYCL_TRY(make_reordering(b, of_result, &wanted, &wanted, &a->gradient_as));
    DYCL_TRY(reorder_back(b, a, d));
    return dycl_make_scratch(b, dycl_prim_scratch(a->prim), &a->scratch);
fail:
    return status;
}

/* ---- Our own ways */

static int is_pixels(const dycl_conv_desc *d) {
    return d->kh == 1 && d->kw == 1 && d->stride[0] == 1 && d->stride[1] == 1 && d->oh == d->h && d->ow == d->w &&
           !d->pad_before[0] && !d->pad_before[1];
}

/* Each weight is a sum over all pixels: gradient[pixels, oc]' x[pixels, c]. */
static void describe_pixels(gradient_args *a, const dycl_conv_desc *d) {
    a->pixels = (dycl_product){.kernel = a->kernel,
                               .m = d->oc,
                               .n = d->c,
                               .k = d->n * d->oh * d->ow,
                               .a_row = 1,
                               .a_column = d->oc,
                               .b_row = d->c,
                               .b_column = 1,
                               .c_row = d->c};
    dycl_product_divide(&a->pixels, a->threads);
}

static void describe_windows(gradient_args *a, const dycl_conv_desc *d, const dycl_pad *pad) {
    a->windows = (dycl_window_gradient){.kernel = a->kernel, .windows = dycl_conv_windows(d, pad), .outputs = d->oc};
    dycl_window_gradient_divide(&a->windows, a->threads);
}

#define FEW_PIXELS 512
#define FEW_SEEN   (1 << 20) /* elements of x, those that several places see as many times */

/* Of more, the primitive's products are long enough, and what it wants reordered other steps may find ready. Not where
 * windows are as wide as the image: it makes a product of a few columns for each image. */
static int are_few(const dycl_conv_desc *d) {
    int64_t pixels = d->n * d->oh * d->ow;
    return (pixels <= FEW_PIXELS || d->ow == 1) && pixels * d->kh * d->kw * d->c <= FEW_SEEN;
}

/* Those that may be faster than the primitive. Few weights or channels fill no vector. */
static void choose_ways(const dycl_builder *b, gradient_args *a, const dycl_conv_desc *d) {
    dycl_pad pad;
    a->kernel = dycl_kern_gemm(dycl_cpu_isa());
    a->threads = dycl_conv_cost(d) > 10000 ? b->plan->threads : 1;
    if (!a->kernel || b->plan->mode != DYCL_PLAN_TUNED || !dycl_make_may_pack(b) || d->groups != 1 || d->oc < 8) return;
    if (is_pixels(d)) {
        if (d->c < 8) return;
        describe_pixels(a, d);
        a->ways[a->way_count++] = BY_PIXELS;
        return;
    }
    if (dycl_conv_suits_winograd(b, d, a->kernel, 32)) {
        a->squares = dycl_conv_squares(d);
        a->ways[a->way_count++] = BY_SQUARES;
    }
    if (!are_few(d) || d->c * d->kw < 8 || !dycl_conv_pad(d, &pad)) return;
    describe_windows(a, d, &pad);
    a->ways[a->way_count++] = BY_WINDOWS;
}

static size_t work_bytes(const gradient_args *a, way by) {
    switch (by) {
    case BY_PIXELS: return dycl_product_bytes(&a->pixels);
    case BY_SQUARES: return dycl_winograd_gradient_scratch(&a->squares, a->kernel, a->threads);
    default: return dycl_window_gradient_bytes(&a->windows);
    }
}

static dycl_status make_own(dycl_builder *b, gradient_args *a) {
    dycl_status status;
    for (int i = 0; i < a->way_count; i++) {
        way by = a->ways[i];
        if (by != BY_PIXELS) b->plan->guarded = 1; /* squares subtract an infinity from itself, perhaps */
        dycl_make_variant(b, (uint32_t)i + 2);
        DYCL_TRY(dycl_make_scratch(b, work_bytes(a, by), &a->work[by]));
    }
    return DYCL_OK;
fail:
    return status;
}

static dycl_status measure(dycl_builder *b, gradient_args *a, const dycl_conv_desc *d) {
    const char *said[WAYS];
    if (!a->way_count) return DYCL_OK;
    a->ways[a->way_count++] = BY_PRIMITIVE;
    for (int i = 0; i < a->way_count; i++) said[i] = names[a->ways[i]];
    return dycl_conv_measure(b, d, said, a->way_count, a->threads, " gradient", &a->autotune);
}

dycl_status dycl_steps_unconv(dycl_builder *b, const dycl_block *block) {
    const dycl_graph *g = &b->program->graph;
    const dycl_node *node = &g->nodes[block->first];
    const uint32_t *operands = dycl_node_operands(g, node);
    dycl_tensor x, gradient, out;
    dycl_layout image, of_result;
    dycl_conv_desc d;
    dycl_status status;
    memset(&d, 0, sizeof d);
    status = dycl_make_whole_window(b, node);
    if (status != DYCL_BAIL) return status;
    gradient_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    dycl_make_tensor(b, operands[0], &x);
    dycl_make_tensor(b, operands[1], &gradient);
    DYCL_TRY(dycl_make_target(b, node->out, &out));
    dycl_conv_describe(&d, &x, &out, &gradient, DYCL_OP_conv2d, dycl_node_attrs(g, node));
    a->gradient_numel = (size_t)dycl_tensor_numel(&gradient);
    DYCL_TRY(dycl_prim_conv_gradient(&d, &a->prim));
    DYCL_TRY(dycl_make_prim(b, a->prim));
    choose_ways(b, a, &d);
    if (a->way_count) {
        dycl_channels_last(&x, &image);
        dycl_channels_last(&gradient, &of_result);
    } else {
        dycl_prim_src_layout(a->prim, &image);
        dycl_prim_gradient_layout(a->prim, &of_result);
    }
    DYCL_TRY(dycl_make_as(b, operands[0], &image, &a->x));
    DYCL_TRY(dycl_make_as(b, operands[1], &of_result, &a->gradient));
    if (a->way_count) dycl_make_variant(b, 1);
    DYCL_TRY(make_primitive(b, a, &d, &image, &of_result));
    DYCL_TRY(make_own(b, a));
    a->dst = out.ref;
    dycl_make_read_at(b, a->x, dycl_layout_bytes(&image));
    dycl_make_read_at(b, a->gradient, dycl_layout_bytes(&of_result));
    dycl_make_write(b, &out);
    DYCL_TRY(dycl_make_step(b, a->way_count ? measured_run : gradient_run, a, "weight's gradient", dycl_conv_cost(&d)));
    b->plan->infos[b->plan->step_count - 1].prim = a->prim;
    DYCL_TRY(measure(b, a, &d));
    return dycl_make_finish(b, node->out, &out);
fail:
    return status;
}
