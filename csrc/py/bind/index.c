/* Indexing and gathering. */
#include "py/bind/index.h"

#include <string.h>

#include "ir/infer.h"
#include "py/bind/bind.h"
#include "py/bind/view.h"

/* ---- Index tensors */

static void scan_i64(const int64_t *data, int64_t count, int64_t stride, int64_t bounds[2]) {
    for (int64_t i = 0; i < count; i++) {
        int64_t x = data[i * stride];
        if (x < bounds[0]) bounds[0] = x;
        if (x > bounds[1]) bounds[1] = x;
    }
}

static void scan_i32(const int32_t *data, int64_t count, int64_t stride, int64_t bounds[2]) {
    for (int64_t i = 0; i < count; i++) {
        int64_t x = data[i * stride];
        if (x < bounds[0]) bounds[0] = x;
        if (x > bounds[1]) bounds[1] = x;
    }
}

static void scan(const dycl_value *v, const char *data, int dim, int64_t bounds[2]) {
    size_t width = dycl_dtype_size((dycl_dtype)v->dtype);
    if (dim < v->rank - 1) {
        int64_t steps =
            v->strides[dim] ? v->sizes[dim] : (v->sizes[dim] > 0); /* an expanded dimension repeats itself */
        for (int64_t i = 0; i < steps; i++) scan(v, data + i * v->strides[dim] * (int64_t)width, dim + 1, bounds);
        return;
    }
    int64_t count = v->rank ? v->sizes[dim] : 1, stride = v->rank ? v->strides[dim] : 1;
    if (v->rank && stride == 0 && count) count = 1;
    if (v->dtype == DYCL_I64)
        scan_i64((const int64_t *)(const void *)data, count, stride, bounds);
    else
        scan_i32((const int32_t *)(const void *)data, count, stride, bounds);
}

#define MOST_SCANNED 65536 /* elements that are looked at, for a selection of them, instead of ending the segment */

/* A feed, or a view of one, that has all elements of a value which is made of copies and selections: bounds are known
 * without computing it. DYCL_NONE: there is none. */
static uint32_t source_of(const dycl_graph *g, uint32_t value) {
    for (;;) {
        const dycl_value *root = &g->values[g->values[value].root];
        if (root->kind == DYCL_VALUE_FEED) return value;
        if (root->kind != DYCL_VALUE_NODE) return DYCL_NONE;
        const dycl_node *node = &g->nodes[root->source];
        int selects = node->op == DYCL_OP_gather || node->op == DYCL_OP_index_select;
        if (!selects && node->op != DYCL_OP_contiguous) return DYCL_NONE;
        value = dycl_node_operands(g, node)[0];
        if (selects && dycl_value_numel(&g->values[value]) > MOST_SCANNED) return DYCL_NONE;
    }
}

static void scan_feed(const dycl_region *region, uint32_t value, int64_t bounds[2]) {
    const dycl_value *v = &region->recorder.graph.values[value];
    const char *data = region->feeds[region->recorder.graph.values[v->root].source].data;
    bounds[0] = INT64_MAX;
    bounds[1] = INT64_MIN;
    scan(v, data + v->offset * (int64_t)dycl_dtype_size((dycl_dtype)v->dtype), 0, bounds);
}

dycl_status dycl_region_index(dycl_region *region, PyObject *tensor, uint32_t *out_value, int64_t out_bounds[2]) {
    dycl_recorder *r = &region->recorder;
    dycl_status status = dycl_region_value(region, tensor, out_value);
    if (status != DYCL_OK) return status;
    const dycl_value *v = &r->graph.values[*out_value];
    if (v->dtype != DYCL_I64 && v->dtype != DYCL_I32) return dycl_build_bail(r, DYCL_BAIL_dtype);
    out_bounds[0] = INT64_MAX;
    out_bounds[1] = INT64_MIN;
    if (dycl_value_numel(v) == 0) return DYCL_OK;
    if (dycl_recorder_bounded(r, *out_value) &&
        (v->rank > 0 ||
         r->ranges[*out_value][0] == r->ranges[*out_value][1])) { /* of one element the caller wants the value */
        memcpy(out_bounds, r->ranges[*out_value], 2 * sizeof *out_bounds);
        return DYCL_OK;
    }
    uint32_t source = source_of(&r->graph, *out_value);
    if (source != DYCL_NONE) scan_feed(region, source, out_bounds);
    if (source == DYCL_NONE || (v->rank == 0 && out_bounds[0] != out_bounds[1])) { /* has to be computed */
        if (dycl_region_fetch(tensor, DYCL_BAIL_index) < 0) return DYCL_ERROR;
        status = dycl_region_value(region, tensor, out_value);
        if (status != DYCL_OK) return status;
        if (r->graph.values[r->graph.values[*out_value].root].kind != DYCL_VALUE_FEED)
            return dycl_build_bail(r, DYCL_BAIL_index);
        scan_feed(region, *out_value, out_bounds);
    }
    dycl_recorder_bound(r, *out_value, out_bounds[0],
                        out_bounds[1]); /* nobody writes to a feed before the segment has run */
    return DYCL_OK;
}

