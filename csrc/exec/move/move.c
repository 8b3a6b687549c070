#include "exec/builder/blocked.h"

#include "base/alloc.h"
#include "base/half.h"

#include <string.h>

/* Operators that only move elements: join, create, band, copy. */

/* ---- cat and pad */

typedef struct {
    dycl_ref to, value;
    size_t count, element;
    dycl_dtype dtype;
} fill_args;

static dycl_status fill_run(const dycl_step *step, dycl_plan *plan) {
    const fill_args *a = step->args;
    const void *value = dycl_at(plan, a->value);
    uint16_t half;
    if (dycl_dtype_is_half(a->dtype)) {
        half = dycl_half_of(a->dtype, *(const float *)value); /* numbers are f32 */
        value = &half;
    }
    dycl_kern_fill(dycl_at(plan, a->to), value, a->count, a->element);
    return DYCL_OK;
}

static dycl_status build_fill(dycl_builder *b, dycl_ref to, uint32_t value, int64_t count) {
    fill_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    a->to = to;
    a->value = dycl_make_ref(b, value);
    a->count = (size_t)count;
    a->dtype = (dycl_dtype)dycl_make_value(b, value)->dtype;
    a->element = dycl_dtype_size(a->dtype);
    dycl_make_read_at(b, a->value, a->element);
    dycl_make_write_at(b, to, a->count * a->element);
    return dycl_make_step(b, fill_run, a, "fill", 10 + 0.05 * (double)count * (double)a->element);
}

static void channels_last(dycl_tensor *t, dycl_layout *out) {
    t->strides[1] = 1;
    t->strides[3] = t->sizes[1];
    t->strides[2] = t->sizes[3] * t->strides[3];
    t->strides[0] = t->sizes[2] * t->strides[2];
    dycl_layout_plain(out, 4, t->sizes, t->strides);
}

/* Results of convolutions joined by channels: channels last when one of them lies so. BAIL: something else. */
static dycl_status join_channels_last(dycl_builder *b, const dycl_node *node) {
    const dycl_graph *g = &b->program->graph;
    const uint32_t *operands = dycl_node_operands(g, node);
    dycl_tensor to, part;
    dycl_layout layout;
    dycl_status status;
    int found = 0;
    dycl_make_tensor(b, node->out, &to);
    if (node->op != DYCL_OP_cat || to.rank != 4 || to.dtype != DYCL_F32 || dycl_node_attrs(g, node)[0] != 1)
        return DYCL_BAIL;
    for (int i = 0; i < node->operand_count; i++) {
        const struct dycl_blocked *blocked = dycl_blocked_of(b, operands[i]);
        found |= blocked && !blocked->layout.opaque && blocked->layout.strides[1] == 1;
        if (dycl_value_numel(&g->values[operands[i]]) == 0) return DYCL_BAIL;
    }
    if (!found) return DYCL_BAIL;
    dycl_ref parts[DYCL_MAX_OPERANDS]; /* all of them first: a reorder that oneDNN has not leaves nothing behind */
    for (int i = 0; i < node->operand_count; i++) {
        dycl_make_tensor(b, operands[i], &part);
        channels_last(&part, &layout);
        DYCL_TRY(dycl_make_as(b, operands[i], &layout, &parts[i]));
    }
    channels_last(&to, &layout);
    DYCL_TRY(dycl_make_result(b, node->out, &layout, &to.ref.slot));
    for (int i = 0; i < node->operand_count; i++) {
        dycl_make_tensor(b, operands[i], &part);
        channels_last(&part, &layout);
        part.ref = parts[i];
        dycl_tensor piece = to;
        piece.sizes[1] = part.sizes[1];
        DYCL_TRY(dycl_make_copy(b, &part, &piece));
        to.ref.offset += part.sizes[1] * (int64_t)sizeof(float);
    }
    return dycl_make_result_done(b, node->out);
fail:
    return status;
}

