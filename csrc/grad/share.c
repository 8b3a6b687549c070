/* What several products share, as a recurrent net its weights, waits for all of them: their matrices are put below each
 * other, and one product makes the sum. Alone each would write a matrix as large as the weight, and a sum read it. */
#include "base/alloc.h"
#include "grad/formula.h"
#include "ir/infer.h"

struct dycl_share {
    uint32_t value;       /* of the segment; DYCL_NONE: taken */
    uint32_t left, right; /* its gradient is left^T right; right DYCL_NONE: the sum of left's rows */
    int stacks;           /* copying the matrices costs less than another sum */
    int turned;           /* the product lies in memory as its transpose */
};

/* What is read and written, in elements: both matrices twice, or the product three times. */
static int is_worth_stacking(int64_t rows, int64_t m, int64_t n) { return 2 * rows * (m + n) < 3 * m * n; }

static dycl_status push(dycl_backward *b, dycl_share share) {
    if (!DYCL_MAKE_ROOM(b->shares, b->share_room, b->share_count + 1))
        return dycl_error_set("out of memory for gradients of what is shared");
    b->shares[b->share_count++] = share;
    return DYCL_OK;
}

static int look_alike(const dycl_value *a, const dycl_value *b) {
    int same = a->root == b->root && a->offset == b->offset && a->rank == b->rank;
    for (int i = 0; i < a->rank && same; i++) same = a->sizes[i] == b->sizes[i] && a->strides[i] == b->strides[i];
    return same;
}

/* The nth and those that may be stacked with it; they are taken. */
static int take_alike(dycl_backward *b, uint32_t nth, dycl_share *out) {
    const dycl_value *values = b->job->graph->values;
    int count = 0;
    out[count++] = b->shares[nth];
    for (uint32_t i = nth + 1; i < b->share_count && out[0].stacks && count < DYCL_MAX_OPERANDS; i++) {
        dycl_share *s = &b->shares[i];
        if (s->value == DYCL_NONE || !s->stacks || (s->right == DYCL_NONE) != (out[0].right == DYCL_NONE)) continue;
        if (!look_alike(&values[out[0].value], &values[s->value])) continue;
        out[count++] = *s;
        s->value = DYCL_NONE;
    }
    b->shares[nth].value = DYCL_NONE;
    return count;
}

static uint32_t stack(dycl_chain *c, int count, const uint32_t *matrices) {
    uint32_t out = 0;
    int64_t dim = 0;
    if (count == 1) return matrices[0];
    if (c->status == DYCL_OK) c->status = dycl_build_node(&c->b->recorder, DYCL_OP_cat, count, matrices, 1, &dim, &out);
    return out;
}

static uint32_t sum_of(dycl_chain *c, int count, const dycl_share *shares) {
    uint32_t lefts[DYCL_MAX_OPERANDS], rights[DYCL_MAX_OPERANDS];
    for (int i = 0; i < count; i++) {
        lefts[i] = shares[i].left;
        rights[i] = shares[i].right;
    }
    uint32_t left = stack(c, count, lefts);
    if (shares[0].right != DYCL_NONE) {
        uint32_t right = stack(c, count, rights);
        return dycl_chain_laid_product(c, dycl_chain_transpose(c, left), right, shares[0].turned);
    }
    int64_t columns = c->status == DYCL_OK ? dycl_chain_meta(c, left)->sizes[1] : 0;
    return dycl_chain_reshape(c, dycl_chain_reduce(c, DYCL_OP_sum, left, 1), 1, &columns);
}

/* torch's product is a tensor of its own, but for what it shows transposed: in linear layers, always. */
static dycl_status await(dycl_chain *c, const dycl_share *share) {
    dycl_value form = c->b->job->graph->values[share->value];
    dycl_infer_contiguous(&form);
    if (share->right != DYCL_NONE && share->turned) {
        form.strides[0] = 1;
        form.strides[1] = form.sizes[0];
        form.canonical = (uint8_t)dycl_strides_canonical(&form);
    }
    int is_view = share->right == DYCL_NONE || share->turned || c->node->op == DYCL_OP_linear;
    return dycl_backward_await_form(c->b, share->value, form, !is_view);
}

/* Roots are asked for what waits. A view where differentiation ends, and views of it, get their gradients now. */
static void give(dycl_chain *c, int nth, dycl_share share) {
    uint32_t root = c->b->job->graph->values[share.value].root;
    if ((root != share.value && dycl_backward_is_source(c->b, share.value)) ||
        dycl_backward_base(c->b, share.value) != root)
        dycl_chain_give(c, nth, sum_of(c, 1, &share));
    else if ((c->status = push(c->b, share)) == DYCL_OK)
        c->status = await(c, &share);
}

void dycl_chain_give_product(dycl_chain *c, int weight, int bias, uint32_t left, uint32_t right, int turned) {
    if (c->status != DYCL_OK) return;
    const dycl_value *l = dycl_chain_meta(c, left), *r = dycl_chain_meta(c, right);
    int stacks = is_worth_stacking(l->sizes[0], l->sizes[1], r->sizes[1]);
    give(c, weight, (dycl_share){c->operands[weight], left, right, stacks, turned});
    if (bias >= 0 && c->status == DYCL_OK) give(c, bias, (dycl_share){c->operands[bias], left, DYCL_NONE, stacks, 0});
}

dycl_status dycl_backward_join_shares(dycl_backward *b, uint32_t root) {
    const dycl_graph *graph = b->job->graph;
    dycl_chain c = {.b = b, .status = DYCL_OK};
    for (uint32_t i = 0; i < b->share_count && c.status == DYCL_OK; i++) {
        dycl_share alike[DYCL_MAX_OPERANDS];
        uint32_t value = b->shares[i].value;
        if (value == DYCL_NONE || graph->values[value].root != root) continue;
        uint32_t g = sum_of(&c, take_alike(b, i, alike), alike);
        if (c.status != DYCL_OK) break;
        c.status = value == root ? dycl_backward_add(b, root, g) : dycl_backward_late_piece(b, value, g);
    }
    while (b->share_count && b->shares[b->share_count - 1].value == DYCL_NONE) b->share_count--;
    return c.status;
}
