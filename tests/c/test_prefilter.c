/* The step that finds the largest element of a product, in both variants: rows, biases, threads, options, weights that
 * are not finite, that are alike, and that change. What it finds is the largest, by no more than the rounding of a sum
 * less. */
#define _GNU_SOURCE
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "exec/tune/autotune.h"
#include "exec/pack/pack.h"
#include "exec/plan/plan.h"
#include "kern/bf16.h"
#include "kern/prefilter.h"
#include "random.h"

enum { N = 4111, K = 300, RUNS = 30 };
static int failures;

enum { ORDINARY, STRANGE, ALIKE, SORTS };

typedef struct {
    float *w, *bias, *x;
    int64_t rows;
    int sort, biased;
    uint32_t options;
} problem;

static float as_bf16(float x) { return dycl_bf16_float(dycl_bf16_of(x)); }

static void weights(problem *p) {
    for (int64_t i = 0; i < N * K; i++) p->w[i] = p->sort == ALIKE ? 0.5f + rnd_float() * 1e-6f : rnd_float() * 0.05f;
    if (p->sort == STRANGE) p->w[K * 7 + 3] = INFINITY, p->w[K * 2000 + 5] = NAN, p->w[K * 4000] = 1e30f;
    for (int64_t j = 0; j < N; j++) p->bias[j] = rnd_float() * 0.01f;
}

static double element(const problem *p, int64_t i, int64_t j, double *size) {
    double sum = p->biased ? (double)p->bias[j] : 0;
    *size = fabs(sum);
    for (int64_t k = 0; k < K; k++) {
        float w = p->w[j * K + k];
        double term = (double)p->x[i * K + k] * (double)(p->options & DYCL_OPTION_BF16 ? as_bf16(w) : w);
        sum += term, *size += fabs(term);
    }
    return sum;
}

static void check(const problem *p, const int64_t *found, int run) {
    for (int64_t i = 0; i < p->rows; i++) {
        int64_t first_nan = -1;
        double best = -INFINITY, size = 0, most = 0, at_found = 0;
        for (int64_t j = 0; j < N; j++) {
            double sum = element(p, i, j, &size);
            if (isnan(sum) && first_nan < 0) first_nan = j;
            if (sum > best) best = sum, most = size;
            if (j == found[i]) at_found = sum;
        }
        int in = found[i] >= 0 && found[i] < N;
        int ok = in && (first_nan >= 0 ? found[i] == first_nan
                        : isinf(best)  ? at_found == best
                                       : best - at_found <= 4e-6 * most);
        if (!ok && failures++ < 20)
            printf("FAIL run %d, weights %d, %ld rows, bias %d, options %u, row %ld: %ld with %g, not %g\n", run,
                   p->sort, (long)p->rows, p->biased, (unsigned)p->options, (long)i, (long)found[i], at_found, best);
    }
}

/* Second forms of weights take at most a tenth of the time to make: where the machine is busy, they come later. */
static size_t packed_bytes(dycl_plan *plan, const dycl_feed *feeds, void *const *outputs) {
    dycl_plan_stats stats = {0};
    for (int waited = 0; waited < 20000 && !stats.packed_bytes; waited += 10) {
        if (waited) usleep(10000);
        if (dycl_plan_run(plan, feeds, NULL, outputs) != DYCL_OK) failures++;
        dycl_plan_get_stats(plan, &stats);
    }
    return stats.packed_bytes;
}

static void run_all(problem *p, int variant, uint64_t token) {
    char text[600];
    dycl_graph g;
    dycl_plan *plan = NULL;
    int64_t found[DYCL_PREFILTER_ROWS];
    void *outputs[1] = {found};
    dycl_graph_init(&g);
    snprintf(text, sizeof text,
             "%%0 = feed f32[%ld,%d]{%d,1}\n%%1 = feed f32[%d,%d]{%d,1}\n%%2 = feed f32[%d]{1}\n%%3 = linear %%0 %%1 "
             "%s\n%%4 = argmax %%3 (2, 0)\n",
             (long)p->rows, K, K, N, K, K, N, p->biased ? "%2" : "_");
    if (dycl_graph_parse(text, &g) != DYCL_OK) abort();
    g.options = p->options;
    const uint32_t out = 4;
    if (dycl_plan_create(&g, &out, 1, DYCL_PLAN_TUNED, &plan) != DYCL_OK) {
        printf("FAIL: no plan: %s\n", dycl_error_message());
        failures++;
        dycl_graph_free(&g);
        return;
    }
    char *described = NULL;
    if (dycl_plan_describe(plan, &described) != DYCL_OK || !strstr(described, "largest of product")) {
        printf("FAIL: not the step that is tested\n");
        failures++;
    }
    dycl_free(described);
    weights(p);
    for (int run = 0; run < RUNS; run++) {
        if (run == RUNS - 3) weights(p);
        for (int64_t i = 0; i < p->rows * K; i++) p->x[i] = rnd_float() * (float)(1 + run % 3 * 20);
        if (run == RUNS - 2) p->x[K - 1] = INFINITY;
        const dycl_feed feeds[3] = {{p->x, 0, 0}, {p->w, token, run >= RUNS - 3}, {p->bias, token + 1, 0}};
        memset(found, 0xff, sizeof found);
        if (dycl_plan_run(plan, feeds, NULL, outputs) != DYCL_OK) {
            printf("FAIL run %d: %s\n", run, dycl_error_message());
            failures++;
        } else if (run < 2 || run > 22) {
            check(p, found, run);
        }
    }
    if (variant == 1 && p->sort == ORDINARY) {
        const dycl_feed feeds[3] = {{p->x, 0, 0}, {p->w, token, 1}, {p->bias, token + 1, 0}};
        size_t bytes = packed_bytes(plan, feeds, outputs);
        if (bytes < (size_t)N * K && failures++ < 20) printf("FAIL: nothing was packed: %zu bytes\n", bytes);
    }
    dycl_plan_release(plan);
    dycl_graph_free(&g);
    dycl_pack_forget(token);
    dycl_pack_forget(token + 1);
}

