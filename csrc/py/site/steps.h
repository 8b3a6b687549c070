/* Where a training step ends: what is timed of a call that trains lasts until an optimizer's step is over. What a
 * program does before its next step (it validates, it waits for data) says nothing about either way.
 *
 * Ownership: static. Threads: GIL held. */
#ifndef DYCL_PY_SITE_STEPS_H
#define DYCL_PY_SITE_STEPS_H

#include "py/site/choose.h"

void dycl_steps_begin(dycl_moment begun); /* of a call that trains, when it is over */
void dycl_steps_over(void);               /* an optimizer's step; only the first one after a call counts */
/* How long that call took, by clock: to the step that followed, to now where none did. */
void dycl_steps_took(dycl_moment begun, uint64_t out_took[2]);

#endif
