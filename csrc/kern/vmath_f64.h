/* The functions of kern/vmath.h whose arguments need f64 on the way: sin, cos, tan, atan2, pow, fmod. Only vmath.h
 * includes it, for vectors.
 *
 * Ownership: none. Threads: any. */
#ifndef DYCL_KERN_VMATH_F64_H
#define DYCL_KERN_VMATH_F64_H

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
#define VMATH_HUGE_ANGLE(x) k_not(v_lt(v_abs(x), v_set1(0x1p30f)))

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
