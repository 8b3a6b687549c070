/* The nodes of autograd's graph that one flush makes (track.h). In eager each operator has a node, and a backward pass
 * goes through those that lead to where it began: hooks on its way are called, and what it frees is freed. So operators
 * share a node only where they lead to the same results: whoever comes from one of these goes through all of them, and
 * each operator is gone back through once. Where operators lead to different results, the values between them become
 * results that nobody sees, as the residual stream of a transformer does that shows its hidden states.
 *
 * Ownership: arrays of the answer are the caller's (dycl_reach_free). Threads: none of it is shared. */
#ifndef DYCL_PY_REGION_REACH_H
#define DYCL_PY_REGION_REACH_H

#include "base/status.h"
#include "ir/graph.h"

typedef struct {
    uint32_t *node;   /* by value: 1 + the node that goes back through its operator; 0: it leads to no result */
    uint8_t *crosses; /* by value: becomes a result that nobody sees */
    uint8_t *once;    /* by node: torch saves something there, so that a second pass is an error */
    uint32_t count;   /* of nodes: those that others stand before come first */
} dycl_reach;

/* result: by value, numbers of the results, 1 to count, in the order of their operators; 0: it is none. Results of the
 * same number share a node. OK or ERROR (no memory). */
dycl_status dycl_reach_find(const dycl_graph *graph, const uint8_t *tracked, const uint32_t *result, uint32_t count,
                            dycl_reach *out);
void dycl_reach_free(dycl_reach *r);
/* Where an operator of this node takes a gradient from (`v`, one of its operands) further down: a feed, or a result of
 * another node; DYCL_NONE: the node itself goes on there. */
uint32_t dycl_reach_source(const dycl_graph *graph, const dycl_reach *r, const uint32_t *result, uint32_t node,
                           uint32_t v);
/* Whether torch's operator saves tensors, where these operands have a history. */
int dycl_reach_saves(const dycl_graph *graph, const uint8_t *tracked, const dycl_node *node);

#endif
