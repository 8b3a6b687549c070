/* Elementary functions of f32 vectors, at most 2 ulp from the correctly rounded result over the whole range (tanh:
 * 2.5): subnormal arguments and results, infinities and NaN included. tests/c/test_kern_ew.c states and checks the
 * bound of each.
 *
 * With one lane (the scalar build) these are libm's, because a baseline x86-64 has no FMA to write them with.
 * Polynomials are minimax fits (Lawson-weighted least squares) computed for this file; the error given beside each is
 * that of the exact polynomial, relative to the function.
 *
 * Ownership: none, no state. Threads: any. */
#ifndef DYCL_KERN_VMATH_H
#define DYCL_KERN_VMATH_H

#include "kern/simd.h"

#if DYCL_SIMD_WIDTH == 1

DYCL_INLINE vf vmath_exp(vf x) { return expf(x); }
DYCL_INLINE vf vmath_exp2(vf x) { return exp2f(x); }
DYCL_INLINE vf vmath_expm1(vf x) { return (float)expm1(x); }
DYCL_INLINE vf vmath_log(vf x) { return logf(x); }
DYCL_INLINE vf vmath_log2(vf x) { return log2f(x); }
DYCL_INLINE vf vmath_log10(vf x) { return (float)log10(x); }
DYCL_INLINE vf vmath_log1p(vf x) { return (float)log1p(x); }
DYCL_INLINE vf vmath_tanh(vf x) { return (float)tanh(x); }
DYCL_INLINE vf vmath_erf(vf x) { return (float)erf(x); }
DYCL_INLINE vf vmath_sin(vf x) { return sinf(x); }
DYCL_INLINE vf vmath_cos(vf x) { return cosf(x); }
DYCL_INLINE vf vmath_tan(vf x) { return (float)tan(x); }
DYCL_INLINE vf vmath_pow(vf x, vf y) { return powf(x, y); }
DYCL_INLINE vf vmath_atan2(vf y, vf x) { return (float)atan2(y, x); }
DYCL_INLINE vf vmath_fmod(vf a, vf b) { return fmodf(a, b); }

#else

/* ---- Exponentials */

/* x * scale to the nearest integer, below 2^22: the sum with 1.5 * 2^23 has no room for a fraction. An instruction less
 * than v_round. */
DYCL_INLINE vf vmath_nearest(vf x, float scale) {
    const vf magic = v_set1(12582912.0f);
    return v_fma(x, v_set1(scale), magic) - magic;
}

/* e^r, |r| <= 0.35 */
DYCL_INLINE vf vmath_exp_reduced(vf r) {
    /* (e^r - 1 - r) / r^2, 2^-28.2 */
    vf q = v_fma(r, v_set1(0.00139517151f), v_set1(0.00836959854f));
    q = v_fma(q, r, v_set1(0.0416661873f));
    q = v_fma(q, r, v_set1(0.166665122f));
    q = v_fma(q, r, v_set1(0.5f));
    return v_fma(r * r, q, r) + 1.0f;
}

/* e^(x + low) = p * 2^n, p within [0.70, 1.42]: for callers that multiply before they scale, so that a subnormal
 * result is rounded once. |x| <= 250, low a correction far below x. NaN gives p = NaN. */
typedef struct {
    vf p, n;
} vmath_exp_parts_result;

DYCL_INLINE vmath_exp_parts_result vmath_exp_parts(vf x, vf low) {
    vf n = vmath_nearest(x, 1.44269502f);
    vf r = v_fma(n, v_set1(-0.693147182f), x);
    return (vmath_exp_parts_result){vmath_exp_reduced(v_fma(n, v_set1(1.90465430e-9f), r) + low), n};
}

/* Beyond these bounds the result is 0 or infinite. v_min and v_max answer their second operand for NaN. */
DYCL_INLINE vf vmath_exp_clamp(vf x) { return v_min(v_set1(89.0f), v_max(v_set1(-104.5f), x)); }

DYCL_INLINE vf vmath_exp(vf x) {
    x = vmath_exp_clamp(x);
    vf n = vmath_nearest(x, 1.44269502f);
    vf r = v_fma(n, v_set1(-0.693147182f), x);
    return v_scale(vmath_exp_reduced(v_fma(n, v_set1(1.90465430e-9f), r)), n);
}

DYCL_INLINE vf vmath_exp2(vf x) {
    x = v_min(v_set1(129.0f), v_max(v_set1(-151.0f), x));
    vf n = v_round(x);
    vf f = x - n;
    vf r = f * 0.693147182f;
    vf low = v_fma(f, v_set1(0.693147182f), v_neg(r)) - f * 1.90465430e-9f;
    vf q = v_fma(r, v_set1(0.00139517151f), v_set1(0.00836959854f));
    q = v_fma(q, r, v_set1(0.0416661873f));
    q = v_fma(q, r, v_set1(0.166665122f));
    q = v_fma(q, r, v_set1(0.5f));
    return v_scale((v_fma(r * r, q, low) + r) + 1.0f, n);
}

