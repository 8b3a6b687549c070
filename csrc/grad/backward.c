#include "grad/backward.h"

#include <string.h>

#include "base/alloc.h"
#include "grad/formula.h"
#include "ir/infer.h"

static const dycl_formula formulas[DYCL_OP_COUNT] = {
#define DYCL_GRAD(op, formula) [DYCL_OP_##op] = dycl_grad_##formula,
#include "grad/grad.def"
#undef DYCL_GRAD
};

int dycl_grad_has(dycl_op op) { return formulas[op] != NULL; }

/* Positions, random numbers and counts have no history, though some are numbers of floating point. */
int dycl_grad_has_history(const dycl_node *node) {
    return node->op != DYCL_OP_batch_stats && node->op != DYCL_OP_histc && node->op != DYCL_OP_full &&
           node->op != DYCL_OP_iota && node->op != DYCL_OP_cut && node->op != DYCL_OP_laid;
}

void dycl_backward_init(dycl_backward *b) {
    memset(b, 0, sizeof *b);
    dycl_recorder_init(&b->recorder);
}

static void free_scratch(dycl_backward *b) {
    dycl_free(b->image);
    dycl_free(b->gradient);
    dycl_free(b->reaches);
    dycl_free(b->awaited);
    dycl_free(b->forms);
    dycl_free(b->held);
    dycl_free(b->reader);
    dycl_free(b->pieces);
    dycl_free(b->shares);
    b->image = b->gradient = b->reader = b->awaited = NULL;
    b->reaches = NULL;
    b->forms = NULL;
    b->held = NULL;
    b->pieces = NULL;
    b->shares = NULL;
    b->piece_count = b->piece_room = b->share_count = b->share_room = 0;
    b->form_count = b->form_room = b->held_room = 0;
    b->job = NULL;
}

void dycl_backward_free(dycl_backward *b) {
    free_scratch(b);
    dycl_recorder_free(&b->recorder);
    dycl_free(b->saved);
    dycl_free(b->taken);
    dycl_free(b->itself);
    dycl_free(b->detached);
    dycl_free(b->ties);
    dycl_free(b->gradients);
    dycl_free(b->numbers);
    b->saved = b->detached = b->gradients = NULL;
    b->taken = b->itself = NULL;
    b->ties = NULL;
    b->numbers = NULL;
}

void dycl_backward_trim(dycl_backward *b) {
    dycl_graph_free(&b->recorder.graph);
    dycl_graph_init(&b->recorder.graph);
    dycl_free(b->recorder.ranges);
    b->recorder.ranges = NULL;
    b->recorder.range_room = b->recorder.range_count = 0;
}

/* ---- The segment's values in the new graph */

static dycl_status feed(dycl_backward *b, const dycl_value *like, const int64_t *strides, uint32_t *out) {
    dycl_graph *graph = &b->recorder.graph;
    return dycl_graph_feed(graph, (dycl_dtype)like->dtype, like->rank, like->sizes, strides, out);
}

static dycl_status number_image(dycl_backward *b, const dycl_value *v, uint32_t *out) {
    dycl_scalar n = b->job->numbers[v->source];
    dycl_operand operand;
    switch ((dycl_dtype)v->dtype) {
    case DYCL_F32: operand = dycl_operand_f64((double)n.f32); break;
    case DYCL_F64: operand = dycl_operand_f64(n.f64); break;
    case DYCL_I64: operand = dycl_operand_i64(n.i64); break;
    case DYCL_BOOL: operand = (dycl_operand){DYCL_OPERAND_BOOL, 0, n.u8 != 0, 0}; break;
    default: return dycl_build_bail(&b->recorder, DYCL_BAIL_dtype);
    }
    dycl_status status = dycl_build_convert(&b->recorder, &operand, (dycl_dtype)v->dtype, out);
    if (status != DYCL_OK) return status;
    b->numbers[b->number_count].here = b->recorder.graph.values[*out].source;
    b->numbers[b->number_count++].of = v->source; /* each once: images are kept */
    return DYCL_OK;
}

