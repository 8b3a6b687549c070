/* Elementwise operators of several operands. g: the result's gradient; x, y: the operands. */
#include "grad/formula.h"
#include "ir/infer.h"

#define G         c->gradient
#define X         dycl_chain_take(c, 0)
#define Y         dycl_chain_take(c, 1)
#define NEG(a)    dycl_chain_1(c, DYCL_OP_neg, a)
#define MUL(a, b) dycl_chain_2(c, DYCL_OP_mul, a, b)
#define DIV(a, b) dycl_chain_2(c, DYCL_OP_div, a, b)

void dycl_grad_add(dycl_chain *c) {
    dycl_chain_give(c, 0, G);
    dycl_chain_give(c, 1, G);
}

void dycl_grad_sub(dycl_chain *c) {
    dycl_chain_give(c, 0, G);
    if (dycl_chain_wants(c, 1)) dycl_chain_give(c, 1, NEG(G));
}

void dycl_grad_mul(dycl_chain *c) {
    if (dycl_chain_wants(c, 0)) dycl_chain_give(c, 0, MUL(G, Y));
    if (dycl_chain_wants(c, 1)) dycl_chain_give(c, 1, MUL(G, X));
}

void dycl_grad_div(dycl_chain *c) {
    if (dycl_chain_wants(c, 0)) dycl_chain_give(c, 0, DIV(G, Y));
    if (dycl_chain_wants(c, 1)) dycl_chain_give(c, 1, MUL(NEG(G), DIV(DIV(X, Y), Y)));
}

void dycl_grad_add_scaled(dycl_chain *c) {
    if (dycl_chain_wants(c, 2)) dycl_chain_fail(c);
    dycl_chain_give(c, 0, G);
    if (dycl_chain_wants(c, 1)) dycl_chain_give(c, 1, MUL(G, dycl_chain_take(c, 2)));
}

static int is_number(const dycl_chain *c, int nth) { return dycl_chain_operand(c, nth)->kind == DYCL_VALUE_SCALAR; }

/* x ** 0 is constant, also where its slope would be 0 * inf; 0 ** y is 0 for every y >= 0 */
void dycl_grad_pow(dycl_chain *c) {
    uint32_t x = X, y = Y;
    if (!is_number(c, 0) && !is_number(c, 1)) dycl_chain_result(c); /* torch saves it, whoever wants a gradient */
    if (dycl_chain_wants(c, 0)) {
        uint32_t less = dycl_chain_number(c, DYCL_OP_sub, y, 1);
        uint32_t slope = MUL(G, MUL(dycl_chain_2(c, DYCL_OP_pow, x, less), y));
        dycl_chain_give(c, 0, dycl_chain_drop(c, dycl_chain_number(c, DYCL_OP_eq, y, 0), slope));
    }
    if (dycl_chain_wants(c, 1)) {
        uint32_t zero = dycl_chain_2(c, DYCL_OP_logical_and, dycl_chain_number(c, DYCL_OP_eq, x, 0),
                                     dycl_chain_number(c, DYCL_OP_ge, y, 0));
        uint32_t slope = MUL(dycl_chain_result(c), dycl_chain_1(c, DYCL_OP_log, x));
        dycl_chain_give(c, 1, MUL(G, dycl_chain_drop(c, zero, slope)));
    }
}

dycl_grad_rules dycl_grad_rule;

/* Above a bound, or below it. Whether a tensor at a number keeps its gradient is a rule of this torch. */
static dycl_op within(int above) {
    if (dycl_grad_rule.bounds_share) return above ? DYCL_OP_gt : DYCL_OP_lt;
    return above ? DYCL_OP_ge : DYCL_OP_le;
}

/* With a number on one side it is torch.clamp. */
static int clamps(dycl_chain *c) {
    int at = is_number(c, 0);
    if (!at && !is_number(c, 1)) return 0;
    dycl_op op = within(c->node->op == DYCL_OP_maximum);
    uint32_t inside = dycl_chain_2(c, op, dycl_chain_take(c, at), dycl_chain_take(c, !at));
    dycl_chain_give(c, at, dycl_chain_keep(c, inside, G));
    return 1;
}

