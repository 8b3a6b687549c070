#include "opt/program.h"

#include <string.h>

/* Backwards over the nodes: program order is a topological order. A view lives when something that lives reads it, but
 * it is its root that has to be computed. */
dycl_status dycl_opt_dce(dycl_program *program) {
    const dycl_graph *g = &program->graph;
    memset(program->uses, 0, g->value_count * sizeof(uint32_t));
    for (uint32_t n = g->node_count; n-- > 0;) {
        const dycl_node *node = &g->nodes[n];
        if (node->op == DYCL_OP_view || program->dead[n]) {
            program->dead[n] = 1;
            continue;
        }
        if (!program->is_output[node->out] && program->uses[node->out] == 0) {
            program->dead[n] = 1;
            continue;
        }
        const uint32_t *operands = dycl_node_operands(g, node);
        for (int i = 0; i < node->operand_count; i++)
            if (operands[i] != DYCL_NONE) program->uses[g->values[operands[i]].root]++;
    }
    return DYCL_OK;
}
