#include "opt/rewrite.h"

/* Distributive rule: a c + b c = (a + b) c, a multiplication less. Integers only: they wrap, so both sides agree to the
 * bit, while floats round, overflow and cancel differently. */

/* The factor that both products share: *out_a c, *out_b c. */
static int common_factor(const dycl_program *p, const uint32_t *x, const uint32_t *y, uint32_t *out_a, uint32_t *out_b,
                         uint32_t *out_c) {
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            if (dycl_rewrite_equal(p, x[i], y[j])) {
                *out_a = x[1 - i];
                *out_b = y[1 - j];
                *out_c = x[i];
                return 1;
            }
    return 0;
}

dycl_status dycl_opt_distribute(dycl_program *p) {
    dycl_graph *g = &p->graph;
    for (uint32_t n = 0; n < g->node_count; n++) {
        dycl_node *node = &g->nodes[n];
        if (p->dead[n] || (node->op != DYCL_EW_add && node->op != DYCL_EW_sub)) continue;
        dycl_dtype dtype = (dycl_dtype)g->values[node->out].dtype;
        if (dycl_dtype_is_float(dtype) || dtype == DYCL_BOOL) continue;
        const uint32_t *o = dycl_node_operands(g, node);
        dycl_node *left = dycl_rewrite_maker(p, o[0]), *right = dycl_rewrite_maker(p, o[1]);
        if (!left || !right || left == right || left->op != DYCL_EW_mul || right->op != DYCL_EW_mul) continue;
        if (!dycl_rewrite_only_here(p, left) || !dycl_rewrite_only_here(p, right)) continue;
        uint32_t a, b, c;
        if (!common_factor(p, dycl_node_operands(g, left), dycl_node_operands(g, right), &a, &b, &c)) continue;
        dycl_node *later = left > right ? left : right; /* both summands are there */
        if (!dycl_rewrite_same_shape(p, a, later->out) || !dycl_rewrite_same_shape(p, b, later->out)) continue;
        dycl_rewrite_set(p, later, node->op, 2, a, b);
        dycl_rewrite_set(p, node, DYCL_EW_mul, 2, later->out, c);
        dycl_status status = dycl_opt_dce(p);
        if (status != DYCL_OK) return status;
    }
    return DYCL_OK;
}
