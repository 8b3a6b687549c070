#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "exec/builder/builder.h"
#include "exec/builder/weights_choice.h"
#include "kern/gemv.h"
#include "kern/parallel.h"

/* Products of groups of rows, each with weights of its own: the experts of a mixture. A token or two use few of them,
 * and reading their weights is what takes the time. */

typedef struct {
    dycl_ref x, weights, ends, to;
    int64_t rows, k, n, groups, x_row, group_stride, w_row, w_column;
    int threads; /* for groups of few rows */
    dycl_weights_choice narrow;
} grouped_args;

/* A bound as torch.Tensor.slice takes it: from the end when negative, and never out of the tensor. */
static int64_t bound(int64_t at, int64_t rows) {
    if (at < 0) at += rows;
    return at < 0 ? 0 : at > rows ? rows : at;
}

/* Rows [first, end) with the weights of group g; 0 rows: none. */
static int64_t rows_of(const grouped_args *a, const int32_t *ends, int64_t g, int64_t *first) {
    int64_t end = bound(ends[g], a->rows);
    *first = bound(g ? ends[g - 1] : 0, a->rows);
    return end > *first ? end - *first : 0;
}

#define MORE_ROWS                                                                                                      \
    32 /* where a group's weights are larger than the second cache: reading them, once, still takes most of the time   \
        */
#define COLUMNS 48 /* of a group's weights that stay in a cache while the rows pass by */

static int is_few(const grouped_args *a, int64_t rows) {
    int large = a->n * a->k * (int64_t)sizeof(float) >= dycl_cpu_cache();
    return rows > 0 && rows <= (large ? MORE_ROWS : DYCL_GEMV_ROWS) && a->w_row == 1;
}

static dycl_status many_rows(const grouped_args *a, const float *x, const float *weights, int64_t g, int64_t rows,
                             float *to) {
    int trans = a->w_column != 1;
    return dycl_sgemm(0, trans, rows, a->n, a->k, 1, x, a->x_row, weights + g * a->group_stride,
                      trans ? a->w_column : a->w_row, 0, to, a->n);
}

/* Columns [from, end) of a group of few rows. */
static void few_rows(const grouped_args *a, const dycl_narrow_header *packed, const float *x, const float *weights,
                     int64_t g, int64_t rows, float *to, int64_t from, int64_t end) {
    if (packed && rows <= DYCL_NARROW_ROWS) { /* the groups' columns follow one another */
        const dycl_narrow n = {.a = x,
                               .packed = packed,
                               .c = to,
                               .first = g * a->n,
                               .lda = a->x_row,
                               .ldc = a->n,
                               .k = a->k,
                               .m = (int)rows};
        dycl_kern_narrow(dycl_cpu_isa())->run(&n, from, end);
        return;
    }
    dycl_gemv v = {
        .b = weights + g * a->group_stride, .lda = a->x_row, .ldb = a->w_column, .ldc = a->n, .n = a->n, .k = a->k};
    int64_t step = rows <= DYCL_GEMV_ROWS ? end - from : COLUMNS, turns = rows / DYCL_GEMV_ROWS;
    for (int64_t column = from; column < end; column += step) {
        int64_t last = end - column < step ? end : column + step,
                part = turns ? (last - column) * a->w_column * (int64_t)sizeof(float) / turns : 0;
        const char *next =
            (const char *)(v.b + last * a->w_column); /* behind the last column: another group's, perhaps */
        for (int64_t row = 0; row < rows; row += v.m) {
            v.m = (int)(rows - row < DYCL_GEMV_ROWS ? rows - row : DYCL_GEMV_ROWS);
            v.a = x + row * a->x_row;
            v.c = to + row * a->n;
            v.next = rows > DYCL_GEMV_ROWS ? next + row / DYCL_GEMV_ROWS * part : NULL;
            v.next_step = part / ((last - column) * a->k / 96 + 1); /* six columns and sixteen elements at once */
            if (v.next_step > 128) v.next_step = 128;
            dycl_kern_gemv(dycl_cpu_isa())->dot(&v, column, last);
        }
    }
}

