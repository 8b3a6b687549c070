#include "exec/tile/lower.h"

#include <math.h>
#include <string.h>

/* What a finished list of instructions still needs: threads by its cost, places of the registers, sharing of memory. */

#define WORTH_A_THREAD 10000.0 /* nanoseconds; a parallel region costs about 1000 */

/* Nanoseconds for an element, as measured with AVX-512 (Zen 4); what matters is the order of magnitude, for the number
 * of threads. */
double dycl_lower_cost(dycl_op op, dycl_dtype dtype) {
    double width = (double)dycl_dtype_size(dtype) / 4, slow = dtype == DYCL_F64 ? 16 : 1;
    const dycl_ew_pair *pair = (int)op < (int)DYCL_EW_COUNT ? dycl_ew_pair_of((dycl_ew)op) : NULL;
    if (pair) return fmax(dycl_lower_cost((dycl_op)pair->first, dtype), dycl_lower_cost((dycl_op)pair->second, dtype));
    switch (op) {
    case DYCL_EW_exp:
    case DYCL_EW_exp2:
    case DYCL_EW_expm1:
    case DYCL_EW_log:
    case DYCL_EW_tanh:
    case DYCL_EW_sigmoid:
    case DYCL_EW_silu:
    case DYCL_EW_silu_grad:
    case DYCL_EW_logsigmoid_grad:
    case DYCL_EW_selu_grad:
    case DYCL_EW_elu_grad:
    case DYCL_EW_celu_grad:
    case DYCL_EW_softplus_grad:
    case DYCL_EW_elu:
    case DYCL_EW_celu:
    case DYCL_EW_rsqrt: return 0.3 * slow;
    case DYCL_EW_log2:
    case DYCL_EW_log10:
    case DYCL_EW_log1p:
    case DYCL_EW_erf:
    case DYCL_EW_gelu:
    case DYCL_EW_gelu_tanh:
    case DYCL_EW_gelu_grad:
    case DYCL_EW_gelu_tanh_grad:
    case DYCL_EW_mish:
    case DYCL_EW_remainder:
    case DYCL_EW_fmod: return 0.5 * slow;
    case DYCL_EW_sin:
    case DYCL_EW_cos:
    case DYCL_EW_tan:
    case DYCL_EW_softplus:
    case DYCL_EW_logsigmoid:
    case DYCL_EW_floor_div:
    case DYCL_EW_atan2: return 1.0 * slow;
    case DYCL_EW_pow: return 2.0 * slow;
    case DYCL_OP_softmax:
    case DYCL_OP_log_softmax:
    case DYCL_OP_log_softmax_back: return 0.4 * slow;
    case DYCL_OP_softmax_back: return 0.1 * width;
    case DYCL_OP_layer_norm:
    case DYCL_OP_rms_norm:
    case DYCL_OP_layer_norm_back:
    case DYCL_OP_rms_norm_back:
    case DYCL_OP_var:
    case DYCL_OP_std: return 0.15 * width;
    case DYCL_OP_cumsum:
    case DYCL_OP_argmax:
    case DYCL_OP_argmin: return 0.5 * width;
    default: return 0.05 * width;
    }
}

/* A result may take the memory of an operand that dies here when each tile has read its part before it is
 * overwritten. */
void dycl_lower_offer_sharing(dycl_lower *l, int index) {
    const dycl_lower_node *entry = &l->nodes[index];
    const dycl_lower_memory *s = &l->memory[entry->store];
    dycl_builder *b = l->b;
    if (!s->direct || s->kind != DYCL_KIND_FULL || s->ref.offset || b->slots[s->ref.slot].fixed) return;
    for (int i = 0; i < l->memory_count; i++) {
        const dycl_lower_memory *m = &l->memory[i];
        if (m->store || m->kind != DYCL_KIND_FULL || !m->direct || m->ref.offset || b->slots[m->ref.slot].fixed)
            continue;
        if (m->location == 0 || m->last > index || dycl_dtype_size(m->dtype) != dycl_dtype_size(s->dtype)) continue;
        if (b->slots[m->ref.slot].bytes != b->slots[s->ref.slot].bytes) continue;
        if (m->column_stride != s->column_stride ||
            memcmp(m->strides, s->strides, (size_t)l->program.outer * sizeof(int64_t)))
            continue;
        int single = 1;
        for (int k = 0; k < l->memory_count; k++) single &= k == i || l->memory[k].ref.slot != m->ref.slot;
        if (!single) continue;
        b->slots[s->ref.slot].share = m->ref.slot; /* confirmed when all steps are known */
        return;
    }
}