static dycl_status index_of(dycl_call *call, PyObject *o, uint32_t *out_value, int64_t out_bounds[2]) {
    if (!o || !dycl_is_tensor(o)) return dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
    return dycl_region_index(call->region, o, out_value, out_bounds);
}

/* ---- Gathering by one tensor */

static PyObject *index_select(dycl_call *call, const dycl_binding *row) {
    uint32_t operands[2], out = 0;
    int64_t bounds[2], attr;
    int dim;
    (void)row;
    DYCL_CALL_TRY(index_of(call, call->p[2], &operands[1], bounds));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &operands[0]));
    const dycl_value *v = dycl_call_meta(call, operands[0]);
    if (v->rank == 0 || dycl_call_meta(call, operands[1])->rank != 1) return dycl_call_bail(call, DYCL_BAIL_shape);
    DYCL_CALL_TRY(dycl_call_dim(call, call->p[1], v->rank, &dim));
    if (!dycl_index_within(bounds, v->sizes[dim])) return dycl_call_bail(call, DYCL_BAIL_index);
    attr = dim;
    return dycl_call_finish(
        call, dycl_build_node(&call->region->recorder, DYCL_OP_index_select, 2, operands, 1, &attr, &out), out);
}

static PyObject *gather(dycl_call *call, const dycl_binding *row) {
    uint32_t operands[2], out = 0;
    int64_t bounds[2], attr;
    int dim;
    (void)row;
    if (dycl_call_given(call->p[3]) && call->p[3] != Py_False) return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(index_of(call, call->p[2], &operands[1], bounds));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &operands[0]));
    const dycl_value *v = dycl_call_meta(call, operands[0]);
    if (v->rank == 0) return dycl_call_bail(call, DYCL_BAIL_shape);
    DYCL_CALL_TRY(dycl_call_dim(call, call->p[1], v->rank, &dim));
    if (!dycl_index_within(bounds, v->sizes[dim])) return dycl_call_bail(call, DYCL_BAIL_index);
    attr = dim;
    DYCL_CALL_TRY(dycl_build_cast(&call->region->recorder, operands[1], DYCL_I64, &operands[1]));
    return dycl_call_finish(call, dycl_build_node(&call->region->recorder, DYCL_OP_gather, 2, operands, 1, &attr, &out),
                            out);
}

/* Both sides broadcast to each other except along the dimension, then gather. */
static PyObject *take_along_dim(dycl_call *call, const dycl_binding *row) {
    uint32_t operands[2], out = 0;
    int64_t bounds[2], attr, wide[2][DYCL_MAX_RANK];
    int dim;
    dycl_recorder *r = &call->region->recorder;
    (void)row;
    if (!dycl_call_given(call->p[2])) return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(index_of(call, call->p[1], &operands[1], bounds));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &operands[0]));
    dycl_value v = *dycl_call_meta(call, operands[0]), index = *dycl_call_meta(call, operands[1]);
    if (v.rank == 0 || v.rank != index.rank) return dycl_call_bail(call, DYCL_BAIL_shape);
    DYCL_CALL_TRY(dycl_call_dim(call, call->p[2], v.rank, &dim));
    if (!dycl_index_within(bounds, v.sizes[dim])) return dycl_call_bail(call, DYCL_BAIL_index);
    for (int d = 0; d < v.rank; d++) {
        int64_t size = v.sizes[d] == 1 ? index.sizes[d] : v.sizes[d];
        if (d != dim && index.sizes[d] != 1 && index.sizes[d] != size) return dycl_call_bail(call, DYCL_BAIL_shape);
        wide[0][d] = d == dim ? v.sizes[d] : size;
        wide[1][d] = d == dim ? index.sizes[d] : size;
    }
    if (memcmp(wide[0], v.sizes, (size_t)v.rank * sizeof **wide))
        DYCL_CALL_TRY(dycl_build_expand(r, operands[0], v.rank, wide[0], &operands[0]));
    if (memcmp(wide[1], index.sizes, (size_t)v.rank * sizeof **wide))
        DYCL_CALL_TRY(dycl_build_expand(r, operands[1], v.rank, wide[1], &operands[1]));
    attr = dim;
    return dycl_call_finish(call, dycl_build_node(r, DYCL_OP_gather, 2, operands, 1, &attr, &out), out);
}

