/* Recording against an expected graph (internal to ir/): a trace that goes the way it went before is compared, not
 * written.
 *
 * While graph->expecting, the graph's arrays are those of the expected graph and its counts say how far it was
 * followed; its own arrays are parked in the expectation. Appending something else *diverges*: another expected graph
 * with the same beginning takes over, or what was followed so far is copied into the graph's own arrays, and it is
 * written from there on. */
#ifndef DYCL_IR_EXPECT_H
#define DYCL_IR_EXPECT_H

#include <string.h>

#include "ir/graph.h"

typedef struct dycl_expectation {
    dycl_graph own;                                  /* the arrays and rooms that the graph had */
    const dycl_graph *expected[DYCL_GRAPH_EXPECTED]; /* borrowed */
    int count, current;
} dycl_expectation;

void dycl_expect_end(dycl_graph *graph); /* gives the graph its own arrays back, whatever they hold; the counts stay */
dycl_status dycl_expect_diverge(dycl_graph *graph); /* the counts stay: what was followed becomes the graph's own */
dycl_status dycl_graph_copy_arrays(dycl_graph *to, const dycl_graph *from); /* behind the counts of `to`, which stay */
/* 1: appended, it is what was expected. 0: it is not; another candidate may have taken over before. */
int dycl_expect_feed(dycl_graph *graph, dycl_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides,
                     uint32_t *out_value);
int dycl_expect_scalar(dycl_graph *graph, dycl_dtype dtype, uint32_t *out_value);
int dycl_expect_switch(dycl_graph *graph); /* 1: the next candidate with the same beginning has taken over */

static inline int dycl_expect_is_node(const dycl_graph *graph, dycl_op op, int operand_count, const uint32_t *operands,
                                      int attr_count, const int64_t *attrs) {
    if (graph->node_count == graph->node_room) return 0;
    const dycl_node *node = &graph->nodes[graph->node_count];
    if (node->op != (uint16_t)op || node->operand_count != (uint16_t)operand_count ||
        node->attr_count != (uint16_t)attr_count || node->out != graph->value_count)
        return 0;
    const uint32_t *expected = graph->operands + graph->operand_count;
    const int64_t *words = graph->attrs + graph->attr_count;
    for (int i = 0; i < operand_count; i++)
        if (expected[i] != operands[i]) return 0;
    for (int i = 0; i < attr_count; i++)
        if (words[i] != attrs[i]) return 0;
    return 1;
}

static inline int dycl_expect_node(dycl_graph *graph, dycl_op op, int operand_count, const uint32_t *operands,
                                   int attr_count, const int64_t *attrs, uint32_t *out_value) {
    while (!dycl_expect_is_node(graph, op, operand_count, operands, attr_count, attrs))
        if (!dycl_expect_switch(graph)) return 0;
    *out_value = graph->value_count++;
    graph->node_count++;
    graph->operand_count += (uint32_t)operand_count;
    graph->attr_count += (uint32_t)attr_count;
    return 1;
}

#endif
