#include "opt/rewrite.h"

#include "base/alloc.h"

/* Neighbours in a block as one instruction, which does what both do, every rounding included, in one pass over L1
 * instead of two. Behind fusion: combined operators are nothing that another pass knows. */

static void leave_block(dycl_program *p, uint32_t n) {
    dycl_block *block = &p->blocks[p->block_of[n]];
    uint32_t before = DYCL_NONE;
    for (uint32_t m = block->first; m != n; m = p->next[m]) before = m;
    if (before == DYCL_NONE)
        block->first = p->next[n];
    else
        p->next[before] = p->next[n];
    if (block->last == n) block->last = before;
    block->count--;
    p->dead[n] = 1;
}

/* Node n with what makes its operand i; 1: they are one. */
static dycl_status try_pair(dycl_program *p, uint32_t n, int i, int *out_done) {
    dycl_graph *g = &p->graph;
    dycl_node *node = &g->nodes[n];
    const uint32_t *o = dycl_node_operands(g, node);
    const dycl_node *inner = dycl_rewrite_maker(p, o[i]);
    *out_done = 0;
    if (!inner || !dycl_rewrite_only_here(p, inner) || !dycl_rewrite_same_shape(p, inner->out, node->out))
        return DYCL_OK;
    uint32_t from = g->values[inner->out].source;
    const dycl_ew_pair *pair = inner->op < DYCL_EW_COUNT ? dycl_ew_pair_find(inner->op, node->op) : NULL;
    if (!pair || p->block_of[from] != p->block_of[n] || !dycl_dtype_is_float((dycl_dtype)g->values[node->out].dtype) ||
        dycl_dtype_is_half((dycl_dtype)g->values[node->out].dtype)) /* rounded between them */
        return DYCL_OK;
    if (!DYCL_MAKE_ROOM(g->operands, g->operand_room, g->operand_count + 3)) return dycl_error_set("out of memory");
    uint32_t at = g->operand_count, count = 0;
    for (int k = 0; k < inner->operand_count; k++)
        g->operands[at + count++] = g->operands[inner->operands + (uint32_t)k];
    for (int k = 0; k < node->operand_count; k++)
        if (k != i) g->operands[at + count++] = g->operands[node->operands + (uint32_t)k];
    g->operand_count += count;
    node->op = (uint16_t)pair->both;
    node->operands = at;
    node->operand_count = (uint16_t)count;
    leave_block(p, from);
    *out_done = 1;
    return DYCL_OK;
}

dycl_status dycl_opt_combine(dycl_program *p) {
    for (uint32_t n = 0; n < p->graph.node_count; n++) {
        if (p->dead[n] || p->block_of[n] == DYCL_NONE || p->blocks[p->block_of[n]].kind != DYCL_BLOCK_TILE) continue;
        if (p->graph.nodes[n].op >= DYCL_EW_COUNT) continue;
        for (int i = 0, done = 0; i < p->graph.nodes[n].operand_count && i < 2 && !done; i++) {
            dycl_status status = try_pair(p, n, i, &done);
            if (status != DYCL_OK) return status;
        }
    }
    dycl_program_count_uses(p);
    return DYCL_OK;
}
