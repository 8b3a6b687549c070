#include "record/work.h"

#include "ir/hosted.h"

#define MOVED 16.0 /* an element that is read and written takes as long as so many operations of a product */

static double numel(const dycl_value *value) {
    int64_t n = 1;
    for (int d = 0; d < value->rank; d++) n *= value->sizes[d];
    return (double)n;
}

static double work_of_node(const dycl_graph *g, const dycl_node *node) {
    const uint32_t *operands = dycl_node_operands(g, node);
    const dycl_value *out = &g->values[node->out], *a, *b;
    switch (dycl_op_get((dycl_op)node->op)->family) {
    case DYCL_FAMILY_VIEW: return 0;
    case DYCL_FAMILY_MATMUL:
        a = &g->values[operands[0]];
        return 2 * numel(out) * (double)(a->rank ? a->sizes[a->rank - 1] : 1);
    case DYCL_FAMILY_RECURRENT:
        b = &g->values[operands[1]];
        return 2 * numel(&g->values[operands[0]]) * (double)b->sizes[1];
    case DYCL_FAMILY_GROUPED: b = &g->values[operands[1]]; return 2 * numel(out) * (double)b->sizes[1];
    case DYCL_FAMILY_CONV:
        b = &g->values[operands[1]];
        return 2 * numel(out) * numel(b) / (double)(b->sizes[0] ? b->sizes[0] : 1);
    case DYCL_FAMILY_HOSTED:
        b = &g->values[operands[node->operand_count > 1 ? 1 : 0]];
        if (dycl_hosted_get((dycl_op)node->op)->work == 'C')
            return 2 * numel(out) * numel(b) / (double)(b->sizes[0] ? b->sizes[0] : 1);
        break;
    case DYCL_FAMILY_ATTENTION:
        b = &g->values[operands[1]];
        return 4 * numel(out) * (double)(b->rank > 1 ? b->sizes[b->rank - 2] : 1);
    default: break;
    }
    a = node->operand_count && operands[0] != DYCL_NONE ? &g->values[operands[0]]
                                                        : out; /* what a reduction reads, what others write */
    return MOVED * numel(a->rank > out->rank ? a : out);
}

double dycl_work_of(const dycl_graph *graph, uint32_t from, uint32_t to) {
    double work = 0;
    for (uint32_t i = from; i < to; i++) work += work_of_node(graph, &graph->nodes[i]);
    return work;
}
