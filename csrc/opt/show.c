/* A program between two passes, as text. */
#define _POSIX_C_SOURCE 200809L
#include "opt/log.h"
#include "opt/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static void show_line(FILE *file, char *line) {
    fputs(line, file);
    dycl_free(line);
}

static void show_value(FILE *file, const dycl_program *program, uint32_t value) {
    char *text = NULL;
    if (dycl_graph_print_value(&program->graph, value, &text) == DYCL_OK) show_line(file, text);
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

/* Values that a live node reads: what was found to be there already keeps its name as an operand. NULL: no memory. */
static uint8_t *find_read(const dycl_program *program) {
    const dycl_graph *g = &program->graph;
    uint8_t *read = dycl_alloc_zero(g->value_count + 1);
    for (uint32_t n = 0; read && n < g->node_count; n++) {
        const uint32_t *operands = dycl_node_operands(g, &g->nodes[n]);
        for (int i = 0; !program->dead[n] && i < g->nodes[n].operand_count; i++)
            if (operands[i] != DYCL_NONE) read[operands[i]] = 1;
    }
    return read;
}

static void show_alias(FILE *file, const dycl_program *program, uint32_t v) {
    char *text = NULL;
    if (dycl_graph_print_alias(&program->graph, v, &text) == DYCL_OK) show_line(file, text);
    fputc('\n', file);
}

static void show_block(FILE *file, const dycl_program *program, uint32_t b) {
    const dycl_block *block = &program->blocks[b];
    fprintf(file, "# block %u: %s, at %g, %u operators", b, block->kind == DYCL_BLOCK_TILE ? "tile" : "single",
            block->position, block->count);
    if (block->row) fprintf(file, ", row %lld", (long long)block->row);
    fputc('\n', file);
}

static void show_values(FILE *file, const dycl_program *program, const uint8_t *read) {
    const dycl_graph *g = &program->graph;
    for (uint32_t v = 0; v < g->value_count; v++) {
        const dycl_value *value = &g->values[v];
        if (value->kind != DYCL_VALUE_NODE) {
            show_value(file, program, v);
            fputc('\n', file);
        } else if (!program->dead[value->source]) {
            show_node(file, program, value->source);
        } else if (value->root != v && read[v]) {
            show_alias(file, program, v);
        }
    }
}

void dycl_program_show(const dycl_program *program, uint64_t key, const char *topic, int tuned) {
    char *text = NULL, *own = NULL;
    size_t length;
    uint8_t *read = dycl_log_wants(topic) ? find_read(program) : NULL;
    FILE *file = read ? open_memstream(&text, &length) : NULL;
    if (!file) {
        dycl_free(read);
        return;
    }
    fprintf(file, "# segment %016llx, ", (unsigned long long)key);
    if (strcmp(topic, DYCL_LOG_GRAPH) == 0)
        fprintf(file, "as recorded:\n");
    else
        fprintf(file, "after %s (%s plan):\n", topic, tuned ? "tuned" : "cold");
    show_values(file, program, read);
    if (program->order_count)
        for (uint32_t i = 0; i < program->order_count; i++) show_block(file, program, program->order[i]);
    else
        for (uint32_t b = 0; b < program->block_count; b++)
            if (program->blocks[b].count) show_block(file, program, b);
    if (fclose(file) == 0 && text && (own = dycl_alloc(length + 1))) memcpy(own, text, length + 1);
    free(text);
    dycl_free(read);
    dycl_log_put(topic, own);
}
