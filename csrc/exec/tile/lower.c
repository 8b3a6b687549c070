#include "exec/tile/lower.h"

#include <string.h>

/* Instructions of a tile program. A value is FULL (an element for each of the tile), or ROW (one for each row). An
 * operand may also be a COLUMN (the same row for all rows) or ONE element; the last three are scalars or repeats to an
 * elementwise kernel. */

typedef struct {
    int location;
    dycl_lower_kind kind;
    dycl_dtype dtype;
    int dense; /* FULL: rows follow one another, as in a register */
    int64_t row_bytes;
} operand;

dycl_status dycl_lower_location(dycl_lower *l, dycl_tile_location at, int *out) {
    if (l->program.location_count == DYCL_TILE_LOCATIONS) return dycl_error_set("tile block with too many locations");
    l->locations[l->program.location_count] = at;
    *out = l->program.location_count++;
    return DYCL_OK;
}

dycl_tile_instruction *dycl_lower_emit(dycl_lower *l, dycl_tile_do what) {
    if (l->program.instruction_count == DYCL_TILE_INSTRUCTIONS) {
        dycl_error_set("tile block with too many instructions");
        return NULL;
    }
    dycl_tile_instruction *i = &l->instructions[l->program.instruction_count++];
    memset(i, 0, sizeof *i);
    i->what = (uint8_t)what;
    return i;
}

/* ---- Registers. Their offsets are known at the end; until then `offset` holds the number. A register's location is
 * reused with it. */
dycl_status dycl_lower_take(dycl_lower *l, int class, int *out) {
    if (l->free_count[class]) {
        *out = l->free_list[class][--l->free_count[class]];
        return DYCL_OK;
    }
    int number = l->register_count[class]++;
    dycl_tile_location at = {.at = DYCL_AT_REGISTER, .offset = class ? -1 - number : number};
    *out = number;
    return dycl_lower_location(l, at, &l->register_location[class][number]);
}

void dycl_lower_give(dycl_lower *l, int class, int number) { l->free_list[class][l->free_count[class]++] = number; }

/* A second location on a register, with the row pitch of its element size. */
int64_t dycl_lower_pitch(const dycl_lower *l, int class, dycl_dtype dtype) {
    return (int64_t)dycl_dtype_size(dtype) * (class == FULL_CLASS ? l->program.columns : 1);
}

static dycl_status load(dycl_lower *l, dycl_lower_memory *m) {
    int class = m->kind == DYCL_KIND_ROW ? ROW_CLASS : FULL_CLASS;
    dycl_status status = dycl_lower_take(l, class, &m->loaded_register);
    if (status != DYCL_OK) return status;
    m->loaded = l->register_location[class][m->loaded_register];
    return dycl_dtype_is_half(m->dtype) ? dycl_lower_widen(l, m) : dycl_lower_load(l, m, m->loaded);
}

static dycl_status fetch(dycl_lower *l, int code, operand *out) {
    if (code >= 0) {
        const dycl_lower_node *from = &l->nodes[code];
        const dycl_value *value = &l->b->program->graph.values[l->b->program->graph.nodes[from->node].out];
        out->location = from->location;
        out->kind = from->row_result ? DYCL_KIND_ROW : DYCL_KIND_FULL;
        out->dtype = dycl_dtype_computed((dycl_dtype)value->dtype);
        out->dense = from->reg >= 0 || l->memory[from->store].dense;
        out->row_bytes = from->reg >= 0 ? dycl_lower_pitch(l, from->row_result ? ROW_CLASS : FULL_CLASS, out->dtype)
                                        : l->locations[from->location].row_bytes;
        return DYCL_OK;
    }
    dycl_lower_memory *m = &l->memory[-1 - code];
    int half = dycl_dtype_is_half(m->dtype);
    if ((half || !m->direct) && !m->loaded) {
        dycl_status status = load(l, m);
        if (status != DYCL_OK) return status;
    }
    out->dtype = dycl_dtype_computed(m->dtype);
    out->kind = m->kind;
    if (m->loaded) {
        if (m->kind != DYCL_KIND_ROW && !half) out->kind = DYCL_KIND_FULL;
        out->location = m->loaded;
        out->dense = 1;
        int one_row = out->kind == DYCL_KIND_COLUMN || out->kind == DYCL_KIND_ONE; /* was widened */
        out->row_bytes =
            one_row ? 0 : dycl_lower_pitch(l, m->kind == DYCL_KIND_ROW ? ROW_CLASS : FULL_CLASS, out->dtype);
    } else {
        out->location = m->location;
        out->dense = m->dense;
        out->row_bytes = l->locations[m->location].row_bytes;
    }
    return DYCL_OK;
}

