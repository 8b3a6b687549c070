/* Graphs: random ones print and parse back to the same bytes, the verifier rejects every kind of corruption, the parser
 * survives garbage. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "hosted_random.h"
#include "ir/graph.h"
#include "random.h"

static int failures;

static void check(int ok, const char *what) {
    if (!ok && failures++ < 20) printf("FAIL %s: %s\n", what, dycl_error_message());
}

/* ---- Random graphs */

static void random_feed(dycl_graph *g) {
    int64_t sizes[DYCL_MAX_RANK] = {0}, strides[DYCL_MAX_RANK];
    int rank = (int)below(5);
    uint32_t value;
    for (int i = 0; i < rank; i++) sizes[i] = below(8) ? 1 + below(6) : below(2);
    dycl_strides_contiguous(rank, sizes, strides);
    for (int i = 0; i < rank; i++) {
        if (below(6) == 0) strides[i] = 0;
        if (below(6) == 0) strides[i] *= 2;
    }
    dycl_graph_feed(g, (dycl_dtype)(below(3) ? DYCL_F32 : below(DYCL_DTYPE_COUNT)), rank, sizes, strides, &value);
}

static uint32_t random_value(const dycl_graph *g) {
    return below(3) ? g->value_count - 1 - (uint32_t)below(g->value_count < 6 ? g->value_count : 6)
                    : (uint32_t)below(g->value_count);
}

/* Two operands of one dtype, now and then of two. */
static uint32_t like(const dycl_graph *g, uint32_t first) {
    for (int i = 0; i < 8; i++) {
        uint32_t value = random_value(g);
        if (g->values[value].dtype == g->values[first].dtype) return value;
    }
    return first;
}

static int is_number_of_16_bits(const dycl_value *v) {
    return v->kind == DYCL_VALUE_SCALAR && dycl_dtype_is_half((dycl_dtype)v->dtype);
}

/* A value that lies in memory as its dtype says. */
static uint32_t random_memory(const dycl_graph *g) {
    uint32_t value = random_value(g);
    return is_number_of_16_bits(&g->values[value]) ? 0 : value;
}

static const double doubles[] = {1e-5, 0.1, 1.0 / 3, 0, -0.0, 1e300, 5e-324, 12345.678901234567, INFINITY, -INFINITY};

