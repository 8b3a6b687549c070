/* Tensors made from nothing: arange, zeros, full and their like. Inside a region the default dtype is float32 and the
 * device is the CPU. */
#include <math.h>
#include <string.h>

#include "py/bind/beside.h"
#include "py/bind/bind.h"
#include "py/bind/view.h"
#include "py/bind/numpy.h"

/* ---- dtype, layout, device, pin_memory, requires_grad, memory_format: in this order at parameter `first` */

#define OPTIONS "dtype layout device pin_memory requires_grad"

static dycl_status options(dycl_call *call, int first, dycl_dtype fallback, dycl_dtype *out_dtype) {
    PyObject *layout = call->p[first + 1], *device = call->p[first + 2], *pinned = call->p[first + 3],
             *grad = call->p[first + 4];
    if ((dycl_call_given(layout) && layout != dycl_py.strided_layout) ||
        (dycl_call_given(device) && !dycl_py_is_cpu(device)) || (dycl_call_given(pinned) && pinned != Py_False) ||
        (dycl_call_given(grad) && grad != Py_False))
        return dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
    return dycl_call_dtype_or(call, call->p[first], fallback, out_dtype);
}

/* ---- Constant tensors */

static dycl_status scalar_of(dycl_call *call, PyObject *o, dycl_operand *out) { /* a Python number, no tensor */
    if (!o || !(PyFloat_CheckExact(o) || PyLong_CheckExact(o) || PyBool_Check(o)))
        return dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
    return dycl_call_operand(call, o, out);
}

static PyObject *fill(dycl_call *call, const dycl_operand *scalar, dycl_dtype dtype, int rank, const int64_t *sizes) {
    dycl_recorder *r = &call->region->recorder;
    dycl_operand value = *scalar;
    uint32_t operand, out = 0;
    if (value.kind == DYCL_OPERAND_FLOAT && dtype == DYCL_F32 && isfinite(value.f) && !isfinite((float)value.f))
        return dycl_call_bail(call, DYCL_BAIL_arguments); /* torch: value cannot be converted without overflow */
    if (dtype == DYCL_BOOL && value.kind == DYCL_OPERAND_INT) value.i = value.i != 0;
    DYCL_CALL_TRY(dycl_build_convert(r, &value, dtype, &operand));
    dycl_status status = dycl_build_node(r, DYCL_OP_full, 1, &operand, rank, sizes, &out);
    if (status == DYCL_OK && dtype == DYCL_I64) dycl_recorder_bound(r, out, value.i, value.i);
    return dycl_call_finish(call, status, out);
}

/* zeros, ones (op: the value): sizes at p[0] or spread; options follow */
static PyObject *constant(dycl_call *call, const dycl_binding *row) {
    dycl_dtype dtype;
    int rank = 0;
    int64_t sizes[DYCL_MAX_RANK];
    dycl_operand value = dycl_operand_i64(row->op);
    DYCL_CALL_TRY(options(call, 9, dycl_default_dtype, &dtype));
    DYCL_CALL_TRY(dycl_call_spread(call, 0, &rank, sizes));
    return fill(call, &value, dtype, rank, sizes);
}

static PyObject *full(dycl_call *call, const dycl_binding *row) {
    dycl_dtype dtype;
    int rank = 0;
    int64_t sizes[DYCL_MAX_RANK];
    dycl_operand value;
    (void)row;
    DYCL_CALL_TRY(dycl_call_sequence(call, call->p[0], &rank, sizes));
    DYCL_CALL_TRY(scalar_of(call, call->p[1], &value));
    DYCL_CALL_TRY(options(call, 2, dycl_number_dtype(&value), &dtype));
    return fill(call, &value, dtype, rank, sizes);
}

