/* x[key]: slices, integers, and index tensors that stand together. */
#include "py/bind/index.h"

#include <string.h>

#include "ir/infer.h"
#include "py/bind/bind.h"
#include "py/bind/view.h"

typedef dycl_index_cursor cursor;

dycl_status dycl_index_integer(dycl_call *call, cursor *c, int64_t index) {
    if (c->dim >= c->rank || index < -c->sizes[c->dim] || index >= c->sizes[c->dim])
        return dycl_build_bail(&call->region->recorder, DYCL_BAIL_index);
    if (index < 0) index += c->sizes[c->dim];
    c->offset += index * c->strides[c->dim];
    for (int i = c->dim; i + 1 < c->rank; i++) {
        c->sizes[i] = c->sizes[i + 1];
        c->strides[i] = c->strides[i + 1];
    }
    c->rank--;
    return DYCL_OK;
}

static int is_bound(PyObject *o) { return o == Py_None || PyLong_CheckExact(o); }

dycl_status dycl_index_slice(dycl_call *call, cursor *c, PyObject *o) {
    const PySliceObject *slice = (const PySliceObject *)o;
    Py_ssize_t start, stop, step;
    dycl_recorder *r = &call->region->recorder;
    if (c->dim >= c->rank) return dycl_build_bail(r, DYCL_BAIL_shape);
    if (!is_bound(slice->start) || !is_bound(slice->stop) || !is_bound(slice->step))
        return dycl_build_bail(r, DYCL_BAIL_arguments);
    if (PySlice_Unpack(o, &start, &stop, &step) < 0) {
        PyErr_Clear();
        return dycl_build_bail(r, DYCL_BAIL_arguments);
    }
    /* torch warns about bounds out of range, and raises where a stride is */
    if (step < 1 || step > INT32_MAX || start <= -PY_SSIZE_T_MAX || stop <= -PY_SSIZE_T_MAX)
        return dycl_build_bail(r, DYCL_BAIL_arguments);
    int64_t size = c->sizes[c->dim], first = start, last = stop;
    if (first < 0) first = first + size < 0 ? 0 : first + size;
    if (first > size) first = size;
    if (last < 0) last += size;
    if (last < first) last = first;
    if (last > size) last = size;
    c->offset += first * c->strides[c->dim];
    c->sizes[c->dim] = last > first ? (last - first - 1) / step + 1 : 0;
    c->strides[c->dim] *= step;
    c->dim++;
    return DYCL_OK;
}

dycl_status dycl_index_none(dycl_call *call, cursor *c) {
    if (c->rank == DYCL_MAX_RANK) return dycl_build_bail(&call->region->recorder, DYCL_BAIL_rank);
    for (int i = c->rank; i > c->dim; i--) {
        c->sizes[i] = c->sizes[i - 1];
        c->strides[i] = c->strides[i - 1];
    }
    c->strides[c->dim] = c->dim < c->rank ? c->sizes[c->dim + 1] * c->strides[c->dim + 1] : 1;
    c->sizes[c->dim] = 1;
    c->rank++;
    c->dim++;
    return DYCL_OK;
}

#define MOST_INDICES 24

#define MOST_INDEX_TENSORS 4

typedef struct {
    int count, dim;                        /* dim: of the first; the others follow it */
    PyObject *tensors[MOST_INDEX_TENSORS]; /* borrowed */
    uint32_t values[MOST_INDEX_TENSORS];
    int64_t bounds[MOST_INDEX_TENSORS][2];
} index_set;

/* Whether torch's iterator gives x[i, j, ...] the ordinary strides (ATen/native/TensorAdvancedIndexing.cpp,
 * AdvancedIndex): its operands are x with strides of 0 at the dimensions with an index, and each index with dimensions
 * of 1 at the others. */
