/* The elementwise operators on f32 vectors; one function an operator, f32_<name of its row in kern.def>.
 * NaN, infinities and signed zeros as in torch (CPU).
 *
 * Ownership: none, no state. Threads: any. */
#ifndef DYCL_KERN_EW_F32_H
#define DYCL_KERN_EW_F32_H

#include "kern/ew_pair.h"
#include "kern/simd.h"
#include "kern/vact.h"
#include "kern/vmath.h"

#define EW_F32_1(name, expr)                                                                                           \
    DYCL_INLINE vf f32_##name(vf x) { return expr; }
#define EW_F32_2(name, expr)                                                                                           \
    DYCL_INLINE vf f32_##name(vf x, vf y) { return expr; }
#define EW_F32_3(name, expr)                                                                                           \
    DYCL_INLINE vf f32_##name(vf x, vf y, vf z) { return expr; }
#define EW_F32_P1(name, expr)                                                                                          \
    DYCL_INLINE vm f32_##name(vf x) { return expr; }
#define EW_F32_P2(name, expr)                                                                                          \
    DYCL_INLINE vm f32_##name(vf x, vf y) { return expr; }
#define V_ZERO v_set1(0.0f)
#define V_ONE  v_set1(1.0f)

EW_F32_1(copy, x)
EW_F32_1(cut, x)
EW_F32_1(neg, v_neg(x))
EW_F32_1(abs, v_abs(x))
EW_F32_1(sign, v_select(v_gt(x, V_ZERO), V_ONE, v_select(v_lt(x, V_ZERO), v_set1(-1.0f), V_ZERO)))
EW_F32_1(square, x *x)
EW_F32_1(exp, vmath_exp(x))
EW_F32_1(exp2, vmath_exp2(x))
EW_F32_1(expm1, vmath_expm1(x))
EW_F32_1(log, vmath_log(x))
EW_F32_1(log2, vmath_log2(x))
EW_F32_1(log10, vmath_log10(x))
EW_F32_1(log1p, vmath_log1p(x))
EW_F32_1(sqrt, v_sqrt(x))
EW_F32_1(rsqrt, 1.0f / v_sqrt(x))
EW_F32_1(reciprocal, 1.0f / x)
EW_F32_1(sin, vmath_sin(x))
EW_F32_1(cos, vmath_cos(x))
EW_F32_1(tan, vmath_tan(x))
EW_F32_1(tanh, vmath_tanh(x))
EW_F32_1(erf, vmath_erf(x))
EW_F32_1(sigmoid, vact_sigmoid(x))
EW_F32_1(logsigmoid, vact_logsigmoid(x))
/* v_max and v_min answer their second operand where one is NaN, and where both are zeros. */
EW_F32_1(relu, v_max(V_ZERO, x))
EW_F32_1(relu6, v_min(v_set1(6.0f), v_max(V_ZERO, x)))
EW_F32_1(gelu, vact_gelu(x))
EW_F32_1(gelu_tanh, vact_gelu_tanh(x))
EW_F32_1(silu, vact_silu(x))
EW_F32_1(mish, vact_mish(x))
EW_F32_1(hardswish, x *f32_relu6(x + 3.0f) / 6.0f)
EW_F32_1(hardsigmoid, f32_relu6(x + 3.0f) / 6.0f)
EW_F32_1(softsign, x / (v_abs(x) + 1.0f))
EW_F32_1(floor, v_floor(x))
EW_F32_1(ceil, v_ceil(x))
EW_F32_1(round, v_round(x))
EW_F32_1(trunc, v_trunc(x))
EW_F32_1(frac, x - v_trunc(x))
EW_F32_P1(isnan, v_unordered(x, x))
EW_F32_P1(isinf, v_eq(v_abs(x), v_set1(INFINITY)))
EW_F32_P1(isfinite, v_lt(v_abs(x), v_set1(INFINITY)))
EW_F32_P1(logical_not, v_eq(x, V_ZERO))

EW_F32_2(add, x + y)
EW_F32_2(sub, x - y)
EW_F32_2(mul, x *y)
EW_F32_2(div, x / y)
/* Python's divmod, as c10::div_floor_floating: the quotient of the exact remainder, not the floor of a rounded
 * quotient. */
