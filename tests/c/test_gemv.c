/* Products with few rows against sums in double: every ISA, row count, tail and stride; nothing beside the result is
 * written. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cpu.h"
#include "kern/gemv.h"
#include "random.h"

static int failures;

static float *numbers(int64_t n) {
    float *p = dycl_alloc((size_t)(n + 1) * sizeof *p);
    for (int64_t i = 0; i < n; i++) p[i] = (float)((double)(rnd() >> 11) / 9007199254740992.0 * 2 - 1);
    return p;
}

static void check(int dots) {
    int m = (int)pick(1, DYCL_GEMV_ROWS);
    int64_t n = pick(1, below(8) ? 90 : 5000), k = pick(1, below(4) ? 90 : 400);
    int64_t all = dots ? n : k, from = below(all), end = pick(from, all);
    dycl_gemv g = {.lda = k + below(3), .ldb = (dots ? k : n) + below(3), .ldc = n + below(3), .n = n, .k = k, .m = m};
    float *a = numbers(m * g.lda), *b = numbers((dots ? n : k) * g.ldb), *bias = numbers(n), *c = numbers(m * g.ldc),
          *before = numbers(0);
    if (!a || !b || !bias || !c || !before) {
        failures++;
        return;
    }
    before = dycl_realloc(before, (size_t)(m * g.ldc + 1) * sizeof *before);
    memcpy(before, c, (size_t)(m * g.ldc) * sizeof *c);
    int inf = below(4) == 0; /* what is not finite stays so, in its column only */
    if (inf) b[(end > from ? from : 0) * g.ldb] = below(2) ? INFINITY : NAN;
    g.a = a, g.b = b, g.c = c, g.bias = below(2) ? bias : NULL;
    const dycl_gemv_table *table = dycl_kern_gemv(dycl_cpu_isa());
    (dots ? table->dot : table->axpy)(&g, from, end);
    for (int i = 0; i < m; i++)
        for (int64_t j = 0; j < g.ldc; j++) {
            double want = before[i * g.ldc + j], size = 0;
            if (j < n && (!dots || (j >= from && j < end))) {
                want = g.bias ? bias[j] : 0;
                for (int64_t p = dots ? 0 : from; p < (dots ? k : end); p++) {
                    double term = (double)a[i * g.lda + p] * b[dots ? j * g.ldb + p : p * g.ldb + j];
                    want += term, size += fabs(term);
                }
            }
            double got = c[i * g.ldc + j];
            int ok = isfinite(want) ? fabs(got - want) <= 1e-7 * fabs(want) + 3e-6 * size
                     : isnan(want)  ? isnan(got)
                                    : got == want;
            if (!ok && failures++ < 20)
                printf("FAIL %s m %d n %ld k %ld [%ld, %ld) at %d, %ld: %g, not %g\n", dots ? "dot" : "axpy", m,
                       (long)n, (long)k, (long)from, (long)end, i, (long)j, got, want);
        }
    dycl_free(a), dycl_free(b), dycl_free(bias), dycl_free(c), dycl_free(before);
}

int main(void) {
    for (int isa = 0; isa < DYCL_ISA_COUNT; isa++) {
        int before = failures;
        if (!dycl_cpu_isa_force((dycl_isa)isa)) continue;
        for (int i = 0; i < 600; i++) check(i & 1);
        printf("%s products with few rows: %s\n", dycl_isa_name((dycl_isa)isa), failures == before ? "ok" : "FAILED");
    }
    return failures != 0;
}
