/* Elementwise and cast kernels: every operator, dtype, ISA and set of scalar operands, against a plain reference (long
 * double libm for what is rounded more than once, the same dtype for what is exact). DYCL_TEST_STEP=n tries every nth
 * f32 for unary operators (65521; with DYCL_TEST_FULL 997). */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kern/kern.h"
#include "random.h"

typedef long double wide;
enum { RUN = 1000, PAD = 64 };

/* `group` restarts the count of what is printed. */
static int failures, group;
#define FAIL(...)                                                                                                      \
    do {                                                                                                               \
        failures++;                                                                                                    \
        if (++group <= 4) fprintf(stderr, "FAIL " __VA_ARGS__), fputc('\n', stderr);                                   \
    } while (0)

static double uniform(void) { return (double)(rnd() >> 11) * 0x1p-53; }

/* ---- References */

/* The stated bounds, in ulp, of what is not exact. Not listed: exact, every bit (but the sign of zero in maximum and
 * minimum). */
static double bound_f32(dycl_ew op) {
    switch (op) {
    case DYCL_EW_exp: return 1.1;
    case DYCL_EW_exp2:
    case DYCL_EW_log:
    case DYCL_EW_log2:
    case DYCL_EW_log10:
    case DYCL_EW_sin:
    case DYCL_EW_cos:
    case DYCL_EW_tan:
    case DYCL_EW_erf:
    case DYCL_EW_atan2: return 1.0;
    case DYCL_EW_expm1:
    case DYCL_EW_log1p:
    case DYCL_EW_pow: return 1.5;
    case DYCL_EW_logsigmoid:
    case DYCL_EW_elu: return 2.0;
    case DYCL_EW_celu: /* rounds its quotient, too */
    case DYCL_EW_tanh:
    case DYCL_EW_sigmoid:
    case DYCL_EW_softplus: return 2.5;
    case DYCL_EW_silu:
    case DYCL_EW_gelu_tanh: return 3.5;
    case DYCL_EW_silu_grad:
    case DYCL_EW_gelu_grad:
    case DYCL_EW_gelu_tanh_grad:
    case DYCL_EW_logsigmoid_grad:
    case DYCL_EW_softplus_grad:
    case DYCL_EW_selu_grad:
    case DYCL_EW_elu_grad:
    case DYCL_EW_celu_grad:
    case DYCL_EW_gelu:
    case DYCL_EW_mish: return 4.0;
    default: return 0;
    }
}
/* f64 is libm composed: the textbook forms lose more in their tails, where their terms cancel or underflow. */
static double bound_f64(dycl_ew op) {
    switch (op) {
    case DYCL_EW_silu:
    case DYCL_EW_mish:
    case DYCL_EW_softplus: return 2048;
    default: return bound_f32(op) > 0 ? 4 : 0;
    }
}

/* What is lost where 1 + erf(x) and 1 + tanh(x) cancel, as in torch: a part of x, on top of that bound. Of f32's gelu:
 * half of the formula's error, 1.5e-7, and of five roundings of terms near 1.5. Of f32's softplus: what is rounded off
 * where e^-|beta x| is subnormal is divided by beta, and rounded again. */
static wide lost(dycl_ew op, dycl_dtype dtype, wide x, wide y, wide z) {
    if (op == DYCL_EW_softplus && dtype == DYCL_F32 && x * y < -87) return 0x1.00001p-150L / y + 0x1p-150L;
    if (op == DYCL_EW_gelu_grad) return fabsl(x) * (dtype == DYCL_F32 ? 0x1.4p-22L : 0x1p-51L);
    /* 1 - tanh^2 and 1 - sigmoid, by what grows with y until they are 0 */
    if (op == DYCL_EW_gelu_tanh_grad) return fabsl(x) * (dtype == DYCL_F32 ? 0x1p-19L : 0x1p-47L);
    if (op == DYCL_EW_silu_grad) return dtype == DYCL_F32 ? fabsl(x) * 0x1p-20L + 0x1p-146L : fabsl(x) * 0x1p-47L;
    /* an exponential that is subnormal */
    if (op == DYCL_EW_celu_grad && y < 0) /* its quotient is rounded twice, too */
        return fabsl(x * (y / z) * expl(y / z)) * (dtype == DYCL_F32 ? 0x1p-22L : 0x1p-51L) +
               (8 * fabsl(x) + 1) * (dtype == DYCL_F32 ? 0x1p-149L : 0x1p-1060L);
    if (op == DYCL_EW_softplus_grad && y <= z &&
        fabsl(fabsl(x) * expl(y) / (dtype == DYCL_F32 ? 0x1p128L : 0x1p1024L) - 1) < 1e-6L)
        return (wide)INFINITY; /* its product may overflow or not; so that of selu's */
    if (op == DYCL_EW_selu_grad && y <= 0 &&
        fabsl(fabsl(x) * 1.76L / (dtype == DYCL_F32 ? 0x1p128L : 0x1p1024L) - 1) < 0.01L)
        return (wide)INFINITY;
    if (op == DYCL_EW_logsigmoid_grad || op == DYCL_EW_selu_grad || op == DYCL_EW_elu_grad || op == DYCL_EW_celu_grad ||
        op == DYCL_EW_softplus_grad)
        return dtype == DYCL_F32 ? (8 * fabsl(x) + 1) * 0x1p-149L : (8 * fabsl(x) + 1) * 0x1p-1060L;
    if (op != DYCL_EW_gelu && op != DYCL_EW_gelu_tanh) return 0;
    return fabsl(x) * (dtype == DYCL_F32 ? 0x1.4p-22L : 0x1p-51L);
}

