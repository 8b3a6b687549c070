/* Operators with windows: convolution and pooling. */
#include "ir/infer.h"
#include "py/bind/bind.h"
#include "py/region/track.h"

/* ---- Convolution */

/* padding="same": as much as keeps the size, where both sides get the same; padding="valid": none */
static dycl_status named_padding(dycl_call *call, PyObject *name, int spatial, const int64_t *kernel,
                                 const int64_t *stride, const int64_t *dilation, int64_t *out) {
    int same = PyUnicode_CompareWithASCIIString(name, "same") == 0;
    if (!same && PyUnicode_CompareWithASCIIString(name, "valid") != 0)
        return dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
    for (int i = 0; i < spatial; i++) {
        int64_t total = same ? dilation[i] * (kernel[i] - 1) : 0;
        if (same && (stride[i] != 1 || total % 2)) return dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
        out[i] = total / 2;
    }
    return DYCL_OK;
}

/* An int or a sequence of `spatial` ints (or of one). */
static dycl_status window(dycl_call *call, PyObject *o, int spatial, int64_t fallback, int64_t *out) {
    int count;
    for (int i = 0; i < spatial; i++) out[i] = fallback;
    if (!o) return DYCL_OK;
    dycl_status status = dycl_call_ints(call, o, spatial, &count, out);
    if (status != DYCL_OK) return status;
    if (count == 1)
        for (int i = 1; i < spatial; i++) out[i] = out[0];
    else if (count != spatial)
        return dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
    for (int i = 0; i < spatial;
         i++) /* products of these overflow: what torch says then differs from version to version */
        if (out[i] > INT32_MAX || out[i] < INT32_MIN)
            return dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
    return DYCL_OK;
}

/* conv1d, conv2d (op: spatial dimensions): input, weight, bias, stride, padding, dilation, groups. One spatial
 * dimension is a second of size 1. extra: transposed, with input, weight, bias, stride, padding, output_padding,
 * groups, dilation. */
static PyObject *conv(dycl_call *call, const dycl_binding *row) {
    uint32_t x[3], out = 0;
    int spatial = row->op;
    int64_t stride[2], padding[2], dilation[2], kernel[2], extra[2] = {0, 0}, groups, attrs[9];
    PyObject *dilation_given = call->p[row->extra ? 7 : 5];
    dycl_recorder *r = &call->region->recorder;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x[0]));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[1], &x[1]));
    DYCL_CALL_TRY(dycl_call_optional_value(call, call->p[2], &x[2]));
    int rank = meta(call, x[0])->rank;
    if (meta(call, x[1])->rank != spatial + 2 || (rank != spatial + 2 && rank != spatial + 1))
        return dycl_call_bail(call, DYCL_BAIL_shape);
    for (int i = 0; i < spatial; i++) kernel[i] = meta(call, x[1])->sizes[2 + i];
    DYCL_CALL_TRY(window(call, call->p[3], spatial, 1, stride));
    DYCL_CALL_TRY(window(call, dilation_given, spatial, 1, dilation));
    if (row->extra) DYCL_CALL_TRY(window(call, call->p[5], spatial, 0, extra));
    if (!row->extra && call->p[4] && PyUnicode_Check(call->p[4]))
        DYCL_CALL_TRY(named_padding(call, call->p[4], spatial, kernel, stride, dilation, padding));
    else
        DYCL_CALL_TRY(window(call, call->p[4], spatial, 0, padding));
    DYCL_CALL_TRY(dycl_call_int_or(call, call->p[6], 1, &groups));
    if (rank == spatial + 1) DYCL_CALL_TRY(dycl_build_unsqueeze(r, x[0], 0, &x[0]));
    if (spatial == 1) { /* torch makes the input contiguous, but not the weight, which may look like channels last with
                           its new dimension */
        DYCL_CALL_TRY(dycl_build_contiguous(r, x[0], &x[0]));
        DYCL_CALL_TRY(dycl_build_unsqueeze(r, x[0], 2, &x[0]));
        DYCL_CALL_TRY(dycl_build_unsqueeze(r, x[1], 2, &x[1]));
    }
    for (int i = 0; i < 2; i++) {
        int k = i - (2 - spatial);
        attrs[i] = k < 0 ? 1 : stride[k];
        attrs[2 + i] = k < 0 ? 0 : padding[k];
        attrs[4 + i] = k < 0 ? 1 : dilation[k];
        attrs[7 + i] = k < 0 ? 0 : extra[k];
    }
    attrs[6] = groups;
    /* torch has several ways for channels last, which do not agree on the result's strides */
    if (row->extra && (dycl_value_channels_last(meta(call, x[0])) || dycl_value_channels_last(meta(call, x[1]))))
        return dycl_call_bail(call, DYCL_BAIL_shape);
    DYCL_CALL_TRY(dycl_build_node(r, row->extra ? DYCL_OP_conv_transpose2d : DYCL_OP_conv2d, 3, x, row->extra ? 9 : 7,
                                  attrs, &out));
    if (spatial == 1) DYCL_CALL_TRY(drop_dim(call, out, 2, &out));
    if (rank == spatial + 2) return dycl_call_finish(call, DYCL_OK, out);
    DYCL_CALL_TRY(drop_dim(call, out, 0, &out));
    return dycl_call_as_view(call, dycl_call_finish(call, DYCL_OK, out));
}

