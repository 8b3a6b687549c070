/* Normalisations, composed of passes over rows: n = (x - mean) * scale, y = n * weight + bias.
 *
 * torch computes the gradients of a norm in one function and saves what that reads: so does each formula, whatever is
 * wanted, because what was saved and then written is an error of the backward pass. Each gradient has the history of
 * all that the function reads. */
#include "grad/formula.h"

#define MUL(a, b)             dycl_chain_2(c, DYCL_OP_mul, a, b)
#define ADD(a, b)             dycl_chain_2(c, DYCL_OP_add, a, b)
#define SUB(a, b)             dycl_chain_2(c, DYCL_OP_sub, a, b)
#define MEAN(a, dims)         dycl_chain_reduce(c, DYCL_OP_mean, a, dims)
#define NUMBER(op, a, number) dycl_chain_number(c, DYCL_OP_##op, a, number)
#define RSQRT(a)              dycl_chain_1(c, DYCL_OP_rsqrt, a)

static uint32_t trailing(int rank, int64_t count) { /* a mask of so many last dimensions */
    return ((UINT32_C(1) << rank) - 1) & ~((UINT32_C(1) << (rank - (int)count)) - 1);
}

static uint32_t weighted(dycl_chain *c, int nth) {
    return c->operands[nth] == DYCL_NONE ? c->gradient : MUL(c->gradient, dycl_chain_take(c, nth));
}

static void save(dycl_chain *c, int nth) {
    if (c->operands[nth] != DYCL_NONE) dycl_chain_take(c, nth);
}

static uint32_t rows_scale(dycl_chain *c, uint32_t centred, uint32_t dims, double eps) {
    return RSQRT(NUMBER(add, MEAN(dycl_chain_1(c, DYCL_OP_square, centred), dims), eps));
}

/* These rows: the normalised dimensions as one. */
static uint32_t as_rows(dycl_chain *c, uint32_t a, int64_t count) {
    const dycl_value *v = dycl_chain_meta(c, a);
    int64_t sizes[2] = {1, 1};
    if (count == 1) return a;
    for (int i = 0; i < v->rank; i++) sizes[i >= v->rank - count] *= v->sizes[i];
    return dycl_chain_reshape(c, a, 2, sizes);
}

/* The gradient of x, from g, that of what it is normalised to. As torch's kernel, it writes rows one behind the
 * other. */
static uint32_t rows_back(dycl_chain *c, dycl_op op, uint32_t g, uint32_t x) {
    const dycl_value *like = dycl_chain_operand(c, 0);
    uint32_t operands[2] = {as_rows(c, g, c->attrs[0]), as_rows(c, x, c->attrs[0])};
    int64_t attrs[2] = {c->attrs[0] == 1 ? like->rank - 1 : 1, c->attrs[1]};
    uint32_t back = dycl_chain_node(c, op, 2, operands, 2, attrs);
    return dycl_chain_contiguous(c, c->attrs[0] == 1 ? back : dycl_chain_reshape(c, back, like->rank, like->sizes));
}

/* As torch's kernel answers: channels last, if the image is, else contiguous. */
static void give_image(dycl_chain *c, uint32_t gradient) {
    const dycl_value *x = dycl_chain_operand(c, 0);
    dycl_value form = dycl_chain_formatted(x, x);
    dycl_chain_give(c, 0, dycl_chain_laid(c, gradient, &form));
}

/* What the gradients of x, weight and bias are made of in one step (group_norm_back): x and the gradient are seen as
 * [n, c, inner], once, because their nodes are known by their operands. */
typedef struct {
    uint32_t operands[3];
    int64_t groups, eps;
} group_call;

static group_call groups_of(dycl_chain *c, const int64_t sizes[3], int64_t groups, int64_t eps) {
    group_call call = {{dycl_chain_reshape(c, c->gradient, 3, sizes),
                        dycl_chain_reshape(c, dycl_chain_take(c, 0), 3, sizes), DYCL_NONE},
                       groups,
                       eps};
    if (c->operands[1] != DYCL_NONE) call.operands[2] = dycl_chain_reshape(c, dycl_chain_take(c, 1), 1, &sizes[1]);
    return call;
}

