/* Running a plan while its segment is still being recorded, on the runner thread: as far as the trace has followed what
 * was expected, the steps have all they need. What was computed counts only when the whole trace and its outputs are
 * the expected ones.
 *
 * Ownership: a dycl_ahead belongs to who started it until finish or cancel, and holds its plan. Outputs are the
 * caller's and must live until then, and so must everything that was published. Threads: start, publish, finish and
 * cancel by one thread; there is one runner, for one run at a time. After a fork the child has no runner until it
 * starts one: what was under way there counts as failed. */
#ifndef DYCL_EXEC_PLAN_AHEAD_H
#define DYCL_EXEC_PLAN_AHEAD_H

#include "exec/plan/plan.h"

typedef struct dycl_ahead dycl_ahead;

/* NULL: the runner or the plan is busy, or there is no memory. */
dycl_ahead *dycl_ahead_start(dycl_plan *plan, void *const *outputs);
/* The first so many feeds, scalars and nodes of the trace are there, as expected. */
void dycl_ahead_publish(dycl_ahead *ahead, const dycl_feed *feeds, uint32_t feed_count, const dycl_scalar *scalars,
                        uint32_t scalar_count, uint32_t node_count);
/* All is there: waits until it is computed. BAIL: it does not count (the guard, a failed step), run the segment. */
dycl_status dycl_ahead_finish(dycl_ahead *ahead, const dycl_feed *feeds, const dycl_scalar *scalars);
void dycl_ahead_stop(dycl_ahead *ahead);   /* it will not be needed: no further step begins. Then cancel. */
void dycl_ahead_cancel(dycl_ahead *ahead); /* waits for the step under way */

#endif
