#include "check/number.h"

#include "base/half.h"

#include <float.h>
#include <math.h>

static double rounded(dycl_dtype dtype, double x) {
    if (dycl_dtype_is_half(dtype)) return (double)dycl_half_round(dtype, (float)x);
    return dtype == DYCL_F32 ? (double)(float)x : x;
}

double dycl_number_epsilon(dycl_dtype dtype) {
    switch (dtype) {
    case DYCL_BF16: return 0x1p-7;
    case DYCL_F16: return 0x1p-10;
    case DYCL_F32: return 32 * (double)FLT_EPSILON;
    default: return 4096 * DBL_EPSILON;
    }
}

/* The smallest number with all its bits. */
static double least_normal(dycl_dtype dtype) {
    return dtype == DYCL_F16 ? 0x1p-14 : dtype == DYCL_F64 ? DBL_MIN : FLT_MIN;
}

dycl_number dycl_number_unknown(void) { return (dycl_number){0, 0, INFINITY}; }

dycl_number dycl_number_f(dycl_dtype dtype, double f, double error) {
    double r = rounded(dtype, f);
    if (!isfinite(r) || isnan(error)) return (dycl_number){r, 0, error > 0 || isnan(error) ? INFINITY : 0};
    if (dtype != DYCL_F64 && error > 0 && fabs(r) + error > dycl_dtype_most(dtype))
        return (dycl_number){r, 0, INFINITY}; /* it may be infinite */
    return (dycl_number){r, 0, error + (fabs(r) + error) * dycl_number_epsilon(dtype) + least_normal(dtype)};
}

static int64_t wrapped(dycl_dtype dtype, int64_t i) {
    switch (dtype) {
    case DYCL_I32: return (int32_t)i;
    case DYCL_I16: return (int16_t)i;
    case DYCL_I8: return (int8_t)i;
    case DYCL_U8: return (uint8_t)i;
    case DYCL_BOOL: return i != 0;
    default: return i;
    }
}

dycl_number dycl_number_i(dycl_dtype dtype, int64_t i) { return (dycl_number){0, wrapped(dtype, i), 0}; }

static dycl_number flag(int is) { return (dycl_number){0, is, 0}; }

dycl_number dycl_number_load(dycl_dtype dtype, const void *p, int64_t at) {
    switch (dtype) {
    case DYCL_F32: return (dycl_number){((const float *)p)[at], 0, 0};
    case DYCL_F64: return (dycl_number){((const double *)p)[at], 0, 0};
    case DYCL_I64: return (dycl_number){0, ((const int64_t *)p)[at], 0};
    case DYCL_I32: return (dycl_number){0, ((const int32_t *)p)[at], 0};
    case DYCL_I16: return (dycl_number){0, ((const int16_t *)p)[at], 0};
    case DYCL_I8: return (dycl_number){0, ((const int8_t *)p)[at], 0};
    case DYCL_U8: return (dycl_number){0, ((const uint8_t *)p)[at], 0};
    case DYCL_BF16:
    case DYCL_F16: return (dycl_number){(double)dycl_half_value(dtype, ((const uint16_t *)p)[at]), 0, 0};
    default: { /* torch copies a bool with its byte, whatever that is */
        uint8_t byte = ((const uint8_t *)p)[at];
        return (dycl_number){byte > 1 ? byte : 0, byte != 0, 0};
    }
    }
}

int dycl_number_accepts(dycl_dtype dtype, dycl_number want, const void *memory, int64_t at) {
    if (!dycl_number_known(want)) return 1;
    dycl_number got = dycl_number_load(dtype, memory, at);
    if (dtype == DYCL_BOOL && got.f != 0 && got.f != want.f) return 0; /* 0 or 1 in memory, or copied from there */
    if (!dycl_dtype_is_float(dtype)) return got.i == want.i;
    if (isnan(want.f)) return isnan(got.f);
    return got.f == want.f || fabs(got.f - want.f) <= want.error;
}