/* padding_idx, scale_grad_by_freq and sparse only concern gradients. flags: parameter of the last two */
static PyObject *embed(dycl_call *call, PyObject *weight, PyObject *index, PyObject *padding, int check_padding,
                       int flags) {
    uint32_t operands[2], out = 0;
    int64_t bounds[2], pad;
    for (int i = flags; i < flags + 2; i++)
        if (call->p[i] && !PyBool_Check(call->p[i])) return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(index_of(call, index, &operands[1], bounds));
    DYCL_CALL_TRY(dycl_call_value(call, weight, &operands[0]));
    const dycl_value *v = dycl_call_meta(call, operands[0]);
    if (v->rank != 2) return dycl_call_bail(call, DYCL_BAIL_shape);
    DYCL_CALL_TRY(dycl_call_int_or(call, padding, 0, &pad));
    if (check_padding && dycl_call_given(padding) && (pad < -v->sizes[0] || pad >= v->sizes[0]))
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (!dycl_index_within(bounds, v->sizes[0])) return dycl_call_bail(call, DYCL_BAIL_index);
    return dycl_call_finish(
        call, dycl_build_node(&call->region->recorder, DYCL_OP_embedding, 2, operands, 0, NULL, &out), out);
}

static PyObject *functional_embedding(dycl_call *call, const dycl_binding *row) {
    (void)row;
    if (dycl_call_given(call->p[3]))
        return dycl_call_bail(call, DYCL_BAIL_arguments); /* max_norm renormalises the weight in place */
    return embed(call, call->p[1], call->p[0], call->p[2], 1, 5);
}

static PyObject *embedding(dycl_call *call, const dycl_binding *row) {
    (void)row;
    if (call->p[2] == Py_None) return dycl_call_bail(call, DYCL_BAIL_arguments);
    return embed(call, call->p[0], call->p[1], call->p[2], 0, 3);
}

/* one_hot(tensor, num_classes): where each index stands among all, when none is out of range */
static PyObject *one_hot(dycl_call *call, const dycl_binding *row) {
    uint32_t x, ends[2], classes, out = 0;
    int64_t bounds[2], count;
    dycl_recorder *r = &call->region->recorder;
    dycl_operand start = dycl_operand_i64(0), step = dycl_operand_i64(1);
    (void)row;
    DYCL_CALL_TRY(dycl_call_int(call, call->p[1], &count));
    DYCL_CALL_TRY(index_of(call, call->p[0], &x, bounds));
    const dycl_value *v = dycl_call_meta(call, x);
    if (v->dtype != DYCL_I64) return dycl_call_bail(call, DYCL_BAIL_dtype);
    if (v->rank == DYCL_MAX_RANK || dycl_value_numel(v) == 0 || !dycl_value_contiguous(v))
        return dycl_call_bail(call, DYCL_BAIL_shape);
    if (count < 1 || !dycl_index_within(bounds, count)) return dycl_call_bail(call, DYCL_BAIL_index);
    DYCL_CALL_TRY(dycl_build_unsqueeze(r, x, v->rank, &x));
    DYCL_CALL_TRY(dycl_build_convert(r, &start, DYCL_I64, &ends[0]));
    DYCL_CALL_TRY(dycl_build_convert(r, &step, DYCL_I64, &ends[1]));
    DYCL_CALL_TRY(dycl_build_node(r, DYCL_OP_iota, 2, ends, 1, &count, &classes));
    dycl_operand sides[2] = {dycl_operand_of(x), dycl_operand_of(classes)};
    DYCL_CALL_TRY(dycl_build_ew(r, DYCL_OP_eq, DYCL_PROMOTE_COMMON, 2, sides, &out));
    DYCL_CALL_TRY(dycl_build_cast(r, out, DYCL_I64, &out));
    int64_t plain[DYCL_MAX_RANK];
    dycl_strides_contiguous(meta(call, out)->rank, meta(call, out)->sizes, plain);
    return dycl_call_written(call, dycl_call_finish(call, dycl_build_dense(r, out, plain, &out), out),
                             2); /* torch: zeros, then scatter_ */
}

