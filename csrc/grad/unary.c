/* Elementwise operators of one operand. x: the operand, y: the result, g: the result's gradient. */
#include <math.h>

#include "grad/hosted.h"
#include "ir/infer.h"

#define G                c->gradient
#define X                dycl_chain_take(c, 0)
#define Y                dycl_chain_result(c)
#define NEG(a)           dycl_chain_1(c, DYCL_OP_neg, a)
#define SQUARE(a)        dycl_chain_1(c, DYCL_OP_square, a)
#define ADD(a, b)        dycl_chain_2(c, DYCL_OP_add, a, b)
#define MUL(a, b)        dycl_chain_2(c, DYCL_OP_mul, a, b)
#define DIV(a, b)        dycl_chain_2(c, DYCL_OP_div, a, b)
#define PLUS(a, number)  dycl_chain_number(c, DYCL_OP_add, a, number)
#define TIMES(a, number) dycl_chain_number(c, DYCL_OP_mul, a, number)

#define TWO_BY_SQRT_PI 1.12837916709551257390
#define LN_2           0.69314718055994530942
#define LN_10          2.30258509299404568402

#define FORMULA(name, gradient)                                                                                        \
    void dycl_grad_##name(dycl_chain *c) { dycl_chain_give(c, 0, gradient); }

FORMULA(copy, G)
FORMULA(neg, NEG(G))
FORMULA(abs, MUL(G, dycl_chain_1(c, DYCL_OP_sign, X)))
FORMULA(square, MUL(G, ADD(X, X))) /* dimensions of size 1 lie as behind torch's pow(1) */
FORMULA(exp, MUL(G, Y))
FORMULA(exp2, TIMES(MUL(G, Y), LN_2))
FORMULA(expm1, MUL(G, PLUS(Y, 1)))
FORMULA(log, DIV(G, X))
FORMULA(log2, DIV(G, TIMES(X, LN_2)))
FORMULA(log10, DIV(G, TIMES(X, LN_10)))
FORMULA(log1p, DIV(G, PLUS(X, 1)))
FORMULA(sin, MUL(G, dycl_chain_1(c, DYCL_OP_cos, X)))
FORMULA(cos, MUL(G, NEG(dycl_chain_1(c, DYCL_OP_sin, X))))
FORMULA(tan, MUL(G, PLUS(SQUARE(Y), 1)))
FORMULA(tanh, MUL(G, PLUS(NEG(SQUARE(Y)), 1)))
FORMULA(erf, MUL(TIMES(dycl_chain_1(c, DYCL_OP_exp, NEG(SQUARE(X))), TWO_BY_SQRT_PI), G))
FORMULA(sigmoid, MUL(MUL(G, PLUS(NEG(Y), 1)), Y))

void dycl_grad_rsqrt(dycl_chain *c) {
    if (dycl_chain_by_operand(c))
        dycl_chain_give(c, 0, MUL(G, TIMES(dycl_chain_number(c, DYCL_OP_pow, X, -1.5), -0.5)));
    else
        dycl_chain_give(c, 0, MUL(TIMES(G, -0.5), MUL(SQUARE(Y), Y)));
}

/* x ** -2 is 1 / (x * x), but goes back as one function: parts of its gradient would be infinite, or zero. */
static int give_inverse_square(dycl_chain *c) {
    dycl_chain inner;
    if (!(c->b->job->tracked[c->node->out] & DYCL_GRAD_OF_SQUARE) || !dycl_chain_behind(c, DYCL_OP_square, &inner))
        return 0;
    uint32_t slope = dycl_chain_number(&inner, DYCL_OP_pow, dycl_chain_take(&inner, 0), -3);
    slope = dycl_chain_number(&inner, DYCL_OP_mul, slope, -2);
    dycl_chain_give(&inner, 0, dycl_chain_2(&inner, DYCL_OP_mul, c->gradient, slope));
    c->status = inner.status;
    return 1;
}

void dycl_grad_reciprocal(dycl_chain *c) {
    if (give_inverse_square(c)) return;
    if (dycl_chain_by_operand(c))
        dycl_chain_give(c, 0, MUL(G, TIMES(dycl_chain_number(c, DYCL_OP_pow, X, -2), -1)));
    else
        dycl_chain_give(c, 0, MUL(NEG(G), SQUARE(Y)));
}

