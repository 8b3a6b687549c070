#include "exec/builder/builder.h"
#include "exec/matmul/matmul.h"

#include "base/alloc.h"

#include <omp.h>
#include <string.h>

/* linear and matmul come down to one description: batches of C[m, n] = A[m, k] B[k, n] (+ bias[n]). */

/* Merges batch dimensions that every operand walks at one stride; drops those of size 1. */
static void collapse_batch(dycl_matmul_args *a) {
    int out = 0;
    for (int d = 0; d < a->batch_rank; d++) {
        if (a->batch[d] == 1) continue;
        if (out > 0 && a->a_batch[out - 1] == a->a_batch[d] * a->batch[d] &&
            a->b_batch[out - 1] == a->b_batch[d] * a->batch[d] && a->c_batch[out - 1] == a->c_batch[d] * a->batch[d]) {
            a->batch[out - 1] *= a->batch[d];
            a->a_batch[out - 1] = a->a_batch[d];
            a->b_batch[out - 1] = a->b_batch[d];
            a->c_batch[out - 1] = a->c_batch[d];
            continue;
        }
        a->batch[out] = a->batch[d];
        a->a_batch[out] = a->a_batch[d];
        a->b_batch[out] = a->b_batch[d];
        a->c_batch[out] = a->c_batch[d];
        out++;
    }
    a->batch_rank = out;
    a->batches = 1;
    for (int d = 0; d < out; d++) a->batches *= a->batch[d];
}

/* Can a BLAS-like kernel read a matrix with these strides? */
static int unit_stride(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
    if (column_stride == 1 || columns == 1) return rows == 1 || row_stride >= columns;
    return (row_stride == 1 || rows == 1) && column_stride >= rows;
}

static void matrix(const dycl_tensor *t, int64_t *row, int64_t *column) {
    *row = t->strides[t->rank - 2];
    *column = t->strides[t->rank - 1];
}

/* The leading dimensions of a linear's input as one, when their strides allow. */
static int flatten(const dycl_tensor *x, int64_t *out_rows, int64_t *out_stride) {
    int64_t rows = 1, stride = 0;
    for (int d = x->rank - 2; d >= 0; d--) {
        if (x->sizes[d] == 1) continue;
        if (rows == 1)
            stride = x->strides[d];
        else if (x->strides[d] != stride * rows)
            return 0;
        rows *= x->sizes[d];
    }
    *out_rows = rows;
    *out_stride = stride;
    return 1;
}

/* As it lies; in f32 where the product is computed in that. */
static dycl_status operand(dycl_builder *b, uint32_t v, const dycl_matmul_args *a, dycl_tensor *out) {
    if (a->dtype == DYCL_F32) return dycl_make_computed(b, v, out);
    dycl_make_tensor(b, v, out);
    return DYCL_OK;
}

/* Contiguous. `as`: what it is now */
static dycl_status dense_operand(dycl_builder *b, uint32_t v, dycl_tensor *as) {
    if (as->dtype == dycl_make_value(b, v)->dtype) return dycl_make_contiguous(b, v, as);
    if (dycl_tensor_contiguous(as)) {
        dycl_strides_contiguous(as->rank, as->sizes, as->strides);
        return DYCL_OK;
    }
    dycl_tensor from = *as;
    dycl_strides_contiguous(as->rank, as->sizes, as->strides);
    as->ref.offset = 0;
    dycl_status status = dycl_make_slot(b, (size_t)dycl_tensor_numel(as) * dycl_dtype_size(as->dtype), &as->ref.slot);
    return status == DYCL_OK ? dycl_make_copy(b, &from, as) : status;
}

dycl_status dycl_matmul_linear(dycl_builder *b, const dycl_node *node, dycl_matmul_args *a) {
    const uint32_t *operands = dycl_node_operands(&b->program->graph, node);
    dycl_tensor x, w;
    dycl_status status;
    DYCL_TRY(operand(b, operands[0], a, &x));
    DYCL_TRY(operand(b, operands[1], a, &w));
    a->m = 1;
    a->k = w.sizes[1];
    a->n = w.sizes[0];
    int flat = flatten(&x, &a->m, &a->a_row);
    a->a_column = x.strides[x.rank - 1];
    if (!flat || !unit_stride(a->m, a->k, a->a_row, a->a_column)) {
        DYCL_TRY(dense_operand(b, operands[0], &x));
        flatten(&x, &a->m, &a->a_row);
        a->a_column = 1;
    }
    if (!unit_stride(a->n, a->k, w.strides[0], w.strides[1])) DYCL_TRY(dense_operand(b, operands[1], &w));
    a->b_row = w.strides[1];
    a->b_column = w.strides[0];
    a->a = x.ref;
    a->b = w.ref;
    a->c_row = a->n;
    if (operands[2] != DYCL_NONE) {
        dycl_tensor bias;
        DYCL_TRY(operand(b, operands[2], a, &bias));
        DYCL_TRY(dense_operand(b, operands[2], &bias));
        a->bias = bias.ref;
        a->has_bias = 1;
    }
    return DYCL_OK;
fail:
    return status;
}

/* One B for all: rows of A that follow one another are one matrix, unless they overlap (windows). */
static void join_rows(dycl_matmul_args *a) {
    if (a->batch_rank != 1 || a->b_batch[0] != 0 || a->a_column != 1) return;
    int64_t row = a->m == 1 ? a->a_batch[0] : a->a_row; /* that of one row is anything */
    if (a->a_batch[0] != row * a->m || row < a->k) return;
    a->a_row = row;
    a->m *= a->batch[0];
    a->batch_rank = 0;
}

