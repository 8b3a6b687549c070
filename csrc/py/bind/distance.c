/* Distances, and losses made of them, in the parts that torch composes them of: only where something has a history.
 * Elsewhere torch's own function is a step (ir/hosted.def). */
#include "py/bind/bind.h"
#include "py/bind/reduce.h"
#include "py/region/track.h"

enum { NONE, MEAN, SUM }; /* at::Reduction */

/* The first operands: of one dtype of floating point, not empty; one of them has a history. */
static dycl_status read_all(dycl_call *call, int count, uint32_t *x) {
    dycl_recorder *r = &call->region->recorder;
    int tracked = 0;
    dycl_status status;
    if (!call->region->tracks) return dycl_build_bail(r, DYCL_BAIL_operator);
    for (int i = 0; i < count; i++) {
        DYCL_TRY(dycl_call_value(call, call->p[i], &x[i]));
        dycl_dtype dtype = dtype_of(call, x[i]);
        if ((dtype != DYCL_F32 && dtype != DYCL_F64) || dtype != dtype_of(call, x[0]))
            return dycl_build_bail(r, DYCL_BAIL_dtype);
        if (meta(call, x[i])->rank == 0 || dycl_value_numel(meta(call, x[i])) == 0)
            return dycl_build_bail(r, DYCL_BAIL_shape);
    }
    for (int i = 0; i < count; i++) tracked |= dycl_track_has_now(call->region, x[i]);
    return tracked ? DYCL_OK : dycl_build_bail(r, DYCL_BAIL_operator);
fail:
    return status;
}

static dycl_status reduced(dycl_call *call, uint32_t loss, int64_t reduction, uint32_t *out) {
    int64_t attrs[2] = {(INT64_C(1) << meta(call, loss)->rank) - 1, 0};
    *out = loss;
    if (reduction == NONE) return DYCL_OK;
    dycl_op op = reduction == MEAN ? DYCL_OP_mean : DYCL_OP_sum;
    return dycl_build_node(&call->region->recorder, op, 1, &loss, 2, attrs, out);
}

/* What is above zero: clamp_min(x, 0) */
static dycl_status above_zero(dycl_call *call, uint32_t x, uint32_t *out) {
    dycl_operand pair[2] = {dycl_operand_f64(0), dycl_operand_of(x)};
    return dycl_build_ew(&call->region->recorder, DYCL_OP_maximum, DYCL_PROMOTE_NO_BOOL, 2, pair, out);
}

static dycl_status apart(dycl_call *call, uint32_t a, uint32_t b, double order, double eps, int keep, uint32_t *out) {
    uint32_t off;
    dycl_status status;
    if (order != 1 && order != 2) return dycl_build_bail(&call->region->recorder, DYCL_BAIL_grad);
    DYCL_TRY(ew2(call, DYCL_OP_sub, a, b, &off));
    DYCL_TRY(ew_number(call, DYCL_OP_add, off, eps, &off));
    return dycl_call_vector_norm(call, off, order, UINT32_C(1) << (meta(call, off)->rank - 1), keep, out);
fail:
    return status;
}

/* x1, x2, p, eps, keepdim */
static PyObject *pairwise_distance(dycl_call *call, const dycl_binding *row) {
    uint32_t x[2], out = 0;
    double order, eps;
    int keep;
    (void)row;
    DYCL_CALL_TRY(read_all(call, 2, x));
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[2], 2, &order));
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[3], 1e-6, &eps));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[4], 0, &keep));
    return dycl_call_finish(call, apart(call, x[0], x[1], order, eps, keep, &out), out);
}

