/* Random changes of graphs that leave them graphs: most of what changes a text at random is no graph at all.
 *
 * Ownership: none. Threads: one at a time. */
#ifndef DYCL_FUZZ_MUTATE_H
#define DYCL_FUZZ_MUTATE_H

#include "ir/verify.h"
#include "random.h"

#define MOST_ELEMENTS 5000 /* of a value: a run of the reference interpreter stays within a millisecond or so */

static int64_t any_size(void) {
    static const int64_t usual[] = {1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65, 0};
    return usual[below(sizeof usual / sizeof *usual)];
}

/* Sizes and strides of a feed: dense in some order of dimensions, sliced, expanded, windows that overlap, with odd
 * strides where a size is 1. */
static int any_shape(int64_t *sizes, int64_t *strides) {
    int rank = (int)below(6), order[8];
    int64_t stride = 1, numel = 1;
    for (int i = 0; i < rank; i++) {
        sizes[i] = any_size();
        while (numel * sizes[i] > MOST_ELEMENTS) sizes[i] /= 2;
        numel *= sizes[i] ? sizes[i] : 1;
        order[i] = i;
    }
    if (!below(3))
        for (int i = rank - 1; i > 0; i--) {
            int k = (int)below(i + 1), t = order[i];
            order[i] = order[k];
            order[k] = t;
        }
    for (int i = rank - 1; i >= 0; i--) {
        int d = order[i];
        strides[d] = !below(12) ? 0 : stride * (!below(12) ? 2 : 1);
        if (sizes[d] == 1 && !below(4)) strides[d] = below(9);
        stride = (strides[d] ? strides[d] : stride) * (sizes[d] ? sizes[d] : 1);
    }
    if (rank > 1 && !below(16)) strides[below((uint64_t)rank)] = 1 + (int64_t)below(2);
    return rank;
}

static void add_feed(dycl_graph *g) {
    int64_t sizes[8], strides[8];
    uint32_t value;
    static const dycl_dtype usual[] = {DYCL_F32, DYCL_F32, DYCL_F32, DYCL_F32, DYCL_F64,  DYCL_I64,  DYCL_I64,
                                       DYCL_I32, DYCL_I16, DYCL_I8,  DYCL_U8,  DYCL_BOOL, DYCL_BF16, DYCL_F16};
    int rank = any_shape(sizes, strides);
    if (dycl_verify_sizes(rank, sizes, strides) == DYCL_OK)
        dycl_graph_feed(g, usual[below(sizeof usual / sizeof *usual)], rank, sizes, strides, &value);
}

/* A feed that goes with what is there: the shape of one of its values, perhaps transposed, broadcast, or a vector or
 * matrix for its last dimensions. */
static void add_companion(dycl_graph *g) {
    const dycl_value v = g->values[below(g->value_count)];
    int64_t sizes[8], strides[8];
    uint32_t value;
    int rank = 0, from = (int)below(v.rank + 1);
    for (int i = from; i < v.rank; i++) sizes[rank++] = !below(5) ? 1 : v.sizes[i];
    if (rank == 1 && !below(2)) {
        sizes[1] = sizes[0];
        sizes[0] = any_size();
        rank = 2;
    }
    if (v.rank == 4 && !below(3)) { /* weights of a convolution over it */
        rank = 4;
        sizes[0] = any_size();
        sizes[1] = v.sizes[1];
        sizes[2] = 1 + below(3);
        sizes[3] = 1 + below(3);
    }
    dycl_strides_contiguous(rank, sizes, strides);
    dycl_value made = {.rank = (uint8_t)rank};
    memcpy(made.sizes, sizes, sizeof sizes);
    if (dycl_value_numel(&made) > MOST_ELEMENTS) return;
    dycl_graph_feed(g, below(4) ? (dycl_dtype)v.dtype : DYCL_I64, rank, sizes, strides, &value);
}

static int64_t any_attr(const dycl_value *v) {
    switch (below(8)) {
    case 0: return below(2);
    case 1: return below(8) - 2;
    case 2: return below(1 << (v->rank < 8 ? v->rank : 7)); /* a set of dimensions */
    case 3: return v->rank ? v->sizes[below(v->rank)] : 1;
    case 4: return v->rank ? v->strides[below(v->rank)] : 1;
    case 5: return any_size();
    default: return below(3);
    }
}

