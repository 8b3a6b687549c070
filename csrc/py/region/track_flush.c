#include "py/region/track_flush.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "exec/cache/backwards.h"
#include "py/region/called.h"
#include "py/region/held_views.h"
#include "py/region/laid.h"
#include "py/region/node.h"
#include "py/region/order.h"
#include "py/region/own_results.h"
#include "py/region/reach.h"
#include "py/region/recording.h"
#include "py/region/segment.h"
#include "py/site/site.h"

struct dycl_tracked_flush {
    dycl_track_node *nodes; /* those that others stand before come first */
    uint32_t count;
    uint32_t wanted; /* outputs that the program holds: the first ones */
    dycl_reach reach;
    uint32_t *result;    /* by value: from 1 on; 0: it is none */
    uint32_t kept_count; /* values that torch's graph keeps besides */
    dycl_own_results own;
    dycl_held_views held;
};

void dycl_track_free(dycl_region *region, dycl_tracked_flush *f) {
    if (!f) return;
    for (uint32_t i = 0; f->nodes && i < f->count; i++) {
        dycl_free(f->nodes[i].results);
        dycl_free(f->nodes[i].saved);
    }
    dycl_free(f->nodes);
    dycl_own_results_free(&f->own);
    dycl_held_views_free(region, &f->held);
    dycl_reach_free(&f->reach);
    dycl_free(f->result);
    dycl_free(f);
}

static dycl_status no_memory(void) {
    PyErr_NoMemory();
    return DYCL_ERROR;
}

int dycl_track_needed(const dycl_region *region, uint32_t count) {
    if (!region->tracks) return 0;
    for (uint32_t i = 0; i < count; i++)
        if (dycl_track_has(region, region->outputs[i])) return 1;
    return 0;
}

/* Results of one call have one number: in torch, too, they share a node. They stand side by side. Views have their own:
 * what they are views of may be a result of the same call. */
static uint32_t number_results(const dycl_region *region, dycl_tracked_flush *f) {
    const dycl_graph *graph = &region->recorder.graph;
    uint32_t count = 0, last_call = 0;
    int last_held = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        uint32_t out = graph->nodes[n].out;
        int held = dycl_held_views_has(&f->held, out),
            is = dycl_own_results_has(&f->own, out) || held ||
                 (region->output_of[out] && dycl_own_results_hold(region, &f->own, out));
        if (!region->tracked[out] || !is) continue;
        uint32_t call = dycl_called_of(region, out);
        count += !call || call != last_call || held != last_held;
        last_call = call;
        last_held = held;
        f->result[out] = count;
    }
    return count;
}

static dycl_status add_output(dycl_region *region, uint32_t value, uint32_t *count) {
    if (region->recorder.graph.values[value].kind != DYCL_VALUE_NODE || region->output_of[value]) return DYCL_OK;
    dycl_status status = dycl_segment_grow_outputs(region, *count + 1);
    if (status != DYCL_OK) return status;
    region->outputs[(*count)++] = value;
    region->output_of[value] = *count;
    return DYCL_OK;
}

dycl_status dycl_track_add_views(dycl_region *region, uint32_t *count, uint32_t *shown) {
    const dycl_graph *graph = &region->recorder.graph;
    dycl_held_views held;
    dycl_status status = dycl_held_views_find(region, &held) == DYCL_OK ? DYCL_OK : no_memory();
    for (int copies = 1; copies >= 0; copies--) {
        for (PyObject *o = region->first; o && status == DYCL_OK; o = dycl_lazy_of(o)->next) {
            const dycl_lazy *lazy = dycl_lazy_of(o);
            if (lazy->real || lazy->epoch != region->epoch || !dycl_track_has(region, lazy->value)) continue;
            uint32_t root = graph->values[lazy->value].root;
            int copy = lazy->own == DYCL_OWN_COPY && graph->values[root].kind == DYCL_VALUE_NODE;
            if (root == lazy->value || copy != copies) continue;
            if (copies || dycl_held_views_has(&held, lazy->value)) status = add_output(region, lazy->value, count);
        }
        if (copies) *shown = *count;
    }
    dycl_held_views_free(region, &held);
    return status;
}