/* Of gradients with an exponential: what their first product is where it overflows, by an exponential that may be 0. */
static wide overflowed(dycl_ew op, int f32, wide x, wide y, wide z) {
    int is_softplus = op == DYCL_EW_softplus_grad;
    wide power = op == DYCL_EW_logsigmoid_grad ? -fabsl(y) : op == DYCL_EW_celu_grad ? y / z : y, first = x;
    if (isnan(x) || !(y <= (is_softplus ? z : op == DYCL_EW_logsigmoid_grad ? (wide)INFINITY : 0))) return 1;
    if (op == DYCL_EW_elu_grad) first *= z;
    if (op == DYCL_EW_selu_grad) first *= 1.76L;
    if (is_softplus) first *= expl(power);
    if (isfinite(x) && fabsl(first) < (f32 ? 0x1p128L : 0x1p1024L)) return 1;
    if (op == DYCL_EW_logsigmoid_grad && y < 0) return x;
    return copysignl((wide)INFINITY, x) * (f32 ? (wide)expf((float)power) : (wide)exp((double)power));
}

/* Where torch's formula leaves nothing, nothing is left, and a NaN where that is 0 times what overflows. Else 1: any
 * number. */
static wide nothing(dycl_ew op, dycl_dtype dtype, wide x, wide y, wide z) {
    int f32 = dtype == DYCL_F32;
    switch (op) {
    case DYCL_EW_logsigmoid_grad:
    case DYCL_EW_selu_grad:
    case DYCL_EW_elu_grad:
    case DYCL_EW_celu_grad:
    case DYCL_EW_softplus_grad: return overflowed(op, f32, x, y, z);
    case DYCL_EW_gelu_grad: return isfinite(y) && y < (f32 ? -14.42L : -38.6L) ? x * 0 : 1; /* e^(-y^2 / 2) is 0 */
    case DYCL_EW_gelu_tanh_grad:
        if (fabsl(y) > (f32 ? 0x1p64L : 0x1p512L)) return (wide)NAN; /* y^2 is infinite */
        return y < (f32 ? -5.2L : -7.4L) ? x * 0 : 1;
    case DYCL_EW_silu_grad: return isfinite(y) && y < (f32 ? -88.722839L : -709.782713L) ? x * 0 : 1;
    case DYCL_EW_gelu: return x < (f32 ? -5.6L : -8.5L) ? x * 0 : 1;
    case DYCL_EW_gelu_tanh: return x < (f32 ? -5.2L : -7.4L) ? x * 0 : 1;
    case DYCL_EW_sigmoid: return x < (f32 ? -88.722839L : -709.782713L) ? 0 : 1; /* e^-x is infinite */
    case DYCL_EW_silu: return x < (f32 ? -88.722839L : -709.782713L) ? x * 0 : 1;
    default: return 1;
    }
}

static wide sigmoid_wide(wide x) { return 1 / (1 + expl(-x)); }
static wide approximate(dycl_ew op, wide x, wide y, wide z) {
    switch (op) {
    case DYCL_EW_exp: return expl(x);
    case DYCL_EW_exp2: return exp2l(x);
    case DYCL_EW_expm1: return expm1l(x);
    case DYCL_EW_log: return logl(x);
    case DYCL_EW_log2: return log2l(x);
    case DYCL_EW_log10: return log10l(x);
    case DYCL_EW_log1p: return log1pl(x);
    case DYCL_EW_sin: return sinl(x);
    case DYCL_EW_cos: return cosl(x);
    case DYCL_EW_tan: return tanl(x);
    case DYCL_EW_tanh: return tanhl(x);
    case DYCL_EW_erf: return erfl(x);
    case DYCL_EW_pow: return powl(x, y);
    case DYCL_EW_atan2: return atan2l(x, y);
    case DYCL_EW_sigmoid: return sigmoid_wide(x);
    case DYCL_EW_logsigmoid: return (x < 0 ? x : 0) - log1pl(expl(-fabsl(x)));
    case DYCL_EW_elu: return x >= 0 ? x : y * expm1l(x);
    case DYCL_EW_celu: return x > 0 ? x : y * expm1l(x / y);
    case DYCL_EW_silu: return x * sigmoid_wide(x);
    case DYCL_EW_gelu: return 0.5L * x * erfcl(-x * sqrtl(0.5L));
    case DYCL_EW_gelu_tanh: return x * sigmoid_wide(2 * sqrtl(2 / acosl(-1)) * (x + 0.044715L * x * x * x));
    case DYCL_EW_gelu_grad:
        return x * (0.5L * erfcl(-y * sqrtl(0.5L)) + y * (expl(-0.5L * y * y) * sqrtl(0.5L / acosl(-1))));
    case DYCL_EW_gelu_tanh_grad: {
        wide beta = sqrtl(2 / acosl(-1)), t = tanhl(beta * (y + 0.044715L * y * y * y));
        return x * (0.5L * (1 + t) + 0.5L * y * (1 - t * t) * (beta * (1 + 0.134145L * y * y)));
    }
    case DYCL_EW_silu_grad: return x * sigmoid_wide(y) * (1 + y * (1 - sigmoid_wide(y)));
    case DYCL_EW_logsigmoid_grad: return x * sigmoid_wide(-y);
    case DYCL_EW_selu_grad:
        return x * (1.0507009873554804934193349852946L * (y > 0 ? 1 : 1.6732632423543772848170429916717L * expl(y)));
    case DYCL_EW_elu_grad: return y > 0 ? x : x * (z * expl(y));
    case DYCL_EW_celu_grad: return y > 0 ? x : x * expl(y / z);
    case DYCL_EW_softplus_grad: return y > z ? x : x * (expl(y) / (expl(y) + 1));
    case DYCL_EW_mish: {
        wide e = expl(x), n = e * (e + 2);
        return x > 100 ? x : x * (n / (n + 2));
    }
    case DYCL_EW_softplus: {
        wide s = x * y;
        return s > z ? x : ((s > 0 ? s : 0) + log1pl(expl(-fabsl(s)))) / y;
    }
    default: abort();
    }
}

