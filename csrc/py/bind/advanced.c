/* x[key] and x[key] = value where the key has tensors or lists of positions at any place: torch's own index operators,
 * on the view that the rest of the key makes. A mask decides about the size of the result: its value is needed. */
#include <string.h>

#include "py/bind/beside.h"
#include "py/bind/bind.h"
#include "py/bind/index.h"
#include "py/bind/hosted.h"

#define MOST_ITEMS 16

typedef struct {
    PyObject *const *items; /* of the key */
    Py_ssize_t count;
    PyObject *positions[MOST_ITEMS]; /* owned: the tensor of an item; NULL: a slice, an integer, None or Ellipsis */
    uint32_t values[MOST_ITEMS];
    int64_t bounds[MOST_ITEMS][2];
    int specified; /* dimensions that the items stand for */
} parsed;

static dycl_status bail(dycl_call *call, dycl_bail why) { return dycl_build_bail(&call->region->recorder, why); }

static void let_go(parsed *k) {
    for (Py_ssize_t i = 0; i < k->count; i++) Py_XDECREF(k->positions[i]);
}

#define MOST_NESTED 4

static int holds_integers(PyObject *o, int depth) {
    if (PyLong_CheckExact(o)) return 1;
    if (depth == MOST_NESTED || !(PyList_CheckExact(o) || PyTuple_CheckExact(o))) return 0;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); i++)
        if (!holds_integers(PySequence_Fast_GET_ITEM(o, i), depth + 1)) return 0;
    return PySequence_Fast_GET_SIZE(o) > 0;
}

static int is_range(PyObject *o) { return Py_IS_TYPE(o, &PyRange_Type) && PyObject_Size(o) > 0; }

static int is_slot(PyObject *o) { return o == Py_None || o == Py_Ellipsis || PySlice_Check(o) || PyLong_CheckExact(o); }

static dycl_status parse(dycl_call *call, PyObject **key, parsed *k) {
    *k = (parsed){.items = key, .count = 1};
    if (PyTuple_CheckExact(*key)) {
        k->items = ((PyTupleObject *)*key)->ob_item;
        k->count = PyTuple_GET_SIZE(*key);
    }
    if (k->count > MOST_ITEMS) {
        k->count = 0;
        return bail(call, DYCL_BAIL_arguments);
    }
    for (Py_ssize_t i = 0; i < k->count; i++) {
        PyObject *o = k->items[i];
        k->specified += o != Py_None && o != Py_Ellipsis;
        if (is_slot(o)) continue;
        if (dycl_is_tensor(o)) {
            k->positions[i] = Py_NewRef(o);
        } else if (is_range(o) || holds_integers(o, o == *key ? MOST_NESTED - 1 : 0)) {
            /* a list of lists alone is a tuple of them */
            k->positions[i] = dycl_beside_run(call->region, dycl_py.make_tensor, &o, 1, NULL, 1);
            if (!k->positions[i]) { /* torch may find another error first */
                if (!PyErr_ExceptionMatches(PyExc_Exception)) return DYCL_ERROR;
                PyErr_Clear();
                return bail(call, DYCL_BAIL_arguments);
            }
        } else {
            return bail(call, DYCL_BAIL_arguments);
        }
    }
    return DYCL_OK;
}

/* The view that is indexed, and the index of each of its first dimensions. A tensor of one integer is a plain integer.
 */
