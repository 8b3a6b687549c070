/* Elements in other places: views, joins, triangles. */
#include <string.h>

#include "base/alloc.h"
#include "grad/box.h"
#include "grad/formula.h"
#include "ir/infer.h"

struct dycl_piece {
    uint32_t root, view; /* of the segment; root: what it is a part of (dycl_backward_base), DYCL_NONE: taken */
    uint32_t gradient;
};

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

/* ---- Gradients of views: parts of their root's, or of a view on the way there where differentiation ends */

static dycl_status push(dycl_backward *b, uint32_t view, uint32_t gradient) {
    if (!DYCL_MAKE_ROOM(b->pieces, b->piece_room, b->piece_count + 1))
        return dycl_error_set("out of memory for gradients of views");
    b->pieces[b->piece_count++] = (dycl_piece){dycl_backward_base(b, view), view, gradient};
    return DYCL_OK;
}

/* Its look as a view of what it is a part of. */
static dycl_value look_of(const dycl_backward *b, const dycl_piece *piece) {
    dycl_value view = b->job->graph->values[piece->view];
    view.offset -= b->job->graph->values[piece->root].offset;
    return view;
}

static int box_of(const dycl_backward *b, const dycl_piece *piece, dycl_box *out) {
    dycl_value view = look_of(b, piece);
    return dycl_box_of(&b->job->graph->values[piece->root], &view, out);
}

/* The gradient of a box with the root's order of dimensions. */
static uint32_t turned(dycl_chain *c, const dycl_value *root, const dycl_box *at, uint32_t g) {
    int64_t strides[DYCL_MAX_RANK];
    if (c->status != DYCL_OK) return 0;
    dycl_box_turned(root, at, dycl_chain_meta(c, g), strides);
    uint32_t out = 0;
    c->status = dycl_build_view(&c->b->recorder, g, 0, root->rank, at->size, strides, &out);
    return out;
}

/* What a view shows several times is summed. Its look without that. */
static uint32_t without_repeats(dycl_chain *c, dycl_value *view, uint32_t g) {
    uint32_t dims = 0;
    for (int k = 0; k < view->rank; k++)
        if (view->strides[k] == 0 && view->sizes[k] > 1) {
            dims |= UINT32_C(1) << k;
            view->sizes[k] = 1;
        }
    return dims ? dycl_chain_reduce(c, DYCL_OP_sum, g, dims) : g;
}

static int all_once(const dycl_value *root, const dycl_value *view) {
    return view->offset == 0 && dycl_value_dense(view) && dycl_value_numel(view) == dycl_value_numel(root);
}

/* Zeros that lie as the root does, if that fills its memory. */
static uint32_t zeros(dycl_chain *c, const dycl_value *root) {
    if (!dycl_value_dense(root) || dycl_value_numel(root) == 0) { /* of nothing torch makes contiguous ones */
        dycl_value like = *root;
        dycl_infer_contiguous(&like);
        return dycl_chain_zeros(c, &like);
    }
    int64_t numel = dycl_value_numel(root);
    dycl_operand none = dycl_operand_f64(0);
    uint32_t zero = 0, flat = 0, out = 0;
    dycl_status status;
    dycl_recorder *r = &c->b->recorder;
    if (c->status != DYCL_OK) return 0;
    DYCL_TRY(dycl_build_convert(r, &none, (dycl_dtype)root->dtype, &zero));
    DYCL_TRY(dycl_build_node(r, DYCL_OP_full, 1, &zero, 1, &numel, &flat));
    DYCL_TRY(dycl_build_view(r, flat, 0, root->rank, root->sizes, root->strides, &out));
    return out;
fail:
    c->status = status;
    return 0;
}

/* Any other view: put into zeros. */
static uint32_t put(dycl_chain *c, const dycl_value *root, const dycl_value *view, uint32_t g) {
    uint32_t whole = zeros(c, root), out = 0;
    if (c->status != DYCL_OK) return 0;
    c->status =
        dycl_build_view_put(&c->b->recorder, whole, g, view->offset, view->rank, view->sizes, view->strides, &out);
    return out;
}

static uint32_t own_copy(dycl_chain *c, uint32_t g) {
    const int64_t ordinary = 0;
    return dycl_chain_node(c, DYCL_OP_contiguous, 1, &g, 1, &ordinary);
}

/* ---- A part that was written over */

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

