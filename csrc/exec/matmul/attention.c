#include "exec/builder/builder.h"

#include <string.h>

typedef struct {
    dycl_attention_desc desc;
    dycl_ref q, k, v, mask, out, scratch;
} attention_args;

static dycl_status attention_run(const dycl_step *step, dycl_plan *plan) {
    const attention_args *a = step->args;
    return dycl_attention(&a->desc, dycl_at(plan, a->q), dycl_at(plan, a->k), dycl_at(plan, a->v),
                          a->desc.mask ? dycl_at(plan, a->mask) : NULL, dycl_at(plan, a->out),
                          dycl_at(plan, a->scratch));
}

/* Strides as the products want them: those of a dimension of size 1 may be anything. */
static void head_strides(const dycl_tensor *t, int64_t *strides) {
    memcpy(strides, t->strides, 4 * sizeof(int64_t));
    strides[3] = 1;
    if (t->sizes[2] == 1) strides[2] = t->sizes[3];
}

/* As it lies, when the last dimension is a run and rows do not overlap (expanded ones, windows of unfold). */
static dycl_status head_operand(dycl_builder *b, uint32_t v, dycl_tensor *out, int64_t *strides) {
    dycl_make_tensor(b, v, out);
    dycl_status status = DYCL_OK;
    int runs = out->strides[3] == 1 || out->sizes[3] == 1,
        apart = out->strides[2] >= out->sizes[3] || out->sizes[2] == 1;
    if (!runs || !apart) status = dycl_make_contiguous(b, v, out);
    if (status == DYCL_OK && dycl_dtype_is_half(out->dtype)) status = dycl_make_widened(b, v, out);
    head_strides(out, strides);
    return status;
}

dycl_status dycl_steps_attention(dycl_builder *b, const dycl_block *block) {
    const dycl_node *node = &b->program->graph.nodes[block->first];
    const dycl_graph *g = &b->program->graph;
    const uint32_t *operands = dycl_node_operands(g, node);
    const int64_t *attrs = dycl_node_attrs(g, node);
    dycl_tensor q, k, v, mask, out;
    dycl_status status;
    attention_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    dycl_attention_desc *d = &a->desc;
    DYCL_TRY(head_operand(b, operands[0], &q, d->q_strides));
    DYCL_TRY(head_operand(b, operands[1], &k, d->k_strides));
    DYCL_TRY(head_operand(b, operands[2], &v, d->v_strides));
    DYCL_TRY(dycl_make_computed_alike(b, node->out, &out));
    head_strides(&out, d->o_strides);
    d->batch = q.sizes[0];
    d->heads = q.sizes[1];
    d->q_len = q.sizes[2];
    d->width = q.sizes[3];
    d->kv_heads = k.sizes[1];
    d->k_len = k.sizes[2];
    d->v_width = v.sizes[3];
    d->causal = attrs[0] != 0;
    d->scale = (float)dycl_attr_f64(attrs[1]);
    a->q = q.ref;
    a->k = k.ref;
    a->v = v.ref;
    a->out = out.ref;
    if (operands[3] != DYCL_NONE) {
        DYCL_TRY(dycl_make_computed(b, operands[3], &mask));
        d->mask = mask.dtype == DYCL_BOOL ? 2 : 1;
        for (int i = 0; i < mask.rank; i++)
            d->mask_strides[4 - mask.rank + i] = mask.sizes[i] == 1 ? 0 : mask.strides[i];
        a->mask = mask.ref;
        dycl_make_read(b, &mask);
    }
    dycl_make_read(b, &q);
    dycl_make_read(b, &k);
    dycl_make_read(b, &v);
    dycl_make_write(b, &out);
    DYCL_TRY(dycl_make_scratch(b, dycl_attention_scratch(d), &a->scratch));
    double work = (double)(d->batch * d->heads * d->q_len) * (double)d->k_len;
    DYCL_TRY(
        dycl_make_step(b, attention_run, a, "attention", 500 + work * (double)(d->width + d->v_width) / 40 + work));
    return dycl_make_finish(b, node->out, &out);
fail:
    return status;
}
