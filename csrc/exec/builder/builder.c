#include "exec/builder/builder.h"

#include "base/alloc.h"
#include "base/sanitize.h"
#include "check/zone.h"

#include <string.h>

#define FIRST_CHUNK 992 /* with its header and the heap's, a size of the heap */
#define CHUNK       4032

typedef struct chunk {
    struct chunk *older;
    size_t used, size;
    char data[] __attribute__((aligned(16)));
} chunk;

void *dycl_plan_alloc(dycl_plan *plan, size_t size) {
    chunk *top = plan->arena;
    if (!DYCL_SANITIZED) size = (size + 15) & ~(size_t)15;
    if (!top || DYCL_SANITIZED || top->size - top->used < size) {
        size_t room = top ? CHUNK : FIRST_CHUNK; /* small plans are many */
        if (DYCL_SANITIZED || size > room) room = size;
        top = dycl_alloc(sizeof(chunk) + room);
        if (!top) {
            dycl_error_set("out of memory");
            return NULL;
        }
        top->older = plan->arena;
        top->used = 0;
        top->size = room;
        plan->arena = top;
        plan->arena_bytes += sizeof(chunk) + room;
    }
    void *out = top->data + top->used;
    top->used += size;
    return memset(out, 0, size);
}

static dycl_status grow(void **array, uint32_t *room, uint32_t needed, size_t element) {
    return dycl_make_room(array, room, needed, element) ? DYCL_OK : dycl_error_set("out of memory");
}

static void shrink(void **array, uint32_t *room, uint32_t count, size_t element) {
    if (*room <= count) return;
    void *smaller = count ? dycl_realloc(*array, count * element) : NULL;
    if (count && !smaller) return; /* no harm */
    if (!count) dycl_free(*array);
    *array = smaller;
    *room = count;
}

void dycl_plan_shrink(dycl_plan *plan) {
    uint32_t room = plan->step_room;
    shrink((void **)&plan->steps, &room, plan->step_count, sizeof *plan->steps);
    shrink((void **)&plan->infos, &plan->step_room, plan->step_count, sizeof *plan->infos);
    shrink((void **)&plan->packings, &plan->packing_room, plan->packing_count, sizeof *plan->packings);
    shrink((void **)&plan->prims, &plan->prim_room, plan->prim_count, sizeof *plan->prims);
    shrink((void **)&plan->autotunes, &plan->autotune_room, plan->autotune_count, sizeof *plan->autotunes);
}

uint32_t dycl_make_laid_of(const dycl_builder *b, const dycl_node *node) {
    const dycl_graph *g = &b->program->graph;
    uint32_t v = dycl_node_operands(g, node)[0];
    const dycl_value *value = &g->values[v], *root = &g->values[value->root];
    int same = !value->offset && value->rank == root->rank && !memcmp(value->sizes, root->sizes, sizeof value->sizes) &&
               !memcmp(value->strides, root->strides, sizeof value->strides);
    return same ? value->root : v;
}

/* Outputs that DYCL_OP_laid makes of what this plan computes. */
static dycl_status find_laid(dycl_builder *b) {
    const dycl_graph *g = &b->program->graph;
    for (uint32_t n = 0; n < g->node_count; n++) {
        const dycl_node *node = &g->nodes[n];
        if (node->op != DYCL_OP_laid || b->program->dead[n] || !b->program->is_output[node->out]) continue;
        uint32_t from = dycl_make_laid_of(b, node);
        if (!b->laid) {
            b->laid = dycl_alloc(g->value_count * sizeof *b->laid);
            if (!b->laid) return dycl_error_set("out of memory");
            memset(b->laid, 0xff, g->value_count * sizeof *b->laid);
        }
        if (g->values[from].kind == DYCL_VALUE_NODE && g->values[from].root == from && !b->program->is_output[from])
            b->laid[from] = node->out;
    }
    return DYCL_OK;
}

