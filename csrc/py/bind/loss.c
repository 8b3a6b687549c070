/* Losses over classes, in the parts that have gradients: only where these are tracked. Elsewhere torch's own kernel is
 * a step (ir/hosted.def). */
#include <string.h>

#include "ir/infer.h"
#include "py/bind/bind.h"
#include "py/bind/hosted.h"
#include "py/bind/index.h"

enum { NONE, MEAN, SUM }; /* at::Reduction */

typedef struct {
    uint32_t x, target; /* logits or log-probabilities [c], [n, c] or [n, c, ...], the class of each of the others */
    uint32_t weight;    /* of each class, or NONE */
    uint32_t counts;    /* which targets are not ignored, or NONE: all of them */
    int64_t dim, ignored, reduction;
    int some_ignored;
} classes;

/* Of this dtype, one for each class, and without a gradient. */
static dycl_status read_weight(dycl_call *call, classes *c) {
    dycl_recorder *r = &call->region->recorder;
    dycl_status status;
    c->weight = DYCL_NONE;
    if (!dycl_call_given(call->p[2])) return DYCL_OK;
    if (dycl_call_needs_gradient(call->p[2])) return dycl_build_bail(r, DYCL_BAIL_grad);
    DYCL_TRY(dycl_call_value(call, call->p[2], &c->weight));
    const dycl_value *w = meta(call, c->weight), *x = meta(call, c->x);
    if (w->dtype != x->dtype) return dycl_build_bail(r, DYCL_BAIL_dtype);
    if (w->rank != 1 || w->sizes[0] != x->sizes[c->dim]) return dycl_build_bail(r, DYCL_BAIL_shape);
fail:
    return status;
}

static dycl_status read_classes(dycl_call *call, classes *c) {
    dycl_recorder *r = &call->region->recorder;
    int64_t bounds[2];
    dycl_status status;
    DYCL_TRY(dycl_call_int_or(call, call->p[4], -100, &c->ignored));
    if (!call->p[1] || !dycl_is_tensor(call->p[1])) return dycl_build_bail(r, DYCL_BAIL_arguments);
    DYCL_TRY(dycl_region_index_but(call->region, call->p[1], c->ignored, &c->target, bounds, &c->some_ignored));
    DYCL_TRY(dycl_call_value(call, call->p[0], &c->x));
    const dycl_value *x = dycl_call_meta(call, c->x), *target = dycl_call_meta(call, c->target);
    c->dim = x->rank > 1;
    if ((x->dtype != DYCL_F32 && x->dtype != DYCL_F64) || target->dtype != DYCL_I64)
        return dycl_build_bail(r, DYCL_BAIL_dtype);
    if (x->rank == 0 || target->rank != x->rank - 1 || dycl_value_numel(x) == 0)
        return dycl_build_bail(r, DYCL_BAIL_shape);
    for (int i = 0; i < target->rank; i++)
        if (target->sizes[i] != x->sizes[i < c->dim ? i : i + 1]) return dycl_build_bail(r, DYCL_BAIL_shape);
    if (!dycl_index_within(bounds, x->sizes[c->dim])) return dycl_build_bail(r, DYCL_BAIL_index);
    return read_weight(call, c);
fail:
    return status;
}

/* Which targets count, and where these do not count another class. */
static dycl_status leave_out(dycl_call *call, classes *c) {
    dycl_recorder *r = &call->region->recorder;
    dycl_operand sides[2] = {dycl_operand_of(c->target), dycl_operand_i64(c->ignored)}, zero = dycl_operand_i64(0);
    dycl_status status;
    DYCL_TRY(dycl_build_ew(r, DYCL_OP_ne, DYCL_PROMOTE_COMMON, 2, sides, &c->counts));
    dycl_operand counts = dycl_operand_of(c->counts);
    return dycl_build_where(r, &counts, &sides[0], &zero, &c->target);
fail:
    return status;
}

/* 0 where a target is ignored. */
static dycl_status clear(dycl_call *call, const classes *c, uint32_t *loss) {
    dycl_recorder *r = &call->region->recorder;
    const dycl_value like = *meta(call, *loss); /* building may move the graph that it lies in */
    uint32_t counts;
    dycl_status status;
    if (c->counts == DYCL_NONE) return DYCL_OK;
    DYCL_TRY(dycl_build_reshape(r, c->counts, like.rank, like.sizes, 0, &counts));
    dycl_operand counted = dycl_operand_of(counts), x = dycl_operand_of(*loss), zero = dycl_operand_f64(0);
    return dycl_build_where(r, &counted, &x, &zero, loss);
fail:
    return status;
}

