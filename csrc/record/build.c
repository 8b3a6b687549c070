#include "record/build.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/half.h"

void dycl_recorder_init(dycl_recorder *r) { memset(r, 0, sizeof *r); }

void dycl_recorder_reset(dycl_recorder *r) {
    dycl_graph_reset(&r->graph);
    r->range_count = 0;
}

void dycl_recorder_free(dycl_recorder *r) {
    dycl_graph_free(&r->graph);
    dycl_free(r->scalars);
    dycl_free(r->ranges);
    dycl_recorder_init(r);
}

void dycl_recorder_bound(dycl_recorder *r, uint32_t value, int64_t low, int64_t high) {
    if (!DYCL_MAKE_ROOM(r->ranges, r->range_room, value + 1)) return;
    for (; r->range_count <= value; r->range_count++) {
        r->ranges[r->range_count][0] = 1;
        r->ranges[r->range_count][1] = 0;
    }
    r->ranges[value][0] = low;
    r->ranges[value][1] = high;
}

void dycl_recorder_bound_as(dycl_recorder *r, uint32_t to, uint32_t from) {
    if (dycl_recorder_bounded(r, from)) dycl_recorder_bound(r, to, r->ranges[from][0], r->ranges[from][1]);
}

dycl_status dycl_build_bail(dycl_recorder *r, dycl_bail why) {
    r->why = why;
    return DYCL_BAIL;
}

dycl_status dycl_build_node(dycl_recorder *r, dycl_op op, int operand_count, const uint32_t *operands, int attr_count,
                            const int64_t *attrs, uint32_t *out) {
    dycl_status status = dycl_graph_node(&r->graph, op, operand_count, operands, attr_count, attrs, out);
    if (status == DYCL_BAIL) r->why = DYCL_BAIL_shape;
    return status;
}

/* ---- Type promotion */

dycl_dtype dycl_default_dtype = DYCL_F32;

dycl_dtype dycl_promote(dycl_dtype a, dycl_dtype b) {
    if (a == b) return a;
    if (a == DYCL_BOOL) return b;
    if (b == DYCL_BOOL) return a;
    if (dycl_dtype_is_float(a) || dycl_dtype_is_float(b)) {
        if (!dycl_dtype_is_float(b)) return a;
        if (!dycl_dtype_is_float(a)) return b;
        return a == DYCL_F64 || b == DYCL_F64 ? DYCL_F64 : DYCL_F32; /* bf16 and f16 have f32 in common */
    }
    if (a == DYCL_U8 || b == DYCL_U8) {
        dycl_dtype other = a == DYCL_U8 ? b : a;
        return other == DYCL_I8 ? DYCL_I16 : other;
    }
    return a < b ? a : b; /* the enum lists signed integers from wide to narrow */
}

dycl_dtype dycl_number_dtype(const dycl_operand *number) {
    if (number->kind == DYCL_OPERAND_FLOAT) return dycl_default_dtype;
    return number->kind == DYCL_OPERAND_INT ? DYCL_I64 : DYCL_BOOL;
}

static int combine(int higher, int lower) { /* -1: nothing of that category */
    if (higher < 0) return lower;
    if (dycl_dtype_is_float((dycl_dtype)higher)) return higher;
    if (lower >= 0 && (higher == DYCL_BOOL || dycl_dtype_is_float((dycl_dtype)lower)))
        return dycl_promote((dycl_dtype)higher, (dycl_dtype)lower);
    return higher;
}

dycl_dtype dycl_result_type(const dycl_recorder *r, int count, const dycl_operand *operands) {
    int dim = -1, zero = -1, wrapped = -1;
    for (int i = 0; i < count; i++) {
        dycl_dtype dtype;
        int *category;
        if (operands[i].kind == DYCL_OPERAND_VALUE) {
            const dycl_value *value = &r->graph.values[operands[i].value];
            dtype = (dycl_dtype)value->dtype;
            category = value->rank ? &dim : &zero;
        } else {
            dtype = dycl_number_dtype(&operands[i]);
            category = &wrapped;
        }
        *category = *category < 0 ? (int)dtype : (int)dycl_promote((dycl_dtype)*category, dtype);
    }
    return (dycl_dtype)combine(dim, combine(zero, wrapped));
}

