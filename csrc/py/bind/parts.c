/* Views of which there are several at once: parts, rows, grids. */
#include <string.h>

#include "py/bind/bind.h"
#include "py/bind/view.h"

#define MOST_RESULTS 4096

PyObject *dycl_view_unbind(dycl_region *region, PyObject *self, int dim) {
    dycl_recorder *r = &region->recorder;
    uint32_t value, values[MOST_RESULTS];
    if (dycl_region_value(region, self, &value) != DYCL_OK) return NULL;
    const dycl_value *v = &r->graph.values[value];
    if (v->rank == 0 || v->sizes[dim] > MOST_RESULTS) {
        dycl_build_bail(r, DYCL_BAIL_shape);
        return NULL;
    }
    int count = (int)v->sizes[dim];
    for (int i = 0; i < count; i++) {
        dycl_view_back(region, DYCL_BACK_OWN);
        if (dycl_build_select(r, value, dim, i, &values[i]) != DYCL_OK) return NULL;
    }
    return dycl_call_results(region, count, values);
}

static PyObject *as_parts(PyObject *views) {
    for (Py_ssize_t i = 0; views && i < PyTuple_GET_SIZE(views); i++)
        if (dycl_is_lazy(PyTuple_GET_ITEM(views, i))) dycl_lazy_of(PyTuple_GET_ITEM(views, i))->made = DYCL_VIEW_PART;
    return views;
}

/* ---- Parts */

/* Consecutive parts along a dimension; ends[i] is where the i-th ends. */
static PyObject *parts(dycl_call *call, uint32_t value, int dim, int count, const int64_t *ends) {
    uint32_t values[MOST_RESULTS];
    int64_t start = 0;
    for (int i = 0; i < count; i++) {
        dycl_call_back(call, DYCL_BACK_OWN);
        DYCL_CALL_TRY(dycl_build_slice(&call->region->recorder, value, dim, start, ends[i], 1, &values[i]));
        start = ends[i];
    }
    return dycl_call_results(call->region, count, values);
}

static int64_t rounded_up(int64_t size, int64_t step) { return size / step + (size % step != 0); }

static PyObject *equal_parts(dycl_call *call, uint32_t value, int dim, int64_t size, int64_t step) {
    int64_t ends[MOST_RESULTS], count = step ? rounded_up(size, step) : 1;
    if (count < 1) count = 1;
    if (count > MOST_RESULTS) return dycl_call_bail(call, DYCL_BAIL_limit);
    for (int i = 0; i < count; i++) ends[i] = i == count - 1 ? size : (i + 1) * step;
    return parts(call, value, dim, (int)count, ends);
}

static PyObject *bind_split(dycl_call *call,
                            const dycl_binding *row) { /* op 0: split, 1: chunk, 2: only a list of sizes */
    uint32_t value;
    int dim = 0;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    int rank = dycl_call_meta(call, value)->rank;
    if (rank == 0) return dycl_call_bail(call, DYCL_BAIL_shape);
    if (call->p[2]) DYCL_CALL_TRY(dycl_call_dim(call, call->p[2], rank, &dim));
    int64_t size = dycl_call_meta(call, value)->sizes[dim], step;
    if (row->op != 2 && call->p[1] && PyLong_CheckExact(call->p[1])) {
        DYCL_CALL_TRY(dycl_call_int(call, call->p[1], &step));
        if (row->op == 1) {
            if (step < 1 || step > INT32_MAX || size == 0) return dycl_call_bail(call, DYCL_BAIL_shape);
            step = rounded_up(size, step);
        }
        if (step < 0 || (step == 0 && size)) return dycl_call_bail(call, DYCL_BAIL_shape);
        return as_parts(equal_parts(call, value, dim, size, step));
    }
    PyObject *list = call->p[1];
    if (row->op == 1 || !list || (!PyList_CheckExact(list) && !PyTuple_Check(list)))
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    int64_t ends[MOST_RESULTS], end = 0;
    int count;
    DYCL_CALL_TRY(dycl_call_ints(call, list, MOST_RESULTS, &count, ends));
    for (int i = 0; i < count; i++) {
        if (ends[i] < 0 || ends[i] > size) return dycl_call_bail(call, DYCL_BAIL_shape);
        ends[i] = end += ends[i];
    }
    if (end != size || count == 0) return dycl_call_bail(call, DYCL_BAIL_shape);
    return as_parts(parts(call, value, dim, count, ends));
}