/* ---- x[...] */

typedef dycl_index_cursor cursor;

dycl_status dycl_index_integer(dycl_call *call, cursor *c, int64_t index) {
    if (c->dim >= c->rank || index < -c->sizes[c->dim] || index >= c->sizes[c->dim])
        return dycl_build_bail(&call->region->recorder, DYCL_BAIL_index);
    if (index < 0) index += c->sizes[c->dim];
    c->offset += index * c->strides[c->dim];
    for (int i = c->dim; i + 1 < c->rank; i++) {
        c->sizes[i] = c->sizes[i + 1];
        c->strides[i] = c->strides[i + 1];
    }
    c->rank--;
    return DYCL_OK;
}

static int is_bound(PyObject *o) { return o == Py_None || PyLong_CheckExact(o); }

dycl_status dycl_index_slice(dycl_call *call, cursor *c, PyObject *o) {
    const PySliceObject *slice = (const PySliceObject *)o;
    Py_ssize_t start, stop, step;
    dycl_recorder *r = &call->region->recorder;
    if (c->dim >= c->rank) return dycl_build_bail(r, DYCL_BAIL_shape);
    if (!is_bound(slice->start) || !is_bound(slice->stop) || !is_bound(slice->step))
        return dycl_build_bail(r, DYCL_BAIL_arguments);
    if (PySlice_Unpack(o, &start, &stop, &step) < 0) {
        PyErr_Clear();
        return dycl_build_bail(r, DYCL_BAIL_arguments);
    }
    if (step < 1) return dycl_build_bail(r, DYCL_BAIL_arguments);
    int64_t size = c->sizes[c->dim], first = start, last = stop;
    if (first < 0) first = first + size < 0 ? 0 : first + size;
    if (first > size) first = size;
    if (last < 0) last += size;
    if (last < first) last = first;
    if (last > size) last = size;
    c->offset += first * c->strides[c->dim];
    c->sizes[c->dim] = last > first ? (last - first - 1) / step + 1 : 0;
    c->strides[c->dim] *= step;
    c->dim++;
    return DYCL_OK;
}

dycl_status dycl_index_none(dycl_call *call, cursor *c) {
    if (c->rank == DYCL_MAX_RANK) return dycl_build_bail(&call->region->recorder, DYCL_BAIL_rank);
    for (int i = c->rank; i > c->dim; i--) {
        c->sizes[i] = c->sizes[i - 1];
        c->strides[i] = c->strides[i - 1];
    }
    c->strides[c->dim] = c->dim < c->rank ? c->sizes[c->dim + 1] * c->strides[c->dim + 1] : 1;
    c->sizes[c->dim] = 1;
    c->rank++;
    c->dim++;
    return DYCL_OK;
}

#define MOST_INDICES 24

dycl_status dycl_index_from_start(dycl_call *call, uint32_t index, const int64_t bounds[2], int64_t size,
                                  uint32_t *out) {
    dycl_recorder *r = &call->region->recorder;
    dycl_status status;
    *out = index;
    if (bounds[0] > bounds[1] || (bounds[0] >= 0 && bounds[1] < size)) return DYCL_OK;
    if (bounds[0] < -size || bounds[1] >= size) return dycl_build_bail(r, DYCL_BAIL_index);
    dycl_operand zero[2] = {dycl_operand_of(index), dycl_operand_i64(0)},
                 back[2] = {dycl_operand_of(index), dycl_operand_i64(size)}, sides[3];
    for (int i = 0; i < 3; i++) sides[i] = dycl_operand_of(index);
    DYCL_TRY(dycl_build_ew(r, DYCL_OP_lt, DYCL_PROMOTE_COMMON, 2, zero, &sides[0].value));
    DYCL_TRY(dycl_build_ew(r, DYCL_OP_add, DYCL_PROMOTE_COMMON, 2, back, &sides[1].value));
    DYCL_TRY(dycl_build_where(r, &sides[0], &sides[1], &sides[2], out));
fail:
    return status;
}

