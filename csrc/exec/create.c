/* A plan from a graph: the passes choose blocks, the builder of each block's family appends its steps, and the slots
 * get their places. */
#include "exec/builder/blocked.h"
#include "exec/conv/conv.h"
#include "exec/plan/backend.h"
#include "exec/plan/check.h"
#include "opt/log.h"

static dycl_status make_single(dycl_builder *b, const dycl_block *block) {
    const dycl_node *node = &b->program->graph.nodes[block->first];
    dycl_family family = dycl_op_get((dycl_op)node->op)->family;
    if (family != DYCL_FAMILY_CONV && family != DYCL_FAMILY_POOL && family != DYCL_FAMILY_JOIN &&
        family != DYCL_FAMILY_BATCH && family != DYCL_FAMILY_UNCONV && family != DYCL_FAMILY_UNPOOL &&
        family != DYCL_FAMILY_LAID && family != DYCL_FAMILY_REDUCE) {
        dycl_status status = dycl_make_operands_plain(b, block);
        if (status != DYCL_OK) return status;
    }
    static dycl_status (*const families[DYCL_FAMILY_COUNT])(dycl_builder *, const dycl_block *) = {
#define DYCL_FAMILY(NAME, name, verify, work, steps) [DYCL_FAMILY_##NAME] = DYCL_FAMILY_##steps(dycl_steps_##name),
#include "ir/family.def"
#undef DYCL_FAMILY
    };
    return families[family] ? families[family](b, block) : DYCL_OK; /* empty, or else in a tile */
}

static dycl_status make_tile(dycl_builder *b, const dycl_block *block) {
    const dycl_node *node = &b->program->graph.nodes[block->first];
    if (b->blocked && block->count == 1 && node->op == DYCL_OP_mean &&
        dycl_node_attrs(&b->program->graph, node)[0] == 12) {
        dycl_status status = dycl_make_plane_mean(b, node);
        if (status != DYCL_BAIL) return status;
    }
    if (block->count == 1 && dycl_op_get((dycl_op)node->op)->family == DYCL_FAMILY_ROW) {
        dycl_status status = dycl_make_row_columns(b, block);
        if (status != DYCL_BAIL) return status;
    }
    return dycl_make_tile(b, block);
}

static dycl_status make_blocks(dycl_builder *b) {
    const dycl_program *p = b->program;
    dycl_status status = DYCL_OK;
    for (uint32_t i = 0; i < p->order_count && status == DYCL_OK; i++) {
        const dycl_block *block = &p->blocks[b->block = p->order[i]];
        status = block->kind == DYCL_BLOCK_TILE ? make_tile(b, block) : make_single(b, block);
    }
    return status;
}

/* backend: NULL for our own passes and builders. */
static dycl_status create(const dycl_backend *backend, const dycl_graph *graph, const uint32_t *outputs,
                          int output_count, dycl_plan_mode mode, int epilogues, dycl_plan **out) {
    dycl_builder b = {0};
    dycl_status status;
    dycl_plan *plan = dycl_plan_new(mode);
    if (!plan) return DYCL_ERROR;
    plan->check = dycl_check_create(graph, outputs, output_count);
    DYCL_TRY(dycl_program_init(&plan->program, graph, outputs, output_count));
    plan->epilogues = epilogues;
    DYCL_TRY(backend ? backend->compile(graph, outputs, output_count, plan->threads, &plan->compiled)
                     : dycl_opt_run(&plan->program, mode == DYCL_PLAN_TUNED, epilogues));
    plan->backend = backend;
    DYCL_TRY(dycl_builder_init(&b, plan));
    DYCL_TRY(backend ? dycl_make_whole(&b) : make_blocks(&b));
    DYCL_TRY(dycl_make_places(&b));
    DYCL_TRY(dycl_program_settle(&plan->program));
    dycl_plan_shrink(plan);
    if (plan->guarded) DYCL_TRY(dycl_graph_copy(&plan->original, graph));
    plan->original.options = graph->options;
    if (__builtin_expect(dycl_log_any(), 0)) dycl_plan_log(plan, dycl_graph_key(graph, outputs, output_count));
    dycl_builder_free(&b);
    *out = plan;
    return DYCL_OK;
fail:
    dycl_builder_free(&b);
    dycl_plan_release(plan);
    return status;
}

dycl_status dycl_plan_create(const dycl_graph *graph, const uint32_t *outputs, int output_count, dycl_plan_mode mode,
                             dycl_plan **out) {
    if (mode == DYCL_PLAN_COLD && graph->options & DYCL_OPTION_BF16)
        mode = DYCL_PLAN_TUNED; /* results are the same from the first run on */
    dycl_status status = create(NULL, graph, outputs, output_count, mode, mode != DYCL_PLAN_EXACT, out);
    if (status == DYCL_BAIL)
        status = create(NULL, graph, outputs, output_count, mode, 0,
                        out); /* an odd convolution may exist without post-ops */
    return status;
}

dycl_status dycl_plan_of_backend(const dycl_backend *backend, const dycl_graph *graph, const uint32_t *outputs,
                                 int output_count, dycl_plan **out) {
    return create(backend, graph, outputs, output_count, DYCL_PLAN_TUNED, 0, out);
}
