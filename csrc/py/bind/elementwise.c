/* Elementwise operators. */
#include <math.h>

#include "grad/backward.h"
#include "py/bind/beside.h"
#include "py/bind/bind.h"
#include "py/region/track.h"

PyObject *dycl_bind_unary(dycl_call *call, const dycl_binding *row) {
    dycl_operand x;
    uint32_t out = 0;
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[0], &x));
    if (x.kind != DYCL_OPERAND_VALUE) return dycl_call_bail(call, DYCL_BAIL_arguments);
    return dycl_call_finish(
        call, dycl_build_ew(&call->region->recorder, (dycl_op)row->op, (dycl_promotion)row->extra, 1, &x, &out), out);
}

static PyObject *binary(dycl_call *call, const dycl_binding *row) {
    dycl_operand x[2];
    uint32_t out = 0;
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[0], &x[0]));
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[1], &x[1]));
    if (x[0].kind != DYCL_OPERAND_VALUE && x[1].kind != DYCL_OPERAND_VALUE)
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    return dycl_call_finish(
        call, dycl_build_ew(&call->region->recorder, (dycl_op)row->op, (dycl_promotion)row->extra, 2, x, &out), out);
}

/* Tensor.__rtruediv__: self.reciprocal() * other, two roundings; the product with one is left out where it would
 * lie no otherwise */
static PyObject *reciprocal_times(dycl_call *call, const dycl_binding *row) {
    dycl_operand x[2];
    uint32_t out = 0;
    dycl_recorder *r = &call->region->recorder;
    (void)row;
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[0], &x[0]));
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[1], &x[1]));
    if (x[0].kind != DYCL_OPERAND_VALUE) return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(dycl_build_ew(r, DYCL_OP_reciprocal, DYCL_PROMOTE_FLOAT, 1, x, &x[0].value));
    int one = x[1].kind == DYCL_OPERAND_FLOAT ? x[1].f == 1 : x[1].kind == DYCL_OPERAND_INT && x[1].i == 1;
    if (one && dycl_call_meta(call, x[0].value)->canonical) return dycl_call_finish(call, DYCL_OK, x[0].value);
    return dycl_call_finish(call, dycl_build_ew(r, DYCL_OP_mul, DYCL_PROMOTE_COMMON, 2, x, &out), out);
}

/* The operator /: what is no tensor on the left leaves it to the right operand's __rtruediv__. */
static PyObject *quotient(dycl_call *call, const dycl_binding *row) {
    if (dycl_is_tensor(call->p[0])) return binary(call, row);
    PyObject *left = call->p[0];
    call->p[0] = call->p[1];
    call->p[1] = left;
    return reciprocal_times(call, row);
}

/* add, sub: self op alpha * other; of floats with one rounding, as in torch's kernels */
static PyObject *scaled(dycl_call *call, const dycl_binding *row) {
    if (!call->p[2]) return binary(call, row);
    dycl_recorder *r = &call->region->recorder;
    dycl_operand x[2], product[2], alpha;
    uint32_t out = 0;
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[0], &x[0]));
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[1], &x[1]));
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[2], &alpha));
    if (alpha.kind == DYCL_OPERAND_VALUE || alpha.kind == DYCL_OPERAND_BOOL || x[0].kind != DYCL_OPERAND_VALUE ||
        x[1].kind != DYCL_OPERAND_VALUE)
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    dycl_dtype dtype = dycl_result_type(r, 2, x);
    if (row->op == DYCL_OP_sub && (dtype_of(call, x[0].value) == DYCL_BOOL || dtype_of(call, x[1].value) == DYCL_BOOL))
        return dycl_call_bail(call, DYCL_BAIL_dtype);
    if (dtype == DYCL_BOOL || (alpha.kind == DYCL_OPERAND_FLOAT && !dycl_dtype_is_float(dtype)))
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (dycl_dtype_is_half(dtype)) /* torch rounds otherwise in its vectors than behind the last of them */
        return dycl_call_bail(call, DYCL_BAIL_dtype);
    if (dycl_dtype_is_float(dtype)) {
        if (row->op == DYCL_OP_sub) { /* negated as what it is: there is no integer -0 */
            alpha.f = -alpha.f;
            alpha.i = (int64_t)(0 - (uint64_t)alpha.i);
        }
        dycl_operand by = alpha.kind == DYCL_OPERAND_FLOAT ? dycl_operand_f64(alpha.f) : dycl_operand_i64(alpha.i);
        dycl_operand terms[3] = {x[0], x[1], by};
        return dycl_call_finish(call, dycl_build_ew(r, DYCL_OP_add_scaled, DYCL_PROMOTE_COMMON, 3, terms, &out), out);
    }
    product[0] = x[1];
    DYCL_CALL_TRY(dycl_build_cast(r, product[0].value, dtype, &product[0].value));
    product[1] = alpha;
    DYCL_CALL_TRY(dycl_build_ew(r, DYCL_OP_mul, DYCL_PROMOTE_COMMON, 2, product, &x[1].value));
    DYCL_CALL_TRY(dycl_build_cast(r, x[0].value, dtype, &x[0].value));
    uint32_t operands[2] = {x[0].value, product[0].value}; /* torch's iterator does not see the product */
    DYCL_CALL_TRY(dycl_build_ew(r, (dycl_op)row->op, (dycl_promotion)row->extra, 2, x, &out));
    return dycl_call_finish(call, dycl_build_iterated(r, out, 2, operands, &out), out);
}

