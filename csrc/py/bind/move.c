/* Movement: copies, joining and padding. */
#include <string.h>

#include "ir/infer.h"
#include "py/bind/beside.h"
#include "py/bind/bind.h"
#include "py/bind/view.h"
#include "py/region/track.h"

/* ---- Memory formats */

static dycl_status copy_as(dycl_call *call, uint32_t value, int64_t format, uint32_t *out) {
    return dycl_build_node(&call->region->recorder, DYCL_OP_contiguous, 1, &value, 1, &format, out);
}

static PyObject *bind_contiguous(dycl_call *call, const dycl_binding *row) {
    uint32_t value, out = 0;
    (void)row;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    const dycl_value *v = dycl_call_meta(call, value);
    PyObject *format = call->p[1];
    if (format == dycl_py.channels_last) {
        if (v->rank != 4 || dycl_value_numel(v) == 0) return dycl_call_bail(call, DYCL_BAIL_shape);
        if (dycl_value_channels_last_dense(v)) return dycl_call_same(call, call->p[0]);
        return dycl_call_finish(call, copy_as(call, value, 2, &out), out);
    }
    if (format && format != dycl_py.contiguous_format) return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (dycl_value_contiguous(v)) return dycl_call_same(call, call->p[0]);
    return dycl_call_finish(call, copy_as(call, value, 0, &out), out);
}

static PyObject *bind_clone(dycl_call *call, const dycl_binding *row) {
    uint32_t value, out = 0;
    int64_t format = 1;
    (void)row;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    PyObject *wanted = call->p[1];
    if (wanted == dycl_py.contiguous_format)
        format = 0;
    else if (wanted == dycl_py.channels_last)
        format = 2;
    else if (dycl_call_given(wanted) && wanted != dycl_py.preserve_format)
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    return dycl_call_finish(call, copy_as(call, value, format, &out), out);
}

/* ---- Joining */

static dycl_status cat_node(dycl_call *call, int count, const uint32_t *values, int64_t dim, uint32_t *out) {
    uint32_t groups[DYCL_MAX_OPERANDS];
    int group_count = 0;
    if (count <= DYCL_MAX_OPERANDS)
        return dycl_build_node(&call->region->recorder, DYCL_OP_cat, count, values, 1, &dim, out);
    for (int i = 0; i < count; i += DYCL_MAX_OPERANDS) {
        int many = count - i < DYCL_MAX_OPERANDS ? count - i : DYCL_MAX_OPERANDS;
        dycl_status status =
            dycl_build_node(&call->region->recorder, DYCL_OP_cat, many, values + i, 1, &dim, &groups[group_count++]);
        if (status != DYCL_OK) return status;
    }
    return dycl_build_node(&call->region->recorder, DYCL_OP_cat, group_count, groups, 1, &dim, out);
}

#define MOST_JOINED (DYCL_MAX_OPERANDS * DYCL_MAX_OPERANDS)

/* The values are of at least one dimension; `dim` is in range for the first that is not skipped. `values` are
 * overwritten. */
static dycl_status cat(dycl_call *call, int count, uint32_t *values, int dim, uint32_t *out) {
    static const int to_last[4] = {0, 2, 3, 1}, from_last[4] = {0, 3, 1, 2}; /* NCHW <-> NHWC */
    dycl_recorder *r = &call->region->recorder;
    dycl_status status;
    int channels_last = 1, kept = 0;
    dycl_dtype dtype = (dycl_dtype)dycl_call_meta(call, values[0])->dtype;
    for (int i = 0; i < count; i++) {
        const dycl_value *v = dycl_call_meta(call, values[i]);
        int looks = dycl_value_channels_last(v);
        dtype = dycl_promote(dtype, (dycl_dtype)v->dtype);
        if (!looks)
            channels_last = 0;
        else if (looks > 1 && channels_last)
            channels_last = -1;
        if (v->rank == 1 && v->sizes[0] == 0) { /* torch skips these whatever the others' sizes, not their history */
            if (dycl_track_has_now(call->region, values[i])) return dycl_build_bail(r, DYCL_BAIL_grad);
            continue;
        }
        values[kept++] = values[i];
    }
    if (kept == 0) kept = count; /* nothing but empty ones */
    if (channels_last < 0) return dycl_build_bail(r, DYCL_BAIL_layout);
    for (int i = 0; i < kept; i++) DYCL_TRY(dycl_build_cast(r, values[i], dtype, &values[i]));
    if (!channels_last || dycl_call_meta(call, values[0])->rank != 4) return cat_node(call, kept, values, dim, out);
    for (int i = 0; i < kept; i++) DYCL_TRY(dycl_build_permute(r, values[i], to_last, &values[i]));
    static const int dim_in_last[4] = {0, 3, 1, 2};
    DYCL_TRY(cat_node(call, kept, values, dim_in_last[dim], out));
    return dycl_build_permute(r, *out, from_last, out);
fail:
    return status;
}

