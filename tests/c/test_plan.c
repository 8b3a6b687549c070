/* Plans against a reference interpreter: random graphs of every family, cold and tuned; packing, bad indices, memory
 * planning. */
#include "base/alloc.h"
#include "exec/builder/builder.h"
#include "exec/plan/plan.h"
#include "exec/plan/workspace.h"
#include "plan_reference.h"
#include "random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int failures, checks;
static int64_t most_elements = 20000; /* of values that random graphs go on with */
static uint64_t tokens;

static double uniform(void) { return (double)(rnd() >> 11) / 9007199254740992.0 * 2 - 1; }

/* ---- A graph with its inputs */
#define MAX_FEEDS 64
typedef struct {
    dycl_graph graph;
    dycl_feed feeds[MAX_FEEDS];
    void *feed_data[MAX_FEEDS];
    dycl_scalar scalars[MAX_FEEDS];
    uint32_t pool[256]; /* values that later nodes may read */
    int pool_count;
    const char *last_op;
} sample;

static void sample_init(sample *s) {
    memset(s, 0, sizeof *s);
    dycl_graph_init(&s->graph);
}
static void sample_free(sample *s) {
    for (uint32_t i = 0; i < s->graph.feed_count; i++) {
        if (s->feeds[i].token) dycl_pack_forget(s->feeds[i].token);
        free(s->feed_data[i]);
    }
    dycl_graph_free(&s->graph);
}

static uint32_t add_feed(sample *s, dycl_dtype dtype, int rank, const int64_t *sizes, double scale) {
    uint32_t v = DYCL_NONE;
    int64_t strides[8], n = 1, pitch = 1;
    int order[8];
    for (int i = 0; i < rank; i++) order[i] = i;
    if (pick(0, 3) == 0 && rank > 1) { /* some are transposed, some have gaps */
        int a = (int)pick(0, rank - 1), b = (int)pick(0, rank - 1), t = order[a];
        order[a] = order[b];
        order[b] = t;
    }
    for (int i = rank - 1; i >= 0; i--) {
        strides[order[i]] = pitch;
        pitch *= sizes[order[i]];
        if (pick(0, 15) == 0) pitch += 3;
    }
    for (int i = 0; i < rank; i++) n += (sizes[i] ? sizes[i] - 1 : 0) * strides[i];
    if (dycl_graph_feed(&s->graph, dtype, rank, sizes, strides, &v) != DYCL_OK) abort();
    uint32_t f = s->graph.feed_count - 1;
    void *data = malloc((size_t)(n + 1) * 8);
    for (int64_t i = 0; i < n; i++)
        ref_store(data, i, dtype,
                  dycl_dtype_is_float(dtype) ? uniform() * scale
                  : dtype == DYCL_BOOL       ? (double)pick(0, 1)
                                             : (double)pick(0, (int64_t)scale));
    s->feed_data[f] = data;
    s->feeds[f].data = data;
    if (pick(0, 1)) s->feeds[f].token = 1000 + ++tokens;
    return v;
}

static uint32_t add_scalar(sample *s, dycl_dtype dtype, double x) {
    uint32_t v = DYCL_NONE;
    if (dycl_graph_scalar(&s->graph, dtype, &v) != DYCL_OK) abort();
    ref_store(&s->scalars[s->graph.scalar_count - 1], 0, dtype, x);
    return v;
}

static uint32_t add_node(sample *s, int op, int count, const uint32_t *operands, int attr_count, const int64_t *attrs) {
    uint32_t v = DYCL_NONE;
    if (dycl_graph_node(&s->graph, (dycl_op)op, count, operands, attr_count, attrs, &v) != DYCL_OK) return DYCL_NONE;
    if (s->pool_count < 256) s->pool[s->pool_count++] = v;
    s->last_op = dycl_op_get((dycl_op)op)->name;
    return v;
}
#define NODE(op, operands, ...)                                                                                        \
    add_node(s, op, (int)(sizeof(operands) / sizeof *(operands)), operands,                                            \
             (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]){__VA_ARGS__})
#define OPERANDS(...) ((uint32_t[]){__VA_ARGS__})
static uint32_t node0(sample *s, int op, int count, const uint32_t *operands) {
    return add_node(s, op, count, operands, 0, NULL);
}

static const dycl_value *value(const sample *s, uint32_t v) { return &s->graph.values[v]; }

/* ---- Running both plans */
static int close_enough(double got, double want, double tolerance) {
    if (isnan(want)) return isnan(got);
    if (isinf(want)) return got == want;
    return fabs(got - want) <= tolerance * (1 + fabs(want));
}

static dycl_plan *run_plan(const sample *s, dycl_plan_mode mode, const uint32_t *outputs, int count, int runs,
                           const reference *r, const char *what) {
    dycl_plan *plan = NULL;
    dycl_status status = dycl_plan_create(&s->graph, outputs, count, mode, &plan);
    checks++;
    if (status != DYCL_OK) {
        if (failures++ < 20)
            printf("FAILED: %s: %s plan: status %d, %s\n", what, mode ? "tuned" : "cold", status, dycl_error_message());
        return NULL;
    }
    void *data[64];
    for (int i = 0; i < count; i++) data[i] = malloc(((size_t)dycl_value_extent(value(s, outputs[i])) + 1) * 8);
    for (int run = 0; run < runs; run++) {
        for (int i = 0; i < count; i++)
            memset(data[i], 0xAB, ((size_t)dycl_value_extent(value(s, outputs[i])) + 1) * 8);
        status = dycl_plan_run(plan, s->feeds, s->scalars, data);
        checks++;
        if (r->bad_index) {
            if (status != DYCL_BAIL && failures++ < 20)
                printf("FAILED: %s: a bad index gives status %d\n", what, status);
            continue;
        }
        if (status != DYCL_OK) {
            if (failures++ < 20) printf("FAILED: %s: run: status %d, %s\n", what, status, dycl_error_message());
            continue;
        }
        for (int i = 0; i < count; i++) {
            const dycl_value *v = value(s, outputs[i]);
            int64_t wrong = ref_first_wrong(r, outputs[i], data[i]);
            checks += (int)dycl_value_numel(v);
            if (wrong < 0 || failures++ >= 20) continue;
            char *text = NULL;
            dycl_number got = dycl_number_load((dycl_dtype)v->dtype, data[i], wrong),
                        want = r->numbers.elements[outputs[i]][wrong];
            printf("FAILED: %s: %s plan, run %d, output %d (%s) element %lld: got %.9g (%lld), want %.9g (%lld) within "
                   "%.3g\n",
                   what, mode ? "tuned" : "cold", run, i, dycl_op_get((dycl_op)s->graph.nodes[v->source].op)->name,
                   (long long)wrong, got.f, (long long)got.i, want.f, (long long)want.i, want.error);
            if (failures < 4 && dycl_plan_describe(plan, &text) == DYCL_OK) printf("%s", text);
            dycl_free(text);
        }
    }
    for (int i = 0; i < count; i++) free(data[i]);
    return plan;
}

