/* Distances between all pairs of rows. */
#include "grad/hosted.h"

#define MUL(a, b) dycl_chain_2(c, DYCL_OP_mul, a, b)
#define SUB(a, b) dycl_chain_2(c, DYCL_OP_sub, a, b)

enum { IF_NECESSARY, ALWAYS, NEVER }; /* torch's compute_mode: distances as products */
#define MANY 25                       /* rows, from which on they are necessary */

/* Of the rows of x: themselves times the sums of their ratios, less the ratios' product with the other rows. */
static uint32_t of_products(dycl_chain *c, uint32_t x, uint32_t ratio, uint32_t other, int rank) {
    uint32_t sums = dycl_chain_reduce(c, DYCL_OP_sum, ratio, UINT32_C(1) << (rank - 1));
    return SUB(MUL(x, sums), dycl_chain_product(c, ratio, other));
}

/* x [n, m]; p. What torch's function copies first has a history of its own. */
void dycl_grad_pdist(dycl_chain *c) {
    dycl_words w = dycl_words_same(c);
    dycl_value x = *dycl_chain_operand(c, 0);
    if (!dycl_chain_is_plain(&x)) dycl_chain_fail(c);
    uint32_t operands[3] = {c->gradient, dycl_chain_take(c, 0), dycl_chain_result(c)};
    dycl_chain_give(c, 0, dycl_chain_back(c, DYCL_OP_aten__pdist_backward, 0, &x, 3, operands, &w));
}

/* x1 [..., p, m], x2 [..., r, m]; p, whether a mode is given, the mode. Where torch computes distances as products it
 * goes back with products, else in its own kernel, which subtracts rows. */
void dycl_grad_cdist(dycl_chain *c) {
    const int64_t *given = dycl_words_given(c);
    const dycl_value a = *dycl_chain_operand(c, 0), b = *dycl_chain_operand(c, 1);
    const int64_t mode = given[1] ? given[2] : IF_NECESSARY;
    int same = a.rank == b.rank && a.rank >= 2 && a.dtype == b.dtype;
    for (int i = 0; i + 2 < a.rank && same; i++) same = a.sizes[i] == b.sizes[i];
    if (!same) dycl_chain_fail(c);
    if (c->status != DYCL_OK) return;
    const int many = a.sizes[a.rank - 2] > MANY || b.sizes[b.rank - 2] > MANY;
    uint32_t x = dycl_chain_take(c, 0), z = dycl_chain_take(c, 1), y = dycl_chain_result(c);
    if (dycl_attr_f64(given[0]) == 2 && (mode == ALWAYS || (mode == IF_NECESSARY && many))) {
        uint32_t ratio = dycl_chain_2(c, DYCL_OP_div, c->gradient, y);
        ratio = dycl_chain_drop(c, dycl_chain_number(c, DYCL_OP_eq, y, 0), ratio);
        if (dycl_chain_wants(c, 0)) dycl_chain_give(c, 0, of_products(c, x, ratio, z, a.rank));
        if (dycl_chain_wants(c, 1)) dycl_chain_give(c, 1, of_products(c, z, dycl_chain_transpose(c, ratio), x, a.rank));
        return;
    }
    dycl_words w = {{given[0]}, 1};
    uint32_t g = dycl_chain_contiguous(c, c->gradient);
    uint32_t operands[4] = {g, x, z, y};
    if (dycl_chain_wants(c, 0))
        dycl_chain_give(c, 0, dycl_chain_back(c, DYCL_OP_aten__cdist_backward, 0, &a, 4, operands, &w));
    if (!dycl_chain_wants(c, 1)) return;
    uint32_t turned[4] = {dycl_chain_contiguous(c, dycl_chain_transpose(c, g)), z, x,
                          dycl_chain_contiguous(c, dycl_chain_transpose(c, y))};
    dycl_chain_give(c, 1, dycl_chain_back(c, DYCL_OP_aten__cdist_backward, 0, &b, 4, turned, &w));
}
