/* Norms of rows, and the logarithm of a sum of exponentials. */
#include <math.h>

#include "py/bind/bind.h"
#include "py/bind/reduce.h"
#include "py/region/track.h"

/* The order of a norm: absent, None and "fro" are 2. */
static dycl_status norm_order(dycl_call *call, PyObject *o, double *out) {
    *out = 2;
    if (!dycl_call_given(o)) return DYCL_OK;
    if (PyUnicode_Check(o))
        return PyUnicode_CompareWithASCIIString(o, "fro") == 0
                   ? DYCL_OK
                   : dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
    return dycl_call_f64_or(call, o, 2, out);
}

/* A scalar whose dimension is named is squared all the same in torch, where it may overflow: callers leave that to it.
 */
dycl_status dycl_call_vector_norm(dycl_call *call, uint32_t x, double order, uint32_t mask, int keep, uint32_t *out) {
    dycl_status status;
    if (!dycl_dtype_is_float(dtype_of(call, x)) || dycl_value_numel(meta(call, x)) == 0)
        return dycl_build_bail(&call->region->recorder, DYCL_BAIL_dtype);
    int history = dycl_track_has_now(call->region, x), one = dycl_reduced_numel(meta(call, x), mask) == 1;
    if (history && (isinf(order) || (one && order == 2)))
        return dycl_build_bail(&call->region->recorder, DYCL_BAIL_grad); /* its gradient is none of amax and abs */
    if ((order == 2 || order == 1 || isinf(order)) && !history && one) { /* of one element: no square, no overflow */
        DYCL_TRY(ew1(call, DYCL_OP_abs, x, &x));
        return reduce(call, DYCL_OP_amax, x, mask, keep, out);
    }
    if (order == 1) return reduce(call, DYCL_OP_sumabs, x, mask, keep, out);
    if (order == 2) { /* rounded once */
        dycl_dtype own = dtype_of(call, x);
        DYCL_TRY(dycl_build_cast(&call->region->recorder, x, dycl_dtype_computed(own), &x));
        DYCL_TRY(reduce(call, DYCL_OP_sumsq, x, mask, keep, &x));
        DYCL_TRY(ew1(call, DYCL_OP_sqrt, x, &x));
        return dycl_build_cast(&call->region->recorder, x, own, out);
    }
    if (isinf(order)) {
        DYCL_TRY(ew1(call, DYCL_OP_abs, x, &x));
        return reduce(call, order > 0 ? DYCL_OP_amax : DYCL_OP_amin, x, mask, keep, out);
    }
    return dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
fail:
    return status;
}

/* torch.norm, Tensor.norm (op 1), torch.linalg.vector_norm: input, order, dim, keepdim, then dtype and out, which must
 * be None */
static PyObject *norm(dycl_call *call, const dycl_binding *row) {
    uint32_t x, mask, out = 0;
    double order;
    int keep;
    if (dycl_call_given(call->p[4]) || (row->parameter_count > 5 && dycl_call_given(call->p[5])) ||
        call->p[3] == Py_None) /* an error of the function that torch.norm calls */
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    PyObject *dims = call->p[2]; /* torch.norm's "fro", its default, knows two dimensions at most */
    if (row->op && (!call->p[1] || PyUnicode_Check(call->p[1])) && dims &&
        (PyTuple_Check(dims) || PyList_CheckExact(dims)) && PySequence_Fast_GET_SIZE(dims) > 2)
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x));
    if (meta(call, x)->rank == 0 && dycl_call_given(dims)) return dycl_call_bail(call, DYCL_BAIL_shape);
    DYCL_CALL_TRY(norm_order(call, call->p[1], &order));
    DYCL_CALL_TRY(dycl_reduced_dims(call, call->p[2], meta(call, x)->rank, EMPTY_BAILS, &mask));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[3], 0, &keep));
    return dycl_call_finish(call, dycl_call_vector_norm(call, x, order, mask, keep, &out), out);
}

/* torch.linalg.norm: an order with two dimensions is a matrix norm */
static PyObject *linalg_norm(dycl_call *call, const dycl_binding *row) {
    PyObject *dim = call->p[2];
    int one = dim && (PyLong_CheckExact(dim) || (PyTuple_CheckExact(dim) && PyTuple_GET_SIZE(dim) == 1));
    int most = dim && (PyTuple_Check(dim) || PyList_Check(dim)) && PySequence_Fast_GET_SIZE(dim) > 2; /* an error */
    if (most || (dycl_call_given(call->p[1]) && (!one || PyUnicode_Check(call->p[1]))))
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    return norm(call, row);
}

