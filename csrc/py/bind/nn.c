/* Operators of neural networks: normalisation, gates, losses. Products are in matmul.c, convolution and pooling
 * in window.c, attention in attention.c. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "ir/infer.h"
#include "kern/batch_norm.h"
#include "py/bind/bind.h"
#include "py/region/replace.h"
#include "py/region/track.h"

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
    dycl_value rows = *meta(call, x[0]), input = rows, product = rows, scaled = rows;
    const dycl_value *operands[2] = {&input, &rows};
    if (is_half(call, x[0])) dycl_infer_preserve(meta(call, x[0]), &input); /* a copy in float32 */
    for (int i = rows.rank - dims; i < rows.rank; i++) rows.sizes[i] = 1;
    dycl_infer_contiguous(&rows);
    dycl_infer_iterator(&product, 2, operands);
    if (x[1] != DYCL_NONE) {
        dycl_value weight = *meta(call, x[1]);
        if (is_half(call, x[0])) dycl_infer_preserve(meta(call, x[1]), &weight);
        operands[0] = &product;
        operands[1] = &weight;
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
        if (x[1] != DYCL_NONE && !dycl_value_contiguous(v) && dycl_track_has_now(call->region, x[1]) &&
            !dycl_track_has_now(call->region, x[0]))
            return dycl_call_bail(call, DYCL_BAIL_layout); /* the node is that of a copy */
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

/* A batch norm's arguments, wherever its function has them. */
typedef struct {
    PyObject *mean, *variance, *weight, *bias, *training, *momentum, *epsilon;
} batch_norm_arguments;

static int is_like(const dycl_value *v, const dycl_value *x) { /* contiguous, of its dtype, one element a channel */
    return v->dtype == x->dtype && v->rank == 1 && v->sizes[0] == x->sizes[1] && v->canonical;
}

/* x as it is in torch's fast ways, whose result has strides that are known: the running statistics, weight and bias are
 * contiguous. Of one element a channel torch says that it has no variance. */
static int is_batch(dycl_call *call, const uint32_t *operands) {
    const dycl_value *x = meta(call, operands[0]);
    int laid = x->rank == 4 ? dycl_value_contiguous(x) || dycl_value_channels_last_dense(x) : x->canonical;
    if (!laid || x->rank < 2 || dycl_value_numel(x) <= x->sizes[1] || (x->dtype != DYCL_F32 && x->dtype != DYCL_F64))
        return 0;
    for (int i = 1; i < 5; i++)
        if (operands[i] != DYCL_NONE && !is_like(meta(call, operands[i]), x)) return 0;
    return 1;
}

/* The statistics of the batch; the running ones get their new values when the segment is computed. What is not usual is
 * torch's. */
static PyObject *batch_norm_in_training(dycl_call *call, const batch_norm_arguments *a) {
    dycl_region *region = call->region;
    dycl_recorder *r = &region->recorder;
    PyObject *running[2] = {a->mean, a->variance};
    uint32_t x[5], made[DYCL_BATCH_RESULTS] = {0}, out = 0; /* x: input, weight, bias, running mean and variance */
    double momentum, eps;
    int keeps = dycl_call_given(a->mean);
    if (keeps != dycl_call_given(a->variance) ||
        (keeps && (a->mean == a->variance || dycl_is_lazy(a->mean) || dycl_is_lazy(a->variance))))
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x[0]));
    DYCL_CALL_TRY(dycl_call_optional_value(call, a->weight, &x[1]));
    DYCL_CALL_TRY(dycl_call_optional_value(call, a->bias, &x[2]));
    DYCL_CALL_TRY(dycl_call_optional_value(call, a->mean, &x[3]));
    DYCL_CALL_TRY(dycl_call_optional_value(call, a->variance, &x[4]));
    DYCL_CALL_TRY(dycl_call_f64_or(call, a->momentum, 0.1, &momentum));
    DYCL_CALL_TRY(dycl_call_f64_or(call, a->epsilon, 1e-5, &eps));
    if (!is_batch(call, x)) return dycl_call_bail(call, DYCL_BAIL_layout);
    int may = keeps ? dycl_replace_unseen(region, 2, running, NULL) : 1;
    if (may <= 0) return may < 0 ? NULL : dycl_call_bail(call, DYCL_BAIL_alias);
    for (int i = 0; i < (keeps ? DYCL_BATCH_RESULTS : 2); i++) {
        int64_t attrs[3] = {i, dycl_f64_attr(momentum), dycl_f64_attr(eps)};
        DYCL_CALL_TRY(dycl_build_node(r, DYCL_OP_batch_stats, 3, (uint32_t[]){x[0], x[3], x[4]}, 3, attrs, &made[i]));
    }
    int64_t attr = dycl_f64_attr(eps);
    DYCL_CALL_TRY(dycl_build_node(r, DYCL_OP_batch_norm_train, 5, (uint32_t[]){x[0], made[0], made[1], x[1], x[2]}, 1,
                                  &attr, &out));
    if (!dycl_track_lets(region, dycl_call_first(call), 1))
        return dycl_call_bail(call, DYCL_BAIL_grad); /* nothing written */
    if (keeps && dycl_replace_unseen(region, 2, running, made + DYCL_BATCH_RUNNING_MEAN) <= 0) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "dycl: a batch norm's statistics could not be kept");
        return NULL;
    }
    return dycl_call_finish(call, DYCL_OK, out);
}

