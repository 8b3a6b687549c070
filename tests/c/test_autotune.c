/* exec/tune/autotune.h: the fastest variant is found whatever the order, with disturbed runs, hopeless and impossible
 * variants; they are shared, counted and bounded. */
#define _GNU_SOURCE
#include "exec/tune/autotune.h"
#include "exec/tune/profile.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "random.h"

static int failures;
static void check(int ok, const char *what) {
    if (!ok && __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED) < 10) printf("FAIL %s\n", what);
}

static const char *const names[DYCL_AUTOTUNE_VARIANTS] = {"first", "second", "third", "fourth", "fifth", "sixth"};

/* A run that took so long: noted with a beginning in the past. What the call itself takes is small against it. */
static void note(dycl_autotune *m, int variant, double milliseconds) {
    dycl_autotune_note(m, variant, dycl_clock_ns() - (uint64_t)(milliseconds * 1e6));
}

/* Runs until settled. Times in ms; every `disturbed`th run takes ten times as long, warm-ups a hundred times. Returns
 * the runs it took. */
static int settle(dycl_autotune *m, const double *times, int disturbed, uint32_t *runs) {
    for (int n = 0; n < 1000; n++) {
        uint64_t began;
        int variant = dycl_autotune_next(m, &began);
        if (!began) return n;
        check(began <= dycl_clock_ns() && dycl_clock_ns() - began < 1000000000, "a time that is now");
        note(m, variant,
             times[variant] * (runs[variant]++ == 0                           ? 100
                               : disturbed && below((uint32_t)disturbed) == 0 ? 10
                                                                              : 1));
    }
    return -1;
}

static void test_finds_the_fastest(void) {
    int wrong = 0;
    for (int n = 0; n < 2000; n++) {
        int variants = 2 + (int)below(DYCL_AUTOTUNE_VARIANTS - 1), best = 0, disturbed = n % 2 ? 8 : 0;
        double times[DYCL_AUTOTUNE_VARIANTS];
        uint32_t runs[DYCL_AUTOTUNE_VARIANTS] = {0}, before = dycl_autotune_count();
        for (int i = 0; i < variants; i++) {
            times[i] = 50 + (double)below(200);
            if (times[i] < times[best]) best = i;
        }
        dycl_autotune *m = dycl_autotune_get(variants, names, 2, "fastest %d", n);
        check(m && dycl_autotune_count() == before + 1, "a new autotune");
        int took = settle(m, times, disturbed, runs), chosen = dycl_autotune_next(m, &(uint64_t){0});
        check(took > 0 && took <= variants * (DYCL_AUTOTUNE_TRIES + 1), "as many runs as there are tries");
        if (!disturbed)
            check(times[chosen] * 0.96 <= times[best], "the fastest, or one within the margin");
        else
            wrong += times[chosen] > 1.1 * times[best];
        for (int i = 0; i < variants; i++) {
            check(runs[i] >= 3, "a warm-up and two tries of each");
            if (!disturbed && times[i] > 1.6 * times[best])
                check(runs[i] < DYCL_AUTOTUNE_TRIES + 1, "a hopeless variant is not tried to the end");
        }
        dycl_autotune_release(m);
    }
    printf("one run in eight disturbed: %d of 1000 choices wrong\n", wrong);
    check(wrong < 100, "disturbed runs rarely matter");
    dycl_autotune_clear();
    check(dycl_autotune_count() == 0, "nothing is left");
}

static void test_a_rule_wins_within_the_margin(void) {
    uint32_t runs[3] = {0};
    dycl_autotune *m = dycl_autotune_get(3, names, 1, "margin");
    settle(m, (double[]){102, 100.5, 100}, 0, runs);
    check(atomic_load(&m->settled) == 0, "variant 0, when the others gain less than the margin");
    dycl_autotune *again = dycl_autotune_get(3, names, 1, "margin");
    check(again == m, "the same key, the same autotune");
    dycl_autotune_release(again);
    dycl_autotune *others[3] = {dycl_autotune_get(3, names, 2, "margin"), dycl_autotune_get(2, names, 1, "margin"),
                                dycl_autotune_get(3, names + 1, 1, "margin")};
    for (int i = 0; i < 3; i++) {
        check(others[i] != m && atomic_load(&others[i]->settled) < 0,
              "another thread count, number or names of variants: another autotune");
        dycl_autotune_release(others[i]);
    }
    dycl_autotune_release(m);
    dycl_autotune_clear();
}

static void test_impossible_ways(void) {
    uint32_t runs[3] = {0};
    dycl_autotune *m = dycl_autotune_get(3, names, 1, "impossible");
    dycl_autotune_rule_out(m, 2);
    settle(m, (double[]){100, 80, 10}, 0, runs);
    check(atomic_load(&m->settled) == 1 && runs[2] == 0, "what cannot run is not tried");
    dycl_autotune_rule_out(m, 1);
    check(atomic_load(&m->settled) == 0, "found out later");
    dycl_autotune_rule_out(m, 0);
    check(atomic_load(&m->settled) == 0, "variant 0 always can");
    dycl_autotune_release(m);
    dycl_autotune_clear();
}

