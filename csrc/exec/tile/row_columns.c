#include "exec/builder/blocked.h"

/* Softmax, log softmax and running sums along another dimension than the last. Neighbours in memory belong to
 * different rows: vectors go across the rows, where a tile program would gather each of them. */

#define LEAST_WIDTH 8    /* rows side by side; of fewer, a tile program gathers */
#define MOST_HALVES 4096 /* of 16 bits in a row: each thread has a strip of them in f32 */

typedef struct {
    dycl_row_columns_desc desc;
    dycl_ref out, in, scratch;
} row_columns_args;

static dycl_status row_columns_run(const dycl_step *step, dycl_plan *plan) {
    const row_columns_args *a = step->args;
    dycl_kern_row_columns(&a->desc, dycl_at(plan, a->out), dycl_at(plan, a->in), dycl_at(plan, a->scratch));
    return DYCL_OK;
}

/* Takes the dimensions that follow one another from stride `width` on, in both tensors alike, into the width. */
static uint32_t widen(dycl_row_columns_desc *d, const dycl_tensor *in, const dycl_tensor *out, uint32_t taken) {
    for (int i = in->rank - 1; i >= 0; i--) {
        if (taken >> i & 1 || in->sizes[i] == 1) continue;
        if (in->strides[i] != d->width || out->strides[i] != d->width) continue;
        d->width *= in->sizes[i];
        return widen(d, in, out, taken | UINT32_C(1) << i);
    }
    return taken;
}

/* 0: the rows do not lie side by side. */
static int describe(dycl_row_columns_desc *d, int dim, const dycl_tensor *in, const dycl_tensor *out) {
    d->n = in->sizes[dim];
    d->src_step = in->strides[dim];
    d->dst_step = out->strides[dim];
    d->width = 1;
    const uint32_t taken = widen(d, in, out, UINT32_C(1) << dim);
    for (int i = 0; i < in->rank; i++) {
        if (taken >> i & 1 || in->sizes[i] == 1) continue;
        d->sizes[d->rank] = in->sizes[i];
        d->src_strides[d->rank] = in->strides[i];
        d->dst_strides[d->rank++] = out->strides[i];
    }
    return d->width >= LEAST_WIDTH;
}

static dycl_row kind_of(dycl_op op) {
    return op == DYCL_OP_softmax       ? DYCL_ROW_SOFTMAX
           : op == DYCL_OP_log_softmax ? DYCL_ROW_LOG_SOFTMAX
                                       : DYCL_ROW_CUMSUM;
}

dycl_status dycl_make_row_columns(dycl_builder *b, const dycl_block *block) {
    const dycl_graph *g = &b->program->graph;
    const dycl_node *node = &g->nodes[block->first];
    const uint32_t operand = dycl_node_operands(g, node)[0];
    const int dim = (int)dycl_node_attrs(g, node)[0];
    dycl_row_columns_desc desc = {.op = kind_of((dycl_op)node->op), .threads = b->plan->threads};
    dycl_tensor in, out;
    dycl_status status;
    dycl_make_tensor(b, operand, &in);
    dycl_make_tensor(b, node->out, &out);
    desc.dtype = out.dtype;
    if (node->operand_count > 1 || block->row < 2) return DYCL_BAIL;
    if (in.dtype != out.dtype || !dycl_kern_has_row_columns(desc.op, desc.dtype)) return DYCL_BAIL;
    if (!describe(&desc, dim, &in, &out) || (dycl_dtype_is_half(desc.dtype) && desc.n > MOST_HALVES)) return DYCL_BAIL;
    row_columns_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    DYCL_TRY(dycl_make_operands_plain(b, block));
    dycl_make_tensor(b, operand, &in);
    *a = (row_columns_args){.desc = desc, .out = out.ref, .in = in.ref};
    dycl_make_read(b, &in);
    dycl_make_write(b, &out);
    DYCL_TRY(dycl_make_scratch(b, dycl_kern_row_columns_scratch(&desc), &a->scratch));
    DYCL_TRY(dycl_make_step(b, row_columns_run, a, "row_columns", 50 + 0.4 * (double)dycl_tensor_numel(&in)));
fail:
    return status;
}
