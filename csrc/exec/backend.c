/* Which backends there are, and the only step of a plan of theirs. */
#include "exec/plan/backend.h"

#include "exec/builder/builder.h"

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

dycl_status dycl_make_whole(dycl_builder *b) {
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
