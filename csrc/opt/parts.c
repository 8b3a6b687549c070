#include "opt/parts.h"

#include <string.h>

#include "base/alloc.h"

#define MOST_LIVE  ((size_t)32 << 10) /* bytes that may live across a cut: no fusion that is lost there costs much */
#define MOST_LOOKS 256

static int is_heavy(const dycl_node *node) {
    switch (dycl_op_get((dycl_op)node->op)->family) {
    case DYCL_FAMILY_MATMUL:
    case DYCL_FAMILY_CONV:
    case DYCL_FAMILY_GROUPED:
    case DYCL_FAMILY_RECURRENT:
    case DYCL_FAMILY_ATTENTION: return 1;
    default: return 0;
    }
}

/* Positions of the last nodes that read a root value; 0: none. */
static void find_last_readers(const dycl_graph *g, const dycl_period *p, uint32_t *last) {
    for (uint32_t i = 0; i < p->node_count; i++) {
        const dycl_node *node = &g->nodes[p->nodes[i]];
        const uint32_t *operands = dycl_node_operands(g, node);
        for (int o = 0; o < node->operand_count; o++)
            if (operands[o] != DYCL_NONE) last[g->values[operands[o]].root] = i;
    }
}

static void find_starts(const dycl_graph *g, const dycl_period *p, uint32_t *last, dycl_parts *out) {
    size_t live = 0;
    out->starts[out->count++] = 0;
    for (uint32_t i = 0; i < p->node_count; i++) {
        const dycl_node *node = &g->nodes[p->nodes[i]];
        const uint32_t *operands = dycl_node_operands(g, node);
        if (i > 0 && live <= MOST_LIVE && is_heavy(node)) out->starts[out->count++] = i;
        for (int o = 0; o < node->operand_count; o++) {
            uint32_t root = operands[o] == DYCL_NONE ? DYCL_NONE : g->values[operands[o]].root;
            if (root == DYCL_NONE || g->values[root].kind != DYCL_VALUE_NODE || last[root] != i) continue;
            live -= dycl_value_bytes(&g->values[root]);
            last[root] = DYCL_NONE; /* it may stand there twice */
        }
        if (last[node->out] > i && last[node->out] != DYCL_NONE) live += dycl_value_bytes(&g->values[node->out]);
    }
    out->starts[out->count] = p->node_count;
}

static uint32_t kind_of(dycl_parts *parts, uint64_t look) {
    uint32_t kind = 0;
    while (kind < parts->look_count && parts->looks[kind] != look) kind++;
    if (kind == parts->look_count) parts->looks[parts->look_count++] = look;
    return kind;
}

dycl_status dycl_parts_find(const dycl_graph *g, const dycl_period *p, dycl_parts *out) {
    uint32_t heavy = 0;
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < p->node_count; i++) heavy += is_heavy(&g->nodes[p->nodes[i]]);
    if (heavy < 2) return DYCL_OK;
    uint32_t *last = dycl_alloc_zero((g->value_count + 1) * sizeof *last), room = heavy + 2;
    out->looks = dycl_alloc(room * (sizeof *out->looks + sizeof *out->kinds + sizeof *out->starts));
    if (!last || !out->looks) {
        dycl_free(last);
        dycl_parts_free(out);
        return dycl_error_set("out of memory");
    }
    out->kinds = (uint32_t *)(out->looks + room);
    out->starts = out->kinds + room;
    find_last_readers(g, p, last);
    find_starts(g, p, last, out);
    dycl_free(last);
    for (uint32_t k = 0; k < out->count; k++) {
        uint64_t look = 0;
        for (uint32_t i = out->starts[k]; i < out->starts[k + 1]; i++) look = dycl_period_mix(look, p->looks[i]);
        out->kinds[k] = kind_of(out, look);
        if (out->look_count > MOST_LOOKS) out->count = out->look_count = 0; /* nothing that repeats much */
    }
    return DYCL_OK;
}

void dycl_parts_mark_known(const dycl_parts *parts, const dycl_parts *other, uint8_t *known) {
    for (uint32_t i = 0; i < parts->look_count; i++)
        for (uint32_t j = 0; j < other->look_count && !known[i]; j++) known[i] = parts->looks[i] == other->looks[j];
}

int dycl_parts_equal(const dycl_parts *parts, uint32_t first, uint32_t last, const dycl_parts *other, uint32_t at) {
    if (last - first > other->count - at) return 0;
    for (uint32_t k = first; k < last; k++)
        if (parts->looks[parts->kinds[k]] != other->looks[other->kinds[at + k - first]]) return 0;
    return 1;
}

void dycl_parts_free(dycl_parts *parts) {
    dycl_free(parts->looks);
    memset(parts, 0, sizeof *parts);
}