/* ---- Floats: the value at a point */

static double python_remainder(double a, double b) {
    double r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static double floor_div(double a, double b) { /* as Python's and torch's, from the remainder */
    if (b == 0) return a / b;
    double mod = fmod(a, b), div = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0)) div -= 1;
    if (div == 0) return copysign(0, a / b);
    double low = floor(div);
    return div - low > 0.5 ? low + 1 : low;
}

/* Which branch it is, the rounded product decides. */
static double softplus(dycl_dtype dtype, double x, double beta, double threshold) {
    double product = x * beta, seen = dtype == DYCL_F64 ? product : (double)(float)product;
    return seen > threshold ? x : (fmax(product, 0) + log1p(exp(-fabs(product)))) / beta;
}
static double sigmoid(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }
/* Without the cancellation of the textbook's 1 + erf and 1 + tanh: see inner_rounding. */
static double gelu(double x) { return 0.5 * x * erfc(-x * 0.7071067811865476); }
static double gelu_tanh(double x) { return x * sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x)); }
static double gelu_slope(double x) {
    return 0.5 * erfc(-x * 0.7071067811865476) + x * (exp(-0.5 * x * x) * 0.3989422804014327);
}
/* The product of 0 and infinity where x^2 overflows is torch's. */
static double gelu_tanh_slope(dycl_dtype dtype, double x) {
    double square = dtype == DYCL_F64 ? x * x : (double)(float)(x * x);
    double t = tanh(0.7978845608028654 * x * (1 + 0.044715 * square));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * (0.7978845608028654 * (1 + 0.134145 * square));
}
static double logsigmoid_slope(double x) {
    double e = exp(-fabs(x)), part = e / (e + 1);
    return x < 0 ? 1 - part : part;
}
static double hardswish_slope(double x) { return x <= -3 ? 0 : x >= 3 ? 1 : x / 3 + 0.5; }
static double silu_slope(double x) {
    double s = sigmoid(x);
    return s * (1 + x * (1 - s));
}

/* NaN goes through all of these, as in torch. */
static double larger(double a, double b) { return isnan(a) ? a : isnan(b) ? b : a > b ? a : b; }
static double smaller(double a, double b) { return isnan(a) ? a : isnan(b) ? b : a < b ? a : b; }
static double clamp(double x, double low, double high) {
    if (isnan(x)) return x;
    return isnan(low) || isnan(high) ? NAN : fmin(fmax(x, low), high);
}

/* torch's formula has this product on the way, which overflows in f32 (and in halves, that are computed in f32). */
static double hardswish(dycl_dtype dtype, double x) {
    double product = x * clamp(x + 3, 0, 6);
    return (dtype == DYCL_F64 ? product : (double)(float)product) / 6;
}

