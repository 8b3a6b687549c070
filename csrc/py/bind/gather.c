/* Gathering by one tensor of integers. */
#include <string.h>

#include "ir/infer.h"
#include "py/bind/bind.h"
#include "py/bind/index.h"
#include "py/bind/view.h"

static dycl_status index_of(dycl_call *call, PyObject *o, uint32_t *out_value, int64_t out_bounds[2]) {
    if (!o || !dycl_is_tensor(o)) return dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
    return dycl_region_index(call->region, o, out_value, out_bounds);
}

static PyObject *index_select(dycl_call *call, const dycl_binding *row) {
    uint32_t operands[2], out = 0;
    int64_t bounds[2], attr;
    int dim;
    (void)row;
    DYCL_CALL_TRY(index_of(call, call->p[2], &operands[1], bounds));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &operands[0]));
    const dycl_value *v = dycl_call_meta(call, operands[0]);
    if (v->rank == 0 || dycl_call_meta(call, operands[1])->rank != 1) return dycl_call_bail(call, DYCL_BAIL_shape);
    DYCL_CALL_TRY(dycl_call_dim(call, call->p[1], v->rank, &dim));
    if (!dycl_index_within(bounds, v->sizes[dim])) return dycl_call_bail(call, DYCL_BAIL_index);
    attr = dim;
    return dycl_call_finish(
        call, dycl_build_node(&call->region->recorder, DYCL_OP_index_select, 2, operands, 1, &attr, &out), out);
}

/* torch reads such an index, of whatever dtype, as one of int64 (can_use_expanded_index_path in
 * ATen/native/TensorAdvancedIndexing.cpp): what lies there, and behind it, is torch's to find. */
static int is_expanded_i32(const dycl_value *index) {
    int expanded = 0;
    for (int i = 0; i < index->rank; i++) expanded |= index->strides[i] == 0 && index->sizes[i] > 1;
    return expanded && index->dtype != DYCL_I64;
}

static PyObject *gather(dycl_call *call, const dycl_binding *row) {
    uint32_t operands[2], out = 0;
    int64_t bounds[2], attr;
    int dim;
    (void)row;
    if (dycl_call_given(call->p[3]) && call->p[3] != Py_False) return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(index_of(call, call->p[2], &operands[1], bounds));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &operands[0]));
    const dycl_value *v = dycl_call_meta(call, operands[0]);
    if (v->rank == 0) return dycl_call_bail(call, DYCL_BAIL_shape);
    if (is_expanded_i32(meta(call, operands[1]))) return dycl_call_bail(call, DYCL_BAIL_dtype);
    DYCL_CALL_TRY(dycl_call_dim(call, call->p[1], v->rank, &dim));
    if (!dycl_index_within(bounds, v->sizes[dim])) return dycl_call_bail(call, DYCL_BAIL_index);
    attr = dim;
    DYCL_CALL_TRY(dycl_build_cast(&call->region->recorder, operands[1], DYCL_I64, &operands[1]));
    return dycl_call_finish(call, dycl_build_node(&call->region->recorder, DYCL_OP_gather, 2, operands, 1, &attr, &out),
                            out);
}

/* Both sides broadcast to each other except along the dimension, then gather. */
static PyObject *take_along_dim(dycl_call *call, const dycl_binding *row) {
    uint32_t operands[2], out = 0;
    int64_t bounds[2], attr, wide[2][DYCL_MAX_RANK];
    int dim;
    dycl_recorder *r = &call->region->recorder;
    (void)row;
    if (!dycl_call_given(call->p[2])) return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(index_of(call, call->p[1], &operands[1], bounds));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &operands[0]));
    dycl_value v = *dycl_call_meta(call, operands[0]), index = *dycl_call_meta(call, operands[1]);
    if (v.rank == 0 || v.rank != index.rank) return dycl_call_bail(call, DYCL_BAIL_shape);
    DYCL_CALL_TRY(dycl_call_dim(call, call->p[2], v.rank, &dim));
    if (!dycl_index_within(bounds, v.sizes[dim])) return dycl_call_bail(call, DYCL_BAIL_index);
    for (int d = 0; d < v.rank; d++) {
        int64_t size = v.sizes[d] == 1 ? index.sizes[d] : v.sizes[d];
        if (d != dim && index.sizes[d] != 1 && index.sizes[d] != size) return dycl_call_bail(call, DYCL_BAIL_shape);
        wide[0][d] = d == dim ? v.sizes[d] : size;
        wide[1][d] = d == dim ? index.sizes[d] : size;
    }
    if (memcmp(wide[0], v.sizes, (size_t)v.rank * sizeof **wide))
        DYCL_CALL_TRY(dycl_build_expand(r, operands[0], v.rank, wide[0], &operands[0]));
    if (memcmp(wide[1], index.sizes, (size_t)v.rank * sizeof **wide))
        DYCL_CALL_TRY(dycl_build_expand(r, operands[1], v.rank, wide[1], &operands[1]));
    attr = dim;
    return dycl_call_finish(call, dycl_build_node(r, DYCL_OP_gather, 2, operands, 1, &attr, &out), out);
}