static int attributes(const dycl_graph *g, dycl_op op, uint32_t operand, int64_t *attrs) {
    const dycl_op_info *info = dycl_op_get(op);
    const dycl_value *v = &g->values[operand];
    int count = info->attrs, rank = v->rank;
    if (op == DYCL_OP_view || op == DYCL_OP_view_put) { /* a change of the operand's own shape, sometimes anything */
        attrs[0] = !below(3) ? below(9) : 0;
        for (int i = 0; i < rank; i++) {
            attrs[1 + i] = below(4) ? v->sizes[i] : v->sizes[i] ? 1 + below(v->sizes[i]) : 0;
            attrs[1 + rank + i] = below(6) ? v->strides[i] : v->strides[i] * 2;
        }
        for (int k = 0; k < 2 && rank > 1; k++) {
            int64_t a = below(rank), b = below(rank), t = attrs[1 + a];
            attrs[1 + a] = attrs[1 + b], attrs[1 + b] = t;
            t = attrs[1 + rank + a], attrs[1 + rank + a] = attrs[1 + rank + b], attrs[1 + rank + b] = t;
        }
        return 1 + 2 * rank;
    }
    if (op == DYCL_OP_pad) {
        for (int i = 0; i < 2 * rank; i++) attrs[i] = below(2) ? 0 : below(6) - 2;
        return 2 * rank;
    }
    if (op == DYCL_OP_full) {
        int64_t strides[8];
        return any_shape(attrs, strides);
    }
    for (int i = 0; i < count; i++) {
        attrs[i] = any_attr(v);
        if (dycl_attr_is_f64(op, info->min_operands, count, attrs, i))
            attrs[i] = dycl_f64_attr(below(2) ? 1e-5 : (double)below(5) - 1);
    }
    int unconv = info->family == DYCL_FAMILY_UNCONV;
    if ((info->family == DYCL_FAMILY_CONV || unconv) && below(4)) /* stride, padding... as they usually are */
        for (int i = 0; i < count; i++)
            attrs[i] = i < 2 || (unconv && i > 6) ? 1 + below(2 + (i > 6))
                       : i < 4                    ? below(3)
                       : i < 7                    ? 1 + !below(4)
                                                  : 0;
    if ((info->family == DYCL_FAMILY_POOL || info->family == DYCL_FAMILY_UNPOOL) && below(4))
        for (int i = 0; i < count; i++)
            attrs[i] = i < 4                                    ? 1 + below(3)
                       : i < 6                                  ? below(2)
                       : i < 8 && op == DYCL_OP_max_pool2d      ? 1 + !below(4)
                       : i < 8 && op == DYCL_OP_max_pool2d_back ? 1
                                                                : below(2);
    return count;
}

/* A scalar or a value; mostly one of the last, and of the dtype that is asked for (DYCL_DTYPE_COUNT: any). */
static uint32_t any_value(const dycl_graph *g, dycl_dtype dtype) {
    for (int tries = 0; tries < 8; tries++) {
        uint32_t back =
            below(3) ? (uint32_t)below(g->value_count) : (uint32_t)below(g->value_count < 4 ? g->value_count : 4);
        uint32_t v = g->value_count - 1 - back;
        if (dtype == DYCL_DTYPE_COUNT || g->values[v].dtype == dtype) return v;
    }
    return (uint32_t)below(g->value_count);
}

/* Not the host's operators: here is no host. */
static void add_node(dycl_graph *g) {
    uint32_t operands[DYCL_MAX_OPERANDS], value;
    int64_t attrs[DYCL_MAX_ATTRS] = {0};
    for (int tries = 0; tries < 60; tries++) {
        dycl_op op =
            (dycl_op)(below(2) ? below(DYCL_HOSTED_FIRST) : DYCL_EW_COUNT + below(DYCL_HOSTED_FIRST - DYCL_EW_COUNT));
        const dycl_op_info *info = dycl_op_get(op);
        int most = info->max_operands < 4 ? info->max_operands : info->min_operands + (int)below(4);
        int count = info->min_operands + (int)below(most - info->min_operands + 1);
        uint32_t first = any_value(g, DYCL_DTYPE_COUNT);
        for (int i = 0; i < count; i++) operands[i] = i == 0 ? first : any_value(g, (dycl_dtype)g->values[first].dtype);
        if ((int)op == DYCL_EW_where && count == 3) operands[0] = any_value(g, DYCL_BOOL);
        if (info->family == DYCL_FAMILY_GATHER || op == DYCL_OP_index_put) operands[1] = any_value(g, DYCL_I64);
        for (int i = 1; i < count; i++)
            if (info->family != DYCL_FAMILY_EW && info->max_operands < 10 && !below(4)) operands[i] = DYCL_NONE;
        int attr_count = attributes(g, op, operands[0], attrs);
        if (dycl_verify_node(g, op, count, operands, attr_count, attrs) != DYCL_OK) continue;
        if (dycl_graph_node(g, op, count, operands, attr_count, attrs, &value) != DYCL_OK) continue;
        if (dycl_value_numel(&g->values[value]) > MOST_ELEMENTS ||
            dycl_value_extent(&g->values[value]) > 4 * MOST_ELEMENTS) { /* taken back */
            g->value_count--;
            g->node_count--;
            g->operand_count -= (uint32_t)count;
            g->attr_count -= (uint32_t)attr_count;
            continue;
        }
        return;
    }
}

static void mutate(dycl_graph *g) {
    uint32_t value;
    int64_t steps = 1 + below(6);
    if (g->value_count == 0) add_feed(g);
    for (int64_t i = 0; i < steps && g->value_count < 60; i++) {
        switch (below(10)) {
        case 0: add_feed(g); break;
        case 1:
        case 2: add_companion(g); break;
        case 3: dycl_graph_scalar(g, (dycl_dtype)g->values[below(g->value_count)].dtype, &value); break;
        default: add_node(g);
        }
    }
}

#endif
