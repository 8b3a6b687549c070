/* Segments in pieces: random loops with random trip counts and random paths, run in pieces and as a whole. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "exec/cache/pieces.h"
#include "exec/plan/workspace.h"
#include "opt/parts.h"
#include "random.h"

static int failures;
static void check(int ok, const char *what) {
    if (!ok && failures++ < 10) printf("FAIL %s\n", what);
}

enum { ROWS = 3, COLUMNS = 8, SIZE = ROWS * COLUMNS, MOST_TRIPS = 70, BODY = 12 };

/* A loop: what its body does is drawn once, how often it runs each time. */
typedef struct {
    struct {
        int kind, a, b, op;
    } steps[BODY];
    int length, keeps, prefix, suffix;
    int through; /* an iteration sees the state of the one before as views only */
} loop;

static const int binary_ops[] = {DYCL_OP_add, DYCL_OP_mul, DYCL_OP_sub, DYCL_OP_maximum},
                 unary_ops[] = {DYCL_OP_tanh, DYCL_OP_sigmoid, DYCL_OP_neg};

static loop random_loop(void) {
    loop l = {.length = 2 + (int)below(BODY - 1),
              .keeps = below(3) == 0,
              .prefix = (int)below(4),
              .suffix = (int)below(4),
              .through = below(3) == 0};
    for (int i = 0; i < l.length; i++) {
        l.steps[i].kind = (int)below(6);
        l.steps[i].a = (int)below(100);
        l.steps[i].b = (int)below(100);
        l.steps[i].op = (int)below(100);
    }
    return l;
}

static uint32_t node(dycl_graph *g, int op, int count, const uint32_t *operands, int attr_count, const int64_t *attrs) {
    uint32_t out = DYCL_NONE;
    if (dycl_graph_node(g, (dycl_op)op, count, operands, attr_count, attrs, &out) != DYCL_OK) abort();
    return out;
}

static uint32_t feed(dycl_graph *g, int rank, const int64_t *sizes) {
    int64_t strides[3];
    uint32_t out;
    dycl_strides_contiguous(rank, sizes, strides);
    if (dycl_graph_feed(g, DYCL_F32, rank, sizes, strides, &out) != DYCL_OK) abort();
    return out;
}

static void step(dycl_graph *g, const loop *l, int i, uint32_t *pool, int *count) {
    uint32_t operands[2] = {pool[l->steps[i].a % *count], pool[l->steps[i].b % *count]}, out;
    const int64_t mean[2] = {INT64_C(1) << (g->values[operands[0]].rank - 1), 1};
    static const int64_t transpose[5] = {0, COLUMNS, ROWS, 1, COLUMNS}, back[5] = {0, ROWS, COLUMNS, COLUMNS, 1};
    switch (l->steps[i].kind) {
    case 0: out = node(g, unary_ops[l->steps[i].op % 3], 1, operands, 0, NULL); break;
    case 1: { /* a row statistic, subtracted */
        operands[1] = node(g, DYCL_OP_mean, 1, operands, 2, mean);
        out = node(g, DYCL_OP_sub, 2, operands, 0, NULL);
        break;
    }
    case 2: {                  /* through a view of a result */
        operands[1] = pool[3]; /* has both dimensions */
        uint32_t own = node(g, DYCL_OP_mul, 2, operands, 0, NULL);
        uint32_t turned = node(g, DYCL_OP_view, 1, &own, 5, transpose);
        uint32_t same = node(g, DYCL_OP_neg, 1, &turned, 0, NULL); /* keeps the strides */
        int64_t attrs[5];
        memcpy(attrs, back, sizeof attrs);
        attrs[3] = g->values[same].strides[1], attrs[4] = g->values[same].strides[0];
        out = node(g, DYCL_OP_view, 1, &same, 5, attrs);
        break;
    }
    case 3: /* with a number */
        if (dycl_graph_scalar(g, DYCL_F32, &operands[1]) != DYCL_OK) abort();
        out = node(g, DYCL_OP_mul, 2, operands, 0, NULL);
        break;
    default: out = node(g, binary_ops[l->steps[i].op % 4], 2, operands, 0, NULL);
    }
    pool[(*count)++] = out;
}

