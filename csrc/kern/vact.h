/* Activation functions of f32 vectors that need more than elementary functions to stay accurate where the textbook
 * formula cancels or overflows: relative accuracy holds in the tails too, down to subnormal results. -inf gives NaN
 * where torch's formula is -inf * 0 (gelu, gelu_tanh, silu, mish).
 *
 * Ownership: none, no state. Threads: any. */
#ifndef DYCL_KERN_VACT_H
#define DYCL_KERN_VACT_H

#include "kern/ew_f64.h"
#include "kern/vmath.h"

#if DYCL_SIMD_WIDTH == 1

DYCL_INLINE vf vact_sigmoid(vf x) { return (float)f64_sigmoid(x); }
DYCL_INLINE vf vact_logsigmoid(vf x) { return (float)f64_logsigmoid(x); }
DYCL_INLINE vf vact_softplus(vf x, vf beta, vf threshold) {
    return x * beta > threshold ? x : (float)f64_softplus(x, beta, INFINITY);
}
DYCL_INLINE vf vact_silu(vf x) { return (float)f64_silu(x); }
DYCL_INLINE vf vact_mish(vf x) { return (float)f64_mish(x); }
DYCL_INLINE vf vact_gelu(vf x) { return (float)f64_gelu(x); }
DYCL_INLINE vf vact_gelu_tanh(vf x) { return (float)f64_gelu_tanh(x); }

#else

/* e^-|x + low| */
DYCL_INLINE vmath_exp_parts_result vact_decay(vf x, vf low) {
    vi sign = v_bits(x) & INT32_MIN;
    vf z = v_from_bits(v_bits(x) | INT32_MIN), z_low = v_from_bits(v_bits(low) ^ sign ^ INT32_MIN);
    return vmath_exp_parts(v_max(v_set1(-150.0f), z), z_low);
}

DYCL_INLINE vf vact_nan_at_minus_infinity(vf x, vf y) { return v_select(v_eq(x, v_set1(-INFINITY)), v_set1(NAN), y); }

/* 2^n / (2^n + p) with e^-x = p 2^-n: nothing overflows, and a subnormal result is rounded once. */
DYCL_INLINE vf vact_sigmoid(vf x) {
    vf c = v_min(v_set1(20.0f), v_max(v_set1(-104.5f), x)); /* 1 and 0 beyond */
    vf n = vmath_nearest(c, 1.44269502f);
    vf p = vmath_exp_reduced(v_fma(n, v_set1(-1.90465430e-9f), v_fma(n, v_set1(0.693147182f), v_neg(c))));
    vf s = v_scale(v_set1(1.0f), n);
    return s / (s + p);
}

DYCL_INLINE vf vact_logsigmoid(vf x) {
    vf e = vmath_exp(v_from_bits(v_bits(x) | INT32_MIN));
    return v_min(v_set1(0.0f), x) - vmath_log1p(e);
}

DYCL_INLINE vf vact_softplus(vf x, vf beta, vf threshold) {
    vf s = x * beta, low = v_fma(x, beta, v_neg(s));
    vmath_exp_parts_result e = vact_decay(s, v_select(v_lt(v_abs(s), v_set1(200.0f)), low, v_set1(0.0f)));
    vf y = (v_max(v_set1(0.0f), s) + vmath_log1p(v_scale(e.p, e.n))) / beta;
    return v_select(v_gt(s, threshold), x, y);
}

/* x * sigmoid(z + low), where z has the sign of x. */
DYCL_INLINE vf vact_gated(vf x, vf z, vf low) {
    vmath_exp_parts_result e = vact_decay(z, low);
    vm negative = v_lt(x, v_set1(0.0f));
    /* x is bounded, or a huge one times the e^-150 of vact_decay would not be 0 */
    vf below = v_scale(v_max(v_set1(-256.0f), x) * e.p, e.n);
    vf y = v_select(negative, below, x) / (v_scale(e.p, e.n) + 1.0f);
    return vact_nan_at_minus_infinity(x, y);
}

DYCL_INLINE vf vact_silu(vf x) { return vact_gated(x, x, v_set1(0.0f)); }

DYCL_INLINE vf vact_gelu_tanh(vf x) {
    /* 0.5 (1 + tanh(y)) = sigmoid(2y), 2y = x (a + b x^2), in two parts: its absolute error is the relative error of
     * the result */
    const vf a = v_set1(1.59576917f), b = v_set1(0.0713548139f);
    vf c = v_min(v_set1(16.0f), v_max(v_set1(-16.0f), x));
    vf s = c * c, s_low = v_fma(c, c, v_neg(s));
    vf t = s * b, t_low = v_fma(s, b, v_neg(t)) + v_fma(s_low, b, s * 2.3988324e-9f);
    vf q = t + a, back = q - t;
    vf q_low = (t - (q - back)) + (a - back) + (t_low - 4.53406803e-8f);
    vf z = c * q;
    return vact_gated(x, z, v_fma(c, q, v_neg(z)) + c * q_low);
}

/* x tanh(log(1 + e^x)) = x n / (n + 2), n = e^x (e^x + 2); for x > 0 both sides times e^-2x. */
DYCL_INLINE vf vact_mish(vf x) {
    const vf zero = v_set1(0.0f);
    vmath_exp_parts_result p = vact_decay(x, zero);
    vf e = v_scale(p.p, p.n);
    vm positive = v_gt(x, zero);
    vf n = v_select(positive, v_fma(e, v_set1(2.0f), v_set1(1.0f)), v_fma(e, e, e + e));
    vf d = n + v_select(positive, 2.0f * e * e, v_set1(2.0f));
    vf below = v_scale(v_max(v_set1(-256.0f), x) * v_fma(p.p, e, p.p + p.p), p.n);
    return vact_nan_at_minus_infinity(x, v_select(positive, x * n, below) / d);
}

/* x Phi(x). The upper tail is Q(t) = e^(-t^2/2) R(t) with a smooth R, so that x < 0 keeps its relative accuracy. */
DYCL_INLINE vf vact_gelu(vf x) {
    vf t = v_min(v_set1(14.4f), v_abs(x)); /* t Q(t) rounds to 0 there */
    vf w = t / (t + 2.0f);
    vf u = v_fma(w, v_set1(2.0f), v_set1(-1.0f));
    /* R (t + 2) in u = (t - 2) / (t + 2), 2^-28.4 */
    vf q = v_fma(u, v_set1(-6.59935031e-05f), v_set1(-0.000148819803f));
    q = v_fma(q, u, v_set1(0.000134627771f));
    q = v_fma(q, u, v_set1(0.000836191175f));
    q = v_fma(q, u, v_set1(0.000821886351f));
    q = v_fma(q, u, v_set1(-0.00195146329f));
    q = v_fma(q, u, v_set1(-0.00673380587f));
    q = v_fma(q, u, v_set1(-0.000469752995f));
    q = v_fma(q, u, v_set1(0.0367192812f));
    q = v_fma(q, u, v_set1(0.0287973713f));
    q = v_fma(q, u, v_set1(-0.331404477f));
    q = v_fma(q, u, v_set1(0.672407985f));
    vf half = t * -0.5f, z = half * t;
    vmath_exp_parts_result e = vmath_exp_parts(z, v_fma(half, t, v_neg(z)));
    vf tq = v_scale(q * e.p * w, e.n);
    return vact_nan_at_minus_infinity(x, v_max(v_set1(-0.0f), x) - tq);
}

#endif
#endif
