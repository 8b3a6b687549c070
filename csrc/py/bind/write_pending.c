#include "py/bind/write_pending.h"

#include <string.h>

#include "ir/infer.h"
#include "py/bind/write_through.h"
#include "py/region/replace.h"
#include "py/region/track.h"

/* Each of them is bound anew at each write: not the rows of an unbind, one after the other. */
#define MOST_MEMBERS 8

/* Where in a tensor's memory something lies: elements from the root's first. */
typedef struct {
    uint32_t root;
    int rank;
    int64_t offset;
    const int64_t *sizes, *strides;
} place;

static place place_of(const dycl_value *v, int64_t offset) {
    return (place){v->root, v->rank, v->offset + offset, v->sizes, v->strides};
}

/* As torch sees it, which compares strides of dimensions of size 1, too. */
static int is_same(const place *a, const place *b) {
    size_t bytes = (size_t)a->rank * sizeof *a->sizes;
    return a->root == b->root && a->offset == b->offset && a->rank == b->rank &&
           memcmp(a->sizes, b->sizes, bytes) == 0 && memcmp(a->strides, b->strides, bytes) == 0;
}

/* The number of elements that lie `stride` apart, and how far those reach that lie closer. */
static int64_t count_at(const place *p, int64_t stride, int64_t *reach) {
    int64_t count = 1;
    *reach = 0;
    for (int i = 0; i < p->rank; i++) {
        if (p->sizes[i] > 1 && p->strides[i] == stride) count *= p->sizes[i];
        if (p->sizes[i] > 1 && p->strides[i] < stride) *reach += (p->sizes[i] - 1) * p->strides[i];
    }
    return count;
}

/* The longest stride of either that is shorter than `than`; 0: none is. */
static int64_t next_stride(const place *a, const place *b, int64_t than) {
    int64_t best = 0;
    for (int i = 0; i < a->rank; i++)
        if (a->sizes[i] > 1 && a->strides[i] < than && a->strides[i] > best) best = a->strides[i];
    for (int i = 0; i < b->rank; i++)
        if (b->sizes[i] > 1 && b->strides[i] < than && b->strides[i] > best) best = b->strides[i];
    return best;
}

/* Whether it is plain that the two have no element in common: stride by stride, from the longest, they lie in blocks of
 * that length, and in different ones. */
static int are_disjoint(const place *a, const place *b) {
    int64_t at[2] = {a->offset, b->offset};
    for (int64_t stride = next_stride(a, b, INT64_MAX); stride; stride = next_stride(a, b, stride)) {
        int64_t reach[2], count[2] = {count_at(a, stride, &reach[0]), count_at(b, stride, &reach[1])};
        int64_t block[2] = {at[0] / stride, at[1] / stride};
        for (int i = 0; i < 2; i++) {
            at[i] %= stride;
            if (at[i] + reach[i] >= stride) return 0;
        }
        if (block[0] + count[0] <= block[1] || block[1] + count[1] <= block[0]) return 1;
    }
    return at[0] != at[1];
}

static const dycl_lazy *pending(const dycl_region *region, PyObject *o) {
    if (!dycl_is_lazy(o)) return NULL;
    const dycl_lazy *lazy = dycl_lazy_of(o);
    return lazy->region == region && lazy->epoch == region->epoch && !lazy->deferred ? lazy : NULL;
}

/* torch refuses operands that overlap in part with what is written, or leaves open what comes of it. */
static int overlaps(const dycl_call *call, PyObject *o, PyObject *self, const place *target) {
    if (o == self || !dycl_is_tensor(o)) return 0;
    const dycl_lazy *lazy = pending(call->region, o);
    if (!lazy) return 0; /* its memory is its own: nothing else has that of what is pending */
    const dycl_value *v = dycl_call_meta(call, lazy->value);
    place other = place_of(v, 0);
    return v->root == target->root && !is_same(&other, target) && dycl_value_numel(v) > 0 &&
           !are_disjoint(&other, target);
}

/* One of them, or one of a list of them, overlaps. */
static int any_overlaps(const dycl_call *call, PyObject *o, PyObject *self, const place *target) {
    int is_list = PyList_Check(o);
    if (!is_list && !PyTuple_Check(o)) return overlaps(call, o, self, target);
    for (Py_ssize_t i = 0; i < Py_SIZE(o); i++)
        if (overlaps(call, is_list ? PyList_GET_ITEM(o, i) : PyTuple_GET_ITEM(o, i), self, target)) return 1;
    return 0;
}

static int an_operand_overlaps(const dycl_call *call, PyObject *self, const place *target) {
    Py_ssize_t named = call->kwnames ? PyTuple_GET_SIZE(call->kwnames) : 0, at = 0;
    PyObject *value;
    for (Py_ssize_t i = 0; i < call->count + named; i++)
        if (any_overlaps(call, call->args[i], self, target)) return 1;
    while (call->kwdict && PyDict_Next(call->kwdict, &at, NULL, &value))
        if (any_overlaps(call, value, self, target)) return 1;
    return 0;
}

