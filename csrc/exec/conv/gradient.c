#include "exec/builder/blocked.h"
#include "exec/conv/conv.h"

#include <string.h>

/* Gradients of the weights of convolutions, by oneDNN. It chooses the layouts: what image and gradient are reordered
 * to, other steps find ready, and what it makes is reordered to the weight's. */

typedef struct {
    dycl_prim *prim, *reorder; /* the plan's; reorder NULL: it makes the weight as it lies */
    dycl_ref x, gradient, made, dst, scratch, reorder_scratch;
} gradient_args;

static dycl_status gradient_run(const dycl_step *step, dycl_plan *plan) {
    const gradient_args *a = step->args;
    void *made = dycl_at(plan, a->reorder ? a->made : a->dst);
    dycl_prim_args x = {.src = dycl_at(plan, a->x),
                        .weights = dycl_at(plan, a->gradient),
                        .dst = made,
                        .scratch = dycl_at(plan, a->scratch)};
    dycl_status status = dycl_prim_execute(a->prim, &x);
    if (status != DYCL_OK || !a->reorder) return status;
    return dycl_prim_execute(
        a->reorder,
        &(dycl_prim_args){.src = made, .dst = dycl_at(plan, a->dst), .scratch = dycl_at(plan, a->reorder_scratch)});
}

/* The weight with a dimension of its own for groups, as oneDNN has it. */
static void weight_layout(const dycl_conv_desc *d, dycl_layout *out) {
    int64_t dense[4] = {d->oc, d->c, d->kh, d->kw}, strides[5],
            grouped[5] = {d->groups, d->oc / d->groups, d->c / d->groups, d->kh, d->kw};
    int rank = d->groups == 1 ? 4 : 5;
    dycl_strides_contiguous(rank, rank == 4 ? dense : grouped, strides);
    dycl_layout_plain(out, rank, rank == 4 ? dense : grouped, strides);
}

static dycl_status make_reorder(dycl_builder *b, gradient_args *a, const dycl_conv_desc *d) {
    dycl_layout made, wanted;
    dycl_status status;
    dycl_prim_dst_layout(a->prim, &made);
    weight_layout(d, &wanted);
    if (dycl_layout_equal(&made, &wanted)) return DYCL_OK;
    DYCL_TRY(dycl_prim_reorder(&made, &wanted, &a->reorder));
    DYCL_TRY(dycl_make_prim(b, a->reorder));
    DYCL_TRY(dycl_make_scratch(b, dycl_layout_bytes(&made), &a->made));
    DYCL_TRY(dycl_make_scratch(b, dycl_prim_scratch(a->reorder), &a->reorder_scratch));
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
    dycl_prim_src_layout(a->prim, &image);
    dycl_prim_gradient_layout(a->prim, &of_result);
    DYCL_TRY(dycl_make_as(b, operands[0], &image, &a->x));
    DYCL_TRY(dycl_make_as(b, operands[1], &of_result, &a->gradient));
    DYCL_TRY(make_reorder(b, a, &d));
    DYCL_TRY(dycl_make_scratch(b, dycl_prim_scratch(a->prim), &a->scratch));
    a->dst = out.ref;
    dycl_make_read_at(b, a->x, dycl_layout_bytes(&image));
    dycl_make_read_at(b, a->gradient, dycl_layout_bytes(&of_result));
    dycl_make_write(b, &out);
    DYCL_TRY(dycl_make_step(b, gradient_run, a, "weight's gradient", dycl_conv_cost(&d)));
    b->plan->infos[b->plan->step_count - 1].prim = a->prim;
    return dycl_make_finish(b, node->out, &out);
fail:
    return status;
}