static void check(sample *s, const uint32_t *outputs, int count, const char *what) {
    reference r;
    ref_run(&r, &s->graph, s->feed_data, s->scalars);
    for (int mode = 0; mode < 2; mode++)
        dycl_plan_release(run_plan(s, (dycl_plan_mode)mode, outputs, count, 3, &r, what));
    int64_t large = dycl_opt_large;
    dycl_opt_large = 0; /* a cold plan of this is fused */
    dycl_plan_release(run_plan(s, DYCL_PLAN_COLD, outputs, count, 3, &r, what));
    dycl_opt_large = large;
    ref_free(&r);
}

/* ---- Random graphs */
static uint32_t any_value(sample *s, dycl_dtype dtype) {
    for (int tries = 0; tries < 20 && s->pool_count; tries++) {
        uint32_t v = s->pool[pick(pick(0, 1) ? 0 : s->pool_count * 2 / 3, s->pool_count - 1)];
        if (value(s, v)->dtype == dtype && dycl_value_numel(value(s, v)) < most_elements) return v;
    }
    return DYCL_NONE;
}

/* Something that broadcasts against v. */
static uint32_t partner(sample *s, uint32_t v) {
    const dycl_value x = *value(s, v);
    for (int tries = 0; tries < 6; tries++) {
        uint32_t w = any_value(s, (dycl_dtype)x.dtype);
        if (w == DYCL_NONE) break;
        const dycl_value *y = value(s, w);
        int fits = y->rank == x.rank;
        for (int i = 0; fits && i < x.rank; i++) fits = y->sizes[i] == x.sizes[i] || y->sizes[i] == 1;
        if (fits) return w;
    }
    if (pick(0, 3) == 0) return add_scalar(s, (dycl_dtype)x.dtype, (double)pick(1, 4) / 2);
    int64_t sizes[8];
    int rank = (int)pick(0, x.rank);
    for (int i = 0; i < rank; i++) sizes[i] = pick(0, 2) == 0 ? 1 : x.sizes[x.rank - rank + i];
    if (s->graph.feed_count > MAX_FEEDS - 8) return v;
    return add_feed(s, (dycl_dtype)x.dtype, rank, sizes, 1.5);
}

static void add_view(sample *s, uint32_t v) {
    const dycl_value x = *value(s, v);
    int64_t attrs[1 + 16] = {0}, *sizes = &attrs[1], *strides;
    int rank = x.rank;
    if (x.kind == DYCL_VALUE_SCALAR) return;
    strides = sizes + rank;
    memcpy(sizes, x.sizes, (size_t)rank * 8);
    memcpy(strides, x.strides, (size_t)rank * 8);
    switch (pick(0, 4)) {
    case 0: /* transpose */
        if (rank < 2) return;
        for (int a = (int)pick(0, rank - 2), b = rank - 1, once = 0; once < 1; once++) {
            int64_t t = sizes[a];
            sizes[a] = sizes[b];
            sizes[b] = t;
            t = strides[a];
            strides[a] = strides[b];
            strides[b] = t;
        }
        break;
    case 1: { /* slice */
        if (rank < 1) return;
        int d = (int)pick(0, rank - 1);
        int64_t from = sizes[d] ? pick(0, sizes[d] / 2) : 0;
        attrs[0] = from * strides[d];
        sizes[d] -= from;
        break;
    }
    case 2: /* join two dimensions */
        if (rank < 2 || !dycl_value_contiguous(&x)) return;
        sizes[0] *= sizes[1];
        memmove(&sizes[1], &sizes[2], (size_t)(rank - 2) * 8);
        rank--;
        strides = sizes + rank;
        dycl_strides_contiguous(rank, sizes, strides);
        break;
    case 3: /* a new dimension */
        if (rank > 4) return;
        memmove(&sizes[rank + 1], &sizes[rank], (size_t)rank * 8);
        strides = sizes + rank + 1;
        sizes[rank] = 1;
        strides[rank] = 1;
        rank++;
        break;
    default: /* expand */
        if (rank < 1) return;
        for (int i = 0; i < rank; i++)
            if (sizes[i] == 1) {
                sizes[i] = pick(1, 4);
                strides[i] = 0;
            }
    }
    add_node(s, DYCL_OP_view, 1, &v, 1 + 2 * rank, attrs);
}

