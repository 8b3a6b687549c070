/* Reductions and running sums. */
#include "py/bind/bind.h"
#include "py/bind/reduce.h"
#include "py/region/track.h"

static uint32_t all_dims(int rank) { return (UINT32_C(1) << rank) - 1; }

dycl_status dycl_reduced_dims(dycl_call *call, PyObject *o, int rank, dycl_empty_rule empty, uint32_t *out) {
    int64_t dims[DYCL_MAX_RANK + 1];
    int count, limit = rank ? rank : 1;
    uint32_t mask = 0;
    *out = all_dims(rank);
    if (!dycl_call_given(o)) return DYCL_OK;
    if (PyLong_CheckExact(o)) {
        int dim;
        dycl_status one = dycl_call_dim(call, o, rank, &dim);
        if (one == DYCL_OK) *out = rank ? UINT32_C(1) << dim : 0;
        return one;
    }
    dycl_status status = dycl_call_ints(call, o, DYCL_MAX_RANK + 1, &count, dims);
    if (status != DYCL_OK) return status;
    if (count == 0)
        return empty == EMPTY_IS_ALL ? DYCL_OK : dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
    for (int i = 0; i < count; i++) {
        int64_t dim = dims[i] < 0 ? dims[i] + limit : dims[i];
        if (dim < 0 || dim >= limit || mask >> dim & 1)
            return dycl_build_bail(&call->region->recorder, DYCL_BAIL_shape);
        mask |= UINT32_C(1) << dim;
    }
    *out = rank ? mask : 0;
    return DYCL_OK;
}

/* Both results of an operator that returns two. Both objects exist before anything may be computed: that ends the graph
 * they point into. */
PyObject *dycl_call_two_results(dycl_call *call, PyObject *type, uint32_t a, uint32_t b) {
    PyObject *first = dycl_lazy_new(call->region, a), *second = first ? dycl_region_result(call->region, b) : NULL,
             *pair = NULL;
    if (second) pair = PyTuple_Pack(2, first, second);
    Py_XDECREF(first);
    Py_XDECREF(second);
    if (pair && type) Py_SETREF(pair, PyObject_CallOneArg(type, pair));
    return pair;
}

/* What has a history is not added up as integers: torch raises. */
static int loses_history(dycl_call *call, uint32_t value, dycl_dtype wanted) {
    return dycl_dtype_is_float(dtype_of(call, value)) && !dycl_dtype_is_float(wanted) &&
           dycl_track_has_now(call->region, value);
}

/* sum, prod, mean, cumsum: what is added up, and the dtype of the result. Integers and bool are added as int64; mean
 * takes floating point only. */
static dycl_status accumulated(dycl_call *call, dycl_op op, PyObject *dtype, uint32_t *value, dycl_dtype *result) {
    dycl_dtype own = dtype_of(call, *value), wanted;
    dycl_status status =
        dycl_call_dtype_or(call, dtype, dycl_dtype_is_float(own) || op == DYCL_OP_mean ? own : DYCL_I64, &wanted);
    if (status != DYCL_OK) return status;
    if (!dycl_dtype_is_float(wanted) && (wanted != DYCL_I64 || op == DYCL_OP_mean))
        return dycl_build_bail(&call->region->recorder, DYCL_BAIL_dtype);
    if (loses_history(call, *value, wanted)) return dycl_build_bail(&call->region->recorder, DYCL_BAIL_grad);
    *result = wanted;
    /* what is added is not rounded yet */
    if (op == DYCL_OP_mean && own != wanted) wanted = dycl_dtype_computed(wanted);
    return dycl_build_cast(&call->region->recorder, *value, wanted, value);
}

#define MOST_MULTIPLIED 16384 /* elements: more are differentiated faster by torch, which asks whether one is zero */

/* Whether a product that may have a history can be differentiated here: how torch's gradient lies hangs on that
 * question where the operand is not contiguous. */
static int goes_back(dycl_call *call, uint32_t x) {
    if (!dycl_track_has_now(call->region, x)) return 1;
    int64_t numel = dycl_value_numel(meta(call, x));
    return numel && numel <= MOST_MULTIPLIED && is_canonical(meta(call, x));
}

static PyObject *sum(dycl_call *call, const dycl_binding *row) {
    uint32_t x, mask, out = 0;
    int keep;
    dycl_dtype dtype;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x));
    DYCL_CALL_TRY(dycl_reduced_dims(call, call->p[1], meta(call, x)->rank, EMPTY_IS_ALL, &mask));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[2], 0, &keep));
    if (call->p[2] && !call->p[1]) return dycl_call_bail(call, DYCL_BAIL_arguments); /* no such overload */
    if (row->op == DYCL_OP_prod && call->p[1] && !PyLong_CheckExact(call->p[1]))
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(accumulated(call, (dycl_op)row->op, call->p[3], &x, &dtype));
    if (row->op == DYCL_OP_prod && !goes_back(call, x)) return dycl_call_bail(call, DYCL_BAIL_grad);
    DYCL_CALL_TRY(reduce(call, (dycl_op)row->op, x, mask, keep, &out));
    return dycl_call_finish(call, dycl_build_cast(&call->region->recorder, out, dtype, &out), out);
}

