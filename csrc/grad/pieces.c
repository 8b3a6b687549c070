/* Gradients of views: parts of their root's, or of a view on the way there where differentiation ends. */
#include <string.h>

#include "base/alloc.h"
#include "grad/formula.h"
#include "grad/mosaic.h"
#include "ir/infer.h"

struct dycl_piece {
    uint32_t root, view; /* of the segment; root: what it is a part of (dycl_backward_base), DYCL_NONE: taken */
    uint32_t gradient;
};

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

/* A piece of its own. */
static uint32_t joined(dycl_chain *c, const dycl_value *root, uint32_t nth) {
    dycl_piece *piece = &c->b->pieces[nth];
    dycl_value view = look_of(c->b, piece);
    const uint32_t g = without_repeats(c, &view, piece->gradient);
    dycl_box at;
    const int is_box = dycl_box_of(root, &view, &at);
    const dycl_way_back back = way_back(c->b, piece);
    const int all = g == piece->gradient && (is_box ? dycl_box_is_whole(root, &at) : all_once(root, &view));
    uint32_t out = all && back == DYCL_BACK_SAME ? g : spread(c, root, &view, is_box ? &at : NULL, g);
    const int64_t ordinary = 0;
    if (all && back == DYCL_BACK_OWN) out = dycl_chain_node(c, DYCL_OP_contiguous, 1, &out, 1, &ordinary);
    piece->root = DYCL_NONE;
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

#define MOST_ROUNDS 64

/* Parts of the root that are boxes, put together: first those that do not overlap, then those of the rest. */
static dycl_status join_boxes(dycl_backward *b, uint32_t root) {
    const dycl_value *r = &b->job->graph->values[root];
    dycl_chain c = {.b = b, .status = DYCL_OK};
    int count = 0;
    dycl_part *parts = dycl_alloc(((size_t)b->piece_count + 1) * sizeof *parts);
    if (!parts) return dycl_error_set("out of memory for parts of gradients");
    for (uint32_t i = 0; i < b->piece_count; i++) {
        dycl_part *p = &parts[count];
        const dycl_value *view = &b->job->graph->values[b->pieces[i].view];
        if (b->pieces[i].root != root || dycl_value_numel(view) == 0) continue;
        if (!box_of(b, &b->pieces[i], &p->at) || dycl_box_is_whole(r, &p->at)) continue;
        p->nth = i;
        p->gradient = turned(&c, r, &p->at, b->pieces[i].gradient);
        count++;
    }
    for (int begin = 0, taken, round = 0; c.status == DYCL_OK && count - begin > 1 && round < MOST_ROUNDS; round++) {
        uint32_t sum = dycl_mosaic(&c, r, parts + begin, count - begin, &taken);
        if (c.status != DYCL_OK) break;
        for (int i = begin; i < begin + taken && taken > 1; i++) b->pieces[parts[i].nth].root = DYCL_NONE;
        if (taken > 1) c.status = dycl_backward_add(b, root, sum);
        begin += taken;
    }
    dycl_free(parts);
    return c.status;
}

dycl_status dycl_backward_join(dycl_backward *b, uint32_t root) {
    const dycl_value *r = &b->job->graph->values[root];
    dycl_status status;
    if (dycl_value_dense(r) || !dycl_value_overlaps(r)) DYCL_TRY(join_boxes(b, root));
    for (uint32_t i = 0; i < b->piece_count; i++) {
        uint32_t g;
        if (b->pieces[i].root != root) continue;
        DYCL_TRY(join_one(b, i, &g));
        DYCL_TRY(dycl_backward_add(b, root, g));
    }
    drop_taken(b);
    return DYCL_OK;
fail:
    return status;
}
