#include "py/region/order.h"

#include <string.h>

#include "base/alloc.h"
#include "py/region/engine.h"
#include "py/region/grow.h"
#include "py/region/trained.h"

enum {
    LISTED = 1, /* among the leaves of this node */
    FED = 2     /* a source of a node below: it waits for that one */
};

/* Of a flush. By value, if nothing else is said. */
typedef struct {
    dycl_region *region;
    uint32_t before; /* leaves of earlier segments of this call */
    uint32_t *owner; /* of a result: its node; or DYCL_NONE */
    uint32_t *leaves;
    dycl_engine_entry *heap;
    uint8_t *marks, *edges; /* by value; edges: of the node that is looked at (dycl_edge_kind) */
    uint8_t *waited;        /* by node: whether it was seen behind another that runs later than all others */
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
    if (result) dycl_trained_note(o);
    Py_XDECREF(o);
    Py_XDECREF(leaf);
    PyErr_Clear();
    return result;
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
    for (uint32_t i = 0; i < n->result_count; i++) o->owner[n->results[i]] = number;
    for (uint32_t i = 0; i < n->source_count; i++) {
        uint32_t v = n->sources[i];
        int waits = o->marks[v] & FED;
        o->edges[v] = DYCL_EDGE_LATER;
        if (o->region->recorder.graph.values[v].kind == DYCL_VALUE_NODE) { /* a result of a node below, or its view */
            uint32_t root = o->region->recorder.graph.values[v].root;
            uint32_t owner = o->owner[v] != DYCL_NONE ? o->owner[v] : o->owner[root];
            others += owner == DYCL_NONE || !o->waited[owner];
            if (owner != DYCL_NONE) o->waited[owner] = 1;
            o->edges[v] = DYCL_EDGE_OTHER;
        } else if (!waits) {
            int leaf = is_leaf(o->region, v);
            o->marks[v] |= FED;
            feeds += !leaf;
            if (!leaf || !is_read_before(o, v)) o->edges[v] = leaf ? DYCL_EDGE_LEAF : DYCL_EDGE_OTHER;
        }
    }
    return others || !feeds ? others : 1;
}

static dycl_status order_node(const ordering *o, const dycl_track_node *n, uint32_t number) {
    uint32_t others = mark_sources(o, n, number), last = n->source_count;
    int64_t run = dycl_engine_run(o->region, n, o->edges, o->leaves);
    if (run < 0) return DYCL_ERROR;
    uint32_t leaves = (uint32_t)run;
    for (uint32_t i = 0; i < n->source_count; i++) o->edges[n->sources[i]] = DYCL_EDGE_INNER;
    for (uint32_t i = 0; i < leaves; i++) o->marks[o->leaves[i]] |= LISTED;
    for (uint32_t i = n->source_count; i-- > 0;) /* the rest stays in its order, behind them */
        if (!(o->marks[n->sources[i]] & LISTED)) n->sources[--last] = n->sources[i];
    for (uint32_t i = 0; i < leaves + others; i++) /* nothing moves when equals are pushed */
        o->heap[i] = i < leaves ? dycl_engine_leaf(i) : dycl_engine_other(i);
    for (uint32_t i = 0; i < leaves; i++) {
        n->sources[(uint32_t)dycl_engine_pop(o->heap, leaves + others - i)] = o->leaves[i];
        o->marks[o->leaves[i]] &= (uint8_t)~LISTED;
    }
    return DYCL_OK;
}

dycl_status dycl_order_sources(dycl_region *region, const dycl_track_node *nodes, uint32_t count) {
    uint32_t values = region->recorder.graph.value_count, most = 0;
    for (uint32_t i = 0; i < count; i++)
        if (nodes[i].source_count > most) most = nodes[i].source_count;
    if (!count) return DYCL_OK;
    DYCL_GROW(region->leaves, region->leaf_room, region->leaf_count + region->recorder.graph.feed_count + 1);
    uint32_t *block = dycl_alloc(((size_t)values + most) * sizeof *block);
    dycl_engine_entry *heap = dycl_alloc((most + 1) * sizeof *heap);
    uint8_t *bytes = dycl_alloc_zero(2 * (size_t)values + count);
    dycl_status status = block && heap && bytes ? DYCL_OK : DYCL_ERROR;
    if (status == DYCL_OK) {
        const ordering o = {region,         region->leaf_count, block, block + values, heap, bytes,
                            bytes + values, bytes + 2 * values};
        memset(o.owner, 0xff, values * sizeof *o.owner);
        for (uint32_t i = 0; i < count && status == DYCL_OK; i++) status = order_node(&o, &nodes[i], i);
    }
    dycl_free(block);
    dycl_free(heap);
    dycl_free(bytes);
    return status;
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