/* (e^r - 1 - r) / r^2, |r| <= 0.35, weighted for e^r - 1, 2^-31.9 */
DYCL_INLINE vf vmath_expm1_tail(vf r) {
    vf q = v_fma(r, v_set1(0.000198459689f), v_set1(0.00139416533f));
    q = v_fma(q, r, v_set1(0.00833339151f));
    q = v_fma(q, r, v_set1(0.0416663475f));
    q = v_fma(q, r, v_set1(0.166666657f));
    return v_fma(q, r, v_set1(0.5f));
}

DYCL_INLINE vf vmath_expm1(vf x) {
    vf c = v_min(v_set1(89.0f), v_max(v_set1(-20.0f), x));
    vf n = vmath_nearest(c, 1.44269502f);
    vf high = v_fma(n, v_set1(-0.693147182f), c); /* exact */
    vf r = v_fma(n, v_set1(1.90465430e-9f), high);
    vf low = v_fma(n, v_set1(1.90465430e-9f), high - r);
    vf tail = v_fma(r * r, vmath_expm1_tail(r), low); /* e^(r + low) - 1 = r + tail */
    /* 2^n (1 + r + tail) - 1, at half its size, for 2^128 is no float */
    vf s = v_pow2(n - 1.0f);
    vf base = s - 0.5f;
    vf sum = v_fma(s, r, base);
    /* What that sum lost: s * r is exact (a power of two), and one of the two operands dominates. */
    vf sr = s * r, back = sum - base;
    vf lost = (base - (sum - back)) + (sr - back);
    vf y = 2.0f * (sum + v_fma(s, tail, lost));
    return v_select(v_lt(v_abs(x), v_set1(0x1p-24f)), x, y); /* keeps -0 and subnormals */
}

/* ---- Logarithms */

/* x = 2^k * (1 + f), 1 + f within [3/4, 3/2), for positive finite x. */
typedef struct {
    vf f, k;
} vmath_log_parts_result;

DYCL_INLINE vmath_log_parts_result vmath_log_parts(vf x) {
    vmath_log_parts_result p;
#if DYCL_SIMD_WIDTH == 16
    vf m = _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_src);
    vf k = _mm512_getexp_ps(x);
    p.k = _mm512_mask_add_ps(k, v_lt(m, v_set1(1.0f)), k, v_set1(1.0f));
    p.f = m - 1.0f;
#else
    vm small = v_lt(x, v_set1(0x1p-126f));
    vu bits = (vu)v_bits(v_select(small, x * 0x1p23f, x)) + (0x3f800000 - 0x3f400000);
    p.k = v_from_int(((vi)bits >> 23) - 127) - v_select(small, v_set1(23.0f), v_set1(0.0f));
    p.f = v_from_bits((vi)((bits & 0x7fffff) + 0x3f400000)) - 1.0f;
#endif
    return p;
}

/* log(1 + f) - f */
DYCL_INLINE vf vmath_log_tail(vf f) {
    /* (log(1 + f) - f + f^2 / 2) / f^3, 2^-30.0 */
    vf q = v_fma(f, v_set1(0.0376844071f), v_set1(-0.0911884233f));
    q = v_fma(q, f, v_set1(0.117024384f));
    q = v_fma(q, f, v_set1(-0.127280205f));
    q = v_fma(q, f, v_set1(0.142761007f));
    q = v_fma(q, f, v_set1(-0.166552603f));
    q = v_fma(q, f, v_set1(0.199996069f));
    q = v_fma(q, f, v_set1(-0.250001669f));
    q = v_fma(q, f, v_set1(0.333333403f));
    vf square = f * f;
    return v_fma(square, v_set1(-0.5f), square * f * q);
}

/* y where x is positive and finite; else -inf, NaN or x itself (infinity and NaN). */
DYCL_INLINE vf vmath_log_special(vf x, vf y) {
#if DYCL_SIMD_WIDTH == 16
    /* One nibble a class of x, from the lowest: quiet and signalling NaN: as a quiet NaN (2); 0: -inf (4); 1: y (0);
     * -inf: NaN (3); inf: inf (5); negative: NaN; positive: y. */
    return _mm512_fixupimm_ps(y, x, _mm512_set1_epi32(0x03530422), 0);
#else
    y = v_select(v_lt(x, v_set1(INFINITY)), y, x);
    y = v_select(v_lt(x, v_set1(0.0f)), v_set1(NAN), y);
    return v_select(v_eq(x, v_set1(0.0f)), v_set1(-INFINITY), y);
#endif
}

