/* Activations: elementwise operators with parameters of their own. */
#include <math.h>

#include "py/bind/bind.h"

static PyObject *gelu(dycl_call *call, const dycl_binding *row) {
    dycl_binding variant = *row;
    if (call->p[1]) {
        if (!PyUnicode_Check(call->p[1])) return dycl_call_bail(call, DYCL_BAIL_arguments);
        if (PyUnicode_CompareWithASCIIString(call->p[1], "tanh") == 0)
            variant.op = DYCL_OP_gelu_tanh;
        else if (PyUnicode_CompareWithASCIIString(call->p[1], "none") != 0)
            return dycl_call_bail(call, DYCL_BAIL_arguments);
    }
    dycl_operand x;
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[0], &x));
    if (x.kind != DYCL_OPERAND_VALUE || !dycl_dtype_is_float((dycl_dtype)dycl_call_meta(call, x.value)->dtype))
        return dycl_call_bail(call, DYCL_BAIL_dtype);
    return dycl_bind_unary(call, &variant);
}

/* relu(x, inplace=False) and its like: torch.nn.functional's second parameter */
static PyObject *activation(dycl_call *call, const dycl_binding *row) {
    int in_place;
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[1], 0, &in_place));
    call->in_place |= in_place;
    call->keeps_result = row->op == DYCL_OP_relu6; /* hardtanh_ */
    dycl_operand x;
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[0], &x));
    if (x.kind != DYCL_OPERAND_VALUE || !dycl_dtype_is_float((dycl_dtype)dycl_call_meta(call, x.value)->dtype))
        return dycl_call_bail(call, DYCL_BAIL_dtype);
    return dycl_bind_unary(call, row);
}

/* leaky_relu, elu and celu: a number, and perhaps in place */
static PyObject *leaky_relu(dycl_call *call, const dycl_binding *row) {
    double slope;
    int in_place;
    dycl_operand x[2];
    uint32_t out = 0;
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[1], row->op == DYCL_OP_leaky_relu ? 0.01 : 1.0, &slope));
    if (row->op == DYCL_OP_elu && !isfinite(slope))
        return dycl_call_bail(call, DYCL_BAIL_arguments); /* torch counts 0 among the positive numbers */
    if (row->op == DYCL_OP_celu && !(slope > 0 && isfinite(slope) && isfinite(1 / (float)slope)))
        return dycl_call_bail(call, DYCL_BAIL_arguments); /* it multiplies by 1 / alpha */
    DYCL_CALL_TRY(dycl_call_bool_or(call, row->parameter_count > 2 ? call->p[2] : NULL, 0, &in_place));
    call->in_place |= in_place;
    if (call->in_place && call->region->tracks && slope < 0)
        return dycl_call_bail(call, DYCL_BAIL_grad); /* torch looks at the result, and raises in the backward pass */
    call->keeps_result = 1;
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[0], &x[0]));
    if (x[0].kind != DYCL_OPERAND_VALUE || !dycl_dtype_is_float((dycl_dtype)dycl_call_meta(call, x[0].value)->dtype))
        return dycl_call_bail(call, DYCL_BAIL_dtype);
    x[1] = dycl_operand_f64(slope);
    return dycl_call_finish(
        call, dycl_build_ew(&call->region->recorder, (dycl_op)row->op, DYCL_PROMOTE_COMMON, 2, x, &out), out);
}

static PyObject *hardshrink(dycl_call *call, const dycl_binding *row) {
    dycl_operand x[2];
    double bound;
    uint32_t out = 0;
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[0], &x[0]));
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[1], 0.5, &bound));
    if (x[0].kind != DYCL_OPERAND_VALUE || !dycl_dtype_is_float((dycl_dtype)dycl_call_meta(call, x[0].value)->dtype))
        return dycl_call_bail(call, DYCL_BAIL_dtype);
    x[1] = dycl_operand_f64(bound);
    return dycl_call_finish(
        call, dycl_build_ew(&call->region->recorder, (dycl_op)row->op, DYCL_PROMOTE_COMMON, 2, x, &out), out);
}

