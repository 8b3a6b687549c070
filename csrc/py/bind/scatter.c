/* Scattering where torch's schemas take a number that no argument of the host's can be (base/host.h): it becomes a
 * tensor. */
#include <string.h>

#include "py/bind/bind.h"
#include "py/bind/index.h"
#include "py/cpython/int.h"
#include "py/bind/hosted.h"
#include "py/region/track.h"

enum { OF_NUMBER = 1, ADDED, SCALED }; /* variants */

/* A number as a tensor of the dtype of self, rank 0. */
static dycl_status number_of(dycl_call *call, PyObject *self, PyObject *o, uint32_t *out) {
    dycl_operand x;
    uint32_t value;
    dycl_status status;
    DYCL_TRY(dycl_call_value(call, self, &value));
    dycl_dtype dtype = dtype_of(call, value);
    if (!PyFloat_CheckExact(o) && !PyLong_CheckExact(o) && !PyBool_Check(o))
        return dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
    DYCL_TRY(dycl_call_operand(call, o, &x));
    if (x.kind == DYCL_OPERAND_FLOAT && !dycl_dtype_is_float(dtype))
        return dycl_build_bail(&call->region->recorder, DYCL_BAIL_dtype);
    if (x.kind == DYCL_OPERAND_INT && dtype == DYCL_BOOL) x.i = x.i != 0;
    DYCL_TRY(dycl_build_convert(&call->region->recorder, &x, dtype, out));
    return dycl_build_node(&call->region->recorder, DYCL_OP_full, 1, out, 0, NULL, out);
fail:
    return status;
}

/* The index is looked at first: that may begin a new segment, to which later values belong. */
static dycl_status look_at(dycl_call *call, PyObject *index, uint32_t *out, int64_t *out_least) {
    int64_t bounds[2] = {0, 0};
    if (!index || !dycl_is_tensor(index)) return dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
    dycl_status status = dycl_region_index(call->region, index, out, bounds);
    if (out_least) *out_least = bounds[0];
    return status;
}

/* input, dim, index, src or value, reduce */
static PyObject *scatter(dycl_call *call, const dycl_binding *row) {
    PyObject *p[DYCL_HOSTED_PARAMETERS] = {call->p[0], call->p[1], call->p[2]},
             *given = call->p[3] ? call->p[3] : call->p[4];
    uint32_t index, source;
    (void)row;
    if (!given || dycl_is_tensor(given) || call->p[5] || !p[0] || !dycl_is_tensor(p[0]) || !p[1] ||
        !PyLong_CheckExact(p[1]))
        return dycl_call_bail(call, DYCL_BAIL_operator); /* hosted.def has the others */
    DYCL_CALL_TRY(look_at(call, p[2], &index, NULL));
    DYCL_CALL_TRY(number_of(call, p[0], given, &source));
    dycl_value v = *meta(call, index);
    DYCL_CALL_TRY(dycl_build_expand(&call->region->recorder, source, v.rank, v.sizes, &source));
    if (!(p[3] = dycl_lazy_new(call->region, source))) return NULL;
    PyObject *result = dycl_hosted_record_op(call, DYCL_OP_aten_scatter_src, OF_NUMBER, p);
    Py_DECREF(p[3]);
    return result;
}

/* input, dim, index, value */
static PyObject *index_fill(dycl_call *call, const dycl_binding *row) {
    PyObject *p[DYCL_HOSTED_PARAMETERS] = {call->p[0], call->p[1], call->p[2]}, *given = call->p[3];
    uint32_t index, value;
    (void)row;
    if (!given || dycl_is_tensor(given) || !p[0] || !dycl_is_tensor(p[0]) || !p[1] || !PyLong_CheckExact(p[1]))
        return dycl_call_bail(call, DYCL_BAIL_operator);
    DYCL_CALL_TRY(look_at(call, p[2], &index, NULL));
    DYCL_CALL_TRY(number_of(call, p[0], given, &value));
    if (!(p[3] = dycl_lazy_new(call->region, value))) return NULL;
    PyObject *result = dycl_hosted_record_op(call, DYCL_OP_aten_index_fill, OF_NUMBER, p);
    Py_DECREF(p[3]);
    return result;
}

