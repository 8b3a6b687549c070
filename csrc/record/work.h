/* How much work a graph is, roughly: enough to end a segment before it keeps Python waiting for long.
 *
 * Ownership: none. Threads: any. */
#ifndef DYCL_RECORD_WORK_H
#define DYCL_RECORD_WORK_H

#include "ir/graph.h"

double dycl_work_of(const dycl_graph *graph, uint32_t from,
                    uint32_t to); /* of these nodes, in floating-point operations */

/* Of one node, by family; a family that has none moves elements. */
#define DYCL_FAMILY(NAME, name, ...) double dycl_work_##name(const dycl_graph *graph, const dycl_node *node);
#include "ir/family.def"
#undef DYCL_FAMILY
double dycl_work_moved(const dycl_graph *graph, const dycl_node *node);

#endif
