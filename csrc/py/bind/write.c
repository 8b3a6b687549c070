/* x[key] = y, copy_ and index_copy_. A tensor whose memory nobody else has gets a new value; other memory is written at
 * once. */
#include <string.h>

#include "py/bind/bind.h"
#include "py/bind/index.h"
#include "py/bind/write_pending.h"
#include "py/bind/write_through.h"
#include "py/region/track.h"

/* A new value costs a copy of the tensor where it was computed in an earlier segment: not for a few elements of many.
 */
#define WORTH_COPYING 16384

int dycl_index_may_put(dycl_call *call, PyObject *self, PyObject *source) {
    if (!dycl_is_lazy(self)) return 0;
    if (dycl_track_writes_from(call->region, self, dycl_is_tensor(source) ? source : self)) return !PyErr_Occurred();
    return dycl_region_may_write(call->region, self);
}

int dycl_index_takes(PyObject *source) {
    return dycl_is_tensor(source) || PyFloat_Check(source) || PyLong_Check(source);
}

static int may_replace(dycl_call *call, PyObject *self, uint32_t value, PyObject *source, int64_t written) {
    if (!dycl_index_may_put(call, self, source)) return 0;
    int64_t all = dycl_value_numel(meta(call, value));
    return meta(call, value)->kind != DYCL_VALUE_FEED || all <= WORTH_COPYING || all <= 4 * written;
}

/* What is written, as a value of that dtype and those sizes. Numbers must fit the dtype as they are. */
static dycl_status source_of(dycl_call *call, PyObject *o, dycl_dtype dtype, int rank, const int64_t *sizes,
                             uint32_t *out) {
    dycl_recorder *r = &call->region->recorder;
    dycl_operand x;
    dycl_status status;
    if (!dycl_index_takes(o)) return dycl_build_bail(r, DYCL_BAIL_arguments);
    DYCL_TRY(dycl_call_operand(call, o, &x));
    if (x.kind == DYCL_OPERAND_FLOAT && !dycl_dtype_is_float(dtype)) return dycl_build_bail(r, DYCL_BAIL_dtype);
    if (x.kind == DYCL_OPERAND_INT && dtype == DYCL_BOOL) x.i = x.i != 0;
    DYCL_TRY(dycl_build_convert(r, &x, dtype, out));
    if (x.kind != DYCL_OPERAND_VALUE) return dycl_build_node(r, DYCL_OP_full, 1, out, rank, sizes, out);
    const dycl_value *v = meta(call, *out);
    if (v->rank > rank) return dycl_build_bail(r, DYCL_BAIL_shape);
    if (v->rank == rank && memcmp(v->sizes, sizes, (size_t)rank * sizeof *sizes) == 0) return DYCL_OK;
    return dycl_build_expand(r, *out, rank, sizes, out);
fail:
    return status;
}

/* x[mask] = number */
static PyObject *fill_mask(dycl_call *call, PyObject *self, uint32_t mask, PyObject *value) {
    dycl_recorder *r = &call->region->recorder;
    dycl_operand sides[3] = {dycl_operand_of(mask), dycl_operand_of(0), dycl_operand_of(0)};
    int64_t sizes[DYCL_MAX_RANK];
    uint32_t x, number, out = 0;
    DYCL_CALL_TRY(dycl_call_value(call, self, &x));
    const dycl_value *v = meta(call, x), *m = meta(call, mask);
    if (dycl_is_tensor(value) || m->rank == 0 || m->rank > v->rank || !v->canonical)
        return dycl_call_bail(call, DYCL_BAIL_shape);
    for (int i = 0; i < v->rank; i++) {
        if (i < m->rank && m->sizes[i] != v->sizes[i]) return dycl_call_bail(call, DYCL_BAIL_shape);
        sizes[i] = i < m->rank ? m->sizes[i] : 1;
    }
    if (m->rank < v->rank) DYCL_CALL_TRY(dycl_build_reshape(r, mask, v->rank, sizes, 0, &sides[0].value));
    DYCL_CALL_TRY(source_of(call, value, dtype_of(call, x), 0, NULL, &number));
    sides[1].value = number;
    sides[2].value = x;
    return dycl_call_finish(call, dycl_build_where(r, &sides[0], &sides[1], &sides[2], &out), out);
}