dycl_status dycl_steps_join(dycl_builder *b, const dycl_block *block) {
    const dycl_graph *g = &b->program->graph;
    const dycl_node *node = &g->nodes[block->first];
    const uint32_t *operands = dycl_node_operands(g, node);
    const int64_t *attrs = dycl_node_attrs(g, node);
    dycl_tensor to, part;
    dycl_status status;
    dycl_make_tensor(b, node->out, &to);
    int64_t element = (int64_t)dycl_dtype_size(to.dtype);
    if (dycl_tensor_numel(&to) == 0) return DYCL_OK;
    status = join_channels_last(b, node);
    if (status != DYCL_BAIL) return status;
    DYCL_TRY(dycl_make_operands_plain(b, block));
    if (node->op == DYCL_OP_cat) {
        int dim = (int)attrs[0];
        int64_t at = 0;
        for (int i = 0; i < node->operand_count; i++) {
            dycl_make_tensor(b, operands[i], &part);
            dycl_tensor piece = to;
            piece.sizes[dim] = part.sizes[dim];
            piece.ref.offset += at * to.strides[dim] * element;
            if (part.ref.slot != to.ref.slot)
                DYCL_TRY(dycl_make_copy(b, &part, &piece)); /* else it was made there (opt/join.c) */
            at += part.sizes[dim];
        }
        return DYCL_OK;
    }
    dycl_make_tensor(b, operands[0], &part);
    DYCL_TRY(build_fill(b, to.ref, operands[1], dycl_tensor_numel(&to)));
    dycl_tensor piece = to;
    for (int d = 0; d < to.rank; d++) {
        int64_t before = attrs[d], after = attrs[to.rank + d], size = part.sizes[d];
        int64_t skip = before < 0 ? -before : 0, lead = before > 0 ? before : 0;
        size -= skip + (after < 0 ? -after : 0);
        part.ref.offset += skip * part.strides[d] * element;
        piece.ref.offset += lead * piece.strides[d] * element;
        part.sizes[d] = piece.sizes[d] = size > 0 ? size : 0;
    }
    return dycl_make_copy(b, &part, &piece);
fail:
    return status;
}

/* ---- full and iota */

typedef struct {
    dycl_ref to, start, step;
    dycl_dtype dtype;
    int64_t count;
} iota_args;

#define IOTA_BODY(type, field, wide)                                                                                   \
    {                                                                                                                  \
        type *out = to;                                                                                                \
        wide first = (wide)start->field, by = (wide)increment->field;                                                  \
        for (int64_t i = 0; i < a->count; i++) out[i] = (type)(first + (wide)i * by);                                  \
        break;                                                                                                         \
    }

static dycl_status iota_run(const dycl_step *step, dycl_plan *plan) {
    const iota_args *a = step->args;
    void *to = dycl_at(plan, a->to);
    const dycl_scalar *start = dycl_at(plan, a->start), *increment = dycl_at(plan, a->step);
    switch (a->dtype) {
    case DYCL_F32: IOTA_BODY(float, f32, double)
    case DYCL_F64: IOTA_BODY(double, f64, double)
    case DYCL_I64: IOTA_BODY(int64_t, i64, uint64_t)
    case DYCL_I32: IOTA_BODY(int32_t, i32, uint64_t)
    case DYCL_I16: IOTA_BODY(int16_t, i16, uint64_t)
    case DYCL_I8: IOTA_BODY(int8_t, i8, uint64_t)
    default: IOTA_BODY(uint8_t, u8, uint64_t)
    }
    return DYCL_OK;
}

