/* Region or torch, by measurement: a call that torch itself runs faster (one tiny operator, nothing represented) goes
 * to torch as a whole.
 *
 * Each site times its calls. After the first regions (after three, where most operators are left to torch), a few calls
 * run in torch, then ever fewer, more where the preferred way became slower than it was: both ways are exact, so any
 * call may be either. A call that makes plans says nothing about the next call on that path: while paths come back,
 * such calls do not count.
 *
 * Ownership: part of a site. Threads: GIL held. */
#ifndef DYCL_PY_SITE_CHOOSE_H
#define DYCL_PY_SITE_CHOOSE_H

#include <stdint.h>

#define DYCL_CHOOSE_WINDOW 8

typedef enum {
    DYCL_WAY_REGION,
    DYCL_WAY_TORCH,
    DYCL_WAY_INLINE = 0,
    DYCL_WAY_AHEAD
} dycl_way; /* region or torch; a region's segments inline or ahead */
enum { DYCL_MADE_COLD = 1, DYCL_MADE_TUNED = 2 };

typedef struct {
    float times[2][DYCL_CHOOSE_WINDOW]; /* nanoseconds of the last calls of each way */
    uint32_t counts[2];
    uint32_t calls;    /* since the last look at the other way */
    uint32_t interval; /* calls until the next one */
    uint32_t looks;    /* calls of the look that remain */
    float settled;     /* the preferred way's median at the last decision; 0: none yet */
    uint32_t made[2];  /* calls that made a cold plan, and others that made a tuned one */
    uint8_t preferred; /* dycl_way */
    uint8_t hopeless;  /* of the last region most operators were left to torch */
} dycl_choice;

extern int dycl_choose_enabled; /* 0: always regions; tests need what they test */

/* 1 when this call goes to torch without being timed. */
static inline int dycl_choose_torch(dycl_choice *c) {
    return dycl_choose_enabled && c->preferred == DYCL_WAY_TORCH && !c->looks && c->calls++ < c->interval;
}
dycl_way dycl_choose(dycl_choice *choice);
/* hopeless: most operators of this region were left to torch. made: the plans that the call made, DYCL_MADE_ bits */
void dycl_choose_done(dycl_choice *choice, dycl_way way, uint64_t nanoseconds, int hopeless, int made);
uint64_t dycl_choose_now(void);
double dycl_choose_median(const dycl_choice *choice, dycl_way way); /* nanoseconds; 0: never ran */

#endif
