#include "exec/matmul/matmul.h"
#include "kern/gemv.h"
#include "kern/parallel.h"

#include <omp.h>
#include <string.h>

/* Products of few rows over weights of 16 bits, read as they lie: the other operand is widened, sums are f32, and each
 * result is rounded once, its bias included. */

#define LEAST_ROWS 32 /* of B a thread; as in step_gemv.c */

typedef struct {
    dycl_matmul_args product; /* dtype: of 16 bits */
    dycl_ref wide, sums, parts;
    dycl_ew_fn widen, finish;
} half_args;

static int dots(const dycl_matmul_args *a) { return a->b_column != 1; }

static void finish(const half_args *h, dycl_plan *plan, int64_t team, int64_t from, int64_t end) {
    const dycl_matmul_args *a = &h->product;
    float *sums = dycl_at(plan, h->sums);
    const float *parts = dots(a) || team < 2 ? NULL : dycl_at(plan, h->parts);
    const uint16_t *bias = a->has_bias ? (const uint16_t *)dycl_at(plan, a->bias) + from : NULL;
    uint16_t *to = dycl_at(plan, a->c);
    for (int64_t i = 0; i < a->m; i++) {
        for (int64_t part = 0; parts && part < team - 1; part++) {
            const float *more = parts + (part * a->m + i) * a->n;
            for (int64_t j = from; j < end; j++) sums[i * a->n + j] += more[j];
        }
        h->finish(to + i * a->c_row + from, sums + i * a->n + from, bias, NULL, (size_t)(end - from));
    }
}

static dycl_status half_run(const dycl_step *step, dycl_plan *plan) {
    const half_args *h = step->args;
    const dycl_matmul_args *a = &h->product;
    const dycl_gemv_table *table = dycl_kern_gemv(dycl_cpu_isa());
    int by_columns = dots(a);
    dycl_gemv_fn run = a->dtype == DYCL_BF16 ? by_columns ? table->bf16.dot : table->bf16.axpy
                       : by_columns          ? table->f16.dot
                                             : table->f16.axpy;
    const uint16_t *left = dycl_at(plan, a->a);
    float *wide = dycl_at(plan, h->wide), *parts = by_columns ? NULL : dycl_at(plan, h->parts);
    int64_t all = by_columns ? a->n : a->k;
    for (int64_t i = 0; i < a->m; i++) h->widen(wide + i * a->k, left + i * a->a_row, NULL, NULL, (size_t)a->k);
    const dycl_gemv g = {.a = wide,
                         .b = dycl_at(plan, a->b),
                         .c = dycl_at(plan, h->sums),
                         .lda = a->k,
                         .ldb = by_columns ? a->b_column : a->b_row,
                         .ldc = a->n,
                         .n = a->n,
                         .k = a->k,
                         .m = (int)a->m};
    if (a->threads < 2) {
        run(&g, 0, all);
        finish(h, plan, 1, 0, a->n);
        return DYCL_OK;
    }
#pragma omp parallel num_threads(a->threads)
    {
        int64_t team = omp_get_num_threads(), self = omp_get_thread_num(), from = a->n * self / team,
                end = a->n * (self + 1) / team;
        dycl_gemv mine = g;
        if (!by_columns && self) mine.c = parts + (self - 1) * a->m * a->n;
        run(&mine, all * self / team, all * (self + 1) / team);
        if (!by_columns) {
#pragma omp barrier
        }
        finish(h, plan, team, from, end);
    }
    return DYCL_OK;
}

int dycl_half_suits(const dycl_matmul_args *a) {
    return dycl_dtype_is_half(a->dtype) && a->batches == 1 && a->m <= DYCL_GEMV_ROWS && a->k > 0 &&
           (a->a_column == 1 || a->k == 1) && (a->b_column == 1 || a->b_row == 1);
}

dycl_status dycl_make_half(dycl_maker *b, const dycl_matmul_args *product) {
    dycl_status status;
    half_args *h = dycl_plan_alloc(b->plan, sizeof *h);
    if (!h) return DYCL_ERROR;
    h->product = *product;
    dycl_matmul_args *a = &h->product;
    size_t bytes = (size_t)(a->n * a->k) * sizeof(uint16_t);
    h->widen = dycl_kern_cast(dycl_cpu_isa(), a->dtype, DYCL_F32);
    h->finish = dycl_kern_finish(dycl_cpu_isa(), a->dtype);
    a->threads = dycl_kern_share((int64_t)bytes, 2 * DYCL_BYTES_PER_THREAD, (dots(a) ? a->n : a->k) / LEAST_ROWS,
                                 b->plan->threads);
    dycl_matmul_touches(b, a);
    dycl_make_write_at(b, a->c, (size_t)((a->m - 1) * a->c_row + a->n) * sizeof(uint16_t));
    DYCL_TRY(dycl_make_scratch(b, (size_t)(a->m * a->k) * sizeof(float), &h->wide));
    DYCL_TRY(dycl_make_scratch(b, (size_t)(a->m * a->n) * sizeof(float), &h->sums));
    if (!dots(a) && a->threads > 1)
        DYCL_TRY(dycl_make_scratch(b, (size_t)((a->threads - 1) * a->m * a->n) * sizeof(float), &h->parts));
    DYCL_TRY(dycl_make_step(b, half_run, h, "gemv", 100 + (double)bytes / 16 / a->threads));
    if (a->threads == 1) dycl_make_serial(b);
fail:
    return status;
}
