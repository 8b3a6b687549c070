/* softmax and its like. */
#include "py/bind/bind.h"

static PyObject *softmax_of(dycl_call *call, const dycl_binding *row, PyObject *dtype) {
    uint32_t x, out = 0;
    int dim;
    dycl_dtype wanted;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x));
    int rank = meta(call, x)->rank;
    if (rank == 0) return dycl_call_bail(call, DYCL_BAIL_shape);
    DYCL_CALL_TRY(dycl_call_dim(call, call->p[1], rank, &dim));
    DYCL_CALL_TRY(dycl_call_dtype_or(call, dtype, dtype_of(call, x), &wanted));
    if (!dycl_dtype_is_float(wanted)) return dycl_call_bail(call, DYCL_BAIL_dtype);
    if (dycl_dtype_is_half(wanted) && row->op == DYCL_OP_log_softmax) /* torch rounds the sum, too */
        return dycl_call_bail(call, DYCL_BAIL_dtype);
    if (row->extra) DYCL_CALL_TRY(ew1(call, DYCL_OP_neg, x, &x)); /* softmin */
    DYCL_CALL_TRY(dycl_build_cast(&call->region->recorder, x, wanted, &x));
    int64_t attr = dim;
    return dycl_call_finish(call, dycl_build_node(&call->region->recorder, (dycl_op)row->op, 1, &x, 1, &attr, &out),
                            out);
}

static PyObject *softmax(dycl_call *call, const dycl_binding *row) { return softmax_of(call, row, call->p[2]); }

/* torch.nn.functional: input, dim, _stacklevel, dtype */
static PyObject *functional_softmax(dycl_call *call, const dycl_binding *row) {
    return softmax_of(call, row, call->p[3]);
}

dycl_binding dycl_bindings_softmax[] = {
    ROW("softmax", T | M, "input dim dtype", softmax, DYCL_OP_softmax, 0),
    ROW("log_softmax", T | M, "input dim dtype", softmax, DYCL_OP_log_softmax, 0),
    ROW("softmax", S, "input dim dtype", softmax, DYCL_OP_softmax, 0),
    ROW("log_softmax", S, "input dim | dtype", softmax, DYCL_OP_log_softmax, 0),
    ROW("softmax", F, "input dim _stacklevel dtype", functional_softmax, DYCL_OP_softmax, 0),
    ROW("log_softmax", F, "input dim _stacklevel dtype", functional_softmax, DYCL_OP_log_softmax, 0),
    ROW("softmin", F, "input dim _stacklevel dtype", functional_softmax, DYCL_OP_softmax, 1),
    {0},
};
