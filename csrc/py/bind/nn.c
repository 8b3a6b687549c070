/* Operators of neural networks: normalisation, convolution, pooling, attention, gates, losses. Products are in
 * matmul.c. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "ir/infer.h"
#include "py/bind/bind.h"

/* A result without one of its dimensions, which has size 1: a view. */
static dycl_status drop_dim(dycl_call *call, uint32_t value, int dim, uint32_t *out) {
    return dycl_build_select(&call->region->recorder, value, dim, 0, out);
}

/* Channels last of volumes, which no node makes. */
static int is_odd_volume(const dycl_value *x) {
    return x->rank == 5 &&
           (dycl_value_channels_last(x) || (!dycl_value_contiguous(x) && dycl_value_channels_last_dense(x)));
}

/* ---- Normalisation */

/* normalized_shape: must be the input's last sizes. */
static dycl_status normalized_dims(dycl_call *call, PyObject *o, uint32_t x, int64_t *out) {
    int64_t shape[DYCL_MAX_RANK];
    int count;
    dycl_status status = dycl_call_ints(call, o, DYCL_MAX_RANK, &count, shape);
    if (status != DYCL_OK) return status;
    const dycl_value *value = meta(call, x);
    int same = count >= 1 && count <= value->rank;
    for (int i = 0; same && i < count; i++) same = shape[i] == value->sizes[value->rank - count + i];
    *out = count;
    return same ? DYCL_OK : dycl_build_bail(&call->region->recorder, DYCL_BAIL_shape);
}

/* torch composes it: x times a statistic of each row, times the weight, and makes the result contiguous where x does
 * not look like channels last. */
static dycl_status rms_norm_strides(dycl_call *call, const uint32_t x[2], int dims, uint32_t *out) {
    dycl_value rows = *meta(call, x[0]), product = rows, scaled = rows;
    const dycl_value *operands[2] = {meta(call, x[0]), &rows};
    for (int i = rows.rank - dims; i < rows.rank; i++) rows.sizes[i] = 1;
    dycl_infer_contiguous(&rows);
    dycl_infer_iterator(&product, 2, operands);
    if (x[1] != DYCL_NONE) {
        operands[0] = &product;
        operands[1] = meta(call, x[1]);
        dycl_infer_iterator(&scaled, 2, operands);
        product = scaled;
    }
    if (!dycl_value_channels_last(meta(call, x[0])) && !dycl_value_contiguous(&product))
        dycl_infer_contiguous(&product);
    return dycl_build_dense(&call->region->recorder, *out, product.strides, out);
}

static PyObject *
norm(dycl_call *call,
     const dycl_binding *row) { /* op: layer_norm or rms_norm; extra: how many of weight and bias it has */
    uint32_t x[3], out = 0;
    int64_t attrs[2];
    double eps, usual = 1e-5;
    int tensors = row->extra;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x[0]));
    DYCL_CALL_TRY(normalized_dims(call, call->p[1], x[0], &attrs[0]));
    for (int i = 0; i < tensors; i++) DYCL_CALL_TRY(dycl_call_optional_value(call, call->p[2 + i], &x[1 + i]));
    if (row->op == DYCL_OP_rms_norm) {
        const dycl_value *v = meta(call, x[0]);
        if (dycl_value_numel(v) == 0) return dycl_call_bail(call, DYCL_BAIL_layout);
        usual = v->dtype == DYCL_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
    }
    PyObject *epsilon = row->op == DYCL_OP_rms_norm && call->p[2 + tensors] == Py_None ? NULL : call->p[2 + tensors];
    DYCL_CALL_TRY(dycl_call_f64_or(call, epsilon, usual, &eps));
    attrs[1] = dycl_f64_attr(eps);
    DYCL_CALL_TRY(dycl_build_node(&call->region->recorder, (dycl_op)row->op, 1 + tensors, x, 2, attrs, &out));
    if (row->op == DYCL_OP_rms_norm &&
        !(meta(call, x[0])->canonical && (x[1] == DYCL_NONE || meta(call, x[1])->canonical)))
        DYCL_CALL_TRY(rms_norm_strides(call, x, (int)attrs[0], &out));
    return dycl_call_finish(call, DYCL_OK, out);
}

