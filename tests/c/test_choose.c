/* py/site/choose.h: sites take the faster way under load, with inputs of several sizes and with calls that something
 * else disturbs; what waits is not taken for fast; and looking costs little. Times are made up, in microseconds. */
#include "py/site/choose.c" /* knows neither Python nor torch */
#include "py/site/steps.c"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "random.h"

static int failures;
static void check(int ok, const char *name, const char *what, double value) {
    if (!ok && failures++ < 20) printf("FAIL %s: %s: %g\n", name, what, value);
}

typedef struct {
    const char *name;
    double region, torch; /* processor time of a call */
    double waits;         /* a region's besides */
    int sizes;            /* of inputs that come in turn, from 0.4 to 2.1 */
    int disturbed;        /* every nth call takes 40 ms more: what the program does before the next step */
    int loaded;           /* after 3 ms of work others run, for 6 ms on average; and memory is slower at times */
    int run;
    double in_100, in_10000; /* per cent of the time that may be lost in so many calls after the first, on average */
} scene;

static const scene scenes[] = {
    {"faster", 3000, 7500, .sizes = 1, .loaded = 1, .in_100 = 8, .in_10000 = 1},
    {"faster on a quiet machine", 3000, 7500, .sizes = 1, .in_100 = 8, .in_10000 = .5},
    {"sizes", 1500, 3750, .sizes = 6, .loaded = 1, .in_100 = 14, .in_10000 = 1},
    {"a little faster", 1000, 1300, .sizes = 1, .loaded = 1, .in_100 = 8, .in_10000 = 1.5},
    {"slower", 1000, 700, .sizes = 1, .loaded = 1, .in_100 = 8, .in_10000 = .5},
    {"slower by sizes", 5000, 3500, .sizes = 6, .loaded = 1, .in_100 = 12, .in_10000 = 1},
    {"much slower", 5000, 2000, .sizes = 1, .loaded = 1, .in_100 = 12, .in_10000 = .5},
    {"one tiny operator", 5, .5, .sizes = 1, .loaded = 1, .in_100 = 60, .in_10000 = 2},
    {"it waits", 50, 100, .waits = 2000, .sizes = 1, .in_100 = 250, .in_10000 = 6},
    {"training", 10000, 25000, .sizes = 1, .disturbed = 4, .loaded = 1, .run = 4, .in_100 = 20, .in_10000 = 2},
    {"training, a little faster", 10000, 13500, .sizes = 1, .loaded = 1, .run = 4, .in_100 = 5, .in_10000 = .5},
    {"training, slower", 10000, 7000, .sizes = 1, .disturbed = 4, .loaded = 1, .run = 4, .in_100 = 20, .in_10000 = 1.5},
};

static double drawn(void) { return (below(1000000) + .5) / 1000000; }

/* What others take from a call of so much work. */
static double waited(double work) {
    double sum = 0;
    int times = (int)(work / 3000 + drawn());
    for (int i = 0; i < times; i++) sum -= 6000 * log(drawn());
    return sum;
}

/* The calls after the first 24; returns the per cent of the time that was lost against the better way. */
static double run(const scene *k, int calls) {
    dycl_choice c = {.run = (uint8_t)k->run};
    double memory = 1, lost = 0, least = 0, ways[2] = {k->region + k->waits, k->torch};
    for (int i = 0; i < 24 + calls; i++) {
        int timed = !dycl_choose_torch(&c);
        dycl_way way = timed ? dycl_choose(&c) : DYCL_WAY_TORCH;
        memory = fmin(2, fmax(1, memory + .1 * (drawn() - .5)));
        double work = (way == DYCL_WAY_TORCH ? k->torch : k->region) * (.4 + 1.7 * (i % k->sizes) / k->sizes);
        work *= (.9 + .2 * drawn()) * (k->loaded ? memory : 1);
        if (k->disturbed && i % k->disturbed == k->disturbed - 1) work += 40000 * (.9 + .2 * drawn());
        double wall = work + (way == DYCL_WAY_REGION ? k->waits : 0) + (k->loaded ? waited(work) : 0);
        double thread = k->waits && way == DYCL_WAY_REGION ? wall : fmin(work, wall - .1);
        const uint64_t took[2] = {(uint64_t)(wall * 1000), (uint64_t)(thread * 1000)};
        if (timed) dycl_choose_took(&c, way, took, 0, 0);
        if (i < 24) continue;
        lost += ways[way] - fmin(ways[0], ways[1]);
        least += fmin(ways[0], ways[1]);
    }
    return 100 * lost / least;
}

