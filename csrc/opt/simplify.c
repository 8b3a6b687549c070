#include "opt/rewrite.h"

/* Cancellation and strength reduction: each rule leaves fewer or cheaper operators. */

int dycl_rewrite_is(dycl_program *p, const dycl_node *node, uint32_t value) {
    const dycl_value *to = &p->graph.values[value], *out = &p->graph.values[node->out];
    if (p->is_output[node->out] || to->kind == DYCL_VALUE_SCALAR || p->graph.values[to->root].kind == DYCL_VALUE_SCALAR)
        return 0;
    if (!dycl_rewrite_same_shape(p, node->out, value)) return 0;
    for (int i = 0; i < out->rank; i++)
        if (out->sizes[i] > 1 && out->strides[i] != to->strides[i]) return 0;
    dycl_program_alias(p, node->out, value);
    return 1;
}

static int is_float(const dycl_program *p, uint32_t value) {
    return dycl_dtype_is_float((dycl_dtype)p->graph.values[value].dtype);
}

/* Floats of 16 bits are rounded behind each operator; one that does what two did would round once. */
static int rounds_between(const dycl_program *p, uint32_t value) {
    return dycl_dtype_is_half((dycl_dtype)p->graph.values[value].dtype);
}

/* f(f(x)) = f(x), every bit */
static int is_idempotent(int op) {
    switch (op) {
    case DYCL_EW_abs:
    case DYCL_EW_sign:
    case DYCL_EW_relu:
    case DYCL_EW_relu6:
    case DYCL_EW_floor:
    case DYCL_EW_ceil:
    case DYCL_EW_round:
    case DYCL_EW_trunc: return 1;
    default: return 0;
    }
}

/* One operand. 1: changed. */
static int unary(dycl_program *p, dycl_node *node, uint32_t x) {
    dycl_node *inner = dycl_rewrite_maker(p, x);
    if (!inner) return 0;
    const uint32_t *o = dycl_node_operands(&p->graph, inner);
    if (is_idempotent(node->op) && inner->op == node->op) return dycl_rewrite_is(p, node, x);
    switch (node->op) {
    case DYCL_EW_neg:
        if (inner->op == DYCL_EW_neg) return dycl_rewrite_is(p, node, o[0]);
        return 0;
    case DYCL_EW_bitwise_not:
        if (inner->op == DYCL_EW_bitwise_not) return dycl_rewrite_is(p, node, o[0]);
        return 0;
    case DYCL_EW_logical_not: /* of a comparison: not so for <, where a NaN makes both false */
        if ((inner->op != DYCL_EW_eq && inner->op != DYCL_EW_ne) || !dycl_rewrite_only_here(p, inner)) return 0;
        /* the comparison itself turns round, and the negation is it */
        if (!dycl_rewrite_is(p, node, x)) return 0;
        inner->op = inner->op == DYCL_EW_eq ? DYCL_EW_ne : DYCL_EW_eq;
        return 1;
    case DYCL_EW_abs:
    case DYCL_EW_square:
    case DYCL_EW_cos: /* even: the sign does not matter */
        if (inner->op != DYCL_EW_neg && !(inner->op == DYCL_EW_abs && node->op == DYCL_EW_square)) return 0;
        if (!is_float(p, x)) return 0;
        dycl_rewrite_set(p, node, node->op, 1, o[0], 0);
        return 1;
    case DYCL_EW_reciprocal:
        if (inner->op != DYCL_EW_sqrt || rounds_between(p, x)) return 0;
        dycl_rewrite_set(p, node, DYCL_EW_rsqrt, 1, o[0], 0); /* the kernel is 1 / sqrt */
        return 1;
    default: return 0;
    }
}

/* x where the operand is op(x) and covers the result without broadcasting. */
static int made_by(const dycl_program *p, uint32_t operand, int op, uint32_t *out) {
    const dycl_node *inner = dycl_rewrite_maker(p, operand);
    if (!inner || inner->op != op) return 0;
    *out = dycl_node_operands(&p->graph, inner)[0];
    return 1;
}

