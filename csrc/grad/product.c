/* Products of matrices. */
#include "grad/formula.h"

/* All rows of [..., k] as one matrix. */
static uint32_t as_rows(dycl_chain *c, uint32_t a) {
    if (c->status != DYCL_OK) return 0;
    const dycl_value *v = dycl_chain_meta(c, a);
    int64_t last = v->sizes[v->rank - 1], sizes[2] = {last ? dycl_value_numel(v) / last : 0, last};
    return v->rank == 2 ? a : dycl_chain_reshape(c, a, 2, sizes);
}

static int is_row(const dycl_value *v, int64_t size) { return v->rank == 1 && v->sizes[0] == size; }

/* x[..., k], weight[n, k], bias[n]* */
void dycl_grad_linear(dycl_chain *c) {
    uint32_t g = as_rows(c, c->gradient);
    dycl_value x = *dycl_chain_operand(c, 0);
    if (dycl_value_numel(&x) == 0 || dycl_chain_operand(c, 1)->rank != 2) dycl_chain_fail(c);
    if (dycl_chain_wants(c, 0)) {
        uint32_t rows = dycl_chain_product(c, g, dycl_chain_take(c, 1));
        dycl_chain_give(c, 0, dycl_chain_reshape(c, rows, x.rank, x.sizes));
    }
    int row = dycl_chain_wants(c, 2) && is_row(dycl_chain_operand(c, 2), dycl_chain_operand(c, 1)->sizes[0]);
    if (dycl_chain_wants(c, 1)) dycl_chain_give_product(c, 1, row ? 2 : -1, g, as_rows(c, dycl_chain_take(c, 0)));
    if (dycl_chain_wants(c, 2) && !(row && dycl_chain_wants(c, 1))) dycl_chain_give(c, 2, g);
}

/* a[..., m, k] b[..., k, n]: batch dimensions that were broadcast are summed */
void dycl_grad_matmul(dycl_chain *c) {
    if (dycl_chain_wants(c, 0))
        dycl_chain_give(c, 0, dycl_chain_product(c, c->gradient, dycl_chain_transpose(c, dycl_chain_take(c, 1))));
    if (!dycl_chain_wants(c, 1)) return;
    uint32_t a = dycl_chain_take(c, 0);
    if (dycl_chain_operand(c, 0)->rank >= 2 && dycl_chain_operand(c, 1)->rank == 2)
        dycl_chain_give_product(c, 1, -1, as_rows(c, a), as_rows(c, c->gradient));
    else
        dycl_chain_give(c, 1, dycl_chain_product(c, dycl_chain_transpose(c, a), c->gradient));
}
