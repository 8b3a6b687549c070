#include "exec/builder/blocked.h"
#include "exec/tile/lower.h"

#include "base/alloc.h"
#include "exec/tile/batch_norm.h"

#include <omp.h>
#include <stddef.h>
#include <string.h>

/* From a block to a tile program: which memory it touches and how, the shape of the tiles, then instructions
 * (lower.c). */

static dycl_status add_memory(dycl_lower *l, dycl_ref ref, dycl_dtype dtype, const int64_t *strides, int store,
                              int *out) {
    for (int i = 0; i < l->memory_count; i++) {
        dycl_lower_memory *m = &l->memory[i];
        if (m->store == store && m->ref.slot == ref.slot && m->ref.offset == ref.offset && m->dtype == dtype &&
            !memcmp(m->strides, strides, (size_t)l->space.rank * sizeof(int64_t))) {
            *out = i;
            return DYCL_OK;
        }
    }
    if (l->memory_count == DYCL_LOWER_MEMORY) return dycl_error_set("tile block with too many operands");
    dycl_lower_memory *m = &l->memory[l->memory_count];
    memset(m, 0, sizeof *m);
    m->ref = ref;
    m->dtype = dtype;
    m->store = store;
    memcpy(m->strides, strides, (size_t)l->space.rank * sizeof(int64_t));
    *out = l->memory_count++;
    return DYCL_OK;
}

/* A value seen in the node's loop order. */
static void permuted(const dycl_value *value, const dycl_tile_need *need, dycl_value *out) {
    *out = *value;
    if (value->rank != need->rank) return;
    for (int i = 0; i < need->rank; i++) {
        out->sizes[i] = value->sizes[need->dims[i]];
        out->strides[i] = value->strides[need->dims[i]];
    }
}

/* ---- Elementwise over blocked layouts: the order of the elements does not matter, as long as all operands have the
 * same one */

/* 1: this operand is blocked, 0: one element for all, -1: neither. */
static int flat_operand(const dycl_lower *l, const dycl_block *block, uint32_t v) {
    const dycl_program *p = l->b->program;
    uint32_t producer = dycl_program_producer(p, v);
    if (producer != DYCL_NONE && p->block_of[producer] == l->b->block) return 0;
    const dycl_value *value = &p->graph.values[v];
    if (dycl_value_numel(value) == 1 && block->elements != 1) return dycl_blocked_of(l->b, value->root) ? -1 : 0;
    return dycl_blocked_of(l->b, v) && dycl_value_numel(value) == block->elements ? 1 : -1;
}

static int same_sizes(const dycl_layout *layout, const dycl_value *value) {
    return layout->rank == value->rank && !memcmp(layout->sizes, value->sizes, (size_t)value->rank * sizeof(int64_t));
}

/* A view between the operators may have as many elements, and other sizes. */
static int has_sizes(const dycl_program *p, const dycl_block *block, const dycl_layout *layout) {
    for (uint32_t n = block->first; n != DYCL_NONE; n = p->next[n])
        if (!same_sizes(layout, &p->graph.values[p->graph.nodes[n].out])) return 0;
    return 1;
}

/* The layout that all operands of a block share, or NULL. */
static const struct dycl_blocked *flat_layout(const dycl_lower *l, const dycl_block *block) {
    const dycl_program *p = l->b->program;
    const struct dycl_blocked *found = NULL;
    if (!l->b->blocked || block->row) return NULL;
    for (uint32_t n = block->first; n != DYCL_NONE; n = p->next[n]) {
        const dycl_node *node = &p->graph.nodes[n];
        const uint32_t *operands = dycl_node_operands(&p->graph, node);
        if (dycl_op_get((dycl_op)node->op)->family != DYCL_FAMILY_EW || p->graph.values[node->out].dtype != DYCL_F32)
            return NULL;
        if (dycl_value_numel(&p->graph.values[node->out]) != block->elements || p->graph.values[node->out].rank != 4)
            return NULL;
        for (int i = 0; i < node->operand_count; i++) {
            int kind = flat_operand(l, block, operands[i]);
            if (kind < 0) return NULL;
            if (kind == 0) continue;
            const struct dycl_blocked *blocked = dycl_blocked_of(l->b, operands[i]);
            if (found && !dycl_layout_equal(&found->layout, &blocked->layout)) return NULL;
            found = blocked;
        }
    }
    return found && !dycl_layout_padded(&found->layout) && has_sizes(p, block, &found->layout) ? found : NULL;
}

/* Whether an operand has to be copied for a block that works in this layout, NULL: plain. Across the order of its
 * memory it would be read element by element, which takes several times as long as the copy. */
