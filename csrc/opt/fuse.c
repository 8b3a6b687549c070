#include "opt/program.h"

#include <string.h>

/* Tile blocks grow in program order: a node joins the blocks that compute its operands, merging them, as far as
 *   - it reads their values in place (same iteration, no view that moves elements), which is what DNNFusion's mapping
 *     types ask of an edge: One-to-One always, Many-to-Many (row-wise operators here) when the row is the same,
 *     Reorganize when the view only splits or joins dimensions;
 *   - the merged block can still run before all of its readers. */

#define MAX_MEMBERS 48
#define LONG_ROW    16384 /* a row this long is reduced by the parallel driver unless there are many of them */

static uint32_t new_block(dycl_program *p, uint32_t node, dycl_block_kind kind) {
    dycl_block *block = &p->blocks[p->block_count];
    memset(block, 0, sizeof *block);
    block->kind = kind;
    block->first = block->last = node;
    block->count = 1;
    block->position = node;
    block->consumed = 1e300;
    p->next[node] = DYCL_NONE;
    p->block_of[node] = p->block_count;
    return p->block_count++;
}

/* A convolution and what it does on the way out: one block, which runs where the last of them stands. */
static void add_chain(dycl_program *p, uint32_t b) {
    dycl_block *block = &p->blocks[b];
    for (uint32_t n = p->then[block->first]; n != DYCL_NONE; n = p->then[n]) {
        p->next[block->last] = n;
        p->next[n] = DYCL_NONE;
        p->block_of[n] = b;
        block->last = n;
        block->count++;
        block->position = n;
    }
}

static void set_space(dycl_block *block, const dycl_tile_need *need) {
    dycl_space_of(&block->space, need->rank, need->sizes);
    block->row = need->row;
    block->elements = 1;
    for (int i = 0; i < need->rank; i++) block->elements *= need->sizes[i];
}

dycl_status dycl_opt_single(dycl_program *p) {
    for (uint32_t n = 0; n < p->graph.node_count; n++) {
        if (p->dead[n] || p->follows[n] != DYCL_NONE) continue;
        dycl_tile_need need;
        dycl_tile_need_of(p, n, &need);
        uint32_t b = new_block(p, n, need.ok ? DYCL_BLOCK_TILE : DYCL_BLOCK_SINGLE);
        if (need.ok) set_space(&p->blocks[b], &need);
        add_chain(p, b);
    }
    return DYCL_OK;
}

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
    for (uint32_t n = p->blocks[b].first; n != DYCL_NONE && count < MAX_MEMBERS; n = p->next[n]) out[count++] = n;
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

/* Space and row of a block with one more need in it; 0 when they cannot be one. `full`: the node covers the whole
 * space. */
static int unite(dycl_block *as, const dycl_tile_need *need) {
    int64_t elements = 1;
    for (int i = 0; i < need->rank; i++) {
        elements *= need->sizes[i];
        if (need->row && need->dims[i] != i) return 0;
    }
    dycl_space other;
    dycl_space_of(&other, need->rank, need->sizes);
    if (elements == as->elements) {
        if (need->row && as->row && need->row != as->row) return 0;
        if (!dycl_space_refine(&as->space, &other)) return 0;
        if (need->row) as->row = need->row;
    } else {
        /* one element a row: refine the outer dimensions */
        if (need->row || as->row <= 1 || elements * as->row != as->elements) return 0;
        int inner = inner_of(&as->space, as->row);
        if (inner < 0) return 0;
        if (other.rank + as->space.rank - inner > DYCL_SPACE_RANK) return 0;
        for (int i = inner; i < as->space.rank; i++) other.sizes[other.rank++] = as->space.sizes[i];
        if (!dycl_space_refine(&as->space, &other)) return 0;
    }
    if (as->space.rank > DYCL_MAX_RANK || (as->row && inner_of(&as->space, as->row) < 0)) return 0;
    return !(as->row > LONG_ROW && as->elements < 8 * as->row);
}

/* Blocks outside {a, b} that the members read from must run before; those that read must run after. */
static int place(const dycl_program *p, const uint32_t *members, int count, uint32_t a, uint32_t b, uint32_t joining,
                 double *out) {
    const dycl_graph *g = &p->graph;
    double low = -1, high = p->blocks[a].consumed;
    if (b != a && p->blocks[b].consumed < high) high = p->blocks[b].consumed;
    double at = p->blocks[a].position > p->blocks[b].position ? p->blocks[a].position : p->blocks[b].position;
    for (int m = 0; m < count; m++) {
        const dycl_node *node = &g->nodes[members[m]];
        const uint32_t *operands = dycl_node_operands(g, node);
        for (int i = 0; i < node->operand_count; i++) {
            if (operands[i] == DYCL_NONE) continue;
            uint32_t producer = dycl_program_producer(p, operands[i]);
            if (producer == DYCL_NONE || producer == joining) continue;
            uint32_t from = p->block_of[producer];
            if (from == a || from == b) continue;
            if (p->blocks[from].position > low) low = p->blocks[from].position;
        }
    }
    if (at >= high) return 0;
    if (low >= at) {
        if (low >= high) return 0;
        at = high > 1e299 ? (double)joining : (low + high) / 2;
        if (!(at > low && at < high)) return 0;
    }
    *out = at;
    return 1;
}

