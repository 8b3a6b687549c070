/* Recurrent layers: the steps go back through time one by one; the weights get one product of all steps. */
#include <string.h>

#include "grad/formula.h"

#define MUL(a, b) dycl_chain_2(c, DYCL_OP_mul, a, b)
#define ADD(a, b) dycl_chain_2(c, DYCL_OP_add, a, b)

typedef struct {
    int64_t steps, batch, width, gates;
} dims;

static uint32_t part(dycl_chain *c, uint32_t flat, int64_t offset, int rank, const int64_t *sizes) {
    int64_t strides[3] = {0};
    uint32_t out = 0;
    for (int i = rank; i-- > 0;) strides[i] = i == rank - 1 ? 1 : strides[i + 1] * sizes[i + 1];
    if (c->status == DYCL_OK) c->status = dycl_build_view(&c->b->recorder, flat, offset, rank, sizes, strides, &out);
    return out;
}

/* The states before each step [t, b, h]. */
static uint32_t states_before(dycl_chain *c, const dims *d, uint32_t states) {
    int reversed = c->attrs[1] != 0;
    int64_t sizes[3] = {1, d->batch, d->width}, along = 0;
    uint32_t first = dycl_chain_reshape(c, dycl_chain_take(c, 3), 3, sizes), all[2] = {first, first};
    if (d->steps == 1 || c->status != DYCL_OK) return first;
    c->status = dycl_build_slice(&c->b->recorder, states, 0, reversed, d->steps - !reversed, 1, &all[!reversed]);
    return dycl_chain_node(c, DYCL_OP_cat, 2, all, 1, &along);
}

/* torch's products give a matrix that lies in columns such a gradient; its oneDNN layers (LSTM) give contiguous ones.
 */
static int lies_in_columns(const dycl_chain *c) {
    const dycl_value *w = dycl_chain_operand(c, 1);
    return c->attrs[0] != DYCL_RECURRENT_LSTM && !(w->strides[1] == 1 && w->strides[0] == w->sizes[1]);
}

static void give_weights(dycl_chain *c, const dims *d, uint32_t by_states, uint32_t before) {
    int64_t rows = d->steps * d->batch, sizes[2] = {rows, d->gates}, widths[2] = {rows, d->width};
    int bias = dycl_chain_wants(c, 2);
    if (dycl_chain_wants(c, 1))
        dycl_chain_give_product(c, 1, bias ? 2 : -1, dycl_chain_reshape(c, by_states, 2, sizes),
                                dycl_chain_reshape(c, before, 2, widths), lies_in_columns(c));
    else if (bias)
        dycl_chain_give(c, 2, by_states);
}

/* The other result of the same call, in the node before or behind; NONE: it is not there. */
static uint32_t find_beside(const dycl_graph *graph, const dycl_node *node, int which) {
    const dycl_node *other = which ? node + 1 : node - 1;
    if (other < graph->nodes || other >= graph->nodes + graph->node_count || other->op != DYCL_OP_recurrent)
        return DYCL_NONE;
    const int64_t *attrs = dycl_node_attrs(graph, node), *others = dycl_node_attrs(graph, other);
    if (memcmp(dycl_node_operands(graph, other), dycl_node_operands(graph, node),
               node->operand_count * sizeof(uint32_t)))
        return DYCL_NONE;
    return others[0] == attrs[0] && others[1] == attrs[1] && others[2] == which ? other->out : DYCL_NONE;
}

static uint32_t beside(const dycl_chain *c, int which) { return find_beside(c->b->job->graph, c->node, which); }

uint32_t dycl_grad_leads_beside(const dycl_graph *graph, const dycl_node *node) {
    int kept = node->op == DYCL_OP_recurrent && dycl_node_attrs(graph, node)[2];
    return kept ? find_beside(graph, node, 0) : DYCL_NONE;
}

/* ---- What is kept: each step's is an expression of what inputs gave and of the state before */

static uint32_t gate(dycl_chain *c, const dims *d, uint32_t of, int nth) {
    uint32_t out = 0;
    if (c->status == DYCL_OK)
        c->status = dycl_build_slice(&c->b->recorder, of, 2, nth * d->width, (nth + 1) * d->width, 1, &out);
    return out;
}

static uint32_t less_than_one(dycl_chain *c, uint32_t y) {
    return dycl_chain_number(c, DYCL_OP_add, dycl_chain_1(c, DYCL_OP_neg, y), 1);
}

static uint32_t through_sigmoid(dycl_chain *c, uint32_t g, uint32_t y) { return MUL(MUL(g, less_than_one(c, y)), y); }
static uint32_t through_tanh(dycl_chain *c, uint32_t g, uint32_t y) { return MUL(g, less_than_one(c, MUL(y, y))); }