/* Where strides are not the ordinary ones, what torch composes is composed here too: each part has a say in the
 * result's strides. */
static PyObject *softsign(dycl_call *call, const dycl_binding *row) { /* input / (input.abs() + 1) */
    dycl_recorder *r = &call->region->recorder;
    dycl_operand x[2], sum[2];
    uint32_t out = 0;
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[0], &x[0]));
    if (x[0].kind != DYCL_OPERAND_VALUE) return dycl_call_bail(call, DYCL_BAIL_arguments);
    const dycl_value *v = meta(call, x[0].value);
    if (v->canonical && is_float(call, x[0].value) && !is_half(call, x[0].value)) return dycl_bind_unary(call, row);
    sum[0] = x[0];
    sum[1] = dycl_operand_i64(1);
    DYCL_CALL_TRY(dycl_build_ew(r, DYCL_OP_abs, DYCL_PROMOTE_NO_BOOL, 1, sum, &sum[0].value));
    x[1] = dycl_operand_of(0);
    DYCL_CALL_TRY(dycl_build_ew(r, DYCL_OP_add, DYCL_PROMOTE_COMMON, 2, sum, &x[1].value));
    return dycl_call_finish(call, dycl_build_ew(r, DYCL_OP_div, DYCL_PROMOTE_FLOAT, 2, x, &out), out);
}

static PyObject *softplus(dycl_call *call, const dycl_binding *row) {
    dycl_operand x[3];
    double beta, threshold;
    uint32_t out = 0;
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[0], &x[0]));
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[1], 1.0, &beta));
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[2], 20.0, &threshold));
    if (x[0].kind != DYCL_OPERAND_VALUE || !dycl_dtype_is_float((dycl_dtype)dycl_call_meta(call, x[0].value)->dtype))
        return dycl_call_bail(call, DYCL_BAIL_dtype);
    x[1] = dycl_operand_f64(beta);
    x[2] = dycl_operand_f64(threshold);
    return dycl_call_finish(
        call, dycl_build_ew(&call->region->recorder, (dycl_op)row->op, DYCL_PROMOTE_COMMON, 3, x, &out), out);
}

#define FLOATS  DYCL_PROMOTE_FLOAT
#define COMMON  DYCL_PROMOTE_COMMON
#define NO_BOOL DYCL_PROMOTE_NO_BOOL

dycl_binding dycl_bindings_activation[] = {
    ROW("relu", F, "input inplace", activation, DYCL_OP_relu, NO_BOOL),
    ROW("relu6", F | N, "input inplace", activation, DYCL_OP_relu6, COMMON),
    ROW("silu", F | N, "input inplace", activation, DYCL_OP_silu, COMMON),
    ROW("mish", F | N, "input inplace", activation, DYCL_OP_mish, COMMON),
    ROW("hardswish", F | N, "input inplace", activation, DYCL_OP_hardswish, COMMON),
    ROW("hardsigmoid", F | N, "input inplace", activation, DYCL_OP_hardsigmoid, COMMON),
    ROW("softsign", F, "input", softsign, DYCL_OP_softsign, FLOATS),
    ROW("gelu", F | N, "input approximate", gelu, DYCL_OP_gelu, COMMON),
    ROW("leaky_relu", F | N, "input negative_slope inplace", leaky_relu, DYCL_OP_leaky_relu, 0),
    ROW("elu", F, "input alpha inplace", leaky_relu, DYCL_OP_elu, 0),
    ROW("elu", N, "input alpha", leaky_relu, DYCL_OP_elu, 0), /* its two scales have no kernel */
    ROW("celu", F, "input alpha inplace", leaky_relu, DYCL_OP_celu, 0),
    ROW("celu", T | I, "input alpha", leaky_relu, DYCL_OP_celu, 0),
    ROW("hardshrink", T | F | M, "input lambd", hardshrink, DYCL_OP_hardshrink, 0),
    ROW("softplus", F | N, "input beta threshold", softplus, DYCL_OP_softplus, 0),
    {0},
};