static int is_predicate(dycl_ew op, wide x, wide y) {
    switch (op) {
    case DYCL_EW_isnan: return isnan(x);
    case DYCL_EW_isinf: return isinf(x) != 0;
    case DYCL_EW_isfinite: return isfinite(x);
    case DYCL_EW_logical_not: return x == 0;
    case DYCL_EW_eq: return x == y;
    case DYCL_EW_ne: return x != y;
    case DYCL_EW_lt: return x < y;
    case DYCL_EW_le: return x <= y;
    case DYCL_EW_gt: return x > y;
    case DYCL_EW_ge: return x >= y;
    case DYCL_EW_logical_and: return x != 0 && y != 0;
    case DYCL_EW_logical_or: return x != 0 || y != 0;
    case DYCL_EW_logical_xor: return (x != 0) != (y != 0);
    default: abort();
    }
}

#define EXACT(T, s)                                                                                                    \
    static T exact_mod_##s(T x, T y) {                                                                                 \
        T m = fmod##s(x, y);                                                                                           \
        return m != 0 && (m < 0) != (y < 0) ? m + y : m;                                                               \
    }                                                                                                                  \
    static T exact_floor_div_##s(T x, T y) {                                                                           \
        if (y == 0) return x / y;                                                                                      \
        T m = fmod##s(x, y), q = (x - m) / y;                                                                          \
        if (m != 0 && (m < 0) != (y < 0)) q -= 1;                                                                      \
        if (q == 0) return copysign##s(0, x / y);                                                                      \
        T w = floor##s(q);                                                                                             \
        return q - w > (T)0.5 ? w + 1 : w;                                                                             \
    }                                                                                                                  \
    static T exact_clamp_##s(T x, T lo, T hi) {                                                                        \
        if (isnan(x) || isnan(lo) || isnan(hi)) return (T)NAN;                                                         \
        x = x > lo ? x : lo;                                                                                           \
        return x < hi ? x : hi;                                                                                        \
    }                                                                                                                  \
    static T exact_##s(dycl_ew op, T x, T y, T z) {                                                                    \
        volatile T t;                                                                                                  \
        switch (op) {                                                                                                  \
        case DYCL_EW_copy:                                                                                             \
        case DYCL_EW_cut: return x;                                                                                    \
        case DYCL_EW_neg: return -x;                                                                                   \
        case DYCL_EW_abs: return fabs##s(x);                                                                           \
        case DYCL_EW_sign: return x > 0 ? 1 : x < 0 ? -1 : 0;                                                          \
        case DYCL_EW_square: return x * x;                                                                             \
        case DYCL_EW_sqrt: return sqrt##s(x);                                                                          \
        case DYCL_EW_rsqrt: t = sqrt##s(x); return 1 / t;                                                              \
        case DYCL_EW_reciprocal: return 1 / x;                                                                         \
        case DYCL_EW_relu: return x <= 0 ? (x == 0 ? x : 0) : x;                                                       \
        case DYCL_EW_relu6: return x <= 0 ? (x == 0 ? x : 0) : x > 6 ? 6 : x;                                          \
        case DYCL_EW_hardswish:                                                                                        \
            t = exact_clamp_##s(x + 3, 0, 6);                                                                          \
            t *= x;                                                                                                    \
            return t / 6;                                                                                              \
        case DYCL_EW_hardsigmoid: t = exact_clamp_##s(x + 3, 0, 6); return t / 6;                                      \
        case DYCL_EW_softsign: t = 1 + fabs##s(x); return x / t;                                                       \
        case DYCL_EW_floor: return floor##s(x);                                                                        \
        case DYCL_EW_ceil: return ceil##s(x);                                                                          \
        case DYCL_EW_round: return nearbyint##s(x);                                                                    \
        case DYCL_EW_trunc: return trunc##s(x);                                                                        \
        case DYCL_EW_frac: return x - trunc##s(x);                                                                     \
        case DYCL_EW_add: return x + y;                                                                                \
        case DYCL_EW_sub: return x - y;                                                                                \
        case DYCL_EW_mul: return x * y;                                                                                \
        case DYCL_EW_div: return x / y;                                                                                \
        case DYCL_EW_floor_div: return exact_floor_div_##s(x, y);                                                      \
        case DYCL_EW_trunc_div: return trunc##s(x / y);                                                                \
        case DYCL_EW_remainder: return exact_mod_##s(x, y);                                                            \
        case DYCL_EW_fmod: return fmod##s(x, y);                                                                       \
        case DYCL_EW_maximum: return isnan(x) || isnan(y) ? (T)NAN : x > y ? x : y;                                    \
        case DYCL_EW_minimum: return isnan(x) || isnan(y) ? (T)NAN : x < y ? x : y;                                    \
        case DYCL_EW_fmax: return fmax##s(x, y);                                                                       \
        case DYCL_EW_fmin: return fmin##s(x, y);                                                                       \
        case DYCL_EW_leaky_relu: return x > 0 ? x : x * y;                                                             \
        case DYCL_EW_hardshrink: return fabs##s(x) <= y ? 0 : x;                                                       \
        case DYCL_EW_relu_grad: return y <= 0 ? 0 : x;                                                                 \
        case DYCL_EW_relu6_grad: return y > 0 && y < 6 ? x : 0;                                                        \
        case DYCL_EW_hardswish_grad:                                                                                   \
            t = y / 3;                                                                                                 \
            t += (T)0.5;                                                                                               \
            return y <= -3 ? 0 : y >= 3 ? x : x * t;                                                                   \
        case DYCL_EW_hardsigmoid_grad: return y > -3 && y < 3 ? x * (T)(1.0f / 6) : 0;                                 \
        case DYCL_EW_leaky_relu_grad: return y > 0 ? x : x * z;                                                        \
        case DYCL_EW_threshold_grad: return y <= z ? 0 : x;                                                            \
        case DYCL_EW_below_grad: return y < z ? x : 0;                                                                 \
        case DYCL_EW_hardshrink_grad: return fabs##s(y) > z ? x : 0;                                                   \
        case DYCL_EW_copysign: return copysign##s(x, y);                                                               \
        case DYCL_EW_where: return x != 0 ? y : z;                                                                     \
        case DYCL_EW_lerp: t = y - x; return fabs##s(z) < (T)0.5 ? fma##s(z, t, x) : fma##s(z - 1, t, y);              \
        case DYCL_EW_clamp:                                                                                            \
        case DYCL_EW_hardtanh: return exact_clamp_##s(x, y, z);                                                        \
        case DYCL_EW_threshold: return x <= y ? z : x;                                                                 \
        case DYCL_EW_add_scaled: return fma##s(y, z, x);                                                               \
        case DYCL_EW_fma: return fma##s(x, y, z);                                                                      \
        default: abort();                                                                                              \
        }                                                                                                              \
    }
