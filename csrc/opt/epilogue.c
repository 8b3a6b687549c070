#include "opt/program.h"

#include "base/alloc.h"

#include <string.h>

/* Elementwise operators that a convolution does on the way out: batch_norm (folded into the weights), activations, a
 * residual. Each reads the only use of the value before it, so nothing else can see that value. */

#define MAX_CHAIN 5

static int is_activation(int op) { return op == DYCL_EW_relu || op == DYCL_EW_relu6 || op == DYCL_EW_hardswish; }

static int same_shape(const dycl_value *a, const dycl_value *b) {
    return a->rank == b->rank && a->dtype == b->dtype && !memcmp(a->sizes, b->sizes, sizeof a->sizes);
}

/* The node that may follow `value` in the chain, or DYCL_NONE. */
static uint32_t follower(const dycl_program *p, const uint32_t *reader, uint32_t value, int length, int *residuals) {
    const dycl_graph *g = &p->graph;
    if (p->uses[value] != 1 || p->is_output[value]) return DYCL_NONE;
    uint32_t n = reader[value];
    const dycl_node *node = &g->nodes[n];
    const uint32_t *operands = dycl_node_operands(g, node);
    const dycl_value *in = &g->values[value];
    if (!same_shape(&g->values[node->out], in)) return DYCL_NONE;
    if (node->op == DYCL_OP_batch_norm) return length == 0 && operands[0] == value ? n : DYCL_NONE;
    if (is_activation(node->op)) return operands[0] == value ? n : DYCL_NONE;
    if (node->op != DYCL_EW_add || *residuals) return DYCL_NONE;
    uint32_t other = operands[0] == value ? operands[1] : operands[0];
    if ((operands[0] != value && operands[1] != value) || !same_shape(&g->values[other], in)) return DYCL_NONE;
    if (g->values[other].root != other || g->values[other].kind == DYCL_VALUE_SCALAR) return DYCL_NONE;
    ++*residuals;
    return n;
}

dycl_status dycl_opt_epilogue(dycl_program *p) {
    const dycl_graph *g = &p->graph;
    uint32_t *reader = dycl_alloc((g->value_count + 1) * sizeof(uint32_t));
    if (!reader) return dycl_error_set("out of memory");
    for (uint32_t n = 0; n < g->node_count; n++) {
        if (p->dead[n] || g->nodes[n].op == DYCL_OP_view) continue;
        const uint32_t *operands = dycl_node_operands(g, &g->nodes[n]);
        for (int i = 0; i < g->nodes[n].operand_count; i++)
            if (operands[i] != DYCL_NONE) reader[g->values[operands[i]].root] = n;
    }
    for (uint32_t n = 0; n < g->node_count; n++) {
        if (p->dead[n] || g->nodes[n].op != DYCL_OP_conv2d || p->follows[n] != DYCL_NONE) continue;
        if (dycl_conv_is_whole(g, &g->nodes[n])) continue; /* a product, which does nothing on the way out */
        uint32_t value = g->nodes[n].out;
        int residuals = 0;
        for (int length = 0; length < MAX_CHAIN; length++) {
            uint32_t next = follower(p, reader, value, length, &residuals);
            /* a sum of two convolutions belongs to the first one's chain; the other runs before it */
            if (next == DYCL_NONE || p->follows[next] != DYCL_NONE) break;
            p->follows[next] = n;
            p->then[g->values[value].source] = next;
            value = g->nodes[next].out;
        }
    }
    dycl_free(reader);
    return DYCL_OK;
}