/* A vector over its length, at least eps: what the length gives back does not know that. */
static dycl_status direction(dycl_call *call, uint32_t x, int dim, double eps, uint32_t *out) {
    dycl_recorder *r = &call->region->recorder;
    uint32_t length, missing, small;
    dycl_status status;
    DYCL_TRY(dycl_call_vector_norm(call, x, 2, UINT32_C(1) << dim, 1, &length));
    dycl_operand rest[2] = {dycl_operand_f64(eps), dycl_operand_of(length)};
    DYCL_TRY(dycl_build_ew(r, DYCL_OP_sub, DYCL_PROMOTE_COMMON, 2, rest, &missing));
    DYCL_TRY(ew1(call, DYCL_OP_cut, missing, &missing));
    DYCL_TRY(ew_number(call, DYCL_OP_lt, length, eps, &small));
    DYCL_TRY(ew2(call, DYCL_OP_add, length, missing, &missing));
    dycl_operand choice[3] = {dycl_operand_of(small), dycl_operand_of(missing), dycl_operand_of(length)};
    DYCL_TRY(dycl_build_where(r, &choice[0], &choice[1], &choice[2], &length));
    return ew2(call, DYCL_OP_div, x, length, out);
fail:
    return status;
}

/* Both of the common sizes. */
static dycl_status broadcast(dycl_call *call, uint32_t x[2]) {
    int64_t sizes[DYCL_MAX_RANK];
    int rank = dycl_call_common_sizes(call, 2, x, sizes);
    dycl_status status;
    for (int i = 0; i < 2; i++) DYCL_TRY(dycl_build_expand(&call->region->recorder, x[i], rank, sizes, &x[i]));
    return DYCL_OK;
fail:
    return status;
}

/* x1, x2, dim, eps */
static PyObject *cosine_similarity(dycl_call *call, const dycl_binding *row) {
    uint32_t x[2], out = 0;
    double eps;
    int64_t given;
    int dim;
    (void)row;
    DYCL_CALL_TRY(read_all(call, 2, x));
    DYCL_CALL_TRY(dycl_call_int_or(call, call->p[2], 1, &given));
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[3], 1e-8, &eps));
    if (!(eps >= 0)) return dycl_call_bail(call, DYCL_BAIL_arguments); /* an error in torch */
    DYCL_CALL_TRY(broadcast(call, x));
    int rank = meta(call, x[0])->rank;
    if (given < -rank || given >= rank) return dycl_call_bail(call, DYCL_BAIL_shape);
    dim = (int)(given < 0 ? given + rank : given);
    for (int i = 0; i < 2; i++) DYCL_CALL_TRY(direction(call, x[i], dim, eps, &x[i]));
    DYCL_CALL_TRY(ew2(call, DYCL_OP_mul, x[0], x[1], &out));
    int64_t attrs[2] = {INT64_C(1) << dim, 0};
    return dycl_call_finish(call, dycl_build_node(&call->region->recorder, DYCL_OP_sum, 1, &out, 2, attrs, &out), out);
}

/* anchor, positive, negative, margin, p, eps, swap, reduction */
static PyObject *triplet(dycl_call *call, const dycl_binding *row) {
    uint32_t x[3], near, far, between, out = 0;
    double margin, order, eps;
    int swap;
    int64_t reduction;
    (void)row;
    DYCL_CALL_TRY(read_all(call, 3, x));
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[3], 1, &margin));
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[4], 2, &order));
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[5], 1e-6, &eps));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[6], 0, &swap));
    DYCL_CALL_TRY(dycl_call_int_or(call, call->p[7], MEAN, &reduction));
    if (meta(call, x[0])->rank != meta(call, x[1])->rank || meta(call, x[0])->rank != meta(call, x[2])->rank)
        return dycl_call_bail(call, DYCL_BAIL_shape);
    DYCL_CALL_TRY(apart(call, x[0], x[1], order, eps, 0, &near));
    DYCL_CALL_TRY(apart(call, x[0], x[2], order, eps, 0, &far));
    if (swap) {
        DYCL_CALL_TRY(apart(call, x[1], x[2], order, eps, 0, &between));
        DYCL_CALL_TRY(ew2(call, DYCL_OP_minimum, far, between, &far));
    }
    DYCL_CALL_TRY(ew_number(call, DYCL_OP_add, near, margin, &out));
    DYCL_CALL_TRY(ew2(call, DYCL_OP_sub, out, far, &out));
    DYCL_CALL_TRY(above_zero(call, out, &out));
    return dycl_call_finish(call, reduced(call, out, reduction, &out), out);
}

