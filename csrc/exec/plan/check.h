/* Checks of plans while they run: what every plan computes is compared with the reference interpreter
 * (check/reference.h) on the graph as it was recorded, every place in memory has a red zone behind it that is looked at
 * after each step, and memory is poisoned before its first use.
 *
 * On in debug builds and under DYCL_CHECK=1 (DYCL_CHECK=0: off; a larger number: compare whatever takes up to so many
 * operations). What is found is an ERROR, which then is not replayed but raised.
 *
 * Ownership: a dycl_check belongs to its plan. Threads: as runs of the plan. */
#ifndef DYCL_EXEC_PLAN_CHECK_H
#define DYCL_EXEC_PLAN_CHECK_H

#include "exec/plan/memory.h"
#include "exec/plan/step.h"

typedef struct dycl_check dycl_check;

/* NULL when checks are off, or there is no memory. */
dycl_check *dycl_check_create(const dycl_graph *graph, const uint32_t *outputs, int output_count);
void dycl_check_free(dycl_check *check);
/* When every slot has its place. */
dycl_status dycl_check_lay_out(dycl_plan *plan, const dycl_slot *slots, uint32_t count);

dycl_status dycl_check_run(dycl_plan *plan, const dycl_feed *feeds, const dycl_scalar *scalars,
                           void *const *outputs); /* the steps, slots are set; in place of a plain loop over them */
dycl_status dycl_check_outputs(dycl_plan *plan, const dycl_feed *feeds, const dycl_scalar *scalars,
                               void *const *outputs); /* against the reference */

#endif
