/* torch.tensordot and torch.inner as one product of matrices, in the steps that torch takes (ATen/native/Linear.cpp):
 * the result is a view of the product. */
#include "py/bind/bind.h"
#include "py/bind/view.h"
#include "py/region/track.h"

typedef struct {
    uint32_t value;
    int count, dims[DYCL_MAX_RANK]; /* which are summed over */
} side;

static dycl_status read_side(dycl_call *call, PyObject *o, side *s) {
    dycl_status status = dycl_call_value(call, o, &s->value);
    if (status != DYCL_OK) return status;
    return dycl_value_numel(meta(call, s->value)) ? DYCL_OK : dycl_build_bail(&call->region->recorder, DYCL_BAIL_shape);
}

static dycl_status read_dims(dycl_call *call, PyObject *o, side *s) {
    dycl_recorder *r = &call->region->recorder;
    int64_t given[DYCL_MAX_RANK];
    int rank = meta(call, s->value)->rank;
    uint32_t seen = 0;
    dycl_status status = dycl_call_sequence(call, o, &s->count, given);
    for (int i = 0; i < s->count && status == DYCL_OK; i++) {
        if (given[i] < -rank || given[i] >= rank) return dycl_build_bail(r, DYCL_BAIL_shape);
        s->dims[i] = (int)(given[i] < 0 ? given[i] + rank : given[i]);
        if (seen >> s->dims[i] & 1) return dycl_build_bail(r, DYCL_BAIL_arguments);
        seen |= UINT32_C(1) << s->dims[i];
    }
    return status;
}

/* What is summed over behind the others (or before them), as a matrix; the others' sizes go behind those in `sizes`. */
static dycl_status as_matrix(dycl_call *call, side *s, int before, int64_t inner, int *rank, int64_t *sizes) {
    dycl_recorder *r = &call->region->recorder;
    const dycl_value v = *meta(call, s->value);
    int order[DYCL_MAX_RANK], others = v.rank - s->count, at = before ? s->count : 0;
    uint32_t summed = 0;
    int64_t outer = 1;
    if (*rank + others > DYCL_MAX_RANK) return dycl_build_bail(r, DYCL_BAIL_rank);
    for (int i = 0; i < s->count; i++) {
        order[before ? i : others + i] = s->dims[i];
        summed |= UINT32_C(1) << s->dims[i];
    }
    for (int i = 0; i < v.rank; i++) {
        if (summed >> i & 1) continue;
        order[at++] = i;
        outer *= sizes[(*rank)++] = v.sizes[i];
    }
    int64_t matrix[2] = {before ? inner : outer, before ? outer : inner};
    dycl_status status = dycl_build_permute(r, s->value, order, &s->value);
    return status == DYCL_OK ? dycl_build_reshape(r, s->value, 2, matrix, 0, &s->value) : status;
}

/* A dimension of size 1 goes with any: the other one is summed by itself. */
static dycl_status contract(dycl_call *call, side *a, side *b, uint32_t *out) {
    dycl_recorder *r = &call->region->recorder;
    int64_t inner = 1, sizes[DYCL_MAX_RANK];
    int rank = 0;
    dycl_status status;
    for (int i = 0; i < a->count; i++) {
        int64_t left = meta(call, a->value)->sizes[a->dims[i]], right = meta(call, b->value)->sizes[b->dims[i]];
        if (right == 1)
            DYCL_TRY(sum_over(call, INT64_C(1) << a->dims[i], &a->value));
        else if (left == 1)
            DYCL_TRY(sum_over(call, INT64_C(1) << b->dims[i], &b->value));
        else if (left == right)
            inner *= left;
        else
            return dycl_build_bail(r, DYCL_BAIL_shape);
    }
    DYCL_TRY(as_matrix(call, a, 0, inner, &rank, sizes));
    DYCL_TRY(as_matrix(call, b, 1, inner, &rank, sizes));
    /* How gradients of matrices with one row or column lie hangs on strides that say nothing. */
    if ((inner == 1 || meta(call, a->value)->sizes[0] == 1 || meta(call, b->value)->sizes[1] == 1) &&
        dycl_track_any_now(call->region, 2, (uint32_t[]){a->value, b->value}))
        return dycl_build_bail(r, DYCL_BAIL_grad);
    DYCL_TRY(dycl_build_matmul(r, a->value, b->value, out));
    return dycl_build_reshape(r, *out, rank, sizes, 1, out);
fail:
    return status;
}

static PyObject *product(dycl_call *call, side *a, side *b) {
    uint32_t out = 0;
    if (!is_float(call, a->value) || dtype_of(call, a->value) != dtype_of(call, b->value))
        return dycl_call_bail(call, DYCL_BAIL_dtype);
    return dycl_call_as_view(call, dycl_call_finish(call, contract(call, a, b, &out), out));
}

/* self, other, dims_self, dims_other */
PyObject *dycl_bind_tensordot(dycl_call *call, const dycl_binding *row) {
    side a, b;
    (void)row;
    DYCL_CALL_TRY(read_side(call, call->p[0], &a));
    DYCL_CALL_TRY(read_side(call, call->p[1], &b));
    DYCL_CALL_TRY(read_dims(call, call->p[2], &a));
    DYCL_CALL_TRY(read_dims(call, call->p[3], &b));
    return a.count == b.count ? product(call, &a, &b) : dycl_call_bail(call, DYCL_BAIL_arguments);
}

/* input, other: sums over the last dimensions; a product of elements where one has none */
PyObject *dycl_bind_inner(dycl_call *call, const dycl_binding *row) {
    side a = {.count = 1}, b = {.count = 1};
    (void)row;
    DYCL_CALL_TRY(read_side(call, call->p[0], &a));
    DYCL_CALL_TRY(read_side(call, call->p[1], &b));
    const dycl_value *left = meta(call, a.value), *right = meta(call, b.value);
    if (left->rank == 0 || right->rank == 0) return dycl_call_bail(call, DYCL_BAIL_shape);
    a.dims[0] = left->rank - 1;
    b.dims[0] = right->rank - 1;
    if (left->sizes[a.dims[0]] != right->sizes[b.dims[0]]) return dycl_call_bail(call, DYCL_BAIL_shape);
    return product(call, &a, &b);
}
