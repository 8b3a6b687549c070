/* What needs the values of its operands at once: results whose size depends on them, and answers to Python. The segment
 * ends where these are computed, and nothing else happens to it: tensors stay lazy, results are lazy tensors that are
 * computed. */
#include <string.h>

#include "py/bind/beside.h"
#include "py/bind/bind.h"
#include "py/region/scalar.h"

static PyObject *of_values(dycl_call *call, const dycl_binding *row) { return dycl_beside_values(call, row); }

/* Everything or anything: torch._is_all_true and its like reduce all dimensions. op: all, any */
static PyObject *is_all(dycl_call *call, const dycl_binding *row) {
    uint32_t x, out = 0;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x));
    if (dtype_of(call, x) != DYCL_BOOL) return dycl_call_bail(call, DYCL_BAIL_dtype);
    int64_t attrs[2] = {(INT64_C(1) << meta(call, x)->rank) - 1, 0};
    return dycl_call_finish(call, dycl_build_node(&call->region->recorder, (dycl_op)row->op, 1, &x, 2, attrs, &out),
                            out);
}

/* element in x: whether any element equals it */
static PyObject *contains(dycl_call *call, const dycl_binding *row) {
    dycl_operand sides[2];
    dycl_element found;
    uint32_t out = 0;
    (void)row;
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[1], &sides[0]));
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[0], &sides[1]));
    if (sides[1].kind != DYCL_OPERAND_VALUE) return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(dycl_build_ew(&call->region->recorder, DYCL_OP_eq, DYCL_PROMOTE_COMMON, 2, sides, &out));
    int64_t attrs[2] = {(INT64_C(1) << meta(call, out)->rank) - 1, 0};
    DYCL_CALL_TRY(dycl_build_node(&call->region->recorder, DYCL_OP_any, 1, &out, 2, attrs, &out));
    PyObject *any = dycl_region_result(call->region, out);
    int known = any ? dycl_scalar_read(any, &found) : -1;
    PyObject *result = known == 1 ? PyBool_FromLong(dycl_element_is_true(&found)) : NULL;
    Py_XDECREF(any);
    return known == 0 ? dycl_call_bail(call, DYCL_BAIL_thread) : result;
}

dycl_binding dycl_bindings_values[] = {
    ROW("nonzero", T | M, "input | as_tuple", of_values),
    ROW("argwhere", T | M, "input", of_values),
    ROW("masked_select", T | M, "input mask", of_values),
    ROW("masked_scatter", T | M, "input mask source", of_values),
    ROW("bincount", T | M, "input weights minlength", of_values),
    ROW("_unique2", V, "input sorted return_inverse return_counts", of_values),
    ROW("unique_dim", V, "input dim sorted return_inverse return_counts", of_values),
    ROW("unique_consecutive", V, "input return_inverse return_counts dim", of_values),
    ROW("equal", T | M, "input other", of_values),
    ROW("allclose", T | M, "input other rtol atol equal_nan", of_values),
    ROW("_is_all_true", T, "input", is_all, DYCL_OP_all),
    ROW("_is_any_true", T, "input", is_all, DYCL_OP_any),
    ROW("contains", D, "self element", contains),
    {0},
};