static void random_node(dycl_graph *g) {
    uint32_t a = random_value(g), operands[4], out;
    const dycl_value *value = &g->values[a];
    int rank = value->rank;
    int64_t attrs[1 + 2 * DYCL_MAX_RANK],
        eps = dycl_f64_attr(doubles[below((int64_t)(sizeof doubles / sizeof *doubles))]);
    memset(operands, 0xff, sizeof operands);
    operands[0] = a;
    switch (is_number_of_16_bits(value) ? 3 : below(10)) {
    case 9: { /* an operator of the host's, whose attributes say how its result looks */
        uint32_t tensors[DYCL_HOSTED_PARAMETERS + 3];
        int64_t words[DYCL_MAX_ATTRS];
        int count, length;
        dycl_op op = random_hosted(random_memory, g, tensors, &count, words, &length);
        dycl_graph_node(g, op, count, tensors, length, words, &out);
        return;
    }
    case 0: /* a transposed, shifted or narrowed view */
        if (value->kind == DYCL_VALUE_SCALAR || dycl_value_numel(value) == 0) return;
        attrs[0] = 0;
        for (int i = 0; i < rank; i++) {
            int from = rank - 1 - i, cut = value->sizes[from] > 1 && below(3) == 0;
            attrs[0] += cut ? value->strides[from] : 0;
            attrs[1 + i] = value->sizes[from] - cut;
            attrs[1 + rank + i] = value->strides[from];
        }
        dycl_graph_node(g, DYCL_OP_view, 1, operands, 1 + 2 * rank, attrs, &out);
        return;
    case 1: {
        dycl_op op = (dycl_op)(DYCL_OP_sum + below(DYCL_OP_sumabs - DYCL_OP_sum + 1));
        attrs[0] = below(INT64_C(1) << rank);
        attrs[1] = below(2);
        dycl_graph_node(g, op, 1, operands, 2, attrs, &out);
        return;
    }
    case 2:
        attrs[0] = below(INT64_C(1) << rank);
        attrs[1] = below(2);
        attrs[2] = eps;
        dycl_graph_node(g, DYCL_OP_var, 1, operands, 3, attrs, &out);
        return;
    case 3:
        attrs[0] = below(DYCL_DTYPE_COUNT);
        dycl_graph_node(g, DYCL_OP_cast, 1, operands, 1, attrs, &out);
        return;
    case 4:
        attrs[0] = below(2);
        dycl_graph_node(g, DYCL_OP_contiguous, 1, operands, 1, attrs, &out);
        return;
    case 5:
        attrs[0] = 1;
        attrs[1] = eps;
        dycl_graph_node(g, DYCL_OP_layer_norm, 3, operands, 2, attrs, &out);
        return;
    case 6: dycl_graph_scalar(g, (dycl_dtype)value->dtype, &operands[1]); break;
    case 7:
        attrs[0] = rank ? below(rank) : 0;
        dycl_graph_node(g, DYCL_OP_softmax, 1, operands, 1, attrs, &out);
        return;
    default: operands[1] = like(g, a);
    }
    dycl_op op = (dycl_op)(DYCL_OP_add + below(DYCL_OP_logical_xor - DYCL_OP_add + 1));
    if (dycl_kern_ew(DYCL_ISA_SCALAR, (dycl_ew)op, (dycl_dtype)g->values[operands[1]].dtype, 0) &&
        g->values[operands[0]].dtype == g->values[operands[1]].dtype)
        dycl_graph_node(g, op, 2, operands, 0, NULL, &out);
}

static void random_graph(dycl_graph *g) {
    dycl_graph_reset(g);
    random_feed(g);
    for (int64_t i = below(60); i >= 0; i--) {
        if (below(6) == 0)
            random_feed(g);
        else
            random_node(g);
    }
}

static int same_values(const dycl_graph *g, const dycl_graph *h) {
    int same = g->value_count == h->value_count;
    for (uint32_t v = 0; same && v < g->value_count; v++) {
        const dycl_value *x = &g->values[v], *y = &h->values[v];
        same = x->kind == y->kind && x->dtype == y->dtype && x->rank == y->rank && x->source == y->source &&
               x->root == y->root && x->offset == y->offset && memcmp(x->sizes, y->sizes, sizeof x->sizes) == 0 &&
               memcmp(x->strides, y->strides, sizeof x->strides) == 0;
    }
    return same;
}

static void test_round_trip(void) {
    dycl_graph g, back, copy;
    dycl_graph_init(&g);
    dycl_graph_init(&back);
    int64_t nodes = 0;
    for (int i = 0; i < 3000; i++) {
        char *text;
        random_graph(&g);
        nodes += g.node_count;
        check(dycl_graph_verify(&g) == DYCL_OK, "a graph that was built is right");
        if (dycl_graph_print(&g, &text) != DYCL_OK) {
            check(0, "print");
            continue;
        }
        check(dycl_graph_parse(text, &back) == DYCL_OK, "parse what was printed");
        check(dycl_graph_equal(&g, &back) && dycl_graph_hash(&g) == dycl_graph_hash(&back),
              "the same graph comes back");
        check(same_values(&g, &back), "the same values come back");
        dycl_graph_init(&copy);
        check(dycl_graph_copy(&copy, &g) == DYCL_OK && dycl_graph_equal(&copy, &g), "copy");
        dycl_graph_free(&copy);
        dycl_free(text);
    }
    dycl_graph_free(&g);
    dycl_graph_free(&back);
    printf("round trip: 3000 graphs, %lld nodes\n", (long long)nodes);
}

