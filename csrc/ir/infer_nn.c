/* Shape functions of the operators with weights, windows or reductions. */
#include <string.h>

#include "ir/infer.h"

dycl_status dycl_infer_reduce(const dycl_draft *draft, dycl_value *out) {
    const dycl_graph *g = draft->graph;
    dycl_op op = draft->op;
    const uint32_t *operands = draft->operands;
    const int64_t *attrs = draft->attrs;
    const dycl_value *in = &g->values[operands[0]];
    uint32_t mask = (uint32_t)attrs[0];
    if (!dycl_kern_red(DYCL_ISA_SCALAR, dycl_red_of(op), dycl_dtype_computed((dycl_dtype)in->dtype))) return DYCL_BAIL;
    if (op == DYCL_OP_prod && dycl_dtype_is_half((dycl_dtype)in->dtype))
        return DYCL_BAIL; /* torch rounds each factor */
    int keep = attrs[1] != 0, rank = 0;
    int64_t reduced = 1;
    for (int i = 0; i < in->rank; i++) {
        if (mask >> i & 1) {
            reduced *= in->sizes[i];
            if (keep) out->sizes[rank++] = 1;
        } else {
            out->sizes[rank++] = in->sizes[i];
        }
    }
    out->rank = (uint8_t)rank;
    out->dtype = in->dtype;
    switch (op) {
    case DYCL_OP_argmax:
    case DYCL_OP_argmin: out->dtype = DYCL_I64; /* fall through */
    case DYCL_OP_amax:
    case DYCL_OP_amin:
        if (reduced == 0) return DYCL_BAIL;
        break;
    case DYCL_OP_all:
    case DYCL_OP_any: out->dtype = DYCL_BOOL; break;
    case DYCL_OP_mean:
    case DYCL_OP_var:
    case DYCL_OP_std:
        if (!dycl_dtype_is_float((dycl_dtype)in->dtype)) return DYCL_BAIL;
        break;
    default: /* integers are widened before they are added up */
        if (in->dtype == DYCL_BOOL || dycl_red_result(dycl_red_of(op), (dycl_dtype)in->dtype) != in->dtype)
            return DYCL_BAIL;
    }
    dycl_infer_contiguous(out);
    return DYCL_OK;
}

dycl_status dycl_infer_row(const dycl_draft *draft, dycl_value *out) {
    const dycl_graph *g = draft->graph;
    dycl_op op = draft->op;
    const uint32_t *operands = draft->operands;
    const int64_t *attrs = draft->attrs;
    const dycl_value *in = &g->values[operands[0]];
    if (!dycl_dtype_is_float((dycl_dtype)in->dtype) && !(op == DYCL_OP_cumsum && in->dtype == DYCL_I64))
        return DYCL_BAIL;
    if (attrs[0] < 0 || attrs[0] >= in->rank) return DYCL_BAIL;
    if (draft->operand_count == 2) { /* a gradient, and what of the forward pass it needs */
        const dycl_value *x = &g->values[operands[1]];
        if (x->dtype != in->dtype || x->rank != in->rank || dycl_dtype_is_half((dycl_dtype)in->dtype) ||
            memcmp(x->sizes, in->sizes, in->rank * sizeof in->sizes[0]))
            return DYCL_BAIL;
    }
    out->dtype = in->dtype;
    out->rank = in->rank;
    memcpy(out->sizes, in->sizes, sizeof out->sizes);
    dycl_infer_contiguous(out);
    return DYCL_OK;
}

