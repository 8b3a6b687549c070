#include "py/site/steps.h"

#include <stddef.h>

static dycl_moment over;
static uint8_t whose;
static int awaited, by_thread;

void dycl_steps_begin(dycl_moment begun) {
    awaited = 1;
    by_thread |= begun.thread != NULL;
}

void dycl_steps_over(const void *optimizer) {
    if (!awaited) return;
    over = dycl_choose_moment(by_thread);
    whose = (uint8_t)((uint64_t)(uintptr_t)optimizer * 0x9e3779b97f4a7c15u >> 56) | 1;
    awaited = by_thread = 0;
}

uint8_t dycl_steps_took(dycl_moment begun, uint64_t out_took[2]) {
    int known = over.clocks[DYCL_CLOCK_WALL] > begun.clocks[DYCL_CLOCK_WALL];
    awaited = 0; /* a step inside of the call that begins is none after it */
    dycl_moment end = known ? over : dycl_choose_moment(begun.thread != NULL);
    dycl_choose_elapsed(begun, end, out_took);
    return known ? whose : 0;
}

void dycl_rounds_note(dycl_rounds *r, uint8_t end) { r->ends[r->count++ % DYCL_STEPS_KNOWN] = end; }

int dycl_rounds_calls(const dycl_rounds *r) {
    uint32_t known = r->count < DYCL_STEPS_KNOWN ? r->count : DYCL_STEPS_KNOWN;
    for (uint32_t calls = 1; 2 * calls <= known; calls++) {
        uint32_t ago = 0; /* from the newest call back */
        while (ago + calls < known && r->ends[(r->count - 1 - ago) % DYCL_STEPS_KNOWN] ==
                                          r->ends[(r->count - 1 - ago - calls) % DYCL_STEPS_KNOWN])
            ago++;
        if (ago + calls == known) return (int)calls;
    }
    return 0;
}