DYCL_INLINE vf vmath_log(vf x) {
    vmath_log_parts_result p = vmath_log_parts(x);
    vf tail = v_fma(p.k, v_set1(-1.90465430e-9f), vmath_log_tail(p.f));
    return vmath_log_special(x, v_fma(p.k, v_set1(0.693147182f), tail + p.f));
}

/* log(x) / log(base): the product with the two-part `scale` is carried in two parts, and so is k * log_base(2). */
DYCL_INLINE vf vmath_log_base(vf x, float scale, float scale_low, float two, float two_low) {
    vmath_log_parts_result p = vmath_log_parts(x);
    vf tail = vmath_log_tail(p.f);
    vf high = p.f + tail, low = (p.f - high) + tail;
    vf t = high * scale;
    vf t_low = v_fma(high, v_set1(scale), v_neg(t)) + v_fma(high, v_set1(scale_low), low * scale);
    vf whole = p.k * two;
    vf whole_low = v_fma(p.k, v_set1(two), v_neg(whole)) + p.k * two_low;
    vf sum = whole + t;
    vf sum_low = (whole - sum) + t; /* exact: whole is 0 or the larger */
    return vmath_log_special(x, sum + (sum_low + (t_low + whole_low)));
}
DYCL_INLINE vf vmath_log2(vf x) { return vmath_log_base(x, 1.44269502f, 1.92596299e-8f, 1.0f, 0.0f); }
DYCL_INLINE vf vmath_log10(vf x) {
    return vmath_log_base(x, 0.434294492f, -1.01030500e-8f, 0.301030010f, -1.43209889e-8f);
}

DYCL_INLINE vf vmath_log1p(vf x) {
    vf u = x + 1.0f;
    /* 1 + x = u + lost */
    vf lost = v_select(v_gt(x, v_set1(1.0f)), 1.0f - (u - x), x - (u - 1.0f));
    vmath_log_parts_result p = vmath_log_parts(u);
    p.f = v_fma(lost, v_pow2(v_max(v_set1(-120.0f), v_neg(p.k))), p.f); /* lost <= 1 is nothing beside 2^120 */
    vf tail = v_fma(p.k, v_set1(-1.90465430e-9f), vmath_log_tail(p.f));
    vf y = vmath_log_special(u, v_fma(p.k, v_set1(0.693147182f), tail + p.f));
    return v_select(v_lt(v_abs(x), v_set1(0x1p-24f)), x, y);
}

/* ---- tanh, erf */

/* h / (h + 1) with h = (e^2t - 1) / 2, which keeps its relative accuracy near 0. What t loses to the rounding of ln 2 /
 * 2 grows with n, but counts for less the larger h is: no second part. */
DYCL_INLINE vf vmath_tanh(vf x) {
    vf t = v_min(v_set1(12.0f), v_abs(x)); /* 1 beyond */
    vf n = vmath_nearest(t, 2.88539004f);
    vf r = v_fma(n, v_set1(-0.346573591f), t);
    /* (e^2r - 1 - 2r) / 2r^2, from the coefficients of vmath_exp_reduced */
    vf q = v_fma(r, v_set1(0.0446454883f), v_set1(0.133913577f));
    q = v_fma(q, r, v_set1(0.333329499f));
    q = v_fma(q, r, v_set1(0.666660488f));
    q = v_fma(q, r, v_set1(1.0f));
    vf s = v_pow2(n);
    vf h = v_fma(s, v_fma(r * r, q, r), v_fma(s, v_set1(0.5f), v_set1(-0.5f)));
    return v_copysign(h / (h + 1.0f), x);
}

DYCL_INLINE vf vmath_erf(vf x) {
    vf t = v_abs(x), s = x * x;
    vf q = v_fma(s, v_set1(-5.96761703e-4f), v_set1(4.99119423e-3f));
    q = v_fma(q, s, v_set1(-2.67681349e-2f));
    q = v_fma(q, s, v_set1(1.12819925e-1f));
    q = v_fma(q, s, v_set1(-3.76125336e-1f));
    q = v_fma(q, s, v_set1(1.28379166e-1f));
    vf small = v_fma(q, x, x);
    /* log(erfc(t)), for t up to 4; beyond, erf is 1 */
    vf c = v_min(v_set1(4.0f), t);
    vf r = v_fma(c, v_set1(-1.72853470e-5f), v_set1(3.83197126e-4f));
    vf u = v_fma(c, v_set1(-3.88396438e-3f), v_set1(2.42546219e-2f));
    r = v_fma(r, c * c, u);
    r = v_fma(r, c, v_set1(-1.06777877e-1f));
    r = v_fma(r, c, v_set1(-6.34846687e-1f));
    r = v_fma(r, c, v_set1(-1.28717512e-1f));
    vf large = 1.0f - vmath_exp(v_fma(r, c, v_neg(c)));
    return v_select(v_lt(t, v_set1(0.927734375f)), small, v_copysign(large, x));
}

#include "kern/vmath_f64.h"

#endif
#endif
