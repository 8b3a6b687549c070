/* The f64 functions of kern/vmath_double.h and kern/vmath_double_trig.h in their kernels, every ISA, against libm's
 * long double: the stated bounds down to subnormal results, huge arguments, multiples of pi / 2 and their neighbours,
 * what is next to 1, and what C says of zeros, infinities and NaN. An element's result does not depend on its
 * neighbours. DYCL_TEST_FULL=1 tries twenty times as many. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kern/kern.h"
#include "random.h"

typedef long double wide;
enum { RUN = 1000, KINDS = 8 };

static int failures;

static const struct {
    dycl_ew op;
    double bound; /* in ulp */
    wide (*of)(wide);
    wide (*of_two)(wide, wide);
} functions[] = {
    {DYCL_EW_exp, 1.1, expl, NULL},   {DYCL_EW_exp2, 2, exp2l, NULL},   {DYCL_EW_expm1, 2, expm1l, NULL},
    {DYCL_EW_log, 1.1, logl, NULL},   {DYCL_EW_log2, 1, log2l, NULL},   {DYCL_EW_log10, 2, log10l, NULL},
    {DYCL_EW_log1p, 2, log1pl, NULL}, {DYCL_EW_sin, 1, sinl, NULL},     {DYCL_EW_cos, 1, cosl, NULL},
    {DYCL_EW_tan, 2.5, tanl, NULL},   {DYCL_EW_tanh, 3, tanhl, NULL},   {DYCL_EW_erf, 2, erfl, NULL},
    {DYCL_EW_pow, 1.5, NULL, powl},   {DYCL_EW_atan2, 2, NULL, atan2l},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

static const double specials[] = {
    0.0,
    -0.0,
    INFINITY,
    -INFINITY,
    NAN,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.0,
    3.0,
    -3.0,
    1.5,
    2.5,
    -0.75,
    -7.0,
    10.0,
    1000,
    1e22,
    1e15,
    1e300,
    -1e300,
    1e-300,
    0x1p-1074,
    -0x1p-1074,
    0x1p-1022,
    0x1.fffffffffffffp1023,
    -0x1.fffffffffffffp1023,
    0x1p52,
    0x1p53,
    -0x1p53,
    0x1.0000000000001p53,
    0x1.fffffffffffffp52,
    0x1.fffffffffffffp-1,
    0x1.0000000000001p0,
    0x1p40,
    -0x1p40,
    0x1.0000000000001p40,
    710.0,
    -746.0,
};

static double uniform(void) { return (double)(rnd() >> 11) * 0x1p-53; }
static double from_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double value(int kind) {
    switch (kind) {
    case 0: return from_bits(rnd());
    case 1: return specials[rnd() % (sizeof specials / sizeof *specials)];
    case 2: return (uniform() - 0.5) * 8;
    case 3: return (uniform() - 0.5) * 2000;
    case 4: return ldexp(uniform() - 0.5, (int)(rnd() % 120) - 60);
    case 5: { /* multiples of pi / 2 and their neighbours */
        double x = (double)(rnd() >> (14 + rnd() % 50)) * 1.5707963267948966;
        uint64_t bits;
        memcpy(&bits, &x, sizeof bits);
        return from_bits((bits + rnd() % 3 - 1) ^ rnd() << 63);
    }
    case 6: return 1 + (uniform() - 0.5) * ldexp(1, -(int)(rnd() % 50));
    default: return ldexp(1, (int)(rnd() % 2100) - 1074);
    }
}

/* An infinity counts as the next power of two. */
static double ulps(wide got, wide want) {
    const wide top = 0x1p1024L;
    int exponent;
    if (isnan(got) || isnan(want)) return isnan(got) && isnan(want) ? 0 : INFINITY;
    if (want == 0) return got == 0 && signbit(got) == signbit(want) ? 0 : INFINITY;
    got = got > top ? top : got < -top ? -top : got;
    want = want > top ? top : want < -top ? -top : want;
    frexpl(want, &exponent);
    return (double)(fabsl(got - want) / ldexpl(1, (exponent < -1021 ? -1021 : exponent) - 53));
}

static double check(dycl_isa isa, int f, unsigned mask, int kind, int other) {
    static double x[RUN], y[RUN], got[RUN];
    const dycl_ew op = functions[f].op;
    double worst = 0;
    for (size_t i = 0; i < RUN; i++) {
        x[i] = value(kind), y[i] = value(other);
        if (op == DYCL_EW_pow && other == 4) y[i] = (uniform() * 1500 - 750) / log(fabs(x[i])); /* seldom 0 or inf */
    }
    dycl_ew_fn fn = dycl_kern_ew(isa, op, DYCL_F64, mask);
    fn(got, x, y, NULL, RUN);
    for (size_t i = 0; i < RUN; i++) {
        double a = x[mask & 1 ? 0 : i], b = y[mask & 2 ? 0 : i], alone;
        wide want = functions[f].of ? functions[f].of(a) : functions[f].of_two(a, b);
        double error = ulps(got[i], want);
        if (!(error <= worst)) worst = error;
        if (!(error <= functions[f].bound) && failures++ < 20)
            fprintf(stderr, "FAIL %s %s(%a, %a) = %a, not %La: %g ulp\n", dycl_isa_name(isa), dycl_ew_name(op), a, b,
                    got[i], want, error);
        dycl_kern_ew(isa, op, DYCL_F64, 0)(&alone, &a, &b, NULL, 1);
        if (memcmp(&alone, got + i, sizeof alone) && !(isnan(alone) && isnan(got[i])) && failures++ < 20)
            fprintf(stderr, "FAIL %s %s(%a, %a) = %a, alone %a\n", dycl_isa_name(isa), dycl_ew_name(op), a, b, got[i],
                    alone);
    }
    fn(x, x, y, NULL, RUN);
    for (size_t i = 0; i < RUN && !(mask & 1); i++)
        if (memcmp(x + i, got + i, sizeof *x) && !isnan(got[i]) && failures++ < 20)
            fprintf(stderr, "FAIL %s %s in place: %a, not %a\n", dycl_isa_name(isa), dycl_ew_name(op), x[i], got[i]);
    return worst;
}

/* What programs take the floor of. */
static void check_whole_logarithms(dycl_isa isa) {
    double x, got;
    for (int n = -1074; n < 1024; n++) {
        x = ldexp(1, n);
        dycl_kern_ew(isa, DYCL_EW_log2, DYCL_F64, 0)(&got, &x, NULL, NULL, 1);
        if (got != n && failures++ < 20) fprintf(stderr, "FAIL %s log2(2^%d) = %a\n", dycl_isa_name(isa), n, got);
    }
    x = 1;
    for (int n = 0; n <= 22; n++, x *= 10) {
        dycl_kern_ew(isa, DYCL_EW_log10, DYCL_F64, 0)(&got, &x, NULL, NULL, 1);
        if (got != n && failures++ < 20) fprintf(stderr, "FAIL %s log10(1e%d) = %a\n", dycl_isa_name(isa), n, got);
    }
}

int main(void) {
    const int times = getenv("DYCL_TEST_FULL") ? 200 : 10;
    static double worst[DYCL_ISA_COUNT][FUNCTIONS];
    for (dycl_isa isa = 0; isa < DYCL_ISA_COUNT; isa++) {
        if (!dycl_cpu_isa_force(isa)) {
            printf("%s: not on this processor\n", dycl_isa_name(isa));
            continue;
        }
        for (int f = 0; f < FUNCTIONS; f++)
            for (int t = 0; t < times * KINDS * (functions[f].of ? 1 : KINDS / 2); t++) {
                int two = functions[f].of == NULL;
                unsigned mask = two ? (unsigned)(rnd() % 3) : 0;
                double error = check(isa, f, mask, t % KINDS, two ? (int)(rnd() % KINDS) : 0);
                if (!(error <= worst[isa][f])) worst[isa][f] = error;
            }
        check_whole_logarithms(isa);
    }
    printf("max ulp (bound)\n");
    for (int f = 0; f < FUNCTIONS; f++) {
        printf("%12s (%.1f)", dycl_ew_name(functions[f].op), functions[f].bound);
        for (dycl_isa isa = 0; isa < DYCL_ISA_COUNT; isa++) printf(" %6.3f", worst[isa][f]);
        printf("\n");
    }
    printf(failures ? "FAILED: %d\n" : "ok\n", failures);
    return failures != 0;
}
