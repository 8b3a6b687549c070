/* Shape functions of normalisations. */
#include <string.h>

#include "ir/infer.h"
#include "kern/batch_norm.h"

int dycl_infer_is_vector(const dycl_graph *g, uint32_t id, int64_t size, int dtype) {
    if (id == DYCL_NONE) return 1;
    const dycl_value *v = &g->values[id];
    return v->rank == 1 && v->sizes[0] == size && v->dtype == dtype;
}

static int is_tail(const dycl_graph *g, uint32_t id, const dycl_value *in, int64_t count) {
    if (id == DYCL_NONE) return 1;
    const dycl_value *v = &g->values[id];
    if (v->rank != count || v->dtype != in->dtype) return 0;
    for (int i = 0; i < count; i++)
        if (v->sizes[i] != in->sizes[in->rank - count + i]) return 0;
    return 1;
}

/* ATen/native/Normalization.cpp: where everything is contiguous in some format, the input's decides, else what the
 * input looks like. */
static int is_laid(const dycl_value *v) { return dycl_value_contiguous(v) || dycl_value_channels_last_dense(v); }

static int lies_channels_last(const dycl_value *x, int all_laid) {
    return all_laid ? !dycl_value_contiguous(x) : dycl_value_channels_last(x);
}

static int batch_norm_is_channels_last(const dycl_graph *g, const uint32_t *operands) {
    int all = is_laid(&g->values[operands[0]]);
    for (int i = 1; i < 5; i++) all &= operands[i] == DYCL_NONE || dycl_value_contiguous(&g->values[operands[i]]);
    return lies_channels_last(&g->values[operands[0]], all);
}

dycl_status dycl_infer_norm(const dycl_draft *draft, dycl_value *out) {
    const dycl_graph *g = draft->graph;
    dycl_op op = draft->op;
    const uint32_t *operands = draft->operands;
    const int64_t *attrs = draft->attrs;
    const dycl_value *in = &g->values[operands[0]];
    if (!dycl_dtype_is_float((dycl_dtype)in->dtype)) return DYCL_BAIL;
    out->dtype = in->dtype;
    out->rank = in->rank;
    memcpy(out->sizes, in->sizes, sizeof out->sizes);
    dycl_infer_contiguous(out);
    switch (op) {
    case DYCL_OP_layer_norm:
        if (attrs[0] < 1 || attrs[0] > in->rank || !is_tail(g, operands[1], in, attrs[0]) ||
            !is_tail(g, operands[2], in, attrs[0]))
            return DYCL_BAIL;
        return DYCL_OK;
    case DYCL_OP_rms_norm:
        if (attrs[0] < 1 || attrs[0] > in->rank || !is_tail(g, operands[1], in, attrs[0])) return DYCL_BAIL;
        return DYCL_OK;
    case DYCL_OP_batch_norm:
    case DYCL_OP_batch_norm_train:
        if (in->rank < 2 || dycl_value_numel(in) == 0 || dycl_dtype_is_half((dycl_dtype)in->dtype))
            return DYCL_BAIL; /* without channels torch raises */
        for (int i = 1; i < 5; i++)
            if (!dycl_infer_is_vector(g, operands[i], in->sizes[1], in->dtype)) return DYCL_BAIL;
        if (operands[1] == DYCL_NONE || operands[2] == DYCL_NONE) return DYCL_BAIL;
        if (in->rank == 4 && batch_norm_is_channels_last(g, operands)) dycl_infer_channels_last(out);
        return DYCL_OK;
    case DYCL_OP_group_norm:
        if (in->dtype != DYCL_F32 || in->rank < 2 || attrs[0] < 1 || in->sizes[1] % attrs[0]) return DYCL_BAIL;
        if (!dycl_infer_is_vector(g, operands[1], in->sizes[1], in->dtype) ||
            !dycl_infer_is_vector(g, operands[2], in->sizes[1], in->dtype))
            return DYCL_BAIL;
        if (in->rank == 4 && dycl_value_channels_last(in)) return DYCL_BAIL;
        return DYCL_OK;
    default: return DYCL_BAIL;
    }
}

/* Statistics of a batch, and gradients of what batch_norm_train makes of it: like x, or a vector of the channels. */
dycl_status dycl_infer_batch(const dycl_draft *draft, dycl_value *out) {
    const dycl_graph *g = draft->graph;
    const uint32_t *operands = draft->operands;
    int64_t which = draft->attrs[0], back = draft->op == DYCL_OP_batch_norm_back;
    const dycl_value *x = &g->values[operands[back]];
    if ((x->dtype != DYCL_F32 && x->dtype != DYCL_F64) || x->rank < 2 || dycl_value_numel(x) <= x->sizes[1])
        return DYCL_BAIL;
    for (int i = 1 + (int)back; i < draft->operand_count; i++)
        if (!dycl_infer_is_vector(g, operands[i], x->sizes[1], x->dtype)) return DYCL_BAIL;
    out->dtype = x->dtype;
    if (back && which == 0) {
        out->rank = x->rank;
        memcpy(out->sizes, x->sizes, sizeof out->sizes);
    } else {
        out->rank = 1;
        out->sizes[0] = x->sizes[1];
    }
    const dycl_value *gradient = &g->values[operands[0]]; /* x itself of statistics, which are vectors */
    int alike = dycl_value_channels_last(x) == dycl_value_channels_last(gradient);
    if (out->rank == 4 && lies_channels_last(x, alike && is_laid(x) && is_laid(gradient)))
        dycl_infer_channels_last(out);
    else
        dycl_infer_contiguous(out);
    if (!back) return which < DYCL_BATCH_RUNNING_MEAN || operands[which - 1] != DYCL_NONE ? DYCL_OK : DYCL_BAIL;
    int same = gradient->dtype == x->dtype && gradient->rank == x->rank;
    for (int i = 0; i < x->rank && same; i++) same = gradient->sizes[i] == x->sizes[i];
    return same ? DYCL_OK : DYCL_BAIL;
}

/* Gradients of a group norm: like x, or a vector of the channels. */
dycl_status dycl_infer_group_back(const dycl_draft *draft, dycl_value *out) {
    const dycl_graph *g = draft->graph;
    const uint32_t *operands = draft->operands;
    const dycl_value *gradient = &g->values[operands[0]], *x = &g->values[operands[1]];
    int64_t groups = draft->attrs[1] == 0 && x->rank == 3 && x->sizes[2] == 1 ? 1 : draft->attrs[1];
    if ((x->dtype != DYCL_F32 && x->dtype != DYCL_F64) || x->rank != 3 || groups < 1 || x->sizes[1] % groups ||
        !dycl_infer_is_vector(g, operands[2], x->sizes[1], x->dtype) || gradient->dtype != x->dtype ||
        gradient->rank != 3 || memcmp(gradient->sizes, x->sizes, 3 * sizeof *x->sizes))
        return DYCL_BAIL;
    out->dtype = x->dtype;
    out->rank = draft->attrs[0] ? 1 : 3;
    memcpy(out->sizes, draft->attrs[0] ? &x->sizes[1] : x->sizes, (size_t)out->rank * sizeof *x->sizes);
    dycl_infer_contiguous(out);
    return DYCL_OK;
}
