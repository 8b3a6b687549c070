/* The guard of primitives that may hide a NaN (oneDNN's fused activations take the other operand, torch keeps the NaN)
 * or make one of an infinity (Winograd's transforms).
 *
 * They are right where nothing overflows in them: so what they read is looked at before, and where an element is not
 * finite or far too large the run does not count: the segment runs again on an EXACT plan, without these primitives.
 * Constants are looked at once a version.
 *
 * Ownership: what is remembered belongs to the plan. Threads: while the plan is busy only. */
#ifndef DYCL_EXEC_BUILDER_GUARD_H
#define DYCL_EXEC_BUILDER_GUARD_H

#include "exec/builder/builder.h"

/* Powers of two. The largest product of an element, a weight and a scale is 2^110, and sums have at most 2^16 terms. */
#define DYCL_GUARD_ELEMENT 50
#define DYCL_GUARD_WEIGHT  30
#define DYCL_GUARD_SCALE   30

/* A step that looks at `count` floats at `ref`, which hold that value or what it was copied to. */
dycl_status dycl_guard_look(dycl_builder *b, uint32_t value, dycl_ref ref, size_t count, int limit);
/* The same for a step that looks where it has to. */
typedef struct dycl_guard dycl_guard; /* the plan's */
dycl_status dycl_guard_make(dycl_builder *b, uint32_t value, dycl_ref ref, size_t count, int limit, dycl_guard **out);
void dycl_guard_run(dycl_guard *look, dycl_plan *plan);
/* The same without what is remembered: 0: plan->suspect has to be set. */
int dycl_guard_is_small(const float *x, size_t count, int limit);

#endif
