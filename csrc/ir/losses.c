#include "ir/losses.h"
#include "ir/hosted.h"

#include <string.h>

static int kind_of(dycl_op op) {
    switch (op) {
    case DYCL_OP_aten_smooth_l1_loss: return DYCL_LOSS_SMOOTH_L1;
    case DYCL_OP_aten_huber_loss: return DYCL_LOSS_HUBER;
    case DYCL_OP_aten_soft_margin_loss: return DYCL_LOSS_SOFT_MARGIN;
    case DYCL_OP_aten_binary_cross_entropy: return DYCL_LOSS_BCE;
    case DYCL_OP_aten_binary_cross_entropy_with_logits: return DYCL_LOSS_LOGITS;
    case DYCL_OP_aten_smooth_l1_loss_backward: return DYCL_LOSS_SMOOTH_L1_BACK;
    case DYCL_OP_aten_huber_loss_backward: return DYCL_LOSS_HUBER_BACK;
    case DYCL_OP_aten_soft_margin_loss_backward: return DYCL_LOSS_SOFT_MARGIN_BACK;
    case DYCL_OP_aten_binary_cross_entropy_backward: return DYCL_LOSS_BCE_BACK;
    default: return -1;
    }
}

/* By the names that torch's schemas have. */
static int place_of(const char *name) {
    static const char *const names[DYCL_LOSS_OPERANDS] = {"self", "target", "weight", "pos_weight", "grad_output"};
    for (int k = 0; k < DYCL_LOSS_OPERANDS; k++)
        if (strcmp(name, names[k]) == 0) return k;
    return -1;
}

static int same_sizes(const dycl_value *a, const dycl_value *b) {
    return a->rank == b->rank && memcmp(a->sizes, b->sizes, (size_t)a->rank * sizeof *a->sizes) == 0;
}

static int broadcasts(const dycl_value *v, const dycl_value *to) {
    for (int i = 1; i <= v->rank; i++)
        if (i > to->rank || (v->sizes[v->rank - i] != 1 && v->sizes[v->rank - i] != to->sizes[to->rank - i])) return 0;
    return 1;
}

static void read(const dycl_graph *g, const dycl_node *node, const dycl_hosted_argument *given, dycl_loss_node *out) {
    const dycl_hosted *row = dycl_hosted_get((dycl_op)node->op);
    const uint32_t *operands = dycl_node_operands(g, node);
    for (int i = 0; i < row->parameter_count; i++) {
        const char *name = row->parameters[i].name;
        const int place = place_of(name);
        if (place >= 0)
            out->operand[place] = given[i].operand >= 0 ? operands[given[i].operand] : DYCL_NONE;
        else if (strcmp(name, "reduction") == 0)
            out->reduction = (int)*given[i].words;
        else
            memcpy(&out->numbers.at, given[i].words, sizeof out->numbers.at);
    }
}

int dycl_loss_of(const dycl_graph *g, const dycl_node *node, dycl_loss_node *out) {
    const dycl_value *to = &g->values[node->out];
    const int kind = kind_of((dycl_op)node->op), back = kind >= DYCL_LOSS_SMOOTH_L1_BACK;
    dycl_hosted_form form;
    dycl_hosted_argument given[DYCL_HOSTED_PARAMETERS];
    if (kind < 0 || (to->dtype != DYCL_F32 && to->dtype != DYCL_F64) ||
        !dycl_hosted_read((dycl_op)node->op, node->operand_count, node->attr_count, dycl_node_attrs(g, node), &form,
                          given))
        return 0;
    *out = (dycl_loss_node){.kind = (dycl_loss)kind, .numbers = {.at = 1, .scale = 1}};
    for (int k = 0; k < DYCL_LOSS_OPERANDS; k++) out->operand[k] = DYCL_NONE;
    read(g, node, given, out);
    if (kind == DYCL_LOSS_LOGITS && out->operand[DYCL_LOSS_POSITIVE] != DYCL_NONE)
        out->kind = DYCL_LOSS_LOGITS_POSITIVE;
    if (out->reduction < DYCL_REDUCE_NONE || out->reduction > DYCL_REDUCE_SUM || !(out->numbers.at >= 0)) return 0;
    const dycl_value *x = &g->values[out->operand[DYCL_LOSS_X]];
    if (dycl_value_numel(x) == 0) return 0; /* torch's mean of nothing */
    if (back || out->reduction == DYCL_REDUCE_NONE ? !same_sizes(to, x) : to->rank != 0) return 0;
    for (int k = 0; k < DYCL_LOSS_OPERANDS; k++) {
        if (out->operand[k] == DYCL_NONE) continue;
        const dycl_value *v = &g->values[out->operand[k]];
        if (v->dtype != to->dtype || !(k == DYCL_LOSS_TARGET ? same_sizes(v, x) : broadcasts(v, x))) return 0;
    }
    if (back && out->reduction == DYCL_REDUCE_MEAN) out->numbers.scale = 1.0 / (double)dycl_value_numel(x);
    if (back) out->reduction = DYCL_REDUCE_NONE;
    return 1;
}
