/* The part of a trace that repeats: the body of a loop, as it stands in the trace once an iteration.
 *
 * Ownership: borrows the graph; `nodes` is the caller's. Threads: any. */
#ifndef DYCL_OPT_PERIOD_H
#define DYCL_OPT_PERIOD_H

#include "ir/graph.h"

typedef struct {
    uint32_t *nodes; /* owned: what has to be computed, without views, in order */
    uint64_t *looks; /* owned: of each of these its operator, attributes and shape, as a number */
    uint32_t node_count;
    uint32_t first;      /* position in `nodes` where the first iteration begins */
    uint32_t period;     /* nodes of an iteration */
    uint32_t iterations; /* at least DYCL_PERIOD_LEAST; 0: nothing repeats */
    uint64_t body;       /* identity of an iteration: operators, attributes, shapes; 0: nothing repeats */
} dycl_period;

#define DYCL_PERIOD_LEAST 3

/* Finds the shortest repetition around the middle of the trace that covers at least half of it. */
dycl_status dycl_period_find(const dycl_graph *graph, const uint32_t *outputs, int output_count, dycl_period *out);
uint64_t dycl_period_mix(uint64_t identity, uint64_t word); /* with one more node, or one more word of it */
void dycl_period_free(dycl_period *period);

#endif