static uint32_t viewed(dycl_graph *g, uint32_t v) { /* as it lies */
    const dycl_value *value = &g->values[v];
    int64_t attrs[1 + 2 * DYCL_MAX_RANK] = {value->offset};
    for (int i = 0; i < value->rank; i++) {
        attrs[1 + i] = value->sizes[i];
        attrs[1 + value->rank + i] = value->strides[i];
    }
    return node(g, DYCL_OP_view, 1, &v, 1 + 2 * value->rank, attrs);
}

/* Feeds: x[T, ROWS, COLUMNS], w[ROWS, COLUMNS], v[COLUMNS]. Outputs: the state, and sometimes every state. */
static int trace(dycl_graph *g, const loop *l, int trips, uint32_t *outputs) {
    const int64_t shape[3] = {MOST_TRIPS, ROWS, COLUMNS};
    dycl_graph_reset(g);
    uint32_t x = feed(g, 3, shape), w = feed(g, 2, shape + 1), v = feed(g, 1, shape + 2), h, c, pool[BODY + 8];
    int output_count = 0;
    h = node(g, DYCL_OP_mul, 2, (uint32_t[]){w, v}, 0, NULL);
    for (int i = 0; i < l->prefix; i++) h = node(g, unary_ops[i % 3], 1, &h, 0, NULL);
    c = node(g, DYCL_OP_sigmoid, 1, &h, 0, NULL);
    for (int t = 0; t < trips; t++) {
        int64_t attrs[5] = {(int64_t)t * SIZE, ROWS, COLUMNS, COLUMNS, 1};
        int count = 0;
        if (l->through) h = viewed(g, h), c = viewed(g, c);
        pool[count++] = node(g, DYCL_OP_view, 1, &x, 5, attrs);
        pool[count++] = h, pool[count++] = c, pool[count++] = w, pool[count++] = v;
        for (int i = 0; i < l->length; i++) step(g, l, i, pool, &count);
        uint32_t last = pool[count - 1], before = pool[count - 2];
        c = node(g, DYCL_OP_tanh, 1, (uint32_t[]){before}, 0, NULL);
        h = node(g, DYCL_OP_add, 2, (uint32_t[]){last, h}, 0, NULL);
        h = node(g, DYCL_OP_tanh, 1, &h, 0, NULL);
        if (l->keeps && output_count < 60) outputs[output_count++] = h;
    }
    for (int i = 0; i < l->suffix; i++) h = node(g, unary_ops[(i + 1) % 3], 1, &h, 0, NULL);
    if (!output_count || outputs[output_count - 1] != h) outputs[output_count++] = h;
    outputs[output_count++] = c;
    return output_count;
}

static float *x_data, *w_data, *v_data;

static float **results(const dycl_graph *g, const uint32_t *outputs, int count) {
    float **out = malloc((size_t)count * sizeof *out);
    for (int i = 0; i < count; i++) {
        out[i] = malloc((size_t)dycl_value_extent(&g->values[outputs[i]]) * sizeof(float) + 64);
        memset(out[i], 0xff, (size_t)dycl_value_extent(&g->values[outputs[i]]) * sizeof(float));
    }
    return out;
}

static void compare(dycl_plan_cache *cache, const dycl_graph *g, const uint32_t *outputs, int count, int other_count,
                    dycl_segment **others, dycl_segment **out_segment, int *pieced) {
    dycl_feed feeds[3] = {{x_data, 0, 0}, {w_data, 0, 0}, {v_data, 0, 0}};
    dycl_scalar *scalars = calloc(g->scalar_count + 1, sizeof *scalars);
    for (uint32_t i = 0; i < g->scalar_count; i++) scalars[i].f32 = 0.5f + 0.01f * (float)(i % 90);
    float **expected = results(g, outputs, count), **got = results(g, outputs, count);
    dycl_plan *whole = NULL, *plan;
    dycl_pieces *pieces;
    dycl_segment *segment;
    check(dycl_plan_create(g, outputs, count, DYCL_PLAN_COLD, &whole) == DYCL_OK, "the whole");
    check(dycl_plan_run(whole, feeds, scalars, (void **)expected) == DYCL_OK, "the whole runs");
    dycl_plan_release(whole);
    check(dycl_plan_lookup(cache, g, outputs, count, &segment) == DYCL_OK, "lookup");
    dycl_segment_retain(segment);
    check(dycl_segment_prepare(cache, segment, other_count, others, &plan, &pieces) == DYCL_OK, "prepare");
    *pieced = pieces != NULL;
    if (pieces) {
        check(dycl_pieces_prepare(cache, pieces) == DYCL_BUSY, "one run at a time");
        check(dycl_pieces_run(pieces, feeds, scalars, (void **)got) == DYCL_OK, "the pieces run");
    } else {
        check(dycl_plan_run(plan, feeds, scalars, (void **)got) == DYCL_OK, "the plan runs");
    }
    for (int i = 0; i < count; i++)
        for (int64_t k = 0; k < dycl_value_extent(&g->values[outputs[i]]); k++)
            check(fabsf(expected[i][k] - got[i][k]) <= 1e-5f * (1 + fabsf(expected[i][k])),
                  "same results whole and in pieces"); /* tile blocks may sum rows in another order */
    for (int i = 0; i < count; i++) free(expected[i]), free(got[i]);
    free(expected), free(got), free(scalars);
    *out_segment = segment;
}

