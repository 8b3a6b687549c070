/* What torch's engine would do in eager, where each operator of a segment has a node of its own: it runs the node that
 * was made last of those that wait for nothing, and leaves before all nodes. Those are equal to it, so which comes
 * first is a matter of where in its heap each was put.
 *
 * Ownership: arrays are the caller's. Threads: GIL held, or none: nothing of Python's is touched. */
#ifndef DYCL_PY_REGION_ENGINE_H
#define DYCL_PY_REGION_ENGINE_H

#include "py/region/track_flush.h"

typedef enum {
    DYCL_EDGE_INNER, /* to an operator of the segment, or of no gradient */
    DYCL_EDGE_LATER, /* to what waits for others, too */
    DYCL_EDGE_LEAF,  /* to a leaf that no earlier operator reads */
    DYCL_EDGE_OTHER, /* to a node of an earlier segment, or of torch's */
} dycl_edge_kind;

/* An entry of the heap: its priority in the upper half. */
typedef uint64_t dycl_engine_entry;
dycl_engine_entry dycl_engine_leaf(uint32_t value);
dycl_engine_entry dycl_engine_other(uint32_t value);

/* std::push_heap and std::pop_heap of libstdc++ with torch's comparison. `count`: before. */
void dycl_engine_push(dycl_engine_entry *heap, uint32_t count, dycl_engine_entry entry);
dycl_engine_entry dycl_engine_pop(dycl_engine_entry *heap, uint32_t count);

/* Leaves in the order in which they get their gradients when all results of the node do; edges: by value, of what the
 * node does not compute itself. `leaves` has room for all of them. Their number, or -1: no memory. */
int64_t dycl_engine_run(const dycl_region *region, const dycl_track_node *node, const uint8_t *edges, uint32_t *leaves);

#endif
