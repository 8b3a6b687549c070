/* Batch norm in training against torch's definition in doubles: every ISA, both orders and dtypes, one thread and
 * several, statistics and gradients of which some are wanted, NaN and infinities, sums that floats do not hold. */
#include <float.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "kern/batch_norm.h"
#include "random.h"

static int failures, float_sums[2]; /* refused, promised */

typedef struct {
    dycl_batch batch;
    int64_t count; /* of elements */
    double *x, *g, *vector[6];
} sample;

static double *numbers(int64_t count, double scale, double shift, int odd) {
    static const double other[] = {NAN, INFINITY, -INFINITY, 0};
    double *out = dycl_alloc((size_t)(count + 1) * sizeof *out);
    for (int64_t i = 0; i < count; i++) {
        out[i] = (double)(float)(((double)below(20001) / 10000 - 1) * scale + shift);
        if (odd && !below(50)) out[i] = other[below(4)];
    }
    return out;
}

static int64_t place(const dycl_batch *b, int64_t n, int64_t c, int64_t i) {
    return b->channels_last ? (n * b->inner + i) * b->c + c : (n * b->c + c) * b->inner + i;
}

/* ---- Memory of the batch's dtype, with an element behind that must stay */

static void *stored(const dycl_batch *b, const double *from, int64_t count) {
    char *out = dycl_alloc((size_t)(count + 1) * 8);
    for (int64_t i = 0; i <= count; i++)
        if (b->dtype == DYCL_F32)
            ((float *)out)[i] = from && i < count ? (float)from[i] : 12345;
        else
            ((double *)out)[i] = from && i < count ? from[i] : 12345;
    return out;
}

static double loaded(const dycl_batch *b, const void *p, int64_t i) {
    return b->dtype == DYCL_F32 ? (double)((const float *)p)[i] : ((const double *)p)[i];
}

static void expect(const sample *s, const char *what, const void *p, int64_t i, double want, double error) {
    double got = loaded(&s->batch, p, i), eps = s->batch.dtype == DYCL_F32 ? 2e-6 : 1e-12;
    int same = isnan(want) ? isnan(got) : isinf(want) ? got == want : fabs(got - want) <= eps * (fabs(want) + error);
    if (!same && failures++ < 20)
        printf("FAIL %s %s [%lld,%lld,%lld] last %d at %lld: %.9g instead of %.9g\n", dycl_isa_name(dycl_cpu_isa()),
               what, (long long)s->batch.n, (long long)s->batch.c, (long long)s->batch.inner, s->batch.channels_last,
               (long long)i, got, want);
}

static void expect_end(const sample *s, const void *p, int64_t count) {
    if (loaded(&s->batch, p, count) != 12345) failures++, printf("FAIL writes past the end\n");
}

/* ---- Statistics */

static void check_stats(const sample *s) {
    const dycl_batch *b = &s->batch;
    void *x = stored(b, s->x, s->count), *scratch = dycl_alloc(dycl_kern_batch_scratch(b));
    void *before[2] = {stored(b, s->vector[0], b->c), stored(b, s->vector[1], b->c)}, *made[DYCL_BATCH_RESULTS],
         *out[4];
    int in_place = (int)below(2);
    for (int i = 0; i < 4; i++) {
        made[i] = in_place && i > 1 ? stored(b, s->vector[i - 2], b->c) : stored(b, NULL, b->c);
        out[i] = below(4) ? made[i] : NULL;
    }
    dycl_kern_batch_stats(b, x, (const void *[]){in_place ? made[2] : before[0], in_place ? made[3] : before[1]}, out,
                          scratch);
    for (int64_t c = 0; c < b->c; c++) {
        double sum = 0, m2 = 0, count = (double)(b->n * b->inner), most = 0;
        for (int64_t n = 0; n < b->n; n++)
            for (int64_t i = 0; i < b->inner; i++) sum += s->x[place(b, n, c, i)];
        double mean = sum / count;
        for (int64_t n = 0; n < b->n; n++)
            for (int64_t i = 0; i < b->inner; i++) {
                double d = s->x[place(b, n, c, i)] - mean;
                m2 += d * d;
                most = fmax(most, fabs(s->x[place(b, n, c, i)]));
            }
        double exact = 1e-3 * most; /* sums are of doubles, whatever the dtype */
        if (out[0]) expect(s, "mean", out[0], c, mean, exact);
        if (out[1]) expect(s, "deviation", out[1], c, 1 / sqrt(m2 / count + b->eps), 0);
        if (out[2])
            expect(s, "running mean", out[2], c, b->momentum * mean + (1 - b->momentum) * s->vector[0][c],
                   exact + fabs(s->vector[0][c]));
        if (out[3])
            expect(s, "running variance", out[3], c,
                   b->momentum * m2 / (count - 1) + (1 - b->momentum) * s->vector[1][c], fabs(s->vector[1][c]));
    }
    for (int i = 0; i < 4; i++) expect_end(s, made[i], b->c), dycl_free(made[i]);
    dycl_free(x), dycl_free(scratch), dycl_free(before[0]), dycl_free(before[1]);
}

