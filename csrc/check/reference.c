#include "check/reference.h"

#include "base/alloc.h"
#include "base/half.h"

#include <math.h>
#include <string.h>

/* ---- Elements */

static int64_t place(const dycl_value *v, const int64_t *index, int rank) {
    int64_t at = v->offset;
    for (int i = 0; i < v->rank; i++) at += (v->sizes[i] == 1 ? 0 : index[rank - v->rank + i]) * v->strides[i];
    return at;
}

dycl_number dycl_reference_get(const dycl_reference *r, uint32_t id, const int64_t *index, int rank) {
    const dycl_value *v = &r->graph->values[id];
    return r->elements[v->root][place(v, index, rank)];
}

const dycl_number *dycl_reference_line(const dycl_reference *r, uint32_t id, const int64_t *index, int rank, int dim,
                                       int64_t *step) {
    const dycl_value *v = &r->graph->values[id];
    int d = dim - (rank - v->rank);
    *step = d < 0 || v->sizes[d] == 1 ? 0 : v->strides[d];
    return r->elements[v->root] + place(v, index, rank);
}

void dycl_reference_set(dycl_reference *r, uint32_t id, const int64_t *index, dycl_number x) {
    const dycl_value *v = &r->graph->values[id];
    if (dycl_dtype_is_half((dycl_dtype)v->dtype)) /* a number that fills memory may be more exact */
        x.f = (double)dycl_half_round((dycl_dtype)v->dtype, (float)x.f);
    r->elements[v->root][place(v, index, v->rank)] = x;
}

int dycl_reference_next(int64_t *index, const int64_t *sizes, int rank) {
    for (int d = rank - 1; d >= 0; d--) {
        if (++index[d] < sizes[d]) return 1;
        index[d] = 0;
    }
    return 0;
}

/* Blocks of some hundred terms: the error grows like the root of their number. */
dycl_number dycl_number_total(dycl_dtype dtype, const dycl_number_sum *s, double scale) {
    if (s->unknown || dycl_number_leaves(dtype, s->magnitude)) return dycl_number_unknown();
    double rounding = dycl_number_epsilon(dtype) * (1 + sqrt((double)s->terms) / 8) * s->magnitude;
    return dycl_number_f(dtype, s->sum * scale, (s->error + rounding) * fabs(scale));
}

/* ---- Elementwise operators and copies */

dycl_status dycl_reference_elementwise(dycl_reference *r, const dycl_node *node, const uint32_t *operands,
                                       const int64_t *attrs) {
    (void)attrs;
    const dycl_value *out = dycl_reference_value(r, node->out);
    int64_t index[DYCL_MAX_RANK] = {0};
    dycl_number x[3];
    if (dycl_value_numel(out) == 0) return DYCL_OK;
    do {
        for (int i = 0; i < node->operand_count; i++) x[i] = dycl_reference_get(r, operands[i], index, out->rank);
        dycl_reference_set(r, node->out, index,
                           dycl_number_apply((dycl_ew)node->op,
                                             dycl_reference_dtype(r, operands[node->operand_count - 1]),
                                             node->operand_count, x));
    } while (dycl_reference_next(index, out->sizes, out->rank));
    return DYCL_OK;
}

static int in_band(const dycl_node *node, const int64_t *attrs, const int64_t *index, int rank) {
    int64_t above = index[rank - 1] - index[rank - 2];
    return node->op == DYCL_OP_tril ? above <= attrs[0] : above >= attrs[0];
}

static dycl_status copied(dycl_reference *r, const dycl_node *node, const uint32_t *operands, const int64_t *attrs) {
    const dycl_value *out = dycl_reference_value(r, node->out);
    dycl_dtype from = dycl_reference_dtype(r, operands[0]), to = (dycl_dtype)out->dtype;
    int64_t index[DYCL_MAX_RANK] = {0};
    if (dycl_value_numel(out) == 0) return DYCL_OK;
    do {
        dycl_number x = dycl_number_cast(from, to, dycl_reference_get(r, operands[0], index, out->rank));
        if (dycl_op_get((dycl_op)node->op)->family == DYCL_FAMILY_EWI && !in_band(node, attrs, index, out->rank))
            x = (dycl_number){0, 0, 0};
        dycl_reference_set(r, node->out, index, x);
    } while (dycl_reference_next(index, out->sizes, out->rank));
    return DYCL_OK;
}

dycl_status dycl_reference_cast(dycl_reference *r, const dycl_node *node, const uint32_t *operands,
                                const int64_t *attrs) {
    return copied(r, node, operands, attrs);
}
dycl_status dycl_reference_copy(dycl_reference *r, const dycl_node *node, const uint32_t *operands,
                                const int64_t *attrs) {
    return copied(r, node, operands, attrs);
}
dycl_status dycl_reference_laid(dycl_reference *r, const dycl_node *node, const uint32_t *operands,
                                const int64_t *attrs) {
    return copied(r, node, operands, attrs);
}
dycl_status dycl_reference_indexed(dycl_reference *r, const dycl_node *node, const uint32_t *operands,
                                   const int64_t *attrs) {
    return copied(r, node, operands, attrs);
}

/* Its elements are its root's. */
dycl_status dycl_reference_view(dycl_reference *r, const dycl_node *node, const uint32_t *operands,
                                const int64_t *attrs) {
    (void)r, (void)node, (void)operands, (void)attrs;
    return DYCL_OK;
}

/* ---- A graph */

static dycl_status run_node(dycl_reference *r, const dycl_node *node) {
    static const dycl_reference_fn families[DYCL_FAMILY_COUNT] = {
#define DYCL_FAMILY(NAME, name, ...) [DYCL_FAMILY_##NAME] = dycl_reference_##name,
#include "ir/family.def"
#undef DYCL_FAMILY
    };
    return families[dycl_op_get((dycl_op)node->op)->family](r, node, dycl_node_operands(r->graph, node),
                                                            dycl_node_attrs(r->graph, node));
}

