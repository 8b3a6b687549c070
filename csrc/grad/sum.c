/* How torch's engine adds gradients up (InputBuffer::accumulate): in place where nobody else has the memory of what it
 * adds to, so that the sum lies as that does; else as any other sum. */
#include <string.h>

#include "base/alloc.h"
#include "grad/box.h"
#include "grad/formula.h"
#include "ir/infer.h"

struct dycl_awaited {
    dycl_strides strides;
    int is_own; /* torch adds to it in place */
};

struct dycl_held {
    uint32_t times; /* by root: gradients that have its memory and have not been gone back with */
    uint8_t is_own; /* a view that is none in torch */
};

static dycl_status make_room(dycl_backward *b) {
    const uint32_t count = b->recorder.graph.value_count;
    const uint32_t known = b->held_room;
    if (!DYCL_MAKE_ROOM(b->held, b->held_room, count)) return dycl_error_set("out of memory for %u gradients", count);
    if (b->held_room > known) memset(b->held + known, 0, (b->held_room - known) * sizeof *b->held);
    return DYCL_OK;
}

dycl_status dycl_backward_own(dycl_backward *b, uint32_t gradient) {
    dycl_status status = make_room(b);
    if (status == DYCL_OK) b->held[gradient].is_own = 1;
    return status;
}

static dycl_status hold(dycl_backward *b, uint32_t gradient) {
    dycl_status status = make_room(b);
    if (status == DYCL_OK) b->held[b->recorder.graph.values[gradient].root].times++;
    return status;
}

void dycl_backward_release(dycl_backward *b, uint32_t gradient) {
    b->held[b->recorder.graph.values[gradient].root].times--;
}

/* A tensor that torch may add to: it has memory of its own, all of which it fills, and nobody else has it; a view, even
 * of what nobody else has, keeps its base. */
static int is_own(const dycl_backward *b, uint32_t gradient) {
    const dycl_value *v = &b->recorder.graph.values[gradient];
    for (int i = 0; i < v->rank; i++)
        if (v->strides[i] == 0 && v->sizes[i] != 1) return 0; /* expanded, of nothing too */
    if (b->held[v->root].times > 1 || !dycl_value_dense(v)) return 0;
    return b->held[gradient].is_own || (v->root == gradient && v->kind == DYCL_VALUE_NODE);
}

dycl_status dycl_backward_add(dycl_backward *b, uint32_t value, uint32_t gradient) {
    uint32_t *sum = &b->gradient[value], both[2] = {*sum, gradient};
    dycl_status status;
    if (*sum == DYCL_NONE) {
        *sum = gradient;
    } else {
        dycl_backward_release(b, *sum);
        DYCL_TRY(dycl_build_node(&b->recorder, DYCL_OP_add, 2, both, 0, NULL, sum));
    }
    return hold(b, *sum);
fail:
    return status;
}

static dycl_status lay(dycl_backward *b, uint32_t value, const int64_t *strides) {
    const uint32_t before = b->gradient[value];
    uint32_t laid;
    dycl_status status;
    DYCL_TRY(dycl_build_dense(&b->recorder, before, strides, &laid));
    if (laid == before) return DYCL_OK;
    dycl_backward_release(b, before);
    b->gradient[value] = laid;
    DYCL_TRY(hold(b, laid));
    return dycl_backward_own(b, laid);
fail:
    return status;
}

/* ---- Of what waits for others, only how it lies */

static dycl_value with_strides(const dycl_value *sizes, const int64_t *strides) {
    dycl_value v = *sizes;
    memcpy(v.strides, strides, sizeof v.strides);
    v.canonical = (uint8_t)dycl_strides_canonical(&v);
    return v;
}

static void add_form(dycl_awaited *sum, const dycl_value *form) {
    if (sum->is_own) return;
    const dycl_value first = with_strides(form, sum->strides), *both[2] = {&first, form};
    dycl_value out = *form;
    dycl_infer_iterator(&out, 2, both);
    memcpy(sum->strides, out.strides, sizeof sum->strides);
    sum->is_own = 1;
}