static double of_one(dycl_ew op, dycl_dtype dtype, double a) {
    switch (op) {
    case DYCL_EW_copy:
    case DYCL_EW_cut: return a;
    case DYCL_EW_neg: return -a;
    case DYCL_EW_abs: return fabs(a);
    case DYCL_EW_sign: return (a > 0) - (a < 0); /* 0 of a NaN */
    case DYCL_EW_square: return a * a;
    case DYCL_EW_exp: return exp(a);
    case DYCL_EW_exp2: return exp2(a);
    case DYCL_EW_expm1: return expm1(a);
    case DYCL_EW_log: return log(a);
    case DYCL_EW_log2: return log2(a);
    case DYCL_EW_log10: return log10(a);
    case DYCL_EW_log1p: return log1p(a);
    case DYCL_EW_sqrt: return sqrt(a);
    case DYCL_EW_rsqrt: return 1 / sqrt(a);
    case DYCL_EW_reciprocal: return 1 / a;
    case DYCL_EW_sin: return sin(a);
    case DYCL_EW_cos: return cos(a);
    case DYCL_EW_tan: return tan(a);
    case DYCL_EW_tanh: return tanh(a);
    case DYCL_EW_erf: return erf(a);
    case DYCL_EW_sigmoid: return sigmoid(a);
    case DYCL_EW_logsigmoid: return fmin(a, 0) - log1p(exp(-fabs(a)));
    case DYCL_EW_relu: return larger(a, 0);
    case DYCL_EW_relu6: return clamp(a, 0, 6);
    case DYCL_EW_gelu: return gelu(a);
    case DYCL_EW_gelu_tanh: return gelu_tanh(a);
    case DYCL_EW_silu: return a * sigmoid(a);
    case DYCL_EW_mish: return a * tanh(softplus(dtype, a, 1, INFINITY));
    case DYCL_EW_hardswish: return hardswish(dtype, a);
    case DYCL_EW_hardsigmoid: return clamp(a + 3, 0, 6) / 6;
    case DYCL_EW_softsign: return a / (1 + fabs(a));
    case DYCL_EW_floor: return floor(a);
    case DYCL_EW_ceil: return ceil(a);
    case DYCL_EW_round: return nearbyint(a);
    case DYCL_EW_trunc: return trunc(a);
    case DYCL_EW_frac: return a - trunc(a);
    case DYCL_EW_isnan: return isnan(a);
    case DYCL_EW_isinf: return isinf(a) != 0;
    case DYCL_EW_isfinite: return isfinite(a);
    case DYCL_EW_logical_not: return a == 0;
    default: return NAN; /* integers' only */
    }
}

static double of_two(dycl_ew op, dycl_dtype dtype, double a, double b) {
    switch (op) {
    case DYCL_EW_add: return a + b;
    case DYCL_EW_sub: return a - b;
    case DYCL_EW_mul: return a * b;
    case DYCL_EW_div: return a / b;
    case DYCL_EW_floor_div: return floor_div(a, b);
    case DYCL_EW_trunc_div: return trunc(a / b);
    case DYCL_EW_remainder: return python_remainder(a, b);
    case DYCL_EW_fmod: return fmod(a, b);
    case DYCL_EW_pow: return pow(a, b);
    case DYCL_EW_atan2: return atan2(a, b);
    case DYCL_EW_maximum: return larger(a, b);
    case DYCL_EW_minimum: return smaller(a, b);
    case DYCL_EW_fmax: return fmax(a, b);
    case DYCL_EW_fmin: return fmin(a, b);
    case DYCL_EW_eq: return a == b;
    case DYCL_EW_ne: return a != b;
    case DYCL_EW_lt: return a < b;
    case DYCL_EW_le: return a <= b;
    case DYCL_EW_gt: return a > b;
    case DYCL_EW_ge: return a >= b;
    case DYCL_EW_logical_and: return a != 0 && b != 0;
    case DYCL_EW_logical_or: return a != 0 || b != 0;
    case DYCL_EW_logical_xor: return (a != 0) != (b != 0);
    case DYCL_EW_leaky_relu: return a > 0 ? a : a * b;
    case DYCL_EW_elu: return a >= 0 ? a : b * expm1(a);
    case DYCL_EW_celu: return a > 0 ? a : b * expm1(a / b);
    case DYCL_EW_hardshrink: return fabs(a) <= b ? 0 : a;
    case DYCL_EW_relu_grad: return b <= 0 ? 0 : a;
    case DYCL_EW_gelu_grad: return a * gelu_slope(b);
    case DYCL_EW_gelu_tanh_grad: return a * gelu_tanh_slope(dtype, b);
    case DYCL_EW_silu_grad: return a * silu_slope(b);
    case DYCL_EW_relu6_grad: return b > 0 && b < 6 ? a : 0;
    case DYCL_EW_hardswish_grad: return b <= -3 ? 0 : a * hardswish_slope(b);
    case DYCL_EW_hardsigmoid_grad: return b > -3 && b < 3 ? a * (double)(1.0f / 6) : 0;
    case DYCL_EW_logsigmoid_grad: return a * logsigmoid_slope(b);
    case DYCL_EW_selu_grad: return a * 1.0507009873554805 * (b > 0 ? 1 : 1.6732632423543772 * exp(b));
    case DYCL_EW_copysign: return copysign(a, b);
    default: return NAN; /* integers' only */
    }
}

