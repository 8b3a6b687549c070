#include "exec/builder/blocked.h"

#include "base/alloc.h"

#include <string.h>

/* Reductions that are not along the last dimensions, and group norm: one parallel driver each. */

typedef struct {
    dycl_reduce_desc desc;
    dycl_ref out, in, scratch;
} reduce_args;

static dycl_status reduce_run(const dycl_step *step, dycl_plan *plan) {
    const reduce_args *a = step->args;
    return dycl_kern_reduce(&a->desc, dycl_at(plan, a->out), dycl_at(plan, a->in), dycl_at(plan, a->scratch));
}

/* As it lies: the sum over the pixels of a gradient in channels last is one of columns. */
static dycl_status make_operand(dycl_builder *b, uint32_t v, dycl_tensor *in) {
    const struct dycl_blocked *blocked = dycl_blocked_of(b, v);
    int widened = dycl_dtype_is_half((dycl_dtype)dycl_make_value(b, v)->dtype);
    if (!blocked || blocked->plain_ready || blocked->layout.opaque || widened) {
        dycl_status status = dycl_make_operand_plain(b, v);
        return status == DYCL_OK ? dycl_make_computed(b, v, in) : status;
    }
    dycl_make_tensor(b, v, in);
    in->ref = (dycl_ref){blocked->slot, 0, 0};
    memcpy(in->strides, blocked->layout.strides, (size_t)in->rank * sizeof *in->strides);
    return DYCL_OK;
}

dycl_status dycl_steps_reduce(dycl_builder *b, const dycl_block *block) {
    const dycl_node *node = &b->program->graph.nodes[block->first];
    const dycl_graph *g = &b->program->graph;
    const int64_t *attrs = dycl_node_attrs(g, node);
    if (dycl_value_numel(dycl_make_value(b, node->out)) == 0) return DYCL_OK;
    dycl_tensor in, out;
    dycl_status status;
    reduce_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    DYCL_TRY(make_operand(b, dycl_node_operands(g, node)[0], &in));
    DYCL_TRY(dycl_make_computed_target(b, node->out, &out));
    a->desc.op = dycl_red_of((dycl_op)node->op);
    a->desc.mean = node->op == DYCL_OP_mean;
    if (node->op == DYCL_OP_var || node->op == DYCL_OP_std) a->desc.correction = dycl_attr_f64(attrs[2]);
    a->desc.dtype = in.dtype;
    a->desc.rank = in.rank;
    memcpy(a->desc.sizes, in.sizes, sizeof in.sizes);
    memcpy(a->desc.strides, in.strides, sizeof in.strides);
    a->desc.reduce = (uint32_t)attrs[0];
    a->in = in.ref;
    a->out = out.ref;
    dycl_make_read(b, &in);
    dycl_make_write(b, &out);
    DYCL_TRY(dycl_make_scratch(b, dycl_kern_reduce_scratch(&a->desc), &a->scratch));
    DYCL_TRY(dycl_make_step(b, reduce_run, a, "reduce", 50 + 0.2 * (double)dycl_tensor_numel(&in)));
    return dycl_make_finish(b, node->out, &out);
fail:
    return status;
}

typedef struct {
    dycl_ref out, in, weight, bias;
    int has_weight, has_bias;
    int64_t n, c, inner, groups;
    double eps;
} group_norm_args;

static dycl_status group_norm_run(const dycl_step *step, dycl_plan *plan) {
    const group_norm_args *a = step->args;
    dycl_kern_group_norm(dycl_at(plan, a->out), dycl_at(plan, a->in), a->has_weight ? dycl_at(plan, a->weight) : NULL,
                         a->has_bias ? dycl_at(plan, a->bias) : NULL, a->n, a->c, a->inner, a->groups, a->eps);
    return DYCL_OK;
}

dycl_status dycl_steps_norm(dycl_builder *b, const dycl_block *block) {
    const dycl_node *node = &b->program->graph.nodes[block->first];
    if (node->op != DYCL_OP_group_norm) return DYCL_OK; /* empty, or else in a tile */
    const dycl_graph *g = &b->program->graph;
    const uint32_t *operands = dycl_node_operands(g, node);
    const int64_t *attrs = dycl_node_attrs(g, node);
    if (dycl_value_numel(dycl_make_value(b, node->out)) == 0) return DYCL_OK;
    dycl_tensor in, out, weight, bias;
    dycl_status status;
    group_norm_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    DYCL_TRY(dycl_make_contiguous(b, operands[0], &in));
    if (operands[1] != DYCL_NONE) {
        DYCL_TRY(dycl_make_contiguous(b, operands[1], &weight));
        a->weight = weight.ref;
        a->has_weight = 1;
    }
    if (operands[2] != DYCL_NONE) {
        DYCL_TRY(dycl_make_contiguous(b, operands[2], &bias));
        a->bias = bias.ref;
        a->has_bias = 1;
    }
    DYCL_TRY(dycl_make_target(b, node->out, &out));
    a->in = in.ref;
    a->out = out.ref;
    a->n = in.sizes[0];
    a->c = in.sizes[1];
    a->inner = dycl_tensor_numel(&in) / (a->n * a->c);
    a->groups = attrs[0];
    a->eps = dycl_attr_f64(attrs[1]);
    dycl_make_read(b, &in);
    if (a->has_weight) dycl_make_read(b, &weight);
    if (a->has_bias) dycl_make_read(b, &bias);
    dycl_make_write(b, &out);
    DYCL_TRY(dycl_make_step(b, group_norm_run, a, "group_norm", 50 + 0.3 * (double)dycl_tensor_numel(&in)));
    return dycl_make_finish(b, node->out, &out);
fail:
    return status;
}
