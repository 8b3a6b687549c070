#include "exec/matmul/matmul.h"
#include "kern/bf16.h"
#include "kern/gemv.h"
#include "kern/parallel.h"
#include "kern/red.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>

/* The places of the largest elements of a product's rows, without all of the product where its weights can be kept in 8
 * bits (kern/prefilter.h). */

#define MOST_ABOVE 16 /* one column of so many: from there on all of the product costs little more */
#define MOST_PAUSE 6  /* runs, as a power of two, in which it is not tried after rows that leave many columns */

typedef struct {
    float floor[DYCL_PREFILTER_ROWS], best[DYCL_PREFILTER_ROWS];
    int64_t at[DYCL_PREFILTER_ROWS];
    int many;
    char apart[60];
} finding; /* of one thread */

typedef struct {
    dycl_matmul_args product; /* first: those of the step that computes all of it, into memory that nobody else sees */
    dycl_weights_choice choice;
    dycl_ref out, columns, findings, rows; /* rows: of B as bfloat16 has them, one a thread */
    dycl_ref wide;                         /* A in f32, where all is bfloat16 in memory */
    int rounded;                           /* the model asked for bfloat16 */
    int half;                              /* all is bfloat16 in memory, and so is what is compared */
    int failures, pause;
} prefilter_args;

/* Ties go to the first, and a NaN counts as the largest, as in torch. */
static int is_better(float x, float best, int64_t at) { return at < 0 || x > best || (x != x && best == best); }

static const float *rounded(const float *column, float *to, int64_t k) {
    for (int64_t p = 0; p < k; p++) to[p] = dycl_bf16_float(dycl_bf16_of(column[p]));
    return to;
}

/* row: room for one of B, or NULL: as they are. */
static void look_at(const prefilter_args *a, const dycl_prefilter *g, const void *b, float *row, finding *mine,
                    const uint32_t *columns, int64_t count, int i) {
    const dycl_gemv_table *table = dycl_kern_gemv(dycl_cpu_isa());
    mine->at[i] = -1;
    for (int64_t c = 0; c < count; c++) {
        float x;
        int64_t j = columns[c], at = j * a->product.b_column;
        const void *column = a->half ? (const void *)((const uint16_t *)b + at) : (const float *)b + at;
        const dycl_gemv v = {.a = g->a + i * g->lda,
                             .b = row ? rounded(column, row, g->k) : column,
                             .bias = g->bias ? g->bias + j : NULL,
                             .c = &x,
                             .lda = g->lda,
                             .ldb = a->product.b_column,
                             .ldc = 1,
                             .n = 1,
                             .k = g->k,
                             .m = 1};
        (a->half ? table->bf16.dot : table->dot)(&v, 0, 1);
        if (a->half) x = dycl_half_round(DYCL_BF16, x);
        if (!is_better(x, mine->best[i], mine->at[i])) continue;
        mine->best[i] = x;
        mine->at[i] = j;
    }
}

/* What the other elements have to reach: those that are rounded to the same number count, too, as the first of equals
 * is the answer. Numbers of 8 bits are at most 2^-7 of their size apart. */
static float rounded_floor(float floor) { return floor - fabsf(floor) * 0x1.02p-7f - 0x1p-126f; }

static const float *widened(const prefilter_args *a, dycl_plan *plan) {
    const dycl_matmul_args *p = &a->product;
    const uint16_t *from = dycl_at(plan, p->a);
    float *to = dycl_at(plan, a->wide);
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t k = 0; k < p->k; k++) to[i * p->k + k] = dycl_bf16_float(from[i * p->a_row + k]);
    return to;
}

