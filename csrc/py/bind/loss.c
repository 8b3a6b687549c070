/* Losses over classes, in the parts that have gradients: only where these are tracked. Elsewhere torch's own kernel is
 * a step (ir/hosted.def). */
#include <string.h>

#include "py/bind/bind.h"
#include "py/bind/index.h"

enum { NONE, MEAN, SUM }; /* at::Reduction */

static int is_zero(PyObject *o) { return !o || (PyFloat_CheckExact(o) && PyFloat_AS_DOUBLE(o) == 0); }

/* logits or log-probabilities [c], [n, c] or [n, c, ...], the class of each of the others; none is ignored */
static dycl_status read_classes(dycl_call *call, uint32_t *out_x, uint32_t *out_target) {
    dycl_recorder *r = &call->region->recorder;
    int64_t bounds[2], ignored;
    dycl_status status;
    DYCL_TRY(dycl_call_int_or(call, call->p[4], -100, &ignored));
    if (!call->p[1] || !dycl_is_tensor(call->p[1])) return dycl_build_bail(r, DYCL_BAIL_arguments);
    DYCL_TRY(dycl_region_index(call->region, call->p[1], out_target, bounds));
    DYCL_TRY(dycl_call_value(call, call->p[0], out_x));
    const dycl_value *x = dycl_call_meta(call, *out_x), *target = dycl_call_meta(call, *out_target);
    int dim = x->rank > 1;
    if ((x->dtype != DYCL_F32 && x->dtype != DYCL_F64) || target->dtype != DYCL_I64)
        return dycl_build_bail(r, DYCL_BAIL_dtype);
    if (x->rank == 0 || target->rank != x->rank - 1 || dycl_value_numel(x) == 0)
        return dycl_build_bail(r, DYCL_BAIL_shape);
    for (int i = 0; i < target->rank; i++)
        if (target->sizes[i] != x->sizes[i < dim ? i : i + 1]) return dycl_build_bail(r, DYCL_BAIL_shape);
    if (!dycl_index_within(bounds, x->sizes[dim]) || (ignored >= bounds[0] && ignored <= bounds[1]))
        return dycl_build_bail(r, DYCL_BAIL_index);
fail:
    return status;
}

/* input, target, weight, reduction, ignore_index, label_smoothing (cross_entropy_loss) */
static PyObject *class_loss(dycl_call *call, const dycl_binding *row) {
    dycl_recorder *r = &call->region->recorder;
    uint32_t x, target, out = 0;
    int of_logits = row->extra;
    int64_t reduction;
    if (!call->region->tracks) return dycl_call_bail(call, DYCL_BAIL_operator);
    DYCL_CALL_TRY(dycl_call_int_or(call, call->p[3], MEAN, &reduction));
    if (dycl_call_given(call->p[2]) || reduction < NONE || reduction > SUM || (of_logits && !is_zero(call->p[5])))
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(read_classes(call, &x, &target));
    int64_t dim = meta(call, x)->rank > 1;
    if (of_logits) DYCL_CALL_TRY(dycl_build_node(r, DYCL_OP_log_softmax, 1, &x, 1, &dim, &x));
    dycl_value like = *meta(call, target);
    DYCL_CALL_TRY(dycl_build_unsqueeze(r, target, (int)dim, &target));
    uint32_t operands[2] = {x, target};
    DYCL_CALL_TRY(dycl_build_node(r, DYCL_OP_gather, 2, operands, 1, &dim, &out));
    DYCL_CALL_TRY(ew1(call, DYCL_OP_neg, out, &out));
    if (reduction == NONE) {
        DYCL_CALL_TRY(dycl_build_reshape(r, out, like.rank, like.sizes, 0, &out));
    } else {
        int64_t attrs[2] = {(INT64_C(1) << meta(call, out)->rank) - 1, 0};
        dycl_op op = reduction == SUM ? DYCL_OP_sum : DYCL_OP_mean;
        DYCL_CALL_TRY(dycl_build_node(r, op, 1, &out, 2, attrs, &out));
    }
    return dycl_call_finish(call, DYCL_OK, out);
}

dycl_binding dycl_bindings_loss[] = {
    ROW("cross_entropy_loss", N, "input target weight reduction ignore_index label_smoothing", class_loss, 0, 1),
    ROW("nll_loss_nd", N, "input target weight reduction ignore_index", class_loss, 0, 0),
    {0},
};