/* ---- Expectation */

/* Appends to `to` what `from` holds from value `first` to before value `last`, in the order in which it was recorded.
 */
static void replay(dycl_graph *to, const dycl_graph *from, uint32_t first, uint32_t last) {
    uint32_t out;
    for (uint32_t v = first; v < last; v++) {
        const dycl_value *value = &from->values[v];
        const dycl_node *node = &from->nodes[value->source];
        out = DYCL_NONE;
        if (value->kind == DYCL_VALUE_FEED)
            dycl_graph_feed(to, (dycl_dtype)value->dtype, value->rank, value->sizes, value->strides, &out);
        else if (value->kind == DYCL_VALUE_SCALAR)
            dycl_graph_scalar(to, (dycl_dtype)value->dtype, &out);
        else
            dycl_graph_node(to, (dycl_op)node->op, node->operand_count, dycl_node_operands(from, node),
                            node->attr_count, dycl_node_attrs(from, node), &out);
        check(out == v, "replaying gives the same values");
    }
}

/* Two graphs that share a random beginning are expected; what is recorded follows one of them to a random point and
 * then something else. The same is recorded without expectation: both must be equal. */
static void test_expectation(void) {
    dycl_graph a, b, plain, expecting;
    int followed = 0, switched = 0, diverged = 0;
    dycl_graph_init(&a);
    dycl_graph_init(&b);
    dycl_graph_init(&plain);
    dycl_graph_init(&expecting);
    for (int i = 0; i < 3000; i++) {
        random_graph(&a);
        dycl_graph_reset(&b);
        replay(&b, &a, 0, (uint32_t)below(a.value_count + 1));
        if (b.value_count == 0) random_feed(&b);
        for (int64_t more = below(20); more > 0; more--) random_node(&b);
        const dycl_graph *both[2] = {&a, &b}, *source = below(2) ? &a : &b;
        check(dycl_graph_expect(&expecting, 2, both) == DYCL_OK, "expect");
        uint32_t point = below(3) ? source->value_count : (uint32_t)below(source->value_count + 1);
        dycl_graph_reset(&plain);
        replay(&plain, source, 0, point);
        replay(&expecting, source, 0, point);
        check(dycl_graph_expected(&expecting) != NULL && dycl_graph_begins(source, &expecting),
              "the expected way is followed");
        if (point && below(2)) { /* something of its own */
            uint64_t seed = random_state;
            int64_t more = 1 + below(5);
            random_feed(&plain);
            for (int64_t k = 0; k < more; k++) random_node(&plain);
            random_state = seed;
            check(1 + below(5) == more, "the same random numbers");
            random_feed(&expecting);
            for (int64_t k = 0; k < more; k++) random_node(&expecting);
        }
        check(dycl_graph_equal(&plain, &expecting) && dycl_graph_hash(&plain) == dycl_graph_hash(&expecting),
              "the same graph with and without expectation");
        check(dycl_graph_verify(&expecting) == DYCL_OK, "a graph that was expected is right");
        const dycl_graph *at_end = dycl_graph_expected(&expecting);
        followed += at_end == &a;
        switched += at_end == &b;
        diverged += at_end == NULL;
        dycl_graph_reset(&expecting);
        check(!dycl_graph_expected(&expecting), "a reset ends it");
    }
    check(followed > 300 && switched > 300 && diverged > 300, "all three ways were taken");
    dycl_graph_expect(&expecting, 1, (const dycl_graph *const[]){&a});
    dycl_graph_free(&expecting); /* while it expects */
    dycl_graph_free(&a);
    dycl_graph_free(&b);
    dycl_graph_free(&plain);
    printf("expectation: %d followed, %d switched, %d diverged\n", followed, switched, diverged);
}

/* ---- Corruption */

