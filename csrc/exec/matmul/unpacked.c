#include "exec/matmul/matmul.h"

#include <limits.h>

#include "base/host.h"
#include "base/sigstack.h"

/* Products whose right side is not packed, because it is no constant or not known to be one yet: by tiles of ours,
 * those of the BLAS that torch brings, or a primitive of oneDNN's. None is the fastest everywhere, so it is measured.
 */
#define LEAST_FLOPS 1e5

enum { MOST_VARIANTS = 3 };
static const char *const names[] = {[DYCL_BY_SGEMM] = "sgemm",
                                    [DYCL_BY_TILES] = "own",
                                    [DYCL_BY_BLAS] = "torch's BLAS",
                                    [DYCL_BY_PRIMITIVE] = "oneDNN"};

typedef struct {
    char trans; /* of Fortran, whose matrices are ours transposed */
    int64_t leading;
} side;

/* 0: it has no leading dimension. */
static int describe(int64_t rows, int64_t columns, int64_t row, int64_t column, side *out) {
    int64_t leading = column == 1 ? row : column;
    if (rows < 2 || columns < 2 || (column != 1 && row != 1)) return 0;
    if (leading < (column == 1 ? columns : rows) || leading > INT_MAX) return 0;
    *out = (side){column == 1 ? 'N' : 'T', leading};
    return 1;
}

static int describe_both(const dycl_matmul_args *a, side *left, side *right) {
    return describe(a->m, a->k, a->a_row, a->a_column, left) && describe(a->k, a->n, a->b_row, a->b_column, right);
}

void dycl_unpacked_blas(const dycl_matmul_args *a, const float *left, const float *right, const float *bias,
                        float *to) {
    side x, y;
    float one = 1, beta = a->has_bias ? 1 : 0;
    describe_both(a, &x, &y);
    if (a->has_bias) dycl_matmul_put_bias(a, bias, to);
    dycl_sigstack_need();
    dycl_host_functions.sgemm(&y.trans, &x.trans, &a->n, &a->m, &a->k, &one, right, &y.leading, left, &x.leading, &beta,
                              to, &a->c_row);
}

dycl_status dycl_unpacked_run(const dycl_step *step, dycl_plan *plan) {
    const dycl_matmul_args *a = step->args;
    dycl_status status;
    uint64_t began;
    int variant = dycl_autotune_next(a->unpacked, &began);
    dycl_matmul_by by = (dycl_matmul_by)a->by[variant];
    if (by == DYCL_BY_PRIMITIVE)
        status = dycl_matmul_execute(a, plan, a->plain, dycl_at(plan, a->b), a->plain_scratch);
    else
        status = dycl_matmul_run_by(a, plan, by);
    if (began) dycl_autotune_note(a->unpacked, variant, began);
    return status;
}

static int has_blas(const dycl_matmul_args *a) {
    side left, right;
    return dycl_host_functions.sgemm && a->m <= INT_MAX && a->n <= INT_MAX && a->k <= INT_MAX && a->c_row >= a->n &&
           a->c_row <= INT_MAX && describe_both(a, &left, &right);
}

int dycl_unpacked_has_variants(const dycl_builder *b, const dycl_matmul_args *a) {
    double flops = 2.0 * (double)a->m * (double)a->n * (double)a->k * (double)a->batches;
    return b->plan->mode == DYCL_PLAN_TUNED && a->dtype == DYCL_F32 && flops >= LEAST_FLOPS &&
           (a->batches == 1 || !dycl_gemv_reads(a));
}

dycl_status dycl_unpacked_offer(dycl_builder *b, dycl_matmul_args *a) {
    const char *said[MOST_VARIANTS];
    int count = 1;
    if (!dycl_unpacked_has_variants(b, a)) return DYCL_OK;
    if (has_blas(a)) a->by[count++] = DYCL_BY_BLAS;
    if (a->plain)
        a->by[count++] = DYCL_BY_PRIMITIVE;
    else if (a->own.kernel && a->by[0] != DYCL_BY_TILES)
        a->by[count++] = DYCL_BY_TILES;
    for (int i = 0; i < count; i++) said[i] = names[a->by[i]];
    a->unpacked =
        dycl_autotune_get(count, said, b->plan->threads, "product %lldx%lldx%lld %lld,%lld %lld,%lld of %lld",
                          (long long)a->m, (long long)a->k, (long long)a->n, (long long)a->a_row,
                          (long long)a->a_column, (long long)a->b_row, (long long)a->b_column, (long long)a->batches);
    dycl_status status = dycl_make_autotune(b, a->unpacked);
    if (a->packing) b->plan->infos[b->plan->step_count - 1].autotune = NULL; /* it does not say what runs later */
    return status;
}
