#include "py/region/order.h"

#include <string.h>

#include "base/alloc.h"
#include "py/region/grow.h"

enum {
    REACHED = 1, /* from the results of this node */
    SOURCE = 2,  /* of this node */
    LEAF = 4,    /* that gets its gradient behind this node, and was not listed yet */
    FED = 8      /* a source of a node below: it waits for that one */
};

/* Of a flush. By value, if nothing else is said. */
typedef struct {
    dycl_region *region;
    uint32_t before;    /* leaves of earlier segments of this call */
    uint32_t *earliest; /* the first operator that reads it, of those that the results depend on; or DYCL_NONE */
    uint32_t *owner;    /* of a result: its node; or DYCL_NONE */
    uint32_t *leaves, *heap;
    uint8_t *marks, *waited; /* waited: by node, whether it was seen behind another that runs later than all others */
} ordering;

static int is_leaf(const dycl_region *region, uint32_t value) {
    const dycl_value *v = &region->recorder.graph.values[value];
    if (v->kind != DYCL_VALUE_FEED) return 0;
    const dycl_source *source = &region->sources[v->source];
    PyObject *o = source->object ? Py_NewRef(source->object) : dycl_abi_wrap(source->handle);
    int state = dycl_abi_torch_function_off();
    PyObject *leaf = !o                                     ? NULL
                     : Py_TYPE(o) == dycl_py.parameter_type ? Py_NewRef(Py_True)
                                                            : PyObject_GetAttrString(o, "is_leaf");
    int result = leaf == Py_True;
    dycl_abi_torch_function_restore(state);
    Py_XDECREF(o);
    Py_XDECREF(leaf);
    PyErr_Clear();
    return result;
}

/* From the last operator to the first, as far back as the sources. */
static void find_readers(const ordering *o) {
    const dycl_graph *graph = &o->region->recorder.graph;
    for (uint32_t n = graph->node_count; n-- > 0;) {
        const dycl_node *node = &graph->nodes[n];
        const uint32_t *operands = dycl_node_operands(graph, node);
        if (!o->region->tracked[node->out] || (o->marks[node->out] & (REACHED | SOURCE)) != REACHED) continue;
        for (int i = 0; i < node->operand_count; i++) {
            if (operands[i] == DYCL_NONE || !o->region->tracked[operands[i]]) continue;
            o->marks[operands[i]] |= REACHED;
            o->earliest[operands[i]] = n;
        }
    }
}

/* Leaves as eager comes to them. Of one operator: in the order of its operands; but the weight of a linear layer is
 * behind its transpose, which is a node of its own there. */
static uint32_t list_leaves(const ordering *o) {
    static const int linear[] = {2, 0, 1};
    const dycl_graph *graph = &o->region->recorder.graph;
    uint32_t count = 0;
    for (uint32_t n = graph->node_count; n-- > 0;) {
        const dycl_node *node = &graph->nodes[n];
        const uint32_t *operands = dycl_node_operands(graph, node);
        for (int i = 0; i < node->operand_count; i++) {
            uint32_t v = operands[node->op == DYCL_OP_linear ? linear[i] : i];
            if (v == DYCL_NONE || !(o->marks[v] & LEAF) || o->earliest[v] != n) continue;
            o->marks[v] &= (uint8_t) ~(LEAF | SOURCE);
            o->leaves[count++] = v;
        }
    }
    return count;
}