/* Counted again, from the same numbers: nothing of it is saved, as in torch where no tensor holds it (flip). */
static dycl_status iota_image(dycl_backward *b, const dycl_node *node, uint32_t *out) {
    const uint32_t *ends = dycl_node_operands(b->job->graph, node);
    dycl_status status = DYCL_OK;
    uint32_t images[2] = {dycl_chain_image(b, ends[0], &status), 0};
    if (status == DYCL_OK) images[1] = dycl_chain_image(b, ends[1], &status);
    if (status != DYCL_OK) return status;
    return dycl_build_node(&b->recorder, DYCL_OP_iota, 2, images, node->attr_count,
                           dycl_node_attrs(b->job->graph, node), out);
}

/* Saved, and fed as it was left for us; formulas see it as it was recorded. */
static dycl_status saved_image(dycl_backward *b, uint32_t value, uint32_t *out) {
    const dycl_graph *graph = b->job->graph;
    const dycl_value *v = &graph->values[value];
    uint32_t laid = dycl_graph_laid(graph, value);
    dycl_status status = feed(b, v, laid == DYCL_NONE ? v->strides : graph->values[laid].strides, out);
    if (status == DYCL_OK) b->saved[b->saved_count++] = value;
    if (status != DYCL_OK || laid == DYCL_NONE) return status;
    return dycl_build_node(&b->recorder, DYCL_OP_laid, 1, out, 1, &(int64_t){0}, out);
}

static uint32_t image_of(dycl_backward *b, uint32_t value, dycl_status *status) {
    const dycl_value *v = &b->job->graph->values[value];
    uint32_t out = 0;
    if (b->image[value] != DYCL_NONE) return b->image[value];
    if (v->kind == DYCL_VALUE_SCALAR) {
        *status = number_image(b, v, &out);
    } else if (dycl_value_is_made_by(b->job->graph, value, DYCL_OP_iota)) {
        *status = iota_image(b, &b->job->graph->nodes[v->source], &out);
    } else if (v->root == value) {
        *status = saved_image(b, value, &out);
    } else {
        uint32_t root = image_of(b, v->root, status);
        if (*status == DYCL_OK)
            *status = dycl_build_view(&b->recorder, root, v->offset, v->rank, v->sizes, v->strides, &out);
        if (*status == DYCL_OK && !b->job->tracked[value] && b->job->tracked[v->root])
            b->detached[b->detached_count++] = out; /* each once: images are kept */
    }
    if (*status == DYCL_OK) b->image[value] = out;
    return out;
}

enum { LEADS = 1, WANTED = 2, ENDS = 3 /* a source that is not wanted */ };

static int is_source(const dycl_backward *b, uint32_t value) {
    return b->reaches[value] == WANTED || b->reaches[value] == ENDS;
}

/* A source that is a view, or a view of one. */
static int is_of_source(const dycl_backward *b, uint32_t value) {
    uint32_t root = b->job->graph->values[value].root;
    return value != root && (is_source(b, value) || dycl_backward_base(b, value) != root);
}

static uint32_t ask(dycl_backward *b, uint32_t value, int copied, dycl_status *status) {
    uint32_t root = b->job->graph->values[value].root;
    if (b->job->tracked[value]) b->taken[root] |= is_of_source(b, value) ? DYCL_TAKEN_OF_SOURCE : DYCL_TAKEN_ITSELF;
    if (!copied) b->itself[root] = 1;
    return image_of(b, value, status);
}

uint32_t dycl_chain_image(dycl_backward *b, uint32_t value, dycl_status *status) { return ask(b, value, 0, status); }

uint32_t dycl_chain_take_as(dycl_chain *c, int nth, int copied) {
    return c->status == DYCL_OK ? ask(c->b, c->operands[nth], copied, &c->status) : 0;
}

