/* Shape inference: sizes, dtype and the strides that eager torch would give. */
#include "ir/infer.h"

#include <string.h>

static int same_sizes(const dycl_value *a, const dycl_value *b) {
    if (a->rank != b->rank) return 0;
    for (int i = 0; i < a->rank; i++)
        if (a->sizes[i] != b->sizes[i]) return 0;
    return 1;
}

void dycl_infer_contiguous(dycl_value *out) {
    dycl_strides_contiguous(out->rank, out->sizes, out->strides);
    out->canonical = 1;
    for (int i = 0; i < out->rank; i++) out->canonical &= out->sizes[i] != 0;
}

static int broadcast_into(dycl_value *out, const dycl_value *in) {
    int shift = out->rank - in->rank;
    if (shift < 0) {
        for (int i = out->rank - 1; i >= 0; i--) out->sizes[i - shift] = out->sizes[i];
        for (int i = 0; i < -shift; i++) out->sizes[i] = 1;
        out->rank = in->rank;
        shift = 0;
    }
    for (int i = 0; i < in->rank; i++) {
        int64_t *size = &out->sizes[i + shift];
        if (in->sizes[i] == *size || in->sizes[i] == 1) continue;
        if (*size != 1) return 0;
        *size = in->sizes[i];
    }
    return 1;
}

/* TensorIterator's rule (ATen/TensorIterator.cpp, reorder_dimensions): the output's dimensions are laid out in memory
 * in the order that the operands' strides ask for; the first operand with an opinion about a pair of dimensions
 * decides. */
static int should_swap(const dycl_value *out, int count, const dycl_value *const *in, int d0, int d1) {
    for (int i = 0; i < count; i++) {
        int shift = out->rank - in[i]->rank;
        int64_t s0 =
            d0 >= shift && (in[i]->sizes[d0 - shift] != 1 || out->sizes[d0] == 1) ? in[i]->strides[d0 - shift] : 0;
        int64_t s1 =
            d1 >= shift && (in[i]->sizes[d1 - shift] != 1 || out->sizes[d1] == 1) ? in[i]->strides[d1 - shift] : 0;
        if (s0 == 0 || s1 == 0) continue;
        if (s0 < s1) return -1;
        if (s0 > s1) return 1;
        if (out->sizes[d0] > out->sizes[d1]) return 1;
    }
    return 0;
}

void dycl_infer_iterator_strides(dycl_value *out, int count, const dycl_value *const *in) {
    int perm[DYCL_MAX_RANK], rank = out->rank;
    for (int i = 0; i < rank; i++) perm[i] = rank - 1 - i;
    for (int i = 1; i < rank; i++) {
        int d1 = i;
        for (int d0 = i - 1; d0 >= 0; d0--) {
            int order = should_swap(out, count, in, perm[d0], perm[d1]);
            if (order > 0) {
                int t = perm[d0];
                perm[d0] = perm[d1];
                perm[d1] = t;
                d1 = d0;
            } else if (order < 0) {
                break;
            }
        }
    }
    int64_t stride = 1;
    int ordinary = 1;
    for (int i = 0; i < rank; i++) {
        ordinary &= perm[i] == rank - 1 - i;
        out->strides[perm[i]] = stride;
        stride *= out->sizes[perm[i]];
    }
    if (ordinary)
        dycl_infer_contiguous(out); /* differs where a size is 0: then the strides of another order become 0 too */
    else
        out->canonical = (uint8_t)dycl_strides_canonical(out);
}

static void clear_shape(dycl_value *out) { /* entries past the rank stay 0; copied for the reason given in graph.c */
    static const dycl_value blank;
    out->rank = out->canonical = 0;
    memcpy(out->sizes, blank.sizes, sizeof out->sizes + sizeof out->strides);
}

/* The first operand has the result's shape, ordinary strides and no dimension of size 1 or 0: it has an opinion about
 * every pair of dimensions, whatever is broadcast to it (a bias, a row statistic). */