/* 0: too many columns may hold the largest element. */
static int prefiltered(const prefilter_args *a, dycl_plan *plan, const dycl_prefilter_header *packed) {
    const dycl_matmul_args *p = &a->product;
    const dycl_prefilter_table *table = dycl_kern_prefilter(dycl_cpu_isa());
    const void *b = dycl_at(plan, p->b);
    float *rows = a->rounded ? dycl_at(plan, a->rows) : NULL;
    uint32_t *columns = dycl_at(plan, a->columns);
    finding *findings = dycl_at(plan, a->findings);
    int64_t *out = dycl_at(plan, a->out);
    dycl_prefilter g = {.a = a->half ? widened(a, plan) : dycl_at(plan, p->a),
                        .bias = p->has_bias ? dycl_at(plan, p->bias) : NULL,
                        .packed = packed,
                        .c = dycl_at(plan, p->c),
                        .lda = a->half ? p->k : p->a_row,
                        .ldc = p->c_row,
                        .k = p->k,
                        .m = (int)p->m};
    int many = 0, members = 1;
    for (int i = 0; i < g.m; i++)
        if (!((g.norm[i] = dycl_prefilter_norm(g.a + i * g.lda, g.k)) < INFINITY)) return 0;
#pragma omp parallel num_threads(p->threads) if (p->threads > 1)
    {
        int team = omp_get_num_threads(), self = omp_get_thread_num();
        int64_t from = p->n * self / team, end = p->n * (self + 1) / team;
        finding *mine = &findings[self];
        table->scores(&g, from, end, mine->floor);
        mine->many = 0;
        if (self == 0) members = team;
#pragma omp barrier
        for (int i = 0; i < g.m; i++) {
            float floor = -INFINITY;
            for (int t = 0; t < team; t++) floor = findings[t].floor[i] > floor ? findings[t].floor[i] : floor;
            if (a->half) floor = rounded_floor(floor);
            int64_t count = table->above(&g, i, floor, from, end, columns + from);
            if (count > p->n / MOST_ABOVE / team)
                mine->many = 1;
            else
                look_at(a, &g, b, rows ? rows + self * p->k : NULL, mine, columns + from, count, i);
        }
    }
    for (int t = 0; t < members; t++) many |= findings[t].many;
    for (int i = 0; i < g.m && !many; i++) {
        const finding *best = &findings[0];
        for (int t = 1; t < members; t++)
            if (findings[t].at[i] >= 0 && is_better(findings[t].best[i], best->best[i], best->at[i]))
                best = &findings[t];
        out[i] = best->at[i];
        many = best->at[i] < 0;
    }
    return !many;
}

static void all_in_half(const prefilter_args *a, dycl_plan *plan) {
    const dycl_matmul_args *p = &a->product;
    const dycl_gemv g = {.a = widened(a, plan),
                         .b = dycl_at(plan, p->b),
                         .c = dycl_at(plan, p->c),
                         .lda = p->k,
                         .ldb = p->b_column,
                         .ldc = p->c_row,
                         .n = p->n,
                         .k = p->k,
                         .m = (int)p->m};
    const dycl_gemv_fn run = dycl_kern_gemv(dycl_cpu_isa())->bf16.dot;
    const dycl_ew_fn round = dycl_kern_round(dycl_cpu_isa(), DYCL_BF16);
#pragma omp parallel num_threads(p->threads) if (p->threads > 1)
    {
        int team = omp_get_num_threads(), self = omp_get_thread_num();
        int64_t from = p->n * self / team, end = p->n * (self + 1) / team;
        run(&g, from, end);
        for (int64_t i = 0; i < p->m; i++) {
            float *row = g.c + i * p->c_row + from;
            round(row, row, NULL, NULL, (size_t)(end - from));
        }
    }
}