/* torch.nn.functional.normalize: x / max(norm, eps) */
static PyObject *normalize(dycl_call *call, const dycl_binding *row) {
    uint32_t x, mask, length, out = 0;
    double order, eps;
    (void)row;
    if (dycl_call_given(call->p[4])) return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x));
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[1], 2, &order));
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[3], 1e-12, &eps));
    if (meta(call, x)->rank == 0) return dycl_call_bail(call, DYCL_BAIL_shape);
    if (call->p[2]) {
        DYCL_CALL_TRY(dycl_reduced_dims(call, call->p[2], meta(call, x)->rank, EMPTY_BAILS, &mask));
    } else {
        if (meta(call, x)->rank < 2) return dycl_call_bail(call, DYCL_BAIL_shape);
        mask = 2;
    }
    DYCL_CALL_TRY(dycl_call_vector_norm(call, x, order, mask, 1, &length));
    dycl_operand bounded[2] = {dycl_operand_of(length), dycl_operand_f64(eps)};
    DYCL_CALL_TRY(dycl_build_ew(&call->region->recorder, DYCL_OP_maximum, DYCL_PROMOTE_COMMON, 2, bounded, &length));
    DYCL_CALL_TRY(
        dycl_build_expand(&call->region->recorder, length, meta(call, x)->rank, meta(call, x)->sizes, &length));
    return dycl_call_finish(call, ew2(call, DYCL_OP_div, x, length, &out), out);
}

/* ATen/native/ReduceOps.cpp: infinite maxima are not subtracted, so that exp(inf - inf) does not arise. */
static PyObject *logsumexp(dycl_call *call, const dycl_binding *row) {
    uint32_t x, mask, most, distance, infinite, shift, out = 0;
    int keep;
    dycl_recorder *r = &call->region->recorder;
    (void)row;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x));
    if (!dycl_call_given(call->p[1])) return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(dycl_reduced_dims(call, call->p[1], meta(call, x)->rank, EMPTY_BAILS, &mask));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[2], 0, &keep));
    if (dycl_track_has_now(call->region, x)) /* its gradient is not that of the parts */
        return dycl_call_bail(call, DYCL_BAIL_operator);
    if (!dycl_dtype_is_float(dtype_of(call, x))) DYCL_CALL_TRY(dycl_build_cast(r, x, dycl_default_dtype, &x));
    if (dycl_value_numel(meta(call, x)) == 0 || meta(call, x)->rank == 0) return dycl_call_bail(call, DYCL_BAIL_shape);
    DYCL_CALL_TRY(reduce(call, DYCL_OP_amax, x, mask, 1, &most));
    DYCL_CALL_TRY(ew1(call, DYCL_OP_isinf, most, &infinite));
    dycl_operand choice[3] = {dycl_operand_of(infinite), dycl_operand_f64(0), dycl_operand_of(most)};
    DYCL_CALL_TRY(dycl_build_where(r, &choice[0], &choice[1], &choice[2], &most));
    DYCL_CALL_TRY(ew2(call, DYCL_OP_sub, x, most, &distance));
    DYCL_CALL_TRY(ew1(call, DYCL_OP_exp, distance, &distance));
    DYCL_CALL_TRY(reduce(call, DYCL_OP_sum, distance, mask, keep, &out));
    DYCL_CALL_TRY(ew1(call, DYCL_OP_log, out, &out));
    shift = most;
    if (!keep) DYCL_CALL_TRY(dycl_build_reshape(r, most, meta(call, out)->rank, meta(call, out)->sizes, 1, &shift));
    return dycl_call_finish(call, ew2(call, DYCL_OP_add, out, shift, &out), out);
}

dycl_binding dycl_bindings_norms[] = {
    ROW("norm", T, "input p dim keepdim out dtype", norm, 1, 0),
    ROW("norm", M, "input p dim keepdim dtype", norm, 1, 0),
    ROW("norm", L, "A ord dim keepdim | dtype", linalg_norm, 0, 0),
    ROW("vector_norm", L, "x ord dim keepdim | dtype", norm, 0, 0),
    ROW("normalize", F, "input p dim eps out", normalize, 0, 0),
    ROW("logsumexp", T | M | S, "input dim keepdim", logsumexp, 0, 0),
    {0},
};