static void test_without_a_measure(void) {
    uint64_t began = 7;
    check(dycl_autotune_get(1, names, 1, "one") == NULL &&
              dycl_autotune_get(DYCL_AUTOTUNE_VARIANTS + 1, names, 1, "many") == NULL,
          "nothing to choose, or too much");
    check(dycl_autotune_next(NULL, &began) == 0 && began == 0, "variant 0");
    char longest[2000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    check(dycl_autotune_get(2, names, 1, "%s", longest) == NULL, "a key is never cut");
    dycl_autotune_release(NULL);
    dycl_autotune_rule_out(NULL, 1);
}

static void test_forced(void) {
    for (int variant = 0; variant < 5; variant++) {
        uint64_t began;
        dycl_autotune_force(variant);
        dycl_autotune *m = dycl_autotune_get(3, names, 1, "forced");
        check(dycl_autotune_next(m, &began) == variant % 3 && !began, "the forced variant");
        dycl_autotune_release(m);
        dycl_autotune_clear();
    }
    dycl_autotune_force(-1);
}

static void test_bounded(void) {
    dycl_autotune *kept = dycl_autotune_get(2, names, 1, "kept");
    for (int i = 0; i < 30000; i++) dycl_autotune_release(dycl_autotune_get(2, names, 1, "shape %d", i));
    check(dycl_autotune_count() <= 8192, "the table does not grow without end");
    dycl_autotune *again = dycl_autotune_get(2, names, 1, "kept");
    check(again == kept, "a held one stays");
    dycl_autotune_release(again);
    dycl_autotune_release(kept);
    dycl_autotune_clear();
}

/* What one process finds out is what the next one begins with. */
static void test_profile(void) {
    static dycl_profile_entry entries[DYCL_PROFILE_ENTRIES];
    char variant[DYCL_PROFILE_VARIANT];
    uint32_t runs[3] = {0};
    while (dycl_profile_take(entries, DYCL_PROFILE_ENTRIES)) continue; /* of the other tests */
    dycl_autotune *m = dycl_autotune_get(3, names, 1, "kept for later");
    settle(m, (double[]){90, 50, 70}, 0, runs);
    check(dycl_profile_pending() == 1 && dycl_profile_take(entries, 8) == 1 && dycl_profile_pending() == 0,
          "found out: to be kept");
    check(!strcmp(entries[0].key, m->key) && !strcmp(entries[0].variant, "second") && entries[0].nanoseconds > 49e6 &&
              entries[0].nanoseconds < 60e6,
          "what was found out");
    dycl_profile_untake();
    check(dycl_profile_pending() > 0, "it could not be kept: it is new again");
    dycl_profile_take(entries, DYCL_PROFILE_ENTRIES);
    dycl_autotune_release(m);
    dycl_autotune_clear();
    m = dycl_autotune_get(3, names, 1, "kept for later");
    check(atomic_load(&m->settled) == 1, "known before it is measured");
    dycl_autotune_release(m);
    m = dycl_autotune_get(3, names + 1, 1, "kept for later");
    check(atomic_load(&m->settled) < 0, "other variants: nothing is known");
    dycl_profile_remember(m->key, "a variant of another version");
    dycl_autotune_release(m);
    dycl_autotune_clear();
    m = dycl_autotune_get(3, names + 1, 1, "kept for later");
    check(atomic_load(&m->settled) < 0, "a variant that there is not");
    dycl_autotune_release(m);
    dycl_autotune_clear();
    check(dycl_profile_pending() == 0, "what was remembered is not new");
    dycl_profile_note("mine", "measured", 1);
    dycl_profile_remember("mine", "of old");
    check(dycl_profile_recall("mine", variant) && !strcmp(variant, "measured"), "what this process measured is newer");
    check(!dycl_profile_recall("other", variant), "unknown");
    for (int i = 0; i < 2 * DYCL_PROFILE_ENTRIES; i++) {
        char key[40];
        snprintf(key, sizeof key, "key %d", i);
        dycl_profile_remember(key, "variant");
    }
    check(dycl_profile_count() == DYCL_PROFILE_ENTRIES, "bounded");
    char longest[200];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    dycl_profile_remember("key 1", longest);
    check(dycl_profile_recall("key 1", variant) && !strcmp(variant, "variant"),
          "a variant that is too long is not taken");
}

static void *worker(void *unused) {
    (void)unused;
    const double times[3] = {90, 50, 70};
    for (int n = 0; n < 300; n++) {
        uint64_t began;
        dycl_autotune *m = dycl_autotune_get(3, names, 1, "thread %d", n);
        for (int i = 0; i < 100; i++) {
            int variant = dycl_autotune_next(m, &began);
            if (!began) break;
            note(m, variant, times[variant]);
        }
        check(dycl_autotune_next(m, &began) == 1 && !began, "settled rightly by several threads");
        dycl_autotune_release(m);
        if (n % 50 == 0) { /* a child of a process whose threads are in here */
            pid_t child = fork();
            if (child == 0) {
                alarm(20);
                m = dycl_autotune_get(3, names, 1, "child");
                _exit(m ? 0 : 1);
            }
            int status = 1;
            check(child > 0 && waitpid(child, &status, 0) == child && status == 0, "a fork");
        }
    }
    return NULL;
}

int main(void) {
    pthread_t threads[4];
    test_finds_the_fastest();
    test_a_rule_wins_within_the_margin();
    test_impossible_ways();
    test_without_a_measure();
    test_forced();
    test_bounded();
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, worker, NULL);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    test_profile();
    dycl_autotune_clear();
    check(dycl_autotune_count() == 0, "every reference was given back");
    printf(failures ? "%d failures\n" : "ok\n", failures);
    return failures != 0;
}
