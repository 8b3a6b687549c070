#include "opt/program.h"

#include "base/alloc.h"

#include <string.h>

dycl_status dycl_program_init(dycl_program *program, const dycl_graph *graph, const uint32_t *outputs,
                              int output_count) {
    dycl_status status;
    memset(program, 0, sizeof *program);
    dycl_graph_init(&program->graph);
    DYCL_TRY(dycl_graph_copy(&program->graph, graph));
    uint32_t nodes = graph->node_count, values = graph->value_count;
    program->output_count = output_count;
    program->outputs = dycl_alloc((size_t)output_count * sizeof(uint32_t));
    program->dead = dycl_alloc_zero(nodes);
    program->is_output = dycl_alloc_zero(values);
    program->uses = dycl_alloc_zero(values * sizeof(uint32_t));
    program->block_of = dycl_alloc(nodes * sizeof(uint32_t));
    program->next = dycl_alloc(nodes * sizeof(uint32_t));
    program->follows = dycl_alloc(nodes * sizeof(uint32_t));
    program->then = dycl_alloc(nodes * sizeof(uint32_t));
    program->blocks = dycl_alloc(nodes * sizeof(dycl_block));
    program->order = dycl_alloc(nodes * sizeof(uint32_t));
    if (!program->outputs || !program->dead || !program->is_output || !program->uses || !program->block_of ||
        !program->next || !program->follows || !program->then || !program->blocks || !program->order) {
        status = dycl_error_set("out of memory");
        goto fail;
    }
    memset(program->block_of, 0xff, nodes * sizeof(uint32_t));
    memset(program->follows, 0xff, nodes * sizeof(uint32_t));
    memset(program->then, 0xff, nodes * sizeof(uint32_t));
    for (int i = 0; i < output_count; i++) {
        uint32_t v = outputs[i];
        if (v >= values || graph->values[v].kind != DYCL_VALUE_NODE || graph->values[v].root != v) {
            status = dycl_error_set("output %d is not the result of a node with storage of its own", i);
            goto fail;
        }
        program->outputs[i] = v;
        program->is_output[v] = 1;
    }
    return DYCL_OK;
fail:
    dycl_program_free(program);
    return status;
}

void dycl_program_free(dycl_program *program) {
    dycl_graph_free(&program->graph);
    dycl_free(program->outputs);
    dycl_free(program->dead);
    dycl_free(program->is_output);
    dycl_free(program->uses);
    dycl_free(program->block_of);
    dycl_free(program->next);
    dycl_free(program->follows);
    dycl_free(program->then);
    dycl_free(program->blocks);
    dycl_free(program->order);
    dycl_free(program->looks);
    dycl_free(program->look_sizes);
    memset(program, 0, sizeof *program);
}

void dycl_program_count_uses(dycl_program *program) {
    const dycl_graph *g = &program->graph;
    memset(program->uses, 0, g->value_count * sizeof(uint32_t));
    for (uint32_t n = 0; n < g->node_count; n++) {
        const dycl_node *node = &g->nodes[n];
        if (program->dead[n] || node->op == DYCL_OP_view) continue;
        const uint32_t *operands = dycl_node_operands(g, node);
        for (int i = 0; i < node->operand_count; i++)
            if (operands[i] != DYCL_NONE) program->uses[g->values[operands[i]].root]++;
    }
}

void dycl_program_alias(dycl_program *program, uint32_t from, uint32_t to) {
    dycl_graph *g = &program->graph;
    uint32_t root = g->values[to].root;
    int64_t offset = g->values[to].offset;
    for (uint32_t v = from; v < g->value_count; v++)
        if (g->values[v].root == from) {
            g->values[v].root = root;
            g->values[v].offset += offset;
        }
    program->dead[g->values[from].source] = 1;
}

dycl_status dycl_program_measure(const dycl_program *program, dycl_program_size *out) {
    const dycl_graph *g = &program->graph;
    uint8_t *crosses = dycl_alloc_zero(g->node_count + 1); /* read by another block */
    if (!crosses) return dycl_error_set("out of memory");
    *out = (dycl_program_size){.blocks = program->order_count};
    for (uint32_t n = g->node_count; n-- > 0;) { /* readers stand behind what they read */
        const dycl_node *node = &g->nodes[n];
        if (program->dead[n] || node->op == DYCL_OP_view) continue;
        const uint32_t *operands = dycl_node_operands(g, node);
        for (int i = 0; i < node->operand_count; i++) {
            uint32_t from = operands[i] == DYCL_NONE ? DYCL_NONE : dycl_program_producer(program, operands[i]);
            if (from != DYCL_NONE && (!program->block_count || program->block_of[from] != program->block_of[n]))
                crosses[from] = 1;
        }
        const dycl_value *value = &g->values[node->out];
        out->operators++;
        if (crosses[n] && !program->is_output[node->out])
            out->bytes += dycl_value_numel(value) * (int64_t)dycl_dtype_size((dycl_dtype)value->dtype);
    }
    if (!program->block_count) out->blocks = out->operators;
    dycl_free(crosses);
    return DYCL_OK;
}

static int after(const dycl_program *program, uint32_t a, uint32_t b) {
    double p = program->blocks[a].position, q = program->blocks[b].position;
    return p > q || (p == q && a > b);
}

dycl_status dycl_program_order(dycl_program *program) {
    program->order_count = 0;
    for (uint32_t b = 0; b < program->block_count; b++)
        if (program->blocks[b].count) program->order[program->order_count++] = b;
    for (uint32_t i = 1; i < program->order_count; i++) { /* nearly sorted: insertion is almost linear */
        uint32_t moved = program->order[i], j = i;
        for (; j > 0 && after(program, program->order[j - 1], moved); j--) program->order[j] = program->order[j - 1];
        program->order[j] = moved;
    }
    return DYCL_OK;
}

/* Every operand of a block's member is written by a lower block, or earlier in the same one. */
dycl_status dycl_program_verify(const dycl_program *program) {
    const dycl_graph *g = &program->graph;
    for (uint32_t n = 0; n < g->node_count; n++) {
        const dycl_node *node = &g->nodes[n];
        if (program->dead[n] || node->op == DYCL_OP_view) continue;
        uint32_t block = program->block_of[n];
        const uint32_t *operands = dycl_node_operands(g, node);
        for (int i = 0; i < node->operand_count; i++) {
            if (operands[i] == DYCL_NONE) continue;
            uint32_t producer = dycl_program_producer(program, operands[i]);
            if (producer == n)
                producer = g->values[operands[i]].source; /* a part of the result that lies there already (join.c) */
            if (producer == DYCL_NONE) continue;
            if (program->dead[producer]) return dycl_error_set("node %u reads the dead node %u", n, producer);
            if (producer >= n) return dycl_error_set("node %u reads the later node %u", n, producer);
            if (block == DYCL_NONE || !program->block_count) continue;
            uint32_t from = program->block_of[producer];
            if (from == DYCL_NONE) return dycl_error_set("node %u has no block", producer);
            if (from != block && !(program->blocks[from].position < program->blocks[block].position))
                return dycl_error_set("block %u reads block %u, which does not run before it", block, from);
        }
    }
    return DYCL_OK;
}
