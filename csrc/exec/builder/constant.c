/* Constants that a plan keeps in another form. */
#include "exec/builder/builder.h"

dycl_status dycl_make_binding(dycl_maker *b, const dycl_tensor *weights, dycl_prim *prim, int64_t scale_channels,
                              dycl_binding **out) {
    const dycl_graph *g = &b->program->graph;
    *out = NULL;
    if (!dycl_make_may_pack(b) || weights->ref.slot >= g->value_count ||
        g->values[weights->ref.slot].kind != DYCL_VALUE_FEED)
        return DYCL_OK;
    dycl_plan *plan = b->plan;
    if (plan->binding_count == plan->binding_room) {
        uint32_t room = plan->binding_room ? 2 * plan->binding_room : 16;
        dycl_binding **bigger = dycl_plan_grow(plan->bindings, room * sizeof *bigger);
        if (!bigger) return DYCL_ERROR;
        plan->bindings = bigger;
        plan->binding_room = room;
    }
    dycl_binding *binding = dycl_plan_alloc(plan, sizeof *binding);
    if (!binding) return DYCL_ERROR;
    const dycl_value *feed = &g->values[weights->ref.slot];
    binding->feed = feed->source;
    binding->words = dycl_value_extent(feed) * (int64_t)dycl_dtype_size((dycl_dtype)feed->dtype) / 4;
    binding->offset = weights->ref.offset;
    binding->prim = prim;
    binding->channels = scale_channels;
    if (scale_channels) {
        binding->per_channel = dycl_tensor_numel(weights) / scale_channels;
        binding->scale = dycl_plan_alloc(plan, (size_t)scale_channels * sizeof(float));
        if (!binding->scale) return DYCL_ERROR;
    }
    *out = plan->bindings[plan->binding_count++] = binding;
    return DYCL_OK;
}
