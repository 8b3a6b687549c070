/* Views: aliases of a tensor with other sizes and strides. */
#include "py/bind/view.h"

#include <string.h>

#include "ir/infer.h"
#include "py/cpython/collect.h"
#include "py/bind/bind.h"
#include "py/region/alias.h"
#include "py/region/track.h"

/* A view under construction: what a chain of slices makes, as one node. */
typedef struct {
    uint32_t value;
    int rank;
    int64_t offset, sizes[DYCL_MAX_RANK + 1], strides[DYCL_MAX_RANK + 1];
} geometry;

static dycl_status geometry_of(dycl_call *call, PyObject *tensor, geometry *out) {
    dycl_status status = dycl_call_value(call, tensor, &out->value);
    if (status != DYCL_OK) return status;
    const dycl_value *v = dycl_call_meta(call, out->value);
    out->rank = v->rank;
    out->offset = 0;
    memcpy(out->sizes, v->sizes, sizeof v->sizes);
    memcpy(out->strides, v->strides, sizeof v->strides);
    return DYCL_OK;
}

static PyObject *finish(dycl_call *call, const geometry *g) {
    uint32_t out = 0;
    return dycl_call_finish(
        call, dycl_build_view(&call->region->recorder, g->value, g->offset, g->rank, g->sizes, g->strides, &out), out);
}

/* Views of an alias need no gradient, though what it aliases does: of what is computed, it is torch's own tensor. */
static PyObject *alias_of_computed(dycl_call *call, dycl_handle of) {
    dycl_tensor_view view;
    if (!dycl_abi_is_plain(dycl_abi_handle_impl(of)) || !dycl_abi_read(of, &view))
        return dycl_call_bail(call, DYCL_BAIL_alias);
    dycl_handle made = dycl_abi_detach(of);
    PyObject *result = made ? dycl_lazy_computed(call->region, view.dtype, made, 1) : NULL;
    dycl_abi_delete(made);
    return result || PyErr_Occurred() ? result : PyErr_NoMemory();
}

static PyObject *alias_of_value(dycl_call *call, uint32_t value) {
    PyObject *result = dycl_region_result(call->region, value);
    if (!result) return NULL;
    dycl_lazy_of(result)->own = DYCL_OWN_ALIAS;
    if (call->region->tracks && dycl_alias_note(call->region, dycl_lazy_of(result)) != DYCL_OK) Py_CLEAR(result);
    return result;
}

static PyObject *alias_of_tracked(dycl_call *call, PyObject *self) {
    geometry g;
    uint32_t out;
    if (!dycl_is_lazy(self)) return alias_of_computed(call, dycl_abi_borrow(self));
    dycl_lazy *lazy = dycl_lazy_of(self);
    if (lazy->region != call->region || lazy->deferred) return dycl_call_bail(call, DYCL_BAIL_alias);
    if (lazy->real) {
        lazy->aliased = 1;
        return alias_of_computed(call, lazy->real);
    }
    DYCL_CALL_TRY(geometry_of(call, self, &g));
    DYCL_CALL_TRY(dycl_build_view(&call->region->recorder, g.value, 0, g.rank, g.sizes, g.strides, &out));
    call->region->recorder.made_view = 0;
    if (!dycl_track_drop(call->region, out)) return dycl_call_bail(call, DYCL_BAIL_grad);
    return alias_of_value(call, out);
}

/* The same value under another object: not a view of it, as torch sees it. */
static PyObject *alias(dycl_call *call, const dycl_binding *row) {
    uint32_t value;
    (void)row;
    int tracked = call->p[0] && dycl_is_tensor(call->p[0]) ? dycl_region_needs_gradient(call->p[0]) : 0;
    if (tracked) return tracked < 0 ? NULL : alias_of_tracked(call, call->p[0]);
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    return alias_of_value(call, value);
}

static void drop(geometry *g, int dim) {
    for (int i = dim; i + 1 < g->rank; i++) {
        g->sizes[i] = g->sizes[i + 1];
        g->strides[i] = g->strides[i + 1];
    }
    g->rank--;
}

