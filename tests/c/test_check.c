/* The reference interpreter (csrc/check): its numbers beside the kernels, where formulas overflow, vanish or meet
 * special values on the way; groups of rows whose ends do not ascend. */
#include <math.h>
#include <stdio.h>

#include "check/reference.h"

static int failures;

static const double of_f32[] = {0.0,    -0.0,    1.0,     -1.0,   2.5,     -3.0,     6.0,       20.5,  -90.0,  1e-45,
                                -1e-40, 1.2e-38, 1e-30,   1e5,    1.8e19,  -1.9e19,  1e37,      -3e37, 5.6e37, 5.7e37,
                                1.2e38, 1.8e38,  -1.8e38, 3.4e38, -3.4e38, INFINITY, -INFINITY, NAN,   -0.1,   -8.9};
static const double of_f64[] = {0.0,      -0.0,     1.0,       -1.0,    2.5,   -3.0,  6.0,     20.5,
                                -750.0,   5e-324,   -1e-310,   3e-308,  1e-30, 1e5,   1.3e154, -1.4e154,
                                1e307,    -2e307,   2.9e307,   3.1e307, 6e307, 9e307, -9e307,  1.7e308,
                                -1.7e308, INFINITY, -INFINITY, NAN,     -0.1,  -71.0};
enum { COUNT = sizeof of_f32 / sizeof *of_f32 };
_Static_assert(sizeof of_f64 == sizeof of_f32, "as many of each");

static void store(dycl_dtype dtype, void *to, double x) {
    if (dtype == DYCL_F32)
        *(float *)to = (float)x;
    else
        *(double *)to = x;
}

static void compare(dycl_ew op, dycl_dtype dtype, dycl_isa isa, const int *which) {
    const double *values = dtype == DYCL_F32 ? of_f32 : of_f64;
    int arity = dycl_ew_arity(op);
    double operands[3], result = 0;
    dycl_number x[3];
    for (int i = 0; i < arity; i++) {
        store(dtype, &operands[i], values[which[i]]);
        x[i] = dycl_number_load(dtype, &operands[i], 0);
    }
    dycl_kern_ew(isa, op, dtype, 0)(&result, &operands[0], &operands[1], &operands[2], 1);
    dycl_dtype out = dycl_ew_result_is_bool(op) ? DYCL_BOOL : dtype;
    dycl_number want = dycl_number_apply(op, dtype, arity, x);
    if (dycl_number_accepts(out, want, &result, 0) || failures++ >= 20) return;
    dycl_number got = dycl_number_load(out, &result, 0);
    printf("FAIL %s of %s %.9g %.9g %.9g: the kernel says %.9g (%d), the reference %.9g (%d) within %.3g\n",
           dycl_ew_name(op), dycl_dtype_name(dtype), x[0].f, arity > 1 ? x[1].f : 0, arity > 2 ? x[2].f : 0, got.f,
           (int)got.i, want.f, (int)want.i, want.error);
}

static void compare_all(dycl_ew op, dycl_dtype dtype, dycl_isa isa) {
    int arity = dycl_ew_arity(op), which[3];
    for (which[0] = 0; which[0] < COUNT; which[0]++)
        for (which[1] = 0; which[1] < (arity > 1 ? COUNT : 1); which[1]++)
            for (which[2] = 0; which[2] < (arity > 2 ? COUNT : 1); which[2]++) compare(op, dtype, isa, which);
}

/* Rows 1 to 6 and weights 10, 100 and 1000, in the first of four columns. */
static void grouped(const int32_t ends[3], const double want[6]) {
    static const float x[6][4] = {{1}, {2}, {3}, {4}, {5}, {6}}, w[3][4][4] = {{{10}}, {{100}}, {{1000}}};
    const void *feeds[] = {x, w, ends};
    const uint32_t out = 3;
    dycl_graph g;
    dycl_reference r;
    const char *text = "%0 = feed f32[6,4]{4,1}\n%1 = feed f32[3,4,4]{16,4,1}\n%2 = feed i32[3]{1}\n"
                       "%3 = grouped_matmul %0 %1 %2\n";
    dycl_graph_init(&g);
    if (dycl_graph_parse(text, &g) != DYCL_OK ||
        dycl_reference_run(&r, &g, &out, 1, &(dycl_reference_inputs){feeds, NULL}) != DYCL_OK) {
        printf("FAIL grouped_matmul: %s\n", dycl_error_message());
        failures++;
        return;
    }
    for (int i = 0; i < 6; i++) {
        float element = (float)want[i], other = element + 10;
        dycl_number reference = r.elements[out][i * 4];
        if (dycl_number_accepts(DYCL_F32, reference, &element, 0) &&
            !dycl_number_accepts(DYCL_F32, reference, &other, 0))
            continue;
        printf("FAIL grouped_matmul, ends %d %d %d: row %d is %g, and not %g\n", ends[0], ends[1], ends[2], i,
               reference.f, want[i]);
        failures++;
    }
    dycl_reference_free(&r);
    dycl_graph_free(&g);
}

