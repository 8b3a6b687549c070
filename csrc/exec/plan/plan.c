#include "exec/plan/backend.h"
#include "exec/plan/check.h"
#include "exec/plan/workspace.h"

#include "base/alloc.h"
#include "check/zone.h"

#include <omp.h>
#include <string.h>

static atomic_int timing;
static atomic_uint alive;

void dycl_plan_begin(void) { (void)dycl_check_enabled(); }

uint32_t dycl_plan_count(void) { return atomic_load(&alive); }

dycl_plan *dycl_plan_new(dycl_plan_mode mode) {
    dycl_plan *plan = dycl_alloc_zero(sizeof *plan);
    if (!plan) {
        dycl_error_set("out of memory for a plan");
        return NULL;
    }
    atomic_fetch_add(&alive, 1);
    atomic_init(&plan->references, 1);
    dycl_claim_give(&plan->busy);
    plan->mode = mode;
    plan->threads = omp_get_max_threads();
    dycl_graph_init(&plan->original);
    return plan;
}

void dycl_plan_set_timing(int on) { atomic_store(&timing, on); }
int dycl_plan_timing(void) { return atomic_load_explicit(&timing, memory_order_relaxed); }

void *dycl_plan_grow(void *block, size_t size) {
    void *bigger = dycl_realloc(block, size);
    if (!bigger) dycl_error_set("out of memory");
    return bigger;
}

void dycl_plan_pack_at_once(dycl_plan *plan) {
    for (uint32_t i = 0; i < plan->packing_count; i++) plan->packings[i]->at_once = 1;
}

size_t dycl_plan_bytes(const dycl_plan *plan) {
    const dycl_program *p = &plan->program;
    const dycl_plan *exact = atomic_load(&((dycl_plan *)(uintptr_t)plan)->exact);
    return sizeof *plan + plan->arena_bytes + plan->step_count * (sizeof *plan->steps + sizeof *plan->infos) +
           plan->slot_count * (sizeof *plan->slots + sizeof *plan->places) + plan->packing_count * sizeof(void *) +
           plan->prim_count * sizeof(void *) + dycl_graph_bytes(&plan->original) + dycl_program_bytes(p) +
           (exact ? dycl_plan_bytes(exact) : 0);
}

void dycl_plan_retain(dycl_plan *plan) {
    if (plan) atomic_fetch_add(&plan->references, 1);
}

typedef struct chunk {
    struct chunk *older;
} chunk;

void dycl_plan_release(dycl_plan *plan) {
    if (!plan || atomic_fetch_sub(&plan->references, 1) != 1) return;
    atomic_fetch_sub(&alive, 1);
    for (uint32_t i = 0; i < plan->packing_count; i++) dycl_packing_forget(plan->packings[i]);
    for (uint32_t i = 0; i < plan->prim_count; i++) dycl_prim_release(plan->prims[i]);
    for (uint32_t i = 0; i < plan->autotune_count; i++) dycl_autotune_release(plan->autotunes[i]);
    for (chunk *c = plan->arena; c;) {
        chunk *older = c->older;
        dycl_free(c);
        c = older;
    }
    dycl_plan_release(plan->exact);
    if (plan->backend) plan->backend->release(plan->compiled);
    dycl_check_free(plan->check);
    dycl_graph_free(&plan->original);
    dycl_program_free(&plan->program);
    dycl_free(plan->steps);
    dycl_free(plan->infos);
    dycl_free(plan->slots);
    dycl_free(plan->packings);
    dycl_free(plan->prims);
    dycl_free(plan->autotunes);
    dycl_free(plan->places);
    dycl_free(plan->needs);
    dycl_free(plan->replaced);
    dycl_free(plan);
}

/* ---- Running */

/* There is one writer: no need to lock the bus. */
static void count_up(atomic_ullong *count, uint64_t by) {
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + by, memory_order_relaxed);
}

void dycl_plan_step_took(dycl_plan *plan, uint32_t step, uint64_t nanoseconds) {
    atomic_store_explicit(&plan->infos[step].nanoseconds, nanoseconds, memory_order_relaxed);
    count_up(&plan->infos[step].count, 1);
}

static dycl_status run_timed(dycl_plan *plan) {
    uint64_t before = dycl_clock_ns();
    for (uint32_t i = 0; i < plan->step_count; i++) {
        dycl_status status = plan->steps[i].run(&plan->steps[i], plan);
        if (status != DYCL_OK) return status;
        uint64_t after = dycl_clock_ns();
        dycl_plan_step_took(plan, i, after - before);
        before = after;
    }
    return DYCL_OK;
}

static dycl_status run_steps(dycl_plan *plan) {
    const dycl_step *step = plan->steps, *end = step + plan->step_count;
    for (; step < end; step++) {
        dycl_status status = step->run(step, plan);
        if (__builtin_expect(status != DYCL_OK, 0)) return status;
    }
    return DYCL_OK;
}