static int has_plain_strides(dycl_call *call, const dycl_value *v, const index_set *set, const dycl_value *rows) {
    dycl_value operands[1 + MOST_INDEX_TENSORS], out = {.rank = (uint8_t)(v->rank - set->count + rows->rank)};
    const dycl_value *pointers[1 + MOST_INDEX_TENSORS];
    int64_t plain[DYCL_MAX_RANK], shape[DYCL_MAX_RANK];
    int rank = 0;
    memset(operands, 0, sizeof operands);
    for (int i = 0; i < set->dim; i++, rank++) {
        operands[0].strides[rank] = v->strides[i];
        out.sizes[rank] = v->sizes[i];
    }
    for (int i = 0; i < rows->rank; i++, rank++) out.sizes[rank] = rows->sizes[i];
    for (int i = set->dim + set->count; i < v->rank; i++, rank++) {
        operands[0].strides[rank] = v->strides[i];
        out.sizes[rank] = v->sizes[i];
    }
    if (rank > 1 && dycl_value_numel(&out) == 0) return 0; /* strides of 0, whatever their order */
    for (int i = 0; i < rank; i++) shape[i] = i >= set->dim && i < set->dim + rows->rank ? out.sizes[i] : 1;
    memcpy(operands[0].sizes, out.sizes, sizeof out.sizes);
    operands[0].rank = out.rank;
    pointers[0] = &operands[0];
    for (int k = 0; k < set->count; k++) {
        const dycl_value *index = dycl_call_meta(call, set->values[k]);
        dycl_value wide = *rows, *operand = &operands[1 + k];
        for (int i = 0; i < rows->rank; i++) {
            int from = i - (rows->rank - index->rank);
            wide.strides[i] = from < 0 || (index->sizes[from] == 1 && rows->sizes[i] != 1) ? 0 : index->strides[from];
        }
        operand->rank = out.rank;
        memcpy(operand->sizes, shape, sizeof shape);
        if (!dycl_view_strides(&wide, out.rank, shape, operand->strides)) return 0;
        pointers[1 + k] = operand;
    }
    dycl_infer_iterator_strides(&out, 1 + set->count, pointers);
    dycl_strides_contiguous(out.rank, out.sizes, plain);
    return memcmp(plain, out.strides, (size_t)out.rank * sizeof *plain) == 0;
}

/* x[i, j, ...] for index tensors at consecutive dimensions: their common dimensions stand where those were. */
static PyObject *select_rows(dycl_call *call, uint32_t value, const index_set *set) {
    dycl_recorder *r = &call->region->recorder;
    dycl_value v = *dycl_call_meta(call, value);
    int64_t sizes[2 * DYCL_MAX_RANK], attr = set->dim, merged = 1;
    uint32_t operands[2] = {value, DYCL_NONE}, out = 0;
    int rank = 0, after = set->dim + set->count;
    for (int i = 0; i < set->count; i++) {
        int64_t size = v.sizes[set->dim + i];
        uint32_t index;
        DYCL_CALL_TRY(dycl_index_from_start(call, set->values[i], set->bounds[i], size, &index));
        merged *= size;
        if (i == 0) {
            operands[1] = index;
            continue;
        }
        dycl_operand row[2] = {dycl_operand_of(operands[1]), dycl_operand_i64(size)},
                     sum[2] = {dycl_operand_of(0), dycl_operand_of(index)};
        DYCL_CALL_TRY(dycl_build_cast(r, row[0].value, DYCL_I64, &row[0].value));
        DYCL_CALL_TRY(dycl_build_ew(r, DYCL_OP_mul, DYCL_PROMOTE_COMMON, 2, row, &sum[0].value));
        DYCL_CALL_TRY(dycl_build_ew(r, DYCL_OP_add, DYCL_PROMOTE_COMMON, 2, sum, &operands[1]));
    }
    dycl_value rows = *dycl_call_meta(call, operands[1]);
    int64_t count = dycl_value_numel(&rows);
    if (v.rank - set->count + rows.rank > DYCL_MAX_RANK || !has_plain_strides(call, &v, set, &rows))
        return dycl_call_bail(call, DYCL_BAIL_layout);
    if (set->count > 1) {
        for (int i = 0; i < set->dim; i++) sizes[rank++] = v.sizes[i];
        sizes[rank++] = merged;
        for (int i = after; i < v.rank; i++) sizes[rank++] = v.sizes[i];
        DYCL_CALL_TRY(dycl_build_reshape(r, operands[0], rank, sizes, 0, &operands[0]));
    }
    if (set->dim == 0) {
        int64_t no_padding = -1;
        return dycl_call_finish(call, dycl_build_node(r, DYCL_OP_embedding, 2, operands, 1, &no_padding, &out), out);
    }
    if (rows.rank != 1) DYCL_CALL_TRY(dycl_build_reshape(r, operands[1], 1, &count, 0, &operands[1]));
    DYCL_CALL_TRY(dycl_build_node(r, DYCL_OP_index_select, 2, operands, 1, &attr, &out));
    if (rows.rank == 1) return dycl_call_finish(call, DYCL_OK, out);
    rank = 0;
    for (int i = 0; i < set->dim; i++) sizes[rank++] = v.sizes[i];
    for (int i = 0; i < rows.rank; i++) sizes[rank++] = rows.sizes[i];
    for (int i = after; i < v.rank; i++) sizes[rank++] = v.sizes[i];
    return dycl_call_finish(call, dycl_build_reshape(r, out, rank, sizes, 1, &out), out);
}

