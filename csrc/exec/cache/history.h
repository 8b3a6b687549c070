/* The histories that results of a segment got when it ran last: nodes of torch's autograd graph, and what these keep
 * for the backward pass. For people: explain.
 *
 * Ownership: a segment owns its history. Threads: GIL held. */
#ifndef DYCL_EXEC_CACHE_HISTORY_H
#define DYCL_EXEC_CACHE_HISTORY_H

#include "exec/cache/backwards.h"

/* A node of autograd's graph: what it goes back from and to. */
typedef struct {
    uint32_t *results, *sources, *saved; /* values of the segment; the sources belong to the results' block */
    /* by what is saved, in its block: nobody needs its history; torch saves copies of it only (grad/backward.h) */
    uint8_t *bare, *copied;
    uint32_t result_count, source_count, saved_count;
    uint32_t operators; /* that it goes back through */
    uint8_t once;       /* torch saves something there */
} dycl_history_node;

typedef struct dycl_history {
    uint64_t hash; /* of what was noted */
    uint32_t nodes, operators;
    uint32_t *feeds; /* owned, one block with the next two: behind the nodes. Values of the segment, each once */
    uint32_t *alone; /* kept for the backward pass alone */
    uint32_t *there; /* kept, too, but feeds of the segment or results that the program holds */
    uint32_t feed_count, alone_count, there_count;
    uint64_t alone_bytes, there_bytes;
} dycl_history;

/* The segment ran, and results of it got these nodes (those without a source are none). `wanted`: so many of its
 * outputs come first, which the program holds. Borrowed; NULL: no memory, so nothing is known. */
const dycl_history *dycl_history_note(dycl_segment *of, const dycl_history_node *nodes, uint32_t count,
                                      uint32_t wanted);
void dycl_history_free(dycl_history *history);

/* Operators of a backward graph that look at what was saved and at no gradient: what they compute could have been kept
 * instead. counts: DYCL_OP_COUNT of them, by operator. How many these are, or ERROR as DYCL_NONE. */
uint32_t dycl_history_again(const dycl_gradients *g, uint32_t *counts);

#endif