/* torch.rsub(input, other): other - alpha * input */
static PyObject *reversed(dycl_call *call, const dycl_binding *row) {
    PyObject *input = call->p[0];
    call->p[0] = call->p[1];
    call->p[1] = input;
    if (!call->p[0] || call->p[2]) return dycl_call_bail(call, DYCL_BAIL_arguments);
    return binary(call, row);
}

static PyObject *divide(dycl_call *call, const dycl_binding *row) {
    if (!dycl_call_given(call->p[2])) return binary(call, row);
    dycl_operand x[2];
    uint32_t out = 0;
    dycl_recorder *r = &call->region->recorder;
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[0], &x[0]));
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[1], &x[1]));
    if ((x[0].kind != DYCL_OPERAND_VALUE && x[1].kind != DYCL_OPERAND_VALUE) || !PyUnicode_Check(call->p[2]))
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    int floor = PyUnicode_CompareWithASCIIString(call->p[2], "floor") == 0,
        trunc = PyUnicode_CompareWithASCIIString(call->p[2], "trunc") == 0;
    if (!floor && !trunc) return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (!dycl_dtype_is_float(dycl_result_type(r, 2, x)) &&
        (x[1].kind != DYCL_OPERAND_INT || x[1].i == 0)) /* division by zero raises */
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    return dycl_call_finish(
        call, dycl_build_ew(r, floor ? DYCL_OP_floor_div : DYCL_OP_trunc_div, DYCL_PROMOTE_NO_BOOL, 2, x, &out), out);
}

/* floor_divide, remainder, fmod: integer division by zero raises in torch, so only nonzero constants divide integers */
static PyObject *integer_divide(dycl_call *call, const dycl_binding *row) {
    dycl_operand x[2];
    uint32_t out = 0;
    dycl_recorder *r = &call->region->recorder;
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[0], &x[0]));
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[1], &x[1]));
    if (x[0].kind != DYCL_OPERAND_VALUE && x[1].kind != DYCL_OPERAND_VALUE)
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (!dycl_dtype_is_float(dycl_result_type(r, 2, x)) && (x[1].kind != DYCL_OPERAND_INT || x[1].i == 0))
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (row->op == DYCL_OP_remainder && x[0].kind != DYCL_OPERAND_VALUE && /* torch has no derivative of that */
        dycl_track_has_now(call->region, x[1].value))
        return dycl_call_bail(call, DYCL_BAIL_grad);
    return dycl_call_finish(call, dycl_build_ew(r, (dycl_op)row->op, DYCL_PROMOTE_NO_BOOL, 2, x, &out), out);
}

/* torch's gradient of the other operand subtracts from this one, or negates it, in its dtype: an error for bools, and
 * modulo 256 for bytes. */
static int is_kept_as(const dycl_call *call, const dycl_operand x[2], int nth, dycl_dtype dtype) {
    return x[nth].kind == DYCL_OPERAND_VALUE && dtype_of(call, x[nth].value) == dtype &&
           x[!nth].kind == DYCL_OPERAND_VALUE && dycl_track_has_now(call->region, x[!nth].value);
}