/* x[index] = y for one tensor of positions */
static PyObject *put_rows(dycl_call *call, PyObject *self, PyObject *index, PyObject *value) {
    dycl_recorder *r = &call->region->recorder;
    uint32_t operands[3], out = 0;
    int64_t bounds[2], sizes[2 * DYCL_MAX_RANK], written = 1;
    int rank = 0;
    DYCL_CALL_TRY(dycl_region_index(call->region, index, &operands[1], bounds));
    DYCL_CALL_TRY(dycl_call_value(call, self, &operands[0]));
    dycl_value v = *meta(call, operands[0]), rows = *meta(call, operands[1]);
    if (v.rank == 0 || rows.rank == 0 || rows.rank + v.rank - 1 > DYCL_MAX_RANK)
        return dycl_call_bail(call, DYCL_BAIL_shape);
    for (int i = 0; i < rows.rank; i++) sizes[rank++] = rows.sizes[i];
    for (int i = 1; i < v.rank; i++) sizes[rank++] = v.sizes[i];
    for (int i = 0; i < rank; i++) written *= sizes[i];
    if (rows.rank > 1 && !rows.canonical)
        return dycl_call_bail(call, DYCL_BAIL_layout); /* of equal positions the last one in memory wins */
    if (!may_replace(call, self, operands[0], value, written)) return dycl_call_bail(call, DYCL_BAIL_alias);
    if (dycl_is_tensor(value)) {
        uint32_t given;
        DYCL_CALL_TRY(dycl_call_value(call, value, &given));
        if (dtype_of(call, given) != v.dtype) return dycl_call_bail(call, DYCL_BAIL_dtype); /* an error in torch */
        if (rows.rank > 1 && !meta(call, given)->canonical) return dycl_call_bail(call, DYCL_BAIL_layout);
    }
    DYCL_CALL_TRY(dycl_index_from_start(call, operands[1], bounds, v.sizes[0], &operands[1]));
    DYCL_CALL_TRY(source_of(call, value, (dycl_dtype)v.dtype, rank, sizes, &operands[2]));
    DYCL_CALL_TRY(dycl_build_node(r, DYCL_OP_index_put, 3, operands, 0, NULL, &out));
    const dycl_value *source = meta(call, operands[1]);
    int permutation = source->kind == DYCL_VALUE_NODE && r->graph.nodes[source->source].op == DYCL_OP_argsort &&
                      v.rank == 1 && rows.rank == 1 && rows.sizes[0] == v.sizes[0];
    if (permutation) dycl_recorder_bound_as(r, out, operands[2]); /* every element is replaced */
    return dycl_call_finish(call, DYCL_OK, out);
}

/* The view `part` of self, at `offset` elements from its first, becomes the value. */
static PyObject *put_part(dycl_call *call, PyObject *self, uint32_t old, const dycl_value *part, int64_t offset,
                          uint32_t value, PyObject *source) {
    uint32_t out = 0;
    if (!may_replace(call, self, old, source, dycl_value_numel(part)))
        return dycl_write_shared(call, self, part, offset, value, 0);
    return dycl_call_finish(
        call,
        dycl_build_view_put(&call->region->recorder, old, value, offset, part->rank, part->sizes, part->strides, &out),
        out);
}

/* x[key] = y for slices, integers, None and Ellipsis */
static PyObject *put_view(dycl_call *call, PyObject *self, PyObject *key, PyObject *value) {
    dycl_value part;
    uint32_t old, source;
    int64_t offset;
    DYCL_CALL_TRY(dycl_call_value(call, self, &old));
    DYCL_CALL_TRY(dycl_index_view(call, key, meta(call, old), &offset, &part));
    DYCL_CALL_TRY(source_of(call, value, (dycl_dtype)part.dtype, part.rank, part.sizes, &source));
    return put_part(call, self, old, &part, offset, source, value);
}

