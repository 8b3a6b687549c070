/* Plans when memory runs out at any point, and plans in several threads while constants are written and forgotten. */
#define _POSIX_C_SOURCE 200809L
#include "base/alloc.h"
#include "exec/plan/plan.h"
#include "exec/plan/workspace.h"
#include "plan_reference.h"

#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

static atomic_int failures, checks;

/* ---- An allocator that fails at the nth call */
static atomic_long calls, fail_at = -1;

static int fails(void) { return atomic_fetch_add(&calls, 1) == atomic_load(&fail_at); }
static void *resize(void *context, void *block, size_t size) {
    (void)context;
    if (size == 0) {
        free(block);
        return NULL;
    }
    return fails() ? NULL : realloc(block, size);
}
static void *aligned(void *context, size_t size) {
    (void)context;
    return fails() ? NULL : aligned_alloc(64, (size + 63) & ~(size_t)63);
}
static void aligned_free(void *context, void *block) {
    (void)context;
    free(block);
}
static const dycl_allocator failing = {resize, aligned, aligned_free, NULL};

/* ---- One graph with something of everything: convolution with batch_norm, residual and pooling, a linear, a fused
 * block */
#define FEEDS 12
typedef struct {
    dycl_graph graph;
    float *data[FEEDS];
    uint32_t outputs[2];
} net;

static uint32_t feed(net *s, int rank, const int64_t *sizes) {
    int64_t strides[8], n = 1;
    uint32_t v = DYCL_NONE;
    dycl_strides_contiguous(rank, sizes, strides);
    if (dycl_graph_feed(&s->graph, DYCL_F32, rank, sizes, strides, &v) != DYCL_OK) abort();
    for (int i = 0; i < rank; i++) n *= sizes[i];
    float *data = s->data[s->graph.feed_count - 1] = malloc((size_t)n * sizeof(float));
    for (int64_t i = 0; i < n; i++) data[i] = 0.1f * (float)((i * 7 + rank) % 11) + 0.05f;
    return v;
}

static uint32_t node(net *s, int op, int count, const uint32_t *operands, int attr_count, const int64_t *attrs) {
    uint32_t v = DYCL_NONE;
    if (dycl_graph_node(&s->graph, (dycl_op)op, count, operands, attr_count, attrs, &v) != DYCL_OK) abort();
    return v;
}

static void make_net(net *s) {
    const int64_t image[4] = {1, 16, 8, 8}, kernel[4] = {16, 16, 3, 3}, channels[1] = {16}, weights[2] = {32, 16},
                  wide[1] = {32};
    const int64_t conv[7] = {1, 1, 1, 1, 1, 1, 1}, pool[9] = {2, 2, 2, 2, 0, 0, 1, 1, 0},
                  eps[1] = {dycl_f64_attr(1e-5)}, norm[2] = {1, dycl_f64_attr(1e-5)}, planes[2] = {12, 0};
    memset(s, 0, sizeof *s);
    dycl_graph_init(&s->graph);
    uint32_t x = feed(s, 4, image), w = feed(s, 4, kernel), mean = feed(s, 1, channels),
             variance = feed(s, 1, channels);
    uint32_t w2 = feed(s, 4, kernel), l = feed(s, 2, weights), bias = feed(s, 1, wide);
    uint32_t y = node(s, DYCL_OP_conv2d, 3, (uint32_t[]){x, w, DYCL_NONE}, 7, conv);
    y = node(s, DYCL_OP_batch_norm, 5, (uint32_t[]){y, mean, variance, DYCL_NONE, DYCL_NONE}, 1, eps);
    y = node(s, DYCL_EW_relu, 1, &y, 0, NULL);
    uint32_t z = node(s, DYCL_OP_conv2d, 3, (uint32_t[]){y, w2, DYCL_NONE}, 7, conv);
    z = node(s, DYCL_EW_add, 2, (uint32_t[]){z, y}, 0, NULL);
    z = node(s, DYCL_EW_tanh, 1, &z, 0, NULL);
    z = node(s, DYCL_OP_max_pool2d, 1, &z, 9, pool);
    uint32_t flat = node(s, DYCL_OP_view, 1, &z, 5, (int64_t[]){0, 16, 16, 1, 16});
    uint32_t product = node(s, DYCL_OP_linear, 3, (uint32_t[]){flat, l, bias}, 0, NULL);
    uint32_t act = node(s, DYCL_EW_gelu, 1, &product, 0, NULL);
    s->outputs[0] = node(s, DYCL_OP_layer_norm, 3, (uint32_t[]){act, DYCL_NONE, bias}, 2, norm);
    s->outputs[1] = node(s, DYCL_OP_mean, 1, &y, 2, planes);
}

static void free_net(net *s) {
    for (uint32_t i = 0; i < s->graph.feed_count; i++) free(s->data[i]);
    dycl_graph_free(&s->graph);
}

static int matches(const net *s, const reference *r, void *const *out) {
    return ref_first_wrong(r, s->outputs[0], out[0]) < 0 && ref_first_wrong(r, s->outputs[1], out[1]) < 0;
}

