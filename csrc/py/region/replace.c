#include "py/region/replace.h"

#include <string.h>

#include "base/alloc.h"
#include "exec/tile/in_place.h"
#include "ir/infer.h"
#include "kern/kern.h"
#include "py/memory/foreign.h"
#include "py/region/grow.h"
#include "py/site/site.h"

/* ---- Which feeds share a storage */

static uint32_t slot_of(uint64_t storage, uint32_t room) {
    return (uint32_t)((storage * UINT64_C(0x9e3779b97f4a7c15)) >> 40) & (room - 1);
}

static dycl_fed_storage *find(const dycl_region *region, uint64_t storage) { /* its entry, or the free one */
    uint32_t at = slot_of(storage, region->storage_room);
    while (region->storages[at].epoch == region->epoch && region->storages[at].storage != storage)
        at = (at + 1) & (region->storage_room - 1);
    return &region->storages[at];
}

static dycl_status grow(dycl_region *region) {
    dycl_fed_storage *old = region->storages;
    uint32_t old_room = region->storage_room, room = old_room ? 2 * old_room : 256;
    dycl_fed_storage *next = dycl_alloc_zero(room * sizeof *next);
    if (!next) {
        PyErr_NoMemory();
        return DYCL_ERROR;
    }
    region->storages = next;
    region->storage_room = room;
    for (uint32_t i = 0; i < old_room; i++)
        if (old[i].epoch == region->epoch) *find(region, old[i].storage) = old[i];
    dycl_free(old);
    return DYCL_OK;
}

static const char *impl_of(const dycl_region *region, uint32_t feed) {
    return dycl_abi_handle_impl(dycl_source_handle(&region->sources[feed]));
}

static void range_of(const dycl_region *region, uint32_t feed, const char **first, const char **last) {
    const dycl_value *v = &region->recorder.graph.values[region->recorder.graph.feeds[feed]];
    *first = region->feeds[feed].data;
    *last = *first + (int64_t)dycl_value_bytes(v);
}

static int overlap(const dycl_region *region, uint32_t a, uint32_t b) {
    const char *from[2], *to[2];
    range_of(region, a, &from[0], &to[0]);
    range_of(region, b, &from[1], &to[1]);
    return from[0] < to[1] && from[1] < to[0];
}

static int is_replaced(const dycl_region *region, uint32_t feed) {
    for (uint32_t i = 0; i < region->replaced_count; i++)
        if (region->replaced[i].feed == feed) return 1;
    return 0;
}

int dycl_replace_fed(dycl_region *region, uint32_t feed) {
    if (2 * (region->recorder.graph.feed_count + 1) > region->storage_room && grow(region) != DYCL_OK) return -1;
    uint64_t storage = dycl_abi_storage(impl_of(region, feed));
    dycl_fed_storage *entry = find(region, storage);
    if (entry->epoch != region->epoch) {
        *entry = (dycl_fed_storage){storage, region->epoch, 1};
        return 0;
    }
    entry->count++;
    for (uint32_t i = 0; i < feed; i++)
        if (dycl_abi_storage(impl_of(region, i)) == storage && overlap(region, i, feed) && is_replaced(region, i))
            return 1;
    return 0;
}

int dycl_replace_reads(const dycl_region *region, uint64_t storage) {
    return region->storage_room && find(region, storage)->epoch == region->epoch;
}

int dycl_replace_awaited(const dycl_region *region, PyObject *tensor) {
    return region->replaced_count && !dycl_is_lazy(tensor) &&
           dycl_replace_reads(region, dycl_abi_storage(dycl_abi_impl(tensor)));
}

int dycl_replace_settle(dycl_region *region, PyObject *tensor) {
    return dycl_replace_awaited(region, tensor) ? dycl_region_flush(region, DYCL_BAIL_fetch) : 0;
}

/* ---- Replacing */

/* Whether another feed, or a lazy tensor, would have to see the new value. */
static int is_shared(const dycl_region *region, uint32_t feed, uint32_t value) {
    const dycl_graph *graph = &region->recorder.graph;
    uint64_t storage = dycl_abi_storage(impl_of(region, feed));
    if (find(region, storage)->count > 1)
        for (uint32_t i = 0; i < graph->feed_count; i++)
            if (i != feed && dycl_abi_storage(impl_of(region, i)) == storage && overlap(region, i, feed)) return 1;
    for (PyObject *o = region->first; o; o = dycl_lazy_of(o)->next) {
        const dycl_lazy *lazy = dycl_lazy_of(o);
        if (lazy->real && dycl_abi_storage(dycl_abi_handle_impl(lazy->real)) == storage) return 1;
        if (lazy->epoch != region->epoch || lazy->real) continue;
        uint32_t root = graph->values[lazy->value].root;
        if (root == value || root == graph->feeds[feed]) return 1;
    }
    return 0;
}