static const char sample[] = "%0 = feed f32[2,3]{3,1}\n"
                             "%1 = scalar f32\n"
                             "%2 = add %0 %1 : f32[2,3]{3,1}\n"
                             "# a view of a result\n"
                             "%3 = view %2 (1, 3, 1, 1, 3) : f32[3,1]{1,3} of %2 + 1\n"
                             "%4 = layer_norm %2 _ _ (1, f1e-05) : f32[2,3]{3,1}\n"
                             "%5 = sum %4 (3, 0)\n"
                             "\n"
                             "%6 = cast %3 (1) : f64[3,1]{1,3}\n";

typedef void (*corruption)(dycl_graph *g);

static void bad_kind(dycl_graph *g) { g->values[2].kind = 7; }
static void bad_dtype(dycl_graph *g) { g->values[0].dtype = DYCL_DTYPE_COUNT; }
static void bad_rank(dycl_graph *g) { g->values[0].rank = 9; }
static void negative_size(dycl_graph *g) { g->values[0].sizes[0] = -1; }
static void huge_size(dycl_graph *g) { g->values[0].sizes[0] = g->values[0].sizes[1] = INT64_C(1) << 47; }
static void negative_stride(dycl_graph *g) { g->values[0].strides[1] = -1; }
static void past_rank(dycl_graph *g) { g->values[0].sizes[5] = 1; }
static void feed_elsewhere(dycl_graph *g) { g->feeds[0] = 2; }
static void feed_source(dycl_graph *g) { g->values[0].source = 5; }
static void feed_root(dycl_graph *g) { g->values[0].root = 1; }
static void feed_offset(dycl_graph *g) { g->values[0].offset = 4; }
static void scalar_rank(dycl_graph *g) { g->values[1].rank = 1, g->values[1].sizes[0] = g->values[1].strides[0] = 1; }
static void scalar_source(dycl_graph *g) { g->values[1].source = 1; }
static void node_source(dycl_graph *g) { g->values[2].source = 3; }
static void node_out(dycl_graph *g) { g->nodes[0].out = 3; }
static void node_out_far(dycl_graph *g) { g->nodes[0].out = 1000; }
static void operator_unknown(dycl_graph *g) { g->nodes[0].op = DYCL_OP_COUNT; }
static void operator_other(dycl_graph *g) { g->nodes[0].op = DYCL_OP_matmul; }
static void operand_count(dycl_graph *g) { g->nodes[0].operand_count = 1; }
static void operands_far(dycl_graph *g) { g->nodes[0].operands = 1000; }
static void operand_unknown(dycl_graph *g) { g->operands[0] = 1000; }
static void operand_later(dycl_graph *g) { g->operands[0] = 4; }
static void operand_itself(dycl_graph *g) { g->operands[0] = 2; }
static void operand_absent(dycl_graph *g) { g->operands[0] = DYCL_NONE; }
static void operand_dtype(dycl_graph *g) { g->values[1].dtype = DYCL_I64; }
static void attrs_far(dycl_graph *g) { g->nodes[1].attrs = 1000; }
static void attr_count(dycl_graph *g) { g->nodes[2].attr_count = 1; }
static void view_outside(dycl_graph *g) { g->attrs[0] = 4, g->values[3].offset = 4; }
static void view_negative(dycl_graph *g) { g->attrs[0] = -1, g->values[3].offset = -1; }
static void view_size(dycl_graph *g) { g->attrs[1] = -3; }
static void view_root(dycl_graph *g) { g->values[3].root = 0; }
static void view_offset(dycl_graph *g) { g->values[3].offset = 0; }
static void norm_dims(dycl_graph *g) { g->attrs[5] = 3; }
static void reduce_mask(dycl_graph *g) { g->attrs[7] = 4; }
static void reduce_mask_negative(dycl_graph *g) { g->attrs[7] = -1; }
static void reduce_keep(dycl_graph *g) { g->attrs[8] = 2; }
static void cast_dtype(dycl_graph *g) { g->attrs[9] = DYCL_DTYPE_COUNT; }
static void result_strides(dycl_graph *g) { g->values[2].strides[0] = 1; }
static void result_dtype(dycl_graph *g) { g->values[6].dtype = DYCL_F32; }
static void value_missing(dycl_graph *g) { g->value_count--; }
static void node_missing(dycl_graph *g) { g->node_count--; }

