#include "exec/builder/builder.h"
#include "kern/parallel.h"
#include "kern/recurrent_back.h"

/* One direction of a recurrent layer, back through time. Rows of the batch are shared among threads, which then need
 * not wait for each other; the weights are packed once for all steps. */

typedef struct {
    dycl_recurrent_back r;
    dycl_ref kept, weights, states, c, g, to, packed, scratch;
    int64_t w_row;
    int threads;
} recurrent_args;

static dycl_status run(const dycl_step *step, dycl_plan *plan) {
    const recurrent_args *a = step->args;
    dycl_recurrent_back r = a->r;
    int gated = r.kind == DYCL_RECURRENT_LSTM || r.kind == DYCL_RECURRENT_GRU;
    float *packed = dycl_at(plan, a->packed), *scratch = dycl_at(plan, a->scratch);
    dycl_small_pack(r.product, packed, dycl_at(plan, a->weights), a->w_row, 1, r.width, r.gates);
    r.packed = packed;
    r.kept = gated ? dycl_at(plan, a->kept) : NULL;
    r.states = r.kind == DYCL_RECURRENT_LSTM ? NULL : dycl_at(plan, a->states);
    r.c = r.kind == DYCL_RECURRENT_LSTM ? dycl_at(plan, a->c) : NULL;
    r.g = dycl_at(plan, a->g);
    r.dx = r.by_state = dycl_at(plan, a->to);
    r.dh = r.dx + r.steps * r.batch * r.gates;
    if (r.kind == DYCL_RECURRENT_LSTM) r.dc = r.dh + r.batch * r.width;
    if (r.kind == DYCL_RECURRENT_GRU) r.by_state = r.dh + r.batch * r.width;
    size_t room = dycl_recurrent_back_scratch(&r, (r.batch + a->threads - 1) / a->threads);
    if (a->threads < 2) {
        dycl_recurrent_back_rows(&r, 0, r.batch, scratch);
        return DYCL_OK;
    }
#pragma omp parallel for num_threads(a->threads) schedule(static, 1)
    for (int i = 0; i < a->threads; i++)
        dycl_recurrent_back_rows(&r, r.batch * i / a->threads, r.batch * (i + 1) / a->threads,
                                 scratch + (size_t)i * room);
    return DYCL_OK;
}

static void kernels(dycl_recurrent_back *r) {
    dycl_isa isa = dycl_cpu_isa();
    r->product = dycl_kern_small(isa);
    r->row = dycl_kern_recurrent_row(isa);
    r->add = dycl_kern_ew(isa, DYCL_EW_add, DYCL_F32, 0);
    r->tanh = dycl_kern_ew(isa, DYCL_EW_tanh, DYCL_F32, 0);
}

/* The operands, contiguous where they are; the weights' rows may be apart. They are read behind the copies that all of
 * them may need: copies live until the next step. */
static dycl_status operands_of(dycl_builder *b, const uint32_t operands[5], recurrent_args *a, dycl_tensor *w) {
    dycl_ref *refs[5] = {&a->kept, &a->weights, &a->states, &a->c, &a->g};
    dycl_tensor all[5];
    dycl_status status;
    for (int i = 0; i < 5; i++) {
        if (operands[i] == DYCL_NONE) continue;
        dycl_make_tensor(b, operands[i], &all[i]);
        if (i != 1 || all[i].strides[1] != 1 || all[i].strides[0] < all[i].sizes[1])
            DYCL_TRY(dycl_make_contiguous(b, operands[i], &all[i]));
        *refs[i] = all[i].ref;
    }
    for (int i = 0; i < 5; i++)
        if (operands[i] != DYCL_NONE) dycl_make_read(b, &all[i]);
    *w = all[1];
    return DYCL_OK;
fail:
    return status;
}

dycl_status dycl_steps_recurrent_back(dycl_builder *b, const dycl_block *block) {
    const dycl_graph *graph = &b->program->graph;
    const dycl_node *node = &graph->nodes[block->first];
    const uint32_t *operands = dycl_node_operands(graph, node);
    const int64_t *attrs = dycl_node_attrs(graph, node);
    const dycl_value *of = &graph->values[operands[0] != DYCL_NONE ? operands[0] : operands[2]];
    dycl_tensor w, to;
    dycl_status status;
    recurrent_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    dycl_recurrent_back *r = &a->r;
    kernels(r);
    r->kind = (dycl_recurrent_kind)attrs[0];
    r->reversed = attrs[1] != 0;
    r->steps = of->sizes[0];
    r->batch = of->sizes[1];
    DYCL_TRY(operands_of(b, operands, a, &w));
    a->w_row = w.strides[0];
    r->gates = w.sizes[0];
    r->width = w.sizes[1];
    DYCL_TRY(dycl_make_target(b, node->out, &to));
    a->to = to.ref;
    double flops = 2.0 * (double)(r->steps * r->batch * r->gates) * (double)r->width;
    a->threads = dycl_kern_share((int64_t)flops, DYCL_RECURRENT_WORTH_A_THREAD, r->batch, b->plan->threads);
    size_t room = dycl_recurrent_back_scratch(r, (r->batch + a->threads - 1) / a->threads);
    dycl_make_write(b, &to);
    DYCL_TRY(dycl_make_scratch(b, dycl_small_bytes(r->product, r->width, r->gates), &a->packed));
    DYCL_TRY(dycl_make_scratch(b, (size_t)a->threads * room * sizeof(float), &a->scratch));
    DYCL_TRY(dycl_make_step(b, run, a, "recurrence back", 500 + flops / 60 / a->threads));
    return dycl_make_finish(b, node->out, &to);
fail:
    return status;
}