static void test_loops(void) {
    int in_pieces = 0, as_whole = 0;
    for (int n = 0; n < 60; n++) {
        loop l = random_loop();
        dycl_plan_cache *cache = dycl_plan_cache_create();
        dycl_graph g;
        dycl_segment *others[4] = {NULL};
        int other_count = 0, pieced;
        uint32_t outputs[64], before = dycl_plan_count();
        dycl_graph_init(&g);
        for (int call = 0; call < 24; call++) {
            int count = trace(&g, &l, 1 + (int)below(MOST_TRIPS), outputs);
            dycl_segment *segment;
            compare(cache, &g, outputs, count, other_count, others, &segment, &pieced);
            in_pieces += pieced, as_whole += !pieced;
            if (other_count == 4)
                dycl_segment_release(others[3]);
            else
                other_count++;
            memmove(others + 1, others, 3 * sizeof *others);
            others[0] = segment;
        }
        /* the same count again and again: a plan of its own */
        int count = trace(&g, &l, 37, outputs);
        for (int again = 0; again < 6; again++) {
            dycl_segment *segment;
            compare(cache, &g, outputs, count, other_count, others, &segment, &pieced);
            dycl_segment_release(others[0]);
            others[0] = segment;
        }
        check(!pieced, "a steady trip count gets a plan as a whole");
        if (!l.keeps) check(dycl_plan_count() - before < 26, "few plans for many trip counts");
        for (int i = 0; i < other_count; i++) dycl_segment_release(others[i]);
        dycl_plan_cache_release(cache);
        check(dycl_plan_count() == before, "no plan is left");
        dycl_graph_free(&g);
    }
    check(in_pieces > 500 && as_whole > 100, "both ways were taken");
    printf("loops: %d runs in pieces, %d as a whole\n", in_pieces, as_whole);
}

/* A path through STAGES products, each followed by what a branch does: elementwise, a view of it, the mean of its rows,
 * or the sum with what some stage before made (a tree). Feeds as above. */
enum { STAGES = 14 };
static int path(dycl_graph *g, unsigned branches, int tree, uint32_t *outputs) {
    const int64_t shape[3] = {MOST_TRIPS, ROWS, COLUMNS}, square[5] = {0, COLUMNS, COLUMNS, COLUMNS, 1},
                  mean[2] = {2, 1};
    dycl_graph_reset(g);
    uint32_t x = feed(g, 3, shape), w = feed(g, 2, shape + 1), v = feed(g, 1, shape + 2), made[STAGES + 1];
    uint32_t weight = node(g, DYCL_OP_view, 1, &x, 5, square);
    made[0] = w;
    for (int i = 0; i < STAGES; i++) {
        uint32_t h = node(g, DYCL_OP_linear, 3, (uint32_t[]){made[i], weight, v}, 0, NULL), s;
        if (i < 10 && branches >> i & 1) {
            h = viewed(g, node(g, DYCL_OP_tanh, 1, &h, 0, NULL));
        } else {
            s = node(g, DYCL_OP_mean, 1, &h, 2, mean);
            h = node(g, DYCL_OP_sub, 2, (uint32_t[]){h, s}, 0, NULL);
        }
        if (tree) h = node(g, DYCL_OP_add, 2, (uint32_t[]){h, made[below(i + 1)]}, 0, NULL);
        made[i + 1] = node(g, DYCL_OP_sigmoid, 1, &h, 0, NULL);
    }
    outputs[0] = made[STAGES], outputs[1] = made[4];
    return 2;
}

