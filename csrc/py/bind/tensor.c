/* Properties, conversions and reads of one tensor. What only asks for sizes, strides or dtype records nothing. */
#include <string.h>

#include "ir/infer.h"
#include "py/bind/bind.h"
#include "py/bind/numpy.h"
#include "py/region/replace.h"
#include "py/region/scalar.h"

/* ---- Sizes, strides, dtype */

static dycl_status describe(dycl_call *call, PyObject *o, dycl_value *out) {
    dycl_lazy_meta meta;
    dycl_tensor_view view;
    memset(out, 0, sizeof *out);
    if (o && dycl_is_lazy(o)) {
        if (dycl_lazy_describe(o, &meta) < 0) return DYCL_ERROR;
    } else {
        PyTypeObject *type = o ? Py_TYPE(o) : NULL;
        if (!type || (type != dycl_py.tensor_type && type != dycl_py.parameter_type && type != dycl_py.buffer_type))
            return dycl_build_bail(&call->region->recorder, DYCL_BAIL_subclass);
        if (!dycl_abi_is_plain(dycl_abi_impl(o)) || !dycl_abi_read(dycl_abi_borrow(o), &view))
            return dycl_build_bail(&call->region->recorder, DYCL_BAIL_layout);
        meta = (dycl_lazy_meta){view.dtype, view.rank, view.sizes, view.strides};
    }
    out->dtype = (uint8_t)meta.dtype;
    out->rank = (uint8_t)meta.rank;
    memcpy(out->sizes, meta.sizes, (size_t)meta.rank * sizeof *meta.sizes);
    memcpy(out->strides, meta.strides, (size_t)meta.rank * sizeof *meta.strides);
    return DYCL_OK;
}

static PyObject *size(dycl_call *call, const dycl_binding *row) { /* op 1: stride */
    dycl_value v;
    int dim;
    DYCL_CALL_TRY(describe(call, call->p[0], &v));
    if (dycl_call_given(call->p[1])) {
        if (v.rank == 0) return dycl_call_bail(call, DYCL_BAIL_shape);
        DYCL_CALL_TRY(dycl_call_dim(call, call->p[1], v.rank, &dim));
        return PyLong_FromLongLong(row->op ? v.strides[dim] : v.sizes[dim]);
    }
    return row->op ? dycl_py_ints(v.rank, v.strides) : dycl_size_object(v.rank, v.sizes);
}

enum { RANK, NUMEL, ELEMENT_SIZE, IS_FLOAT, IS_SIGNED, NO, CPU_ORDINAL };

static PyObject *property(dycl_call *call, const dycl_binding *row) {
    dycl_value v;
    DYCL_CALL_TRY(describe(call, call->p[0], &v));
    switch (row->op) {
    case RANK: return PyLong_FromLong(v.rank);
    case NUMEL: return PyLong_FromLongLong(dycl_value_numel(&v));
    case ELEMENT_SIZE: return PyLong_FromSize_t(dycl_dtype_size((dycl_dtype)v.dtype));
    case IS_FLOAT: return PyBool_FromLong(dycl_dtype_is_float((dycl_dtype)v.dtype));
    case IS_SIGNED: return PyBool_FromLong(v.dtype != DYCL_U8 && v.dtype != DYCL_BOOL);
    case CPU_ORDINAL: return PyLong_FromLong(-1);
    default: Py_RETURN_FALSE;
    }
}

static PyObject *is_contiguous(dycl_call *call, const dycl_binding *row) {
    dycl_value v;
    (void)row;
    if (call->p[1] && call->p[1] != dycl_py.contiguous_format && call->p[1] != dycl_py.channels_last)
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(describe(call, call->p[0], &v));
    if (call->p[1] != dycl_py.channels_last) return PyBool_FromLong(dycl_value_contiguous(&v));
    static const int order[4] = {1, 3, 2, 0};
    int64_t expected = 1;
    int yes = v.rank == 4;
    for (int i = 0; yes && i < 4; i++) {
        if (v.sizes[order[i]] == 1) continue;
        yes = v.strides[order[i]] == expected;
        expected *= v.sizes[order[i]];
    }
    if (yes && expected == 0) return dycl_call_bail(call, DYCL_BAIL_shape);
    return PyBool_FromLong(yes);
}

