/* Where a segment is cut, so that others share its pieces.
 *
 * A loop's trip count has changed: what stands before the loop, runs of 16, 8, 4, 2 and 1 iterations, what stands
 * behind. A branch was taken another way: the trace is cut into parts (opt/parts.h), if those that ran at its place
 * before had most of them, too.
 *
 * Ownership: cuts are the caller's; what is found out about a segment (its body, its parts) is kept in it. Threads: GIL
 * held. */
#ifndef DYCL_EXEC_CACHE_CUTS_H
#define DYCL_EXEC_CACHE_CUTS_H

#include "exec/cache/cache.h"

typedef struct {
    uint32_t *nodes;  /* owned: what has to be computed, without views, in order */
    uint32_t *places; /* owned: positions in `nodes` where pieces begin, and the end */
    uint32_t count;   /* of pieces */
    int by_parts;     /* 1: into parts, at least in places */
} dycl_cuts;

/* others: what ran at the same place before, most recent first. BAIL: it is better as a whole. */
dycl_status dycl_cuts_find(dycl_segment *segment, int other_count, dycl_segment *const *others, dycl_cuts *out);
void dycl_cuts_free(dycl_cuts *cuts);

#endif