dycl_status dycl_build_cast(dycl_recorder *r, uint32_t value, dycl_dtype dtype, uint32_t *out) {
    if (r->graph.values[value].dtype == dtype) {
        *out = value;
        return DYCL_OK;
    }
    int64_t attr = dtype;
    dycl_status status = dycl_build_node(r, DYCL_OP_cast, 1, &value, 1, &attr, out);
    if (status == DYCL_OK && dycl_recorder_bounded(r, value)) {
        int fits = dtype == DYCL_I64 ||
                   (dtype == DYCL_I32 && r->ranges[value][0] >= INT32_MIN && r->ranges[value][1] <= INT32_MAX);
        if (fits) dycl_recorder_bound_as(r, *out, value);
    }
    return status;
}

static int fits(dycl_dtype dtype, int64_t i) {
    switch (dtype) {
    case DYCL_I32: return i >= INT32_MIN && i <= INT32_MAX;
    case DYCL_I16: return i >= INT16_MIN && i <= INT16_MAX;
    case DYCL_I8: return i >= INT8_MIN && i <= INT8_MAX;
    case DYCL_U8: return i >= 0 && i <= UINT8_MAX;
    case DYCL_BOOL: return i == 0 || i == 1;
    default: return 1;
    }
}

/* Finite, and larger than all of the dtype: most of torch's operators raise an error. */
static int is_beyond(dycl_dtype dtype, double f) { return isfinite(f) && fabs(f) > dycl_dtype_most(dtype); }

/* How a number meets floats of 16 bits: as one of them, or with all its bits, as the kernel computes with it; either
 * within their range, or whatever it is. */
typedef enum { ROUNDED, IN_RANGE, AS_IT_IS } exactness;

static dycl_status push_scalar(dycl_recorder *r, const dycl_operand *operand, dycl_dtype dtype, exactness exact,
                               uint32_t *out) {
    uint32_t at = r->graph.scalar_count;
    if (!DYCL_MAKE_ROOM(r->scalars, r->scalar_room, at + 1)) return dycl_error_set("out of memory while recording");
    dycl_scalar *scalar = &r->scalars[at];
    memset(scalar, 0, sizeof *scalar);
    if (dycl_dtype_is_float(dtype)) {
        double f = operand->kind == DYCL_OPERAND_FLOAT ? operand->f : (double)operand->i;
        if (is_beyond(exact == AS_IT_IS ? dycl_dtype_computed(dtype) : dtype, f))
            return dycl_build_bail(r, DYCL_BAIL_arguments);
        if (dtype == DYCL_F64)
            scalar->f64 = f;
        else
            scalar->f32 = operand->kind == DYCL_OPERAND_FLOAT ? (float)f : (float)operand->i;
        if (dycl_dtype_is_half(dtype) && exact == ROUNDED) scalar->f32 = dycl_half_round(dtype, scalar->f32);
    } else {
        int64_t i = operand->i;
        if (operand->kind == DYCL_OPERAND_FLOAT || !fits(dtype, i)) return dycl_build_bail(r, DYCL_BAIL_arguments);
        switch (dtype) {
        case DYCL_I64: scalar->i64 = i; break;
        case DYCL_I32: scalar->i32 = (int32_t)i; break;
        case DYCL_I16: scalar->i16 = (int16_t)i; break;
        case DYCL_I8: scalar->i8 = (int8_t)i; break;
        default: scalar->u8 = (uint8_t)i;
        }
    }
    return dycl_graph_scalar(&r->graph, dtype, out);
}

dycl_status dycl_build_scalar(dycl_recorder *r, dycl_dtype dtype, dycl_scalar number, uint32_t *out) {
    uint32_t at = r->graph.scalar_count;
    if (!DYCL_MAKE_ROOM(r->scalars, r->scalar_room, at + 1)) return dycl_error_set("out of memory while recording");
    r->scalars[at] = number;
    return dycl_graph_scalar(&r->graph, dtype, out);
}