static PyObject *cat_along(dycl_call *call, int count, uint32_t *values, PyObject *dim_object) {
    uint32_t out = 0;
    int rank = 0, dim = 0;
    for (int i = 0; i < count; i++) {
        const dycl_value *v = dycl_call_meta(call, values[i]);
        if (v->rank == 0) return dycl_call_bail(call, DYCL_BAIL_shape);
        if (!rank && !(v->rank == 1 && v->sizes[0] == 0)) rank = v->rank;
    }
    if (!rank) rank = 1;
    if (dim_object) DYCL_CALL_TRY(dycl_call_dim(call, dim_object, rank, &dim));
    return dycl_call_finish(call, cat(call, count, values, dim, &out), out);
}

static PyObject *bind_cat(dycl_call *call, const dycl_binding *row) {
    uint32_t values[MOST_JOINED];
    int count;
    (void)row;
    DYCL_CALL_TRY(dycl_call_values(call, call->p[0], MOST_JOINED, &count, values));
    return cat_along(call, count, values, call->p[1]);
}

static int all_contiguous(const dycl_call *call, int count, const uint32_t *values) {
    int all = 1;
    for (int i = 0; i < count; i++) all &= is_canonical(dycl_call_meta(call, values[i]));
    return all;
}

static PyObject *bind_stack(dycl_call *call, const dycl_binding *row) {
    uint32_t values[MOST_JOINED], out = 0;
    int count, dim = 0;
    (void)row;
    DYCL_CALL_TRY(dycl_call_values(call, call->p[0], MOST_JOINED, &count, values));
    dycl_value first = *dycl_call_meta(call, values[0]);
    if (call->p[1]) DYCL_CALL_TRY(dycl_call_dim(call, call->p[1], first.rank + 1, &dim));
    for (int i = 0; i < count; i++) {
        const dycl_value *v = dycl_call_meta(call, values[i]);
        if (v->rank != first.rank || memcmp(v->sizes, first.sizes, sizeof v->sizes) != 0)
            return dycl_call_bail(call, DYCL_BAIL_shape);
    }
    /* As torch does: the result has the memory format that the cat has. Of nothing the parts of a gradient lie apart.
     */
    if (dim < first.rank && (first.sizes[dim] || !all_contiguous(call, count, values))) {
        int64_t sizes[DYCL_MAX_RANK + 1];
        memcpy(sizes, first.sizes, (size_t)dim * sizeof *sizes);
        sizes[dim] = count;
        memcpy(sizes + dim + 1, first.sizes + dim, (size_t)(first.rank - dim) * sizeof *sizes);
        DYCL_CALL_TRY(cat(call, count, values, dim, &out));
        return dycl_call_finish(call, dycl_build_reshape(&call->region->recorder, out, first.rank + 1, sizes, 1, &out),
                                out);
    }
    for (int i = 0; i < count; i++)
        DYCL_CALL_TRY(dycl_build_unsqueeze(&call->region->recorder, values[i], dim, &values[i]));
    return dycl_call_finish(call, cat(call, count, values, dim, &out), out);
}

/* atleast_1d, atleast_2d, atleast_3d */
static dycl_status at_least(dycl_call *call, int least, uint32_t *value) {
    static const int64_t ones[3] = {1, 1, 1};
    dycl_recorder *r = &call->region->recorder;
    dycl_status status = DYCL_OK;
    int rank = dycl_call_meta(call, *value)->rank;
    if (rank == 0) return dycl_build_reshape(r, *value, least, ones, 1, value);
    if (rank == 1 && least > 1) status = dycl_build_unsqueeze(r, *value, 0, value);
    return status == DYCL_OK && rank < 3 && least == 3 ? dycl_build_unsqueeze(r, *value, 2, value) : status;
}

