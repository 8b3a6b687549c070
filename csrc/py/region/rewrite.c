/* Operators in place: the same object has another value. */
#include "py/region/grow.h"
#include "py/region/defer.h"
#include "py/region/region.h"
#include "py/region/replace.h"
#include "py/region/track.h"

int dycl_region_holds_alone(const dycl_region *region, PyObject *tensor) {
    const dycl_lazy *lazy = dycl_lazy_of(tensor);
    const dycl_graph *graph = &region->recorder.graph;
    if (graph->values[lazy->value].root != lazy->value || lazy->aliased) return 0;
    if (!lazy->real && graph->values[lazy->value].kind != DYCL_VALUE_NODE)
        return 0; /* detached from a tensor that others have */
    if (dycl_replace_has(region, lazy->value)) return 0;
    for (PyObject *o = region->first; o; o = dycl_lazy_of(o)->next) {
        const dycl_lazy *other = dycl_lazy_of(o);
        if (other != lazy && dycl_region_looks_at(region, other, lazy->value)) return 0;
    }
    return 1;
}

int dycl_region_may_write(dycl_region *region, PyObject *tensor) {
    dycl_lazy *lazy = dycl_lazy_of(tensor);
    region->recorder.why = DYCL_BAIL_alias;
    if (lazy->deferred && dycl_defer_recall(region) < 0) return 0;
    if (lazy->aliased) return 0;
    if (region->may_track && dycl_region_needs_gradient(tensor)) return 0;
    if (lazy->epoch != region->epoch) return 1; /* computed, not shared, and nothing in this segment looks at it */
    return dycl_region_holds_alone(region, tensor) &&
           !dycl_track_keeps(region, lazy->value, region->recorder.graph.node_count);
}

/* Kept beside the object, because a view of it may outlive it. */
static dycl_status note_version(dycl_region *region, uint32_t value, uint32_t version) {
    if (region->written_count &&
        region->written[region->written_count - 1].value == value) { /* the same operator wrote more than once */
        region->written[region->written_count - 1].version = version;
        return DYCL_OK;
    }
    DYCL_GROW(region->written, region->written_room, region->written_count + 1);
    region->written[region->written_count++] = (dycl_written){value, version};
    return DYCL_OK;
}

int dycl_region_count_writes(dycl_region *region, PyObject *tensor, uint32_t writes) {
    if (!dycl_is_lazy(tensor)) { /* replaced (replace.h) */
        dycl_abi_add_version(dycl_abi_impl(tensor), writes);
        return 0;
    }
    dycl_lazy *lazy = dycl_lazy_of(tensor);
    lazy->writes += writes;
    return note_version(region, region->recorder.graph.values[lazy->value].root, lazy->writes) == DYCL_OK ? 0 : -1;
}

int dycl_region_rebind(dycl_region *region, PyObject *tensor, uint32_t value) {
    dycl_lazy *lazy = dycl_lazy_of(tensor);
    dycl_handle old = lazy->real;
    uint32_t version = (old ? dycl_abi_version(dycl_abi_handle_impl(old)) : lazy->writes) + 1;
    if (note_version(region, value, version) != DYCL_OK) return -1;
    lazy->real = NULL;
    lazy->value = value;
    lazy->epoch = region->epoch;
    lazy->writes = version;
    lazy->called = 0; /* the caller knows what was called, and goes on with the value */
    if (old &&
        (dycl_abi_has_autograd_meta(dycl_abi_handle_impl(old)) || dycl_abi_storage_foreign(dycl_abi_handle_impl(old))))
        dycl_region_let_go(region, NULL, old); /* may run Python code */
    else
        dycl_abi_delete(old);
    return 0;
}

/* A tensor and its views count together, whichever of them is written. NULL: none was yet. */
static dycl_written *written_of(const dycl_region *region, uint32_t root) {
    for (uint32_t i = region->written_count; i-- > 0;)
        if (region->written[i].value == root) return &region->written[i];
    return NULL;
}

int dycl_region_rebind_views(dycl_region *region, uint32_t root, uint32_t made, const uint32_t *values) {
    const dycl_written *before = written_of(region, root);
    uint32_t version = (before ? before->version : 0) + 1;
    if (note_version(region, made, version) != DYCL_OK) return -1;
    for (PyObject *o = region->first; o; o = dycl_lazy_of(o)->next) {
        dycl_lazy *lazy = dycl_lazy_of(o);
        if (!dycl_region_looks_at(region, lazy, root)) continue;
        lazy->value = *values++;
        lazy->writes = version;
        lazy->called = 0;
    }
    return 0;
}

int dycl_region_count_view_writes(dycl_region *region, uint32_t root) {
    dycl_written *before = written_of(region, root);
    uint32_t version = before ? ++before->version : 1;
    if (!before && note_version(region, root, version) != DYCL_OK) return -1;
    for (PyObject *o = region->first; o; o = dycl_lazy_of(o)->next)
        if (dycl_region_looks_at(region, dycl_lazy_of(o), root)) dycl_lazy_of(o)->writes = version;
    return 0;
}

int dycl_region_replace(dycl_region *region, PyObject *tensor, dycl_handle made) {
    dycl_handle real = dycl_abi_copy_handle(made);
    if (!real) {
        PyErr_NoMemory();
        return -1;
    }
    if (!dycl_is_lazy(tensor) ||
        dycl_lazy_of(tensor)->region != region) { /* another thread made it plain while torch drew */
        PyObject *from = dycl_abi_wrap(real);
        int state = dycl_abi_torch_function_off();
        PyObject *done = from ? PyObject_CallMethod(tensor, "copy_", "O", from) : NULL;
        dycl_abi_torch_function_restore(state);
        Py_XDECREF(from);
        Py_XDECREF(done);
        dycl_abi_delete(real);
        return done ? 0 : -1;
    }
    dycl_lazy *lazy = dycl_lazy_of(tensor);
    dycl_handle old = lazy->real;
    if (lazy->own == DYCL_OWN_VIEW) {
        dycl_tensor_view v;
        dycl_handle view = dycl_abi_read(real, &v)
                               ? dycl_abi_view(real, v.rank, v.sizes, v.strides, dycl_abi_storage_offset(real))
                               : NULL;
        dycl_abi_delete(real);
        if (!(real = view)) return -1;
    }
    dycl_abi_add_version(dycl_abi_handle_impl(real), old ? dycl_abi_version(dycl_abi_handle_impl(old)) : lazy->writes);
    lazy->real = real;
    lazy->value = 0;
    lazy->epoch = 0;
    lazy->writes = 0;
    lazy->aliased = 0;
    lazy->own &= DYCL_OWN_VIEW;
    dycl_abi_delete(old);
    return 0;
}
