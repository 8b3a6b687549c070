#include "opt/program.h"

#include <string.h>

/* Concatenation as index arithmetic: what nobody but a concatenation reads is computed where it will lie in the result,
 * as a view of that. Only of what writes any strides, or finds the part contiguous; around convolutions values lie in
 * layouts of their own. Runs last: then the blocks are in order. */

static int has_layouts(const dycl_program *p) {
    for (uint32_t n = 0; n < p->graph.node_count; n++) {
        dycl_family family = dycl_op_get((dycl_op)p->graph.nodes[n].op)->family;
        if (!p->dead[n] && (family == DYCL_FAMILY_CONV || family == DYCL_FAMILY_POOL)) return 1;
    }
    return 0;
}

/* Whether the part before dimension `dim` of a contiguous result is one element, so that a part along it is contiguous,
 * too. */
static int is_outermost(const dycl_value *value, int dim) {
    for (int d = 0; d < dim; d++)
        if (value->sizes[d] != 1) return 0;
    return 1;
}

static int may_place(const dycl_program *p, uint32_t v, const dycl_value *whole, int dim) {
    const dycl_value *part = &p->graph.values[v];
    if (part->kind != DYCL_VALUE_NODE || part->root != v || p->uses[v] != 1 || p->is_output[v]) return 0;
    if (part->dtype != whole->dtype || dycl_value_numel(part) == 0) return 0;
    uint32_t maker = part->source, block = p->block_of[maker];
    if (block == DYCL_NONE) return 0;
    const dycl_op op = (dycl_op)p->graph.nodes[maker].op;
    return p->blocks[block].kind == DYCL_BLOCK_TILE || op == DYCL_OP_cat ||
           ((op == DYCL_OP_linear || op == DYCL_OP_full) && whole->canonical && is_outermost(whole, dim));
}

dycl_status dycl_opt_join(dycl_program *p) {
    dycl_graph *g = &p->graph;
    if (has_layouts(p)) return DYCL_OK;
    for (uint32_t n = g->node_count; n-- > 0;) { /* a part of a part lies in the whole */
        if (p->dead[n] || g->nodes[n].op != DYCL_OP_cat) continue;
        const uint32_t *operands = dycl_node_operands(g, &g->nodes[n]);
        uint32_t out = g->nodes[n].out;
        const dycl_value *whole = &g->values[out];
        int dim = (int)dycl_node_attrs(g, &g->nodes[n])[0];
        int64_t at = 0;
        for (int i = 0; i < g->nodes[n].operand_count; i++) {
            dycl_value *part = &g->values[operands[i]];
            int64_t size = part->sizes[dim];
            if (may_place(p, operands[i], whole, dim)) {
                part->root = whole->root;
                part->offset = whole->offset + at * whole->strides[dim];
                memcpy(part->strides, whole->strides, sizeof part->strides);
                part->canonical = (uint8_t)dycl_strides_canonical(part);
            }
            at += size;
        }
    }
    return DYCL_OK;
}
