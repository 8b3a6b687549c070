/* A segment run in pieces: where a loop's trip count has changed, or a branch was taken another way, the trace is new
 * but what it is made of is not. It is cut (cuts.h); each piece is a segment of its own in the plan cache, so that a
 * few plans serve every trip count and every path.
 *
 * Ownership: pieces belong to the segment that they make up, use its graph, and hold references to segments of their
 * own; feeds, scalars and outputs are the caller's. Threads: prepare with the GIL held (the cache is not locked); run
 * without it, one at a time. */
#ifndef DYCL_EXEC_CACHE_PIECES_H
#define DYCL_EXEC_CACHE_PIECES_H

#include "exec/cache/cache.h"

/* How a segment runs now: *out_plan (borrowed) or *out_pieces (prepared, to be run). others: what ran at the same place
 * before, most recent first; a segment seen for the first time that has most of its parts from them runs in pieces,
 * until it has come several times, in a row where only a trip count differs. BAIL: another run of it is under way. */
dycl_status dycl_segment_prepare(dycl_plan_cache *cache, dycl_segment *segment, int other_count,
                                 dycl_segment *const *others, dycl_plan **out_plan, dycl_pieces **out_pieces);

void dycl_pieces_free(dycl_pieces *pieces);

/* Takes the plans of the next run, which has to follow. BAIL: another run is under way. */
dycl_status dycl_pieces_prepare(dycl_plan_cache *cache, dycl_pieces *pieces);
dycl_status dycl_pieces_run(dycl_pieces *pieces, const dycl_feed *feeds, const dycl_scalar *scalars,
                            void *const *outputs);
double dycl_pieces_cost(const dycl_pieces *pieces);   /* nanoseconds, of what was prepared */
int dycl_pieces_are_parts(const dycl_pieces *pieces); /* of a path; 0: of a loop */
uint32_t dycl_pieces_count(const dycl_pieces *pieces);
const dycl_segment *dycl_pieces_segment(const dycl_pieces *pieces, uint32_t nth); /* borrowed */

#endif
