#include "exec/tile/lower.h"

/* What goes between memory and registers. Floats of 16 bits are f32 in registers, and rounded behind each operator, as
 * torch's kernels do: a block gives what its operators would give one by one. */

dycl_status dycl_lower_load(dycl_lower *l, const dycl_lower_memory *m, int to) {
    dycl_tile_instruction *i = dycl_lower_emit(l, m->kind == DYCL_KIND_ROW ? DYCL_DO_LOAD_ROW : DYCL_DO_LOAD);
    if (!i) return DYCL_ERROR;
    i->dst = (uint8_t)to;
    i->a = (uint8_t)m->location;
    i->element = (uint8_t)dycl_dtype_size(m->dtype);
    i->stride = m->column_stride;
    l->cost += 0.3;
    return DYCL_OK;
}

dycl_status dycl_lower_store(dycl_lower *l, const dycl_lower_memory *m, int from) {
    dycl_tile_instruction *i = dycl_lower_emit(l, m->kind == DYCL_KIND_ROW ? DYCL_DO_STORE_ROW : DYCL_DO_STORE);
    if (!i) return DYCL_ERROR;
    i->dst = (uint8_t)m->location;
    i->a = (uint8_t)from;
    i->element = (uint8_t)dycl_dtype_size(m->dtype);
    i->stride = m->column_stride;
    l->cost += 0.3;
    return DYCL_OK;
}

static int class_of(const dycl_lower_memory *m) { return m->kind == DYCL_KIND_ROW ? ROW_CLASS : FULL_CLASS; }

static dycl_status convert(dycl_lower *l, dycl_tile_do what, dycl_dtype from, dycl_dtype to, int a, int64_t a_step,
                           int dst, int64_t dst_step) {
    dycl_tile_instruction *i = dycl_lower_emit(l, what);
    if (!i) return DYCL_ERROR;
    i->fn.ew = dycl_kern_cast(dycl_cpu_isa(), from, to);
    i->a = (uint8_t)a;
    i->a_step = a_step;
    i->dst = (uint8_t)dst;
    i->dst_step = dst_step;
    l->cost += 0.05;
    return DYCL_OK;
}

/* How a register and this memory, where it lies, are walked together. */
static dycl_tile_do walk(const dycl_lower *l, const dycl_lower_memory *m) {
    switch (m->kind) {
    case DYCL_KIND_ROW: return DYCL_DO_EW_ROW;
    case DYCL_KIND_COLUMN: return DYCL_DO_EW_COLUMN;
    case DYCL_KIND_ONE: return DYCL_DO_EW_ONE;
    default: return l->program.tile_rows > 1 && !m->dense ? DYCL_DO_EW_ROWS : DYCL_DO_EW;
    }
}

dycl_status dycl_lower_widen(dycl_lower *l, const dycl_lower_memory *m) {
    int class = class_of(m), scratch = 0;
    dycl_tile_do what = walk(l, m);
    dycl_status status;
    if (m->direct)
        return convert(l, what, m->dtype, DYCL_F32, m->location, m->row_bytes, m->loaded,
                       dycl_lower_pitch(l, class, DYCL_F32));
    DYCL_TRY(dycl_lower_take(l, class, &scratch));
    DYCL_TRY(dycl_lower_load(l, m, l->register_location[class][scratch]));
    if (what == DYCL_DO_EW_ROWS) what = DYCL_DO_EW; /* a register is dense */
    DYCL_TRY(convert(l, what, m->dtype, DYCL_F32, l->register_location[class][scratch], 0, m->loaded, 0));
    dycl_lower_give(l, class, scratch);
fail:
    return status;
}

dycl_status dycl_lower_narrow(dycl_lower *l, const dycl_lower_memory *m, int from) {
    int class = class_of(m), scratch = 0;
    dycl_tile_do what = walk(l, m);
    dycl_status status;
    if (m->direct)
        return convert(l, what, DYCL_F32, m->dtype, from, dycl_lower_pitch(l, class, DYCL_F32), m->location,
                       m->row_bytes);
    DYCL_TRY(dycl_lower_take(l, class, &scratch));
    if (what == DYCL_DO_EW_ROWS) what = DYCL_DO_EW;
    DYCL_TRY(convert(l, what, DYCL_F32, m->dtype, from, 0, l->register_location[class][scratch], 0));
    DYCL_TRY(dycl_lower_store(l, m, l->register_location[class][scratch]));
    dycl_lower_give(l, class, scratch);
fail:
    return status;
}

/* Results that 16 bits hold whenever they hold the operands. */
static int is_exact(const dycl_graph *g, const dycl_node *node, dycl_dtype half) {
    const uint32_t *operands = dycl_node_operands(g, node);
    switch (node->op) {
    case DYCL_OP_cast: return g->values[operands[0]].dtype == half;
    case DYCL_OP_amax:
    case DYCL_OP_amin:
    case DYCL_EW_copy:
    case DYCL_EW_neg:
    case DYCL_EW_abs:
    case DYCL_EW_sign:
    case DYCL_EW_relu:
    case DYCL_EW_relu6:
    case DYCL_EW_floor:
    case DYCL_EW_ceil:
    case DYCL_EW_round:
    case DYCL_EW_trunc:
    case DYCL_EW_copysign:
    case DYCL_EW_maximum:
    case DYCL_EW_minimum:
    case DYCL_EW_where: break;
    default: return 0;
    }
    for (int i = 0; i < node->operand_count; i++)
        if (g->values[operands[i]].kind == DYCL_VALUE_SCALAR) return 0;
    return 1;
}

dycl_status dycl_lower_round(dycl_lower *l, const dycl_lower_node *entry, const dycl_node *node, dycl_dtype half) {
    if (is_exact(&l->b->program->graph, node, half)) return DYCL_OK;
    dycl_tile_instruction *i = dycl_lower_emit(l, entry->row_result ? DYCL_DO_EW_ROW : DYCL_DO_EW);
    if (!i) return DYCL_ERROR;
    i->fn.ew = dycl_kern_round(dycl_cpu_isa(), half);
    i->dst = i->a = (uint8_t)entry->location;
    l->cost += 0.05;
    return DYCL_OK;
}