/* ---- Pooling */

/* The input as [n, c, h, w]; a single row of height 1 for one spatial dimension. plain: torch makes it contiguous;
 * without a batch it always computes in the ordinary order. */
static dycl_status pooled_input(dycl_call *call, PyObject *o, int spatial, int plain, uint32_t *out, int *out_rank) {
    dycl_status status;
    uint32_t x = 0;
    dycl_recorder *r = &call->region->recorder;
    DYCL_TRY(dycl_call_value(call, o, &x));
    *out_rank = meta(call, x)->rank;
    if (*out_rank != spatial + 1 && *out_rank != spatial + 2) return dycl_build_bail(r, DYCL_BAIL_shape);
    if (plain || *out_rank == spatial + 1) DYCL_TRY(dycl_build_contiguous(r, x, &x));
    if (*out_rank == spatial + 1) DYCL_TRY(dycl_build_unsqueeze(r, x, 0, &x));
    if (spatial == 1) DYCL_TRY(dycl_build_unsqueeze(r, x, 2, &x));
    *out = x;
    return DYCL_OK;
fail:
    return status;
}

/* own: torch's kernel for one dimension, whose result is in the ordinary order whatever a batch of one looks like, and
 * no view */
static PyObject *pooled(dycl_call *call, dycl_op op, uint32_t x, int spatial, int rank, int own, int attr_count,
                        const int64_t *attrs) {
    uint32_t out = 0;
    DYCL_CALL_TRY(dycl_build_node(&call->region->recorder, op, 1, &x, attr_count, attrs, &out));
    int mean = op == DYCL_OP_adaptive_avg_pool2d && attrs[0] == 1 &&
               attrs[1] == 1; /* to which torch then gives the strides of channels last */
    uint32_t writes = mean && rank == spatial + 2 && dycl_value_channels_last(meta(call, x)); /* as_strided_ */
    if (spatial == 1) DYCL_CALL_TRY(drop_dim(call, out, 2, &out));
    if (rank == spatial + 1) DYCL_CALL_TRY(drop_dim(call, out, 0, &out));
    if ((own || rank == spatial + 1) && !meta(call, out)->canonical) {
        int64_t plain[DYCL_MAX_RANK];
        dycl_strides_contiguous(rank, meta(call, out)->sizes, plain);
        DYCL_CALL_TRY(dycl_build_dense(&call->region->recorder, out, plain, &out));
    }
    PyObject *result = dycl_call_finish(call, DYCL_OK, out);
    if (spatial == 1 && !own) result = dycl_call_as_view(call, result);
    return dycl_call_written(call, result, writes);
}

/* kernel, stride (the kernel's when absent or empty) and padding into attrs[0..5] */
static dycl_status pool_windows(dycl_call *call, int spatial, int64_t *attrs) {
    dycl_status status;
    int64_t kernel[2], stride[2], padding[2];
    PyObject *o = call->p[2];
    int no_stride =
        !dycl_call_given(o) || ((PyTuple_CheckExact(o) || PyList_CheckExact(o)) && PySequence_Fast_GET_SIZE(o) == 0);
    if (!call->p[1]) return dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
    DYCL_TRY(window(call, call->p[1], spatial, 1, kernel));
    DYCL_TRY(window(call, no_stride ? call->p[1] : o, spatial, 1, stride));
    DYCL_TRY(window(call, call->p[3], spatial, 0, padding));
    for (int i = 0; i < 2; i++) {
        int k = i - (2 - spatial);
        attrs[i] = k < 0 ? 1 : kernel[k];
        attrs[2 + i] = k < 0 ? 1 : stride[k];
        attrs[4 + i] = k < 0 ? 0 : padding[k];
    }
    return DYCL_OK;
fail:
    return status;
}

