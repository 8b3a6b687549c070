#include "exec/builder/blocked.h"
#include "exec/conv/conv.h"
#include "exec/builder/guard.h"
#include "kern/winograd.h"

#include <string.h>

/* Gradients of the weights of convolutions, by oneDNN or, of 3x3 windows, by Winograd's squares. oneDNN chooses the
 * layouts: what image and gradient are reordered to, other steps find ready, and what it makes is reordered to the
 * weight's. Where both are possible, they are measured from channels last, which is what the convolutions around leave;
 * what oneDNN wants otherwise is reordered in the step then. */

/* A primitive between two places; NULL: none is needed. */
typedef struct {
    dycl_prim *prim; /* the plan's */
    dycl_ref dst, scratch;
} reordering;

typedef struct {
    dycl_prim *prim; /* the plan's */
    reordering x_as, gradient_as, back;
    dycl_ref x, gradient, dst, scratch;
    dycl_winograd winograd;
    const dycl_gemm_kernel *kernel;
    dycl_ref winograd_scratch;
    int threads;
    dycl_autotune *autotune;
} gradient_args;

static dycl_status reordered(const reordering *r, dycl_plan *plan, dycl_ref from, dycl_ref *out) {
    *out = from;
    if (!r->prim) return DYCL_OK;
    *out = r->dst;
    return dycl_prim_execute(r->prim, &(dycl_prim_args){.src = dycl_at(plan, from),
                                                        .dst = dycl_at(plan, r->dst),
                                                        .scratch = dycl_at(plan, r->scratch)});
}

static dycl_status gradient_run(const dycl_step *step, dycl_plan *plan) {
    const gradient_args *a = step->args;
    dycl_ref x, gradient, made = a->back.prim ? a->back.dst : a->dst, end;
    dycl_status status;
    DYCL_TRY(reordered(&a->x_as, plan, a->x, &x));
    DYCL_TRY(reordered(&a->gradient_as, plan, a->gradient, &gradient));
    DYCL_TRY(dycl_prim_execute(a->prim, &(dycl_prim_args){.src = dycl_at(plan, x),
                                                          .weights = dycl_at(plan, gradient),
                                                          .dst = dycl_at(plan, made),
                                                          .scratch = dycl_at(plan, a->scratch)}));
    if (!a->back.prim) return DYCL_OK;
    reordering back = a->back;
    back.dst = a->dst;
    return reordered(&back, plan, made, &end);
fail:
    return status;
}

enum { WINOGRAD, PRIMITIVE };
static const char *const variants[] = {"Winograd", "oneDNN"};

