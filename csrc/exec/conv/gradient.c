#include "exec/builder/blocked.h"
#include "exec/conv/conv.h"
#include "kern/product.h"

#include <string.h>

/* Gradients of the weights of convolutions, by oneDNN or by a way of our own: 3x3 windows by Winograd's squares, single
 * pixels as a product. oneDNN chooses the layouts: what image and gradient are reordered to, other steps find ready,
 * and what it makes is reordered to the weight's. Where both are possible, they are measured from channels last, which
 * is what the convolutions around leave; what oneDNN wants otherwise is reordered in the step then. */

/* To or from the primitive's own layout. prim: the plan's; NULL: the other side lies so. */
typedef struct {
    dycl_prim *prim;
    dycl_ref own, scratch;
} reordering;

typedef struct {
    dycl_prim *prim; /* the plan's */
    reordering x_as, gradient_as, back;
    dycl_ref x, gradient, dst, scratch;
    dycl_winograd winograd;
    dycl_product product; /* of single pixels; kernel NULL: squares */
    const dycl_gemm_kernel *kernel;
    dycl_ref own_scratch;
    int threads;
    dycl_autotune *autotune;
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

enum { OWN, PRIMITIVE };
static const char *const of_squares[] = {"Winograd", "oneDNN"}, *const of_pixels[] = {"product", "oneDNN"};

static dycl_status own_run(const gradient_args *a, dycl_plan *plan) {
    const float *x = dycl_at(plan, a->x), *gradient = dycl_at(plan, a->gradient);
    float *dst = dycl_at(plan, a->dst);
    if (a->product.kernel)
        dycl_product_run(&a->product, gradient, x, NULL, dst, dycl_at(plan, a->own_scratch));
    else if (!dycl_winograd_gradient(&a->winograd, a->kernel, x, gradient, dst, dycl_at(plan, a->own_scratch),
                                     a->threads))
        plan->suspect = 1;
    return DYCL_OK;
}

static dycl_status either_run(const dycl_step *step, dycl_plan *plan) {
    const gradient_args *a = step->args;
    uint64_t began;
    int variant = dycl_autotune_next(a->autotune, &began);
    dycl_status status = variant == PRIMITIVE ? gradient_run(step, plan) : own_run(a, plan);
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

static dycl_status offer_winograd(dycl_builder *b, gradient_args *a, const dycl_conv_desc *d) {
    a->winograd = dycl_conv_squares(d);
    a->threads = dycl_conv_cost(d) > 10000 ? b->plan->threads : 1;
    b->plan->guarded = 1; /* transforms subtract: an infinity from itself, perhaps */
    dycl_make_variant(b, 2);
    return dycl_make_scratch(b, dycl_winograd_gradient_scratch(&a->winograd, a->kernel, a->threads), &a->own_scratch);
}

/* Each weight is a sum over all pixels: gradient[pixels, oc]' x[pixels, c]. */
static int suits_product(const dycl_builder *b, const dycl_conv_desc *d, const dycl_gemm_kernel *kernel) {
    int single = d->kh == 1 && d->kw == 1 && d->stride[0] == 1 && d->stride[1] == 1 && d->groups == 1;
    return kernel && single && b->plan->mode == DYCL_PLAN_TUNED && dycl_make_may_pack(b) && d->c >= 8 && d->oc >= 8 &&
           d->oh == d->h && d->ow == d->w && !d->pad_before[0] && !d->pad_before[1];
}

static dycl_status offer_product(dycl_builder *b, gradient_args *a, const dycl_conv_desc *d) {
    a->product = (dycl_product){.kernel = a->kernel,
                                .m = d->oc,
                                .n = d->c,
                                .k = d->n * d->oh * d->ow,
                                .a_row = 1,
                                .a_column = d->oc,
                                .b_row = d->c,
                                .b_column = 1,
                                .c_row = d->c};
    a->threads = dycl_conv_cost(d) > 10000 ? b->plan->threads : 1;
    dycl_product_divide(&a->product, a->threads);
    dycl_make_variant(b, 2);
    return dycl_make_scratch(b, dycl_product_bytes(&a->product), &a->own_scratch);
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
    DYCL_TRY(dycl_prim_conv_gradient(&d, &a->prim));
    DYCL_TRY(dycl_make_prim(b, a->prim));
    a->kernel = dycl_kern_gemm(dycl_cpu_isa());
    int squares = a->kernel && dycl_conv_suits_winograd(b, &d, a->kernel, 32),
        either = squares || suits_product(b, &d, a->kernel);
    if (either) {
        dycl_channels_last(&x, &image);
        dycl_channels_last(&gradient, &of_result);
    } else {
        dycl_prim_src_layout(a->prim, &image);
        dycl_prim_gradient_layout(a->prim, &of_result);
    }
    DYCL_TRY(dycl_make_as(b, operands[0], &image, &a->x));
    DYCL_TRY(dycl_make_as(b, operands[1], &of_result, &a->gradient));
    if (either) dycl_make_variant(b, 1);
    DYCL_TRY(make_primitive(b, a, &d, &image, &of_result));
    if (either) DYCL_TRY(squares ? offer_winograd(b, a, &d) : offer_product(b, a, &d));
    a->dst = out.ref;
    dycl_make_read_at(b, a->x, dycl_layout_bytes(&image));
    dycl_make_read_at(b, a->gradient, dycl_layout_bytes(&of_result));
    dycl_make_write(b, &out);
    DYCL_TRY(dycl_make_step(b, either ? either_run : gradient_run, a, "weight's gradient", dycl_conv_cost(&d)));
    b->plan->infos[b->plan->step_count - 1].prim = a->prim;
    const char *const *variants = squares ? of_squares : of_pixels;
    if (either) DYCL_TRY(dycl_conv_measure(b, &d, variants, a->threads, " gradient", &a->autotune));
    return dycl_make_finish(b, node->out, &out);
fail:
    return status;
}