/* input, kernel, stride, padding, dilation, ceil_mode, return_indices */
static PyObject *max_pool(dycl_call *call, const dycl_binding *row) {
    uint32_t x;
    int rank, ceil_mode, indices, spatial = row->op;
    int64_t attrs[9], dilation[2];
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x));
    int own = spatial == 1 && !dycl_track_has_now(call->region, x); /* else torch takes the way of two dimensions */
    DYCL_CALL_TRY(pooled_input(call, call->p[0], spatial, own, &x, &rank));
    DYCL_CALL_TRY(pool_windows(call, spatial, attrs));
    DYCL_CALL_TRY(window(call, call->p[4], spatial, 1, dilation));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[5], 0, &ceil_mode));
    DYCL_CALL_TRY(dycl_call_bool_or(call, row->parameter_count > 6 ? call->p[6] : NULL, 0, &indices));
    if (indices) return dycl_call_bail(call, DYCL_BAIL_arguments);
    attrs[6] = spatial == 1 ? 1 : dilation[0];
    attrs[7] = dilation[spatial - 1];
    attrs[8] = ceil_mode;
    return dycl_call_written(call, pooled(call, DYCL_OP_max_pool2d, x, spatial, rank, own, 9, attrs),
                             own && rank == 2); /* squeeze_ */
}

/* input, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override */
static PyObject *avg_pool(dycl_call *call, const dycl_binding *row) {
    uint32_t x;
    int rank, ceil_mode, include, spatial = row->op;
    int64_t attrs[8];
    if (row->parameter_count > 6 && dycl_call_given(call->p[6])) return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(pooled_input(call, call->p[0], spatial, 0, &x, &rank));
    DYCL_CALL_TRY(pool_windows(call, spatial, attrs));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[4], 0, &ceil_mode));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[5], 1, &include));
    attrs[6] = ceil_mode;
    attrs[7] = include;
    return pooled(call, DYCL_OP_avg_pool2d, x, spatial, rank, 0, 8, attrs);
}

/* A size of None keeps the input's. */
static PyObject *adaptive_avg_pool(dycl_call *call, const dycl_binding *row) {
    uint32_t x;
    int rank, spatial = row->op;
    int64_t attrs[2] = {1, 1};
    PyObject *size = call->p[1];
    DYCL_CALL_TRY(pooled_input(call, call->p[0], spatial, 0, &x, &rank));
    if (size && (PyTuple_Check(size) || PyList_CheckExact(size))) {
        if (PySequence_Fast_GET_SIZE(size) != spatial) return dycl_call_bail(call, DYCL_BAIL_arguments);
        for (int i = 0; i < spatial; i++)
            DYCL_CALL_TRY(dycl_call_int_or(call, PySequence_Fast_GET_ITEM(size, i),
                                           meta(call, x)->sizes[4 - spatial + i], &attrs[2 - spatial + i]));
    } else {
        DYCL_CALL_TRY(dycl_call_int(call, size, &attrs[1]));
        if (spatial == 2) attrs[0] = attrs[1];
    }
    return pooled(call, DYCL_OP_adaptive_avg_pool2d, x, spatial, rank, 0, 2, attrs);
}

dycl_binding dycl_bindings_window[] = {
    ROW("conv1d", T | F, "input weight bias stride padding dilation groups", conv, 1, 0),
    ROW("conv2d", T | F, "input weight bias stride padding dilation groups", conv, 2, 0),
    ROW("conv_transpose1d", T | F, "input weight bias stride padding output_padding groups dilation", conv, 1, 1),
    ROW("conv_transpose2d", T | F, "input weight bias stride padding output_padding groups dilation", conv, 2, 1),
    ROW("max_pool1d", T, "input kernel_size stride padding dilation ceil_mode", max_pool, 1, 0),
    ROW("max_pool1d", F, "input kernel_size stride padding dilation ceil_mode return_indices", max_pool, 1, 0),
    ROW("max_pool2d", T, "input kernel_size stride padding dilation ceil_mode", max_pool, 2, 0),
    ROW("max_pool2d", F, "input kernel_size stride padding dilation ceil_mode return_indices", max_pool, 2, 0),
    ROW("avg_pool1d", T | F, "input kernel_size stride padding ceil_mode count_include_pad", avg_pool, 1, 0),
    ROW("avg_pool2d", F | N, "input kernel_size stride padding ceil_mode count_include_pad divisor_override", avg_pool,
        2, 0),
    ROW("adaptive_avg_pool1d", T | F, "input output_size", adaptive_avg_pool, 1, 0),
    ROW("adaptive_avg_pool2d", F | N, "input output_size", adaptive_avg_pool, 2, 0),
    {0},
};