/* The view that a key's slices, integers, None and Ellipsis make; an index tensor leaves its dimension, or is an
 * integer, too. */
static dycl_status walk(dycl_call *call, const dycl_value *v, PyObject *const *items, Py_ssize_t count, int specified,
                        int integers, index_set *set, cursor *c) {
    dycl_recorder *r = &call->region->recorder;
    dycl_status status;
    int ellipsis = 0, at = 0;
    if (specified > v->rank) return dycl_build_bail(r, DYCL_BAIL_index);
    *c = (cursor){.rank = v->rank};
    memcpy(c->sizes, v->sizes, sizeof c->sizes);
    memcpy(c->strides, v->strides, sizeof c->strides);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (items[i] == Py_None) {
            DYCL_TRY(dycl_index_none(call, c));
        } else if (items[i] == Py_Ellipsis) {
            if (ellipsis++) return dycl_build_bail(r, DYCL_BAIL_arguments);
            c->dim += v->rank - specified;
        } else if (PySlice_Check(items[i])) {
            DYCL_TRY(dycl_index_slice(call, c, items[i]));
        } else if (PyLong_CheckExact(items[i])) {
            int64_t index;
            DYCL_TRY(dycl_call_int(call, items[i], &index));
            DYCL_TRY(dycl_index_integer(call, c, index));
        } else if (integers) {
            DYCL_TRY(dycl_index_integer(call, c, set->bounds[at++][0]));
        } else {
            if (at++ == 0) set->dim = c->dim;
            c->dim++;
        }
    }
    return DYCL_OK;
fail:
    return status;
}

static int is_slot(PyObject *o) { return o == Py_None || o == Py_Ellipsis || PySlice_Check(o) || PyLong_CheckExact(o); }

/* A slice that takes everything is left out by torch where it stands in a tuple. */
static dycl_way_back takes_back(const dycl_call *call, uint32_t value, PyObject *const *items, Py_ssize_t count,
                                const cursor *c) {
    const dycl_value *v = dycl_call_meta(call, value);
    int same = c->rank == v->rank && c->offset == 0, adds = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        adds |= items[i] == Py_None;
        if ((!PySlice_Check(items[i]) || items == &call->p[1]) && items[i] != Py_None && items[i] != Py_Ellipsis)
            return DYCL_BACK_OWN;
    }
    if (adds) return DYCL_BACK_VIEW; /* parts of something larger are put into zeros in any case */
    for (int d = 0; d < v->rank && same; d++) same = c->sizes[d] == v->sizes[d] && c->strides[d] == v->strides[d];
    return same ? DYCL_BACK_SAME : DYCL_BACK_OWN;
}

