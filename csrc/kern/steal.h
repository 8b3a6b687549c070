/* Work stealing for loops: a thread does the units of its own share, in order, then those that others have left.
 *
 * With fixed shares all wait for the slowest core: one that runs another program too, or belongs to a virtual machine
 * with neighbours, is often a quarter slower for a while. On two such cores products took 5 to 15 % less time; where
 * cores are alike nothing changes, as each thread touches the memory that it would have touched. A unit's result may
 * not depend on the thread that makes it.
 *
 * Ownership: a dycl_steal lives on the stack of who opens the parallel region. Threads: dycl_steal_next by all. */
#ifndef DYCL_KERN_STEAL_H
#define DYCL_KERN_STEAL_H

#include <stdatomic.h>
#include <stdint.h>

#define DYCL_STEAL_THREADS 64     /* of larger teams each keeps to its shares */
#define DYCL_STEAL_UNITS   16     /* of a share: of more of them a slow core would be no less waited for */
#define DYCL_STEAL_WORTH   2000.0 /* nanoseconds of a unit; taking one costs up to 100 */

typedef struct {
    struct {
        _Alignas(64) _Atomic int64_t taken; /* units; a line of the cache for each share */
    } shares[DYCL_STEAL_THREADS];
} dycl_steal;

/* Where a thread is. owner, unit: what it does now. */
typedef struct {
    int64_t self, team, shares, units; /* units: of each share */
    int64_t ahead, own;                /* shares that are finished; units that were taken without stealing */
    int64_t owner, unit;
} dycl_steal_walk;

/* Before the parallel region. */
static inline void dycl_steal_begin(dycl_steal *steal, int64_t shares) {
    for (int64_t i = 0; i < shares && i < DYCL_STEAL_THREADS; i++) atomic_init(&steal->shares[i].taken, 0);
}

/* shares: as many as threads were asked for; the team may be smaller. */
static inline dycl_steal_walk dycl_steal_walk_of(int64_t self, int64_t team, int64_t shares, int64_t units) {
    return (dycl_steal_walk){.self = self, .team = team, .shares = shares, .units = units};
}

/* 0: nothing is left to begin. */
static inline int dycl_steal_next(dycl_steal *steal, dycl_steal_walk *walk) {
    if (walk->shares > DYCL_STEAL_THREADS) {
        walk->owner = walk->self + walk->own / walk->units * walk->team;
        walk->unit = walk->own++ % walk->units;
        return walk->owner < walk->shares;
    }
    for (; walk->ahead < walk->shares; walk->ahead++) {
        walk->owner = (walk->self + walk->ahead) % walk->shares;
        walk->unit = atomic_fetch_add_explicit(&steal->shares[walk->owner].taken, 1, memory_order_relaxed);
        if (walk->unit < walk->units) return 1;
    }
    return 0;
}

/* Units of a share that takes so many nanoseconds and can be cut into so many parts. */
static inline int64_t dycl_steal_units(double nanoseconds, int64_t parts) {
    double worth = nanoseconds / DYCL_STEAL_WORTH;
    int64_t units = worth < DYCL_STEAL_UNITS ? (int64_t)worth : DYCL_STEAL_UNITS;
    if (units > parts) units = parts;
    return units < 1 ? 1 : units;
}

/* The unit's part of [from, end). */
static inline int64_t dycl_steal_cut(int64_t from, int64_t end, int64_t unit, int64_t units) {
    return from + (end - from) * unit / units;
}

/* What the thread does now of `count` things that the shares divide evenly: [from, end). */
static inline void dycl_steal_range(const dycl_steal_walk *walk, int64_t count, int64_t *from, int64_t *end) {
    int64_t first = dycl_steal_cut(0, count, walk->owner, walk->shares),
            last = dycl_steal_cut(0, count, walk->owner + 1, walk->shares);
    *from = dycl_steal_cut(first, last, walk->unit, walk->units);
    *end = dycl_steal_cut(first, last, walk->unit + 1, walk->units);
}

#endif
