/* The order in which a node of autograd's graph names its sources: the gradients of leaves arrive, and their hooks run,
 * in torch's order. torch goes back operator by operator, so a leaf is through after the first operator that used it.
 * Our node hands all of them over at once, and torch's engine takes what is ready from a heap, in which leaves are
 * equals.
 *
 * Ownership: arrays are the caller's. Threads: none of it is shared. */
#ifndef DYCL_PY_REGION_ORDER_H
#define DYCL_PY_REGION_ORDER_H

#include "base/status.h"
#include "ir/graph.h"

/* Sorts sources. is_leaf: by source, and sorted with them. OK or ERROR (no memory). */
dycl_status dycl_order_sources(const dycl_graph *graph, const uint8_t *tracked, uint32_t *sources, uint8_t *is_leaf,
                               uint32_t count);
/* Whether torch saves the feed itself somewhere, rather than views of it only: where another tensor's memory is put
 * into it (x.data = y), the backward pass sees that. */
int dycl_order_saves_itself(const dycl_graph *graph, const uint8_t *tracked, uint32_t feed);

#endif