/* Repeats an operand into a register of the class, for kernels that need at least one operand that moves. */
static dycl_status spread(dycl_lower *l, operand *o, int class, int *out_register) {
    dycl_status status = dycl_lower_take(l, class, out_register);
    if (status != DYCL_OK) return status;
    dycl_tile_instruction *i = dycl_lower_emit(l, class ? DYCL_DO_LOAD_ROW : DYCL_DO_LOAD);
    if (!i) return DYCL_ERROR;
    i->dst = (uint8_t)l->register_location[class][*out_register];
    i->a = (uint8_t)o->location;
    i->element = (uint8_t)dycl_dtype_size(o->dtype);
    i->stride = o->kind == DYCL_KIND_COLUMN || o->kind == DYCL_KIND_FULL ? 1 : 0;
    /* the row pitch of a register depends on what it holds: say so where rows are read one by one */
    if (l->locations[o->location].at == DYCL_AT_REGISTER && l->program.tile_rows > 1) {
        dycl_tile_location at = l->locations[o->location];
        int location = 0;
        at.row_bytes = o->row_bytes;
        status = dycl_lower_location(l, at, &location);
        i->a = (uint8_t)location;
    }
    o->location = i->dst;
    o->kind = class ? DYCL_KIND_ROW : DYCL_KIND_FULL;
    o->dense = 1;
    o->row_bytes = dycl_lower_pitch(l, class, o->dtype);
    return status;
}

/* Results of 16 bits are computed in registers, as f32. */
static int stored_in_place(const dycl_lower *l, const dycl_lower_node *entry) {
    return entry->store >= 0 && l->memory[entry->store].direct && !dycl_dtype_is_half(l->memory[entry->store].dtype);
}

/* The register of a loaded operand that is read for the last time; -1: it has none. */
static int take_over_loaded(dycl_lower *l, int code, int index, int class) {
    if (code >= 0 || code == DYCL_LOWER_ABSENT) return -1;
    dycl_lower_memory *m = &l->memory[-1 - code];
    if (!m->loaded || m->last != index || m->kind != (class ? DYCL_KIND_ROW : DYCL_KIND_FULL)) return -1;
    m->loaded = 0;
    m->last = -2;
    return m->loaded_register;
}

/* Where the result goes: memory when it can be written in place, else a register (a dying operand's when an exact
 * alias is allowed). */
static dycl_status make_result(dycl_lower *l, dycl_lower_node *entry, int index, const operand *ops, int count,
                               int may_alias, dycl_dtype dtype) {
    int class = entry->row_result ? ROW_CLASS : FULL_CLASS;
    entry->reg = -1;
    if (stored_in_place(l, entry)) {
        entry->location = l->memory[entry->store].location;
        return DYCL_OK;
    }
    for (int i = 0; may_alias && i < count; i++) {
        int code = entry->operand[i];
        if (code < 0 && dycl_dtype_size(dtype) == sizeof(float) && ops[i].dtype == DYCL_F32) {
            entry->reg = take_over_loaded(l, code, index, class);
            if (entry->reg >= 0) break;
        }
        if (code < 0) continue;
        dycl_lower_node *from = &l->nodes[code];
        if (from->reg < 0 || from->last != index || (from->row_result ? ROW_CLASS : FULL_CLASS) != class) continue;
        if (dycl_dtype_size(ops[i].dtype) != dycl_dtype_size(dtype)) continue;
        entry->reg = from->reg;
        from->reg = -1; /* given away */
        from->last = -2;
        break;
    }
    if (entry->reg < 0) {
        dycl_status status = dycl_lower_take(l, class, &entry->reg);
        if (status != DYCL_OK) return status;
    }
    entry->location = l->register_location[class][entry->reg];
    return DYCL_OK;
}

