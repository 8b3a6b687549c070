/* Operators in place on plain tensors, recorded: the tensor has another value from then on, and its memory gets it when
 * the segment is computed, in place where the plan allows it (exec/tile/in_place.h). Only where nobody but torch's own
 * Python code can look at that memory meanwhile: in an optimizer's step (entry/optimizer.h). Versions count at once.
 * Elsewhere, where gradients are recorded: the running statistics of a batch norm.
 *
 * Ownership: what is replaced is a feed, which the region holds. Threads: GIL held. */
#ifndef DYCL_PY_REGION_REPLACE_H
#define DYCL_PY_REGION_REPLACE_H

#include "py/region/region.h"

/* The plain tensor gets a value that was recorded for it alone. 1; 0: torch has to write (recorder.why); -1 with an
 * exception. */
int dycl_replace_value(dycl_region *region, PyObject *tensor, uint32_t value);
/* Several plain tensors get values that were recorded for them alone, and no version counts: the statistics of a batch
 * norm, which torch writes unseen. In any region. 1: all of them; 0: none, torch has to write (recorder.why); -1 with
 * an exception. `values` NULL: asks only whether they may, which has to come first. */
int dycl_replace_unseen(dycl_region *region, int count, PyObject *const *tensors, const uint32_t *values);
/* Before a plain tensor's memory is read at once: what waits to be written there is. 0 or -1. */
int dycl_replace_settle(dycl_region *region, PyObject *tensor);
/* Whether it is the value that a plain tensor has now. */
int dycl_replace_has(const dycl_region *region, uint32_t value);
/* Whether the segment's feeds are noted by their storages. */
static inline int dycl_replace_notes(const dycl_region *region) { return region->replaces || region->unseen; }
/* Where feeds are noted: a feed was added. 1: it overlaps memory that waits for its value, so nothing may be
 * recorded with it; 0; -1 with an exception. */
int dycl_replace_fed(dycl_region *region, uint32_t feed);
/* Where feeds are noted: whether one lies in this storage. */
int dycl_replace_reads(const dycl_region *region, uint64_t storage);
/* Whether something is replaced that shares a storage with the tensor. */
int dycl_replace_awaited(const dycl_region *region, PyObject *tensor);

/* ---- For the flush: what is replaced is the first of the outputs. */

/* Adds them to outputs and output_of. */
void dycl_replace_collect(dycl_region *region);
/* Their handles and addresses are those of their tensors. 0, or -1 with an exception. */
int dycl_replace_bind(dycl_region *region);
/* Whether the plan may write there. NULL: pieces do not. */
int dycl_replace_in_place(const dycl_region *region, dycl_plan *plan);
/* Runs a plan or pieces with these addresses, or beside them, and copies what was computed. May run without the GIL. */
dycl_status dycl_replace_run(const dycl_region *region, dycl_plan *plan, dycl_pieces *pieces, int in_place);
/* Copies what a replay computed (region->handles, which are let go) into place. 0, or -1 with an exception. */
int dycl_replace_replayed(dycl_region *region);

#endif