static void test_corruption(void) {
    static const corruption all[] = {
        bad_kind,        bad_dtype,        bad_rank,       negative_size,  huge_size,
        negative_stride, past_rank,        feed_elsewhere, feed_source,    feed_root,
        feed_offset,     scalar_rank,      scalar_source,  node_source,    node_out,
        node_out_far,    operator_unknown, operator_other, operand_count,  operands_far,
        operand_unknown, operand_later,    operand_itself, operand_absent, operand_dtype,
        attrs_far,       attr_count,       view_outside,   view_negative,  view_size,
        view_root,       view_offset,      norm_dims,      reduce_mask,    reduce_mask_negative,
        reduce_keep,     cast_dtype,       result_strides, result_dtype,   value_missing,
        node_missing};
    int count = (int)(sizeof all / sizeof *all);
    dycl_graph g;
    dycl_graph_init(&g);
    for (int i = 0; i < count; i++) {
        char what[64], *text = NULL;
        snprintf(what, sizeof what, "corruption %d is seen", i);
        check(dycl_graph_parse(sample, &g) == DYCL_OK, "the sample parses");
        all[i](&g);
        check(dycl_graph_verify(&g) == DYCL_ERROR && dycl_error_message()[0], what);
        check(dycl_graph_print(&g, &text) == DYCL_ERROR && !text, "a broken graph is not printed");
    }
    dycl_graph_free(&g);
    printf("verifier: %d corruptions\n", count);
}

/* Any word of a graph's arrays overwritten: the verifier answers, whatever it answers. */
static void test_random_corruption(void) {
    dycl_graph g;
    int seen = 0, total = 20000;
    dycl_graph_init(&g);
    for (int i = 0; i < total; i++) {
        random_graph(&g);
        void *arrays[] = {g.nodes, g.values, g.operands, g.attrs, g.feeds, g.scalars};
        size_t bytes[] = {g.node_count * sizeof *g.nodes,       g.value_count * sizeof *g.values,
                          g.operand_count * sizeof *g.operands, g.attr_count * sizeof *g.attrs,
                          g.feed_count * sizeof *g.feeds,       g.scalar_count * sizeof *g.scalars};
        int which = (int)below(6);
        if (!bytes[which]) continue;
        unsigned char *at = (unsigned char *)arrays[which] + below((int64_t)bytes[which]);
        *at = (unsigned char)(below(2) ? rnd() : 0xff);
        seen += dycl_graph_verify(&g) != DYCL_OK;
    }
    dycl_graph_free(&g);
    printf("verifier: %d of %d random bytes were seen\n", seen, total);
}

/* ---- Garbage */