#define MOST_INDEX_TENSORS 4

typedef struct {
    int count, dim;                        /* dim: of the first; the others follow it */
    PyObject *tensors[MOST_INDEX_TENSORS]; /* borrowed */
    uint32_t values[MOST_INDEX_TENSORS];
    int64_t bounds[MOST_INDEX_TENSORS][2];
} index_set;

dycl_status dycl_index_values(dycl_call *call, int count, PyObject *const *tensors, int most_rounds, uint32_t *values,
                              int64_t (*bounds)[2]) {
    uint64_t epoch;
    int rounds = 0;
    do {
        epoch = call->region->epoch;
        for (int i = 0; i < count; i++) {
            dycl_status status =
                tensors[i] ? dycl_region_index(call->region, tensors[i], &values[i], bounds[i]) : DYCL_OK;
            if (status != DYCL_OK) return status;
        }
    } while (epoch != call->region->epoch && rounds++ < most_rounds);
    return epoch == call->region->epoch ? DYCL_OK : dycl_build_bail(&call->region->recorder, DYCL_BAIL_index);
}

/* Whether torch's iterator gives x[i, j, ...] the ordinary strides (ATen/native/TensorAdvancedIndexing.cpp,
 * AdvancedIndex): its operands are x with strides of 0 at the dimensions with an index, and each index with dimensions
 * of 1 at the others. */
static int has_plain_strides(dycl_call *call, const dycl_value *v, const index_set *set, const dycl_value *rows) {
    dycl_value operands[1 + MOST_INDEX_TENSORS], out = {.rank = (uint8_t)(v->rank - set->count + rows->rank)};
    const dycl_value *pointers[1 + MOST_INDEX_TENSORS];
    int64_t plain[DYCL_MAX_RANK], shape[DYCL_MAX_RANK];
    int rank = 0;
    memset(operands, 0, sizeof operands);
    for (int i = 0; i < set->dim; i++, rank++) {
        operands[0].strides[rank] = v->strides[i];
        out.sizes[rank] = v->sizes[i];
    }
    for (int i = 0; i < rows->rank; i++, rank++) out.sizes[rank] = rows->sizes[i];
    for (int i = set->dim + set->count; i < v->rank; i++, rank++) {
        operands[0].strides[rank] = v->strides[i];
        out.sizes[rank] = v->sizes[i];
    }
    if (rank > 1 && dycl_value_numel(&out) == 0) return 0; /* strides of 0, whatever their order */
    for (int i = 0; i < rank; i++) shape[i] = i >= set->dim && i < set->dim + rows->rank ? out.sizes[i] : 1;
    memcpy(operands[0].sizes, out.sizes, sizeof out.sizes);
    operands[0].rank = out.rank;
    pointers[0] = &operands[0];
    for (int k = 0; k < set->count; k++) {
        const dycl_value *index = dycl_call_meta(call, set->values[k]);
        dycl_value wide = *rows, *operand = &operands[1 + k];
        for (int i = 0; i < rows->rank; i++) {
            int from = i - (rows->rank - index->rank);
            wide.strides[i] = from < 0 || (index->sizes[from] == 1 && rows->sizes[i] != 1) ? 0 : index->strides[from];
        }
        operand->rank = out.rank;
        memcpy(operand->sizes, shape, sizeof shape);
        if (!dycl_view_strides(&wide, out.rank, shape, operand->strides)) return 0;
        pointers[1 + k] = operand;
    }
    dycl_infer_iterator_strides(&out, 1 + set->count, pointers);
    dycl_strides_contiguous(out.rank, out.sizes, plain);
    return memcmp(plain, out.strides, (size_t)out.rank * sizeof *plain) == 0;
}