/* Reorders the dimensions: the i-th becomes what order[i] was. */
static void reorder(geometry *g, const int *order) {
    geometry old = *g;
    for (int i = 0; i < g->rank; i++) {
        g->sizes[i] = old.sizes[order[i]];
        g->strides[i] = old.strides[order[i]];
    }
}

/* ---- For getters and slots */

static PyObject *transposed(dycl_region *region, PyObject *self, int matrix) {
    dycl_recorder *r = &region->recorder;
    uint32_t value, out, first = r->graph.value_count;
    if (dycl_region_value(region, self, &value) != DYCL_OK) return NULL;
    int rank = r->graph.values[value].rank;
    if (matrix ? rank < 2 : rank != 2) {
        dycl_build_bail(r, DYCL_BAIL_shape);
        return NULL;
    }
    if (dycl_build_transpose(r, value, rank - 2, rank - 1, &out) != DYCL_OK) return NULL;
    if (!dycl_track_lets(region, first, 1)) {
        dycl_build_bail(r, DYCL_BAIL_grad);
        return NULL;
    }
    PyObject *result = dycl_region_result(region, out);
    if (result) dycl_lazy_made_of(result, self);
    const dycl_made_call made = {region->calling, &self, 1, NULL, NULL, DYCL_NONE, first};
    if (result) dycl_called_note(region, &made, result);
    return result;
}

PyObject *dycl_view_transposed(dycl_region *region, PyObject *self, int matrix) {
    dycl_collect_hold();
    PyObject *result = transposed(region, self, matrix);
    dycl_collect_release();
    if (result && dycl_region_settle(region) < 0) Py_CLEAR(result);
    return result;
}

/* ---- Other sizes */

static PyObject *reshape_to(dycl_call *call, uint32_t value, int rank, const int64_t *sizes, int only_view) {
    uint32_t out = 0;
    return dycl_call_finish(call, dycl_build_reshape(&call->region->recorder, value, rank, sizes, only_view, &out),
                            out);
}

static PyObject *view(dycl_call *call,
                      const dycl_binding *row) { /* op: 1 only a view; extra: 1 the sizes may be spread */
    uint32_t value;
    int rank;
    int64_t sizes[DYCL_MAX_RANK];
    DYCL_CALL_TRY(row->extra ? dycl_call_spread(call, 1, &rank, sizes)
                             : dycl_call_sequence(call, call->p[1], &rank, sizes));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    return reshape_to(call, value, rank, sizes, row->op);
}

static PyObject *view_as(dycl_call *call, const dycl_binding *row) {
    uint32_t value, other;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[1], &other));
    dycl_value like = *dycl_call_meta(call, other);
    return reshape_to(call, value, like.rank, like.sizes, row->op);
}

static PyObject *flatten(dycl_call *call, const dycl_binding *row) {
    uint32_t value;
    int first = 0, last, rank = 0;
    int64_t sizes[DYCL_MAX_RANK];
    (void)row;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    dycl_value v = *dycl_call_meta(call, value);
    last = v.rank ? v.rank - 1 : 0;
    if (call->p[1]) DYCL_CALL_TRY(dycl_call_dim(call, call->p[1], v.rank, &first));
    if (call->p[2]) DYCL_CALL_TRY(dycl_call_dim(call, call->p[2], v.rank, &last));
    if (first > last) return dycl_call_bail(call, DYCL_BAIL_shape);
    if (v.rank == 0) {
        sizes[0] = 1;
        return reshape_to(call, value, 1, sizes, 0);
    }
    if (first == last) return dycl_call_same(call, call->p[0]);
    for (int i = 0; i < first; i++) sizes[rank++] = v.sizes[i];
    sizes[rank] = 1;
    for (int i = first; i <= last; i++) sizes[rank] *= v.sizes[i];
    rank++;
    for (int i = last + 1; i < v.rank; i++) sizes[rank++] = v.sizes[i];
    return reshape_to(call, value, rank, sizes, 0);
}

