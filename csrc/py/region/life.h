/* How a region begins and ends.
 *
 * Ownership: regions are pooled. Threads: GIL held. */
#ifndef DYCL_PY_REGION_LIFE_H
#define DYCL_PY_REGION_LIFE_H

#include "py/region/region.h"

dycl_region *dycl_region_take(void); /* from the pool; NULL with an exception */
void dycl_region_give(dycl_region *region);

/* Our function mode: 0 or -1. */
int dycl_region_push_mode(void);
/* Our mode leaves the stack also where the program entered modes of its own and never left them: these stay. Memory is
 * needed for none of it. */
int dycl_region_pop_mode(void);

/* Every lazy tensor of the region becomes plain, by the objects that the program has. Not within a flush. 0 or -1. */
int dycl_region_make_all_plain(dycl_region *region, dycl_bail why);

/* Every lazy tensor that is still referenced becomes plain. Letting go of what the segment held may run Python code
 * (finalizers) that records again: then once more, and after some rounds without recording. */
int dycl_region_end(dycl_region *region, PyObject **value);

#endif
