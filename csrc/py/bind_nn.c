/* Operators of neural networks: linear algebra, normalisation, windows, attention, recurrent cells. */
#include "py/call.h"

static PyObject *linear(dycl_call *call, const dycl_binding *row) {
    uint32_t x[3], out = 0;
    (void)row;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x[0]));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[1], &x[1]));
    DYCL_CALL_TRY(dycl_call_optional_value(call, call->p[2], &x[2]));
    return dycl_call_finish(call, dycl_build_node(&call->region->recorder, DYCL_OP_linear, 3, x, 0, NULL, &out), out);
}

static PyObject *matmul(dycl_call *call, const dycl_binding *row) {
    uint32_t a, b, out = 0;
    (void)row;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &a));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[1], &b));
    return dycl_call_finish(call, dycl_build_matmul(&call->region->recorder, a, b, &out), out);
}

#define ROW(name, places, parameters, function, op, extra) {name, places, parameters, function, op, extra, {0}, 0, 0}

dycl_binding dycl_bindings_nn[] = {
    ROW("linear", DYCL_AT_F | DYCL_AT_NN, "input weight bias", linear, 0, 0),
    ROW("matmul", DYCL_AT_TORCH | DYCL_AT_METHOD | DYCL_AT_DUNDER | DYCL_AT_RDUNDER, "input other", matmul, 0, 0),
    {0},
};
