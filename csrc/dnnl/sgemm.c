#include "base/cpu.h"
#include "base/sigstack.h"
#include "dnnl/internal.h"

#include <omp.h>
#include <string.h>

#define DIVIDE_FLOPS 500000.0
#define SERIAL_FLOPS 200000.0
#define MIN_COLUMNS  32
#define MIN_ROWS     16

typedef struct {
    int trans_a, trans_b;
    int64_t m, n, k, lda, ldb, ldc;
    float alpha, beta;
    const float *a, *b;
    float *c;
} product;

static int64_t at_least(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

/* k == 0: the product is zero. beta == 0 overwrites, whatever C held. */
static void scale_only(int64_t m, int64_t n, float beta, float *c, int64_t ldc) {
    for (int64_t i = 0; i < m; i++) {
        if (beta == 0)
            memset(c + i * ldc, 0, (size_t)n * sizeof *c);
        else
            for (int64_t j = 0; j < n; j++) c[i * ldc + j] *= beta;
    }
}

static dnnl_status_t gemm(const product *p, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    dycl_sigstack_need();
    const float *a = p->a + row * (p->trans_a ? 1 : p->lda), *b = p->b + column * (p->trans_b ? p->ldb : 1);
    return dnnl_sgemm(p->trans_a ? 'T' : 'N', p->trans_b ? 'T' : 'N', rows, columns, p->k, p->alpha, a, p->lda, b,
                      p->ldb, p->beta, p->c + row * p->ldc + column, p->ldc);
}

/* oneDNN divides a product with transposed B badly among threads (measured: half the speed of one division by columns
 * at 128x768x3072 on two), and that is what every linear layer is. */
static dnnl_status_t gemm_divided(const product *p, int threads) {
    int64_t across = clamp(p->n / MIN_COLUMNS, 1, threads), down = clamp(p->m / MIN_ROWS, 1, threads / across);
    int64_t columns = (p->n + across - 1) / across, rows = (p->m + down - 1) / down;
    atomic_int worst = dnnl_success;
    if (across * down == 1)
        return gemm(p, 0, p->m, 0, p->n);    /* in a region of one thread oneDNN's own team would be made anew */
    columns = (columns + 15) & ~(int64_t)15; /* whole cache lines of C */
#pragma omp parallel for num_threads((int)(across * down)) schedule(static, 1)
    for (int64_t part = 0; part < across * down; part++) {
        int64_t row = part / across * rows, column = part % across * columns;
        if (row >= p->m || column >= p->n) continue;
        dnnl_status_t code = gemm(p, row, clamp(p->m - row, 0, rows), column, clamp(p->n - column, 0, columns));
        if (code != dnnl_success) atomic_store_explicit(&worst, (int)code, memory_order_relaxed);
    }
    return (dnnl_status_t)atomic_load(&worst);
}

/* oneDNN wakes its team for a product of any size: a microsecond that a small one does not have, and a time slice of
 * the processor where another process wants the other core. */
static dnnl_status_t gemm_alone(const product *p) {
    int threads = omp_get_max_threads();
    if (threads > 1) omp_set_num_threads(1);
    dnnl_status_t code = gemm(p, 0, p->m, 0, p->n);
    if (threads > 1) omp_set_num_threads(threads);
    return code;
}

dycl_status dycl_sgemm(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                       int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    if (m <= 0 || n <= 0) return DYCL_OK;
    if (k <= 0) {
        scale_only(m, n, beta, c, ldc);
        return DYCL_OK;
    }
    /* The leading dimension of a one-row matrix is never used but is checked. */
    const product p = {
        trans_a, trans_b, m, n, k, at_least(lda, trans_a ? m : k), at_least(ldb, trans_b ? k : n), at_least(ldc, n),
        alpha,   beta,    a, b, c};
    double flops = 2.0 * (double)m * (double)n * (double)k;
    if (flops <= SERIAL_FLOPS) return dycl_dnnl_check(gemm_alone(&p), "sgemm");
    int divide = trans_b && m > 1 && flops > DIVIDE_FLOPS && !omp_in_parallel();
    int threads = divide ? dycl_cpu_threads() : 1;
    return dycl_dnnl_check(threads > 1 ? gemm_divided(&p, threads) : gemm(&p, 0, m, 0, n), "sgemm");
}
