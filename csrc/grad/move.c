/* Elements in other places: views, joins, triangles. */
#include <string.h>

#include "grad/box.h"
#include "grad/formula.h"
#include "ir/infer.h"

/* ---- Operators */

void dycl_grad_cast(dycl_chain *c) { dycl_chain_give(c, 0, c->gradient); }

void dycl_grad_view(dycl_chain *c) {
    if (!dycl_chain_unfolded(c)) c->status = dycl_backward_piece(c->b, c->node->out, c->gradient);
}

void dycl_grad_cat(dycl_chain *c) {
    int dim = (int)c->attrs[0];
    int64_t at = 0;
    for (int i = 0; i < c->node->operand_count && c->status == DYCL_OK; i++) {
        const dycl_value *v = dycl_chain_operand(c, i);
        if (v->rank != dycl_chain_meta(c, c->gradient)->rank) { /* (0,), which torch lets pass */
            if (dycl_chain_wants(c, i)) dycl_chain_fail(c);
            continue;
        }
        int64_t size = v->sizes[dim];
        uint32_t part = 0;
        if (dycl_chain_wants(c, i)) {
            c->status = dycl_build_slice(&c->b->recorder, c->gradient, dim, at, at + size, 1, &part);
            dycl_chain_give(c, i, part);
        }
        at += size;
    }
}

uint32_t dycl_chain_padded(dycl_chain *c, uint32_t a, const int64_t *before, const int64_t *after, int rank) {
    int64_t attrs[2 * DYCL_MAX_RANK];
    uint32_t operands[2] = {a, 0}, out = 0;
    dycl_operand zero = dycl_operand_f64(0);
    if (c->status == DYCL_OK)
        c->status = dycl_build_convert(&c->b->recorder, &zero, (dycl_dtype)dycl_chain_meta(c, a)->dtype, &operands[1]);
    memcpy(attrs, before, (size_t)rank * sizeof *before);
    memcpy(attrs + rank, after, (size_t)rank * sizeof *after);
    if (c->status == DYCL_OK)
        c->status = dycl_build_node(&c->b->recorder, DYCL_OP_pad, 2, operands, 2 * rank, attrs, &out);
    return out;
}

/* The part of nothing lies as in the whole. */
static uint32_t nothing_within(dycl_chain *c, const dycl_value *x) {
    uint32_t g = c->gradient;
    int64_t keep = 1;
    for (int i = 0; i < x->rank && c->status == DYCL_OK; i++)
        c->status = dycl_build_slice(&c->b->recorder, g, i, c->attrs[i], c->attrs[i] + x->sizes[i], 1, &g);
    return dycl_chain_node(c, DYCL_OP_contiguous, 1, &g, 1, &keep);
}

void dycl_grad_pad(dycl_chain *c) {
    int64_t before[DYCL_MAX_RANK], after[DYCL_MAX_RANK];
    int rank = dycl_chain_operand(c, 0)->rank, only_widens = 1;
    if (dycl_chain_wants(c, 1)) dycl_chain_fail(c);
    for (int i = 0; i < 2 * rank; i++) only_widens &= c->attrs[i] >= 0;
    if (only_widens && dycl_value_numel(dycl_chain_operand(c, 0)) == 0) {
        dycl_chain_give(c, 0, nothing_within(c, dycl_chain_operand(c, 0)));
        return;
    }
    for (int i = 0; i < rank; i++) {
        before[i] = -c->attrs[i];
        after[i] = -c->attrs[rank + i];
    }
    dycl_chain_give(c, 0, dycl_chain_padded(c, c->gradient, before, after, rank));
}

/* attribute: 3 where torch copies the gradient, too */
void dycl_grad_contiguous(dycl_chain *c) {
    const int64_t keep = 1;
    dycl_chain_give(c, 0,
                    c->attrs[0] == 3 ? dycl_chain_node(c, DYCL_OP_contiguous, 1, &c->gradient, 1, &keep) : c->gradient);
}

void dycl_grad_triangle(dycl_chain *c) {
    uint32_t g = 0;
    c->status = dycl_build_node(&c->b->recorder, (dycl_op)c->node->op, 1, &c->gradient, 1, c->attrs, &g);
    dycl_chain_give(c, 0, g);
}

/* ---- A part that was written over */

static uint32_t own_copy(dycl_chain *c, uint32_t g) {
    const int64_t ordinary = 0;
    return dycl_chain_node(c, DYCL_OP_contiguous, 1, &g, 1, &ordinary);
}

/* What a view_put writes, by its attributes. */
static dycl_value part_of(int attr_count, const int64_t *attrs) {
    dycl_value part = {.rank = (uint8_t)((attr_count - 1) / 2), .offset = attrs[0]};
    memcpy(part.sizes, attrs + 1, part.rank * sizeof *attrs);
    memcpy(part.strides, attrs + 1 + part.rank, part.rank * sizeof *attrs);
    return part;
}

/* The part of a gradient as it was before other parts were cleared, one by one, in each of which torch copies the whole
 * of it: those copies are not made where nobody reads them. */
static uint32_t uncleared(const dycl_chain *c, uint32_t g, const dycl_value *part) {
    const dycl_graph *graph = &c->b->recorder.graph;
    const dycl_value *root = dycl_chain_meta(c, g);
    dycl_box at, other;
    if (!dycl_box_of(root, part, &at)) return g;
    while (dycl_value_is_made_by(graph, g, DYCL_OP_view_put)) {
        const dycl_node *node = &graph->nodes[graph->values[g].source];
        const dycl_value written = part_of(node->attr_count, dycl_node_attrs(graph, node));
        if (!dycl_box_of(root, &written, &other) || !dycl_boxes_are_apart(root->rank, &at, &other)) break;
        g = dycl_node_operands(graph, node)[0];
    }
    return g;
}

static int looks_like(const dycl_value *whole, const dycl_value *part) {
    int same = part->offset == 0 && part->rank == whole->rank;
    for (int i = 0; i < part->rank && same; i++)
        same = part->sizes[i] == whole->sizes[i] && part->strides[i] == whole->strides[i];
    return same;
}

void dycl_grad_view_put(dycl_chain *c) {
    dycl_value base = *dycl_chain_operand(c, 0), part = part_of(c->node->attr_count, c->attrs);
    uint32_t operands[2] = {dycl_chain_laid(c, c->gradient, &base), 0}, own = 0;
    part.dtype = base.dtype;
    if (c->status == DYCL_OK && dycl_chain_wants(c, 1)) {
        dycl_value form = part;
        dycl_infer_preserve(&part, &form);
        uint32_t from = uncleared(c, operands[0], &part);
        own = from;
        if (!looks_like(dycl_chain_meta(c, from), &part)) { /* torch copies what it takes out */
            c->status = dycl_build_view(&c->b->recorder, from, part.offset, part.rank, part.sizes, part.strides, &own);
            own = own_copy(c, own);
        }
        dycl_chain_give(c, 1, dycl_chain_laid(c, own, &form));
    }
    if (!dycl_chain_wants(c, 0)) return;
    dycl_infer_contiguous(&part);
    operands[1] = dycl_chain_zeros(c, &part);
    dycl_chain_give(c, 0, dycl_chain_node(c, DYCL_OP_view_put, 2, operands, c->node->attr_count, c->attrs));
}
