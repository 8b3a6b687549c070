#include "py/region/own_results.h"

#include "base/alloc.h"
#include "py/region/track.h"

dycl_status dycl_own_results_find(const dycl_region *region, dycl_own_results *out) {
    const dycl_graph *graph = &region->recorder.graph;
    out->values = dycl_alloc((region->living + 1) * sizeof *out->values);
    out->tensors = dycl_alloc_zero((region->living + 1) * sizeof *out->tensors);
    if (!out->values || !out->tensors) return dycl_error_set("out of memory for results that are views");
    for (PyObject *o = region->first; o; o = dycl_lazy_of(o)->next) {
        const dycl_lazy *lazy = dycl_lazy_of(o);
        if (lazy->real || lazy->epoch != region->epoch || lazy->own != DYCL_OWN_COPY) continue;
        const dycl_value *v = &graph->values[lazy->value];
        int known = v->root == lazy->value || graph->values[v->root].kind != DYCL_VALUE_NODE ||
                    dycl_own_results_has(out, lazy->value);
        if (!known && dycl_track_has(region, lazy->value)) out->values[out->count++] = lazy->value;
    }
    return DYCL_OK;
}

void dycl_own_results_free(dycl_own_results *o) {
    for (uint32_t i = 0; o->tensors && i < o->count; i++) dycl_abi_delete(o->tensors[i]);
    dycl_free(o->values);
    dycl_free(o->tensors);
    *o = (dycl_own_results){0};
}

static uint32_t find(const dycl_own_results *o, uint32_t value) {
    uint32_t i = 0;
    while (i < o->count && o->values[i] != value) i++;
    return i;
}

int dycl_own_results_has(const dycl_own_results *o, uint32_t value) { return find(o, value) < o->count; }

int dycl_own_results_hold(const dycl_region *region, const dycl_own_results *own, uint32_t root) {
    const dycl_graph *graph = &region->recorder.graph;
    for (PyObject *o = own->count ? region->first : NULL; o; o = dycl_lazy_of(o)->next) {
        const dycl_lazy *lazy = dycl_lazy_of(o);
        if (!lazy->real && lazy->epoch == region->epoch && graph->values[lazy->value].root == root &&
            !dycl_own_results_has(own, lazy->value))
            return 1;
    }
    return !own->count;
}

int dycl_own_results_make(const dycl_region *region, dycl_own_results *o) {
    const dycl_graph *graph = &region->recorder.graph;
    for (uint32_t i = 0; i < o->count; i++) {
        const dycl_value *v = &graph->values[o->values[i]];
        dycl_handle base = region->handles[region->output_of[v->root] - 1];
        dycl_handle view =
            dycl_abi_view(base, v->rank, v->sizes, v->strides, dycl_abi_storage_offset(base) + v->offset);
        o->tensors[i] = view ? dycl_abi_detach(view) : NULL;
        dycl_abi_delete(view);
        if (!o->tensors[i]) return -1;
    }
    return 0;
}

dycl_handle dycl_own_results_tensor(const dycl_own_results *o, uint32_t value) {
    uint32_t i = find(o, value);
    return i < o->count ? o->tensors[i] : NULL;
}
