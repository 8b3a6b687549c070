/* Formulas of operators that formulas are made of, for gradients that are differentiated themselves
 * (create_graph=True). They are those of torch's backward functions, as tools/autograd/derivatives.yaml has them.
 *
 * g: the first operand, a gradient that came; x: the second, what the function was called with (or its result, y); gg:
 * the gradient of what was made of them. */
#include <math.h>

#include "grad/formula.h"
#include "ir/infer.h"

#define GG               c->gradient
#define G                dycl_chain_take(c, 0)
#define X                dycl_chain_take(c, 1)
#define ADD(a, b)        dycl_chain_2(c, DYCL_OP_add, a, b)
#define SUB(a, b)        dycl_chain_2(c, DYCL_OP_sub, a, b)
#define MUL(a, b)        dycl_chain_2(c, DYCL_OP_mul, a, b)
#define ONE(op, a)       dycl_chain_1(c, DYCL_OP_##op, a)
#define NEG(a)           ONE(neg, a)
#define SQUARE(a)        ONE(square, a)
#define PLUS(a, number)  dycl_chain_number(c, DYCL_OP_add, a, number)
#define TIMES(a, number) dycl_chain_number(c, DYCL_OP_mul, a, number)
#define SUM(a, dims)     dycl_chain_reduce(c, DYCL_OP_sum, a, dims)

/* ---- Activations */

/* The operator is linear in g. */
static void give_through(dycl_chain *c) {
    uint32_t operands[3] = {GG, X, c->node->operand_count == 3 ? dycl_chain_take(c, 2) : 0};
    if (dycl_chain_wants(c, 0))
        dycl_chain_give(c, 0, dycl_chain_node(c, (dycl_op)c->node->op, c->node->operand_count, operands, 0, NULL));
}

/* Between bends it does not change with x: torch gives zeros, which parameters get instead of nothing. */
static void give_zeros(dycl_chain *c) {
    if (dycl_chain_wants(c, 1)) dycl_chain_give(c, 1, dycl_chain_zeros(c, dycl_chain_operand(c, 1)));
}

void dycl_grad_straight(dycl_chain *c) {
    if (c->node->operand_count == 3 && dycl_chain_wants(c, 2)) dycl_chain_fail(c);
    give_through(c);
    give_zeros(c);
}

/* slope: how the operator changes with x, for a gradient of one. */
static void give_bent(dycl_chain *c, uint32_t slope) {
    give_through(c);
    if (dycl_chain_wants(c, 1)) dycl_chain_give(c, 1, MUL(MUL(GG, G), slope));
}

/* (2 - x^2) exp(-x^2 / 2) / sqrt(2 pi) */
void dycl_grad_gelu_grad(dycl_chain *c) {
    uint32_t square = SQUARE(X), density = TIMES(ONE(exp, TIMES(square, -0.5)), 0.39894228040143267794);
    give_bent(c, MUL(PLUS(NEG(square), 2), density));
}

/* t = tanh(u), u = b (x + k x^3): (1 - t^2) (u' + x u'' / 2 - x t u'^2) */
void dycl_grad_gelu_tanh_grad(dycl_chain *c) {
    const double b = 0.79788456080286535588, k = 0.044715;
    uint32_t x = X, square = SQUARE(x), t = ONE(tanh, MUL(PLUS(TIMES(square, b * k), b), x));
    uint32_t first = PLUS(TIMES(square, 3 * b * k), b), half_second = TIMES(x, 3 * b * k);
    uint32_t bend = SUB(ADD(first, MUL(x, half_second)), MUL(MUL(x, t), SQUARE(first)));
    give_bent(c, MUL(PLUS(NEG(SQUARE(t)), 1), bend));
}

/* s = sigmoid(x): s (1 - s) (2 + x (1 - 2 s)) */
void dycl_grad_silu_grad(dycl_chain *c) {
    uint32_t x = X, s = ONE(sigmoid, x), slope = MUL(PLUS(NEG(s), 1), s);
    give_bent(c, MUL(slope, PLUS(MUL(x, PLUS(TIMES(s, -2), 1)), 2)));
}

/* s (s - 1) */
void dycl_grad_logsigmoid_grad(dycl_chain *c) {
    uint32_t s = ONE(sigmoid, X);
    give_bent(c, MUL(PLUS(s, -1), s));
}

/* Where the condition holds, as torch multiplies. */
static uint32_t where_true(dycl_chain *c, uint32_t condition, uint32_t like) {
    return dycl_chain_cast(c, condition, c->status == DYCL_OK ? (dycl_dtype)dycl_chain_meta(c, like)->dtype : DYCL_F32);
}

static uint32_t compare(dycl_chain *c, dycl_op op, uint32_t a, double number) {
    return dycl_chain_number(c, op, a, number);
}

