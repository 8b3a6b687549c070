#include "exec/matmul/matmul.h"
#include "kern/parallel.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* ---- Any dtype: plain loops, rows in the middle so that B is read along its rows */

#define PRODUCT_BODY(type, wide)                                                                                       \
    for (int64_t i = 0; i < a->m; i++)                                                                                 \
        for (int64_t j0 = 0; j0 < a->n; j0 += 64) {                                                                    \
            int64_t width = a->n - j0 < 64 ? a->n - j0 : 64;                                                           \
            wide sum[64];                                                                                              \
            const type *row = (const type *)left + i * a->a_row;                                                       \
            for (int64_t j = 0; j < width; j++) sum[j] = bias ? (wide)((const type *)bias)[j0 + j] : 0;                \
            for (int64_t k = 0; k < a->k; k++) {                                                                       \
                wide x = (wide)row[k * a->a_column];                                                                   \
                const type *column = (const type *)right + k * a->b_row + j0 * a->b_column;                            \
                if (a->b_column == 1)                                                                                  \
                    for (int64_t j = 0; j < width; j++) sum[j] += x * (wide)column[j];                                 \
                else                                                                                                   \
                    for (int64_t j = 0; j < width; j++) sum[j] += x * (wide)column[j * a->b_column];                   \
            }                                                                                                          \
            for (int64_t j = 0; j < width; j++) ((type *)to)[i * a->c_row + j0 + j] = (type)sum[j];                    \
        }                                                                                                              \
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

void dycl_matmul_put_bias(const dycl_matmul_args *a, const float *bias, float *to) {
    for (int64_t i = 0; i < a->m; i++) memcpy(to + i * a->c_row, bias, (size_t)a->n * sizeof *to);
}

dycl_matmul_sides dycl_matmul_sides_of(const dycl_matmul_args *a) {
    /* a matrix of one row or column may carry any stride there: say the one that the interface accepts */
    dycl_matmul_sides s = {.trans_a = !(a->a_column == 1 || a->k == 1), .trans_b = !(a->b_column == 1 || a->n == 1)};
    if (a->k == 1 && a->m > 1 && a->a_row == 1 && a->a_column != 1) s.trans_a = 1;
    s.lda = s.trans_a ? a->a_column : a->a_row;
    s.ldb = s.trans_b ? a->b_column : a->b_row;
    int64_t least_a = s.trans_a ? a->m : a->k, least_b = s.trans_b ? a->k : a->n;
    if (s.lda < least_a) s.lda = least_a;
    if (s.ldb < least_b) s.ldb = least_b;
    return s;
}

static dycl_status one(const dycl_matmul_args *a, dycl_matmul_by by, const char *left, const char *right,
                       const char *bias, char *to, char *work) {
    const float *x = (const float *)left, *y = (const float *)right, *z = (const float *)bias;
    if (by == DYCL_BY_BLAS) {
        dycl_unpacked_blas(a, x, y, z, (float *)to);
        return DYCL_OK;
    }
    if (by == DYCL_BY_TILES) {
        if (dycl_gemv_reads(a))
            dycl_gemv_one(a, x, y, z, (float *)to);
        else
            dycl_product_run(&a->own, x, y, z, (float *)to, work);
        return DYCL_OK;
    }
    if (a->dtype == DYCL_F32 && a->k > 0) {
        dycl_matmul_sides s = dycl_matmul_sides_of(a);
        if (bias) dycl_matmul_put_bias(a, (const float *)bias, (float *)to);
        return dycl_sgemm(s.trans_a, s.trans_b, a->m, a->n, a->k, 1, (const float *)left, s.lda, (const float *)right,
                          s.ldb, bias ? 1 : 0, (float *)to, a->c_row);
    }
    if (a->is_blas)
        dycl_double_run(a, (const double *)left, (const double *)right, (const double *)bias, (double *)to);
    else
        plain_product(a, left, right, bias, to);
    return DYCL_OK;
}

static dycl_status batch(const dycl_matmul_args *a, dycl_matmul_by by, int64_t i, const char *left, const char *right,
                         const char *bias, char *to, char *work) {
    int64_t element = (int64_t)dycl_dtype_size(a->dtype), left_at = 0, right_at = 0, to_at = 0;
    for (int d = a->batch_rank - 1; d >= 0; d--) {
        int64_t index = i % a->batch[d];
        i /= a->batch[d];
        left_at += index * a->a_batch[d];
        right_at += index * a->b_batch[d];
        to_at += index * a->c_batch[d];
    }
    return one(a, by, left + left_at * element, right + right_at * element, bias, to + to_at * element, work);
}

dycl_status dycl_matmul_run(const dycl_step *step, dycl_plan *plan) {
    const dycl_matmul_args *a = step->args;
    return dycl_matmul_run_by(a, plan, (dycl_matmul_by)a->by[0]);
}

