#include "py/cpython/collect.h"
#include "py/region/ahead.h"

#include "base/alloc.h"
#include "base/env.h"
#include "exec/plan/ahead.h"
#include "py/region/segment.h"
#include "py/site/site.h"

struct dycl_region_ahead {
    dycl_ahead *run;
    dycl_segment *segment; /* retained */
    dycl_handle *handles;  /* owned, per output */
};

int dycl_ahead_forced(void) {
    static const char *const words[] = {"0", "1"};
    static int known = -2;
    if (known == -2) known = dycl_env_choice("DYCL_AHEAD", words, 2);
    return known;
}

int dycl_ahead_choose(dycl_site *site) {
    if (dycl_ahead_forced() >= 0) return dycl_ahead_forced();
    return site->worth_ahead && dycl_choose(&site->ahead) == DYCL_WAY_AHEAD;
}

void dycl_ahead_done(dycl_site *site, int was_ahead, uint64_t nanoseconds, int made) {
    const uint64_t took[2] = {nanoseconds, nanoseconds}; /* the runner's work is not the thread's */
    if (dycl_ahead_forced() < 0 && site->worth_ahead)
        dycl_choose_took(&site->ahead, was_ahead ? DYCL_WAY_AHEAD : DYCL_WAY_INLINE, took, 0, made);
}

static void delete_handles(struct dycl_region_ahead *a) {
    for (int i = 0; i < a->segment->output_count; i++) dycl_abi_delete(a->handles[i]);
}

static void free_ahead(dycl_region *region) {
    struct dycl_region_ahead *a = region->ahead;
    region->ahead = NULL;
    dycl_segment_release(a->segment);
    dycl_free(a->handles);
    dycl_free(a);
}

static void start(dycl_region *region) {
    dycl_segment *s = region->expected_count ? region->expected[0] : NULL;
    if (!s || !s->tuned || !s->plan || dycl_plan_timing() ||
        (dycl_ahead_forced() < 0 && dycl_plan_cost(s->plan) < DYCL_AHEAD_LEAST_NS))
        return;
    uint32_t count = (uint32_t)s->output_count;
    struct dycl_region_ahead *a = dycl_alloc_zero(sizeof *a);
    void **addresses = dycl_alloc((count + 1) * sizeof *addresses);
    if (!a || !addresses || !(a->handles = dycl_alloc((count + 1) * sizeof *a->handles))) goto nothing;
    if (!dycl_segment_allocate(&s->graph, s->outputs, count, a->handles, addresses)) goto nothing;
    a->segment = s;
    if (!(a->run = dycl_ahead_start(s->plan, addresses))) {
        delete_handles(a);
        goto nothing;
    }
    dycl_segment_retain(s);
    region->ahead = a;
    dycl_free(addresses);
    return;
nothing:
    if (a) dycl_free(a->handles);
    dycl_free(a);
    dycl_free(addresses);
}

void dycl_region_ahead_step(dycl_region *region) {
    const dycl_graph *graph = &region->recorder.graph;
    if (!region->ahead) {
        start(region);
        region->wants_ahead = region->ahead != NULL;
        if (!region->ahead) return;
    }
    if (dycl_graph_expected(graph) == &region->ahead->segment->graph) {
        dycl_ahead_publish(region->ahead->run, region->feeds, graph->feed_count, region->recorder.scalars,
                           graph->scalar_count, graph->node_count);
    } else {
        dycl_ahead_stop(region->ahead->run);
        region->wants_ahead = 0;
    }
}

int dycl_region_ahead_take(dycl_region *region, uint32_t count, dycl_segment **out_segment) {
    struct dycl_region_ahead *a = region->ahead;
    const dycl_graph *graph = &region->recorder.graph;
    if (!a || dycl_graph_expected(graph) != &a->segment->graph ||
        !dycl_segment_matches(a->segment, graph, region->outputs, (int)count))
        return 0;
    dycl_status status;
    dycl_ahead *run = a->run;
    a->run = NULL;
    int sections = dycl_collect_suspend();
    Py_BEGIN_ALLOW_THREADS;
    status = dycl_ahead_finish(run, region->feeds, region->recorder.scalars);
    Py_END_ALLOW_THREADS;
    dycl_collect_resume(sections);
    if (status != DYCL_OK) return 0;
    for (uint32_t i = 0; i < count; i++) region->handles[i] = a->handles[i];
    *out_segment = a->segment;
    dycl_segment_retain(a->segment);
    free_ahead(region);
    return 1;
}

void dycl_region_ahead_drop(dycl_region *region) {
    struct dycl_region_ahead *a = region->ahead;
    if (!a) return;
    if (a->run) dycl_ahead_cancel(a->run); /* the step under way ends soon, and needs no GIL */
    delete_handles(a);
    free_ahead(region);
}
