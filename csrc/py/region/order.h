/* The order of the sources of a node of autograd's graph. In eager each operator has a node of its own, and a leaf gets
 * its gradient, and its hooks are called, as soon as the last operator that read it has been gone back through: from
 * the end of the program to its beginning. DistributedDataParallel fills its buckets in this order, and compression
 * depends on what is in them. A segment's node hands all gradients out at once. torch's engine then puts all leaves
 * into a heap in which they are equal, so which one comes first is a matter of where each was put.
 *
 * Ownership: arrays are the caller's. Threads: GIL held. */
#ifndef DYCL_PY_REGION_ORDER_H
#define DYCL_PY_REGION_ORDER_H

#include "py/region/track_flush.h"

/* Puts the sources of each of the nodes of a flush so that leaves get their gradients in eager's order; nodes that
 * others stand before come first. OK, or ERROR, with or without an exception: no memory. */
dycl_status dycl_order_sources(dycl_region *region, const dycl_track_node *nodes, uint32_t count);

/* A backward pass has gone back through what this call recorded before: none of it will be gone through later. */
void dycl_order_forget(dycl_region *region);

/* Whether torch saves the feed itself somewhere, rather than views of it only: where another tensor's memory is put
 * into it (x.data = y), the backward pass sees that. */
int dycl_order_saves_itself(const dycl_graph *graph, const uint8_t *tracked, uint32_t feed);

#endif