static dycl_status walk(dycl_call *call, const parsed *k, uint32_t self, dycl_index_cursor *c, dycl_hosted_call *h) {
    dycl_value v = *meta(call, self);
    uint32_t at[DYCL_MAX_RANK + 1];
    dycl_status status;
    int last = 0, ellipsis = 0;
    memset(at, 0xff, sizeof at); /* DYCL_NONE */
    *c = (dycl_index_cursor){.rank = v.rank};
    memcpy(c->sizes, v.sizes, sizeof c->sizes);
    memcpy(c->strides, v.strides, sizeof c->strides);
    if (k->specified > v.rank) return bail(call, DYCL_BAIL_index);
    for (Py_ssize_t i = 0; i < k->count; i++) {
        PyObject *o = k->items[i];
        int64_t index;
        if (k->positions[i] && meta(call, k->values[i])->rank > 0) {
            int64_t size = c->sizes[c->dim], *bounds = (int64_t *)k->bounds[i];
            if (bounds[0] <= bounds[1] && (bounds[0] < -size || bounds[1] >= size)) return bail(call, DYCL_BAIL_index);
            at[c->dim++] = k->values[i];
            last = c->dim;
        } else if (k->positions[i]) {
            if (k->bounds[i][0] != k->bounds[i][1]) return bail(call, DYCL_BAIL_index);
            DYCL_TRY(dycl_index_integer(call, c, k->bounds[i][0]));
        } else if (o == Py_None) {
            DYCL_TRY(dycl_index_none(call, c));
        } else if (o == Py_Ellipsis) {
            if (ellipsis++) return bail(call, DYCL_BAIL_arguments);
            c->dim += v.rank - k->specified;
        } else if (PySlice_Check(o)) {
            DYCL_TRY(dycl_index_slice(call, c, o));
        } else {
            DYCL_TRY(dycl_call_int(call, o, &index));
            DYCL_TRY(dycl_index_integer(call, c, index));
        }
    }
    if (last == 0 || 2 + last > DYCL_FORM_OPERANDS) return bail(call, DYCL_BAIL_arguments);
    h->word_count = 0;
    h->operand_count = 1 + last;
    memcpy(h->operands + 1, at, (size_t)last * sizeof *at);
    h->operands[0] = self;
    if (c->offset == 0 && c->rank == v.rank && memcmp(c->sizes, v.sizes, sizeof v.sizes) == 0 &&
        memcmp(c->strides, v.strides, (size_t)v.rank * sizeof *v.strides) == 0)
        return DYCL_OK; /* no view, whose gradient would go back by itself */
    return dycl_build_view(&call->region->recorder, self, c->offset, c->rank, c->sizes, c->strides, &h->operands[0]);
fail:
    return status;
}

static int has_mask(dycl_call *call, const parsed *k) {
    for (Py_ssize_t i = 0; i < k->count; i++) {
        uint32_t value;
        if (!k->positions[i] || dycl_region_value(call->region, k->positions[i], &value) != DYCL_OK) continue;
        if (dtype_of(call, value) == DYCL_BOOL || dtype_of(call, value) == DYCL_U8) return 1;
    }
    return 0;
}

PyObject *dycl_index_advanced(dycl_call *call, const dycl_binding *row) {
    parsed k;
    dycl_index_cursor c;
    dycl_hosted_call h;
    uint32_t self, out = 0;
    PyObject *result = NULL, *key = call->p[1];
    const dycl_form *form;
    dycl_status status = parse(call, &key, &k);
    if (status == DYCL_OK && has_mask(call, &k)) {
        result = dycl_beside_values(call, row);
        goto done;
    }
    if (status == DYCL_OK) status = dycl_index_values(call, (int)k.count, k.positions, 8, k.values, k.bounds);
    if (status == DYCL_OK) status = dycl_call_value(call, call->p[0], &self);
    if (status == DYCL_OK) status = walk(call, &k, self, &c, &h);
    if (status == DYCL_OK) {
        if (!(form = dycl_hosted_known(call, DYCL_OP_aten_index, 0, &h))) goto done;
        status = dycl_hosted_node(call, DYCL_OP_aten_index, 0, form->result[0].dtype, form->result[0].rank,
                                  form->result[0].sizes, form->result[0].strides, &h, &out);
    }
    result = dycl_call_finish(call, status, out);
    if (result) result = dycl_call_written(call, result, form->writes);
done:
    let_go(&k);
    return result;
}