dycl_status dycl_infer_matmul(const dycl_draft *draft, dycl_value *out) {
    const dycl_graph *g = draft->graph;
    dycl_op op = draft->op;
    const uint32_t *operands = draft->operands;
    const dycl_value *a = &g->values[operands[0]], *b = &g->values[operands[1]];
    if (a->dtype != b->dtype || a->dtype == DYCL_BOOL) return DYCL_BAIL;
    out->dtype = a->dtype;
    if (op == DYCL_OP_linear) {
        if (a->rank < 1 || b->rank != 2 || a->sizes[a->rank - 1] != b->sizes[1] ||
            !dycl_infer_is_vector(g, operands[2], b->sizes[0], a->dtype))
            return DYCL_BAIL;
        out->rank = a->rank;
        memcpy(out->sizes, a->sizes, sizeof out->sizes);
        out->sizes[a->rank - 1] = b->sizes[0];
        dycl_infer_contiguous(out);
        return DYCL_OK;
    }
    if (a->rank < 2 || b->rank < 2 || a->sizes[a->rank - 1] != b->sizes[b->rank - 2]) return DYCL_BAIL;
    int rank = a->rank > b->rank ? a->rank : b->rank;
    out->rank = (uint8_t)rank;
    for (int i = 0; i < rank - 2; i++) {
        int ai = i - (rank - a->rank), bi = i - (rank - b->rank);
        int64_t x = ai >= 0 ? a->sizes[ai] : 1, y = bi >= 0 ? b->sizes[bi] : 1;
        if (x != y && x != 1 && y != 1) return DYCL_BAIL;
        out->sizes[i] = x == 1 ? y : x;
    }
    out->sizes[rank - 2] = a->sizes[a->rank - 2];
    out->sizes[rank - 1] = b->sizes[b->rank - 1];
    dycl_infer_contiguous(out);
    return DYCL_OK;
}

/* Either operand in channels last makes the result so (ATen/native/Convolution.cpp, mkldnn_conv_use_channels_last). */
static void lay_convolution(const dycl_value *x, const dycl_value *w, dycl_value *out) {
    if (dycl_value_channels_last(x) || dycl_value_channels_last(w))
        dycl_infer_channels_last(out);
    else
        dycl_infer_contiguous(out);
}

/* Each element of the input adds the kernel to a window of the result. */
static dycl_status infer_transposed(const dycl_graph *g, const uint32_t *operands, const int64_t *attrs,
                                    dycl_value *out) {
    const dycl_value *x = &g->values[operands[0]], *w = &g->values[operands[1]];
    int64_t groups = attrs[6];
    if (groups < 1 || w->sizes[0] != x->sizes[1] || x->sizes[1] % groups ||
        !dycl_infer_is_vector(g, operands[2], w->sizes[1] * groups, x->dtype))
        return DYCL_BAIL;
    out->sizes[1] = w->sizes[1] * groups;
    for (int i = 0; i < 2; i++) {
        int64_t stride = attrs[i], padding = attrs[2 + i], dilation = attrs[4 + i], extra = attrs[7 + i];
        if (stride < 1 || padding < 0 || dilation < 1 || extra < 0 || extra > padding ||
            (extra >= stride && extra >= dilation))
            return DYCL_BAIL;
        out->sizes[2 + i] = (x->sizes[2 + i] - 1) * stride - 2 * padding + dilation * (w->sizes[2 + i] - 1) + extra + 1;
        if (out->sizes[2 + i] < 1) return DYCL_BAIL;
    }
    lay_convolution(x, w, out);
    return DYCL_OK;
}

dycl_status dycl_infer_conv(const dycl_draft *draft, dycl_value *out) {
    const dycl_graph *g = draft->graph;
    dycl_op op = draft->op;
    const uint32_t *operands = draft->operands;
    const int64_t *attrs = draft->attrs;
    const dycl_value *x = &g->values[operands[0]], *w = &g->values[operands[1]];
    if (x->dtype != DYCL_F32 || w->dtype != DYCL_F32 || x->rank != 4 || w->rank != 4 || dycl_value_numel(x) == 0 ||
        dycl_value_numel(w) == 0)
        return DYCL_BAIL;
    out->dtype = x->dtype;
    out->rank = 4;
    out->sizes[0] = x->sizes[0];
    if (op == DYCL_OP_conv_transpose2d) return infer_transposed(g, operands, attrs, out);
    if (attrs[6] < 1 || x->sizes[1] != w->sizes[1] * attrs[6] || w->sizes[0] % attrs[6] ||
        !dycl_infer_is_vector(g, operands[2], w->sizes[0], x->dtype))
        return DYCL_BAIL;
    out->sizes[1] = w->sizes[0];
    for (int i = 0; i < 2; i++) {
        int64_t stride = attrs[i], padding = attrs[2 + i], dilation = attrs[4 + i];
        if (stride < 1 || padding < 0 || dilation < 1) return DYCL_BAIL;
        int64_t span = x->sizes[2 + i] + 2 * padding - (dilation * (w->sizes[2 + i] - 1) + 1);
        if (span < 0) return DYCL_BAIL;
        out->sizes[2 + i] = span / stride + 1;
    }
    /* one thread computes groups of single elements one by one and puts them together as they happen to lie */
    if (attrs[6] > 1 && x->sizes[2] * x->sizes[3] == 1 && w->sizes[2] * w->sizes[3] == 1) return DYCL_BAIL;
    /* a weight of one number a channel makes the result channels last only in some of torch's ways */
    int single = w->sizes[1] * w->sizes[2] * w->sizes[3] == 1;
    if (single && dycl_value_channels_last(w) && !dycl_value_channels_last(x)) return DYCL_BAIL;
    lay_convolution(x, w, out);
    return DYCL_OK;
}

