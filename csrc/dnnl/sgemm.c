#include "dnnl/internal.h"

#include <string.h>

static int64_t at_least(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* k == 0: the product is zero. beta == 0 overwrites, whatever C held. */
static void scale_only(int64_t m, int64_t n, float beta, float *c, int64_t ldc) {
    for (int64_t i = 0; i < m; i++) {
        if (beta == 0)
            memset(c + i * ldc, 0, (size_t)n * sizeof *c);
        else
            for (int64_t j = 0; j < n; j++) c[i * ldc + j] *= beta;
    }
}

dycl_status dycl_sgemm(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                       int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    if (m <= 0 || n <= 0) return DYCL_OK;
    if (k <= 0) {
        scale_only(m, n, beta, c, ldc);
        return DYCL_OK;
    }
    /* The leading dimension of a one-row matrix is never used but is checked. */
    lda = at_least(lda, trans_a ? m : k);
    ldb = at_least(ldb, trans_b ? k : n);
    ldc = at_least(ldc, n);
    return dycl_dnnl_check(
        dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc), "sgemm");
}