/* amax, amin */
static PyObject *amax(dycl_call *call, const dycl_binding *row) {
    uint32_t x, mask, out = 0;
    int keep;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x));
    DYCL_CALL_TRY(dycl_reduced_dims(call, call->p[1], meta(call, x)->rank, EMPTY_IS_ALL, &mask));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[2], 0, &keep));
    return dycl_call_finish(call, reduce(call, (dycl_op)row->op, x, mask, keep, &out), out);
}

static PyObject *all(dycl_call *call, const dycl_binding *row) {
    uint32_t x, mask, out = 0;
    int keep;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x));
    if (dtype_of(call, x) == DYCL_U8) return dycl_call_bail(call, DYCL_BAIL_dtype); /* torch answers in uint8 */
    DYCL_CALL_TRY(dycl_reduced_dims(call, call->p[1], meta(call, x)->rank, EMPTY_BAILS, &mask));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[2], 0, &keep));
    return dycl_call_finish(call, reduce(call, (dycl_op)row->op, x, mask, keep, &out), out);
}

/* How torch's distributions check their arguments. */
static PyObject *is_all_true(dycl_call *call, const dycl_binding *row) {
    uint32_t x, out = 0;
    (void)row;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x));
    if (dtype_of(call, x) != DYCL_BOOL) return dycl_call_bail(call, DYCL_BAIL_dtype);
    return dycl_call_finish(call, reduce(call, DYCL_OP_all, x, (UINT32_C(1) << meta(call, x)->rank) - 1, 0, &out), out);
}

/* argmax, argmin: of one dimension, or of the flattened tensor */
static PyObject *argmax(dycl_call *call, const dycl_binding *row) {
    uint32_t x, out = 0;
    int keep, dim = 0;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[2], 0, &keep));
    int rank = meta(call, x)->rank, whole = !dycl_call_given(call->p[1]);
    if (dtype_of(call, x) == DYCL_BOOL || rank == 0) return dycl_call_bail(call, DYCL_BAIL_dtype);
    if (whole && rank > 1) {
        int64_t flat = -1;
        if (keep || dycl_value_numel(meta(call, x)) == 0) return dycl_call_bail(call, DYCL_BAIL_arguments);
        DYCL_CALL_TRY(dycl_build_reshape(&call->region->recorder, x, 1, &flat, 0, &x));
    } else if (!whole) {
        DYCL_CALL_TRY(dycl_call_dim(call, call->p[1], rank, &dim));
    }
    int64_t size = meta(call, x)->sizes[dim];
    DYCL_CALL_TRY(reduce(call, (dycl_op)row->op, x, UINT32_C(1) << dim, keep, &out));
    if (dycl_value_numel(meta(call, out))) dycl_recorder_bound(&call->region->recorder, out, 0, size - 1);
    return dycl_call_finish(call, DYCL_OK, out);
}

/* The elements at these positions, which alone have a gradient. */
static dycl_status chosen(dycl_call *call, uint32_t x, int dim, uint32_t positions, uint32_t *out) {
    dycl_recorder *r = &call->region->recorder;
    dycl_value like = *meta(call, positions), kept = *meta(call, x);
    int64_t attr = dim;
    dycl_status status;
    if (!kept.canonical) return dycl_build_bail(r, DYCL_BAIL_layout);
    kept.sizes[dim] = 1;
    DYCL_TRY(dycl_build_reshape(r, positions, kept.rank, kept.sizes, 0, &positions));
    DYCL_TRY(dycl_build_node(r, DYCL_OP_gather, 2, (uint32_t[]){x, positions}, 1, &attr, out));
    if (like.rank == kept.rank) return DYCL_OK;
    DYCL_TRY(dycl_build_reshape(r, *out, like.rank, like.sizes, 0, out));
    return dycl_build_node(r, DYCL_OP_contiguous, 1, out, 1, &(int64_t){0}, out); /* no view, as in torch */
fail:
    return status;
}