static PyObject *is_same_size(dycl_call *call, const dycl_binding *row) {
    dycl_value a, b;
    (void)row;
    DYCL_CALL_TRY(describe(call, call->p[0], &a));
    DYCL_CALL_TRY(describe(call, call->p[1], &b));
    return PyBool_FromLong(a.rank == b.rank && memcmp(a.sizes, b.sizes, sizeof a.sizes) == 0);
}

static PyObject *length(dycl_call *call, const dycl_binding *row) {
    dycl_value v;
    (void)row;
    DYCL_CALL_TRY(describe(call, call->p[0], &v));
    return v.rank ? PyLong_FromLongLong(v.sizes[0]) : dycl_call_bail(call, DYCL_BAIL_shape);
}

/* ---- Conversions: the operand itself when there is nothing to do */

static PyObject *convert(dycl_call *call, PyObject *self, PyObject *dtype_object, int copy, int rows) {
    uint32_t value, out = 0;
    dycl_dtype dtype;
    const int64_t format = !rows; /* of a copy: contiguous, or the operand's */
    DYCL_CALL_TRY(dycl_call_value(call, self, &value));
    dycl_dtype own = (dycl_dtype)dycl_call_meta(call, value)->dtype;
    DYCL_CALL_TRY(dycl_call_dtype_or(call, dtype_object, own, &dtype));
    if (dtype != own) {
        dycl_status status = dycl_build_cast(&call->region->recorder, value, dtype, &out);
        if (status == DYCL_OK && rows && !dycl_call_meta(call, out)->canonical)
            status = dycl_build_node(&call->region->recorder, DYCL_OP_contiguous, 1, &out, 1, &format, &out);
        return dycl_call_finish(call, status, out);
    }
    copy |= rows && dycl_value_channels_last(dycl_call_meta(call, value)); /* torch asks what the strides suggest */
    if (!copy) return dycl_call_same(call, self);
    return dycl_call_finish(
        call, dycl_build_node(&call->region->recorder, DYCL_OP_contiguous, 1, &value, 1, &format, &out), out);
}

/* to(dtype, non_blocking, copy), to(device, dtype, non_blocking, copy), to(other, non_blocking, copy) */
static PyObject *to(dycl_call *call, const dycl_binding *row) {
    enum { DTYPE = 5, DEVICE, OTHER, NON_BLOCKING, COPY, FORMAT };
    PyObject *dtype = call->p[DTYPE], *device = call->p[DEVICE], *other = call->p[OTHER],
             *flags[2] = {call->p[NON_BLOCKING], call->p[COPY]};
    PyObject *format = call->p[FORMAT];
    int next = 1, flag = 0, copy;
    (void)row;
    const int rows = format == dycl_py.contiguous_format;
    if (dycl_call_given(format) && format != dycl_py.preserve_format && !rows)
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    PyObject *first = call->p[1];
    if (first) {
        next = 2;
        if (Py_TYPE(first) == dycl_py.dtype_type && !dtype && !device && !other) {
            dtype = first;
        } else if (dycl_is_tensor(first) && !dtype && !device && !other) {
            other = first;
        } else if ((first == Py_None || dycl_py_is_cpu(first)) && !device && !other) {
            device = first;
            if (call->p[2] && (Py_TYPE(call->p[2]) == dycl_py.dtype_type || call->p[2] == Py_None) && !dtype)
                dtype = call->p[next++];
        } else {
            return dycl_call_bail(call, DYCL_BAIL_arguments);
        }
        for (; next < DTYPE && call->p[next]; next++) {
            if (flag == 2 || flags[flag]) return dycl_call_bail(call, DYCL_BAIL_arguments);
            flags[flag++] = call->p[next];
        }
    }
    if (device && device != Py_None && !dycl_py_is_cpu(device)) return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (flags[0] && !PyBool_Check(flags[0])) return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(dycl_call_bool_or(call, flags[1], 0, &copy));
    if (other) {
        dycl_value v;
        if (dtype || device) return dycl_call_bail(call, DYCL_BAIL_arguments);
        DYCL_CALL_TRY(describe(call, other, &v));
        dtype = dycl_py.dtypes[v.dtype];
    }
    return convert(call, call->p[0], dtype, copy, rows);
}