static double of_three(dycl_ew op, dycl_dtype dtype, double a, double b, double c) {
    switch (op) {
    case DYCL_EW_lerp: return fabs(c) < 0.5 ? a + c * (b - a) : b - (b - a) * (1 - c);
    case DYCL_EW_clamp:
    case DYCL_EW_hardtanh: return clamp(a, b, c);
    case DYCL_EW_softplus: return softplus(dtype, a, b, c);
    case DYCL_EW_threshold: return a <= b ? c : a;
    case DYCL_EW_leaky_relu_grad: return b > 0 ? a : a * c;
    case DYCL_EW_threshold_grad: return b <= c ? 0 : a;
    case DYCL_EW_below_grad: return b < c ? a : 0;
    case DYCL_EW_hardshrink_grad: return fabs(b) > c ? a : 0;
    case DYCL_EW_elu_grad: return b > 0 ? a : a * c * exp(b);
    case DYCL_EW_celu_grad: return b > 0 ? a : a * exp(b / c);
    case DYCL_EW_softplus_grad: return b > c ? a : a * exp(b) / (exp(b) + 1);
    case DYCL_EW_add_scaled: return a + b * c;
    case DYCL_EW_fma: return a * b + c;
    default: return NAN; /* integers' only */
    }
}

static double at_point(dycl_ew op, dycl_dtype dtype, const double *x) {
    switch (dycl_ew_arity(op)) {
    case 1: return of_one(op, dtype, x[0]);
    case 2: return of_two(op, dtype, x[0], x[1]);
    default: return of_three(op, dtype, x[0], x[1], x[2]);
    }
}

/* What the operator's own formula rounds on the way, where that is more than the result's rounding: sums that cancel,
 * arguments that are scaled. */
static double inner_rounding(dycl_ew op, dycl_dtype dtype, const double *x) {
    switch (op) {
    case DYCL_EW_gelu:
    case DYCL_EW_gelu_tanh: return fabs(x[0]);                    /* 1 + erf(x) cancels, as in torch */
    case DYCL_EW_mish: return dtype == DYCL_F64 ? fabs(x[0]) : 0; /* f32's kernel does not cancel */
    case DYCL_EW_silu_grad:
    case DYCL_EW_gelu_grad: return fabs(x[0]);
    case DYCL_EW_hardswish_grad: return fabs(x[0] * x[1]) / 3; /* x / 3 + 0.5 cancels at -1.5 */
    case DYCL_EW_celu_grad: return x[1] > 0 ? 0 : 2 * fabs(x[0] * x[1] / x[2]) * exp(x[1] / x[2]);
    case DYCL_EW_gelu_tanh_grad: return 32 * fabs(x[0]); /* 1 - tanh^2, by what grows as x^3 until it is 0 */
    case DYCL_EW_add:
    case DYCL_EW_sub: return 0;
    case DYCL_EW_add_scaled: return fabs(x[1] * x[2]);
    case DYCL_EW_fma: return fabs(x[0] * x[1]);
    case DYCL_EW_lerp: return fabs(x[0]) + fabs(x[1]) + fabs(x[2]) * fabs(x[1] - x[0]);
    case DYCL_EW_sin:
    case DYCL_EW_cos:
    case DYCL_EW_tan:
    case DYCL_EW_logsigmoid:
    case DYCL_EW_log:
    case DYCL_EW_log2:
    case DYCL_EW_log10: return 1;
    case DYCL_EW_pow: return fabs(pow(x[0], x[1])) * (1 + fabs(x[1] * log(fabs(x[0]) + 1e-300)));
    case DYCL_EW_remainder:
    case DYCL_EW_fmod: return 0;
    default: return 0;
    }
}