static PyObject *batch_norm_of(dycl_call *call, PyObject *mean, PyObject *variance, PyObject *weight, PyObject *bias,
                               PyObject *training, PyObject *epsilon) {
    uint32_t x[5], out = 0;
    int train;
    double eps;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x[0]));
    DYCL_CALL_TRY(dycl_call_bool_or(call, training, 0, &train));
    if (train || !dycl_call_given(mean) || !dycl_call_given(variance)) return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(dycl_call_value(call, mean, &x[1]));
    DYCL_CALL_TRY(dycl_call_value(call, variance, &x[2]));
    DYCL_CALL_TRY(dycl_call_optional_value(call, weight, &x[3]));
    DYCL_CALL_TRY(dycl_call_optional_value(call, bias, &x[4]));
    DYCL_CALL_TRY(dycl_call_f64_or(call, epsilon, 1e-5, &eps));
    if (is_odd_volume(meta(call, x[0]))) return dycl_call_bail(call, DYCL_BAIL_layout);
    int64_t attr = dycl_f64_attr(eps);
    return dycl_call_finish(call, dycl_build_node(&call->region->recorder, DYCL_OP_batch_norm, 5, x, 1, &attr, &out),
                            out);
}

static PyObject *functional_batch_norm(dycl_call *call, const dycl_binding *row) {
    (void)row;
    return batch_norm_of(call, call->p[1], call->p[2], call->p[3], call->p[4], call->p[5], call->p[7]);
}

static PyObject *torch_batch_norm(dycl_call *call, const dycl_binding *row) {
    (void)row;
    return batch_norm_of(call, call->p[3], call->p[4], call->p[1], call->p[2], call->p[5], call->p[7]);
}

static dycl_status build_group_norm(dycl_call *call, const uint32_t x[3], int64_t groups, double eps, uint32_t *out) {
    int64_t attrs[2] = {groups, dycl_f64_attr(eps)};
    if (is_odd_volume(meta(call, x[0])) || dycl_value_numel(meta(call, x[0])) == 0)
        return dycl_build_bail(&call->region->recorder, DYCL_BAIL_layout);
    return dycl_build_node(&call->region->recorder, DYCL_OP_group_norm, 3, x, 2, attrs, out);
}

static PyObject *group_norm(dycl_call *call, const dycl_binding *row) {
    uint32_t x[3], out = 0;
    int64_t groups;
    double eps;
    (void)row;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x[0]));
    DYCL_CALL_TRY(dycl_call_int(call, call->p[1], &groups));
    DYCL_CALL_TRY(dycl_call_optional_value(call, call->p[2], &x[1]));
    DYCL_CALL_TRY(dycl_call_optional_value(call, call->p[3], &x[2]));
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[4], 1e-5, &eps));
    const dycl_value *value = meta(call, x[0]);
    if (value->rank < 2 || dycl_value_numel(value) == value->sizes[0] * groups)
        return dycl_call_bail(call, DYCL_BAIL_shape); /* groups of one element */
    return dycl_call_finish(call, build_group_norm(call, x, groups, eps, &out), out);
}

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

