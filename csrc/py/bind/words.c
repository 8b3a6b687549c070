/* Functions of torch with words among their arguments that are recorded as operators with numbers. */
#include <string.h>

#include "py/bind/bind.h"
#include "py/bind/view.h"
#include "py/cpython/int.h"
#include "py/bind/hosted.h"

/* pad(input, pad, mode): the operator of this mode, and of how many dimensions are padded (ATen/native/PadNd.cpp) */
PyObject *dycl_bind_pad_by_mode(dycl_call *call) {
    static const dycl_op ops[2][3] = {
        {DYCL_OP_aten_reflection_pad1d, DYCL_OP_aten_reflection_pad2d, DYCL_OP_aten_reflection_pad3d},
        {DYCL_OP_aten_replication_pad1d, DYCL_OP_aten_replication_pad2d, DYCL_OP_aten_replication_pad3d}};
    static const char *const modes[] = {"reflect", "replicate", "circular"};
    PyObject *p[DYCL_HOSTED_PARAMETERS] = {call->p[0], call->p[1]}, *value = call->p[3];
    int64_t pad[2 * DYCL_MAX_RANK];
    int count, mode = 0;
    uint32_t x;
    while (mode < 3 && PyUnicode_CompareWithASCIIString(call->p[2], modes[mode]) != 0) mode++;
    if (mode == 3 || !p[1] || PyLong_Check(p[1])) return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (dycl_call_given(value) && !(PyFloat_CheckExact(value) && PyFloat_AS_DOUBLE(value) == 0) &&
        !dycl_int_is(value, 0))
        return dycl_call_bail(call, DYCL_BAIL_arguments); /* an error */
    DYCL_CALL_TRY(dycl_call_ints(call, p[1], 2 * DYCL_MAX_RANK, &count, pad));
    DYCL_CALL_TRY(dycl_call_value(call, p[0], &x));
    int rank = meta(call, x)->rank, padded = count / 2;
    if (count % 2 || padded < 1 || padded > 3 || (rank != padded + 1 && rank != padded + 2))
        return dycl_call_bail(call, DYCL_BAIL_shape);
    return dycl_hosted_record_op(call, mode == 2 ? DYCL_OP_aten_pad_circular : ops[mode][padded - 1], mode == 2, p);
}

/* conv3d: input, weight, bias, stride, padding, dilation, groups. padding="valid" is none; "same" keeps the size, where
 * both sides get as much (torch warns where they do not) */
static PyObject *conv3d(dycl_call *call, const dycl_binding *row) {
    PyObject *p[DYCL_HOSTED_PARAMETERS] = {0}, *word = call->p[4];
    int64_t dilation[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, padding[3] = {0, 0, 0};
    int count;
    uint32_t weight, bias;
    (void)row;
    if (!word || !PyUnicode_Check(word)) return dycl_call_bail(call, DYCL_BAIL_operator); /* hosted.def has it */
    int same = PyUnicode_CompareWithASCIIString(word, "same") == 0;
    if (!same && PyUnicode_CompareWithASCIIString(word, "valid") != 0) return dycl_call_bail(call, DYCL_BAIL_arguments);
    for (int i = 0; i < 7; i++) p[i] = call->p[i];
    for (int i = 0; same && i < 2; i++) {
        PyObject *given = i ? p[5] : p[3];
        int64_t *to = i ? dilation : stride;
        if (!given) continue;
        DYCL_CALL_TRY(dycl_call_ints(call, given, 3, &count, to));
        if (count == 1)
            to[1] = to[2] = to[0];
        else if (count != 3)
            return dycl_call_bail(call, DYCL_BAIL_arguments);
    }
    DYCL_CALL_TRY(dycl_call_value(call, p[1], &weight));
    if (dycl_call_given(p[2])) { /* torch takes a bias of another dtype here, but not where the padding is a number */
        DYCL_CALL_TRY(dycl_call_value(call, p[2], &bias));
        if (meta(call, bias)->dtype != meta(call, weight)->dtype) return dycl_call_bail(call, DYCL_BAIL_dtype);
    }
    if (meta(call, weight)->rank != 5) return dycl_call_bail(call, DYCL_BAIL_shape);
    for (int i = 0; same && i < 3; i++) {
        int64_t total = dilation[i] * (meta(call, weight)->sizes[2 + i] - 1);
        if (stride[i] != 1 || total < 0 || total % 2) return dycl_call_bail(call, DYCL_BAIL_arguments);
        padding[i] = total / 2;
    }
    if (!(p[4] = dycl_py_ints(3, padding))) return NULL;
    PyObject *result = dycl_hosted_record_op(call, DYCL_OP_aten_conv3d, 1, p);
    Py_DECREF(p[4]);
    return result;
}

dycl_binding dycl_bindings_words[] = {
    ROW("conv3d", T, "input weight bias stride padding dilation groups", conv3d),
    {0},
};