static int may_be_zero(dycl_number x) { return x.error > 0 && fabs(x.f) <= x.error; }

/* Between the ends of an operand's interval the function leaves all bounds, or jumps. */
static int has_pole_inside(dycl_ew op, const dycl_number *x) {
    double low, high;
    switch (op) {
    case DYCL_EW_reciprocal:
    case DYCL_EW_rsqrt:
    case DYCL_EW_log:
    case DYCL_EW_log2:
    case DYCL_EW_log10: return fabs(x[0].f) <= x[0].error;
    case DYCL_EW_log1p: return fabs(x[0].f + 1) <= x[0].error;
    case DYCL_EW_tan: /* half a turn apart */
        return floor((x[0].f - x[0].error) * 0.3183098861837907 + 0.5) !=
               floor((x[0].f + x[0].error) * 0.3183098861837907 + 0.5);
    case DYCL_EW_frac: return trunc(x[0].f - x[0].error) != trunc(x[0].f + x[0].error);
    case DYCL_EW_hardshrink: /* from 0 to the bound */ return fabs(fabs(x[0].f) - x[1].f) <= x[0].error + x[1].error;
    case DYCL_EW_celu:
    case DYCL_EW_div:
    case DYCL_EW_floor_div:
    case DYCL_EW_trunc_div: return fabs(x[1].f) <= x[1].error;
    case DYCL_EW_softplus: /* a line beyond the threshold */
        high = fabs(x[0].f) * x[1].error + fabs(x[1].f) * x[0].error + x[0].error * x[1].error + x[2].error;
        return fabs(x[1].f) <= x[1].error || fabs(x[0].f * x[1].f - x[2].f) <= high;
    case DYCL_EW_remainder:
    case DYCL_EW_fmod:
        if (fabs(x[1].f) <= x[1].error) return 1;
        low = (fabs(x[0].f) - x[0].error) / (fabs(x[1].f) + x[1].error),
        high = (fabs(x[0].f) + x[0].error) / (fabs(x[1].f) - x[1].error);
        return floor(low) != floor(high);
    case DYCL_EW_pow: return fabs(x[0].f) <= x[0].error;
    case DYCL_EW_gelu_grad: /* slopes that turn round twice */
    case DYCL_EW_gelu_tanh_grad:
    case DYCL_EW_silu_grad: return x[1].error > 0.125;
    case DYCL_EW_hardswish_grad: /* slopes that jump */
    case DYCL_EW_hardsigmoid_grad: return x[1].error > 0 && fabs(fabs(x[1].f) - 3) <= x[1].error;
    case DYCL_EW_relu6_grad: return x[1].error > 0 && fabs(fabs(x[1].f - 3) - 3) <= x[1].error;
    case DYCL_EW_selu_grad:
    case DYCL_EW_leaky_relu_grad:
    case DYCL_EW_elu_grad: return may_be_zero(x[1]);
    case DYCL_EW_celu_grad: return may_be_zero(x[1]) || fabs(x[2].f) <= x[2].error;
    case DYCL_EW_hardshrink_grad:
        high = x[1].error + x[2].error;
        return high > 0 && fabs(fabs(x[1].f) - x[2].f) <= high;
    case DYCL_EW_threshold_grad:
    case DYCL_EW_below_grad:
    case DYCL_EW_softplus_grad: high = x[1].error + x[2].error; return high > 0 && fabs(x[1].f - x[2].f) <= high;
    case DYCL_EW_atan2: /* which zero it is decides between 0 and pi, and between pi and -pi */
        return fabs(x[0].f) <= x[0].error && x[1].f <= x[1].error && (x[0].error > 0 || x[1].f == 0);
    case DYCL_EW_logical_not: return may_be_zero(x[0]);
    case DYCL_EW_logical_and:
    case DYCL_EW_logical_or:
    case DYCL_EW_logical_xor: return may_be_zero(x[0]) || may_be_zero(x[1]);
    case DYCL_EW_eq:
    case DYCL_EW_ne:
    case DYCL_EW_threshold: return fabs(x[0].f - x[1].f) <= x[0].error + x[1].error; /* another value beyond it */
    default: return 0;
    }
}