static void add_random(sample *s, dycl_dtype dtype) {
    static const int unary[] = {DYCL_EW_neg,  DYCL_EW_abs,  DYCL_EW_tanh,   DYCL_EW_sigmoid,  DYCL_EW_relu,
                                DYCL_EW_gelu, DYCL_EW_silu, DYCL_EW_square, DYCL_EW_hardswish};
    static const int binary[] = {DYCL_EW_add,     DYCL_EW_sub,     DYCL_EW_mul,
                                 DYCL_EW_maximum, DYCL_EW_minimum, DYCL_EW_leaky_relu};
    static const int reductions[] = {DYCL_OP_sum,   DYCL_OP_mean,   DYCL_OP_amax, DYCL_OP_amin,
                                     DYCL_OP_sumsq, DYCL_OP_sumabs, DYCL_OP_var,  DYCL_OP_std};
    uint32_t v = any_value(s, dtype);
    if (v == DYCL_NONE) return;
    const dycl_value x = *value(s, v);
    int rank = x.rank;
    int is_float = dycl_dtype_is_float(dtype);
    switch (pick(0, 15)) {
    case 0:
    case 1:
        if (!is_float)
            node0(s, pick(0, 1) ? DYCL_EW_neg : DYCL_EW_relu, 1, &v);
        else
            node0(s, unary[pick(0, 8)], 1, &v);
        break;
    case 2:
    case 3:
    case 4: {
        uint32_t w = partner(s, v);
        node0(s, binary[pick(0, is_float ? 5 : 4)], 2, pick(0, 1) ? OPERANDS(v, w) : OPERANDS(w, v));
        break;
    }
    case 5: {
        uint32_t w = partner(s, v), u = partner(s, v);
        uint32_t c = node0(s, DYCL_EW_lt, 2, OPERANDS(v, w));
        if (c != DYCL_NONE) node0(s, DYCL_EW_where, 3, OPERANDS(c, v, u));
        break;
    }
    case 6:
    case 7: {
        if (rank == 0) break;
        int64_t mask = pick(0, 2) == 0 ? pick(1, (1 << rank) - 1) : (int64_t)1 << (rank - 1);
        int64_t attrs[3] = {mask, pick(0, 1), dycl_f64_attr(1)};
        int op = reductions[pick(0, is_float ? 7 : 0)];
        int spread = op == DYCL_OP_var || op == DYCL_OP_std;
        if (spread && dycl_value_numel(&x) < 64) op = DYCL_OP_mean, spread = 0;
        if (spread) attrs[2] = dycl_f64_attr(0);
        add_node(s, op, 1, &v, spread ? 3 : 2, attrs);
        break;
    }
    case 8: {
        if (rank == 0 || !is_float) break;
        int64_t dim = pick(0, 2) ? rank - 1 : pick(0, rank - 1);
        int is_log = pick(0, 2) == 0;
        uint32_t y = NODE((is_log ? DYCL_OP_log_softmax : DYCL_OP_softmax), OPERANDS(v), dim);
        if (y != DYCL_NONE && pick(0, 1))
            NODE((is_log ? DYCL_OP_log_softmax_back : DYCL_OP_softmax_back), OPERANDS(v, y), dim);
        break;
    }
    case 9: {
        if (rank == 0 || !is_float || x.sizes[rank - 1] == 0) break;
        int64_t n = pick(0, 3) == 0 ? rank : 1, sizes[8];
        for (int i = 0; i < n; i++) sizes[i] = x.sizes[rank - n + i];
        if (s->graph.feed_count > MAX_FEEDS - 8) break;
        uint32_t w = pick(0, 3) ? add_feed(s, dtype, (int)n, sizes, 1) : DYCL_NONE,
                 b = pick(0, 3) ? add_feed(s, dtype, (int)n, sizes, 1) : DYCL_NONE;
        if (rank >= 2 && pick(0, 2) == 0 && s->graph.feed_count < MAX_FEEDS - 12) {
            uint32_t p[4];
            for (int i = 0; i < 4; i++) p[i] = i < 2 || pick(0, 3) ? add_feed(s, dtype, 1, &x.sizes[1], 1) : DYCL_NONE;
            const dycl_value *variance = value(s, p[1]);
            for (int64_t i = 0; i < x.sizes[1]; i++)
                ref_store(s->feed_data[variance->source], i * variance->strides[0], dtype, 0.5 + 0.01 * (double)i);
            NODE(DYCL_OP_batch_norm, OPERANDS(v, p[0], p[1], p[2], p[3]), dycl_f64_attr(1e-3));
            int64_t momentum = dycl_f64_attr(0.2), eps = dycl_f64_attr(1e-2);
            uint32_t m[4] = {DYCL_NONE, DYCL_NONE};
            for (int i = 0; i < 4 && dycl_value_numel(&x) > x.sizes[1]; i++)
                m[i] = NODE(DYCL_OP_batch_stats, OPERANDS(v, p[0], p[1]), i, momentum, eps);
            if (m[0] != DYCL_NONE && m[1] != DYCL_NONE) {
                uint32_t y = NODE(DYCL_OP_batch_norm_train, OPERANDS(v, m[0], m[1], p[2], p[3]), eps);
                uint32_t g = pick(0, 1) ? add_feed(s, dtype, rank, x.sizes, 1) : y;
                for (int i = 0; i < 3 && y != DYCL_NONE; i++)
                    if (pick(0, 2)) NODE(DYCL_OP_batch_norm_back, OPERANDS(g, v, m[0], m[1], p[2]), i, eps);
            }
        } else if (pick(0, 1)) {
            uint32_t y = NODE(DYCL_OP_layer_norm, OPERANDS(v, w, b), n, dycl_f64_attr(1e-2));
            if (y != DYCL_NONE && pick(0, 1))
                NODE((pick(0, 1) ? DYCL_OP_layer_norm_back : DYCL_OP_rms_norm_back),
                     OPERANDS(pick(0, 1) ? add_feed(s, dtype, rank, x.sizes, 1) : y, v), pick(0, rank - 1),
                     dycl_f64_attr(1e-2));
        } else
            NODE(DYCL_OP_rms_norm, OPERANDS(v, w), n, dycl_f64_attr(1e-2));
        if (rank == 3 && s->graph.feed_count < MAX_FEEDS - 8) {
            uint32_t g = pick(0, 1) ? add_feed(s, dtype, rank, x.sizes, 1) : v,
                     of_channels = pick(0, 3) ? add_feed(s, dtype, 1, &x.sizes[1], 1) : DYCL_NONE;
            int64_t groups = x.sizes[2] == 1 && pick(0, 1) ? 0 : x.sizes[1] % 2 || pick(0, 1) ? 1 : 2;
            for (int i = 0; i < 3; i++)
                if (pick(0, 2))
                    NODE(DYCL_OP_group_norm_back, OPERANDS(g, v, of_channels), i, groups, dycl_f64_attr(1e-2));
        }
        break;
    }
    case 10: add_view(s, v); break;
    case 11: NODE(DYCL_OP_contiguous, OPERANDS(v), pick(0, 1)); break;
    case 12: {
        if (rank == 0 || rank > 4) break;
        int64_t sizes[2] = {pick(0, 3) ? pick(1, 20) : 40, x.sizes[rank - 1]};
        if (s->graph.feed_count > MAX_FEEDS - 8) break;
        uint32_t w = add_feed(s, dtype, 2, sizes, 0.5), b = pick(0, 1) ? add_feed(s, dtype, 1, sizes, 1) : DYCL_NONE;
        uint32_t y = node0(s, DYCL_OP_linear, 3, OPERANDS(v, w, b));
        if (y != DYCL_NONE && rank <= 3 && pick(0, 3) == 0 &&
            s->graph.feed_count < MAX_FEEDS - 8) { /* the rows of two products, or their columns */
            uint32_t other = node0(s, DYCL_OP_linear, 3, OPERANDS(v, add_feed(s, dtype, 2, sizes, 0.5), DYCL_NONE));
            NODE(DYCL_OP_cat, OPERANDS(y, other), pick(0, rank - 1));
        }
        break;
    }
    case 13: {
        if (rank == 0) break;
        uint32_t w = partner(s, v);
        int64_t dim = pick(0, rank - 1);
        int fits = value(s, w)->rank == rank && value(s, w)->kind != DYCL_VALUE_SCALAR;
        for (int i = 0; fits && i < rank; i++) fits = i == dim || value(s, w)->sizes[i] == x.sizes[i];
        int computed =
            fits && dtype != DYCL_BOOL && pick(0, 1); /* parts that nobody else reads may be made where they will lie */
        if (computed) w = node0(s, pick(0, 1) ? DYCL_EW_neg : DYCL_EW_abs, 1, &w);
        if (computed)
            NODE(DYCL_OP_cat,
                 OPERANDS(node0(s, DYCL_EW_neg, 1, &v), w, (pick(0, 1) ? v : node0(s, DYCL_EW_abs, 1, &v))), dim);
        else if (fits)
            NODE(DYCL_OP_cat, OPERANDS(v, w, v), dim);
        else if (rank >= 2)
            NODE((pick(0, 1) ? DYCL_OP_tril : DYCL_OP_triu), OPERANDS(v), pick(-1, 1));
        break;
    }
    case 14:
        if ((rank == 2 || rank == 3) && x.sizes[rank - 1] <= 64) {
            /* x xT; long sums would only test how rounding errors grow */
            int64_t attrs[7] = {0};
            memcpy(&attrs[1], x.sizes, (size_t)rank * 8);
            memcpy(&attrs[1 + rank], x.strides, (size_t)rank * 8);
            int64_t t = attrs[rank - 1];
            attrs[rank - 1] = attrs[rank];
            attrs[rank] = t;
            t = attrs[2 * rank - 1];
            attrs[2 * rank - 1] = attrs[2 * rank];
            attrs[2 * rank] = t;
            uint32_t w = add_node(s, DYCL_OP_view, 1, &v, 1 + 2 * rank, attrs);
            if (w != DYCL_NONE) node0(s, DYCL_OP_matmul, 2, OPERANDS(v, w));
        }
        break;
    default: {
        dycl_dtype other = pick(0, 1) ? DYCL_F64 : DYCL_F32;
        if (is_float && other != dtype) {
            uint32_t c = NODE(DYCL_OP_cast, OPERANDS(v), other);
            if (c != DYCL_NONE && pick(0, 1)) {
                uint32_t w = node0(s, DYCL_EW_tanh, 1, &c);
                NODE(DYCL_OP_cast, OPERANDS(w), dtype);
            }
        }
    }
    }
}