/* A byte that is no bool may be copied, and not made. */
static void bools(void) {
    const uint8_t made[] = {0, 1, 80, 30};
    dycl_number odd = dycl_number_load(DYCL_BOOL, &made[2], 0),
                copies[] = {dycl_number_cast(DYCL_BOOL, DYCL_BOOL, odd),
                            dycl_number_apply(DYCL_EW_copy, DYCL_BOOL, 1, &odd)};
    dycl_number twice[] = {odd, odd}, both = dycl_number_apply(DYCL_EW_logical_and, DYCL_BOOL, 2, twice);
    for (int i = 0; i < 4; i++) {
        int copied = i == 1 || i == 2, right = dycl_number_accepts(DYCL_BOOL, both, made, i) == (i == 1);
        for (int k = 0; k < 2; k++) right &= dycl_number_accepts(DYCL_BOOL, copies[k], made, i) == copied;
        if (right) continue;
        printf("FAIL a bool that lies there as %d\n", made[i]);
        failures++;
    }
}

/* Two numbers beside each other round to neighbours, which are as far apart below the least normal number as there. */
static void neighbours(void) {
    for (double x = 0x1p-26; x < 4; x *= 1.37) {
        dycl_number half = dycl_number_cast(DYCL_F32, DYCL_F16, (dycl_number){x, 0, 1e-12});
        double last = x < 0x1p-14 ? 0x1p-24 : ldexp(1, ilogb(x) - 10);
        if (half.error >= last) continue;
        printf("%g as half: within %g, its last digit is %g\n", x, half.error, last);
        failures++;
    }
}

static double uniform(void) {
    static uint64_t state = 88172645463325252u;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (double)(state >> 11) * 0x1p-53;
}

/* What an operator makes of numbers within some bounds lies within the result's. */
static void within(dycl_ew op, dycl_dtype dtype) {
    static const double sizes[] = {0.3, 1, 4, 70}, doubts[] = {1e-3, 0.05, 0.4, 1.1, 3};
    dycl_dtype out = dycl_ew_result_is_bool(op) ? DYCL_BOOL : dtype;
    int arity = dycl_ew_arity(op);
    for (int trial = 0; trial < 4000; trial++) {
        dycl_number x[3] = {{0}}, point[3] = {{0}};
        double size = sizes[trial % 4], doubt = doubts[trial / 4 % 5];
        for (int i = 0; i < arity; i++) {
            x[i] = (dycl_number){ldexp(nearbyint(ldexp((uniform() * 2 - 1) * size, 3)), -3), 0, uniform() * doubt};
            if (!(trial / 20 % 3)) x[i].error = 0;
            point[i] = (dycl_number){x[i].f, 0, 0};
            if (x[i].error > 0) point[i].f += (uniform() * 2 - 1) * x[i].error; /* -0 + 0 is another number */
        }
        dycl_number bounds = dycl_number_apply(op, dtype, arity, x), there = dycl_number_apply(op, dtype, arity, point);
        if (!dycl_number_known(bounds) || !dycl_number_known(there)) continue;
        int holds = out == DYCL_BOOL ? bounds.i == there.i
                                     : (isnan(bounds.f) && isnan(there.f)) || bounds.f == there.f ||
                                           fabs(bounds.f - there.f) <= bounds.error + there.error;
        if (holds || failures++ >= 20) continue;
        printf("FAIL %s of %s: at %g+-%g %g+-%g %g+-%g it is %g+-%g, at %g %g %g it is %g\n", dycl_ew_name(op),
               dycl_dtype_name(dtype), x[0].f, x[0].error, x[1].f, x[1].error, x[2].f, x[2].error, bounds.f,
               bounds.error, point[0].f, point[1].f, point[2].f, there.f);
    }
}

int main(void) {
    static const dycl_dtype floats[] = {DYCL_F32, DYCL_F64, DYCL_BF16, DYCL_F16};
    bools();
    for (int op = 0; op < DYCL_EW_COUNT; op++)
        for (int i = 0; i < 4; i++)
            if (op != DYCL_EW_where && dycl_ew_dtypes[op] >> floats[i] & 1) within((dycl_ew)op, floats[i]);
    neighbours();
    grouped((const int32_t[]){1, 3, 6}, (const double[]){10, 200, 300, 4000, 5000, 6000});
    grouped((const int32_t[]){4, 2, 5}, (const double[]){10, 20, 3000, 4000, 5000, 0}); /* later groups' rows stay */
    grouped((const int32_t[]){-1, 1, 6}, (const double[]){10, 2000, 3000, 4000, 5000, 6000});
    grouped((const int32_t[]){2, 9, -9}, (const double[]){10, 20, 300, 400, 500, 600});
    for (dycl_isa isa = DYCL_ISA_SCALAR; isa < DYCL_ISA_COUNT; isa++) {
        if (!dycl_cpu_isa_force(isa)) continue;
        for (int op = 0; op < DYCL_EW_COUNT; op++)
            for (dycl_dtype dtype = 0; dtype < DYCL_DTYPE_COUNT; dtype++)
                if (op != DYCL_EW_where && (dtype == DYCL_F32 || dtype == DYCL_F64) &&
                    dycl_kern_ew(isa, (dycl_ew)op, dtype, 0))
                    compare_all((dycl_ew)op, dtype, isa);
    }
    printf("test_check: %s\n", failures ? "FAILED" : "ok");
    return failures != 0;
}
