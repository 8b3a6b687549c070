/* The nodes of torch's autograd graph that the results of a segment get when it is computed (tape.h): which there are,
 * what comes in and goes out, and what they save. A result that another one depends on stands between two nodes,
 * because the program may hook it, or ask for its gradient.
 *
 * Threads: GIL held. */
#ifndef DYCL_PY_REGION_TRACK_FLUSH_H
#define DYCL_PY_REGION_TRACK_FLUSH_H

#include "exec/cache/history.h"
#include "py/region/track.h"

typedef dycl_history_node dycl_track_node; /* reach.h */

typedef struct dycl_tracked_flush dycl_tracked_flush;
/* Whether results have a history. */
int dycl_track_needed(const dycl_region *region, uint32_t count);
/* Finds out what has to be saved, and adds it to the outputs. OK; BAIL: the segment has to be replayed with a history;
 * ERROR with an exception. */
dycl_status dycl_track_prepare(dycl_region *region, uint32_t *count, dycl_tracked_flush **out);
/* Gives the computed results their history; `segment` is the one that computed them. 0, or -1 with an exception. */
int dycl_track_finish(dycl_region *region, dycl_tracked_flush *flush, dycl_segment *segment);
/* What was saved may no more be rebound: to be called when the lazy tensors of the segment are bound. */
void dycl_track_share_saved(const dycl_region *region, const dycl_tracked_flush *flush);
/* The tensor of a result that is a view here and none to torch; NULL: it is none of these. The flush keeps it. */
dycl_handle dycl_track_apart(const dycl_tracked_flush *flush, uint32_t value);
void dycl_track_free(dycl_tracked_flush *flush);

#endif
