/* Activation functions of f32 vectors. Where torch's formula leaves nothing, these leave nothing either: programs ask
 * whether an activation is 0, divide by it and take its logarithm. So gelu cancels as torch's does, and sigmoid is 0
 * where e^-x is infinite. The others stay accurate where the textbook formula cancels or overflows, down to subnormal
 * results. -inf gives NaN where torch's formula is -inf * 0 (gelu, gelu_tanh, silu, mish).
 *
 * Ownership: none, no state. Threads: any. */
#ifndef DYCL_KERN_VACT_H
#define DYCL_KERN_VACT_H

#include "kern/ew_f64.h"
#include "kern/vmath.h"

#if DYCL_SIMD_WIDTH == 1

DYCL_INLINE vf vact_sigmoid(vf x) { return 1.0f / (1.0f + expf(-x)); }
DYCL_INLINE vf vact_logsigmoid(vf x) {
    vf y = (float)f64_logsigmoid(x);
    return y == 0.0f ? 0.0f : y; /* what is too small for f32 is torch's 0, not -0 */
}
DYCL_INLINE vf vact_softplus(vf x, vf beta, vf threshold) {
    return x * beta > threshold ? x : (float)f64_softplus(x, beta, INFINITY);
}
DYCL_INLINE vf vact_silu(vf x) { return x / (1.0f + expf(-x)); }
DYCL_INLINE vf vact_mish(vf x) { return (float)f64_mish(x); }

#else

/* e^-|x + low| */
DYCL_INLINE vmath_exp_parts_result vact_decay(vf x, vf low) {
    vi sign = v_bits(x) & INT32_MIN;
    vf z = v_from_bits(v_bits(x) | INT32_MIN), z_low = v_from_bits(v_bits(low) ^ sign ^ INT32_MIN);
    return vmath_exp_parts(v_max(v_set1(-150.0f), z), z_low);
}

DYCL_INLINE vf vact_nan_at_minus_infinity(vf x, vf y) { return v_select(v_eq(x, v_set1(-INFINITY)), v_set1(NAN), y); }

/* x, or `low` where e^-x is infinite: a NaN stays. */
DYCL_INLINE vf vact_cut(vf x, float low) { return v_select(v_lt(x, v_set1(-88.7228317f)), v_set1(low), x); }

/* 2^n / (2^n + p) with e^-x = p 2^-n: nothing overflows, and a subnormal result is rounded once. */
DYCL_INLINE vf vact_sigmoid(vf x) {
    vf c = v_min(v_set1(20.0f), vact_cut(x, -104.5f)); /* 1 and 0 beyond */
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

DYCL_INLINE vf vact_silu(vf x) {
    vmath_exp_parts_result e = vact_decay(vact_cut(x, -150.0f), v_set1(0.0f));
    vm negative = v_lt(x, v_set1(0.0f));
    /* x is bounded, or a huge one times the e^-150 of vact_decay would not be 0 */
    vf below = v_scale(v_max(v_set1(-256.0f), x) * e.p, e.n);
    vf y = v_select(negative, below, x) / (v_scale(e.p, e.n) + 1.0f);
    return vact_nan_at_minus_infinity(x, y);
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

#endif

/* erf(|x| / sqrt 2) by formula 7.1.26 of Abramowitz and Stegun (Handbook of Mathematical Functions, 1964; error
 * 1.5e-7), as oneDNN has it, which torch asks where a tensor is contiguous, is 1 - r q e: e = e^(-x^2 / 2), its answer
 * is r e. */
DYCL_INLINE vf vact_gelu_parts(vf s, vf *q, vf *e) {
    vf r = 1.0f / v_fma(v_abs(s), v_set1(0.3275911f), v_set1(1.0f));
    *q = v_fma(r, v_set1(1.061405429f), v_set1(-1.453152027f));
    *q = v_fma(*q, r, v_set1(1.421413741f));
    *q = v_fma(*q, r, v_set1(-0.284496736f));
    *q = v_fma(*q, r, v_set1(0.254829592f));
    *e = vmath_exp(v_neg(s * s));
    return *e * r;
}

/* x / 2 (1 + erf(x / sqrt 2)): 0 from -5.543 on, as torch's. */
DYCL_INLINE vf vact_gelu(vf x) {
    vf s = x * 0.707106769f, half = x * 0.5f, q, e, decay = vact_gelu_parts(s, &q, &e);
    vf erf = v_fma(v_neg(decay), q, v_set1(1.0f));
    return v_fma(half, v_copysign(erf, s), half);
}

/* x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
DYCL_INLINE vf vact_gelu_tanh(vf x) {
    vf t = vmath_tanh(v_fma(x * x * x, v_set1(0.044715f), x) * 0.797884583f);
    return x * 0.5f * (t + 1.0f);
}

/* ---- Gradients, with one exponential where the formula has two; NaN where torch's formula is -inf * 0 */

/* g (cdf + x pdf): cdf = (1 + erf(x / sqrt 2)) / 2, pdf = e^(-x^2 / 2) / sqrt(2 pi) */
DYCL_INLINE vf vact_gelu_grad(vf g, vf x) {
    vf q, e, decay = vact_gelu_parts(x * 0.707106769f, &q, &e), tail = decay * 0.5f * q;
    vf cdf = v_select(v_gt(x, v_set1(0.0f)), 1.0f - tail, tail);
    return g * v_fma(x * e, v_set1(0.398942280f), cdf);
}

DYCL_INLINE vf vact_gelu_tanh_grad(vf g, vf x) {
    const vf one = v_set1(1.0f);
    vf square = x * x, t = vmath_tanh(v_fma(square * x, v_set1(0.044715f), x) * 0.797884583f);
    vf slope = v_fma(square, v_set1(0.134145f), one) * 0.797884583f;
    return g * ((t + 1.0f) * 0.5f + x * 0.5f * v_fma(v_neg(t), t, one) * slope);
}

DYCL_INLINE vf vact_silu_grad(vf g, vf x) {
    vf s = vact_sigmoid(x);
    return g * s * v_fma(x, 1.0f - s, v_set1(1.0f));
}

/* g / (1 + e^x), by what does not overflow */
DYCL_INLINE vf vact_logsigmoid_grad(vf g, vf x) {
    vf e = vmath_exp(v_neg(v_abs(x))), part = e / (e + 1.0f);
    return g * v_select(v_lt(x, v_set1(0.0f)), 1.0f - part, part);
}

/* x: by beta */
DYCL_INLINE vf vact_softplus_grad(vf g, vf x, vf threshold) {
    vf e = vmath_exp(x);
    return v_select(v_gt(x, threshold), g, g * e / (e + 1.0f));
}

#endif
