#include "py/region/order.h"

#include <stdlib.h>

#include "base/alloc.h"

typedef struct {
    uint64_t last; /* when torch is through with it: the greater, the earlier */
    uint32_t source;
    uint8_t is_leaf;
} entry;

static int compare(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->is_leaf != y->is_leaf) return x->is_leaf ? -1 : 1;
    if (x->last != y->last) return x->last > y->last ? -1 : 1;
    return x->source < y->source ? -1 : x->source > y->source;
}

/* The place of an operand among those of its operator, in the order in which torch gives them their gradients: the bias
 * of a linear layer comes first (addmm). */
static uint64_t place(const dycl_node *node, int operand) {
    static const uint8_t of_linear[3] = {1, 2, 0};
    return (uint64_t)(node->op == DYCL_OP_linear && operand < 3 ? of_linear[operand] : operand);
}

/* As std::priority_queue of torch's engine: elements 0..count-1 are pushed in this order, of which the first `equals`
 * are equal and above the rest. order[k]: which of these comes out as the k-th. heap: scratch. */
static void pop_order(uint32_t count, uint32_t equals, uint32_t *heap, uint32_t *order) {
#define LESS(a, b) ((a) >= equals && (b) < equals)
    for (uint32_t i = 0; i < count; i++) { /* std::push_heap: none of them rises, as the greater ones come first */
        heap[i] = i;
    }
    for (uint32_t k = 0, size = count; k < equals; k++) {
        order[k] = heap[0];
        uint32_t moved = heap[--size],
                 hole = 0; /* std::pop_heap: the hole sinks to a leaf, and the last element rises */
        while (2 * hole + 2 < size) {
            uint32_t child = 2 * hole + 2;
            if (LESS(heap[child], heap[child - 1])) child--;
            heap[hole] = heap[child];
            hole = child;
        }
        if (2 * hole + 2 == size) {
            heap[hole] = heap[2 * hole + 1];
            hole = 2 * hole + 1;
        }
        while (hole && LESS(heap[(hole - 1) / 2], moved)) {
            heap[hole] = heap[(hole - 1) / 2];
            hole = (hole - 1) / 2;
        }
        heap[hole] = moved;
    }
#undef LESS
}

dycl_status dycl_order_sources(const dycl_graph *graph, const uint8_t *tracked, uint32_t *sources, uint8_t *is_leaf,
                               uint32_t count) {
    if (count < 2) return DYCL_OK;
    uint64_t *last = dycl_alloc_zero(graph->value_count * sizeof *last);
    entry *entries = dycl_alloc(count * sizeof *entries);
    uint32_t *heap = dycl_alloc(2 * (size_t)count * sizeof *heap), equals = 0;
    dycl_status status = last && entries && heap ? DYCL_OK : dycl_error_set("out of memory for %u sources", count);
    if (status == DYCL_OK) {
        for (uint32_t n = graph->node_count; n-- > 0;) {
            const dycl_node *node = &graph->nodes[n];
            const uint32_t *operands = dycl_node_operands(graph, node);
            for (int i = 0; tracked[node->out] && i < node->operand_count; i++)
                if (operands[i] != DYCL_NONE)
                    last[operands[i]] = ((uint64_t)n + 1) * DYCL_MAX_OPERANDS - place(node, i);
        }
        for (uint32_t i = 0; i < count; i++) {
            entries[i] = (entry){last[sources[i]], sources[i], is_leaf[i]};
            equals += is_leaf[i];
        }
        qsort(entries, count, sizeof *entries, compare);
        pop_order(count, equals, heap, heap + count);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t at = i < equals ? heap[count + i] : i;
            sources[at] = entries[i].source;
            is_leaf[at] = entries[i].is_leaf;
        }
    }
    dycl_free(last);
    dycl_free(entries);
    dycl_free(heap);
    return status;
}

int dycl_order_saves_itself(const dycl_graph *graph, const uint8_t *tracked, uint32_t feed) {
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const dycl_node *node = &graph->nodes[n];
        const uint32_t *operands = dycl_node_operands(graph, node);
        if (!tracked[node->out] || node->op == DYCL_OP_view) continue;
        for (int i = 0; i < node->operand_count; i++)
            if (operands[i] == feed && !(node->op == DYCL_OP_linear && i == 1)) return 1; /* whose weight is turned */
    }
    return 0;
}