static int fits(const dycl_value *feed, const dycl_value *value, uint32_t v) {
    int same =
        value->dtype == feed->dtype && value->rank == feed->rank && value->root == v && value->kind == DYCL_VALUE_NODE;
    for (int i = 0; same && i < feed->rank; i++)
        same = value->sizes[i] == feed->sizes[i] && value->strides[i] == feed->strides[i]; /* views take them over */
    return same;
}

static int may_be_written(const dycl_region *region, PyObject *tensor) {
    const PyTypeObject *type = Py_TYPE(tensor);
    if (type != dycl_py.tensor_type && type != dycl_py.parameter_type && type != dycl_py.buffer_type) return 0;
    const char *impl = dycl_abi_impl(tensor);
    return !region->deferred && !dycl_abi_is_inference(impl) && !dycl_abi_dispatch_inference(&region->dispatch) &&
           !dycl_foreign_is(impl, tensor);
}

static dycl_replaced *entry_of(const dycl_region *region, uint32_t value) { /* whose value it is; most were last */
    for (uint32_t i = region->replaced_count; i-- > 0;)
        if (region->replaced[i].value == value) return &region->replaced[i];
    return NULL;
}

int dycl_replace_has(const dycl_region *region, uint32_t value) { return entry_of(region, value) != NULL; }

/* A plain tensor that may get another value, which looks like `like` (NONE: it is not recorded yet): its feed, and the
 * entry that it has already, or NULL. */
static dycl_status may_replace(dycl_region *region, PyObject *tensor, uint32_t like, uint32_t *out_feed,
                               dycl_replaced **out_entry) {
    const dycl_graph *graph = &region->recorder.graph;
    uint32_t old;
    dycl_status status;
    DYCL_TRY(dycl_region_feed_object(region, tensor, &old));
    dycl_replaced *entry = graph->values[old].kind == DYCL_VALUE_NODE ? entry_of(region, old) : NULL;
    uint32_t feed = entry ? entry->feed : graph->values[old].source;
    const dycl_value *fed = &graph->values[graph->feeds[feed]];
    int suits = like == DYCL_NONE || fits(fed, &graph->values[like], like);
    if (!suits || !dycl_value_dense(fed) || is_shared(region, feed, old))
        return dycl_build_bail(&region->recorder, DYCL_BAIL_alias);
    *out_feed = feed;
    *out_entry = entry;
fail:
    return status;
}

static dycl_status replace(dycl_region *region, PyObject *tensor, uint32_t value) {
    uint32_t feed;
    dycl_replaced *entry;
    dycl_status status;
    DYCL_TRY(may_replace(region, tensor, value, &feed, &entry));
    if (!entry) {
        DYCL_GROW(region->replaced, region->replaced_room, region->replaced_count + 1);
        entry = &region->replaced[region->replaced_count++];
        entry->feed = feed;
    }
    entry->value = value;
    dycl_region_refeed(region, tensor, value);
fail:
    return status;
}

static int answer_of(dycl_status status) { return status == DYCL_OK ? 1 : status == DYCL_BAIL ? 0 : -1; }

int dycl_replace_value(dycl_region *region, PyObject *tensor, uint32_t value) {
    dycl_status status;
    region->recorder.why = DYCL_BAIL_alias;
    if (!region->replaces || dycl_abi_grad_enabled() || !may_be_written(region, tensor)) return 0;
    DYCL_TRY(replace(region, tensor, value));
    dycl_abi_add_version(dycl_abi_impl(tensor), 1);
    region->site->stats.recorded++;
fail:
    return answer_of(status);
}

/* From now on the segment's feeds are noted by their storages. */
static int note_feeds(dycl_region *region) {
    if (dycl_replace_notes(region)) return 0;
    for (uint32_t i = 0; i < region->recorder.graph.feed_count; i++)
        if (dycl_replace_fed(region, i) < 0) return -1;
    region->unseen = 1;
    return 0;
}

