/* Whether a plan may write outputs into the memory of feeds that they replace (an optimizer's step: parameters and its
 * state). It may where nothing reads an element of such a feed after its successor was written, and where nothing can
 * fail half way: all steps are tiles.
 *
 * Ownership: the answer is kept in the plan. Threads: one at a time, before a run. */
#ifndef DYCL_EXEC_TILE_IN_PLACE_H
#define DYCL_EXEC_TILE_IN_PLACE_H

#include "exec/plan/plan.h"

/* Output i < count would lie where feed feeds[i] lies: same dtype, sizes and strides, and no other feed or output
 * overlaps it. */
int dycl_plan_in_place(dycl_plan *plan, const uint32_t *feeds, uint32_t count);

#endif
