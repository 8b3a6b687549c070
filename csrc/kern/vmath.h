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

/* ---- Through f64: sin, cos, tan, atan2, pow, fmod */

/* The lanes of `mask`, one after the other, through libm: arguments so rare that they need not be fast. */
#define VMATH_LANES_1(mask, y, x, fn)                                                                                  \
    do {                                                                                                               \
        float lane_x[VW], lane_y[VW];                                                                                  \
        uint8_t lane_m[VW];                                                                                            \
        v_store(lane_x, x), v_store(lane_y, y), k_store(lane_m, mask);                                                 \
        for (int lane = 0; lane < VW; lane++)                                                                          \
            if (lane_m[lane]) lane_y[lane] = fn(lane_x[lane]);                                                         \
        y = v_load(lane_y);                                                                                            \
    } while (0)

#define D_POLY4(s, a, b, c, d) d_fma(d_fma(d_fma(s, d_set1(d), d_set1(c)), s, d_set1(b)), s, d_set1(a))

typedef struct {
    vd sin, cos;
    vl quadrant;
} vmath_sincos_result;

/* sin and cos of r = x - quadrant * pi / 2, |r| <= pi / 4; good for |x| < 2^30. */
DYCL_INLINE vmath_sincos_result vmath_sincos_parts(vd x) {
    vmath_sincos_result p;
    vd n = d_round(x * 0.63661977236758134);
    vd r = d_fma(n, d_set1(-0x1.921fb54442d18p+0), x);
    r = d_fma(n, d_set1(-0x1.1a62633145c07p-54), r);
    p.quadrant = (vl)(n + 0x1.8p52);
    vd s = r * r;
    vd even = D_POLY4(s, 0.041666666622790338, -0.0013888883750149202, 2.4799519143883576e-05, -2.7210165878421379e-07);
    vd odd = d_fma(s, d_set1(-2.476163711236166e-08), d_set1(2.7555357563788476e-06));
    odd = d_fma(d_fma(d_fma(odd, s, d_set1(-0.00019841262823872183)), s, d_set1(0.0083333333252705397)), s,
                d_set1(-0.16666666666631588));
    p.sin = d_fma(r * s, odd, r);
    p.cos = d_fma(s * s, even, d_fma(s, d_set1(-0.5), d_set1(1.0)));
    return p;
}

/* sin(x + turn * pi / 2) */
DYCL_INLINE vd vmath_sin_turned(vd x, int64_t turn) {
    vmath_sincos_result p = vmath_sincos_parts(x);
    vl q = p.quadrant + turn;
    vd y = d_select(-(q & 1), p.cos, p.sin);
    return (vd)((vul)y ^ (((vul)q & 2) << 62));
}
DYCL_INLINE vd vmath_tan_half(vd x) {
    vmath_sincos_result p = vmath_sincos_parts(x);
    vl swap = -(p.quadrant & 1);
    vd y = d_select(swap, p.cos, p.sin) / d_select(swap, p.sin, p.cos);
    return (vd)((vl)y ^ (swap & INT64_MIN));
}

static inline float vmath_tan_lane(float x) { return (float)tan(x); }
#define VMATH_HUGE_ANGLE(x)    k_not(v_lt(v_abs(x), v_set1(0x1p30f)))

DYCL_INLINE vf vmath_sin(vf x) {
    vf y = d_join(vmath_sin_turned(d_low(x), 0), vmath_sin_turned(d_high(x), 0));
    y = v_select(v_eq(x, v_set1(0.0f)), x, y); /* keeps -0 */
    if (__builtin_expect(k_any(VMATH_HUGE_ANGLE(x)), 0)) VMATH_LANES_1(VMATH_HUGE_ANGLE(x), y, x, sinf);
    return y;
}
DYCL_INLINE vf vmath_cos(vf x) {
    vf y = d_join(vmath_sin_turned(d_low(x), 1), vmath_sin_turned(d_high(x), 1));
    if (__builtin_expect(k_any(VMATH_HUGE_ANGLE(x)), 0)) VMATH_LANES_1(VMATH_HUGE_ANGLE(x), y, x, cosf);
    return y;
}
DYCL_INLINE vf vmath_tan(vf x) {
    vf y = d_join(vmath_tan_half(d_low(x)), vmath_tan_half(d_high(x)));
    y = v_select(v_eq(x, v_set1(0.0f)), x, y);
    if (__builtin_expect(k_any(VMATH_HUGE_ANGLE(x)), 0)) VMATH_LANES_1(VMATH_HUGE_ANGLE(x), y, x, vmath_tan_lane);
    return y;
}

/* atan2 of magnitudes and the sign bit of x; neither is NaN. */
DYCL_INLINE vd vmath_atan2_half(vd y, vd x) {
    vd ay = d_abs(y), ax = d_abs(x);
    vd small = d_min(ay, ax), large = d_max(ay, ax);
    /* 0/0 counts as 0, inf/inf as 1 */
    vd ratio = d_select(small == large, d_select(large == 0.0, d_set1(0.0), d_set1(1.0)), small / large);
    vd s = ratio * ratio;
    /* (atan(r) / r - 1) / r^2, 2^-36.7 */
    vd q = d_fma(s, d_set1(0.0004491767585595835), d_set1(-0.003377119826837951));
    q = d_fma(q, s, d_set1(0.011910728135781933));
    q = d_fma(q, s, d_set1(-0.026745479967110582));
    q = d_fma(q, s, d_set1(0.044366450663809877));
    q = d_fma(q, s, d_set1(-0.06068655803325862));
    q = d_fma(q, s, d_set1(0.075153690150339611));
    q = d_fma(q, s, d_set1(-0.090549505891295748));
    q = d_fma(q, s, d_set1(0.11106369245473766));
    q = d_fma(q, s, d_set1(-0.14285343304999062));
    q = d_fma(q, s, d_set1(0.19999985331349324));
    q = d_fma(q, s, d_set1(-0.33333333130186266));
    vd a = d_fma(ratio * s, q, ratio);
    a = d_select(ay > ax, 0x1.921fb54442d18p+0 - a, a);
    a = d_select((vl)x < 0, 0x1.921fb54442d18p+1 - a, a);
    return (vd)((vl)a | ((vl)y & INT64_MIN));
}
DYCL_INLINE vf vmath_atan2(vf y, vf x) {
    vf r = d_join(vmath_atan2_half(d_low(y), d_low(x)), vmath_atan2_half(d_high(y), d_high(x)));
    return v_select(v_unordered(x, y), v_set1(NAN), r);
}

