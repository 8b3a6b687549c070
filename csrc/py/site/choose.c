#define _GNU_SOURCE /* RUSAGE_THREAD */
#include "py/site/choose.h"

#include <string.h>
#include <sys/resource.h>
#include <time.h>

int dycl_choose_enabled = 1;

enum {
    FIRST_LOOK = 24,    /* regions before torch is tried: plans are made and tuned by then */
    FIRST_HOPELESS = 3, /* the same where most operators are left to torch */
    LEAST = 3,          /* regions that counted, before a look */
    HOLD = 32,          /* calls that a new decision holds, at least */
    SHARE = 16,         /* and so many times what its look cost; each time that it is confirmed: */
    LONGER_REGION = 4,  /* so many times as long, where calls that became slower are noticed */
    LONGER_TORCH = 2,
    DRIFT = 4,         /* where calls became slower, the next look comes so many times sooner, */
    SHARE_DRIFT = 100, /* but not sooner than so many times what the last one cost */
    LONGEST = 16384,   /* calls between looks, at most */
    NEW_PATHS = 24,    /* calls with a new path that do not count, and so many more for each path that came back: */
    NEW_PER_OLD = 4,   /* fifty paths in turn are not yet a program that never repeats itself */
};

/* Where a walk ends. Two clear pairs confirm what is preferred; to leave it takes more. */
enum {
    CONFIRMED = 4,
    FIRST = 6,
    CHANGED = 8,
    CHANGED_HOPELESS = 3,
};
enum { PAIRS = 16 }; /* the longest look: where the ways are that close, either will do */
/* Per cent. A pair that is so clear counts twice, and one of several calls a side varies less; where little is
 * recorded, the region has to be plainly faster. */
enum { CLEARLY = 50, CLEARLY_OF_MANY = 20, PLAINLY = 5 };

