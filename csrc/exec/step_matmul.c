#include "exec/matmul.h"

#include <omp.h>
#include <string.h>

/* ---- Any dtype: plain loops, rows in the middle so that B is read along its rows */

#define PRODUCT_BODY(type, wide)                                                                                                           \
    for (int64_t i = 0; i < a->m; i++)                                                                                                     \
        for (int64_t j0 = 0; j0 < a->n; j0 += 64) {                                                                                        \
            int64_t width = a->n - j0 < 64 ? a->n - j0 : 64;                                                                               \
            wide sum[64];                                                                                                                  \
            const type *row = (const type *)left + i * a->a_row;                                                                           \
            for (int64_t j = 0; j < width; j++) sum[j] = bias ? (wide)((const type *)bias)[j0 + j] : 0;                                    \
            for (int64_t k = 0; k < a->k; k++) {                                                                                           \
                wide x = (wide)row[k * a->a_column];                                                                                       \
                const type *column = (const type *)right + k * a->b_row + j0 * a->b_column;                                                \
                if (a->b_column == 1)                                                                                                      \
                    for (int64_t j = 0; j < width; j++) sum[j] += x * (wide)column[j];                                                     \
                else                                                                                                                       \
                    for (int64_t j = 0; j < width; j++) sum[j] += x * (wide)column[j * a->b_column];                                       \
            }                                                                                                                              \
            for (int64_t j = 0; j < width; j++) ((type *)to)[i * a->c_row + j0 + j] = (type)sum[j];                                        \
        }                                                                                                                                  \
    break

static void plain_product(const dycl_matmul_args *a, const void *left, const void *right, const void *bias, void *to) {
    switch (a->dtype) {
    case DYCL_F32: PRODUCT_BODY(float, double);
    case DYCL_F64: PRODUCT_BODY(double, double);
    case DYCL_I64: PRODUCT_BODY(int64_t, uint64_t);
    case DYCL_I32: PRODUCT_BODY(int32_t, uint64_t);
    case DYCL_I16: PRODUCT_BODY(int16_t, uint64_t);
    case DYCL_I8: PRODUCT_BODY(int8_t, uint64_t);
    default: PRODUCT_BODY(uint8_t, uint64_t);
    }
}

static dycl_status sgemm(const dycl_matmul_args *a, const float *left, const float *right, const float *bias, float *to) {
    /* a matrix of one row or column may carry any stride there: say the one that the interface accepts */
    int trans_a = !(a->a_column == 1 || a->k == 1), trans_b = !(a->b_column == 1 || a->n == 1);
    if (a->k == 1 && a->m > 1 && a->a_row == 1 && a->a_column != 1) trans_a = 1;
    int64_t lda = trans_a ? a->a_column : a->a_row, ldb = trans_b ? a->b_column : a->b_row;
    int64_t least_a = trans_a ? a->m : a->k, least_b = trans_b ? a->k : a->n;
    if (lda < least_a) lda = least_a;
    if (ldb < least_b) ldb = least_b;
    if (bias)
        for (int64_t i = 0; i < a->m; i++) memcpy(to + i * a->c_row, bias, (size_t)a->n * sizeof(float));
    return dycl_sgemm(trans_a, trans_b, a->m, a->n, a->k, 1, left, lda, right, ldb, bias ? 1 : 0, to, a->c_row);
}

static dycl_status one(const dycl_matmul_args *a, const char *left, const char *right, const char *bias, char *to) {
    if (a->dtype == DYCL_F32 && a->k > 0) return sgemm(a, (const float *)left, (const float *)right, (const float *)bias, (float *)to);
    plain_product(a, left, right, bias, to);
    return DYCL_OK;
}

static dycl_status product_run(const dycl_step *step, dycl_plan *plan) {
    const dycl_matmul_args *a = step->args;
    const char *left = dycl_at(plan, a->a), *right = dycl_at(plan, a->b), *bias = a->has_bias ? dycl_at(plan, a->bias) : NULL;
    char *to = dycl_at(plan, a->c);
    if (a->batches == 1) return one(a, left, right, bias, to);
    int64_t element = (int64_t)dycl_dtype_size(a->dtype);
    dycl_status worst = DYCL_OK;
#pragma omp parallel for schedule(static) num_threads(a->threads) if (a->threads > 1)
    for (int64_t i = 0; i < a->batches; i++) {
        int64_t left_at = 0, right_at = 0, to_at = 0, rest = i;
        for (int d = a->batch_rank - 1; d >= 0; d--) {
            int64_t index = rest % a->batch[d];
            rest /= a->batch[d];
            left_at += index * a->a_batch[d];
            right_at += index * a->b_batch[d];
            to_at += index * a->c_batch[d];
        }
        dycl_status status = one(a, left + left_at * element, right + right_at * element, bias, to + to_at * element);
        if (status != DYCL_OK) {
#pragma omp critical(dycl_matmul_status)
            worst = status;
        }
    }
    return worst;
}

dycl_status dycl_matmul_choose(dycl_maker *b, const dycl_node *node, dycl_matmul_args *a) {
    (void)node;
    double flops = 2.0 * (double)a->m * (double)a->n * (double)a->k * (double)a->batches;
    double cost = 300.0 * (double)a->batches + flops / 80;
    a->threads = cost > 40000 ? b->plan->threads : 1;
    if (a->threads > a->batches) a->threads = (int)a->batches;
    if (a->batches > 1 && a->threads < b->plan->threads) a->threads = 1; /* few large ones: each is parallel inside */
    dycl_make_read(b, a->a.slot);
    dycl_make_read(b, a->b.slot);
    if (a->has_bias) dycl_make_read(b, a->bias.slot);
    dycl_make_write(b, a->c.slot);
    a->packed = DYCL_NONE;
    return dycl_make_step(b, product_run, a, a->dtype == DYCL_F32 ? "sgemm" : "loops", cost);
}