static PyObject *ravel(dycl_call *call, const dycl_binding *row) { /* contiguous().view(-1) */
    uint32_t value;
    (void)row;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    int64_t numel = dycl_value_numel(dycl_call_meta(call, value));
    DYCL_CALL_TRY(dycl_build_contiguous(&call->region->recorder, value, &value));
    PyObject *result = reshape_to(call, value, 1, &numel, 1);
    if (result && dycl_is_lazy(result)) dycl_lazy_of(result)->own = 0; /* torch returns a view of the copy */
    return result;
}

static PyObject *unflatten(dycl_call *call, const dycl_binding *row) {
    uint32_t value;
    int dim, count, rank = 0, unknown = -1;
    int64_t parts[DYCL_MAX_RANK], sizes[2 * DYCL_MAX_RANK], known = 1;
    (void)row;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    dycl_value v = *dycl_call_meta(call, value);
    DYCL_CALL_TRY(dycl_call_dim(call, call->p[1], v.rank, &dim));
    DYCL_CALL_TRY(dycl_call_sequence(call, call->p[2], &count, parts));
    if (count == 0 || v.rank == 0 || v.rank + count - 1 > DYCL_MAX_RANK) return dycl_call_bail(call, DYCL_BAIL_shape);
    for (int i = 0; i < count; i++) {
        if (parts[i] >= 0) {
            known *= parts[i];
            continue;
        }
        if (parts[i] != -1 || unknown >= 0) return dycl_call_bail(call, DYCL_BAIL_shape);
        unknown = i;
    }
    if (unknown >= 0) {
        if (known == 0 || v.sizes[dim] % known) return dycl_call_bail(call, DYCL_BAIL_shape);
        parts[unknown] = v.sizes[dim] / known;
    } else if (known != v.sizes[dim]) {
        return dycl_call_bail(call, DYCL_BAIL_shape);
    }
    for (int i = 0; i < dim; i++) sizes[rank++] = v.sizes[i];
    for (int i = 0; i < count; i++) sizes[rank++] = parts[i];
    for (int i = dim + 1; i < v.rank; i++) sizes[rank++] = v.sizes[i];
    return reshape_to(call, value, rank, sizes, 1);
}

static PyObject *squeeze(dycl_call *call, const dycl_binding *row) {
    geometry g;
    uint32_t mask = UINT32_MAX;
    (void)row;
    DYCL_CALL_TRY(geometry_of(call, call->p[0], &g));
    if (call->p[1] && PyLong_CheckExact(call->p[1])) {
        int dim;
        DYCL_CALL_TRY(dycl_call_dim(call, call->p[1], g.rank, &dim));
        mask = UINT32_C(1) << dim;
    } else if (call->p[1]) {
        int64_t dims[DYCL_MAX_RANK];
        int count;
        DYCL_CALL_TRY(dycl_call_sequence(call, call->p[1], &count, dims));
        mask = 0;
        for (int i = 0; i < count; i++) {
            int64_t limit = g.rank ? g.rank : 1;
            if (dims[i] < -limit || dims[i] >= limit) return dycl_call_bail(call, DYCL_BAIL_shape);
            uint32_t bit = UINT32_C(1) << (dims[i] < 0 ? dims[i] + limit : dims[i]);
            if (mask & bit) return dycl_call_bail(call, DYCL_BAIL_shape); /* torch: a dimension twice */
            mask |= bit;
        }
    }
    const int rank = g.rank;
    for (int i = g.rank - 1; i >= 0; i--)
        if (mask >> i & 1 && g.sizes[i] == 1) drop(&g, i);
    dycl_call_back(call, g.rank == rank ? DYCL_BACK_SAME : DYCL_BACK_VIEW);
    return finish(call, &g);
}

static PyObject *unsqueeze(dycl_call *call, const dycl_binding *row) {
    uint32_t value, out = 0;
    int dim;
    (void)row;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    DYCL_CALL_TRY(dycl_call_dim(call, call->p[1], dycl_call_meta(call, value)->rank + 1, &dim));
    return dycl_call_finish(call, dycl_build_unsqueeze(&call->region->recorder, value, dim, &out), out);
}

