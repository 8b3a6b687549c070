#include "exec/builder/blocked.h"

#include "base/alloc.h"
#include "ir/infer.h"

#include <string.h>

typedef struct {
    dycl_prim *prim;
    dycl_ref src, dst, scratch;
} reorder_args;

static dycl_status reorder_run(const dycl_step *step, dycl_plan *plan) {
    const reorder_args *a = step->args;
    dycl_prim_args x = {
        .src = dycl_at(plan, a->src), .dst = dycl_at(plan, a->dst), .scratch = dycl_at(plan, a->scratch)};
    return dycl_prim_execute(a->prim, &x);
}

dycl_status dycl_make_reorder(dycl_builder *b, dycl_ref src, const dycl_layout *from, dycl_ref dst,
                              const dycl_layout *to) {
    reorder_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    dycl_status status;
    DYCL_TRY(dycl_prim_reorder(from, to, &a->prim));
    DYCL_TRY(dycl_make_prim(b, a->prim));
    a->src = src;
    a->dst = dst;
    uint32_t begun = b->touch_count;
    dycl_make_read_at(b, src, dycl_layout_bytes(from));
    dycl_make_write_at(b, dst, dycl_layout_bytes(to));
    DYCL_TRY(dycl_make_scratch(b, dycl_prim_scratch(a->prim), &a->scratch));
    DYCL_TRY(dycl_make_aside(b, begun, reorder_run, a, "reorder", 500 + 0.1 * (double)dycl_layout_bytes(to)));
    b->plan->infos[b->plan->step_count - 1].prim = a->prim;
    return DYCL_OK;
fail:
    return status;
}

/* oneDNN knows these layouts as f32's only. A mask or an index that follows a convolution takes over its order of
 * dimensions, not its element: what lies plain can have any dtype and is moved as a strided tensor, in half the time
 * that oneDNN's reorder takes. */
static size_t bytes_of(const dycl_builder *b, uint32_t v, const dycl_layout *layout) {
    return dycl_layout_bytes(layout) / sizeof(float) * dycl_dtype_size((dycl_dtype)dycl_make_value(b, v)->dtype);
}

static dycl_tensor tensor_of(dycl_dtype dtype, dycl_ref ref, const dycl_layout *layout) {
    dycl_tensor t = {.ref = ref, .dtype = dtype, .rank = layout->rank};
    memcpy(t.sizes, layout->sizes, (size_t)layout->rank * sizeof(int64_t));
    memcpy(t.strides, layout->strides, (size_t)layout->rank * sizeof(int64_t));
    return t;
}

static dycl_status relayout(dycl_builder *b, uint32_t v, dycl_ref src, const dycl_layout *from, dycl_ref dst,
                            const dycl_layout *to) {
    dycl_dtype dtype = (dycl_dtype)dycl_make_value(b, v)->dtype;
    if (from->opaque || to->opaque) {
        if (dtype == DYCL_F32) return dycl_make_reorder(b, src, from, dst, to);
        return dycl_error_set("a layout of oneDNN's for %s", dycl_dtype_name(dtype));
    }
    dycl_tensor here = tensor_of(dtype, src, from), there = tensor_of(dtype, dst, to);
    return dycl_make_copy(b, &here, &there);
}

void dycl_make_layout(const dycl_builder *b, uint32_t v, dycl_layout *out) {
    const dycl_value *value = dycl_make_value(b, v);
    dycl_layout_plain(out, value->rank, value->sizes, value->strides);
}

const struct dycl_blocked *dycl_blocked_of(const dycl_builder *b, uint32_t v) {
    const struct dycl_blocked *found = b->blocked && dycl_make_value(b, v)->root == v ? b->blocked[v] : NULL;
    return found && found->slot != v ? found : NULL;
}

/* Notes that root value v lies in `slot` in this layout. */
static dycl_status note(dycl_builder *b, uint32_t v, const dycl_layout *layout, uint32_t slot,
                        struct dycl_blocked **out) {
    if (!b->blocked) {
        b->blocked = dycl_alloc_zero(b->program->graph.value_count * sizeof *b->blocked);
        if (!b->blocked) return dycl_error_set("out of memory");
    }
    struct dycl_blocked *blocked = dycl_plan_alloc(b->plan, sizeof *blocked);
    if (!blocked) return DYCL_ERROR;
    blocked->layout = *layout;
    blocked->slot = slot;
    blocked->plain_ready = slot == v;
    blocked->other_slot = DYCL_NONE;
    *out = b->blocked[v] = blocked;
    return DYCL_OK;
}

dycl_status dycl_make_result(dycl_builder *b, uint32_t v, const dycl_layout *layout, uint32_t *out_slot) {
    dycl_layout plain;
    dycl_make_layout(b, v, &plain);
    if (dycl_layout_equal(&plain, layout)) {
        *out_slot = v;
        return DYCL_OK;
    }
    struct dycl_blocked *blocked;
    if (b->laid && b->laid[v] != DYCL_NONE) {
        dycl_make_layout(b, b->laid[v], &plain);
        if (dycl_layout_equal(&plain, layout)) return note(b, v, layout, *out_slot = b->laid[v], &blocked);
    }
    dycl_status status = dycl_make_slot(b, bytes_of(b, v, layout), out_slot);
    return status == DYCL_OK ? note(b, v, layout, *out_slot, &blocked) : status;
}

