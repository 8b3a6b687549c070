/* Elementary functions of one f64 without a branch, so that the compiler makes vectors of the loops around them: at
 * most 2 ulp from the correctly rounded result (tanh: 3; log2, log10: 1), subnormal results, infinities and NaN
 * included. libm's, which are called for each element, take three to six times as long.
 *
 * Without FMA (the baseline's build) they are libm's. Polynomials are minimax fits (Remez)
 * computed for this file; the error given beside each is that of the exact polynomial, relative to the function.
 *
 * Ownership: none, no state. Threads: any. */
#ifndef DYCL_KERN_VMATH_DOUBLE_H
#define DYCL_KERN_VMATH_DOUBLE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define F64_INLINE static inline __attribute__((always_inline))

#ifndef __FMA__

F64_INLINE double f64_exp_of(double x) { return exp(x); }
F64_INLINE double f64_exp2_of(double x) { return exp2(x); }
F64_INLINE double f64_expm1_of(double x) { return expm1(x); }
F64_INLINE double f64_log_of(double x) { return log(x); }
F64_INLINE double f64_log2_of(double x) { return log2(x); }
F64_INLINE double f64_log10_of(double x) { return log10(x); }
F64_INLINE double f64_log1p_of(double x) { return log1p(x); }
F64_INLINE double f64_pow_of(double x, double y) { return y == 2 ? x * x : y == 3 ? x * x * x : pow(x, y); }
F64_INLINE double f64_tanh_of(double x) { return tanh(x); }
F64_INLINE double f64_erf_of(double x) { return erf(x); }

#else

#define F64_MAGIC   0x1.8p52 /* the sum with it has no room for a fraction */
#define F64_LN2     0x1.62e42fefa39efp-1
#define F64_LN2_LOW 0x1.abc9e3b39803fp-56

