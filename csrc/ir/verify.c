/* What must hold of every graph. A graph that passes can be printed, planned and executed without a further look at its
 * indices. */
#include "ir/verify.h"

#include <string.h>

#include "ir/hosted.h"
#include "ir/infer.h"

#define MOST_ELEMENTS (INT64_C(1) << 48) /* far from any overflow of sizes times strides */

static int is_optional(dycl_op op, int count, int operand) {
    if (dycl_op_is_hosted(op)) return dycl_hosted_may_be_absent(op, count, operand);
    switch (op) {
    case DYCL_OP_layer_norm:
    case DYCL_OP_group_norm: return operand == 1 || operand == 2;
    case DYCL_OP_rms_norm: return operand == 1;
    case DYCL_OP_batch_norm: return operand == 3 || operand == 4;
    case DYCL_OP_linear:
    case DYCL_OP_conv2d:
    case DYCL_OP_conv_transpose2d: return operand == 2;
    case DYCL_OP_attention: return operand == 3;
    case DYCL_OP_recurrent: return operand == 2 || operand == 4;
    default: return 0;
    }
}

int dycl_attr_is_f64(dycl_op op, int operand_count, int attr_count, const int64_t *attrs, int attr) {
    if (dycl_op_is_hosted(op)) return dycl_hosted_attr_is_f64(op, operand_count, attr_count, attrs, attr);
    switch (op) {
    case DYCL_OP_var:
    case DYCL_OP_std: return attr == 2;
    case DYCL_OP_layer_norm:
    case DYCL_OP_rms_norm:
    case DYCL_OP_group_norm:
    case DYCL_OP_attention: return attr == 1;
    case DYCL_OP_batch_norm: return attr == 0;
    case DYCL_OP_resize2d: return attr == 4 || attr == 5;
    case DYCL_OP_histc: return attr == 1 || attr == 2;
    default: return 0;
    }
}

dycl_status dycl_verify_sizes(int rank, const int64_t *sizes, const int64_t *strides) {
    int64_t numel = 1, extent = 1;
    if (rank < 0 || rank > DYCL_MAX_RANK) return dycl_error_set("rank %d", rank);
    for (int i = 0; i < rank; i++) {
        if (sizes[i] < 0 || sizes[i] > MOST_ELEMENTS) return dycl_error_set("size %lld", (long long)sizes[i]);
        int64_t factor = sizes[i] > 1 ? sizes[i] : 1; /* an empty tensor's other sizes still make strides */
        if (numel > MOST_ELEMENTS / factor) return dycl_error_set("too many elements");
        numel *= factor;
        if (!strides) continue;
        if (strides[i] < 0 || strides[i] > MOST_ELEMENTS) return dycl_error_set("stride %lld", (long long)strides[i]);
        if (sizes[i] > 1 && strides[i] > (MOST_ELEMENTS - extent) / (sizes[i] - 1))
            return dycl_error_set("tensor too far apart");
        if (sizes[i] > 1) extent += (sizes[i] - 1) * strides[i];
    }
    return DYCL_OK;
}

/* What else is there to know of a hosted operator, dycl_infer asks of its form. */
static dycl_status check_hosted(dycl_op op, int operand_count, int attr_count, const int64_t *attrs) {
    dycl_hosted_form form;
    if (!dycl_hosted_read(op, operand_count, attr_count, attrs, &form, NULL))
        return dycl_error_set("%d operands and %d attributes", operand_count, attr_count);
    return dycl_verify_sizes(form.rank, form.sizes, form.strides);
}