static PyObject *setitem(dycl_call *call, const dycl_binding *row) {
    PyObject *self = call->p[0], *key = call->p[1], *value = call->p[2], *result;
    (void)row;
    if (!key || !value || !self || !dycl_is_tensor(self)) return dycl_call_bail(call, DYCL_BAIL_alias);
    if (PyTuple_CheckExact(key) && PyTuple_GET_SIZE(key) == 1 && dycl_is_tensor(PyTuple_GET_ITEM(key, 0)))
        key = PyTuple_GET_ITEM(key, 0); /* a tuple in it is a list of positions */
    if (key == self || value == self)
        return dycl_call_bail(call, DYCL_BAIL_alias); /* torch rejects what overlaps in part */
    call->in_place = 1;
    if (dycl_is_tensor(key)) {
        uint32_t index;
        DYCL_CALL_TRY(dycl_call_value(call, key, &index));
        result =
            dtype_of(call, index) == DYCL_BOOL ? fill_mask(call, self, index, value) : put_rows(call, self, key, value);
    } else {
        result = put_view(call, self, key, value);
    }
    if (!result && !PyErr_Occurred()) {
        dycl_bail why = call->region->recorder.why;
        if (why != DYCL_BAIL_arguments && why != DYCL_BAIL_dtype && why != DYCL_BAIL_shape && why != DYCL_BAIL_layout &&
            why != DYCL_BAIL_alias)
            return NULL;
        result = dycl_index_put_advanced(call);
    }
    if (!result) return NULL;
    Py_DECREF(result);
    Py_RETURN_NONE;
}

/* ---- copy_ and index_copy_ */

static PyObject *copy(dycl_call *call, const dycl_binding *row) {
    PyObject *self = call->p[0], *source = call->p[1];
    uint32_t old, value;
    int64_t ordinary = 0;
    (void)row;
    if (!self || !source || self == source || !dycl_is_tensor(self) || (call->p[2] && !PyBool_Check(call->p[2])))
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(dycl_call_value(call, self, &old));
    DYCL_CALL_TRY(dycl_call_value(call, source, &value));
    dycl_value v = *meta(call, old);
    dycl_operand x = dycl_operand_of(value);
    DYCL_CALL_TRY(dycl_build_convert(&call->region->recorder, &x, (dycl_dtype)v.dtype, &value));
    const dycl_value *given = meta(call, value);
    if (given->rank > v.rank) return dycl_call_bail(call, DYCL_BAIL_shape);
    if (given->rank != v.rank || memcmp(given->sizes, v.sizes, (size_t)v.rank * sizeof *v.sizes))
        DYCL_CALL_TRY(dycl_build_expand(&call->region->recorder, value, v.rank, v.sizes, &value));
    int replaces = call->region->replaces && !dycl_is_lazy(self);
    if (!v.canonical || (!replaces && (!dycl_is_lazy(self) || !dycl_region_may_write(call->region, self))))
        return dycl_write_shared(call, self, NULL, 0, value, 0);
    return dycl_call_finish(
        call, dycl_build_node(&call->region->recorder, DYCL_OP_contiguous, 1, &value, 1, &ordinary, &value), value);
}

/* self, value, wrap: of a matrix */
static PyObject *fill_diagonal(dycl_call *call, const dycl_binding *row) {
    PyObject *self = call->p[0];
    uint32_t old, value;
    (void)row;
    if (!self || !call->p[1] || !dycl_is_lazy(self) || dycl_is_tensor(call->p[1]) ||
        (call->p[2] && call->p[2] != Py_False))
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(dycl_call_value(call, self, &old));
    const dycl_value v = *meta(call, old);
    if (v.rank != 2 || dycl_value_numel(&v) == 0) return dycl_call_bail(call, DYCL_BAIL_shape);
    dycl_value part = v;
    part.rank = 1;
    part.sizes[0] = v.sizes[0] < v.sizes[1] ? v.sizes[0] : v.sizes[1];
    part.strides[0] = v.strides[0] + v.strides[1];
    DYCL_CALL_TRY(source_of(call, call->p[1], (dycl_dtype)v.dtype, 1, part.sizes, &value));
    return put_part(call, self, old, &part, 0, value, call->p[1]);
}

/* self, dim, index, source */
static PyObject *index_copy(dycl_call *call, const dycl_binding *row) {
    PyObject *self = call->p[0], *index = call->p[2], *source = call->p[3];
    int64_t dim;
    (void)row;
    if (!self || !index || !source || !dycl_is_tensor(self) || !dycl_is_tensor(index) || !dycl_is_tensor(source))
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(dycl_call_int(call, call->p[1], &dim));
    return dycl_write_rows(call, self, dim, index, source);
}

dycl_binding dycl_bindings_write[] = {
    ROW("setitem", D, "self key value", setitem),
    ROW("copy", I, "self src non_blocking", copy),
    ROW("index_copy", I, "self dim index source", index_copy),
    ROW("fill_diagonal", I, "self fill_value wrap", fill_diagonal),
    {0},
};