/* tensor_split: near-equal parts, the first ones larger by one; or at the given places */
static PyObject *bind_tensor_split(dycl_call *call, const dycl_binding *row) {
    uint32_t value;
    int dim = 0, count;
    int64_t ends[MOST_RESULTS], number;
    (void)row;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    int rank = dycl_call_meta(call, value)->rank;
    if (rank == 0) return dycl_call_bail(call, DYCL_BAIL_shape);
    if (call->p[2]) DYCL_CALL_TRY(dycl_call_dim(call, call->p[2], rank, &dim));
    int64_t size = dycl_call_meta(call, value)->sizes[dim], end = 0;
    if (!call->p[1]) return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (!PyLong_CheckExact(call->p[1])) {
        DYCL_CALL_TRY(dycl_call_ints(call, call->p[1], MOST_RESULTS - 1, &count, ends));
        for (int i = 0; i < count; i++) {
            if (ends[i] < end || ends[i] > size) return dycl_call_bail(call, DYCL_BAIL_shape);
            end = ends[i];
        }
        ends[count] = size;
        return parts(call, value, dim, count + 1, ends);
    }
    DYCL_CALL_TRY(dycl_call_int(call, call->p[1], &number));
    if (number < 1 || number > MOST_RESULTS) return dycl_call_bail(call, DYCL_BAIL_shape);
    count = (int)number;
    for (int i = 0; i < count; i++) ends[i] = end += size / count + (i < size % count);
    return parts(call, value, dim, count, ends);
}

static PyObject *bind_unbind(dycl_call *call, const dycl_binding *row) {
    uint32_t value;
    int dim = 0;
    (void)row;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    int rank = dycl_call_meta(call, value)->rank;
    if (rank == 0) return dycl_call_bail(call, DYCL_BAIL_shape);
    if (call->p[1]) DYCL_CALL_TRY(dycl_call_dim(call, call->p[1], rank, &dim));
    return as_parts(dycl_view_unbind(call->region, call->p[0], dim));
}

static PyObject *bind_iterate(dycl_call *call, const dycl_binding *row) {
    (void)row;
    PyObject *tuple =
        call->p[0] ? dycl_view_unbind(call->region, call->p[0], 0) : dycl_call_bail(call, DYCL_BAIL_arguments);
    if (as_parts(tuple)) {
        dycl_call_made_views(call, tuple);
        dycl_call_note(call, tuple);
    }
    PyObject *iterator = tuple ? PyObject_GetIter(tuple) : NULL;
    Py_XDECREF(tuple);
    return iterator;
}

/* meshgrid(*tensors, indexing): without `indexing` torch warns */
static PyObject *bind_meshgrid(dycl_call *call, const dycl_binding *row) {
    enum { INDEXING = 9 };
    uint32_t values[DYCL_MAX_RANK];
    int64_t sizes[DYCL_MAX_RANK], ones[DYCL_MAX_RANK];
    int count = 0;
    (void)row;
    PyObject *indexing = call->p[INDEXING];
    if (!indexing || !PyUnicode_Check(indexing)) return dycl_call_bail(call, DYCL_BAIL_arguments);
    int xy = PyUnicode_CompareWithASCIIString(indexing, "xy") == 0;
    if (!xy && PyUnicode_CompareWithASCIIString(indexing, "ij") != 0) return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (call->p[0] && (PyTuple_Check(call->p[0]) || PyList_Check(call->p[0]))) {
        if (call->p[1]) return dycl_call_bail(call, DYCL_BAIL_arguments);
        DYCL_CALL_TRY(dycl_call_values(call, call->p[0], DYCL_MAX_RANK, &count, values));
    } else {
        for (; count < DYCL_MAX_RANK && call->p[count]; count++)
            DYCL_CALL_TRY(dycl_call_value(call, call->p[count], &values[count]));
        if (count == 0 || call->p[DYCL_MAX_RANK]) return dycl_call_bail(call, DYCL_BAIL_arguments);
    }
    for (int i = 0; i < count; i++) {
        const dycl_value *v = dycl_call_meta(call, values[i]);
        if (v->rank > 1 || v->dtype != dycl_call_meta(call, values[0])->dtype)
            return dycl_call_bail(call, DYCL_BAIL_shape);
        sizes[i] = v->rank ? v->sizes[0] : 1;
        ones[i] = 1;
    }
    if (xy && count < 2) xy = 0;
    if (xy) { /* the first tensor runs along the second dimension */
        int64_t size = sizes[0];
        sizes[0] = sizes[1];
        sizes[1] = size;
    }
    for (int i = 0; i < count; i++) {
        int at = xy && i < 2 ? 1 - i : i;
        uint32_t column, grid;
        ones[at] = sizes[at];
        DYCL_CALL_TRY(dycl_build_reshape(&call->region->recorder, values[i], count, ones, 1, &column));
        ones[at] = 1;
        DYCL_CALL_TRY(dycl_build_expand(&call->region->recorder, column, count, sizes, &grid));
        values[i] = grid;
    }
    return dycl_call_results(call->region, count, values);
}

