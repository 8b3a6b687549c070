/* Integer tensors as indices: what their elements lie between. */
#include "kern/kern.h"
#include "py/bind/index.h"

typedef struct {
    int64_t low, high;     /* low > high: of no element */
    const int64_t *except; /* an element that does not count, or NULL */
    int excepted;
} extent;

static inline void take_in(extent *e, int64_t x) {
    if (e->except && x == *e->except) {
        e->excepted = 1;
        return;
    }
    if (x < e->low) e->low = x;
    if (x > e->high) e->high = x;
}

static void take_in_row(const dycl_value *v, const void *data, int64_t count, int64_t stride, void *context) {
    const int64_t *wide = data;
    const int32_t *narrow = data;
    extent *e = context;
    if (v->dtype == DYCL_I64 && stride == 1 && !e->except) {
        dycl_kern_extent(wide, (size_t)count, &e->low, &e->high);
        return;
    }
    if (v->dtype == DYCL_I64)
        for (int64_t i = 0; i < count; i++) take_in(context, wide[i * stride]);
    else
        for (int64_t i = 0; i < count; i++) take_in(context, narrow[i * stride]);
}

static void each_row(const dycl_value *v, const char *data, int dim, dycl_row_look look, void *context) {
    int64_t width = (int64_t)dycl_dtype_size((dycl_dtype)v->dtype);
    if (dim < v->rank - 1) {
        int64_t steps =
            v->strides[dim] ? v->sizes[dim] : (v->sizes[dim] > 0); /* an expanded dimension repeats itself */
        for (int64_t i = 0; i < steps; i++) each_row(v, data + i * v->strides[dim] * width, dim + 1, look, context);
        return;
    }
    int64_t count = v->rank ? v->sizes[dim] : 1, stride = v->rank ? v->strides[dim] : 1;
    look(v, data, v->rank && stride == 0 && count ? 1 : count, stride, context);
}

void dycl_region_each_row(const dycl_region *region, uint32_t feed, dycl_row_look look, void *context) {
    const dycl_value *v = &region->recorder.graph.values[feed];
    const char *data = region->feeds[region->recorder.graph.values[v->root].source].data;
    each_row(v, data + v->offset * (int64_t)dycl_dtype_size((dycl_dtype)v->dtype), 0, look, context);
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

static void scan_feed(const dycl_region *region, uint32_t value, extent *e) {
    *e = (extent){INT64_MAX, INT64_MIN, e->except, 0};
    dycl_region_each_row(region, value, take_in_row, e);
}

static int is_feed(const dycl_graph *g, uint32_t value) {
    return g->values[g->values[value].root].kind == DYCL_VALUE_FEED;
}

dycl_status dycl_region_computed(dycl_region *region, PyObject *tensor, uint32_t *out_value) {
    dycl_recorder *r = &region->recorder;
    dycl_status status = dycl_region_value(region, tensor, out_value);
    if (status != DYCL_OK || is_feed(&r->graph, *out_value)) return status;
    if (dycl_region_fetch(tensor, DYCL_BAIL_index) < 0) return DYCL_ERROR;
    status = dycl_region_value(region, tensor, out_value);
    if (status != DYCL_OK || is_feed(&r->graph, *out_value)) return status;
    return dycl_build_bail(r, DYCL_BAIL_index);
}

/* What the elements lie between; of one element the caller wants the value. */
static dycl_status look_at(dycl_region *region, PyObject *tensor, uint32_t *out_value, extent *e) {
    dycl_recorder *r = &region->recorder;
    const dycl_value *v = &r->graph.values[*out_value];
    uint32_t source = source_of(&r->graph, *out_value);
    if (source != DYCL_NONE) scan_feed(region, source, e);
    if (source != DYCL_NONE && (v->rank > 0 || e->low >= e->high)) return DYCL_OK;
    dycl_status status = dycl_region_computed(region, tensor, out_value);
    if (status != DYCL_OK) return status;
    scan_feed(region, *out_value, e);
    return DYCL_OK;
}

static dycl_status index_value(dycl_region *region, PyObject *tensor, uint32_t *out_value, int *out_empty) {
    dycl_status status = dycl_region_value(region, tensor, out_value);
    if (status != DYCL_OK) return status;
    const dycl_value *v = &region->recorder.graph.values[*out_value];
    *out_empty = dycl_value_numel(v) == 0;
    return v->dtype == DYCL_I64 || v->dtype == DYCL_I32 ? DYCL_OK : dycl_build_bail(&region->recorder, DYCL_BAIL_dtype);
}

dycl_status dycl_region_index(dycl_region *region, PyObject *tensor, uint32_t *out_value, int64_t out_bounds[2]) {
    dycl_recorder *r = &region->recorder;
    extent e = {INT64_MAX, INT64_MIN, NULL, 0};
    int empty;
    dycl_status status = index_value(region, tensor, out_value, &empty);
    out_bounds[0] = e.low;
    out_bounds[1] = e.high;
    if (status != DYCL_OK || empty) return status;
    if (dycl_recorder_bounded(r, *out_value) &&
        (r->graph.values[*out_value].rank > 0 || r->ranges[*out_value][0] == r->ranges[*out_value][1])) {
        memcpy(out_bounds, r->ranges[*out_value], 2 * sizeof *out_bounds);
        return DYCL_OK;
    }
    status = look_at(region, tensor, out_value, &e);
    if (status != DYCL_OK) return status;
    out_bounds[0] = e.low;
    out_bounds[1] = e.high;
    dycl_recorder_bound(r, *out_value, e.low, e.high); /* nobody writes to a feed before the segment has run */
    return DYCL_OK;
}

dycl_status dycl_region_index_but(dycl_region *region, PyObject *tensor, int64_t except, uint32_t *out_value,
                                  int64_t out_bounds[2], int *out_excepted) {
    extent e = {INT64_MAX, INT64_MIN, &except, 0};
    int empty;
    dycl_status status = index_value(region, tensor, out_value, &empty);
    if (status == DYCL_OK && !empty) status = look_at(region, tensor, out_value, &e);
    out_bounds[0] = e.low;
    out_bounds[1] = e.high;
    *out_excepted = e.excepted;
    return status;
}

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