/* The weight of each target's class, 0 where it is ignored. */
static dycl_status weigh(dycl_call *call, const classes *c, uint32_t *out) {
    dycl_recorder *r = &call->region->recorder;
    const dycl_value like = *meta(call, c->target);
    int64_t count = dycl_value_numel(&like), first = 0;
    uint32_t picked[2] = {c->weight, 0};
    dycl_status status;
    DYCL_TRY(dycl_build_reshape(r, c->target, 1, &count, 0, &picked[1]));
    DYCL_TRY(dycl_build_node(r, DYCL_OP_index_select, 2, picked, 1, &first, out));
    DYCL_TRY(dycl_build_reshape(r, *out, like.rank, like.sizes, 0, out));
    return clear(call, c, out);
fail:
    return status;
}

static dycl_status sum(dycl_call *call, uint32_t *x) {
    int64_t attrs[2] = {(INT64_C(1) << meta(call, *x)->rank) - 1, 0};
    return dycl_build_node(&call->region->recorder, DYCL_OP_sum, 1, x, 2, attrs, x);
}

/* The mean is one of those that count, each as often as its class weighs. */
static dycl_status reduce(dycl_call *call, const classes *c, uint32_t *loss) {
    int64_t attrs[2] = {(INT64_C(1) << meta(call, *loss)->rank) - 1, 0};
    uint32_t number;
    dycl_status status;
    if (c->reduction == NONE) return DYCL_OK;
    if (c->reduction == MEAN && c->counts == DYCL_NONE && c->weight == DYCL_NONE)
        return dycl_build_node(&call->region->recorder, DYCL_OP_mean, 1, loss, 2, attrs, loss);
    if (c->reduction == MEAN && c->weight != DYCL_NONE)
        DYCL_TRY(weigh(call, c, &number));
    else if (c->reduction == MEAN)
        DYCL_TRY(dycl_build_cast(&call->region->recorder, c->counts, dtype_of(call, *loss), &number));
    DYCL_TRY(sum(call, loss));
    if (c->reduction == SUM) return DYCL_OK;
    DYCL_TRY(sum(call, &number));
    return ew2(call, DYCL_OP_div, *loss, number, loss);
fail:
    return status;
}

/* One weight for each class, along the classes of x. */
static dycl_status times_weight(dycl_call *call, const classes *c, uint32_t *x) {
    int64_t sizes[DYCL_MAX_RANK];
    uint32_t weight;
    dycl_status status;
    if (c->weight == DYCL_NONE) return DYCL_OK;
    const dycl_value *shape = meta(call, *x);
    for (int i = 0; i < shape->rank; i++) sizes[i] = i == c->dim ? shape->sizes[i] : 1;
    DYCL_TRY(dycl_build_reshape(&call->region->recorder, c->weight, shape->rank, sizes, 0, &weight));
    return ew2(call, DYCL_OP_mul, *x, weight, x);
fail:
    return status;
}

/* Torch's own kernel, of which the gradient is a formula (grad/loss.c): it saves its operands. */
static dycl_status hosted(dycl_call *call, const classes *c, uint32_t target, const dycl_value *shape, uint32_t *out) {
    dycl_hosted_call h = {.operand_count = 3, .operands = {c->x, target, c->weight}, .word_count = 2};
    dycl_value made = *shape;
    h.words[0] = c->reduction;
    h.words[1] = c->ignored;
    made.dtype = (uint8_t)dtype_of(call, c->x);
    if (c->reduction != NONE) made.rank = 0;
    dycl_infer_contiguous(&made);
    return dycl_hosted_node(call, DYCL_OP_aten_nll_loss_nd, 0, (dycl_dtype)made.dtype, made.rank, made.sizes,
                            made.strides, &h, out);
}

/* The shape in which torch's kernels give a loss for each target: they know [n, c] and [n, c, h, w]. Of anything else
 * they make [n, c, 1, ...], and what comes out is a view of [n, 1, ...]: returns 1. */