/* attributes: as conv2d's, then kernel h w */
dycl_status dycl_infer_unconv(const dycl_draft *draft, dycl_value *out) {
    const int64_t *attrs = draft->attrs, groups = attrs[6];
    const dycl_value *x = &draft->graph->values[draft->operands[0]], *g = &draft->graph->values[draft->operands[1]];
    if (x->dtype != DYCL_F32 || g->dtype != DYCL_F32 || x->rank != 4 || g->rank != 4 || dycl_value_numel(x) == 0 ||
        dycl_value_numel(g) == 0)
        return DYCL_BAIL;
    if (groups < 1 || x->sizes[1] % groups || g->sizes[1] % groups || x->sizes[0] != g->sizes[0]) return DYCL_BAIL;
    for (int i = 0; i < 2; i++) {
        int64_t stride = attrs[i], padding = attrs[2 + i], dilation = attrs[4 + i], kernel = attrs[7 + i];
        if (stride < 1 || padding < 0 || dilation < 1 || kernel < 1) return DYCL_BAIL;
        int64_t span = x->sizes[2 + i] + 2 * padding - (dilation * (kernel - 1) + 1);
        if (span < 0 || g->sizes[2 + i] != span / stride + 1) return DYCL_BAIL;
        out->sizes[2 + i] = kernel;
    }
    out->dtype = DYCL_F32;
    out->rank = 4;
    out->sizes[0] = g->sizes[1];
    out->sizes[1] = x->sizes[1] / groups;
    dycl_infer_contiguous(out);
    return DYCL_OK;
}

int dycl_conv_is_whole(const dycl_graph *g, const dycl_node *node) {
    const uint32_t *operands = dycl_node_operands(g, node);
    const int64_t *attrs = dycl_node_attrs(g, node);
    int transposed = node->op == DYCL_OP_conv_transpose2d, is_gradient = node->op == DYCL_OP_conv2d_back;
    const dycl_value *image = &g->values[transposed ? node->out : operands[0]],
                     *window = &g->values[is_gradient ? node->out : operands[1]];
    const dycl_value *seen = &g->values[transposed ? operands[0] : is_gradient ? operands[1] : node->out];
    for (int i = 0; i < 2; i++) {
        int64_t size = window->sizes[2 + i];
        if (attrs[2 + i] != 0 || (attrs[4 + i] != 1 && size != 1)) return 0; /* padding, dilation */
        if (image->sizes[2 + i] != size || seen->sizes[2 + i] != 1) return 0;
    }
    int biased = transposed && operands[2] != DYCL_NONE; /* each number of it is added to a window */
    return attrs[6] == 1 && !(biased && window->sizes[2] * window->sizes[3] != 1);
}

static int64_t pooled(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
                      int64_t ceil_mode) {
    int64_t span = in + 2 * padding - dilation * (kernel - 1) - 1 + (ceil_mode ? stride - 1 : 0);
    if (span < 0) return -1;
    int64_t out = span / stride + 1;
    if (ceil_mode && (out - 1) * stride >= in + padding) out--;
    return out;
}

/* Sizes of windows over [n, c, h, w]; attrs: kernel, stride, padding, h w each. 0: there are none */
static int window_sizes(const dycl_value *x, const int64_t *attrs, const int64_t *dilation, int64_t ceil_mode,
                        int64_t *out) {
    memcpy(out, x->sizes, 2 * sizeof *out);
    for (int i = 0; i < 2; i++) {
        int64_t kernel = attrs[i], stride = attrs[2 + i], padding = attrs[4 + i];
        if (kernel < 1 || stride < 1 || padding < 0 || padding > kernel / 2 || dilation[i] < 1) return 0;
        out[2 + i] = pooled(x->sizes[2 + i], kernel, stride, padding, dilation[i], ceil_mode);
        if (out[2 + i] < 1) return 0;
    }
    return 1;
}