static void random_graphs(int count) {
    for (int g = 0; g < count; g++) {
        uint64_t seed = random_state;
        sample s;
        sample_init(&s);
        dycl_dtype dtype = pick(0, 5) == 0 ? DYCL_F64 : pick(0, 7) == 0 ? DYCL_I64 : DYCL_F32;
        int64_t sizes[4];
        int rank = (int)pick(1, 4);
        for (int i = 0; i < rank; i++) sizes[i] = pick(0, 40) == 0 ? 0 : pick(1, rank > 2 ? 7 : 40);
        if (pick(0, 6) == 0) sizes[rank - 1] = pick(500, 3000), sizes[0] = rank > 1 ? pick(1, 3) : sizes[0];
        most_elements = 20000;
        if (g % 40 == 39) { /* enough for several threads */
            most_elements = 300000;
            sizes[0] = pick(50, 200);
            sizes[rank - 1] = pick(300, 1000);
            for (int i = 1; i + 1 < rank; i++) sizes[i] = 1;
        }
        for (int i = 0; i < 2; i++) s.pool[s.pool_count++] = add_feed(&s, dtype, rank, sizes, 1.5);
        int wanted = (int)pick(2, 24);
        for (int tries = 0; tries < 100 && (int)s.graph.node_count < wanted; tries++) add_random(&s, dtype);
        uint32_t outputs[8];
        int n = 0;
        for (uint32_t k = s.graph.node_count; k-- > 0 && n < 6;) {
            uint32_t v = s.graph.nodes[k].out;
            if (s.graph.nodes[k].op == DYCL_OP_view || (n > 0 && pick(0, 2))) continue;
            outputs[n++] = v;
        }
        char what[64];
        snprintf(what, sizeof what, "random graph %d (seed %llx)", g, (unsigned long long)seed);
        if (n) check(&s, outputs, n, what);
        sample_free(&s);
        if (failures > 10) return;
    }
}