static void release_operands(dycl_lower *l, const dycl_lower_node *entry, int index) {
    for (int i = 0; i < 3; i++) {
        int code = entry->operand[i];
        if (code == DYCL_LOWER_ABSENT) continue;
        if (code >= 0) {
            dycl_lower_node *from = &l->nodes[code];
            if (from->last != index || from->reg < 0) continue;
            dycl_lower_give(l, from->row_result ? ROW_CLASS : FULL_CLASS, from->reg);
            from->last = -2;
        } else {
            dycl_lower_memory *m = &l->memory[-1 - code];
            if (m->last != index || !m->loaded) continue;
            dycl_lower_give(l, m->kind == DYCL_KIND_ROW ? ROW_CLASS : FULL_CLASS, m->loaded_register);
            m->loaded = 0;
            m->last = -2;
        }
    }
}

static int64_t result_pitch(const dycl_lower *l, const dycl_lower_node *entry, dycl_dtype dtype) {
    return entry->reg >= 0 ? dycl_lower_pitch(l, entry->row_result ? ROW_CLASS : FULL_CLASS, dtype)
                           : l->locations[entry->location].row_bytes;
}

static dycl_status elementwise(dycl_lower *l, dycl_lower_node *entry, int index, dycl_ew op, dycl_dtype in,
                               dycl_dtype out, int is_cast) {
    operand ops[3] = {{0}};
    int count = entry->operand_count, many = l->program.tile_rows > 1, extra = -1;
    int class = entry->row_level ? ROW_CLASS : FULL_CLASS;
    dycl_status status;
    for (int i = 0; i < count; i++) DYCL_TRY(fetch(l, entry->operand[i], &ops[i]));
    unsigned mask = 0, all = (1u << count) - 1;
    for (int i = 0; i < count; i++) {
        int scalar = class == ROW_CLASS ? ops[i].kind == DYCL_KIND_ONE
                                        : ops[i].kind == DYCL_KIND_ROW || ops[i].kind == DYCL_KIND_ONE;
        mask |= (unsigned)scalar << i;
    }
    if (mask == all) {
        DYCL_TRY(spread(l, &ops[0], class, &extra));
        mask &= ~1u;
    }
    int in_place = stored_in_place(l, entry);
    DYCL_TRY(make_result(l, entry, index, ops, count, 1, out));
    if (is_cast && in == out && entry->location == ops[0].location) return DYCL_OK; /* nothing but its rounding */
    int rows = 0;
    if (class == FULL_CLASS && many) {
        rows = in_place && !l->memory[entry->store].dense;
        for (int i = 0; i < count; i++)
            rows |= ops[i].kind == DYCL_KIND_ROW || ops[i].kind == DYCL_KIND_COLUMN ||
                    (ops[i].kind == DYCL_KIND_FULL && !ops[i].dense);
    }
    dycl_tile_instruction *i = dycl_lower_emit(l, class == ROW_CLASS ? DYCL_DO_EW_ROW
                                                  : rows             ? DYCL_DO_EW_ROWS
                                                                     : DYCL_DO_EW);
    if (!i) return DYCL_ERROR;
    i->fn.ew =
        is_cast && in != out ? dycl_kern_cast(dycl_cpu_isa(), in, out) : dycl_kern_ew(dycl_cpu_isa(), op, in, mask);
    if (!i->fn.ew)
        return dycl_error_set("no kernel for %s of %s", is_cast ? "cast" : dycl_ew_name(op), dycl_dtype_name(in));
    i->dst = (uint8_t)entry->location;
    i->a = (uint8_t)ops[0].location;
    i->b = count > 1 ? (uint8_t)ops[1].location : 0;
    i->c = count > 2 ? (uint8_t)ops[2].location : 0;
    i->dst_step = result_pitch(l, entry, out);
    int64_t *steps[3] = {&i->a_step, &i->b_step, &i->c_step};
    for (int k = 0; k < count; k++)
        *steps[k] = ops[k].kind == DYCL_KIND_FULL || ops[k].kind == DYCL_KIND_ROW ? ops[k].row_bytes : 0;
    if (extra >= 0) dycl_lower_give(l, class, extra);
    return DYCL_OK;
fail:
    return status;
}