dycl_status dycl_build_convert(dycl_recorder *r, const dycl_operand *operand, dycl_dtype dtype, uint32_t *out) {
    if (operand->kind == DYCL_OPERAND_VALUE) return dycl_build_cast(r, operand->value, dtype, out);
    return push_scalar(r, operand, dtype, ROUNDED, out);
}

/* ---- Elementwise */

/* Bounds of integer sums, differences and products, where both sides are known. */
static void infer_range(dycl_recorder *r, dycl_op op, const uint32_t *values, uint32_t out) {
    int64_t bounds[2][2];
    if (op != DYCL_OP_add && op != DYCL_OP_sub && op != DYCL_OP_mul && op != DYCL_OP_floor_div &&
        op != DYCL_OP_remainder)
        return;
    for (int i = 0; i < 2; i++) {
        const dycl_value *value = &r->graph.values[values[i]];
        if (value->kind == DYCL_VALUE_SCALAR) {
            bounds[i][0] = bounds[i][1] = r->scalars[value->source].i64;
        } else if (dycl_recorder_bounded(r, values[i])) {
            memcpy(bounds[i], r->ranges[values[i]], sizeof bounds[i]);
        } else {
            return;
        }
        const int64_t most = INT64_C(1) << 30; /* far from overflow */
        if (bounds[i][0] < -most || bounds[i][1] > most) return;
    }
    int divides = op == DYCL_OP_floor_div || op == DYCL_OP_remainder;
    if (divides && (bounds[1][0] != bounds[1][1] || bounds[1][0] < 1 || bounds[0][0] < 0)) return;
    if (op == DYCL_OP_floor_div) {
        dycl_recorder_bound(r, out, bounds[0][0] / bounds[1][0], bounds[0][1] / bounds[1][0]);
    } else if (op == DYCL_OP_remainder) {
        dycl_recorder_bound(r, out, 0, bounds[0][1] < bounds[1][0] ? bounds[0][1] : bounds[1][0] - 1);
    } else if (op == DYCL_OP_mul) {
        int64_t low = INT64_MAX, high = INT64_MIN;
        for (int i = 0; i < 4; i++) {
            int64_t product = bounds[0][i & 1] * bounds[1][i >> 1];
            if (product < low) low = product;
            if (product > high) high = product;
        }
        dycl_recorder_bound(r, out, low, high);
    } else if (op == DYCL_OP_add) {
        dycl_recorder_bound(r, out, bounds[0][0] + bounds[1][0], bounds[0][1] + bounds[1][1]);
    } else {
        dycl_recorder_bound(r, out, bounds[0][0] - bounds[1][1], bounds[0][1] - bounds[1][0]);
    }
}

static int is_bool(const dycl_recorder *r, const dycl_operand *o) {
    return o->kind == DYCL_OPERAND_BOOL ||
           (o->kind == DYCL_OPERAND_VALUE && r->graph.values[o->value].dtype == DYCL_BOOL);
}

/* ---- Floats of 16 bits: torch computes nearly everything in f32 and rounds once. What is said here was found by all
 * values of an operand (tests/py/test_half.py). */

/* Operators whose kernel in torch does otherwise: rounds on the way, or is less accurate. */
static int half_differs(dycl_op op, dycl_dtype dtype) {
    switch (op) {
    case DYCL_OP_erf:
    case DYCL_OP_floor_div:
    case DYCL_OP_trunc_div:
    case DYCL_OP_softsign:
    case DYCL_OP_fmax: /* NaN */
    case DYCL_OP_fmin: return 1;
    case DYCL_OP_gelu:
    case DYCL_OP_lerp: return dtype == DYCL_F16;
    default: return 0;
    }
}

/* Whether the kernel takes operand i, a number, as f32; others round it to the dtype of the tensors. */
static exactness takes_number(dycl_op op, int i) {
    switch (op) {
    case DYCL_OP_mul: return AS_IT_IS;
    case DYCL_OP_leaky_relu:
    case DYCL_OP_elu:
    case DYCL_OP_celu:
    case DYCL_OP_softplus:
    case DYCL_OP_threshold:
    case DYCL_OP_lerp: return IN_RANGE;
    case DYCL_OP_div: return i == 1 ? AS_IT_IS : ROUNDED;
    default: return ROUNDED;
    }
}

