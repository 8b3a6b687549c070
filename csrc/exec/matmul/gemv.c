#include "exec/matmul/matmul.h"
#include "kern/gemv.h"
#include "kern/parallel.h"

#include <omp.h>
#include <stdio.h>

/* Products of few rows, a token of a language model above all: their time is the reading of the weights. */

/* Long pieces for each thread's prefetchers: columns of B where those are contiguous, else rows, whose partial results
 * are added up after. (3072x768 by rows on two threads: 36 GB/s where columns gave 30.) */
#define LEAST_ROWS 32

static void add_up(const dycl_matmul_args *a, float *to, const float *parts, int64_t count, int64_t from, int64_t end) {
    for (int64_t i = 0; i < a->m; i++)
        for (int64_t part = 0; part < count; part++) {
            const float *more = parts + (part * a->m + i) * a->n;
            for (int64_t j = from; j < end; j++) to[i * a->c_row + j] += more[j];
        }
}

static dycl_gemv describe(const dycl_matmul_args *a, const float *left, const float *right, const float *bias,
                          float *to) {
    return (dycl_gemv){.a = left,
                       .b = right,
                       .bias = bias,
                       .c = to,
                       .lda = a->a_row,
                       .ldb = dycl_gemv_by_columns(a) ? a->b_column : a->b_row,
                       .ldc = a->c_row,
                       .n = a->n,
                       .k = a->k,
                       .m = (int)a->m};
}

static dycl_gemv_fn kernel_of(const dycl_matmul_args *a) {
    const dycl_gemv_table *table = dycl_kern_gemv(dycl_cpu_isa());
    return dycl_gemv_by_columns(a) ? table->dot : table->axpy;
}

void dycl_gemv_one(const dycl_matmul_args *a, const float *left, const float *right, const float *bias, float *to) {
    const dycl_gemv g = describe(a, left, right, bias, to);
    kernel_of(a)(&g, 0, dycl_gemv_by_columns(a) ? a->n : a->k);
}

void dycl_gemv_as_it_lies(const dycl_matmul_args *a, dycl_plan *plan) {
    int by_columns = dycl_gemv_by_columns(a);
    dycl_gemv_fn run = kernel_of(a);
    int64_t all = by_columns ? a->n : a->k;
    const dycl_gemv g = describe(a, dycl_at(plan, a->a), dycl_at(plan, a->b),
                                 a->has_bias ? dycl_at(plan, a->bias) : NULL, dycl_at(plan, a->c));
    if (a->threads < 2) {
        run(&g, 0, all);
        return;
    }
    float *parts = by_columns ? NULL : dycl_at(plan, a->scratch);
#pragma omp parallel num_threads(a->threads)
    {
        int64_t team = omp_get_num_threads(), self = omp_get_thread_num();
        dycl_gemv mine = g;
        if (parts && self) {
            mine.bias = NULL;
            mine.c = parts + (self - 1) * a->m * a->n;
            mine.ldc = a->n;
        }
        run(&mine, all * self / team, all * (self + 1) / team);
        if (parts) {
#pragma omp barrier
            add_up(a, g.c, parts, team - 1, a->n * self / team, a->n * (self + 1) / team);
        }
    }
}

/* ---- Constants in fewer bits (kern/narrow.h) */

static void narrow(const dycl_matmul_args *a, dycl_plan *plan, const dycl_narrow_header *packed) {
    const dycl_narrow_table *table = dycl_kern_narrow(dycl_cpu_isa());
    const dycl_narrow g = {.a = dycl_at(plan, a->a),
                           .bias = a->has_bias ? dycl_at(plan, a->bias) : NULL,
                           .packed = packed,
                           .c = dycl_at(plan, a->c),
                           .lda = a->a_row,
                           .ldc = a->c_row,
                           .k = a->k,
                           .m = (int)a->m};
    if (a->threads < 2) {
        table->run(&g, 0, a->n);
        return;
    }
#pragma omp parallel num_threads(a->threads)
    {
        int64_t team = omp_get_num_threads(), self = omp_get_thread_num();
        table->run(&g, a->n * self / team, a->n * (self + 1) / team);
    }
}

dycl_status dycl_gemv_run(const dycl_step *step, dycl_plan *plan) {
    const dycl_matmul_args *a = step->args;
    dycl_weights_run run;
    dycl_status status = dycl_weights_begin(&a->narrow, plan, &run);
    if (status != DYCL_OK) return status;
    if (run.packed)
        narrow(a, plan, run.packed);
    else
        dycl_gemv_as_it_lies(a, plan);
    dycl_weights_end(&a->narrow, &run);
    return DYCL_OK;
}

int dycl_gemv_reads(const dycl_matmul_args *a) {
    int64_t most = dycl_gemv_by_columns(a)
                       ? DYCL_GEMV_ROWS
                       : DYCL_GEMV_ROWS / 2; /* the traffic of C costs axpy its gain from there on */
    return a->dtype == DYCL_F32 && a->m <= most && a->k > 0 && (a->a_column == 1 || a->k == 1) &&
           (a->b_column == 1 || a->b_row == 1);
}

int dycl_gemv_suits(const dycl_matmul_args *a) { return a->batches == 1 && dycl_gemv_reads(a); }

dycl_status dycl_gemv_share(dycl_builder *b, dycl_matmul_args *a, dycl_ref *parts) {
    int columns = dycl_gemv_by_columns(a);
    a->threads = dycl_kern_share(a->n * a->k * (int64_t)dycl_dtype_size(a->dtype), 2 * DYCL_BYTES_PER_THREAD,
                                 (columns ? a->n : a->k) / LEAST_ROWS, b->plan->threads);
    if (columns || a->threads == 1) return DYCL_OK;
    return dycl_make_scratch(b, (size_t)((a->threads - 1) * a->m * a->n) * sizeof(float), parts);
}

dycl_status dycl_gemv_offer(dycl_builder *b, dycl_matmul_args *a) {
    char key[64];
    const dycl_narrow_layout form = {a->n, a->k, a->b_row, a->b_column};
    snprintf(key, sizeof key, "few rows m%d %s", (int)a->m, dycl_gemv_by_columns(a) ? "columns" : "rows");
    return dycl_weights_offer_narrow(b, a->b, &form, a->threads, key, &a->narrow);
}

dycl_status dycl_make_gemv(dycl_builder *b, dycl_matmul_args *a) {
    dycl_status status;
    DYCL_TRY(dycl_gemv_share(b, a, &a->scratch));
    DYCL_TRY(dycl_make_step(b, dycl_gemv_run, a, "gemv",
                            100 + (double)a->n * (double)a->k * sizeof(float) / 16 / a->threads));
    if (a->threads == 1) dycl_make_serial(b);
    return dycl_gemv_offer(b, a);
fail:
    return status;
}