/* max, min: of all elements; along a dimension, with where it was; or of two tensors */
static PyObject *extremum(dycl_call *call, const dycl_binding *row) {
    uint32_t x, values, indices;
    int keep, dim, is_max = row->op == DYCL_OP_amax;
    PyObject *other = call->p[3];
    if (call->p[1] && !PyLong_CheckExact(call->p[1])) {
        if (other || call->p[2] || call->count < 2) /* dim=tensor is a dimension */
            return dycl_call_bail(call, DYCL_BAIL_arguments);
        other = call->p[1];
    } else if (other && (call->p[1] || call->p[2])) {
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    }
    if (other) {
        dycl_operand pair[2];
        uint32_t out = 0;
        DYCL_CALL_TRY(dycl_call_operand(call, call->p[0], &pair[0]));
        DYCL_CALL_TRY(dycl_call_operand(call, other, &pair[1]));
        if (pair[0].kind != DYCL_OPERAND_VALUE || pair[1].kind != DYCL_OPERAND_VALUE)
            return dycl_call_bail(call, DYCL_BAIL_arguments);
        return dycl_call_finish(call,
                                dycl_build_ew(&call->region->recorder, is_max ? DYCL_OP_maximum : DYCL_OP_minimum,
                                              DYCL_PROMOTE_COMMON, 2, pair, &out),
                                out);
    }
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x));
    int rank = meta(call, x)->rank, tracks = dycl_track_has_now(call->region, x);
    if (!call->p[1]) {
        if (call->p[2]) return dycl_call_bail(call, DYCL_BAIL_arguments);
        if (tracks) return dycl_call_bail(call, DYCL_BAIL_operator); /* not that of amax, where there is a NaN */
        dycl_status status = reduce(call, (dycl_op)row->op, x, all_dims(rank), 0, &values);
        return dycl_call_finish(call, status, values);
    }
    static PyObject *types[2]; // owned: torch.return_types.min, max
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[2], 0, &keep));
    DYCL_CALL_TRY(dycl_call_dim(call, call->p[1], rank, &dim));
    if (rank == 0 || dtype_of(call, x) == DYCL_BOOL) return dycl_call_bail(call, DYCL_BAIL_dtype);
    if (!types[is_max]) {
        PyObject *module = PyObject_GetAttrString(dycl_py.torch, "return_types");
        types[is_max] = module ? PyObject_GetAttrString(module, row->name) : NULL;
        Py_XDECREF(module);
        if (!types[is_max]) return NULL;
    }
    DYCL_CALL_TRY(reduce(call, (dycl_op)row->extra, x, UINT32_C(1) << dim, keep, &indices));
    if (tracks)
        DYCL_CALL_TRY(chosen(call, x, dim, indices, &values));
    else
        DYCL_CALL_TRY(reduce(call, (dycl_op)row->op, x, UINT32_C(1) << dim, keep, &values));
    return dycl_call_two_results(call, types[is_max], values, indices);
}

enum { WITH_ROOT = 1, WITH_MEAN = 2 };

/* var, std, var_mean, std_mean: (unbiased), (dim, unbiased, keepdim) or (dim, correction=, keepdim=) */
static PyObject *variance(dycl_call *call, const dycl_binding *row) {
    uint32_t x, mask, out, mean;
    int keep, unbiased;
    double correction;
    PyObject *dim = call->p[1];
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x));
    if (dim && PyBool_Check(dim)) {
        if (call->p[2] || call->p[3] || call->p[4]) return dycl_call_bail(call, DYCL_BAIL_arguments);
        call->p[2] = dim;
        dim = NULL;
    } else if (call->p[2] && ((!dim && call->p[3]) || call->p[4])) {
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    }
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[2], 1, &unbiased));
    DYCL_CALL_TRY(dycl_call_f64_or(call, dycl_call_given(call->p[4]) ? call->p[4] : NULL, unbiased, &correction));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[3], 0, &keep));
    DYCL_CALL_TRY(dycl_reduced_dims(call, dim, meta(call, x)->rank, EMPTY_IS_ALL, &mask));
    if (!dycl_dtype_is_float(dtype_of(call, x))) return dycl_call_bail(call, DYCL_BAIL_dtype);
    if (dycl_value_numel(meta(call, x)) == 0 || !((double)dycl_reduced_numel(meta(call, x), mask) - correction > 0))
        return dycl_call_bail(call, DYCL_BAIL_arguments); /* torch warns */
    int64_t attrs[3] = {mask, keep, dycl_f64_attr(correction)};
    dycl_op op = row->extra & WITH_ROOT ? DYCL_OP_std : DYCL_OP_var;
    DYCL_CALL_TRY(dycl_build_node(&call->region->recorder, op, 1, &x, 3, attrs, &out));
    if (!(row->extra & WITH_MEAN)) return dycl_call_finish(call, DYCL_OK, out);
    /* torch's mean beside a variance is a double's: no sum on the way leaves a float */
    dycl_dtype own = dtype_of(call, x);
    if (own != DYCL_F64) DYCL_CALL_TRY(dycl_build_cast(&call->region->recorder, x, DYCL_F64, &x));
    DYCL_CALL_TRY(reduce(call, DYCL_OP_mean, x, mask, keep, &mean));
    if (own != DYCL_F64) DYCL_CALL_TRY(dycl_build_cast(&call->region->recorder, mean, own, &mean));
    return dycl_call_two_results(call, NULL, out, mean);
}

