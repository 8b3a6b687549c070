/* Attention, whose weights are computed again: [b, h, l, s] of them for a while. */
#include <math.h>

#include "grad/formula.h"

#define MUL(a, b)     dycl_chain_2(c, DYCL_OP_mul, a, b)
#define PRODUCT(a, b) dycl_chain_product(c, a, b)
#define TRANSPOSED(a) dycl_chain_transpose(c, a)
#define SCALED(a)     dycl_chain_number(c, DYCL_OP_mul, a, scale)
#define MOST_WEIGHTS  (INT64_C(1) << 24) /* 64 MiB; torch's own backward pass keeps none */

int dycl_grad_suits_attention(const dycl_value *q, const dycl_value *k, int masked) {
    int64_t heads = q->sizes[0] * q->sizes[1], weights = heads * q->sizes[2] * k->sizes[2];
    return !masked && k->sizes[1] == q->sizes[1] && k->sizes[0] == q->sizes[0] && weights > 0 &&
           weights <= MOST_WEIGHTS && q->sizes[3] > 0;
}

/* softmax of the rows, of which one that is causal sees as many as it has above itself */
static uint32_t weights_of(dycl_chain *c, uint32_t scores, int causal) {
    int64_t row = 3;
    uint32_t out = 0;
    if (c->status != DYCL_OK) return 0;
    dycl_value v = *dycl_chain_meta(c, scores);
    if (causal) {
        uint32_t seen = dycl_chain_2(c, DYCL_OP_ge, dycl_chain_positions(c, 4, 2, v.sizes[2]),
                                     dycl_chain_positions(c, 4, 3, v.sizes[3]));
        scores = dycl_chain_where(c, seen, scores, dycl_chain_constant(c, scores, -INFINITY));
    }
    if (c->status == DYCL_OK) c->status = dycl_build_node(&c->b->recorder, DYCL_OP_softmax, 1, &scores, 1, &row, &out);
    return out;
}

/* q, k, v, mask*; attributes: causal, scale */
void dycl_grad_attention(dycl_chain *c) {
    double scale = dycl_attr_f64(c->attrs[1]);
    if (!dycl_grad_suits_attention(dycl_chain_operand(c, 0), dycl_chain_operand(c, 1), c->operands[3] != DYCL_NONE))
        dycl_chain_fail(c);
    uint32_t q = dycl_chain_take(c, 0), k = dycl_chain_take(c, 1), v = dycl_chain_take(c, 2);
    uint32_t weights = weights_of(c, SCALED(PRODUCT(q, TRANSPOSED(k))), (int)c->attrs[0]);
    if (dycl_chain_wants(c, 2)) dycl_chain_give(c, 2, PRODUCT(TRANSPOSED(weights), c->gradient));
    if (!dycl_chain_wants(c, 0) && !dycl_chain_wants(c, 1)) return;
    uint32_t along = MUL(PRODUCT(c->gradient, TRANSPOSED(v)), weights);
    uint32_t scores =
        SCALED(dycl_chain_2(c, DYCL_OP_sub, along, MUL(weights, dycl_chain_reduce(c, DYCL_OP_sum, along, 8))));
    if (dycl_chain_wants(c, 0)) dycl_chain_give(c, 0, PRODUCT(scores, k));
    if (dycl_chain_wants(c, 1)) dycl_chain_give(c, 1, PRODUCT(TRANSPOSED(scores), q));
}
