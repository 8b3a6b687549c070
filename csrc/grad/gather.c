/* Elements picked by index: what was picked gets the gradient, the rest nothing. */
#include <string.h>

#include "grad/formula.h"
#include "ir/infer.h"

/* One element of each row: the pass over the rows that zeros would take anyway, and it fuses. */
static int picks_one(const dycl_value *x, const dycl_value *index, int dim) {
    for (int i = 0; i < x->rank; i++)
        if (index->sizes[i] != (i == dim ? 1 : x->sizes[i])) return 0;
    return 1;
}

void dycl_grad_gather(dycl_chain *c) {
    dycl_value x = *dycl_chain_operand(c, 0);
    int64_t dim = c->attrs[0];
    uint32_t index = dycl_chain_take(c, 1);
    if (picks_one(&x, dycl_chain_operand(c, 1), (int)dim)) {
        uint32_t own = dycl_chain_2(c, DYCL_OP_eq, dycl_chain_positions(c, x.rank, (int)dim, x.sizes[dim]), index);
        dycl_chain_give(c, 0, dycl_chain_contiguous(c, dycl_chain_keep(c, own, c->gradient)));
        return;
    }
    dycl_infer_contiguous(&x);
    uint32_t operands[3] = {dycl_chain_zeros(c, &x), index, c->gradient};
    dycl_chain_give(c, 0, dycl_chain_hosted(c, DYCL_OP_aten_scatter_add, 0, &x, 3, operands, 1, &dim));
}

/* table[n, ...], index: each row is added where it came from */
void dycl_grad_embedding(dycl_chain *c) {
    dycl_value x = *dycl_chain_operand(c, 0), table = {.dtype = x.dtype, .rank = 2};
    int64_t count = dycl_value_numel(dycl_chain_operand(c, 1)), words[3] = {x.sizes[0], c->attrs[0], 0};
    table.sizes[0] = x.sizes[0];
    table.sizes[1] = 1;
    for (int i = 1; i < x.rank; i++) table.sizes[1] *= x.sizes[i];
    if (count == 0 || dycl_value_numel(&table) == 0) dycl_chain_fail(c);
    uint32_t index = dycl_chain_reshape(c, dycl_chain_take(c, 1), 1, &count);
    uint32_t operands[2] = {dycl_chain_reshape(c, c->gradient, 2, (int64_t[]){count, table.sizes[1]}), index};
    uint32_t g = dycl_chain_hosted(c, DYCL_OP_aten_embedding_dense_backward, 0, &table, 2, operands, 3, words);
    dycl_chain_give(c, 0, dycl_chain_reshape(c, g, x.rank, x.sizes));
}

/* All of the positions once, in order or in the reverse: what picks them puts them back. */
static int picks_each(const dycl_chain *c) {
    return dycl_value_is_made_by(c->b->job->graph, c->operands[1], DYCL_OP_iota) &&
           dycl_chain_operand(c, 1)->sizes[0] == dycl_chain_operand(c, 0)->sizes[c->attrs[0]];
}

void dycl_grad_index_select(dycl_chain *c) {
    dycl_value x = *dycl_chain_operand(c, 0);
    if (picks_each(c)) {
        uint32_t both[2] = {c->gradient, dycl_chain_take(c, 1)};
        dycl_chain_give(c, 0, dycl_chain_node(c, DYCL_OP_index_select, 2, both, 1, c->attrs));
        return;
    }
    int64_t dim = c->attrs[0], sizes[DYCL_MAX_RANK];
    const dycl_value *picked = dycl_chain_operand(c, 1);
    for (int i = 0; i < x.rank; i++) sizes[i] = i == dim ? picked->sizes[0] : 1;
    uint32_t index = dycl_chain_cast(c, dycl_chain_reshape(c, dycl_chain_take(c, 1), x.rank, sizes), DYCL_I64);
    memcpy(sizes, x.sizes, sizeof sizes);
    sizes[dim] = picked->sizes[0];
    dycl_infer_contiguous(&x);
    uint32_t operands[3] = {dycl_chain_zeros(c, &x), dycl_chain_expand(c, index, x.rank, sizes), c->gradient};
    dycl_chain_give(c, 0, dycl_chain_hosted(c, DYCL_OP_aten_scatter_add, 0, &x, 3, operands, 1, &dim));
}