static int moves_for(const dycl_lower *l, uint32_t v, const dycl_layout *layout) {
    const dycl_program *p = l->b->program;
    const dycl_value *value = &p->graph.values[v];
    const struct dycl_blocked *blocked = dycl_blocked_of(l->b, v);
    uint32_t producer = dycl_program_producer(p, v);
    if (producer != DYCL_NONE && p->block_of[producer] == l->b->block) return 0;
    if (!layout) return blocked && !blocked->plain_ready;
    if (value->kind == DYCL_VALUE_SCALAR || !same_sizes(layout, value)) return 0;
    if (blocked) return !dycl_layout_equal(&blocked->layout, layout);
    int64_t last[4];
    dycl_strides_contiguous(4, value->sizes, last);
    for (int i = 0; i < 4; i++) /* what is no plain tensor is read as it lies */
        if (value->sizes[i] > 1 && value->strides[i] != last[i]) return 0;
    for (int i = 0; i < 4; i++)
        if (value->sizes[i] > 1 && value->strides[i] != layout->strides[i]) return 1;
    return 0;
}

static int needed_outside(const dycl_program *p, uint32_t block, const dycl_node *node) {
    if (p->is_output[node->out]) return 1;
    /* uses inside the block do not count */
    uint32_t inside = 0;
    const dycl_graph *g = &p->graph;
    for (uint32_t n = p->blocks[block].first; n != DYCL_NONE; n = p->next[n]) {
        const uint32_t *operands = dycl_node_operands(g, &g->nodes[n]);
        for (int i = 0; i < g->nodes[n].operand_count; i++)
            inside += operands[i] != DYCL_NONE && g->values[operands[i]].root == node->out;
    }
    return p->uses[node->out] > inside;
}

/* What the readers of a result would like: convolutions and pools channels last, as what is kept for the backward pass
 * may be, gradients through a batch norm what its operand is, a program plain memory. */
static int copies_behind(const dycl_lower *l, uint32_t v, int plain) {
    const dycl_program *p = l->b->program;
    const dycl_graph *g = &p->graph;
    int wants_last = 0, wants_plain = p->is_output[v];
    for (uint32_t n = 0; n < g->node_count; n++) {
        const dycl_node *node = &g->nodes[n];
        const uint32_t *operands = dycl_node_operands(g, node);
        dycl_family family = dycl_op_get((dycl_op)node->op)->family;
        if (p->dead[n] || !node->operand_count || operands[0] != v) continue;
        wants_last |= family == DYCL_FAMILY_CONV || family == DYCL_FAMILY_POOL ||
                      (family == DYCL_FAMILY_LAID && dycl_node_attrs(g, node)[0] == 2);
        wants_plain |= node->op == DYCL_OP_batch_norm_back && !dycl_blocked_of(l->b, operands[1]);
    }
    return plain ? wants_last : wants_plain;
}

/* Of a block in this layout, NULL: plain. */
static int copies(const dycl_lower *l, const dycl_block *block, const dycl_layout *layout) {
    const dycl_program *p = l->b->program;
    int count = 0;
    for (uint32_t n = block->first; n != DYCL_NONE; n = p->next[n]) {
        const dycl_node *node = &p->graph.nodes[n];
        const uint32_t *operands = dycl_node_operands(&p->graph, node);
        for (int i = 0; i < node->operand_count; i++)
            count += operands[i] != DYCL_NONE && moves_for(l, operands[i], layout);
        if (needed_outside(p, l->b->block, node)) count += copies_behind(l, node->out, !layout);
    }
    return count;
}

/* Channels-last results of convolutions are strided tensors like any other: a block that iterates over one reads and
 * writes that layout, whatever else it broadcasts. Opaque layouts have no strides, so they only go the flat way. */
static const dycl_layout *strided_layout(const dycl_lower *l, const dycl_block *block) {
    const dycl_program *p = l->b->program;
    const dycl_layout *found = NULL;
    if (!l->b->blocked || block->row) return NULL;
    for (uint32_t n = block->first; n != DYCL_NONE; n = p->next[n]) {
        const dycl_node *node = &p->graph.nodes[n];
        const uint32_t *operands = dycl_node_operands(&p->graph, node);
        if (p->graph.values[node->out].rank != 4) return NULL;
        for (int i = 0; i < node->operand_count; i++) {
            const struct dycl_blocked *blocked = operands[i] == DYCL_NONE ? NULL : dycl_blocked_of(l->b, operands[i]);
            if (!blocked || blocked->layout.opaque) continue;
            if (dycl_value_numel(&p->graph.values[operands[i]]) == block->elements && !found) found = &blocked->layout;
        }
    }
    return found && copies(l, block, found) <= copies(l, block, NULL) ? found : NULL;
}