/* Of one tensor. What has enough dimensions is answered itself. */
static PyObject *bind_at_least(dycl_call *call, const dycl_binding *row) {
    uint32_t value;
    if (!call->p[0] || !dycl_is_tensor(call->p[0]) || call->p[1]) return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    if (dycl_call_meta(call, value)->rank >= row->op) return dycl_call_same(call, call->p[0]);
    return dycl_call_finish(call, at_least(call, row->op, &value), value);
}

static PyObject *bind_stack_along(dycl_call *call, const dycl_binding *row) {
    uint32_t values[MOST_JOINED], out = 0;
    int count, dim;
    DYCL_CALL_TRY(dycl_call_values(call, call->p[0], MOST_JOINED, &count, values));
    for (int i = 0; i < count; i++) {
        const dycl_value *v = dycl_call_meta(call, values[i]);
        const int64_t column[2] = {dycl_value_numel(v), 1};
        if (row->extra && v->rank < 2) /* column_stack */
            DYCL_CALL_TRY(dycl_build_reshape(&call->region->recorder, values[i], 2, column, 0, &values[i]));
        else
            DYCL_CALL_TRY(at_least(call, row->op, &values[i]));
    }
    dim = row->op == 1 ? dycl_call_meta(call, values[0])->rank > 1 : row->op == 2 ? 0 : 2;
    return dycl_call_finish(call, cat(call, count, values, dim, &out), out);
}

/* roll along one dimension: two slices, joined the other way round */
static dycl_status roll_once(dycl_call *call, uint32_t value, int64_t shift, int dim, uint32_t *out) {
    dycl_recorder *r = &call->region->recorder;
    dycl_status status;
    uint32_t halves[2];
    dycl_value v = *dycl_call_meta(call, value);
    if (dycl_value_numel(&v) == 0) return copy_as(call, value, 1, out);
    int64_t size = v.sizes[dim], start = (size - shift % size) % size;
    DYCL_TRY(dycl_build_slice(r, value, dim, start, size, 1, &halves[0]));
    DYCL_TRY(dycl_build_slice(r, value, dim, 0, start, 1, &halves[1]));
    return cat(call, 2, halves, dim, out); /* an empty half, too, has a say in the memory format */
fail:
    return status;
}

static PyObject *bind_roll(dycl_call *call, const dycl_binding *row) {
    uint32_t value, out = 0;
    int shift_count, dim_count = 0;
    int64_t shifts[DYCL_MAX_RANK], dims[DYCL_MAX_RANK];
    (void)row;
    DYCL_CALL_TRY(dycl_call_ints(call, call->p[1], DYCL_MAX_RANK, &shift_count, shifts));
    if (dycl_call_given(call->p[2])) DYCL_CALL_TRY(dycl_call_ints(call, call->p[2], DYCL_MAX_RANK, &dim_count, dims));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    dycl_value v = *dycl_call_meta(call, value);
    if (dim_count == 0 && shift_count == 1) {
        int64_t numel = dycl_value_numel(&v);
        DYCL_CALL_TRY(dycl_build_reshape(&call->region->recorder, value, 1, &numel, 0, &value));
        DYCL_CALL_TRY(roll_once(call, value, shifts[0], 0, &value));
        return dycl_call_finish(call, dycl_build_reshape(&call->region->recorder, value, v.rank, v.sizes, 1, &out),
                                out);
    }
    if (dim_count == 0 || dim_count != shift_count || v.rank == 0) return dycl_call_bail(call, DYCL_BAIL_shape);
    for (int i = 0; i < dim_count; i++) {
        if (dims[i] < -v.rank || dims[i] >= v.rank) return dycl_call_bail(call, DYCL_BAIL_shape);
        DYCL_CALL_TRY(roll_once(call, value, shifts[i], (int)(dims[i] < 0 ? dims[i] + v.rank : dims[i]), &value));
    }
    return dycl_call_finish(call, DYCL_OK, value);
}