/* The gradients of what inputs and of what states gave to the gates [t, b, g * h]. */
static void gates_back(dycl_chain *c, const dims *d, uint32_t *by_inputs, uint32_t *by_states) {
    uint32_t kept = dycl_chain_result(c), y[4], g[4];
    int64_t last = 2;
    for (int i = 0; i < 4; i++) y[i] = gate(c, d, kept, i), g[i] = gate(c, d, c->gradient, i);
    if (c->attrs[0] == DYCL_RECURRENT_LSTM) {
        for (int i = 0; i < 4; i++) g[i] = i == 2 ? through_tanh(c, g[i], y[i]) : through_sigmoid(c, g[i], y[i]);
        *by_inputs = *by_states = dycl_chain_node(c, DYCL_OP_cat, 4, g, 1, &last);
        return;
    }
    g[2] = through_tanh(c, g[2], y[2]); /* tanh(x + reset * fed) */
    g[0] = through_sigmoid(c, ADD(g[0], MUL(g[2], y[3])), y[0]);
    g[1] = through_sigmoid(c, g[1], y[1]);
    *by_inputs = dycl_chain_node(c, DYCL_OP_cat, 3, g, 1, &last);
    g[2] = ADD(g[3], MUL(g[2], y[0]));
    *by_states = dycl_chain_node(c, DYCL_OP_cat, 3, g, 1, &last);
}

/* To the state before each step: the first, and the states of the same call. */
static void give_states(dycl_chain *c, const dims *d, uint32_t states, uint32_t by_states) {
    int reversed = c->attrs[1] != 0;
    uint32_t g = dycl_chain_product(c, by_states, dycl_chain_take(c, 1)), part = 0;
    int64_t row = d->batch * d->width, rest = (d->steps - 1) * row, first = reversed ? d->steps - 1 : 0,
            before = reversed ? row : 0, after = row - before + (c->attrs[0] == DYCL_RECURRENT_LSTM ? row : 0);
    if (c->status == DYCL_OK) c->status = dycl_build_select(&c->b->recorder, g, 0, first, &part);
    if (dycl_chain_wants(c, 3)) dycl_chain_give(c, 3, part);
    if (rest == 0 || c->status != DYCL_OK || !dycl_backward_leads(c->b, states)) return;
    c->status = dycl_build_slice(&c->b->recorder, g, 0, !reversed, d->steps - reversed, 1, &part);
    part = dycl_chain_padded(c, dycl_chain_reshape(c, part, 1, &rest), &before, &after, 1);
    if (c->status == DYCL_OK) c->status = dycl_backward_accumulate(c->b, states, part);
}

static void kept_back(dycl_chain *c, const dims *d) {
    int64_t sizes[3] = {d->steps, d->batch, d->width};
    uint32_t states = beside(c, 0), by_inputs = 0, by_states = 0, before = 0;
    if (states == DYCL_NONE) {
        dycl_chain_fail(c);
        return;
    }
    gates_back(c, d, &by_inputs, &by_states);
    if (dycl_chain_wants(c, 1)) before = states_before(c, d, part(c, dycl_chain_value(c, states), 0, 3, sizes));
    if (dycl_chain_wants(c, 0)) dycl_chain_give(c, 0, by_inputs);
    give_states(c, d, states, by_states);
    give_weights(c, d, by_states, before);
}

/* ---- States and the last cell */

static void states_back(dycl_chain *c, const dims *d) {
    int64_t gates[3] = {d->steps, d->batch, d->gates}, states[3] = {d->steps, d->batch, d->width};
    int lstm = c->attrs[0] == DYCL_RECURRENT_LSTM, gru = c->attrs[0] == DYCL_RECURRENT_GRU;
    int64_t row = d->batch * d->width, all = d->steps * d->batch * d->gates;
    uint32_t kept = lstm || gru ? beside(c, 1) : DYCL_NONE, before = 0;
    uint32_t operands[5] = {DYCL_NONE, dycl_chain_take(c, 1), DYCL_NONE, DYCL_NONE, c->gradient};
    uint32_t after = part(c, dycl_chain_result(c), 0, 3, states);
    if ((lstm || gru) && kept == DYCL_NONE) dycl_chain_fail(c);
    if (gru || dycl_chain_wants(c, 1)) before = states_before(c, d, after);
    if (kept != DYCL_NONE) operands[0] = dycl_chain_value(c, kept);
    if (!lstm) operands[2] = gru ? before : after;
    if (lstm) operands[3] = dycl_chain_take(c, 4);
    uint32_t back = dycl_chain_node(c, DYCL_OP_recurrent_back, 5, operands, 2, c->attrs);
    uint32_t by_inputs = part(c, back, 0, 3, gates);
    if (dycl_chain_wants(c, 0)) dycl_chain_give(c, 0, by_inputs);
    if (dycl_chain_wants(c, 3)) dycl_chain_give(c, 3, part(c, back, all, 2, states + 1));
    if (lstm && dycl_chain_wants(c, 4)) dycl_chain_give(c, 4, part(c, back, all + row, 2, states + 1));
    give_weights(c, d, gru ? part(c, back, all + row, 3, gates) : by_inputs, before);
}

/* what inputs gave [t, b, g * h], weight[g * h, h], bias[g * h]*, first state, first cell* */
void dycl_grad_recurrent(dycl_chain *c) {
    const dycl_value *x = dycl_chain_operand(c, 0), *w = dycl_chain_operand(c, 1);
    const dims d = {x->sizes[0], x->sizes[1], w->sizes[1], w->sizes[0]};
    (c->attrs[2] ? kept_back : states_back)(c, &d);
}
