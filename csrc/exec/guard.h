/* The guard of plans whose primitives may hide a NaN (oneDNN's relu and max pooling take the other operand, torch keeps the NaN).
 *
 * Such primitives are used only where a NaN cannot be made on the way to them (opt/finite.c). Then it can only come in through what they depend on
 * (feeds, numbers of the program, the variances of a batch norm) or from an overflow, and what overflowed shows in the outputs. So such a plan's result
 * counts only when these feeds and numbers and all f32 outputs are finite; otherwise the segment runs again on an EXACT plan. Constants are looked at
 * once a version.
 * Ownership: what is remembered belongs to the plan. Threads: while the plan is busy only. */
#ifndef DYCL_EXEC_GUARD_H
#define DYCL_EXEC_GUARD_H

#include "exec/builder.h"

dycl_status dycl_guard_make(dycl_maker *b); /* which feeds and numbers have to be looked at; when all blocks are built */
int dycl_guard_inputs_finite(struct dycl_plan *plan, const dycl_feed *feeds, const dycl_scalar *scalars);
int dycl_guard_outputs_finite(const struct dycl_plan *plan, void *const *outputs);
void dycl_guard_free(struct dycl_plan *plan);

#endif