EXACT(float, f)
EXACT(double, )

typedef __int128 big;
static big whole(dycl_ew op, big x, big y, big z, int bits, int is_signed) {
    int in_range = y >= 0 && y < bits;
    switch (op) {
    case DYCL_EW_copy: return x;
    case DYCL_EW_neg: return -x;
    case DYCL_EW_abs: return x < 0 ? -x : x;
    case DYCL_EW_sign: return (x > 0) - (x < 0);
    case DYCL_EW_square: return (big)((unsigned __int128)x * (unsigned __int128)x);
    case DYCL_EW_relu: return x < 0 ? 0 : x;
    case DYCL_EW_bitwise_not: return ~x;
    case DYCL_EW_add: return x + y;
    case DYCL_EW_sub: return x - y;
    case DYCL_EW_mul: return (big)((unsigned __int128)x * (unsigned __int128)y);
    case DYCL_EW_floor_div: return x / y - (x % y != 0 && (x < 0) != (y < 0));
    case DYCL_EW_trunc_div: return x / y;
    case DYCL_EW_remainder: return x % y + (x % y != 0 && (x < 0) != (y < 0) ? y : 0);
    case DYCL_EW_fmod: return x % y;
    case DYCL_EW_maximum: return x > y ? x : y;
    case DYCL_EW_minimum: return x < y ? x : y;
    case DYCL_EW_bitwise_and: return x & y;
    case DYCL_EW_bitwise_or: return x | y;
    case DYCL_EW_bitwise_xor: return x ^ y;
    case DYCL_EW_shift_left: return in_range ? (big)((unsigned __int128)x << y) : 0;
    case DYCL_EW_shift_right: return in_range ? x >> y : is_signed ? x >> (bits - 1) : 0;
    case DYCL_EW_where: return x != 0 ? y : z;
    case DYCL_EW_clamp: x = x > y ? x : y; return x < z ? x : z;
    default: abort();
    }
}
static int whole_bool(dycl_ew op, int x, int y, int z) {
    switch (op) {
    case DYCL_EW_copy: return x;
    case DYCL_EW_bitwise_not: return !x;
    case DYCL_EW_add:
    case DYCL_EW_maximum:
    case DYCL_EW_bitwise_or: return x | y;
    case DYCL_EW_mul:
    case DYCL_EW_minimum:
    case DYCL_EW_bitwise_and: return x & y;
    case DYCL_EW_bitwise_xor: return x ^ y;
    case DYCL_EW_where: return x ? y : z;
    default: abort();
    }
}

/* ---- Values */

/* Floats of 16 bits from their definition: bits of the significand, the least exponent. */
static wide half_value(int bits, int least, uint16_t x) {
    int places = 16 - bits, exponent = (x & 0x7fff) >> (bits - 1), most = (1 << places) - 1;
    wide part = x & ((1 << (bits - 1)) - 1), sign = x >> 15 ? -1 : 1;
    if (exponent == most) return part != 0 ? (wide)NAN : sign * (wide)INFINITY;
    if (exponent) part += 1 << (bits - 1), exponent--;
    return sign * ldexpl(part, exponent + least - bits + 1);
}
static wide half_nearest(int bits, int least, wide x) {
    if (!isfinite(x) || x == 0) return x;
    int exponent = ilogbl(x) > least ? ilogbl(x) : least;
    wide rounded = ldexpl(nearbyintl(ldexpl(x, bits - 1 - exponent)), exponent - bits + 1);
    return fabsl(rounded) >= ldexpl(1, 2 - least) ? copysignl((wide)INFINITY, x) : rounded;
}

static wide get(dycl_dtype dtype, const void *p, size_t i) {
    if (dtype == DYCL_BF16) return half_value(8, -126, ((const uint16_t *)p)[i]);
    if (dtype == DYCL_F16) return half_value(11, -14, ((const uint16_t *)p)[i]);
    switch (dtype) {
#define DYCL_ROW(e, c, n, t)                                                                                           \
    case DYCL_##e: return (wide)((const c *)p)[i];
        DYCL_DTYPES(DYCL_ROW)
#undef DYCL_ROW
    default: abort();
    }
}

