#include "opt/program.h"

/* Which values may hold an infinity or a NaN though every feed and every number of the program is finite and nothing overflows: primitives that turn a
 * NaN into a number must not read them (exec/guard.h). Sums and products that leave f32's range are not counted; what does that with ordinary numbers
 * (exp, a product over a row) is. */

static int makes_nonfinite(const dycl_graph *g, const dycl_node *node) {
    const dycl_value *in = node->operand_count && dycl_node_operands(g, node)[0] != DYCL_NONE ? &g->values[dycl_node_operands(g, node)[0]] : NULL;
    const int64_t *attrs = dycl_node_attrs(g, node);
    switch (node->op) {
    case DYCL_EW_exp:
    case DYCL_EW_exp2:
    case DYCL_EW_expm1:
    case DYCL_EW_log:
    case DYCL_EW_log2:
    case DYCL_EW_log10:
    case DYCL_EW_log1p:
    case DYCL_EW_sqrt:
    case DYCL_EW_rsqrt:
    case DYCL_EW_reciprocal:
    case DYCL_EW_div:
    case DYCL_EW_floor_div:
    case DYCL_EW_trunc_div:
    case DYCL_EW_remainder:
    case DYCL_EW_fmod:
    case DYCL_EW_pow:
    case DYCL_EW_softplus: /* divides by beta */
    case DYCL_OP_prod:
    case DYCL_OP_cumsum: return 1;
    case DYCL_OP_mean: return dycl_value_numel(in) == 0;
    case DYCL_OP_var: return 1; /* of one element */
    case DYCL_OP_layer_norm:
    case DYCL_OP_rms_norm:
    case DYCL_OP_group_norm: return !(dycl_attr_f64(attrs[1]) > 0);
    case DYCL_OP_cast: return in->dtype == DYCL_F64; /* f32's range is smaller */
    default: return 0; /* batch_norm looks at its variances when it runs */
    }
}

dycl_status dycl_opt_finite(dycl_program *p) {
    const dycl_graph *g = &p->graph;
    for (uint32_t n = 0; n < g->node_count; n++) {
        const dycl_node *node = &g->nodes[n];
        const uint32_t *operands = dycl_node_operands(g, node);
        uint32_t out = node->out;
        p->nonfinite[out] = 0;
        if (node->op == DYCL_OP_view || p->dead[n] || !dycl_dtype_is_float((dycl_dtype)g->values[out].dtype)) continue;
        int may = makes_nonfinite(g, node);
        for (int i = 0; i < node->operand_count && !may; i++) may = operands[i] != DYCL_NONE && p->nonfinite[g->values[operands[i]].root];
        p->nonfinite[g->values[out].root] |= (uint8_t)may; /* the root: an alias, where rewriting made it one */
    }
    return DYCL_OK;
}