static int first_decides(const dycl_value *out, const dycl_value *first) {
    if (!first->canonical || first->rank != out->rank) return 0;
    for (int i = 0; i < out->rank; i++)
        if (first->sizes[i] != out->sizes[i] || out->sizes[i] < 2) return 0;
    return 1;
}

static int all_canonical(const dycl_value *shape, int count, const dycl_value *const *in) {
    for (int i = 0; i < count; i++) {
        if (in[i] == shape ? !shape->canonical
                           : in[i]->kind != DYCL_VALUE_SCALAR && !(in[i]->canonical && same_sizes(in[i], shape)))
            return 0;
    }
    return 1;
}

/* Operators whose number torch makes a tensor of rank 0: then its iterator sees operands of different shapes, and the
 * strides of dimensions of size 1 follow its general rule. The others (clamp, leaky_relu, pow by a number...) are
 * functions of one tensor there. */
static int number_is_operand(dycl_op op) {
    switch (op) {
    case DYCL_OP_maximum:
    case DYCL_OP_minimum:
    case DYCL_OP_pow:
    case DYCL_OP_leaky_relu:
    case DYCL_OP_elu:
    case DYCL_OP_celu:
    case DYCL_OP_hardshrink:
    case DYCL_OP_hardtanh:
    case DYCL_OP_clamp:
    case DYCL_OP_softplus:
    case DYCL_OP_threshold:
    case DYCL_OP_add_scaled:
    case DYCL_OP_lerp: return 0;
    default: return 1;
    }
}

/* TensorIterator's fast ways for operands of one shape that are not all contiguous (compute_fast_setup_type). The
 * general rule lays out the same memory, and gives dimensions of size 1 other strides. */
static int infer_alike(dycl_value *out, int count, const dycl_value *const *in) {
    int channels_last = 1, same = 1;
    for (int i = 0; i < count; i++) {
        channels_last &= dycl_value_channels_last_dense(in[i]) == 1;
        same &= memcmp(in[i]->strides, in[0]->strides, out->rank * sizeof out->strides[0]) == 0;
    }
    if (channels_last) {
        dycl_infer_channels_last(out);
    } else {
        if (!same || !dycl_value_dense(in[0])) return 0;
        memcpy(out->strides, in[0]->strides, sizeof out->strides);
    }
    out->canonical = (uint8_t)dycl_strides_canonical(out);
    return 1;
}

static void infer_strides(dycl_value *out, int count, const dycl_value *const *tensors, int all_plain, int one_shape) {
    if (all_plain || (count && first_decides(out, tensors[0])))
        dycl_infer_contiguous(out);
    else if (!(one_shape && count && infer_alike(out, count, tensors)))
        dycl_infer_iterator_strides(out, count, tensors);
}

void dycl_infer_iterator(dycl_value *out, int count, const dycl_value *const *in) {
    int all_plain = 1, one_shape = 1;
    for (int i = 0; i < count; i++) {
        if (!same_sizes(in[i], out))
            all_plain = one_shape = 0;
        else
            all_plain &= dycl_value_contiguous(in[i]);
    }
    infer_strides(out, count, in, all_plain, one_shape);
}