static int kernel_shape(const dycl_value *targets, dycl_value *out) {
    int64_t numel = dycl_value_numel(targets);
    *out = *targets;
    if (targets->rank < 2 || targets->rank == 3) return 0;
    out->rank = 3;
    out->sizes[1] = 1;
    out->sizes[2] = numel / out->sizes[0];
    return 1;
}

/* Minus the log-probability of each target's class. */
static dycl_status of_targets(dycl_call *call, const classes *c, const dycl_value *shape, uint32_t *out) {
    dycl_recorder *r = &call->region->recorder;
    uint32_t operands[2] = {c->x, 0};
    dycl_status status;
    DYCL_TRY(dycl_build_unsqueeze(r, c->target, (int)c->dim, &operands[1]));
    DYCL_TRY(dycl_build_node(r, DYCL_OP_gather, 2, operands, 1, &c->dim, out));
    DYCL_TRY(dycl_build_reshape(r, *out, shape->rank, shape->sizes, 0, out));
    DYCL_TRY(ew1(call, DYCL_OP_neg, *out, out));
    DYCL_TRY(clear(call, c, out));
    return reduce(call, c, out);
fail:
    return status;
}

/* The same of all classes, a little of which is added to the loss (torch's cross_entropy_loss_label_smoothing). */
static dycl_status smoothed(dycl_call *call, const classes *c, double smoothing, uint32_t *loss) {
    int64_t attrs[2] = {INT64_C(1) << c->dim, 0};
    uint32_t all = c->x;
    dycl_status status;
    DYCL_TRY(times_weight(call, c, &all));
    DYCL_TRY(dycl_build_node(&call->region->recorder, DYCL_OP_sum, 1, &all, 2, attrs, &all));
    DYCL_TRY(ew1(call, DYCL_OP_neg, all, &all));
    DYCL_TRY(clear(call, c, &all));
    DYCL_TRY(reduce(call, c, &all));
    DYCL_TRY(ew_number(call, DYCL_OP_mul, all, smoothing / (double)meta(call, c->x)->sizes[c->dim], &all));
    DYCL_TRY(ew_number(call, DYCL_OP_mul, *loss, 1 - smoothing, loss));
    return ew2(call, DYCL_OP_add, all, *loss, loss);
fail:
    return status;
}

static PyObject *of_classes(dycl_call *call, int of_logits, int64_t reduction, double smoothing) {
    dycl_recorder *r = &call->region->recorder;
    uint32_t out = 0;
    classes c = {.counts = DYCL_NONE, .reduction = reduction};
    DYCL_CALL_TRY(read_classes(call, &c));
    if (!of_logits && meta(call, c.x)->rank == 4 && !dycl_value_contiguous(meta(call, c.x)))
        return dycl_call_bail(call, DYCL_BAIL_grad); /* torch's backward pass raises: "grad_input must be contiguous" */
    DYCL_CALL_TRY(dycl_build_contiguous(r, c.target, &c.target)); /* so is what torch's kernels answer */
    if (of_logits) DYCL_CALL_TRY(dycl_build_node(r, DYCL_OP_log_softmax, 1, &c.x, 1, &c.dim, &c.x));
    dycl_value like = *meta(call, c.target), shape = like;
    int is_view = reduction == NONE && kernel_shape(&like, &shape);
    if (is_view && c.weight != DYCL_NONE) return dycl_call_bail(call, DYCL_BAIL_arguments);
    uint32_t target = c.target;
    if (c.some_ignored) DYCL_CALL_TRY(leave_out(call, &c));
    /* log_softmax saves its result, too */
    int saves_x = !dycl_value_is_made_by(&r->graph, c.x, DYCL_OP_log_softmax);
    if (c.weight != DYCL_NONE || (saves_x && !is_view))
        DYCL_CALL_TRY(hosted(call, &c, target, &shape, &out));
    else
        DYCL_CALL_TRY(of_targets(call, &c, &shape, &out));
    if (is_view) DYCL_CALL_TRY(dycl_build_reshape(r, out, like.rank, like.sizes, 1, &out));
    if (smoothing == 0) {
        PyObject *result = dycl_call_finish(call, DYCL_OK, out);
        return is_view ? dycl_call_as_view(call, result) : result;
    }
    return dycl_call_finish(call, smoothed(call, &c, smoothing, &out), out);
}