dycl_status dycl_backward_accumulate(dycl_backward *b, uint32_t value, uint32_t gradient) {
    const uint32_t before = b->gradient[value];
    if (b->awaited[value]) {
        add_form(&b->forms[b->awaited[value] - 1], &b->recorder.graph.values[gradient]);
        return dycl_backward_add(b, value, gradient);
    }
    int in_place = before != DYCL_NONE && before != gradient && is_own(b, before);
    dycl_status status = dycl_backward_add(b, value, gradient);
    if (status != DYCL_OK || !in_place) return status;
    const dycl_value like = b->recorder.graph.values[before];
    return lay(b, value, like.strides);
}

/* How the gradient of a view's operand lies, by that of the view's. */
static void go_back(const dycl_graph *graph, const dycl_node *node, dycl_value *form, int *is_own) {
    const dycl_value *from = &graph->values[dycl_node_operands(graph, node)[0]];
    const dycl_way_back way = dycl_way_of(graph, node);
    dycl_value view = graph->values[node->out], back = *from;
    dycl_box at;
    int repeats = 0;
    view.offset -= from->offset;
    for (int k = 0; k < view.rank; k++) repeats |= view.strides[k] == 0 && view.sizes[k] > 1;
    if (way == DYCL_BACK_SAME && dycl_chain_same_sizes(form, from)) return;
    const int shows_all =
        way != DYCL_BACK_OWN && way != DYCL_BACK_UNFOLD && !repeats && dycl_value_numel(from) == dycl_value_numel(form);
    *is_own = 0;
    if (shows_all && dycl_box_of(from, &view, &at) && dycl_box_is_whole(from, &at)) {
        dycl_box_turned(from, &at, form, back.strides);
        *form = with_strides(&back, back.strides);
    } else if (shows_all && dycl_value_numel(from) && dycl_view_strides(form, from->rank, from->sizes, back.strides)) {
        *form = with_strides(&back, back.strides);
    } else { /* put into zeros, summed or copied */
        dycl_infer_contiguous(&back);
        *form = back;
        *is_own = 1;
    }
}

static dycl_status push(dycl_backward *b, uint32_t value, dycl_awaited form) {
    if (!DYCL_MAKE_ROOM(b->forms, b->form_room, b->form_count + 1))
        return dycl_error_set("out of memory for %u sums of gradients", b->form_count);
    b->forms[b->form_count++] = form;
    b->awaited[value] = b->form_count;
    return DYCL_OK;
}

dycl_status dycl_backward_await_form(dycl_backward *b, uint32_t view, dycl_value form, int own) {
    const dycl_graph *graph = b->job->graph;
    const uint32_t base = dycl_backward_base(b, view);
    dycl_status status;
    while (view != base) {
        const dycl_node *node = &graph->nodes[graph->values[view].source];
        go_back(graph, node, &form, &own);
        view = dycl_node_operands(graph, node)[0];
    }
    dycl_awaited first = {.is_own = own};
    memcpy(first.strides, form.strides, sizeof first.strides);
    if (!b->awaited[base] && b->gradient[base] == DYCL_NONE) return push(b, base, first);
    if (!b->awaited[base]) {
        const dycl_value *sum = &b->recorder.graph.values[b->gradient[base]];
        first.is_own = is_own(b, b->gradient[base]);
        memcpy(first.strides, sum->strides, sizeof first.strides);
        DYCL_TRY(push(b, base, first));
    }
    add_form(&b->forms[b->awaited[base] - 1], &form);
    return DYCL_OK;
fail:
    return status;
}

dycl_status dycl_backward_await(dycl_backward *b, uint32_t view, uint32_t gradient) {
    dycl_status status = make_room(b);
    return status == DYCL_OK ? dycl_backward_await_form(b, view, b->recorder.graph.values[gradient], 0) : status;
}

/* Within the graph nobody sees how a gradient lies: only what costs nothing is done there. */
dycl_status dycl_backward_settle(dycl_backward *b, uint32_t value) {
    const uint32_t nth = b->awaited[value];
    if (!nth) return DYCL_OK;
    const dycl_value *sum = &b->recorder.graph.values[b->gradient[value]];
    dycl_strides strides;
    memcpy(strides, b->forms[nth - 1].strides, sizeof strides);
    b->awaited[value] = 0;
    for (int i = 0; i < sum->rank && !dycl_backward_is_source(b, value); i++)
        if (sum->sizes[i] != 1 && sum->strides[i] != strides[i]) return DYCL_OK;
    return lay(b, value, strides);
}
