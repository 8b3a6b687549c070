#include "base/host.h"
#include "exec/builder/builder.h"
#include "ir/hosted.h"

#include <string.h>

/* Operators that the host runs by name (ir/hosted.def), on operands as they lie. They may use several threads of their
 * own, so they are never beside other steps. */

typedef struct {
    const dycl_hosted *row;
    int argument_count, tensor_count;
    dycl_host_into into;
    dycl_host_argument *arguments;
    dycl_host_tensor *tensors, out[DYCL_HOSTED_RESULTS];
    dycl_ref *refs, to[DYCL_HOSTED_RESULTS]; /* refs: per tensor */
} hosted_args;

static dycl_status hosted_run(const dycl_step *step, dycl_plan *plan) {
    hosted_args *a = step->args; /* one run of a plan at a time: the addresses of this one are written into it */
    for (int i = 0; i < a->tensor_count; i++)
        if (a->tensors[i].rank >= 0) a->tensors[i].data = dycl_at(plan, a->refs[i]);
    for (int i = 0; i < a->row->results; i++)
        if (a->out[i].rank >= 0) a->out[i].data = dycl_at(plan, a->to[i]);
    if (!dycl_host_functions.call) return dycl_error_bail("the host has no %s", a->row->schema);
    return dycl_host_functions.call(a->row->schema, a->into ? a->row->out : a->row->overload, a->row->results, a->into,
                                    a->argument_count, a->arguments, a->out);
}

static dycl_host_kind kind_of(char kind) {
    switch (kind) {
    case 't':
    case 'o': return DYCL_HOST_TENSOR;
    case 'T': return DYCL_HOST_TENSORS;
    case 'i':
    case 'j': return DYCL_HOST_INT;
    case 'f':
    case 'g': return DYCL_HOST_FLOAT;
    case 'b': return DYCL_HOST_BOOL;
    case 'l':
    case 'q':
    case 'm': return DYCL_HOST_INTS;
    case 'r': return DYCL_HOST_FLOATS;
    case 'd': return DYCL_HOST_DTYPE;
    default: return DYCL_HOST_WORD;
    }
}

static int is_optional(char kind) { return strchr("ojgmrd", kind) != NULL; }

/* A copy in the plan's memory. */
static const void *kept(dycl_builder *b, const void *from, size_t bytes) {
    void *block = dycl_plan_alloc(b->plan, bytes ? bytes : 1);
    return block ? memcpy(block, from, bytes) : NULL;
}

static dycl_status describe(dycl_builder *b, const dycl_tensor *t, dycl_host_tensor *out) {
    size_t bytes = (size_t)t->rank * sizeof *t->sizes;
    *out = (dycl_host_tensor){t->dtype, t->rank, kept(b, t->sizes, bytes), kept(b, t->strides, bytes), NULL};
    return out->sizes && out->strides ? DYCL_OK : DYCL_ERROR;
}

static dycl_status fill_operands(dycl_builder *b, const dycl_node *node, hosted_args *a) {
    const uint32_t *operands = dycl_node_operands(&b->program->graph, node);
    dycl_status status = DYCL_OK;
    for (int i = 0; i < node->operand_count && status == DYCL_OK; i++) {
        dycl_tensor t;
        a->tensors[i].rank = -1;
        if (operands[i] == DYCL_NONE) continue;
        dycl_make_tensor(b, operands[i], &t);
        a->refs[i] = t.ref;
        dycl_make_read(b, &t);
        status = describe(b, &t, &a->tensors[i]);
    }
    return status;
}

static dycl_status fill_arguments(dycl_builder *b, hosted_args *a, const dycl_hosted_argument *given) {
    for (int i = 0; i < a->argument_count; i++) {
        const dycl_hosted_parameter *p = &a->row->parameters[i];
        dycl_host_argument *to = &a->arguments[i];
        *to = (dycl_host_argument){
            .kind = (uint8_t)kind_of(p->kind), .optional = (uint8_t)is_optional(p->kind), .count = given[i].count};
        if (given[i].operand >= 0) {
            to->tensors = a->tensors + given[i].operand;
            to->optional |= p->kind == 'T' && strcmp(p->name, "indices") == 0; /* Tensor?[], others are Tensor[] */
            if (p->kind == 'o' && to->tensors->rank < 0) to->count = -1;
        } else if (p->kind == 'w') {
            to->word = dycl_hosted_word(p, *given[i].words, &to->word_length);
        } else if (given[i].count > 0 &&
                   !(to->numbers = kept(b, given[i].words, (size_t)given[i].count * sizeof *given[i].words))) {
            return DYCL_ERROR;
        }
    }
    return DYCL_OK;
}

