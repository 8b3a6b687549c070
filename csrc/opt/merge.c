#include "opt/merge.h"

#include <string.h>

/* Two tile blocks become one when they iterate over one space and read each other's values in place (same iteration, no
 * view that moves elements): Reorganize inside a block is a view that only splits or joins dimensions, a value of one
 * element a row covers the outer dimensions. */

#define LONG_ROW                                                                                                       \
    16384 /* a row this long is reduced by the parallel driver unless there are many of them, or in parts */

/* Level of a node inside a block: 1 when it has one element a row. */
static int is_row_level(const dycl_program *p, const dycl_block *block, uint32_t n) {
    if (block->row <= 1) return 0;
    const dycl_node *node = &p->graph.nodes[n];
    if (dycl_op_get((dycl_op)node->op)->family == DYCL_FAMILY_REDUCE) return 0;
    return dycl_value_numel(&p->graph.values[node->out]) != block->elements;
}

/* Does the operand name exactly the element that its node made in this iteration? */
static int reads_in_place(const dycl_space *space, int64_t row, const dycl_value *operand, int rank,
                          const int64_t *sizes, int64_t level_row, const dycl_value *root, int root_is_row) {
    int64_t mine[DYCL_SPACE_RANK], made[DYCL_SPACE_RANK];
    if (operand->offset != root->offset || operand->dtype != root->dtype) return 0;
    if (!dycl_space_access(space, level_row, operand, rank, sizes, mine)) return 0;
    if (!dycl_space_access(space, root_is_row ? row : 0, root, root->rank, root->sizes, made)) return 0;
    return !memcmp(mine, made, (size_t)space->rank * sizeof(int64_t));
}

/* A reduction leaves its dimensions at size 1 or drops them: either way its value covers the outer part of the
 * space. */
static int value_is_row(const dycl_program *p, const dycl_block *block, uint32_t producer) {
    const dycl_node *node = &p->graph.nodes[producer];
    if (block->row <= 1) return 0;
    return dycl_op_get((dycl_op)node->op)->family == DYCL_FAMILY_REDUCE ||
           dycl_value_numel(&p->graph.values[node->out]) != block->elements;
}

static int inner_of(const dycl_space *space, int64_t row) {
    int at = space->rank;
    for (int64_t left = row; left > 1;) {
        if (at == 0) return -1;
        at--;
        if (left % space->sizes[at]) return -1;
        left /= space->sizes[at];
    }
    return at;
}

/* Checks every edge inside a block of the given members, space and row. */
static int edges_fit(const dycl_program *p, const uint32_t *members, int count, const dycl_block *as) {
    const dycl_graph *g = &p->graph;
    for (int m = 0; m < count; m++) {
        uint32_t n = members[m];
        const dycl_node *node = &g->nodes[n];
        dycl_tile_need need;
        dycl_tile_need_of(p, n, &need);
        int64_t level_row = is_row_level(p, as, n) ? as->row : 0;
        const uint32_t *operands = dycl_node_operands(g, node);
        for (int i = 0; i < node->operand_count; i++) {
            if (operands[i] == DYCL_NONE) continue;
            uint32_t producer = dycl_program_producer(p, operands[i]);
            if (producer == DYCL_NONE) continue;
            int inside = 0;
            for (int k = 0; k < m; k++) inside |= members[k] == producer;
            if (!inside) continue;
            if (i > 0 && dycl_op_get((dycl_op)node->op)->family == DYCL_FAMILY_NORM)
                return 0; /* a parameter is read whole */
            const dycl_value *root = &g->values[g->nodes[producer].out];
            if (!reads_in_place(&as->space, as->row, &g->values[operands[i]], need.rank, need.sizes, level_row, root,
                                value_is_row(p, as, producer)))
                return 0;
        }
        /* the node's own iteration must be one of the space */
        int64_t unused[DYCL_SPACE_RANK];
        if (!dycl_space_access(&as->space, level_row, &g->values[node->out], need.rank, need.sizes, unused)) return 0;
    }
    return 1;
}

