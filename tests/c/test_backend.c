/* Backends: a segment that one suits is measured with it, runs on it where it is the fastest, is checked as any other,
 * and is ours where the backend cannot. */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "check/zone.h"
#include "exec/cache/cache.h"
#include "exec/cache/teams.h"
#include "exec/plan/backend.h"

static int failures;
static void check(int ok, const char *what) {
    if (!ok && failures++ < 10) printf("FAIL %s\n", what);
}

enum { SIZE = 1000, RUNS = 60, DEEP = 30 };
enum { SUM, WITH_NUMBER, TWO_SUMS, TANHS }; /* graphs */
static int compiled_now, runs, slow, wrong, refuses;

/* It knows x + y of two feeds, x + a number, and a row of tanh of zeros. */
static int kind_of(const dycl_graph *g) {
    if (g->node_count == DEEP && g->nodes[0].op == DYCL_OP_tanh) return TANHS;
    return g->node_count > 1 ? TWO_SUMS : g->scalar_count ? WITH_NUMBER : SUM;
}

static int suits(const dycl_graph *g, const uint32_t *outputs, int output_count) {
    return output_count == 1 && kind_of(g) != TWO_SUMS && outputs[0] == g->nodes[g->node_count - 1].out;
}

static dycl_status compile(const dycl_graph *g, const uint32_t *outputs, int output_count, int threads, void **out) {
    (void)outputs, (void)output_count, (void)threads;
    if (refuses) return dycl_error_bail("not today");
    int *kind = dycl_alloc(sizeof *kind);
    if (!kind) return dycl_error_set("out of memory");
    *kind = kind_of(g);
    compiled_now++;
    *out = kind;
    return DYCL_OK;
}

static dycl_status run(void *compiled, const dycl_feed *feeds, const dycl_scalar *scalars, void *const *outputs) {
    const float *x = feeds[0].data, *y = *(int *)compiled == SUM ? feeds[1].data : NULL;
    float *to = outputs[0];
    runs++;
    if (slow) usleep(2000);
    if (*(int *)compiled == TANHS) {
        memset(to, 0, SIZE * sizeof *to);
        return DYCL_OK;
    }
    for (int i = 0; i < SIZE; i++) to[i] = x[i] + (y ? y[i] : scalars[0].f32) + (float)wrong;
    return DYCL_OK;
}

static double cost(const void *compiled) { return (void)compiled, 1; }
static const char *describe(const void *compiled) { return *(const int *)compiled == SUM ? "x + y" : "something else"; }
static void release(void *compiled) {
    compiled_now--;
    dycl_free(compiled);
}

static const dycl_backend fake = {"fake", suits, compile, run, cost, describe, release};

static void make_graph(dycl_graph *g, int kind, uint32_t *out) {
    const int64_t size = SIZE, stride = 1;
    uint32_t in[2];
    dycl_graph_init(g);
    check(dycl_graph_feed(g, DYCL_F32, 1, &size, &stride, &in[0]) == DYCL_OK, "feed");
    if (kind == WITH_NUMBER)
        check(dycl_graph_scalar(g, DYCL_F32, &in[1]) == DYCL_OK, "scalar");
    else if (kind != TANHS)
        check(dycl_graph_feed(g, DYCL_F32, 1, &size, &stride, &in[1]) == DYCL_OK, "feed");
    for (int i = 0; i < (kind == TANHS ? DEEP : kind == TWO_SUMS ? 2 : 1); i++) {
        dycl_op op = kind == TANHS ? DYCL_OP_tanh : DYCL_OP_add;
        check(dycl_graph_node(g, op, kind == TANHS ? 1 : 2, in, 0, NULL, out) == DYCL_OK, "node");
        in[0] = *out;
    }
}

static float x[SIZE], y[SIZE], zeros[SIZE], result[SIZE];