/* std::pop_heap of libstdc++ with torch's comparison. Leaves (below `leaves`) are equal, and come before all others. */
static uint32_t pop(uint32_t *heap, uint32_t count, uint32_t leaves) {
    uint32_t top = heap[0], last = heap[count - 1], length = count - 1, hole = 0, child = 0;
    while (length && child < (length - 1) / 2) {
        child = 2 * (child + 1);
        if (heap[child] >= leaves && heap[child - 1] < leaves) child--;
        heap[hole] = heap[child];
        hole = child;
    }
    if (length && length % 2 == 0 && child == (length - 2) / 2) {
        child = 2 * (child + 1);
        heap[hole] = heap[child - 1];
        hole = child - 1;
    }
    while (hole > 0 && heap[(hole - 1) / 2] >= leaves && last < leaves) {
        heap[hole] = heap[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    if (length) heap[hole] = last;
    return top;
}

/* An earlier segment of this call reads it, too, and is gone back through later. Of all calls each leaf is looked for
 * in those of the segments before. */
static int is_read_before(const ordering *o, uint32_t value) {
    const dycl_region *region = o->region;
    const char *impl =
        dycl_abi_handle_impl(dycl_source_handle(&region->sources[region->recorder.graph.values[value].source]));
    for (uint32_t i = 0; i < o->before; i++)
        if (region->leaves[i] == impl) return 1;
    region->leaves[o->region->leaf_count++] = impl;
    return 0;
}

/* What torch puts into its heap behind this node: leaves, and other nodes that wait for nothing else. Nodes below come
 * first here and run last. Of feeds with a history, one is taken to be computed from all others, as what enters a block
 * is from the residual stream beside it. Returns the number of the others. */
static uint32_t mark_sources(const ordering *o, const dycl_track_node *n, uint32_t number) {
    uint32_t others = 0, feeds = 0;
    for (uint32_t i = 0; i < n->result_count; i++) {
        o->marks[n->results[i]] |= REACHED;
        o->owner[n->results[i]] = number;
    }
    for (uint32_t i = 0; i < n->source_count; i++) {
        uint32_t v = n->sources[i];
        int waits = o->marks[v] & FED;
        o->marks[v] |= SOURCE;
        if (o->region->recorder.graph.values[v].kind == DYCL_VALUE_NODE) { /* a result of a node below, or its view */
            uint32_t root = o->region->recorder.graph.values[v].root;
            uint32_t owner = o->owner[v] != DYCL_NONE ? o->owner[v] : o->owner[root];
            others += owner == DYCL_NONE || !o->waited[owner];
            if (owner != DYCL_NONE) o->waited[owner] = 1;
        } else if (!waits) {
            int leaf = is_leaf(o->region, v);
            o->marks[v] |= FED | (leaf && !is_read_before(o, v) ? LEAF : 0);
            feeds += !leaf;
        }
    }
    return others || !feeds ? others : 1;
}

static void order_node(const ordering *o, const dycl_track_node *n, uint32_t number) {
    uint32_t values = o->region->recorder.graph.value_count, others = mark_sources(o, n, number);
    memset(o->earliest, 0xff, values * sizeof *o->earliest);
    find_readers(o);
    uint32_t leaves = list_leaves(o), last = n->source_count;
    for (uint32_t i = n->source_count; i-- > 0;) /* the rest stays in its order, behind them */
        if (o->marks[n->sources[i]] & SOURCE) n->sources[--last] = n->sources[i];
    for (uint32_t i = 0; i < leaves + others; i++) o->heap[i] = i; /* nothing moves when equals are pushed */
    for (uint32_t i = 0; i < leaves; i++) n->sources[pop(o->heap, leaves + others - i, leaves)] = o->leaves[i];
    for (uint32_t v = 0; v < values; v++) o->marks[v] &= FED;
}

dycl_status dycl_order_sources(dycl_region *region, const dycl_track_node *nodes, uint32_t count) {
    uint32_t values = region->recorder.graph.value_count, most = 0;
    for (uint32_t i = 0; i < count; i++)
        if (nodes[i].source_count > most) most = nodes[i].source_count;
    if (!count) return DYCL_OK;
    DYCL_GROW(region->leaves, region->leaf_room, region->leaf_count + region->recorder.graph.feed_count + 1);
    uint32_t *block = dycl_alloc((2 * (size_t)values + 2 * (size_t)most) * sizeof *block);
    uint8_t *bytes = dycl_alloc_zero((size_t)values + count);
    if (block && bytes) {
        const ordering o = {region,         region->leaf_count, block,
                            block + values, block + 2 * values, block + 2 * values + most,
                            bytes,          bytes + values};
        memset(o.owner, 0xff, values * sizeof *o.owner);
        for (uint32_t i = 0; i < count; i++) order_node(&o, &nodes[i], i);
    }
    dycl_free(block);
    dycl_free(bytes);
    return block && bytes ? DYCL_OK : DYCL_ERROR;
}

void dycl_order_forget(dycl_region *region) { region->leaf_count = 0; }

int dycl_order_saves_itself(const dycl_graph *graph, const uint8_t *tracked, uint32_t feed) {
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const dycl_node *node = &graph->nodes[n];
        const uint32_t *operands = dycl_node_operands(graph, node);
        if (!tracked[node->out] || node->op == DYCL_OP_view) continue;
        for (int i = 0; i < node->operand_count; i++)
            if (operands[i] == feed && !(node->op == DYCL_OP_linear && i == 1)) return 1; /* whose weight is turned */
    }
    return 0;
}