/* Lists of the nodes, one behind the other; ends[i]: of the (i + 1)th, or of the (i)th while it is filled. */
typedef struct {
    uint32_t *members, *ends;
} lists;

static dycl_status lists_begin(lists *l, uint32_t count, size_t most) {
    l->members = dycl_alloc((most + 1) * sizeof *l->members);
    l->ends = dycl_alloc_zero((count + 2) * sizeof *l->ends);
    return l->members && l->ends ? DYCL_OK : no_memory();
}

static void lists_free(lists *l) {
    dycl_free(l->members);
    dycl_free(l->ends);
}

/* The operators of each node. */
static dycl_status list_operators(const dycl_graph *graph, const dycl_reach *r, lists *l) {
    dycl_status status = lists_begin(l, r->count, graph->node_count);
    if (status != DYCL_OK) return status;
    for (uint32_t n = 0; n < graph->node_count; n++) l->ends[r->node[graph->nodes[n].out] + 1]++;
    for (uint32_t i = 0; i <= r->count; i++) l->ends[i + 1] += l->ends[i];
    for (uint32_t n = 0; n < graph->node_count; n++) l->members[l->ends[r->node[graph->nodes[n].out]]++] = n;
    return DYCL_OK;
}

static int by_place(const void *a, const void *b) {
    return *(const uint32_t *)a < *(const uint32_t *)b ? -1 : *(const uint32_t *)a > *(const uint32_t *)b;
}

/* Results and sources of a node whose operators these are: feeds first, each in the order of the program. seen: by
 * value, the last node that counted it. */
static dycl_status fill_node(const dycl_region *region, const dycl_tracked_flush *f, uint32_t number,
                             const uint32_t *operators, uint32_t count, uint32_t *seen, dycl_track_node *n) {
    const dycl_graph *graph = &region->recorder.graph;
    size_t most = count + 1 + f->held.count;
    for (uint32_t i = 0; i < count; i++) most += graph->nodes[operators[i]].operand_count;
    n->results = dycl_alloc(most * sizeof *n->results); /* of each operator one, and sources */
    if (!n->results) return no_memory();
    for (uint32_t i = 0; i < count; i++) {
        uint32_t out = graph->nodes[operators[i]].out;
        if (f->result[out] || f->reach.crosses[out]) n->results[n->result_count++] = out;
    }
    n->once = f->reach.once[number - 1];
    n->operators = count;
    n->sources = n->results + n->result_count;
    for (int feeds = 1; feeds >= 0; feeds--) {
        uint32_t begin = n->source_count;
        for (uint32_t i = 0; i < count; i++) {
            const dycl_node *node = &graph->nodes[operators[i]];
            const uint32_t *operands = dycl_node_operands(graph, node);
            for (int k = 0; k < node->operand_count; k++) {
                if (operands[k] == DYCL_NONE || !region->tracked[operands[k]]) continue;
                uint32_t v = dycl_reach_source(graph, &f->reach, f->result, number, operands[k]);
                if (v == DYCL_NONE || seen[v] == number || (graph->values[v].kind == DYCL_VALUE_FEED) != feeds)
                    continue;
                seen[v] = number;
                n->sources[n->source_count++] = v;
            }
        }
        qsort(n->sources + begin, n->source_count - begin, sizeof *n->sources, by_place);
    }
    return DYCL_OK;
}

/* What torch's graph would have saved besides. */
static uint32_t add_kept(const dycl_region *region, const dycl_tracked_flush *f, uint32_t number,
                         const dycl_backward *b, uint32_t *saved) {
    uint32_t count = b->saved_count;
    for (uint32_t v = 0; v < region->recorder.graph.value_count; v++) {
        if (!(region->tracked[v] & DYCL_TRACK_KEPT) || f->reach.node[v] != number) continue;
        int known = 0;
        for (uint32_t i = 0; i < count; i++) known |= saved[i] == v;
        if (!known) saved[count++] = v;
    }
    return count;
}

