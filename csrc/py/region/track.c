#include "py/region/track.h"

#include <string.h>

#include "grad/backward.h"
#include "ir/infer.h"
#include "py/region/grow.h"
#include "py/site/site.h"

int dycl_track_on;

int dycl_track_suits(const struct dycl_site *site) { return dycl_track_on && !site->replaces && !site->options; }

int dycl_track_is_watched(void) {
    PyObject *hooks = dycl_py.anomaly_enabled && dycl_py_anomaly() == 0
                          ? PyObject_CallOneArg(dycl_py.saved_tensors_hooks, Py_False)
                          : NULL;
    int result = hooks != Py_None;
    Py_XDECREF(hooks);
    PyErr_Clear();
    return result;
}

/* A view made before its base had a history has none of its own until torch looks for it: a leaf by then, which torch
 * writes nothing in place. To ask for grad_fn would be that look. */
static int has_lost_history(PyObject *object) {
    if (Py_TYPE(object) == dycl_py.parameter_type) return 0;
    if (dycl_abi_is_leaf_view(dycl_abi_borrow(object))) return 1;
    PyObject *node = dycl_py_grad_fn(object);
    Py_XDECREF(node);
    return !node;
}

/* Flags of a tracked value. */
static uint8_t feed_history(const dycl_region *region, uint32_t feed) {
    const dycl_source *source = &region->sources[feed];
    if (!dycl_abi_has_autograd_meta(dycl_abi_handle_impl(dycl_source_handle(source)))) return 0;
    PyObject *object = source->object ? Py_NewRef(source->object) : dycl_abi_wrap(source->handle);
    uint8_t flags = !object || dycl_abi_requires_grad(object) ? DYCL_TRACK_HISTORY : 0;
    if (object && flags && has_lost_history(object)) flags |= DYCL_TRACK_LOST;
    Py_XDECREF(object);
    PyErr_Clear();
    return flags;
}

static int is_real(const dycl_value *v) { return dycl_dtype_is_float((dycl_dtype)v->dtype); }

static int node_has_history(const dycl_region *region, const dycl_node *node) {
    const dycl_graph *graph = &region->recorder.graph;
    const uint32_t *operands = dycl_node_operands(graph, node);
    if (!is_real(&graph->values[node->out]) || !dycl_grad_has_history(node)) return 0;
    for (int i = 0; i < node->operand_count; i++)
        if (operands[i] != DYCL_NONE && region->tracked[operands[i]]) return 1;
    return 0;
}

static int extend(dycl_region *region) {
    const dycl_graph *graph = &region->recorder.graph;
    DYCL_GROW(region->tracked, region->tracked_room, graph->value_count + 1);
    int enabled = dycl_abi_grad_enabled();
    for (uint32_t v = region->tracked_count; v < graph->value_count; v++) {
        const dycl_value *value = &graph->values[v];
        uint8_t flags = 0;
        if (value->kind == DYCL_VALUE_FEED)
            flags = is_real(value) ? feed_history(region, value->source) : 0;
        else if (value->kind == DYCL_VALUE_NODE && enabled)
            flags = node_has_history(region, &graph->nodes[value->source]) ? DYCL_TRACK_HISTORY : 0;
        region->tracked[v] = flags;
    }
    region->tracked_count = graph->value_count;
    return 0;
}

void dycl_track_extend(dycl_region *region) {
    if (region->tracks && extend(region) != 0) PyErr_Clear(); /* no memory: the flush asks again */
}

int dycl_track_drop(dycl_region *region, uint32_t value) {
    dycl_track_extend(region);
    if (region->tracked_count <= value) return 0;
    region->tracked[value] = 0;
    return 1;
}

int dycl_track_all(dycl_region *region) { return region->tracks && extend(region) != 0 ? -1 : 0; }

int dycl_track_has_now(dycl_region *region, uint32_t value) {
    if (!region->tracks || !dycl_abi_grad_enabled()) return 0;
    dycl_track_extend(region);
    return value >= region->tracked_count || region->tracked[value];
}

int dycl_track_any_now(dycl_region *region, int count, const uint32_t *values) {
    for (int i = 0; i < count; i++)
        if (values[i] != DYCL_NONE && dycl_track_has_now(region, values[i])) return 1;
    return 0;
}

static int is_of_overlapping(const dycl_graph *graph, uint32_t view) {
    const dycl_value *v = &graph->values[view];
    const dycl_node *node = &graph->nodes[v->source];
    if (dycl_value_overlaps(&graph->values[v->root])) return 1;
    if (dycl_way_of(graph, node) == DYCL_BACK_UNFOLD) return 0;
    return dycl_value_overlaps(&graph->values[dycl_node_operands(graph, node)[0]]);
}

