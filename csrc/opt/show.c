/* What DYCL_DEBUG prints: a program between two passes. */
#define _POSIX_C_SOURCE 200809L
#include "opt/program.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"

static void show_value(FILE *file, const dycl_program *program, uint32_t value) {
    char *text = NULL;
    if (dycl_graph_print_value(&program->graph, value, &text) != DYCL_OK) return;
    fprintf(file, "  %s", text);
    dycl_free(text);
}

static void show_node(FILE *file, const dycl_program *program, uint32_t n) {
    uint32_t out = program->graph.nodes[n].out;
    show_value(file, program, out);
    const char *before = "  # ";
    if (program->is_output[out]) fprintf(file, "%soutput", before), before = ", ";
    if (program->block_of[n] != DYCL_NONE) fprintf(file, "%sblock %u", before, program->block_of[n]), before = ", ";
    if (program->follows[n] != DYCL_NONE)
        fprintf(file, "%son the way out of %%%u", before, program->graph.nodes[program->follows[n]].out);
    fputc('\n', file);
}

/* By a live node: what was found to be there already keeps its name as an operand. */
static int is_read(const dycl_program *program, uint32_t value) {
    const dycl_graph *g = &program->graph;
    for (uint32_t n = 0; n < g->node_count; n++) {
        const uint32_t *operands = dycl_node_operands(g, &g->nodes[n]);
        for (int i = 0; !program->dead[n] && i < g->nodes[n].operand_count; i++)
            if (operands[i] == value) return 1;
    }
    return 0;
}

static void show_block(FILE *file, const dycl_program *program, uint32_t b) {
    const dycl_block *block = &program->blocks[b];
    fprintf(file, "  block %u: %s, at %g, %u operators", b, block->kind == DYCL_BLOCK_TILE ? "tile" : "single",
            block->position, block->count);
    if (block->row) fprintf(file, ", row %lld", (long long)block->row);
    fputc('\n', file);
}

void dycl_program_show(const dycl_program *program, const char *pass, int tuned) {
    const dycl_graph *g = &program->graph;
    char *text = NULL;
    size_t length;
    FILE *file = open_memstream(&text, &length); /* in one piece: other threads make plans too */
    if (!file) return;
    fprintf(file, "after %s (%s plan):\n", pass, tuned ? "tuned" : "cold");
    for (uint32_t v = 0; v < g->value_count; v++) {
        if (g->values[v].kind == DYCL_VALUE_NODE) {
            const dycl_value *value = &g->values[v];
            if (!program->dead[value->source])
                show_node(file, program, value->source);
            else if (value->root != v && is_read(program, v))
                fprintf(file, "  %%%u lies in %%%u at %lld\n", v, value->root, (long long)value->offset);
        } else {
            show_value(file, program, v);
            fputc('\n', file);
        }
    }
    if (program->order_count)
        for (uint32_t i = 0; i < program->order_count; i++) show_block(file, program, program->order[i]);
    else
        for (uint32_t b = 0; b < program->block_count; b++)
            if (program->blocks[b].count) show_block(file, program, b);
    if (fclose(file) == 0 && text) fputs(text, stderr);
    free(text);
}