dycl_status dycl_backward_tie(dycl_backward *b, dycl_tie tie) {
    if (!DYCL_MAKE_ROOM(b->ties, b->tie_room, b->tie_count + 1))
        return dycl_error_set("out of memory for %u ties", b->tie_count);
    if (dycl_value_is_made_by(&b->recorder.graph, tie.saved, DYCL_OP_laid)) { /* what has the history is fed */
        const dycl_graph *graph = &b->recorder.graph;
        tie.saved = dycl_node_operands(graph, &graph->nodes[graph->values[tie.saved].source])[0];
    }
    b->ties[b->tie_count++] = tie;
    return DYCL_OK;
}

/* ---- Which operators lie between */

int dycl_backward_leads(const dycl_backward *b, uint32_t value) {
    return b->reaches[value] == LEADS || b->reaches[value] == WANTED;
}

int dycl_backward_is_source(const dycl_backward *b, uint32_t value) { return b->reaches[value] == WANTED; }

uint32_t dycl_backward_base(const dycl_backward *b, uint32_t value) {
    const dycl_graph *graph = b->job->graph;
    while (graph->values[value].root != value) {
        value = dycl_node_operands(graph, &graph->nodes[graph->values[value].source])[0];
        if (is_source(b, value)) break;
    }
    return value;
}

static void mark(dycl_backward *b) {
    const dycl_backward_job *job = b->job;
    const dycl_graph *graph = job->graph;
    for (uint32_t i = 0; i < job->source_count; i++)
        b->reaches[job->sources[i]] = !job->wanted || job->wanted[i] ? WANTED : ENDS;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const dycl_node *node = &graph->nodes[n];
        const uint32_t *operands = dycl_node_operands(graph, node);
        if (b->reaches[node->out] || !job->tracked[node->out]) continue;
        for (int i = 0; i < node->operand_count; i++)
            if (operands[i] != DYCL_NONE && dycl_backward_leads(b, operands[i])) b->reaches[node->out] = LEADS;
    }
    for (uint32_t n = graph->node_count; n-- > 0;) {
        const uint32_t *operands = dycl_node_operands(graph, &graph->nodes[n]);
        for (int i = 0; i < graph->nodes[n].operand_count; i++)
            if (operands[i] != DYCL_NONE) b->reader[graph->values[operands[i]].root] = n;
    }
}

/* ---- Building */

static int differentiable(const dycl_value *v) { return v->dtype == DYCL_F32 || v->dtype == DYCL_F64; }

static dycl_status join(dycl_backward *b, uint32_t root) {
    dycl_status status = dycl_backward_join_shares(b, root);
    if (status == DYCL_OK) status = dycl_backward_join(b, root);
    return status == DYCL_OK ? dycl_backward_settle(b, root) : status;
}

/* What comes from no element is zero: kernels need not know of such shapes. */
static void give_nothing(dycl_chain *c) {
    c->status = DYCL_OK;
    for (int i = 0; i < c->node->operand_count; i++)
        if (dycl_chain_wants(c, i)) dycl_chain_give(c, i, dycl_chain_zeros(c, dycl_chain_operand(c, i)));
}

static dycl_status step_back(dycl_backward *b, const dycl_node *node) {
    const dycl_graph *graph = b->job->graph;
    dycl_status status;
    if (b->reaches[node->out] != LEADS) return DYCL_OK;
    if (graph->values[node->out].root == node->out) DYCL_TRY(join(b, node->out));
    if (b->gradient[node->out] == DYCL_NONE) return DYCL_OK;
    dycl_formula formula = formulas[node->op];
    if (!formula || !differentiable(&graph->values[node->out])) return dycl_build_bail(&b->recorder, DYCL_BAIL_grad);
    dycl_chain c = {.b = b,
                    .node = node,
                    .operands = dycl_node_operands(graph, node),
                    .attrs = dycl_node_attrs(graph, node),
                    .gradient = b->gradient[node->out],
                    .status = DYCL_OK};
    dycl_backward_release(b, c.gradient);
    formula(&c);
    if (c.status == DYCL_BAIL && dycl_value_numel(&graph->values[node->out]) == 0) give_nothing(&c);
    return c.status;
fail:
    return status;
}