static dycl_status make_plain(dycl_builder *b, uint32_t root) {
    struct dycl_blocked *blocked = b->blocked ? b->blocked[root] : NULL;
    if (!blocked || blocked->plain_ready) return DYCL_OK;
    dycl_layout plain;
    dycl_make_layout(b, root, &plain);
    blocked->plain_ready = 1;
    return relayout(b, root, (dycl_ref){blocked->slot, 0, 0}, &blocked->layout, (dycl_ref){root, 0, 0}, &plain);
}

dycl_status dycl_make_laid(dycl_builder *b, uint32_t v, uint32_t result) {
    const dycl_value *value = dycl_make_value(b, v);
    struct dycl_blocked *blocked = b->blocked && value->root == v ? b->blocked[v] : NULL;
    dycl_layout from, to;
    dycl_ref src = dycl_make_ref(b, v);
    dycl_status status = DYCL_OK;
    dycl_make_layout(b, v, &from);
    dycl_make_layout(b, result, &to);
    if (blocked && blocked->slot == result) return DYCL_OK;
    if (value->kind == DYCL_VALUE_FEED && dycl_value_dense(value) && !b->program->is_output[result])
        return note(b, result, &from, v, &blocked);
    if (blocked && (!blocked->plain_ready || dycl_layout_equal(&blocked->layout, &to))) {
        from = blocked->layout;
        src = (dycl_ref){blocked->slot, 0, 0};
    } else {
        status = make_plain(b, value->root);
    }
    return status == DYCL_OK ? relayout(b, result, src, &from, (dycl_ref){result, 0, 0}, &to) : status;
}

dycl_status dycl_make_result_done(dycl_builder *b, uint32_t v) {
    return b->program->is_output[v] ? make_plain(b, v) : DYCL_OK;
}

dycl_status dycl_make_as(dycl_builder *b, uint32_t v, const dycl_layout *layout, dycl_ref *out) {
    uint32_t root = dycl_make_value(b, v)->root;
    struct dycl_blocked *blocked = b->blocked ? b->blocked[root] : NULL;
    dycl_status status;
    dycl_layout plain;
    dycl_tensor x;
    if (blocked && root == v) {
        *out = (dycl_ref){blocked->slot, 0, 0};
        if (dycl_layout_equal(&blocked->layout, layout)) return DYCL_OK;
        out->slot = blocked->other_slot;
        if (blocked->other_slot != DYCL_NONE && dycl_layout_equal(&blocked->other, layout)) return DYCL_OK;
        DYCL_TRY(dycl_make_slot(b, bytes_of(b, v, layout), &out->slot));
        blocked->other = *layout;
        blocked->other_slot = out->slot;
        return relayout(b, v, (dycl_ref){blocked->slot, 0, 0}, &blocked->layout, *out, layout);
    }
    DYCL_TRY(make_plain(b, root));
    dycl_make_layout(b, v, &plain);
    int copied = !dycl_layout_describable(&plain); /* expanded, or windows that overlap */
    if (copied) {
        DYCL_TRY(dycl_make_contiguous(b, v, &x));
        dycl_layout_plain(&plain, x.rank, x.sizes, x.strides);
        *out = x.ref;
    } else {
        *out = dycl_make_ref(b, v);
    }
    if (dycl_layout_equal(&plain, layout)) return DYCL_OK;
    dycl_ref from = *out;
    *out = (dycl_ref){0, 0, 0};
    DYCL_TRY(dycl_make_slot(b, bytes_of(b, v, layout), &out->slot));
    if (root == v && !copied) { /* another consumer may ask for the same form */
        DYCL_TRY(note(b, v, &plain, v, &blocked));
        blocked->other = *layout;
        blocked->other_slot = out->slot;
    }
    return relayout(b, v, from, &plain, *out, layout);
fail:
    return status;
}

dycl_status dycl_make_operand_plain(dycl_builder *b, uint32_t v) { return make_plain(b, dycl_make_value(b, v)->root); }

dycl_status dycl_make_operands_plain(dycl_builder *b, const dycl_block *block) {
    if (!b->blocked) return DYCL_OK;
    const dycl_graph *g = &b->program->graph;
    for (uint32_t n = block->first; n != DYCL_NONE; n = b->program->next[n]) {
        const uint32_t *operands = dycl_node_operands(g, &g->nodes[n]);
        for (int i = 0; i < g->nodes[n].operand_count; i++) {
            if (operands[i] == DYCL_NONE) continue;
            dycl_status status = make_plain(b, g->values[operands[i]].root);
            if (status != DYCL_OK) return status;
        }
    }
    return DYCL_OK;
}
