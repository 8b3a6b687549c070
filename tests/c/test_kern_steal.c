/* Loops whose threads take from one another: every unit is done once, whatever the number of threads, shares and units;
 * what a slow thread has not begun, others do; and the cuts of a share meet. */
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "kern/steal.h"
#include "random.h"

enum { MOST_SHARES = 80, MOST_UNITS = 20 };

static int failures;

static void expect(int fact, const char *what, int64_t shares, int64_t units, int64_t threads) {
    if (!fact && failures++ < 20)
        printf("FAIL %s: %d shares of %d units, %d threads\n", what, (int)shares, (int)units, (int)threads);
}

/* The team may be smaller than the number of shares. */
static void every_unit_once(int64_t shares, int64_t units, int threads) {
    static int done[MOST_SHARES][MOST_UNITS];
    int outside = 0;
    dycl_steal steal;
    memset(done, 0, sizeof done);
    memset(&steal, 0x5a, sizeof steal);
    dycl_steal_begin(&steal, shares);
#pragma omp parallel num_threads(threads) reduction(+ : outside)
    {
        dycl_steal_walk walk = dycl_steal_walk_of(omp_get_thread_num(), omp_get_num_threads(), shares, units);
        while (dycl_steal_next(&steal, &walk)) {
            if (walk.owner < 0 || walk.owner >= shares || walk.unit < 0 || walk.unit >= units) {
                outside++;
                continue;
            }
#pragma omp atomic
            done[walk.owner][walk.unit]++;
        }
        outside += dycl_steal_next(&steal, &walk); /* it stays finished */
    }
    expect(!outside, "a unit that is none", shares, units, threads);
    for (int64_t s = 0; s < shares; s++)
        for (int64_t u = 0; u < units; u++) expect(done[s][u] == 1, "a unit not done once", shares, units, threads);
}

/* Thread 0 stays in its first unit until all others are done: by whom, if not by the other thread? */
static void slow_thread_is_helped(void) {
    enum { UNITS = 8 };
    atomic_int others = 0, waited = 0;
    int first[2] = {-1, -1};
    dycl_steal steal;
    dycl_steal_begin(&steal, 2);
#pragma omp parallel num_threads(2)
    {
        int64_t self = omp_get_thread_num(), team = omp_get_num_threads();
        dycl_steal_walk walk = dycl_steal_walk_of(self, team, 2, UNITS);
        while (dycl_steal_next(&steal, &walk)) {
            if (first[self] < 0) first[self] = (int)walk.owner;
            if (self || team < 2) {
                atomic_fetch_add(&others, 1);
                continue;
            }
            while (atomic_load(&others) < 2 * UNITS - 1 && atomic_fetch_add(&waited, 1) < 2000000000) {
            }
        }
        if (team < 2) first[1] = 1;
    }
    expect(atomic_load(&others) >= 2 * UNITS - 1, "a slow thread is not helped", 2, UNITS, 2);
    expect(first[1] == 1, "a thread begins with the share of another", 2, UNITS, 2);
}

static void cuts_meet(void) {
    for (int i = 0; i < 1000; i++) {
        int64_t from = below(100), end = from + below(1000), parts = 1 + below(40);
        int64_t units = dycl_steal_units((double)below(100000), parts), at = from;
        expect(units >= 1 && units <= parts && units <= DYCL_STEAL_UNITS, "a number of units", 1, units, 1);
        for (int64_t u = 0; u < units; u++) {
            expect(dycl_steal_cut(from, end, u, units) == at, "cuts do not meet", 1, units, 1);
            at = dycl_steal_cut(from, end, u + 1, units);
        }
        expect(at == end, "the last cut is not the end", 1, units, 1);
    }
}

static void ranges_meet(void) {
    for (int i = 0; i < 1000; i++) {
        int64_t count = below(3000), shares = 1 + below(9), units = 1 + below(MOST_UNITS), at = 0, from, end;
        for (int64_t s = 0; s < shares; s++)
            for (int64_t u = 0; u < units; u++, at = end) {
                const dycl_steal_walk walk = {.shares = shares, .units = units, .owner = s, .unit = u};
                dycl_steal_range(&walk, count, &from, &end);
                expect(from == at && end >= from, "ranges do not meet", shares, units, 1);
            }
        expect(at == count, "the last range does not reach the end", shares, units, 1);
    }
}

int main(void) {
    for (int i = 0; i < 400; i++) {
        int threads = 1 + below(6);
        every_unit_once(below(10) ? threads + below(4) : 1 + below(MOST_SHARES), 1 + below(MOST_UNITS), threads);
    }
    every_unit_once(MOST_SHARES, 3, 4);
    every_unit_once(DYCL_STEAL_THREADS, 3, 4);
    slow_thread_is_helped();
    cuts_meet();
    ranges_meet();
    printf("%d failures\n", failures);
    return failures != 0;
}