static const float specials[] = {
    0.0f,    -0.0f,   INFINITY,     -INFINITY,      NAN,           1.0f,        -1.0f,     0.5f,     -0.5f,
    2.0f,    -2.0f,   3.0f,         -3.0f,          6.0f,          -6.0f,       1.5f,      2.5f,     -2.5f,
    0.1f,    FLT_MIN, -FLT_MIN,     0x1p-149f,      -0x1p-149f,    1e-40f,      -1e-40f,   FLT_MAX,  -FLT_MAX,
    1e30f,   -1e30f,  88.7228f,     88.73f,         -87.4f,        -103.9f,     -104.1f,   127.99f,  128.0f,
    -149.5f, -150.1f, 0x1p23f,      8388607.5f,     0x1p24f,       16777217.0f, 0x1p31f,   -0x1p31f, 0x1p63f,
    1e5f,    0.64f,   0.927734375f, 0x1.fffffep-1f, 0x1.000002p0f, 0x1p-24f,    -0x1p-25f, 9.0f,     -9.0f,
    14.5f,   -14.5f,  1e15f,        3.14159265f,    1.57079637f,
};
enum { SPECIALS = sizeof specials / sizeof *specials };

static double random_value(dycl_dtype dtype) {
    switch (rnd() % 5) {
    case 0: return specials[rnd() % SPECIALS];
    case 1: return (uniform() - 0.5) * 8;
    case 2: return (uniform() - 0.5) * 220;
    case 3: return nearbyint((uniform() - 0.5) * 40) / 2;
    default:
        if (dtype == DYCL_F64) return ldexp(uniform() - 0.5, (int)(rnd() % 600) - 300);
        {
            uint32_t bits = (uint32_t)rnd();
            float f;
            memcpy(&f, &bits, 4);
            return f;
        }
    }
}

static void fill(dycl_dtype dtype, void *p, size_t n, int nonzero) {
    for (size_t i = 0; i < n; i++) {
        uint64_t r = rnd();
        int64_t v = (r & 3) ? (int64_t)(r >> 2) % 300 - 20 : (int64_t)rnd();
        /* The most negative of each width and -1; the most positive. */
        if ((r & 15) == 4) v = (int64_t)((uint64_t)-1 << (rnd() % 64));
        if ((r & 15) == 8) v = (int64_t)(((uint64_t)1 << (rnd() % 64)) - 1);
        switch (dtype) {
        case DYCL_F32: ((float *)p)[i] = (float)random_value(dtype); break;
        case DYCL_F64: ((double *)p)[i] = random_value(dtype); break;
        case DYCL_I64: ((int64_t *)p)[i] = nonzero && v == 0 ? 1 : v; break;
        case DYCL_I32: ((int32_t *)p)[i] = nonzero && (int32_t)v == 0 ? 1 : (int32_t)v; break;
        case DYCL_I16: ((int16_t *)p)[i] = nonzero && (int16_t)v == 0 ? 1 : (int16_t)v; break;
        case DYCL_I8: ((int8_t *)p)[i] = nonzero && (int8_t)v == 0 ? 1 : (int8_t)v; break;
        case DYCL_U8: ((uint8_t *)p)[i] = nonzero && (uint8_t)v == 0 ? 1 : (uint8_t)v; break;
        case DYCL_BF16:
        case DYCL_F16: ((uint16_t *)p)[i] = (uint16_t)rnd(); break;
        default: ((uint8_t *)p)[i] = (uint8_t)(r & 1); break;
        }
    }
}

static int same_wide(wide a, wide b, int zero_sign) {
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    return a == b && (!zero_sign || a != 0 || signbit(a) == signbit(b));
}

/* Distance in units of the last place of the dtype at `want`; an infinity counts as the next power of two. */
static double ulps(dycl_dtype dtype, wide got, wide want) {
    /* f64 composed of libm's functions is not held to its relative accuracy where it nearly underflows. */
    int digits = dtype == DYCL_F32 ? 24 : 53, min_exponent = dtype == DYCL_F32 ? -125 : -960, exponent;
    wide top = ldexpl(1, dtype == DYCL_F32 ? 128 : 1024);
    if (isnan(got) || isnan(want)) return isnan(got) && isnan(want) ? 0 : INFINITY;
    if (want == 0) return got == 0 && signbit(got) == signbit(want) ? 0 : got == 0 ? 1e9 : INFINITY;
    got = got > top ? top : got < -top ? -top : got;
    want = want > top ? top : want < -top ? -top : want;
    frexpl(want, &exponent);
    if (exponent < min_exponent) exponent = min_exponent;
    return (double)(fabsl(got - want) / ldexpl(1, exponent - digits));
}

/* ---- Checks */

static double worst[DYCL_EW_COUNT][2][DYCL_ISA_COUNT];

static const char *who(dycl_isa isa, dycl_ew op, dycl_dtype dtype) {
    static char text[64];
    snprintf(text, sizeof text, "%s %s %s", dycl_isa_name(isa), dycl_dtype_name(dtype), dycl_ew_name(op));
    return text;
}

