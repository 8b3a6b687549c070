/* What several threads of a program do at once: segments of one plan cache under a lock (Python's), their plans without
 * it, with teams; the runner computes segments ahead; weights are forgotten, caches emptied, reports written. Each
 * result is compared. Made for the thread sanitizer (`make tsan`). */
#define _GNU_SOURCE
#include "base/alloc.h"
#include "dnnl/dnnl.h"
#include "exec/plan/ahead.h"
#include "exec/cache/cache.h"
#include "exec/tune/autotune.h"
#include "exec/cache/pieces.h"
#include "exec/tune/profile.h"
#include "exec/cache/teams.h"
#include "exec/plan/workspace.h"
#include "plan_reference.h"

#include <omp.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { GRAPHS = 8, WORKERS = 3, FEEDS = 8, SECONDS = 6 };

static const char *const texts[GRAPHS] = {
    /* elementwise over enough for a team */
    "%0 = feed f32[300,256]{256,1}\n%1 = feed f32[300,256]{256,1}\n%2 = mul %0 %1\n%3 = tanh %2\n%4 = add %3 %0\n%5 = "
    "neg %4\n",
    /* rows, columns and a copy */
    "%0 = feed f32[300,256]{256,1}\n%1 = softmax %0 (1)\n%2 = sum %0 (1, 0)\n%3 = view %1 (0, 256, 300, 1, 256)\n%4 = "
    "abs %3\n",
    /* weights that are packed: the small form, panels, and one row that reads large weights */
    "%0 = feed f32[4,64]{64,1}\n%1 = feed f32[64,64]{64,1}\n%2 = feed f32[64]{1}\n%3 = linear %0 %1 %2\n%4 = gelu %3\n",
    "%0 = feed f32[160,96]{96,1}\n%1 = feed f32[128,96]{96,1}\n%2 = linear %0 %1 _\n%3 = relu %2\n",
    "%0 = feed f32[1,256]{256,1}\n%1 = feed f32[512,256]{256,1}\n%2 = linear %0 %1 _\n%3 = sigmoid %2\n",
    /* a convolution on one of our ways, and one on oneDNN's */
    "%0 = feed f32[1,16,12,12]{2304,144,12,1}\n%1 = feed f32[16,16,3,3]{144,9,3,1}\n%2 = conv2d %0 %1 _ (1, 1, 1, 1, "
    "1, 1, 1)\n%3 = relu %2\n",
    "%0 = feed f32[1,16,12,12]{2304,144,12,1}\n%1 = feed f32[16,8,3,3]{72,9,3,1}\n%2 = conv2d %0 %1 _ (1, 1, 1, 1, 1, "
    "1, 2)\n%3 = relu %2\n",
    /* a step per node, for the runner */
    "%0 = feed f32[300,256]{256,1}\n%1 = sum %0 (1, 0)\n%2 = exp %0\n%3 = sum %2 (1, 1)\n%4 = softmax %0 (0)\n%5 = sum "
    "%4 (1, 1)\n",
};

typedef struct {
    dycl_graph graph;
    uint32_t outputs[8];
    int output_count;
    float *data[FEEDS];
    dycl_feed feeds[FEEDS];
    reference expected;
} net;

static net nets[GRAPHS];
static dycl_plan_cache *cache;
static pthread_mutex_t python = PTHREAD_MUTEX_INITIALIZER; /* the GIL */
static atomic_int stop, failures, runs, ahead_runs, busy;

static void fail(const char *what) {
    if (atomic_fetch_add(&failures, 1) < 10) printf("FAILED: %s\n", what);
}

static void make_net(int i) {
    net *s = &nets[i];
    dycl_graph_init(&s->graph);
    if (dycl_graph_parse(texts[i], &s->graph) != DYCL_OK) {
        printf("graph %d: %s\n", i, dycl_error_message());
        exit(1);
    }
    for (uint32_t f = 0; f < s->graph.feed_count; f++) {
        int64_t n = dycl_value_numel(&s->graph.values[s->graph.feeds[f]]);
        s->data[f] = malloc((size_t)n * sizeof(float));
        for (int64_t k = 0; k < n; k++) s->data[f][k] = 0.05f * (float)((k * 7 + i) % 23) - 0.4f;
        s->feeds[f] =
            (dycl_feed){s->data[f], f ? (uint64_t)(1000 + 10 * i) + f : 0, 1}; /* the first one is no constant */
    }
    ref_run(&s->expected, &s->graph, (void *const *)s->data, NULL);
    for (uint32_t n = s->graph.node_count; n-- > 0 && s->output_count < 3;)
        if (s->graph.values[s->graph.nodes[n].out].root == s->graph.nodes[n].out)
            s->outputs[s->output_count++] = s->graph.nodes[n].out;
}

