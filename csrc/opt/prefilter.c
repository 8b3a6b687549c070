#include "opt/prefilter.h"

#include "kern/prefilter.h"
#include "opt/program.h"

/* argmax(linear(x, w)): a block of both, whose step reads the weights in 8 bits. */

#define LEAST (INT64_C(1) << 20) /* weights: fewer stay in a cache */

static int suits(const dycl_graph *g, const dycl_node *product) {
    const uint32_t *operands = dycl_node_operands(g, product);
    const dycl_value *x = &g->values[operands[0]], *w = &g->values[operands[1]], *c = &g->values[product->out];
    if (!dycl_kern_prefilter(dycl_cpu_isa())) return 0;
    if ((w->dtype != DYCL_F32 && w->dtype != DYCL_BF16) || (w->dtype == DYCL_BF16 && operands[2] != DYCL_NONE))
        return 0;
    if (w->kind != DYCL_VALUE_FEED || !w->canonical || w->rank != 2 || x->strides[x->rank - 1] != 1) return 0;
    int64_t n = w->sizes[0], k = w->sizes[1];
    return n * k >= LEAST && n <= INT32_MAX && k > 1 && k <= DYCL_PREFILTER_K &&
           dycl_value_numel(c) <= n * DYCL_PREFILTER_ROWS;
}

uint32_t dycl_prefilter_product(const dycl_graph *g, uint32_t argmax) {
    const dycl_node *node = &g->nodes[argmax];
    uint32_t value = dycl_node_operands(g, node)[0];
    int rank = g->values[value].rank;
    if (node->op != DYCL_OP_argmax || g->options & DYCL_OPTION_NO_PACK || rank == 0 ||
        dycl_node_attrs(g, node)[0] != INT64_C(1) << (rank - 1))
        return DYCL_NONE;
    int64_t row = g->values[value].sizes[rank - 1];
    for (uint32_t n; (n = dycl_graph_maker(g, value)) != DYCL_NONE;) {
        const dycl_node *maker = &g->nodes[n];
        if (maker->op == DYCL_OP_linear)
            return row == g->values[dycl_node_operands(g, maker)[1]].sizes[0] && suits(g, maker) ? n : DYCL_NONE;
        uint32_t from = dycl_node_operands(g, maker)[0];
        /* as a copy (fold.c) */
        int widens = maker->op == DYCL_OP_cast && dycl_dtype_is_half((dycl_dtype)g->values[from].dtype) &&
                     g->values[maker->out].dtype == DYCL_F32;
        if (maker->op != DYCL_OP_contiguous && !widens) return DYCL_NONE;
        value = from;
    }
    return DYCL_NONE;
}

dycl_status dycl_opt_prefilter(dycl_program *p) {
    const dycl_graph *g = &p->graph;
    for (uint32_t n = 0; n < g->node_count; n++) {
        if (p->dead[n] || g->nodes[n].op != DYCL_OP_argmax) continue;
        uint32_t product = dycl_prefilter_product(g, n);
        if (product == DYCL_NONE || p->dead[product]) continue;
        uint32_t out = g->nodes[product].out;
        if (g->values[dycl_node_operands(g, &g->nodes[n])[0]].root != out || p->uses[out] != 1 || p->is_output[out])
            continue;
        p->follows[n] = product;
        p->then[product] = n;
    }
    return DYCL_OK;
}
