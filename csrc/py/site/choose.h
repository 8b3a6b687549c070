/* Region or torch, by measurement: a call that torch itself runs faster (one tiny operator, nothing represented) goes
 * to torch as a whole.
 *
 * After the first regions (after three, where most operators are left to torch), a site looks at both ways: calls go
 * one way and the other in turn, so that both see the same machine and the same load, until the pairs say clearly which
 * one is faster. The next look comes later, the later the more this one cost; sooner where the preferred way became
 * slower than it was. Both ways are exact, so any call may be either. A call that makes plans says nothing about the
 * next call on that path: while paths come back, such calls do not count.
 *
 * In a look the processor time of the thread counts, which other work on the machine hardly changes. It does not see
 * what a call waits for: a pair of which a call waited (the kernel counts that) goes by the wall clock.
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
enum { DYCL_CLOCK_WALL, DYCL_CLOCK_THREAD };

/* Nanoseconds: a time, or how long something took. */
typedef struct {
    uint64_t clocks[2];
    uint64_t waits;     /* so often the thread waited: sleep, locks, other threads; not for a processor */
    const void *thread; /* whose; NULL: only the wall clock was read */
} dycl_moment;

/* The look under way. */
typedef struct {
    float sums[2][2]; /* of the pair, by way and clock */
    float low, high;  /* torch's time by the region's, of all pairs */
    int walk;         /* pairs for the region, less those for torch; clear ones count twice */
    uint8_t taken[2]; /* calls of the pair, by way */
    uint8_t waited;   /* one of them did */
    uint8_t pairs;    /* that are over */
    uint8_t first;    /* dycl_way: which one begins the pair */
} dycl_look;

typedef struct {
    float times[2][DYCL_CHOOSE_WINDOW]; /* nanoseconds of the last calls of each way */
    uint32_t counts[2];
    uint32_t calls;    /* since the last look */
    uint32_t interval; /* calls until the next one */
    float cost;        /* of the last look, in calls */
    float settled;     /* the preferred way's median at the last decision; 0: none yet */
    uint32_t made[2];  /* calls that made a cold plan, and others that made a tuned one */
    uint8_t preferred; /* dycl_way */
    uint8_t hopeless;  /* of the last region most operators were left to torch */
    uint8_t run;       /* calls in a row that go the same way in a look; 0: one */
    uint8_t looks;     /* a look is under way */
    dycl_look look;
} dycl_choice;

#define DYCL_CHOOSE_TRAINING_RUN 4 /* .run where several calls may belong to one step */

extern int dycl_choose_enabled; /* 0: always regions; tests need what they test */

/* 1 when this call goes to torch without being timed. */
static inline int dycl_choose_torch(dycl_choice *c) {
    return dycl_choose_enabled && c->preferred == DYCL_WAY_TORCH && !c->looks && c->calls++ < c->interval;
}
dycl_way dycl_choose(dycl_choice *choice);
dycl_moment dycl_choose_moment(int thread); /* now, also by the thread's clock */
/* From one to the other, by clock: by the thread's as by the wall clock, where it does not say it all. */
void dycl_choose_elapsed(dycl_moment from, dycl_moment to, uint64_t out_took[2]);
/* The call's time, after dycl_choose. alone: no other thread does a part of its work. */
static inline dycl_moment dycl_choose_begin(const dycl_choice *c, int alone) {
    return dycl_choose_moment(c->looks && alone);
}
/* hopeless: most operators of this region were left to torch. made: the plans that the call made, DYCL_MADE_ bits */
void dycl_choose_done(dycl_choice *choice, dycl_way way, dycl_moment begun, int hopeless, int made);
/* The same, of a call that took so long (dycl_choose_elapsed). */
void dycl_choose_took(dycl_choice *choice, dycl_way way, const uint64_t took[2], int hopeless, int made);
uint64_t dycl_choose_now(void);
double dycl_choose_median(const dycl_choice *choice, dycl_way way); /* nanoseconds by the wall clock; 0: never ran */

#endif
