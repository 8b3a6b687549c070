#include "py/region/cross.h"

enum { SEVERAL = UINT32_C(1) << 31 }; /* in a group: results of higher levels, too */

static void join(uint32_t *group, uint32_t other) {
    uint32_t level = *group & ~SEVERAL, wanted = other & ~SEVERAL;
    uint32_t lowest = !level || (wanted && wanted < level) ? wanted : level;
    *group = lowest | ((*group | other) & SEVERAL) | (level && wanted && level != wanted ? SEVERAL : 0);
}

/* From the last node to the first: the levels that a value leads to without passing through another result. */
void dycl_cross_find(const dycl_graph *graph, const uint8_t *tracked, uint32_t *crosses, uint32_t *group) {
    for (uint32_t n = graph->node_count; n-- > 0;) {
        const dycl_node *node = &graph->nodes[n];
        const uint32_t *operands = dycl_node_operands(graph, node);
        uint32_t out = node->out, root = graph->values[out].root;
        if (!tracked[out]) continue;
        if (crosses[out]) { /* a result */
            group[out] = crosses[out];
        } else if (group[out] & SEVERAL && root == out) {
            group[out] &= ~SEVERAL;
            crosses[out] = group[out];
        } /* of a view its root crosses */
        for (int i = 0; i < node->operand_count; i++)
            if (operands[i] != DYCL_NONE && tracked[operands[i]]) join(&group[operands[i]], group[out]);
    }
}