static int reads_lost(const dycl_region *region, const dycl_node *node) {
    const uint32_t *operands = dycl_node_operands(&region->recorder.graph, node);
    for (int i = 0; i < node->operand_count; i++)
        if (operands[i] != DYCL_NONE && region->tracked[operands[i]] & DYCL_TRACK_LOST) return 1;
    return 0;
}

int dycl_track_lets(dycl_region *region, uint32_t first_value, int parts_are_whole) {
    const dycl_graph *graph = &region->recorder.graph;
    if (!region->tracks) return 1;
    if (extend(region) != 0) {
        PyErr_Clear();
        return 0;
    }
    int enabled = dycl_abi_grad_enabled();
    for (uint32_t v = first_value; v < graph->value_count; v++) {
        const dycl_value *value = &graph->values[v];
        if (enabled && region->tracked[v] & DYCL_TRACK_LOST) return 0; /* torch raises where it is used */
        int view_of_history = value->root != v && region->tracked[value->root];
        if (view_of_history && !enabled) return 0;                    /* a leaf that requires gradients */
        if (view_of_history && is_of_overlapping(graph, v)) return 0; /* views go back by memory */
        if (!region->tracked[v] || value->kind != DYCL_VALUE_NODE) continue;
        if (enabled && reads_lost(region, &graph->nodes[value->source])) return 0;
        if (!parts_are_whole || (value->dtype != DYCL_F32 && value->dtype != DYCL_F64) ||
            !dycl_grad_has((dycl_op)graph->nodes[value->source].op))
            return 0;
    }
    return 1;
}

int dycl_track_has_formula(dycl_region *region, uint32_t value) {
    const dycl_graph *graph = &region->recorder.graph;
    dycl_track_extend(region);
    if (region->tracked_count != graph->value_count) return -1;
    if (!region->tracked[value]) return 1;
    return dycl_grad_has_for(graph, region->recorder.scalars, region->tracked,
                             &graph->nodes[graph->values[value].source]);
}

int dycl_track_writes(dycl_region *region, PyObject *self, uint32_t value) {
    if (!region->may_track) return 0;
    dycl_track_extend(region);
    return dycl_track_has(region, value) || dycl_region_needs_gradient(self) != 0;
}

int dycl_track_writes_from(dycl_region *region, PyObject *self, PyObject *source) {
    if (!region->may_track) return 0;
    dycl_track_extend(region);
    return dycl_region_needs_gradient(self) != 0 || dycl_region_needs_gradient(source) != 0;
}

int dycl_track_keeps(dycl_region *region, uint32_t value, uint32_t end) {
    if (!region->tracks) return 0;
    dycl_track_extend(region);
    if (region->tracked_count != region->recorder.graph.value_count || region->tracked[value] & DYCL_TRACK_KEPT)
        return 1;
    return dycl_grad_keeps(&region->recorder.graph, region->recorder.scalars, region->tracked, value, end);
}

/* In place torch saves a copy of what is written, but the other operands as they are: x.mul_(x) is an error later. What
 * is written is not the first operand of all nodes: numbers stand before it in bounds. */
static int is_other_operand(const dycl_graph *graph, const dycl_node *node, uint32_t value) {
    int times = 0;
    for (int i = 0; i < node->operand_count; i++) times += dycl_node_operands(graph, node)[i] == value;
    return times > 1;
}

static int is_pending_here(const dycl_region *region, PyObject *self) {
    if (!dycl_is_lazy(self)) return 0;
    const dycl_lazy *lazy = dycl_lazy_of(self);
    return lazy->region == region && !lazy->real && !lazy->deferred && lazy->epoch == region->epoch && !lazy->own;
}

int dycl_track_may_write(dycl_region *region, PyObject *self) {
    return is_pending_here(region, self) && dycl_track_has_now(region, dycl_lazy_of(self)->value) &&
           dycl_region_holds_alone(region, self) &&
           !dycl_track_keeps(region, dycl_lazy_of(self)->value, region->recorder.graph.node_count);
}

int dycl_track_may_rebind(dycl_region *region, PyObject *self, uint32_t value) {
    const dycl_graph *graph = &region->recorder.graph;
    if (!is_pending_here(region, self) || !dycl_track_has(region, value) ||
        graph->values[value].kind != DYCL_VALUE_NODE)
        return 0;
    uint32_t before = dycl_lazy_of(self)->value;
    uint32_t end = graph->values[value].source;
    end += (uint32_t)is_other_operand(graph, &graph->nodes[end], before);
    return dycl_region_holds_alone(region, self) && !dycl_track_keeps(region, before, end);
}

void dycl_track_mark(dycl_region *region, uint32_t value, uint8_t how) {
    if (dycl_track_has_now(region, value) && value < region->tracked_count) region->tracked[value] |= how;
}

static const char *const whole[] = {
#define DYCL_WHOLE(name) #name,
#include "py/region/whole.def"
#undef DYCL_WHOLE
};

int dycl_track_is_whole(const char *function) {
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (strcmp(whole[i], function) == 0) return 1;
    return 0;
}
