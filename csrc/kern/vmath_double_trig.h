/* sin, cos, tan and atan2 of one f64, as the functions of kern/vmath_double.h: without a branch, at most 2 ulp (sin and
 * cos: 1) from the correctly rounded result. The first three are good for |x| <= F64_ANGLE_BOUND; what is larger is
 * libm's, which a loop asks outside of its vectors (EW_F64_LOOP_ANGLE).
 *
 * Ownership: none, no state. Threads: any. */
#ifndef DYCL_KERN_VMATH_DOUBLE_TRIG_H
#define DYCL_KERN_VMATH_DOUBLE_TRIG_H

#include "kern/vmath_double.h"

#ifndef __FMA__

#define F64_ANGLE_BOUND INFINITY

F64_INLINE double f64_sin_of(double x) { return sin(x); }
F64_INLINE double f64_cos_of(double x) { return cos(x); }
F64_INLINE double f64_tan_of(double x) { return tan(x); }
F64_INLINE double f64_atan2_of(double y, double x) { return atan2(y, x); }

#else

#define F64_ANGLE_BOUND 0x1p40

typedef struct {
    double sin, cos; /* of x - n pi / 2 */
    uint64_t n;      /* its last two bits count */
} f64_turned;

F64_INLINE f64_turned f64_turn(double x) {
    double turns = fma(x, 0x1.45f306dc9c883p-1, F64_MAGIC), n = turns - F64_MAGIC;
    /* Three parts of pi / 2, 161 bits: x may be as near to a multiple as 2^-60. The first difference is exact, for both
     * sides are multiples of 2^-53 and little is left; of the second one what it loses is kept. */
    double a = fma(n, -0x1.921fb54442d18p+0, x);
    double b = n * 0x1.1a62633145c07p-54, b_low = fma(n, 0x1.1a62633145c07p-54, -b);
    double high = a - b, back = high - a;
    double lost = (a - (high - back)) - (b + back);
    double low = fma(n, 0x1.f1976b7ed8fbcp-110, lost - b_low);
    double r = high + low, s = r * r, s_low = fma(r, r, -s), half = 0.5 * s;
    low = (high - r) + low;
    /* (sin(r) / r - 1) / r^2, 2^-57.9 for the sine, and (cos(r) - 1 + r^2 / 2) / r^4, 2^-63.9; |r| <= 0.786 */
    double p = fma(s, 1.5895912507632702e-10, -2.5050742439575667e-08);
    p = fma(p, s, 2.7557313588449054e-06);
    p = fma(p, s, -0.00019841269829497878);
    p = fma(p, s, 0.008333333333322009);
    p = fma(p, s, -0.1666666666666663);
    double q = fma(s, -1.1358315725918118e-11, 2.087569667082458e-09);
    q = fma(q, s, -2.755731414932221e-07);
    q = fma(q, s, 2.4801587288750507e-05);
    q = fma(q, s, -0.00138888888888729);
    q = fma(q, s, 0.041666666666666595);
    double one = 1.0 - half;
    f64_turned y = {
        .sin = r + fma(r * s, p, fma(-half, low, low)),
        .cos = one + (((1.0 - one) - half) + fma(s * s, q, fma(-0.5, s_low, -r * low))),
        .n = f64_bits(turns),
    };
    return y;
}

/* The sine of what was turned by n quarters. */
F64_INLINE double f64_sin_quarters(f64_turned y, uint64_t n) {
    return f64_of_bits(f64_bits(n & 1 ? y.cos : y.sin) ^ (n & 2) << 62);
}

F64_INLINE double f64_sin_of(double x) {
    f64_turned turned = f64_turn(x);
    double y = f64_sin_quarters(turned, turned.n);
    return x == 0 ? x : y; /* keeps -0 */
}

F64_INLINE double f64_cos_of(double x) {
    f64_turned turned = f64_turn(x);
    return f64_sin_quarters(turned, turned.n + 1);
}

F64_INLINE double f64_tan_of(double x) {
    f64_turned turned = f64_turn(x);
    uint64_t swap = turned.n & 1;
    double y = (swap ? turned.cos : turned.sin) / (swap ? turned.sin : turned.cos);
    y = f64_of_bits(f64_bits(y) ^ swap << 63);
    return x == 0 ? x : y;
}

/* The angle of the smaller side over the larger one, and by how many quarters and in which direction the octant turns
 * it. */
F64_INLINE double f64_atan2_of(double y, double x) {
    double ay = fabs(y), ax = fabs(x);
    double small = ay < ax ? ay : ax, large = ay < ax ? ax : ay;
    double ratio = small / large;
    ratio = small == large ? (large == 0 ? 0.0 : 1.0) : ratio; /* infinite ones, too */
    double s = ratio * ratio;
    /* (atan(r) / r - 1) / r^2, 2^-62.8 */
    double q = fma(s, 5.675311672393254e-06, -7.094000955974736e-05);
    q = fma(q, s, 0.0004223002332249342);
    q = fma(q, s, -0.001599852102999691);
    q = fma(q, s, 0.004357341404419699);
    q = fma(q, s, -0.00916425804649304);
    q = fma(q, s, 0.015672222543433534);
    q = fma(q, s, -0.022767860424120642);
    q = fma(q, s, 0.029275202784855896);
    q = fma(q, s, -0.03465062704906548);
    q = fma(q, s, 0.03909672543144425);
    q = fma(q, s, -0.04319891823477279);
    q = fma(q, s, 0.04754931070584321);
    q = fma(q, s, -0.05261772634688352);
    q = fma(q, s, 0.05882137913510703);
    q = fma(q, s, -0.0666664118612588);
    q = fma(q, s, 0.07692305457765435);
    q = fma(q, s, -0.0909090895194976);
    q = fma(q, s, 0.11111111105349072);
    q = fma(q, s, -0.14285714285569445);
    q = fma(q, s, 0.1999999999999813);
    q = fma(q, s, -0.33333333333333326);
    double a = fma(ratio * s, q, ratio);
    int steep = ay > ax;
    uint64_t behind = f64_bits(x) >> 63;
    double quarters = steep ? 1.0 : behind ? 2.0 : 0.0;
    uint64_t back = behind ^ (steep ? 1 : 0);
    a = f64_of_bits(f64_bits(a) ^ back << 63);
    a = quarters * 0x1.921fb54442d18p+0 + fma(quarters, 0x1.1a62633145c07p-54, a);
    a = ((x != x) | (y != y)) ? NAN : a;
    return copysign(a, y);
}

#endif
#endif
