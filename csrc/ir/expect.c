#include "ir/expect.h"

#include "base/alloc.h"

/* The arrays and rooms of one graph to another; not the counts. */
static void take_arrays(dycl_graph *to, const dycl_graph *from) {
    to->nodes = from->nodes;
    to->values = from->values;
    to->operands = from->operands;
    to->attrs = from->attrs;
    to->feeds = from->feeds;
    to->scalars = from->scalars;
    to->node_room = from->node_room;
    to->value_room = from->value_room;
    to->operand_room = from->operand_room;
    to->attr_room = from->attr_room;
    to->feed_room = from->feed_room;
    to->scalar_room = from->scalar_room;
}

/* Rooms are what the expected graph holds: at its end nothing more is expected. */
static void follow(dycl_graph *graph, const dycl_graph *expected) {
    take_arrays(graph, expected);
    graph->node_room = expected->node_count;
    graph->value_room = expected->value_count;
    graph->operand_room = expected->operand_count;
    graph->attr_room = expected->attr_count;
    graph->feed_room = expected->feed_count;
    graph->scalar_room = expected->scalar_count;
}

dycl_status dycl_graph_expect(dycl_graph *graph, int count, const dycl_graph *const *expected) {
    if (graph->expecting) dycl_expect_end(graph);
    if (count == 0) return DYCL_OK;
    if (!graph->expectation && !(graph->expectation = dycl_alloc_zero(sizeof *graph->expectation)))
        return dycl_error_set("out of memory for an expectation");
    dycl_expectation *e = graph->expectation;
    take_arrays(&e->own, graph);
    memcpy(e->expected, expected, (size_t)count * sizeof *expected);
    e->count = count;
    e->current = 0;
    graph->expecting = 1;
    follow(graph, expected[0]);
    return DYCL_OK;
}

const dycl_graph *dycl_graph_expected(const dycl_graph *graph) {
    return graph->expecting ? graph->expectation->expected[graph->expectation->current] : NULL;
}

void dycl_expect_end(dycl_graph *graph) {
    take_arrays(graph, &graph->expectation->own);
    graph->expecting = 0;
}

int dycl_expect_switch(dycl_graph *graph) {
    dycl_expectation *e = graph->expectation;
    while (++e->current < e->count) {
        if (!dycl_graph_begins(e->expected[e->current], graph)) continue;
        follow(graph, e->expected[e->current]);
        return 1;
    }
    e->current = e->count - 1; /* what was followed so far stands in any of them */
    return 0;
}

dycl_status dycl_expect_diverge(dycl_graph *graph) {
    dycl_status status = dycl_graph_copy_arrays(&graph->expectation->own, graph);
    if (status == DYCL_OK) dycl_expect_end(graph);
    return status;
}

static int is_feed(const dycl_graph *graph, dycl_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides) {
    if (graph->value_count == graph->value_room) return 0;
    const dycl_value *value = &graph->values[graph->value_count];
    if (value->kind != DYCL_VALUE_FEED || value->dtype != (uint8_t)dtype || value->rank != rank) return 0;
    for (int i = 0; i < rank; i++)
        if (value->sizes[i] != sizes[i] || value->strides[i] != strides[i]) return 0;
    return 1;
}

int dycl_expect_feed(dycl_graph *graph, dycl_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides,
                     uint32_t *out_value) {
    while (!is_feed(graph, dtype, rank, sizes, strides))
        if (!dycl_expect_switch(graph)) return 0;
    graph->feed_count++;
    *out_value = graph->value_count++;
    return 1;
}

static int is_scalar(const dycl_graph *graph, dycl_dtype dtype) {
    if (graph->value_count == graph->value_room) return 0;
    const dycl_value *value = &graph->values[graph->value_count];
    return value->kind == DYCL_VALUE_SCALAR && value->dtype == (uint8_t)dtype;
}

int dycl_expect_scalar(dycl_graph *graph, dycl_dtype dtype, uint32_t *out_value) {
    while (!is_scalar(graph, dtype))
        if (!dycl_expect_switch(graph)) return 0;
    graph->scalar_count++;
    *out_value = graph->value_count++;
    return 1;
}