static double cost_of(const dycl_builder *b, const dycl_node *node, char work) {
    const uint32_t *operands = dycl_node_operands(&b->program->graph, node);
    double out = (double)dycl_value_numel(dycl_make_value(b, node->out)), in = 0;
    for (int i = 0; i < node->operand_count; i++)
        if (operands[i] != DYCL_NONE) in += (double)dycl_value_numel(dycl_make_value(b, operands[i]));
    if (work == 'C' || work == 'G') { /* a gradient is as much work as the convolution, whose result is operand 0 */
        const dycl_value *weight = dycl_make_value(b, operands[work == 'C' ? 1 : 2]);
        double rows = work == 'C' ? out : 2 * (double)dycl_value_numel(dycl_make_value(b, operands[0]));
        return 10000 +
               0.02 * rows * (double)dycl_value_numel(weight) / (double)(weight->sizes[0] ? weight->sizes[0] : 1);
    }
    return 3000 + (in + out) * (work == 'H' ? 5 : 0.5);
}

/* Both want a result of the same call. */
static int is_sibling(const dycl_graph *g, const dycl_node *node, const dycl_node *other) {
    const int64_t *attrs = dycl_node_attrs(g, node), *words = dycl_node_attrs(g, other);
    if (other == node || other->op != node->op || other->operand_count != node->operand_count || words[0] == attrs[0])
        return 0;
    if (memcmp(dycl_node_operands(g, other), dycl_node_operands(g, node), node->operand_count * sizeof(uint32_t)))
        return 0;
    int own = node->attr_count - (3 + 2 * (int)attrs[2]), theirs = other->attr_count - (3 + 2 * (int)words[2]);
    return own == theirs &&
           memcmp(words + other->attr_count - own, attrs + node->attr_count - own, (size_t)own * sizeof *words) == 0;
}

static dycl_status fill_result(dycl_builder *b, const dycl_node *node, hosted_args *a) {
    dycl_tensor to;
    int which = (int)dycl_node_attrs(&b->program->graph, node)[0];
    dycl_make_tensor(b, node->out, &to);
    a->to[which] = to.ref;
    dycl_make_write(b, &to);
    return describe(b, &to, &a->out[which]);
}

dycl_status dycl_steps_hosted(dycl_builder *b, const dycl_block *block) {
    const dycl_node *node = &b->program->graph.nodes[block->first];
    dycl_hosted_form form;
    dycl_hosted_argument given[DYCL_HOSTED_PARAMETERS];
    dycl_status status;
    if (b->slots[node->out].first != DYCL_NONE) return DYCL_OK; /* with its sibling */
    if ((status = dycl_make_added(b, node)) != DYCL_BAIL) return status;
    if ((status = dycl_make_loss(b, node)) != DYCL_BAIL) return status;
    hosted_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    a->row = dycl_hosted_get((dycl_op)node->op);
    a->argument_count = a->row->parameter_count;
    a->tensor_count = node->operand_count;
    if (!dycl_hosted_read((dycl_op)node->op, node->operand_count, node->attr_count,
                          dycl_node_attrs(&b->program->graph, node), &form, given))
        return dycl_error_set("attributes of %s", a->row->schema);
    a->into = a->row->makes ? DYCL_HOST_MAKES_IN : *a->row->out ? DYCL_HOST_INTO : DYCL_HOST_MAKES;
    a->arguments = dycl_plan_alloc(b->plan, sizeof *a->arguments * (size_t)a->argument_count);
    a->tensors = dycl_plan_alloc(b->plan, sizeof *a->tensors * (size_t)(node->operand_count + 1));
    a->refs = dycl_plan_alloc(b->plan, sizeof *a->refs * (size_t)(node->operand_count + 1));
    if (!a->arguments || !a->tensors || !a->refs) return DYCL_ERROR;
    DYCL_TRY(fill_operands(b, node, a));
    DYCL_TRY(fill_arguments(b, a, given));
    for (int i = 0; i < DYCL_HOSTED_RESULTS; i++) a->out[i].rank = -1;
    DYCL_TRY(fill_result(b, node, a));
    const dycl_graph *g = &b->program->graph;
    for (uint32_t n = 0; n < g->node_count && a->row->results > 1; n++) {
        if (b->program->dead[n] || !is_sibling(g, node, &g->nodes[n])) continue;
        if (b->slots[g->nodes[n].out].first != DYCL_NONE || a->out[dycl_node_attrs(g, &g->nodes[n])[0]].rank >= 0)
            continue; /* the same call was made twice */
        DYCL_TRY(fill_result(b, &g->nodes[n], a));
    }
    return dycl_make_step(b, hosted_run, a, "torch", cost_of(b, node, a->row->work));
fail:
    return status;
}
