#include "exec/builder/builder.h"
#include "kern/parallel.h"
#include "kern/recurrent.h"

#include <string.h>

/* One direction of a recurrent layer. The weights are packed, once for all runs where they are constant, else once for
 * all steps of a run; the rows of the batch are shared among threads, which then need not wait for each other. */

typedef struct {
    dycl_recurrent r;
    dycl_ref x, weights, bias, h, c, to, kept, packed, scratch;
    int64_t w_row;
    int has_bias, keeps, threads; /* keeps: result 1 is wanted */
    dycl_packing *packing;
} recurrent_args;

static dycl_status recurrent_run(const dycl_step *step, dycl_plan *plan) {
    const recurrent_args *a = step->args;
    dycl_recurrent r = a->r;
    const void *packed = NULL;
    if (a->packing) {
        dycl_status status = dycl_packing_get(plan, a->packing, NULL, &packed);
        if (status != DYCL_OK) return status;
    }
    if (!packed) {
        packed = dycl_at(plan, a->packed);
        dycl_small_pack(r.product, dycl_at(plan, a->packed), dycl_at(plan, a->weights), 1, a->w_row, r.gates, r.width);
    }
    r.packed = packed;
    r.x = dycl_at(plan, a->x);
    r.bias = a->has_bias ? dycl_at(plan, a->bias) : NULL;
    r.h = dycl_at(plan, a->h);
    r.states = dycl_at(plan, a->to);
    if (r.kind == DYCL_RECURRENT_LSTM) {
        r.c = dycl_at(plan, a->c);
        r.last = r.states + r.steps * r.batch * r.width;
    }
    if (a->keeps) r.kept = dycl_at(plan, a->kept);
    float *scratch = dycl_at(plan, a->scratch);
    size_t room = dycl_recurrent_scratch(&r, (r.batch + a->threads - 1) / a->threads);
    if (a->threads < 2) {
        dycl_recurrent_rows(&r, 0, r.batch, scratch);
        return DYCL_OK;
    }
#pragma omp parallel for num_threads(a->threads) schedule(static, 1)
    for (int i = 0; i < a->threads; i++)
        dycl_recurrent_rows(&r, r.batch * i / a->threads, r.batch * (i + 1) / a->threads, scratch + (size_t)i * room);
    return DYCL_OK;
}

static void kernels(dycl_recurrent *r) {
    dycl_isa isa = dycl_cpu_isa();
    r->product = dycl_kern_small(isa);
    r->add = dycl_kern_ew(isa, DYCL_EW_add, DYCL_F32, 0);
    r->sub = dycl_kern_ew(isa, DYCL_EW_sub, DYCL_F32, 0);
    r->mul = dycl_kern_ew(isa, DYCL_EW_mul, DYCL_F32, 0);
    r->sigmoid = dycl_kern_ew(isa, DYCL_EW_sigmoid, DYCL_F32, 0);
    r->tanh = dycl_kern_ew(isa, DYCL_EW_tanh, DYCL_F32, 0);
    r->relu = dycl_kern_ew(isa, DYCL_EW_relu, DYCL_F32, 0);
}

/* The node of the same call that wants the other result; NULL: none does. */
static const dycl_node *sibling(const dycl_builder *b, const dycl_node *node) {
    const dycl_graph *g = &b->program->graph;
    const int64_t *attrs = dycl_node_attrs(g, node);
    for (uint32_t n = 0; n < g->node_count; n++) {
        const dycl_node *other = &g->nodes[n];
        if (b->program->dead[n] || other->op != node->op || b->slots[other->out].first != DYCL_NONE) continue;
        const int64_t *words = dycl_node_attrs(g, other);
        if (words[0] == attrs[0] && words[1] == attrs[1] && words[2] != attrs[2] &&
            !memcmp(dycl_node_operands(g, other), dycl_node_operands(g, node), node->operand_count * sizeof(uint32_t)))
            return other;
    }
    return NULL;
}