static dycl_status check_attrs(const dycl_graph *g, dycl_op op, int operand_count, const uint32_t *operands,
                               int attr_count, const int64_t *attrs) {
    const dycl_op_info *info = dycl_op_get(op);
    int rank = operands[0] == DYCL_NONE ? 0 : g->values[operands[0]].rank;
    if (info->attrs >= 0 ? attr_count != info->attrs
                         : attr_count > (dycl_op_is_hosted(op) ? DYCL_MAX_ATTRS : 1 + 2 * DYCL_MAX_RANK))
        return dycl_error_set("%d attributes", attr_count);
    for (int i = 0; i < attr_count; i++)
        if (!dycl_attr_is_f64(op, operand_count, attr_count, attrs, i) &&
            (attrs[i] < -MOST_ELEMENTS || attrs[i] > MOST_ELEMENTS))
            return dycl_error_set("attribute %lld", (long long)attrs[i]);
    switch (info->family) {
    case DYCL_FAMILY_CAST:
        return attrs[0] >= 0 && attrs[0] < DYCL_DTYPE_COUNT ? DYCL_OK
                                                            : dycl_error_set("dtype %lld", (long long)attrs[0]);
    case DYCL_FAMILY_COPY:
        return attrs[0] >= 0 && attrs[0] <= 2 ? DYCL_OK : dycl_error_set("memory format %lld", (long long)attrs[0]);
    case DYCL_FAMILY_REDUCE:
        if (attrs[0] < 0 || attrs[0] >> rank)
            return dycl_error_set("reduced dimensions 0x%llx of rank %d", (long long)attrs[0], rank);
        return attrs[1] == 0 || attrs[1] == 1 ? DYCL_OK : dycl_error_set("keepdim %lld", (long long)attrs[1]);
    case DYCL_FAMILY_VIEW:
        if (attr_count % 2 == 0) return dycl_error_set("%d attributes of a view", attr_count);
        return dycl_verify_sizes((attr_count - 1) / 2, attrs + 1, attrs + 1 + (attr_count - 1) / 2);
    case DYCL_FAMILY_CREATE: return dycl_verify_sizes(attr_count, attrs, NULL);
    case DYCL_FAMILY_HOSTED: return check_hosted(op, operand_count, attr_count, attrs);
    case DYCL_FAMILY_CONV:
    case DYCL_FAMILY_POOL:
        for (int i = 0; i < attr_count; i++)
            if (attrs[i] < 0 || attrs[i] > INT32_MAX)
                return dycl_error_set("window attribute %lld", (long long)attrs[i]);
        return DYCL_OK;
    case DYCL_FAMILY_RECURRENT:
        return attrs[0] >= 0 && attrs[0] < DYCL_RECURRENT_COUNT
                   ? DYCL_OK
                   : dycl_error_set("kind of recurrence %lld", (long long)attrs[0]);
    case DYCL_FAMILY_SCATTER:
        if (op != DYCL_OP_view_put) return DYCL_OK;
        if (attr_count % 2 == 0) return dycl_error_set("%d attributes of a view", attr_count);
        return dycl_verify_sizes((attr_count - 1) / 2, attrs + 1, attrs + 1 + (attr_count - 1) / 2);
    case DYCL_FAMILY_RESIZE:
        if (attrs[1] < 0 || attrs[1] > 3) return dycl_error_set("flags of a resize");
        for (int i = 2; i < 4; i++)
            if (attrs[i] < 1 || attrs[i] > INT32_MAX || !(dycl_attr_f64(attrs[2 + i]) >= 0))
                return dycl_error_set("size or scale of a resize");
        return attrs[0] >= 0 && attrs[0] < DYCL_RESIZE_COUNT
                   ? DYCL_OK
                   : dycl_error_set("kind of resize %lld", (long long)attrs[0]);
    default: return DYCL_OK;
    }
}

static dycl_status check_operands(const dycl_graph *g, dycl_op op, int count, const uint32_t *operands) {
    const dycl_op_info *info = dycl_op_get(op);
    if (count < info->min_operands || count > info->max_operands) return dycl_error_set("%d operands", count);
    for (int i = 0; i < count; i++) {
        if (operands[i] == DYCL_NONE) {
            if (!is_optional(op, count, i)) return dycl_error_set("operand %d is absent", i);
        } else if (operands[i] >= g->value_count) {
            return dycl_error_set("operand %d is value %u of %u", i, operands[i], g->value_count);
        }
    }
    if (info->family == DYCL_FAMILY_EW) {
        int dtype = g->values[operands[count - 1]].dtype;
        for (int i = 0; i < count - 1; i++)
            if (g->values[operands[i]].dtype != (op == DYCL_OP_where && i == 0 ? DYCL_BOOL : dtype))
                return dycl_error_set("operand %d has another dtype", i);
        if (!dycl_kern_ew(DYCL_ISA_SCALAR, (dycl_ew)op, (dycl_dtype)dtype, 0))
            return dycl_error_set("no kernel for %s", dycl_dtype_name((dycl_dtype)dtype));
    }
    if (info->family == DYCL_FAMILY_CREATE || op == DYCL_OP_pad) {
        for (int i = op == DYCL_OP_pad; i < count; i++)
            if (g->values[operands[i]].kind != DYCL_VALUE_SCALAR ||
                g->values[operands[i]].dtype != g->values[operands[0]].dtype)
                return dycl_error_set("operand %d is not a scalar of the right dtype", i);
    }
    return DYCL_OK;
}