static int members_of(const dycl_program *p, uint32_t b, uint32_t *out, int count) {
    for (uint32_t n = p->blocks[b].first; n != DYCL_NONE; n = p->next[n]) out[count++] = n;
    return count;
}

static void sort_members(uint32_t *members, int count) {
    for (int i = 1; i < count; i++) {
        uint32_t moved = members[i];
        int j = i;
        for (; j > 0 && members[j - 1] > moved; j--) members[j] = members[j - 1];
        members[j] = moved;
    }
}

/* Space and row of two blocks together; 0 when they cannot be one. */
static int unite(dycl_block *as, const dycl_block *other) {
    if (other->elements > as->elements) {
        dycl_block larger = *other;
        other = as;
        if (!unite(&larger, other)) return 0;
        *as = larger;
        return 1;
    }
    if (other->row && as->row && other->row != as->row) return 0;
    if (other->elements == as->elements) {
        if (!dycl_space_refine(&as->space, &other->space)) return 0;
        if (other->row) as->row = other->row;
    } else {
        /* one element a row: refine the outer dimensions */
        if (other->row || as->row <= 1 || other->elements * as->row != as->elements) return 0;
        dycl_space outer = other->space;
        int inner = inner_of(&as->space, as->row);
        if (inner < 0 || outer.rank + as->space.rank - inner > DYCL_SPACE_RANK) return 0;
        for (int i = inner; i < as->space.rank; i++) outer.sizes[outer.rank++] = as->space.sizes[i];
        if (!dycl_space_refine(&as->space, &outer)) return 0;
    }
    return as->space.rank <= DYCL_MAX_RANK && (!as->row || inner_of(&as->space, as->row) >= 0);
}

static int is_sum(const dycl_graph *g, const dycl_node *node) {
    dycl_dtype dtype = (dycl_dtype)g->values[node->out].dtype;
    if (dtype != DYCL_F32 && dtype != DYCL_F64) return 0;
    if (g->values[dycl_node_operands(g, node)[0]].dtype != dtype) return 0;
    return node->op == DYCL_OP_sum || node->op == DYCL_OP_mean || node->op == DYCL_OP_sumsq ||
           node->op == DYCL_OP_sumabs;
}

/* Nothing but elementwise operators over the whole space and one sum of all of it, which nothing else looks at. */
static int adds_parts(const dycl_program *p, const dycl_block *block, const uint32_t *members, int count) {
    const dycl_graph *g = &p->graph;
    int sum = -1;
    if (block->row <= LONG_ROW || block->row != block->elements) return 0;
    for (int m = 0; m < count; m++) {
        const dycl_node *node = &g->nodes[members[m]];
        const uint32_t *operands = dycl_node_operands(g, node);
        dycl_family family = dycl_op_get((dycl_op)node->op)->family;
        for (int i = 0; i < node->operand_count && sum >= 0; i++)
            if (operands[i] != DYCL_NONE && dycl_program_producer(p, operands[i]) == members[sum]) return 0;
        if (family == DYCL_FAMILY_REDUCE) {
            if (sum >= 0 || !is_sum(g, node)) return 0;
            sum = m;
        } else if ((family != DYCL_FAMILY_EW && family != DYCL_FAMILY_CAST) ||
                   dycl_value_numel(&g->values[node->out]) != block->elements)
            return 0;
    }
    return sum >= 0;
}