/* The segment that is known to be what was recorded, if there is one: who asks again is answered from there. */
static dycl_segment *recorded_before(const dycl_region *region) {
    for (int nth = 0; nth < region->expected_count; nth++)
        if (dycl_graph_lays(&region->expected[nth]->graph, &region->recorder.graph)) return region->expected[nth];
    return NULL;
}

/* What a backward pass through the node will need, and which sources it reaches. `known`: the segment, or NULL. */
static dycl_status look_ahead(const dycl_region *region, const dycl_tracked_flush *f, dycl_segment *known,
                              uint32_t number, dycl_track_node *n) {
    dycl_gradients *g = NULL;
    dycl_backward_job job = {.graph = &region->recorder.graph,
                             .numbers = region->recorder.scalars,
                             .tracked = region->tracked,
                             .results = n->results,
                             .sources = n->sources,
                             .result_count = n->result_count,
                             .source_count = n->source_count};
    dycl_status status = dycl_backwards_get(known, &job, 1, &g);
    if (status == DYCL_OK && (g->built.open || g->status != DYCL_OK))
        status = dycl_error_bail("its gradients are torch's: %s", dycl_gradients_why_not(g));
    if (status == DYCL_OK) {
        uint32_t reached = 0;
        for (uint32_t i = 0; i < n->source_count; i++) reached += g->built.gradients[i] != DYCL_NONE;
        if (!reached || reached < n->source_count) /* the result would come without its history, in silence */
            status = dycl_error_bail("its gradients are torch's: no gradient reaches what has a history");
    }
    if (status == DYCL_OK) {
        const dycl_backward *b = &g->built;
        size_t room = b->saved_count + (size_t)f->kept_count + 1;
        n->saved = dycl_alloc_zero(room * (sizeof *n->saved + sizeof *n->bare + sizeof *n->copied));
        if (n->saved) {
            n->bare = (uint8_t *)(n->saved + room);
            n->copied = n->bare + room;
            memcpy(n->saved, b->saved, b->saved_count * sizeof *b->saved);
            for (uint32_t i = 0; i < b->saved_count; i++) {
                n->bare[i] = !b->taken[b->saved[i]];
                n->copied[i] = !b->itself[b->saved[i]];
            }
            n->saved_count = f->kept_count ? add_kept(region, f, number, b, n->saved) : b->saved_count;
        } else {
            status = DYCL_ERROR;
        }
    }
    dycl_gradients_release(g);
    return status == DYCL_ERROR ? no_memory() : status;
}

/* Torch's views are nodes of its own; and of a view's root other nodes take views of their own. */
static int is_of_views(const dycl_graph *graph, const dycl_tracked_flush *f, const dycl_track_node *n) {
    int is = 1;
    for (uint32_t i = 0; i < n->result_count; i++) {
        uint32_t v = n->results[i];
        is &= graph->values[v].root != v && dycl_held_views_has(&f->held, v);
    }
    return is;
}

/* What a view of a parameter leads to has the parameter behind it, too, where that is saved: who differentiates the
 * gradients looks for its history. */
static void add_parameters(const dycl_graph *graph, const dycl_tracked_flush *f, dycl_track_node *n) {
    uint32_t count = f->held.count ? n->source_count : 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t root = graph->values[n->sources[i]].root;
        int saved = 0, known = graph->values[root].kind == DYCL_VALUE_NODE;
        for (uint32_t k = 0; k < n->saved_count; k++) saved |= n->saved[k] == root;
        for (uint32_t k = 0; k < n->source_count; k++) known |= n->sources[k] == root;
        if (saved && !known) n->sources[n->source_count++] = root;
    }
}