static dycl_status half_operand(dycl_recorder *r, dycl_op op, int i, const dycl_operand *operand, dycl_dtype dtype,
                                uint32_t *out) {
    if (operand->kind != DYCL_OPERAND_VALUE) return push_scalar(r, operand, dtype, takes_number(op, i), out);
    const dycl_value *value = &r->graph.values[operand->value];
    /* one element of another dtype is a number to these */
    if (value->dtype != dtype && takes_number(op, i) && dycl_value_numel(value) == 1)
        return dycl_build_bail(r, DYCL_BAIL_dtype);
    return dycl_build_cast(r, operand->value, dtype, out);
}

static dycl_status ew_of_values(dycl_recorder *r, dycl_op op, int count, const uint32_t *values, uint32_t *out) {
    dycl_dtype dtype = (dycl_dtype)r->graph.values[values[count - 1]].dtype;
    if (!(dycl_ew_dtypes[op] >> dtype & 1) || (dycl_dtype_is_half(dtype) && half_differs(op, dtype)))
        return dycl_build_bail(r, DYCL_BAIL_dtype);
    dycl_status status = dycl_build_node(r, op, count, values, 0, NULL, out);
    if (status == DYCL_OK && count == 2 && r->graph.values[*out].dtype == DYCL_I64) infer_range(r, op, values, *out);
    return status;
}

dycl_status dycl_build_ew(dycl_recorder *r, dycl_op op, dycl_promotion promotion, int count,
                          const dycl_operand *operands, uint32_t *out) {
    dycl_status status;
    uint32_t values[3];
    if (count == 1 && operands[0].kind == DYCL_OPERAND_VALUE &&
        dycl_dtype_is_float((dycl_dtype)r->graph.values[operands[0].value].dtype))
        return ew_of_values(r, op, 1, &operands[0].value, out);
    if (count == 2 && operands[0].kind == DYCL_OPERAND_VALUE && operands[1].kind == DYCL_OPERAND_VALUE) {
        const dycl_value *a = &r->graph.values[operands[0].value], *b = &r->graph.values[operands[1].value];
        if (a->dtype == b->dtype && dycl_dtype_is_float((dycl_dtype)a->dtype)) { /* nothing to promote */
            values[0] = operands[0].value;
            values[1] = operands[1].value;
            return ew_of_values(r, op, 2, values, out);
        }
    }
    dycl_dtype dtype;
    if (count == 2 && (operands[0].kind == DYCL_OPERAND_VALUE) != (operands[1].kind == DYCL_OPERAND_VALUE) &&
        dycl_dtype_is_float((dycl_dtype)r->graph.values[operands[operands[0].kind != DYCL_OPERAND_VALUE].value].dtype))
        dtype = (dycl_dtype)r->graph.values[operands[operands[0].kind != DYCL_OPERAND_VALUE].value]
                    .dtype; /* a number never changes a float's dtype */
    else
        dtype = dycl_result_type(r, count, operands);
    if (promotion == DYCL_PROMOTE_FLOAT && !dycl_dtype_is_float(dtype)) dtype = dycl_default_dtype;
    if (promotion == DYCL_PROMOTE_NO_BOOLS)
        for (int i = 0; i < count; i++)
            if (is_bool(r, &operands[i])) return dycl_build_bail(r, DYCL_BAIL_dtype);
    if (promotion == DYCL_PROMOTE_NO_BOOL && dtype == DYCL_BOOL) return dycl_build_bail(r, DYCL_BAIL_dtype);
    for (int i = 0; op == DYCL_OP_sub && i < count; i++) /* an error in torch, whatever the other operand is */
        if (operands[i].kind == DYCL_OPERAND_BOOL ||
            (operands[i].kind == DYCL_OPERAND_VALUE && r->graph.values[operands[i].value].dtype == DYCL_BOOL))
            return dycl_build_bail(r, DYCL_BAIL_dtype);
    for (int i = 0; i < count; i++)
        DYCL_TRY(dycl_dtype_is_half(dtype) ? half_operand(r, op, i, &operands[i], dtype, &values[i])
                                           : dycl_build_convert(r, &operands[i], dtype, &values[i]));
    return ew_of_values(r, op, count, values, out);
fail:
    return status;
}