static PyObject *power(dycl_call *call, const dycl_binding *row) {
    dycl_operand x[2];
    uint32_t out = 0;
    (void)row;
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[0], &x[0]));
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[1], &x[1]));
    if (x[0].kind != DYCL_OPERAND_VALUE && x[1].kind != DYCL_OPERAND_VALUE)
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (is_kept_as(call, x, 1, DYCL_BOOL)) return dycl_call_bail(call, DYCL_BAIL_grad);
    double number = x[1].kind == DYCL_OPERAND_INT ? (double)x[1].i : x[1].kind == DYCL_OPERAND_FLOAT ? x[1].f : 2;
    if ((number == 0 || number == 1) && dycl_track_has_now(call->region, x[0].value))
        return dycl_call_bail(call, DYCL_BAIL_grad); /* the gradient's own history is x's */
    DYCL_CALL_TRY(dycl_build_pow(&call->region->recorder, &x[0], &x[1], &out));
    if (number == 0.5 || number == -0.5 || number == -1 || number == -2)
        dycl_track_mark(call->region, out, DYCL_GRAD_BY_OPERAND | (number == -2 ? DYCL_GRAD_OF_SQUARE : 0));
    return dycl_call_finish(call, DYCL_OK, out);
}

static PyObject *arc_tangent(dycl_call *call, const dycl_binding *row) {
    dycl_operand x[2];
    for (int i = 0; i < 2; i++) DYCL_CALL_TRY(dycl_call_operand(call, call->p[i], &x[i]));
    if (is_kept_as(call, x, 0, DYCL_BOOL) || is_kept_as(call, x, 0, DYCL_U8))
        return dycl_call_bail(call, DYCL_BAIL_grad);
    return binary(call, row);
}

/* Where strides are not the ordinary ones, what torch composes is composed here too: each part has a say in the
 * result's strides. */
static PyObject *finiteness(dycl_call *call,
                            const dycl_binding *row) { /* (x == x) * (x.abs() != inf); isinf: x.abs() == inf */
    dycl_recorder *r = &call->region->recorder;
    dycl_operand x[2], both[2];
    uint32_t out = 0;
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[0], &x[0]));
    if (x[0].kind != DYCL_OPERAND_VALUE) return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (!is_float(call, x[0].value)) return dycl_call_bail(call, DYCL_BAIL_dtype);
    if (meta(call, x[0].value)->canonical) return dycl_bind_unary(call, row);
    both[0] = both[1] = x[0];
    x[1] = dycl_operand_f64(INFINITY);
    DYCL_CALL_TRY(ew1(call, DYCL_OP_abs, x[0].value, &x[0].value));
    DYCL_CALL_TRY(
        dycl_build_ew(r, row->op == DYCL_OP_isinf ? DYCL_OP_eq : DYCL_OP_ne, DYCL_PROMOTE_COMMON, 2, x, &out));
    if (row->op == DYCL_OP_isinf) return dycl_call_finish(call, DYCL_OK, out);
    DYCL_CALL_TRY(dycl_build_ew(r, DYCL_OP_eq, DYCL_PROMOTE_COMMON, 2, both, &both[0].value));
    return dycl_call_finish(call, ew2(call, DYCL_OP_mul, both[0].value, out, &out), out);
}

static PyObject *where(dycl_call *call, const dycl_binding *row) {
    dycl_operand x[3];
    uint32_t out = 0;
    if (call->p[0] && !call->p[1] && !call->p[2] && row->bind == where)
        return dycl_beside_values(call, row); /* the positions of what is not zero */
    for (int i = 0; i < 3; i++) DYCL_CALL_TRY(dycl_call_operand(call, call->p[i], &x[i]));
    return dycl_call_finish(call, dycl_build_where(&call->region->recorder, &x[0], &x[1], &x[2], &out), out);
}

/* Tensor.where(condition, other) */
static PyObject *method_where(dycl_call *call, const dycl_binding *row) {
    PyObject *self = call->p[0];
    call->p[0] = call->p[1];
    call->p[1] = self;
    return where(call, row);
}

