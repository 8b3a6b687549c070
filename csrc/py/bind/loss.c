/* Losses over classes, in the parts that have gradients: only where these are tracked. Elsewhere torch's own kernel is
 * a step (ir/hosted.def). */
#include <string.h>

#include "py/bind/bind.h"
#include "py/bind/index.h"

enum { NONE, MEAN, SUM }; /* at::Reduction */

static int is_zero(PyObject *o) { return !o || (PyFloat_CheckExact(o) && PyFloat_AS_DOUBLE(o) == 0); }

typedef struct {
    uint32_t x, target; /* logits or log-probabilities [c], [n, c] or [n, c, ...], the class of each of the others */
    int64_t dim, ignored;
    int some_ignored;
} classes;

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
fail:
    return status;
}

/* Which targets count, as numbers of the loss's dtype, and where these do not count another class. */
static dycl_status leave_out(dycl_call *call, classes *c, uint32_t *out_counts) {
    dycl_recorder *r = &call->region->recorder;
    dycl_operand sides[2] = {dycl_operand_of(c->target), dycl_operand_i64(c->ignored)}, zero = dycl_operand_i64(0);
    dycl_status status;
    DYCL_TRY(dycl_build_ew(r, DYCL_OP_ne, DYCL_PROMOTE_COMMON, 2, sides, out_counts));
    dycl_operand counts = dycl_operand_of(*out_counts);
    return dycl_build_where(r, &counts, &sides[0], &zero, &c->target);
fail:
    return status;
}

/* The mean is one of those that count. */
static dycl_status reduce(dycl_call *call, uint32_t loss, uint32_t counts, int64_t reduction, uint32_t *out) {
    dycl_recorder *r = &call->region->recorder;
    int64_t attrs[2] = {(INT64_C(1) << meta(call, loss)->rank) - 1, 0};
    uint32_t number;
    dycl_status status;
    if (reduction == MEAN && counts == DYCL_NONE) return dycl_build_node(r, DYCL_OP_mean, 1, &loss, 2, attrs, out);
    DYCL_TRY(dycl_build_node(r, DYCL_OP_sum, 1, &loss, 2, attrs, out));
    if (reduction == SUM) return DYCL_OK;
    DYCL_TRY(dycl_build_cast(r, counts, dtype_of(call, loss), &number));
    DYCL_TRY(dycl_build_node(r, DYCL_OP_sum, 1, &number, 2, attrs, &number));
    return ew2(call, DYCL_OP_div, *out, number, out);
fail:
    return status;
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

/* input, target, weight, reduction, ignore_index, label_smoothing (cross_entropy_loss) */
static PyObject *class_loss(dycl_call *call, const dycl_binding *row) {
    dycl_recorder *r = &call->region->recorder;
    uint32_t counts = DYCL_NONE, out = 0;
    int of_logits = row->extra;
    int64_t reduction;
    classes c;
    if (!call->region->tracks) return dycl_call_bail(call, DYCL_BAIL_operator);
    DYCL_CALL_TRY(dycl_call_int_or(call, call->p[3], MEAN, &reduction));
    if (dycl_call_given(call->p[2]) || reduction < NONE || reduction > SUM || (of_logits && !is_zero(call->p[5])))
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(read_classes(call, &c));
    if (!of_logits && meta(call, c.x)->rank == 4 && !dycl_value_contiguous(meta(call, c.x)))
        return dycl_call_bail(call, DYCL_BAIL_grad); /* torch's backward pass raises: "grad_input must be contiguous" */
    DYCL_CALL_TRY(dycl_build_contiguous(r, c.target, &c.target)); /* so is what torch's kernels answer */
    if (of_logits) DYCL_CALL_TRY(dycl_build_node(r, DYCL_OP_log_softmax, 1, &c.x, 1, &c.dim, &c.x));
    dycl_value like = *meta(call, c.target), shape = like;
    int is_view = reduction == NONE && kernel_shape(&like, &shape);
    if (c.some_ignored) DYCL_CALL_TRY(leave_out(call, &c, &counts));
    DYCL_CALL_TRY(dycl_build_unsqueeze(r, c.target, (int)c.dim, &c.target));
    uint32_t operands[2] = {c.x, c.target};
    DYCL_CALL_TRY(dycl_build_node(r, DYCL_OP_gather, 2, operands, 1, &c.dim, &out));
    DYCL_CALL_TRY(dycl_build_reshape(r, out, shape.rank, shape.sizes, 0, &out));
    DYCL_CALL_TRY(ew1(call, DYCL_OP_neg, out, &out));
    if (counts != DYCL_NONE) {
        DYCL_CALL_TRY(dycl_build_reshape(r, counts, shape.rank, shape.sizes, 0, &counts));
        dycl_operand counted = dycl_operand_of(counts), loss = dycl_operand_of(out), zero = dycl_operand_f64(0);
        DYCL_CALL_TRY(dycl_build_where(r, &counted, &loss, &zero, &out));
    }
    if (reduction != NONE) DYCL_CALL_TRY(reduce(call, out, counts, reduction, &out));
    if (!is_view) return dycl_call_finish(call, DYCL_OK, out);
    DYCL_CALL_TRY(dycl_build_reshape(r, out, like.rank, like.sizes, 1, &out));
    return dycl_call_as_view(call, dycl_call_finish(call, DYCL_OK, out));
}

dycl_binding dycl_bindings_loss[] = {
    ROW("cross_entropy_loss", N, "input target weight reduction ignore_index label_smoothing", class_loss, 0, 1),
    ROW("nll_loss_nd", N, "input target weight reduction ignore_index", class_loss, 0, 0),
    {0},
};