/* The larger of operand 0 and another one, or the smaller: equal ones share the gradient, and both have that of a NaN.
 */
static void larger(dycl_chain *c, int other, int is_larger) {
    dycl_op low = is_larger ? DYCL_OP_lt : DYCL_OP_gt, high = is_larger ? DYCL_OP_gt : DYCL_OP_lt;
    uint32_t x = X, y = dycl_chain_take(c, other);
    uint32_t half = dycl_chain_where(c, dycl_chain_2(c, DYCL_OP_eq, x, y), dycl_chain_number(c, DYCL_OP_div, G, 2), G);
    if (dycl_chain_wants(c, 0)) dycl_chain_give(c, 0, dycl_chain_drop(c, dycl_chain_2(c, low, x, y), half));
    if (dycl_chain_wants(c, other)) dycl_chain_give(c, other, dycl_chain_drop(c, dycl_chain_2(c, high, x, y), half));
}

void dycl_grad_maximum(dycl_chain *c) {
    if (!clamps(c)) larger(c, 1, c->node->op == DYCL_OP_maximum);
}

/* condition, x, y */
void dycl_grad_where(dycl_chain *c) {
    uint32_t condition = dycl_chain_take(c, 0);
    if (dycl_chain_wants(c, 1)) dycl_chain_give(c, 1, dycl_chain_keep(c, condition, G));
    if (dycl_chain_wants(c, 2)) dycl_chain_give(c, 2, dycl_chain_drop(c, condition, G));
}

/* start, end, weight */
void dycl_grad_lerp(dycl_chain *c) {
    if (!is_number(c, 2)) dycl_chain_take(c, 2); /* torch saves it, whoever wants a gradient */
    if (dycl_chain_wants(c, 0)) {
        uint32_t rest = dycl_chain_number(c, DYCL_OP_add, NEG(dycl_chain_take(c, 2)), 1);
        dycl_chain_give(c, 0, MUL(G, rest));
    }
    if (dycl_chain_wants(c, 1)) dycl_chain_give(c, 1, MUL(G, dycl_chain_take(c, 2)));
    if (dycl_chain_wants(c, 2)) dycl_chain_give(c, 2, MUL(G, dycl_chain_2(c, DYCL_OP_sub, Y, X)));
}

static uint32_t both(dycl_chain *c, uint32_t a, uint32_t b) { return dycl_chain_2(c, DYCL_OP_logical_and, a, b); }
static uint32_t either(dycl_chain *c, uint32_t a, uint32_t b) { return dycl_chain_2(c, DYCL_OP_logical_or, a, b); }

/* x, low, high, all of them tensors, where x shares with the bound that it equals. With both of them it does not. */
static void clamp_between(dycl_chain *c) {
    uint32_t x = X, low = Y, high = dycl_chain_take(c, 2);
    uint32_t crossed = dycl_chain_2(c, DYCL_OP_lt, high, low), apart = dycl_chain_2(c, DYCL_OP_lt, low, high);
    uint32_t under = dycl_chain_2(c, DYCL_OP_lt, x, low), above = dycl_chain_2(c, DYCL_OP_gt, x, high);
    uint32_t at_low = both(c, apart, dycl_chain_2(c, DYCL_OP_eq, x, low));
    uint32_t at_high = both(c, apart, dycl_chain_2(c, DYCL_OP_eq, x, high));
    uint32_t half = dycl_chain_number(c, DYCL_OP_div, G, 2);
    if (dycl_chain_wants(c, 0)) {
        uint32_t inside = dycl_chain_where(c, either(c, at_low, at_high), half, G);
        dycl_chain_give(c, 0, dycl_chain_drop(c, either(c, under, above), inside));
    }
    uint32_t ordered = dycl_chain_2(c, DYCL_OP_le, low, high);
    if (dycl_chain_wants(c, 1)) {
        uint32_t some = either(c, both(c, under, ordered), at_low);
        dycl_chain_give(c, 1, dycl_chain_keep(c, some, dycl_chain_where(c, at_low, half, G)));
    }
    if (dycl_chain_wants(c, 2)) {
        uint32_t some = either(c, either(c, both(c, above, ordered), crossed), at_high);
        dycl_chain_give(c, 2, dycl_chain_keep(c, some, dycl_chain_where(c, at_high, half, G)));
    }
}