static PyObject *masked_fill(dycl_call *call, const dycl_binding *row) {
    dycl_operand self, mask, value;
    uint32_t out = 0;
    (void)row;
    dycl_recorder *r = &call->region->recorder;
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[0], &self));
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[1], &mask));
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[2], &value));
    if (self.kind != DYCL_OPERAND_VALUE || mask.kind != DYCL_OPERAND_VALUE || value.kind == DYCL_OPERAND_VALUE)
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    dycl_dtype dtype = (dycl_dtype)dycl_call_meta(call, self.value)->dtype;
    if (value.kind == DYCL_OPERAND_FLOAT && !dycl_dtype_is_float(dtype)) return dycl_call_bail(call, DYCL_BAIL_dtype);
    uint32_t filled;
    DYCL_CALL_TRY(dycl_build_convert(r, &value, dtype, &filled));
    uint32_t operands[3] = {mask.value, filled, self.value};
    if (dycl_call_meta(call, mask.value)->dtype != DYCL_BOOL) return dycl_call_bail(call, DYCL_BAIL_dtype);
    DYCL_CALL_TRY(dycl_build_node(r, DYCL_OP_where, 3, operands, 0, NULL, &out));
    if (call->in_place || dycl_call_meta(call, out)->canonical) return dycl_call_finish(call, DYCL_OK, out);
    int64_t ordinary = 0; /* torch writes into an ordinary copy of self */
    return dycl_call_finish(call, dycl_build_node(r, DYCL_OP_contiguous, 1, &out, 1, &ordinary, &out), out);
}

/* clamp(x, min, max): either may be absent; extra: clamp_max(x, max) */
static PyObject *clamp(dycl_call *call, const dycl_binding *row) {
    PyObject *min = row->extra ? NULL : call->p[1], *max = row->extra                 ? call->p[1]
                                                           : row->parameter_count > 2 ? call->p[2]
                                                                                      : NULL;
    dycl_operand x[3];
    uint32_t out = 0;
    int count = 1, low = dycl_call_given(min), high = dycl_call_given(max);
    dycl_recorder *r = &call->region->recorder;
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[0], &x[0]));
    if (low) DYCL_CALL_TRY(dycl_call_operand(call, min, &x[count++]));
    if (high) DYCL_CALL_TRY(dycl_call_operand(call, max, &x[count++]));
    if (count == 1 || x[0].kind != DYCL_OPERAND_VALUE) return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (count == 3 && (x[1].kind == DYCL_OPERAND_VALUE) !=
                          (x[2].kind == DYCL_OPERAND_VALUE)) /* a tensor of rank 0 would be a number */
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    for (int i = 1; i < count; i++)
        if (x[i].kind == DYCL_OPERAND_FLOAT && x[i].f != x[i].f)
            return dycl_call_bail(call, DYCL_BAIL_arguments); /* NaN bounds fill with NaN */
    if (count == 2 && x[1].kind == DYCL_OPERAND_VALUE &&
        dycl_track_any_now(call->region, 2, (uint32_t[]){x[0].value, x[1].value})) {
        /* at the bound its gradient is not maximum's: the other bound is out of reach */
        dycl_operand bound = x[1];
        x[1] = low ? bound : dycl_operand_f64(-INFINITY);
        x[2] = low ? dycl_operand_f64(INFINITY) : bound;
        count = 3;
    }
    dycl_op op = count == 3 ? DYCL_OP_clamp : low ? DYCL_OP_maximum : DYCL_OP_minimum;
    if (count == 2 &&
        x[1].kind != DYCL_OPERAND_VALUE) { /* where -0 meets 0, torch keeps the tensor's: the second operand wins */
        dycl_operand tensor = x[0];
        x[0] = x[1];
        x[1] = tensor;
    }
    return dycl_call_finish(call, dycl_build_ew(r, op, DYCL_PROMOTE_NO_BOOL, count, x, &out), out);
}

static PyObject *lerp(dycl_call *call, const dycl_binding *row) {
    dycl_operand x[3];
    uint32_t out = 0;
    for (int i = 0; i < 3; i++) DYCL_CALL_TRY(dycl_call_operand(call, call->p[i], &x[i]));
    if (x[0].kind != DYCL_OPERAND_VALUE || x[1].kind != DYCL_OPERAND_VALUE)
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    dycl_dtype dtype = dtype_of(call, x[0].value); /* of all tensors; integers have no kernel in torch */
    for (int i = 0; i < 3; i++)
        if (x[i].kind == DYCL_OPERAND_VALUE && (dtype_of(call, x[i].value) != dtype || !is_float(call, x[i].value)))
            return dycl_call_bail(call, DYCL_BAIL_dtype);
    return dycl_call_finish(
        call, dycl_build_ew(&call->region->recorder, (dycl_op)row->op, DYCL_PROMOTE_COMMON, 3, x, &out), out);
}

