/* What must hold of every graph. A graph that passes can be printed, planned and executed without a further look at its
 * indices. */
#include "ir/verify.h"

#include <string.h>

#include "ir/hosted.h"
#include "ir/infer.h"
#include "kern/batch_norm.h"

#define MOST_ELEMENTS (INT64_C(1) << 48) /* far from any overflow of sizes times strides */

static int is_optional(dycl_op op, int count, int operand) {
    if (dycl_op_is_hosted(op)) return dycl_hosted_may_be_absent(op, count, operand);
    return operand < 32 && dycl_op_get(op)->optional >> operand & 1;
}

int dycl_attr_is_f64(dycl_op op, int operand_count, int attr_count, const int64_t *attrs, int attr) {
    if (dycl_op_is_hosted(op)) return dycl_hosted_attr_is_f64(op, operand_count, attr_count, attrs, attr);
    return attr < 32 && dycl_op_get(op)->doubles >> attr & 1;
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

/* ---- Attributes, by family */

dycl_status dycl_verify_cast(const dycl_draft *draft) {
    int64_t dtype = draft->attrs[0];
    return dtype >= 0 && dtype < DYCL_DTYPE_COUNT ? DYCL_OK : dycl_error_set("dtype %lld", (long long)dtype);
}

dycl_status dycl_verify_copy(const dycl_draft *draft) {
    int64_t format = draft->attrs[0];
    return format >= 0 && format <= 3 ? DYCL_OK : dycl_error_set("memory format %lld", (long long)format);
}

dycl_status dycl_verify_laid(const dycl_draft *draft) {
    int64_t format = draft->attrs[0];
    return format == 0 || format == 2 ? DYCL_OK : dycl_error_set("memory format %lld", (long long)format);
}

dycl_status dycl_verify_reduce(const dycl_draft *draft) {
    const int64_t *attrs = draft->attrs;
    int rank = draft->graph->values[draft->operands[0]].rank;
    if (attrs[0] < 0 || attrs[0] >> rank)
        return dycl_error_set("reduced dimensions 0x%llx of rank %d", (long long)attrs[0], rank);
    return attrs[1] == 0 || attrs[1] == 1 ? DYCL_OK : dycl_error_set("keepdim %lld", (long long)attrs[1]);
}

dycl_status dycl_verify_view(const dycl_draft *draft) {
    int rank = (draft->attr_count - 1) / 2;
    if (draft->attr_count < 1 || (draft->attr_count % 2 == 0 && draft->op != DYCL_OP_view))
        return dycl_error_set("%d attributes of a view", draft->attr_count);
    return dycl_verify_sizes(rank, draft->attrs + 1, draft->attrs + 1 + rank);
}

dycl_status dycl_verify_create(const dycl_draft *draft) {
    return dycl_verify_sizes(draft->attr_count, draft->attrs, NULL);
}

/* What else is there to know of a hosted operator, dycl_infer asks of its form. */
dycl_status dycl_verify_hosted(const dycl_draft *draft) {
    dycl_hosted_form form;
    if (!dycl_hosted_read(draft->op, draft->operand_count, draft->attr_count, draft->attrs, &form, NULL))
        return dycl_error_set("%d operands and %d attributes", draft->operand_count, draft->attr_count);
    return dycl_verify_sizes(form.rank, form.sizes, form.strides);
}

static dycl_status windows(const dycl_draft *draft) {
    for (int i = 0; i < draft->attr_count; i++)
        if (draft->attrs[i] < 0 || draft->attrs[i] > INT32_MAX)
            return dycl_error_set("window attribute %lld", (long long)draft->attrs[i]);
    return DYCL_OK;
}
dycl_status dycl_verify_conv(const dycl_draft *draft) { return windows(draft); }
dycl_status dycl_verify_unconv(const dycl_draft *draft) { return windows(draft); }
dycl_status dycl_verify_pool(const dycl_draft *draft) { return windows(draft); }
dycl_status dycl_verify_unpool(const dycl_draft *draft) { return windows(draft); }

dycl_status dycl_verify_batch(const dycl_draft *draft) {
    int64_t which = draft->attrs[0], results = draft->op == DYCL_OP_batch_stats ? DYCL_BATCH_RESULTS : 3;
    return which >= 0 && which < results ? DYCL_OK : dycl_error_set("result %lld of a batch", (long long)which);
}

dycl_status dycl_verify_group_back(const dycl_draft *draft) {
    int64_t which = draft->attrs[0];
    return which >= 0 && which < 3 ? DYCL_OK : dycl_error_set("result %lld of a group norm", (long long)which);
}

dycl_status dycl_verify_recurrent(const dycl_draft *draft) {
    int64_t kind = draft->attrs[0];
    if (draft->op == DYCL_OP_recurrent && draft->attrs[2] != 0 && draft->attrs[2] != 1)
        return dycl_error_set("result %lld of a recurrence", (long long)draft->attrs[2]);
    return kind >= 0 && kind < DYCL_RECURRENT_COUNT ? DYCL_OK
                                                    : dycl_error_set("kind of recurrence %lld", (long long)kind);
}
dycl_status dycl_verify_recurrent_back(const dycl_draft *draft) { return dycl_verify_recurrent(draft); }

dycl_status dycl_verify_scatter(const dycl_draft *draft) {
    return draft->op == DYCL_OP_view_put ? dycl_verify_view(draft) : DYCL_OK;
}

dycl_status dycl_verify_resize(const dycl_draft *draft) {
    const int64_t *attrs = draft->attrs;
    if (attrs[1] < 0 || attrs[1] > 3) return dycl_error_set("flags of a resize");
    for (int i = 2; i < 4; i++)
        if (attrs[i] < 1 || attrs[i] > INT32_MAX || !(dycl_attr_f64(attrs[2 + i]) >= 0))
            return dycl_error_set("size or scale of a resize");
    return attrs[0] >= 0 && attrs[0] < DYCL_RESIZE_COUNT ? DYCL_OK
                                                         : dycl_error_set("kind of resize %lld", (long long)attrs[0]);
}

static dycl_status check_attrs(const dycl_draft *draft) {
    static dycl_status (*const families[DYCL_FAMILY_COUNT])(const dycl_draft *) = {
#define DYCL_FAMILY(NAME, name, verify, work, steps) [DYCL_FAMILY_##NAME] = DYCL_FAMILY_##verify(dycl_verify_##name),
#include "ir/family.def"
#undef DYCL_FAMILY
    };
    const dycl_op_info *info = dycl_op_get(draft->op);
    int count = draft->attr_count;
    if (info->attrs >= 0 ? count != info->attrs
                         : count > (dycl_op_is_hosted(draft->op) ? DYCL_MAX_ATTRS : 1 + 2 * DYCL_MAX_RANK))
        return dycl_error_set("%d attributes", count);
    for (int i = 0; i < count; i++)
        if (!dycl_attr_is_f64(draft->op, draft->operand_count, count, draft->attrs, i) &&
            (draft->attrs[i] < -MOST_ELEMENTS || draft->attrs[i] > MOST_ELEMENTS))
            return dycl_error_set("attribute %lld", (long long)draft->attrs[i]);
    return families[info->family] ? families[info->family](draft) : DYCL_OK;
}

/* A number that meets floats of 16 bits is held as f32: only what computes with it, or fills with it, reads that. */
static int reads_as_memory(const dycl_graph *g, dycl_op op, int i, uint32_t operand) {
    const dycl_value *value = &g->values[operand];
    dycl_family family = dycl_op_get(op)->family;
    return value->kind == DYCL_VALUE_SCALAR && dycl_dtype_is_half((dycl_dtype)value->dtype) &&
           family != DYCL_FAMILY_EW && family != DYCL_FAMILY_CAST && family != DYCL_FAMILY_CREATE &&
           !(op == DYCL_OP_pad && i == 1);
}

static dycl_status check_operands(const dycl_graph *g, dycl_op op, int count, const uint32_t *operands) {
    const dycl_op_info *info = dycl_op_get(op);
    if (count < info->min_operands || count > info->max_operands) return dycl_error_set("%d operands", count);
    for (int i = 0; i < count; i++) {
        if (operands[i] == DYCL_NONE) {
            if (!is_optional(op, count, i)) return dycl_error_set("operand %d is absent", i);
        } else if (operands[i] >= g->value_count) {
            return dycl_error_set("operand %d is value %u of %u", i, operands[i], g->value_count);
        } else if (reads_as_memory(g, op, i, operands[i])) {
            return dycl_error_set("operand %d is a number of 16 bits", i);
        }
    }
    if (info->family == DYCL_FAMILY_EW) {
        int dtype = g->values[operands[count - 1]].dtype;
        for (int i = 0; i < count - 1; i++)
            if (g->values[operands[i]].dtype != (op == DYCL_OP_where && i == 0 ? DYCL_BOOL : dtype))
                return dycl_error_set("operand %d has another dtype", i);
        if (!(dycl_ew_dtypes[op] >> dtype & 1))
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
    DYCL_TRY(check_attrs(&(dycl_draft){g, op, operand_count, attr_count, operands, attrs}));
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

dycl_status dycl_verify_look(const dycl_graph *g, const dycl_node *node) {
    uint32_t at = (uint32_t)(node - g->nodes);
    dycl_value inferred;
    memset(&inferred, 0, sizeof inferred);
    inferred.kind = DYCL_VALUE_NODE;
    inferred.source = at;
    inferred.root = node->out;
    if (dycl_infer(g, (dycl_op)node->op, node->operand_count, dycl_node_operands(g, node), node->attr_count,
                   dycl_node_attrs(g, node), &inferred) != DYCL_OK)
        return dycl_error_set("node %u: %s does not take these operands", at, dycl_op_get((dycl_op)node->op)->name);
    if (!same_look(&inferred, &g->values[node->out]))
        return dycl_error_set("node %u: its result does not look as inferred", at);
    return DYCL_OK;
}

static dycl_status check_node(const dycl_graph *g, uint32_t at) {
    const dycl_node *node = &g->nodes[at];
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
    return status == DYCL_OK ? dycl_verify_look(g, node) : status;
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