static int matches(const net *s, void *const *out) {
    for (int o = 0; o < s->output_count; o++) {
        const dycl_value *v = &s->graph.values[s->outputs[o]];
        const float *got = out[o], *want = s->expected.data[s->outputs[o]];
        for (int64_t k = 0, n = dycl_value_numel(v); k < n; k++)
            if (!(fabsf(got[k] - want[k]) <= 1e-3f * (1 + fabsf(want[k])))) return 0;
    }
    return 1;
}

static void make_outputs(void **out) {
    for (int o = 0; o < 8; o++) out[o] = malloc(400 << 10);
}
static void free_outputs(void **out) {
    for (int o = 0; o < 8; o++) free(out[o]);
}

/* As csrc/py/region/segment.c does it. */
static dycl_status run_segment(net *s, void *const *out) {
    dycl_segment *segment = NULL;
    dycl_plan *plan = NULL;
    dycl_pieces *pieces = NULL;
    pthread_mutex_lock(&python);
    dycl_status status = dycl_plan_lookup(cache, &s->graph, s->outputs, s->output_count, &segment);
    if (status == DYCL_OK) {
        dycl_segment_retain(segment);
        status = dycl_segment_prepare(cache, segment, 0, NULL, &plan, &pieces);
    }
    if (status == DYCL_OK) {
        (void)dycl_plan_cost(plan);
        dycl_plan_retain(plan);
    }
    pthread_mutex_unlock(&python);
    if (status == DYCL_OK) {
        status = dycl_plan_run(plan, s->feeds, NULL, out);
        dycl_plan_release(plan);
    }
    if (status == DYCL_BUSY) {
        atomic_fetch_add(&busy, 1);
        pthread_mutex_lock(&python);
        status = dycl_plan_create(&s->graph, s->outputs, s->output_count, DYCL_PLAN_COLD, &plan);
        pthread_mutex_unlock(&python);
        if (status == DYCL_OK) status = dycl_plan_run(plan, s->feeds, NULL, out);
        if (status == DYCL_OK) dycl_plan_release(plan);
    }
    pthread_mutex_lock(&python);
    dycl_segment_release(segment);
    pthread_mutex_unlock(&python);
    return status;
}

static void *worker(void *context) {
    unsigned chance = (unsigned)(uintptr_t)context * 7919u;
    void *out[8];
    make_outputs(out);
    while (!atomic_load(&stop)) {
        chance = chance * 1103515245u + 12345u;
        omp_set_num_threads(1 + (int)(chance >> 20) % 2);
        net *s = &nets[(chance >> 16) % GRAPHS];
        if (run_segment(s, out) != DYCL_OK || !matches(s, out)) fail("a run in a thread");
        atomic_fetch_add(&runs, 1);
    }
    free_outputs(out);
    return NULL;
}

/* One owner of the runner: follows a segment in steps, to its end or not. */
static void *owner(void *unused) {
    unsigned chance = 5;
    void *out[8];
    net *s = &nets[GRAPHS - 1];
    (void)unused;
    make_outputs(out);
    while (!atomic_load(&stop)) {
        dycl_plan *plan = NULL;
        omp_set_num_threads(omp_get_num_procs() > 2 ? 1 + (int)(chance >> 20) % 2
                                                    : 1); /* the runner wants a processor of its own */
        if (dycl_plan_create(&s->graph, s->outputs, s->output_count, DYCL_PLAN_TUNED, &plan) != DYCL_OK) {
            fail("no plan");
            break;
        }
        for (int round = 0; round < 8; round++) {
            chance = chance * 1103515245u + 12345u;
            dycl_ahead *run = dycl_ahead_start(plan, out);
            if (!run) {
                fail("the runner is busy");
                continue;
            }
            dycl_ahead_publish(run, s->feeds, s->graph.feed_count, NULL, 0, chance >> 16 & 3);
            if (chance >> 18 & 1) usleep(chance >> 20 & 1023);
            dycl_ahead_publish(run, s->feeds, s->graph.feed_count, NULL, 0, 3);
            if ((chance >> 22 & 3) == 0) {
                dycl_ahead_cancel(run);
                continue;
            }
            if (dycl_ahead_finish(run, s->feeds, NULL) != DYCL_OK || !matches(s, out)) fail("a run ahead");
            atomic_fetch_add(&ahead_runs, 1);
        }
        dycl_plan_release(plan);
    }
    free_outputs(out);
    return NULL;
}

