/* Attention: one node; or torch's own steps, where torch takes these because it goes back through them (a mask that
 * learns) or because weights are dropped. */
#include <math.h>
#include <string.h>

#include "grad/backward.h"
#include "ir/infer.h"
#include "py/bind/bind.h"
#include "py/bind/noise.h"
#include "py/region/track.h"
#include "py/torch/answers.h"

/* ---- Steps (ATen/native/transformers/attention.cpp, _scaled_dot_product_attention_math) */

typedef struct {
    double dropout, scale;
    int causal;
} attention_options;

/* Sizes and dtypes with which no step can fail, since nothing may bail once numbers were drawn. */
static int suits_steps(const dycl_call *call, const uint32_t x[4], const attention_options *o) {
    const dycl_value *q = meta(call, x[0]), *k = meta(call, x[1]), *v = meta(call, x[2]);
    int rank = q->rank, batches = rank - 2;
    size_t bytes = (size_t)batches * sizeof *q->sizes;
    if ((q->dtype != DYCL_F32 && q->dtype != DYCL_F64) || k->dtype != q->dtype || v->dtype != q->dtype) return 0;
    if (memcmp(q->sizes, k->sizes, bytes) != 0 || memcmp(q->sizes, v->sizes, bytes) != 0) return 0;
    if (q->sizes[rank - 1] != k->sizes[rank - 1] || k->sizes[batches] != v->sizes[batches]) return 0;
    if (!dycl_value_numel(q) || !dycl_value_numel(k) || !dycl_value_numel(v)) return 0;
    if (!(o->dropout >= 0 && o->dropout < 1) || !isfinite(o->scale) || o->scale == 0) return 0;
    if (x[3] == DYCL_NONE) return 1;
    const dycl_value *mask = meta(call, x[3]);
    if ((mask->dtype != DYCL_BOOL && mask->dtype != q->dtype) || mask->rank > rank) return 0;
    for (int i = 0; i < mask->rank; i++) {
        int64_t size = mask->sizes[mask->rank - 1 - i];
        if (size != 1 && size != (i ? q->sizes[rank - 1 - i] : k->sizes[batches])) return 0;
    }
    return 1;
}

/* 0 where it is true, else -inf. */
static dycl_status additive(dycl_call *call, uint32_t mask, dycl_dtype dtype, uint32_t *out) {
    dycl_recorder *r = &call->region->recorder;
    dycl_operand condition = dycl_operand_of(mask), zero = dycl_operand_f64(0), hidden = dycl_operand_f64(-INFINITY);
    dycl_status status = dycl_build_where(r, &condition, &zero, &hidden, out);
    return status == DYCL_OK ? dycl_build_cast(r, *out, dtype, out) : status;
}

static dycl_status lower_triangle(dycl_call *call, int64_t rows, int64_t columns, uint32_t *out) {
    dycl_recorder *r = &call->region->recorder;
    dycl_operand one = dycl_operand_i64(1);
    int64_t sizes[2] = {rows, columns}, diagonal = 0;
    dycl_status status = dycl_build_convert(r, &one, DYCL_BOOL, out);
    if (status == DYCL_OK) status = dycl_build_node(r, DYCL_OP_full, 1, out, 2, sizes, out);
    return status == DYCL_OK ? dycl_build_node(r, DYCL_OP_tril, 1, out, 1, &diagonal, out) : status;
}

/* softmax, and zeros in rows where every score is -inf. torch's gradient is that of these zeros: through scores of -inf
 * it would be NaN. */
static dycl_status safe_softmax(dycl_call *call, uint32_t scores, uint32_t *out) {
    dycl_recorder *r = &call->region->recorder;
    dycl_status status;
    uint32_t hidden, seen, weights;
    int last = meta(call, scores)->rank - 1;
    int64_t dim = last, along[2] = {INT64_C(1) << last, 1};
    dycl_operand zero = dycl_operand_f64(0), one = dycl_operand_f64(1), given = dycl_operand_of(scores);
    DYCL_TRY(ew_number(call, DYCL_OP_eq, scores, -INFINITY, &hidden));
    DYCL_TRY(dycl_build_node(r, DYCL_OP_all, 1, &hidden, 2, along, &hidden));
    dycl_operand condition = dycl_operand_of(hidden);
    DYCL_TRY(dycl_build_where(r, &condition, &zero, &given, &weights));
    DYCL_TRY(dycl_build_node(r, DYCL_OP_softmax, 1, &weights, 1, &dim, &weights));
    DYCL_TRY(dycl_build_where(r, &condition, &zero, &one, &seen));
    DYCL_TRY(dycl_build_cast(r, seen, dtype_of(call, weights), &seen));
    return ew2(call, DYCL_OP_mul, weights, seen, out);
fail:
    return status;
}

