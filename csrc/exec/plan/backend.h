/* Backends: others that can run a whole segment (ONNX Runtime, another oneDNN).
 *
 * Everything else sees a plan. One of a backend has a single step, which hands the run over; its claim, its times, the
 * checks beside it (check.h) and running ahead are as for any other. It is one more variant of a segment that was tuned
 * (cache/teams.h), so that it runs where it was measured to be the fastest, and nowhere else.
 *
 * Ownership: a plan owns what `compile` made, and releases it. Threads: `compile` and `suits` with the GIL held, `run`
 * without it, one run of a plan at a time; `release` in any thread. */
#ifndef DYCL_EXEC_PLAN_BACKEND_H
#define DYCL_EXEC_PLAN_BACKEND_H

#include "exec/plan/plan.h"

#define DYCL_MOST_BACKENDS 2

typedef struct dycl_backend {
    const char *name; /* static; for explain, and the profile remembers it */
    /* Whether it is worth trying: cheap, no side effects. */
    int (*suits)(const dycl_graph *graph, const uint32_t *outputs, int output_count);
    /* For so many threads. The graph is as it was recorded, and stays the caller's. BAIL: it cannot. */
    dycl_status (*compile)(const dycl_graph *graph, const uint32_t *outputs, int output_count, int threads, void **out);
    /* As dycl_plan_run. Results are eager's, NaN and infinities included; BAIL: the segment is replayed in torch. */
    dycl_status (*run)(void *compiled, const dycl_feed *feeds, const dycl_scalar *scalars, void *const *outputs);
    double (*cost)(const void *compiled);          /* estimated nanoseconds, before it has run */
    const char *(*describe)(const void *compiled); /* a line for explain; lives as long as the plan */
    void (*release)(void *compiled);
} dycl_backend;

/* Once each, at the start; it lives as long as the process. ERROR: there are DYCL_MOST_BACKENDS. GIL held. */
dycl_status dycl_backend_add(const dycl_backend *backend);
int dycl_backend_count(void);
const dycl_backend *dycl_backend_at(int i);

dycl_status dycl_plan_of_backend(const dycl_backend *backend, const dycl_graph *graph, const uint32_t *outputs,
                                 int output_count, dycl_plan **out);

#endif