/* input1, input2, target, margin, reduction */
static PyObject *margin_ranking(dycl_call *call, const dycl_binding *row) {
    uint32_t x[3], off, out = 0;
    double margin;
    int64_t reduction;
    (void)row;
    DYCL_CALL_TRY(read_all(call, 3, x));
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[3], 0, &margin));
    DYCL_CALL_TRY(dycl_call_int_or(call, call->p[4], MEAN, &reduction));
    DYCL_CALL_TRY(ew1(call, DYCL_OP_neg, x[2], &out));
    DYCL_CALL_TRY(ew2(call, DYCL_OP_sub, x[0], x[1], &off));
    DYCL_CALL_TRY(ew2(call, DYCL_OP_mul, out, off, &out));
    DYCL_CALL_TRY(ew_number(call, DYCL_OP_add, out, margin, &out));
    DYCL_CALL_TRY(above_zero(call, out, &out));
    PyObject *result = dycl_call_finish(call, reduced(call, out, reduction, &out), out);
    return dycl_call_written(call, result, reduction == NONE); /* torch clamps it in place */
}

/* x where the labels are (or are not) that number, else 0 */
static dycl_status chosen(dycl_call *call, dycl_op compare, uint32_t labels, double number, uint32_t x, uint32_t *out) {
    uint32_t which;
    dycl_status status;
    DYCL_TRY(ew_number(call, compare, labels, number, &which));
    dycl_operand choice[3] = {dycl_operand_of(which), dycl_operand_of(x), dycl_operand_f64(0)};
    return dycl_build_where(&call->region->recorder, &choice[0], &choice[1], &choice[2], out);
fail:
    return status;
}

/* input, target (1 or -1), margin, reduction */
static PyObject *hinge_embedding(dycl_call *call, const dycl_binding *row) {
    dycl_recorder *r = &call->region->recorder;
    uint32_t x[2], off, near, far, out = 0;
    double margin;
    int64_t reduction;
    (void)row;
    DYCL_CALL_TRY(read_all(call, 2, x));
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[2], 1, &margin));
    DYCL_CALL_TRY(dycl_call_int_or(call, call->p[3], MEAN, &reduction));
    dycl_operand rest[2] = {dycl_operand_f64(margin), dycl_operand_of(x[0])};
    DYCL_CALL_TRY(dycl_build_ew(r, DYCL_OP_sub, DYCL_PROMOTE_COMMON, 2, rest, &off));
    DYCL_CALL_TRY(above_zero(call, off, &off));
    DYCL_CALL_TRY(chosen(call, DYCL_OP_ne, x[1], 1, off, &far));
    DYCL_CALL_TRY(chosen(call, DYCL_OP_ne, x[1], -1, x[0], &near));
    DYCL_CALL_TRY(ew2(call, DYCL_OP_add, far, near, &out));
    return dycl_call_finish(call, reduced(call, out, reduction, &out), out);
}

/* sum of a * b along the last dimension, and a number */
static dycl_status inner(dycl_call *call, uint32_t a, uint32_t b, double number, uint32_t *out) {
    int64_t attrs[2] = {INT64_C(1) << (meta(call, a)->rank - 1), 0};
    dycl_status status;
    DYCL_TRY(ew2(call, DYCL_OP_mul, a, b, out));
    DYCL_TRY(dycl_build_node(&call->region->recorder, DYCL_OP_sum, 1, out, 2, attrs, out));
    return number == 0 ? DYCL_OK : ew_number(call, DYCL_OP_add, *out, number, out);
fail:
    return status;
}