/* Sizes of what `op`, forward or back, makes or has made of x. 0: there are none */
static int pooled_sizes(dycl_op op, const dycl_value *x, const int64_t *attrs, int64_t *out) {
    static const int64_t none[2] = {1, 1};
    if (op == DYCL_OP_adaptive_avg_pool2d || op == DYCL_OP_adaptive_avg_pool2d_back) {
        memcpy(out, x->sizes, 2 * sizeof *out);
        memcpy(out + 2, attrs, 2 * sizeof *out);
        return attrs[0] > 0 && attrs[1] > 0;
    }
    int is_max = op == DYCL_OP_max_pool2d || op == DYCL_OP_max_pool2d_back;
    return window_sizes(x, attrs, is_max ? attrs + 6 : none, is_max ? attrs[8] : attrs[6], out);
}

dycl_status dycl_infer_pool(const dycl_draft *draft, dycl_value *out) {
    const dycl_value *x = &draft->graph->values[draft->operands[0]];
    if (x->dtype != DYCL_F32 || x->rank != 4 || dycl_value_numel(x) == 0) return DYCL_BAIL;
    out->dtype = x->dtype;
    out->rank = 4;
    if (!pooled_sizes(draft->op, x, draft->attrs, out->sizes)) return DYCL_BAIL;
    if (dycl_value_channels_last(x))
        dycl_infer_channels_last(out);
    else
        dycl_infer_contiguous(out);
    return DYCL_OK;
}

dycl_status dycl_infer_unpool(const dycl_draft *draft, dycl_value *out) {
    const int64_t *attrs = draft->attrs;
    const dycl_value *x = &draft->graph->values[draft->operands[0]], *g = &draft->graph->values[draft->operands[1]];
    int64_t sizes[4];
    if (x->dtype != DYCL_F32 || g->dtype != DYCL_F32 || x->rank != 4 || g->rank != 4) return DYCL_BAIL;
    if (dycl_value_numel(x) == 0 || x->sizes[2] > INT32_MAX / x->sizes[3]) return DYCL_BAIL;
    if (draft->op == DYCL_OP_max_pool2d_back && (attrs[6] != 1 || attrs[7] != 1)) return DYCL_BAIL;
    if (!pooled_sizes(draft->op, x, attrs, sizes) || memcmp(g->sizes, sizes, sizeof sizes)) return DYCL_BAIL;
    out->dtype = DYCL_F32;
    out->rank = 4;
    memcpy(out->sizes, x->sizes, sizeof sizes);
    if (dycl_value_channels_last(x)) /* also where both are one order of the elements */
        dycl_infer_channels_last(out);
    else
        dycl_infer_contiguous(out);
    return DYCL_OK;
}

dycl_status dycl_infer_recurrent(const dycl_draft *draft, dycl_value *out) {
    const dycl_graph *g = draft->graph;
    const uint32_t *operands = draft->operands;
    const int64_t *attrs = draft->attrs;
    const dycl_value *x = &g->values[operands[0]], *w = &g->values[operands[1]], *h = &g->values[operands[3]];
    int64_t gates = dycl_recurrent_gates(attrs[0]);
    if (x->dtype != DYCL_F32 || w->dtype != DYCL_F32 || h->dtype != DYCL_F32 || x->rank != 3 || w->rank != 2 ||
        h->rank != 2)
        return DYCL_BAIL;
    if (w->sizes[0] != gates * w->sizes[1] || x->sizes[2] != w->sizes[0] || h->sizes[0] != x->sizes[1] ||
        h->sizes[1] != w->sizes[1])
        return DYCL_BAIL;
    if (dycl_value_numel(x) == 0 || !dycl_infer_is_vector(g, operands[2], w->sizes[0], DYCL_F32)) return DYCL_BAIL;
    out->dtype = DYCL_F32;
    if (attrs[2]) {
        out->rank = 3;
        memcpy(out->sizes, (int64_t[]){x->sizes[0], x->sizes[1], 4 * w->sizes[1]}, 3 * sizeof *out->sizes);
        dycl_infer_contiguous(out);
        return gates > 1 ? DYCL_OK : DYCL_BAIL;
    }
    out->rank = 1;
    out->sizes[0] = x->sizes[0] * dycl_value_numel(h);
    if ((attrs[0] == DYCL_RECURRENT_LSTM) != (operands[4] != DYCL_NONE)) return DYCL_BAIL;
    if (operands[4] != DYCL_NONE) {
        const dycl_value *c = &g->values[operands[4]];
        if (c->dtype != DYCL_F32 || c->rank != 2 || c->sizes[0] != h->sizes[0] || c->sizes[1] != h->sizes[1])
            return DYCL_BAIL;
        out->sizes[0] += dycl_value_numel(c);
    }
    dycl_infer_contiguous(out);
    return DYCL_OK;
}

