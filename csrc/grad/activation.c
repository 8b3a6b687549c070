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
#define TIMES(a, number)       dycl_chain_number(c, DYCL_OP_mul, a, number)
#define COMPARE(op, a, number) dycl_chain_number(c, DYCL_OP_##op, a, number)

#define FORMULA(name, gradient)                                                                                        \
    void dycl_grad_##name(dycl_chain *c) { dycl_chain_give(c, 0, gradient); }

FORMULA(logsigmoid, MUL(G, SIGMOID(NEG(X))))

/* torch's kernels go over the gradient and the operand once: how these lie decides how the result lies, and not how
 * what is computed here in between lies. */
static void give_iterated(dycl_chain *c, uint32_t gradient, uint32_t first, uint32_t second) {
    dycl_chain_give(c, 0, dycl_chain_iterated(c, gradient, first, second));
}

static void give(dycl_chain *c, uint32_t gradient) { give_iterated(c, gradient, G, X); }

/* Its slope is constant between bends: the gradient does not depend on x, but for torch it has x's history. */
static void give_pieces(dycl_chain *c, uint32_t gradient) {
    dycl_chain_tie(c, 0);
    give(c, gradient);
}

void dycl_grad_relu(dycl_chain *c) {
    uint32_t y = Y;
    give_iterated(c, dycl_chain_2(c, DYCL_OP_relu_grad, G, y), y, G);
}

/* Between bends as torch's vectors have it, where a NaN has no gradient; the last few elements, which fill no vector,
 * keep it there. */
void dycl_grad_relu6(dycl_chain *c) {
    uint32_t x = X, above = dycl_chain_keep(c, COMPARE(gt, x, 0), G);
    give_pieces(c, dycl_chain_keep(c, COMPARE(lt, x, 6), above));
}

/* 1/6 within, as torch rounds it; a NaN has none */
void dycl_grad_hardsigmoid(dycl_chain *c) {
    uint32_t x = X, inner = dycl_chain_keep(c, COMPARE(lt, x, 3), TIMES(G, (double)(1.0f / 6)));
    give_pieces(c, dycl_chain_keep(c, COMPARE(gt, x, -3), inner));
}

void dycl_grad_hardswish(dycl_chain *c) {
    uint32_t x = X, bend = MUL(G, PLUS(TIMES(x, 1. / 3), 0.5));
    uint32_t above = dycl_chain_where(c, COMPARE(ge, x, 3), G, bend);
    give(c, dycl_chain_drop(c, COMPARE(le, x, -3), above));
}

void dycl_grad_gelu(dycl_chain *c) { give(c, dycl_chain_2(c, DYCL_OP_gelu_grad, G, X)); }
void dycl_grad_gelu_tanh(dycl_chain *c) { give(c, dycl_chain_2(c, DYCL_OP_gelu_tanh_grad, G, X)); }
void dycl_grad_silu(dycl_chain *c) { give(c, dycl_chain_2(c, DYCL_OP_silu_grad, G, X)); }

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

/* x, slope: prelu's weight too */
void dycl_grad_leaky_relu(dycl_chain *c) {
    uint32_t x = X, slope = dycl_chain_take(c, 1), positive = COMPARE(gt, x, 0); /* torch saves both in any case */
    dycl_chain_tie(c, 0);
    dycl_chain_tie(c, 1);
    if (dycl_chain_wants(c, 0)) give_iterated(c, dycl_chain_where(c, positive, G, MUL(G, slope)), x, G);
    if (dycl_chain_wants(c, 1)) dycl_chain_give(c, 1, dycl_chain_drop(c, positive, MUL(G, x)));
}

/* exp(scaled) where x is below 0, and 1 elsewhere: at 0 it has no slope, as torch's second derivatives are there. */
static uint32_t exp_below(dycl_chain *c, uint32_t x, uint32_t scaled) {
    return EXP(dycl_chain_drop(c, COMPARE(ge, x, 0), scaled));
}

/* x, alpha: a number */
void dycl_grad_elu(dycl_chain *c) {
    if (dycl_chain_wants(c, 1)) dycl_chain_fail(c);
    uint32_t x = X, below = MUL(G, MUL(dycl_chain_take(c, 1), exp_below(c, x, x)));
    give(c, dycl_chain_where(c, COMPARE(gt, x, 0), G, below));
}

/* x, alpha: a number */
void dycl_grad_celu(dycl_chain *c) {
    if (dycl_chain_wants(c, 1)) dycl_chain_fail(c);
    uint32_t x = X, below = MUL(G, exp_below(c, x, DIV(x, dycl_chain_take(c, 1))));
    give(c, dycl_chain_where(c, COMPARE(gt, x, 0), G, below));
}

#define SELU_SCALE 1.0507009873554804934193349852946
#define SELU_ALPHA 1.6732632423543772848170429916717

void dycl_grad_selu(dycl_chain *c) {
    uint32_t x = X, below = MUL(TIMES(G, SELU_ALPHA * SELU_SCALE), exp_below(c, x, x));
    give(c, dycl_chain_where(c, COMPARE(gt, x, 0), TIMES(G, SELU_SCALE), below));
}

/* x, low, high: numbers; g between them, and not at them */
void dycl_grad_hardtanh(dycl_chain *c) {
    if (dycl_chain_wants(c, 1) || dycl_chain_wants(c, 2)) dycl_chain_fail(c);
    uint32_t x = X, above = dycl_chain_2(c, DYCL_OP_gt, x, dycl_chain_take(c, 1));
    uint32_t below = dycl_chain_2(c, DYCL_OP_lt, x, dycl_chain_take(c, 2));
    give_pieces(c, dycl_chain_keep(c, above, dycl_chain_keep(c, below, G)));
}

/* x, bound: a number */
void dycl_grad_hardshrink(dycl_chain *c) {
    if (dycl_chain_wants(c, 1)) dycl_chain_fail(c);
    uint32_t x = X, size = dycl_chain_1(c, DYCL_OP_abs, x);
    give_pieces(c, dycl_chain_keep(c, dycl_chain_2(c, DYCL_OP_gt, size, dycl_chain_take(c, 1)), G));
}

/* x, beta, threshold: numbers. At the threshold the slope is the curve's, and has none: torch's second derivative there
 * is 0. */
void dycl_grad_softplus(dycl_chain *c) {
    if (dycl_chain_wants(c, 1) || dycl_chain_wants(c, 2)) dycl_chain_fail(c);
    uint32_t scaled = MUL(X, dycl_chain_take(c, 1)), threshold = dycl_chain_take(c, 2);
    uint32_t level = dycl_chain_where(c, dycl_chain_2(c, DYCL_OP_ge, scaled, threshold), threshold, scaled);
    uint32_t z = EXP(level), linear = dycl_chain_2(c, DYCL_OP_gt, scaled, threshold);
    give(c, dycl_chain_where(c, linear, G, DIV(MUL(G, z), PLUS(z, 1))));
}

/* x, threshold, value: numbers */
void dycl_grad_threshold(dycl_chain *c) {
    if (dycl_chain_wants(c, 1) || dycl_chain_wants(c, 2)) dycl_chain_fail(c);
    uint32_t x = X, low = dycl_chain_2(c, DYCL_OP_le, x, dycl_chain_take(c, 1));
    dycl_chain_tie(c, 0);
    give_iterated(c, dycl_chain_drop(c, low, G), x, G);
}
