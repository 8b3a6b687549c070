#include "exec/builder/guard.h"

#include "base/alloc.h"
#include "exec/pack/pack.h"
#include "kern/parallel.h"

struct dycl_guard {
    dycl_ref ref;
    size_t count;
    int limit;
    uint32_t feed;           /* all that is looked at is this one; DYCL_NONE: it is not */
    uint64_t token, version; /* of a constant that was found small enough */
    const void *data;        /* and where: in pieces (cache/pieces.h) parts of one have its token */
};

int dycl_guard_is_small(const float *x, size_t count, int limit) {
    int threads = dycl_kern_threads(count * sizeof *x), all = 1;
    if (threads < 2) return dycl_kern_all_below(x, count, limit);
#pragma omp parallel for num_threads(threads) reduction(& : all) schedule(static)
    for (int i = 0; i < threads; i++) {
        size_t begin = count * (size_t)i / (size_t)threads, end = count * ((size_t)i + 1) / (size_t)threads;
        all &= dycl_kern_all_below(x + begin, end - begin, limit);
    }
    return all;
}

void dycl_guard_run(dycl_guard *a, dycl_plan *plan) {
    const dycl_feed *feed = a->feed == DYCL_NONE || !plan->feeds[a->feed].token ? NULL : &plan->feeds[a->feed];
    if (feed && feed->token == a->token && feed->version == a->version && feed->data == a->data) return;
    int known = feed && dycl_pack_is_small(feed, a->count, a->limit); /* another plan has looked */
    if (!known && !dycl_guard_is_small(dycl_at(plan, a->ref), a->count, a->limit)) {
        plan->suspect = 1;
        return;
    }
    if (feed) {
        if (!known) dycl_pack_set_small(feed, a->count, a->limit);
        a->token = feed->token;
        a->version = feed->version;
        a->data = feed->data;
    }
}

static dycl_status look_run(const dycl_step *step, dycl_plan *plan) {
    dycl_guard_run(step->args, plan);
    return DYCL_OK;
}

dycl_status dycl_guard_make(dycl_builder *b, uint32_t value, dycl_ref ref, size_t count, int limit, dycl_guard **out) {
    const dycl_value *v = dycl_make_value(b, value);
    dycl_guard *a = *out = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    a->ref = ref;
    a->count = count;
    a->limit = limit;
    a->feed = v->kind == DYCL_VALUE_FEED && ref.slot == value && !ref.offset ? v->source : DYCL_NONE;
    b->plan->guarded = 1;
    return DYCL_OK;
}

dycl_status dycl_guard_look(dycl_builder *b, uint32_t value, dycl_ref ref, size_t count, int limit) {
    dycl_guard *a;
    dycl_status status = dycl_guard_make(b, value, ref, count, limit, &a);
    if (status != DYCL_OK) return status;
    uint32_t begun = b->touch_count;
    dycl_make_read_at(b, ref, count * sizeof(float));
    return dycl_make_aside(b, begun, look_run, a, "small?", 20 + 0.03 * (double)count);
}