/* A target that says how probable each class is (torch's cross_entropy_loss_prob_target). */
static PyObject *of_probabilities(dycl_call *call, int64_t reduction, double smoothing) {
    dycl_recorder *r = &call->region->recorder;
    classes c = {.reduction = reduction};
    uint32_t out = 0;
    DYCL_CALL_TRY(dycl_call_int_or(call, call->p[4], -100, &c.ignored));
    if (c.ignored >= 0) return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &c.x));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[1], &c.target));
    const dycl_value *x = meta(call, c.x), *target = meta(call, c.target);
    if ((x->dtype != DYCL_F32 && x->dtype != DYCL_F64) || target->dtype != x->dtype)
        return dycl_call_bail(call, DYCL_BAIL_dtype);
    if (x->rank == 0 || target->rank != x->rank || memcmp(x->sizes, target->sizes, x->rank * sizeof *x->sizes) ||
        dycl_value_numel(x) == 0)
        return dycl_call_bail(call, DYCL_BAIL_shape);
    c.dim = x->rank > 1;
    DYCL_CALL_TRY(read_weight(call, &c));
    const int64_t number = meta(call, c.x)->sizes[c.dim], count = dycl_value_numel(meta(call, c.x)) / number;
    DYCL_CALL_TRY(dycl_build_node(r, DYCL_OP_log_softmax, 1, &c.x, 1, &c.dim, &c.x));
    if (smoothing > 0) {
        DYCL_CALL_TRY(ew_number(call, DYCL_OP_mul, c.target, 1 - smoothing, &c.target));
        DYCL_CALL_TRY(ew_number(call, DYCL_OP_add, c.target, smoothing / (double)number, &c.target));
    }
    DYCL_CALL_TRY(ew2(call, DYCL_OP_mul, c.x, c.target, &out));
    DYCL_CALL_TRY(times_weight(call, &c, &out));
    if (reduction == NONE) {
        int64_t attrs[2] = {INT64_C(1) << c.dim, 0};
        DYCL_CALL_TRY(dycl_build_node(r, DYCL_OP_sum, 1, &out, 2, attrs, &out));
    } else {
        DYCL_CALL_TRY(sum(call, &out));
    }
    DYCL_CALL_TRY(ew1(call, DYCL_OP_neg, out, &out));
    if (reduction == MEAN) DYCL_CALL_TRY(ew_number(call, DYCL_OP_div, out, (double)count, &out));
    return dycl_call_finish(call, DYCL_OK, out);
}

static int is_of_floats(PyObject *o) {
    dycl_lazy_meta m;
    dycl_tensor_view view;
    if (!o || !dycl_is_tensor(o)) return 0;
    if (dycl_is_lazy(o)) return dycl_lazy_describe(o, &m) == 0 && dycl_dtype_is_float(m.dtype);
    return dycl_abi_is_plain(dycl_abi_impl(o)) && dycl_abi_read(dycl_abi_borrow(o), &view) &&
           dycl_dtype_is_float(view.dtype);
}

/* input, target, weight, reduction, ignore_index, label_smoothing (cross_entropy_loss) */
static PyObject *class_loss(dycl_call *call, const dycl_binding *row) {
    int of_logits = row->extra;
    int64_t reduction;
    double smoothing = 0;
    if (!call->region->tracks) return dycl_call_bail(call, DYCL_BAIL_operator);
    DYCL_CALL_TRY(dycl_call_int_or(call, call->p[3], MEAN, &reduction));
    if (of_logits) DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[5], 0, &smoothing));
    if (reduction < NONE || reduction > SUM || !(smoothing >= 0 && smoothing <= 1))
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (of_logits && is_of_floats(call->p[1])) return of_probabilities(call, reduction, smoothing);
    return PyErr_Occurred() ? NULL : of_classes(call, of_logits, reduction, smoothing);
}

dycl_binding dycl_bindings_loss[] = {
    ROW("cross_entropy_loss", N, "input target weight reduction ignore_index label_smoothing", class_loss, 0, 1),
    ROW("nll_loss_nd", N, "input target weight reduction ignore_index", class_loss, 0, 0),
    {0},
};