/* ---- One of each operator with its own constraints */
static void families(void) {
    for (int round = 0; round < 40; round++) {
        sample sample_here, *s = &sample_here;
        sample_init(s);
        uint32_t out[40];
        int n = 0;
        int64_t c = pick(1, 3) * 4, oc = pick(1, 3) * 4, h = pick(5, 12), k = pick(1, 3), batch = pick(1, 2);
        uint32_t x = add_feed(s, DYCL_F32, 4, (int64_t[]){batch, c, h, h + 1}, 1);
        int64_t groups = pick(0, 3) == 0 ? 4 : 1, step = pick(1, 2), edge = pick(0, 1);
        uint32_t w = add_feed(s, DYCL_F32, 4, (int64_t[]){oc, c / groups, k, k}, 0.5),
                 b = add_feed(s, DYCL_F32, 1, (int64_t[]){oc}, 1);
        uint32_t y = NODE(DYCL_OP_conv2d, OPERANDS(x, w, (pick(0, 1) ? b : DYCL_NONE)), step, 1, edge, 1, 1, 1, groups);
        uint32_t m = add_feed(s, DYCL_F32, 1, (int64_t[]){oc}, 1), var = add_feed(s, DYCL_F32, 1, (int64_t[]){oc}, 1);
        for (int i = 0; i < oc; i++)
            ((float *)s->feed_data[s->graph.feed_count - 1])[i * value(s, var)->strides[0]] = 0.5f + 0.1f * (float)i;
        uint32_t bn = NODE(DYCL_OP_batch_norm, OPERANDS(y, m, var, b, m), dycl_f64_attr(1e-5));
        uint32_t act = node0(s, DYCL_EW_relu, 1, &bn), stats[4] = {0};
        int64_t eps = dycl_f64_attr(1e-2);
        for (int i = 0; i < 4; i++) { /* of what lies as the convolution left it */
            stats[i] = NODE(DYCL_OP_batch_stats, OPERANDS(y, m, var), i, dycl_f64_attr(0.2), eps);
            if (i > 1) out[n++] = stats[i];
        }
        uint32_t normed = NODE(DYCL_OP_batch_norm_train, OPERANDS(y, stats[0], stats[1], b, m), eps);
        out[n++] = node0(s, DYCL_EW_relu, 1, &normed);
        for (int i = 0; i < 3; i++)
            out[n++] = NODE(DYCL_OP_batch_norm_back, OPERANDS(normed, y, stats[0], stats[1], b), i, eps);
        out[n++] = NODE(DYCL_OP_conv2d_back, OPERANDS(x, act), step, 1, edge, 1, 1, 1, groups, k, k);
        uint32_t w2 = add_feed(s, DYCL_F32, 4, (int64_t[]){oc, oc, 3, 3}, 0.3);
        uint32_t y2 = NODE(DYCL_OP_conv2d, OPERANDS(act, w2, DYCL_NONE), 1, 1, 1, 1, 1, 1, 1);
        uint32_t res = node0(s, DYCL_EW_add, 2, OPERANDS(y2, act));
        uint32_t res2 = node0(s, DYCL_EW_relu, 1, &res);
        out[n++] = NODE(DYCL_OP_max_pool2d, OPERANDS(res2), 3, 3, 2, 2, 1, 1, 1, 1, pick(0, 1));
        uint32_t pooled = NODE(DYCL_OP_max_pool2d, OPERANDS(res2), 3, 2, 2, 1, 1, 0, 1, 1, 0);
        if (pooled != DYCL_NONE)
            out[n++] = NODE(DYCL_OP_max_pool2d_back, OPERANDS(res2, pooled), 3, 2, 2, 1, 1, 0, 1, 1, 0);
        out[n++] = NODE(DYCL_OP_avg_pool2d, OPERANDS(res2), 2, 2, 2, 2, 0, 0, pick(0, 1), pick(0, 1));
        /* a factor for each channel, from the planes' means; what follows reads channels last */
        uint32_t mean = NODE(DYCL_OP_adaptive_avg_pool2d, OPERANDS(res2), 1, 1);
        uint32_t w3 = add_feed(s, DYCL_F32, 4, (int64_t[]){oc, oc, 1, 1}, 0.3);
        uint32_t factor = NODE(DYCL_OP_conv2d, OPERANDS(mean, w3, b), 1, 1, 0, 0, 1, 1, 1);
        factor = node0(s, DYCL_EW_sigmoid, 1, &factor);
        uint32_t scaled = node0(s, DYCL_EW_mul, 2, OPERANDS(res2, factor));
        scaled = node0(s, DYCL_EW_add, 2, OPERANDS(scaled, add_feed(s, DYCL_F32, 3, (int64_t[]){oc, 1, 1}, 1)));
        if (pick(0, 1)) scaled = NODE(DYCL_OP_batch_norm, OPERANDS(scaled, m, var, b, m), dycl_f64_attr(1e-5));
        if (pick(0, 1)) out[n++] = scaled;
        out[n++] = NODE(DYCL_OP_conv2d, OPERANDS(scaled, w2, DYCL_NONE), 1, 1, 1, 1, 1, 1, 1);
        out[n++] = NODE(DYCL_OP_cat, OPERANDS(scaled, res2, y2), 1);
        int64_t stride = pick(1, 2), pad = pick(0, k - 1);
        uint32_t w4 = add_feed(s, DYCL_F32, 4, (int64_t[]){oc, oc / groups, k, k}, 0.3);
        uint32_t up = NODE(DYCL_OP_conv_transpose2d, OPERANDS(res2, w4, (pick(0, 1) ? b : DYCL_NONE)), stride, stride,
                           pad, pad, 1, 1, groups, (stride == 2 && pad), 0);
        if (up != DYCL_NONE) {
            up = NODE(DYCL_OP_batch_norm, OPERANDS(up, m, var, b, m), dycl_f64_attr(1e-5));
            out[n++] = node0(s, DYCL_EW_relu, 1, &up);
            out[n++] =
                NODE(DYCL_OP_conv_transpose2d, OPERANDS(out[n - 1], w4, DYCL_NONE), 1, 1, 0, 0, 1, 1, groups, 0, 0);
        }
        uint32_t gap = NODE(DYCL_OP_adaptive_avg_pool2d, OPERANDS(res2), 1, 1);
        out[n++] = gap;
        out[n++] = NODE(DYCL_OP_adaptive_avg_pool2d, OPERANDS(x), 3, 2);
        out[n++] = NODE(DYCL_OP_group_norm, OPERANDS(res2, b, DYCL_NONE), 2, dycl_f64_attr(1e-5));
        if (pick(0, 1)) out[n++] = y2;
        int kept = 0;
        for (int i = 0; i < n; i++)
            if (out[i] != DYCL_NONE) out[kept++] = out[i];
        check(s, out, kept, "convolutions");
        sample_free(s);
        if (failures > 10) return;
    }
    printf("convolutions, pooling, norms: %d checks\n", checks);
    for (int round = 0; round < 40; round++) {
        sample sample_here, *s = &sample_here;
        sample_init(s);
        int64_t heads = pick(1, 3) * 2, l = pick(1, 20), e = pick(1, 9), keys = pick(1, 20);
        uint32_t q = add_feed(s, DYCL_F32, 4, (int64_t[]){2, heads, l, e}, 1),
                 k = add_feed(s, DYCL_F32, 4, (int64_t[]){2, pick(0, 1) ? heads : 1, keys, e}, 1);
        const dycl_value kv = *value(s, k);
        uint32_t v = add_feed(s, DYCL_F32, 4, kv.sizes, 1), mask = DYCL_NONE;
        if (pick(0, 1))
            mask = add_feed(s, DYCL_F32, pick(0, 1) ? 2 : 4, (int64_t[]){pick(0, 1) ? l : 1, keys, 1, 1}, 1);
        if (mask != DYCL_NONE && value(s, mask)->rank == 4) mask = DYCL_NONE;
        uint32_t a = NODE(DYCL_OP_attention, OPERANDS(q, k, v, mask), mask == DYCL_NONE && pick(0, 1),
                          dycl_f64_attr(0.4), pick(3, 4));
        check(s, &a, 1, "attention");
        sample_free(s);
    }
    for (int round = 0; round < 96; round++) {
        sample sample_here, *s = &sample_here;
        sample_init(s);
        uint32_t out[16];
        int n = 0, bad = round % 8 == 7;
        int64_t rows = pick(3, 9), width = pick(1, 9);
        uint32_t table = add_feed(s, DYCL_F32, 2, (int64_t[]){rows, width}, 1);
        uint32_t index = add_feed(s, pick(0, 1) ? DYCL_I64 : DYCL_I32, 2, (int64_t[]){2, 5}, (double)(rows - 1));
        out[n++] = NODE(DYCL_OP_index_select,
                        OPERANDS(table, add_feed(s, DYCL_I64, 1, (int64_t[]){4}, (double)(width - 1))), 1);
        uint32_t t2 = node0(s, DYCL_EW_tanh, 1, &table);
        out[n++] = NODE(DYCL_OP_embedding, OPERANDS(t2, index), -1);
        out[n++] =
            NODE(DYCL_OP_gather,
                 OPERANDS(table, add_feed(s, DYCL_I64, 2, (int64_t[]){pick(1, rows), 3}, (double)(width - 1))), 1);
        out[n++] = NODE(DYCL_OP_pad, OPERANDS(table, add_scalar(s, DYCL_F32, 2.5)), 1, pick(-1, 2), 0, pick(0, 1));
        out[n++] = NODE(DYCL_OP_full, OPERANDS(add_scalar(s, DYCL_I32, 7)), 3, 2);
        out[n++] = NODE(DYCL_OP_iota, OPERANDS(add_scalar(s, DYCL_F32, -1), add_scalar(s, DYCL_F32, 0.25)), 17);
        out[n++] = NODE(DYCL_OP_argmax, OPERANDS(table), 2, 0);
        out[n++] = NODE(DYCL_OP_argmin, OPERANDS(table), 1, 1);
        uint32_t flag = node0(s, DYCL_EW_lt, 2, OPERANDS(table, add_scalar(s, DYCL_F32, 0.5)));
        out[n++] = NODE(DYCL_OP_any, OPERANDS(flag), 1, 0);
        out[n++] = NODE(DYCL_OP_all, OPERANDS(flag), 2, 0);
        out[n++] = NODE(DYCL_OP_cumsum, OPERANDS(table), pick(0, 1));
        if (bad) { /* one too far, at either end, for each of the three that read indices */
            int feed = 1 + round / 8 % 3;
            double limit = (double)(feed == 1 ? rows : width);
            ref_store(s->feed_data[feed], pick(0, 2), feed == 1 ? value(s, index)->dtype : DYCL_I64,
                      round / 24 % 2 ? limit : -1);
        }
        int kept = 0;
        for (int i = 0; i < n; i++)
            if (out[i] != DYCL_NONE) out[kept++] = out[i];
        check(s, out, kept, bad ? "gather with a bad index" : "gather, join, create");
        sample_free(s);
    }
    printf("attention, gather, join, create: %d checks\n", checks);
}

