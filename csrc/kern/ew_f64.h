/* The elementwise operators on f64, one expression each, on kern/vmath_double.h and libm: the loops of ew_body.h around
 * them are vectorised by the compiler where libm is not called. NaN, infinities and signed zeros as in torch (CPU).
 *
 * Ownership: none, no state. Threads: any. */
#ifndef DYCL_KERN_EW_F64_H
#define DYCL_KERN_EW_F64_H

#include <math.h>

#include "kern/ew_pair.h"
#include "kern/vmath_double_trig.h"

#define DYCL_SELU_SCALE 1.0507009873554804934193349852946
#define DYCL_SELU_ALPHA 1.6732632423543772848170429916717

#define EW_F64_1(name, expr)                                                                                           \
    F64_INLINE double f64_##name(double x) { return expr; }
#define EW_F64_2(name, expr)                                                                                           \
    F64_INLINE double f64_##name(double x, double y) { return expr; }
#define EW_F64_3(name, expr)                                                                                           \
    F64_INLINE double f64_##name(double x, double y, double z) { return expr; }
#define EW_F64_P1(name, expr)                                                                                          \
    F64_INLINE int f64_##name(double x) { return expr; }
#define EW_F64_P2(name, expr)                                                                                          \
    F64_INLINE int f64_##name(double x, double y) { return expr; }

EW_F64_1(copy, x)
EW_F64_1(cut, x)
EW_F64_1(neg, -x)
EW_F64_1(abs, fabs(x))
EW_F64_1(sign, (double)((x > 0) - (x < 0)))
EW_F64_1(square, x *x)
EW_F64_1(exp, f64_exp_of(x))
EW_F64_1(exp2, f64_exp2_of(x))
EW_F64_1(expm1, f64_expm1_of(x))
EW_F64_1(log, f64_log_of(x))
EW_F64_1(log2, f64_log2_of(x))
EW_F64_1(log10, f64_log10_of(x))
EW_F64_1(log1p, f64_log1p_of(x))
EW_F64_1(sqrt, sqrt(x))
EW_F64_1(rsqrt, 1.0 / sqrt(x))
EW_F64_1(reciprocal, 1.0 / x)
/* Up to F64_ANGLE_BOUND */
EW_F64_1(sin, f64_sin_of(x))
EW_F64_1(cos, f64_cos_of(x))
EW_F64_1(tan, f64_tan_of(x))
EW_F64_1(tanh, f64_tanh_of(x))
EW_F64_1(erf, f64_erf_of(x))
EW_F64_1(sigmoid, 1.0 / (1.0 + f64_exp_of(-x)))
EW_F64_1(logsigmoid, (x < 0 ? x : 0.0) - f64_log1p_of(f64_exp_of(-fabs(x))))
EW_F64_1(relu, 0 > x ? 0.0 : x)
EW_F64_1(relu6, 0 > x ? 0.0 : x > 6 ? 6.0 : x)
EW_F64_1(gelu, x * 0.5 * (1.0 + f64_erf_of(x * 0.70710678118654752440)))
EW_F64_1(gelu_tanh, x * 0.5 * (1.0 + f64_tanh_of(0.79788456080286535588 * (x + 0.044715 * (x * x * x)))))
EW_F64_1(silu, x / (1.0 + f64_exp_of(-x)))
/* tanh(log(1 + e)) with e = e^x is e (e + 2) / (e (e + 2) + 2); by 1/e where e would overflow. */
F64_INLINE double f64_mish(double x) {
    double e = f64_exp_of(-fabs(x));
    double n = x > 0 ? 1.0 + 2.0 * e : e * (e + 2.0);
    return x * (n / (n + (x > 0 ? 2.0 * e * e : 2.0)));
}
EW_F64_1(clamp06, 0 > x ? 0.0 : x > 6 ? 6.0 : x)
EW_F64_1(hardswish, x *f64_clamp06(x + 3.0) / 6.0)
EW_F64_1(hardsigmoid, f64_clamp06(x + 3.0) / 6.0)
EW_F64_1(softsign, x / (1.0 + fabs(x)))
EW_F64_1(floor, floor(x))
EW_F64_1(ceil, ceil(x))
EW_F64_1(round, nearbyint(x))
EW_F64_1(trunc, trunc(x))
EW_F64_1(frac, x - trunc(x))
EW_F64_P1(isnan, x != x)
EW_F64_P1(isinf, fabs(x) == INFINITY)
EW_F64_P1(isfinite, fabs(x) < INFINITY)
EW_F64_P1(logical_not, x == 0)

EW_F64_2(add, x + y)
EW_F64_2(sub, x - y)
EW_F64_2(mul, x *y)
EW_F64_2(div, x / y)
/* Python's divmod, as c10::div_floor_floating: the quotient of the exact remainder, not the floor of a rounded
 * quotient. */