/* What operators of two steps have in between leaves the dtype's range: what follows hangs on whether it is rounded
 * there. */
static int leaves_between(dycl_ew op, dycl_dtype in, const double *x) {
    double between;
    switch (op) {
    case DYCL_EW_fma:
    case DYCL_EW_softplus: between = x[0] * x[1]; break;
    case DYCL_EW_lerp: between = x[0] - x[1]; break;
    case DYCL_EW_celu: between = 100 * exp(x[0] / x[1]); break; /* with room for operands that are not exact */
    case DYCL_EW_sigmoid:                                       /* e^-x is infinite */
    case DYCL_EW_silu: between = sigmoid(x[0]); break;
    case DYCL_EW_silu_grad: between = x[0] * sigmoid(x[1]); break;
    case DYCL_EW_logsigmoid_grad: between = exp(-fabs(x[1])); break;
    case DYCL_EW_softplus_grad: between = x[0] * exp(x[1]); break;
    case DYCL_EW_elu_grad:
    case DYCL_EW_selu_grad:
        between = x[0] * (op == DYCL_EW_elu_grad ? x[2] : 1.7580993408473766);
        if (fabs(between) > (in != DYCL_F64 ? 3.4e38 : DBL_MAX) && isfinite(x[0])) return 1;
        between = exp(fmin(x[1], 0));
        break;
    case DYCL_EW_celu_grad: /* by 1 / alpha, which may be negative */
        if (!(fabs(1 / x[2]) < (in != DYCL_F64 ? 3.4e38 : DBL_MAX))) return 1;
        between = x[1] > 0 ? 1 : exp(x[1] / x[2]);
        break;
    default: return 0;
    }
    if (!isfinite(between) || between == 0) return 0;
    return in != DYCL_F64 ? fabs(between) > 3.4e38 || fabs(between) < 1.2e-38 : fabs(between) < 2.3e-308;
}

/* Where an activation turns round, or a NaN: between the points that are looked at it may reach further than there. */
static double lowest_at(dycl_ew op) {
    switch (op) {
    case DYCL_EW_gelu: return -0.7517916;
    case DYCL_EW_gelu_tanh: return -0.7524613;
    case DYCL_EW_silu: return -1.2784645;
    case DYCL_EW_mish: return -1.1924312;
    case DYCL_EW_hardswish: return -1.5;
    default: return NAN;
    }
}