/* ---- Convolutions and what may be done on their way out; anything in between may be wanted, too */
static uint32_t behind(sample *s, uint32_t y, uint32_t x, const uint32_t *channels) {
    static const int activations[] = {DYCL_EW_relu, DYCL_EW_relu6, DYCL_EW_hardswish};
    const dycl_value like = *value(s, y);
    uint32_t other = x;
    int what = (int)pick(0, 5);
    if (what < 3) return node0(s, activations[what], 1, &y);
    if (what == 3)
        return NODE(DYCL_OP_batch_norm, OPERANDS(y, channels[0], channels[1], channels[0], channels[0]),
                    dycl_f64_attr(1e-2));
    if (what == 4) { /* of the same sizes, or broadcast */
        int64_t sizes[4] = {pick(0, 2) ? like.sizes[0] : 1, like.sizes[1], pick(0, 1) ? like.sizes[2] : 1,
                            like.sizes[3]};
        other = add_feed(s, DYCL_F32, 4, sizes, 1);
    }
    return pick(0, 1) ? node0(s, DYCL_EW_add, 2, OPERANDS(y, other)) : node0(s, DYCL_EW_add, 2, OPERANDS(other, y));
}

static void epilogues(void) {
    for (int round = 0; round < 120; round++) {
        sample sample_here, *s = &sample_here;
        sample_init(s);
        uint32_t out[8], channels[2];
        int n = 0;
        int64_t c = pick(1, 4) * 8, h = pick(3, 9), k = pick(0, 1) * 2 + 1;
        uint32_t x = add_feed(s, DYCL_F32, 4, (int64_t[]){pick(1, 3), c, h, h}, 1),
                 w = add_feed(s, DYCL_F32, 4, (int64_t[]){c, c, k, k}, 0.3);
        channels[0] = add_feed(s, DYCL_F32, 1, &c, 1);
        channels[1] = node0(s, DYCL_EW_square, 1, &channels[0]);
        uint32_t y =
            NODE(DYCL_OP_conv2d, OPERANDS(x, w, (pick(0, 1) ? channels[0] : DYCL_NONE)), 1, 1, k / 2, k / 2, 1, 1, 1);
        for (int64_t length = pick(1, 6); length > 0; length--) {
            if (pick(0, 5) == 0) out[n++] = y;
            y = behind(s, y, x, channels);
        }
        out[n++] = y;
        check(s, out, n, "behind a convolution");
        sample_free(s);
        if (failures > 10) return;
    }
    printf("behind convolutions: %d checks\n", checks);
}