dycl_status dycl_matmul_run_by(const dycl_matmul_args *a, dycl_plan *plan, dycl_matmul_by by) {
    const char *left = dycl_at(plan, a->a), *right = dycl_at(plan, a->b),
               *bias = a->has_bias ? dycl_at(plan, a->bias) : NULL;
    char *to = dycl_at(plan, a->c), *work = a->own.kernel ? dycl_at(plan, a->own_work) : NULL;
    dycl_status worst = DYCL_OK;
    if (a->threads < 2 || a->batches < 2) { /* no region around it: inside, a product has one thread */
        for (int64_t i = 0; i < a->batches && worst == DYCL_OK; i++)
            worst = batch(a, by, i, left, right, bias, to, work);
        return worst;
    }
#pragma omp parallel for schedule(static) num_threads(a->threads)
    for (int64_t i = 0; i < a->batches; i++) {
        char *mine = work ? work + (size_t)omp_get_thread_num() * dycl_product_bytes(&a->own) : NULL;
        dycl_status status = batch(a, by, i, left, right, bias, to, mine);
        if (status != DYCL_OK) {
#pragma omp critical(dycl_matmul_status)
            worst = status;
        }
    }
    return worst;
}

#define LEAST_ROWS    48
#define LEAST_COLUMNS 8
#define MUCH          65536 /* elements: packing them takes 10 us */

/* Where few rows share a part of B, packing it takes as long as multiplying by it, and a tile has 16 columns where one
 * is wanted. A BLAS may then be the faster variant, but for vectors, which it is not given. */
static int suits_tiles(const dycl_matmul_args *a) {
    if (dycl_gemv_reads(a)) return 1;
    if (a->batches > 1) return a->m >= LEAST_ROWS && a->n >= LEAST_COLUMNS;
    return (a->m > 1 && a->n > 1) || (a->m + a->n) * a->k < MUCH;
}

dycl_status dycl_matmul_prepare(dycl_builder *b, dycl_matmul_args *a) {
    const dycl_gemm_kernel *kernel = dycl_kern_gemm(dycl_cpu_isa());
    double flops = 2.0 * (double)a->m * (double)a->n * (double)a->k;
    int beside = a->batches > 1 && a->threads > 1;
    if (a->dtype != DYCL_F32 || !kernel || a->k == 0) return DYCL_OK;
    /* A plan's first run takes the tiles that are there: oneDNN's kernels take 30 ms to be made. */
    int suits = b->plan->mode != DYCL_PLAN_TUNED || suits_tiles(a);
    if (!suits && !dycl_unpacked_has_variants(b, a)) return DYCL_OK;
    a->by[0] = suits ? DYCL_BY_TILES : DYCL_BY_SGEMM;
    a->own = (dycl_product){.kernel = kernel,
                            .m = a->m,
                            .n = a->n,
                            .k = a->k,
                            .a_row = a->a_row,
                            .a_column = a->a_column,
                            .b_row = a->b_row,
                            .b_column = a->b_column,
                            .c_row = a->c_row};
    dycl_product_divide(&a->own, beside || flops <= 400000 ? 1 : b->plan->threads);
    return dycl_make_scratch(b, dycl_product_bytes(&a->own) * (size_t)(beside ? a->threads : 1), &a->own_work);
}

/* ---- Packed constants: a oneDNN primitive with its own layout of B, or, until it is worth it, what is above */

static dycl_status packed_run(const dycl_step *step, dycl_plan *plan) {
    const dycl_matmul_args *a = step->args;
    const void *packed;
    dycl_status status = dycl_packing_get(plan, a->packing, NULL, &packed);
    if (status != DYCL_OK) return status;
    if (packed) return dycl_matmul_execute(a, plan, a->prim, packed, a->scratch);
    return dycl_unpacked_run(step, plan);
}

/* Our own packed product (kern/gemm.h). */
static dycl_status gemm_run(const dycl_step *step, dycl_plan *plan) {
    const dycl_matmul_args *a = step->args;
    const void *packed;
    dycl_status status = dycl_packing_get(plan, a->packing, NULL, &packed);
    if (status != DYCL_OK) return status;
    if (!packed) return dycl_unpacked_run(step, plan);

    dycl_gemm_rows rows = {
        .a = dycl_at(plan, a->a), .run = a->m, .runs = 1, .a_row = a->a_row * (int64_t)sizeof(float), .run_inner = 1};
    rows.segment_count = 1;
    rows.depth = a->k;
    rows.unique = a->k * (int64_t)sizeof(float);
    rows.c = dycl_at(plan, a->c);
    rows.c_row = a->c_row;
    dycl_gemm_finish finish = {a->has_bias ? dycl_at(plan, a->bias) : NULL, NULL, -INFINITY, INFINITY};
    dycl_gemm_run(&a->packing->as.gemm, &rows, packed, &finish, a->threads);
    return DYCL_OK;
}