int dycl_infer_is_f32(const dycl_graph *g, uint32_t id, int rank, const int64_t *sizes) {
    const dycl_value *v = &g->values[id];
    return v->dtype == DYCL_F32 && v->rank == rank && !memcmp(v->sizes, sizes, (size_t)rank * sizeof *sizes);
}

/* Which of the optional operands there are is the kind's. */
dycl_status dycl_infer_recurrent_back(const dycl_draft *draft, dycl_value *out) {
    const dycl_graph *g = draft->graph;
    const uint32_t *o = draft->operands;
    int64_t kind = draft->attrs[0], count = dycl_recurrent_gates(kind);
    const dycl_value *w = &g->values[o[1]];
    uint32_t of = o[0] != DYCL_NONE ? o[0] : o[2];
    if ((o[0] != DYCL_NONE) != (count > 1) || of == DYCL_NONE || (o[2] != DYCL_NONE) != (kind != DYCL_RECURRENT_LSTM) ||
        (o[3] != DYCL_NONE) != (kind == DYCL_RECURRENT_LSTM))
        return DYCL_BAIL;
    if (w->dtype != DYCL_F32 || w->rank != 2 || w->sizes[0] != count * w->sizes[1] || g->values[of].rank != 3 ||
        dycl_value_numel(&g->values[of]) == 0)
        return DYCL_BAIL;
    int64_t steps = g->values[of].sizes[0], batch = g->values[of].sizes[1], width = w->sizes[1];
    int64_t kept[3] = {steps, batch, 4 * width}, states[3] = {steps, batch, width};
    int64_t flat = (steps + (kind == DYCL_RECURRENT_LSTM)) * batch * width;
    if (o[0] != DYCL_NONE && !dycl_infer_is_f32(g, o[0], 3, kept)) return DYCL_BAIL;
    if (o[2] != DYCL_NONE && !dycl_infer_is_f32(g, o[2], 3, states)) return DYCL_BAIL;
    if (o[3] != DYCL_NONE && !dycl_infer_is_f32(g, o[3], 2, states + 1)) return DYCL_BAIL;
    if (!dycl_infer_is_f32(g, o[4], 1, &flat)) return DYCL_BAIL;
    out->dtype = DYCL_F32;
    out->rank = 1;
    out->sizes[0] = steps * batch * w->sizes[0] * (kind == DYCL_RECURRENT_GRU ? 2 : 1) +
                    batch * width * (kind == DYCL_RECURRENT_LSTM ? 2 : 1);
    dycl_infer_contiguous(out);
    return DYCL_OK;
}

dycl_status dycl_infer_resize(const dycl_draft *draft, dycl_value *out) {
    const dycl_graph *g = draft->graph;
    const uint32_t *operands = draft->operands;
    const int64_t *attrs = draft->attrs;
    const dycl_value *x = &g->values[operands[0]];
    if (x->dtype != DYCL_F32 || x->rank != 4 || dycl_value_numel(x) == 0 || attrs[2] < 1 || attrs[3] < 1)
        return DYCL_BAIL;
    if (attrs[1] & 2 && attrs[2] != x->sizes[2]) return DYCL_BAIL; /* only the width is resampled */
    out->dtype = x->dtype;
    out->rank = 4;
    out->sizes[0] = x->sizes[0];
    out->sizes[1] = x->sizes[1];
    out->sizes[2] = attrs[2];
    out->sizes[3] = attrs[3];
    if (dycl_value_channels_last(x))
        dycl_infer_channels_last(out);
    else
        dycl_infer_contiguous(out);
    return DYCL_OK;
}

/* Which of its two ways torch takes decides the result's strides: its flash kernel answers in the query's order of
 * dimensions, matrix products answer contiguous (ATen/native/transformers/sdp_utils_cpp.cpp). */