/* What happens beside. */
static void disturb(unsigned n) {
    dycl_profile_entry taken[16];
    dycl_pack_forget(1000 + 10 * (n % GRAPHS) + 1 + n % 2);
    pthread_mutex_lock(&python);
    if (n % 7 == 0) dycl_plan_cache_clear(cache);
    if (n % 11 == 0) dycl_dnnl_clear();
    if (n % 13 == 0) dycl_autotune_clear();
    if (n % 5 == 0) dycl_workspace_trim();
    net *s = &nets[n % GRAPHS];
    dycl_segment *segment = NULL;
    char *text = NULL;
    dycl_plan_stats stats;
    if (dycl_plan_lookup(cache, &s->graph, s->outputs, s->output_count, &segment) == DYCL_OK && segment->plan) {
        dycl_plan_get_stats(segment->plan, &stats);
        if (dycl_plan_describe(segment->plan, &text) == DYCL_OK) dycl_free(text);
        (void)dycl_teams_text(segment);
    }
    dycl_plan_set_timing((int)(n & 1));
    pthread_mutex_unlock(&python);
    dycl_profile_take(taken, 16);
    if (n % 17 == 0) dycl_profile_untake();
    (void)dycl_pack_bytes();
    (void)dycl_plan_count();
    (void)dycl_plan_cache_bytes();
}

/* A process that forks while all this runs: its child computes too. */
static void fork_once(void) {
    pthread_mutex_lock(&python);
    pid_t child = fork();
    if (child == 0) {
        void *out[8];
        make_outputs(out);
        pthread_mutex_unlock(&python);
        omp_set_num_threads(1);
        int right = 1;
        for (int i = 0; i < GRAPHS; i++) {
            dycl_plan *plan = NULL;
            right &= dycl_plan_create(&nets[i].graph, nets[i].outputs, nets[i].output_count, DYCL_PLAN_TUNED, &plan) ==
                     DYCL_OK;
            right &= plan && dycl_plan_run(plan, nets[i].feeds, NULL, out) == DYCL_OK && matches(&nets[i], out);
        }
        _exit(!right);
    }
    pthread_mutex_unlock(&python);
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) fail("a child of fork");
}

int main(void) {
    pthread_t thread[WORKERS + 1];
    const char *wanted = getenv("DYCL_TEST_SECONDS");
    cache = dycl_plan_cache_create();
    for (int i = 0; i < GRAPHS; i++) make_net(i);
    for (int i = 0; i < WORKERS; i++) pthread_create(&thread[i], NULL, worker, (void *)(uintptr_t)(i + 1));
    int runner = omp_get_num_procs() > 1;
    if (runner) pthread_create(&thread[WORKERS], NULL, owner, NULL);
    time_t until = time(NULL) + (wanted ? atoi(wanted) : SECONDS);
    for (unsigned n = 0; time(NULL) < until; n++) {
        usleep(3000);
        disturb(n);
/* One knows of no child with threads of its own. The other's allocator may be locked by another thread at a fork, and
 * stays so in the child. */
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
        if (n % 200 == 50) fork_once();
#endif
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < WORKERS + runner; i++) pthread_join(thread[i], NULL);
    dycl_plan_cache_release(cache);
    for (int i = 0; i < GRAPHS; i++) {
        for (uint32_t f = 0; f < nets[i].graph.feed_count; f++) {
            dycl_pack_forget(nets[i].feeds[f].token);
            free(nets[i].data[f]);
        }
        ref_free(&nets[i].expected);
        dycl_graph_free(&nets[i].graph);
    }
    if (dycl_plan_count() || dycl_pack_bytes()) fail("plans or packed weights are left");
    dycl_dnnl_clear();
    dycl_autotune_clear();
    dycl_workspace_trim();
    (void)fork_once;
    printf("%s: %d runs, %d of them beside another one of the same plan, %d ahead, %d failures\n",
           failures ? "FAILED" : "ok", runs, busy, ahead_runs, failures);
    return failures != 0;
}