/* Computed by the host's kernels */
#define RSQRT(a) dycl_chain_1(c, DYCL_OP_rsqrt, a)
#define DEGREES  57.295779513082320876
FORMULA(acos, MUL(G, NEG(RSQRT(PLUS(NEG(SQUARE(X)), 1)))))
FORMULA(asin, MUL(G, RSQRT(PLUS(NEG(SQUARE(X)), 1))))
FORMULA(atan, DIV(G, PLUS(SQUARE(X), 1)))
FORMULA(acosh, MUL(G, RSQRT(PLUS(SQUARE(X), -1))))
FORMULA(asinh, MUL(G, RSQRT(PLUS(SQUARE(X), 1))))
FORMULA(atanh, DIV(TIMES(G, 1), PLUS(NEG(SQUARE(X)), 1)))
FORMULA(erfc, MUL(TIMES(dycl_chain_1(c, DYCL_OP_exp, NEG(SQUARE(X))), -TWO_BY_SQRT_PI), G))
FORMULA(deg2rad, TIMES(G, 1 / DEGREES))
FORMULA(rad2deg, TIMES(G, DEGREES))

/* Another of the host's operators on x, which lies as torch's result does. */
static uint32_t hosted(dycl_chain *c, dycl_op op) {
    dycl_value form = *dycl_chain_operand(c, 0);
    uint32_t x = X;
    dycl_infer_preserve(dycl_chain_operand(c, 0), &form);
    return dycl_chain_hosted_laid(c, op, 0, &form, 1, &x, 0, NULL);
}

#define SQRT_PI 1.77245385090551602730
FORMULA(sinh, MUL(G, hosted(c, DYCL_OP_aten_cosh)))
FORMULA(cosh, MUL(G, hosted(c, DYCL_OP_aten_sinh)))
FORMULA(lgamma, MUL(G, hosted(c, DYCL_OP_aten_digamma)))
FORMULA(i0, MUL(G, hosted(c, DYCL_OP_aten_special_i1)))
FORMULA(erfinv, MUL(TIMES(dycl_chain_1(c, DYCL_OP_exp, SQUARE(hosted(c, DYCL_OP_aten_erfinv))), 0.5 * SQRT_PI), G))

/* (pi x cos(pi x) - sin(pi x)) / (pi x^2); nothing at 0 */
void dycl_grad_sinc(dycl_chain *c) {
    const double pi = 3.14159265358979323846;
    uint32_t x = X, turn = TIMES(x, pi), square = TIMES(MUL(x, x), pi);
    uint32_t above =
        dycl_chain_2(c, DYCL_OP_sub, MUL(turn, dycl_chain_1(c, DYCL_OP_cos, turn)), dycl_chain_1(c, DYCL_OP_sin, turn));
    uint32_t zero = dycl_chain_number(c, DYCL_OP_eq, square, 0);
    dycl_chain_give(c, 0, dycl_chain_drop(c, zero, MUL(G, DIV(above, square))));
}

/* torch's own kernel: which infinity is at -0, and what becomes of a NaN with an eps, depends on where in memory an
 * element lies, and on torch's vectors. */
void dycl_grad_logit(dycl_chain *c) {
    dycl_words a = dycl_words_same(c);
    uint32_t in[2] = {G, X};
    dycl_value form = *dycl_chain_operand(c, 0);
    if (c->status == DYCL_OK) {
        const dycl_value *like[2] = {dycl_chain_meta(c, in[0]), dycl_chain_meta(c, in[1])};
        dycl_infer_iterator(&form, 2, like);
    }
    dycl_chain_give(c, 0, dycl_chain_hosted_laid(c, DYCL_OP_aten_logit_backward, 0, &form, 2, in, a.count, a.words));
}

/* Multiplied, as in torch: what is infinite or a NaN stays one. */
void dycl_grad_nan_to_num(dycl_chain *c) {
    uint32_t finite = dycl_chain_1(c, DYCL_OP_isfinite, X);
    dycl_chain_give(c, 0, MUL(G, dycl_chain_cast(c, finite, (dycl_dtype)dycl_chain_operand(c, 0)->dtype)));
}

/* Constant almost everywhere: zeros that lie as the gradient, not nothing. */
void dycl_grad_nothing(dycl_chain *c) {
    for (int i = 0; i < c->node->operand_count; i++) {
        if (!dycl_chain_wants(c, i)) continue;
        dycl_value form = *dycl_chain_meta(c, G);
        dycl_infer_preserve(dycl_chain_meta(c, G), &form);
        dycl_chain_give(c, i, dycl_chain_laid(c, dycl_chain_zeros(c, &form), &form));
    }
}