/* padding_idx, scale_grad_by_freq and sparse only concern gradients. flags: parameter of the last two, which no formula
 * knows */
static PyObject *embed(dycl_call *call, PyObject *weight, PyObject *index, PyObject *padding, int check_padding,
                       int flags) {
    uint32_t operands[2], out = 0;
    int64_t bounds[2], pad;
    for (int i = flags; i < flags + 2; i++) {
        if (call->p[i] && !PyBool_Check(call->p[i])) return dycl_call_bail(call, DYCL_BAIL_arguments);
        if (call->region->tracks && call->p[i] == Py_True) return dycl_call_bail(call, DYCL_BAIL_grad);
    }
    DYCL_CALL_TRY(index_of(call, index, &operands[1], bounds));
    DYCL_CALL_TRY(dycl_call_value(call, weight, &operands[0]));
    const dycl_value *v = dycl_call_meta(call, operands[0]);
    if (v->rank != 2) return dycl_call_bail(call, DYCL_BAIL_shape);
    DYCL_CALL_TRY(dycl_call_int_or(call, padding, -1, &pad));
    if (check_padding && dycl_call_given(padding)) {
        if (pad < -v->sizes[0] || pad >= v->sizes[0]) return dycl_call_bail(call, DYCL_BAIL_arguments);
        if (pad < 0) pad += v->sizes[0];
    }
    if (pad < -1 || pad >= v->sizes[0]) pad = -1; /* torch.embedding compares: no such row */
    if (!dycl_index_within(bounds, v->sizes[0])) return dycl_call_bail(call, DYCL_BAIL_index);
    return dycl_call_finish(
        call, dycl_build_node(&call->region->recorder, DYCL_OP_embedding, 2, operands, 1, &pad, &out), out);
}

static PyObject *functional_embedding(dycl_call *call, const dycl_binding *row) {
    (void)row;
    if (dycl_call_given(call->p[3]))
        return dycl_call_bail(call, DYCL_BAIL_arguments); /* max_norm renormalises the weight in place */
    return embed(call, call->p[1], call->p[0], call->p[2], 1, 5);
}

static PyObject *embedding(dycl_call *call, const dycl_binding *row) {
    (void)row;
    if (call->p[2] == Py_None) return dycl_call_bail(call, DYCL_BAIL_arguments);
    return embed(call, call->p[0], call->p[1], call->p[2], 0, 3);
}

/* one_hot(tensor, num_classes): where each index stands among all, when none is out of range */
static PyObject *one_hot(dycl_call *call, const dycl_binding *row) {
    uint32_t x, ends[2], classes, out = 0;
    int64_t bounds[2], count;
    dycl_recorder *r = &call->region->recorder;
    dycl_operand start = dycl_operand_i64(0), step = dycl_operand_i64(1);
    (void)row;
    DYCL_CALL_TRY(dycl_call_int(call, call->p[1], &count));
    DYCL_CALL_TRY(index_of(call, call->p[0], &x, bounds));
    const dycl_value *v = dycl_call_meta(call, x);
    if (v->dtype != DYCL_I64) return dycl_call_bail(call, DYCL_BAIL_dtype);
    if (v->rank == DYCL_MAX_RANK || dycl_value_numel(v) == 0 || !dycl_value_contiguous(v))
        return dycl_call_bail(call, DYCL_BAIL_shape);
    if (count < 1 || !dycl_index_within(bounds, count)) return dycl_call_bail(call, DYCL_BAIL_index);
    DYCL_CALL_TRY(dycl_build_unsqueeze(r, x, v->rank, &x));
    DYCL_CALL_TRY(dycl_build_convert(r, &start, DYCL_I64, &ends[0]));
    DYCL_CALL_TRY(dycl_build_convert(r, &step, DYCL_I64, &ends[1]));
    DYCL_CALL_TRY(dycl_build_node(r, DYCL_OP_iota, 2, ends, 1, &count, &classes));
    dycl_operand sides[2] = {dycl_operand_of(x), dycl_operand_of(classes)};
    DYCL_CALL_TRY(dycl_build_ew(r, DYCL_OP_eq, DYCL_PROMOTE_COMMON, 2, sides, &out));
    DYCL_CALL_TRY(dycl_build_cast(r, out, DYCL_I64, &out));
    int64_t plain[DYCL_MAX_RANK];
    dycl_strides_contiguous(meta(call, out)->rank, meta(call, out)->sizes, plain);
    return dycl_call_written(call, dycl_call_finish(call, dycl_build_dense(r, out, plain, &out), out),
                             2); /* torch: zeros, then scatter_ */
}

dycl_binding dycl_bindings_gather[] = {
    ROW("index_select", T | M, "input dim index", index_select),
    ROW("gather", T | M, "input dim index | sparse_grad", gather),
    ROW("take_along_dim", T | M, "input indices dim", take_along_dim),
    ROW("one_hot", F | DYCL_AT_NN, "input num_classes", one_hot),
    ROW("embedding", F, "input weight padding_idx max_norm norm_type scale_grad_by_freq sparse", functional_embedding),
    ROW("embedding", T, "weight indices padding_idx scale_grad_by_freq sparse", embedding),
    {0},
};