static dycl_number float_apply(dycl_ew op, dycl_dtype in, int count, const dycl_number *x) {
    const dycl_ew_pair *pair = dycl_ew_pair_of(op);
    if (pair) { /* one behind the other */
        int its = dycl_ew_arity(pair->first);
        dycl_number then[3] = {float_apply(pair->first, in, its, x)};
        for (int i = its; i < count; i++) then[1 + i - its] = x[i];
        return float_apply(pair->second, in, 1 + count - its, then);
    }
    double at[3] = {0}, worst = 0;
    int uncertain[3], n = 0, to_bool = dycl_ew_result_is_bool(op);
    for (int i = 0; i < count; i++) {
        if (!dycl_number_known(x[i])) return dycl_number_unknown();
        at[i] = x[i].f;
        if (x[i].error > 0) uncertain[n++] = i;
    }
    if (op == DYCL_EW_copysign && (isnan(at[1]) || may_be_zero(x[1])))
        return dycl_number_unknown(); /* the sign of a NaN is nobody's */
    double center = at_point(op, in, at);
    if ((n && has_pole_inside(op, x)) || leaves_between(op, in, at)) return dycl_number_unknown();
    for (int point = 0; n && point < 1 << 2 * n; point++) {
        static const double steps[4] = {-1, -0.5, 0.5, 1};
        double moved[3] = {at[0], at[1], at[2]};
        for (int k = 0; k < n; k++) moved[uncertain[k]] += steps[point >> 2 * k & 3] * x[uncertain[k]].error;
        double there = at_point(op, in, moved);
        if (there == center || (isnan(there) && isnan(center))) continue;
        if (to_bool || !isfinite(center) || !isfinite(there)) return dycl_number_unknown();
        worst = fmax(worst, fabs(there - center));
    }
    double low = lowest_at(op);
    if (n && fabs(low - at[0]) < x[0].error) worst = fmax(worst, fabs(at_point(op, in, &low) - center));
    worst *= 1.5; /* between those points */
    if (n && (op == DYCL_EW_sin || op == DYCL_EW_cos)) worst = fmin(x[0].error, 2);
    if (to_bool) return flag(center != 0);
    if (op == DYCL_EW_floor_div || op == DYCL_EW_remainder || op == DYCL_EW_fmod ||
        op == DYCL_EW_trunc_div) { /* a step beside an integer quotient */
        double q = at[0] / at[1];
        if (fabs(q - nearbyint(q)) < 4 * dycl_number_epsilon(in) * (1 + fabs(q)) && at[1] != 0 && isfinite(q) &&
            q != nearbyint(q))
            return dycl_number_unknown();
    }
    return dycl_number_f(in, center, worst + inner_rounding(op, in, at) * dycl_number_epsilon(in));
}

/* ---- Integers and bool: exact */

static int64_t int_floor_div(int64_t a, int64_t b) {
    int64_t q = a / b;
    return a % b && (a < 0) != (b < 0) ? q - 1 : q;
}

