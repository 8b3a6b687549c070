/* The end of a segment: which values have to be computed, how they are, and how their tensors get to the lazy tensors
 * that wait for them; and what is expected of the next one.
 *
 * Ownership: all of it is the region's. Threads: GIL held; running may give it up, while the region is marked as
 * flushing. */
#ifndef DYCL_PY_REGION_SEGMENT_H
#define DYCL_PY_REGION_SEGMENT_H

#include "py/region/region.h"

/* Computes what somebody holds and gives every pending lazy tensor its tensor. WANTED: the only storage that is wanted
 * now, so that defer.h may leave others for later, or DYCL_NONE. The segment has not ended yet: begin_segment does
 * that. 0, or -1 with an exception. */
int dycl_region_run_segment(dycl_region *region, dycl_bail why, uint32_t wanted);
/* Room for so many outputs, their handles and addresses. OK, or ERROR with an exception. */
dycl_status dycl_segment_grow_outputs(dycl_region *region, uint32_t wanted);
/* New tensors for the outputs of a graph: handles (the caller's) and where their elements lie. 1; 0 without an
 * exception: nothing is made. */
int dycl_segment_allocate(const dycl_graph *graph, const uint32_t *outputs, uint32_t count, dycl_handle *handles,
                          void **addresses);
/* The computed tensor of a root of the segment, or what fed it. Borrowed */
dycl_handle dycl_segment_base(const dycl_region *region, uint32_t root);
/* Forgets the graph and lets go of its feeds; nothing may be pending. */
void dycl_region_begin_segment(dycl_region *region);
/* Expects what followed this position of the TraceGraph before; the segment is empty. */
void dycl_region_expect(dycl_region *region);

#endif
