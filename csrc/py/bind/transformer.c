/* What nn.MultiheadAttention and nn.TransformerEncoderLayer call for all of their forward where no gradients are
 * needed: the steps of ATen/native/transformers. */
#include <math.h>
#include <string.h>

#include "py/bind/bind.h"
#include "py/bind/reduce.h"

typedef struct {
    uint32_t x, in_weight, in_bias, out_weight, out_bias;
    uint32_t hidden; /* true where a score is not looked at, broadcast against the scores; or DYCL_NONE */
    int64_t width, heads;
} attention_parts;

static int is_of(const dycl_call *call, uint32_t value, dycl_dtype dtype, int rank, int64_t first, int64_t second) {
    const dycl_value *v = meta(call, value);
    return v->dtype == dtype && v->rank == rank && v->sizes[0] == first && (rank < 2 || v->sizes[1] == second);
}

/* The parameters embed_dim and num_heads, then weights and biases, from parameter `first` on. */
static dycl_status read_parts(dycl_call *call, int first, attention_parts *a) {
    dycl_status status;
    DYCL_TRY(dycl_call_value(call, call->p[0], &a->x));
    DYCL_TRY(dycl_call_int(call, call->p[first], &a->width));
    DYCL_TRY(dycl_call_int(call, call->p[first + 1], &a->heads));
    DYCL_TRY(dycl_call_value(call, call->p[first + 2], &a->in_weight));
    DYCL_TRY(dycl_call_value(call, call->p[first + 3], &a->in_bias));
    DYCL_TRY(dycl_call_value(call, call->p[first + 4], &a->out_weight));
    DYCL_TRY(dycl_call_value(call, call->p[first + 5], &a->out_bias));
    const dycl_value *x = meta(call, a->x);
    dycl_dtype dtype = (dycl_dtype)x->dtype;
    int64_t n = a->width;
    if (dycl_dtype_computed(dtype) != DYCL_F32 || x->rank != 3 || !x->canonical || dycl_value_numel(x) == 0 ||
        x->sizes[2] != n || a->heads < 1 || n % a->heads)
        return dycl_build_bail(&call->region->recorder, DYCL_BAIL_shape);
    if (!is_of(call, a->in_weight, dtype, 2, 3 * n, n) || !is_of(call, a->in_bias, dtype, 1, 3 * n, 0) ||
        !is_of(call, a->out_weight, dtype, 2, n, n) || !is_of(call, a->out_bias, dtype, 1, n, 0))
        return dycl_build_bail(&call->region->recorder, DYCL_BAIL_shape);
fail:
    return status;
}

/* A mask of the scores, of a query's by a key's position (type 0) or of each batch's keys (type 1). Whatever is not
 * zero hides: a module hands on masks of 0 and -inf. */
static dycl_status read_mask(dycl_call *call, PyObject *mask, PyObject *type, attention_parts *a) {
    enum { POSITIONS, KEYS };
    dycl_recorder *r = &call->region->recorder;
    dycl_status status;
    int64_t kind;
    DYCL_TRY(dycl_call_optional_value(call, mask, &a->hidden));
    if (a->hidden == DYCL_NONE) return DYCL_OK;
    if (call->region->tracks && dycl_call_needs_gradient(mask)) return dycl_build_bail(r, DYCL_BAIL_grad);
    const dycl_value *x = meta(call, a->x), *m = meta(call, a->hidden);
    const int64_t batch = x->sizes[0], steps = x->sizes[1], scores[4] = {batch, a->heads, steps, steps};
    if (m->rank == 4 && memcmp(m->sizes, scores, sizeof scores) == 0)
        return dycl_build_cast(r, a->hidden, DYCL_BOOL, &a->hidden);
    if (m->rank != 2) return dycl_build_bail(r, DYCL_BAIL_shape);
    DYCL_TRY(dycl_call_int(call, type, &kind));
    if (m->sizes[1] != steps ||
        !((kind == POSITIONS && m->sizes[0] == steps) || (kind == KEYS && m->sizes[0] == batch)))
        return dycl_build_bail(r, DYCL_BAIL_shape);
    DYCL_TRY(dycl_build_cast(r, a->hidden, DYCL_BOOL, &a->hidden));
    for (int i = 0; i < 2 && kind == KEYS; i++) DYCL_TRY(dycl_build_unsqueeze(r, a->hidden, 1, &a->hidden));
fail:
    return status;
}

