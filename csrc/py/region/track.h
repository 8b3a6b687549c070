/* Gradients of a region: which recorded values have a history, and how their tensors get it. A value has one where
 * gradients are enabled while it is recorded and an operand has one; what feeds the segment has one where torch says
 * so.
 *
 * Ownership: the arrays are the region's. Threads: GIL held. */
#ifndef DYCL_PY_REGION_TRACK_H
#define DYCL_PY_REGION_TRACK_H

#include "py/region/region.h"

/* Of a tracked value. LOST: torch has no history for the feed any more and raises where it is asked for (one of several
 * views of a tensor that was written since), or finds it only there. KEPT: torch's graph keeps the value, though our
 * formula needs another. */
enum { DYCL_TRACK_HISTORY = 1, DYCL_TRACK_KEPT = 2, DYCL_TRACK_LOST = 4 };

extern int dycl_track_on; /* regions record what needs gradients (not with DYCL_TRAIN=0) */

/* Whether regions of this site record what needs gradients where these are enabled, and nobody watches. */
int dycl_track_suits(const struct dycl_site *site);
/* Tensors that are saved for the backward pass in other ways, and nodes that report where they were made, are torch's:
 * whether a program asks for either. */
int dycl_track_is_watched(void);

/* Looks at what was recorded since the last time, with gradients enabled or not as they are now. To be called after
 * each operator. */
void dycl_track_extend(dycl_region *region);
/* The same before the flush, where nothing may be left out. 0, or -1 with an exception. */
int dycl_track_all(dycl_region *region);
/* A value that was recorded just now has no history, whatever its operands have (detach). 1; 0: no memory. */
int dycl_track_drop(dycl_region *region, uint32_t value);
/* Whether a value of the segment has a history. */
static inline int dycl_track_has(const dycl_region *region, uint32_t value) {
    return region->tracks && value < region->tracked_count && region->tracked[value];
}
/* The same of a value that was met just now, and 0 where gradients are disabled: who leaves it out of what is recorded
 * would lose a history. */
int dycl_track_has_now(dycl_region *region, uint32_t value);
int dycl_track_any_now(dycl_region *region, int count, const uint32_t *values); /* of several; NONE: none */
/* Whether all that was recorded from this value on can be differentiated as torch would: each operator has a formula,
 * and torch's gradient of what was called is that of its parts. */
int dycl_track_lets(dycl_region *region, uint32_t first_value, int parts_are_whole);
/* Whether the operator that made this value has a formula for operands that look so: what dycl_track_lets takes for
 * granted, and what a segment that waits could only answer with a replay. -1: no memory. */
int dycl_track_has_formula(dycl_region *region, uint32_t value);
/* Whether torch's gradient of a function is what differentiating its recorded parts gives, ties and zeros too. */
int dycl_track_is_whole(const char *function);

/* Whether an operator in place, which would give the tensor this value, meets or makes a history. */
int dycl_track_writes(dycl_region *region, PyObject *self, uint32_t value);
int dycl_track_writes_from(dycl_region *region, PyObject *self,
                           PyObject *source); /* the same of what is no value yet */
/* Whether it may have that value all the same: both are of this segment, nobody else has the tensor, and no operator
 * needs what it was, so that torch's graph would be the same and raise nothing. */
int dycl_track_may_rebind(dycl_region *region, PyObject *self, uint32_t value);
/* The same of a tensor with a history, before what is written to it is recorded as the first operand's product. */
int dycl_track_may_write(dycl_region *region, PyObject *self);
/* Whether an operator with a history, of those before node `end`, needs the value in the backward pass: torch raises
 * there if it was written over. */
int dycl_track_keeps(dycl_region *region, uint32_t value, uint32_t end);
/* What torch's graph does with a value that was recorded just now, where it has a history: DYCL_TRACK_KEPT, or how its
 * gradient is made (DYCL_GRAD_BY_OPERAND and others). */
void dycl_track_mark(dycl_region *region, uint32_t value, uint8_t how);

#endif