/* The two types along each edge from one block to the other, in units of the rows of both together. */
static int table_allows(const dycl_program *p, uint32_t first, uint32_t second, int64_t row) {
    const dycl_graph *g = &p->graph;
    dycl_mapping type = DYCL_MAP_O2O;
    for (uint32_t n = p->blocks[first].first; n != DYCL_NONE; n = p->next[n]) {
        /* what an elementwise operator reads from outside is broadcast by its address, and nothing is computed twice
         * for it */
        int elementwise = dycl_op_get((dycl_op)g->nodes[n].op)->mapping == DYCL_MAP_O2O;
        const uint32_t *operands = dycl_node_operands(g, &g->nodes[n]);
        for (int i = 0; i < (elementwise ? g->nodes[n].operand_count : 1); i++) {
            uint32_t producer = operands[i] == DYCL_NONE ? DYCL_NONE : dycl_program_producer(p, operands[i]);
            if (elementwise && (producer == DYCL_NONE || p->block_of[producer] != first)) continue;
            type = (dycl_mapping)dycl_fuse_table[type][dycl_mapping_of_edge(p, n, i, row)].mapping;
        }
    }
    for (uint32_t n = p->blocks[second].first; n != DYCL_NONE; n = p->next[n]) {
        const uint32_t *operands = dycl_node_operands(g, &g->nodes[n]);
        for (int i = 0; i < g->nodes[n].operand_count; i++) {
            if (operands[i] == DYCL_NONE) continue;
            uint32_t producer = dycl_program_producer(p, operands[i]);
            if (producer == DYCL_NONE || p->block_of[producer] != first) continue;
            if (dycl_fuse_table[type][dycl_mapping_of_edge(p, n, i, row)].verdict == DYCL_FUSE_NEVER) return 0;
        }
    }
    return 1;
}

/* Convexity. Positions are a schedule: everything that reads a block stands behind it. The two run where the later one
 * stands, so what else reads the earlier one must stand behind that: nothing lies on a way from one to the other. */
static int is_convex(const dycl_program *p, const dycl_readers *readers, uint32_t a, uint32_t b, double at) {
    uint32_t pair[2] = {a, b};
    for (int k = 0; k < 2; k++)
        for (uint32_t n = p->blocks[pair[k]].first; n != DYCL_NONE; n = p->next[n]) {
            uint32_t v = p->graph.nodes[n].out;
            for (uint32_t r = readers->start[v]; r < readers->start[v + 1]; r++) {
                uint32_t by = p->block_of[readers->nodes[r]];
                if (by != a && by != b && p->blocks[by].position <= at) return 0;
            }
        }
    return 1;
}

int dycl_program_adds_parts(const dycl_program *p, uint32_t block) {
    uint32_t members[DYCL_BLOCK_MEMBERS] = {0};
    if (p->blocks[block].count > DYCL_BLOCK_MEMBERS) return 0;
    return adds_parts(p, &p->blocks[block], members, members_of(p, block, members, 0));
}

int dycl_merge(dycl_program *p, const dycl_readers *readers, uint32_t a, uint32_t b) {
    uint32_t members[DYCL_BLOCK_MEMBERS] = {0};
    if (p->blocks[a].count + p->blocks[b].count > DYCL_BLOCK_MEMBERS) return 0;
    dycl_block as = p->blocks[a];
    const dycl_block *other = &p->blocks[b];
    if (!unite(&as, other)) return 0;
    if (!table_allows(p, a, b, as.row) || !table_allows(p, b, a, as.row)) return 0;
    double at = p->blocks[a].position > other->position ? p->blocks[a].position : other->position;
    if (!is_convex(p, readers, a, b, at)) return 0;
    int count = members_of(p, b, members, members_of(p, a, members, 0));
    sort_members(members, count);
    int long_rows = as.row > LONG_ROW && as.elements < 8 * as.row;
    if (long_rows && !adds_parts(p, &as, members, count)) return 0;
    if (!edges_fit(p, members, count, &as)) return 0;
    p->blocks[b].count = 0;
    as.position = at;
    as.first = members[0];
    as.last = members[count - 1];
    as.count = (uint32_t)count;
    p->blocks[a] = as;
    for (int i = 0; i < count; i++) {
        p->block_of[members[i]] = a;
        p->next[members[i]] = i + 1 < count ? members[i + 1] : DYCL_NONE;
    }
    return 1;
}