static dycl_status linear(dycl_call *call, uint32_t x, uint32_t weight, uint32_t bias, uint32_t *out) {
    return dycl_build_node(&call->region->recorder, DYCL_OP_linear, 3, (uint32_t[]){x, weight, bias}, 0, NULL, out);
}

/* Queries, keys or values: [batch, heads, steps, width of a head], a view of all three. */
static dycl_status third(dycl_call *call, const attention_parts *a, uint32_t all, int which, uint32_t *out) {
    const dycl_value *v = meta(call, all);
    int64_t head = a->width / a->heads, sizes[4] = {v->sizes[0], a->heads, v->sizes[1], head},
            strides[4] = {v->strides[0], head, v->strides[1], 1};
    return dycl_build_view(&call->region->recorder, all, which * a->width, 4, sizes, strides, out);
}

/* torch's steps where somebody looks at the weights, or a mask may hide all keys of a query: its weights are NaN. */
static dycl_status with_weights(dycl_call *call, const attention_parts *a, const uint32_t x[3], uint32_t *context,
                                uint32_t *weights) {
    dycl_recorder *r = &call->region->recorder;
    dycl_status status;
    int64_t last = 3;
    uint32_t q, k;
    DYCL_TRY(ew_number(call, DYCL_OP_mul, x[0], 1 / sqrt((double)(a->width / a->heads)), &q));
    DYCL_TRY(dycl_build_transpose(r, x[1], 2, 3, &k));
    DYCL_TRY(dycl_build_matmul(r, q, k, weights));
    if (a->hidden != DYCL_NONE) {
        dycl_operand hidden = dycl_operand_of(a->hidden), none = dycl_operand_f64(-INFINITY),
                     seen = dycl_operand_of(*weights);
        DYCL_TRY(dycl_build_where(r, &hidden, &none, &seen, weights));
    }
    DYCL_TRY(dycl_build_node(r, DYCL_OP_softmax, 1, weights, 1, &last, weights));
    return dycl_build_matmul(r, *weights, x[2], context);
fail:
    return status;
}

static dycl_status attend(dycl_call *call, const attention_parts *a, uint32_t x, uint32_t *weights, uint32_t *out) {
    dycl_recorder *r = &call->region->recorder;
    dycl_status status;
    uint32_t all, parts[4] = {0, 0, 0, DYCL_NONE}, context;
    const int64_t sizes[3] = {meta(call, x)->sizes[0], meta(call, x)->sizes[1], a->width};
    DYCL_TRY(linear(call, x, a->in_weight, a->in_bias, &all));
    for (int i = 0; i < 3; i++) DYCL_TRY(third(call, a, all, i, &parts[i]));
    if (weights || a->hidden != DYCL_NONE) {
        uint32_t unused;
        DYCL_TRY(with_weights(call, a, parts, &context, weights ? weights : &unused));
    } else {
        int64_t attrs[3] = {0, dycl_f64_attr(1 / sqrt((double)(a->width / a->heads))), 4};
        DYCL_TRY(dycl_build_node(r, DYCL_OP_attention, 4, parts, 3, attrs, &context));
    }
    DYCL_TRY(dycl_build_transpose(r, context, 1, 2, &context));
    DYCL_TRY(dycl_build_reshape(r, context, 3, sizes, 0, &context));
    return linear(call, context, a->out_weight, a->out_bias, out);
fail:
    return status;
}

/* query key value embed_dim num_head qkv_weight qkv_bias proj_weight proj_bias mask need_weights average_attn_weights
 * mask_type */
static PyObject *attention(dycl_call *call, const dycl_binding *row) {
    attention_parts a;
    uint32_t out = 0, weights = 0;
    int needed, averaged;
    (void)row;
    if (call->p[1] != call->p[0] || call->p[2] != call->p[0]) return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(read_parts(call, 3, &a));
    DYCL_CALL_TRY(read_mask(call, call->p[9], call->p[12], &a));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[10], 1, &needed));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[11], 1, &averaged));
    DYCL_CALL_TRY(attend(call, &a, a.x, needed ? &weights : NULL, &out));
    if (needed && averaged) {
        DYCL_CALL_TRY(reduce(call, DYCL_OP_sum, weights, 2, 0, &weights));
        DYCL_CALL_TRY(ew_number(call, DYCL_OP_div, weights, (double)a.heads, &weights));
    }
    if (needed) return dycl_call_two_results(call, NULL, out, weights);
    PyObject *result = dycl_region_result(call->region, out), *pair = result ? PyTuple_Pack(2, result, Py_None) : NULL;
    Py_XDECREF(result);
    return pair;
}