/* ---- Back */

static void check_back(const sample *s) {
    const dycl_batch *b = &s->batch;
    void *x = stored(b, s->x, s->count), *g = stored(b, s->g, s->count),
         *scratch = dycl_alloc(dycl_kern_batch_scratch(b));
    void *vector[3], *made[3] = {stored(b, NULL, s->count), stored(b, NULL, b->c), stored(b, NULL, b->c)}, *out[3];
    int weighted = below(3) != 0;
    for (int i = 0; i < 3; i++) {
        vector[i] = stored(b, s->vector[2 + i], b->c);
        out[i] = below(4) ? made[i] : NULL;
    }
    dycl_kern_batch_norm_back(b, g, x, vector[0], vector[1], weighted ? vector[2] : NULL, out, scratch);
    for (int64_t c = 0; c < b->c; c++) {
        double mean = loaded(b, vector[0], c), scale = loaded(b, vector[1], c), count = (double)(b->n * b->inner);
        double sum = 0, dot = 0, sizes = 0, w = weighted ? loaded(b, vector[2], c) : 1;
        for (int64_t n = 0; n < b->n; n++)
            for (int64_t i = 0; i < b->inner; i++) {
                int64_t at = place(b, n, c, i);
                sum += s->g[at];
                dot += s->g[at] * (s->x[at] - mean);
                sizes += fabs(s->g[at] * (s->x[at] - mean));
            }
        if (out[1]) expect(s, "weight", out[1], c, dot * scale, 1e-3 * sizes * fabs(scale));
        if (out[2]) expect(s, "bias", out[2], c, sum, 1e-3 * count);
        for (int64_t n = 0; n < b->n && out[0]; n++)
            for (int64_t i = 0; i < b->inner; i++) {
                int64_t at = place(b, n, c, i);
                double k = dot * scale * scale / count, back = (s->x[at] - mean) * k;
                double want = ((s->g[at] - sum / count) - back) * scale * w;
                expect(s, "gradient", out[0], at, want,
                       (fabs(s->g[at]) + fabs(sum / count) + fabs(back)) * fabs(scale * w));
            }
    }
    expect_end(s, made[0], s->count), expect_end(s, made[1], b->c), expect_end(s, made[2], b->c);
    for (int i = 0; i < 3; i++) dycl_free(vector[i]), dycl_free(made[i]);
    dycl_free(x), dycl_free(g), dycl_free(scratch);
}

static void check(int large) {
    sample s;
    dycl_batch *b = &s.batch;
    int odd = !below(4);
    *b = (dycl_batch){.n = pick(1, 6),
                      .c = pick(1, large ? 150 : 40),
                      .inner = below(4) ? pick(1, large ? 3000 : 70) : 1,
                      .channels_last = (int)below(2),
                      .dtype = below(3) ? DYCL_F32 : DYCL_F64,
                      .momentum = 0.1,
                      .eps = 1e-3};
    if (!below(8)) b->c = pick(1, 3), b->inner *= 40; /* several threads to a channel */
    if (b->n * b->inner < 2) b->n = 2;
    s.count = b->n * b->c * b->inner;
    double shift = below(2) ? (double)below(20) : 0;
    s.x = numbers(s.count, 1, shift, odd);
    s.g = numbers(s.count, 1, 0, odd);
    for (int i = 0; i < 6; i++) s.vector[i] = numbers(b->c, 1, i == 2 ? shift : 2, 0);
    check_stats(&s);
    check_back(&s);
    dycl_free(s.x), dycl_free(s.g);
    for (int i = 0; i < 6; i++) dycl_free(s.vector[i]);
}