static void check_element(dycl_isa isa, dycl_ew op, dycl_dtype dtype, wide x, wide y, wide z, wide got) {
    const dycl_ew_pair *pair = dycl_ew_pair_of(op);
    if (pair) { /* to the bit what the two give, one after the other */
        double in[3] = {(double)x, (double)y, (double)z}, middle = 0, want = 0;
        float in32[3] = {(float)x, (float)y, (float)z}, middle32 = 0, want32 = 0;
        int f32 = dtype == DYCL_F32, first = dycl_ew_arity(pair->first);
        size_t size = f32 ? 4 : 8;
        const char *at = f32 ? (const char *)in32 : (const char *)in;
        void *half = f32 ? (void *)&middle32 : (void *)&middle, *whole_result = f32 ? (void *)&want32 : (void *)&want;
        dycl_kern_ew(isa, pair->first, dtype, 0)(half, at, at + size, NULL, 1);
        dycl_kern_ew(isa, pair->second, dtype, 0)(whole_result, half, at + size * (size_t)first, NULL, 1);
        wide w = f32 ? (wide)want32 : (wide)want;
        if (!same_wide(got, w, 1))
            FAIL("%s(%.9Lg, %.9Lg, %.9Lg) = %.9Lg, not %.9Lg", who(isa, op, dtype), x, y, z, got, w);
        return;
    }
    if (dycl_ew_result_is_bool(op)) {
        int want = is_predicate(op, x, y);
        if ((int)got != want) FAIL("%s(%Lg, %Lg) = %Lg", who(isa, op, dtype), x, y, got);
    } else if (dycl_dtype_is_float(dtype)) {
        int f32 = dtype == DYCL_F32;
        double bound = f32 ? bound_f32(op) : bound_f64(op);
        if (bound > 0) {
            wide want = approximate(op, x, y, z);
            double error = fabsl(got - want) <= lost(op, dtype, x, y, z) ? 0 : ulps(dtype, got, want);
            if (nothing(op, dtype, x, y, z) != 1) {
                want = nothing(op, dtype, x, y, z);
                error = got == want || (isnan(got) && isnan(want)) ? 0 : INFINITY;
            }
            if (!(error <= worst[op][!f32][isa])) worst[op][!f32][isa] = error;
            if (!(error <= bound))
                FAIL("%s(%.9Lg, %.9Lg, %.9Lg) = %.9Lg, not %.9Lg: %g ulp", who(isa, op, dtype), x, y, z, got, want,
                     error);
        } else {
            wide want = f32 ? (wide)exact_f(op, (float)x, (float)y, (float)z)
                            : (wide)exact_(op, (double)x, (double)y, (double)z);
            int either_zero = op == DYCL_EW_maximum || op == DYCL_EW_minimum || op == DYCL_EW_fmax ||
                              op == DYCL_EW_fmin || op == DYCL_EW_clamp || op == DYCL_EW_hardtanh;
            if (!same_wide(got, want, !either_zero))
                FAIL("%s(%.9Lg, %.9Lg, %.9Lg) = %.9Lg, not %.9Lg", who(isa, op, dtype), x, y, z, got, want);
        }
    } else {
        int bits = (int)dycl_dtype_size(dtype) * 8;
        big want = dtype == DYCL_BOOL ? whole_bool(op, (int)x, (int)y, (int)z)
                                      : whole(op, (big)x, (big)y, (big)z, bits, dtype != DYCL_U8);
        int64_t low = (int64_t)want;
        if (dtype == DYCL_I32) low = (int32_t)low;
        if (dtype == DYCL_I16) low = (int16_t)low;
        if (dtype == DYCL_I8) low = (int8_t)low;
        if (dtype == DYCL_U8) low = (uint8_t)low;
        if (got != (wide)low)
            FAIL("%s(%Lg, %Lg, %Lg) = %Lg, not %lld", who(isa, op, dtype), x, y, z, got, (long long)low);
    }
}

static unsigned char *buffers[6];
static size_t lengths_upto70_and_run(int i) { return i <= 70 ? (size_t)i : RUN; }

/* Equal as values of the dtype: NaNs have no identity. */
static int same_run(dycl_dtype dtype, const void *a, const void *b, size_t n) {
    if (memcmp(a, b, n * dycl_dtype_size(dtype)) == 0) return 1;
    for (size_t i = 0; i < n; i++)
        if (!same_wide(get(dtype, a, i), get(dtype, b, i), 1)) return 0;
    return 1;
}

static void tame_one(dycl_dtype dtype, int k, double least, double range) {
    for (size_t i = 0; i < RUN; i++) {
        double x = least + range * uniform();
        if (dtype == DYCL_F32)
            ((float *)(buffers[k] + PAD))[i] = (float)x;
        else
            ((double *)(buffers[k] + PAD))[i] = x;
    }
}

/* Softplus with a beta and a threshold that mean something, and celu with such an alpha: the formulas themselves
 * overflow for others. */
static void tame(dycl_ew op, dycl_dtype dtype) {
    if (op == DYCL_EW_softplus || op == DYCL_EW_celu) tame_one(dtype, 1, 0.05, 4);
    if (op == DYCL_EW_elu_grad || op == DYCL_EW_celu_grad) tame_one(dtype, 2, 0.05, 4);
    if (op == DYCL_EW_softplus || op == DYCL_EW_softplus_grad) tame_one(dtype, 2, 0, 40);
}