/* Negative strides do not exist in torch: rows are taken in descending order. */
static PyObject *bind_flip(dycl_call *call, const dycl_binding *row) {
    uint32_t value;
    int count;
    int64_t dims[DYCL_MAX_RANK];
    uint32_t seen = 0;
    dycl_recorder *r = &call->region->recorder;
    if (row->extra == 2) {
        count = 1;
        dims[0] = row->op;
    } else {
        DYCL_CALL_TRY(row->extra ? dycl_call_spread(call, 1, &count, dims)
                                 : dycl_call_sequence(call, call->p[1], &count, dims));
    }
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    dycl_value v = *dycl_call_meta(call, value);
    if (v.rank == 0 || count == 0 || !is_canonical(&v)) return dycl_call_bail(call, DYCL_BAIL_layout);
    for (int i = 0; i < count; i++) {
        if (dims[i] < -v.rank || dims[i] >= v.rank) return dycl_call_bail(call, DYCL_BAIL_shape);
        int64_t dim = dims[i] < 0 ? dims[i] + v.rank : dims[i], size = v.sizes[dim];
        if (seen >> dim & 1) return dycl_call_bail(call, DYCL_BAIL_shape);
        seen |= UINT32_C(1) << dim;
        dycl_operand start = dycl_operand_i64(size - 1), step = dycl_operand_i64(-1);
        uint32_t ends[2], operands[2] = {value, 0};
        DYCL_CALL_TRY(dycl_build_convert(r, &start, DYCL_I64, &ends[0]));
        DYCL_CALL_TRY(dycl_build_convert(r, &step, DYCL_I64, &ends[1]));
        DYCL_CALL_TRY(dycl_build_node(r, DYCL_OP_iota, 2, ends, 1, &size, &operands[1]));
        DYCL_CALL_TRY(dycl_build_node(r, DYCL_OP_index_select, 2, operands, 1, &dim, &value));
    }
    return dycl_call_finish(call, DYCL_OK, value);
}

/* ---- Padding and triangles */

static dycl_status crop(dycl_call *call, uint32_t value, const int64_t *before, const int64_t *after, uint32_t *out) {
    dycl_value v = *dycl_call_meta(call, value);
    for (int d = 0; d < v.rank; d++) {
        if (!before[d] && !after[d]) continue;
        int64_t start = -before[d], stop = v.sizes[d] + after[d];
        if (start > stop) return dycl_build_bail(&call->region->recorder, DYCL_BAIL_shape);
        dycl_status status = dycl_build_slice(&call->region->recorder, value, d, start, stop, 1, &value);
        if (status != DYCL_OK) return status;
    }
    return copy_as(call, value, 1, out);
}

#define DOUBLE_EXACT (INT64_C(1) << 53)

static PyObject *bind_pad(dycl_call *call, const dycl_binding *row) {
    uint32_t operands[2], out = 0;
    int count, shrink = 1;
    int64_t pad[2 * DYCL_MAX_RANK], attrs[2 * DYCL_MAX_RANK] = {0};
    dycl_operand fill = dycl_operand_i64(0);
    dycl_recorder *r = &call->region->recorder;
    (void)row;
    if (dycl_call_given(call->p[2]) && !PyUnicode_Check(call->p[2])) return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (dycl_call_given(call->p[2]) && PyUnicode_CompareWithASCIIString(call->p[2], "constant") != 0)
        return dycl_bind_pad_by_mode(call);
    if (!call->p[1] || PyLong_Check(call->p[1])) return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(dycl_call_ints(call, call->p[1], 2 * DYCL_MAX_RANK, &count, pad));
    if (dycl_call_given(call->p[3])) DYCL_CALL_TRY(dycl_call_operand(call, call->p[3], &fill));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &operands[0]));
    dycl_value v = *dycl_call_meta(call, operands[0]);
    if (fill.kind == DYCL_OPERAND_VALUE || count % 2 || count / 2 > v.rank)
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (fill.kind == DYCL_OPERAND_FLOAT &&
        !dycl_dtype_is_float((dycl_dtype)v.dtype)) { /* written as an integer where it is one */
        if (!(fill.f >= -1e15 && fill.f <= 1e15) || (double)(int64_t)fill.f != fill.f)
            return dycl_call_bail(call, DYCL_BAIL_dtype);
        fill = dycl_operand_i64((int64_t)fill.f);
    }
    for (int i = 0; i < count; i++) {
        int d = v.rank - 1 - i / 2;
        attrs[i % 2 ? v.rank + d : d] = pad[i];
        if (pad[i] > 0) shrink = 0;
    }
    for (int d = 0; d < v.rank; d++)
        if (v.sizes[d] + (attrs[d] < 0 ? attrs[d] : 0) + (attrs[v.rank + d] < 0 ? attrs[v.rank + d] : 0) < 0)
            return dycl_call_bail(call, DYCL_BAIL_shape);
    int changes = 0;
    for (int d = 0; d < 2 * v.rank; d++) changes |= attrs[d] != 0;
    if (!changes && call->region->tracks) /* its gradient is a copy as well */
        return dycl_call_finish(call, copy_as(call, operands[0], 3, &out), out);
    int looks = dycl_value_channels_last(&v);
    if (shrink && looks && dycl_track_has_now(call->region, operands[0]))
        return dycl_call_bail(call, DYCL_BAIL_grad); /* its gradient lies as images do */
    if (shrink) return dycl_call_finish(call, crop(call, operands[0], attrs, attrs + v.rank, &out), out);
    int empty = 0; /* then torch's strides are zeros */
    for (int d = 0; d < v.rank; d++) empty |= v.sizes[d] + attrs[d] + attrs[v.rank + d] == 0;
    if (looks > 1 || (looks && empty)) return dycl_call_bail(call, DYCL_BAIL_layout);
    if (fill.kind == DYCL_OPERAND_INT && (fill.i > DOUBLE_EXACT || fill.i < -DOUBLE_EXACT)) /* a double to torch */
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(dycl_build_convert(r, &fill, (dycl_dtype)v.dtype, &operands[1]));
    if (!looks)
        return dycl_call_finish(call, dycl_build_node(r, DYCL_OP_pad, 2, operands, 2 * v.rank, attrs, &out), out);
    static const int to_last[4] = {0, 2, 3, 1}, from_last[4] = {0, 3, 1, 2};
    int64_t moved[8];
    for (int i = 0; i < 4; i++) {
        moved[i] = attrs[to_last[i]];
        moved[4 + i] = attrs[4 + to_last[i]];
    }
    DYCL_CALL_TRY(dycl_build_permute(r, operands[0], to_last, &operands[0]));
    DYCL_CALL_TRY(dycl_build_node(r, DYCL_OP_pad, 2, operands, 8, moved, &out));
    return dycl_call_finish(call, dycl_build_permute(r, out, from_last, &out), out);
}