/* torch sums over what was added, however small it is. */
static dycl_way_back expands_back(const dycl_value *v, int rank, const int64_t *sizes) {
    if (rank != v->rank) return DYCL_BACK_OWN;
    for (int i = 0; i < rank; i++)
        if (sizes[i] != -1 && sizes[i] != v->sizes[i]) return DYCL_BACK_OWN;
    return DYCL_BACK_SAME;
}

static PyObject *expand(dycl_call *call,
                        const dycl_binding *row) { /* extra: 1 spread, 0 a sequence, 2 the sizes of a tensor */
    uint32_t value, other, out = 0;
    int rank;
    int64_t sizes[DYCL_MAX_RANK];
    if (row->extra == 2) {
        DYCL_CALL_TRY(dycl_call_value(call, call->p[1], &other));
        rank = dycl_call_meta(call, other)->rank;
        memcpy(sizes, dycl_call_meta(call, other)->sizes, sizeof sizes);
    } else {
        DYCL_CALL_TRY(row->extra ? dycl_call_spread(call, 1, &rank, sizes)
                                 : dycl_call_sequence(call, call->p[1], &rank, sizes));
    }
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    dycl_call_back(call, expands_back(dycl_call_meta(call, value), rank, sizes));
    return dycl_call_finish(call, dycl_build_expand(&call->region->recorder, value, rank, sizes, &out), out);
}

/* ---- Other orders */

static PyObject *transpose(dycl_call *call, const dycl_binding *row) {
    uint32_t value, out = 0;
    int a, b;
    (void)row;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    int rank = dycl_call_meta(call, value)->rank;
    DYCL_CALL_TRY(dycl_call_dim(call, call->p[1], rank, &a));
    DYCL_CALL_TRY(dycl_call_dim(call, call->p[2], rank, &b));
    return dycl_call_finish(call, dycl_build_transpose(&call->region->recorder, value, a, b, &out), out);
}

static PyObject *t(dycl_call *call, const dycl_binding *row) {
    uint32_t value, out = 0;
    (void)row;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    int rank = dycl_call_meta(call, value)->rank;
    if (rank > 2) return dycl_call_bail(call, DYCL_BAIL_shape);
    return dycl_call_finish(call, dycl_build_transpose(&call->region->recorder, value, 0, rank == 2, &out), out);
}

static PyObject *adjoint(dycl_call *call, const dycl_binding *row) { /* of real numbers */
    (void)row;
    return call->p[0] ? dycl_view_transposed(call->region, call->p[0], 1) : dycl_call_bail(call, DYCL_BAIL_arguments);
}

static PyObject *permute(dycl_call *call, const dycl_binding *row) {
    geometry g;
    int count, order[DYCL_MAX_RANK];
    int64_t dims[DYCL_MAX_RANK];
    uint32_t seen = 0;
    DYCL_CALL_TRY(row->extra ? dycl_call_spread(call, 1, &count, dims)
                             : dycl_call_sequence(call, call->p[1], &count, dims));
    DYCL_CALL_TRY(geometry_of(call, call->p[0], &g));
    if (count != g.rank) return dycl_call_bail(call, DYCL_BAIL_shape);
    for (int i = 0; i < count; i++) {
        if (dims[i] < -g.rank || dims[i] >= g.rank) return dycl_call_bail(call, DYCL_BAIL_shape);
        order[i] = (int)(dims[i] < 0 ? dims[i] + g.rank : dims[i]);
        if (seen >> order[i] & 1) return dycl_call_bail(call, DYCL_BAIL_shape);
        seen |= UINT32_C(1) << order[i];
    }
    reorder(&g, order);
    return finish(call, &g);
}

