/* Weights of a direction and a length (Salimans and Kingma, "Weight normalization", 2016, section 2). */
#include "grad/hosted.h"

#define MUL(a, b) dycl_chain_2(c, DYCL_OP_mul, a, b)
#define DIV(a, b) dycl_chain_2(c, DYCL_OP_div, a, b)

/* v, g, of size 1 but along `dim`: g v / |v|, in the order of torch's kernel. The lengths are the other result, as they
 * were: v may be written through its .data. What goes back to them ends there, in torch too. */
void dycl_grad_weight_norm(dycl_chain *c) {
    const int rank = dycl_chain_operand(c, 0)->rank;
    const uint32_t others = ((UINT32_C(1) << rank) - 1) & ~(UINT32_C(1) << dycl_words_given(c)[0]);
    if (c->attrs[0] != 0) return;
    uint32_t v = dycl_chain_take(c, 0), g = dycl_chain_take(c, 1), length = dycl_chain_sibling(c, 1);
    uint32_t from = dycl_chain_contiguous(c, c->gradient); /* so does torch, and answers so */
    uint32_t along = DIV(dycl_chain_reduce(c, DYCL_OP_sum, MUL(from, v), others), length);
    dycl_chain_give(c, 1, along);
    if (!dycl_chain_wants(c, 0)) return;
    uint32_t scale = DIV(g, length), back = MUL(DIV(MUL(scale, along), length), v);
    dycl_chain_give(c, 0, dycl_chain_contiguous(c, dycl_chain_2(c, DYCL_OP_sub, MUL(scale, from), back)));
}