static void check_op(dycl_isa isa, dycl_ew op, dycl_dtype dtype) {
    int arity = dycl_ew_arity(op);
    dycl_dtype types[3] = {op == DYCL_EW_where ? DYCL_BOOL : dtype, dtype, dtype};
    dycl_dtype out = dycl_ew_result_is_bool(op) ? DYCL_BOOL : dtype;
    size_t out_size = dycl_dtype_size(out);
    if (!(dycl_ew_dtypes[op] >> dtype & 1)) FAIL("%s has a kernel that dycl_ew_dtypes denies", who(isa, op, dtype));
    for (unsigned mask = 0; mask < 8; mask++) {
        dycl_ew_fn fn = dycl_kern_ew(isa, op, dtype, mask);
        int served = mask < (1u << arity) - 1;
        if ((fn != NULL) != served) FAIL("%s mask %u: kernel %d", who(isa, op, dtype), mask, fn != NULL);
        if (!fn) continue;
        for (int round = 0; round < (mask == 0 ? 8 : 4); round++) {
            const unsigned char *in[3] = {NULL, NULL, NULL};
            for (int k = 0; k < arity; k++) {
                in[k] = buffers[k] + PAD;
                fill(types[k], buffers[k] + PAD, RUN, 1);
            }
            tame(op, dtype);
            if (op == DYCL_EW_pow && mask == 2 && round < 2) { /* the exponents that are served by multiplication */
                if (dtype == DYCL_F32)
                    *(float *)(buffers[1] + PAD) = (float)(2 + round);
                else
                    *(double *)(buffers[1] + PAD) = 2 + round;
            }
            unsigned char *want = buffers[3] + PAD, *got = buffers[4] + PAD;
            fn(want, in[0], in[1], in[2], RUN);
            for (size_t i = 0; i < RUN; i++) {
                wide v[3] = {0, 0, 0};
                for (int k = 0; k < arity; k++) v[k] = get(types[k], in[k], mask >> k & 1 ? 0 : i);
                check_element(isa, op, dtype, v[0], v[1], v[2], get(out, want, i));
            }
            if (round) continue;
            for (int l = 0; l <= 71; l++) {
                size_t n = lengths_upto70_and_run(l), shift = (size_t)l % 5;
                /* Operands and result start at odd elements; the bytes around the result must stay. */
                const unsigned char *moved[3] = {NULL, NULL, NULL};
                for (int k = 0; k < arity; k++) {
                    size_t size = dycl_dtype_size(types[k]);
                    memmove(buffers[k] + PAD + size * shift, in[k], RUN * size);
                    moved[k] = buffers[k] + PAD + size * shift;
                }
                unsigned char *d = got + out_size * (size_t)(l % 3);
                memset(buffers[4], 0x5a, 2 * PAD + (RUN + 8) * 8);
                fn(d, moved[0], moved[1], moved[2], n);
                if (!same_run(out, d, want, n)) FAIL("%s mask %u n %zu", who(isa, op, dtype), mask, n);
                for (int g = 1; g <= 32; g++)
                    if (d[-g] != 0x5a || d[n * out_size + (size_t)g - 1] != 0x5a) {
                        FAIL("%s mask %u n %zu writes outside", who(isa, op, dtype), mask, n);
                        break;
                    }
                for (int k = 0; k < arity; k++) { /* in place, on each operand that is a run of the same width */
                    if (mask >> k & 1 || dycl_dtype_size(types[k]) != out_size) continue;
                    memcpy(got, moved[k], RUN * out_size);
                    const unsigned char *p[3] = {moved[0], moved[1], moved[2]};
                    p[k] = got;
                    fn(got, p[0], p[1], p[2], n);
                    if (!same_run(out, got, want, n))
                        FAIL("%s mask %u n %zu in place of %d", who(isa, op, dtype), mask, n, k);
                }
                for (int k = 0; k < arity; k++) memmove(buffers[k] + PAD, moved[k], RUN * dycl_dtype_size(types[k]));
            }
        }
    }
}

/* Unary f32 operators over all magnitudes and signs. */
static void sweep(dycl_isa isa, dycl_ew op, uint64_t step) {
    dycl_ew_fn fn = dycl_kern_ew(isa, op, DYCL_F32, 0);
    if (dycl_ew_arity(op) != 1 || !fn) return;
    dycl_dtype out = dycl_ew_result_is_bool(op) ? DYCL_BOOL : DYCL_F32;
    float *x = (float *)(buffers[0] + PAD);
    uint64_t bits = rnd() % step;
    while (bits < (uint64_t)1 << 32) {
        size_t n = 0;
        for (; n < RUN && bits < (uint64_t)1 << 32; n++, bits += step) {
            uint32_t b = (uint32_t)bits;
            memcpy(x + n, &b, 4);
        }
        fn(buffers[4] + PAD, x, NULL, NULL, n);
        for (size_t i = 0; i < n; i++) check_element(isa, op, DYCL_F32, x[i], 0, 0, get(out, buffers[4] + PAD, i));
    }
}

static wide converted(dycl_dtype from, dycl_dtype to, wide x) {
    if (to == DYCL_BF16) return half_nearest(8, -126, (wide)(float)x); /* torch goes through float32 */
    if (to == DYCL_F16) return half_nearest(11, -14, (wide)(float)x);
    if (to == DYCL_BOOL) return x != 0;
    if (to == DYCL_F32) return from == DYCL_F64 ? (wide)(float)(double)x : (wide)(float)x;
    if (to == DYCL_F64) return (wide)(double)x;
    int64_t i;
    if (dycl_dtype_is_float(from) && to != DYCL_I64 && to != DYCL_U8) {
        wide t = truncl(x);
        i = t >= -0x1p31L && t < 0x1p31L ? (int64_t)t : INT32_MIN;
    } else if (dycl_dtype_is_float(from)) {
        i = x >= -0x1p63L && x < 0x1p63L ? (int64_t)x : INT64_MIN;
    } else {
        i = (int64_t)x;
    }
    switch (to) {
    case DYCL_I32: return (int32_t)i;
    case DYCL_I16: return (int16_t)i;
    case DYCL_I8: return (int8_t)i;
    case DYCL_U8: return (uint8_t)i;
    default: return i;
    }
}