static PyObject *movedim(dycl_call *call, const dycl_binding *row) {
    geometry g;
    int count[2], order[DYCL_MAX_RANK];
    int64_t dims[2][DYCL_MAX_RANK];
    uint32_t seen[2] = {0, 0};
    (void)row;
    DYCL_CALL_TRY(geometry_of(call, call->p[0], &g));
    for (int k = 0; k < 2; k++) {
        DYCL_CALL_TRY(dycl_call_ints(call, call->p[1 + k], DYCL_MAX_RANK, &count[k], dims[k]));
        for (int i = 0; i < count[k]; i++) {
            if (dims[k][i] < -g.rank || dims[k][i] >= g.rank) return dycl_call_bail(call, DYCL_BAIL_shape);
            if (dims[k][i] < 0) dims[k][i] += g.rank;
            if (seen[k] >> dims[k][i] & 1) return dycl_call_bail(call, DYCL_BAIL_shape);
            seen[k] |= UINT32_C(1) << dims[k][i];
        }
    }
    if (count[0] != count[1] || PyLong_Check(call->p[1]) != PyLong_Check(call->p[2]))
        return dycl_call_bail(call, DYCL_BAIL_shape);
    for (int i = 0; i < count[0]; i++) order[dims[1][i]] = (int)dims[0][i];
    for (int to = 0, from = 0; to < g.rank; to++) { /* the others keep their order */
        if (seen[1] >> to & 1) continue;
        while (seen[0] >> from & 1) from++;
        order[to] = from++;
    }
    reorder(&g, order);
    return finish(call, &g);
}

static PyObject *diagonal(dycl_call *call, const dycl_binding *row) {
    geometry g;
    int64_t offset;
    int a = 0, b = 1;
    (void)row;
    DYCL_CALL_TRY(geometry_of(call, call->p[0], &g));
    DYCL_CALL_TRY(dycl_call_int_or(call, call->p[1], 0, &offset));
    if (g.rank < 2) return dycl_call_bail(call, DYCL_BAIL_shape);
    if (call->p[2]) DYCL_CALL_TRY(dycl_call_dim(call, call->p[2], g.rank, &a));
    if (call->p[3]) DYCL_CALL_TRY(dycl_call_dim(call, call->p[3], g.rank, &b));
    if (a == b || offset < INT32_MIN || offset > INT32_MAX) return dycl_call_bail(call, DYCL_BAIL_shape);
    int64_t rows = g.sizes[a] + (offset < 0 ? offset : 0), columns = g.sizes[b] - (offset > 0 ? offset : 0);
    int64_t size = rows < columns ? rows : columns, stride = g.strides[a] + g.strides[b];
    if (size < 0) size = 0;
    if (size) g.offset = offset >= 0 ? offset * g.strides[b] : -offset * g.strides[a];
    drop(&g, a > b ? a : b);
    drop(&g, a > b ? b : a);
    g.sizes[g.rank] = size;
    g.strides[g.rank++] = stride;
    dycl_call_back(call, DYCL_BACK_OWN);
    return finish(call, &g);
}

/* ---- Parts */

static PyObject *narrow(dycl_call *call, const dycl_binding *row) {
    geometry g;
    int dim;
    int64_t start, length;
    (void)row;
    DYCL_CALL_TRY(geometry_of(call, call->p[0], &g));
    DYCL_CALL_TRY(dycl_call_dim(call, call->p[1], g.rank, &dim));
    DYCL_CALL_TRY(dycl_call_int(call, call->p[2], &start));
    DYCL_CALL_TRY(dycl_call_int(call, call->p[3], &length));
    if (g.rank == 0 || start < -g.sizes[dim] || start > g.sizes[dim]) return dycl_call_bail(call, DYCL_BAIL_shape);
    if (start < 0) start += g.sizes[dim];
    if (length < 0 || length > g.sizes[dim] - start) return dycl_call_bail(call, DYCL_BAIL_shape);
    g.offset = start * g.strides[dim];
    g.sizes[dim] = length;
    dycl_call_back(call, DYCL_BACK_OWN);
    return finish(call, &g);
}

