/* What goes back through group and layer norms against the definition in doubles: every ISA and number of threads, both
 * dtypes, rows and planes of all lengths, results of which some are wanted, sums that are infinite. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "each_isa.h"
#include "kern/group_norm_back.h"
#include "random.h"

static int failures;

/* So many numbers, and one behind them that must stay. */
static void *numbers(dycl_dtype dtype, int64_t count, double shift) {
    void *out = dycl_alloc((size_t)(count + 1) * 8);
    for (int64_t i = 0; i < count; i++) dycl_float_put(dtype, out, i, ((double)below(20001) / 10000 - 1) + shift);
    dycl_float_put(dtype, out, count, 12345);
    return out;
}

static void expect(const dycl_groups *b, const char *what, const void *p, int64_t i, double want, double size) {
    double got = dycl_float_at(b->dtype, p, i), eps = b->dtype == DYCL_F32 ? 1e-5 : 1e-12;
    if (fabs(got - want) <= eps * size || failures++ > 20) return;
    printf("FAIL %s [%d,%d,%d] in %d at %d: %.9g instead of %.9g\n", what, (int)b->n, (int)b->c, (int)b->inner,
           (int)b->groups, (int)i, got, want);
}

typedef struct {
    dycl_groups b;
    void *x, *g, *w;
    int level; /* equal elements, which do not deviate */
} sample;

static double x_at(const sample *s, int64_t i) { return dycl_float_at(s->b.dtype, s->x, i); }
static double g_at(const sample *s, int64_t i) { return dycl_float_at(s->b.dtype, s->g, i); }
static double w_at(const sample *s, int64_t c) { return s->w ? dycl_float_at(s->b.dtype, s->w, c) : 1; }

/* The gradients of x, and what the group gives to those of the weights, with sizes of what was added. */
static void check_group(const sample *s, int64_t group, const void *out, double *sums) {
    const dycl_groups *b = &s->b;
    int64_t channels = b->c / b->groups, n = channels * b->inner, start = group * n, first = group * channels % b->c;
    double mean = 0, m2 = 0, plain = 0, along = 0, of_plain = 0, of_along = 0, count = (double)n;
    for (int64_t i = 0; i < n; i++) mean += x_at(s, start + i) / count;
    if (s->level && n) mean = x_at(s, start);
    for (int64_t i = 0; i < n; i++) m2 += (x_at(s, start + i) - mean) * (x_at(s, start + i) - mean);
    double scale = 1 / sqrt(m2 / count + b->eps), far = s->level ? 1e-6 : (1 + fabs(mean)) * scale;
    for (int64_t i = 0; i < n; i++) {
        int64_t c = first + i / b->inner;
        double normed = (x_at(s, start + i) - mean) * scale, g = g_at(s, start + i), gw = g * w_at(s, c);
        plain += gw / count, along += gw * normed / count;
        of_plain += fabs(gw) / count, of_along += fabs(gw) * (fabs(normed) + far) / count;
        sums[4 * c] += g * normed, sums[4 * c + 1] += fabs(g) * (fabs(normed) + far);
        sums[4 * c + 2] += g, sums[4 * c + 3] += fabs(g);
    }
    for (int64_t i = 0; i < n && out; i++) {
        double normed = (x_at(s, start + i) - mean) * scale, gw = g_at(s, start + i) * w_at(s, first + i / b->inner);
        expect(b, "gradient", out, start + i, (gw - plain - normed * along) * scale,
               (fabs(gw) + of_plain + (fabs(normed) + far) * of_along) * scale);
    }
}

/* The same numbers, whatever the number of threads. */
static void check_one_thread(const sample *s, void *const out[3], void *scratch) {
    const int threads = omp_get_max_threads();
    int64_t size = (int64_t)dycl_dtype_size(s->b.dtype), counts[3] = {s->b.n * s->b.c * s->b.inner, s->b.c, s->b.c};
    void *again[3];
    for (int k = 0; k < 3; k++) again[k] = out[k] ? numbers(s->b.dtype, counts[k], 0) : NULL;
    omp_set_num_threads(1);
    dycl_kern_group_norm_back(&s->b, s->g, s->x, s->w, again, scratch);
    omp_set_num_threads(threads);
    for (int k = 0; k < 3; k++) {
        if (out[k] && memcmp(out[k], again[k], (size_t)(counts[k] * size)))
            failures++, printf("FAIL result %d depends on the number of threads\n", k);
        dycl_free(again[k]);
    }
}