dycl_status dycl_builder_init(dycl_builder *b, dycl_plan *plan) {
    memset(b, 0, sizeof *b);
    b->plan = plan;
    b->program = &plan->program;
    const dycl_graph *g = &plan->program.graph;
    uint32_t room = 0;
    dycl_status status = grow((void **)&b->slots, &room, g->value_count + 16, sizeof(dycl_slot));
    if (status != DYCL_OK) return status;
    b->slot_room = room;
    b->slot_count = g->value_count;
    b->dense = dycl_alloc(g->value_count * sizeof(uint32_t));
    if (!b->dense) return dycl_error_set("out of memory");
    memset(b->dense, 0xff, g->value_count * sizeof(uint32_t));
    for (uint32_t v = 0; v < g->value_count; v++) {
        const dycl_value *value = &g->values[v];
        dycl_slot *slot = &b->slots[v];
        memset(slot, 0, sizeof *slot);
        slot->first = slot->share = DYCL_NONE;
        slot->last = 0;
        slot->place = 0;
        slot->fixed = value->kind != DYCL_VALUE_NODE || plan->program.is_output[v];
        if (value->kind == DYCL_VALUE_SCALAR)
            slot->bytes = sizeof(dycl_scalar);
        else if (value->root == v)
            slot->bytes = dycl_value_bytes(value);
    }
    return find_laid(b);
}

void dycl_builder_free(dycl_builder *b) {
    dycl_free(b->slots);
    dycl_free(b->dense);
    dycl_free(b->blocked);
    dycl_free(b->laid);
    dycl_free(b->lower);
    dycl_free(b->touches);
    dycl_free(b->touch_start);
    memset(b, 0, sizeof *b);
}

dycl_status dycl_make_slot(dycl_builder *b, size_t bytes, uint32_t *out_slot) {
    dycl_status status = grow((void **)&b->slots, &b->slot_room, b->slot_count + 1, sizeof(dycl_slot));
    if (status != DYCL_OK) return status;
    b->slots[b->slot_count] = (dycl_slot){.bytes = bytes, .first = DYCL_NONE, .share = DYCL_NONE};
    *out_slot = b->slot_count++;
    return DYCL_OK;
}

dycl_status dycl_make_kept(dycl_builder *b, size_t bytes, uint32_t *out_slot) {
    char *keep = dycl_plan_alloc(b->plan, bytes + (b->plan->check ? DYCL_RED_ZONE : 0));
    if (!keep) return DYCL_ERROR;
    if (b->plan->check) dycl_check_mark(keep + bytes);
    dycl_status status = dycl_make_slot(b, bytes, out_slot);
    if (status != DYCL_OK) return status;
    b->slots[*out_slot].fixed = 1;
    b->slots[*out_slot].keep = keep;
    return DYCL_OK;
}

static void touch(dycl_builder *b, dycl_ref ref, size_t bytes, uint32_t write) {
    uint32_t slot = ref.slot, step = b->plan->step_count;
    dycl_slot *s = &b->slots[slot];
    if (bytes && (ref.offset < 0 || (size_t)ref.offset + bytes > s->bytes)) {
        dycl_error_set("check: step %u would touch %zu bytes at %lld of slot %u, which has %zu", step, bytes,
                       (long long)ref.offset, slot, s->bytes);
        b->failed = 1;
        return;
    }
    if (s->first == DYCL_NONE) s->first = step;
    s->last = step;
    if (grow((void **)&b->touches, &b->touch_room, b->touch_count + 1, sizeof *b->touches) != DYCL_OK) {
        b->failed = 1;
        return;
    }
    b->touches[b->touch_count].step = step;
    b->touches[b->touch_count].slot = slot;
    b->touches[b->touch_count++].write = write;
}

void dycl_make_read_at(dycl_builder *b, dycl_ref ref, size_t bytes) { touch(b, ref, bytes, 0); }
void dycl_make_write_at(dycl_builder *b, dycl_ref ref, size_t bytes) { touch(b, ref, bytes, 1); }
void dycl_make_read(dycl_builder *b, const dycl_tensor *t) { touch(b, t->ref, dycl_tensor_bytes(t), 0); }
void dycl_make_write(dycl_builder *b, const dycl_tensor *t) { touch(b, t->ref, dycl_tensor_bytes(t), 1); }
void dycl_make_serial(dycl_builder *b) { b->plan->infos[b->plan->step_count - 1].serial = 1; }

dycl_status dycl_make_scratch(dycl_builder *b, size_t bytes, dycl_ref *out) {
    out->offset = 0;
    dycl_status status = dycl_make_slot(b, bytes ? bytes : 64, &out->slot);
    if (status != DYCL_OK) return status;
    if (b->variant) {
        b->slots[out->slot].choice = b->choice;
        b->slots[out->slot].variant = b->variant;
    }
    touch(b, *out, bytes, 1);
    return DYCL_OK;
}

void dycl_make_variant(dycl_builder *b, uint32_t variant) {
    b->choice += variant == 1;
    b->variant = variant;
}