static dycl_status add_operand(dycl_lower *l, dycl_lower_node *entry, int i, uint32_t v, const dycl_tile_need *need,
                               int64_t level_row) {
    dycl_builder *b = l->b;
    const dycl_program *p = b->program;
    const dycl_value *value = &p->graph.values[v];
    uint32_t producer = dycl_program_producer(p, v);
    if (producer != DYCL_NONE && p->block_of[producer] == b->block) {
        for (int k = 0; k < l->node_count; k++)
            if (l->nodes[k].node == producer) {
                entry->operand[i] = k;
                l->nodes[k].last = l->node_count;
                return DYCL_OK;
            }
        return dycl_error_set("operand %u is not computed before its use", v);
    }
    dycl_value seen;
    int64_t strides[DYCL_SPACE_RANK];
    if (l->flat) {
        strides[0] = dycl_blocked_of(b, v) ? 1 : 0;
        dycl_ref ref = strides[0] ? (dycl_ref){dycl_blocked_of(b, v)->slot, 0, 0} : dycl_make_ref(b, v);
        int at;
        dycl_status flat_status = add_memory(l, ref, (dycl_dtype)value->dtype, strides, 0, &at);
        entry->operand[i] = -1 - at;
        l->memory[at].last = l->node_count;
        return flat_status;
    }
    dycl_ref ref = dycl_make_ref(b, v);
    permuted(value, need, &seen);
    if (l->strided) {
        const struct dycl_blocked *blocked = dycl_blocked_of(b, v);
        if (moves_for(l, v, l->strided)) {
            dycl_status moved = dycl_make_as(b, v, l->strided, &ref);
            if (moved != DYCL_OK) return moved;
            memcpy(seen.strides, l->strided->strides, 4 * sizeof(int64_t));
        } else if (blocked && !blocked->layout.opaque) {
            ref = (dycl_ref){blocked->slot, 0, 0};
            memcpy(seen.strides, blocked->layout.strides, 4 * sizeof(int64_t));
        } else {
            dycl_status plain = dycl_make_operand_plain(b, v);
            if (plain != DYCL_OK) return plain;
        }
    }
    if (!dycl_space_access(&l->space, level_row, &seen, need->rank, need->sizes, strides))
        return dycl_error_set("operand %u does not cover the space of its block", v);
    int m;
    dycl_dtype dtype = (dycl_dtype)value->dtype;
    if (value->kind == DYCL_VALUE_SCALAR) dtype = dycl_dtype_computed(dtype);
    dycl_status status = add_memory(l, ref, dtype, strides, 0, &m);
    entry->operand[i] = -1 - m;
    l->memory[m].last = l->node_count;
    return status;
}

/* A weight or bias row of a normalisation: read whole by the kernel, contiguous. */
static dycl_status add_row_parameter(dycl_lower *l, dycl_lower_node *entry, int i, uint32_t v) {
    if (v == DYCL_NONE) return DYCL_OK;
    dycl_tensor t;
    dycl_status status = dycl_make_contiguous(l->b, v, &t);
    if (status != DYCL_OK) return status;
    int64_t strides[DYCL_SPACE_RANK] = {0}, stride = 1, left = l->row;
    for (int d = l->space.rank - 1; d >= 0 && left > 1; d--) {
        strides[d] = stride;
        stride *= l->space.sizes[d];
        left /= l->space.sizes[d];
    }
    int m;
    status = add_memory(l, t.ref, t.dtype, strides, 0, &m);
    entry->operand[i] = -1 - m;
    l->memory[m].last = l->node_count;
    return status;
}

static dycl_status add_channel_parameters(dycl_lower *l, dycl_lower_node *entry, const dycl_node *node,
                                          const dycl_tile_need *need, int64_t level_row) {
    dycl_ref ref[2];
    dycl_status status = dycl_make_batch_norm(l->b, node, 0, NULL, &ref[0], &ref[1]);
    if (status != DYCL_OK) return status;
    dycl_value channel = {0};
    channel.rank = (uint8_t)need->rank;
    for (int i = 0; i < need->rank; i++) channel.sizes[i] = 1;
    channel.sizes[1] = need->sizes[1];
    channel.strides[1] = 1;
    int64_t strides[DYCL_SPACE_RANK];
    if (!dycl_space_access(&l->space, level_row, &channel, need->rank, need->sizes, strides))
        return dycl_error_set("batch_norm outside its space");
    for (int i = 0; i < 2; i++) {
        int m;
        status = add_memory(l, ref[i], (dycl_dtype)l->b->program->graph.values[node->out].dtype, strides, 0, &m);
        if (status != DYCL_OK) return status;
        entry->operand[1 + i] = -1 - m;
        l->memory[m].last = l->node_count;
    }
    return DYCL_OK;
}

