#include "opt/program.h"

/* Commutative rule: operands of exactly commutative operators in the order of their values, so that a + b and b + a are
 * one for the passes behind. maximum and minimum are left out: of two zeros the second wins. */

static int commutes(int op) {
    switch (op) {
    case DYCL_EW_add:
    case DYCL_EW_mul:
    case DYCL_EW_eq:
    case DYCL_EW_ne:
    case DYCL_EW_logical_and:
    case DYCL_EW_logical_or:
    case DYCL_EW_logical_xor:
    case DYCL_EW_bitwise_and:
    case DYCL_EW_bitwise_or:
    case DYCL_EW_bitwise_xor: return 1;
    default: return 0;
    }
}

dycl_status dycl_opt_commute(dycl_program *p) {
    const dycl_graph *g = &p->graph;
    for (uint32_t n = 0; n < g->node_count; n++) {
        uint32_t *operands = g->operands + g->nodes[n].operands;
        if (p->dead[n] || !commutes(g->nodes[n].op)) continue;
        uint32_t a = g->values[operands[0]].root, b = g->values[operands[1]].root;
        if (a < b || (a == b && operands[0] <= operands[1])) continue;
        uint32_t first = operands[0];
        operands[0] = operands[1];
        operands[1] = first;
    }
    return DYCL_OK;
}