static void out_of_memory(void) {
    net s;
    reference r;
    make_net(&s);
    ref_run(&r, &s.graph, (void *const *)s.data, NULL);
    void *out[2] = {malloc(1 << 16), malloc(1 << 16)};
    dycl_feed feeds[FEEDS] = {{0}};
    for (uint32_t i = 0; i < s.graph.feed_count; i++) feeds[i] = (dycl_feed){s.data[i], 100 + i, 1};
    int finished = 0;
    for (int mode = 0; mode < 2; mode++)
        for (long n = 0; n < 2000; n++) {
            dycl_plan *plan = NULL;
            dycl_workspace_trim();
            dycl_allocator_set(&failing);
            atomic_store(&calls, 0);
            atomic_store(&fail_at, n);
            dycl_status status = dycl_plan_create(&s.graph, s.outputs, 2, (dycl_plan_mode)mode, &plan);
            for (int run = 0; run < 3 && status == DYCL_OK; run++) {
                status = dycl_plan_run(plan, feeds, NULL, out);
                atomic_fetch_add(&checks, 1);
                if (status == DYCL_OK && !matches(&s, &r, out) && atomic_fetch_add(&failures, 1) < 10)
                    printf("FAILED: allocation %ld fails, and the result is wrong\n", n);
            }
            int reached = atomic_load(&calls) > n;
            atomic_store(&fail_at, -1);
            dycl_plan_release(plan);
            for (uint32_t i = 0; i < s.graph.feed_count; i++) dycl_pack_forget(100 + i);
            dycl_allocator_set(NULL);
            atomic_fetch_add(&checks, 1);
            if (!reached) {
                finished++;
                if (status != DYCL_OK && atomic_fetch_add(&failures, 1) < 10)
                    printf("FAILED: status %d with enough memory\n", status);
                break;
            }
        }
    if (finished != 2) {
        atomic_fetch_add(&failures, 1);
        printf("FAILED: the allocations never end\n");
    }
    ref_free(&r);
    free(out[0]);
    free(out[1]);
    free_net(&s);
    printf("out of memory at every allocation: %d checks\n", atomic_load(&checks));
}

/* ---- Threads: two nets of constants that all threads share */
static net shared;
static reference expected;
static atomic_int stop;
static dycl_plan *common;

static void *worker(void *context) {
    int mode = (int)(intptr_t)context & 1;
    void *out[2] = {malloc(1 << 16), malloc(1 << 16)};
    dycl_feed feeds[FEEDS] = {{0}};
    omp_set_num_threads(2);
    while (!atomic_load(&stop)) {
        dycl_plan *plan = NULL;
        if (dycl_plan_create(&shared.graph, shared.outputs, 2, (dycl_plan_mode)mode, &plan) != DYCL_OK) {
            atomic_fetch_add(&failures, 1);
            break;
        }
        for (int run = 0; run < 4; run++) {
            for (uint32_t i = 0; i < shared.graph.feed_count; i++) feeds[i] = (dycl_feed){shared.data[i], 500 + i, 1};
            dycl_plan *mine = run == 3 ? common : plan;
            dycl_status status = dycl_plan_run(mine, feeds, NULL, out);
            atomic_fetch_add(&checks, 1);
            if (status == DYCL_BUSY && mine == common) continue; /* busy in another thread */
            if ((status != DYCL_OK || !matches(&shared, &expected, out)) && atomic_fetch_add(&failures, 1) < 10)
                printf("FAILED: a run in a thread: status %d\n", status);
        }
        dycl_plan_release(plan);
    }
    free(out[0]);
    free(out[1]);
    return NULL;
}

static void threads(void) {
    pthread_t thread[4];
    make_net(&shared);
    ref_run(&expected, &shared.graph, (void *const *)shared.data, NULL);
    if (dycl_plan_create(&shared.graph, shared.outputs, 2, DYCL_PLAN_TUNED, &common) != DYCL_OK) abort();
    for (int i = 0; i < 4; i++) pthread_create(&thread[i], NULL, worker, (void *)(intptr_t)i);
    for (int i = 0; i < 300; i++) {
        struct timespec pause = {0, 2000000};
        nanosleep(&pause, NULL);
        dycl_pack_forget((uint64_t)(500 + i % 7));
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    dycl_plan_release(common);
    for (uint32_t i = 0; i < shared.graph.feed_count; i++) dycl_pack_forget(500 + i);
    atomic_fetch_add(&checks, 1);
    if (dycl_pack_bytes()) {
        atomic_fetch_add(&failures, 1);
        printf("FAILED: %zu bytes of packed weights are left\n", dycl_pack_bytes());
    }
    ref_free(&expected);
    free_net(&shared);
    printf("threads: %d checks\n", atomic_load(&checks));
}

int main(void) {
    out_of_memory();
    threads();
    dycl_workspace_trim();
    printf("%s: %d checks, %d failures\n", atomic_load(&failures) ? "FAILED" : "ok", atomic_load(&checks),
           atomic_load(&failures));
    return atomic_load(&failures) != 0;
}
