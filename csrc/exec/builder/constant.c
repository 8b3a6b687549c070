/* Constants that a plan keeps in another form. */
#include "exec/builder/builder.h"

dycl_status dycl_make_packing(dycl_builder *b, const dycl_tensor *weights, const dycl_weights *as, int scaled,
                              dycl_packing **out) {
    const dycl_graph *g = &b->program->graph;
    *out = NULL;
    if (!dycl_make_may_pack(b) || weights->ref.slot >= g->value_count ||
        g->values[weights->ref.slot].kind != DYCL_VALUE_FEED)
        return DYCL_OK;
    dycl_plan *plan = b->plan;
    if (plan->packing_count == plan->packing_room) {
        uint32_t room = plan->packing_room ? 2 * plan->packing_room : 16;
        dycl_packing **bigger = dycl_plan_grow(plan->packings, room * sizeof *bigger);
        if (!bigger) return DYCL_ERROR;
        plan->packings = bigger;
        plan->packing_room = room;
    }
    dycl_packing *packing = dycl_plan_alloc(plan, sizeof *packing);
    if (!packing) return DYCL_ERROR;
    const dycl_value *feed = &g->values[weights->ref.slot];
    packing->feed = feed->source;
    packing->words = (int64_t)dycl_value_bytes(feed) / 4;
    packing->offset = weights->ref.offset;
    packing->as = *as;
    if (scaled) {
        packing->scale = dycl_plan_alloc(plan, (size_t)as->channels * sizeof(float));
        if (!packing->scale) return DYCL_ERROR;
    }
    *out = plan->packings[plan->packing_count++] = packing;
    return DYCL_OK;
}