/* zeros_like, ones_like, full_like: op 0, 1, or 2 with the value at p[1] */
static PyObject *record_like(dycl_call *call, const dycl_binding *row) {
    dycl_dtype dtype;
    uint32_t value;
    int first = row->op == 2 ? 2 : 1;
    int64_t strides[DYCL_MAX_RANK];
    dycl_operand scalar = dycl_operand_i64(row->op);
    PyObject *format = call->p[first + 5];
    if (row->op == 2) DYCL_CALL_TRY(scalar_of(call, call->p[1], &scalar));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    dycl_value v = *dycl_call_meta(call, value);
    DYCL_CALL_TRY(options(call, first, (dycl_dtype)v.dtype, &dtype));
    if (format != dycl_py.contiguous_format) { /* the operand's strides, which `full` does not give unless they are the
                                                  ordinary ones */
        if (dycl_call_given(format) && format != dycl_py.preserve_format)
            return dycl_call_bail(call, DYCL_BAIL_arguments);
        dycl_strides_contiguous(v.rank, v.sizes, strides);
        if (memcmp(strides, v.strides, (size_t)v.rank * sizeof *strides)) return dycl_call_bail(call, DYCL_BAIL_layout);
    }
    return fill(call, &scalar, dtype, v.rank, v.sizes);
}

/* x.new_zeros, x.new_ones (sizes may be spread), x.new_full(size, value) */
static PyObject *record_new(dycl_call *call, const dycl_binding *row) {
    dycl_dtype dtype;
    uint32_t value;
    int rank = 0, first = row->op == 2 ? 3 : 10;
    int64_t sizes[DYCL_MAX_RANK];
    dycl_operand scalar = dycl_operand_i64(row->op);
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    DYCL_CALL_TRY(options(call, first, (dycl_dtype)dycl_call_meta(call, value)->dtype, &dtype));
    if (row->op == 2) {
        DYCL_CALL_TRY(dycl_call_sequence(call, call->p[1], &rank, sizes));
        DYCL_CALL_TRY(scalar_of(call, call->p[2], &scalar));
    } else {
        DYCL_CALL_TRY(dycl_call_spread(call, 1, &rank, sizes));
    }
    return fill(call, &scalar, dtype, rank, sizes);
}

/* Other strides, dtypes and formats than `full` gives: torch makes them, for which no value has to be known. */
static PyObject *like(dycl_call *call, const dycl_binding *row) {
    PyObject *result = record_like(call, row);
    return result || PyErr_Occurred() ? result : dycl_beside_like(call, row);
}

static PyObject *new_constant(dycl_call *call, const dycl_binding *row) {
    PyObject *result = record_new(call, row);
    return result || PyErr_Occurred() ? result : dycl_beside_like(call, row);
}

/* empty, empty_like, new_empty: any contents will do, unless torch.use_deterministic_algorithms(True) fills them. */
static PyObject *empty(dycl_call *call, const dycl_binding *row) {
    static PyObject *(*const makers[])(dycl_call *, const dycl_binding *) = {constant, like, new_constant};
    PyObject *filled = PyObject_CallNoArgs(dycl_py.deterministic);
    if (!filled) return NULL;
    Py_DECREF(filled);
    if (filled != Py_False) return dycl_call_bail(call, DYCL_BAIL_arguments);
    dycl_binding zeros = *row;
    zeros.op = 0;
    return makers[row->op](call, &zeros);
}

static PyObject *scalar_tensor(dycl_call *call,
                               const dycl_binding *row) { /* op 1: torch.tensor, whose dtype is the number's */
    dycl_dtype dtype;
    dycl_operand scalar;
    PyObject *data = call->p[0];
    if (row->op && dycl_numpy_is_array(data)) return dycl_numpy_tensor(call, row, dycl_py.make_tensor);
    if (row->op && data && PyList_CheckExact(data) && PyList_GET_SIZE(data) == 0) { /* how caches begin */
        static const int64_t nothing[1] = {0};
        scalar = dycl_operand_i64(0);
        DYCL_CALL_TRY(options(call, 1, dycl_default_dtype, &dtype));
        return fill(call, &scalar, dtype, 1, nothing);
    }
    DYCL_CALL_TRY(scalar_of(call, data, &scalar));
    DYCL_CALL_TRY(options(call, 1, row->op ? dycl_number_dtype(&scalar) : dycl_default_dtype, &dtype));
    if (row->op && scalar.kind == DYCL_OPERAND_INT && dycl_dtype_is_float(dtype)) /* torch.tensor rounds twice */
        scalar = dycl_operand_f64((double)scalar.i);
    return fill(call, &scalar, dtype, 0, NULL);
}

