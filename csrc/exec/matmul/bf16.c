#include "exec/matmul/matmul.h"
#include "kern/parallel.h"

#include <omp.h>
#include <string.h>

/* Products with a constant in bfloat16: few rows by our own kernel, which leaves A as it is, more by oneDNN after A has
 * been rounded too. What turns out not to be a constant is multiplied in f32. */

typedef struct {
    dycl_matmul_args product; /* first, for dycl_matmul_run */
    dycl_ref rounded;         /* A in bfloat16 */
} bf16_args;

dycl_status dycl_bf16_run(const dycl_step *step, dycl_plan *plan) {
    const dycl_matmul_args *a = step->args;
    const void *packed;
    dycl_status status = dycl_packing_get(plan, a->packing, NULL, &packed);
    if (status != DYCL_OK) return status;
    if (!packed) return dycl_matmul_run(step, plan);
    const float *left = dycl_at(plan, a->a), *bias = a->has_bias ? dycl_at(plan, a->bias) : NULL;
    const uint16_t *right = packed;
    float *to = dycl_at(plan, a->c);
    if (a->threads < 2) {
        dycl_bf16_rows__avx512(to, a->c_row, left, a->a_row, right, bias, a->m, a->n, a->k);
        return DYCL_OK;
    }
#pragma omp parallel num_threads(a->threads)
    {
        int64_t team = omp_get_num_threads(), self = omp_get_thread_num();
        int64_t from = dycl_bf16_part(a->n, self, team), end = dycl_bf16_part(a->n, self + 1, team);
        if (end > from)
            dycl_bf16_rows__avx512(to + from, a->c_row, left, a->a_row, dycl_bf16_panel(right, from, a->k),
                                   bias ? bias + from : NULL, a->m, end - from, a->k);
    }
    return DYCL_OK;
}

static dycl_status many_run(const dycl_step *step, dycl_plan *plan) {
    const bf16_args *args = step->args;
    const dycl_matmul_args *a = &args->product;
    const void *packed;
    dycl_status status = dycl_packing_get(plan, a->packing, NULL, &packed);
    if (status != DYCL_OK) return status;
    if (!packed) return dycl_matmul_run(step, plan);
    uint16_t *rounded = dycl_at(plan, args->rounded);
    dycl_bf16_round(rounded, dycl_at(plan, a->a), a->m, a->k, a->a_row, a->a_column,
                    dycl_kern_threads((size_t)(a->m * a->k) * 6));
    dycl_prim_args x = {.src = rounded,
                        .weights = packed,
                        .bias = a->has_bias ? dycl_at(plan, a->bias) : NULL,
                        .dst = dycl_at(plan, a->c),
                        .scratch = dycl_at(plan, a->scratch)};
    return dycl_prim_execute(a->prim, &x);
}

int dycl_bf16_suits(const dycl_builder *b, const dycl_matmul_args *a) {
    return b->program->graph.options & DYCL_OPTION_BF16 && b->plan->mode == DYCL_PLAN_TUNED && a->dtype == DYCL_F32 &&
           a->batches == 1 && a->k > 0 && dycl_cpu_bf16();
}

/* Where reading B is what takes the time, or where it is so small that calling oneDNN would. */
static int is_few(const dycl_matmul_args *a) {
    int small = a->m <= 32 && (double)a->m * (double)a->n * (double)a->k <= 550000;
    return (a->m <= 4 || small) && (a->a_column == 1 || a->k == 1);
}

static dycl_status try_primitive(dycl_builder *b, bf16_args *args) {
    dycl_matmul_args *a = &args->product;
    dycl_matmul_desc d;
    dycl_status status;
    memset(&d, 0, sizeof d);
    d.m = a->m;
    d.n = a->n;
    d.k = a->k;
    d.a_strides[0] = a->k;
    d.a_strides[1] = 1;
    d.b_strides[0] = a->b_row;
    d.b_strides[1] = a->b_column;
    d.c_strides[0] = a->c_row;
    d.c_strides[1] = 1;
    d.bias = a->has_bias;
    d.bf16 = d.pack_b = 1;
    DYCL_TRY(dycl_prim_matmul(&d, &a->prim));
    DYCL_TRY(dycl_make_prim(b, a->prim));
    if (!dycl_prim_weights_bytes(a->prim)) return DYCL_BAIL;
    DYCL_TRY(dycl_make_scratch(b, dycl_prim_scratch(a->prim), &a->scratch));
    status = dycl_make_scratch(b, (size_t)(a->m * a->k) * sizeof(uint16_t), &args->rounded);
fail:
    return status;
}

static void share(const dycl_builder *b, dycl_matmul_args *a) {
    a->threads = dycl_kern_share(a->n * a->k, DYCL_BYTES_PER_THREAD, (a->n + DYCL_BF16_PANEL - 1) / DYCL_BF16_PANEL,
                                 b->plan->threads);
}

dycl_status dycl_bf16_offer(dycl_builder *b, dycl_matmul_args *a) {
    dycl_tensor w = {.ref = a->b};
    const dycl_weights as = {.kind = DYCL_WEIGHTS_BF16, .bf16 = {a->n, a->k, a->b_row, a->b_column, 0}};
    share(b, a);
    return dycl_make_packing(b, &w, &as, 0, &a->packing);
}

dycl_status dycl_make_bf16(dycl_builder *b, dycl_matmul_args *product) {
    dycl_status status;
    bf16_args *args = dycl_plan_alloc(b->plan, sizeof *args);
    if (!args) return DYCL_ERROR;
    args->product = *product;
    dycl_matmul_args *a = &args->product;
    dycl_tensor w = {.ref = a->b};
    int few = is_few(a);
    double flops = 2 * (double)a->m * (double)a->n * (double)a->k, bytes = (double)a->n * (double)a->k * 2;
    DYCL_TRY(dycl_matmul_prepare(b, a)); /* until it is packed */
    if (!few) {
        status = try_primitive(b, args);
        if (status == DYCL_ERROR) return status;
        few = status == DYCL_BAIL; /* a shape that oneDNN has only slow loops for */
        if (few && a->a_column != 1 && a->k != 1)
            return dycl_make_step(b, dycl_matmul_run, args, "product as it lies", 300 + flops / 80);
    }
    if (few) {
        DYCL_TRY(dycl_bf16_offer(b, a));
    } else {
        DYCL_TRY(dycl_matmul_make_packing(b, a, &w));
        share(b, a);
    }
    double computing = flops / 100 / a->threads, reading = bytes / 16 / a->threads;
    if (few)
        DYCL_TRY(
            dycl_make_step(b, dycl_bf16_run, args, "bf16 gemv", 100 + (computing > reading ? computing : reading)));
    else
        DYCL_TRY(dycl_make_step(b, many_run, args, "bf16 product", 500 + flops / 400));
    if (few && a->threads == 1) dycl_make_serial(b);
    if (!few) b->plan->infos[b->plan->step_count - 1].prim = a->prim;
    return DYCL_OK;
fail:
    return status;
}
