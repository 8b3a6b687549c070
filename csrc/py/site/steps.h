/* Where a training step ends: what is timed of a call that trains lasts until an optimizer's step is over. What a
 * program does before its next step (it validates, it waits for data) says nothing about either way.
 *
 * Ownership: static. Threads: GIL held. */
#ifndef DYCL_PY_SITE_STEPS_H
#define DYCL_PY_SITE_STEPS_H

#include "py/site/choose.h"

void dycl_steps_begin(dycl_moment begun); /* of a call that trains, when it is over */
/* An optimizer's step; only the first one after a call counts. optimizer: compared, not read */
void dycl_steps_over(const void *optimizer);
/* How long that call took, by clock: to the step that followed, to now where none did. Returns a number of the
 * optimizer whose step it was, 0 where none did. */
uint8_t dycl_steps_took(dycl_moment begun, uint64_t out_took[2]);

/* Which steps followed the last calls. Gradients are summed over several calls before a step, a discriminator is called
 * three times for each round of two optimizers: calls that go the same way in a look are whole rounds, or the ways
 * would be compared by different parts of them. */
enum { DYCL_STEPS_LONGEST = 12, DYCL_STEPS_KNOWN = 2 * DYCL_STEPS_LONGEST };
typedef struct {
    uint8_t ends[DYCL_STEPS_KNOWN]; /* what dycl_steps_took said, the newest one at (count - 1) % DYCL_STEPS_KNOWN */
    uint32_t count;
} dycl_rounds;

void dycl_rounds_note(dycl_rounds *rounds, uint8_t end);
int dycl_rounds_calls(
    const dycl_rounds *rounds); /* of the shortest round that comes again and again; 0: there is none */

#endif