DYCL_INLINE vf f32_floor_div(vf x, vf y) {
    vf mod = vmath_fmod(x, y), div = (x - mod) / y, quotient = x / y;
    vm other_side = k_and(v_ne(mod, V_ZERO), k_xor(v_lt(y, V_ZERO), v_lt(mod, V_ZERO)));
    div = v_select(other_side, div - 1.0f, div);
    vf whole = v_floor(div);
    whole = v_select(v_gt(div - whole, v_set1(0.5f)), whole + 1.0f, whole);
    whole = v_select(v_eq(div, V_ZERO), v_copysign(V_ZERO, quotient), whole);
    return v_select(v_eq(y, V_ZERO), quotient, whole);
}
EW_F32_2(trunc_div, v_trunc(x / y))
DYCL_INLINE vf f32_remainder(vf x, vf y) {
    vf mod = vmath_fmod(x, y);
    vm other_side = k_and(v_ne(mod, V_ZERO), k_xor(v_lt(y, V_ZERO), v_lt(mod, V_ZERO)));
    return v_select(other_side, mod + y, mod);
}
EW_F32_2(fmod, vmath_fmod(x, y))
/* Squares and cubes by multiplication, as torch does for a scalar exponent (within 1 ulp, and special values agree). */
DYCL_INLINE vf f32_pow(vf x, vf y) {
    if (!k_any(v_ne(y, v_set1(2.0f)))) return x * x;
    if (!k_any(v_ne(y, v_set1(3.0f)))) return x * x * x;
    return vmath_pow(x, y);
}
EW_F32_2(atan2, vmath_atan2(x, y))
EW_F32_2(maximum, v_select(v_unordered(x, x), x, v_max(x, y)))
EW_F32_2(minimum, v_select(v_unordered(x, x), x, v_min(x, y)))
EW_F32_2(fmax, v_select(v_unordered(x, x), y, v_max(y, x)))
EW_F32_2(fmin, v_select(v_unordered(x, x), y, v_min(y, x)))
EW_F32_P2(eq, v_eq(x, y))
EW_F32_P2(ne, v_ne(x, y))
EW_F32_P2(lt, v_lt(x, y))
EW_F32_P2(le, v_le(x, y))
EW_F32_P2(gt, v_gt(x, y))
EW_F32_P2(ge, v_ge(x, y))
EW_F32_P2(logical_and, k_and(v_ne(x, V_ZERO), v_ne(y, V_ZERO)))
EW_F32_P2(logical_or, k_or(v_ne(x, V_ZERO), v_ne(y, V_ZERO)))
EW_F32_P2(logical_xor, k_xor(v_ne(x, V_ZERO), v_ne(y, V_ZERO)))
EW_F32_2(leaky_relu, v_select(v_gt(x, V_ZERO), x, x *y))
EW_F32_2(elu, v_select(v_ge(x, V_ZERO), x, y *vmath_expm1(x)))
EW_F32_2(celu, v_select(v_gt(x, V_ZERO), x, y *vmath_expm1(x / y)))
EW_F32_2(hardshrink, v_select(v_le(v_abs(x), y), V_ZERO, x))
EW_F32_2(relu_grad, v_select(v_le(y, V_ZERO), V_ZERO, x))
EW_F32_2(gelu_grad, vact_gelu_grad(x, y))
EW_F32_2(gelu_tanh_grad, vact_gelu_tanh_grad(x, y))
EW_F32_2(silu_grad, vact_silu_grad(x, y))
EW_F32_2(relu6_grad, v_select(k_and(v_gt(y, V_ZERO), v_lt(y, v_set1(6.0f))), x, V_ZERO))
EW_F32_2(hardswish_grad,
         v_select(v_le(y, v_set1(-3.0f)), V_ZERO, v_select(v_ge(y, v_set1(3.0f)), x, x *(y / 3.0f + 0.5f))))
EW_F32_2(hardsigmoid_grad, v_select(k_and(v_gt(y, v_set1(-3.0f)), v_lt(y, v_set1(3.0f))), x *(1.0f / 6), V_ZERO))
EW_F32_2(logsigmoid_grad, vact_logsigmoid_grad(x, y))
EW_F32_2(selu_grad, v_select(v_gt(y, V_ZERO), x *(float)DYCL_SELU_SCALE,
                             x *(float)(DYCL_SELU_ALPHA *DYCL_SELU_SCALE) * vmath_exp(y)))
EW_F32_2(copysign, v_copysign(x, y))

DYCL_INLINE vf f32_where(vm x, vf y, vf z) { return v_select(x, y, z); }
/* torch contracts this one on every CPU with FMA. */
DYCL_INLINE vf f32_lerp(vf x, vf y, vf z) {
    vm near = v_lt(v_abs(z), v_set1(0.5f));
    return v_fma(v_select(near, z, z - 1.0f), y - x, v_select(near, x, y));
}
EW_F32_3(clamp, f32_minimum(z, f32_maximum(y, x))) /* in this order -0 stays what it is between bounds of 0 */
EW_F32_3(hardtanh, f32_clamp(x, y, z))
EW_F32_3(softplus, vact_softplus(x, y, z))
EW_F32_3(threshold, v_select(v_le(x, y), z, x))
EW_F32_3(leaky_relu_grad, v_select(v_gt(y, V_ZERO), x, x *z))
EW_F32_3(threshold_grad, v_select(v_le(y, z), V_ZERO, x))
EW_F32_3(below_grad, v_select(v_lt(y, z), x, V_ZERO))
EW_F32_3(hardshrink_grad, v_select(v_gt(v_abs(y), z), x, V_ZERO))
EW_F32_3(elu_grad, v_select(v_gt(y, V_ZERO), x, x *z *vmath_exp(y)))
EW_F32_3(celu_grad, v_select(v_gt(y, V_ZERO), x, x *vmath_exp(y *(1.0f / z))))
EW_F32_3(softplus_grad, vact_softplus_grad(x, y, z))
EW_F32_3(add_scaled, v_fma(y, z, x))
EW_F32_3(fma, v_fma(x, y, z))

#define DYCL_KERN_EW(name, operands, classes, result)
#define DYCL_KERN_PAIR(name, operands, first, its, second, others)                                                     \
    EW_F32_##operands(name, EW_BEHIND_##its##_##others(f32_##first, f32_##second))
#include "kern/kern.def"
#undef DYCL_KERN_EW

#undef EW_F32_1
#undef EW_F32_2
#undef EW_F32_3
#undef EW_F32_P1
#undef EW_F32_P2

#endif