static PyObject *type(dycl_call *call, const dycl_binding *row) {
    static const char *const names[DYCL_DTYPE_COUNT] = {
        [DYCL_F32] = "torch.FloatTensor", [DYCL_F64] = "torch.DoubleTensor", [DYCL_I64] = "torch.LongTensor",
        [DYCL_I32] = "torch.IntTensor",   [DYCL_I16] = "torch.ShortTensor",  [DYCL_I8] = "torch.CharTensor",
        [DYCL_U8] = "torch.ByteTensor",   [DYCL_BOOL] = "torch.BoolTensor",  [DYCL_BF16] = "torch.BFloat16Tensor",
        [DYCL_F16] = "torch.HalfTensor"};
    dycl_value v;
    (void)row;
    if (dycl_call_given(call->p[2])) return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (dycl_call_given(call->p[1])) {
        if (Py_TYPE(call->p[1]) != dycl_py.dtype_type) return dycl_call_bail(call, DYCL_BAIL_arguments);
        return convert(call, call->p[0], call->p[1], 0, 0);
    }
    DYCL_CALL_TRY(describe(call, call->p[0], &v));
    return PyUnicode_FromString(names[v.dtype]);
}

static PyObject *type_as(dycl_call *call, const dycl_binding *row) {
    dycl_value v;
    (void)row;
    DYCL_CALL_TRY(describe(call, call->p[1], &v));
    return convert(call, call->p[0], dycl_py.dtypes[v.dtype], 0, 0);
}

static PyObject *same(dycl_call *call,
                      const dycl_binding *row) { /* cpu(), resolve_conj(): nothing to do for what we represent */
    dycl_value v;
    if (row->parameter_count > 1 && dycl_call_given(call->p[1]) && call->p[1] != dycl_py.preserve_format)
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(describe(call, call->p[0], &v));
    return dycl_call_same(call, call->p[0]);
}

static PyObject *requires_grad(dycl_call *call, const dycl_binding *row) {
    (void)row;
    if (!call->p[0] || !dycl_is_lazy(call->p[0]) || call->p[1] != Py_False || /* of what has a history: an error */
        dycl_region_needs_gradient(call->p[0]) != 0)
        return PyErr_Occurred() ? NULL : dycl_call_bail(call, DYCL_BAIL_grad);
    return dycl_call_same(call, call->p[0]);
}

/* ---- Values */

static dycl_status element_of(dycl_call *call, PyObject *o, dycl_element *out) {
    dycl_value v;
    dycl_tensor_view view;
    dycl_status status = describe(call, o, &v);
    if (status != DYCL_OK) return status;
    if (dycl_is_lazy(o)) {
        int known = dycl_scalar_read(o, out);
        return known < 0 ? DYCL_ERROR : known ? DYCL_OK : dycl_build_bail(&call->region->recorder, DYCL_BAIL_shape);
    }
    if (dycl_replace_settle(call->region, o) < 0) return DYCL_ERROR;
    if (dycl_value_numel(&v) != 1 || !dycl_abi_read(dycl_abi_borrow(o), &view))
        return dycl_build_bail(&call->region->recorder, DYCL_BAIL_shape);
    out->dtype = view.dtype;
    memset(&out->value, 0, sizeof out->value);
    memcpy(&out->value, view.data, dycl_dtype_size(view.dtype));
    return DYCL_OK;
}

static PyObject *known_or_bail(dycl_call *call, PyObject *result) {
    return result || PyErr_Occurred() ? result : dycl_call_bail(call, DYCL_BAIL_fetch);
}

enum { ITEM, TRUTH, AS_FLOAT, AS_INT, AS_INDEX };

static PyObject *read_element(dycl_call *call, const dycl_binding *row) {
    dycl_element element;
    if (row->op != ITEM && row->op != TRUTH && dycl_region_needs_gradient(call->p[0]) != 0) /* torch warns */
        return PyErr_Occurred() ? NULL : dycl_call_bail(call, DYCL_BAIL_grad);
    DYCL_CALL_TRY(element_of(call, call->p[0], &element));
    switch (row->op) {
    case ITEM: return known_or_bail(call, dycl_element_object(&element));
    case TRUTH: return PyBool_FromLong(dycl_element_is_true(&element));
    case AS_FLOAT: return known_or_bail(call, dycl_element_float(&element));
    case AS_INT: return known_or_bail(call, dycl_element_int(&element));
    default: return known_or_bail(call, dycl_element_index(&element));
    }
}