static PyObject *batch_norm_of(dycl_call *call, const batch_norm_arguments *a) {
    uint32_t x[5], out = 0;
    int train;
    double eps;
    DYCL_CALL_TRY(dycl_call_bool_or(call, a->training, 0, &train));
    if (train) return batch_norm_in_training(call, a);
    if (call->region->tracks && dycl_abi_grad_enabled() &&
        (dycl_call_needs_gradient(a->mean) || dycl_call_needs_gradient(a->variance)))
        return dycl_call_bail(call, DYCL_BAIL_grad); /* an error in torch, where it is called */
    if (!dycl_call_given(a->mean) || !dycl_call_given(a->variance)) return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x[0]));
    DYCL_CALL_TRY(dycl_call_value(call, a->mean, &x[1]));
    DYCL_CALL_TRY(dycl_call_value(call, a->variance, &x[2]));
    DYCL_CALL_TRY(dycl_call_optional_value(call, a->weight, &x[3]));
    DYCL_CALL_TRY(dycl_call_optional_value(call, a->bias, &x[4]));
    DYCL_CALL_TRY(dycl_call_f64_or(call, a->epsilon, 1e-5, &eps));
    if (is_odd_volume(meta(call, x[0]))) return dycl_call_bail(call, DYCL_BAIL_layout);
    int64_t attr = dycl_f64_attr(eps);
    return dycl_call_finish(call, dycl_build_node(&call->region->recorder, DYCL_OP_batch_norm, 5, x, 1, &attr, &out),
                            out);
}

static PyObject *functional_batch_norm(dycl_call *call, const dycl_binding *row) {
    PyObject *const *p = call->p;
    (void)row;
    return batch_norm_of(call, &(batch_norm_arguments){p[1], p[2], p[3], p[4], p[5], p[6], p[7]});
}

static PyObject *torch_batch_norm(dycl_call *call, const dycl_binding *row) {
    PyObject *const *p = call->p;
    (void)row;
    return batch_norm_of(call, &(batch_norm_arguments){p[3], p[4], p[1], p[2], p[5], p[6], p[7]});
}

/* weight.repeat(n): a copy, which is what torch saves. */
static dycl_status repeated(dycl_call *call, PyObject *o, int64_t n, uint32_t *out) {
    dycl_recorder *r = &call->region->recorder;
    int64_t plain = 0;
    dycl_status status;
    DYCL_TRY(dycl_call_optional_value(call, o, out));
    if (*out == DYCL_NONE) return DYCL_OK;
    int64_t count = meta(call, *out)->sizes[0], rows[2] = {n, count}, all = n * count;
    if (meta(call, *out)->rank != 1) return dycl_build_bail(r, DYCL_BAIL_shape);
    DYCL_TRY(dycl_build_expand(r, *out, 2, rows, out));
    DYCL_TRY(dycl_build_node(r, DYCL_OP_contiguous, 1, out, 1, &plain, out));
    return dycl_build_reshape(r, *out, 1, &all, 1, out);
fail:
    return status;
}

/* As torch composes it: a batch norm of one element, with a channel for each of the batch's (Normalization.cpp). With
 * running statistics it is torch's. */
