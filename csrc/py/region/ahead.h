/* Co-execution (Terra's GraphRunner): the runner computes the expected segment while Python still records it
 * (exec/plan/ahead.h).
 *
 * Which way a site takes, inline or ahead, is measured like region or torch (site/choose.h); DYCL_AHEAD=0 and =1 decide
 * it.
 *
 * Ownership: part of a region. Threads: GIL held; taking gives it up while it waits. */
#ifndef DYCL_PY_REGION_AHEAD_H
#define DYCL_PY_REGION_AHEAD_H

#include "py/site/choose.h"
#include "py/region/region.h"

#define DYCL_AHEAD_LEAST_NS 50000.0 /* a shorter segment ends before a thread has woken up */

/* Whether this region runs ahead; dycl_ahead_done gets its time. */
int dycl_ahead_choose(struct dycl_site *site);
int dycl_ahead_forced(void); /* what DYCL_AHEAD says; -1: nothing */
void dycl_ahead_done(struct dycl_site *site, int was_ahead, uint64_t nanoseconds, int made);

void dycl_region_ahead_step(
    dycl_region *region); /* after an operator was recorded: starts the runner, or tells it how far the trace is */
/* The segment's outputs as the runner computed them, in region->handles and ->addresses. 1; 0: not computed ahead, or
 * it does not count. */
int dycl_region_ahead_take(dycl_region *region, uint32_t count, dycl_segment **out_segment);
void dycl_region_ahead_drop(dycl_region *region); /* before the segment's feeds go */

#endif