static PyObject *nested(const dycl_tensor_view *view, int dim, const char *data) {
    size_t width = dycl_dtype_size(view->dtype);
    if (dim == view->rank) {
        dycl_element element = {.dtype = view->dtype};
        memcpy(&element.value, data, width);
        return dycl_element_object(&element);
    }
    PyObject *list = PyList_New((Py_ssize_t)view->sizes[dim]);
    for (int64_t i = 0; list && i < view->sizes[dim]; i++) {
        PyObject *o = nested(view, dim + 1, data + i * view->strides[dim] * (int64_t)width);
        if (!o)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, o);
    }
    return list;
}

static PyObject *tolist(dycl_call *call, const dycl_binding *row) {
    dycl_value v;
    dycl_tensor_view view;
    PyObject *self = call->p[0];
    (void)row;
    DYCL_CALL_TRY(describe(call, self, &v));
    int lazy = dycl_is_lazy(self);
    if (dycl_replace_settle(call->region, self) < 0) return NULL;
    if (lazy && dycl_region_compute(self, DYCL_BAIL_fetch) < 0) return NULL;
    if (lazy && !dycl_is_lazy(self))
        return dycl_call_bail(call, DYCL_BAIL_thread); /* another thread made it plain while we waited */
    dycl_handle held = dycl_abi_copy_handle(lazy ? dycl_lazy_of(self)->real : dycl_abi_borrow(self));
    if (!held) return PyErr_NoMemory(); /* who makes lists may run a finalizer that writes to the tensor */
    PyObject *result = dycl_abi_read(held, &view) ? nested(&view, 0, view.data) : dycl_call_bail(call, DYCL_BAIL_fetch);
    dycl_abi_delete(held);
    return result;
}

dycl_binding dycl_bindings_tensor[] = {
    ROW("size", M, "self dim", size, 0),
    ROW("stride", M, "self dim", size, 1),
    ROW("dim", M, "self", property, RANK),
    ROW("ndimension", M, "self", property, RANK),
    ROW("numel", T | M, "input", property, NUMEL),
    ROW("nelement", M, "self", property, NUMEL),
    ROW("element_size", M, "self", property, ELEMENT_SIZE),
    ROW("is_floating_point", T | M, "input", property, IS_FLOAT),
    ROW("is_signed", T | M, "input", property, IS_SIGNED),
    ROW("is_complex", T | M, "input", property, NO),
    ROW("is_conj", T | M, "input", property, NO),
    ROW("is_neg", T | M, "input", property, NO),
    ROW("get_device", M, "self", property, CPU_ORDINAL),
    ROW("is_contiguous", M, "self memory_format", is_contiguous, 0),
    ROW("is_same_size", T | M, "input other", is_same_size, 0),
    ROW("len", D, "self", length, 0),
    ROW("to", M, "self *1 *2 *3 *4 | dtype device tensor non_blocking copy memory_format", to, 0),
    ROW("type", M, "self dtype non_blocking", type, 0),
    ROW("type_as", M, "self other", type_as, 0),
    ROW("cpu", M, "self memory_format", same, 0),
    ROW("resolve_conj", T | M, "input", same, 0),
    ROW("resolve_neg", T | M, "input", same, 0),
    ROW("requires_grad", DYCL_AT_INPLACE, "self requires_grad", requires_grad, 0),
    ROW("item", M, "self", read_element, ITEM),
    ROW("bool", D, "self", read_element, TRUTH),
    ROW("is_nonzero", T | M, "input", read_element, TRUTH),
    ROW("float", D, "self", read_element, AS_FLOAT),
    ROW("int", D, "self", read_element, AS_INT),
    ROW("index", D, "self", read_element, AS_INDEX),
    ROW("tolist", M, "self", tolist, 0),
    ROW("numpy", M, "self | force", dycl_bind_numpy, 0),
    ROW("array", D, "self dtype", dycl_bind_numpy, 1),
    {0},
};