static PyObject *bind_band(dycl_call *call, const dycl_binding *row) {
    uint32_t value, out = 0;
    int64_t diagonal;
    DYCL_CALL_TRY(dycl_call_int_or(call, call->p[1], 0, &diagonal));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    if (!is_canonical(dycl_call_meta(call, value))) return dycl_call_bail(call, DYCL_BAIL_layout);
    return dycl_call_finish(
        call, dycl_build_node(&call->region->recorder, (dycl_op)row->op, 1, &value, 1, &diagonal, &out), out);
}

dycl_binding dycl_bindings_move[] = {
    ROW("contiguous", M, "self | memory_format", bind_contiguous, 0, 0),
    ROW("clone", T | M, "input | memory_format", bind_clone, 0, 0),
    ROW("flip", M, "self dims " DYCL_SPREAD, bind_flip, 0, 1),
    ROW("flip", T, "input dims", bind_flip, 0, 0),
    ROW("fliplr", T | M, "input", bind_flip, 1, 2),
    ROW("flipud", T | M, "input", bind_flip, 0, 2),
    ROW("roll", T | M, "input shifts dims", bind_roll, 0, 0),
    ROW("cat", T, "tensors dim", bind_cat, 0, 0),
    ROW("concat", T, "tensors dim", bind_cat, 0, 0),
    ROW("concatenate", T, "tensors dim", bind_cat, 0, 0),
    ROW("stack", T, "tensors dim", bind_stack, 0, 0),
    ROW("hstack", T, "tensors", bind_stack_along, 1, 0),
    ROW("vstack", T, "tensors", bind_stack_along, 2, 0),
    ROW("row_stack", T, "tensors", bind_stack_along, 2, 0),
    ROW("dstack", T, "tensors", bind_stack_along, 3, 0),
    ROW("column_stack", T, "tensors", bind_stack_along, 1, 1),
    ROW("atleast_1d", T, "*0 " DYCL_SPREAD, bind_at_least, 1, 0),
    ROW("atleast_2d", T, "*0 " DYCL_SPREAD, bind_at_least, 2, 0),
    ROW("atleast_3d", T, "*0 " DYCL_SPREAD, bind_at_least, 3, 0),
    ROW("pad", F | N, "input pad mode value", bind_pad, 0, 0),
    ROW("tril", T | M | I, "input diagonal", bind_band, DYCL_OP_tril, 0),
    ROW("triu", T | M | I, "input diagonal", bind_band, DYCL_OP_triu, 0),
    {0},
};