static dycl_status layer_norm(dycl_call *call, uint32_t x, const uint32_t parameters[2], double eps, uint32_t *out) {
    int64_t attrs[2] = {1, dycl_f64_attr(eps)};
    return dycl_build_node(&call->region->recorder, DYCL_OP_layer_norm, 3,
                           (uint32_t[]){x, parameters[0], parameters[1]}, 2, attrs, out);
}

enum { NORM_1, NORM_2 = 2, FIRST = 4, SECOND = 6, LAYER_PARAMETERS = 8 };

static int suits_layer(const dycl_call *call, const attention_parts *a, const uint32_t w[LAYER_PARAMETERS]) {
    dycl_dtype dtype = dtype_of(call, a->x);
    if (meta(call, w[FIRST])->rank != 2) return 0;
    int64_t inner = meta(call, w[FIRST])->sizes[0], n = a->width;
    for (int i = NORM_1; i < FIRST; i++)
        if (!is_of(call, w[i], dtype, 1, n, 0)) return 0;
    return is_of(call, w[FIRST], dtype, 2, inner, n) && is_of(call, w[FIRST + 1], dtype, 1, inner, 0) &&
           is_of(call, w[SECOND], dtype, 2, n, inner) && is_of(call, w[SECOND + 1], dtype, 1, n, 0) && inner > 0;
}

/* src embed_dim num_heads qkv_weight qkv_bias proj_weight proj_bias use_gelu norm_first eps norm_weight_1 norm_bias_1
 * norm_weight_2 norm_bias_2 ffn_weight_1 ffn_bias_1 ffn_weight_2 ffn_bias_2 mask mask_type */
static PyObject *encoder_layer(dycl_call *call, const dycl_binding *row) {
    attention_parts a;
    uint32_t w[LAYER_PARAMETERS], x, inner, out = 0;
    int gelu, first;
    double eps;
    (void)row;
    DYCL_CALL_TRY(read_parts(call, 1, &a));
    DYCL_CALL_TRY(read_mask(call, call->p[18], call->p[19], &a));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[7], 0, &gelu));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[8], 0, &first));
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[9], 0, &eps));
    for (int i = 0; i < LAYER_PARAMETERS; i++) DYCL_CALL_TRY(dycl_call_value(call, call->p[10 + i], &w[i]));
    if (!suits_layer(call, &a, w)) return dycl_call_bail(call, DYCL_BAIL_shape);
    x = a.x;
    if (first) DYCL_CALL_TRY(layer_norm(call, x, w + NORM_1, eps, &x));
    DYCL_CALL_TRY(attend(call, &a, x, NULL, &x));
    DYCL_CALL_TRY(ew2(call, DYCL_OP_add, x, a.x, &x));
    if (!first) DYCL_CALL_TRY(layer_norm(call, x, w + NORM_1, eps, &x));
    inner = x;
    if (first) DYCL_CALL_TRY(layer_norm(call, x, w + NORM_2, eps, &inner));
    DYCL_CALL_TRY(linear(call, inner, w[FIRST], w[FIRST + 1], &inner));
    DYCL_CALL_TRY(ew1(call, gelu ? DYCL_OP_gelu : DYCL_OP_relu, inner, &inner));
    DYCL_CALL_TRY(linear(call, inner, w[SECOND], w[SECOND + 1], &inner));
    DYCL_CALL_TRY(ew2(call, DYCL_OP_add, inner, x, &out));
    if (!first) DYCL_CALL_TRY(layer_norm(call, out, w + NORM_2, eps, &out));
    return dycl_call_finish(call, DYCL_OK, out);
}

dycl_binding dycl_bindings_transformer[] = {
    ROW("_native_multi_head_attention", T,
        "query key value embed_dim num_head qkv_weight qkv_bias proj_weight proj_bias mask need_weights "
        "average_attn_weights mask_type",
        attention, 0, 0),
    ROW("_transformer_encoder_layer_fwd", T,
        "src embed_dim num_heads qkv_weight qkv_bias proj_weight proj_bias use_gelu norm_first eps norm_weight_1 "
        "norm_bias_1 norm_weight_2 norm_bias_2 ffn_weight_1 ffn_bias_1 ffn_weight_2 ffn_bias_2 mask mask_type",
        encoder_layer, 0, 0),
    {0},
};