static dycl_number int_apply(dycl_ew op, dycl_dtype in, int count, const dycl_number *x) {
    for (int i = 0; i < count; i++)
        if (!dycl_number_known(x[i])) return dycl_number_unknown();
    int64_t a = x[0].i, b = count > 1 ? x[1].i : 0, c = count > 2 ? x[2].i : 0, bits = 8 * (int64_t)dycl_dtype_size(in);
    uint64_t ua = (uint64_t)a, ub = (uint64_t)b;
    int is_bool = in == DYCL_BOOL;
    if ((op == DYCL_EW_floor_div || op == DYCL_EW_trunc_div || op == DYCL_EW_remainder || op == DYCL_EW_fmod) &&
        (b == 0 || b == -1)) {
        if (b == 0) return dycl_number_unknown();
        return dycl_number_i(in, op == DYCL_EW_floor_div || op == DYCL_EW_trunc_div ? (int64_t)(0 - ua) : 0);
    }
    switch (op) {
    case DYCL_EW_copy: return x[0];
    case DYCL_EW_neg: return dycl_number_i(in, (int64_t)(0 - ua));
    case DYCL_EW_abs: return dycl_number_i(in, a < 0 ? (int64_t)(0 - ua) : a);
    case DYCL_EW_sign: return dycl_number_i(in, (a > 0) - (a < 0));
    case DYCL_EW_square: return dycl_number_i(in, (int64_t)(ua * ua));
    case DYCL_EW_relu: return dycl_number_i(in, a > 0 ? a : 0);
    case DYCL_EW_logical_not: return flag(a == 0);
    case DYCL_EW_bitwise_not: return dycl_number_i(in, is_bool ? !a : ~a);
    case DYCL_EW_add: return dycl_number_i(in, is_bool ? a | b : (int64_t)(ua + ub));
    case DYCL_EW_sub: return dycl_number_i(in, (int64_t)(ua - ub));
    case DYCL_EW_mul: return dycl_number_i(in, is_bool ? a & b : (int64_t)(ua * ub));
    case DYCL_EW_floor_div: return dycl_number_i(in, int_floor_div(a, b));
    case DYCL_EW_trunc_div: return dycl_number_i(in, a / b);
    case DYCL_EW_remainder: return dycl_number_i(in, a - int_floor_div(a, b) * b);
    case DYCL_EW_fmod: return dycl_number_i(in, a % b);
    case DYCL_EW_maximum: return dycl_number_i(in, a > b ? a : b);
    case DYCL_EW_minimum: return dycl_number_i(in, a < b ? a : b);
    case DYCL_EW_eq: return flag(a == b);
    case DYCL_EW_ne: return flag(a != b);
    case DYCL_EW_lt: return flag(a < b);
    case DYCL_EW_le: return flag(a <= b);
    case DYCL_EW_gt: return flag(a > b);
    case DYCL_EW_ge: return flag(a >= b);
    case DYCL_EW_logical_and: return flag(a && b);
    case DYCL_EW_logical_or: return flag(a || b);
    case DYCL_EW_logical_xor: return flag(!a != !b);
    case DYCL_EW_bitwise_and: return dycl_number_i(in, a & b);
    case DYCL_EW_bitwise_or: return dycl_number_i(in, a | b);
    case DYCL_EW_bitwise_xor: return dycl_number_i(in, a ^ b);
    /* as torch: bits that are shifted out, or by a count that is none, leave 0 (or the sign) */
    case DYCL_EW_shift_left: return dycl_number_i(in, b < 0 || b >= bits ? 0 : (int64_t)(ua << b));
    case DYCL_EW_shift_right: return dycl_number_i(in, b < 0 || b >= bits ? (a < 0 ? -1 : 0) : a >> b);
    case DYCL_EW_clamp: return dycl_number_i(in, (a > b ? a : b) < c ? (a > b ? a : b) : c);
    default: return dycl_number_unknown();
    }
}

dycl_number dycl_number_apply(dycl_ew op, dycl_dtype in, int count, const dycl_number *x) {
    if (op == DYCL_EW_where) {
        if (dycl_number_known(x[0])) return x[0].i ? x[1] : x[2];
        if (!dycl_dtype_is_float(in) || !isfinite(x[1].f - x[2].f)) return dycl_number_unknown();
        return dycl_number_f(in, x[1].f, fabs(x[1].f - x[2].f) + x[1].error + x[2].error);
    }
    return dycl_dtype_is_float(in) ? float_apply(op, in, count, x) : int_apply(op, in, count, x);
}

dycl_number dycl_number_cast(dycl_dtype from, dycl_dtype to, dycl_number x) {
    if (!dycl_number_known(x) || (from == DYCL_BOOL && to == DYCL_BOOL)) return x;
    if (!dycl_dtype_is_float(from))
        return dycl_dtype_is_float(to) ? (dycl_number){rounded(to, (double)x.i), 0, 0} : dycl_number_i(to, x.i);
    if (dycl_dtype_is_float(to)) {
        double f = rounded(to, x.f);
        return (dycl_number){f, 0,
                             x.error > 0 && !isfinite(f) ? INFINITY
                             : x.error > 0 ? x.error + (fabs(f) + least_normal(to)) * dycl_number_epsilon(to)
                                           : 0};
    }
    if (to == DYCL_BOOL) return may_be_zero(x) ? dycl_number_unknown() : flag(x.f != 0);
    double low = trunc(x.f - x.error), high = trunc(x.f + x.error), most = ldexp(1, 8 * (int)dycl_dtype_size(to) - 1);
    if (!isfinite(x.f) || low != high || fabs(high) >= (to == DYCL_U8 ? 256 : most) || (to == DYCL_U8 && low < 0))
        return dycl_number_unknown();
    return dycl_number_i(to, (int64_t)high);
}
