#include "opt/merge.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

/* DNNFusion's plan: every node is a block of its own at first. Seeds are the One-to-One operators, those with the
 * smallest results first, for there a pass costs most for what it does; a seed's block takes in its successors as far
 * as they go, then its predecessors. What remains of the other types (a softmax of a normalisation) grows afterwards in
 * the same way. */

static uint32_t new_block(dycl_program *p, uint32_t node, dycl_block_kind kind) {
    dycl_block *block = &p->blocks[p->block_count];
    memset(block, 0, sizeof *block);
    block->kind = kind;
    block->first = block->last = node;
    block->count = 1;
    block->position = node;
    p->next[node] = DYCL_NONE;
    p->block_of[node] = p->block_count;
    return p->block_count++;
}

/* A convolution or product and what it does on the way out: one block, which runs where the last of them stands. */
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

/* A row-wise operator along another dimension than the last, or over rows of one element, stays alone. */
static int may_grow(const dycl_tile_need *need) {
    if (!need->ok || need->row == 1) return 0;
    for (int i = 0; i < need->rank; i++)
        if (need->dims[i] != i) return 0;
    return 1;
}

dycl_status dycl_opt_single(dycl_program *p) {
    for (uint32_t n = 0; n < p->graph.node_count; n++) {
        if (p->dead[n] || p->follows[n] != DYCL_NONE) continue;
        dycl_tile_need need;
        dycl_tile_need_of(p, n, &need);
        uint32_t b = new_block(p, n, need.ok ? DYCL_BLOCK_TILE : DYCL_BLOCK_SINGLE);
        if (need.ok) {
            set_space(&p->blocks[b], &need);
            p->blocks[b].grows = may_grow(&need);
        }
        add_chain(p, b);
    }
    return DYCL_OK;
}

static dycl_status find_readers(const dycl_program *p, dycl_readers *out) {
    const dycl_graph *g = &p->graph;
    out->start = dycl_alloc_zero((g->value_count + 2) * sizeof(uint32_t));
    out->nodes = dycl_alloc((g->operand_count + 1) * sizeof(uint32_t));
    if (!out->start || !out->nodes) return dycl_error_set("out of memory");
    for (int fill = 0; fill < 2; fill++) {
        for (uint32_t n = 0; n < g->node_count; n++) {
            if (p->dead[n] || g->nodes[n].op == DYCL_OP_view) continue;
            const uint32_t *operands = dycl_node_operands(g, &g->nodes[n]);
            for (int i = 0; i < g->nodes[n].operand_count; i++) {
                if (operands[i] == DYCL_NONE) continue;
                uint32_t *at = &out->start[g->values[operands[i]].root + 1];
                if (fill) out->nodes[at[0]] = n;
                at[!fill]++; /* counts stand one further, so that filling leaves every start in its place */
            }
        }
        for (uint32_t v = 0; !fill && v <= g->value_count; v++) out->start[v + 1] += out->start[v];
    }
    return DYCL_OK;
}

/* The next neighbour of block b to try: a reader with the lowest position above `from`, or a producer with the highest
 * below it. */
static uint32_t neighbour(const dycl_program *p, const dycl_readers *readers, uint32_t b, int successors, double from) {
    const dycl_graph *g = &p->graph;
    uint32_t best = DYCL_NONE;
    for (uint32_t n = p->blocks[b].first; n != DYCL_NONE; n = p->next[n]) {
        const dycl_node *node = &g->nodes[n];
        const uint32_t *operands = dycl_node_operands(g, node);
        uint32_t first = successors ? readers->start[node->out] : 0,
                 end = successors ? readers->start[node->out + 1] : node->operand_count;
        for (uint32_t k = first; k < end; k++) {
            uint32_t other = successors                 ? readers->nodes[k]
                             : operands[k] == DYCL_NONE ? DYCL_NONE
                                                        : dycl_program_producer(p, operands[k]);
            uint32_t by = other == DYCL_NONE ? b : p->block_of[other];
            if (by == b || !p->blocks[by].grows) continue;
            double at = p->blocks[by].position;
            if (successors ? at <= from : at >= from) continue;
            if (best == DYCL_NONE || (successors ? at < p->blocks[best].position : at > p->blocks[best].position))
                best = by;
        }
    }
    return best;
}

static int take_in(dycl_program *p, const dycl_readers *readers, uint32_t b, int successors) {
    int any = 0;
    double from = successors ? -1 : 1e300;
    for (uint32_t other; (other = neighbour(p, readers, b, successors, from)) != DYCL_NONE;) {
        double at = p->blocks[other].position;
        if (dycl_merge(p, readers, b, other)) {
            any = 1;
            from = successors ? -1 : 1e300; /* what did not fit may fit now */
        } else
            from = at;
    }
    return any;
}

static void grow(dycl_program *p, const dycl_readers *readers, uint32_t b) {
    if (!p->blocks[b].grows) return;
    while (take_in(p, readers, b, 1) | take_in(p, readers, b, 0)) continue;
}

typedef struct {
    int64_t bytes;
    uint32_t node;
} seed;

static int smaller(const void *x, const void *y) {
    const seed *a = x, *b = y;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return a->node < b->node ? -1 : 1;
}

dycl_status dycl_opt_fuse(dycl_program *p) {
    const dycl_graph *g = &p->graph;
    dycl_readers readers = {0};
    seed *seeds = dycl_alloc((g->node_count + 1) * sizeof *seeds);
    dycl_status status = seeds ? find_readers(p, &readers) : dycl_error_set("out of memory");
    if (status == DYCL_OK) status = dycl_opt_single(p);
    for (int one_to_one = 1; status == DYCL_OK && one_to_one >= 0; one_to_one--) {
        uint32_t count = 0;
        for (uint32_t n = 0; n < g->node_count; n++) {
            if (p->dead[n] || p->block_of[n] == DYCL_NONE || p->blocks[p->block_of[n]].count != 1) continue;
            if ((dycl_op_get((dycl_op)g->nodes[n].op)->mapping == DYCL_MAP_O2O) != one_to_one) continue;
            const dycl_value *out = &g->values[g->nodes[n].out];
            seeds[count++] = (seed){dycl_value_numel(out) * (int64_t)dycl_dtype_size((dycl_dtype)out->dtype), n};
        }
        qsort(seeds, count, sizeof *seeds, smaller);
        for (uint32_t i = 0; i < count; i++)
            if (p->blocks[p->block_of[seeds[i].node]].count == 1) grow(p, &readers, p->block_of[seeds[i].node]);
    }
    dycl_free(seeds);
    dycl_free(readers.start);
    dycl_free(readers.nodes);
    return status;
}
