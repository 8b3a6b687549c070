/* How much work a graph is, roughly: enough to end a segment before it keeps Python waiting for long.
 *
 * Ownership: none. Threads: any. */
#ifndef DYCL_RECORD_WORK_H
#define DYCL_RECORD_WORK_H

#include "ir/graph.h"

double dycl_work_of(const dycl_graph *graph, uint32_t from,
                    uint32_t to); /* of these nodes, in floating-point operations */

#endif