static dycl_status collect(dycl_lower *l, const dycl_block *block) {
    const dycl_program *p = l->b->program;
    const dycl_graph *g = &p->graph;
    dycl_status status;
    for (uint32_t n = block->first; n != DYCL_NONE; n = p->next[n]) {
        const dycl_node *node = &g->nodes[n];
        dycl_family family = dycl_op_get((dycl_op)node->op)->family;
        dycl_lower_node *entry = &l->nodes[l->node_count];
        const uint32_t *operands = dycl_node_operands(g, node);
        dycl_tile_need need;
        dycl_tile_need_of(p, n, &need);
        int64_t elements = 1;
        for (int i = 0; i < need.rank; i++) elements *= need.sizes[i];
        memset(entry, 0, sizeof *entry);
        entry->node = n;
        entry->store = -1;
        entry->last = l->node_count;
        entry->row_level = l->row > 1 && elements != block->elements;
        entry->row_result = entry->row_level || family == DYCL_FAMILY_REDUCE;
        entry->operand_count = node->operand_count;
        if (family == DYCL_FAMILY_NORM) entry->operand_count = node->op == DYCL_OP_rms_norm ? 2 : 3;
        for (int i = 0; i < 3; i++) entry->operand[i] = DYCL_LOWER_ABSENT;
        int64_t level_row = entry->row_level ? l->row : 0;
        DYCL_TRY(add_operand(l, entry, 0, operands[0], &need, level_row));
        if (dycl_op_is_batch_norm((dycl_op)node->op))
            DYCL_TRY(add_channel_parameters(l, entry, node, &need, level_row));
        else
            for (int i = 1; i < node->operand_count; i++) {
                if (family == DYCL_FAMILY_NORM)
                    DYCL_TRY(add_row_parameter(l, entry, i, operands[i]));
                else
                    DYCL_TRY(add_operand(l, entry, i, operands[i], &need, level_row));
            }
        if (needed_outside(p, l->b->block, node) && l->flat) {
            dycl_ref ref = {0, 0, 0};
            int64_t one[DYCL_SPACE_RANK] = {1};
            DYCL_TRY(dycl_make_result(l->b, node->out, &l->flat->layout, &ref.slot));
            DYCL_TRY(add_memory(l, ref, DYCL_F32, one, 1, &entry->store));
        } else if (needed_outside(p, l->b->block, node)) {
            int64_t strides[DYCL_SPACE_RANK];
            const dycl_value *out = &g->values[node->out];
            dycl_ref ref = dycl_make_ref(l->b, node->out);
            int covers;
            if (family == DYCL_FAMILY_REDUCE)
                covers = dycl_space_access(&l->space, l->row, out, out->rank, out->sizes, strides);
            else {
                dycl_value seen;
                permuted(out, &need, &seen);
                if (l->strided && same_sizes(l->strided, out)) {
                    DYCL_TRY(dycl_make_result(l->b, node->out, l->strided, &ref.slot));
                    memcpy(seen.strides, l->strided->strides, 4 * sizeof(int64_t));
                }
                covers = dycl_space_access(&l->space, level_row, &seen, need.rank, need.sizes, strides);
            }
            if (!covers) return dycl_error_set("result %u does not cover the space of its block", node->out);
            DYCL_TRY(add_memory(l, ref, (dycl_dtype)out->dtype, strides, 1, &entry->store));
        }
        l->node_count++;
    }
    return DYCL_OK;
fail:
    return status;
}

dycl_status dycl_make_tile(dycl_builder *b, const dycl_block *block) {
    if (!b->lower) b->lower = dycl_alloc(sizeof *b->lower);
    dycl_lower *l = b->lower;
    if (!l) return dycl_error_set("out of memory");
    dycl_status status;
    memset(l, 0, offsetof(dycl_lower, memory)); /* the arrays are filled as they are used */
    l->b = b;
    l->space = block->space;
    l->row = block->row;
    l->adds_parts = dycl_program_adds_parts(b->program, b->block);
    l->flat = flat_layout(l, block);
    if (l->flat) {
        l->space.rank = 1;
        l->space.sizes[0] = block->elements;
    } else if (!(l->strided = strided_layout(l, block)))
        DYCL_TRY(dycl_make_operands_plain(b, block));
    DYCL_TRY(collect(l, block));
    DYCL_TRY(dycl_lower_shape(l));
    DYCL_TRY(dycl_lower_instructions(l));
    for (int i = 0; i < l->after_count; i++) DYCL_TRY(dycl_make_copy(b, &l->after_from[i], &l->after_to[i]));
    if (l->flat || l->strided)
        for (int i = 0; i < l->node_count; i++)
            DYCL_TRY(dycl_make_result_done(b, b->program->graph.nodes[l->nodes[i].node].out));
fail:
    return status;
}