static void test_paths(void) {
    int in_pieces = 0;
    for (int n = 0; n < 30; n++) {
        dycl_plan_cache *cache = dycl_plan_cache_create();
        dycl_graph g;
        dycl_segment *others[2] = {NULL}, *segment;
        int pieced, count, other_count = 0, tree = n % 2;
        uint32_t outputs[2], before = dycl_plan_count();
        uint8_t seen[1024] = {0};
        dycl_graph_init(&g);
        for (int call = 0; call < 40; call++) {
            unsigned branches = below(1024);
            count = path(&g, branches, tree, outputs);
            compare(cache, &g, outputs, count, other_count, others, &segment, &pieced);
            in_pieces += pieced;
            check(pieced || call < 3 || seen[branches], "a new path runs in pieces");
            seen[branches] = 1;
            dycl_segment_release(others[1]);
            others[1] = others[0], others[0] = segment;
            if (other_count < 2) other_count++;
        }
        /* what is read by whom, and later, differs in trees */
        if (!tree) check(dycl_plan_count() - before < 24, "few plans for many paths");
        for (int again = 0; again < 3; again++) {
            compare(cache, &g, outputs, count, other_count, others, &segment, &pieced);
            check(!pieced || !again, "a path that comes back gets a plan as a whole");
            dycl_segment_release(others[1]);
            others[1] = others[0], others[0] = segment;
        }
        for (int i = 0; i < other_count; i++) dycl_segment_release(others[i]);
        dycl_plan_cache_release(cache);
        check(dycl_plan_count() == before, "no plan is left");
        dycl_graph_free(&g);
    }
    printf("paths: %d runs in pieces\n", in_pieces);
}

/* Sixteen iterations and nothing else: the piece is the segment itself. */
static void test_one_piece(void) {
    dycl_plan_cache *cache = dycl_plan_cache_create();
    dycl_segment *segments[2] = {NULL};
    uint32_t before = dycl_plan_count();
    for (int n = 0; n < 2; n++) {
        dycl_graph g;
        dycl_plan *plan;
        dycl_pieces *pieces;
        const int64_t shape[2] = {4, 4};
        dycl_graph_init(&g);
        uint32_t x = feed(&g, 2, shape), y = x;
        for (int i = 0; i < 12 + 4 * n; i++) {
            uint32_t s = node(&g, DYCL_OP_sigmoid, 1, &y, 0, NULL);
            y = node(&g, DYCL_OP_add, 2, (uint32_t[]){s, x}, 0, NULL);
        }
        check(dycl_plan_lookup(cache, &g, &y, 1, &segments[n]) == DYCL_OK, "lookup");
        dycl_segment_retain(segments[n]);
        check(dycl_segment_prepare(cache, segments[n], n, segments, &plan, &pieces) == DYCL_OK && plan && !pieces,
              "no piece of itself");
        dycl_graph_free(&g);
    }
    for (int n = 0; n < 2; n++) dycl_segment_release(segments[n]);
    dycl_plan_cache_release(cache);
    check(dycl_plan_count() == before, "it does not keep itself");
}

/* The same operators every 3 nodes, of which one reads what its iteration made, or what a stack holds. */
static void test_wires(void) {
    for (int stack = 0; stack < 2; stack++) {
        dycl_graph g;
        dycl_period p;
        const int64_t shape[2] = {4, 4};
        uint32_t made[9];
        dycl_graph_init(&g);
        made[0] = feed(&g, 2, shape);
        for (int i = 0; i < 8; i++) {
            uint32_t y = node(&g, DYCL_OP_tanh, 1, &made[i], 0, NULL), z = node(&g, DYCL_OP_neg, 1, &y, 0, NULL);
            made[i + 1] = node(&g, DYCL_OP_add, 2, (uint32_t[]){z, stack ? made[i * 5 % 7 % (i + 1)] : y}, 0, NULL);
        }
        check(dycl_period_find(&g, &made[8], 1, &p) == DYCL_OK && (p.iterations == 0) == stack,
              "what an iteration reads belongs to it");
        dycl_period_free(&p);
        dycl_graph_free(&g);
    }
}

