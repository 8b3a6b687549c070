/* The search for the largest element of a product: what eight bits say is never further from the true sum than the
 * slack allows, for every sort of weights and rows; the largest is always among the candidates, and of ordinary weights
 * there are few; nothing beside the result is written. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "kern/bf16.h"
#include "kern/prefilter.h"
#include "random.h"

static int failures;
static int64_t columns_seen, candidates_seen, refused;

enum { NORMAL, OUTLIERS, STRANGE, TINY, DENORMAL, LARGE, EQUAL, ANY, SORTS };

static float weight(int sort) {
    static const float strange[] = {0.0f, -0.0f, 1e-40f, 3e38f, INFINITY, -INFINITY, NAN};
    float x = (rnd_float() + rnd_float() + rnd_float()) * 0.05f;
    switch (sort) {
    case OUTLIERS: return below(2000) ? x : x * 1e9f;
    case STRANGE: return below(20000) ? x : strange[below(7)];
    case TINY: return x * 1e-30f;
    case DENORMAL: return x * 1e-38f;
    case LARGE: return x * 1e22f;
    case EQUAL: return 0.125f;
    case ANY: return rnd_bits();
    default: return x;
    }
}

static void fail(const char *what, int sort, int64_t n, int64_t k, int64_t i, int64_t j, double got, double want) {
    if (failures++ < 20)
        printf("FAIL %s, weights %d, n %ld k %ld at %ld, %ld: %g, not %g\n", what, sort, (long)n, (long)k, (long)i,
               (long)j, got, want);
}

/* Sums in double: their own rounding is far below what is checked. */
static double sum_of(const float *a, const float *w, int64_t k, const float *bias) {
    double sum = bias ? *bias : 0;
    for (int64_t p = 0; p < k; p++) sum += (double)a[p] * (double)w[p];
    return sum;
}

static void check_row(const dycl_prefilter *g, const dycl_prefilter_table *table, const float *b, int64_t column, int i,
                      float floor, int64_t from, int64_t end, int sort) {
    uint32_t *found = dycl_alloc((size_t)(end - from) * sizeof *found);
    int64_t count = table->above(g, i, floor, from, end, found), next = 0;
    double best = -INFINITY;
    for (int64_t j = from; j < end; j++) {
        double want = sum_of(g->a + i * g->lda, b + j * column, g->k, g->bias ? g->bias + j : NULL);
        if (want > best) best = want;
        if (!(g->packed->slack[j] < INFINITY)) continue;
        double of_bias = g->bias ? fabs((double)g->bias[j]) * 1e-6 : 0,
               allowed = (double)g->norm[i] * (double)g->packed->slack[j] + of_bias + 1e-37;
        double got = g->c[i * g->ldc + j];
        if (!(fabs(got - want) <= allowed)) fail("an estimate", sort, end, g->k, i, j, got, want);
    }
    for (int64_t j = from; j < end; j++) {
        int in = next < count && found[next] == j;
        next += in;
        double want = sum_of(g->a + i * g->lda, b + j * column, g->k, g->bias ? g->bias + j : NULL);
        if (!in && !(want < best)) fail("the largest is missing", sort, end, g->k, i, j, want, best);
    }
    if (next != count) fail("candidates", sort, end, g->k, i, 0, (double)next, (double)count);
    if (sort == NORMAL && end - from > 200) columns_seen += end - from, candidates_seen += count;
    dycl_free(found);
}

static void check(const dycl_prefilter_table *table, int sort) {
    int64_t n = pick(1, below(4) ? 90 : 2000), k = pick(1, below(4) ? 200 : 1500), column = k + below(3);
    int m = (int)pick(1, DYCL_PREFILTER_ROWS);
    int64_t lda = k + below(3), ldc = n + below(3), from = below(n), end = pick(from + 1, n);
    const dycl_prefilter_layout form = {n, k, column, below(3) == 0};
    float *b = dycl_alloc((size_t)(n * column) * sizeof *b), *a = dycl_alloc((size_t)(m * lda) * sizeof *a),
          *bias = dycl_alloc((size_t)n * sizeof *bias), *c = dycl_alloc((size_t)(m * ldc) * sizeof *c),
          floor[DYCL_PREFILTER_ROWS];
    void *packed = dycl_aligned_alloc(dycl_prefilter_bytes(&form));
    for (int64_t i = 0; i < n * column; i++) b[i] = weight(sort);
    for (int64_t i = 0; i < m * lda; i++) a[i] = below(3) ? rnd_float() : rnd_float() * 30;
    for (int64_t i = 0; i < n; i++) bias[i] = rnd_float();
    for (int64_t i = 0; i < m * ldc; i++) c[i] = 77;
    dycl_prefilter_pack(table, &form, b, packed, below(2) ? 1 : 3);
    for (int64_t i = 0; form.rounded && i < n * column; i++) b[i] = dycl_bf16_float(dycl_bf16_of(b[i]));
    const dycl_prefilter_header *h = packed;
    refused += !h->usable;
    if (!h->usable && sort != STRANGE && sort != ANY && sort != DENORMAL && sort != LARGE && sort != OUTLIERS)
        fail("refused", sort, n, k, 0, 0, 0, 0);
    dycl_prefilter g = {
        .a = a, .bias = below(2) ? bias : NULL, .packed = h, .c = c, .lda = lda, .ldc = ldc, .k = k, .m = m};
    int finite = 1;
    for (int i = 0; i < m; i++) finite &= (g.norm[i] = dycl_prefilter_norm(a + i * lda, k)) < INFINITY;
    if (!finite) fail("a norm", sort, n, k, 0, 0, 0, 0);
    table->scores(&g, from, end, floor);
    for (int i = 0; i < m; i++) {
        check_row(&g, table, b, column, i, floor[i], from, end, sort);
        for (int64_t j = 0; j < ldc; j++)
            if ((j < from || j >= end) && c[i * ldc + j] != 77) fail("written", sort, n, k, i, j, c[i * ldc + j], 77);
    }
    dycl_free(a), dycl_free(b), dycl_free(bias), dycl_free(c);
    dycl_aligned_free(packed);
}

int main(void) {
    const float bad[] = {1, NAN, INFINITY}, large[] = {1e15f};
    if (dycl_prefilter_norm(bad, 2) < INFINITY || dycl_prefilter_norm(bad + 2, 1) < INFINITY ||
        dycl_prefilter_norm(large, 1) < INFINITY || !(dycl_prefilter_norm(bad, 1) >= 1)) {
        printf("FAIL: a norm\n");
        failures++;
    }
    for (int isa = 0; isa < DYCL_ISA_COUNT; isa++) {
        int before = failures;
        const dycl_prefilter_table *table = dycl_kern_prefilter((dycl_isa)isa);
        if (!table || !dycl_cpu_isa_force((dycl_isa)isa)) continue;
        columns_seen = candidates_seen = refused = 0;
        for (int i = 0; i < 600; i++) check(table, i % SORTS);
        if (columns_seen < 1000 || candidates_seen * 20 > columns_seen || !refused) {
            printf("FAIL: %ld candidates of %ld columns, %ld refused\n", (long)candidates_seen, (long)columns_seen,
                   (long)refused);
            failures++;
        }
        printf("%s largest elements of products: %s\n", dycl_isa_name((dycl_isa)isa),
               failures == before ? "ok" : "FAILED");
    }
    return failures != 0;
}
