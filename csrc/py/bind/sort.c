/* Sorting, selecting, counting. The positions come from torch's kernels (base/host.h); values are gathered from them.
 */
#include <math.h>
#include <string.h>

#include "base/host.h"
#include "py/bind/bind.h"

static PyObject *return_type(PyObject **type, const char *name) { /* borrowed: torch.return_types.name */
    if (!*type) {
        PyObject *module = PyObject_GetAttrString(dycl_py.torch, "return_types");
        *type = module ? PyObject_GetAttrString(module, name) : NULL;
        Py_XDECREF(module);
    }
    return *type;
}

/* Positions along a dimension. */
static dycl_status positions(dycl_call *call, dycl_op op, uint32_t x, int attr_count, const int64_t *attrs,
                             uint32_t *out) {
    int64_t size = meta(call, x)->sizes[attrs[0]];
    dycl_status status = dycl_build_node(&call->region->recorder, op, 1, &x, attr_count, attrs, out);
    if (status == DYCL_OK) dycl_recorder_bound(&call->region->recorder, *out, 0, size - 1);
    return status;
}

static dycl_status values_at(dycl_call *call, uint32_t x, uint32_t index, int64_t dim, uint32_t *out) {
    dycl_recorder *r = &call->region->recorder;
    uint32_t operands[2] = {x, index};
    dycl_status status = dycl_build_node(r, DYCL_OP_gather, 2, operands, 1, &dim, out);
    if (status == DYCL_OK) dycl_recorder_bound_as(r, *out, x);
    return status;
}

/* sort, argsort (op 1): input, dim, descending, stable. torch takes the last one only where dim and descending are
 * named, too. */
static PyObject *sort(dycl_call *call, const dycl_binding *row) {
    static PyObject *type; // owned
    uint32_t x, values, index;
    int dim, descending, stable;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x));
    const dycl_value *v = meta(call, x);
    if (!dycl_host_functions.argsort || v->rank == 0 || !v->canonical) return dycl_call_bail(call, DYCL_BAIL_layout);
    dim = v->rank - 1;
    if (call->p[3] && call->count > 1) return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (call->p[1]) DYCL_CALL_TRY(dycl_call_dim(call, call->p[1], v->rank, &dim));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[2], 0, &descending));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[3], 0, &stable));
    int64_t attrs[3] = {dim, descending, stable};
    DYCL_CALL_TRY(positions(call, DYCL_OP_argsort, x, 3, attrs, &index));
    if (row->op) return dycl_call_finish(call, DYCL_OK, index);
    DYCL_CALL_TRY(values_at(call, x, index, dim, &values));
    return return_type(&type, "sort") ? dycl_call_two_results(call, type, values, index) : NULL;
}

/* input, k, dim, largest, sorted */
static PyObject *topk(dycl_call *call, const dycl_binding *row) {
    static PyObject *type; // owned
    uint32_t x, values, index;
    int64_t k;
    int dim, largest, sorted;
    (void)row;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x));
    DYCL_CALL_TRY(dycl_call_int(call, call->p[1], &k));
    const dycl_value *v = meta(call, x);
    if (!dycl_host_functions.argtopk || v->rank == 0) return dycl_call_bail(call, DYCL_BAIL_shape);
    dim = v->rank - 1;
    if (call->p[2]) DYCL_CALL_TRY(dycl_call_dim(call, call->p[2], v->rank, &dim));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[3], 1, &largest));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[4], 1, &sorted));
    int64_t attrs[4] = {dim, k, largest, sorted};
    DYCL_CALL_TRY(positions(call, DYCL_OP_argtopk, x, 4, attrs, &index));
    DYCL_CALL_TRY(values_at(call, x, index, dim, &values));
    return return_type(&type, "topk") ? dycl_call_two_results(call, type, values, index) : NULL;
}

/* input, bins, min, max. Without bounds they are the data's. */
static PyObject *histc(dycl_call *call, const dycl_binding *row) {
    uint32_t x, out = 0;
    int64_t bins;
    double low, high;
    (void)row;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x));
    DYCL_CALL_TRY(dycl_call_int_or(call, call->p[1], 100, &bins));
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[2], 0, &low));
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[3], 0, &high));
    if (!dycl_host_functions.histc || !(low < high) || !isfinite(low) || !isfinite(high))
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    int64_t attrs[3] = {bins, dycl_f64_attr(low), dycl_f64_attr(high)};
    return dycl_call_finish(call, dycl_build_node(&call->region->recorder, DYCL_OP_histc, 1, &x, 3, attrs, &out), out);
}

#define MOST_COMPARED 65536 /* pairs: torch sorts where there are more */

/* elements, test_elements, invert: two tensors of one dtype. */
static PyObject *isin(dycl_call *call, const dycl_binding *row) {
    dycl_recorder *r = &call->region->recorder;
    uint32_t x, tests, out = 0, both[2];
    int inverted, unique;
    int64_t flat = -1, attrs[2];
    (void)row;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[1], &tests));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[2], 0, &unique));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[3], 0, &inverted));
    if (unique)
        return dycl_call_bail(
            call, DYCL_BAIL_arguments); /* where they are not, the answer depends on how torch goes about it */
    int rank = meta(call, x)->rank;
    int64_t pairs = dycl_value_numel(meta(call, x)) * dycl_value_numel(meta(call, tests));
    if (dtype_of(call, x) != dtype_of(call, tests) || dtype_of(call, x) == DYCL_BOOL)
        return dycl_call_bail(call, DYCL_BAIL_dtype);
    if (rank == DYCL_MAX_RANK || pairs == 0 || pairs > MOST_COMPARED) return dycl_call_bail(call, DYCL_BAIL_shape);
    DYCL_CALL_TRY(dycl_build_unsqueeze(r, x, rank, &x));
    DYCL_CALL_TRY(dycl_build_reshape(r, tests, 1, &flat, 1,
                                     &tests)); /* torch makes a view, too, and raises where there is none */
    both[0] = x;
    both[1] = tests;
    DYCL_CALL_TRY(dycl_build_node(r, DYCL_OP_eq, 2, both, 0, NULL, &out));
    attrs[0] = INT64_C(1) << rank;
    attrs[1] = 0;
    DYCL_CALL_TRY(dycl_build_node(r, DYCL_OP_any, 1, &out, 2, attrs, &out));
    if (inverted) DYCL_CALL_TRY(dycl_build_node(r, DYCL_OP_logical_not, 1, &out, 0, NULL, &out));
    return dycl_call_finish(call, DYCL_OK, out);
}

dycl_binding dycl_bindings_sort[] = {
    ROW("sort", T | M, "input dim descending | stable", sort, 0),
    ROW("argsort", T | M, "input dim descending | stable", sort, 1),
    ROW("topk", T | M, "input k dim largest sorted", topk),
    ROW("histc", T | M, "input bins min max", histc),
    ROW("isin", T, "elements test_elements | assume_unique invert", isin),
    {0},
};
