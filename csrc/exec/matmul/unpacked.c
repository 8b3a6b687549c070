#include "exec/matmul/matmul.h"

#include <limits.h>

#include "base/host.h"
#include "base/sigstack.h"

/* Products whose right side is not packed, because it is no constant or not known to be one yet: by tiles of ours,
 * those of the BLAS that torch brings, or a primitive of oneDNN's. None is the fastest everywhere, so it is measured.
 */
#define LEAST_FLOPS 1e5

enum { MOST_VARIANTS = 3 };
static const char *const names[2][2][MOST_VARIANTS] = {/* without tiles for this ISA, with; without a BLAS, with */
                                                       {{"sgemm", "oneDNN"}, {"sgemm", "torch's BLAS", "oneDNN"}},
                                                       {{"own", "oneDNN"}, {"own", "torch's BLAS", "oneDNN"}}};

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

static void blas(const dycl_matmul_args *a, dycl_plan *plan) {
    side left, right;
    float one = 1, beta = a->has_bias ? 1 : 0, *to = dycl_at(plan, a->c);
    describe_both(a, &left, &right);
    if (a->has_bias) dycl_matmul_put_bias(a, dycl_at(plan, a->bias), to);
    dycl_sigstack_need();
    dycl_host_functions.sgemm(&right.trans, &left.trans, &a->n, &a->m, &a->k, &one, dycl_at(plan, a->b), &right.leading,
                              dycl_at(plan, a->a), &left.leading, &beta, to, &a->c_row);
}

dycl_status dycl_unpacked_run(const dycl_step *step, dycl_plan *plan) {
    const dycl_matmul_args *a = step->args;
    dycl_status status = DYCL_OK;
    uint64_t began;
    int variant = dycl_autotune_next(a->unpacked, &began);
    if (variant == 0)
        status = dycl_matmul_run(step, plan);
    else if (variant == 1 && a->has_blas)
        blas(a, plan);
    else
        status = dycl_matmul_execute(a, plan, a->plain, dycl_at(plan, a->b), a->plain_scratch);
    if (began) dycl_autotune_note(a->unpacked, variant, began);
    return status;
}

static int has_blas(const dycl_matmul_args *a) {
    side left, right;
    return dycl_host_functions.sgemm && a->m <= INT_MAX && a->n <= INT_MAX && a->k <= INT_MAX && a->c_row >= a->n &&
           a->c_row <= INT_MAX && describe_both(a, &left, &right);
}

dycl_status dycl_unpacked_offer(dycl_builder *b, dycl_matmul_args *a) {
    if (b->plan->mode != DYCL_PLAN_TUNED || a->dtype != DYCL_F32 || a->batches != 1 ||
        2.0 * (double)a->m * (double)a->n * (double)a->k < LEAST_FLOPS)
        return DYCL_OK;
    a->has_blas = has_blas(a);
    int variants = 1 + a->has_blas + (a->plain != NULL);
    a->unpacked = dycl_autotune_get(variants, names[a->own.kernel != NULL][a->has_blas], b->plan->threads,
                                    "product %lldx%lldx%lld %lld,%lld %lld,%lld", (long long)a->m, (long long)a->k,
                                    (long long)a->n, (long long)a->a_row, (long long)a->a_column, (long long)a->b_row,
                                    (long long)a->b_column);
    dycl_status status = dycl_make_autotune(b, a->unpacked);
    if (a->packing) b->plan->infos[b->plan->step_count - 1].autotune = NULL; /* it does not say what runs later */
    return status;
}