F64_INLINE double f64_of_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
F64_INLINE uint64_t f64_bits(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* 2^n of a whole n within [-1022, 1023] */
F64_INLINE double f64_pow2(double n) { return f64_of_bits(f64_bits(n + (0x1p52 + 1023.0)) << 52); }

/* p * 2^n in two steps, so that a subnormal is rounded once and what is infinite becomes so at the end. |n| <= 2000 */
F64_INLINE double f64_scale(double p, double n) {
    double half = (n * 0.5 + F64_MAGIC) - F64_MAGIC;
    return p * f64_pow2(half) * f64_pow2(n - half);
}

/* (e^r - 1 - r) / r^2, |r| <= 0.3466, 2^-61.7 for e^r - 1 */
F64_INLINE double f64_exp_tail(double r) {
    double q = fma(r, 2.092447545952197e-09, 2.510904217585249e-08);
    q = fma(q, r, 2.7557242639875297e-07);
    q = fma(q, r, 2.75572441891385e-06);
    q = fma(q, r, 2.480158736072314e-05);
    q = fma(q, r, 0.0001984126988615199);
    q = fma(q, r, 0.0013888888888866733);
    q = fma(q, r, 0.008333333333321619);
    q = fma(q, r, 0.0416666666666667);
    q = fma(q, r, 0.16666666666666677);
    return fma(q, r, 0.5);
}

/* Beyond these bounds the result is 0 or infinite. NaN stays. */
F64_INLINE double f64_exp_clamp(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

F64_INLINE double f64_exp_of(double x) {
    x = f64_exp_clamp(x, -750.0, 710.0);
    double n = fma(x, 0x1.71547652b82fep+0, F64_MAGIC) - F64_MAGIC;
    double r = fma(n, -F64_LN2_LOW, fma(n, -F64_LN2, x));
    return f64_scale(fma(r * r, f64_exp_tail(r), r) + 1.0, n);
}

F64_INLINE double f64_exp2_of(double x) {
    x = f64_exp_clamp(x, -1080.0, 1025.0);
    double n = (x + F64_MAGIC) - F64_MAGIC, f = x - n, r = f * F64_LN2;
    double low = fma(f, F64_LN2, -r) + f * F64_LN2_LOW;
    return f64_scale((fma(r * r, f64_exp_tail(r), low) + r) + 1.0, n);
}

F64_INLINE double f64_expm1_of(double x) {
    double c = f64_exp_clamp(x, -40.0, 710.0);
    double n = fma(c, 0x1.71547652b82fep+0, F64_MAGIC) - F64_MAGIC;
    double high = fma(n, -F64_LN2, c);
    double r = fma(n, -F64_LN2_LOW, high), low = fma(n, -F64_LN2_LOW, high - r);
    double tail = fma(r * r, f64_exp_tail(r), low); /* e^(r + low) - 1 = r + tail */
    /* 2^n (1 + r + tail) - 1, at half its size, for 2^1024 is no double */
    double s = f64_pow2(n - 1.0), base = s - 0.5;
    double sum = fma(s, r, base);
    /* What that sum lost: s * r is exact (a power of two), and one of the two operands dominates. */
    double sr = s * r, back = sum - base;
    double lost = (base - (sum - back)) + (sr - back);
    double y = 2.0 * (sum + fma(s, tail, lost));
    return fabs(x) < 0x1p-53 ? x : y; /* keeps -0 and subnormals */
}

/* (2 artanh(s) / s - 2) / s^2 of z = s^2, |s| <= 0.1716, 2^-59.5 for the logarithm */
F64_INLINE double f64_log_tail(double z) {
    double p = fma(z, 0.14797508217555186, 0.15313903309495017);
    p = fma(p, z, 0.18183569732552246);
    p = fma(p, z, 0.22222198476224614);
    p = fma(p, z, 0.285714287432593);
    p = fma(p, z, 0.3999999999941111);
    return fma(p, z, 0.6666666666666735);
}

/* k ln 2 + log(1 + f) + low of x = 2^k (1 + f), 1 + f within [sqrt(1/2), sqrt(2)). With s = f / (2 + f) it is 2
 * artanh(s) = f - f^2 / 2 + s (f^2 / 2 + s^2 P(s^2)). */
F64_INLINE double f64_log_sum(double f, double k, double low) {
    double s = f / (2.0 + f), z = s * s, half = 0.5 * f * f, p = f64_log_tail(z);
    return fma(k, F64_LN2, f - (half - fma(s, fma(z, p, half), fma(k, F64_LN2_LOW, low))));
}

/* The parts of a positive finite x: what stands before is a power of two. */
#define F64_LOG_PARTS(x, f, k)                                                                                         \
    const int tiny = (x) < 0x1p-1022;                                                                                  \
    const uint64_t bits = f64_bits(tiny ? (x)*0x1p54 : (x)) + (0x3ff0000000000000 - 0x3fe6a09e667f3bcd);               \
    const double k = f64_of_bits((bits >> 52) | 0x4330000000000000) - (0x1p52 + 1023.0) - (tiny ? 54.0 : 0.0);         \
    const double f = f64_of_bits((bits & 0x000fffffffffffff) + 0x3fe6a09e667f3bcd) - 1.0

/* y where x is positive and finite; else -inf, NaN or x itself (infinity and NaN). */
F64_INLINE double f64_log_special(double x, double y) {
    y = x < INFINITY ? y : x;
    y = x < 0 ? NAN : y;
    return x == 0 ? -INFINITY : y;
}

F64_INLINE double f64_log_of(double x) {
    F64_LOG_PARTS(x, f, k);
    return f64_log_special(x, f64_log_sum(f, k, 0.0));
}

/* k (unit + unit_low) + log(1 + f) (scale + scale_low) in two parts up to the last sum: powers of the base must come
 * out whole, for programs take their floor. k * unit is exact. */
F64_INLINE double f64_log_scaled(double f, double k, double unit, double unit_low, double scale, double scale_low) {
    double s = f / (2.0 + f), z = s * s, half = 0.5 * f * f, half_low = fma(0.5 * f, f, -half);
    double a = f - half, a_low = ((f - a) - half) - half_low + s * fma(z, f64_log_tail(z), half);
    double log = a + a_low, log_low = (a - log) + a_low;
    double b = log * scale, b_low = fma(log, scale, -b) + fma(log, scale_low, log_low * scale);
    double whole = k * unit, sum = whole + b;
    return sum + (((whole - sum) + b) + fma(k, unit_low, b_low));
}

F64_INLINE double f64_log2_of(double x) {
    F64_LOG_PARTS(x, f, k);
    return f64_log_special(x, f64_log_scaled(f, k, 1.0, 0.0, 0x1.71547652b82fep+0, 0x1.777d0ffda0d24p-56));
}

F64_INLINE double f64_log10_of(double x) {
    F64_LOG_PARTS(x, f, k);
    double y =
        f64_log_scaled(f, k, 0x1.34413509f8p-2, -0x1.80433b83b532ap-44, 0x1.bcb7b1526e50ep-2, 0x1.95355baaafad3p-57);
    return f64_log_special(x, y);
}

F64_INLINE double f64_log1p_of(double x) {
    double u = x + 1.0;
    double lost = x > 1.0 ? 1.0 - (u - x) : x - (u - 1.0); /* 1 + x = u + lost */
    F64_LOG_PARTS(u, f, k);
    double y = f64_log_special(u, f64_log_sum(f, k, lost / u));
    return fabs(x) < 0x1p-53 ? x : y;
}

typedef struct {
    double high, low;
} f64_pair;

/* log(x) of a positive finite x, to 2^-65 of it: with s = f / (2 + f) it is k ln 2 + 2 s + s^3 (2/3 + s^2 P(s^2)). */
F64_INLINE f64_pair f64_log_pair(double x) {
    F64_LOG_PARTS(x, f, k);
    double d = 2.0 + f, d_low = f - (d - 2.0), inverse = 1.0 / d;
    double s = f * inverse, s_low = fma(-s, d_low, fma(-s, d, f)) * inverse;
    double z = s * s, z_low = fma(2.0 * s, s_low, fma(s, s, -z));
    double c = z * s, c_low = fma(z, s, -c) + fma(z, s_low, z_low * s);
    /* ((2 artanh(s) / s - 2) / s^2 - 2 / 3) / s^2, 2^-66 for the logarithm */
    double p = fma(z, 0.131962227178829, 0.13256828468298107);
    p = fma(p, z, 0.15386756904197443);
    p = fma(p, z, 0.1818178437557698);
    p = fma(p, z, 0.22222222519836893);
    p = fma(p, z, 0.2857142857009999);
    p = fma(p, z, 0.40000000000002256) * z;
    double q = 0x1.5555555555555p-1 + p, q_low = (0x1.5555555555555p-1 - q) + p + 0x1.5555555555555p-55;
    double t = c * q, t_low = fma(c, q, -t) + fma(c, q_low, c_low * q);
    /* k times 41 bits of ln 2 is exact; what stands first in each sum is 0 or the larger. */
    double whole = k * 0x1.62e42fefa4p-1, a = whole + 2.0 * s, b = a + t;
    double low = ((whole - a) + 2.0 * s) + ((a - b) + t) + fma(2.0, s_low, t_low);
    low = fma(k, -0x1.8432a1b0e2634p-43, low);
    f64_pair y = {.high = b + low, .low = (b - (b + low)) + low};
    return y;
}

/* yes or no, also where the condition is the same for all elements of a loop: gcc makes no vectors of ?: there. */
F64_INLINE double f64_select(int condition, double yes, double no) {
    uint64_t mask = -(uint64_t)condition;
    return f64_of_bits((f64_bits(yes) & mask) | (f64_bits(no) & ~mask));
}

/* e^(y log |x|), then what C says of signs, zeros, infinities and NaN. Squares and cubes are products, as in torch. */
F64_INLINE double f64_pow_of(double x, double y) {
    double ax = fabs(x);
    f64_pair log = f64_log_pair(ax);
    log.high = ax < INFINITY ? log.high : ax; /* NaN, too */
    log.high = ax == 0 ? -INFINITY : log.high;
    double p = y * log.high, p_low = fma(y, log.high, -p) + y * log.low;
    p_low = fabs(p) < 750.0 ? p_low : 0.0;
    p = f64_exp_clamp(p, -750.0, 710.0);
    double n = fma(p, 0x1.71547652b82fep+0, F64_MAGIC) - F64_MAGIC;
    double high = fma(n, -F64_LN2, p), low = fma(n, -F64_LN2_LOW, p_low); /* the first of them is exact */
    double r = high + low, r_low = (high - r) + low;
    double one = 1.0 + r, one_low = (1.0 - one) + r;
    double e = f64_scale(one + (one_low + fma(r * r, f64_exp_tail(r), r_low)), n);
    double half = 0.5 * y, nothing = f64_select(trunc(y) != y, NAN, -0.0);
    int odd = (trunc(y) == y) & (trunc(half) != half);
    e = f64_select(odd, copysign(e, x), e);
    e = f64_select((x < 0) & (x > -INFINITY), e + nothing, e);
    double unit = f64_select(fabs(y) == INFINITY, ax, x);
    unit = f64_select(y == 0, 1.0, unit);
    e = unit == 1 ? 1.0 : e;
    return f64_select(y == 2, x * x, f64_select(y == 3, x * x * x, e));
}

/* h / (h + 1) with h = (e^2t - 1) / 2, as vmath_tanh. */
F64_INLINE double f64_tanh_of(double x) {
    double t = fabs(x);
    t = t > 20.0 ? 20.0 : t; /* 1 beyond; NaN stays */
    double n = fma(t, 2 * 0x1.71547652b82fep+0, F64_MAGIC) - F64_MAGIC;
    double r = fma(n, -F64_LN2_LOW, fma(n, -F64_LN2, 2.0 * t)); /* e^2t = 2^n e^r */
    double s = f64_pow2(n - 1.0);
    double h = fma(s, fma(r * r, f64_exp_tail(r), r), s - 0.5);
    return copysign(h / (h + 1.0), x);
}

/* erf(x) / x near 0, 2^-59.3, and 1 - e^(log(erfc(t)) + t^2 - t^2) beyond, 2^-57.1 of 1 */
F64_INLINE double f64_erf_of(double x) {
    double t = fabs(x), z = x * x;
    double q = fma(z, -8.253229021115834e-10, 1.3944712811029725e-08);
    q = fma(q, z, -1.6256105863561397e-07);
    q = fma(q, z, 1.6453124589945361e-06);
    q = fma(q, z, -1.492516003204925e-05);
    q = fma(q, z, 0.00012055315052168521);
    q = fma(q, z, -0.0008548326590321071);
    q = fma(q, z, 0.005223977618789932);
    q = fma(q, z, -0.026866170644526833);
    q = fma(q, z, 0.11283791670952281);
    q = fma(q, z, -0.376126389031837);
    q = fma(q, z, 0.1283791670955126);
    double c = t > 6.0 ? 6.0 : t; /* 1 beyond; NaN stays */
    double u = c - 2.0;
    double p = fma(u, 6.460603623208664e-15, -1.5768029730649567e-13);
    p = fma(p, u, 1.6607928649150662e-12);
    p = fma(p, u, -9.770128975531239e-12);
    p = fma(p, u, 3.3399655487017885e-11);
    p = fma(p, u, -4.3735039202470725e-11);
    p = fma(p, u, -2.614138227396591e-10);
    p = fma(p, u, 2.5440016570734555e-09);
    p = fma(p, u, -1.3975716651008216e-08);
    p = fma(p, u, 5.778037668455801e-08);
    p = fma(p, u, -1.731785345565238e-07);
    p = fma(p, u, 2.0366803926267122e-07);
    p = fma(p, u, 1.952182212359539e-06);
    p = fma(p, u, -2.070644999844267e-05);
    p = fma(p, u, 0.00013530933472510534);
    p = fma(p, u, -0.0007323993809268495);
    p = fma(p, u, 0.003570756347120428);
    p = fma(p, u, -0.01646511813726028);
    p = fma(p, u, 0.07624915817608244);
    p = fma(p, u, -0.41816080599441496);
    p = fma(p, u, -1.3649412646166363);
    double large = 1.0 - f64_exp_of(fma(-c, c, p));
    return t < 0.93 ? fma(q, x, x) : copysign(large, x);
}

#endif
#endif