dycl_status dycl_infer_elementwise(const dycl_draft *draft, dycl_value *out) {
    const dycl_graph *g = draft->graph;
    dycl_op op = draft->op;
    int count = draft->operand_count;
    const uint32_t *operands = draft->operands;
    const dycl_value *in[3] = {0};
    int all_plain = 1, one_shape = 1;
    if (count < 1) return DYCL_BAIL;
    for (int i = 0; i < count; i++) in[i] = &g->values[operands[i]];
    const dycl_value *shape = in[0];
    for (int i = 1; i < count; i++)
        if (in[i]->rank > shape->rank) shape = in[i];
    out->dtype = dycl_ew_result_is_bool((dycl_ew)op) ? DYCL_BOOL : in[count - 1]->dtype;
    if (all_canonical(shape, count, in)) { /* by far the most frequent case */
        out->rank = shape->rank;
        out->canonical = 1;
        memcpy(out->sizes, shape->sizes, sizeof out->sizes + sizeof out->strides);
        return DYCL_OK;
    }
    clear_shape(out);
    out->rank = shape->rank;
    memcpy(out->sizes, shape->sizes, sizeof out->sizes);
    const dycl_value *tensors[3];
    int tensor_count = 0;
    for (int i = 0; i < count; i++) {
        if (in[i]->kind == DYCL_VALUE_SCALAR) {
            if (number_is_operand(op)) all_plain = one_shape = 0;
            continue;
        }
        tensors[tensor_count++] = in[i];
        if (in[i] != shape && !same_sizes(in[i], shape)) {
            if (!broadcast_into(out, in[i])) return DYCL_BAIL;
            all_plain = one_shape = 0;
        } else if (!dycl_value_contiguous(in[i])) {
            all_plain = 0;
        }
    }
    if (op == DYCL_OP_relu6 || (op == DYCL_OP_hardtanh && same_sizes(in[0], out))) /* torch: empty_like, hardtanh_out */
        dycl_infer_preserve(in[0], out);
    else if (op == DYCL_OP_logsigmoid || (op == DYCL_OP_pow && in[0]->kind == DYCL_VALUE_SCALAR))
        dycl_infer_contiguous(out);
    else
        infer_strides(out, tensor_count, tensors, all_plain, one_shape);
    return DYCL_OK;
}

dycl_status dycl_infer_view(const dycl_draft *draft, dycl_value *out) {
    const dycl_graph *g = draft->graph;
    int attr_count = draft->attr_count;
    const int64_t *attrs = draft->attrs;
    const dycl_value *in = &draft->graph->values[draft->operands[0]];
    int rank = (attr_count - 1) / 2;
    if (rank > DYCL_MAX_RANK || in->kind == DYCL_VALUE_SCALAR) return DYCL_BAIL;
    out->dtype = in->dtype;
    out->rank = (uint8_t)rank;
    out->root = in->root;
    out->offset = in->offset + attrs[0];
    for (int i = 0; i < rank; i++) {
        out->sizes[i] = attrs[1 + i];
        out->strides[i] = attrs[1 + rank + i];
    }
    out->canonical = (uint8_t)dycl_strides_canonical(out);
    int64_t extent = dycl_value_extent(out);
    if (extent == 0) return DYCL_OK;
    return out->offset >= 0 && out->offset + extent <= dycl_value_extent(&g->values[in->root])
               ? DYCL_OK
               : DYCL_BAIL; /* steps read no other memory */
}

static dycl_status infer_copy(const dycl_value *in, int64_t format, dycl_value *out) {
    out->rank = in->rank;
    memcpy(out->sizes, in->sizes, sizeof out->sizes);
    if (format == 1 || format == 3) {
        dycl_infer_preserve(in, out);
    } else if (format == 2) {
        if (in->rank != 4) return DYCL_BAIL;
        dycl_infer_channels_last(out);
    } else {
        dycl_infer_contiguous(out);
    }
    return DYCL_OK;
}

/* torch.preserve_format: the same strides when the operand is dense and does not overlap itself, else as elementwise
 * operators do. */
void dycl_infer_preserve(const dycl_value *in, dycl_value *out) {
    if (dycl_value_dense(in)) {
        memcpy(out->strides, in->strides, sizeof out->strides);
        out->canonical = in->canonical;
    } else {
        dycl_infer_iterator_strides(out, 1, &in);
    }
}