dycl_status dycl_build_where(dycl_recorder *r, const dycl_operand *condition, const dycl_operand *a,
                             const dycl_operand *b, uint32_t *out) {
    dycl_status status;
    dycl_operand sides[2] = {*a, *b};
    uint32_t values[3];
    dycl_dtype dtype = dycl_result_type(r, 2, sides);
    if (condition->kind != DYCL_OPERAND_VALUE || r->graph.values[condition->value].dtype != DYCL_BOOL)
        return dycl_build_bail(r, DYCL_BAIL_dtype);
    values[0] = condition->value;
    DYCL_TRY(dycl_build_convert(r, a, dtype, &values[1]));
    DYCL_TRY(dycl_build_convert(r, b, dtype, &values[2]));
    return ew_of_values(r, DYCL_OP_where, 3, values, out);
fail:
    return status;
}

/* ATen/native/cpu/PowKernel.cpp computes these exponents without pow. */
dycl_status dycl_build_pow(dycl_recorder *r, const dycl_operand *base, const dycl_operand *exponent, uint32_t *out) {
    dycl_status status;
    dycl_operand both[2] = {*base, *exponent};
    dycl_dtype dtype = dycl_result_type(r, 2, both);
    uint32_t x, y;
    if (!dycl_dtype_is_float(dtype)) {
        if (base->kind == DYCL_OPERAND_VALUE && exponent->kind == DYCL_OPERAND_INT && exponent->i == 2 &&
            dtype != DYCL_BOOL) {
            DYCL_TRY(dycl_build_convert(r, base, dtype, &x));
            return ew_of_values(r, DYCL_OP_square, 1, &x, out);
        }
        return dycl_build_bail(r, DYCL_BAIL_dtype);
    }
    if (base->kind != DYCL_OPERAND_VALUE || exponent->kind == DYCL_OPERAND_VALUE)
        return dycl_build_ew(r, DYCL_OP_pow, DYCL_PROMOTE_COMMON, 2, both, out);
    double e = exponent->kind == DYCL_OPERAND_FLOAT ? exponent->f : (double)exponent->i;
    DYCL_TRY(dycl_build_convert(r, base, dtype, &x));
    if (e == 2.0) return ew_of_values(r, DYCL_OP_square, 1, &x, out);
    if (e == 1.0) return ew_of_values(r, DYCL_OP_copy, 1, &x, out);
    if (e == 0.5 && dtype != DYCL_F16) return ew_of_values(r, DYCL_OP_sqrt, 1, &x, out);
    if (e == -0.5 && dtype != DYCL_F16) return ew_of_values(r, DYCL_OP_rsqrt, 1, &x, out);
    if (e == -1.0) return ew_of_values(r, DYCL_OP_reciprocal, 1, &x, out);
    if (e == 3.0 || e == -2.0) {
        if (dtype == DYCL_F16) return dycl_build_bail(r, DYCL_BAIL_dtype); /* rounded once there, in bf16 twice */
        DYCL_TRY(ew_of_values(r, DYCL_OP_square, 1, &x, &y));
        if (e == -2.0) {
            DYCL_TRY(ew_of_values(r, DYCL_OP_reciprocal, 1, &y, out));
            const dycl_value *one = &r->graph.values[y], *two = &r->graph.values[*out];
            size_t bytes = one->rank * sizeof *one->strides; /* of size 1: each operator chooses strides anew */
            return memcmp(one->strides, two->strides, bytes) ? dycl_build_bail(r, DYCL_BAIL_layout) : DYCL_OK;
        }
        uint32_t product[2] = {y, x};
        return ew_of_values(r, DYCL_OP_mul, 2, product, out);
    }
    return dycl_build_ew(r, DYCL_OP_pow, DYCL_PROMOTE_COMMON, 2, both, out);
fail:
    return status;
}