/* addcmul, addcdiv: self + value * (a op b), evaluated as torch does: value * a op b */
static PyObject *addc(dycl_call *call, const dycl_binding *row) {
    dycl_operand self, product[2], value = dycl_operand_i64(1), sum[2];
    uint32_t out = 0;
    dycl_recorder *r = &call->region->recorder;
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[0], &self));
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[1], &product[0]));
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[2], &product[1]));
    if (call->p[3]) DYCL_CALL_TRY(dycl_call_operand(call, call->p[3], &value));
    if (self.kind != DYCL_OPERAND_VALUE || product[0].kind != DYCL_OPERAND_VALUE ||
        product[1].kind != DYCL_OPERAND_VALUE || value.kind == DYCL_OPERAND_VALUE)
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (row->op == DYCL_OP_div && !dycl_dtype_is_float(dtype_of(call, product[0].value)) &&
        !dycl_dtype_is_float(dtype_of(call, product[1].value)))
        return dycl_call_bail(call, DYCL_BAIL_dtype); /* an error in torch */
    dycl_operand all[3] = {self, product[0], product[1]};
    if (!dycl_dtype_is_float(dycl_result_type(r, 3, all))) return dycl_call_bail(call, DYCL_BAIL_dtype);
    dycl_dtype dtype = dycl_result_type(r, 3, all);
    uint32_t operands[3];
    for (int i = 0; i < 3; i++) { /* of floats of 16 bits all is one operator, rounded once */
        DYCL_CALL_TRY(dycl_build_cast(r, all[i].value, dtype, &operands[i]));
        DYCL_CALL_TRY(dycl_build_cast(r, operands[i], dycl_dtype_computed(dtype), &all[i].value));
    }
    product[0] = all[1];
    product[1] = all[2];
    if (!(value.kind == DYCL_OPERAND_INT && value.i == 1)) {
        dycl_operand scaled_first[2] = {product[0], value};
        DYCL_CALL_TRY(dycl_build_ew(r, DYCL_OP_mul, DYCL_PROMOTE_COMMON, 2, scaled_first, &product[0].value));
    }
    if (row->op == DYCL_OP_mul && dtype == dycl_dtype_computed(dtype) &&
        !dycl_track_any_now(call->region, 3, operands)) {
        const dycl_operand once[3] = {all[0], product[0], product[1]}; /* torch's compiler contracts it */
        DYCL_CALL_TRY(dycl_build_ew(r, DYCL_OP_add_scaled, DYCL_PROMOTE_COMMON, 3, once, &out));
    } else {
        sum[0] = all[0];
        sum[1] = dycl_operand_of(0);
        DYCL_CALL_TRY(dycl_build_ew(r, (dycl_op)row->op, DYCL_PROMOTE_COMMON, 2, product, &sum[1].value));
        DYCL_CALL_TRY(dycl_build_ew(r, DYCL_OP_add, DYCL_PROMOTE_COMMON, 2, sum, &out));
    }
    DYCL_CALL_TRY(dycl_build_cast(r, out, dtype, &out));
    return dycl_call_finish(call, dycl_build_iterated(r, out, 3, operands, &out), out);
}

static PyObject *cast(dycl_call *call,
                      const dycl_binding *row) { /* float(), long(), ...: the operand itself when it has the dtype */
    uint32_t value, out = 0;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    if (dycl_call_given(call->p[1])) return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (dycl_call_meta(call, value)->dtype == row->op) return dycl_call_same(call, call->p[0]);
    return dycl_call_finish(call, dycl_build_cast(&call->region->recorder, value, (dycl_dtype)row->op, &out), out);
}