static dycl_status operands_of(dycl_builder *b, const dycl_node *node, recurrent_args *a, dycl_tensor *w) {
    const uint32_t *operands = dycl_node_operands(&b->program->graph, node);
    const int64_t *attrs = dycl_node_attrs(&b->program->graph, node);
    dycl_recurrent *r = &a->r;
    dycl_tensor x, bias, h, c;
    dycl_status status;
    a->has_bias = operands[2] != DYCL_NONE;
    DYCL_TRY(dycl_make_contiguous(b, operands[0], &x));
    dycl_make_tensor(b, operands[1], w);
    if (w->strides[1] != 1 || w->strides[0] < w->sizes[1]) DYCL_TRY(dycl_make_contiguous(b, operands[1], w));
    DYCL_TRY(dycl_make_contiguous(b, operands[3], &h));
    kernels(r);
    r->kind = (dycl_recurrent_kind)attrs[0];
    r->reversed = attrs[1] != 0;
    r->steps = x.sizes[0];
    r->batch = x.sizes[1];
    r->gates = w->sizes[0];
    r->width = w->sizes[1];
    a->x = x.ref;
    a->weights = w->ref;
    a->w_row = w->strides[0];
    a->h = h.ref;
    if (a->has_bias) {
        DYCL_TRY(dycl_make_contiguous(b, operands[2], &bias));
        a->bias = bias.ref;
    }
    if (r->kind == DYCL_RECURRENT_LSTM) {
        DYCL_TRY(dycl_make_contiguous(b, operands[4], &c));
        a->c = c.ref;
    }
    dycl_make_read(b, &x); /* behind the copies that all of them may need: they live until the next step */
    dycl_make_read(b, w);
    dycl_make_read(b, &h);
    if (a->has_bias) dycl_make_read(b, &bias);
    if (r->kind == DYCL_RECURRENT_LSTM) dycl_make_read(b, &c);
fail:
    return status;
}

/* Both results of a call, where both are wanted; states that nobody wants are computed into scratch. */
static dycl_status results_of(dycl_builder *b, const dycl_node *node, recurrent_args *a, const dycl_node *of[2],
                              dycl_tensor to[2]) {
    const dycl_recurrent *r = &a->r;
    int second = dycl_node_attrs(&b->program->graph, node)[2] != 0;
    dycl_status status = DYCL_OK;
    of[second] = node;
    of[!second] = sibling(b, node);
    for (int i = 0; i < 2; i++) {
        if (!of[i]) continue;
        DYCL_TRY(dycl_make_target(b, of[i]->out, &to[i]));
        dycl_make_write(b, &to[i]);
        *(i ? &a->kept : &a->to) = to[i].ref;
    }
    a->keeps = of[1] != NULL;
    if (!of[0]) DYCL_TRY(dycl_make_scratch(b, (size_t)((r->steps + 1) * r->batch * r->width) * sizeof(float), &a->to));
fail:
    return status;
}

dycl_status dycl_steps_recurrent(dycl_builder *b, const dycl_block *block) {
    const dycl_node *node = &b->program->graph.nodes[block->first], *of[2] = {0};
    dycl_tensor w, to[2];
    dycl_status status;
    if (b->slots[node->out].first != DYCL_NONE) return DYCL_OK; /* with its sibling */
    recurrent_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    dycl_recurrent *r = &a->r;
    DYCL_TRY(operands_of(b, node, a, &w));
    DYCL_TRY(results_of(b, node, a, of, to));
    double flops = 2.0 * (double)(r->steps * r->batch * r->gates) * (double)r->width;
    a->threads = dycl_kern_share((int64_t)flops, DYCL_RECURRENT_WORTH_A_THREAD, r->batch, b->plan->threads);
    size_t room = dycl_recurrent_scratch(r, (r->batch + a->threads - 1) / a->threads);
    const dycl_weights as = {.kind = DYCL_WEIGHTS_SMALL, .small = {r->product, r->gates, r->width, 1, a->w_row}};
    DYCL_TRY(dycl_make_packing(b, &w, &as, 0, &a->packing));
    DYCL_TRY(dycl_make_scratch(b, dycl_small_bytes(r->product, r->gates, r->width), &a->packed));
    DYCL_TRY(dycl_make_scratch(b, (size_t)a->threads * room * sizeof(float), &a->scratch));
    DYCL_TRY(dycl_make_step(b, recurrent_run, a, "recurrence", 500 + flops / 60 / a->threads));
    for (int i = 0; i < 2; i++)
        if (of[i]) DYCL_TRY(dycl_make_finish(b, of[i]->out, &to[i]));
    return DYCL_OK;
fail:
    return status;
}