/* A FULL operand for kernels that read whole rows. */
static dycl_status row_operand(dycl_lower *l, int code, operand *out, int *extra) {
    dycl_status status = fetch(l, code, out);
    *extra = -1;
    if (status != DYCL_OK || out->kind == DYCL_KIND_FULL) return status;
    if (out->kind == DYCL_KIND_COLUMN) {
        out->row_bytes = 0;
        return DYCL_OK;
    }
    return spread(l, out, FULL_CLASS, extra);
}

static dycl_status row_wise(dycl_lower *l, dycl_lower_node *entry, int index, const dycl_node *node, dycl_dtype dtype) {
    static const uint8_t kinds[] = {[DYCL_OP_softmax - DYCL_OP_softmax] = DYCL_ROW_SOFTMAX,
                                    [DYCL_OP_log_softmax - DYCL_OP_softmax] = DYCL_ROW_LOG_SOFTMAX,
                                    [DYCL_OP_cumsum - DYCL_OP_softmax] = DYCL_ROW_CUMSUM,
                                    [DYCL_OP_layer_norm_back - DYCL_OP_softmax] = DYCL_ROW_LAYER_NORM_BACK,
                                    [DYCL_OP_rms_norm_back - DYCL_OP_softmax] = DYCL_ROW_RMS_NORM_BACK,
                                    [DYCL_OP_softmax_back - DYCL_OP_softmax] = DYCL_ROW_SOFTMAX_BACK,
                                    [DYCL_OP_log_softmax_back - DYCL_OP_softmax] = DYCL_ROW_LOG_SOFTMAX_BACK};
    const dycl_op_info *info = dycl_op_get((dycl_op)node->op);
    int back = info->family == DYCL_FAMILY_ROW && node->operand_count == 2;
    operand rows[2], parameters[2] = {{0}};
    int extra[2] = {-1, -1};
    dycl_status status;
    for (int k = 0; k <= back; k++) DYCL_TRY(row_operand(l, entry->operand[k], &rows[k], &extra[k]));
    for (int k = 0; !back && k < 2; k++)
        if (k + 1 < entry->operand_count && entry->operand[k + 1] != DYCL_LOWER_ABSENT)
            DYCL_TRY(fetch(l, entry->operand[k + 1], &parameters[k]));
    DYCL_TRY(make_result(l, entry, index, rows, 1 + back, 1, dtype));
    dycl_tile_instruction *i = dycl_lower_emit(l, DYCL_DO_ROW);
    if (!i) return DYCL_ERROR;
    dycl_row kind = node->op == DYCL_OP_layer_norm ? DYCL_ROW_LAYER_NORM
                    : node->op == DYCL_OP_rms_norm ? DYCL_ROW_RMS_NORM
                                                   : (dycl_row)kinds[node->op - DYCL_OP_softmax];
    i->fn.row = dycl_kern_row(dycl_cpu_isa(), kind, dtype);
    if (!i->fn.row)
        return dycl_error_set("no kernel for %s of %s", dycl_op_get((dycl_op)node->op)->name, dycl_dtype_name(dtype));
    if (info->doubles >> 1 & 1) i->eps = dycl_attr_f64(dycl_node_attrs(&l->b->program->graph, node)[1]);
    i->dst = (uint8_t)entry->location;
    i->a = (uint8_t)rows[0].location;
    i->b = (uint8_t)(back ? rows[1] : parameters[0]).location;
    i->c = (uint8_t)parameters[1].location;
    i->dst_step = result_pitch(l, entry, dtype);
    i->a_step = rows[0].row_bytes;
    i->b_step = back ? rows[1].row_bytes : 0;
    for (int k = 0; k <= back; k++)
        if (extra[k] >= 0) dycl_lower_give(l, FULL_CLASS, extra[k]);
    return DYCL_OK;
fail:
    return status;
}

