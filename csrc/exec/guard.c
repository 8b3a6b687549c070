#include "exec/guard.h"

#include "base/alloc.h"
#include "exec/pack.h"

#include <math.h>

struct dycl_guard_seen {
    uint64_t token, version;
};

static int finite(const dycl_value *value, const void *data) {
    return value->dtype != DYCL_F32 || dycl_kern_all_finite(data, (size_t)dycl_value_extent(value));
}

dycl_status dycl_guard_make(dycl_maker *b) {
    const dycl_graph *g = &b->program->graph;
    if (!b->hides_nan) return DYCL_OK;
    uint8_t *guarded = b->plan->guarded = dycl_alloc_zero(g->value_count + 1);
    if (!guarded) return dycl_error_set("out of memory");
    for (uint32_t n = g->node_count; n-- > 0;) { /* readers stand behind what they read */
        const dycl_node *node = &g->nodes[n];
        const uint32_t *operands = dycl_node_operands(g, node);
        if (!b->hides_nan[n] && !guarded[g->values[node->out].root]) continue;
        for (int i = 0; i < node->operand_count; i++)
            if (operands[i] != DYCL_NONE) guarded[g->values[operands[i]].root] = 1;
    }
    return DYCL_OK;
}

static int scalars_finite(const struct dycl_plan *plan, const dycl_scalar *scalars) {
    const dycl_graph *g = &plan->program.graph;
    for (uint32_t i = 0; i < g->scalar_count; i++) {
        uint8_t dtype = g->values[g->scalars[i]].dtype;
        if (!plan->guarded[g->scalars[i]] || !dycl_dtype_is_float((dycl_dtype)dtype)) continue;
        if (!isfinite(dtype == DYCL_F32 ? (double)scalars[i].f32 : scalars[i].f64)) return 0;
    }
    return 1;
}

int dycl_guard_inputs_finite(struct dycl_plan *plan, const dycl_feed *feeds, const dycl_scalar *scalars) {
    const dycl_graph *g = &plan->program.graph;
    if (!scalars_finite(plan, scalars)) return 0;
    if (!plan->seen) plan->seen = dycl_alloc_zero((g->feed_count + 1) * sizeof *plan->seen); /* without it every feed is looked at every time */
    for (uint32_t i = 0; i < g->feed_count; i++) {
        if (!plan->guarded[g->feeds[i]]) continue;
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
    dycl_free(plan->guarded);
    dycl_plan_release(plan->exact);
}
