#include "exec/builder/blocked.h"

#include <string.h>

#include "kern/batch_norm.h"

/* Statistics of a batch, and the gradients of a batch norm: nodes of one call are one step. What lies in channels last,
 * by its strides or as a convolution left it, is read so. */

#define RESULTS DYCL_BATCH_RESULTS

typedef struct {
    dycl_batch batch;
    dycl_ref gradient, x, vector[3], out[RESULTS], scratch;
    int vectors[3], outs[RESULTS]; /* whether they are there */
    uint32_t values[RESULTS];      /* of what is there */
} batch_args;

static void *at(dycl_plan *plan, int given, dycl_ref ref) { return given ? dycl_at(plan, ref) : NULL; }

static dycl_status stats_run(const dycl_step *step, dycl_plan *plan) {
    const batch_args *a = step->args;
    const void *running[2];
    void *out[RESULTS];
    for (int i = 0; i < 2; i++) running[i] = at(plan, a->vectors[i], a->vector[i]);
    for (int i = 0; i < RESULTS; i++) out[i] = at(plan, a->outs[i], a->out[i]);
    if (!dycl_kern_batch_stats(&a->batch, dycl_at(plan, a->x), running, out, dycl_at(plan, a->scratch)))
        return dycl_error_bail("elements are so large that torch's sums may be infinite"); /* torch knows */
    return DYCL_OK;
}

static dycl_status back_run(const dycl_step *step, dycl_plan *plan) {
    const batch_args *a = step->args;
    const void *vector[3];
    void *out[3];
    for (int i = 0; i < 3; i++) vector[i] = at(plan, a->vectors[i], a->vector[i]);
    for (int i = 0; i < 3; i++) out[i] = at(plan, a->outs[i], a->out[i]);
    dycl_kern_batch_norm_back(&a->batch, dycl_at(plan, a->gradient), dycl_at(plan, a->x), vector[0], vector[1],
                              vector[2], out, dycl_at(plan, a->scratch));
    return DYCL_OK;
}

static int is_made(const dycl_builder *b, const dycl_node *node) {
    return b->slots[node->out].first != DYCL_NONE || dycl_blocked_of(b, node->out) != NULL;
}

/* x contiguous or in channels last, whichever needs no copy. */
static dycl_status read_x(dycl_builder *b, uint32_t v, batch_args *a, dycl_tensor *x) {
    const struct dycl_blocked *blocked = dycl_blocked_of(b, v);
    dycl_status status;
    dycl_make_tensor(b, v, x);
    if (blocked && !blocked->layout.opaque) {
        x->ref = (dycl_ref){blocked->slot, 0, 0};
        memcpy(x->strides, blocked->layout.strides, (size_t)x->rank * sizeof(int64_t));
    }
    int contiguous = dycl_tensor_contiguous(x), last = !contiguous && x->rank == 4 && dycl_tensor_channels_last(x);
    if (!blocked || blocked->layout.opaque || !(contiguous || last)) DYCL_TRY(dycl_make_operand_plain(b, v));
    if (!contiguous && !last) DYCL_TRY(dycl_make_contiguous(b, v, x));
    if (contiguous) dycl_strides_contiguous(x->rank, x->sizes, x->strides);
    a->x = x->ref;
    a->batch.n = x->sizes[0];
    a->batch.c = x->sizes[1];
    a->batch.inner = dycl_tensor_numel(x) / (x->sizes[0] * x->sizes[1]);
    a->batch.channels_last = last;
    a->batch.dtype = x->dtype;
    a->batch.float_sums =
        x->dtype == DYCL_F32 && (a->batch.inner == 1 || !dycl_value_contiguous(dycl_make_value(b, v)));
    dycl_make_read(b, x);
fail:
    return status;
}