static PyObject *as_tensor(dycl_call *call, const dycl_binding *row) {
    uint32_t value, out = 0;
    dycl_dtype dtype;
    if (dycl_numpy_is_array(call->p[0])) return dycl_numpy_tensor(call, row, dycl_py.as_tensor);
    if (call->p[0] && (PyFloat_CheckExact(call->p[0]) || PyLong_CheckExact(call->p[0]) || PyBool_Check(call->p[0]))) {
        PyObject *device = call->p[2];
        call->p[2] = NULL;
        call->p[3] = device;
        dycl_binding variant = *row;
        variant.op = 1;
        return scalar_tensor(call, &variant);
    }
    if (dycl_call_given(call->p[2]) && !dycl_py_is_cpu(call->p[2])) return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    dycl_dtype own = (dycl_dtype)dycl_call_meta(call, value)->dtype;
    DYCL_CALL_TRY(dycl_call_dtype_or(call, call->p[1], own, &dtype));
    if (dtype == own) return dycl_call_same(call, call->p[0]);
    return dycl_call_finish(call, dycl_build_cast(&call->region->recorder, value, dtype, &out), out);
}

/* fill_ and zero_: a constant of the same sizes takes the tensor's place */
static PyObject *fill_in_place(dycl_call *call, const dycl_binding *row) { /* op 1: zero_ */
    uint32_t value;
    dycl_operand scalar = dycl_operand_i64(0);
    if (!row->op) DYCL_CALL_TRY(scalar_of(call, call->p[1], &scalar));
    if (!call->p[0] || !dycl_is_lazy(call->p[0])) return dycl_call_bail(call, DYCL_BAIL_alias);
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    dycl_value v = *dycl_call_meta(call, value);
    return fill(call, &scalar, (dycl_dtype)v.dtype, v.rank, v.sizes);
}

/* ---- Sequences */

#define EXACT_FLOAT                                                                                                    \
    (INT64_C(1) << 24) /* integers up to here are exact in float32, whatever the order of operations                   \
                        */

static dycl_status iota(dycl_call *call, dycl_dtype dtype, int64_t start, int64_t step, int64_t length, uint32_t *out) {
    dycl_recorder *r = &call->region->recorder;
    dycl_operand ends[2] = {dycl_operand_i64(start), dycl_operand_i64(step)};
    uint32_t operands[2];
    for (int i = 0; i < 2; i++) {
        dycl_status status = dycl_build_convert(r, &ends[i], dtype, &operands[i]);
        if (status != DYCL_OK) return status;
    }
    dycl_status status = dycl_build_node(r, DYCL_OP_iota, 2, operands, 1, &length, out);
    if (status == DYCL_OK && length > 0 && !dycl_dtype_is_float(dtype)) {
        int64_t last = start + (length - 1) * step;
        dycl_recorder_bound(r, *out, start < last ? start : last, start < last ? last : start);
    }
    return status;
}

/* A whole number, given as int or float. */
static dycl_status whole(dycl_call *call, PyObject *o, int64_t *out, int *is_float) {
    dycl_operand x;
    dycl_status status = scalar_of(call, o, &x);
    if (status != DYCL_OK) return status;
    if (x.kind == DYCL_OPERAND_FLOAT) {
        *is_float = 1;
        if (!(fabs(x.f) <= (double)EXACT_FLOAT) || x.f != floor(x.f))
            return dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
        *out = (int64_t)x.f;
        return DYCL_OK;
    }
    if (x.kind == DYCL_OPERAND_BOOL || x.i < -(INT64_C(1) << 40) || x.i > INT64_C(1) << 40)
        return dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
    *out = x.i;
    return DYCL_OK;
}

/* arange(end), arange(start, end), arange(start, end, step). Fractions go to torch: its vector kernel rounds in a way
 * of its own. */