static void place_registers(dycl_lower *l) {
    dycl_tile_program *p = &l->program;
    int64_t full = (p->tile_rows * p->tile_columns * 8 + 63) & ~(int64_t)63,
            row = (p->tile_rows * 8 + 63) & ~(int64_t)63;
    int wide = 0; /* 8-byte elements anywhere? */
    for (int i = 0; i < l->memory_count; i++) wide |= dycl_dtype_size(l->memory[i].dtype) == 8;
    const dycl_graph *g = &l->b->program->graph;
    for (int i = 0; i < l->node_count; i++)
        wide |= dycl_dtype_size((dycl_dtype)g->values[g->nodes[l->nodes[i].node].out].dtype) == 8;
    if (!wide) full = (p->tile_rows * p->tile_columns * 4 + 63) & ~(int64_t)63;
    /* a page-sized pitch would put all registers on the same cache sets */
    if (full >= 4096) full += 64;
    for (int i = 0; i < p->location_count; i++) {
        dycl_tile_location *at = &l->locations[i];
        if (at->at != DYCL_AT_REGISTER) continue;
        at->offset =
            at->offset >= 0 ? at->offset * full : l->register_count[FULL_CLASS] * full + (-1 - at->offset) * row;
    }
    p->scratch_bytes = (size_t)(l->register_count[FULL_CLASS] * full + l->register_count[ROW_CLASS] * row);
}

static size_t memory_bytes(const dycl_lower *l, const dycl_lower_memory *m) {
    int64_t last = 0;
    for (int d = 0; d < l->space.rank; d++) {
        if (!l->space.sizes[d]) return 0;
        last += (l->space.sizes[d] - 1) * m->strides[d];
    }
    return (size_t)(last + 1) * dycl_dtype_size(m->dtype);
}

/* The program of all this, in the plan's memory, as a step. */
static dycl_status keep_program(dycl_lower *l, const uint8_t *moving, double cost) {
    dycl_tile_program *p = &l->program;
    dycl_plan *plan = l->b->plan;
    size_t locations = (size_t)p->location_count * sizeof(dycl_tile_location),
           instructions = (size_t)p->instruction_count * sizeof(dycl_tile_instruction),
           strides = (size_t)l->stride_count * sizeof(int64_t), moves = (size_t)p->moving_count;
    dycl_tile_program *made = dycl_plan_alloc(plan, sizeof *made);
    int64_t *all_strides = dycl_plan_alloc(plan, strides);
    uint8_t *all_moving = dycl_plan_alloc(plan, moves);
    p->locations = dycl_plan_alloc(plan, locations);
    p->instructions = dycl_plan_alloc(plan, instructions);
    dycl_scalar *constants = dycl_plan_alloc(plan, (size_t)l->constant_count * sizeof(dycl_scalar));
    if (!made || !all_strides || !all_moving || !p->locations || !p->instructions || !constants) return DYCL_ERROR;
    memcpy(p->locations, l->locations, locations);
    memcpy(p->instructions, l->instructions, instructions);
    memcpy(all_strides, l->strides, strides);
    memcpy(all_moving, moving, moves);
    memcpy(constants, l->constants, (size_t)l->constant_count * sizeof(dycl_scalar));
    p->constants = constants;
    p->strides = all_strides;
    p->moving = all_moving;
    *made = *p;
    dycl_status status = dycl_make_step(l->b, dycl_tile_run, made, "tile", cost / p->threads);
    if (status == DYCL_OK && p->threads == 1) dycl_make_serial(l->b);
    return status;
}

/* How many times as long arithmetic takes as with AVX-512: a GELU of 16,384 elements is worth two threads with AVX2. */
static double narrower(void) {
    switch (dycl_cpu_isa()) {
    case DYCL_ISA_AVX512: return 1;
    case DYCL_ISA_AVX2: return 2;
    default: return 8;
    }
}

dycl_status dycl_lower_finish(dycl_lower *l) {
    dycl_tile_program *p = &l->program;
    dycl_builder *b = l->b;
    place_registers(l);
    double cost = l->cost * narrower() * (double)(p->rows * p->columns) +
                  8.0 * p->instruction_count * (double)(p->row_tiles * p->column_tiles);
    int64_t tiles = p->row_tiles * p->column_tiles;
    for (int i = 0; i < l->memory_count; i++) {
        double bytes = (double)dycl_dtype_size(l->memory[i].dtype);
        for (int d = 0; d < l->space.rank; d++) bytes *= l->memory[i].strides[d] ? (double)l->space.sizes[d] : 1;
        cost += 0.03 * bytes; /* from the second-level cache and beyond */
    }
    p->nanoseconds = cost;
    double worth = cost / WORTH_A_THREAD; /* of a space of 2^62 elements no int */
    p->threads = worth < b->plan->threads ? (int)worth : b->plan->threads;
    if (p->threads > tiles) p->threads = (int)tiles;
    if (p->threads < 1) p->threads = 1;
    for (int i = 0; i < l->memory_count; i++) {
        const dycl_lower_memory *m = &l->memory[i];
        size_t bytes = memory_bytes(l, m);
        if (m->store)
            dycl_make_write_at(b, m->ref, bytes);
        else
            dycl_make_read_at(b, m->ref, bytes);
    }
    if (p->scratch_bytes) {
        dycl_status status = dycl_make_scratch(b, p->scratch_bytes * (size_t)p->threads, &p->scratch);
        if (status != DYCL_OK) return status;
    }
    uint8_t moving[DYCL_TILE_LOCATIONS];
    for (int i = 0; i < p->location_count; i++)
        if ((l->locations[i].at == DYCL_AT_LINEAR || l->locations[i].at == DYCL_AT_ODOMETER) && tiles > 1)
            moving[p->moving_count++] = (uint8_t)i;
    return keep_program(l, moving, cost);
}