static void test_parts(void) {
    dycl_graph g;
    dycl_period p;
    dycl_parts parts[2];
    for (int big = 0; big < 2; big++) {
        const int64_t shape[2] = {big ? 2000 : 20, 8}, weight[2] = {8, 8};
        dycl_graph_init(&g);
        uint32_t x = feed(&g, 2, shape), w = feed(&g, 2, weight), y = node(&g, DYCL_OP_tanh, 1, &x, 0, NULL);
        for (int i = 0; i < 3; i++) {
            y = node(&g, DYCL_OP_linear, 3, (uint32_t[]){y, w, DYCL_NONE}, 0, NULL);
            y = node(&g, i == 1 ? DYCL_OP_neg : DYCL_OP_tanh, 1, &y, 0, NULL);
        }
        check(dycl_period_find(&g, &y, 1, &p) == DYCL_OK && dycl_parts_find(&g, &p, &parts[big]) == DYCL_OK, "found");
        dycl_period_free(&p);
        dycl_graph_free(&g);
    }
    const dycl_parts *q = &parts[0];
    check(q->count == 4 && q->look_count == 3 && q->starts[1] == 1 && q->starts[2] == 3 && q->starts[4] == 7 &&
              q->kinds[1] == q->kinds[3],
          "a part ends where the next product stands");
    check(parts[1].count == 1, "no cut where much lives");
    uint8_t known[4] = {0};
    dycl_parts_mark_known(q, &parts[1], known);
    check(!known[0] && !known[1] && !known[2], "other shapes are other parts");
    check(dycl_parts_equal(q, 1, 2, q, 3) && !dycl_parts_equal(q, 1, 2, q, 2) && !dycl_parts_equal(q, 1, 3, q, 3),
          "runs of parts");
    dycl_parts_free(&parts[0]);
    dycl_parts_free(&parts[1]);
}

static void test_period(void) {
    dycl_graph g;
    dycl_period p;
    dycl_graph_init(&g);
    const int64_t shape[2] = {4, 4};
    uint32_t x = feed(&g, 2, shape), y = x;
    for (int i = 0; i < 7; i++) {
        y = node(&g, DYCL_OP_tanh, 1, &y, 0, NULL);
        node(&g, DYCL_OP_neg, 1, &y, 0, NULL); /* not needed */
        y = node(&g, DYCL_OP_sigmoid, 1, &y, 0, NULL);
        y = node(&g, DYCL_OP_tanh, 1, &y, 0, NULL);
    }
    check(dycl_period_find(&g, &y, 1, &p) == DYCL_OK && p.node_count == 21 && p.period == 3 && p.iterations == 7 &&
              p.body,
          "an iteration and its number, without what is not needed");
    dycl_period_free(&p);
    dycl_graph_reset(&g);
    y = feed(&g, 2, shape);
    for (int i = 0; i < 12; i++) y = node(&g, unary_ops[(i * i / 3) % 3], 1, &y, 0, NULL);
    check(dycl_period_find(&g, &y, 1, &p) == DYCL_OK && p.iterations == 0 && p.body == 0, "nothing repeats");
    dycl_period_free(&p);
    dycl_graph_reset(&g);
    y = feed(&g, 2, shape);
    check(dycl_period_find(&g, &y, 1, &p) == DYCL_OK && p.iterations == 0, "nothing at all");
    dycl_period_free(&p);
    dycl_graph_free(&g);
}

int main(void) {
    x_data = malloc(sizeof(float) * MOST_TRIPS * SIZE), w_data = malloc(sizeof(float) * SIZE),
    v_data = malloc(sizeof(float) * COLUMNS);
    for (int i = 0; i < MOST_TRIPS * SIZE; i++) x_data[i] = (float)below(2000) / 1000 - 1;
    for (int i = 0; i < SIZE; i++) w_data[i] = (float)below(2000) / 1000 - 1;
    for (int i = 0; i < COLUMNS; i++) v_data[i] = (float)below(2000) / 1000 - 1;
    test_period();
    test_wires();
    test_parts();
    test_loops();
    test_paths();
    test_one_piece();
    free(x_data), free(w_data), free(v_data);
    dycl_workspace_trim();
    printf(failures ? "%d failures\n" : "ok\n", failures);
    return failures != 0;
}