static dycl_status grouped_run(const dycl_step *step, dycl_plan *plan) {
    const grouped_args *a = step->args;
    const float *x = dycl_at(plan, a->x), *weights = dycl_at(plan, a->weights);
    const int32_t *ends = dycl_at(plan, a->ends);
    float *to = dycl_at(plan, a->to);
    int64_t written = 0, first, few = 0, many = 0;
    int ascending = ends[0] >= 0;
    dycl_weights_run run = {0};
    dycl_status status = DYCL_OK;
    for (int64_t g = 1; g < a->groups; g++)
        ascending &= ends[g] >= ends[g - 1]; /* else groups share rows, and their order counts */
    for (int64_t g = 0; g < a->groups; g++) {
        int64_t rows = rows_of(a, ends, g, &first);
        if (!rows) continue;
        if (first > written) memset(to + written * a->n, 0, (size_t)((first - written) * a->n) * sizeof *to);
        if (first + rows > written) written = first + rows;
        many += rows > DYCL_GEMV_ROWS;
        if (ascending && is_few(a, rows))
            few++;
        else
            DYCL_TRY(many_rows(a, x + first * a->x_row, weights, g, rows, to + first * a->n));
    }
    if (written < a->rows) memset(to + written * a->n, 0, (size_t)((a->rows - written) * a->n) * sizeof *to);
    if (!few) return DYCL_OK;
    DYCL_TRY(dycl_weights_begin(&a->narrow, plan, &run));
#pragma omp parallel num_threads(a->threads) if (a->threads > 1)
    {
        int64_t team = omp_get_num_threads(), self = omp_get_thread_num(), begin;
        for (int64_t g = 0; g < a->groups; g++) {
            int64_t rows = rows_of(a, ends, g, &begin);
            if (is_few(a, rows))
                few_rows(a, run.packed, x + begin * a->x_row, weights, g, rows, to + begin * a->n, a->n * self / team,
                         a->n * (self + 1) / team);
        }
    }
    if (many) run.began = 0; /* another mixture of groups each time */
    dycl_weights_end(&a->narrow, &run);
fail:
    return status;
}

dycl_status dycl_steps_grouped(dycl_builder *b, const dycl_block *block) {
    const dycl_node *node = &b->program->graph.nodes[block->first];
    const uint32_t *operands = dycl_node_operands(&b->program->graph, node);
    dycl_tensor x, w, ends, to;
    dycl_status status;
    grouped_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    dycl_make_tensor(b, operands[0], &x);
    if (x.strides[1] != 1 || x.strides[0] < x.sizes[1]) DYCL_TRY(dycl_make_contiguous(b, operands[0], &x));
    dycl_make_tensor(b, operands[1], &w);
    int rows = w.strides[2] == 1 && w.strides[1] >= w.sizes[2],
        columns = w.strides[1] == 1 && w.strides[2] >= w.sizes[1];
    if (!rows && !columns) DYCL_TRY(dycl_make_contiguous(b, operands[1], &w));
    DYCL_TRY(dycl_make_contiguous(b, operands[2], &ends));
    DYCL_TRY(dycl_make_target(b, node->out, &to));
    a->x = x.ref;
    a->weights = w.ref;
    a->ends = ends.ref;
    a->to = to.ref;
    a->rows = x.sizes[0];
    a->k = x.sizes[1];
    a->n = w.sizes[2];
    a->groups = w.sizes[0];
    a->x_row = x.strides[0];
    a->group_stride = w.strides[0];
    a->w_row = w.strides[1];
    a->w_column = w.strides[2];
    dycl_make_read(b, &x);
    dycl_make_read(b, &w);
    dycl_make_read(b, &ends);
    dycl_make_write(b, &to);
    double flops = 2.0 * (double)a->rows * (double)a->k * (double)a->n;
    a->threads = a->n * a->k >= 2 * DYCL_BYTES_PER_THREAD / (int64_t)sizeof(float) ? b->plan->threads : 1;
    DYCL_TRY(dycl_make_step(b, grouped_run, a, "grouped product", 300.0 * (double)a->groups + flops / 80));
    const dycl_narrow_layout form = {a->groups * a->n, a->k, 1, a->w_column};
    if (a->w_row == 1 && a->group_stride == a->n * a->w_column && a->rows <= a->groups * DYCL_GEMV_ROWS) {
        char key[48];
        snprintf(key, sizeof key, "grouped m%lld groups%lld", (long long)a->rows, (long long)a->groups);
        DYCL_TRY(dycl_weights_offer_narrow(b, a->weights, &form, a->threads, key, &a->narrow));
    }
    return dycl_make_finish(b, node->out, &to);
fail:
    return status;
}
