#include "exec/builder/builder.h"
#include "kern/group_norm_back.h"

/* Gradients of a group norm, or of a layer norm: nodes of one call are one step. */

typedef struct {
    dycl_groups groups;
    dycl_ref gradient, x, weight, out[3], scratch;
    int has_weight, outs[3];
} group_args;

static dycl_status back_run(const dycl_step *step, dycl_plan *plan) {
    const group_args *a = step->args;
    void *out[3];
    for (int i = 0; i < 3; i++) out[i] = a->outs[i] ? dycl_at(plan, a->out[i]) : NULL;
    dycl_kern_group_norm_back(&a->groups, dycl_at(plan, a->gradient), dycl_at(plan, a->x),
                              a->has_weight ? dycl_at(plan, a->weight) : NULL, out, dycl_at(plan, a->scratch));
    return DYCL_OK;
}

static dycl_status read_operand(dycl_builder *b, uint32_t v, dycl_ref *out, dycl_tensor *t) {
    dycl_status status = dycl_make_contiguous(b, v, t);
    if (status != DYCL_OK) return status;
    *out = t->ref;
    dycl_make_read(b, t);
    return DYCL_OK;
}

dycl_status dycl_steps_group_back(dycl_builder *b, const dycl_block *block) {
    const dycl_graph *g = &b->program->graph;
    const dycl_node *node = &g->nodes[block->first];
    const uint32_t *operands = dycl_node_operands(g, node);
    const int64_t *attrs = dycl_node_attrs(g, node);
    dycl_tensor x, other, out;
    dycl_status status;
    if (b->slots[node->out].first != DYCL_NONE) return DYCL_OK; /* with its sibling */
    group_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    DYCL_TRY(read_operand(b, operands[1], &a->x, &x));
    DYCL_TRY(read_operand(b, operands[0], &a->gradient, &other));
    a->has_weight = operands[2] != DYCL_NONE;
    if (a->has_weight) DYCL_TRY(read_operand(b, operands[2], &a->weight, &other));
    a->groups = (dycl_groups){.n = x.sizes[0],
                              .c = x.sizes[1],
                              .inner = x.sizes[2],
                              .groups = attrs[1] ? attrs[1] : 1,
                              .layer = attrs[1] == 0,
                              .dtype = x.dtype,
                              .eps = dycl_attr_f64(attrs[2])};
    for (uint32_t n = 0; n < g->node_count; n++) {
        const dycl_node *sibling = &g->nodes[n]; /* a call with the same operands may have been made twice */
        if (b->program->dead[n] || !dycl_make_is_sibling(g, node, sibling)) continue;
        int64_t which = dycl_node_attrs(g, sibling)[0];
        if (a->outs[which] || b->slots[sibling->out].first != DYCL_NONE) continue;
        dycl_make_tensor(b, sibling->out, &out);
        a->out[which] = out.ref;
        a->outs[which] = 1;
        dycl_make_write(b, &out);
    }
    DYCL_TRY(dycl_make_scratch(b, dycl_kern_group_norm_back_scratch(&a->groups), &a->scratch));
    return dycl_make_step(b, back_run, a, "group norm back", 50 + 0.3 * (double)dycl_tensor_numel(&x));
fail:
    return status;
}