/* The gradient as x lies. */
static dycl_status read_gradient(dycl_builder *b, uint32_t v, const dycl_tensor *x, batch_args *a) {
    dycl_tensor t;
    dycl_layout layout;
    dycl_status status;
    if (x->rank == 4) {
        dycl_layout_plain(&layout, 4, x->sizes, x->strides);
        DYCL_TRY(dycl_make_as(b, v, &layout, &a->gradient));
    } else {
        DYCL_TRY(dycl_make_operand_plain(b, v));
        DYCL_TRY(dycl_make_contiguous(b, v, &t));
        a->gradient = t.ref;
    }
    dycl_make_read_at(b, a->gradient, (size_t)dycl_tensor_numel(x) * dycl_dtype_size(x->dtype));
fail:
    return status;
}

static dycl_status read_vectors(dycl_builder *b, const uint32_t *operands, int count, batch_args *a) {
    dycl_status status;
    for (int i = 0; i < count; i++) {
        dycl_tensor t;
        if (operands[i] == DYCL_NONE) continue;
        DYCL_TRY(dycl_make_operand_plain(b, operands[i]));
        DYCL_TRY(dycl_make_contiguous(b, operands[i], &t));
        a->vector[i] = t.ref;
        a->vectors[i] = 1;
        dycl_make_read(b, &t);
    }
    return DYCL_OK;
fail:
    return status;
}

/* Where a result goes: a gradient of x lies as x does. */
static dycl_status write_result(dycl_builder *b, const dycl_node *node, const dycl_tensor *x, batch_args *a) {
    int which = (int)dycl_node_attrs(&b->program->graph, node)[0];
    dycl_tensor t;
    dycl_layout layout;
    dycl_status status;
    dycl_make_tensor(b, node->out, &t);
    a->out[which] = t.ref;
    a->outs[which] = 1;
    a->values[which] = node->out;
    if (t.rank == 4) {
        dycl_layout_plain(&layout, 4, x->sizes, x->strides);
        DYCL_TRY(dycl_make_result(b, node->out, &layout, &a->out[which].slot));
    }
    dycl_make_write_at(b, a->out[which], (size_t)dycl_tensor_numel(&t) * dycl_dtype_size(t.dtype));
    return DYCL_OK;
fail:
    return status;
}

dycl_status dycl_steps_batch(dycl_builder *b, const dycl_block *block) {
    const dycl_graph *g = &b->program->graph;
    const dycl_node *node = &g->nodes[block->first];
    const uint32_t *operands = dycl_node_operands(g, node);
    const int64_t *attrs = dycl_node_attrs(g, node);
    int back = node->op == DYCL_OP_batch_norm_back;
    dycl_tensor x;
    dycl_status status;
    if (is_made(b, node)) return DYCL_OK; /* with its sibling */
    batch_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    a->batch.eps = dycl_attr_f64(attrs[node->attr_count - 1]);
    if (!back) a->batch.momentum = dycl_attr_f64(attrs[1]);
    DYCL_TRY(read_x(b, operands[back], a, &x));
    if (back) DYCL_TRY(read_gradient(b, operands[0], &x, a));
    DYCL_TRY(read_vectors(b, operands + 1 + back, back ? 3 : 2, a));
    DYCL_TRY(write_result(b, node, &x, a));
    for (uint32_t n = 0; n < g->node_count; n++) {
        const dycl_node *other = &g->nodes[n]; /* a call with the same operands may have been made twice */
        if (b->program->dead[n] || !dycl_make_is_sibling(g, node, other) || is_made(b, other)) continue;
        if (!a->outs[dycl_node_attrs(g, other)[0]]) DYCL_TRY(write_result(b, other, &x, a));
    }
    DYCL_TRY(dycl_make_scratch(b, dycl_kern_batch_scratch(&a->batch), &a->scratch));
    DYCL_TRY(dycl_make_step(b, back ? back_run : stats_run, a, back ? "batch norm back" : "statistics",
                            50 + (back ? 0.3 : 0.1) * (double)dycl_tensor_numel(&x)));
    for (int i = 0; i < RESULTS; i++)
        if (a->outs[i]) DYCL_TRY(dycl_make_result_done(b, a->values[i]));
    return DYCL_OK;
fail:
    return status;
}
