#include <string.h>

#include "exec/builder.h"

/* Products of groups of rows, each with weights of its own: the experts of a mixture. */

typedef struct {
    dycl_ref x, weights, ends, to;
    int64_t rows, k, n, groups, x_row, group_stride, w_row, w_column;
} grouped_args;

/* A bound as torch.Tensor.slice takes it: from the end when negative, and never out of the tensor. */
static int64_t bound(int64_t at, int64_t rows) {
    if (at < 0) at += rows;
    return at < 0 ? 0 : at > rows ? rows : at;
}

static dycl_status grouped_run(const dycl_step *step, dycl_plan *plan) {
    const grouped_args *a = step->args;
    const float *x = dycl_at(plan, a->x), *weights = dycl_at(plan, a->weights);
    const int32_t *ends = dycl_at(plan, a->ends);
    float *to = dycl_at(plan, a->to);
    int64_t start = 0, written = 0;
    int trans = a->w_column != 1;
    for (int64_t g = 0; g < a->groups; start = ends[g++]) {
        int64_t first = bound(start, a->rows), end = bound(ends[g], a->rows);
        if (end <= first) continue;
        if (first > written) memset(to + written * a->n, 0, (size_t)((first - written) * a->n) * sizeof *to);
        dycl_status status = dycl_sgemm(0, trans, end - first, a->n, a->k, 1, x + first * a->x_row, a->x_row,
                                        weights + g * a->group_stride, trans ? a->w_column : a->w_row, 0,
                                        to + first * a->n, a->n);
        if (status != DYCL_OK) return status;
        if (end > written) written = end;
    }
    if (written < a->rows) memset(to + written * a->n, 0, (size_t)((a->rows - written) * a->n) * sizeof *to);
    return DYCL_OK;
}

dycl_status dycl_make_grouped(dycl_maker *b, const dycl_node *node) {
    const uint32_t *operands = dycl_node_operands(&b->program->graph, node);
    dycl_tensor x, w, ends, to;
    dycl_status status;
    grouped_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    dycl_make_tensor(b, operands[0], &x);
    if (x.strides[1] != 1 || x.strides[0] < x.sizes[1]) DYCL_TRY(dycl_make_contiguous(b, operands[0], &x));
    dycl_make_tensor(b, operands[1], &w);
    int rows = w.strides[2] == 1 && w.strides[1] >= w.sizes[2], columns = w.strides[1] == 1 && w.strides[2] >= w.sizes[1];
    if (!rows && !columns) DYCL_TRY(dycl_make_contiguous(b, operands[1], &w));
    DYCL_TRY(dycl_make_contiguous(b, operands[2], &ends));
    DYCL_TRY(dycl_make_target(b, node->out, &to));
    a->x = x.ref;
    a->weights = w.ref;
    a->ends = ends.ref;
    a->to = to.ref;
    a->rows = x.sizes[0];
    a->k = x.sizes[1];
    a->n = w.sizes[2];
    a->groups = w.sizes[0];
    a->x_row = x.strides[0];
    a->group_stride = w.strides[0];
    a->w_row = w.strides[1];
    a->w_column = w.strides[2];
    dycl_make_read(b, x.ref.slot);
    dycl_make_read(b, w.ref.slot);
    dycl_make_read(b, ends.ref.slot);
    dycl_make_write(b, to.ref.slot);
    double flops = 2.0 * (double)a->rows * (double)a->k * (double)a->n;
    DYCL_TRY(dycl_make_step(b, grouped_run, a, "grouped product", 300.0 * (double)a->groups + flops / 80));
    return dycl_make_finish(b, node->out, &to);
fail:
    return status;
}