/* input1, input2 ([n, d] or [d]), target ([n] or []; 1 or -1), margin, reduction */
static PyObject *cosine_embedding(dycl_call *call, const dycl_binding *row) {
    const double least = 1e-12f; /* torch's is a float */
    dycl_recorder *r = &call->region->recorder;
    uint32_t x[2], labels, length, other, cosine, near, far, out = 0;
    double margin;
    int64_t reduction;
    (void)row;
    DYCL_CALL_TRY(read_all(call, 2, x));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[2], &labels));
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[3], 0, &margin));
    DYCL_CALL_TRY(dycl_call_int_or(call, call->p[4], MEAN, &reduction));
    const int rank = meta(call, x[0])->rank;
    if (rank > 2 || meta(call, x[1])->rank != rank || meta(call, labels)->rank != rank - 1)
        return dycl_call_bail(call, DYCL_BAIL_shape);
    DYCL_CALL_TRY(inner(call, x[0], x[1], 0, &cosine));
    DYCL_CALL_TRY(inner(call, x[0], x[0], least, &length));
    DYCL_CALL_TRY(inner(call, x[1], x[1], least, &other));
    DYCL_CALL_TRY(ew2(call, DYCL_OP_mul, length, other, &length));
    DYCL_CALL_TRY(ew1(call, DYCL_OP_sqrt, length, &length));
    DYCL_CALL_TRY(ew2(call, DYCL_OP_div, cosine, length, &cosine));
    dycl_operand rest[2] = {dycl_operand_f64(1), dycl_operand_of(cosine)};
    DYCL_CALL_TRY(dycl_build_ew(r, DYCL_OP_sub, DYCL_PROMOTE_COMMON, 2, rest, &near));
    DYCL_CALL_TRY(ew_number(call, DYCL_OP_sub, cosine, margin, &far));
    DYCL_CALL_TRY(above_zero(call, far, &far));
    DYCL_CALL_TRY(chosen(call, DYCL_OP_eq, labels, 1, near, &near));
    DYCL_CALL_TRY(chosen(call, DYCL_OP_eq, labels, -1, far, &far));
    DYCL_CALL_TRY(ew2(call, DYCL_OP_add, near, far, &out));
    return dycl_call_finish(call, reduced(call, out, reduction, &out), out);
}

/* Stirling's formula for log(target!), where it is more than one */
static dycl_status stirling(dycl_call *call, uint32_t target, uint32_t *out) {
    uint32_t log_target, turn, small;
    dycl_status status;
    DYCL_TRY(ew1(call, DYCL_OP_log, target, &log_target));
    DYCL_TRY(ew2(call, DYCL_OP_mul, target, log_target, out));
    DYCL_TRY(ew2(call, DYCL_OP_sub, *out, target, out));
    DYCL_TRY(ew_number(call, DYCL_OP_mul, target, 2 * 3.14159265358979323846, &turn));
    DYCL_TRY(ew1(call, DYCL_OP_log, turn, &turn));
    DYCL_TRY(ew_number(call, DYCL_OP_mul, turn, 0.5, &turn));
    DYCL_TRY(ew2(call, DYCL_OP_add, *out, turn, out));
    DYCL_TRY(ew_number(call, DYCL_OP_le, target, 1, &small));
    dycl_operand choice[3] = {dycl_operand_of(small), dycl_operand_f64(0), dycl_operand_of(*out)};
    return dycl_build_where(&call->region->recorder, &choice[0], &choice[1], &choice[2], out);
fail:
    return status;
}