int dycl_attention_is_flash(const dycl_value *q, const dycl_value *k, const dycl_value *v, const dycl_value *mask) {
    if (q->sizes[3] != v->sizes[3] || (mask && mask->rank != 2 && mask->rank != 4)) return 0;
    return q->strides[3] == 1 && k->strides[3] == 1 && v->strides[3] == 1;
}

dycl_status dycl_infer_attention(const dycl_draft *draft, dycl_value *out) {
    const dycl_graph *g = draft->graph;
    const uint32_t *operands = draft->operands;
    const int64_t *attrs = draft->attrs;
    const dycl_value *q = &g->values[operands[0]], *k = &g->values[operands[1]], *v = &g->values[operands[2]];
    if (dycl_dtype_computed((dycl_dtype)q->dtype) != DYCL_F32 || k->dtype != q->dtype || v->dtype != q->dtype ||
        q->rank != 4 || k->rank != 4 || v->rank != 4)
        return DYCL_BAIL;
    if (k->sizes[0] != q->sizes[0] || v->sizes[0] != q->sizes[0] || k->sizes[1] != v->sizes[1] ||
        k->sizes[2] != v->sizes[2] || k->sizes[3] != q->sizes[3] || k->sizes[1] == 0 || q->sizes[1] % k->sizes[1] ||
        dycl_value_numel(q) == 0 || dycl_value_numel(k) == 0 || dycl_value_numel(v) == 0)
        return DYCL_BAIL;
    if (operands[3] != DYCL_NONE) {
        const dycl_value *m = &g->values[operands[3]];
        int64_t full[4] = {q->sizes[0], q->sizes[1], q->sizes[2], k->sizes[2]};
        if ((m->dtype != q->dtype && m->dtype != DYCL_BOOL) || m->rank > 4 || m->rank < 2) return DYCL_BAIL;
        for (int i = 0; i < m->rank; i++)
            if (m->sizes[i] != 1 && m->sizes[i] != full[4 - m->rank + i]) return DYCL_BAIL;
    }
    out->dtype = q->dtype;
    out->rank = 4;
    memcpy(out->sizes, q->sizes, 4 * sizeof *q->sizes);
    out->sizes[3] = v->sizes[3];
    if (attrs[2] < 4 || !dycl_attention_is_flash(q, k, v, operands[3] == DYCL_NONE ? NULL : &g->values[operands[3]])) {
        dycl_infer_contiguous(out);
        return DYCL_OK;
    }
    dycl_infer_preserve(q, out);
    return out->strides[3] == 1 ? DYCL_OK : DYCL_BAIL;
}

dycl_status dycl_infer_gather(const dycl_draft *draft, dycl_value *out) {
    const dycl_graph *g = draft->graph;
    dycl_op op = draft->op;
    const uint32_t *operands = draft->operands;
    const int64_t *attrs = draft->attrs;
    const dycl_value *x = &g->values[operands[0]], *index = &g->values[operands[1]];
    if (index->dtype != DYCL_I64 && index->dtype != DYCL_I32) return DYCL_BAIL;
    out->dtype = x->dtype;
    if (op == DYCL_OP_embedding) {
        if (x->rank < 1 || index->rank + x->rank - 1 > DYCL_MAX_RANK || attrs[0] < -1 || attrs[0] >= x->sizes[0])
            return DYCL_BAIL;
        out->rank = (uint8_t)(index->rank + x->rank - 1);
        memcpy(out->sizes, index->sizes, index->rank * sizeof *out->sizes);
        memcpy(out->sizes + index->rank, x->sizes + 1, (size_t)(x->rank - 1) * sizeof *out->sizes);
    } else {
        if (attrs[0] < 0 || attrs[0] >= x->rank) return DYCL_BAIL;
        out->rank = x->rank;
        memcpy(out->sizes, x->sizes, sizeof out->sizes);
        if (op == DYCL_OP_index_select) {
            if (index->rank != 1) return DYCL_BAIL;
            out->sizes[attrs[0]] = index->sizes[0];
        } else {
            if (index->rank != x->rank || index->dtype != DYCL_I64) return DYCL_BAIL;
            for (int i = 0; i < x->rank; i++) {
                if (i != attrs[0] && index->sizes[i] > x->sizes[i]) return DYCL_BAIL;
                out->sizes[i] = index->sizes[i];
            }
        }
    }
    dycl_infer_contiguous(out);
    return DYCL_OK;
}