/* Sources that no operator further back reads, or views of them, have all that will come: their gradients are computed
 * here. Where all of them waited for the end, what they are made of (a matrix for each layer) lived that long. */
static dycl_status close_sources(dycl_backward *b, uint32_t nth) {
    const dycl_graph *graph = b->job->graph;
    const dycl_node *node = &graph->nodes[nth];
    const uint32_t *operands = dycl_node_operands(graph, node);
    dycl_status status = DYCL_OK;
    for (int i = 0; i < node->operand_count && status == DYCL_OK; i++) {
        if (operands[i] == DYCL_NONE) continue;
        uint32_t root = graph->values[operands[i]].root;
        if (b->reaches[root] == WANTED && b->reader[root] == nth) status = join(b, root);
    }
    return status;
}

/* As it lies, perhaps a view: torch's AccumulateGrad lays gradients out where that matters. */
static dycl_status finish_source(dycl_backward *b, uint32_t nth) {
    uint32_t source = b->job->sources[nth], *out = &b->gradients[nth];
    dycl_status status;
    if (b->reaches[source] != WANTED) return DYCL_OK;
    DYCL_TRY(join(b, source));
    if (b->gradient[source] == DYCL_NONE) return DYCL_OK;
    *out = b->gradient[source];
    const dycl_value *root = &b->recorder.graph.values[b->recorder.graph.values[*out].root];
    if (root->kind == DYCL_VALUE_FEED && root->source >= b->job->result_count) { /* what was saved is not given away */
        int64_t keep = 1;
        DYCL_TRY(dycl_build_node(&b->recorder, DYCL_OP_contiguous, 1, out, 1, &keep, out));
    }
    return DYCL_OK;
fail:
    return status;
}

/* What a recurrence keeps beside its states has their operands, through which gradients came. Lengths of a weight norm
 * hand nothing on, in torch too. */
static int is_beside(const dycl_graph *graph, uint32_t value) {
    const dycl_node *node = &graph->nodes[graph->values[value].source];
    return (node->op == DYCL_OP_recurrent && dycl_node_attrs(graph, node)[2]) ||
           (node->op == DYCL_OP_aten_weight_norm_interface && dycl_node_attrs(graph, node)[0] == 1);
}

static int is_open(const dycl_backward *b) {
    for (uint32_t i = 0; i < b->saved_count; i++)
        if (b->taken[b->saved[i]] & DYCL_TAKEN_ITSELF && b->reaches[b->saved[i]] == LEADS &&
            b->gradient[b->saved[i]] == DYCL_NONE && !is_beside(b->job->graph, b->saved[i]))
            return 1;
    return 0;
}

static dycl_status allocate(dycl_backward *b) {
    uint32_t values = b->job->graph->value_count + 1;
    b->image = dycl_alloc(values * sizeof *b->image);
    b->gradient = dycl_alloc(values * sizeof *b->gradient);
    b->saved = dycl_alloc(values * sizeof *b->saved);
    b->detached = dycl_alloc(values * sizeof *b->detached);
    b->gradients = dycl_alloc((b->job->source_count + 1) * sizeof *b->gradients);
    b->numbers = dycl_alloc((b->job->graph->scalar_count + 1) * sizeof *b->numbers);
    b->reaches = dycl_alloc_zero(values);
    b->awaited = dycl_alloc_zero(values * sizeof *b->awaited);
    b->taken = dycl_alloc_zero(values);
    b->itself = dycl_alloc_zero(values);
    b->reader = dycl_alloc_zero(values * sizeof *b->reader);
    if (!b->numbers || !b->image || !b->gradient || !b->saved || !b->gradients || !b->reaches || !b->taken ||
        !b->detached || !b->reader || !b->awaited || !b->itself)
        return dycl_error_set("out of memory for %u gradients", values);
    memset(b->image, 0xff, values * sizeof *b->image);
    memset(b->gradient, 0xff, values * sizeof *b->gradient);
    memset(b->gradients, 0xff, (b->job->source_count + 1) * sizeof *b->gradients);
    return DYCL_OK;
}

