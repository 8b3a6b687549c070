#include "dnnl/internal.h"

#include <string.h>

static const struct {
    dnnl_alg_kind_t alg;
    float alpha, beta;
    int own_alpha, own_beta; /* 1: the descriptor's */
} eltwise[] = {
    [DYCL_POST_RELU] = {dnnl_eltwise_relu, 0, 0, 0, 0},
    [DYCL_POST_GELU] = {dnnl_eltwise_gelu_erf, 0, 0, 0, 0},
    [DYCL_POST_GELU_TANH] = {dnnl_eltwise_gelu_tanh, 0, 0, 0, 0},
    [DYCL_POST_TANH] = {dnnl_eltwise_tanh, 0, 0, 0, 0},
    [DYCL_POST_SIGMOID] = {dnnl_eltwise_logistic, 0, 0, 0, 0},
    [DYCL_POST_SILU] = {dnnl_eltwise_swish, 1, 0, 0, 0},
    [DYCL_POST_CLAMP] = {dnnl_eltwise_clip_v2, 0, 0, 1, 1},
    [DYCL_POST_HARDSWISH] = {dnnl_eltwise_hardswish, 1.0f / 6, 0.5f, 0, 0},
    [DYCL_POST_LEAKY_RELU] = {dnnl_eltwise_relu, 0, 0, 1, 0},
};
static const dnnl_alg_kind_t binary[] = {
    [DYCL_POST_ADD] = dnnl_binary_add, [DYCL_POST_MUL] = dnnl_binary_mul, [DYCL_POST_SUB] = dnnl_binary_sub,
    [DYCL_POST_DIV] = dnnl_binary_div, [DYCL_POST_MAX] = dnnl_binary_max, [DYCL_POST_MIN] = dnnl_binary_min,
};

int dycl_post_is_binary(dycl_post_kind kind) { return kind >= DYCL_POST_ADD && kind <= DYCL_POST_MIN; }

void dycl_key_add_post(dycl_key *key, const dycl_post_ops *post) {
    int count = post->count < 0 || post->count > DYCL_MAX_POST_OPS ? 0 : post->count;
    dycl_key_add(key, post->count);
    for (int i = 0; i < count; i++) {
        const dycl_post_op *op = &post->op[i];
        uint32_t alpha, beta;
        memcpy(&alpha, &op->alpha, 4);
        memcpy(&beta, &op->beta, 4);
        if (op->kind >= DYCL_POST_ADD || !eltwise[op->kind].own_alpha) alpha = 0;
        if (op->kind >= DYCL_POST_ADD || !eltwise[op->kind].own_beta) beta = 0;
        dycl_key_add(key, op->kind);
        dycl_key_add(key, (int64_t)((uint64_t)alpha << 32 | beta));
        if (dycl_post_is_binary(op->kind)) dycl_key_add_layout(key, &op->operand);
    }
}

/* oneDNN picks its broadcast by comparing strides, those of size-1 dimensions too: give them the ones that a
 * contiguous tensor has. */
static void canonical_strides(dycl_layout *layout) {
    int64_t extent = 1;
    for (int d = layout->rank - 1; d >= 0; d--) {
        if (layout->sizes[d] == 1)
            layout->strides[d] = extent;
        else if (layout->strides[d] * layout->sizes[d] > extent)
            extent = layout->strides[d] * layout->sizes[d];
    }
}

static dycl_status append_binary(dnnl_post_ops_t ops, const dycl_post_op *op, int rank, const int64_t *dst_sizes) {
    dycl_layout operand = op->operand;
    dnnl_memory_desc_t md = NULL;
    dycl_status status;
    if (operand.opaque == 2) {
        dnnl_dims_t sizes;
        for (int d = 0; d < rank; d++) sizes[d] = dst_sizes[d];
        DYCL_TRY(dycl_dnnl_check(dnnl_memory_desc_create_with_tag(&md, rank, sizes, dnnl_f32, dnnl_format_tag_any),
                                 "post-op operand"));
    } else {
        int full = 1;
        if (operand.rank != rank) return dycl_error_bail("post-op operand of rank %d, not %d", operand.rank, rank);
        for (int d = 0; d < rank; d++) {
            if (operand.sizes[d] != dst_sizes[d] && operand.sizes[d] != 1)
                return dycl_error_bail("post-op operand does not broadcast");
            full &= operand.sizes[d] == dst_sizes[d];
        }
        if (!operand.opaque && !full) canonical_strides(&operand);
        DYCL_TRY(dycl_layout_to_md(&operand, &md));
    }
    status = dycl_dnnl_check(dnnl_post_ops_append_binary(ops, binary[op->kind], md), "binary post-op");
fail:
    if (md) dnnl_memory_desc_destroy(md);
    return status;
}

dycl_status dycl_post_attr(const dycl_post_ops *post, int rank, const int64_t *dst_sizes, dnnl_primitive_attr_t *out) {
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dycl_status status;
    int count = post ? post->count : 0;
    if (count < 0 || count > DYCL_MAX_POST_OPS) return dycl_error_bail("%d post-ops", count);
    DYCL_TRY(dycl_dnnl_check(dnnl_primitive_attr_create(&attr), "attributes"));
    /* Said explicitly: the environment may have set a default of lower precision. */
    DYCL_TRY(dycl_dnnl_check(dnnl_primitive_attr_set_fpmath_mode(attr, dnnl_fpmath_mode_strict), "fpmath mode"));
    DYCL_TRY(
        dycl_dnnl_check(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user), "scratchpad mode"));
    if (count) {
        DYCL_TRY(dycl_dnnl_check(dnnl_post_ops_create(&ops), "post-ops"));
        for (int i = 0; i < count; i++) {
            const dycl_post_op *op = &post->op[i];
            if (dycl_post_is_binary(op->kind)) {
                DYCL_TRY(append_binary(ops, op, rank, dst_sizes));
            } else if (op->kind == DYCL_POST_SUM) {
                DYCL_TRY(dycl_dnnl_check(dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef), "sum post-op"));
            } else {
                float alpha = eltwise[op->kind].own_alpha ? op->alpha : eltwise[op->kind].alpha;
                float beta = eltwise[op->kind].own_beta ? op->beta : eltwise[op->kind].beta;
                DYCL_TRY(dycl_dnnl_check(dnnl_post_ops_append_eltwise(ops, eltwise[op->kind].alg, alpha, beta),
                                         "eltwise post-op"));
            }
        }
        DYCL_TRY(dycl_dnnl_check(dnnl_primitive_attr_set_post_ops(attr, ops), "post-ops"));
    }
    *out = attr;
    attr = NULL;
fail:
    if (ops) dnnl_post_ops_destroy(ops);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return status;
}