/* x[i, j, ...] for index tensors at consecutive dimensions: their common dimensions stand where those were. */
static PyObject *select_rows(dycl_call *call, uint32_t value, const index_set *set) {
    dycl_recorder *r = &call->region->recorder;
    dycl_value v = *dycl_call_meta(call, value);
    int64_t sizes[2 * DYCL_MAX_RANK], attr = set->dim, merged = 1;
    uint32_t operands[2] = {value, DYCL_NONE}, out = 0;
    int rank = 0, after = set->dim + set->count;
    for (int i = 0; i < set->count; i++) {
        int64_t size = v.sizes[set->dim + i];
        uint32_t index;
        DYCL_CALL_TRY(dycl_index_from_start(call, set->values[i], set->bounds[i], size, &index));
        merged *= size;
        if (i == 0) {
            operands[1] = index;
            continue;
        }
        dycl_operand row[2] = {dycl_operand_of(operands[1]), dycl_operand_i64(size)},
                     sum[2] = {dycl_operand_of(0), dycl_operand_of(index)};
        DYCL_CALL_TRY(dycl_build_cast(r, row[0].value, DYCL_I64, &row[0].value));
        DYCL_CALL_TRY(dycl_build_ew(r, DYCL_OP_mul, DYCL_PROMOTE_COMMON, 2, row, &sum[0].value));
        DYCL_CALL_TRY(dycl_build_ew(r, DYCL_OP_add, DYCL_PROMOTE_COMMON, 2, sum, &operands[1]));
    }
    dycl_value rows = *dycl_call_meta(call, operands[1]);
    int64_t count = dycl_value_numel(&rows);
    if (v.rank - set->count + rows.rank > DYCL_MAX_RANK || !has_plain_strides(call, &v, set, &rows))
        return dycl_call_bail(call, DYCL_BAIL_layout);
    if (set->count > 1) {
        for (int i = 0; i < set->dim; i++) sizes[rank++] = v.sizes[i];
        sizes[rank++] = merged;
        for (int i = after; i < v.rank; i++) sizes[rank++] = v.sizes[i];
        DYCL_CALL_TRY(dycl_build_reshape(r, operands[0], rank, sizes, 0, &operands[0]));
    }
    if (set->dim == 0)
        return dycl_call_finish(call, dycl_build_node(r, DYCL_OP_embedding, 2, operands, 0, NULL, &out), out);
    if (rows.rank != 1) DYCL_CALL_TRY(dycl_build_reshape(r, operands[1], 1, &count, 0, &operands[1]));
    DYCL_CALL_TRY(dycl_build_node(r, DYCL_OP_index_select, 2, operands, 1, &attr, &out));
    if (rows.rank == 1) return dycl_call_finish(call, DYCL_OK, out);
    rank = 0;
    for (int i = 0; i < set->dim; i++) sizes[rank++] = v.sizes[i];
    for (int i = 0; i < rows.rank; i++) sizes[rank++] = rows.sizes[i];
    for (int i = after; i < v.rank; i++) sizes[rank++] = v.sizes[i];
    return dycl_call_finish(call, dycl_build_reshape(r, out, rank, sizes, 1, &out), out);
}

/* The view that a key's slices, integers, None and Ellipsis make; an index tensor leaves its dimension, or is an
 * integer, too. */
static dycl_status walk(dycl_call *call, const dycl_value *v, PyObject *const *items, Py_ssize_t count, int specified,
                        int integers, index_set *set, cursor *c) {
    dycl_recorder *r = &call->region->recorder;
    dycl_status status;
    int ellipsis = 0, at = 0;
    if (specified > v->rank) return dycl_build_bail(r, DYCL_BAIL_index);
    *c = (cursor){.rank = v->rank};
    memcpy(c->sizes, v->sizes, sizeof c->sizes);
    memcpy(c->strides, v->strides, sizeof c->strides);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (items[i] == Py_None) {
            DYCL_TRY(dycl_index_none(call, c));
        } else if (items[i] == Py_Ellipsis) {
            if (ellipsis++) return dycl_build_bail(r, DYCL_BAIL_arguments);
            c->dim += v->rank - specified;
        } else if (PySlice_Check(items[i])) {
            DYCL_TRY(dycl_index_slice(call, c, items[i]));
        } else if (PyLong_CheckExact(items[i])) {
            int64_t index;
            DYCL_TRY(dycl_call_int(call, items[i], &index));
            DYCL_TRY(dycl_index_integer(call, c, index));
        } else if (integers) {
            DYCL_TRY(dycl_index_integer(call, c, set->bounds[at++][0]));
        } else {
            if (at++ == 0) set->dim = c->dim;
            c->dim++;
        }
    }
    return DYCL_OK;
fail:
    return status;
}

static int is_slot(PyObject *o) { return o == Py_None || o == Py_Ellipsis || PySlice_Check(o) || PyLong_CheckExact(o); }

