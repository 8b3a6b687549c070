#include "exec/cache/history.h"

#include <string.h>

#include "base/alloc.h"

void dycl_history_free(dycl_history *h) {
    if (!h) return;
    dycl_free(h->feeds);
    dycl_free(h);
}

/* ---- What a flush made */

static uint64_t mix(uint64_t h, uint32_t word) { return (h ^ word) * UINT64_C(0x100000001b3); }

static uint64_t mix_all(uint64_t h, const uint32_t *words, uint32_t count) {
    h = mix(h, count);
    for (uint32_t i = 0; i < count; i++) h = mix(h, words[i]);
    return h;
}

static uint64_t hash_of(const dycl_history_node *nodes, uint32_t count, uint32_t wanted) {
    uint64_t h = mix(UINT64_C(0xcbf29ce484222325), wanted);
    for (uint32_t i = 0; i < count; i++) {
        if (!nodes[i].source_count) continue;
        h = mix_all(h, nodes[i].sources, nodes[i].source_count);
        h = mix_all(h, nodes[i].saved, nodes[i].saved_count);
        h = mix(h, nodes[i].operators);
    }
    return h;
}

/* An output that the program holds. */
static int is_wanted(const dycl_segment *of, uint32_t value, uint32_t wanted) {
    for (uint32_t i = 0; i < wanted; i++)
        if (of->outputs[i] == value) return 1;
    return 0;
}

enum { SAVED = 1, SOURCE = 2, ALONE = 4 };

static void mark(const dycl_history_node *nodes, uint32_t count, dycl_history *h, uint8_t *marks) {
    for (uint32_t i = 0; i < count; i++) {
        const dycl_history_node *n = &nodes[i];
        if (!n->source_count) continue;
        h->nodes++;
        h->operators += n->operators;
        for (uint32_t k = 0; k < n->source_count; k++) marks[n->sources[k]] |= SOURCE;
        for (uint32_t k = 0; k < n->saved_count; k++) marks[n->saved[k]] |= SAVED;
    }
}

/* Which of them are feeds, and which of what is saved is kept alone. */
static void sort_out(const dycl_segment *of, uint32_t wanted, dycl_history *h, uint8_t *marks) {
    for (uint32_t v = 0; v < of->graph.value_count; v++) {
        const dycl_value *value = &of->graph.values[v];
        int is_feed = value->kind == DYCL_VALUE_FEED;
        if (!is_feed) marks[v] &= (uint8_t)~SOURCE;
        h->feed_count += (marks[v] & SOURCE) != 0;
        if (!(marks[v] & SAVED)) continue;
        int alone = !is_feed && !is_wanted(of, v, wanted);
        if (alone) marks[v] |= ALONE;
        *(alone ? &h->alone_count : &h->there_count) += 1;
        *(alone ? &h->alone_bytes : &h->there_bytes) += dycl_value_bytes(value);
    }
}

static void list(uint32_t count, const uint8_t *marks, uint8_t mask, uint8_t wanted, uint32_t *to) {
    for (uint32_t v = 0; v < count; v++)
        if ((marks[v] & mask) == wanted) *to++ = v;
}

static dycl_history *make(const dycl_segment *of, const dycl_history_node *nodes, uint32_t count, uint32_t wanted) {
    uint32_t values = of->graph.value_count;
    dycl_history *h = dycl_alloc_zero(sizeof *h);
    uint8_t *marks = dycl_alloc_zero(values + 1);
    if (h && marks) {
        mark(nodes, count, h, marks);
        sort_out(of, wanted, h, marks);
        h->feeds = dycl_alloc(((size_t)h->feed_count + h->alone_count + h->there_count + 1) * sizeof *h->feeds);
    }
    if (!h || !h->feeds) {
        dycl_free(marks);
        dycl_free(h);
        return NULL;
    }
    h->alone = h->feeds + h->feed_count;
    h->there = h->alone + h->alone_count;
    list(values, marks, SOURCE, SOURCE, h->feeds);
    list(values, marks, SAVED | ALONE, SAVED | ALONE, h->alone);
    list(values, marks, SAVED | ALONE, SAVED, h->there);
    dycl_free(marks);
    return h;
}

const dycl_history *dycl_history_note(dycl_segment *of, const dycl_history_node *nodes, uint32_t count,
                                      uint32_t wanted) {
    uint64_t hash = hash_of(nodes, count, wanted);
    if (of->history && of->history->hash == hash) return of->history;
    dycl_history_free(of->history);
    of->history = make(of, nodes, count, wanted);
    if (of->history) of->history->hash = hash;
    return of->history;
}

/* ---- What a backward pass computes again */

enum { OF_SAVED = 1, OF_GRADIENT = 2, NEEDED = 4 };

static uint8_t looks_at(const dycl_graph *graph, const dycl_node *node, const uint8_t *marks) {
    const uint32_t *operands = dycl_node_operands(graph, node);
    uint8_t found = 0;
    for (int i = 0; i < node->operand_count; i++)
        if (operands[i] != DYCL_NONE) found |= marks[operands[i]] & (OF_SAVED | OF_GRADIENT);
    return found;
}

uint32_t dycl_history_again(const dycl_gradients *g, uint32_t *counts) {
    const dycl_graph *graph = dycl_gradients_graph(g);
    uint8_t *marks = dycl_alloc_zero(graph->value_count + 1);
    uint32_t found = 0;
    if (!marks) return DYCL_NONE;
    memset(counts, 0, DYCL_OP_COUNT * sizeof *counts);
    for (uint32_t i = 0; i < graph->feed_count; i++)
        marks[graph->feeds[i]] = i < g->result_count ? OF_GRADIENT : OF_SAVED;
    for (uint32_t n = 0; n < graph->node_count; n++)
        marks[graph->nodes[n].out] = looks_at(graph, &graph->nodes[n], marks);
    for (uint32_t i = 0; i < g->output_count; i++) marks[g->outputs[i]] |= NEEDED;
    for (uint32_t n = graph->node_count; n-- > 0;) {
        const dycl_node *node = &graph->nodes[n];
        const uint32_t *operands = dycl_node_operands(graph, node);
        if (!(marks[node->out] & NEEDED)) continue;
        for (int i = 0; i < node->operand_count; i++)
            if (operands[i] != DYCL_NONE) marks[operands[i]] |= NEEDED;
        if (node->op == DYCL_OP_view || node->op == DYCL_OP_laid ||
            (marks[node->out] & (OF_SAVED | OF_GRADIENT)) != OF_SAVED)
            continue;
        counts[node->op]++;
        found++;
    }
    dycl_free(marks);
    return found;
}