static PyObject *bind_broadcast_tensors(dycl_call *call, const dycl_binding *row) {
    uint32_t values[DYCL_MAX_RANK];
    int64_t sizes[DYCL_MAX_RANK];
    int count = 0;
    (void)row;
    if (call->p[0] && (PyTuple_Check(call->p[0]) || PyList_Check(call->p[0])))
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    for (; count < DYCL_MAX_RANK && call->p[count]; count++)
        DYCL_CALL_TRY(dycl_call_value(call, call->p[count], &values[count]));
    if (count == 0 || call->p[count]) return dycl_call_bail(call, DYCL_BAIL_arguments);
    int rank = dycl_call_common_sizes(call, count, values, sizes);
    uint32_t wide[DYCL_MAX_RANK];
    int position[DYCL_MAX_RANK], wide_count = 0;
    for (int i = 0; i < count; i++) {
        const dycl_value *v = dycl_call_meta(call, values[i]);
        if (v->rank == rank && memcmp(v->sizes, sizes, (size_t)rank * sizeof *sizes) == 0) continue;
        DYCL_CALL_TRY(dycl_build_expand(&call->region->recorder, values[i], rank, sizes, &wide[wide_count]));
        position[wide_count++] = i;
    }
    PyObject *expanded = dycl_call_results(call->region, wide_count, wide),
             *tuple = expanded ? PyTuple_New(count) : NULL;
    for (int i = 0, k = 0; tuple && i < count; i++) { /* what has the common sizes already is the very same object */
        PyObject *o = k < wide_count && position[k] == i ? PyTuple_GET_ITEM(expanded, k++) : call->p[i];
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(o));
    }
    Py_XDECREF(expanded);
    return tuple;
}

/* as_strided(size, stride, storage_offset): within what the tensor itself reaches, or what was computed here reaches;
 * torch allows all of the storage, and raises beyond it. */
static PyObject *bind_as_strided(dycl_call *call, const dycl_binding *row) {
    uint32_t value, out = 0;
    int rank, strided;
    int64_t offset = 0;
    dycl_value view = {0};
    (void)row;
    DYCL_CALL_TRY(dycl_call_sequence(call, call->p[1], &rank, view.sizes));
    DYCL_CALL_TRY(dycl_call_sequence(call, call->p[2], &strided, view.strides));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    const dycl_value *v = dycl_call_meta(call, value), *root = dycl_call_meta(call, v->root);
    int owned = root->kind == DYCL_VALUE_NODE;
    if (rank != strided || (dycl_call_given(call->p[3]) && !owned)) return dycl_call_bail(call, DYCL_BAIL_arguments);
    view.rank = (uint8_t)rank;
    for (int i = 0; i < rank; i++)
        if (view.sizes[i] < 0 || view.strides[i] < 0 || view.sizes[i] > INT32_MAX || view.strides[i] > INT32_MAX)
            return dycl_call_bail(call, DYCL_BAIL_shape);
    if (dycl_call_given(call->p[3])) {
        DYCL_CALL_TRY(dycl_call_int(call, call->p[3], &offset));
        if (offset < 0 || offset > DYCL_VIEW_REACH) return dycl_call_bail(call, DYCL_BAIL_shape);
        offset -= v->offset;
    }
    int64_t first = owned ? v->offset + offset : offset, reach = owned ? dycl_value_extent(root) : dycl_value_extent(v);
    if (dycl_value_numel(&view) == 0 || first < 0 || first + dycl_value_extent(&view) > reach)
        return dycl_call_bail(call, DYCL_BAIL_shape);
    dycl_call_back(call, DYCL_BACK_OWN);
    return dycl_call_finish(
        call, dycl_build_view(&call->region->recorder, value, offset, rank, view.sizes, view.strides, &out), out);
}

dycl_binding dycl_bindings_parts[] = {
    ROW("as_strided", T | M, "input size stride storage_offset", bind_as_strided, 0, 0),
    ROW("broadcast_tensors", T, "*0 " DYCL_SPREAD, bind_broadcast_tensors, 0, 0),
    ROW("chunk", T | M, "input chunks dim", bind_split, 1, 0),
    ROW("split", M, "self split_size dim", bind_split, 0, 0),
    ROW("split", T, "tensor split_size_or_sections dim", bind_split, 0, 0),
    ROW("split_with_sizes", T | M, "input split_sizes dim", bind_split, 2, 0),
    ROW("tensor_split", T | M, "input indices_or_sections dim", bind_tensor_split, 0, 0),
    ROW("unbind", T | M, "input dim", bind_unbind, 0, 0),
    ROW("iter", DYCL_AT_DUNDER, "self", bind_iterate, 0, 0),
    ROW("meshgrid", T, "*0 " DYCL_SPREAD " | indexing", bind_meshgrid, 0, 0),
    {0},
};