static PyObject *select_one(dycl_call *call, const dycl_binding *row) {
    geometry g;
    int dim;
    int64_t index;
    (void)row;
    DYCL_CALL_TRY(geometry_of(call, call->p[0], &g));
    if (g.rank == 0) return dycl_call_bail(call, DYCL_BAIL_shape);
    DYCL_CALL_TRY(dycl_call_dim(call, call->p[1], g.rank, &dim));
    DYCL_CALL_TRY(dycl_call_int(call, call->p[2], &index));
    if (index < -g.sizes[dim] || index >= g.sizes[dim]) return dycl_call_bail(call, DYCL_BAIL_index);
    g.offset = (index < 0 ? index + g.sizes[dim] : index) * g.strides[dim];
    drop(&g, dim);
    dycl_call_back(call, DYCL_BACK_OWN);
    return finish(call, &g);
}

static PyObject *unfold(dycl_call *call, const dycl_binding *row) {
    geometry g;
    int dim;
    int64_t size, step;
    (void)row;
    DYCL_CALL_TRY(geometry_of(call, call->p[0], &g));
    if (g.rank == 0) return dycl_call_bail(call, DYCL_BAIL_shape);
    DYCL_CALL_TRY(dycl_call_dim(call, call->p[1], g.rank, &dim));
    DYCL_CALL_TRY(dycl_call_int(call, call->p[2], &size));
    DYCL_CALL_TRY(dycl_call_int(call, call->p[3], &step));
    if (size < 0 || size > g.sizes[dim] || step <= 0 || step > INT32_MAX) return dycl_call_bail(call, DYCL_BAIL_shape);
    const dycl_value *v = dycl_call_meta(call, g.value);
    const int steps = g.strides[dim] > 0, by_memory = v->canonical && !dycl_value_overlaps(v);
    g.sizes[g.rank] = size;
    g.strides[g.rank++] = g.strides[dim];
    g.sizes[dim] = (g.sizes[dim] - size) / step + 1;
    g.strides[dim] *= step;
    const int sums = !by_memory || (size > step && g.sizes[dim] > 1);
    dycl_call_back(call, steps && sums ? DYCL_BACK_UNFOLD : DYCL_BACK_OWN);
    return finish(call, &g);
}

dycl_binding dycl_bindings_view[] = {
    ROW("view", M, "self size " DYCL_SPREAD, view, 1, 1),
    ROW("reshape", M, "self shape " DYCL_SPREAD, view, 0, 1),
    ROW("reshape", T, "input shape", view, 0, 0),
    ROW("view_as", M, "self other", view_as, 1, 0),
    ROW("reshape_as", M, "self other", view_as, 0, 0),
    ROW("flatten", T | M, "input start_dim end_dim", flatten, 0, 0),
    ROW("ravel", T | M, "input", ravel, 0, 0),
    ROW("unflatten", T | M, "input dim sizes", unflatten, 0, 0),
    ROW("squeeze", T | M, "input dim", squeeze, 0, 0),
    ROW("unsqueeze", T | M, "input dim", unsqueeze, 0, 0),
    ROW("expand", M, "self size " DYCL_SPREAD, expand, 0, 1),
    ROW("expand_as", M, "self other", expand, 0, 2),
    ROW("broadcast_to", T, "input size", expand, 0, 0),
    ROW("broadcast_to", M, "self size " DYCL_SPREAD, expand, 0, 1),
    ROW("transpose", T | M, "input dim0 dim1", transpose, 0, 0),
    ROW("swapdims", T | M, "input dim0 dim1", transpose, 0, 0),
    ROW("swapaxes", T | M, "input axis0 axis1", transpose, 0, 0),
    ROW("t", T | M, "input", t, 0, 0),
    ROW("permute", M, "self dims " DYCL_SPREAD, permute, 0, 1),
    ROW("permute", T, "input dims", permute, 0, 0),
    ROW("adjoint", T | M, "input", adjoint, 0, 0),
    ROW("movedim", T | M, "input source destination", movedim, 0, 0),
    ROW("moveaxis", T | M, "input source destination", movedim, 0, 0),
    ROW("diagonal", T | M, "input offset dim1 dim2", diagonal, 0, 0),
    ROW("narrow", T | M, "input dim start length", narrow, 0, 0),
    ROW("select", T | M, "input dim index", select_one, 0, 0),
    ROW("unfold", M, "self dimension size step", unfold, 0, 0),
    ROW("detach", T | M, "input", alias, 0, 0),
    {0},
};