static int binary(dycl_program *p, dycl_node *node, uint32_t a, uint32_t b) {
    uint32_t x = 0, y = 0;
    switch (node->op) {
    case DYCL_EW_add: /* a + -y is a - y to the bit, and so for wrapping integers */
        if (made_by(p, b, DYCL_EW_neg, &y))
            dycl_rewrite_set(p, node, DYCL_EW_sub, 2, a, y);
        else if (made_by(p, a, DYCL_EW_neg, &x))
            dycl_rewrite_set(p, node, DYCL_EW_sub, 2, b, x);
        else
            return 0;
        return 1;
    case DYCL_EW_sub:
        if (!made_by(p, b, DYCL_EW_neg, &y)) return 0;
        dycl_rewrite_set(p, node, DYCL_EW_add, 2, a, y);
        return 1;
    case DYCL_EW_div:
    case DYCL_EW_mul:
        if (made_by(p, a, DYCL_EW_neg, &x) && made_by(p, b, DYCL_EW_neg, &y)) {
            dycl_rewrite_set(p, node, node->op, 2, x, y);
            return 1;
        }
        if (node->op == DYCL_EW_div || p->graph.values[node->out].dtype == DYCL_BOOL) return 0;
        if (dycl_rewrite_equal(p, a, b) && dycl_rewrite_same_shape(p, node->out, a)) {
            dycl_rewrite_set(p, node, DYCL_EW_square, 1, a, 0);
            return 1;
        }
        if (p->graph.values[node->out].dtype != DYCL_F32) return 0;
        for (int k = 0; k < 2;
             k++) { /* x sigmoid(x): the kernel of silu is the more accurate one, and -inf gives NaN in both */
            uint32_t gate = k ? a : b, other = k ? b : a;
            if (!made_by(p, gate, DYCL_EW_sigmoid, &x) || !dycl_rewrite_equal(p, x, other)) continue;
            if (!dycl_rewrite_only_here(p, dycl_rewrite_maker(p, gate)) || !dycl_rewrite_same_shape(p, node->out, x))
                continue;
            dycl_rewrite_set(p, node, DYCL_EW_silu, 1, x, 0);
            return 1;
        }
        return 0;
    default: return 0;
    }
}

/* A sum of squares or magnitudes adds them up as it makes them. */
static int reduction(dycl_program *p, dycl_node *node, uint32_t x) {
    const dycl_node *inner = node->op == DYCL_OP_sum && is_float(p, x) ? dycl_rewrite_maker(p, x) : NULL;
    if (!inner || (inner->op != DYCL_EW_square && inner->op != DYCL_EW_abs) || !dycl_rewrite_only_here(p, inner))
        return 0;
    uint32_t from = dycl_node_operands(&p->graph, inner)[0];
    if (!dycl_rewrite_same_shape(p, x, from) || rounds_between(p, x)) return 0;
    dycl_rewrite_set(p, node, inner->op == DYCL_EW_square ? DYCL_OP_sumsq : DYCL_OP_sumabs, 1, from, 0);
    return 1;
}

static int apply(dycl_program *p, dycl_node *node) {
    const uint32_t *o = dycl_node_operands(&p->graph, node);
    dycl_family family = dycl_op_get((dycl_op)node->op)->family;
    if (family == DYCL_FAMILY_EW && node->operand_count == 1) return unary(p, node, o[0]);
    if (family == DYCL_FAMILY_EW && node->operand_count == 2) return binary(p, node, o[0], o[1]);
    return family == DYCL_FAMILY_REDUCE && reduction(p, node, o[0]);
}

dycl_status dycl_opt_simplify(dycl_program *p) {
    for (uint32_t n = 0; n < p->graph.node_count; n++)
        while (!p->dead[n] &&
               apply(p, &p->graph.nodes[n])) {    /* each rule removes an operator or takes a cheaper one: it ends */
            dycl_status status = dycl_opt_dce(p); /* the rules ask who reads a value */
            if (status != DYCL_OK) return status;
        }
    return DYCL_OK;
}
