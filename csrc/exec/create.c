/* A plan from a graph: the passes choose blocks, the builder of each block's family appends its steps, and the slots
 * get their places. */
#include "base/alloc.h"
#include "check/zone.h"
#include "exec/builder/blocked.h"
#include "exec/builder/group.h"
#include "exec/conv/conv.h"
#include "exec/plan/check.h"
#include "opt/log.h"

static dycl_status make_single(dycl_maker *b, const dycl_block *block) {
    const dycl_node *node = &b->program->graph.nodes[block->first];
    dycl_family family = dycl_op_get((dycl_op)node->op)->family;
    if (family != DYCL_FAMILY_CONV && family != DYCL_FAMILY_POOL && family != DYCL_FAMILY_JOIN) {
        dycl_status status = dycl_make_operands_plain(b, block);
        if (status != DYCL_OK) return status;
    }
    static dycl_status (*const families[DYCL_FAMILY_COUNT])(dycl_maker *, const dycl_block *) = {
#define DYCL_FAMILY(NAME, name, verify, work, steps) [DYCL_FAMILY_##NAME] = DYCL_FAMILY_##steps(dycl_steps_##name),
#include "ir/family.def"
#undef DYCL_FAMILY
    };
    return families[family] ? families[family](b, block) : DYCL_OK; /* empty, or else in a tile */
}

static dycl_status make_tile(dycl_maker *b, const dycl_block *block) {
    const dycl_node *node = &b->program->graph.nodes[block->first];
    if (b->blocked && block->count == 1 && node->op == DYCL_OP_mean &&
        dycl_node_attrs(&b->program->graph, node)[0] == 12) {
        dycl_status status = dycl_make_plane_mean(b, node);
        if (status != DYCL_BAIL) return status;
    }
    return dycl_make_tile(b, block);
}

/* A slot keeps another's memory only if that one really dies where it begins, and for one taker. */
static dycl_status confirm_sharing(dycl_maker *b) {
    uint8_t *taken = dycl_alloc_zero(b->slot_count + 1);
    if (!taken) return dycl_error_set("out of memory");
    for (uint32_t s = 0; s < b->slot_count; s++) {
        dycl_slot *slot = &b->slots[s];
        if (slot->share == DYCL_NONE) continue;
        const dycl_slot *from = &b->slots[slot->share];
        if (from->first == DYCL_NONE || from->last != slot->first || from->first >= slot->first || taken[slot->share])
            slot->share = DYCL_NONE;
        else
            taken[slot->share] = 1;
    }
    dycl_free(taken);
    return DYCL_OK;
}

static dycl_status lay_out(dycl_maker *b) {
    dycl_plan *plan = b->plan;
    dycl_status status;
    DYCL_TRY(confirm_sharing(b));
    if (plan->mode == DYCL_PLAN_TUNED) DYCL_TRY(dycl_group_steps(b));
    DYCL_TRY(dycl_memory_plan(b->slots, b->slot_count, plan->check ? DYCL_RED_ZONE : 0, &plan->workspace_bytes));
    DYCL_TRY(dycl_check_lay_out(plan, b->slots, b->slot_count));
    plan->slot_count = b->slot_count;
    plan->slots = dycl_alloc_zero((b->slot_count + 1) * sizeof(void *));
    plan->places = dycl_alloc((b->slot_count + 1) * sizeof(int64_t));
    if (!plan->slots || !plan->places) return dycl_error_set("out of memory for a plan");
    for (uint32_t s = 0; s < b->slot_count; s++) {
        plan->slots[s] = b->slots[s].keep;
        plan->places[s] = b->slots[s].fixed || b->slots[s].first == DYCL_NONE ? -1 : b->slots[s].place;
    }
    return DYCL_OK;
fail:
    return status;
}

static dycl_status create(const dycl_graph *graph, const uint32_t *outputs, int output_count, dycl_plan_mode mode,
                          int epilogues, dycl_plan **out) {
    dycl_maker b = {0};
    dycl_status status;
    dycl_plan *plan = dycl_plan_new(mode);
    if (!plan) return DYCL_ERROR;
    plan->check = dycl_check_create(graph, outputs, output_count);
    DYCL_TRY(dycl_program_init(&plan->program, graph, outputs, output_count));
    plan->epilogues = epilogues;
    DYCL_TRY(dycl_opt_run(&plan->program, mode == DYCL_PLAN_TUNED, epilogues));
    DYCL_TRY(dycl_maker_init(&b, plan));
    for (uint32_t i = 0; i < plan->program.order_count; i++) {
        const dycl_block *block = &plan->program.blocks[b.block = plan->program.order[i]];
        if (block->kind == DYCL_BLOCK_TILE)
            DYCL_TRY(make_tile(&b, block));
        else
            DYCL_TRY(make_single(&b, block));
    }
    DYCL_TRY(lay_out(&b));
    if (plan->guarded) DYCL_TRY(dycl_graph_copy(&plan->original, graph));
    plan->original.options = graph->options;
    if (__builtin_expect(dycl_log_any(), 0)) dycl_plan_log(plan, dycl_graph_key(graph, outputs, output_count));
    dycl_maker_free(&b);
    *out = plan;
    return DYCL_OK;
fail:
    dycl_maker_free(&b);
    dycl_plan_release(plan);
    return status;
}

dycl_status dycl_plan_create(const dycl_graph *graph, const uint32_t *outputs, int output_count, dycl_plan_mode mode,
                             dycl_plan **out) {
    if (mode == DYCL_PLAN_COLD && graph->options & DYCL_OPTION_BF16)
        mode = DYCL_PLAN_TUNED; /* results are the same from the first run on */
    dycl_status status = create(graph, outputs, output_count, mode, mode != DYCL_PLAN_EXACT, out);
    if (status == DYCL_BAIL)
        status = create(graph, outputs, output_count, mode, 0, out); /* an odd convolution may exist without post-ops */
    return status;
}
