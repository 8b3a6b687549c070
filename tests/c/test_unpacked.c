/* Products whose right side is not packed, by tiles of ours, by a BLAS that the host brings and by oneDNN, against the
 * reference: sizes, layouts with gaps, transposed operands, biases. The BLAS of this test is Fortran's definition, and
 * counts its calls.
 */
#include <omp.h>

#include "base/alloc.h"
#include "base/host.h"
#include "exec/plan/plan.h"
#include "exec/tune/autotune.h"
#include "plan_reference.h"
#include "random.h"

static int failures, calls;

static float element(const float *a, char trans, int64_t leading, int64_t row, int64_t column) {
    return trans == 'N' ? a[row + column * leading] : a[column + row * leading];
}

static void sgemm(const char *trans_a, const char *trans_b, const int64_t *m, const int64_t *n, const int64_t *k,
                  const float *alpha, const float *a, const int64_t *lda, const float *b, const int64_t *ldb,
                  const float *beta, float *c, const int64_t *ldc) {
    int64_t least_a = *trans_a == 'N' ? *m : *k, least_b = *trans_b == 'N' ? *k : *n;
    calls++;
    if (*lda < least_a || *ldb < least_b || *ldc < *m) {
        printf("FAIL: leading dimensions %ld, %ld and %ld of %ldx%ldx%ld\n", (long)*lda, (long)*ldb, (long)*ldc,
               (long)*m, (long)*k, (long)*n);
        failures++;
    }
    for (int64_t i = 0; i < *m; i++)
        for (int64_t j = 0; j < *n; j++) {
            double sum = 0;
            float *to = &c[i + j * *ldc];
            for (int64_t p = 0; p < *k; p++)
                sum += (double)element(a, *trans_a, *lda, i, p) * element(b, *trans_b, *ldb, p, j);
            *to = (float)(*alpha * sum) + (*beta == 0 ? 0 : *beta * *to);
        }
}

/* The strides of a matrix, in rows or in columns, with a gap or without; the elements that it spans. */
static int64_t lay_out(int64_t rows, int64_t columns, int64_t strides[2]) {
    int64_t gap = below(2) ? below(9) : 0;
    strides[0] = below(2) ? columns + gap : 1;
    strides[1] = strides[0] == 1 ? rows + gap : 1;
    return (rows - 1) * strides[0] + (columns - 1) * strides[1] + 1;
}

static float *numbers(int64_t n) {
    float *p = dycl_alloc((size_t)n * sizeof *p);
    for (int64_t i = 0; p && i < n; i++) p[i] = rnd_float();
    return p;
}

static void check(int variant) {
    int64_t m = pick(17, 70), n = pick(2, 90), k = pick(1 + 1000000 / (m * n), 1 + 1400000 / (m * n));
    int64_t left[2], right[2], left_size = lay_out(m, k, left), right_size = lay_out(k, n, right);
    int biased = below(2) != 0, before = calls;
    char text[500];
    float *feeds[3] = {numbers(left_size), numbers(right_size), numbers(n)}, *out = numbers(m * n);
    const uint32_t result = 3;
    dycl_graph g;
    dycl_plan *plan = NULL;
    dycl_graph_init(&g);
    int64_t sizes[2] = {biased ? n : k, biased ? k : n}; /* a linear's weight lies the other way round */
    snprintf(text, sizeof text,
             "%%0 = feed f32[%ld,%ld]{%ld,%ld}\n%%1 = feed f32[%ld,%ld]{%ld,%ld}\n%%2 = feed f32[%ld]{1}\n%%3 = %s\n",
             (long)m, (long)k, (long)left[0], (long)left[1], (long)sizes[0], (long)sizes[1], (long)right[biased],
             (long)right[!biased], (long)n, biased ? "linear %0 %1 %2" : "matmul %0 %1");
    if (!feeds[0] || !feeds[1] || !feeds[2] || !out || dycl_graph_parse(text, &g) != DYCL_OK ||
        dycl_plan_create(&g, &result, 1, DYCL_PLAN_TUNED, &plan) != DYCL_OK) {
        printf("FAIL: no plan of\n%s%s\n", text, dycl_error_message());
        failures++;
        return;
    }
    const dycl_feed given[3] = {{feeds[0], 0, 0}, {feeds[1], 0, 0}, {feeds[2], 0, 0}};
    void *outputs[1] = {out};
    if (dycl_plan_run(plan, given, NULL, outputs) != DYCL_OK) {
        printf("FAIL: %s\n", dycl_error_message());
        failures++;
    }
    reference r;
    ref_run(&r, &g, (void *const *)feeds, NULL);
    int64_t wrong = ref_first_wrong(&r, result, out);
    if (wrong >= 0 || (calls > before) != (variant == 1)) {
        printf("FAIL: variant %d, %d calls, element %ld of\n%s", variant, calls - before, (long)wrong, text);
        failures++;
    }
    ref_free(&r);
    dycl_plan_release(plan);
    dycl_graph_free(&g);
    for (int i = 0; i < 3; i++) dycl_free(feeds[i]);
    dycl_free(out);
}

int main(void) {
    dycl_host_functions.sgemm = sgemm;
    for (int variant = 0; variant < 3; variant++) {
        dycl_autotune_force(variant);
        for (int i = 0; i < 40; i++) {
            omp_set_num_threads(1 + i % 3);
            check(variant);
        }
        dycl_autotune_force(-1);
        dycl_autotune_clear();
    }
    printf(failures ? "FAILED\n" : "ok, %d calls\n", calls);
    return failures != 0;
}