/* What is written, as a tensor of self's dtype. torch looks away from leading dimensions of size 1; such values are
 * left to it. */
static dycl_status value_of(dycl_call *call, PyObject *o, dycl_dtype dtype, uint32_t *out) {
    dycl_recorder *r = &call->region->recorder;
    dycl_operand x;
    dycl_status status;
    if (!dycl_index_takes(o)) return dycl_build_bail(r, DYCL_BAIL_arguments);
    DYCL_TRY(dycl_call_operand(call, o, &x));
    if (x.kind == DYCL_OPERAND_VALUE) {
        const dycl_value *v = meta(call, x.value);
        *out = x.value;
        return v->dtype != dtype || (v->rank > 1 && v->sizes[0] == 1) ? dycl_build_bail(r, DYCL_BAIL_dtype) : DYCL_OK;
    }
    if (x.kind == DYCL_OPERAND_FLOAT && !dycl_dtype_is_float(dtype)) return dycl_build_bail(r, DYCL_BAIL_dtype);
    if (x.kind == DYCL_OPERAND_INT && dtype == DYCL_BOOL) x.i = x.i != 0;
    DYCL_TRY(dycl_build_convert(r, &x, dtype, out));
    return dycl_build_node(r, DYCL_OP_full, 1, out, 0, NULL, out);
fail:
    return status;
}

enum { SET = 1 }; /* variant: of index_put */

/* The new value of self: index_put into the view, which is then put where it lies. Whether torch takes such a call, it
 * has shown once. */
static dycl_status put(dycl_call *call, const parsed *k, uint32_t self, uint32_t *out) {
    dycl_index_cursor c;
    dycl_hosted_call h;
    dycl_status status;
    dycl_value v = *meta(call, self);
    int64_t strides[DYCL_MAX_RANK];
    DYCL_TRY(walk(call, k, self, &c, &h));
    DYCL_TRY(value_of(call, call->p[2], (dycl_dtype)v.dtype, &h.operands[h.operand_count++]));
    h.words[h.word_count++] = 0;
    if (!dycl_hosted_known(call, DYCL_OP_aten_index_put, SET, &h)) return DYCL_BAIL;
    dycl_strides_contiguous(c.rank, c.sizes, strides);
    DYCL_TRY(dycl_hosted_node(call, DYCL_OP_aten_index_put, 0, (dycl_dtype)v.dtype, c.rank, c.sizes, strides, &h, out));
    if (c.rank == v.rank && memcmp(c.sizes, v.sizes, sizeof c.sizes) == 0 &&
        memcmp(strides, v.strides, (size_t)v.rank * sizeof *strides) == 0)
        return DYCL_OK;
    return dycl_build_view_put(&call->region->recorder, self, *out, c.offset, c.rank, c.sizes, c.strides, out);
fail:
    return status;
}

PyObject *dycl_index_put_advanced(dycl_call *call) {
    parsed k;
    uint32_t self, out = 0;
    PyObject *key = call->p[1];
    if (!dycl_is_lazy(call->p[0])) return dycl_call_bail(call, DYCL_BAIL_alias);
    dycl_status status = parse(call, &key, &k);
    if (status == DYCL_OK && has_mask(call, &k)) status = bail(call, DYCL_BAIL_dtype);
    if (status == DYCL_OK) status = dycl_index_values(call, (int)k.count, k.positions, 8, k.values, k.bounds);
    if (status == DYCL_OK && !dycl_index_may_put(call, call->p[0], call->p[2]))
        status = PyErr_Occurred() ? DYCL_ERROR : bail(call, DYCL_BAIL_alias);
    if (status == DYCL_OK) status = dycl_call_value(call, call->p[0], &self);
    if (status == DYCL_OK) status = put(call, &k, self, &out);
    let_go(&k);
    return dycl_call_finish(call, status, out);
}