static dycl_status weights_of(dycl_call *call, const uint32_t x[4], const attention_options *o, uint32_t *out) {
    dycl_recorder *r = &call->region->recorder;
    dycl_status status;
    uint32_t q, k, mask = x[3], scores;
    int rank = meta(call, x[0])->rank;
    dycl_dtype dtype = dtype_of(call, x[0]);
    int64_t rows = meta(call, x[0])->sizes[rank - 2], columns = meta(call, x[1])->sizes[rank - 2];
    double half = sqrt(fabs(o->scale)); /* both sides of the product are scaled */
    DYCL_TRY(ew_number(call, DYCL_OP_mul, x[0], o->scale < 0 ? -half : half, &q));
    if (o->causal) DYCL_TRY(lower_triangle(call, rows, columns, &mask));
    DYCL_TRY(ew_number(call, DYCL_OP_mul, x[1], half, &k));
    DYCL_TRY(dycl_build_transpose(r, k, rank - 2, rank - 1, &k));
    DYCL_TRY(dycl_build_matmul(r, q, k, &scores));
    if (mask != DYCL_NONE) {
        if (dtype_of(call, mask) == DYCL_BOOL) DYCL_TRY(additive(call, mask, dtype, &mask));
        DYCL_TRY(ew2(call, DYCL_OP_add, scores, mask, &scores));
    }
    return safe_softmax(call, scores, out);
fail:
    return status;
}

/* A tensor of the size of the weights: 0 where one is dropped, else what makes up for these. */
static PyObject *draw(dycl_call *call, const uint32_t x[4], const attention_options *o) {
    dycl_value weights = *meta(call, x[0]);
    weights.sizes[weights.rank - 1] = meta(call, x[1])->sizes[weights.rank - 2];
    dycl_strides_contiguous(weights.rank, weights.sizes, weights.strides);
    return dycl_noise_draw(call, (dycl_dtype)weights.dtype, weights.rank, weights.sizes, weights.strides,
                           1 - o->dropout);
}

static dycl_status operands_of(dycl_call *call, uint32_t x[4]) {
    for (int i = 0; i < 3; i++) {
        dycl_status status = dycl_call_value(call, call->p[i], &x[i]);
        if (status != DYCL_OK) return status;
    }
    return dycl_call_optional_value(call, call->p[3], &x[3]);
}

/* The result is a view of one of four dimensions. */
static int squeezes(int rank) { return rank == 3 && dycl_torch_answer.attention_squeezes; }

static PyObject *in_steps(dycl_call *call, uint32_t x[4], const attention_options *o) {
    uint32_t weights, noise = DYCL_NONE, out = 0;
    if (!suits_steps(call, x, o)) return dycl_call_bail(call, DYCL_BAIL_grad);
    if (o->dropout > 0) {
        PyObject *drawn = draw(call, x, o);
        if (!drawn) return NULL;
        dycl_status status = dycl_region_feed_object(call->region, drawn, &noise);
        Py_DECREF(drawn);
        DYCL_CALL_TRY(status);
        DYCL_CALL_TRY(operands_of(call, x)); /* once more: other threads may have run meanwhile */
    }
    DYCL_CALL_TRY(weights_of(call, x, o, &weights));
    if (noise != DYCL_NONE) {
        DYCL_CALL_TRY(ew_number(call, DYCL_OP_div, noise, 1 - o->dropout, &noise));
        DYCL_CALL_TRY(ew2(call, DYCL_OP_mul, weights, noise, &weights));
    }
    int rank = meta(call, x[2])->rank;
    PyObject *result = dycl_call_finish(call, dycl_build_matmul(&call->region->recorder, weights, x[2], &out), out);
    return squeezes(rank) ? dycl_call_as_view(call, result) : result;
}

/* ---- One node */

/* With three dimensions (dycl_torch_answer.attention_squeezes) or fewer torch computes with matrix products, which the
 * node remembers. */