static dycl_status matmul(dycl_builder *b, const dycl_node *node, dycl_matmul_args *a) {
    const uint32_t *operands = dycl_node_operands(&b->program->graph, node);
    const dycl_value *out = dycl_make_value(b, node->out);
    dycl_tensor x[2];
    dycl_status status;
    for (int i = 0; i < 2; i++) {
        int64_t row, column;
        DYCL_TRY(operand(b, operands[i], a, &x[i]));
        matrix(&x[i], &row, &column);
        if (!unit_stride(x[i].sizes[x[i].rank - 2], x[i].sizes[x[i].rank - 1], row, column))
            DYCL_TRY(dense_operand(b, operands[i], &x[i]));
    }
    a->m = x[0].sizes[x[0].rank - 2];
    a->k = x[0].sizes[x[0].rank - 1];
    a->n = x[1].sizes[x[1].rank - 1];
    matrix(&x[0], &a->a_row, &a->a_column);
    matrix(&x[1], &a->b_row, &a->b_column);
    a->a = x[0].ref;
    a->b = x[1].ref;
    a->c_row = a->n;
    a->batch_rank = out->rank - 2;
    for (int d = 0; d < a->batch_rank; d++) {
        int i = d - (out->rank - x[0].rank), j = d - (out->rank - x[1].rank);
        a->batch[d] = out->sizes[d];
        a->a_batch[d] = i >= 0 && x[0].sizes[i] != 1 ? x[0].strides[i] : 0;
        a->b_batch[d] = j >= 0 && x[1].sizes[j] != 1 ? x[1].strides[j] : 0;
        a->c_batch[d] = out->strides[d];
    }
    collapse_batch(a);
    join_rows(a);
    return DYCL_OK;
fail:
    return status;
}

/* BAIL: no kernel reads these operands as they are. */
static dycl_status half_product(dycl_builder *b, const dycl_node *node, dycl_matmul_args *a) {
    dycl_status status;
    dycl_tensor target;
    DYCL_TRY(node->op == DYCL_OP_linear ? dycl_matmul_linear(b, node, a) : matmul(b, node, a));
    collapse_batch(a);
    DYCL_TRY(dycl_make_target(b, node->out, &target));
    a->c = target.ref;
    DYCL_TRY(dycl_half_suits(a) ? dycl_make_half(b, a) : dycl_make_half_many(b, a));
    return dycl_make_finish(b, node->out, &target);
fail:
    return status;
}

/* The bias of one column, once for each row. */
static dycl_status spread_bias(dycl_builder *b, dycl_matmul_args *a) {
    dycl_tensor from = {.ref = a->bias, .dtype = a->dtype, .rank = 1, .sizes = {a->m}}, to = from;
    to.strides[0] = 1;
    to.ref = (dycl_ref){0, 0, 0};
    dycl_status status = dycl_make_slot(b, (size_t)a->m * dycl_dtype_size(a->dtype), &to.ref.slot);
    a->bias = to.ref;
    return status == DYCL_OK ? dycl_make_copy(b, &from, &to) : status;
}

dycl_status dycl_matmul_turn_column(dycl_builder *b, dycl_matmul_args *a) {
    dycl_matmul_args turned = *a;
    if (a->n != 1 || a->m == 1 || a->c_row != 1) return DYCL_OK;
    if (b->program->graph.options & DYCL_OPTION_BF16) return DYCL_OK; /* which rounds B, the weights */
    turned.m = 1;
    turned.n = a->m;
    turned.a = a->b;
    turned.b = a->a;
    turned.a_row = a->b_column;
    turned.a_column = a->b_row;
    turned.b_row = a->a_column;
    turned.b_column = a->a_row;
    turned.c_row = a->m;
    memcpy(turned.a_batch, a->b_batch, sizeof turned.a_batch);
    memcpy(turned.b_batch, a->a_batch, sizeof turned.b_batch);
    if (!dycl_gemv_reads(&turned)) return DYCL_OK;
    dycl_status status = a->has_bias ? spread_bias(b, a) : DYCL_OK;
    turned.bias = a->bias;
    *a = turned;
    return status;
}

dycl_status dycl_steps_matmul(dycl_builder *b, const dycl_block *block) {
    const dycl_node *node = &b->program->graph.nodes[block->first];
    if (block->count > 1) return dycl_make_prefilter(b, block);
    const dycl_value *out = dycl_make_value(b, node->out);
    if (dycl_value_numel(out) == 0) return DYCL_OK;
    dycl_matmul_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    dycl_status status;
    dycl_tensor target;
    a->dtype = (dycl_dtype)out->dtype;
    if (dycl_dtype_is_half(a->dtype)) {
        status = half_product(b, node, a);
        if (status != DYCL_BAIL) return status;
        memset(a, 0, sizeof *a); /* else in f32 */
        a->dtype = DYCL_F32;
    }
    if (node->op == DYCL_OP_linear)
        DYCL_TRY(dycl_matmul_linear(b, node, a));
    else
        DYCL_TRY(matmul(b, node, a));
    DYCL_TRY(dycl_make_computed_target(b, node->out, &target));
    a->c = target.ref;
    collapse_batch(a);
    DYCL_TRY(dycl_matmul_turn_column(b, a));
    DYCL_TRY(dycl_matmul_choose(b, a));
    return dycl_make_finish(b, node->out, &target);
fail:
    return status;
}
