/* A plan: a segment made executable for one set of shapes.
 *
 * Ownership: a dycl_plan is reference counted and owns a copy of its graph, its steps and its primitives; the workspace
 * is taken from a pool for each run. Feeds, scalars and outputs are the caller's. Threads: dycl_plan_run may be called
 * without the GIL; one run of a plan at a time (it keeps its pointers): a second caller gets BUSY and makes its own
 * plan. Two modes. COLD builds in microseconds, generates no code that can be avoided (dnnl_sgemm, own kernels) and
 * serves a shape seen for the first time (what is large is fused even so, opt/pipeline.c); TUNED fuses, packs constant
 * weights, uses blocked layouts and primitives with post-ops. */
#ifndef DYCL_EXEC_PLAN_PLAN_H
#define DYCL_EXEC_PLAN_PLAN_H

#include "exec/pack/feed.h"
#include "ir/graph.h"

typedef struct dycl_plan dycl_plan;
/* EXACT is COLD without the oneDNN primitives that lose a NaN (a rectifier or a maximum takes the other operand): a
 * plan with such primitives makes one for itself and runs it when an infinity or a NaN shows up among its feeds or its
 * outputs. */
typedef enum { DYCL_PLAN_COLD, DYCL_PLAN_TUNED, DYCL_PLAN_EXACT } dycl_plan_mode;

void dycl_plan_begin(void);     /* reads DYCL_CHECK; making a plan does it too */
uint32_t dycl_plan_count(void); /* plans alive in the process. Any thread */

/* outputs: values to compute; each is its own root (views are made by the caller) and is written with its value's
 * strides (dense). */
dycl_status dycl_plan_create(const dycl_graph *graph, const uint32_t *outputs, int output_count, dycl_plan_mode mode,
                             dycl_plan **out);
void dycl_plan_pack_at_once(
    dycl_plan *plan); /* its first run need not wait to see whether constants stay: it is known to come back */
size_t dycl_plan_bytes(const dycl_plan *plan); /* what it takes, but primitives, packed forms and workspaces */
void dycl_plan_retain(dycl_plan *plan);        /* NULL is allowed, as in the next: what runs in pieces has no plan */
void dycl_plan_release(dycl_plan *plan);

/* feeds and scalars in the graph's order, outputs[i] has dycl_value_extent elements. ERROR: message says what; an index
 * out of range in a gather is reported as BAIL (nothing visible was written but outputs, so that torch can run the
 * segment again and raise its own error). */
dycl_status dycl_plan_run(dycl_plan *plan, const dycl_feed *feeds, const dycl_scalar *scalars, void *const *outputs);

/* For explain: text, one line a step (operators fused, kernel, last time in us when timing is on). Caller frees with
 * dycl_free. */
dycl_status dycl_plan_describe(const dycl_plan *plan, char **out);
/* The same for the log, each line a comment of graphs; key: dycl_graph_key of its segment. */
void dycl_plan_log(const dycl_plan *plan, uint64_t key);
typedef struct {
    uint64_t runs, nanoseconds;
    uint32_t nodes, steps;
    size_t workspace_bytes, packed_bytes;
} dycl_plan_stats;
void dycl_plan_get_stats(const dycl_plan *plan, dycl_plan_stats *out);
void dycl_plan_set_timing(int on); /* per step timing for all plans */
int dycl_plan_timing(void);
double dycl_plan_cost(const dycl_plan *plan); /* estimated nanoseconds: measured median once run, else FLOPs and bytes;
                                                 decides on releasing the GIL */

#endif
