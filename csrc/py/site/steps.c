#include "py/site/steps.h"

#include <stddef.h>

static dycl_moment over;
static int awaited, by_thread;

void dycl_steps_begin(dycl_moment begun) {
    awaited = 1;
    by_thread |= begun.thread != NULL;
}

void dycl_steps_over(void) {
    if (!awaited) return;
    over = dycl_choose_moment(by_thread);
    awaited = by_thread = 0;
}

void dycl_steps_took(dycl_moment begun, uint64_t out_took[2]) {
    int known = over.clocks[DYCL_CLOCK_WALL] > begun.clocks[DYCL_CLOCK_WALL];
    awaited = 0; /* a step inside of the call that begins is none after it */
    dycl_moment end = known ? over : dycl_choose_moment(begun.thread != NULL);
    dycl_choose_elapsed(begun, end, out_took);
}
