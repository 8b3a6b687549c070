#include "opt/program.h"

#include "base/alloc.h"

#include <string.h>

static uint64_t mix(uint64_t h, uint64_t word) {
    h ^= word;
    h *= 0x9E3779B97F4A7C15ull;
    return h ^ (h >> 29);
}

static uint64_t hash_value(uint64_t h, const dycl_value *v) {
    h = mix(h, ((uint64_t)v->root << 16) | (uint64_t)v->dtype << 8 | v->rank);
    h = mix(h, (uint64_t)v->offset);
    for (int i = 0; i < v->rank; i++) h = mix(mix(h, (uint64_t)v->sizes[i]), (uint64_t)v->strides[i]);
    return h;
}

static int same_value(const dycl_value *a, const dycl_value *b) {
    return a->root == b->root && a->offset == b->offset && a->dtype == b->dtype && a->rank == b->rank &&
           !memcmp(a->sizes, b->sizes, sizeof a->sizes) && !memcmp(a->strides, b->strides, sizeof a->strides);
}

static int same_node(const dycl_graph *g, const dycl_node *a, const dycl_node *b) {
    if (a->op != b->op || a->operand_count != b->operand_count || a->attr_count != b->attr_count) return 0;
    if (a->attr_count && memcmp(dycl_node_attrs(g, a), dycl_node_attrs(g, b), a->attr_count * sizeof(int64_t)))
        return 0;
    const uint32_t *x = dycl_node_operands(g, a), *y = dycl_node_operands(g, b);
    for (int i = 0; i < a->operand_count; i++) {
        if (x[i] == y[i]) continue;
        if (x[i] == DYCL_NONE || y[i] == DYCL_NONE || !same_value(&g->values[x[i]], &g->values[y[i]])) return 0;
    }
    const dycl_value *p = &g->values[a->out], *q = &g->values[b->out];
    return p->dtype == q->dtype && p->rank == q->rank && !memcmp(p->sizes, q->sizes, sizeof p->sizes) &&
           !memcmp(p->strides, q->strides, sizeof p->strides);
}

/* A copy of something that already looks like the result, and that nobody outside sees. */
static int is_noop(const dycl_program *program, const dycl_node *node) {
    const dycl_graph *g = &program->graph;
    if (node->op != DYCL_OP_contiguous && node->op != DYCL_EW_copy && node->op != DYCL_OP_cast) return 0;
    const dycl_value *in = &g->values[dycl_node_operands(g, node)[0]], *out = &g->values[node->out];
    if (in->dtype != out->dtype || in->rank != out->rank || g->values[in->root].kind == DYCL_VALUE_SCALAR) return 0;
    for (int i = 0; i < in->rank; i++)
        if (in->sizes[i] != out->sizes[i] || (in->sizes[i] > 1 && in->strides[i] != out->strides[i])) return 0;
    return 1;
}

dycl_status dycl_opt_cse(dycl_program *program) {
    dycl_graph *g = &program->graph;
    uint32_t room = 16;
    while (room < 2 * g->node_count) room *= 2;
    uint32_t *table = dycl_alloc(room * sizeof(uint32_t));
    if (!table) return dycl_error_set("out of memory");
    memset(table, 0xff, room * sizeof(uint32_t));
    for (uint32_t n = 0; n < g->node_count; n++) {
        const dycl_node *node = &g->nodes[n];
        if (program->dead[n]) continue;
        const uint32_t *operands = dycl_node_operands(g, node);
        if (is_noop(program, node) && !program->is_output[node->out]) {
            dycl_program_alias(program, node->out, operands[0]);
            continue;
        }
        uint64_t h = mix(node->op, node->attr_count);
        for (int i = 0; i < node->operand_count; i++)
            h = operands[i] == DYCL_NONE ? mix(h, 1) : hash_value(h, &g->values[operands[i]]);
        for (int i = 0; i < node->attr_count; i++) h = mix(h, (uint64_t)dycl_node_attrs(g, node)[i]);
        for (uint32_t at = (uint32_t)(h ^ (h >> 32)) & (room - 1);; at = (at + 1) & (room - 1)) {
            if (table[at] == DYCL_NONE) {
                table[at] = n;
                break;
            }
            if (!same_node(g, node, &g->nodes[table[at]])) continue;
            if (!program->is_output[node->out]) dycl_program_alias(program, node->out, g->nodes[table[at]].out);
            break;
        }
    }
    dycl_free(table);
    dycl_program_count_uses(program);
    return DYCL_OK;
}
