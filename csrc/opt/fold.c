#include "ir/added.h"
#include "opt/rewrite.h"

#define LEAST_RUN 16 /* shorter runs are gathered faster by the copy */

/* Constants: a tensor filled with one number is that number to an elementwise operator, so that it need not be written
 * and read; a conversion to and from a dtype that holds every value of the first is none. */

/* Does `wide` hold every value of `dtype`, so that going through it changes nothing? */
static int holds(dycl_dtype wide, dycl_dtype dtype) {
    if (wide == dtype) return 1;
    static const uint8_t bits[DYCL_DTYPE_COUNT] = {
        [DYCL_BOOL] = 1, [DYCL_U8] = 8,   [DYCL_I8] = 7,   [DYCL_I16] = 15, [DYCL_I32] = 31,
        [DYCL_I64] = 63, [DYCL_F32] = 24, [DYCL_F64] = 53, [DYCL_BF16] = 8, [DYCL_F16] = 11};
    if (dycl_dtype_is_half(dtype)) return wide == DYCL_F32 || wide == DYCL_F64;
    if (dtype == DYCL_F64 || (dtype == DYCL_F32 && wide != DYCL_F64)) return 0;
    if (dtype == DYCL_F32) return 1; /* in F64 */
    int is_signed = dtype == DYCL_I8 || dtype == DYCL_I16 || dtype == DYCL_I32 || dtype == DYCL_I64;
    if (is_signed && (wide == DYCL_U8 || wide == DYCL_BOOL)) return 0;
    return bits[wide] && bits[dtype] && bits[wide] >= bits[dtype];
}

static void fold_fills(dycl_program *p, dycl_node *node, int count) {
    dycl_graph *g = &p->graph;
    uint32_t *operands = g->operands + node->operands;
    for (int i = 0; i < count; i++) {
        if (operands[i] == DYCL_NONE) continue;
        uint32_t n = dycl_program_producer(p, operands[i]);
        if (n == DYCL_NONE || g->nodes[n].op != DYCL_OP_full) continue;
        uint32_t number = dycl_node_operands(g, &g->nodes[n])[0];
        if (g->values[number].kind == DYCL_VALUE_SCALAR && g->values[number].dtype == g->values[operands[i]].dtype)
            operands[i] = number;
    }
}

/* A copy that only one elementwise operator reads: it reads what was copied, where that has runs of elements. */
static void fold_copies(dycl_program *p, dycl_node *node) {
    dycl_graph *g = &p->graph;
    uint32_t *operands = g->operands + node->operands;
    for (int i = 0; i < node->operand_count; i++) {
        const dycl_node *copy = dycl_rewrite_maker(p, operands[i]);
        if (!copy || copy->op != DYCL_OP_contiguous || !dycl_rewrite_only_here(p, copy)) continue;
        uint32_t from = dycl_node_operands(g, copy)[0];
        const dycl_value *value = &g->values[from];
        int last = value->rank - 1;
        while (last > 0 && value->sizes[last] == 1) last--;
        if (last >= 0 && value->sizes[last] >= LEAST_RUN && value->strides[last] == 1) operands[i] = from;
    }
}

static void fold_casts(dycl_program *p, dycl_node *node) {
    dycl_graph *g = &p->graph;
    uint32_t *operands = g->operands + node->operands;
    const dycl_node *inner = dycl_rewrite_maker(p, operands[0]);
    if (!inner || inner->op != DYCL_OP_cast) return;
    uint32_t from = dycl_node_operands(g, inner)[0];
    dycl_dtype first = (dycl_dtype)g->values[from].dtype, middle = (dycl_dtype)g->values[inner->out].dtype,
               last = (dycl_dtype)g->values[node->out].dtype;
    if (!holds(middle, first)) return;
    /* a float outside the range of an integer has no one result */
    if (dycl_dtype_is_float(middle) && !dycl_dtype_is_float(last) && last != DYCL_BOOL && !holds(last, first)) return;
    if (first != last || !dycl_rewrite_is(p, node, from))
        operands[0] = from; /* a cast to its own dtype is a copy: cse.c */
}

/* A conversion that keeps every value keeps their order. */
static void fold_order(dycl_program *p, dycl_node *node) {
    dycl_graph *g = &p->graph;
    uint32_t *operands = g->operands + node->operands;
    const dycl_node *cast = dycl_rewrite_maker(p, operands[0]);
    if (!cast || cast->op != DYCL_OP_cast) return;
    uint32_t from = dycl_node_operands(g, cast)[0];
    dycl_dtype narrow = (dycl_dtype)g->values[from].dtype;
    if (dycl_dtype_is_half(narrow) && holds((dycl_dtype)g->values[cast->out].dtype, narrow)) operands[0] = from;
}

dycl_status dycl_opt_fold(dycl_program *p) {
    dycl_graph *g = &p->graph;
    dycl_added added;
    for (uint32_t n = 0; n < g->node_count; n++) {
        dycl_node *node = &g->nodes[n];
        if (p->dead[n]) continue;
        dycl_family family = dycl_op_get((dycl_op)node->op)->family;
        if (family == DYCL_FAMILY_EW) fold_fills(p, node, node->operand_count);
        if (family == DYCL_FAMILY_HOSTED && dycl_added_of(g, node, &added) && added.base == 0)
            fold_fills(p, node, 1); /* each row is filled just before it is added to */
        if (family == DYCL_FAMILY_CAST) fold_casts(p, node);
        if (node->op == DYCL_OP_argmax || node->op == DYCL_OP_argmin) fold_order(p, node);
        if (family == DYCL_FAMILY_EW || family == DYCL_FAMILY_CAST) fold_copies(p, node);
    }
    return dycl_opt_dce(p);
}
