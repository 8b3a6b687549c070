#include "opt/program.h"

#include <string.h>

#include "base/alloc.h"

/* The last node of a block, whose result stands for all of it. */
static uint32_t last_of(const dycl_program *p, uint32_t block) {
    uint32_t last = DYCL_NONE;
    for (uint32_t n = p->blocks[block].first; n != DYCL_NONE; n = p->next[n]) last = n;
    return last;
}

static size_t sizes_of_all(const dycl_program *p) {
    size_t count = 0;
    for (uint32_t b = 0; b < p->block_count; b++) {
        uint32_t last = p->blocks[b].count ? last_of(p, b) : DYCL_NONE;
        if (last != DYCL_NONE) count += p->graph.values[p->graph.nodes[last].out].rank;
    }
    return count;
}

static void look_at(dycl_program *p, uint32_t block, size_t *used) {
    dycl_look *look = &p->looks[block];
    uint32_t last = p->blocks[block].count ? last_of(p, block) : DYCL_NONE;
    *look = (dycl_look){.first = DYCL_NONE};
    if (last == DYCL_NONE) return;
    const dycl_value *value = &p->graph.values[p->graph.nodes[last].out];
    *look = (dycl_look){p->blocks[block].first, (uint32_t)*used, value->dtype, value->rank};
    memcpy(p->look_sizes + *used, value->sizes, value->rank * sizeof(int64_t));
    *used += value->rank;
}

dycl_status dycl_program_settle(dycl_program *p) {
    size_t used = 0;
    p->looks = dycl_alloc((p->block_count + 1) * sizeof *p->looks);
    p->look_sizes = dycl_alloc((sizes_of_all(p) + 1) * sizeof *p->look_sizes);
    if (!p->looks || !p->look_sizes) return dycl_error_set("out of memory for a plan");
    for (uint32_t b = 0; b < p->block_count; b++) look_at(p, b, &used);
    void **gone[] = {(void **)&p->graph.values, (void **)&p->graph.operands, (void **)&p->graph.attrs,
                     (void **)&p->is_output,    (void **)&p->uses,           (void **)&p->follows,
                     (void **)&p->then,         (void **)&p->blocks,         (void **)&p->order};
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) {
        dycl_free(*gone[i]);
        *gone[i] = NULL;
    }
    p->graph.value_room = p->graph.operand_room = p->graph.attr_room = 0;
    return DYCL_OK;
}

size_t dycl_program_bytes(const dycl_program *p) {
    size_t of_node = 1 + sizeof *p->next + sizeof *p->block_of;
    return dycl_graph_bytes(&p->graph) + p->graph.node_count * of_node + (size_t)p->output_count * sizeof *p->outputs +
           (size_t)p->block_count * (sizeof *p->looks + 2 * sizeof *p->look_sizes);
}
