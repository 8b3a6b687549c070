/* The guard of plans whose primitives may hide a NaN (oneDNN's relu and max pooling take the other operand, torch keeps the NaN).
 *
 * With finite feeds a NaN can only come from an overflow, and what overflowed shows in the outputs: so such a plan's result counts only when
 * all its f32 feeds and outputs are finite; otherwise the segment runs again on an EXACT plan. Constants are looked at once a version.
 * Ownership: what is remembered belongs to the plan. Threads: while the plan is busy only. */
#ifndef DYCL_EXEC_GUARD_H
#define DYCL_EXEC_GUARD_H

#include "exec/step.h"

int dycl_guard_feeds_finite(struct dycl_plan *plan, const dycl_feed *feeds);
int dycl_guard_outputs_finite(const struct dycl_plan *plan, void *const *outputs);
void dycl_guard_free(struct dycl_plan *plan);

#endif
