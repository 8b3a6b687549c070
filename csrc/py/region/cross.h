/* Values that several nodes of autograd's graph would go back through. A segment has a node for each level of its
 * results (track.h). What is no result, and leads to results of several levels, as the residual stream of a transformer
 * does that shows its hidden states, becomes a result of the lowest of them that nobody sees: the nodes above give it
 * its gradient. Else each of them would go back through all that is below.
 *
 * Ownership: arrays are the caller's. Threads: none of it is shared. */
#ifndef DYCL_PY_REGION_CROSS_H
#define DYCL_PY_REGION_CROSS_H

#include "ir/graph.h"

/* crosses[v], by value, in the beginning the levels of the results, 0 for all others: the level that a value becomes a
 * result of, or 0. Results keep theirs. group: scratch, zeros, by value. */
void dycl_cross_find(const dycl_graph *graph, const uint8_t *tracked, uint32_t *crosses, uint32_t *group);

#endif