static inline double f64_floor_div(double x, double y) {
    if (y == 0) return x / y;
    double mod = fmod(x, y), div = (x - mod) / y;
    if (mod != 0 && (y < 0) != (mod < 0)) div -= 1.0;
    if (div == 0) return copysign(0.0, x / y);
    double whole = floor(div);
    return div - whole > 0.5 ? whole + 1.0 : whole;
}
EW_F64_2(trunc_div, trunc(x / y))
static inline double f64_remainder(double x, double y) {
    double mod = fmod(x, y);
    return mod != 0 && (y < 0) != (mod < 0) ? mod + y : mod;
}
EW_F64_2(fmod, fmod(x, y))
EW_F64_2(pow, f64_pow_of(x, y))
EW_F64_2(atan2, f64_atan2_of(x, y))
EW_F64_2(maximum, x != x ? x : x > y ? x : y)
EW_F64_2(minimum, x != x ? x : x < y ? x : y)
EW_F64_2(fmax, x != x ? y : y > x ? y : x)
EW_F64_2(fmin, x != x ? y : y < x ? y : x)
EW_F64_P2(eq, x == y)
EW_F64_P2(ne, x != y)
EW_F64_P2(lt, x < y)
EW_F64_P2(le, x <= y)
EW_F64_P2(gt, x > y)
EW_F64_P2(ge, x >= y)
EW_F64_P2(logical_and, (x != 0) & (y != 0))
EW_F64_P2(logical_or, (x != 0) | (y != 0))
EW_F64_P2(logical_xor, (x != 0) ^ (y != 0))
EW_F64_2(leaky_relu, x > 0 ? x : x * y)
/* What may be left out is computed before it is chosen: a branch would keep the loop from becoming vectors. */
F64_INLINE double f64_elu(double x, double y) {
    double e = y * f64_expm1_of(x);
    return x >= 0 ? x : e;
}
F64_INLINE double f64_celu(double x, double y) {
    double e = y * f64_expm1_of(x / y);
    return x > 0 ? x : e;
}
EW_F64_2(hardshrink, fabs(x) <= y ? 0.0 : x)
EW_F64_2(relu_grad, y <= 0 ? 0.0 : x)
EW_F64_2(gelu_grad, x *((1.0 + f64_erf_of(y * 0.70710678118654752440)) * 0.5 +
                        y * (f64_exp_of(y * y * -0.5) * 0.39894228040143267794)))
F64_INLINE double f64_gelu_tanh_grad(double x, double y) {
    double square = y * y, t = f64_tanh_of(0.79788456080286535588 * (y + 0.044715 * (square * y)));
    double right = 0.5 * y * (1.0 - t * t) * (0.79788456080286535588 * (1.0 + 0.134145 * square));
    return x * (0.5 * (1.0 + t) + right);
}
F64_INLINE double f64_silu_grad(double x, double y) {
    double s = 1.0 / (1.0 + f64_exp_of(-y));
    return x * s * (1.0 + y * (1.0 - s));
}
EW_F64_2(relu6_grad, ((y > 0) & (y < 6)) ? x : 0.0)
F64_INLINE double f64_hardswish_grad(double x, double y) {
    double bend = x * (y / 3 + 0.5);
    return y <= -3 ? 0.0 : y >= 3 ? x : bend;
}
EW_F64_2(hardsigmoid_grad, ((y > -3) & (y < 3)) ? x *(double)(1.0f / 6) : 0.0) /* as torch rounds it */
F64_INLINE double f64_logsigmoid_grad(double x, double y) {
    double e = f64_exp_of(-fabs(y)), part = e / (e + 1.0), rest = 1.0 - part;
    return x * (y < 0 ? rest : part);
}
F64_INLINE double f64_selu_grad(double x, double y) {
    double below = x * (DYCL_SELU_ALPHA * DYCL_SELU_SCALE) * f64_exp_of(y), above = x * DYCL_SELU_SCALE;
    return y > 0 ? above : below;
}
EW_F64_2(copysign, copysign(x, y))

static inline double f64_where(int x, double y, double z) { return x ? y : z; }
EW_F64_3(lerp, fabs(z) < 0.5 ? fma(z, y - x, x) : fma(z - 1.0, y - x, y))
EW_F64_3(clamp, f64_minimum(z, f64_maximum(y, x)))
F64_INLINE double f64_softplus(double x, double y, double z) {
    double s = x * y;
    double soft = ((s > 0 ? s : 0.0) + f64_log1p_of(f64_exp_of(-fabs(s)))) / y;
    return s > z ? x : soft;
}
EW_F64_3(hardtanh, f64_clamp(x, y, z))
EW_F64_3(threshold, x <= y ? z : x)
EW_F64_3(leaky_relu_grad, y > 0 ? x : x * z)
EW_F64_3(threshold_grad, y <= z ? 0.0 : x)
EW_F64_3(below_grad, y < z ? x : 0.0)
EW_F64_3(hardshrink_grad, fabs(y) > z ? x : 0.0)
F64_INLINE double f64_elu_grad(double x, double y, double z) {
    double below = x * z * f64_exp_of(y);
    return y > 0 ? x : below;
}
F64_INLINE double f64_celu_grad(double x, double y, double z) {
    double below = x * f64_exp_of(y * (1.0 / z));
    return y > 0 ? x : below;
}
F64_INLINE double f64_softplus_grad(double x, double y, double z) {
    double e = f64_exp_of(y), soft = x * e / (e + 1.0);
    return y > z ? x : soft;
}
EW_F64_3(add_scaled, fma(y, z, x))
EW_F64_3(fma, fma(x, y, z))

#define DYCL_KERN_EW(name, operands, classes, result)
#define DYCL_KERN_PAIR(name, operands, first, its, second, others)                                                     \
    EW_F64_##operands(name, EW_BEHIND_##its##_##others(f64_##first, f64_##second))
#include "kern/kern.def"
#undef DYCL_KERN_EW

#undef EW_F64_1
#undef EW_F64_2
#undef EW_F64_3
#undef EW_F64_P1
#undef EW_F64_P2

#endif