#define FLOATS                              DYCL_PROMOTE_FLOAT
#define COMMON                              DYCL_PROMOTE_COMMON
#define NO_BOOL                             DYCL_PROMOTE_NO_BOOL
#define NO_BOOLS                            DYCL_PROMOTE_NO_BOOLS
#define UNARY(name, places, op, promotion)  ROW(name, places, "input", dycl_bind_unary, DYCL_OP_##op, promotion)
#define BINARY(name, places, op, promotion) ROW(name, places, "input other", binary, DYCL_OP_##op, promotion)

dycl_binding dycl_bindings_elementwise[] = {
    UNARY("neg", T | M | I | D, neg, NO_BOOL),
    UNARY("negative", T | M | I, neg, NO_BOOL),
    UNARY("abs", T | M | I | D, abs, NO_BOOL),
    UNARY("absolute", T | M | I, abs, NO_BOOL),
    UNARY("sign", T | M | I, sign, NO_BOOL),
    UNARY("square", T | M | I, square, NO_BOOL),
    UNARY("exp", T | M | I, exp, FLOATS),
    UNARY("exp2", T | M | I | S, exp2, FLOATS),
    UNARY("expm1", T | M | I | S, expm1, FLOATS),
    UNARY("log", T | M | I, log, FLOATS),
    UNARY("log2", T | M | I, log2, FLOATS),
    UNARY("log10", T | M | I, log10, FLOATS),
    UNARY("log1p", T | M | I | S, log1p, FLOATS),
    UNARY("sqrt", T | M | I, sqrt, FLOATS),
    UNARY("rsqrt", T | M | I, rsqrt, FLOATS),
    UNARY("reciprocal", T | M | I, reciprocal, FLOATS),
    UNARY("sin", T | M | I, sin, FLOATS),
    UNARY("cos", T | M | I, cos, FLOATS),
    UNARY("tan", T | M | I, tan, FLOATS),
    UNARY("tanh", T | M | I | F, tanh, FLOATS),
    UNARY("erf", T | M | I | S, erf, FLOATS),
    UNARY("sigmoid", T | M | I | F, sigmoid, FLOATS),
    UNARY("expit", S, sigmoid, FLOATS),
    UNARY("logsigmoid", F | N, logsigmoid, COMMON),
    UNARY("relu", T | M | I, relu, NO_BOOL),
    UNARY("floor", T | M | I, floor, COMMON),
    UNARY("ceil", T | M | I, ceil, COMMON),
    UNARY("round", T | M | I, round, COMMON),
    UNARY("trunc", T | M | I, trunc, COMMON),
    UNARY("fix", T | M | I, trunc, COMMON),
    UNARY("frac", T | M | I, frac, COMMON),
    UNARY("isnan", T | M, isnan, COMMON),
    ROW("isinf", T | M, "input", finiteness, DYCL_OP_isinf, COMMON),
    ROW("isfinite", T | M, "input", finiteness, DYCL_OP_isfinite, COMMON),
    UNARY("logical_not", T | M | I, logical_not, COMMON),
    UNARY("bitwise_not", T | M | I, bitwise_not, COMMON),
    UNARY("invert", D, bitwise_not, COMMON),
    ROW("add", T | M | I, "input other | alpha", scaled, DYCL_OP_add, COMMON),
    ROW("sub", T | M | I, "input other | alpha", scaled, DYCL_OP_sub, NO_BOOLS),
    ROW("subtract", T | M | I, "input other | alpha", scaled, DYCL_OP_sub, NO_BOOLS),
    BINARY("add", D | ID | RS, add, COMMON),
    BINARY("sub", D | ID | RD, sub, NO_BOOLS),
    ROW("rsub", T, "input other | alpha", reversed, DYCL_OP_sub, NO_BOOLS),
    BINARY("mul", T | M | I | D | ID | RS, mul, COMMON),
    BINARY("multiply", T | M | I, mul, COMMON),
    ROW("div", T | M | I, "input other | rounding_mode", divide, DYCL_OP_div, FLOATS),
    ROW("divide", T | M | I, "input other | rounding_mode", divide, DYCL_OP_div, FLOATS),
    BINARY("true_divide", T | M | I, div, FLOATS),
    ROW("truediv", D | ID, "input other", quotient, DYCL_OP_div, FLOATS),
    ROW("truediv", RS, "input other", reciprocal_times, 0, 0),
    BINARY("div", D | ID, div, FLOATS),
    ROW("div", RS, "input other", reciprocal_times, 0, 0),
    ROW("floor_divide", T | M | I, "input other", integer_divide, DYCL_OP_floor_div, 0),
    ROW("floordiv", D | ID | RD, "input other", integer_divide, DYCL_OP_floor_div, 0),
    ROW("remainder", T | M | I, "input other", integer_divide, DYCL_OP_remainder, 0),
    ROW("mod", D | ID | RD, "input other", integer_divide, DYCL_OP_remainder, 0),
    ROW("fmod", T | M | I, "input other", integer_divide, DYCL_OP_fmod, 0),
    ROW("pow", T | M | I | D | ID | RD, "input exponent", power, 0, 0),
    ROW("atan2", T | M | I, "input other", arc_tangent, DYCL_OP_atan2, FLOATS),
    ROW("arctan2", T | M | I, "input other", arc_tangent, DYCL_OP_atan2, FLOATS),
    BINARY("maximum", T | M, maximum, COMMON),
    BINARY("minimum", T | M, minimum, COMMON),
    BINARY("fmax", T | M, fmax, COMMON),
    BINARY("fmin", T | M, fmin, COMMON),
    BINARY("copysign", T | M | I, copysign, FLOATS),
    BINARY("eq", T | M | D, eq, COMMON),
    BINARY("ne", T | M | D, ne, COMMON),
    BINARY("not_equal", T | M, ne, COMMON),
    BINARY("lt", T | M | D, lt, COMMON),
    BINARY("less", T | M, lt, COMMON),
    BINARY("le", T | M | D, le, COMMON),
    BINARY("less_equal", T | M, le, COMMON),
    BINARY("gt", T | M | D, gt, COMMON),
    BINARY("greater", T | M, gt, COMMON),
    BINARY("ge", T | M | D, ge, COMMON),
    BINARY("greater_equal", T | M, ge, COMMON),
    BINARY("logical_and", T | M, logical_and, COMMON),
    BINARY("logical_or", T | M, logical_or, COMMON),
    BINARY("logical_xor", T | M, logical_xor, COMMON),
    BINARY("bitwise_and", T | M | I, bitwise_and, COMMON),
    BINARY("bitwise_or", T | M | I, bitwise_or, COMMON),
    BINARY("bitwise_xor", T | M | I, bitwise_xor, COMMON),
    BINARY("bitwise_left_shift", T | M | I, shift_left, NO_BOOL),
    BINARY("bitwise_right_shift", T | M | I, shift_right, NO_BOOL),
    BINARY("lshift", D | ID, shift_left, NO_BOOL),
    BINARY("rshift", D | ID, shift_right, NO_BOOL),
    BINARY("and", D | ID | RS, bitwise_and, COMMON),
    BINARY("or", D | ID | RS, bitwise_or, COMMON),
    BINARY("xor", D | ID | RS, bitwise_xor, COMMON),
    ROW("where", T, "condition input other", where, 0, 0),
    ROW("where", M, "self condition other", method_where, 0, 0),
    ROW("masked_fill", T | M | I, "input mask value", masked_fill, 0, 0),
    ROW("clamp", T | M | I, "input min max", clamp, 0, 0),
    ROW("clip", T | M | I, "input min max", clamp, 0, 0),
    ROW("clamp_min", T | M | I, "input min", clamp, 0, 0),
    ROW("clamp_max", T | M | I, "input max", clamp, 0, 1),
    ROW("lerp", T | M | I, "input end weight", lerp, DYCL_OP_lerp, 0),
    ROW("addcmul", T | M | I, "input tensor1 tensor2 | value", addc, DYCL_OP_mul, 0),
    ROW("addcdiv", T | M | I, "input tensor1 tensor2 | value", addc, DYCL_OP_div, 0),
    ROW("float", M, "self memory_format", cast, DYCL_F32, 0),
    ROW("half", M, "self memory_format", cast, DYCL_F16, 0),
    ROW("bfloat16", M, "self memory_format", cast, DYCL_BF16, 0),
    ROW("double", M, "self memory_format", cast, DYCL_F64, 0),
    ROW("long", M, "self memory_format", cast, DYCL_I64, 0),
    ROW("int", M, "self memory_format", cast, DYCL_I32, 0),
    ROW("bool", M, "self memory_format", cast, DYCL_BOOL, 0),
    {0},
};