static void test_scene(const scene *k) {
    double sums[2] = {0, 0}, few = 0;
    for (int n = 0; n < 200; n++) {
        double lost = run(k, 100);
        sums[0] += lost / 200;
        few += lost > 4 * k->in_100;
        if (n < 20) sums[1] += run(k, 10000) / 20;
    }
    printf("  %-28s lost in 100 calls %6.2f%%, in 10000 %5.2f%%; 100 calls went badly %g of 200 times\n", k->name,
           sums[0], sums[1], few);
    check(sums[0] <= k->in_100, k->name, "lost in 100 calls", sums[0]);
    check(sums[1] <= k->in_10000, k->name, "lost in 10000 calls", sums[1]);
    check(few <= 6, k->name, "a wrong way for long", few);
}

/* What changes is noticed: recorded calls that become slow by themselves, calls in torch when a look is due. */
static void test_changes(void) {
    for (int n = 0; n < 50; n++) {
        dycl_choice c = {0};
        int regions = 0;
        for (int i = 0; i < 3000; i++) {
            int timed = !dycl_choose_torch(&c), slow = i >= 1000 && i < 2000;
            dycl_way way = timed ? dycl_choose(&c) : DYCL_WAY_TORCH;
            double work = (way == DYCL_WAY_TORCH ? 200000 : slow ? 900000 : 100000) * (.9 + .2 * drawn());
            if (timed) dycl_choose_took(&c, way, (uint64_t[2]){(uint64_t)work, (uint64_t)work - 1}, 0, 0);
            if (i == 999) check(c.preferred == DYCL_WAY_REGION, "changes", "recorded at first", n);
            regions += slow && way == DYCL_WAY_REGION;
        }
        check(regions < 500, "changes", "recorded calls while they were slow", regions);
        check(c.preferred == DYCL_WAY_REGION, "changes", "recorded again", n);
    }
}

/* Where most operators are left to torch, three regions are enough, and little has to be gained. */
static void test_hopeless(void) {
    dycl_choice c = {0};
    int regions = 0;
    for (int i = 0; i < 40; i++) {
        int timed = !dycl_choose_torch(&c);
        dycl_way way = timed ? dycl_choose(&c) : DYCL_WAY_TORCH;
        uint64_t work = way == DYCL_WAY_TORCH ? 100000 : 99000;
        if (timed) dycl_choose_took(&c, way, (uint64_t[2]){work, work - 1}, 1, 0);
        regions += way == DYCL_WAY_REGION;
    }
    check(regions <= 7, "hopeless", "regions of 40 calls", regions);
}

/* Calls that make plans do not count while paths come back; where none does, they do. */
static void test_new_paths(void) {
    for (int never = 0; never < 2; never++) {
        dycl_choice c = {0};
        int regions = 0;
        for (int i = 0; i < 2000; i++) {
            int timed = !dycl_choose_torch(&c), made = never || i % 5 == 0 ? DYCL_MADE_COLD
                                                       : i % 5 == 1        ? DYCL_MADE_TUNED
                                                                           : 0;
            dycl_way way = timed ? dycl_choose(&c) : DYCL_WAY_TORCH;
            uint64_t work = way == DYCL_WAY_TORCH ? 200000 : made ? 2000000 : 100000;
            if (timed) dycl_choose_took(&c, way, (uint64_t[2]){work, work - 1}, 0, way == DYCL_WAY_REGION ? made : 0);
            regions += way == DYCL_WAY_REGION;
        }
        check(never ? regions < 150 : regions > 1900, "new paths", never ? "recorded" : "recorded, paths come back",
              regions);
    }
}