dycl_status dycl_backward_build(dycl_backward *b, const dycl_backward_job *job) {
    const dycl_graph *graph = job->graph;
    dycl_status status;
    b->job = job;
    DYCL_TRY(allocate(b));
    mark(b);
    for (uint32_t i = 0; i < job->result_count; i++) {
        uint32_t in;
        const dycl_value *v = &graph->values[job->results[i]];
        DYCL_TRY(feed(b, v, job->given ? job->given[i] : v->strides, &in));
        if (dycl_backward_leads(b, job->results[i])) DYCL_TRY(dycl_backward_accumulate(b, job->results[i], in));
    }
    for (uint32_t n = graph->node_count; n-- > 0;) {
        DYCL_TRY(step_back(b, &graph->nodes[n]));
        DYCL_TRY(close_sources(b, n));
    }
    for (uint32_t i = 0; i < job->source_count; i++) DYCL_TRY(finish_source(b, i));
    b->open = is_open(b);
fail:
    free_scratch(b);
    return status;
}

/* ---- What is kept for it */

static int touches(const dycl_graph *graph, const dycl_node *node, uint32_t value) {
    const uint32_t *operands = dycl_node_operands(graph, node);
    if (node->out == value) return 1;
    for (int i = 0; i < node->operand_count; i++)
        if (operands[i] != DYCL_NONE && graph->values[operands[i]].root == value) return 1;
    return 0;
}

/* One operator alone; its operands are the sources, which are answered with their number. */
static dycl_status build_one(dycl_backward *b, const dycl_graph *graph, const dycl_scalar *numbers,
                             const uint8_t *tracked, const dycl_node *node, uint32_t *out_count) {
    const uint32_t *operands = dycl_node_operands(graph, node);
    uint32_t sources[DYCL_MAX_OPERANDS], count = 0;
    for (int i = 0; i < node->operand_count; i++)
        if (operands[i] != DYCL_NONE && tracked[operands[i]]) sources[count++] = operands[i];
    dycl_backward_job job = {.graph = graph,
                             .numbers = numbers,
                             .tracked = tracked,
                             .results = &node->out,
                             .sources = sources,
                             .result_count = 1,
                             .source_count = count};
    *out_count = count;
    dycl_backward_init(b);
    return dycl_backward_build(b, &job);
}

int dycl_grad_has_for(const dycl_graph *graph, const dycl_scalar *numbers, const uint8_t *tracked,
                      const dycl_node *node) {
    dycl_backward b;
    uint32_t count;
    dycl_status status = build_one(&b, graph, numbers, tracked, node, &count);
    int has = status == DYCL_OK;
    for (uint32_t i = 0; i < count && has; i++) has = b.gradients[i] != DYCL_NONE;
    dycl_backward_free(&b);
    return status == DYCL_ERROR ? -1 : has;
}

static int node_keeps(const dycl_graph *graph, const dycl_scalar *numbers, const uint8_t *tracked,
                      const dycl_node *node, uint32_t value) {
    dycl_backward b;
    uint32_t count;
    int keeps = build_one(&b, graph, numbers, tracked, node, &count) != DYCL_OK;
    for (uint32_t i = 0; i < b.saved_count && !keeps; i++) keeps = b.saved[i] == value;
    dycl_backward_free(&b);
    return keeps;
}

int dycl_grad_keeps(const dycl_graph *graph, const dycl_scalar *numbers, const uint8_t *tracked, uint32_t value,
                    uint32_t end) {
    uint32_t first = graph->values[value].kind == DYCL_VALUE_NODE ? graph->values[value].source : 0;
    for (uint32_t n = first; n < end; n++) {
        const dycl_node *node = &graph->nodes[n];
        if (tracked[node->out] && touches(graph, node, value) && node_keeps(graph, numbers, tracked, node, value))
            return 1;
    }
    return 0;
}