/* Elements that differ in their last bits only: what is lost against a large mean is not the variance. */
static void check_far(void) {
    enum { N = 5000 };
    float x[N], deviation, mean;
    dycl_batch b = {.n = 1, .c = 1, .inner = N, .dtype = DYCL_F32, .momentum = 0.1, .eps = 0};
    for (int i = 0; i < N; i++) x[i] = 1e6f + (float)(i % 2) * 0.0625f;
    void *scratch = dycl_alloc(dycl_kern_batch_scratch(&b)), *out[4] = {&mean, &deviation, NULL, NULL};
    dycl_kern_batch_stats(&b, x, (const void *[]){NULL, NULL}, out, scratch);
    if (!(fabsf(deviation - 32) < 1e-3f)) failures++, printf("FAIL far from zero: %g\n", (double)deviation);
    for (int i = 0; i < N; i++) x[i] = 3;
    dycl_kern_batch_stats(&b, x, (const void *[]){NULL, NULL}, out, scratch);
    if (deviation != 0 || mean != 3)
        failures++, printf("FAIL equal elements: %g %g\n", (double)mean, (double)deviation);
    dycl_free(scratch);
}

/* Sums of floats: none is promised that some order of adding could lose, nothing small is refused, and what is refused
 * is not written. */
static void check_float_sums(void) {
    dycl_batch b = {.n = pick(1, 4), .c = pick(1, 9), .inner = pick(2, 40), .channels_last = 1, .eps = 1e-3};
    b.dtype = DYCL_F32, b.float_sums = 1;
    const int64_t pixels = b.n * b.inner, count = pixels * b.c;
    const double scale = (double)FLT_MAX / (double)pixels * (double)pick(1, 60) / 20;
    const double shift = below(2) ? scale / 2 : 0;
    double *numbers_of = numbers(count, scale / 2, shift, 0), most = 0;
    float *x = stored(&b, numbers_of, count), mean[9];
    void *scratch = dycl_alloc(dycl_kern_batch_scratch(&b)), *out[4] = {mean, NULL, NULL, NULL};
    for (int i = 0; i < 9; i++) mean[i] = 12345;
    for (int64_t c = 0; c < b.c; c++) {
        double sum = 0;
        for (int64_t i = 0; i < pixels; i++) sum += fabs((double)x[i * b.c + c]);
        most = fmax(most, sum);
    }
    int sums = dycl_kern_batch_stats(&b, x, (const void *[]){NULL, NULL}, out, scratch);
    if (sums && most > (double)FLT_MAX) failures++, printf("FAIL promises a float sum of %g\n", most);
    if (!sums && most < (double)FLT_MAX / 8) failures++, printf("FAIL refuses a float sum of %g\n", most);
    for (int64_t c = 0; c < b.c; c++)
        if ((mean[c] != 12345) != sums) failures++, printf("FAIL %s: %g\n", sums ? "no mean" : "writes", mean[c]);
    float_sums[sums]++;
    dycl_free(numbers_of), dycl_free(x), dycl_free(scratch);
}

int main(void) {
    for (dycl_isa isa = DYCL_ISA_SCALAR; isa < DYCL_ISA_COUNT; isa++) {
        if (!dycl_cpu_isa_force(isa)) continue;
        for (int threads = 1; threads < 4; threads += 2) {
            omp_set_num_threads(threads);
            for (int i = 0; i < 300; i++) check(i % 30 == 0);
            for (int i = 0; i < 300; i++) check_float_sums();
            check_far();
        }
    }
    if (!float_sums[0] || !float_sums[1]) failures++, printf("FAIL float sums: only one answer was seen\n");
    if (failures) printf("%d failures\n", failures);
    return failures != 0;
}