static PyObject *instance_norm(dycl_call *call, const dycl_binding *row) {
    PyObject *const *p = call->p;
    int weight = row->extra;
    dycl_recorder *r = &call->region->recorder;
    uint32_t x[5] = {0, 0, 0, DYCL_NONE, DYCL_NONE}, made[2], out = 0;
    int64_t sizes[DYCL_MAX_RANK] = {1};
    double momentum, eps;
    int uses_input = 0;
    DYCL_CALL_TRY(dycl_call_bool_or(call, p[5], row->extra == 3, &uses_input));
    if (!uses_input || dycl_call_given(p[4 - weight]) || dycl_call_given(p[5 - weight]))
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(dycl_call_value(call, p[0], &x[0]));
    DYCL_CALL_TRY(dycl_call_f64_or(call, p[6], 0.1, &momentum)); /* of running statistics: only looked at */
    DYCL_CALL_TRY(dycl_call_f64_or(call, p[7], 1e-5, &eps));
    const dycl_value v = *meta(call, x[0]);
    if (v.rank < 3 || dycl_value_numel(&v) == 0 || dycl_value_numel(&v) == v.sizes[0] * v.sizes[1])
        return dycl_call_bail(call, DYCL_BAIL_shape);
    for (int i = 0; i < 2; i++) DYCL_CALL_TRY(repeated(call, p[weight + i], v.sizes[0], &x[1 + i]));
    memcpy(sizes, v.sizes, sizeof sizes);
    sizes[0] = 1;
    sizes[1] *= v.sizes[0];
    DYCL_CALL_TRY(dycl_build_contiguous(r, x[0], &x[0]));
    DYCL_CALL_TRY(dycl_build_reshape(r, x[0], v.rank, sizes, 1, &x[0]));
    if (!is_batch(call, x)) return dycl_call_bail(call, DYCL_BAIL_layout);
    for (int i = 0; i < 2; i++) {
        int64_t attrs[3] = {i, 0, dycl_f64_attr(eps)};
        DYCL_CALL_TRY(dycl_build_node(r, DYCL_OP_batch_stats, 3, (uint32_t[]){x[0], x[3], x[4]}, 3, attrs, &made[i]));
    }
    int64_t attr = dycl_f64_attr(eps);
    DYCL_CALL_TRY(dycl_build_node(r, DYCL_OP_batch_norm_train, 5, (uint32_t[]){x[0], made[0], made[1], x[1], x[2]}, 1,
                                  &attr, &out));
    DYCL_CALL_TRY(dycl_build_reshape(r, out, v.rank, v.sizes, 1, &out));
    return dycl_call_as_view(call, dycl_call_finish(call, DYCL_OK, out));
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
    if (row->op == DYCL_OP_hardtanh && !(a <= b)) return dycl_call_bail(call, DYCL_BAIL_arguments);
    call->in_place |= in_place;
    call->keeps_result = row->op == DYCL_OP_hardtanh;
    int is_relu6 = row->op == DYCL_OP_hardtanh && call->region->tracks && a == 0 && b == 6;
    x[1] = dycl_operand_f64(a);
    x[2] = dycl_operand_f64(b);
    dycl_recorder *r = &call->region->recorder;
    if (is_relu6)
        DYCL_CALL_TRY(dycl_build_ew(r, DYCL_OP_relu6, DYCL_PROMOTE_COMMON, 1, x, &out));
    else
        DYCL_CALL_TRY(dycl_build_ew(r, (dycl_op)row->op, DYCL_PROMOTE_COMMON, 3, x, &out));
    return dycl_call_finish(call, DYCL_OK, out);
}

static PyObject *glu(dycl_call *call, const dycl_binding *row) {
    uint32_t x, parts[2], half, gate, out = 0;
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
    DYCL_CALL_TRY(dycl_build_slice(r, x, dim, 0, size / 2, 1, &parts[0]));
    DYCL_CALL_TRY(dycl_build_slice(r, x, dim, size / 2, size, 1, &parts[1]));
    dycl_dtype dtype = dtype_of(call, x); /* one kernel in torch: rounded once */
    DYCL_CALL_TRY(dycl_build_cast(r, parts[0], dycl_dtype_computed(dtype), &half));
    DYCL_CALL_TRY(dycl_build_cast(r, parts[1], dycl_dtype_computed(dtype), &gate));
    DYCL_CALL_TRY(ew1(call, DYCL_OP_sigmoid, gate, &gate));
    DYCL_CALL_TRY(ew2(call, DYCL_OP_mul, half, gate, &out));
    DYCL_CALL_TRY(dycl_build_cast(r, out, dtype, &out));
    return dycl_call_finish(call, dycl_build_iterated(r, out, 2, parts, &out), out);
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
    uint32_t operands[2] = {x, y};
    if (row->op == DYCL_OP_square && !(dycl_value_contiguous(a) && dycl_value_contiguous(b)) &&
        dycl_track_any_now(call->region, 2, operands))
        return dycl_call_bail(call, DYCL_BAIL_grad); /* torch's gradient is contiguous, whatever the operands are */
    DYCL_CALL_TRY(ew2(call, DYCL_OP_sub, x, y, &out));
    DYCL_CALL_TRY(ew1(call, (dycl_op)row->op, out, &out));
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
    ROW("instance_norm", F, "input running_mean running_var weight bias use_input_stats momentum eps", instance_norm, 0,
        3),
    ROW("instance_norm", T, "input weight bias running_mean running_var use_input_stats momentum eps cudnn_enabled",
        instance_norm, 0, 1),
    ROW("group_norm", F, "input num_groups weight bias eps", group_norm, 0, 0),
    ROW("group_norm", T, "input num_groups weight bias eps cudnn_enabled", group_norm, 0, 0),
    ROW("hardtanh", F, "input min_val max_val inplace", three_operands, DYCL_OP_hardtanh, 0),
    ROW("hardtanh", N, "input min_val max_val", three_operands, DYCL_OP_hardtanh, 0),
    ROW("threshold", F, "input threshold value inplace", three_operands, DYCL_OP_threshold, 0),
    ROW("threshold", T | I, "input threshold value", three_operands, DYCL_OP_threshold, 0),
    ROW("glu", F | N, "input dim", glu, 0, 0),
    ROW("prelu", T | F | M, "input weight", prelu, 0, 0),
    ROW("mse_loss", F, "input target size_average reduce reduction weight", distance_loss, DYCL_OP_square, 0),
    ROW("l1_loss", F, "input target size_average reduce reduction weight", distance_loss, DYCL_OP_abs, 0),
    {0},
};