static dycl_status to_rank_4(dycl_call *call, uint32_t *x) {
    while (meta(call, *x)->rank < 4) {
        dycl_status status = dycl_build_unsqueeze(&call->region->recorder, *x, 0, x);
        if (status != DYCL_OK) return status;
    }
    return DYCL_OK;
}

/* Heads that share keys and values: torch's flash kernel goes back through them, elsewhere it repeats these. */
static int goes_back_grouped(const dycl_call *call, const uint32_t x[4], int rank) {
    const dycl_value *q = meta(call, x[0]), *k = meta(call, x[1]), *v = meta(call, x[2]);
    const dycl_value *mask = x[3] == DYCL_NONE ? NULL : meta(call, x[3]);
    return q->sizes[1] == k->sizes[1] || (rank == 4 && dycl_attention_is_flash(q, k, v, mask));
}

/* query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa */
static PyObject *attention(dycl_call *call, const dycl_binding *row) {
    uint32_t x[4], out = 0;
    int grouped;
    attention_options o;
    dycl_recorder *r = &call->region->recorder;
    (void)row;
    if (dycl_py.attention_chosen) return dycl_call_bail(call, DYCL_BAIL_mode);
    DYCL_CALL_TRY(operands_of(call, x));
    int learns = x[3] == DYCL_NONE ? 0 : dycl_region_needs_gradient(call->p[3]);
    if (learns < 0) return NULL;
    if (learns && !call->region->tracks) return dycl_call_bail(call, DYCL_BAIL_grad); /* torch takes its steps */
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[4], 0, &o.dropout));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[5], 0, &o.causal));
    int rank = meta(call, x[0])->rank;
    if ((o.dropout != 0 && !call->region->tracks) || rank < 2 || rank > 4 || meta(call, x[1])->rank != rank ||
        meta(call, x[2])->rank != rank)
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (o.causal && x[3] != DYCL_NONE)
        return dycl_call_bail(call, DYCL_BAIL_arguments); /* some of torch's ways of computing it reject that */
    if (x[3] != DYCL_NONE && meta(call, x[3])->rank > rank) return dycl_call_bail(call, DYCL_BAIL_shape);
    int64_t width = meta(call, x[0])->sizes[rank - 1];
    DYCL_CALL_TRY(dycl_call_f64_or(call, dycl_call_given(call->p[6]) ? call->p[6] : NULL,
                                   width ? 1 / sqrt((double)width) : 1, &o.scale));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[7], 0, &grouped));
    if (grouped && rank < 3) return dycl_call_bail(call, DYCL_BAIL_arguments); /* an error in torch */
    if (learns || o.dropout != 0) return in_steps(call, x, &o);
    for (int i = 0; i < 3; i++) DYCL_CALL_TRY(to_rank_4(call, &x[i]));
    if (squeezes(rank) && x[3] != DYCL_NONE && meta(call, x[3])->rank == 3) DYCL_CALL_TRY(to_rank_4(call, &x[3]));
    if (!grouped && meta(call, x[1])->sizes[1] != meta(call, x[0])->sizes[1])
        return dycl_call_bail(call, DYCL_BAIL_shape);
    if (o.causal && !(o.scale > 0))
        return dycl_call_bail(call, DYCL_BAIL_arguments); /* hidden scores are -inf before they are scaled */
    if (call->region->tracks && (!dycl_grad_suits_attention(meta(call, x[0]), meta(call, x[1]), meta(call, x[2])) ||
                                 !goes_back_grouped(call, x, rank)))
        return dycl_call_bail(call, DYCL_BAIL_grad);
    int64_t attrs[3] = {o.causal, dycl_f64_attr(o.scale), squeezes(rank) ? 4 : rank};
    DYCL_CALL_TRY(dycl_build_node(r, DYCL_OP_attention, 4, x, 3, attrs, &out));
    for (int i = rank; i < 4; i++) DYCL_CALL_TRY(drop_dim(call, out, 0, &out));
    PyObject *result = dycl_call_finish(call, DYCL_OK, out);
    return squeezes(rank) ? dycl_call_as_view(call, result) : result;
}

dycl_binding dycl_bindings_attention[] = {
    ROW("scaled_dot_product_attention", F | N, "query key value attn_mask dropout_p is_causal | scale enable_gqa",
        attention, 0, 0),
    {0},
};