/* ---- Channels last, with a number for each channel of each image: rows repeat, in tiles that end within an image */
static void repeated_rows(void) {
    for (int round = 0; round < 20; round++) {
        sample sample_here, *s = &sample_here;
        sample_init(s);
        int64_t n = pick(2, 5), h = pick(5, 17), c = pick(3, 70);
        uint32_t x = add_feed(s, DYCL_F32, 4, (int64_t[]){n, h, h + 1, c}, 1),
                 factor = add_feed(s, DYCL_F32, 4, (int64_t[]){n, 1, 1, c}, 1);
        uint32_t y = node0(s, DYCL_EW_mul, 2, OPERANDS(x, factor));
        y = node0(s, DYCL_EW_add, 2, OPERANDS(factor, y));
        check(s, &y, 1, "repeated rows");
        sample_free(s);
    }
    printf("repeated rows: %d checks\n", checks);
}

/* ---- Recurrent layers there and back: any of their results may be what is wanted */
static void recurrences(void) {
    for (int round = 0; round < 80; round++) {
        sample sample_here, *s = &sample_here;
        sample_init(s);
        int64_t kind = round % DYCL_RECURRENT_COUNT, reversed = pick(0, 1), steps = pick(1, 5), batch = pick(1, 6),
                width = pick(0, 3) ? pick(1, 40) : 96,
                gates = kind == DYCL_RECURRENT_LSTM  ? 4
                        : kind == DYCL_RECURRENT_GRU ? 3
                                                     : 1;
        int lstm = kind == DYCL_RECURRENT_LSTM, gru = kind == DYCL_RECURRENT_GRU, n = 0;
        int64_t x_sizes[3] = {steps, batch, gates * width}, w_sizes[2] = {gates * width, width},
                h_sizes[3] = {steps, batch, width}, flat = (steps + lstm) * batch * width;
        uint32_t x = add_feed(s, DYCL_F32, 3, x_sizes, 1), w = add_feed(s, DYCL_F32, 2, w_sizes, 0.2),
                 b = pick(0, 1) ? add_feed(s, DYCL_F32, 1, w_sizes, 1) : DYCL_NONE,
                 h = add_feed(s, DYCL_F32, 2, h_sizes + 1, 1),
                 c = lstm ? add_feed(s, DYCL_F32, 2, h_sizes + 1, 1) : DYCL_NONE, out[3];
        uint32_t states = NODE(DYCL_OP_recurrent, OPERANDS(x, w, b, h, c), kind, reversed, 0), kept = DYCL_NONE;
        if (lstm || gru) kept = NODE(DYCL_OP_recurrent, OPERANDS(x, w, b, h, c), kind, reversed, 1);
        uint32_t g = add_feed(s, DYCL_F32, 1, &flat, 1),
                 after = lstm ? DYCL_NONE : add_feed(s, DYCL_F32, 3, h_sizes, 1);
        uint32_t back = NODE(DYCL_OP_recurrent_back, OPERANDS(kept, w, after, c, g), kind, reversed);
        if (pick(0, 3)) out[n++] = states;
        if (pick(0, 1) && kept != DYCL_NONE) out[n++] = kept;
        out[n++] = back;
        if (back == DYCL_NONE)
            failures++, printf("recurrent_back was refused\n");
        else
            check(s, out, n, "recurrences");
        sample_free(s);
    }
    printf("recurrences: %d checks\n", checks);
}

/* ---- The memory planner */
static int overlaps(const dycl_slot *a, const dycl_slot *b) {
    return a->place + (int64_t)a->bytes > b->place && b->place + (int64_t)b->bytes > a->place;
}

static void memory_planner(void) {
    for (int round = 0; round < 200; round++) {
        dycl_slot slots[80];
        uint32_t count = (uint32_t)pick(1, 80), choice = 0, variant = 0;
        size_t zone = pick(0, 4) ? 0 : 128;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t first = (uint32_t)pick(0, 50);
            slots[i] = (dycl_slot){.bytes = (size_t)pick(0, 5000),
                                   .first = pick(0, 9) ? first : DYCL_NONE,
                                   .last = first + (uint32_t)pick(0, 12),
                                   .share = DYCL_NONE,
                                   .fixed = pick(0, 9) == 0};
            if (variant ? pick(0, 2) == 0 : pick(0, 4) == 0) variant++;
            if (variant == 1 && (!i || !slots[i - 1].variant)) choice++;
            if (variant > 3) variant = 0;
            slots[i].choice = variant ? choice : 0;
            slots[i].variant = variant;
        }
        size_t total = 0;
        checks++;
        if (dycl_memory_plan(slots, count, zone, &total) != DYCL_OK) failures++;
        for (uint32_t i = 0; i < count; i++)
            for (uint32_t j = 0; j < i; j++) {
                const dycl_slot *a = &slots[i], *b = &slots[j];
                if (a->fixed || b->fixed || a->first == DYCL_NONE || b->first == DYCL_NONE || !a->bytes || !b->bytes)
                    continue;
                if (a->last < b->first || b->last < a->first) continue;
                if (!zone && a->choice && a->choice == b->choice && a->variant != b->variant) continue;
                checks++;
                if (overlaps(a, b) && failures++ < 20) printf("FAILED: slots %u and %u overlap\n", i, j);
            }
    }
    printf("memory planner: %d checks\n", checks);
}

/* Only one of a choice's variants runs: 2 or 3 units beside the common one. */
static void memory_of_variants(void) {
    const size_t unit = 1 << 20;
    for (size_t zone = 0; zone < 128; zone += 64) {
        dycl_slot slots[4] = {{.bytes = unit, .choice = 0}, /* of both */
                              {.bytes = 2 * unit, .choice = 1, .variant = 1},
                              {.bytes = unit, .choice = 1, .variant = 2},
                              {.bytes = 2 * unit, .choice = 1, .variant = 2}};
        size_t total = 0, least = zone ? 6 * unit + 4 * zone : 4 * unit;
        for (int i = 0; i < 4; i++) slots[i].share = DYCL_NONE;
        checks++;
        if ((dycl_memory_plan(slots, 4, zone, &total) != DYCL_OK || total != least) && failures++ < 20)
            printf("FAILED: %zu bytes for variants that take %zu\n", total, least);
    }
}