/* A third between -3 and 3 */
void dycl_grad_hardswish_grad(dycl_chain *c) {
    uint32_t x = X,
             inside = dycl_chain_2(c, DYCL_OP_logical_and, compare(c, DYCL_OP_gt, x, -3), compare(c, DYCL_OP_lt, x, 3));
    give_through(c);
    if (dycl_chain_wants(c, 1))
        dycl_chain_give(c, 1, dycl_chain_keep(c, inside, dycl_chain_number(c, DYCL_OP_div, MUL(GG, G), 3)));
}

/* x: by beta */
void dycl_grad_softplus_grad(dycl_chain *c) {
    if (dycl_chain_wants(c, 2)) dycl_chain_fail(c);
    uint32_t x = X, s = ONE(sigmoid, x), below = dycl_chain_2(c, DYCL_OP_lt, x, dycl_chain_take(c, 2));
    give_bent(c, MUL(MUL(PLUS(NEG(s), 1), s), where_true(c, below, x)));
}

/* Below zero the operator is exponential in x, above it is straight. rate: of the exponent, a number or nothing. */
static void exponential(dycl_chain *c, uint32_t rate) {
    uint32_t x = X, made = MUL(GG, G), zero = dycl_chain_constant(c, x, 0);
    uint32_t operands[3] = {made, x, c->node->operand_count == 3 ? dycl_chain_take(c, 2) : 0};
    give_through(c);
    if (!dycl_chain_wants(c, 1)) return;
    if (rate != DYCL_NONE) operands[0] = dycl_chain_2(c, DYCL_OP_div, made, rate);
    uint32_t bend = dycl_chain_node(c, (dycl_op)c->node->op, c->node->operand_count, operands, 0, NULL);
    dycl_chain_give(c, 1, MUL(bend, where_true(c, dycl_chain_2(c, DYCL_OP_lt, x, zero), x)));
}

void dycl_grad_selu_grad(dycl_chain *c) { exponential(c, DYCL_NONE); }

void dycl_grad_elu_grad(dycl_chain *c) {
    if (dycl_chain_wants(c, 2)) dycl_chain_fail(c);
    exponential(c, DYCL_NONE);
}

void dycl_grad_celu_grad(dycl_chain *c) {
    if (dycl_chain_wants(c, 2)) dycl_chain_fail(c);
    exponential(c, dycl_chain_take(c, 2));
}

/* ---- Rows: g, y; attribute: the dimension */

static uint32_t row_dims(const dycl_chain *c) { return UINT32_C(1) << c->attrs[0]; }

static uint32_t row_through(dycl_chain *c) {
    uint32_t operands[2] = {GG, X};
    return dycl_chain_node(c, (dycl_op)c->node->op, 2, operands, 1, c->attrs);
}

/* g gg - gg sum(y g) - g sum(y gg) */
void dycl_grad_softmax_back(dycl_chain *c) {
    if (dycl_chain_wants(c, 0)) dycl_chain_give(c, 0, row_through(c));
    if (!dycl_chain_wants(c, 1)) return;
    uint32_t g = G, y = X, dims = row_dims(c);
    uint32_t first = SUB(MUL(g, GG), MUL(SUM(MUL(y, g), dims), GG));
    dycl_chain_give(c, 1, SUB(first, MUL(g, SUM(MUL(y, GG), dims))));
}

/* gg - sum(gg exp(y)), -sum(g) exp(y) gg */
void dycl_grad_log_softmax_back(dycl_chain *c) {
    uint32_t e = ONE(exp, X), dims = row_dims(c);
    if (dycl_chain_wants(c, 0)) dycl_chain_give(c, 0, SUB(GG, SUM(MUL(GG, e), dims)));
    if (dycl_chain_wants(c, 1)) dycl_chain_give(c, 1, MUL(MUL(NEG(SUM(G, dims)), e), GG));
}

/* ---- Pools: x, of which only the sizes count or which element is the largest, g */

static void give_pool_zeros(dycl_chain *c) {
    if (dycl_chain_wants(c, 0)) dycl_chain_give(c, 0, dycl_chain_zeros(c, dycl_chain_operand(c, 0)));
}

static void mean(dycl_chain *c, dycl_op op, int attr_count) {
    uint32_t gg = GG;
    if (dycl_chain_wants(c, 1)) dycl_chain_give(c, 1, dycl_chain_node(c, op, 1, &gg, attr_count, c->attrs));
    give_pool_zeros(c);
}

void dycl_grad_avg_pool2d_back(dycl_chain *c) { mean(c, DYCL_OP_avg_pool2d, 8); }
void dycl_grad_adaptive_avg_pool2d_back(dycl_chain *c) { mean(c, DYCL_OP_adaptive_avg_pool2d, 2); }
