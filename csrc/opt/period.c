#include "opt/period.h"

#include <string.h>

#include "base/alloc.h"

#define CANDIDATES 32 /* earlier places that look like the middle of the trace */

uint64_t dycl_period_mix(uint64_t h, uint64_t word) {
    h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ (h >> 29);
}

/* What an iteration has in common with the next one: not which values it takes, but what it makes of them. */
static uint64_t look_of(const dycl_graph *g, const dycl_node *node) {
    const dycl_value *out = &g->values[node->out];
    const int64_t *attrs = dycl_node_attrs(g, node);
    uint64_t h =
        dycl_period_mix(node->op, ((uint64_t)node->operand_count << 32) | ((uint64_t)out->dtype << 8) | out->rank);
    for (int i = 0; i < node->attr_count; i++) h = dycl_period_mix(h, (uint64_t)attrs[i]);
    for (int i = 0; i < out->rank; i++) h = dycl_period_mix(h, (uint64_t)out->sizes[i]);
    return h;
}

static dycl_status mark_needed(const dycl_graph *g, const uint32_t *outputs, int output_count, uint8_t **out) {
    uint8_t *needed = dycl_alloc_zero(g->node_count + 1);
    if (!needed) return dycl_error_set("out of memory");
    for (int i = 0; i < output_count; i++)
        if (g->values[outputs[i]].kind == DYCL_VALUE_NODE) needed[g->values[outputs[i]].source] = 1;
    for (uint32_t n = g->node_count; n-- > 0;) {
        const dycl_node *node = &g->nodes[n];
        const uint32_t *operands = dycl_node_operands(g, node);
        if (!needed[n]) continue;
        for (int i = 0; i < node->operand_count; i++)
            if (operands[i] != DYCL_NONE && g->values[operands[i]].kind == DYCL_VALUE_NODE)
                needed[g->values[operands[i]].source] = 1;
    }
    *out = needed;
    return DYCL_OK;
}

/* The longest stretch around `middle` whose members look like those a period earlier. */
static void stretch(const uint64_t *looks, uint32_t count, uint32_t middle, uint32_t period, uint32_t *out_first,
                    uint32_t *out_length) {
    uint32_t low = middle, high = middle + 1;
    while (low > period && looks[low - 1] == looks[low - 1 - period]) low--;
    while (high < count && looks[high] == looks[high - period]) high++;
    *out_first = low - period;
    *out_length = high - *out_first;
}

/* Position of the node that computes the storage of an operand; DYCL_NONE: none does. */
static uint32_t position_of(const dycl_graph *g, const uint32_t *positions, uint32_t operand) {
    if (operand == DYCL_NONE) return DYCL_NONE;
    const dycl_value *root = &g->values[g->values[operand].root];
    return root->kind == DYCL_VALUE_NODE ? positions[root->source] : DYCL_NONE;
}

/* Whether each iteration but the first takes what the one before took, or what was made a period later. Where that
 * differs (a tree, a stack), longer runs are no more alike than whole traces. */
static int wires_repeat(const dycl_graph *g, const dycl_period *p, const uint32_t *positions, uint32_t first,
                        uint32_t period, uint32_t length) {
    for (uint32_t i = first + 2 * period; i < first + length; i++) {
        const dycl_node *now = &g->nodes[p->nodes[i]], *before = &g->nodes[p->nodes[i - period]];
        const uint32_t *a = dycl_node_operands(g, now), *b = dycl_node_operands(g, before);
        for (int o = 0; o < now->operand_count; o++) {
            uint32_t from = position_of(g, positions, a[o]), earlier = position_of(g, positions, b[o]);
            if (from != earlier && (earlier == DYCL_NONE || from != earlier + period)) return 0;
        }
    }
    return 1;
}

static void search(const dycl_graph *g, const uint32_t *positions, dycl_period *p) {
    const uint64_t *looks = p->looks;
    uint32_t middle = p->node_count / 2, tried = 0;
    for (uint32_t period = 1; period <= middle && tried < CANDIDATES; period++) {
        uint32_t first, length;
        if (looks[middle] != looks[middle - period]) continue;
        tried++;
        stretch(looks, p->node_count, middle, period, &first, &length);
        if (length / period < DYCL_PERIOD_LEAST || 2 * length < p->node_count) continue;
        if (!wires_repeat(g, p, positions, first, period, length)) continue;
        p->first = first;
        p->period = period;
        p->iterations = length / period;
        p->body = period;
        for (uint32_t i = first; i < first + period; i++) p->body = dycl_period_mix(p->body, looks[i]);
        if (!p->body) p->body = 1;
        return;
    }
}

dycl_status dycl_period_find(const dycl_graph *g, const uint32_t *outputs, int output_count, dycl_period *out) {
    dycl_status status;
    uint8_t *needed = NULL;
    uint32_t *positions = dycl_alloc((g->node_count + 1) * sizeof *positions);
    memset(out, 0, sizeof *out);
    out->looks = dycl_alloc((g->node_count + 1) * sizeof *out->looks);
    out->nodes = dycl_alloc((g->node_count + 1) * sizeof *out->nodes);
    if (!positions || !out->looks || !out->nodes) {
        status = dycl_error_set("out of memory");
        goto fail;
    }
    DYCL_TRY(mark_needed(g, outputs, output_count, &needed));
    for (uint32_t n = 0; n < g->node_count; n++) {
        if (!needed[n] || g->nodes[n].op == DYCL_OP_view) continue;
        positions[n] = out->node_count;
        out->looks[out->node_count] = look_of(g, &g->nodes[n]);
        out->nodes[out->node_count++] = n;
    }
    search(g, positions, out);
    dycl_free(needed);
    dycl_free(positions);
    return DYCL_OK;
fail:
    dycl_free(needed);
    dycl_free(positions);
    dycl_period_free(out);
    return status;
}

void dycl_period_free(dycl_period *period) {
    dycl_free(period->nodes);
    dycl_free(period->looks);
    memset(period, 0, sizeof *period);
}
