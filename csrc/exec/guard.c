#include "exec/guard.h"

#include "base/alloc.h"
#include "exec/pack.h"

struct dycl_guard_seen {
    uint64_t token, version;
};

static int finite(const dycl_value *value, const void *data) {
    return value->dtype != DYCL_F32 || dycl_kern_all_finite(data, (size_t)dycl_value_extent(value));
}

int dycl_guard_feeds_finite(struct dycl_plan *plan, const dycl_feed *feeds) {
    const dycl_graph *g = &plan->program.graph;
    if (!plan->seen) plan->seen = dycl_alloc_zero((g->feed_count + 1) * sizeof *plan->seen); /* without it every feed is looked at every time */
    for (uint32_t i = 0; i < g->feed_count; i++) {
        struct dycl_guard_seen *seen = plan->seen ? &plan->seen[i] : NULL;
        if (seen && feeds[i].token && seen->token == feeds[i].token && seen->version == feeds[i].version) continue;
        size_t extent = (size_t)dycl_value_extent(&g->values[g->feeds[i]]);
        int known = feeds[i].token && dycl_pack_is_finite(&feeds[i], extent); /* another plan has looked */
        if (!known && !finite(&g->values[g->feeds[i]], feeds[i].data)) return 0;
        if (!known && feeds[i].token) dycl_pack_set_finite(&feeds[i], extent);
        if (seen && feeds[i].token) *seen = (struct dycl_guard_seen){feeds[i].token, feeds[i].version};
    }
    return 1;
}

int dycl_guard_outputs_finite(const struct dycl_plan *plan, void *const *outputs) {
    for (int i = 0; i < plan->program.output_count; i++)
        if (!finite(&plan->program.graph.values[plan->program.outputs[i]], outputs[i])) return 0;
    return 1;
}

void dycl_guard_free(struct dycl_plan *plan) {
    dycl_free(plan->seen);
    dycl_plan_release(plan->exact);
}
