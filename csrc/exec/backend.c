/* A plan whose only step is a backend's. */
#include "exec/plan/backend.h"

#include "exec/builder/builder.h"
#include "exec/plan/check.h"
#include "opt/log.h"

static const dycl_backend *backends[DYCL_MOST_BACKENDS];
static int backend_count;

dycl_status dycl_backend_add(const dycl_backend *backend) {
    if (backend_count == DYCL_MOST_BACKENDS) return dycl_error_set("too many backends for %s", backend->name);
    backends[backend_count++] = backend;
    return DYCL_OK;
}

int dycl_backend_count(void) { return backend_count; }
const dycl_backend *dycl_backend_at(int i) { return backends[i]; }

static dycl_status run_whole(const dycl_step *step, dycl_plan *plan) {
    void **outputs = step->args;
    const dycl_program *p = &plan->program;
    for (int i = 0; i < p->output_count; i++) outputs[i] = plan->slots[p->outputs[i]];
    const dycl_scalar *scalars = p->graph.scalar_count ? plan->slots[p->graph.scalars[0]] : NULL;
    return plan->backend->run(plan->compiled, plan->feeds, scalars, outputs);
}

static dycl_status add_step(dycl_builder *b) {
    dycl_plan *plan = b->plan;
    const dycl_program *p = b->program;
    dycl_tensor t;
    void **outputs = dycl_plan_alloc(plan, ((size_t)p->output_count + 1) * sizeof *outputs);
    if (!outputs) return DYCL_ERROR;
    for (uint32_t i = 0; i < p->graph.feed_count; i++) {
        dycl_make_tensor(b, p->graph.feeds[i], &t);
        dycl_make_read(b, &t);
    }
    for (int i = 0; i < p->output_count; i++) {
        dycl_make_tensor(b, p->outputs[i], &t);
        dycl_make_write(b, &t);
    }
    b->block = DYCL_NONE; /* of all */
    return dycl_make_step(b, run_whole, outputs, plan->backend->name, plan->backend->cost(plan->compiled));
}

dycl_status dycl_plan_of_backend(const dycl_backend *backend, const dycl_graph *graph, const uint32_t *outputs,
                                 int output_count, dycl_plan **out) {
    dycl_builder b = {0};
    dycl_status status;
    dycl_plan *plan = dycl_plan_new(DYCL_PLAN_TUNED);
    if (!plan) return DYCL_ERROR;
    plan->check = dycl_check_create(graph, outputs, output_count);
    DYCL_TRY(dycl_program_init(&plan->program, graph, outputs, output_count));
    DYCL_TRY(backend->compile(graph, outputs, output_count, plan->threads, &plan->compiled));
    plan->backend = backend;
    DYCL_TRY(dycl_builder_init(&b, plan));
    DYCL_TRY(add_step(&b));
    DYCL_TRY(dycl_make_places(&b));
    if (__builtin_expect(dycl_log_any(), 0)) dycl_plan_log(plan, dycl_graph_key(graph, outputs, output_count));
    dycl_builder_free(&b);
    *out = plan;
    return DYCL_OK;
fail:
    dycl_builder_free(&b);
    dycl_plan_release(plan);
    return status;
}
