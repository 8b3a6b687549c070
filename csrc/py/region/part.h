/* Which results of one level share a node of autograd's graph (track.h). torch frees what an operator saved in the
 * first backward pass through it, and a second one is an error. So results may share a node only where a pass from one
 * of them frees what the others need, too: where an operator lies behind both of them that saves something. Results
 * that share nothing (two losses of two models) are gone back from one after the other.
 *
 * Where each of three shares something with the next only, each gets its own node: a second pass is no error then where
 * it is one in torch, but never the reverse.
 *
 * Ownership: arrays are the caller's. Threads: none of it is shared. */
#ifndef DYCL_PY_REGION_PART_H
#define DYCL_PY_REGION_PART_H

#include "base/status.h"
#include "ir/graph.h"

typedef struct {
    const dycl_graph *graph;
    const uint8_t *tracked;  /* by value */
    const uint8_t *stops;    /* by value: a result of another level */
    const uint32_t *results; /* of the level */
    uint32_t count;
} dycl_part_job;

/* parts[i]: the part of the i-th result, numbered by its first one. saves[i]: an operator behind the result saves
 * something. OK or ERROR (no memory). */
dycl_status dycl_part_find(const dycl_part_job *job, uint32_t *parts, uint8_t *saves);
/* Whether torch's operator saves tensors, so that a second pass through it is an error. */
int dycl_part_saves(const dycl_graph *graph, const dycl_node *node);

#endif
