#include "py/region/engine.h"

#include <string.h>

#include "base/alloc.h"
#include "kern/recurrent.h"
#include "py/region/called.h"

/* Priorities: leaves, then what was made last. A node of the segment has room below it for nodes that torch makes for
 * operands only (the transpose of a weight), before the operator's own. */
enum { ROOM = 4, OWN = ROOM - 1 };

static dycl_engine_entry entry(uint32_t priority, uint32_t what) { return (uint64_t)priority << 32 | what; }
static uint32_t priority_of(dycl_engine_entry e) { return (uint32_t)(e >> 32); }
static uint32_t at(uint32_t node, uint32_t place) { return 1 + ROOM * node + place; }

dycl_engine_entry dycl_engine_leaf(uint32_t value) { return entry(UINT32_MAX, value); }
dycl_engine_entry dycl_engine_other(uint32_t value) { return entry(0, value); }

static void sift_up(dycl_engine_entry *heap, uint32_t hole, dycl_engine_entry e) {
    while (hole > 0 && priority_of(heap[(hole - 1) / 2]) < priority_of(e)) {
        heap[hole] = heap[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    heap[hole] = e;
}

void dycl_engine_push(dycl_engine_entry *heap, uint32_t count, dycl_engine_entry e) { sift_up(heap, count, e); }

dycl_engine_entry dycl_engine_pop(dycl_engine_entry *heap, uint32_t count) {
    dycl_engine_entry top = heap[0], last = heap[count - 1];
    uint32_t length = count - 1, hole = 0, child = 0;
    while (length && child < (length - 1) / 2) {
        child = 2 * (child + 1);
        if (priority_of(heap[child]) < priority_of(heap[child - 1])) child--;
        heap[hole] = heap[child];
        hole = child;
    }
    if (length && length % 2 == 0 && child == (length - 2) / 2) {
        child = 2 * (child + 1);
        heap[hole] = heap[child - 1];
        hole = child - 1;
    }
    if (length) sift_up(heap, hole, last);
    return top;
}

/* ---- The edges of eager's node of an operator */

typedef struct {
    uint32_t value;
    uint32_t priority; /* of the node that torch makes for this operand before the operator's own; 0: none */
} edge;

typedef struct {
    const dycl_region *region;
    const dycl_graph *graph;
    const uint8_t *edges; /* of what the node does not compute itself */
    uint32_t *waits;      /* by value: for gradients of so many readers */
    edge *list;           /* of one operator */
    uint32_t count;       /* of it */
    dycl_engine_entry *heap;
    uint32_t waiting; /* entries of the heap */
} engine;

static const dycl_node *node_of(const engine *e, uint32_t value) {
    const dycl_value *v = &e->graph->values[value];
    return v->kind == DYCL_VALUE_NODE && e->edges[value] == DYCL_EDGE_INNER ? &e->graph->nodes[v->source] : NULL;
}

static int is_inner(const engine *e, uint32_t value, dycl_op op) { /* of a call of the program's, which made more */
    const dycl_node *node = value == DYCL_NONE ? NULL : node_of(e, value);
    return node && node->op == op && !dycl_called_of(e->region, value);
}

static void add(engine *e, uint32_t value, uint32_t priority) {
    if (value == DYCL_NONE || !e->region->tracked[value]) return;
    e->list[e->count++] = (edge){value, priority};
}

/* The operand of torch's operator itself: here it is seen through views. */
static void add_under_views(engine *e, uint32_t value, uint32_t priority) {
    while (is_inner(e, value, DYCL_OP_view)) value = dycl_node_operands(e->graph, node_of(e, value))[0];
    add(e, value, priority);
}

/* A matrix and a bias: addmm(bias, x, weight.t()). Other ranks: x gets two dimensions before it, where that is a view;
 * else matmul(x, weight.t()), whose view is made behind the transpose, and the bias is added. */
static void add_linear(engine *e, uint32_t n, const uint32_t *o) {
    const dycl_value *x = &e->graph->values[o[0]];
    int flattens = x->rank != 2 && x->canonical && o[2] != DYCL_NONE;
    add(e, o[2], 0);
    add(e, o[0], x->rank == 2 ? 0 : at(n, flattens ? 0 : 1));
    add(e, o[1], at(n, flattens ? 1 : 0));
}

/* torch has a node for a layer of an LSTM in float32 (oneDNN's). Everything else is made of operators: the inputs of
 * all steps by one linear layer, and one for each step's state. The states before the first of all layers were unbound
 * first. */
static void add_recurrent(engine *e, uint32_t n, const dycl_node *node, const uint32_t *o) {
    const dycl_node *inputs = is_inner(e, o[0], DYCL_OP_linear) ? node_of(e, o[0]) : NULL;
    int whole = e->graph->attrs[node->attrs] == DYCL_RECURRENT_LSTM && e->graph->values[node->out].dtype == DYCL_F32;
    if (inputs && whole) {
        const uint32_t *i = dycl_node_operands(e->graph, inputs);
        add(e, i[0], 0);
        add(e, i[1], 0);
        add(e, o[1], 0);
        add(e, i[2], 0);
        add(e, o[2], 0);
        add_under_views(e, o[3], at(n, 0));
        add_under_views(e, o[4], at(n, 1));
        return;
    }
    uint32_t first = inputs ? e->graph->values[o[0]].source : n;
    add(e, o[2], 0);
    add_under_views(e, o[3], at(first, 0));
    add_under_views(e, o[4], at(first, 0));
    add(e, o[0], 0);
    add(e, o[1], at(n, 2));
}

static void find_edges(engine *e, uint32_t n) {
    const dycl_node *node = &e->graph->nodes[n];
    const uint32_t *o = dycl_node_operands(e->graph, node);
    e->count = 0;
    switch (node->op) {
    case DYCL_OP_linear: add_linear(e, n, o); break;
    case DYCL_OP_recurrent: add_recurrent(e, n, node, o); break;
    case DYCL_OP_rms_norm: /* the product with the weight comes last */
        add(e, o[1], 0);
        add(e, o[0], at(n, 0));
        break;
    case DYCL_OP_conv2d: /* torch's of one dimension, too, where a second was put in here */
    case DYCL_OP_conv_transpose2d:
        for (int i = 0; i < 3; i++) add_under_views(e, o[i], 0);
        break;
    default:
        for (int i = 0; i < node->operand_count; i++) add(e, o[i], 0);
    }
}

/* ---- The pass */

static void count_readers(engine *e, const dycl_track_node *node) {
    for (uint32_t i = 0; i < node->result_count; i++) e->waits[node->results[i]]++;
    for (uint32_t n = e->graph->node_count; n-- > 0;) {
        uint32_t out = e->graph->nodes[n].out;
        if (!e->waits[out] || !e->region->tracked[out] || e->edges[out] != DYCL_EDGE_INNER) continue;
        find_edges(e, n);
        for (uint32_t i = 0; i < e->count; i++) e->waits[e->list[i].value]++;
    }
}

static void push(engine *e, dycl_engine_entry what) { dycl_engine_push(e->heap, e->waiting++, what); }

/* A gradient has come. The last one lets what it is of run. */
static void settle(engine *e, uint32_t value) {
    const dycl_value *v = &e->graph->values[value];
    if (--e->waits[value]) return;
    if (e->edges[value] == DYCL_EDGE_LEAF)
        push(e, dycl_engine_leaf(value));
    else if (e->edges[value] == DYCL_EDGE_OTHER)
        push(e, dycl_engine_other(value));
    else if (e->edges[value] == DYCL_EDGE_INNER && v->kind == DYCL_VALUE_NODE)
        push(e, entry(at(v->source, OWN), value));
}

static uint32_t go_back(engine *e, const dycl_track_node *node, uint32_t *leaves) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < node->result_count; i++) settle(e, node->results[i]);
    while (e->waiting) {
        dycl_engine_entry next = dycl_engine_pop(e->heap, e->waiting--);
        uint32_t priority = priority_of(next), value = (uint32_t)next;
        if (priority == UINT32_MAX) {
            leaves[count++] = value;
        } else if (priority && (priority - 1) % ROOM != OWN) {
            settle(e, value);
        } else if (priority) {
            find_edges(e, e->graph->values[value].source);
            for (uint32_t i = 0; i < e->count; i++)
                if (e->list[i].priority)
                    push(e, entry(e->list[i].priority, e->list[i].value));
                else
                    settle(e, e->list[i].value);
        }
    }
    return count;
}

int64_t dycl_engine_run(const dycl_region *region, const dycl_track_node *node, const uint8_t *edges,
                        uint32_t *leaves) {
    const dycl_graph *graph = &region->recorder.graph;
    uint32_t most = 8; /* edges of an operator */
    for (uint32_t n = 0; n < graph->node_count; n++)
        if (graph->nodes[n].operand_count > most) most = graph->nodes[n].operand_count;
    size_t room = graph->value_count + graph->operand_count + 1; /* each value once, each operand's own node once */
    uint32_t *waits = dycl_alloc_zero(graph->value_count * sizeof *waits);
    edge *list = dycl_alloc(most * sizeof *list);
    dycl_engine_entry *heap = dycl_alloc(room * sizeof *heap);
    int64_t count = -1;
    if (waits && list && heap) {
        engine e = {region, graph, edges, waits, list, 0, heap, 0};
        count_readers(&e, node);
        count = go_back(&e, node, leaves);
    }
    dycl_free(waits);
    dycl_free(list);
    dycl_free(heap);
    return count;
}