dycl_status dycl_verify_node(const dycl_graph *g, dycl_op op, int operand_count, const uint32_t *operands,
                             int attr_count, const int64_t *attrs) {
    dycl_status status;
    if ((unsigned)op >= DYCL_OP_COUNT) return dycl_error_set("operator %d", (int)op);
    DYCL_TRY(check_operands(g, op, operand_count, operands));
    DYCL_TRY(check_attrs(g, op, operand_count, operands, attr_count, attrs));
    return DYCL_OK;
fail:
    return status;
}

static dycl_status check_value(const dycl_graph *g, uint32_t id) {
    dycl_status status;
    const dycl_value *value = &g->values[id];
    if (value->dtype >= DYCL_DTYPE_COUNT) return dycl_error_set("value %u: dtype %d", id, value->dtype);
    status = dycl_verify_sizes(value->rank, value->sizes, value->strides);
    if (status != DYCL_OK) return dycl_error_set("value %u: sizes or strides are wrong", id);
    for (int i = value->rank; i < DYCL_MAX_RANK; i++)
        if (value->sizes[i] || value->strides[i]) return dycl_error_set("value %u: entries past its rank", id);
    switch (value->kind) {
    case DYCL_VALUE_FEED:
        if (value->source >= g->feed_count || g->feeds[value->source] != id)
            return dycl_error_set("value %u: not the feed it claims to be", id);
        break;
    case DYCL_VALUE_SCALAR:
        if (value->source >= g->scalar_count || g->scalars[value->source] != id)
            return dycl_error_set("value %u: not the scalar it claims to be", id);
        if (value->rank) return dycl_error_set("value %u: a scalar of rank %d", id, value->rank);
        break;
    case DYCL_VALUE_NODE:
        if (value->source >= g->node_count || g->nodes[value->source].out != id)
            return dycl_error_set("value %u: not of the node it claims", id);
        return DYCL_OK;
    default: return dycl_error_set("value %u: kind %d", id, value->kind);
    }
    if (value->root != id || value->offset) return dycl_error_set("value %u: its storage is not its own", id);
    return DYCL_OK;
}

static int same_look(const dycl_value *a, const dycl_value *b) {
    if (a->dtype != b->dtype || a->rank != b->rank || a->root != b->root || a->offset != b->offset) return 0;
    for (int i = 0; i < a->rank; i++)
        if (a->sizes[i] != b->sizes[i] || a->strides[i] != b->strides[i]) return 0;
    return 1;
}

static dycl_status check_node(const dycl_graph *g, uint32_t at) {
    const dycl_node *node = &g->nodes[at];
    dycl_value inferred;
    if (node->operand_count > g->operand_count || node->operands > g->operand_count - node->operand_count)
        return dycl_error_set("node %u: its operands are outside of the graph", at);
    if (node->attr_count > g->attr_count || node->attrs > g->attr_count - node->attr_count)
        return dycl_error_set("node %u: its attributes are outside of the graph", at);
    if (node->out >= g->value_count || g->values[node->out].kind != DYCL_VALUE_NODE ||
        g->values[node->out].source != at)
        return dycl_error_set("node %u: its result is not its own", at);
    const uint32_t *operands = dycl_node_operands(g, node);
    for (int i = 0; i < node->operand_count; i++)
        if (operands[i] != DYCL_NONE && operands[i] >= node->out)
            return dycl_error_set("node %u: operand %d comes later", at, i);
    dycl_status status = dycl_verify_node(g, (dycl_op)node->op, node->operand_count, operands, node->attr_count,
                                          dycl_node_attrs(g, node));
    if (status != DYCL_OK) return status;
    memset(&inferred, 0, sizeof inferred);
    inferred.kind = DYCL_VALUE_NODE;
    inferred.source = at;
    inferred.root = node->out;
    if (dycl_infer(g, (dycl_op)node->op, node->operand_count, operands, node->attr_count, dycl_node_attrs(g, node),
                   &inferred) != DYCL_OK)
        return dycl_error_set("node %u: %s does not take these operands", at, dycl_op_get((dycl_op)node->op)->name);
    if (!same_look(&inferred, &g->values[node->out]))
        return dycl_error_set("node %u: its result does not look as inferred", at);
    return DYCL_OK;
}

dycl_status dycl_graph_verify(const dycl_graph *graph) {
    dycl_status status;
    if ((uint64_t)graph->node_count + graph->feed_count + graph->scalar_count != graph->value_count)
        return dycl_error_set("%u values for %u nodes, %u feeds and %u scalars", graph->value_count, graph->node_count,
                              graph->feed_count, graph->scalar_count);
    for (uint32_t i = 0; i < graph->value_count; i++) DYCL_TRY(check_value(graph, i));
    for (uint32_t i = 0; i < graph->node_count; i++) DYCL_TRY(check_node(graph, i));
    return DYCL_OK;
fail:
    return status;
}
