#include "exec/matmul/matmul.h"
#include "kern/bf16.h"
#include "kern/gemv.h"
#include "kern/parallel.h"

#include <omp.h>
#include <string.h>

/* Products of operands of 16 bits: sums are f32, and each result is rounded once, its bias included. Few rows read the
 * weights as they lie or in panels, with the other operand widened; more are oneDNN's, where the processor multiplies
 * bfloat16. */

typedef struct {
    dycl_matmul_args product; /* dtype: of 16 bits */
    dycl_ref wide, sums, parts;
    dycl_ew_fn widen, finish;
} half_args;

static int may_pack(const dycl_builder *b, const dycl_matmul_args *a) {
    return a->dtype == DYCL_BF16 && dycl_cpu_bf16() && a->batches == 1 && b->plan->mode == DYCL_PLAN_TUNED &&
           dycl_matmul_may_pack(b, a->b);
}

static dycl_status find_packed(const dycl_matmul_args *a, dycl_plan *plan, const void **out) {
    *out = NULL;
    return a->packing ? dycl_packing_get(plan, a->packing, NULL, out) : DYCL_OK;
}

static void finish(const half_args *h, dycl_plan *plan, int64_t team, int64_t from, int64_t end) {
    const dycl_matmul_args *a = &h->product;
    float *sums = dycl_at(plan, h->sums);
    const float *parts = dycl_gemv_by_columns(a) || team < 2 ? NULL : dycl_at(plan, h->parts);
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

/* The panels of a constant, from one that begins at the column `from`. */
static void some_panels(const half_args *h, dycl_plan *plan, const uint16_t *packed, int64_t from, int64_t end) {
    const dycl_matmul_args *a = &h->product;
    float *sums = dycl_at(plan, h->sums);
    if (end <= from) return;
    dycl_bf16_rows__avx512(sums + from, a->n, dycl_at(plan, h->wide), a->k, dycl_bf16_panel(packed, from, a->k), NULL,
                           a->m, end - from, a->k);
    finish(h, plan, 1, from, end);
}

static void panels(const half_args *h, dycl_plan *plan, const uint16_t *packed) {
    const dycl_matmul_args *a = &h->product;
    if (a->threads < 2) {
        some_panels(h, plan, packed, 0, a->n);
        return;
    }
#pragma omp parallel num_threads(a->threads)
    {
        int64_t team = omp_get_num_threads(), self = omp_get_thread_num();
        some_panels(h, plan, packed, dycl_bf16_part(a->n, self, team), dycl_bf16_part(a->n, self + 1, team));
    }
}

static dycl_status half_run(const dycl_step *step, dycl_plan *plan) {
    const half_args *h = step->args;
    const dycl_matmul_args *a = &h->product;
    const void *packed;
    dycl_status status = find_packed(a, plan, &packed);
    if (status != DYCL_OK) return status;
    const uint16_t *left = dycl_at(plan, a->a);
    float *wide = dycl_at(plan, h->wide);
    for (int64_t i = 0; i < a->m; i++) h->widen(wide + i * a->k, left + i * a->a_row, NULL, NULL, (size_t)a->k);
    if (packed) {
        panels(h, plan, packed);
        return DYCL_OK;
    }
    const dycl_gemv_table *table = dycl_kern_gemv(dycl_cpu_isa());
    int by_columns = dycl_gemv_by_columns(a);
    dycl_gemv_fn run = a->dtype == DYCL_BF16 ? by_columns ? table->bf16.dot : table->bf16.axpy
                       : by_columns          ? table->f16.dot
                                             : table->f16.axpy;
    float *parts = by_columns ? NULL : dycl_at(plan, h->parts);
    int64_t all = by_columns ? a->n : a->k;
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

dycl_status dycl_make_half(dycl_builder *b, const dycl_matmul_args *product) {
    dycl_status status;
    half_args *h = dycl_plan_alloc(b->plan, sizeof *h);
    if (!h) return DYCL_ERROR;
    h->product = *product;
    dycl_matmul_args *a = &h->product;
    size_t bytes = (size_t)(a->n * a->k) * sizeof(uint16_t);
    h->widen = dycl_kern_cast(dycl_cpu_isa(), a->dtype, DYCL_F32);
    h->finish = dycl_kern_finish(dycl_cpu_isa(), a->dtype);
    DYCL_TRY(dycl_gemv_share(b, a, &h->parts));
    dycl_matmul_touches(b, a);
    dycl_make_write_at(b, a->c, (size_t)((a->m - 1) * a->c_row + a->n) * sizeof(uint16_t));
    DYCL_TRY(dycl_make_scratch(b, (size_t)(a->m * a->k) * sizeof(float), &h->wide));
    DYCL_TRY(dycl_make_scratch(b, (size_t)(a->m * a->n) * sizeof(float), &h->sums));
    /* Rows of B add up in memory, and two rows of A have each column's sum folded twice: packed weights are faster
     * (2304x768, one and two rows: 112 and 110 us by rows, 66 and 75 by columns, 60 packed for oneDNN). */
    if ((!dycl_gemv_by_columns(a) || a->m > 1) && may_pack(b, a)) {
        const dycl_weights as = {.kind = DYCL_WEIGHTS_BF16, .bf16 = {a->n, a->k, a->b_row, a->b_column, 1}};
        dycl_tensor w = {.ref = a->b};
        DYCL_TRY(dycl_make_packing(b, &w, &as, 0, &a->packing));
        a->packing->patient = 1;
    }
    DYCL_TRY(
        dycl_make_step(b, half_run, h, a->packing ? "packed gemv" : "gemv", 100 + (double)bytes / 16 / a->threads));
    if (a->threads == 1) dycl_make_serial(b);
fail:
    return status;
}

/* ---- More rows */

static dycl_status many_run(const dycl_step *step, dycl_plan *plan) {
    const dycl_matmul_args *a = step->args;
    const void *packed;
    dycl_status status = find_packed(a, plan, &packed);
    if (status != DYCL_OK) return status;
    return packed ? dycl_matmul_execute(a, plan, a->prim, packed, a->scratch)
                  : dycl_matmul_execute(a, plan, a->plain, dycl_at(plan, a->b), a->plain_scratch);
}

dycl_status dycl_make_half_many(dycl_builder *b, const dycl_matmul_args *product) {
    dycl_status status;
    dycl_matmul_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    *a = *product;
    if (a->dtype != DYCL_BF16 || !dycl_cpu_bf16() || a->k < 1) return DYCL_BAIL;
    DYCL_TRY(dycl_matmul_try_primitive(b, a, 0, &a->plain, &a->plain_scratch));
    if (may_pack(b, a)) {
        status = dycl_matmul_offer_packed(b, a);
        if (status == DYCL_ERROR) return status;
    }
    dycl_matmul_touches(b, a);
    dycl_make_write_at(b, a->c, dycl_matmul_result_bytes(a));
    double flops = 2.0 * (double)a->m * (double)a->n * (double)a->k * (double)a->batches;
    DYCL_TRY(dycl_make_step(b, many_run, a, a->prim ? "packed product" : "product", 500 + flops / 300));
    b->plan->infos[b->plan->step_count - 1].prim = a->prim ? a->prim : a->plain;
fail:
    return status;
}