static PyObject *simple(dycl_call *call) {
    PyObject *key = call->p[1], *const *items = &call->p[1];
    Py_ssize_t count = 1, last_tensor = -1;
    int specified = 0, integers = 1;
    uint32_t value, out = 0;
    dycl_recorder *r = &call->region->recorder;
    index_set set = {0};
    cursor c;
    if (!key) return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (PyTuple_CheckExact(key)) {
        items = ((PyTupleObject *)key)->ob_item;
        count = PyTuple_GET_SIZE(key);
    }
    if (count > MOST_INDICES) return dycl_call_bail(call, DYCL_BAIL_arguments);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (dycl_is_tensor(items[i])) {
            if (set.count == MOST_INDEX_TENSORS || (set.count && last_tensor != i - 1))
                return dycl_call_bail(call, DYCL_BAIL_arguments);
            set.tensors[set.count++] = items[i];
            last_tensor = i;
        } else if (!is_slot(items[i])) {
            return dycl_call_bail(call, DYCL_BAIL_arguments);
        }
        specified += items[i] != Py_None && items[i] != Py_Ellipsis;
    }
    if (set.count) {
        DYCL_CALL_TRY(dycl_index_values(call, set.count, set.tensors, MOST_INDEX_TENSORS, set.values,
                                        set.bounds)); /* first, because it may begin a new segment */
        integers = dycl_call_meta(call, set.values[0])->rank ==
                   0; /* a tensor of one integer is a plain index, of which a view is made */
        for (int i = 0; i < set.count; i++) {
            if ((dycl_call_meta(call, set.values[i])->rank == 0) != integers)
                return dycl_call_bail(call, DYCL_BAIL_arguments);
            if (integers && set.bounds[i][0] != set.bounds[i][1]) return dycl_call_bail(call, DYCL_BAIL_index);
        }
    }
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    DYCL_CALL_TRY(walk(call, dycl_call_meta(call, value), items, count, specified, integers, &set, &c));
    if (integers) {
        dycl_call_back(call, takes_back(call, value, items, count, &c));
        return dycl_call_finish(call, dycl_build_view(r, value, c.offset, c.rank, c.sizes, c.strides, &out), out);
    }
    if (count > set.count) DYCL_CALL_TRY(dycl_build_view(r, value, c.offset, c.rank, c.sizes, c.strides, &value));
    return select_rows(call, value, &set);
}

/* Forms of indices that the operators above do not have are torch's index operator, on a view. */
static PyObject *getitem(dycl_call *call, const dycl_binding *row) {
    PyObject *result = simple(call);
    if (result || PyErr_Occurred()) return result;
    dycl_bail why = call->region->recorder.why;
    if (!call->p[1] ||
        (why != DYCL_BAIL_arguments && why != DYCL_BAIL_dtype && why != DYCL_BAIL_layout && why != DYCL_BAIL_shape))
        return NULL;
    return dycl_index_advanced(call, row);
}

dycl_status dycl_index_view(dycl_call *call, PyObject *key, const dycl_value *v, int64_t *out_offset, dycl_value *out) {
    PyObject *const *items = &key;
    Py_ssize_t count = 1;
    int specified = 0;
    cursor c;
    if (PyTuple_CheckExact(key)) {
        items = ((PyTupleObject *)key)->ob_item;
        count = PyTuple_GET_SIZE(key);
    }
    if (count > MOST_INDICES) return dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!is_slot(items[i])) return dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
        specified += items[i] != Py_None && items[i] != Py_Ellipsis;
    }
    dycl_status status = walk(call, v, items, count, specified, 1, NULL, &c);
    if (status != DYCL_OK) return status;
    *out_offset = c.offset;
    memset(out, 0, sizeof *out);
    out->dtype = v->dtype;
    out->rank = (uint8_t)c.rank;
    memcpy(out->sizes, c.sizes, (size_t)c.rank * sizeof *c.sizes);
    memcpy(out->strides, c.strides, (size_t)c.rank * sizeof *c.strides);
    return DYCL_OK;
}

dycl_binding dycl_bindings_index[] = {
    ROW("getitem", D, "self key", getitem),
    {0},
};