static void mark_consumed(dycl_program *p, uint32_t b) {
    const dycl_graph *g = &p->graph;
    double at = p->blocks[b].position;
    for (uint32_t n = p->blocks[b].first; n != DYCL_NONE; n = p->next[n]) {
        const dycl_node *node = &g->nodes[n];
        const uint32_t *operands = dycl_node_operands(g, node);
        for (int i = 0; i < node->operand_count; i++) {
            if (operands[i] == DYCL_NONE) continue;
            uint32_t producer = dycl_program_producer(p, operands[i]);
            if (producer == DYCL_NONE) continue;
            uint32_t from = p->block_of[producer];
            if (from != b && p->blocks[from].consumed > at) p->blocks[from].consumed = at;
        }
    }
}

/* Joins node n to block a and, when b is another one, block b to both. */
static int join(dycl_program *p, uint32_t n, const dycl_tile_need *need, uint32_t a, uint32_t b, int added) {
    uint32_t members[MAX_MEMBERS];
    int count = members_of(p, a, members, 0);
    if (b != a) count = members_of(p, b, members, count);
    if (count + added > MAX_MEMBERS - 1) return 0;
    dycl_block as = p->blocks[a];
    if (b != a) {
        const dycl_block *other = &p->blocks[b];
        if (other->row && as.row && other->row != as.row) return 0;
        if (other->elements == as.elements) {
            if (!dycl_space_refine(&as.space, &other->space)) return 0;
            if (other->row) as.row = other->row;
        } else if (as.row > 1 && !other->row && other->elements * as.row == as.elements) {
            dycl_tile_need outer = {1, 0, other->space.rank, {0}, {0}};
            if (other->space.rank > DYCL_MAX_RANK) return 0;
            for (int i = 0; i < outer.rank; i++) outer.sizes[i] = other->space.sizes[i], outer.dims[i] = i;
            if (!unite(&as, &outer)) return 0;
        } else
            return 0;
    }
    if (added) {
        if (!unite(&as, need)) return 0;
        members[count++] = n;
    }
    sort_members(members, count);
    double at;
    if (!place(p, members, count, a, b, n, &at) || !edges_fit(p, members, count, &as)) return 0;
    if (b != a) {
        if (p->blocks[b].consumed < as.consumed) as.consumed = p->blocks[b].consumed;
        p->blocks[b].count = 0;
    }
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

/* A row-wise operator along another dimension than the last, or over rows of one element, stays alone. */
static int can_join(const dycl_tile_need *need) {
    if (!need->ok || need->row == 1) return 0;
    for (int i = 0; i < need->rank; i++)
        if (need->dims[i] != i) return 0;
    return 1;
}

static int may_grow(const dycl_program *p, uint32_t b) {
    const dycl_block *block = &p->blocks[b];
    if (block->kind != DYCL_BLOCK_TILE || block->row == 1) return 0;
    dycl_tile_need need;
    dycl_tile_need_of(p, block->first, &need);
    return can_join(&need);
}

dycl_status dycl_opt_fuse(dycl_program *p) {
    const dycl_graph *g = &p->graph;
    for (uint32_t n = 0; n < g->node_count; n++) {
        if (p->dead[n]) continue;
        if (p->follows[n] != DYCL_NONE) {
            uint32_t b = p->block_of[n];
            if (p->blocks[b].last == n) mark_consumed(p, b); /* its other operands have their blocks by now */
            continue;
        }
        const dycl_node *node = &g->nodes[n];
        dycl_tile_need need;
        dycl_tile_need_of(p, n, &need);
        uint32_t mine = DYCL_NONE;
        if (can_join(&need)) {
            const uint32_t *operands = dycl_node_operands(g, node);
            for (int i = 0; i < node->operand_count; i++) {
                if (operands[i] == DYCL_NONE) continue;
                uint32_t producer = dycl_program_producer(p, operands[i]);
                if (producer == DYCL_NONE) continue;
                uint32_t from = p->block_of[producer];
                if (from == mine || !may_grow(p, from)) continue;
                if (mine == DYCL_NONE) {
                    if (join(p, n, &need, from, from, 1)) mine = from;
                } else if (p->blocks[mine].elements >= p->blocks[from].elements)
                    join(p, n, &need, mine, from, 0);
                else if (join(p, n, &need, from, mine, 0))
                    mine = from;
            }
        }
        if (mine == DYCL_NONE) {
            mine = new_block(p, n, need.ok ? DYCL_BLOCK_TILE : DYCL_BLOCK_SINGLE);
            if (need.ok) set_space(&p->blocks[mine], &need);
            add_chain(p, mine);
            if (p->blocks[mine].last != n) continue;
        }
        mark_consumed(p, mine); /* only now: the blocks merged above do not count as readers of each other */
    }
    return DYCL_OK;
}