static dycl_status make_nodes(const dycl_region *region, dycl_tracked_flush *f) {
    const dycl_graph *graph = &region->recorder.graph;
    dycl_segment *known = recorded_before(region);
    uint32_t *seen = dycl_alloc_zero((graph->value_count + 1) * sizeof *seen);
    lists operators = {NULL, NULL};
    f->nodes = dycl_alloc_zero((f->reach.count + 1) * sizeof *f->nodes);
    dycl_status status = seen && f->nodes ? list_operators(graph, &f->reach, &operators) : no_memory();
    for (uint32_t v = 0; v < graph->value_count; v++) f->kept_count += (region->tracked[v] & DYCL_TRACK_KEPT) != 0;
    for (uint32_t number = 1; status == DYCL_OK && number <= f->reach.count; number++) {
        dycl_track_node *n = &f->nodes[f->count++];
        uint32_t first = operators.ends[number - 1];
        status = fill_node(region, f, number, operators.members + first, operators.ends[number] - first, seen, n);
        if (status == DYCL_OK && is_of_views(graph, f, n)) {
            dycl_free(n->results);
            *n = (dycl_track_node){0};
            f->count--;
        } else if (status == DYCL_OK) {
            status = look_ahead(region, f, known, number, n);
            if (status == DYCL_OK) add_parameters(graph, f, n);
        }
    }
    lists_free(&operators);
    dycl_free(seen);
    return status;
}

static dycl_status add_saved(dycl_region *region, const dycl_track_node *n, uint32_t *count) {
    dycl_status status = DYCL_OK;
    for (uint32_t i = 0; i < n->saved_count && status == DYCL_OK; i++) status = add_output(region, n->saved[i], count);
    return status;
}

static dycl_status add_crossing(dycl_region *region, const dycl_tracked_flush *f, uint32_t *count) {
    dycl_status status = DYCL_OK;
    for (uint32_t v = 0; v < region->recorder.graph.value_count && status == DYCL_OK; v++)
        if (f->reach.crosses[v]) status = add_output(region, v, count);
    return status;
}

/* Each node is looked at for NaN in its backward pass, and for where it was made: torch makes them. */
static dycl_status unless_watched(void) {
    int watched = dycl_py_anomaly();
    if (watched < 0) return DYCL_ERROR;
    return watched ? dycl_error_bail("its gradients are torch's: anomaly mode is on") : DYCL_OK;
}

dycl_status dycl_track_prepare(dycl_region *region, uint32_t *count, dycl_tracked_flush **out) {
    const dycl_graph *graph = &region->recorder.graph;
    dycl_tracked_flush *f = *out = dycl_alloc_zero(sizeof *f);
    dycl_status status = f ? unless_watched() : no_memory();
    if (status == DYCL_OK) {
        f->wanted = *count;
        f->result = dycl_alloc_zero((graph->value_count + 1) * sizeof *f->result);
        if (!f->result || dycl_own_results_find(region, &f->own) != DYCL_OK) status = no_memory();
    }
    if (status == DYCL_OK && dycl_held_views_find(region, &f->held) != DYCL_OK) status = no_memory();
    if (status == DYCL_OK) {
        uint32_t results = number_results(region, f);
        if (dycl_reach_find(graph, region->tracked, f->result, results, &f->reach) != DYCL_OK) status = no_memory();
    }
    if (status == DYCL_OK) status = add_crossing(region, f, count);
    if (status == DYCL_OK) status = make_nodes(region, f);
    if (status == DYCL_OK && dycl_order_sources(region, f->nodes, f->count) != DYCL_OK)
        status = PyErr_Occurred() ? DYCL_ERROR : no_memory();
    uint32_t first = *count;
    for (uint32_t i = 0; status == DYCL_OK && i < f->count; i++) status = add_saved(region, &f->nodes[i], count);
    return status == DYCL_OK ? dycl_laid_outputs(region, first, *count) : status;
}

