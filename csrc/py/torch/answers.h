/* What operators answer otherwise in one version of torch than in another: one row each, asked once at start. Nothing
 * else asks for a version.
 *
 * Threads: written once, at start. */
#ifndef DYCL_PY_TORCH_ANSWERS_H
#define DYCL_PY_TORCH_ANSWERS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* ROW(name, the question in Python; F: torch.nn.functional, o: ones of these sizes, slope: the gradient of a function
 * of two with regard to the first, where the second is 1; reaches: the gradient of a function's first operand has the
 * second one's history) */
#define DYCL_TORCH_ANSWERS(ROW)                                                                                        \
    /* A layer whose operand is flattened answers a view of the product (to 2.14). */                                  \
    ROW(linear_is_view, "F.linear(o(1, 1, 1), o(1, 1), o(1))._is_view()")                                              \
    /* Attention of three dimensions is that of four, squeezed (since 2.14), instead of matrix products. */            \
    ROW(attention_squeezes, "F.scaled_dot_product_attention(o(1, 1, 1), o(1, 1, 1), o(1, 1, 1))._is_view()")           \
    /* Gradients where there is none (dycl_grad_rules): at a bound, of equal operands, of a NaN (since 2.14). */       \
    ROW(bounds_share, "slope(lambda x, y: x.clamp(max=1), o(1)) == 0")                                                 \
    ROW(fmax_shares, "slope(torch.fmax, o(1)) == 0.5")                                                                 \
    ROW(fmax_as_maximum, "slope(torch.fmax, o(1) * float('nan')) == 1")                                                \
    /* A group norm's gradients have the history of its mean (since 2.14): of all of its operands. */                  \
    ROW(group_norm_ties, "reaches(lambda x, b: torch.group_norm(x, 1, None, b, 1e-5))")

typedef struct {
#define DYCL_ROW(name, question) int name;
    DYCL_TORCH_ANSWERS(DYCL_ROW)
#undef DYCL_ROW
} dycl_torch_answers;

extern dycl_torch_answers dycl_torch_answer;

int dycl_answers_setup(void); /* asks torch. 0, or -1 with an exception */

#endif
