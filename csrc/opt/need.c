#include "opt/program.h"

/* Which nodes a tile program can compute, and over what. */

static void natural(dycl_tile_need *need, const dycl_value *shape) {
    need->ok = 1;
    need->rank = shape->rank;
    for (int i = 0; i < shape->rank; i++) {
        need->sizes[i] = shape->sizes[i];
        need->dims[i] = i;
    }
}

/* Moves `dim` to the end of the loop order. */
static void row_along(dycl_tile_need *need, int dim) {
    int64_t size = need->sizes[dim];
    for (int i = dim; i + 1 < need->rank; i++) {
        need->sizes[i] = need->sizes[i + 1];
        need->dims[i] = need->dims[i + 1];
    }
    need->sizes[need->rank - 1] = size;
    need->dims[need->rank - 1] = dim;
    need->row = size;
}

void dycl_tile_need_of(const dycl_program *program, uint32_t n, dycl_tile_need *need) {
    const dycl_graph *g = &program->graph;
    const dycl_node *node = &g->nodes[n];
    const dycl_op_info *info = dycl_op_get((dycl_op)node->op);
    const uint32_t *operands = dycl_node_operands(g, node);
    const int64_t *attrs = dycl_node_attrs(g, node);
    const dycl_value *out = &g->values[node->out];
    need->ok = 0;
    need->row = 0;
    if (dycl_value_numel(out) == 0) return;
    switch (info->family) {
    case DYCL_FAMILY_EW:
    case DYCL_FAMILY_CAST: natural(need, out); return;
    case DYCL_FAMILY_ROW:
        natural(need, out);
        if (need->rank)
            row_along(need, (int)attrs[0]);
        else
            need->row = 1;
        return;
    case DYCL_FAMILY_NORM:
        if (node->op == DYCL_OP_group_norm) {
            need->ok = 0;
            return;
        }
        natural(need, out);
        if (dycl_op_is_batch_norm((dycl_op)node->op)) return;
        need->row = 1;
        for (int i = 0; i < (int)attrs[0]; i++) need->row *= out->sizes[out->rank - 1 - i];
        return;
    case DYCL_FAMILY_REDUCE: {
        const dycl_value *in = &g->values[operands[0]];
        if (dycl_value_numel(in) == 0) return;
        if ((node->op == DYCL_OP_argmax || node->op == DYCL_OP_argmin) && in->rank == 0) return;
        int kept = 0; /* has a dimension outside the reduction been seen, from the innermost on? */
        int64_t row = 1;
        for (int i = in->rank - 1; i >= 0; i--) {
            if (in->sizes[i] == 1) continue;
            if ((attrs[0] >> i) & 1) {
                if (kept) return;
                row *= in->sizes[i];
            } else
                kept = 1;
        }
        if (row == 1) return;
        natural(need, in);
        need->row = row;
        return;
    }
    default: return;
    }
}
