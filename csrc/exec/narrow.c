#include "exec/narrow.h"

#include "base/cpu.h"
#include "exec/measure.h"
#include "exec/pack.h"

/* Packing takes as long as reading 15 to 45 times, as new memory is slow the first time, and gains a sixth of a reading. From here on a program that was
 * a third faster than eager so far stays ahead of it. */
#define USES 128

enum { AS_IT_LIES, NARROW };
static const char *const ways[] = {"as it lies", "narrow"};

dycl_status dycl_narrow_offer(dycl_maker *b, dycl_ref weights, const dycl_narrow_form *form, int threads, const char *key, dycl_narrow_choice *out) {
    const dycl_graph *g = &b->program->graph;
    dycl_tensor w = {.ref = weights};
    dycl_status status = DYCL_OK;
    int constant = dycl_make_may_pack(b) && weights.slot < g->value_count && g->values[weights.slot].kind == DYCL_VALUE_FEED;
    *out = (dycl_narrow_choice){NULL, NULL};
    if (!constant || b->plan->mode != DYCL_PLAN_TUNED || !dycl_kern_narrow(dycl_cpu_isa())) return DYCL_OK;
    DYCL_TRY(dycl_make_binding(b, &w, NULL, 0, &out->binding));
    if (!out->binding) return DYCL_OK;
    out->binding->narrow = *form;
    dycl_measure *measure = dycl_measure_get(2, ways, threads, "%s n%lld k%lld", key, (long long)form->n, (long long)form->k);
    DYCL_TRY(dycl_make_measure(b, measure));
    out->measure = measure;
fail:
    return status;
}

dycl_status dycl_narrow_begin(const dycl_narrow_choice *choice, dycl_plan *plan, dycl_narrow_run *out) {
    const void *packed = NULL;
    *out = (dycl_narrow_run){NULL, AS_IT_LIES, 0};
    if (!choice->measure) return DYCL_OK;
    dycl_binding *binding = choice->binding;
    const dycl_feed *feed = &plan->feeds[binding->feed];
    if (!feed->token) return DYCL_OK;
    if (!dycl_measure_is(choice->measure, AS_IT_LIES)) {
        int known = binding->pack && binding->pack->token == feed->token && binding->pack->version == feed->version;
        if (!known && dycl_pack_count_use(feed) < USES) return DYCL_OK;
    }
    out->way = dycl_measure_next(choice->measure, &out->began);
    binding->fresh = 0;
    if (out->way == AS_IT_LIES) {
        if (!out->began && binding->pack) dycl_binding_forget(binding);
        return DYCL_OK;
    }
    dycl_status status = dycl_binding_get(plan, binding, NULL, &packed);
    if (status == DYCL_OK && packed && ((const dycl_narrow_header *)packed)->usable) out->packed = packed;
    return status;
}

void dycl_narrow_end(const dycl_narrow_choice *choice, const dycl_narrow_run *run) {
    int as_chosen = (run->packed != NULL) == (run->way == NARROW);
    if (run->began && as_chosen && !choice->binding->fresh) dycl_measure_note(choice->measure, run->way, run->began); /* a run that packs says nothing about the others */
}