dycl_status dycl_make_step(dycl_builder *b, dycl_step_fn run, void *args, const char *kernel, double cost) {
    dycl_plan *plan = b->plan;
    if (b->failed) return DYCL_ERROR;
    if (plan->step_count == plan->step_room) {
        uint32_t room = plan->step_room, again = plan->step_room;
        dycl_status status = grow((void **)&plan->steps, &room, plan->step_count + 1, sizeof(dycl_step));
        if (status == DYCL_OK)
            status = grow((void **)&plan->infos, &again, plan->step_count + 1, sizeof(dycl_step_info));
        if (status != DYCL_OK) return status;
        plan->step_room = room;
    }
    plan->steps[plan->step_count] = (dycl_step){run, args};
    plan->infos[plan->step_count] = (dycl_step_info){.block = b->block, .kernel = kernel, .cost = cost};
    plan->step_count++;
    plan->estimate += cost;
    b->variant = 0;
    return DYCL_OK;
}

dycl_status dycl_make_aside(dycl_builder *b, uint32_t begun, dycl_step_fn run, void *args, const char *kernel,
                            double cost) {
    uint32_t step = b->plan->step_count, first = begun, own = b->touch_count - begun;
    dycl_status status = dycl_make_step(b, run, args, kernel, cost);
    while (first && b->touches[first - 1].step == step) first--;
    if (status != DYCL_OK || first == begun) return status;
    for (uint32_t i = 0; i < own; i++) { /* the others come behind */
        dycl_touch moved = b->touches[begun + i];
        memmove(b->touches + first + i + 1, b->touches + first + i, (begun - first) * sizeof moved);
        b->touches[first + i] = moved;
    }
    for (uint32_t i = first + own; i < b->touch_count; i++)
        b->slots[b->touches[i].slot].last = b->touches[i].step = step + 1;
    return DYCL_OK;
}

dycl_status dycl_make_prim(dycl_builder *b, dycl_prim *prim) {
    dycl_plan *plan = b->plan;
    dycl_status status = grow((void **)&plan->prims, &plan->prim_room, plan->prim_count + 1, sizeof(dycl_prim *));
    if (status != DYCL_OK) {
        dycl_prim_release(prim);
        return status;
    }
    plan->prims[plan->prim_count++] = prim;
    return DYCL_OK;
}

dycl_status dycl_make_autotune(dycl_builder *b, dycl_autotune *autotune) {
    dycl_plan *plan = b->plan;
    if (!autotune) return DYCL_OK;
    dycl_status status =
        grow((void **)&plan->autotunes, &plan->autotune_room, plan->autotune_count + 1, sizeof(dycl_autotune *));
    if (status != DYCL_OK) {
        dycl_autotune_release(autotune);
        return status;
    }
    plan->autotunes[plan->autotune_count++] = autotune;
    if (plan->step_count) plan->infos[plan->step_count - 1].autotune = autotune;
    return DYCL_OK;
}

dycl_ref dycl_make_ref(const dycl_builder *b, uint32_t v) {
    const dycl_value *value = dycl_make_value(b, v);
    return (dycl_ref){value->root, 0, value->offset * (int64_t)dycl_dtype_size((dycl_dtype)value->dtype)};
}

void dycl_make_tensor(const dycl_builder *b, uint32_t v, dycl_tensor *out) {
    const dycl_value *value = dycl_make_value(b, v);
    out->ref = dycl_make_ref(b, v);
    out->dtype = (dycl_dtype)value->dtype;
    out->rank = value->rank;
    memcpy(out->sizes, value->sizes, sizeof out->sizes);
    memcpy(out->strides, value->strides, sizeof out->strides);
}

int64_t dycl_tensor_numel(const dycl_tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->sizes[i];
    return n;
}

size_t dycl_tensor_bytes(const dycl_tensor *t) {
    int64_t last = 0;
    for (int i = 0; i < t->rank; i++) {
        if (t->sizes[i] == 0) return 0;
        last += (t->sizes[i] - 1) * t->strides[i];
    }
    return (size_t)(last + 1) * dycl_dtype_size(t->dtype);
}

int dycl_tensor_contiguous(const dycl_tensor *t) {
    int64_t expected = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        if (t->sizes[i] == 0) return 1;
        if (t->sizes[i] == 1) continue;
        if (t->strides[i] != expected) return 0;
        expected *= t->sizes[i];
    }
    return 1;
}

