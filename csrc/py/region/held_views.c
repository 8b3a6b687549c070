#include "py/region/held_views.h"

#include "base/alloc.h"
#include "py/region/called.h"
#include "py/region/segment.h"
#include "py/region/track.h"

/* By value: an operator with a history reads it. */
static uint8_t *find_read(const dycl_region *region) {
    const dycl_graph *graph = &region->recorder.graph;
    uint8_t *read = dycl_alloc_zero(graph->value_count + 1);
    for (uint32_t n = 0; read && n < graph->node_count; n++) {
        const dycl_node *node = &graph->nodes[n];
        const uint32_t *operands = dycl_node_operands(graph, node);
        for (int i = 0; i < node->operand_count; i++)
            if (operands[i] != DYCL_NONE && region->tracked[node->out]) read[operands[i]] = 1;
    }
    return read;
}

static int suits(const dycl_region *region, const dycl_lazy *lazy) {
    const dycl_graph *graph = &region->recorder.graph;
    if (lazy->real || lazy->deferred || lazy->epoch != region->epoch || !dycl_track_has(region, lazy->value)) return 0;
    uint32_t root = graph->values[lazy->value].root;
    int of_node = graph->values[root].kind == DYCL_VALUE_NODE;
    if (lazy->own == DYCL_OWN_VIEW) return of_node;
    return root != lazy->value && lazy->own != DYCL_OWN_ALIAS && !(lazy->own == DYCL_OWN_COPY && of_node);
}

dycl_status dycl_held_views_find(const dycl_region *region, dycl_held_views *out) {
    uint32_t values = region->recorder.graph.value_count;
    uint8_t *read = NULL;
    *out = (dycl_held_views){0};
    for (PyObject *o = region->first; o; o = dycl_lazy_of(o)->next) {
        const dycl_lazy *lazy = dycl_lazy_of(o);
        if (!suits(region, lazy)) continue;
        if (!read) {
            read = find_read(region);
            out->place = dycl_alloc_zero((values + 1) * sizeof *out->place);
            out->views = dycl_alloc_zero((region->living + 1) * sizeof *out->views);
            if (!read || !out->place || !out->views) break;
            out->values = values;
        }
        if (!read[lazy->value] || out->place[lazy->value]) continue;
        out->views[out->count++] = (struct dycl_held_view){Py_NewRef(o), lazy->value, NULL};
        out->place[lazy->value] = out->count;
    }
    int failed = (read || out->views || out->place) && !(read && out->views && out->place);
    dycl_free(read);
    return failed ? dycl_error_set("out of memory for views with a history") : DYCL_OK;
}

void dycl_held_views_free(dycl_region *region, dycl_held_views *h) {
    for (uint32_t i = 0; i < h->count; i++) {
        dycl_region_let_go(region, NULL, h->views[i].tensor);
        dycl_region_let_go(region, h->views[i].object, NULL);
    }
    dycl_free(h->views);
    dycl_free(h->place);
    *h = (dycl_held_views){0};
}

static struct dycl_held_view *find(const dycl_held_views *h, uint32_t value) {
    return value < h->values && h->place[value] ? &h->views[h->place[value] - 1] : NULL;
}

int dycl_held_views_has(const dycl_held_views *h, uint32_t value) { return find(h, value) != NULL; }

int dycl_held_views_of(const dycl_held_views *h, const dycl_lazy *lazy) {
    const struct dycl_held_view *view = find(h, lazy->value);
    return view && dycl_lazy_of(view->object) == lazy;
}

int dycl_held_views_make(dycl_region *region, dycl_held_views *h, uint32_t before) {
    for (; h->made < before && h->made < h->values; h->made++)
        if (h->place[h->made] && !dycl_held_views_tensor(region, h, h->made)) return -1;
    return 0;
}

dycl_handle dycl_held_views_tensor(dycl_region *region, dycl_held_views *h, uint32_t value) {
    struct dycl_held_view *view = find(h, value);
    if (view && !view->tensor) {
        dycl_handle base = dycl_segment_base(region, region->recorder.graph.values[value].root);
        view->tensor = dycl_called_view_or_strided(region, dycl_lazy_of(view->object), base);
        if (!view->tensor && !PyErr_Occurred()) PyErr_NoMemory();
    }
    return view ? view->tensor : NULL;
}