/* x, low, high. A bound that is a tensor gets the gradient of what lies beyond it; where they are crossed, all is the
 * high one. A number beside a tensor is out of reach: there is no such bound. */
void dycl_grad_clamp(dycl_chain *c) {
    int tensors = !is_number(c, 1) && !is_number(c, 2);
    if (dycl_grad_rule.bounds_share && tensors) {
        clamp_between(c);
        return;
    }
    if (dycl_grad_rule.bounds_share && is_number(c, 1) != is_number(c, 2)) {
        larger(c, is_number(c, 1) ? 2 : 1, !is_number(c, 1));
        return;
    }
    uint32_t x = X, low = Y, high = dycl_chain_take(c, 2);
    if (dycl_chain_wants(c, 0)) {
        uint32_t above = dycl_chain_2(c, within(1), x, low), below = dycl_chain_2(c, within(0), x, high);
        uint32_t inside = is_number(c, 1) == is_number(c, 2) ? dycl_chain_in_place(c, DYCL_OP_logical_and, above, below)
                          : is_number(c, 1)                  ? below
                                                             : above;
        dycl_chain_give(c, 0, dycl_chain_keep(c, inside, G));
    }
    if (dycl_chain_wants(c, 1)) {
        uint32_t below = dycl_chain_2(c, DYCL_OP_lt, x, low);
        if (tensors) below = dycl_chain_2(c, DYCL_OP_logical_and, below, dycl_chain_2(c, DYCL_OP_lt, low, high));
        dycl_chain_give(c, 1, dycl_chain_keep(c, below, G));
    }
    if (dycl_chain_wants(c, 2)) {
        uint32_t above = dycl_chain_2(c, DYCL_OP_gt, x, high);
        if (tensors) above = dycl_chain_2(c, DYCL_OP_logical_or, above, dycl_chain_2(c, DYCL_OP_lt, high, low));
        dycl_chain_give(c, 2, dycl_chain_keep(c, above, G));
    }
}

/* torch saves both, whoever wants a gradient */
void dycl_grad_atan2(dycl_chain *c) {
    uint32_t x = X, y = Y;
    uint32_t square = dycl_chain_2(c, DYCL_OP_add, MUL(x, x), MUL(y, y));
    uint32_t scale =
        dycl_chain_drop(c, dycl_chain_number(c, DYCL_OP_eq, square, 0), dycl_chain_1(c, DYCL_OP_reciprocal, square));
    if (dycl_chain_wants(c, 0)) dycl_chain_give(c, 0, MUL(MUL(G, y), scale));
    if (dycl_chain_wants(c, 1)) dycl_chain_give(c, 1, MUL(MUL(G, NEG(x)), scale));
}

/* fmod, remainder: x less so many y as the quotient has */
void dycl_grad_fmod(dycl_chain *c) {
    dycl_op op = c->node->op == DYCL_OP_fmod ? DYCL_OP_trunc_div : DYCL_OP_floor_div;
    dycl_chain_give(c, 0, G);
    if (dycl_chain_wants(c, 1)) dycl_chain_give(c, 1, MUL(NEG(G), dycl_chain_2(c, op, X, Y)));
}

/* fmax, fmin: the other operand has the gradient of a NaN. The first of equal ones has all of it, or they share it: a
 * rule of this torch, as whether both have that of a NaN. */