/* What torch's operators made of the gradient on the way from the view to what it is a part of. */
static dycl_way_back way_back(const dycl_backward *b, const dycl_piece *piece) {
    const dycl_graph *graph = b->job->graph;
    int same = 1;
    for (uint32_t v = piece->view; v != piece->root && graph->values[v].kind == DYCL_VALUE_NODE;) {
        const dycl_node *node = &graph->nodes[graph->values[v].source];
        if (node->op != DYCL_OP_view) break;
        const dycl_way_back way = dycl_way_of(graph, node);
        if (way == DYCL_BACK_OWN || way == DYCL_BACK_UNFOLD) return DYCL_BACK_OWN;
        same &= way == DYCL_BACK_SAME;
        v = dycl_node_operands(graph, node)[0];
    }
    return same ? DYCL_BACK_SAME : DYCL_BACK_VIEW;
}

/* As much of the root as the piece has, and zeros. */
static uint32_t spread(dycl_chain *c, const dycl_value *root, const dycl_value *view, const dycl_box *at, uint32_t g) {
    int64_t after[DYCL_MAX_RANK];
    if (dycl_value_numel(view) == 0 && !(at && dycl_box_is_whole(root, at))) return zeros(c, root);
    if (at) {
        for (int i = 0; i < root->rank; i++) after[i] = root->sizes[i] - at->start[i] - at->size[i];
        g = turned(c, root, at, g);
        return dycl_box_is_whole(root, at) ? g : dycl_chain_padded(c, g, at->start, after, root->rank);
    }
    if (all_once(root, view)) {
        uint32_t out = 0;
        if (root->canonical && view->canonical) return dycl_chain_reshape(c, g, root->rank, root->sizes);
        if (c->status == DYCL_OK) c->status = dycl_build_dense(&c->b->recorder, g, view->strides, &out);
        g = out;
        if (c->status == DYCL_OK)
            c->status = dycl_build_view(&c->b->recorder, g, 0, root->rank, root->sizes, root->strides, &out);
        return out;
    }
    return dycl_value_overlaps(view) || !dycl_value_dense(root) ? dycl_chain_summed(c, root, view, g)
                                                                : put(c, root, view, g);
}

/* The one dimension that the box does not fill; -1: none, -2: several. */
static int open_dimension(const dycl_value *root, const dycl_box *at) {
    int open = -1;
    for (int i = 0; i < root->rank; i++)
        if (at->size[i] != root->sizes[i]) open = open == -1 ? i : -2;
    return open;
}

/* Slices of one dimension side by side, as chunk, split and unbind make them, are joined again. `first`, if it is one:
 * collects the others that fit behind it, in order, and takes them. */
static int beside(dycl_backward *b, const dycl_value *root, uint32_t first, int dim, dycl_box *boxes, uint32_t *parts) {
    int count = 1;
    parts[0] = first;
    for (int grown = 1; grown && count < DYCL_MAX_OPERANDS;) {
        const dycl_box *last = &boxes[count - 1];
        grown = 0;
        for (uint32_t i = 0; i < b->piece_count && !grown; i++) {
            const dycl_piece *p = &b->pieces[i];
            dycl_box *at = &boxes[count];
            int used = 0;
            for (int k = 0; k < count; k++) used |= parts[k] == i;
            if (used || p->root != b->pieces[first].root || !box_of(b, p, at)) continue;
            if (open_dimension(root, at) != dim || at->start[dim] != last->start[dim] + last->size[dim]) continue;
            parts[count++] = i;
            grown = 1;
        }
    }
    return count;
}

static uint32_t join_beside(dycl_chain *c, const dycl_value *root, int dim, int count, const dycl_box *boxes,
                            const uint32_t *parts) {
    dycl_backward *b = c->b;
    uint32_t values[DYCL_MAX_OPERANDS], out = 0;
    int64_t before[DYCL_MAX_RANK] = {0}, after[DYCL_MAX_RANK] = {0}, at = dim;
    for (int i = 0; i < count; i++) values[i] = turned(c, root, &boxes[i], b->pieces[parts[i]].gradient);
    if (c->status == DYCL_OK) c->status = dycl_build_node(&b->recorder, DYCL_OP_cat, count, values, 1, &at, &out);
    before[dim] = boxes[0].start[dim];
    after[dim] = root->sizes[dim] - boxes[count - 1].start[dim] - boxes[count - 1].size[dim];
    return before[dim] || after[dim] ? dycl_chain_padded(c, out, before, after, root->rank) : out;
}

/* A piece that no other stands directly before. */
static int begins(const dycl_backward *b, const dycl_value *root, uint32_t nth, const dycl_box *at, int dim) {
    for (uint32_t i = 0; i < b->piece_count; i++) {
        dycl_box other;
        if (i == nth || b->pieces[i].root != b->pieces[nth].root) continue;
        if (box_of(b, &b->pieces[i], &other) && open_dimension(root, &other) == dim &&
            other.start[dim] + other.size[dim] == at->start[dim])
            return 0;
    }
    return 1;
}

