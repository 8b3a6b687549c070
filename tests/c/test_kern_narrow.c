/* Weights in fewer bits: each comes back as it was, bit by bit, and products with them equal sums in double: every ISA,
 * row count, tail, stride and sort of weights; nothing beside the result is written. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "kern/narrow.h"
#include "random.h"

static int failures, packed_as[29], refused;

enum { NORMAL, HALVES, SPARSE, OUTLIERS, STRANGE, TINY, LARGE, ANY, SORTS };

static float weight(int sort) {
    static const float strange[] = {0.0f, -0.0f, 1e-40f, -1e-44f, 3e38f, INFINITY, -INFINITY, NAN};
    float x = (rnd_float() + rnd_float() + rnd_float()) * 0.05f;
    switch (sort) {
    case HALVES: return (float)(int)(x * 1600) / 1024; /* eight bits */
    case SPARSE: return below(3) ? 0 : x;
    case OUTLIERS: return below(2000) ? x : x * 1e9f;
    case STRANGE: return below(3000) ? x : strange[below(8)];
    case TINY: return x * 1e-36f;
    case LARGE: return x * 3e38f;
    case ANY: return rnd_bits();
    default: return x;
    }
}

typedef struct {
    int64_t n, k;
    float *b; /* as the form says */
    dycl_narrow_layout form;
    void *packed;
} matrix;

static float at(const matrix *w, int64_t p, int64_t j) { return w->b[p * w->form.row + j * w->form.column]; }

static int make(matrix *w, const dycl_narrow_table *table, int sort) {
    w->n = pick(1, below(4) ? 70 : 600), w->k = pick(1, below(4) ? 200 : 3000);
    int64_t along = below(3), by_columns = below(2);
    w->form = (dycl_narrow_layout){w->n, w->k, by_columns ? 1 : w->n + along, by_columns ? w->k + along : 1};
    int64_t size = by_columns ? w->n * (w->k + along) : w->k * (w->n + along);
    w->b = dycl_alloc((size_t)size * sizeof(float));
    w->packed = dycl_aligned_alloc(dycl_narrow_bytes(&w->form));
    if (!w->b || !w->packed) return 0;
    for (int64_t i = 0; i < size; i++) w->b[i] = weight(sort);
    if (sort == HALVES && below(2)) w->b[below(size)] = 0.1f; /* perhaps not seen in the sample */
    dycl_narrow_pack(table, &w->form, w->b, w->packed, below(2) ? 1 : 3);
    return 1;
}

static void fail(const char *what, const matrix *w, int sort, int64_t p, int64_t j, double got, double want) {
    if (failures++ < 20)
        printf("FAIL %s, weights %d, n %ld k %ld at %ld, %ld: %g, not %g\n", what, sort, (long)w->n, (long)w->k,
               (long)p, (long)j, got, want);
}

/* One row with a single one in it. */
static void check_weights(const matrix *w, const dycl_narrow_table *table, int sort) {
    float *a = dycl_alloc_zero((size_t)w->k * sizeof(float)), *c = dycl_alloc((size_t)w->n * sizeof(float));
    for (int round = 0; round < 40; round++) {
        int64_t p = round ? (int64_t)below(w->k) : w->k - 1;
        a[p] = 1;
        const dycl_narrow g = {.a = a, .packed = w->packed, .c = c, .lda = w->k, .ldc = w->n, .k = w->k, .m = 1};
        table->run(&g, 0, w->n);
        a[p] = 0;
        for (int64_t j = 0; j < w->n; j++) {
            float want = 0;
            for (int64_t q = 0; q < w->k; q++)
                if (q != p && !isfinite(at(w, q, j))) want = NAN; /* 0 times that */
            if (!isnan(want)) want = at(w, p, j);
            if (isnan(want) ? !isnan(c[j]) : c[j] != want) fail("a weight", w, sort, p, j, c[j], want);
        }
    }
    dycl_free(a), dycl_free(c);
}

static void check_product(const matrix *w, const dycl_narrow_table *table, int sort) {
    int m = (int)pick(1, DYCL_NARROW_ROWS);
    int64_t lda = w->k + below(3), ldc = w->n + below(3), from = below(w->n), end = pick(from, w->n);
    float *a = dycl_alloc((size_t)(m * lda) * sizeof(float)), *bias = dycl_alloc((size_t)w->n * sizeof(float)),
          *c = dycl_alloc((size_t)(m * ldc) * sizeof(float)), *before = dycl_alloc((size_t)(m * ldc) * sizeof(float));
    for (int64_t i = 0; i < m * lda; i++) a[i] = rnd_float();
    for (int64_t j = 0; j < w->n; j++) bias[j] = rnd_float();
    for (int64_t i = 0; i < m * ldc; i++) before[i] = c[i] = rnd_float();
    if (below(3) == 0) a[below(m * lda)] = below(2) ? INFINITY : NAN;
    const dycl_narrow g = {
        .a = a, .bias = below(2) ? bias : NULL, .packed = w->packed, .c = c, .lda = lda, .ldc = ldc, .k = w->k, .m = m};
    table->run(&g, from, end);
    for (int i = 0; i < m; i++)
        for (int64_t j = 0; j < ldc; j++) {
            double want = before[i * ldc + j], size = 0;
            if (j >= from && j < end) {
                want = g.bias ? bias[j] : 0;
                for (int64_t p = 0; p < w->k; p++) {
                    double term = (double)a[i * lda + p] * (double)at(w, p, j);
                    want += term, size += fabs(term);
                }
            }
            double got = c[i * ldc + j];
            /* what overflows in float, or nearly, is left to the check of weights; denormal products to their own
             * precision */
            int ok = size > 1e38 && isfinite(size) ? 1
                     : isfinite(want)              ? fabs(got - want) <= 1e-7 * fabs(want) + 3e-6 * size + 1e-42
                     : isnan(want)                 ? isnan(got)
                                                   : got == want;
            if (!ok) fail("a product", w, sort, i, j, got, want);
        }
    dycl_free(a), dycl_free(bias), dycl_free(c), dycl_free(before);
}

static void check(const dycl_narrow_table *table, int sort) {
    matrix w;
    if (!make(&w, table, sort)) {
        failures++;
        return;
    }
    const dycl_narrow_header *h = w.packed;
    if (!h->usable) {
        refused++; /* of TINY, many are denormal */
        if (sort != ANY && sort != TINY && w.n * w.k > 20000) fail("refused", &w, sort, 0, 0, 0, 0);
    } else {
        packed_as[h->bits]++;
        check_weights(&w, table, sort);
        check_product(&w, table, sort);
    }
    dycl_free(w.b);
    dycl_aligned_free(w.packed);
}

int main(void) {
    for (int isa = 0; isa < DYCL_ISA_COUNT; isa++) {
        int before = failures;
        const dycl_narrow_table *table = dycl_kern_narrow((dycl_isa)isa);
        if (!table || !dycl_cpu_isa_force((dycl_isa)isa)) continue;
        for (int i = 0; i < 400; i++) check(table, i % SORTS);
        printf("%s products over narrow weights: %s\n", dycl_isa_name((dycl_isa)isa),
               failures == before ? "ok" : "FAILED");
    }
    if (dycl_kern_narrow(dycl_cpu_isa()) && (!packed_as[28] || !packed_as[16] || !refused)) {
        printf("FAIL: not every form came: %d in 28 bits, %d in 16, %d refused\n", packed_as[28], packed_as[16],
               refused);
        failures++;
    }
    return failures != 0;
}
