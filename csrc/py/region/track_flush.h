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
/* For a replay: adds to the outputs the views that further results come from (held_views.h), and before them those that
 * are none to torch (*shown: how many outputs there are with these). OK, or ERROR with an exception. */
dycl_status dycl_track_add_views(dycl_region *region, uint32_t *count, uint32_t *shown);
/* Gives the computed results their history; `segment` is the one that computed them. 0, or -1 with an exception. */
int dycl_track_finish(dycl_region *region, dycl_tracked_flush *flush, dycl_segment *segment);
/* What was saved may no more be rebound: to be called when the lazy tensors of the segment are bound. */
void dycl_track_share_saved(const dycl_region *region, const dycl_tracked_flush *flush);
/* The tensor that a lazy tensor got for its history: of a result that is a view here and none to torch, or of a view
 * that further results come from. NULL without an exception: it is none of these. The flush keeps it. */
dycl_handle dycl_track_made(dycl_region *region, dycl_tracked_flush *flush, const dycl_lazy *lazy);
/* The tensor of a pending value where it is known already, for views of it; NULL without an exception. Borrowed */
dycl_handle dycl_track_tensor(dycl_region *region, uint32_t value);
void dycl_track_free(dycl_region *region, dycl_tracked_flush *flush);

#endif