static dycl_status all_of_it(const prefilter_args *a, const dycl_step *step, dycl_plan *plan) {
    const dycl_matmul_args *p = &a->product;
    const dycl_red_fn argmax = dycl_kern_red_table(dycl_cpu_isa())->red[DYCL_RED_ARGMAX][DYCL_F32];
    dycl_status status = DYCL_OK;
    if (a->half)
        all_in_half(a, plan);
    else if (a->rounded)
        DYCL_TRY(dycl_bf16_run(step, plan));
    else if (!a->choice.autotune || dycl_autotune_is(a->choice.autotune, DYCL_WEIGHTS_AS_THEY_LIE))
        DYCL_TRY(dycl_gemv_run(step, plan)); /* in fewer bits, perhaps */
    else
        dycl_gemv_as_it_lies(p, plan);
    for (int64_t i = 0; i < p->m; i++)
        argmax((int64_t *)dycl_at(plan, a->out) + i, (const float *)dycl_at(plan, p->c) + i * p->c_row, NULL,
               (size_t)p->n);
fail:
    return status;
}

static dycl_status prefilter_run(const dycl_step *step, dycl_plan *plan) {
    prefilter_args *a = step->args;
    dycl_weights_run run = {NULL, DYCL_WEIGHTS_AS_THEY_LIE, 0};
    dycl_status status = DYCL_OK;
    if (a->pause)
        a->pause--;
    else
        DYCL_TRY(dycl_weights_begin(&a->choice, plan, &run));
    int found = run.packed && prefiltered(a, plan, run.packed);
    if (found) {
        a->failures = 0;
    } else {
        if (run.packed && !run.began) {
            a->pause = 1 << a->failures;
            if (a->failures < MOST_PAUSE) a->failures++;
        }
        DYCL_TRY(all_of_it(a, step, plan));
    }
    dycl_weights_end(&a->choice, &run);
fail:
    return status;
}

dycl_status dycl_make_prefilter(dycl_builder *b, const dycl_block *block) {
    const dycl_graph *g = &b->program->graph;
    dycl_tensor target;
    dycl_status status;
    prefilter_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    dycl_matmul_args *p = &a->product;
    p->dtype = (dycl_dtype)dycl_make_value(b, g->nodes[block->first].out)->dtype;
    a->half = p->dtype == DYCL_BF16;
    p->batches = 1;
    DYCL_TRY(dycl_matmul_linear(b, &g->nodes[block->first], p));
    DYCL_TRY(dycl_make_target(b, g->nodes[block->last].out, &target));
    a->out = target.ref;
    dycl_matmul_touches(b, p);
    dycl_make_write(b, &target);
    a->rounded = dycl_bf16_suits(b, p);
    DYCL_TRY(a->rounded ? dycl_bf16_offer(b, p) : dycl_gemv_share(b, p, &p->scratch));
    if (a->half) DYCL_TRY(dycl_make_scratch(b, (size_t)(p->m * p->k) * sizeof(float), &a->wide));
    if (a->rounded) DYCL_TRY(dycl_make_scratch(b, (size_t)(p->threads * p->k) * sizeof(float), &a->rows));
    DYCL_TRY(dycl_make_scratch(b, (size_t)(p->m * p->n) * sizeof(float), &p->c));
    DYCL_TRY(dycl_make_scratch(b, (size_t)p->n * sizeof(uint32_t), &a->columns));
    DYCL_TRY(dycl_make_scratch(b, (size_t)p->threads * sizeof(finding), &a->findings));
    DYCL_TRY(
        dycl_make_step(b, prefilter_run, a, "largest of product", 100 + (double)p->n * (double)p->k / 8 / p->threads));
    if (!a->rounded && !a->half) DYCL_TRY(dycl_gemv_offer(b, p));
    char key[48];
    const dycl_prefilter_layout form = {p->n, p->k, p->b_column, a->half ? DYCL_PREFILTER_STORED : a->rounded};
    snprintf(key, sizeof key, "largest of product m%d%s", (int)p->m, a->half ? " of bf16" : a->rounded ? " bf16" : "");
    DYCL_TRY(dycl_weights_offer_prefilter(b, p->b, &form, p->threads, key, &a->choice));
    return dycl_make_finish(b, g->nodes[block->last].out, &target);
fail:
    return status;
}