static PyObject *simple(dycl_call *call) {
    PyObject *key = call->p[1], *const *items = &key;
    Py_ssize_t count = 1, last_tensor = -1;
    int specified = 0, integers = 1;
    uint32_t value, out = 0;
    dycl_recorder *r = &call->region->recorder;
    index_set set = {0};
    cursor c;
    if (!key) return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (PyTuple_CheckExact(key)) {
        items = ((PyTupleObject *)key)->ob_item;
        count = PyTuple_GET_SIZE(key);
    }
    if (count > MOST_INDICES) return dycl_call_bail(call, DYCL_BAIL_arguments);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (dycl_is_tensor(items[i])) {
            if (set.count == MOST_INDEX_TENSORS || (set.count && last_tensor != i - 1))
                return dycl_call_bail(call, DYCL_BAIL_arguments);
            set.tensors[set.count++] = items[i];
            last_tensor = i;
        } else if (!is_slot(items[i])) {
            return dycl_call_bail(call, DYCL_BAIL_arguments);
        }
        specified += items[i] != Py_None && items[i] != Py_Ellipsis;
    }
    if (set.count) {
        DYCL_CALL_TRY(dycl_index_values(call, set.count, set.tensors, MOST_INDEX_TENSORS, set.values,
                                        set.bounds)); /* first, because it may begin a new segment */
        integers = dycl_call_meta(call, set.values[0])->rank ==
                   0; /* a tensor of one integer is a plain index, of which a view is made */
        for (int i = 0; i < set.count; i++) {
            if ((dycl_call_meta(call, set.values[i])->rank == 0) != integers)
                return dycl_call_bail(call, DYCL_BAIL_arguments);
            if (integers && set.bounds[i][0] != set.bounds[i][1]) return dycl_call_bail(call, DYCL_BAIL_index);
        }
    }
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    DYCL_CALL_TRY(walk(call, dycl_call_meta(call, value), items, count, specified, integers, &set, &c));
    if (integers)
        return dycl_call_finish(call, dycl_build_view(r, value, c.offset, c.rank, c.sizes, c.strides, &out), out);
    if (count > set.count) DYCL_CALL_TRY(dycl_build_view(r, value, c.offset, c.rank, c.sizes, c.strides, &value));
    return select_rows(call, value, &set);
}

/* Forms of indices that the operators above do not have are torch's index operator, on a view. */
static PyObject *getitem(dycl_call *call, const dycl_binding *row) {
    PyObject *result = simple(call);
    if (result || PyErr_Occurred()) return result;
    dycl_bail why = call->region->recorder.why;
    if (!call->p[1] ||
        (why != DYCL_BAIL_arguments && why != DYCL_BAIL_dtype && why != DYCL_BAIL_layout && why != DYCL_BAIL_shape))
        return NULL;
    return dycl_index_advanced(call, row);
}

dycl_status dycl_index_view(dycl_call *call, PyObject *key, const dycl_value *v, int64_t *out_offset, dycl_value *out) {
    PyObject *const *items = &key;
    Py_ssize_t count = 1;
    int specified = 0;
    cursor c;
    if (PyTuple_CheckExact(key)) {
        items = ((PyTupleObject *)key)->ob_item;
        count = PyTuple_GET_SIZE(key);
    }
    if (count > MOST_INDICES) return dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!is_slot(items[i])) return dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
        specified += items[i] != Py_None && items[i] != Py_Ellipsis;
    }
    dycl_status status = walk(call, v, items, count, specified, 1, NULL, &c);
    if (status != DYCL_OK) return status;
    *out_offset = c.offset;
    memset(out, 0, sizeof *out);
    out->dtype = v->dtype;
    out->rank = (uint8_t)c.rank;
    memcpy(out->sizes, c.sizes, (size_t)c.rank * sizeof *c.sizes);
    memcpy(out->strides, c.strides, (size_t)c.rank * sizeof *c.strides);
    return DYCL_OK;
}

dycl_binding dycl_bindings_index[] = {
    ROW("getitem", D, "self key", getitem),
    ROW("index_select", T | M, "input dim index", index_select),
    ROW("gather", T | M, "input dim index | sparse_grad", gather),
    ROW("take_along_dim", T | M, "input indices dim", take_along_dim),
    ROW("one_hot", F | DYCL_AT_NN, "input num_classes", one_hot),
    ROW("embedding", F, "input weight padding_idx max_norm norm_type scale_grad_by_freq sparse", functional_embedding),
    ROW("embedding", T, "weight indices padding_idx scale_grad_by_freq sparse", embedding),
    {0},
};