/* 2^(y * log2(x)) for x >= 0; NaN where y * log2(x) is 0 * inf. */
DYCL_INLINE vd vmath_pow_half(vd x, vd y) {
    const uint64_t one = 0x3ff0000000000000, root = 0x3fe6a09e667f3bcd, exponent = 0x7ff0000000000000;
    vul bits = (vul)x + (one - root);
    vd k = (vd)((bits >> 52) | 0x4330000000000000) - (0x1p52 + 1023.0);
    vd m = (vd)((vul)x - ((bits & exponent) - one));
    vd s = (m - 1.0) / (m + 1.0), z = s * s;
    /* log2((1 + s) / (1 - s)) / s, 2^-43.5 */
    vd q = d_fma(z, d_set1(0.28292979597893575), d_set1(0.31990366690678701));
    q = d_fma(q, z, d_set1(0.41220930078164558));
    q = d_fma(q, z, d_set1(0.57707794189668726));
    q = d_fma(q, z, d_set1(0.9617966941149162));
    q = d_fma(q, z, d_set1(2.8853900817778491));
    vd log = d_fma(s, q, k);
    log = d_select(x == 0.0, d_set1(-INFINITY), d_select(x == INFINITY, x, log));
    vd p = d_min(d_set1(200.0), d_max(d_set1(-200.0), y * log)); /* NaN stays */
    vd n = d_round(p), r = p - n;
    /* 2^r, 2^-34.5 */
    vd e = d_fma(r, d_set1(1.5201913873733584e-05), d_set1(0.00015469291079853666));
    e = d_fma(e, r, d_set1(0.0013333922597101333));
    e = d_fma(e, r, d_set1(0.0096180272539003325));
    e = d_fma(e, r, d_set1(0.05550410353406434));
    e = d_fma(e, r, d_set1(0.24022651198155409));
    e = d_fma(e, r, d_set1(0.69314718072845982));
    e = d_fma(e, r, d_set1(0.99999999996168232));
    return e * (vd)((vul)(n + (0x1p52 + 1023.0)) << 52);
}
DYCL_INLINE vf vmath_pow(vf x, vf y) {
    const vf zero = v_set1(0.0f), one = v_set1(1.0f), infinity = v_set1(INFINITY);
    vf ax = v_abs(x);
    vf r = d_join(vmath_pow_half(d_low(ax), d_low(y)), vmath_pow_half(d_high(ax), d_high(y)));
    vf half = y * 0.5f;
    vm whole = v_eq(v_trunc(y), y), odd = k_and(whole, v_ne(v_trunc(half), half));
    vm negative = v_lt(v_copysign(one, x), zero);
    r = v_select(k_and(negative, odd), v_neg(r), r);
    vm undefined = k_and(k_and(v_lt(x, zero), v_gt(x, v_neg(infinity))), k_not(whole));
    r = v_select(k_or(undefined, v_unordered(x, y)), v_set1(NAN), r);
    vm is_one = k_or(v_eq(x, one), k_and(v_eq(ax, one), v_eq(v_abs(y), infinity)));
    return v_select(k_or(is_one, v_eq(y, zero)), one, r);
}

/* The remainder of magnitudes whose quotient is below 2^29, exactly. */
DYCL_INLINE vd vmath_fmod_half(vd a, vd b) {
    vd r = d_fma(-d_trunc(a / b), b, a);
    return r + (vd)((vl)b & (vl)(r < 0.0)); /* the quotient was rounded up to an integer */
}
DYCL_INLINE vf vmath_fmod(vf a, vf b) {
    vf aa = v_abs(a), ab = v_abs(b);
    vf r = v_copysign(d_join(vmath_fmod_half(d_low(aa), d_low(ab)), vmath_fmod_half(d_high(aa), d_high(ab))), a);
    /* Where a is infinite or NaN, or b is 0 or NaN, the above is NaN already, as it must be. */
    vm large = k_and(v_ge(aa / ab, v_set1(0x1p28f)), k_and(v_gt(ab, v_set1(0.0f)), v_lt(aa, v_set1(INFINITY))));
    vm rare = k_or(large, v_eq(ab, v_set1(INFINITY)));
    if (__builtin_expect(k_any(rare), 0)) {
        float lane_a[VW], lane_b[VW], lane_r[VW];
        uint8_t lane_m[VW];
        v_store(lane_a, a), v_store(lane_b, b), v_store(lane_r, r), k_store(lane_m, rare);
        for (int lane = 0; lane < VW; lane++)
            if (lane_m[lane]) lane_r[lane] = fmodf(lane_a[lane], lane_b[lane]);
        r = v_load(lane_r);
    }
    return r;
}

#endif
#endif
