#include "record/work.h"

#include "ir/hosted.h"

#define MOVED 16.0 /* an element that is read and written takes as long as so many operations of a product */

static double numel(const dycl_value *value) {
    int64_t n = 1;
    for (int d = 0; d < value->rank; d++) n *= value->sizes[d];
    return (double)n;
}

static const dycl_value *operand(const dycl_graph *g, const dycl_node *node, int i) {
    return &g->values[dycl_node_operands(g, node)[i]];
}

double dycl_work_view(const dycl_graph *g, const dycl_node *node) {
    (void)g, (void)node;
    return 0;
}

double dycl_work_matmul(const dycl_graph *g, const dycl_node *node) {
    const dycl_value *a = operand(g, node, 0);
    return 2 * numel(&g->values[node->out]) * (double)(a->rank ? a->sizes[a->rank - 1] : 1);
}

double dycl_work_recurrent(const dycl_graph *g, const dycl_node *node) {
    return 2 * numel(operand(g, node, 0)) * (double)operand(g, node, 1)->sizes[1];
}

double dycl_work_recurrent_back(const dycl_graph *g, const dycl_node *node) {
    return 2 * numel(&g->values[node->out]) * (double)operand(g, node, 1)->sizes[1];
}

double dycl_work_grouped(const dycl_graph *g, const dycl_node *node) {
    return 2 * numel(&g->values[node->out]) * (double)operand(g, node, 1)->sizes[1];
}

double dycl_work_conv(const dycl_graph *g, const dycl_node *node) {
    const dycl_value *weights = operand(g, node, 1);
    return 2 * numel(&g->values[node->out]) * numel(weights) / (double)(weights->sizes[0] ? weights->sizes[0] : 1);
}

double dycl_work_unconv(const dycl_graph *g, const dycl_node *node) {
    const dycl_value *weights = &g->values[node->out];
    return 2 * numel(operand(g, node, 1)) * numel(weights) / (double)weights->sizes[0];
}

double dycl_work_attention(const dycl_graph *g, const dycl_node *node) {
    const dycl_value *keys = operand(g, node, 1);
    return 4 * numel(&g->values[node->out]) * (double)(keys->rank > 1 ? keys->sizes[keys->rank - 2] : 1);
}

double dycl_work_hosted(const dycl_graph *g, const dycl_node *node) {
    if (dycl_hosted_get((dycl_op)node->op)->work == 'C' && node->operand_count > 1) return dycl_work_conv(g, node);
    return dycl_work_moved(g, node);
}

double dycl_work_moved(const dycl_graph *g, const dycl_node *node) {
    const dycl_value *out = &g->values[node->out];
    const dycl_value *in =
        node->operand_count && dycl_node_operands(g, node)[0] != DYCL_NONE ? operand(g, node, 0) : out;
    return MOVED * numel(in->rank > out->rank ? in : out); /* what a reduction reads, what others write */
}

static double work_of_node(const dycl_graph *g, const dycl_node *node) {
    static double (*const families[DYCL_FAMILY_COUNT])(const dycl_graph *, const dycl_node *) = {
#define DYCL_FAMILY(NAME, name, verify, work, steps) [DYCL_FAMILY_##NAME] = DYCL_FAMILY_##work(dycl_work_##name),
#include "ir/family.def"
#undef DYCL_FAMILY
    };
    dycl_family family = dycl_op_get((dycl_op)node->op)->family;
    return families[family] ? families[family](g, node) : dycl_work_moved(g, node);
}

double dycl_work_of(const dycl_graph *graph, uint32_t from, uint32_t to) {
    double work = 0;
    for (uint32_t i = from; i < to; i++) work += work_of_node(graph, &graph->nodes[i]);
    return work;
}