static size_t aligned_bytes; /* alive */

static void *count_aligned(void *context, size_t size) {
    char *block = aligned_alloc(64, 64 + ((size + 63) & ~(size_t)63));
    (void)context;
    if (!block) return NULL;
    *(size_t *)block = size;
    aligned_bytes += size;
    return block + 64;
}

static void uncount_aligned(void *context, void *memory) {
    (void)context;
    if (!memory) return;
    char *block = (char *)memory - 64;
    aligned_bytes -= *(size_t *)block;
    free(block);
}

static void expect_kept(int right, const char *what) {
    checks++;
    if (!right && failures++ < 20) printf("FAILED: %zu bytes are kept %s\n", aligned_bytes, what);
}

static void workspace_shrinks(void) {
    const size_t much = (size_t)8 << 20;
    dycl_allocator counting = dycl_allocator_get();
    counting.aligned = count_aligned;
    counting.aligned_free = uncount_aligned;
    dycl_workspace_trim();
    dycl_allocator_set(&counting);
    dycl_workspace_give(dycl_workspace_take((size_t)64 << 20, 0));
    for (int i = 0; i < 1000; i++) dycl_workspace_give(dycl_workspace_take((size_t)1 << 20, 0));
    expect_kept(aligned_bytes <= (size_t)4 << 20, "for runs that take 1 MiB");
    dycl_workspace_trim();
    dycl_workspace_give(dycl_workspace_take(much, 1));
    expect_kept(aligned_bytes == 0, "behind a plan's first run");
    dycl_workspace_give(dycl_workspace_take(much, 0));
    dycl_workspace_give(dycl_workspace_take(much, 1));
    expect_kept(aligned_bytes >= much, "where plans that run again ask for as much");
    dycl_workspace_trim();
    expect_kept(aligned_bytes == 0, "behind a trim");
    dycl_allocator_set(NULL);
}

/* 7 units are alive at once; 11 are taken where the largest choose first. */
static void memory_without_gaps(void) {
    static const struct {
        uint32_t units, first, last;
    } some[] = {{3, 2, 4}, {2, 3, 5}, {3, 5, 8}, {2, 3, 5}, {1, 0, 2}, {4, 6, 8}};
    enum { COUNT = sizeof some / sizeof *some };
    dycl_slot slots[COUNT];
    size_t total = 0, unit = 1 << 20;
    for (int i = 0; i < COUNT; i++)
        slots[i] = (dycl_slot){
            .bytes = some[i].units * unit, .first = some[i].first, .last = some[i].last, .share = DYCL_NONE};
    checks++;
    if ((dycl_memory_plan(slots, COUNT, 0, &total) != DYCL_OK || total != 7 * unit) && failures++ < 20)
        printf("FAILED: %zu bytes for what takes %zu\n", total, 7 * unit);
}

/* ---- Packed constants */
static void packing(void) {
    sample sample_here, *s = &sample_here;
    sample_init(s);
    uint32_t x = add_feed(s, DYCL_F32, 4, (int64_t[]){1, 16, 9, 9}, 1),
             w = add_feed(s, DYCL_F32, 4, (int64_t[]){16, 16, 3, 3}, 1);
    uint32_t y = NODE(DYCL_OP_conv2d, OPERANDS(x, w, DYCL_NONE), 1, 1, 1, 1, 1, 1, 1);
    uint32_t flat = NODE(DYCL_OP_view, OPERANDS(y), 0, 16, 81, 81, 1);
    uint32_t l = add_feed(s, DYCL_F32, 2, (int64_t[]){64, 81}, 1);
    uint32_t z = node0(s, DYCL_OP_linear, 3, OPERANDS(flat, l, DYCL_NONE));
    dycl_plan *plan = NULL;
    size_t before = dycl_pack_bytes();
    if (dycl_plan_create(&s->graph, &z, 1, DYCL_PLAN_TUNED, &plan) != DYCL_OK) abort();
    void *out = malloc(16 * 64 * 8);
    for (int round = 0; round < 8; round++) {
        reference r;
        uint64_t token = round < 5 ? 11 : 0;
        s->feeds[1] = (dycl_feed){s->feed_data[1], token, (uint64_t)(round / 2)};
        s->feeds[2] = (dycl_feed){s->feed_data[2], token ? 12 : 0, (uint64_t)(round / 2)};
        if (round % 2 == 0 || round >= 5) ((float *)s->feed_data[1])[5] += 3, ((float *)s->feed_data[2])[7] -= 2;
        if (round == 4) {
            dycl_pack_forget(11);
            dycl_pack_forget(12);
        }
        ref_run(&r, &s->graph, s->feed_data, s->scalars);
        checks++;
        if (dycl_plan_run(plan, s->feeds, s->scalars, &out) != DYCL_OK) failures++;
        for (int i = 0; i < 16 * 64; i++) {
            checks++;
            if (!close_enough(((float *)out)[i], ((float *)r.data[z])[i], 1e-3) && failures++ < 20)
                printf("FAILED: packed weights, round %d, element %d\n", round, i);
        }
        ref_free(&r);
    }
    free(out);
    dycl_plan_release(plan);
    checks++;
    if (dycl_pack_bytes() != before && failures++ < 20)
        printf("FAILED: %zu bytes of packed weights are left\n", dycl_pack_bytes() - before);
    sample_free(s);
    printf("packed constants: %d checks\n", checks);
}

int main(int argc, char **argv) {
    if (argc > 2) {
        random_state = strtoull(argv[2], NULL, 16);
        random_graphs(1);
    } else {
        memory_planner();
        memory_without_gaps();
        memory_of_variants();
        workspace_shrinks();
        random_graphs(argc > 1 ? atoi(argv[1]) : 1000);
        printf("random graphs: %d checks\n", checks);
        families();
        epilogues();
        repeated_rows();
        recurrences();
        packing();
    }
    dycl_workspace_trim();
    checks++;
    if (dycl_pack_bytes() && failures++ < 20)
        printf("FAILED: %zu bytes of packed weights are left at the end\n", dycl_pack_bytes());
    printf("%s: %d checks, %d failures\n", failures ? "FAILED" : "ok", checks, failures);
    return failures != 0;
}