static PyObject *pooled(dycl_call *call, dycl_op op, uint32_t x, int spatial, int rank, int attr_count,
                        const int64_t *attrs) {
    uint32_t out = 0;
    DYCL_CALL_TRY(dycl_build_node(&call->region->recorder, op, 1, &x, attr_count, attrs, &out));
    int mean = op == DYCL_OP_adaptive_avg_pool2d && attrs[0] == 1 &&
               attrs[1] == 1; /* to which torch then gives the strides of channels last */
    uint32_t writes = mean && rank == spatial + 2 && dycl_value_channels_last(meta(call, x)); /* as_strided_ */
    if (spatial == 1) DYCL_CALL_TRY(drop_dim(call, out, 2, &out));
    if (rank == spatial + 1) DYCL_CALL_TRY(drop_dim(call, out, 0, &out));
    int plain_order =
        rank == spatial + 1 ||
        (spatial == 1 && op == DYCL_OP_max_pool2d); /* nothing is channels last, whatever a batch of one looks like */
    if (plain_order && !meta(call, out)->canonical) {
        int64_t plain[DYCL_MAX_RANK];
        dycl_strides_contiguous(rank, meta(call, out)->sizes, plain);
        DYCL_CALL_TRY(dycl_build_dense(&call->region->recorder, out, plain, &out));
    }
    PyObject *result = dycl_call_finish(call, DYCL_OK, out);
    if (spatial == 1 && op != DYCL_OP_max_pool2d) result = dycl_call_as_view(call, result);
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
    DYCL_CALL_TRY(pooled_input(call, call->p[0], spatial, spatial == 1, &x, &rank));
    DYCL_CALL_TRY(pool_windows(call, spatial, attrs));
    DYCL_CALL_TRY(window(call, call->p[4], spatial, 1, dilation));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[5], 0, &ceil_mode));
    DYCL_CALL_TRY(dycl_call_bool_or(call, row->parameter_count > 6 ? call->p[6] : NULL, 0, &indices));
    if (indices) return dycl_call_bail(call, DYCL_BAIL_arguments);
    attrs[6] = spatial == 1 ? 1 : dilation[0];
    attrs[7] = dilation[spatial - 1];
    attrs[8] = ceil_mode;
    return dycl_call_written(call, pooled(call, DYCL_OP_max_pool2d, x, spatial, rank, 9, attrs),
                             spatial == 1 && rank == 2); /* squeeze_ */
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
    return pooled(call, DYCL_OP_avg_pool2d, x, spatial, rank, 8, attrs);
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
    return pooled(call, DYCL_OP_adaptive_avg_pool2d, x, spatial, rank, 2, attrs);
}

/* ---- Attention */

/* With three dimensions or fewer torch computes with matrix products, which the node remembers. */
static dycl_status to_rank_4(dycl_call *call, uint32_t *x) {
    while (meta(call, *x)->rank < 4) {
        dycl_status status = dycl_build_unsqueeze(&call->region->recorder, *x, 0, x);
        if (status != DYCL_OK) return status;
    }
    return DYCL_OK;
}

/* query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa */
static PyObject *attention(dycl_call *call, const dycl_binding *row) {
    uint32_t x[4], out = 0;
    int causal, grouped;
    double dropout, scale;
    dycl_recorder *r = &call->region->recorder;
    (void)row;
    for (int i = 0; i < 3; i++) DYCL_CALL_TRY(dycl_call_value(call, call->p[i], &x[i]));
    DYCL_CALL_TRY(dycl_call_optional_value(call, call->p[3], &x[3]));
    int tracked = x[3] == DYCL_NONE ? 0 : dycl_region_needs_gradient(call->p[3]);
    if (tracked)
        return tracked < 0
                   ? NULL
                   : dycl_call_bail(
                         call, DYCL_BAIL_grad); /* then torch takes another way, also where gradients are disabled */
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[4], 0, &dropout));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[5], 0, &causal));
    int rank = meta(call, x[0])->rank;
    if (dropout != 0 || rank < 2 || rank > 4 || meta(call, x[1])->rank != rank || meta(call, x[2])->rank != rank)
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (causal && x[3] != DYCL_NONE)
        return dycl_call_bail(call, DYCL_BAIL_arguments); /* some of torch's ways of computing it reject that */
    if (x[3] != DYCL_NONE && meta(call, x[3])->rank > rank) return dycl_call_bail(call, DYCL_BAIL_shape);
    int64_t width = meta(call, x[0])->sizes[rank - 1];
    DYCL_CALL_TRY(dycl_call_f64_or(call, dycl_call_given(call->p[6]) ? call->p[6] : NULL,
                                   width ? 1 / sqrt((double)width) : 1, &scale));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[7], 0, &grouped));
    for (int i = 0; i < 3; i++) DYCL_CALL_TRY(to_rank_4(call, &x[i]));
    if (!grouped && meta(call, x[1])->sizes[1] != meta(call, x[0])->sizes[1])
        return dycl_call_bail(call, DYCL_BAIL_shape);
    if (causal && !(scale > 0))
        return dycl_call_bail(call, DYCL_BAIL_arguments); /* hidden scores are -inf before they are scaled */
    int64_t attrs[3] = {causal, dycl_f64_attr(scale), rank};
    DYCL_CALL_TRY(dycl_build_node(r, DYCL_OP_attention, 4, x, 3, attrs, &out));
    for (int i = rank; i < 4; i++) DYCL_CALL_TRY(drop_dim(call, out, 0, &out));
    return dycl_call_finish(call, DYCL_OK, out);
}