static void give_of_groups(dycl_chain *c, const group_call *call, int nth) {
    int64_t attrs[3] = {nth, call->groups, call->eps};
    if (!dycl_chain_wants(c, nth)) return;
    const dycl_value *like = dycl_chain_operand(c, nth);
    uint32_t back = dycl_chain_node(c, DYCL_OP_group_norm_back, 3, call->operands, 3, attrs);
    back = dycl_chain_contiguous(c, dycl_chain_reshape(c, back, like->rank, like->sizes));
    if (nth == 0 && c->node->op != DYCL_OP_layer_norm)
        give_image(c, back);
    else
        dycl_chain_give(c, nth, back);
}

/* x, weight*, bias*: as a group norm whose channels are a row's elements, and where only x learns as a row operator,
 * which joins with what is elementwise. */
void dycl_grad_layer_norm(dycl_chain *c) {
    const dycl_value *like = dycl_chain_operand(c, 0);
    uint32_t x = dycl_chain_take(c, 0);
    save(c, 1);
    save(c, 2);
    c->tied_nothing = 1;
    for (int i = 0; i < 3; i++) dycl_chain_tie(c, i);
    if (dycl_chain_wants(c, 1) || dycl_chain_wants(c, 2)) {
        int64_t sizes[3] = {1, 1, 1};
        for (int i = 0; i < like->rank; i++) sizes[i >= like->rank - c->attrs[0]] *= like->sizes[i];
        group_call call = groups_of(c, sizes, 0, c->attrs[1]);
        for (int i = 0; i < 3; i++) give_of_groups(c, &call, i);
    } else if (dycl_chain_wants(c, 0))
        dycl_chain_give(c, 0, rows_back(c, DYCL_OP_layer_norm_back, weighted(c, 1), x));
}

/* x, weight*: without a mean. Of an x without a history torch saves what it became, in a tensor of its own. torch
 * composes it, so that gradients lie as what they are made of. */
void dycl_grad_rms_norm(dycl_chain *c) {
    uint32_t dims = trailing(dycl_chain_operand(c, 0)->rank, c->attrs[0]);
    uint32_t x = dycl_chain_take_as(c, 0, !c->b->job->tracked[c->operands[0]]);
    if (dycl_chain_is_plain(dycl_chain_operand(c, 0)) && dycl_chain_is_plain(dycl_chain_meta(c, c->gradient))) {
        if (dycl_chain_wants(c, 0)) dycl_chain_give(c, 0, rows_back(c, DYCL_OP_rms_norm_back, weighted(c, 1), x));
        const uint32_t plain[2] = {x, DYCL_NONE};
        if (dycl_chain_wants(c, 1))
            dycl_chain_give(c, 1, MUL(c->gradient, dycl_chain_node(c, DYCL_OP_rms_norm, 2, plain, 2, c->attrs)));
        return;
    }
    uint32_t scale = rows_scale(c, x, dims, dycl_attr_f64(c->attrs[1])), n = MUL(x, scale);
    if (dycl_chain_wants(c, 0)) {
        uint32_t g = weighted(c, 1);
        dycl_chain_give(c, 0, MUL(scale, SUB(g, MUL(n, MEAN(MUL(g, n), dims)))));
    }
    if (dycl_chain_wants(c, 1)) dycl_chain_give(c, 1, MUL(c->gradient, n));
}

/* A vector with an element a channel, beside [n, c, ...]. */
static uint32_t channels(dycl_chain *c, uint32_t vector) {
    const dycl_value *x = dycl_chain_operand(c, 0);
    int64_t sizes[DYCL_MAX_RANK];
    for (int i = 0; i < x->rank; i++) sizes[i] = i == 1 ? x->sizes[1] : 1;
    return dycl_chain_reshape(c, vector, x->rank, sizes);
}

static void give_channels(dycl_chain *c, int nth, uint32_t gradient) {
    const dycl_value *x = dycl_chain_operand(c, 0);
    if (!dycl_chain_wants(c, nth)) return;
    uint32_t sum = dycl_chain_reduce(c, DYCL_OP_sum, gradient, ((UINT32_C(1) << x->rank) - 1) & ~UINT32_C(2));
    dycl_chain_give(c, nth, dycl_chain_reshape(c, sum, 1, &x->sizes[1]));
}