/* input, target, log_input, full, eps, reduction */
static PyObject *poisson_nll(dycl_call *call, const dycl_binding *row) {
    uint32_t x[2], part, out = 0;
    int of_logs, full;
    double eps;
    int64_t reduction;
    (void)row;
    DYCL_CALL_TRY(read_all(call, 2, x));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[2], 1, &of_logs));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[3], 0, &full));
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[4], 1e-8, &eps));
    DYCL_CALL_TRY(dycl_call_int_or(call, call->p[5], MEAN, &reduction));
    if (of_logs) {
        DYCL_CALL_TRY(ew1(call, DYCL_OP_exp, x[0], &out));
        DYCL_CALL_TRY(ew2(call, DYCL_OP_mul, x[1], x[0], &part));
    } else {
        DYCL_CALL_TRY(ew_number(call, DYCL_OP_add, x[0], eps, &part));
        DYCL_CALL_TRY(ew1(call, DYCL_OP_log, part, &part));
        DYCL_CALL_TRY(ew2(call, DYCL_OP_mul, x[1], part, &part));
        out = x[0];
    }
    DYCL_CALL_TRY(ew2(call, DYCL_OP_sub, out, part, &out));
    if (full) {
        DYCL_CALL_TRY(stirling(call, x[1], &part));
        DYCL_CALL_TRY(ew2(call, DYCL_OP_add, out, part, &out));
    }
    PyObject *result = dycl_call_finish(call, reduced(call, out, reduction, &out), out);
    return dycl_call_written(call, result, full && reduction == NONE); /* torch adds that in place */
}

/* target * log(target), 0 at 0; its own gradient is another one */
static dycl_status entropy(dycl_call *call, uint32_t target, uint32_t *out) {
    uint32_t all;
    dycl_status status;
    if (dycl_track_has_now(call->region, target)) return dycl_build_bail(&call->region->recorder, DYCL_BAIL_grad);
    DYCL_TRY(ew1(call, DYCL_OP_log, target, &all));
    DYCL_TRY(ew2(call, DYCL_OP_mul, target, all, &all));
    return chosen(call, DYCL_OP_ne, target, 0, all, out);
fail:
    return status;
}

/* input, target, reduction, log_target */
static PyObject *kl_div(dycl_call *call, const dycl_binding *row) {
    uint32_t x[2], part, out = 0;
    int of_logs;
    int64_t reduction;
    (void)row;
    DYCL_CALL_TRY(read_all(call, 2, x));
    DYCL_CALL_TRY(dycl_call_int_or(call, call->p[2], MEAN, &reduction));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[3], 0, &of_logs));
    if (of_logs) {
        DYCL_CALL_TRY(ew1(call, DYCL_OP_exp, x[1], &part));
        DYCL_CALL_TRY(ew2(call, DYCL_OP_sub, x[1], x[0], &out));
        DYCL_CALL_TRY(ew2(call, DYCL_OP_mul, part, out, &out));
    } else {
        DYCL_CALL_TRY(entropy(call, x[1], &part));
        DYCL_CALL_TRY(ew2(call, DYCL_OP_mul, x[1], x[0], &out));
        DYCL_CALL_TRY(ew2(call, DYCL_OP_sub, part, out, &out));
    }
    return dycl_call_finish(call, reduced(call, out, reduction, &out), out);
}

dycl_binding dycl_bindings_distance[] = {
    ROW("pairwise_distance", T, "x1 x2 p eps keepdim", pairwise_distance, 0, 0),
    ROW("cosine_similarity", T, "x1 x2 dim eps", cosine_similarity, 0, 0),
    ROW("triplet_margin_loss", T, "anchor positive negative margin p eps swap reduction", triplet, 0, 0),
    ROW("margin_ranking_loss", T, "input1 input2 target margin reduction", margin_ranking, 0, 0),
    ROW("hinge_embedding_loss", T, "input target margin reduction", hinge_embedding, 0, 0),
    ROW("cosine_embedding_loss", T, "input1 input2 target margin reduction", cosine_embedding, 0, 0),
    ROW("poisson_nll_loss", T, "input target log_input full eps reduction", poisson_nll, 0, 0),
    ROW("kl_div", T, "input target reduction | log_target", kl_div, 0, 0),
    {0},
};