static PyObject *arange(dycl_call *call, const dycl_binding *row) {
    dycl_dtype dtype;
    int64_t start = 0, end, step = 1;
    uint32_t out = 0;
    int is_float = 0;
    (void)row;
    PyObject *first = call->p[0], *last = call->p[1];
    if (!last) {
        last = first;
        first = NULL;
    }
    if (!last || (!first && call->p[2])) return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(whole(call, last, &end, &is_float));
    if (first) DYCL_CALL_TRY(whole(call, first, &start, &is_float));
    if (call->p[2]) DYCL_CALL_TRY(whole(call, call->p[2], &step, &is_float));
    DYCL_CALL_TRY(options(call, 3, is_float ? dycl_default_dtype : DYCL_I64, &dtype));
    if (dtype != DYCL_I64 && dtype != DYCL_I32 && dtype != DYCL_F32 && dtype != DYCL_F64)
        return dycl_call_bail(call, DYCL_BAIL_dtype);
    if (step == 0 || (step > 0 && end < start) || (step < 0 && end > start))
        return dycl_call_bail(call, DYCL_BAIL_shape);
    const __int128 way = step > 0 ? (__int128)end - start : (__int128)start - end,
                   size = step > 0 ? step : -(__int128)step;
    int64_t length = (int64_t)((way + size - 1) / size), limit = dtype == DYCL_I32 ? INT32_MAX : EXACT_FLOAT;
    if (dtype != DYCL_I64 && dtype != DYCL_F64 && (llabs(start) > limit || llabs(end) > limit || llabs(step) > limit))
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    return dycl_call_finish(call, iota(call, dtype, start, step, length, &out), out);
}

static PyObject *eye(dycl_call *call, const dycl_binding *row) {
    dycl_dtype dtype;
    int64_t rows, columns;
    uint32_t out = 0;
    dycl_operand sides[2] = {dycl_operand_of(0), dycl_operand_of(0)};
    dycl_recorder *r = &call->region->recorder;
    (void)row;
    DYCL_CALL_TRY(dycl_call_int(call, call->p[0], &rows));
    DYCL_CALL_TRY(dycl_call_int_or(call, call->p[1], rows, &columns));
    DYCL_CALL_TRY(options(call, 2, dycl_default_dtype, &dtype));
    if (rows < 0 || columns < 0) return dycl_call_bail(call, DYCL_BAIL_shape);
    DYCL_CALL_TRY(iota(call, DYCL_I64, 0, 1, rows, &sides[0].value));
    DYCL_CALL_TRY(dycl_build_unsqueeze(r, sides[0].value, 1, &sides[0].value));
    DYCL_CALL_TRY(iota(call, DYCL_I64, 0, 1, columns, &sides[1].value));
    DYCL_CALL_TRY(dycl_build_ew(r, DYCL_OP_eq, DYCL_PROMOTE_COMMON, 2, sides, &out));
    DYCL_CALL_TRY(dycl_build_cast(r, out, dtype, &out));
    if (dycl_call_meta(call, out)->canonical) return dycl_call_finish(call, DYCL_OK, out);
    int64_t ordinary = 0; /* an empty one does not have the strides of a comparison */
    return dycl_call_finish(call, dycl_build_node(r, DYCL_OP_contiguous, 1, &out, 1, &ordinary, &out), out);
}

dycl_binding dycl_bindings_create[] = {
    ROW("zeros", T, "size " DYCL_SPREAD " | " OPTIONS, constant, 0),
    ROW("ones", T, "size " DYCL_SPREAD " | " OPTIONS, constant, 1),
    ROW("full", T, "size fill_value | " OPTIONS, full, 0),
    ROW("zeros_like", T, "input | " OPTIONS " memory_format", like, 0),
    ROW("ones_like", T, "input | " OPTIONS " memory_format", like, 1),
    ROW("full_like", T, "input fill_value | " OPTIONS " memory_format", like, 2),
    ROW("empty", T, "size " DYCL_SPREAD " | " OPTIONS, empty, 0),
    ROW("empty_like", T, "input | " OPTIONS " memory_format", empty, 1),
    ROW("new_empty", M, "self size " DYCL_SPREAD " | " OPTIONS, empty, 2),
    ROW("new_zeros", M, "self size " DYCL_SPREAD " | " OPTIONS, new_constant, 0),
    ROW("new_ones", M, "self size " DYCL_SPREAD " | " OPTIONS, new_constant, 1),
    ROW("new_full", M, "self size fill_value | " OPTIONS, new_constant, 2),
    ROW("scalar_tensor", T, "s | " OPTIONS, scalar_tensor, 0),
    ROW("tensor", T, "data | dtype *layout device pin_memory requires_grad", scalar_tensor, 1),
    ROW("as_tensor", T, "data dtype device | *1 *2 *3", as_tensor, 0),
    ROW("arange", T, "start end step | " OPTIONS, arange, 0),
    ROW("eye", T, "n m | " OPTIONS, eye, 0),
    ROW("zero", I, "self", fill_in_place, 1),
    ROW("fill", I, "self value", fill_in_place, 0),
    {0},
};