static void check_cast(dycl_isa isa, dycl_dtype from, dycl_dtype to) {
    dycl_ew_fn fn = dycl_kern_cast(isa, from, to);
    if (!fn) {
        FAIL("no cast %s to %s", dycl_dtype_name(from), dycl_dtype_name(to));
        return;
    }
    for (int l = 0; l <= 71; l++) {
        size_t n = lengths_upto70_and_run(l), size = dycl_dtype_size(to);
        unsigned char *d = buffers[4] + PAD + size, *in = buffers[0] + PAD + dycl_dtype_size(from);
        fill(from, in, RUN, 0);
        memset(buffers[4], 0x5a, 2 * PAD + (RUN + 8) * 8);
        fn(d, in, NULL, NULL, n);
        for (size_t i = 0; i < n; i++) {
            wide x = get(from, in, i), want = converted(from, to, x);
            if (!same_wide(get(to, d, i), want, 1))
                FAIL("%s cast %s %Lg to %s: %Lg, not %Lg", dycl_isa_name(isa), dycl_dtype_name(from), x,
                     dycl_dtype_name(to), get(to, d, i), want);
        }
        if (d[-1] != 0x5a || d[n * size] != 0x5a) FAIL("cast writes outside");
        if (size == dycl_dtype_size(from)) {
            memcpy(buffers[3] + PAD, in, RUN * size);
            fn(buffers[3] + PAD, buffers[3] + PAD, NULL, NULL, n);
            if (!same_run(to, buffers[3] + PAD, d, n)) FAIL("cast in place");
        }
    }
}

/* Rounding in place, and sums with a bias. */
static void check_rounding(dycl_isa isa, dycl_dtype half) {
    int bits = half == DYCL_BF16 ? 8 : 11, least = half == DYCL_BF16 ? -126 : -14;
    float *x = (float *)(void *)(buffers[0] + PAD), *rounded = (float *)(void *)(buffers[1] + PAD);
    uint16_t *bias = (uint16_t *)(void *)(buffers[2] + PAD), *sums = (uint16_t *)(void *)(buffers[3] + PAD);
    fill(DYCL_F32, x, RUN, 0);
    fill(half, bias, RUN, 0);
    memcpy(rounded, x, RUN * sizeof *x);
    dycl_kern_round(isa, half)(rounded, rounded, NULL, NULL, RUN);
    for (int with = 0; with < 2; with++) {
        dycl_kern_finish(isa, half)(sums, x, with ? bias : NULL, NULL, RUN);
        for (size_t i = 0; i < RUN; i++) {
            float sum = with ? x[i] + (float)get(half, bias, i) : x[i];
            if (!same_wide(get(half, sums, i), half_nearest(bits, least, (wide)sum), 1))
                FAIL("%s finish %g as %s", dycl_isa_name(isa), (double)sum, dycl_dtype_name(half));
        }
    }
    for (size_t i = 0; i < RUN; i++)
        if (!same_wide((wide)rounded[i], half_nearest(bits, least, (wide)x[i]), 1))
            FAIL("%s round %g as %s: %g", dycl_isa_name(isa), (double)x[i], dycl_dtype_name(half), (double)rounded[i]);
}

int main(void) {
    const char *step_text = getenv("DYCL_TEST_STEP");
    uint64_t step = step_text ? strtoull(step_text, NULL, 10) : getenv("DYCL_TEST_FULL") ? 997 : 65521;
    for (int i = 0; i < 6; i++) buffers[i] = aligned_alloc(64, 4 * PAD + (RUN + 16) * 8);
    for (dycl_isa isa = 0; isa < DYCL_ISA_COUNT; isa++) {
        if (!dycl_cpu_isa_force(isa)) {
            printf("%s: not on this processor\n", dycl_isa_name(isa));
            continue;
        }
        int before = failures, kernels = 0;
        for (dycl_ew op = 0; op < DYCL_EW_COUNT; op++) {
            group = 0;
            for (dycl_dtype t = 0; t < DYCL_DTYPE_COUNT; t++)
                if (dycl_kern_ew(isa, op, t, 0)) check_op(isa, op, t), kernels++;
            sweep(isa, op, step);
        }
        printf("%s elementwise: %d operators x dtypes, %d failures\n", dycl_isa_name(isa), kernels, failures - before);
        before = failures, group = 0;
        for (dycl_dtype from = 0; from < DYCL_DTYPE_COUNT; from++)
            for (dycl_dtype to = 0; to < DYCL_DTYPE_COUNT; to++) check_cast(isa, from, to);
        for (int k = 0; k < 2; k++) check_rounding(isa, k ? DYCL_F16 : DYCL_BF16);
        printf("%s cast: %d failures\n", dycl_isa_name(isa), failures - before);
    }
    printf("max ulp (bound)      f32: scalar   avx2 avx512    f64: scalar   avx2 avx512\n");
    for (dycl_ew op = 0; op < DYCL_EW_COUNT; op++)
        if (bound_f32(op) > 0)
            printf("%12s (%.1f, %.0f) %12.3f %6.3f %6.3f %16.2f %6.2f %6.2f\n", dycl_ew_name(op), bound_f32(op),
                   bound_f64(op), worst[op][0][0], worst[op][0][1], worst[op][0][2], worst[op][1][0], worst[op][1][1],
                   worst[op][1][2]);
    for (int i = 0; i < 6; i++) free(buffers[i]);
    printf(failures ? "FAILED: %d\n" : "ok\n", failures);
    return failures != 0;
}