/* ---- Running sums, counts */

static PyObject *cumsum(dycl_call *call, const dycl_binding *row) {
    uint32_t x, out = 0;
    int dim;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x));
    int rank = meta(call, x)->rank;
    if (rank == 0) return dycl_call_bail(call, DYCL_BAIL_shape);
    DYCL_CALL_TRY(dycl_call_dim(call, call->p[1], rank, &dim));
    dycl_recorder *r = &call->region->recorder;
    dycl_dtype wanted, summed;
    int64_t attr = dim, inner = 1;
    for (int i = dim + 1; i < rank; i++) inner *= meta(call, x)->sizes[i];
    /* across few rows side by side torch's kernel is the faster one */
    if (inner > 1 && inner < 8 && dycl_track_has_now(call->region, x)) return dycl_call_bail(call, DYCL_BAIL_operator);
    DYCL_CALL_TRY(dycl_call_dtype_or(call, call->p[2], DYCL_I64, &wanted));
    int narrow =
        dycl_call_given(call->p[2]) && dycl_dtype_is_int(wanted) && wanted != DYCL_I64; /* sums modulo a power of two */
    if (narrow && loses_history(call, x, wanted)) return dycl_call_bail(call, DYCL_BAIL_grad);
    if (narrow) DYCL_CALL_TRY(dycl_build_cast(r, x, wanted, &x));
    DYCL_CALL_TRY(accumulated(call, (dycl_op)row->op, narrow ? NULL : call->p[2], &x, &summed));
    DYCL_CALL_TRY(dycl_build_node(r, (dycl_op)row->op, 1, &x, 1, &attr, &out));
    return dycl_call_finish(call, narrow ? dycl_build_cast(r, out, wanted, &out) : DYCL_OK, out);
}

static PyObject *count_nonzero(dycl_call *call, const dycl_binding *row) {
    uint32_t x, mask, out = 0;
    (void)row;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x));
    DYCL_CALL_TRY(dycl_reduced_dims(call, call->p[1], meta(call, x)->rank, EMPTY_IS_ALL, &mask));
    if (dtype_of(call, x) != DYCL_BOOL) {
        dycl_operand both[2] = {dycl_operand_of(x), dycl_operand_i64(0)};
        DYCL_CALL_TRY(dycl_build_ew(&call->region->recorder, DYCL_OP_ne, DYCL_PROMOTE_COMMON, 2, both, &x));
    }
    DYCL_CALL_TRY(dycl_build_cast(&call->region->recorder, x, DYCL_I64, &x));
    return dycl_call_finish(call, reduce(call, DYCL_OP_sum, x, mask, 0, &out), out);
}

dycl_binding dycl_bindings_reduce[] = {
    ROW("sum", T | M, "input dim keepdim | dtype", sum, DYCL_OP_sum, 0),
    ROW("mean", T | M, "input dim keepdim | dtype", sum, DYCL_OP_mean, 0),
    ROW("prod", T | M, "input dim keepdim | dtype", sum, DYCL_OP_prod, 0),
    ROW("amax", T | M, "input dim keepdim", amax, DYCL_OP_amax, 0),
    ROW("amin", T | M, "input dim keepdim", amax, DYCL_OP_amin, 0),
    ROW("all", T | M, "input dim keepdim", all, DYCL_OP_all, 0),
    ROW("any", T | M, "input dim keepdim", all, DYCL_OP_any, 0),
    ROW("_is_all_true", T, "input", is_all_true, 0, 0),
    ROW("argmax", T | M, "input dim keepdim", argmax, DYCL_OP_argmax, 0),
    ROW("argmin", T | M, "input dim keepdim", argmax, DYCL_OP_argmin, 0),
    ROW("max", T | M, "input dim keepdim other", extremum, DYCL_OP_amax, DYCL_OP_argmax),
    ROW("min", T | M, "input dim keepdim other", extremum, DYCL_OP_amin, DYCL_OP_argmin),
    ROW("var", T | M, "input dim unbiased keepdim | correction", variance, 0, 0),
    ROW("std", T | M, "input dim unbiased keepdim | correction", variance, 0, WITH_ROOT),
    ROW("var_mean", T, "input dim unbiased keepdim | correction", variance, 0, WITH_MEAN),
    ROW("std_mean", T, "input dim unbiased keepdim | correction", variance, 0, WITH_ROOT | WITH_MEAN),
    ROW("cumsum", T | M | I, "input dim | dtype", cumsum, DYCL_OP_cumsum, 0),
    ROW("count_nonzero", T | M, "input dim", count_nonzero, 0, 0),
    {0},
};