/* The thread's clock is read in looks only, and not that of another thread. */
static void test_clocks(void) {
    dycl_choice c = {0};
    check(!dycl_choose_begin(&c, 1).thread, "clocks", "read without a look", 0);
    for (int i = 0; i < 24; i++) dycl_choose_took(&c, dycl_choose(&c), (uint64_t[2]){1000, 999}, 0, 0);
    dycl_way way = dycl_choose(&c);
    dycl_moment m = dycl_choose_begin(&c, 1), none = dycl_choose_begin(&c, 0);
    check(c.looks && m.thread && !none.thread, "clocks", "read in a look", 0);
    m.clocks[DYCL_CLOCK_THREAD] += UINT64_C(3600000000000); /* it could not have been so late */
    m.thread = &c;
    dycl_choose_done(&c, way, m, 0, 0);
    check(c.look.waited, "clocks", "another thread's", 0);
    dycl_moment later = none = dycl_choose_moment(1);
    uint64_t took[2];
    later.clocks[DYCL_CLOCK_WALL] += 5000;
    later.clocks[DYCL_CLOCK_THREAD] += 3000;
    dycl_choose_elapsed(none, later, took);
    check(took[DYCL_CLOCK_WALL] == 5000 && took[DYCL_CLOCK_THREAD] == 3000, "clocks", "elapsed", (double)took[1]);
    later.waits++;
    dycl_choose_elapsed(none, later, took);
    check(took[DYCL_CLOCK_WALL] == 5000 && took[DYCL_CLOCK_THREAD] == 5000, "clocks", "a call that waited",
          (double)took[1]);
    usleep(1000);
    check(dycl_choose_moment(1).waits > none.waits, "clocks", "a sleep is a wait", 0);
}

/* Calls of a round are different: three of a discriminator, eight that sum gradients up. */
static void test_rounds(void) {
    static const struct {
        const char *ends;
        int calls;
    } cases[] = {{"", 0},
                 {"a", 0},
                 {"aa", 1},
                 {"aaaaaaaa", 1},
                 {"0ab0ab", 3},
                 {"b0ab0ab0", 3},
                 {"0000000a", 0},
                 {"0000000a0000000", 0},
                 {"0000000a0000000a", 8},
                 {"abacada", 0},
                 {"0a0a0b0a0a0b", 6}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dycl_rounds r = {.count = 0};
        for (int before = 0; before < 40; before++) dycl_rounds_note(&r, (uint8_t)(1 + before * before % 251));
        r.count = 0;
        for (const char *c = cases[i].ends; *c; c++) dycl_rounds_note(&r, (uint8_t)*c);
        check(dycl_rounds_calls(&r) == cases[i].calls, "rounds", cases[i].ends, dycl_rounds_calls(&r));
    }
    dycl_rounds r = {.count = 0};
    for (int i = 0; i < 10; i++) dycl_rounds_note(&r, (uint8_t)(i * i + 1)); /* the first steps were others */
    for (int i = 0; i < 24; i++) dycl_rounds_note(&r, (uint8_t)(i % 3));
    check(dycl_rounds_calls(&r) == 3, "rounds", "behind other calls", dycl_rounds_calls(&r));
}

/* Of three different calls, 4 in a row are 1 2 3 1 against 2 3 1 2. */
static void test_unequal_calls(void) {
    double lost = 0;
    for (int n = 0; n < 200; n++) {
        static const double parts[] = {.3, .4, 2.3};
        dycl_choice c = {.run = 6};
        for (int i = 0; i < 224; i++) {
            dycl_way way = dycl_choose(&c);
            double took = (way == DYCL_WAY_TORCH ? 13000 : 10000) * parts[i % 3] * (.9 + .2 * drawn());
            dycl_choose_took(&c, way, (uint64_t[2]){(uint64_t)took, (uint64_t)took - 1}, 0, 0);
            lost += way == DYCL_WAY_TORCH ? parts[i % 3] * .3 / 2 / 200 : 0; /* per cent of 200 calls */
        }
    }
    check(lost < 4.5, "unequal calls", "lost in 200 calls", lost);
}

int main(void) {
    test_rounds();
    test_unequal_calls();
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) test_scene(&scenes[i]);
    test_changes();
    test_hopeless();
    test_new_paths();
    test_clocks();
    printf("%s\n", failures ? "FAILED" : "ok");
    return failures != 0;
}