static void test_parser(void) {
    static const char *const wrong[] = {
        "%1 = feed f32[2]{1}",
        "%0 = feed f33[2]{1}",
        "%0 = feed f32[2]{1,1}",
        "%0 = feed f32[2",
        "%0 = feed f32[-2]{1}",
        "%0 = feed f32[2]{-1}",
        "%0 = ",
        "0 = feed f32[]{}",
        "%0 feed f32[]{}",
        "%0 = feed f32[]{} x",
        "%0 = neg %0",
        "%0 = feed f32[]{}\n%1 = neg %1",
        "%0 = feed f32[]{}\n%1 = what %0",
        "%0 = feed f32[]{}\n%1 = neg _",
        "%0 = feed f32[]{}\n%1 = neg %0 : f32[1]{1}",
        "%0 = feed f32[]{}\n%1 = neg %0 : f64[]{}",
        "%0 = feed bool[]{}\n%1 = neg %0",
        "%0 = feed f32[2]{1}\n%1 = sum %0",
        "%0 = feed f32[2]{1}\n%1 = sum %0 (1",
        "%0 = feed f32[2]{1}\n%1 = sum %0 (1,)",
        "%0 = feed f32[2]{1}\n%1 = sum %0 (f)",
        "%0 = feed f32[2]{1}\n%1 = sum %0 (99999999999999999999, 0)",
        "%0 = feed f32[2]{1}\n%1 = sum %0 (2, 0)",
        "%0 = feed f32[9,9,9,9,9,9,9,9,9]{1}",
        "%0 = feed f32[2]{1}\n%1 = neg %0\n%2 = view %1 (0, 3, 1)",
        "%0 = feed f32[2]{1}\n%1 = add %0",
        "%0 = feed f32[999999999999,999999999999]{1,1}",
        "%0 = feed f32[2]{1}\n%1 = neg %0 %0",
        "%99999999999999999999 = feed f32[]{}",
        "%0 = feed f32[2]{1}\n%1 = cast %0 (99)",
        "%0 = scalar",
        "%0 = feed f32[2]{1}\n%1 = full %0 (3)",
        "%0 = scalar bf16\n%1 = amax %0 (0, 1)",
        "%0 = scalar f16\n%1 = contiguous %0 (1)",
        "%0 = scalar f16\n%1 = pad %0 %0",
        "%0 = feed f32[2]{1}\n%1 = add %0 %0 : f32[2]{1} of %0 + 1",
        "garbage",
    };
    int count = (int)(sizeof wrong / sizeof *wrong);
    dycl_graph g;
    dycl_graph_init(&g);
    for (int i = 0; i < count; i++) {
        check(dycl_graph_parse(wrong[i], &g) == DYCL_ERROR, wrong[i]);
        check(g.value_count == 0 && g.node_count == 0, "nothing is left of a text that does not parse");
    }
    check(dycl_graph_parse("", &g) == DYCL_OK && g.value_count == 0, "an empty text is an empty graph");
    check(dycl_graph_parse("  # nothing\n\n\r\n", &g) == DYCL_OK, "comments and empty lines");
    int parsed = 0, total = 20000;
    for (int i = 0; i < total; i++) { /* mutations of a good text */
        char text[sizeof sample];
        memcpy(text, sample, sizeof sample);
        for (int64_t n = 1 + below(3); n > 0; n--) {
            static const char letters[] = "%=:,()[]{}_0123456789-+fabdeinosuvwx #\n\t\x7f\xff";
            int64_t at = below((int64_t)sizeof sample - 1);
            if (below(4) == 0)
                text[at] = 0;
            else
                text[at] = letters[below((int64_t)sizeof letters - 1)];
        }
        if (dycl_graph_parse(text, &g) == DYCL_OK) {
            parsed++;
            check(dycl_graph_verify(&g) == DYCL_OK, "what parses is right");
        }
    }
    dycl_graph_free(&g);
    printf("parser: %d wrong texts, %d mutations of which %d parse\n", count, total, parsed);
}

/* ---- Graphs whose values lie where passes laid them */

static int is_viewed(const dycl_graph *g, uint32_t v) {
    for (uint32_t u = 0; u < g->value_count; u++)
        if (u != v && g->values[u].root == v) return 1;
    return 0;
}

/* Some values get other strides, some a place in a later value. How many. */
static int lay(dycl_graph *g) {
    int laid = 0;
    for (uint32_t v = 0; v + 1 < g->value_count; v++) {
        dycl_value *value = &g->values[v];
        if (value->kind != DYCL_VALUE_NODE || value->root != v || is_viewed(g, v) || below(3)) continue;
        for (int i = 0; i < value->rank; i++) value->strides[i] += 1 + below(5);
        value->canonical = (uint8_t)dycl_strides_canonical(value);
        uint32_t root = v + 1 + (uint32_t)below(g->value_count - v - 1);
        if (below(2) && g->values[root].root == root) {
            value->root = root;
            value->offset = below(100);
        }
        laid++;
    }
    return laid;
}

