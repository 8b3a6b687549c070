#include "py/site/choose.h"

#include <time.h>

int dycl_choose_enabled = 1;

enum {
    FIRST_LOOK = 24,    /* regions before torch is tried: plans are made and tuned by then */
    FIRST_HOPELESS = 3, /* the same where most operators are left to torch */
    LOOK = 3,           /* calls of one look, where they say enough */
    DRIFT = 8,          /* where calls became slower, the next look comes so many times sooner */
    LONGEST = 16384,    /* calls between looks, at most */
    NEW_PATHS = 24,     /* calls with a new path that do not count, and so many more for each path that came back: */
    NEW_PER_OLD = 4,    /* fifty paths in turn are not yet a program that never repeats itself */
};

uint64_t dycl_choose_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

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

/* The ways differ by less than calls do by chance: a look of three says little. Where little is recorded there is
 * little to gain, and the region has to be clearly faster. */
enum { CLOSE = 15, PLAINLY = 5 }; /* per cent */

static int is_close(const dycl_choice *c) {
    double region = dycl_choose_median(c, DYCL_WAY_REGION), torch = dycl_choose_median(c, DYCL_WAY_TORCH);
    return region * 100 < torch * (100 + CLOSE) && torch * 100 < region * (100 + CLOSE);
}

/* After a look: which way from now on, and when to look again. A clear difference is looked at again much later. */
static void decide(dycl_choice *c) {
    double region = dycl_choose_median(c, DYCL_WAY_REGION), torch = dycl_choose_median(c, DYCL_WAY_TORCH);
    double fair = c->hopeless ? torch * (1 - PLAINLY / 100.) : torch;
    uint8_t better = fair < region ? DYCL_WAY_TORCH : DYCL_WAY_REGION;
    double gain = better == DYCL_WAY_TORCH ? region / torch : torch / region;
    c->interval = better == c->preferred ? c->interval * (gain > 1.5 ? 16 : 2) : 4 * FIRST_LOOK;
    if (c->interval > LONGEST) c->interval = LONGEST;
    c->preferred = better;
    c->settled = (float)(torch < region ? torch : region);
    c->calls = 0;
}

/* The recorded way became clearly slower since it was preferred (other shapes, paths that are always new): torch may be
 * faster by now. */
static int drifted(const dycl_choice *c) {
    return c->settled > 0 && c->preferred == DYCL_WAY_REGION && c->counts[DYCL_WAY_REGION] % DYCL_CHOOSE_WINDOW == 0 &&
           c->calls >= FIRST_LOOK && c->calls >= c->interval / DRIFT &&
           dycl_choose_median(c, DYCL_WAY_REGION) > 1.25 * c->settled;
}

dycl_way dycl_choose(dycl_choice *c) {
    if (!dycl_choose_enabled) return DYCL_WAY_REGION;
    if (c->interval == 0) c->interval = FIRST_LOOK;
    if (c->looks == 0 && c->calls >= c->interval && c->counts[c->preferred] >= LOOK) {
        c->looks = LOOK;
        c->counts[!c->preferred] = 0;
    }
    return (dycl_way)(c->looks ? !c->preferred : c->preferred);
}

void dycl_choose_done(dycl_choice *c, dycl_way way, uint64_t nanoseconds, int hopeless, int made) {
    if (!dycl_choose_enabled) return;
    if (made && !hopeless) {
        c->made[!(made & DYCL_MADE_COLD)]++;
        if (c->made[0] <= NEW_PATHS + NEW_PER_OLD * c->made[1]) {
            c->calls++;
            return;
        }
    }
    c->times[way][c->counts[way]++ % DYCL_CHOOSE_WINDOW] = (float)nanoseconds;
    c->calls++;
    if (way == DYCL_WAY_REGION) c->hopeless = (uint8_t)hopeless;
    if (c->looks && way != c->preferred && --c->looks == 0) {
        if (c->counts[way] < DYCL_CHOOSE_WINDOW && is_close(c))
            c->looks = DYCL_CHOOSE_WINDOW - c->counts[way];
        else
            decide(c); /* the calls of a way that is preferred but not timed keep their old times */
    } else if (!c->looks && ((hopeless && c->settled == 0 && c->calls >= FIRST_HOPELESS) || drifted(c)))
        c->interval = c->calls;
}