dycl_handle dycl_track_made(dycl_region *region, dycl_tracked_flush *f, const dycl_lazy *lazy) {
    dycl_handle own = lazy->own == DYCL_OWN_COPY ? dycl_own_results_tensor(&f->own, lazy->value) : NULL;
    if (own) return own;
    return dycl_held_views_of(&f->held, lazy) ? dycl_held_views_tensor(region, &f->held, lazy->value) : NULL;
}

dycl_handle dycl_track_tensor(dycl_region *region, uint32_t value) {
    dycl_tracked_flush *f = region->tracked_flush;
    dycl_handle known = f ? dycl_own_results_tensor(&f->own, value) : NULL;
    if (f && !known) known = dycl_held_views_tensor(region, &f->held, value);
    for (PyObject *o = known ? NULL : region->first; o; o = dycl_lazy_of(o)->next) {
        const dycl_lazy *lazy = dycl_lazy_of(o);
        if (lazy->epoch == region->epoch && lazy->value == value && lazy->real && !lazy->deferred) return lazy->real;
    }
    return known;
}

void dycl_track_share_saved(const dycl_region *region, const dycl_tracked_flush *f) {
    const dycl_graph *graph = &region->recorder.graph;
    for (PyObject *o = region->first; o; o = dycl_lazy_of(o)->next) {
        dycl_lazy *lazy = dycl_lazy_of(o);
        if (lazy->epoch != region->epoch) continue;
        for (uint32_t i = 0; i < f->count; i++)
            for (uint32_t k = 0; k < f->nodes[i].saved_count; k++)
                lazy->aliased |= f->nodes[i].saved[k] == graph->values[lazy->value].root;
    }
}

/* For stats and explain. */
static void note_history(const dycl_region *region, const dycl_tracked_flush *f, dycl_segment *segment) {
    const dycl_history *history = dycl_history_note(segment, f->nodes, f->count, f->wanted);
    dycl_site *site = region->site;
    if (!history) return;
    site->stats.nodes += history->nodes;
    if (site->saved_call != site->stats.calls) site->stats.saved_bytes = 0;
    site->saved_call = site->stats.calls;
    site->stats.saved_bytes += history->alone_bytes;
}

static int attach(dycl_region *region, dycl_tracked_flush *f, const dycl_track_node *n, PyObject *recording) {
    dycl_handle *held = f->held.count ? dycl_alloc((n->source_count + 1) * sizeof *held) : NULL; /* borrowed */
    int result = f->held.count && !held ? -1 : 0;
    if (result < 0) PyErr_NoMemory();
    for (uint32_t i = 0; held && i < n->source_count && result == 0; i++) {
        held[i] = dycl_held_views_tensor(region, &f->held, n->sources[i]);
        if (!held[i] && PyErr_Occurred()) result = -1;
    }
    const dycl_node_plan plan = {.results = n->results,
                                 .sources = n->sources,
                                 .saved = n->saved,
                                 .bare = n->bare,
                                 .copied = n->copied,
                                 .result_count = n->result_count,
                                 .source_count = n->source_count,
                                 .saved_count = n->saved_count,
                                 .own = &f->own,
                                 .source_handles = held,
                                 .once = n->once};
    if (result == 0) result = dycl_node_attach(region, recording, &plan);
    dycl_free(held);
    return result;
}

int dycl_track_finish(dycl_region *region, dycl_tracked_flush *f, dycl_segment *segment) {
    PyObject *recording = dycl_recording_new(region, segment);
    int result = recording ? dycl_own_results_make(region, &f->own) : -1;
    for (uint32_t i = 0; i < f->count && result == 0; i++) {
        result = dycl_held_views_make(region, &f->held, f->nodes[i].results[0]);
        if (result == 0) result = attach(region, f, &f->nodes[i], recording);
    }
    if (result == 0) note_history(region, f, segment);
    Py_XDECREF(recording);
    return result;
}