static dycl_status either_run(const dycl_step *step, dycl_plan *plan) {
    const gradient_args *a = step->args;
    uint64_t began;
    dycl_status status = DYCL_OK;
    int variant = dycl_autotune_next(a->autotune, &began);
    if (variant == PRIMITIVE)
        status = gradient_run(step, plan);
    else if (!dycl_winograd_gradient(&a->winograd, a->kernel, dycl_at(plan, a->x), dycl_at(plan, a->gradient),
                                     dycl_at(plan, a->dst), dycl_at(plan, a->winograd_scratch), a->threads))
        plan->suspect = 1;
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

/* at: where the side that no other step sees lies. */
static dycl_status make_reordering(dycl_builder *b, const dycl_layout *from, const dycl_layout *to,
                                   const dycl_layout *at, reordering *out) {
    dycl_status status;
    if (dycl_layout_equal(from, to)) return DYCL_OK;
    DYCL_TRY(dycl_prim_reorder(from, to, &out->prim));
    DYCL_TRY(dycl_make_prim(b, out->prim));
    DYCL_TRY(dycl_make_scratch(b, dycl_layout_bytes(at), &out->dst));
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

/* As for the convolution (product.c); the squares are what is summed up. */
static int suits_winograd(const dycl_builder *b, const dycl_conv_desc *d, const dycl_gemm_kernel *kernel) {
    int64_t squares = d->n * ((d->oh + 1) / 2) * ((d->ow + 1) / 2);
    int square = d->kh == 3 && d->kw == 3 && d->stride[0] == 1 && d->stride[1] == 1 && d->dilation[0] == 1 &&
                 d->dilation[1] == 1;
    return kernel && b->plan->mode == DYCL_PLAN_TUNED && square && d->groups == 1 && squares >= 32 && d->c >= 16 &&
           d->oc >= 16 && d->c % kernel->lanes == 0 && d->oc % kernel->lanes == 0;
}

static dycl_status make_either(dycl_builder *b, gradient_args *a, const dycl_conv_desc *d, const dycl_layout *image,
                               const dycl_layout *of_result) {
    dycl_layout wanted;
    dycl_status status;
    dycl_prim_src_layout(a->prim, &wanted);
    DYCL_TRY(make_reordering(b, image, &wanted, &wanted, &a->x_as));
    dycl_prim_gradient_layout(a->prim, &wanted);
    DYCL_TRY(make_reordering(b, of_result, &wanted, &wanted, &a->gradient_as));
    a->winograd = (dycl_winograd){
        d->n, d->h, d->w, d->c, d->pad_before[0], d->pad_before[1], d->oh, d->ow, d->oc, DYCL_GUARD_ELEMENT};
    a->threads = dycl_conv_cost(d) > 10000 ? b->plan->threads : 1;
    b->plan->guarded = 1; /* transforms subtract: an infinity from itself, perhaps */
    return dycl_make_scratch(b, dycl_winograd_gradient_scratch(&a->winograd, a->kernel, a->threads),
                             &a->winograd_scratch);
fail:
    return status;
}

static dycl_status measure(dycl_builder *b, const dycl_conv_desc *d, gradient_args *a) {
    dycl_status status;
    dycl_autotune *autotune = dycl_autotune_get(
        2, variants, a->threads, "3x3 gradient n%lld c%lld %lldx%lld oc%lld pad%lld", (long long)d->n, (long long)d->c,
        (long long)d->h, (long long)d->w, (long long)d->oc, (long long)d->pad_before[0]);
    DYCL_TRY(dycl_make_autotune(b, autotune));
    a->autotune = autotune;
fail:
    return status;
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
    gradient_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    dycl_make_tensor(b, operands[0], &x);
    dycl_make_tensor(b, operands[1], &gradient);
    DYCL_TRY(dycl_make_target(b, node->out, &out));
    dycl_conv_describe(&d, &x, &out, &gradient, DYCL_OP_conv2d, dycl_node_attrs(g, node));
    DYCL_TRY(dycl_prim_conv_gradient(&d, &a->prim));
    DYCL_TRY(dycl_make_prim(b, a->prim));
    a->kernel = dycl_kern_gemm(dycl_cpu_isa());
    int squares = suits_winograd(b, &d, a->kernel);
    if (squares) {
        dycl_channels_last(&x, &image);
        dycl_channels_last(&gradient, &of_result);
        DYCL_TRY(make_either(b, a, &d, &image, &of_result));
    } else {
        dycl_prim_src_layout(a->prim, &image);
        dycl_prim_gradient_layout(a->prim, &of_result);
    }
    DYCL_TRY(dycl_make_as(b, operands[0], &image, &a->x));
    DYCL_TRY(dycl_make_as(b, operands[1], &of_result, &a->gradient));
    DYCL_TRY(reorder_back(b, a, &d));
    DYCL_TRY(dycl_make_scratch(b, dycl_prim_scratch(a->prim), &a->scratch));
    a->dst = out.ref;
    dycl_make_read_at(b, a->x, dycl_layout_bytes(&image));
    dycl_make_read_at(b, a->gradient, dycl_layout_bytes(&of_result));
    dycl_make_write(b, &out);
    DYCL_TRY(dycl_make_step(b, squares ? either_run : gradient_run, a, "weight's gradient", dycl_conv_cost(&d)));
    b->plan->infos[b->plan->step_count - 1].prim = a->prim;
    if (squares) DYCL_TRY(measure(b, &d, a));
    return dycl_make_finish(b, node->out, &out);
fail:
    return status;
}
