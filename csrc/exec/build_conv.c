#include "exec/builder.h"
#include "exec/conv.h"

#include <string.h>

/* Convolutions as oneDNN primitives. The weights are packed once when they are constant, else at each run. */

static dycl_status conv_run(const dycl_step *step, dycl_plan *plan) {
    const dycl_conv_args *a = step->args;
    dycl_prim_args x = {.src = dycl_at(plan, a->src), .weights = dycl_at(plan, a->weights), .dst = dycl_at(plan, a->dst)};
    if (a->packed != DYCL_NONE) {
        const void *packed = plan->slots[a->packed];
        if (!packed) {
            dycl_status status = dycl_prim_pack(a->prim, x.weights, dycl_at(plan, a->repacked));
            if (status != DYCL_OK) return status;
            packed = dycl_at(plan, a->repacked);
        }
        x.weights = packed;
    }
    if (a->has_bias) x.bias = dycl_at(plan, a->bias);
    x.scratch = dycl_at(plan, a->scratch);
    for (int i = 0; i < a->post_count; i++)
        if (a->has_post[i]) x.post[i] = dycl_at(plan, a->post[i]);
    return dycl_prim_execute(a->prim, &x);
}

/* Where a constant's packed form appears at run time; DYCL_NONE when the value cannot be a constant. */
dycl_status dycl_make_binding(dycl_maker *b, const dycl_tensor *weights, dycl_prim *prim, uint32_t *out_slot) {
    const dycl_graph *g = &b->program->graph;
    *out_slot = DYCL_NONE;
    dycl_status status = dycl_make_slot(b, 0, out_slot);
    if (status != DYCL_OK) return status;
    b->slots[*out_slot].fixed = 1;
    if (weights->ref.slot >= g->value_count || g->values[weights->ref.slot].kind != DYCL_VALUE_FEED) return DYCL_OK;
    dycl_plan *plan = b->plan;
    if (plan->binding_count == plan->binding_room) {
        uint32_t room = plan->binding_room ? 2 * plan->binding_room : 16;
        dycl_binding *bigger = dycl_plan_grow(plan->bindings, room * sizeof *bigger);
        if (!bigger) return DYCL_ERROR;
        plan->bindings = bigger;
        plan->binding_room = room;
    }
    plan->bindings[plan->binding_count++] = (dycl_binding){.feed = g->values[weights->ref.slot].source,
                                                           .slot = *out_slot,
                                                           .prim = prim,
                                                           .offset = weights->ref.offset};
    return DYCL_OK;
}

dycl_status dycl_make_conv(dycl_maker *b, const dycl_node *node) {
    const dycl_graph *g = &b->program->graph;
    const uint32_t *operands = dycl_node_operands(g, node);
    const int64_t *attrs = dycl_node_attrs(g, node);
    dycl_tensor x, w, bias, out;
    dycl_status status;
    dycl_conv_desc d;
    memset(&d, 0, sizeof d);
    dycl_conv_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    if (dycl_value_numel(dycl_make_value(b, node->out)) == 0) return DYCL_OK;
    dycl_make_tensor(b, operands[0], &x);
    dycl_make_tensor(b, node->out, &out);
    /* channels-last or contiguous goes in as it is */
    if (!dycl_tensor_contiguous(&x) && !dycl_tensor_channels_last(&x)) DYCL_TRY(dycl_make_contiguous(b, operands[0], &x));
    DYCL_TRY(dycl_make_contiguous(b, operands[1], &w));
    dycl_conv_describe(&d, &x, &w, &out, attrs);
    dycl_layout_plain(&d.src, 4, x.sizes, x.strides);
    dycl_layout_plain(&d.dst, 4, out.sizes, out.strides);
    a->src = x.ref;
    a->weights = w.ref;
    a->dst = out.ref;
    if (operands[2] != DYCL_NONE) {
        DYCL_TRY(dycl_make_contiguous(b, operands[2], &bias));
        d.bias = a->has_bias = 1;
        a->bias = bias.ref;
        dycl_make_read(b, bias.ref.slot);
    }
    DYCL_TRY(dycl_prim_conv(&d, &a->prim));
    DYCL_TRY(dycl_make_prim(b, a->prim));
    a->packed = DYCL_NONE;
    dycl_make_read(b, x.ref.slot);
    dycl_make_read(b, w.ref.slot);
    dycl_make_write(b, out.ref.slot);
    size_t packed = dycl_prim_weights_bytes(a->prim);
    if (packed) {
        DYCL_TRY(dycl_make_binding(b, &w, a->prim, &a->packed));
        DYCL_TRY(dycl_make_scratch(b, packed, &a->repacked));
    }
    DYCL_TRY(dycl_make_scratch(b, dycl_prim_scratch(a->prim), &a->scratch));
    DYCL_TRY(dycl_make_step(b, conv_run, a, "convolution", dycl_conv_cost(&d)));
    b->plan->infos[b->plan->step_count - 1].prim = a->prim;
    return DYCL_OK;
fail:
    return status;
}

void dycl_conv_describe(dycl_conv_desc *d, const dycl_tensor *x, const dycl_tensor *w, const dycl_tensor *out, const int64_t *attrs) {
    d->n = x->sizes[0];
    d->c = x->sizes[1];
    d->h = x->sizes[2];
    d->w = x->sizes[3];
    d->oc = w->sizes[0];
    d->kh = w->sizes[2];
    d->kw = w->sizes[3];
    d->oh = out->sizes[2];
    d->ow = out->sizes[3];
    for (int i = 0; i < 2; i++) {
        d->stride[i] = attrs[i];
        d->pad_before[i] = d->pad_after[i] = attrs[2 + i];
        d->dilation[i] = attrs[4 + i];
    }
    d->groups = attrs[6];
}

double dycl_conv_cost(const dycl_conv_desc *d) {
    return 1000 + (double)d->n * (double)d->oc * (double)d->oh * (double)d->ow * (double)(d->c / d->groups) * (double)(d->kh * d->kw) / 40;
}