/* ---- Gates and other activations */

/* hardtanh(input, min_val, max_val, inplace) and threshold(input, threshold, value, inplace): three operands of one
 * kernel */
static PyObject *three_operands(dycl_call *call, const dycl_binding *row) {
    dycl_operand x[3];
    double a, b;
    int in_place;
    uint32_t out = 0;
    DYCL_CALL_TRY(dycl_call_operand(call, call->p[0], &x[0]));
    if (row->op == DYCL_OP_threshold && (!call->p[1] || !call->p[2])) return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[1], -1, &a));
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[2], 1, &b));
    DYCL_CALL_TRY(dycl_call_bool_or(call, row->parameter_count > 3 ? call->p[3] : NULL, 0, &in_place));
    if (x[0].kind != DYCL_OPERAND_VALUE || !is_float(call, x[0].value)) return dycl_call_bail(call, DYCL_BAIL_dtype);
    if (row->op == DYCL_OP_clamp && !(a <= b)) return dycl_call_bail(call, DYCL_BAIL_arguments);
    call->in_place |= in_place;
    x[1] = dycl_operand_f64(a);
    x[2] = dycl_operand_f64(b);
    dycl_recorder *r = &call->region->recorder;
    DYCL_CALL_TRY(dycl_build_ew(r, (dycl_op)row->op, DYCL_PROMOTE_COMMON, 3, x, &out));
    if (row->op == DYCL_OP_clamp)
        DYCL_CALL_TRY(dycl_build_like(r, out, x[0].value, &out)); /* torch: empty_like, then clamp_out */
    return dycl_call_finish(call, DYCL_OK, out);
}

static PyObject *glu(dycl_call *call, const dycl_binding *row) {
    uint32_t x, half, gate, out = 0;
    int dim;
    dycl_recorder *r = &call->region->recorder;
    (void)row;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x));
    int rank = meta(call, x)->rank;
    if (rank == 0 || !is_float(call, x)) return dycl_call_bail(call, DYCL_BAIL_shape);
    dim = rank - 1;
    if (call->p[1]) DYCL_CALL_TRY(dycl_call_dim(call, call->p[1], rank, &dim));
    int64_t size = meta(call, x)->sizes[dim];
    if (size % 2) return dycl_call_bail(call, DYCL_BAIL_shape);
    DYCL_CALL_TRY(dycl_build_slice(r, x, dim, 0, size / 2, 1, &half));
    DYCL_CALL_TRY(dycl_build_slice(r, x, dim, size / 2, size, 1, &gate));
    DYCL_CALL_TRY(ew1(call, DYCL_OP_sigmoid, gate, &gate));
    return dycl_call_finish(call, ew2(call, DYCL_OP_mul, half, gate, &out), out);
}

/* One slope, or one a channel. */
static PyObject *prelu(dycl_call *call, const dycl_binding *row) {
    uint32_t x, slope, out = 0;
    int64_t sizes[DYCL_MAX_RANK];
    (void)row;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[1], &slope));
    const dycl_value *input = meta(call, x), *weight = meta(call, slope);
    int64_t count = dycl_value_numel(weight);
    if (!is_float(call, x) || weight->dtype != input->dtype || weight->rank > 1 || input->rank == 0 ||
        dycl_value_numel(input) == 0 || (count != 1 && (input->rank < 2 || count != input->sizes[1])))
        return dycl_call_bail(call, DYCL_BAIL_shape);
    for (int i = 0; i < input->rank; i++) sizes[i] = i == 1 ? count : 1;
    DYCL_CALL_TRY(dycl_build_reshape(&call->region->recorder, slope, input->rank, sizes, 1, &slope));
    DYCL_CALL_TRY(ew2(call, DYCL_OP_leaky_relu, x, slope, &out));
    return dycl_call_finish(call, dycl_build_like(&call->region->recorder, out, x, &out), out);
}