dycl_status dycl_plan_open(dycl_plan *plan, const dycl_feed *feeds, const dycl_scalar *scalars, void *const *outputs,
                           dycl_workspace **out_workspace) {
    const dycl_graph *g = &plan->program.graph;
    void **slots = plan->slots;
    plan->feeds = feeds;
    plan->suspect = 0;
    dycl_workspace *workspace =
        plan->workspace_bytes ? dycl_workspace_take(plan->workspace_bytes, plan->runs == 0) : NULL;
    if (!workspace && plan->workspace_bytes) {
        dycl_claim_give(&plan->busy);
        return dycl_error_set("out of memory for a workspace of %zu bytes", plan->workspace_bytes);
    }
    if (workspace && workspace->data != plan->workspace) {
        plan->workspace = workspace->data;
        for (uint32_t s = 0; s < plan->slot_count; s++)
            if (plan->places[s] >= 0) slots[s] = plan->workspace + plan->places[s];
    }
    for (uint32_t i = 0; i < g->scalar_count; i++) slots[g->scalars[i]] = (void *)(uintptr_t)&scalars[i];
    for (int i = 0; i < plan->program.output_count; i++) slots[plan->program.outputs[i]] = outputs[i];
    if (plan->packing_count) dycl_pack_enter();
    *out_workspace = workspace;
    return DYCL_OK;
}

void dycl_plan_close(dycl_plan *plan, dycl_workspace *workspace) {
    if (plan->packing_count) dycl_pack_leave();
    if (workspace) dycl_workspace_give(workspace);
    dycl_claim_give(&plan->busy);
}

/* *out_exact: the result does not count, see builder/guard.h. */
static dycl_status run_once(dycl_plan *plan, const dycl_feed *feeds, const dycl_scalar *scalars, void *const *outputs,
                            int *out_exact) {
    *out_exact = 0;
    if (!dycl_claim_take(&plan->busy)) {
        dycl_error_set("the plan is running in another thread");
        return DYCL_BUSY;
    }
    const dycl_graph *g = &plan->program.graph;
    dycl_workspace *workspace;
    uint64_t before = dycl_clock_ns();
    dycl_status status = dycl_plan_open(plan, feeds, scalars, outputs, &workspace);
    if (status != DYCL_OK) return status;
    for (uint32_t i = 0; i < g->feed_count; i++) plan->slots[g->feeds[i]] = feeds[i].data;
    int allowed = omp_get_max_threads();
    if (plan->threads < allowed) omp_set_num_threads(plan->threads); /* cache/teams.h */
    status = plan->check          ? dycl_check_run(plan, feeds, scalars, outputs)
             : dycl_plan_timing() ? run_timed(plan)
                                  : run_steps(plan);
    if (plan->threads < allowed) omp_set_num_threads(allowed);
    uint64_t taken = dycl_clock_ns() - before;
    atomic_store_explicit(&plan->samples[plan->runs % 8], (float)taken, memory_order_relaxed);
    count_up(&plan->runs, 1);
    count_up(&plan->nanoseconds, taken);
    *out_exact = plan->suspect;
    dycl_plan_close(plan, workspace);
    return status;
}

static dycl_status exact_plan(dycl_plan *plan, dycl_plan **out) {
    dycl_plan *exact = plan->exact, *mine = NULL, *nobody = NULL;
    dycl_status status = DYCL_OK;
    if (!exact) {
        const dycl_program *p = &plan->program;
        status = dycl_plan_create(&plan->original, p->outputs, p->output_count, DYCL_PLAN_EXACT, &mine);
        exact = mine;
        if (status == DYCL_OK && !atomic_compare_exchange_strong(&plan->exact, &nobody, mine)) {
            dycl_plan_release(mine);
            exact = nobody;
        }
    }
    *out = exact;
    return status;
}

dycl_status dycl_plan_run(dycl_plan *plan, const dycl_feed *feeds, const dycl_scalar *scalars, void *const *outputs) {
    int wants_exact;
    dycl_plan *exact;
    dycl_status status;
    DYCL_TRY(run_once(plan, feeds, scalars, outputs, &wants_exact));
    if (wants_exact) {
        DYCL_TRY(exact_plan(plan, &exact));
        DYCL_TRY(run_once(exact, feeds, scalars, outputs, &wants_exact));
    }
    if (plan->check) DYCL_TRY(dycl_check_outputs(plan, feeds, scalars, outputs));
fail:
    return status;
}

double dycl_plan_cost(const dycl_plan *plan) {
    int count = plan->runs < 8 ? (int)plan->runs : 8;
    if (count == 0) return plan->estimate;
    float sorted[8];
    for (int i = 0; i < count; i++) {
        float sample = plan->samples[i];
        int j = i;
        for (; j > 0 && sorted[j - 1] > sample; j--) sorted[j] = sorted[j - 1];
        sorted[j] = sample;
    }
    return sorted[count / 2];
}

void dycl_plan_get_stats(const dycl_plan *plan, dycl_plan_stats *out) {
    *out = (dycl_plan_stats){.runs = plan->runs,
                             .nanoseconds = plan->nanoseconds,
                             .steps = plan->step_count,
                             .workspace_bytes = plan->workspace_bytes};
    for (uint32_t n = 0; n < plan->program.graph.node_count; n++) out->nodes += !plan->program.dead[n];
    for (uint32_t i = 0; i < plan->packing_count; i++)
        out->packed_bytes += atomic_load_explicit(&plan->packings[i]->packed, memory_order_relaxed);
}