static dycl_status constant(dycl_lower *l, dycl_dtype dtype, double value, int *out_location) {
    dycl_scalar *c = &l->constants[l->constant_count];
    memset(c, 0, sizeof *c);
    if (dtype == DYCL_F32)
        c->f32 = (float)value;
    else
        c->f64 = value;
    return dycl_lower_location(
        l, (dycl_tile_location){.at = DYCL_AT_ONE, .constant = 1, .ref = {0, 0, l->constant_count++}}, out_location);
}

static dycl_status divide(dycl_lower *l, int dst, int a, dycl_dtype dtype, double by) {
    int location = 0;
    dycl_status status = constant(l, dtype, by, &location);
    if (status != DYCL_OK) return status;
    dycl_tile_instruction *i = dycl_lower_emit(l, DYCL_DO_EW_ROW);
    if (!i) return DYCL_ERROR;
    i->fn.ew = dycl_kern_ew(dycl_cpu_isa(), DYCL_EW_div, dtype, 2);
    if (!i->fn.ew) return dycl_error_set("no division of %s", dycl_dtype_name(dtype));
    i->dst = (uint8_t)dst;
    i->a = (uint8_t)a;
    i->b = (uint8_t)location;
    return DYCL_OK;
}

static dycl_status reduction(dycl_lower *l, dycl_lower_node *entry, int index, const dycl_node *node, dycl_dtype in,
                             dycl_dtype out) {
    operand a;
    int extra, correction = 0;
    dycl_status status;
    dycl_tile_instruction *i;
    DYCL_TRY(row_operand(l, entry->operand[0], &a, &extra));
    DYCL_TRY(make_result(l, entry, index, &a, 1, 0, out));
    if (node->op == DYCL_OP_var || node->op == DYCL_OP_std)
        DYCL_TRY(constant(l, DYCL_F64, dycl_attr_f64(dycl_node_attrs(&l->b->program->graph, node)[2]), &correction));
    i = dycl_lower_emit(l, DYCL_DO_RED);
    if (!i) return DYCL_ERROR;
    i->fn.red = dycl_kern_red(dycl_cpu_isa(), dycl_red_of((dycl_op)node->op), in);
    if (!i->fn.red)
        return dycl_error_set("no kernel for %s of %s", dycl_op_get((dycl_op)node->op)->name, dycl_dtype_name(in));
    i->dst = (uint8_t)entry->location;
    i->a = (uint8_t)a.location;
    i->b = (uint8_t)correction;
    i->a_step = a.row_bytes;
    i->dst_step = result_pitch(l, entry, out);
    if (node->op == DYCL_OP_mean) DYCL_TRY(divide(l, entry->location, entry->location, in, (double)l->program.columns));
    if (extra >= 0) dycl_lower_give(l, FULL_CLASS, extra);
    return DYCL_OK;
fail:
    return status;
}

