/* Activations: ATen/native/cpu/Activation.cpp says what happens at the bends. x: the operand, y: the result, g: the
 * result's gradient. */
#include "grad/formula.h"

#define G                      c->gradient
#define X                      dycl_chain_take(c, 0)
#define Y                      dycl_chain_result(c)
#define NEG(a)                 dycl_chain_1(c, DYCL_OP_neg, a)
#define EXP(a)                 dycl_chain_1(c, DYCL_OP_exp, a)
#define SQUARE(a)              dycl_chain_1(c, DYCL_OP_square, a)
#define SIGMOID(a)             dycl_chain_1(c, DYCL_OP_sigmoid, a)
#define ADD(a, b)              dycl_chain_2(c, DYCL_OP_add, a, b)
#define MUL(a, b)              dycl_chain_2(c, DYCL_OP_mul, a, b)
#define DIV(a, b)              dycl_chain_2(c, DYCL_OP_div, a, b)
#define PLUS(a, number)        dycl_chain_number(c, DYCL_OP_add, a, number)
#define COMPARE(op, a, number) dycl_chain_number(c, DYCL_OP_##op, a, number)

/* torch's kernels go over the gradient and the operand once: how these lie decides how the result lies, and not how
 * what is computed here in between lies. */
static void give_iterated(dycl_chain *c, uint32_t gradient, uint32_t first, uint32_t second) {
    dycl_chain_give(c, 0, dycl_chain_iterated(c, gradient, first, second));
}

static void give(dycl_chain *c, uint32_t gradient) { give_iterated(c, gradient, G, X); }

static void give_of_both(dycl_chain *c, dycl_op op) { give(c, dycl_chain_2(c, op, G, X)); }

/* Of the operand `nth`, a number, too. */
static uint32_t of_number(dycl_chain *c, dycl_op op, uint32_t g, int nth) {
    uint32_t operands[3] = {g, X, dycl_chain_take(c, nth)};
    return dycl_chain_node(c, op, 3, operands, 0, NULL);
}

void dycl_grad_relu(dycl_chain *c) {
    uint32_t y = Y;
    give_iterated(c, dycl_chain_2(c, DYCL_OP_relu_grad, G, y), y, G);
}

void dycl_grad_gelu(dycl_chain *c) { give_of_both(c, DYCL_OP_gelu_grad); }
void dycl_grad_gelu_tanh(dycl_chain *c) { give_of_both(c, DYCL_OP_gelu_tanh_grad); }
void dycl_grad_silu(dycl_chain *c) { give_of_both(c, DYCL_OP_silu_grad); }
void dycl_grad_logsigmoid(dycl_chain *c) { give_of_both(c, DYCL_OP_logsigmoid_grad); }
void dycl_grad_selu(dycl_chain *c) { give_of_both(c, DYCL_OP_selu_grad); }
void dycl_grad_hardswish(dycl_chain *c) { give_of_both(c, DYCL_OP_hardswish_grad); }

/* Between bends as torch's vectors have it, where a NaN has no gradient; the last few elements, which fill no vector,
 * keep it there. */
void dycl_grad_relu6(dycl_chain *c) { give_of_both(c, DYCL_OP_relu6_grad); }
void dycl_grad_hardsigmoid(dycl_chain *c) { give_of_both(c, DYCL_OP_hardsigmoid_grad); }

void dycl_grad_mish(dycl_chain *c) {
    uint32_t x = X, s = SIGMOID(x);
    uint32_t t = dycl_chain_1(c, DYCL_OP_tanh, dycl_chain_1(c, DYCL_OP_log1p, EXP(x)));
    uint32_t bend = MUL(MUL(x, s), PLUS(NEG(SQUARE(t)), 1));
    give(c, MUL(G, ADD(t, bend)));
}

/* x / (1 + |x|), as torch composes it */
void dycl_grad_softsign(dycl_chain *c) {
    uint32_t x = X, below = PLUS(dycl_chain_1(c, DYCL_OP_abs, x), 1);
    uint32_t through = MUL(DIV(MUL(NEG(G), DIV(x, below)), below), dycl_chain_1(c, DYCL_OP_sign, x));
    dycl_chain_give(c, 0, ADD(DIV(G, below), through));
}

/* x, slope: prelu's weight too. torch saves both in any case. */
void dycl_grad_leaky_relu(dycl_chain *c) {
    uint32_t x = X, through = of_number(c, DYCL_OP_leaky_relu_grad, G, 1);
    if (dycl_chain_operand(c, 1)->kind != DYCL_VALUE_SCALAR) { /* of a number the operator's own gradient has it */
        dycl_chain_tie(c, 0);
        dycl_chain_tie(c, 1);
    }
    if (dycl_chain_wants(c, 0)) give_iterated(c, through, x, G);
    if (dycl_chain_wants(c, 1)) dycl_chain_give(c, 1, dycl_chain_drop(c, COMPARE(gt, x, 0), MUL(G, x)));
}

/* x and a number */
static void give_by_number(dycl_chain *c, dycl_op op) {
    if (dycl_chain_wants(c, 1)) dycl_chain_fail(c);
    give(c, of_number(c, op, G, 1));
}

void dycl_grad_elu(dycl_chain *c) { give_by_number(c, DYCL_OP_elu_grad); }
void dycl_grad_celu(dycl_chain *c) { give_by_number(c, DYCL_OP_celu_grad); }
void dycl_grad_hardshrink(dycl_chain *c) { give_by_number(c, DYCL_OP_hardshrink_grad); }

/* x, low, high: numbers; g between them, and not at them */
void dycl_grad_hardtanh(dycl_chain *c) {
    if (dycl_chain_wants(c, 1) || dycl_chain_wants(c, 2)) dycl_chain_fail(c);
    give(c, of_number(c, DYCL_OP_below_grad, of_number(c, DYCL_OP_threshold_grad, G, 1), 2));
}

/* x, beta, threshold: numbers */
void dycl_grad_softplus(dycl_chain *c) {
    if (dycl_chain_wants(c, 1) || dycl_chain_wants(c, 2)) dycl_chain_fail(c);
    uint32_t operands[3] = {G, MUL(X, dycl_chain_take(c, 1)), dycl_chain_take(c, 2)};
    give(c, dycl_chain_node(c, DYCL_OP_softplus_grad, 3, operands, 0, NULL));
}

/* x, threshold, value: numbers */
void dycl_grad_threshold(dycl_chain *c) {
    if (dycl_chain_wants(c, 1) || dycl_chain_wants(c, 2)) dycl_chain_fail(c);
    give_iterated(c, of_number(c, DYCL_OP_threshold_grad, G, 1), X, G);
}