int dycl_tensor_channels_last(const dycl_tensor *t) {
    static const int order[4] = {1, 3, 2, 0};
    int64_t expected = 1;
    if (t->rank != 4) return 0;
    for (int i = 0; i < 4; i++) {
        if (t->strides[order[i]] != expected) return 0;
        expected *= t->sizes[order[i]];
    }
    return 1;
}

/* ---- Copies */

typedef struct {
    dycl_ref to, from;
    int64_t to_strides[DYCL_MAX_RANK], from_strides[DYCL_MAX_RANK], sizes[DYCL_MAX_RANK];
    int rank;
    size_t element, bytes; /* bytes: both contiguous */
} copy_args;

static dycl_status copy_run(const dycl_step *step, dycl_plan *plan) {
    const copy_args *a = step->args;
    if (a->bytes && a->bytes <= 4096)
        memcpy(dycl_at(plan, a->to), dycl_at(plan, a->from), a->bytes);
    else
        dycl_kern_copy(dycl_at(plan, a->to), a->to_strides, dycl_at(plan, a->from), a->from_strides, a->sizes, a->rank,
                       a->element);
    return DYCL_OK;
}

dycl_status dycl_make_copy(dycl_builder *b, const dycl_tensor *from, const dycl_tensor *to) {
    int64_t n = dycl_tensor_numel(to);
    if (n == 0) return DYCL_OK;
    copy_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    a->to = to->ref;
    a->from = from->ref;
    a->rank = to->rank;
    a->element = dycl_dtype_size(to->dtype);
    memcpy(a->sizes, to->sizes, sizeof a->sizes);
    memcpy(a->to_strides, to->strides, sizeof a->to_strides);
    memcpy(a->from_strides, from->strides, sizeof a->from_strides);
    if (dycl_tensor_contiguous(from) && dycl_tensor_contiguous(to)) a->bytes = (size_t)n * a->element;
    uint32_t begun = b->touch_count;
    dycl_make_read(b, from);
    dycl_make_write(b, to);
    return dycl_make_aside(b, begun, copy_run, a, "copy", 20 + 0.1 * (double)n * (double)a->element);
}

dycl_status dycl_make_contiguous(dycl_builder *b, uint32_t v, dycl_tensor *out) {
    dycl_make_tensor(b, v, out);
    if (dycl_tensor_contiguous(out)) {
        dycl_strides_contiguous(out->rank, out->sizes, out->strides);
        return DYCL_OK;
    }
    dycl_tensor from = *out;
    dycl_strides_contiguous(out->rank, out->sizes, out->strides);
    out->ref.offset = 0;
    if (b->dense[v] != DYCL_NONE) {
        out->ref.slot = b->dense[v];
        return DYCL_OK;
    }
    dycl_status status =
        dycl_make_slot(b, (size_t)dycl_tensor_numel(out) * dycl_dtype_size(out->dtype), &out->ref.slot);
    if (status != DYCL_OK) return status;
    b->dense[v] = out->ref.slot;
    return dycl_make_copy(b, &from, out);
}

dycl_status dycl_make_target(dycl_builder *b, uint32_t v, dycl_tensor *out) {
    dycl_make_tensor(b, v, out);
    if (dycl_tensor_contiguous(out)) {
        dycl_strides_contiguous(out->rank, out->sizes, out->strides);
        return DYCL_OK;
    }
    dycl_strides_contiguous(out->rank, out->sizes, out->strides);
    out->ref.offset = 0;
    return dycl_make_slot(b, (size_t)dycl_tensor_numel(out) * dycl_dtype_size(out->dtype), &out->ref.slot);
}

dycl_status dycl_make_finish(dycl_builder *b, uint32_t v, const dycl_tensor *target) {
    dycl_tensor to;
    dycl_make_tensor(b, v, &to);
    if (to.ref.slot == target->ref.slot) return DYCL_OK;
    if (to.dtype != target->dtype) return dycl_make_rounded(b, v, target);
    return dycl_make_copy(b, target, &to);
}

int dycl_make_is_sibling(const dycl_graph *g, const dycl_node *node, const dycl_node *other) {
    if (other->op != node->op ||
        memcmp(dycl_node_operands(g, other), dycl_node_operands(g, node), node->operand_count * sizeof(uint32_t)))
        return 0;
    const int64_t *attrs = dycl_node_attrs(g, node), *words = dycl_node_attrs(g, other);
    return memcmp(words + 1, attrs + 1, (size_t)(node->attr_count - 1) * sizeof *words) == 0;
}