static dycl_status small_run(const dycl_step *step, dycl_plan *plan) {
    const dycl_matmul_args *a = step->args;
    const void *packed;
    dycl_status status = dycl_packing_get(plan, a->packing, NULL, &packed);
    if (status != DYCL_OK) return status;
    if (!packed) return dycl_unpacked_run(step, plan);
    const dycl_small *kernel = a->packing->as.small.kernel;
    const float *left = dycl_at(plan, a->a), *right = packed, *bias = a->has_bias ? dycl_at(plan, a->bias) : NULL;
    float *to = dycl_at(plan, a->c);
    if (a->threads < 2) {
        kernel->run(to, a->c_row, left, a->a_row, right, bias, a->m, a->n, a->k);
        return DYCL_OK;
    }
    int64_t panels = (a->n + kernel->panel - 1) / kernel->panel;
#pragma omp parallel num_threads(a->threads)
    {
        int64_t team = omp_get_num_threads(), self = omp_get_thread_num();
        int64_t from = panels * self / team * kernel->panel, end = panels * (self + 1) / team * kernel->panel;
        if (end > a->n) end = a->n;
        if (end > from)
            kernel->run(to + from, a->c_row, left, a->a_row, right + from * a->k, bias ? bias + from : NULL, a->m,
                        end - from, a->k);
    }
    return DYCL_OK;
}

/* Reading the weights is nearly all that a product of one or two rows does: a team where each has enough of them to
 * read. Below that, steps beside each other (exec/builder/group.c) are the better use of threads. */
static int small_threads(const dycl_matmul_args *a, int most) {
    return dycl_kern_share(a->n * a->k * (int64_t)sizeof(float), 2 * DYCL_BYTES_PER_THREAD, most, most);
}

/* Our own kernel: where one core is enough, and the weights are small, so that a second copy does not matter. There it
 * is at the peak of the core, while every BLAS call has about 0.3 us of its own. */
static int worth_small(const dycl_matmul_args *a) {
    double products = (double)a->m * (double)a->n * (double)a->k;
    return a->m <= 32 && products <= 550000 && a->n * a->k <= 262144 && a->k > 0 && (a->a_column == 1 || a->k == 1);
}

/* Measured on Zen 4, one and two threads. When the rows of B are contiguous, dnnl_sgemm is as fast as packed weights
 * at every size: no primitive. A linear's weights are the other way round. Packing gains 10 to 60 % from 9 rows on,
 * with long rows from 3 on (one or two run at the memory's speed anyway), and a primitive without packing gains from
 * about 16 rows on. */
static int worth_packing(const dycl_matmul_args *a) {
    return a->b_column != 1 && (a->m > 8 || (a->m > 2 && a->k >= 512)) && a->n >= 16 && a->k >= 16;
}
/* Our own packed product runs at 0.8 to 0.9 of the multiply-add units' peak from 9 rows on (oneDNN's at 0.6 on a server
 * with AVX-512, MKL's at 0.75), with long rows from 3 on, whichever way B lies. */
static int worth_gemm(const dycl_matmul_args *a) {
    return (a->m > 8 || (a->m > 2 && a->k >= 512)) && a->n >= 16 && a->k >= 16 && (a->a_column == 1 || a->k == 1);
}
static int worth_primitive(const dycl_matmul_args *a) {
    return a->b_column != 1 && a->m >= 16 && a->n >= 32 && a->k >= 32;
}

int dycl_matmul_may_pack(const dycl_builder *b, dycl_ref ref) {
    const dycl_graph *g = &b->program->graph;
    return dycl_make_may_pack(b) && ref.slot < g->value_count && g->values[ref.slot].kind == DYCL_VALUE_FEED;
}

/* From the first element of a batch of matrices to one past the last. */
static size_t matrices_bytes(const dycl_matmul_args *a, const int64_t *batch, int64_t rows, int64_t row,
                             int64_t columns, int64_t column) {
    int64_t last = (rows - 1) * row + (columns - 1) * column;
    if (rows == 0 || columns == 0) return 0;
    for (int d = 0; d < a->batch_rank; d++) last += (a->batch[d] - 1) * batch[d];
    return (size_t)(last + 1) * dycl_dtype_size(a->dtype);
}

size_t dycl_matmul_result_bytes(const dycl_matmul_args *a) {
    return matrices_bytes(a, a->c_batch, a->m, a->c_row, a->n, 1);
}