/* A sum of everything: each tile's part of it, and where these go. */
static dycl_status sum_of_parts(dycl_lower *l, dycl_lower_node *entry, const dycl_node *node, dycl_dtype dtype) {
    dycl_tile_sum *total = &l->program.total;
    int extra = -1, location = 0;
    operand a;
    dycl_status status;
    DYCL_TRY(fetch(l, entry->operand[0], &a));
    if (a.kind != DYCL_KIND_FULL || (!a.dense && l->program.tile_rows > 1)) DYCL_TRY(spread(l, &a, FULL_CLASS, &extra));
    DYCL_TRY(dycl_lower_location(l, (dycl_tile_location){.at = DYCL_AT_PART}, &location));
    dycl_tile_instruction *i = dycl_lower_emit(l, DYCL_DO_RED_TILE);
    if (!i) return DYCL_ERROR;
    i->fn.red = dycl_kern_red(dycl_cpu_isa(), dycl_red_of((dycl_op)node->op), dtype);
    if (!i->fn.red)
        return dycl_error_set("no kernel for %s of %s", dycl_op_get((dycl_op)node->op)->name, dycl_dtype_name(dtype));
    i->dst = (uint8_t)location;
    i->a = (uint8_t)a.location;
    entry->reg = -1;
    entry->location = location;
    total->location = (uint8_t)location;
    total->adds = 1;
    total->dtype = dtype;
    total->sum = l->memory[entry->store].ref;
    if (node->op == DYCL_OP_mean) total->divisor = (double)(l->program.rows * l->program.columns);
    if (extra >= 0) dycl_lower_give(l, FULL_CLASS, extra);
    size_t tiles = (size_t)(l->program.row_tiles * l->program.column_tiles);
    return dycl_make_scratch(l->b, tiles * dycl_dtype_size(dtype), &total->parts);
fail:
    return status;
}

static dycl_status store(dycl_lower *l, const dycl_lower_node *entry) {
    const dycl_lower_memory *m = &l->memory[entry->store];
    if (stored_in_place(l, entry)) return DYCL_OK;
    return dycl_dtype_is_half(m->dtype) ? dycl_lower_narrow(l, m, entry->location)
                                        : dycl_lower_store(l, m, entry->location);
}

dycl_status dycl_lower_instructions(dycl_lower *l) {
    const dycl_graph *g = &l->b->program->graph;
    dycl_status status;
    int missing = 0;
    DYCL_TRY(dycl_lower_location(l, (dycl_tile_location){.at = DYCL_AT_NONE}, &missing));
    for (int i = 0; i < l->memory_count; i++) {
        dycl_lower_classify(l, &l->memory[i]);
        DYCL_TRY(dycl_lower_place(l, &l->memory[i]));
    }
    for (int index = 0; index < l->node_count; index++) {
        dycl_lower_node *entry = &l->nodes[index];
        const dycl_node *node = &g->nodes[entry->node];
        dycl_family family = dycl_op_get((dycl_op)node->op)->family;
        const uint32_t *operands = dycl_node_operands(g, node);
        dycl_dtype in = dycl_dtype_computed((dycl_dtype)g->values[operands[0]].dtype),
                   kept = (dycl_dtype)g->values[node->out].dtype, out = dycl_dtype_computed(kept);
        l->cost += dycl_lower_cost((dycl_op)node->op, in);
        int is_total = l->adds_parts && family == DYCL_FAMILY_REDUCE;
        if (is_total)
            DYCL_TRY(sum_of_parts(l, entry, node, in));
        else if (family == DYCL_FAMILY_REDUCE)
            DYCL_TRY(reduction(l, entry, index, node, in, out));
        else if (family == DYCL_FAMILY_CAST)
            DYCL_TRY(elementwise(l, entry, index, DYCL_EW_copy, in, out, 1));
        else if (dycl_op_is_batch_norm((dycl_op)node->op))
            DYCL_TRY(elementwise(l, entry, index, DYCL_EW_fma, out, out, 0));
        else if (family == DYCL_FAMILY_EW)
            DYCL_TRY(elementwise(l, entry, index, (dycl_ew)node->op,
                                 dycl_dtype_computed((dycl_dtype)g->values[operands[node->operand_count - 1]].dtype),
                                 out, 0));
        else
            DYCL_TRY(row_wise(l, entry, index, node, out));
        release_operands(l, entry, index);
        if (dycl_dtype_is_half(kept) && entry->last > index) DYCL_TRY(dycl_lower_round(l, entry, node, kept));
        if (entry->store >= 0 && !is_total) {
            DYCL_TRY(store(l, entry));
            dycl_lower_offer_sharing(l, index);
        }
        /* never read inside: its register is free again */
        if (entry->reg >= 0 && entry->last == index)
            dycl_lower_give(l, entry->row_result ? ROW_CLASS : FULL_CLASS, entry->reg);
    }
    return dycl_lower_finish(l);
fail:
    return status;
}