int dycl_replace_unseen(dycl_region *region, int count, PyObject *const *tensors, const uint32_t *values) {
    uint32_t feed;
    dycl_replaced *entry;
    dycl_status status = DYCL_OK;
    if (!values && note_feeds(region) < 0) return -1;
    for (int i = 0; i < count; i++) {
        region->recorder.why = DYCL_BAIL_alias;
        if (!may_be_written(region, tensors[i]) || dycl_region_needs_gradient(tensors[i]) != 0)
            return PyErr_Occurred() ? -1 : 0;
        DYCL_TRY(values ? replace(region, tensors[i], values[i])
                        : may_replace(region, tensors[i], DYCL_NONE, &feed, &entry));
    }
fail:
    return answer_of(status);
}

/* ---- The flush */

void dycl_replace_collect(dycl_region *region) {
    for (uint32_t i = 0; i < region->replaced_count; i++) {
        region->outputs[i] = region->replaced[i].value;
        region->output_of[region->replaced[i].value] = i + 1;
        region->replaced_feeds[i] = region->replaced[i].feed;
    }
}

int dycl_replace_bind(dycl_region *region) {
    for (uint32_t i = 0; i < region->replaced_count; i++) {
        uint32_t feed = region->replaced[i].feed;
        region->handles[i] = dycl_abi_copy_handle(dycl_abi_borrow(region->sources[feed].object));
        if (!region->handles[i]) {
            while (i-- > 0) dycl_abi_delete(region->handles[i]);
            PyErr_NoMemory();
            return -1;
        }
        region->addresses[i] = (void *)(uintptr_t)region->feeds[feed].data;
    }
    return 0;
}

static size_t bytes_of(const dycl_region *region, uint32_t i) {
    const dycl_value *v = &region->recorder.graph.values[region->replaced[i].value];
    return dycl_value_bytes(v);
}

static dycl_status run_at(const dycl_region *region, dycl_plan *plan, dycl_pieces *pieces, void *const *addresses) {
    if (pieces) return dycl_pieces_run(pieces, region->feeds, region->recorder.scalars, addresses);
    return dycl_plan_run(plan, region->feeds, region->recorder.scalars, addresses);
}

static dycl_status run_beside(const dycl_region *region, dycl_plan *plan, dycl_pieces *pieces) {
    uint32_t count = region->replaced_count;
    size_t total = 0;
    for (uint32_t i = 0; i < count; i++) total += (bytes_of(region, i) + 63) & ~(size_t)63;
    char *block = dycl_aligned_alloc(total + 64);
    if (!block) return dycl_error_set("out of memory for %zu bytes", total);
    char *at = block;
    for (uint32_t i = 0; i < count; i++) {
        region->addresses[i] = at;
        at += (bytes_of(region, i) + 63) & ~(size_t)63;
    }
    dycl_status status = run_at(region, plan, pieces, region->addresses);
    for (uint32_t i = 0; i < count; i++) {
        void *place = (void *)(uintptr_t)region->feeds[region->replaced[i].feed].data;
        size_t bytes = bytes_of(region, i);
        if (status == DYCL_OK && bytes) memcpy(place, region->addresses[i], bytes); /* no bytes: maybe no address */
        region->addresses[i] = place;
    }
    dycl_aligned_free(block);
    return status;
}

int dycl_replace_in_place(const dycl_region *region, dycl_plan *plan) {
    uint32_t count = region->replaced_count;
    return !count || (plan && dycl_plan_in_place(plan, region->replaced_feeds, count));
}

dycl_status dycl_replace_run(const dycl_region *region, dycl_plan *plan, dycl_pieces *pieces, int in_place) {
    return in_place ? run_at(region, plan, pieces, region->addresses) : run_beside(region, plan, pieces);
}

int dycl_replace_replayed(dycl_region *region) {
    for (uint32_t i = 0; i < region->replaced_count; i++) {
        dycl_tensor_view from, to;
        dycl_handle made = region->handles[i];
        region->handles[i] = dycl_abi_copy_handle(dycl_abi_borrow(region->sources[region->replaced[i].feed].object));
        int known = region->handles[i] && dycl_abi_read(made, &from) && dycl_abi_read(region->handles[i], &to);
        if (known)
            dycl_kern_copy(to.data, to.strides, from.data, from.strides, to.sizes, to.rank, dycl_dtype_size(to.dtype));
        dycl_abi_delete(made);
        if (known) continue;
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}