dycl_status dycl_infer_join(const dycl_draft *draft, dycl_value *out) {
    const dycl_graph *g = draft->graph;
    dycl_op op = draft->op;
    int count = draft->operand_count;
    const uint32_t *operands = draft->operands;
    int attr_count = draft->attr_count;
    const int64_t *attrs = draft->attrs;
    const dycl_value *in = &g->values[operands[0]];
    out->dtype = in->dtype;
    out->rank = in->rank;
    memcpy(out->sizes, in->sizes, sizeof out->sizes);
    if (op == DYCL_OP_cat) {
        int64_t dim = attrs[0];
        if (dim < 0 || dim >= in->rank) return DYCL_BAIL;
        for (int i = 1; i < count; i++) {
            const dycl_value *next = &g->values[operands[i]];
            if (next->rank != in->rank || next->dtype != in->dtype) return DYCL_BAIL;
            for (int d = 0; d < in->rank; d++)
                if (d != dim && next->sizes[d] != in->sizes[d]) return DYCL_BAIL;
            out->sizes[dim] += next->sizes[dim];
        }
    } else {
        if (attr_count != 2 * in->rank) return DYCL_BAIL;
        for (int d = 0; d < in->rank; d++) {
            out->sizes[d] += attrs[d] + attrs[in->rank + d];
            if (out->sizes[d] < 0) return DYCL_BAIL;
        }
    }
    dycl_infer_contiguous(out);
    return DYCL_OK;
}

dycl_status dycl_infer_create(const dycl_draft *draft, dycl_value *out) {
    const dycl_graph *g = draft->graph;
    dycl_op op = draft->op;
    const uint32_t *operands = draft->operands;
    int attr_count = draft->attr_count;
    const int64_t *attrs = draft->attrs;
    out->dtype = g->values[operands[0]].dtype;
    out->rank = (uint8_t)(op == DYCL_OP_iota ? 1 : attr_count);
    if (attr_count > DYCL_MAX_RANK ||
        (op == DYCL_OP_iota && (out->dtype == DYCL_BOOL || dycl_dtype_is_half((dycl_dtype)out->dtype))))
        return DYCL_BAIL;
    for (int i = 0; i < attr_count; i++) {
        if (attrs[i] < 0) return DYCL_BAIL;
        out->sizes[i] = attrs[i];
    }
    dycl_infer_contiguous(out);
    return DYCL_OK;
}

dycl_status dycl_infer_cast(const dycl_draft *draft, dycl_value *out) {
    out->dtype = (uint8_t)draft->attrs[0];
    return infer_copy(&draft->graph->values[draft->operands[0]], 1, out);
}

dycl_status dycl_infer_indexed(const dycl_draft *draft, dycl_value *out) {
    const dycl_value *in = &draft->graph->values[draft->operands[0]];
    if (in->rank < 2) return DYCL_BAIL;
    out->dtype = in->dtype;
    return infer_copy(in, 0, out);
}

dycl_status dycl_infer_copy(const dycl_draft *draft, dycl_value *out) {
    const dycl_value *in = &draft->graph->values[draft->operands[0]];
    out->dtype = in->dtype;
    return infer_copy(in, draft->attrs[0], out);
}

dycl_status dycl_infer_laid(const dycl_draft *draft, dycl_value *out) { return dycl_infer_copy(draft, out); }

dycl_status dycl_infer(const dycl_graph *g, dycl_op op, int count, const uint32_t *operands, int attr_count,
                       const int64_t *attrs, dycl_value *out) {
    static dycl_status (*const families[DYCL_FAMILY_COUNT])(const dycl_draft *, dycl_value *) = {
#define DYCL_FAMILY(NAME, name, ...) [DYCL_FAMILY_##NAME] = dycl_infer_##name,
#include "ir/family.def"
#undef DYCL_FAMILY
    };
    const dycl_op_info *info = dycl_op_get(op);
    if (count < info->min_operands || count > info->max_operands || (info->attrs >= 0 && attr_count != info->attrs))
        return DYCL_BAIL;
    const dycl_draft draft = {g, op, count, attr_count, operands, attrs};
    if (info->family == DYCL_FAMILY_EW) return dycl_infer_elementwise(&draft, out); /* by far the most frequent */
    clear_shape(out);
    return families[info->family](&draft, out);
}