/* ---- Losses of two tensors of one shape: input, target, size_average, reduce, reduction */

static PyObject *distance_loss(dycl_call *call, const dycl_binding *row) {
    uint32_t x, y, out = 0;
    PyObject *reduction = call->p[4];
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[1], &y));
    const dycl_value *a = meta(call, x), *b = meta(call, y);
    if (dycl_call_given(call->p[2]) || dycl_call_given(call->p[3]) || dycl_call_given(call->p[5]) ||
        (reduction && !PyUnicode_Check(reduction)))
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    int same = a->rank == b->rank && a->dtype == b->dtype && is_float(call, x);
    for (int i = 0; same && i < a->rank; i++) same = a->sizes[i] == b->sizes[i];
    if (!same || dycl_value_numel(a) == 0) return dycl_call_bail(call, DYCL_BAIL_shape); /* broadcasting warns */
    int none = reduction && PyUnicode_CompareWithASCIIString(reduction, "none") == 0;
    int sum = reduction && PyUnicode_CompareWithASCIIString(reduction, "sum") == 0;
    if (reduction && !none && !sum && PyUnicode_CompareWithASCIIString(reduction, "mean") != 0)
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    int64_t attrs[2] = {(INT64_C(1) << a->rank) - 1, 0};
    DYCL_CALL_TRY(ew2(call, DYCL_OP_sub, x, y, &out));
    DYCL_CALL_TRY(ew1(call, (dycl_op)row->op, out, &out));
    uint32_t operands[2] = {x, y};
    if (none && row->op == DYCL_OP_square)
        DYCL_CALL_TRY(dycl_build_iterated(&call->region->recorder, out, 2, operands, &out)); /* one kernel in torch */
    if (!none)
        DYCL_CALL_TRY(
            dycl_build_node(&call->region->recorder, sum ? DYCL_OP_sum : DYCL_OP_mean, 1, &out, 2, attrs, &out));
    return dycl_call_finish(call, DYCL_OK, out);
}

dycl_binding dycl_bindings_nn[] = {
    ROW("layer_norm", F, "input normalized_shape weight bias eps", norm, DYCL_OP_layer_norm, 2),
    ROW("layer_norm", T, "input normalized_shape weight bias eps cudnn_enable", norm, DYCL_OP_layer_norm, 2),
    ROW("rms_norm", F | T, "input normalized_shape weight eps", norm, DYCL_OP_rms_norm, 1),
    ROW("batch_norm", F, "input running_mean running_var weight bias training momentum eps", functional_batch_norm, 0,
        0),
    ROW("batch_norm", T, "input weight bias running_mean running_var training momentum eps cudnn_enabled",
        torch_batch_norm, 0, 0),
    ROW("group_norm", F, "input num_groups weight bias eps", group_norm, 0, 0),
    ROW("group_norm", T, "input num_groups weight bias eps cudnn_enabled", group_norm, 0, 0),
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
    ROW("scaled_dot_product_attention", F | N, "query key value attn_mask dropout_p is_causal | scale enable_gqa",
        attention, 0, 0),
    ROW("hardtanh", F, "input min_val max_val inplace", three_operands, DYCL_OP_clamp, 0),
    ROW("hardtanh", N, "input min_val max_val", three_operands, DYCL_OP_clamp, 0),
    ROW("threshold", F, "input threshold value inplace", three_operands, DYCL_OP_threshold, 0),
    ROW("threshold", T | I, "input threshold value", three_operands, DYCL_OP_threshold, 0),
    ROW("glu", F | N, "input dim", glu, 0, 0),
    ROW("prelu", T | F | M, "input weight", prelu, 0, 0),
    ROW("mse_loss", F, "input target size_average reduce reduction weight", distance_loss, DYCL_OP_square, 0),
    ROW("l1_loss", F, "input target size_average reduce reduction weight", distance_loss, DYCL_OP_abs, 0),
    {0},
};