/* Sums that bfloat16 rounds to one number, of weights that 8 bits hold exactly: the first of them is the answer,
 * though a later one is the largest before it is rounded. */
static void equals_in_half(int variant, uint64_t token) {
    enum { FIRST = 100, LARGEST = 3000, WHOLE = 127 };
    static const int sums[2] = {1024, 1028}; /* as bfloat16 both are 1024 */
    char text[400];
    dycl_graph g;
    dycl_plan *plan = NULL;
    int64_t found[1];
    void *outputs[1] = {found};
    uint16_t *w = dycl_alloc_zero(N * K * sizeof *w), *x = dycl_alloc(K * sizeof *x);
    for (int64_t k = 0; k < K; k++) x[k] = dycl_bf16_of(1);
    for (int64_t j = 0; j < N; j++) w[j * K] = dycl_bf16_of(WHOLE);
    for (int i = 0; i < 2; i++) {
        uint16_t *column = w + (i ? LARGEST : FIRST) * K;
        int rest = sums[i];
        for (int k = 0; rest > 0; k++, rest -= WHOLE) column[k] = dycl_bf16_of((float)(rest < WHOLE ? rest : WHOLE));
    }
    dycl_graph_init(&g);
    snprintf(text, sizeof text,
             "%%0 = feed bf16[1,%d]{%d,1}\n%%1 = feed bf16[%d,%d]{%d,1}\n%%2 = linear %%0 %%1 _\n"
             "%%3 = argmax %%2 (2, 0)\n",
             K, K, N, K, K);
    const uint32_t out = 3;
    if (dycl_graph_parse(text, &g) != DYCL_OK || dycl_plan_create(&g, &out, 1, DYCL_PLAN_TUNED, &plan) != DYCL_OK) {
        printf("FAIL: no plan in bf16: %s\n", dycl_error_message());
        failures++;
    }
    const dycl_feed feeds[2] = {{x, 0, 0}, {w, token, 0}};
    for (int run = 0; plan && run < RUNS; run++) {
        found[0] = -1;
        if ((dycl_plan_run(plan, feeds, NULL, outputs) != DYCL_OK || found[0] != FIRST) && failures++ < 20)
            printf("FAIL run %d, variant %d: %ld, not the first of equals in bf16\n", run, variant, (long)found[0]);
    }
    size_t bytes = plan && variant == 1 ? packed_bytes(plan, feeds, outputs) : (size_t)N * K;
    if (bytes < (size_t)N * K && failures++ < 20) printf("FAIL: bf16 was not packed: %zu bytes\n", bytes);
    if (plan) dycl_plan_release(plan);
    dycl_graph_free(&g);
    dycl_pack_forget(token);
    dycl_free(w), dycl_free(x);
}

int main(void) {
    problem p = {.w = dycl_alloc(N * K * sizeof(float)),
                 .bias = dycl_alloc(N * sizeof(float)),
                 .x = dycl_alloc(DYCL_PREFILTER_ROWS * K * sizeof(float))};
    uint64_t token = 1;
    if (!dycl_kern_prefilter(dycl_cpu_isa())) {
        printf("no kernel here\n");
        return 0;
    }
    for (int variant = 0; variant < 2; variant++) {
        dycl_autotune_force(variant);
        for (int i = 0; i < 18; i++) {
            omp_set_num_threads(1 + (i + i / 3) % 3); /* not always as many for the same sort of weights */
            p.rows = 1 + i % DYCL_PREFILTER_ROWS;
            p.sort = i % SORTS;
            p.biased = (int)below(2);
            p.options = i % 4 == 3 && dycl_cpu_bf16() ? DYCL_OPTION_BF16 : 0;
            run_all(&p, variant, token += 2);
        }
        equals_in_half(variant, token += 2);
        dycl_autotune_force(-1);
        dycl_autotune_clear();
    }
    dycl_free(p.w), dycl_free(p.bias), dycl_free(p.x);
    printf(failures ? "FAILED\n" : "ok\n");
    return failures != 0;
}