static uint32_t joined(dycl_chain *c, const dycl_value *root, uint32_t nth) {
    dycl_backward *b = c->b;
    dycl_value view = look_of(b, &b->pieces[nth]);
    uint32_t parts[DYCL_MAX_OPERANDS], g = without_repeats(c, &view, b->pieces[nth].gradient);
    dycl_box boxes[DYCL_MAX_OPERANDS];
    int is_box = dycl_box_of(root, &view, &boxes[0]), dim = is_box ? open_dimension(root, &boxes[0]) : -1;
    int repeats = g != b->pieces[nth].gradient;
    int count = dim >= 0 && !repeats ? beside(b, root, nth, dim, boxes, parts) : 1;
    const dycl_way_back back = way_back(b, &b->pieces[nth]);
    const int all = count == 1 && !repeats && (is_box ? dycl_box_is_whole(root, &boxes[0]) : all_once(root, &view));
    uint32_t out = count > 1                       ? join_beside(c, root, dim, count, boxes, parts)
                   : all && back == DYCL_BACK_SAME ? g
                                                   : spread(c, root, &view, is_box ? &boxes[0] : NULL, g);
    if (all && back == DYCL_BACK_OWN) out = own_copy(c, out);
    for (int i = 1; i < count; i++) b->pieces[parts[i]].root = DYCL_NONE;
    b->pieces[nth].root = DYCL_NONE;
    return out;
}

static dycl_status join_one(dycl_backward *b, uint32_t nth, uint32_t *out) {
    dycl_chain c = {.b = b, .status = DYCL_OK};
    const dycl_value *root = &b->job->graph->values[b->pieces[nth].root];
    if (!dycl_value_dense(root) && dycl_value_overlaps(root)) return dycl_build_bail(&b->recorder, DYCL_BAIL_layout);
    *out = joined(&c, root, nth);
    return c.status;
}

static void drop_taken(dycl_backward *b) {
    while (b->piece_count && b->pieces[b->piece_count - 1].root == DYCL_NONE) b->piece_count--;
}

/* No other view can stand beside it. */
static int shows_all(const dycl_graph *graph, uint32_t of, uint32_t shown) {
    const dycl_value *root = &graph->values[of];
    dycl_value view = graph->values[shown];
    dycl_box at;
    view.offset -= root->offset;
    for (int k = 0; k < view.rank; k++)
        if (view.strides[k] == 0) view.sizes[k] = 1;
    return dycl_box_of(root, &view, &at) ? dycl_box_is_whole(root, &at) : all_once(root, &view);
}

/* Where several are of size 1, their strides do not say which of them is which: the root has fewer. */
static int has_order(const dycl_value *v) {
    int ones = 0;
    for (int i = 0; i < v->rank; i++) ones += v->sizes[i] == 1;
    return ones < 2;
}

dycl_status dycl_backward_piece(dycl_backward *b, uint32_t view, uint32_t gradient) {
    const dycl_graph *graph = b->job->graph;
    uint32_t g, from = dycl_node_operands(graph, &graph->nodes[graph->values[view].source])[0];
    dycl_status status;
    DYCL_TRY(push(b, view, gradient));
    dycl_piece *piece = &b->pieces[b->piece_count - 1];
    if (dycl_backward_leads(b, from) && shows_all(graph, from, view) && has_order(&graph->values[from]))
        piece->root = from; /* has a sum of its own */
    const uint32_t root = piece->root;
    if (!shows_all(graph, root, view)) return dycl_backward_await(b, view, gradient);
    DYCL_TRY(join_one(b, b->piece_count - 1, &g));
    drop_taken(b);
    return dycl_backward_accumulate(b, root, g);
fail:
    return status;
}

dycl_status dycl_backward_late_piece(dycl_backward *b, uint32_t view, uint32_t gradient) {
    return push(b, view, gradient);
}

dycl_status dycl_backward_join(dycl_backward *b, uint32_t root) {
    const dycl_value *r = &b->job->graph->values[root];
    dycl_status status;
    for (int pass = 0; pass < 2; pass++) /* first those that others may follow */
        for (uint32_t i = 0; i < b->piece_count; i++) {
            dycl_box at;
            uint32_t g;
            if (b->pieces[i].root != root) continue;
            int dim = box_of(b, &b->pieces[i], &at) ? open_dimension(r, &at) : -1;
            if (pass == 0 && dim >= 0 && !begins(b, r, i, &at, dim)) continue;
            DYCL_TRY(join_one(b, i, &g));
            DYCL_TRY(dycl_backward_add(b, root, g));
        }
    drop_taken(b);
    return DYCL_OK;
fail:
    return status;
}