/* x, weight*, bias* */
static void group_norm(dycl_chain *c, int64_t groups, int64_t eps) {
    const dycl_value *like = dycl_chain_operand(c, 0);
    int64_t sizes[3] = {like->sizes[0], like->sizes[1], 1};
    for (int i = 2; i < like->rank; i++) sizes[2] *= like->sizes[i];
    group_call call = groups_of(c, sizes, groups, eps);
    give_of_groups(c, &call, 2); /* has no history of the others */
    c->tied_nothing = !dycl_grad_rule.group_norm_ties;
    dycl_chain_tie(c, 1);
    if (dycl_grad_rule.group_norm_ties) { /* through the mean, which torch saves */
        if (c->operands[2] != DYCL_NONE) dycl_chain_take_as(c, 2, 1);
        dycl_chain_tie(c, 0);
        dycl_chain_tie(c, 2);
    } else if (c->operands[1] == DYCL_NONE && c->operands[2] != DYCL_NONE)
        dycl_chain_fail(c); /* torch's cannot be differentiated again */
    for (int i = 0; i < 2; i++) give_of_groups(c, &call, i);
}

void dycl_grad_group_norm(dycl_chain *c) { group_norm(c, c->attrs[0], c->attrs[1]); }

void dycl_grad_hosted_group_norm(dycl_chain *c) {
    const int64_t *given = c->attrs + 3 + 2 * c->attrs[2];
    group_norm(c, given[0], given[1]);
}

/* x, running mean, running variance, weight*, bias*: these statistics are constants */
void dycl_grad_batch_norm(dycl_chain *c) {
    if (dycl_chain_wants(c, 1) || dycl_chain_wants(c, 2)) dycl_chain_fail(c);
    for (int i = 0; i < 4; i++) save(c, i);
    c->tied_nothing = 1;
    dycl_chain_tie(c, 0);
    dycl_chain_tie(c, 3);
    uint32_t scale = RSQRT(NUMBER(add, dycl_chain_take(c, 2), dycl_attr_f64(c->attrs[0])));
    if (dycl_chain_wants(c, 0)) {
        uint32_t factor = c->operands[3] == DYCL_NONE ? scale : MUL(scale, dycl_chain_take(c, 3));
        give_image(c, MUL(c->gradient, channels(c, factor)));
    }
    if (dycl_chain_wants(c, 3)) {
        uint32_t n = MUL(SUB(dycl_chain_take(c, 0), channels(c, dycl_chain_take(c, 1))), channels(c, scale));
        give_channels(c, 3, MUL(c->gradient, n));
    }
    give_channels(c, 4, c->gradient);
}

/* x, mean, 1 / deviation, weight*, bias*. torch saves the running statistics too, which its kernel does not read: a
 * program that writes them before the backward pass gets eager's error. */
void dycl_grad_batch_norm_train(dycl_chain *c) {
    const dycl_graph *segment = c->b->job->graph;
    const dycl_value *mean = dycl_chain_operand(c, 1);
    uint32_t operands[5] = {c->gradient, dycl_chain_take(c, 0), dycl_chain_take(c, 1), dycl_chain_take(c, 2),
                            DYCL_NONE};
    if (c->operands[3] != DYCL_NONE) operands[4] = dycl_chain_take(c, 3);
    for (int i = 1; i < 3 && mean->kind == DYCL_VALUE_NODE; i++) {
        uint32_t running = dycl_node_operands(segment, &segment->nodes[mean->source])[i];
        if (running != DYCL_NONE && segment->values[running].kind == DYCL_VALUE_FEED) dycl_chain_value(c, running);
    }
    for (int i = 0; i < 3; i++) {
        static const int of[3] = {0, 3, 4};
        int64_t attrs[2] = {i, c->attrs[0]};
        if (dycl_chain_wants(c, of[i]))
            dycl_chain_give(c, of[i], dycl_chain_node(c, DYCL_OP_batch_norm_back, 5, operands, 2, attrs));
    }
}