static uint64_t read_clock(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t dycl_choose_now(void) { return read_clock(CLOCK_MONOTONIC); }

double dycl_choose_median(const dycl_choice *choice, dycl_way way) {
    float sorted[DYCL_CHOOSE_WINDOW];
    int n = choice->counts[way] < DYCL_CHOOSE_WINDOW ? (int)choice->counts[way] : DYCL_CHOOSE_WINDOW;
    if (n == 0) return 0;
    for (int i = 0; i < n; i++) {
        int j = i;
        for (; j > 0 && sorted[j - 1] > choice->times[way][i]; j--) sorted[j] = sorted[j - 1];
        sorted[j] = choice->times[way][i];
    }
    return sorted[n / 2];
}

/* ---- A look */

/* Which way begins a pair is drawn: inputs may come in turn as well. */
static void begin_pair(dycl_look *look) {
    static uint32_t drawn = 1;
    drawn = drawn * 1664525u + 1013904223u;
    memset(look->sums, 0, sizeof look->sums);
    look->taken[0] = look->taken[1] = look->waited = 0;
    look->first = (uint8_t)(drawn >> 31);
}

static void begin_look(dycl_choice *c) {
    memset(&c->look, 0, sizeof c->look);
    c->looks = 1;
    begin_pair(&c->look);
}

static int run_of(const dycl_choice *c) { return c->run ? c->run : 1; }

/* What a pair says: more than 0 for the region. */
static int step(const dycl_choice *c, double region, double torch) {
    const double clearly = 1 + (run_of(c) > 1 ? CLEARLY_OF_MANY : CLEARLY) / 100.;
    int size = region > torch * clearly || torch > region * clearly ? 2 : 1;
    double fair = c->hopeless ? torch * (1 - PLAINLY / 100.) : torch;
    return fair < region ? -size : size;
}

/* The way that the look decides for; -1: not yet. */
static int verdict(const dycl_choice *c) {
    int walk = c->look.walk, enough = c->settled > 0 ? CHANGED : FIRST;
    int way = walk < 0 ? DYCL_WAY_TORCH : walk > 0 ? DYCL_WAY_REGION : c->preferred;
    if (way == c->preferred)
        enough = CONFIRMED;
    else if (c->hopeless && way == DYCL_WAY_TORCH)
        enough = CHANGED_HOPELESS;
    return c->look.pairs >= PAIRS || walk >= enough || walk <= -enough ? way : -1;
}

/* Which way from now on, and when to look again: a look that cost much is repeated later. What it cost are the calls
 * that would have fitted into the time that the other way took more, as the pair says that differed least. */
static void decide(dycl_choice *c, uint8_t better) {
    const dycl_look *look = &c->look;
    double gain = better == DYCL_WAY_REGION ? look->low : 1 / look->high;
    double hold = HOLD;
    c->cost = gain > 1 ? (float)((gain - 1) * look->pairs * run_of(c)) : 0;
    if (better == DYCL_WAY_REGION && c->settled <= 0 && look->pairs <= CONFIRMED / 2) /* no pair left a doubt */
        hold = HOLD * LONGER_REGION;
    if (better == c->preferred && c->settled > 0)
        hold = (double)c->interval * (better == DYCL_WAY_REGION ? LONGER_REGION : LONGER_TORCH);
    if (hold < SHARE * c->cost) hold = SHARE * c->cost;
    c->interval = hold < LONGEST ? (uint32_t)hold : LONGEST;
    c->preferred = better;
    c->settled = (float)dycl_choose_median(c, (dycl_way)better);
    c->calls = 0;
    c->looks = 0;
}

/* A call of a look. */
static void add(dycl_choice *c, dycl_way way, const uint64_t took[2]) {
    dycl_look *look = &c->look;
    int run = run_of(c);
    for (int clock = 0; clock < 2; clock++) look->sums[way][clock] += (float)took[clock];
    look->waited |= took[DYCL_CLOCK_THREAD] >= took[DYCL_CLOCK_WALL];
    look->taken[way]++;
    if (look->taken[DYCL_WAY_REGION] < run || look->taken[DYCL_WAY_TORCH] < run) return;
    int clock = look->waited ? DYCL_CLOCK_WALL : DYCL_CLOCK_THREAD;
    double region = look->sums[DYCL_WAY_REGION][clock] / look->taken[DYCL_WAY_REGION];
    double torch = look->sums[DYCL_WAY_TORCH][clock] / look->taken[DYCL_WAY_TORCH];
    float gain = (float)((torch + 1) / (region + 1));
    look->walk += step(c, region, torch);
    if (!look->pairs || gain < look->low) look->low = gain;
    if (!look->pairs || gain > look->high) look->high = gain;
    look->pairs++;
    int better = verdict(c);
    if (better < 0)
        begin_pair(look);
    else
        decide(c, (uint8_t)better);
}

/* ---- A call */

/* The recorded way became clearly slower since it was preferred (other shapes, paths that are always new): torch may be
 * faster by now. */
static int drifted(const dycl_choice *c) {
    return c->settled > 0 && c->preferred == DYCL_WAY_REGION && c->counts[DYCL_WAY_REGION] % DYCL_CHOOSE_WINDOW == 0 &&
           c->calls >= FIRST_LOOK && c->calls >= c->interval / DRIFT && c->calls >= SHARE_DRIFT * c->cost &&
           dycl_choose_median(c, DYCL_WAY_REGION) > 1.25 * c->settled;
}

dycl_way dycl_choose(dycl_choice *c) {
    if (!dycl_choose_enabled) return DYCL_WAY_REGION;
    if (c->interval == 0) c->interval = FIRST_LOOK;
    int known = c->settled > 0 || c->counts[DYCL_WAY_REGION] >= LEAST;
    if (!c->looks && c->calls >= c->interval && known) begin_look(c);
    if (!c->looks) return (dycl_way)c->preferred;
    return (dycl_way)(c->look.taken[c->look.first] < run_of(c) ? c->look.first : !c->look.first);
}

static _Thread_local char here; /* its address is the thread's name */

dycl_moment dycl_choose_moment(int thread) {
    struct rusage usage;
    dycl_moment m = {.clocks = {dycl_choose_now(), 0}};
    if (thread && getrusage(RUSAGE_THREAD, &usage) == 0) {
        m.clocks[DYCL_CLOCK_THREAD] = read_clock(CLOCK_THREAD_CPUTIME_ID);
        m.waits = (uint64_t)usage.ru_nvcsw;
        m.thread = &here;
    }
    return m;
}

void dycl_choose_elapsed(dycl_moment from, dycl_moment to, uint64_t out_took[2]) {
    int clock = from.thread && from.thread == to.thread && from.waits == to.waits ? DYCL_CLOCK_THREAD : DYCL_CLOCK_WALL;
    out_took[DYCL_CLOCK_WALL] = to.clocks[DYCL_CLOCK_WALL] - from.clocks[DYCL_CLOCK_WALL];
    out_took[DYCL_CLOCK_THREAD] = to.clocks[clock] - from.clocks[clock];
}

void dycl_choose_done(dycl_choice *c, dycl_way way, dycl_moment begun, int hopeless, int made) {
    uint64_t took[2];
    dycl_choose_elapsed(begun, dycl_choose_moment(begun.thread != NULL), took);
    dycl_choose_took(c, way, took, hopeless, made);
}

void dycl_choose_took(dycl_choice *c, dycl_way way, const uint64_t took[2], int hopeless, int made) {
    if (!dycl_choose_enabled) return;
    c->calls++;
    if (made && !hopeless) {
        c->made[!(made & DYCL_MADE_COLD)]++;
        if (c->made[0] <= NEW_PATHS + NEW_PER_OLD * c->made[1]) return;
    }
    int first = c->looks && !c->look.pairs && !c->look.taken[way];
    if (first && way != c->preferred) c->counts[way] = 0; /* what it took at the look before says nothing */
    c->times[way][c->counts[way]++ % DYCL_CHOOSE_WINDOW] = (float)took[DYCL_CLOCK_WALL];
    if (way == DYCL_WAY_REGION) c->hopeless = (uint8_t)hopeless;
    if (c->looks)
        add(c, way, took);
    else if ((hopeless && c->settled == 0 && c->calls >= FIRST_HOPELESS) || drifted(c))
        c->interval = c->calls;
}