static void test_laid(void) {
    dycl_graph g, back;
    dycl_graph_init(&g);
    dycl_graph_init(&back);
    int laid = 0;
    for (int i = 0; i < 2000; i++) {
        char *text = NULL, *again = NULL;
        random_graph(&g);
        laid += lay(&g);
        int ok = dycl_graph_print_laid(&g, &text) == DYCL_OK && dycl_graph_parse_laid(text, &back) == DYCL_OK &&
                 dycl_graph_print_laid(&back, &again) == DYCL_OK;
        check(ok && !strcmp(text, again), ok ? text : dycl_error_message());
        check(same_values(&g, &back), "every value lies where it lay");
        check(!strstr(text, ":=") || dycl_graph_parse(text, &back) == DYCL_ERROR, "only who asks gets such a graph");
        dycl_free(text);
        dycl_free(again);
    }
    static const char *const wrong[] = {
        "%3 = feed f32[2]{1}\n%3 = neg %3",
        "%3 = feed f32[2]{1}\n%2 = neg %3",
        "%3 = feed f32[2]{1}\n%4 = neg %2",
        "%3 = feed f32[2]{1}\n%4 = neg %3 := f32[2]{1} of %9 + 0",
        "%3 = feed f32[2]{1}\n%4 = neg %3 := f32[2]{1} of 3 + 0",
        "%3 = feed f32[2]{1}\n%4 = neg %3 : f32[2]{3}",
        "%4294967295 = feed f32[2]{1}",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        check(dycl_graph_parse_laid(wrong[i], &g) == DYCL_ERROR, wrong[i]);
        check(g.value_count == 0 && g.node_count == 0, "nothing is left of a text that does not parse");
    }
    check(dycl_graph_parse_laid("%3 = feed f32[2]{1}\n%7 = neg %3 := f32[2]{5} of %9 + 4\n%9 = neg %7", &g) ==
                  DYCL_OK &&
              g.value_count == 3 && g.values[1].root == 2 && g.values[1].offset == 4 && g.values[1].strides[0] == 5,
          "gaps, and a root that comes later");
    dycl_graph_free(&g);
    dycl_graph_free(&back);
    printf("laid: %d values\n", laid);
}

/* ---- Memory runs out */

static int64_t allocations_left;

static void *failing_resize(void *context, void *block, size_t size) {
    (void)context;
    if (size == 0) {
        free(block);
        return NULL;
    }
    return allocations_left-- > 0 ? realloc(block, size) : NULL;
}

static void *no_aligned(void *context, size_t size) {
    (void)context, (void)size;
    return NULL;
}

static void free_aligned(void *context, void *block) {
    (void)context;
    free(block);
}

static void test_out_of_memory(void) {
    const dycl_allocator failing = {failing_resize, no_aligned, free_aligned, NULL};
    int errors = 0, done = 0;
    dycl_allocator_set(&failing);
    for (int64_t limit = 0; !done && limit < 100; limit++) {
        dycl_graph g, copy;
        char *text = NULL;
        allocations_left = limit;
        dycl_graph_init(&g);
        dycl_graph_init(&copy);
        dycl_status status = dycl_graph_parse(sample, &g);
        if (status == DYCL_OK) status = dycl_graph_print(&g, &text);
        if (status == DYCL_OK) status = dycl_graph_copy(&copy, &g);
        done = status == DYCL_OK;
        errors += status == DYCL_ERROR;
        dycl_free(text);
        dycl_graph_free(&g);
        dycl_graph_free(&copy);
    }
    dycl_allocator_set(NULL);
    check(done && errors > 0, "every failing allocation is an error");
    printf("memory: %d failing allocations\n", errors);
}

int main(void) {
    test_round_trip();
    test_expectation();
    test_corruption();
    test_random_corruption();
    test_parser();
    test_laid();
    test_out_of_memory();
    printf(failures ? "%d failures\n" : "ok\n", failures);
    return failures != 0;
}