/* Not where too many tensors look at the root's memory, or one of them is more than a view of it. */
static int may_bind_members(const dycl_region *region, uint32_t root) {
    const dycl_value *values = region->recorder.graph.values;
    uint32_t count = 0;
    for (PyObject *o = region->first; o; o = dycl_lazy_of(o)->next) {
        const dycl_lazy *lazy = dycl_lazy_of(o);
        if (!dycl_region_looks_at(region, lazy, root)) continue;
        if (lazy->real || lazy->deferred || lazy->aliased || (lazy->own & ~DYCL_OWN_VIEW) || lazy->alias ||
            values[lazy->value].dtype != values[root].dtype)
            return 0;
        if (++count > MOST_MEMBERS) return 0;
    }
    return 1;
}

/* The root with the value at that place. It lies as the root does, or there is none: 0. */
static dycl_status put(dycl_recorder *r, const place *target, uint32_t value, uint32_t *out) {
    dycl_status status =
        dycl_build_view_put(r, target->root, value, target->offset, target->rank, target->sizes, target->strides, out);
    if (status != DYCL_OK) return status;
    const dycl_value *before = &r->graph.values[target->root], *made = &r->graph.values[*out];
    size_t bytes = before->rank * sizeof *before->strides;
    if (made->rank != before->rank || memcmp(made->sizes, before->sizes, bytes) != 0 ||
        memcmp(made->strides, before->strides, bytes) != 0)
        return dycl_build_bail(r, DYCL_BAIL_layout);
    return DYCL_OK;
}

/* What each member is bound to: the new root, or the same view of it. */
static dycl_status view_again(dycl_region *region, uint32_t root, uint32_t made, uint32_t *values) {
    dycl_recorder *r = &region->recorder;
    dycl_status status = DYCL_OK;
    int noted = r->made_view;
    uint32_t i = 0;
    for (PyObject *o = region->first; o && status == DYCL_OK; o = dycl_lazy_of(o)->next) {
        const dycl_lazy *lazy = dycl_lazy_of(o);
        if (!dycl_region_looks_at(region, lazy, root)) continue;
        const dycl_value v = r->graph.values[lazy->value]; /* the graph may move */
        values[i] = made;
        if (lazy->value != root) status = dycl_build_view(r, made, v.offset, v.rank, v.sizes, v.strides, &values[i]);
        i++;
    }
    r->made_view = noted; /* the call's result is none of these */
    return status;
}

static int rebind(dycl_region *region, const place *target, uint32_t value) {
    uint32_t made, values[MOST_MEMBERS];
    dycl_status status = put(&region->recorder, target, value, &made);
    if (status == DYCL_OK) status = view_again(region, target->root, made, values);
    if (status == DYCL_OK) return dycl_region_rebind_views(region, target->root, made, values) < 0 ? -1 : 1;
    if (status == DYCL_ERROR && !PyErr_Occurred()) dycl_py_raise();
    return status == DYCL_ERROR ? -1 : 0;
}

/* 1; 0: its memory is another's, or torch has a word to say (operands that overlap, a history); -1 with an exception.
 */
static int write_pending(dycl_call *call, PyObject *self, const dycl_value *part, int64_t offset, uint32_t value) {
    dycl_region *region = call->region;
    const dycl_value *values = region->recorder.graph.values, *v = &values[value];
    const dycl_lazy *lazy = pending(region, self);
    region->recorder.why = DYCL_BAIL_alias;
    if (!lazy || region->tracks || dycl_track_writes(region, self, value)) return 0;
    const dycl_value own = values[lazy->value], whole = part ? *part : own, *root = &values[own.root];
    place target = place_of(&own, offset);
    target.rank = whole.rank;
    target.sizes = whole.sizes;
    target.strides = whole.strides;
    if (root->kind != DYCL_VALUE_NODE || dycl_replace_has(region, own.root) || own.dtype != root->dtype ||
        v->dtype != own.dtype || v->rank != whole.rank ||
        memcmp(v->sizes, whole.sizes, v->rank * sizeof *v->sizes) != 0 || dycl_value_overlaps(&whole) ||
        dycl_value_numel(&whole) == 0 || an_operand_overlaps(call, self, &target))
        return 0;
    if (!may_bind_members(region, own.root)) return 0;
    place from = place_of(v, 0);
    if (v->root == own.root) /* x[a:b] += y writes it, and then puts it where it is */
        return is_same(&from, &target) ? (dycl_region_count_view_writes(region, own.root) < 0 ? -1 : 1) : 0;
    return rebind(region, &target, value);
}

PyObject *dycl_write_shared(dycl_call *call, PyObject *self, const dycl_value *part, int64_t offset, uint32_t value,
                            int64_t most) {
    int small = !most || dycl_value_numel(dycl_call_meta(call, value)) <= most;
    int done = small ? write_pending(call, self, part, offset, value) : 0;
    if (done == 0) return dycl_write_value(call, self, part, offset, value, most);
    if (done < 0) return NULL;
    call->region->site->stats.recorded++;
    return Py_NewRef(self);
}