static void check(int i) {
    const int64_t inner = below(2) ? 1 : pick(1, below(4) ? 70 : 1500),
                  of_group = below(3) ? pick(1, 70) : pick(1, 700);
    sample s = {.b = {.n = pick(0, 9), .groups = pick(1, 5), .inner = inner, .dtype = below(3) ? DYCL_F32 : DYCL_F64}};
    dycl_groups *b = &s.b;
    if (i % 10 == 0) b->n = 700;                          /* chains of rows, in parts */
    if (i % 10 == 1) b->n = b->groups = 1, b->inner = 60; /* fewer groups than threads */
    b->eps = 1e-3;
    b->layer = inner == 1 && below(2);
    b->c = b->groups * (i % 10 == 1 ? 400 : inner > 1 ? 1 + of_group / 10 : of_group);
    int64_t count = b->n * b->c * b->inner;
    double shift = below(2) ? (double)below(20) : 0;
    s.x = numbers(b->dtype, count, shift), s.g = numbers(b->dtype, count, 0);
    s.w = below(4) ? numbers(b->dtype, b->c, 0) : NULL;
    s.level = !below(4);
    if (s.level) b->eps = 1e-14;
    if (s.level)
        for (int64_t k = 0; k < count; k++) dycl_float_put(b->dtype, s.x, k, 0.1);
    void *made[3] = {numbers(b->dtype, count, 0), numbers(b->dtype, b->c, 0), numbers(b->dtype, b->c, 0)}, *out[3];
    void *scratch = dycl_alloc(dycl_kern_group_norm_back_scratch(b));
    double *sums = dycl_alloc_zero((size_t)b->c * 4 * sizeof *sums);
    for (int k = 0; k < 3; k++) out[k] = below(4) ? made[k] : NULL;
    dycl_kern_group_norm_back(b, s.g, s.x, s.w, out, scratch);
    check_one_thread(&s, out, scratch);
    for (int64_t group = 0; group < b->n * b->groups; group++) check_group(&s, group, out[0], sums);
    for (int64_t c = 0; c < b->c; c++) {
        if (out[1]) expect(b, "weight", out[1], c, sums[4 * c], sums[4 * c + 1]);
        if (out[2]) expect(b, "bias", out[2], c, sums[4 * c + 2], sums[4 * c + 3]);
    }
    for (int k = 0; k < 3; k++) {
        if (dycl_float_at(b->dtype, made[k], k ? b->c : count) != 12345)
            failures++, printf("FAIL writes past the end\n");
        dycl_free(made[k]);
    }
    dycl_free(s.x), dycl_free(s.g), dycl_free(s.w), dycl_free(scratch), dycl_free(sums);
}

/* One infinite gradient: torch's b = (sum g w * mean - sum g w x) scale^3 / n is NaN where both are infinite. */
static void check_infinite(int i) {
    dycl_groups b = {.n = 4, .c = 20, .inner = i % 2 ? 1 : 3, .groups = 1, .dtype = DYCL_F32, .eps = 1e-3};
    int64_t n = b.c * b.inner;
    sample s = {.b = b, .x = numbers(DYCL_F32, 4 * n, 3), .g = numbers(DYCL_F32, 4 * n, 0)};
    void *out[3] = {numbers(DYCL_F32, 4 * n, 0), numbers(DYCL_F32, b.c, 0), numbers(DYCL_F32, b.c, 0)};
    void *scratch = dycl_alloc(dycl_kern_group_norm_back_scratch(&b));
    dycl_float_put(DYCL_F32, s.g, n + 5, (double)INFINITY);
    dycl_kern_group_norm_back(&b, s.g, s.x, NULL, out, scratch);
    for (int64_t k = 0; k < 4 * n; k++) {
        double got = dycl_float_at(DYCL_F32, out[0], k);
        if (k / n == 1 ? !isnan(got) : !isfinite(got)) failures++, printf("FAIL infinite: %g at %d\n", got, (int)k);
    }
    for (int k = 0; k < 3; k++) dycl_free(out[k]);
    dycl_free(s.x), dycl_free(s.g), dycl_free(scratch);
}

int main(void) {
    return on_each_isa("group norm back", check, 60, &failures) |
           on_each_isa("infinite gradients", check_infinite, 4, &failures);
}