void dycl_grad_fmax(dycl_chain *c) {
    dycl_op op = c->node->op == DYCL_OP_fmax ? DYCL_OP_ge : DYCL_OP_le;
    if (dycl_grad_rule.fmax_as_maximum) {
        larger(c, 1, c->node->op == DYCL_OP_fmax);
        return;
    }
    uint32_t x = X, y = Y;
    uint32_t first = dycl_chain_2(c, DYCL_OP_logical_or, dycl_chain_2(c, op, x, y), dycl_chain_1(c, DYCL_OP_isnan, y));
    if (dycl_grad_rule.fmax_shares) {
        uint32_t equal = dycl_chain_2(c, DYCL_OP_eq, x, y), half = dycl_chain_number(c, DYCL_OP_div, G, 2);
        if (dycl_chain_wants(c, 0))
            dycl_chain_give(c, 0, dycl_chain_where(c, equal, half, dycl_chain_keep(c, first, G)));
        if (dycl_chain_wants(c, 1))
            dycl_chain_give(c, 1, dycl_chain_where(c, equal, half, dycl_chain_drop(c, first, G)));
        return;
    }
    if (dycl_chain_wants(c, 0)) dycl_chain_give(c, 0, dycl_chain_contiguous(c, dycl_chain_keep(c, first, G)));
    if (dycl_chain_wants(c, 1)) dycl_chain_give(c, 1, dycl_chain_contiguous(c, dycl_chain_drop(c, first, G)));
}

/* The sign is no slope: of a zero's there is none. */
void dycl_grad_copysign(dycl_chain *c) {
    uint32_t y = dycl_chain_result(c); /* torch saves it, whoever wants a gradient */
    if (dycl_chain_wants(c, 0)) {
        uint32_t x = X, ratio = DIV(y, x);
        dycl_chain_give(c, 0, MUL(G, dycl_chain_cleared(c, dycl_chain_number(c, DYCL_OP_eq, x, 0), ratio)));
    }
    if (dycl_chain_wants(c, 1)) {
        dycl_value form = *dycl_chain_operand(c, 1);
        dycl_infer_contiguous(&form);
        dycl_chain_give(c, 1, dycl_chain_zeros(c, &form));
    }
}

/* Where torch's kernel is a step it promotes, so that an operand may have another dtype than the result. */
static uint32_t promoted(dycl_chain *c, int nth) {
    uint32_t a = dycl_chain_take(c, nth);
    return c->status == DYCL_OK ? dycl_chain_cast(c, a, (dycl_dtype)dycl_chain_meta(c, G)->dtype) : 0;
}

void dycl_grad_hypot(dycl_chain *c) {
    for (int i = 0; i < 2; i++)
        if (dycl_chain_wants(c, i)) dycl_chain_give(c, i, DIV(MUL(G, promoted(c, i)), dycl_chain_result(c)));
}

void dycl_grad_logaddexp(dycl_chain *c) {
    uint32_t x = promoted(c, 0), y = promoted(c, 1);
    for (int i = 0; i < 2; i++)
        if (dycl_chain_operand(c, i)->dtype == DYCL_BOOL) dycl_chain_fail(c); /* torch does not subtract bools */
    for (int i = 0; i < 2; i++) {
        if (!dycl_chain_wants(c, i)) continue;
        uint32_t off = dycl_chain_2(c, DYCL_OP_sub, i ? x : y, i ? y : x);
        dycl_chain_give(c, i, DIV(G, dycl_chain_number(c, DYCL_OP_add, dycl_chain_1(c, DYCL_OP_exp, off), 1)));
    }
}

/* x * log(y): no slope in x where x is 0 and y has no logarithm. torch's slope in x is an xlogy of its own. */
void dycl_grad_xlogy(dycl_chain *c) {
    uint32_t x = promoted(c, 0), y = promoted(c, 1); /* torch saves both, whoever wants a gradient */
    if (dycl_chain_wants(c, 0)) {
        uint32_t flat = dycl_chain_2(c, DYCL_OP_logical_and, dycl_chain_number(c, DYCL_OP_eq, x, 0),
                                     dycl_chain_number(c, DYCL_OP_le, y, 0));
        dycl_value form = *dycl_chain_operand(c, 0);
        if (c->status == DYCL_OK) form = *dycl_chain_meta(c, G);
        dycl_infer_contiguous(&form);
        uint32_t in[2] = {G, y}, slope = dycl_chain_hosted_laid(c, DYCL_OP_aten_xlogy, 0, &form, 2, in, 0, NULL);
        dycl_chain_give(c, 0, dycl_chain_contiguous(c, dycl_chain_drop(c, flat, slope)));
    }
    if (dycl_chain_wants(c, 1)) dycl_chain_give(c, 1, DIV(MUL(G, x), y));
}