dycl_status dycl_steps_create(dycl_builder *b, const dycl_block *block) {
    const dycl_node *node = &b->program->graph.nodes[block->first];
    const uint32_t *operands = dycl_node_operands(&b->program->graph, node);
    const dycl_value *out = dycl_make_value(b, node->out);
    int64_t count = dycl_value_numel(out);
    dycl_ref to = dycl_make_ref(b, node->out);
    if (count == 0) return DYCL_OK;
    if (node->op == DYCL_OP_full) return build_fill(b, to, operands[0], count);
    iota_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    a->to = to;
    a->start = dycl_make_ref(b, operands[0]);
    a->step = dycl_make_ref(b, operands[1]);
    a->dtype = (dycl_dtype)out->dtype;
    a->count = count;
    size_t element = dycl_dtype_size(a->dtype);
    dycl_make_read_at(b, a->start, element);
    dycl_make_read_at(b, a->step, element);
    dycl_make_write_at(b, to, (size_t)count * element);
    return dycl_make_step(b, iota_run, a, "iota", 10 + 0.5 * (double)count);
}

/* ---- tril and triu */

typedef struct {
    dycl_ref to, from;
    int64_t matrices, rows, columns, diagonal;
    int upper;
    size_t element;
} band_args;

static dycl_status band_run(const dycl_step *step, dycl_plan *plan) {
    const band_args *a = step->args;
    char *to = dycl_at(plan, a->to);
    const char *from = dycl_at(plan, a->from);
    size_t pitch = (size_t)a->columns * a->element;
    for (int64_t r = 0; r < a->matrices * a->rows; r++, to += pitch, from += pitch) {
        int64_t edge = r % a->rows + a->diagonal + (a->upper ? 0 : 1); /* first column of the right part */
        if (edge < 0) edge = 0;
        if (edge > a->columns) edge = a->columns;
        size_t left = (size_t)edge * a->element;
        if (a->upper) {
            memset(to, 0, left);
            if (to != from) memcpy(to + left, from + left, pitch - left);
        } else {
            if (to != from) memcpy(to, from, left);
            memset(to + left, 0, pitch - left);
        }
    }
    return DYCL_OK;
}

dycl_status dycl_steps_indexed(dycl_builder *b, const dycl_block *block) {
    const dycl_node *node = &b->program->graph.nodes[block->first];
    const dycl_value *out = dycl_make_value(b, node->out);
    if (dycl_value_numel(out) == 0) return DYCL_OK;
    dycl_tensor from, to;
    dycl_status status;
    band_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    DYCL_TRY(dycl_make_contiguous(b, dycl_node_operands(&b->program->graph, node)[0], &from));
    DYCL_TRY(dycl_make_target(b, node->out, &to));
    a->to = to.ref;
    a->from = from.ref;
    a->rows = to.sizes[to.rank - 2];
    a->columns = to.sizes[to.rank - 1];
    a->matrices = dycl_tensor_numel(&to) / (a->rows * a->columns);
    a->diagonal = dycl_node_attrs(&b->program->graph, node)[0];
    if (a->diagonal > a->columns) a->diagonal = a->columns; /* any further is the same */
    if (a->diagonal < -a->rows) a->diagonal = -a->rows;
    a->upper = node->op == DYCL_OP_triu;
    a->element = dycl_dtype_size(to.dtype);
    dycl_make_read(b, &from);
    dycl_make_write(b, &to);
    DYCL_TRY(dycl_make_step(b, band_run, a, "band", 10 + 0.1 * (double)dycl_tensor_numel(&to)));
    return dycl_make_finish(b, node->out, &to);
fail:
    return status;
}

/* ---- copy */

dycl_status dycl_steps_laid(dycl_builder *b, const dycl_block *block) {
    const dycl_node *node = &b->program->graph.nodes[block->first];
    return dycl_make_laid(b, dycl_make_laid_of(b, node), node->out);
}

dycl_status dycl_steps_copy(dycl_builder *b, const dycl_block *block) {
    const dycl_node *node = &b->program->graph.nodes[block->first];
    dycl_tensor from, to;
    dycl_make_tensor(b, dycl_node_operands(&b->program->graph, node)[0], &from);
    dycl_make_tensor(b, node->out, &to);
    return dycl_make_copy(b, &from, &to);
}