static int adds_exactly(const dycl_value *self, const dycl_value *source, int dim, int64_t count) {
    if (self->dtype != source->dtype || self->dtype == DYCL_BOOL || self->rank == 0 || self->rank != source->rank ||
        source->sizes[dim] != count)
        return 0;
    for (int i = 0; i < self->rank; i++)
        if (i != dim && self->sizes[i] != source->sizes[i]) return 0;
    return 1;
}

/* input, dim, index, source, alpha: as index_put that accumulates, which adds in the same order */
static PyObject *index_add(dycl_call *call, const dycl_binding *row) {
    PyObject *p[DYCL_HOSTED_PARAMETERS] = {call->p[0]}, *index = call->p[2], *scaled = NULL, *result = NULL;
    dycl_operand product[2] = {dycl_operand_of(0), dycl_operand_f64(1)};
    uint32_t at, self, source;
    int64_t least;
    int dim;
    (void)row;
    if (!p[0] || !dycl_is_tensor(p[0])) return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(look_at(call, index, &at, &least));
    if (least < 0) return dycl_call_bail(call, DYCL_BAIL_index); /* an error here, and none of index_put's */
    DYCL_CALL_TRY(dycl_call_value(call, p[0], &self));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[3], &source));
    DYCL_CALL_TRY(dycl_call_dim(call, call->p[1], meta(call, self)->rank, &dim));
    if (meta(call, at)->rank != 1 || !adds_exactly(meta(call, self), meta(call, source), dim, meta(call, at)->sizes[0]))
        return dycl_call_bail(call, DYCL_BAIL_shape);
    if (is_half(call, source))
        return dycl_call_bail(call, DYCL_BAIL_dtype); /* torch adds in float32, index_put does not */
    int scales = dycl_call_given(call->p[4]) && !dycl_int_is(call->p[4], 1),
        history = dycl_track_any_now(call->region, 2, (uint32_t[]){self, source});
    if (scales && history) return dycl_call_bail(call, DYCL_BAIL_grad); /* torch saves the source as it was */
    if (scales) {
        DYCL_CALL_TRY(dycl_call_operand(call, call->p[4], &product[1]));
        if (product[1].kind == DYCL_OPERAND_VALUE || (product[1].kind == DYCL_OPERAND_FLOAT && !is_float(call, source)))
            return dycl_call_bail(call, DYCL_BAIL_arguments);
        product[0].value = source;
        DYCL_CALL_TRY(dycl_build_ew(&call->region->recorder, DYCL_OP_mul, DYCL_PROMOTE_COMMON, 2, product, &source));
        if (!(scaled = dycl_lazy_new(call->region, source))) return NULL;
    }
    if ((p[1] = PyList_New(dim + 1))) {
        for (int i = 0; i < dim; i++) PyList_SET_ITEM(p[1], i, Py_NewRef(Py_None));
        PyList_SET_ITEM(p[1], dim, Py_NewRef(index));
        p[2] = scaled ? scaled : call->p[3];
        p[3] = Py_True;
        result = dycl_hosted_record_op(call, history ? DYCL_OP_aten_index_add : DYCL_OP_aten_index_put,
                                       scales ? SCALED : ADDED, p);
    }
    Py_XDECREF(p[1]);
    Py_XDECREF(scaled);
    return result;
}

dycl_binding dycl_bindings_scatter[] = {
    ROW("scatter", T | M | I, "input dim index src value | reduce", scatter),
    ROW("index_fill", T | M | I, "input dim index value", index_fill),
    ROW("index_add", T | M | I, "input dim index source | alpha", index_add),
    {0},
};