void dycl_matmul_touches(dycl_builder *b, const dycl_matmul_args *a) {
    dycl_make_read_at(b, a->a, matrices_bytes(a, a->a_batch, a->m, a->a_row, a->k, a->a_column));
    dycl_make_read_at(b, a->b, matrices_bytes(a, a->b_batch, a->k, a->b_row, a->n, a->b_column));
    if (a->has_bias) dycl_make_read_at(b, a->bias, (size_t)a->n * dycl_dtype_size(a->dtype));
}

dycl_status dycl_matmul_choose(dycl_builder *b, dycl_matmul_args *a) {
    double flops = 2.0 * (double)a->m * (double)a->n * (double)a->k * (double)a->batches;
    a->unpacked = NULL;
    double cost = 300.0 * (double)a->batches + flops / 80 / (flops > 4e6 ? b->plan->threads : 1);
    dycl_step_fn run = dycl_matmul_run;
    a->is_blas = dycl_double_suits(a);
    const char *kernel = a->dtype == DYCL_F32 ? "product as it lies" : a->is_blas ? "torch's BLAS" : "loops";
    dycl_status status;
    a->threads = cost > 40000 ? b->plan->threads : 1;
    if (a->threads > a->batches) a->threads = (int)a->batches;
    if (a->batches > 1 && a->threads < b->plan->threads) a->threads = 1; /* few large ones: each is parallel inside */
    dycl_matmul_touches(b, a);
    dycl_make_write_at(b, a->c, dycl_matmul_result_bytes(a));
    if (dycl_matmul_may_pack(b, a->b) && dycl_bf16_suits(b, a)) return dycl_make_bf16(b, a);
    if (b->plan->mode == DYCL_PLAN_TUNED && a->dtype == DYCL_F32 && a->batches == 1 && dycl_matmul_may_pack(b, a->b) &&
        worth_small(a)) {
        dycl_tensor w = {.ref = a->b};
        const dycl_weights as = {.kind = DYCL_WEIGHTS_SMALL,
                                 .small = {dycl_kern_small(dycl_cpu_isa()), a->n, a->k, a->b_row, a->b_column}};
        DYCL_TRY(dycl_make_packing(b, &w, &as, 0, &a->packing));
        a->packing->patient = 1;
        a->threads = small_threads(a, b->plan->threads);
        run = small_run;
        kernel = "small product";
        double reading = (double)(a->n * a->k) * sizeof(float) / 40;
        cost = 100 + (flops / 110 > reading ? flops / 110 : reading);
    } else if (dycl_gemv_suits(a)) {
        return dycl_make_gemv(b, a);
    } else if (b->plan->mode == DYCL_PLAN_TUNED && a->dtype == DYCL_F32 && a->batches == 1 && a->k > 0) {
        if (worth_primitive(a)) {
            status = dycl_matmul_try_primitive(b, a, 0, &a->plain, &a->plain_scratch);
            if (status == DYCL_ERROR) return status;
            if (status == DYCL_OK) {
                run = dycl_unpacked_run;
                kernel = "product";
            }
        }
        const dycl_gemm_kernel *own = dycl_kern_gemm(dycl_cpu_isa());
        if (own && dycl_matmul_may_pack(b, a->b) && worth_gemm(a)) {
            dycl_tensor w = {.ref = a->b};
            const dycl_weights as = {
                .kind = DYCL_WEIGHTS_GEMM, /* one form for every number of rows */
                .gemm = {own, a->n, {1, 1, a->k}, {0, 0, a->b_row}, a->b_column, dycl_gemm_vectors(own, 128, a->n)}};
            DYCL_TRY(dycl_make_packing(b, &w, &as, 0, &a->packing));
            a->packing->patient = 1;
            a->threads = flops > 400000 ? b->plan->threads : 1;
            run = gemm_run;
            kernel = "packed product";
            cost = 200 + flops / 180 / a->threads;
        } else if (dycl_matmul_may_pack(b, a->b) && worth_packing(a)) {
            status = dycl_matmul_offer_packed(b, a);
            if (status == DYCL_ERROR) return status;
            if (status == DYCL_OK) {
                run = packed_run;
                kernel = "packed product";
            }
        }
    }
    DYCL_TRY(dycl_matmul_prepare(b, a));
    if (run == dycl_matmul_run && a->dtype == DYCL_F32) run = dycl_unpacked_run;
    DYCL_TRY(dycl_make_step(b, run, a, kernel, cost));
    DYCL_TRY(dycl_unpacked_offer(b, a));
    const dycl_prim *prim = run == packed_run ? a->prim : run == dycl_unpacked_run ? a->plain : NULL;
    if (prim)
        b->plan->infos[b->plan->step_count - 1].prim = prim;
    else if (a->dtype == DYCL_F32 && a->threads == 1)
        dycl_make_serial(b);
    return DYCL_OK;
fail:
    return status;
}