/* By root value: what the outputs depend on. */
static uint8_t *needed_values(const dycl_graph *g, const uint32_t *outputs, int output_count) {
    uint8_t *needed = dycl_alloc_zero(g->value_count + 1);
    for (int i = 0; needed && i < output_count; i++) needed[g->values[outputs[i]].root] = 1;
    for (uint32_t n = g->node_count; needed && n-- > 0;) {
        const dycl_node *node = &g->nodes[n];
        const uint32_t *operands = dycl_node_operands(g, node);
        if (node->op == DYCL_OP_view || !needed[node->out]) continue;
        for (int i = 0; i < node->operand_count; i++)
            if (operands[i] != DYCL_NONE) needed[g->values[operands[i]].root] = 1;
    }
    return needed;
}

static double numel(const dycl_value *v) { return (double)dycl_value_numel(v); }

/* Terms that a node sums, or elements that it makes. */
static double work_of(const dycl_graph *g, const dycl_node *node) {
    const uint32_t *operands = dycl_node_operands(g, node);
    const dycl_value *out = &g->values[node->out],
                     *a = node->operand_count && operands[0] != DYCL_NONE ? &g->values[operands[0]] : out;
    const dycl_value *b = node->operand_count > 1 && operands[1] != DYCL_NONE ? &g->values[operands[1]] : a;
    switch (dycl_op_get((dycl_op)node->op)->family) {
    case DYCL_FAMILY_MATMUL: return numel(out) * (double)a->sizes[a->rank - 1];
    case DYCL_FAMILY_GROUPED: return numel(out) * (double)b->sizes[1];
    case DYCL_FAMILY_RECURRENT: return numel(a) * (double)b->sizes[1];
    case DYCL_FAMILY_RECURRENT_BACK: return numel(out) * ((double)b->sizes[1] + 16);
    case DYCL_FAMILY_CONV: return numel(out) * numel(b) / (double)b->sizes[node->op == DYCL_OP_conv2d ? 0 : 1];
    case DYCL_FAMILY_UNCONV: return numel(b) * numel(out) / (double)out->sizes[0];
    case DYCL_FAMILY_ATTENTION: return numel(a) * (double)b->sizes[2] * 2;
    case DYCL_FAMILY_POOL: return numel(out) + numel(a) * 4;
    case DYCL_FAMILY_GROUP_BACK: return numel(a) * (4 + (double)b->sizes[1]);
    case DYCL_FAMILY_UNPOOL: return numel(out) + numel(a) * 64;
    case DYCL_FAMILY_RESIZE: return numel(out) * 16;
    default: return numel(a) + numel(out);
    }
}

double dycl_reference_work(const dycl_graph *g, const uint32_t *outputs, int output_count) {
    uint8_t *needed = needed_values(g, outputs, output_count);
    double work = needed ? 0 : INFINITY;
    for (uint32_t n = 0; needed && n < g->node_count; n++)
        if (g->nodes[n].op != DYCL_OP_view && needed[g->nodes[n].out]) work += work_of(g, &g->nodes[n]);
    for (uint32_t i = 0; needed && i < g->feed_count; i++)
        if (needed[g->feeds[i]]) work += (double)dycl_value_extent(&g->values[g->feeds[i]]);
    dycl_free(needed);
    return work;
}

static dycl_status load(dycl_reference *r, uint32_t v, const dycl_reference_inputs *inputs) {
    const dycl_value *value = &r->graph->values[v];
    int64_t extent = dycl_value_extent(value);
    dycl_number *elements = r->elements[v] = dycl_alloc_zero((size_t)(extent + 1) * sizeof *elements);
    if (!elements) return dycl_error_set("out of memory");
    const void *memory = value->kind == DYCL_VALUE_FEED     ? inputs->feeds[value->source]
                         : value->kind == DYCL_VALUE_SCALAR ? &inputs->scalars[value->source]
                                                            : NULL;
    dycl_dtype dtype = (dycl_dtype)value->dtype;
    if (value->kind == DYCL_VALUE_SCALAR) dtype = dycl_dtype_computed(dtype);
    for (int64_t i = 0; memory && i < extent; i++) elements[i] = dycl_number_load(dtype, memory, i);
    return DYCL_OK;
}

dycl_status dycl_reference_run(dycl_reference *r, const dycl_graph *g, const uint32_t *outputs, int output_count,
                               const dycl_reference_inputs *inputs) {
    dycl_status status = DYCL_OK;
    *r = (dycl_reference){.graph = g, .elements = dycl_alloc_zero((g->value_count + 1) * sizeof(dycl_number *))};
    uint8_t *needed = needed_values(g, outputs, output_count);
    if (!r->elements || !needed) status = dycl_error_set("out of memory");
    for (uint32_t v = 0; v < g->value_count && status == DYCL_OK; v++)
        if (needed[v]) status = load(r, v, inputs);
    for (uint32_t n = 0; n < g->node_count && status == DYCL_OK; n++)
        if (g->nodes[n].op != DYCL_OP_view && needed[g->nodes[n].out]) status = run_node(r, &g->nodes[n]);
    dycl_free(needed);
    if (status != DYCL_OK) dycl_reference_free(r);
    return status;
}

void dycl_reference_free(dycl_reference *r) {
    for (uint32_t v = 0; r->elements && v < r->graph->value_count; v++) dycl_free(r->elements[v]);
    dycl_free(r->elements);
    *r = (dycl_reference){0};
}