static int is_right(int kind, float number) {
    for (int k = 0; k < SIZE; k++) {
        float second = kind == WITH_NUMBER ? number : y[k], want = kind == TANHS ? 0 : x[k] + second;
        if (result[k] != (kind == TWO_SUMS ? want + second : want)) return 0;
    }
    return 1;
}

/* How often the backend ran, of RUNS. */
static int run_segment(int kind) {
    dycl_graph g;
    uint32_t output;
    dycl_plan_cache *cache = dycl_plan_cache_create();
    dycl_segment *segment = NULL;
    dycl_plan *plan = NULL;
    make_graph(&g, kind, &output);
    runs = 0;
    for (int i = 0; i < RUNS; i++) {
        dycl_feed feeds[2] = {{kind == TANHS ? zeros : x, 0, 0}, {y, 0, 0}};
        dycl_scalar scalar = {.f32 = (float)i};
        void *outputs[1] = {result};
        check(dycl_plan_lookup(cache, &g, &output, 1, &segment) == DYCL_OK, "lookup");
        check(dycl_segment_plan(segment, &plan) == DYCL_OK, "plan");
        memset(result, 9, sizeof result);
        check(dycl_plan_run(plan, feeds, &scalar, outputs) == DYCL_OK, "run");
        check(is_right(kind, (float)i), "a result");
    }
    dycl_plan_cache_release(cache);
    dycl_graph_free(&g);
    check(compiled_now == 0, "what was compiled is released");
    return runs;
}

int main(void) {
    setenv("DYCL_PROFILE", "0", 1);
    for (int i = 0; i < SIZE; i++) x[i] = (float)i, y[i] = 0.25f * (float)i;
    check(run_segment(SUM) == 0, "nobody asks a backend that was not added");
    check(dycl_backend_add(&fake) == DYCL_OK && dycl_backend_count() == 1 && dycl_backend_at(0) == &fake, "add");

    slow = 1;
    int tried = run_segment(SUM);
    check(tried > 0 && tried < 10, "a slow backend is tried and left");
    refuses = 1;
    check(run_segment(WITH_NUMBER) == 0, "one that cannot compile is left");
    refuses = slow = 0;
    check(run_segment(TWO_SUMS) == 0, "one that does not suit is not asked");
    check(run_segment(TANHS) > RUNS / 2, "one that is faster is taken");

    /* The plan of a backend by itself */
    for (int kind = SUM; kind <= WITH_NUMBER; kind++) {
        char *said = NULL;
        dycl_graph g;
        uint32_t output;
        dycl_plan *plan = NULL;
        make_graph(&g, kind, &output);
        check(dycl_plan_of_backend(&fake, &g, &output, 1, &plan) == DYCL_OK, "a plan of a backend");
        dycl_feed feeds[2] = {{x, 0, 0}, {y, 0, 0}};
        dycl_scalar scalar = {.f32 = 7};
        void *outputs[1] = {result};
        runs = 0;
        check(dycl_plan_run(plan, feeds, &scalar, outputs) == DYCL_OK && runs == 1, "it runs");
        check(result[8] == (kind == SUM ? 10.0f : 15.0f), "its result");
        check(dycl_plan_describe(plan, &said) == DYCL_OK && strstr(said, "fake") && strstr(said, describe(&kind)),
              "its description");
        dycl_free(said);
        wrong = 1; /* the checks beside every run see it */
        dycl_status status = dycl_plan_run(plan, feeds, &scalar, outputs);
        check(status == (dycl_check_enabled() ? DYCL_ERROR : DYCL_OK), "a wrong result where plans are checked");
        wrong = 0;
        dycl_plan_release(plan);
        dycl_graph_free(&g);
    }
    check(dycl_plan_count() == 0, "no plan is left");
    check(dycl_backend_add(&fake) == DYCL_OK && dycl_backend_add(&fake) == DYCL_ERROR, "there is a most");
    printf("%s: %d failures\n", failures ? "FAILED" : "ok", failures);
    return failures != 0;
}
