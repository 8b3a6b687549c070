#include "exec/builder/form.h"

#include "base/cpu.h"
#include "exec/tune/measure.h"
#include "exec/pack/pack.h"

/* Packing narrow weights takes as long as reading 15 to 45 times, as new memory is slow the first time, and gains a
 * sixth of a reading. From here on a program that was a third faster than eager so far stays ahead of it. Eight bits
 * take 5 to 10 readings, and gain more than half of one. */
#define NARROW_USES 128
#define SCREEN_USES 24

static dycl_status offer(dycl_maker *b, dycl_ref weights, const char *const *ways, uint32_t uses, int threads,
                         const char *key, const dycl_weights *as, int64_t n, int64_t k, dycl_form_choice *out) {
    dycl_tensor w = {.ref = weights};
    dycl_status status = DYCL_OK;
    *out = (dycl_form_choice){NULL, NULL, uses};
    if (b->plan->mode != DYCL_PLAN_TUNED) return DYCL_OK;
    DYCL_TRY(dycl_make_packing(b, &w, as, 0, &out->packing));
    if (!out->packing) return DYCL_OK; /* not a constant, or nothing may be packed */
    dycl_measure *measure = dycl_measure_get(2, ways, threads, "%s n%lld k%lld", key, (long long)n, (long long)k);
    DYCL_TRY(dycl_make_measure(b, measure));
    out->measure = measure;
fail:
    return status;
}

dycl_status dycl_form_offer_narrow(dycl_maker *b, dycl_ref weights, const dycl_narrow_form *form, int threads,
                                   const char *key, dycl_form_choice *out) {
    static const char *const ways[] = {"as it lies", "narrow"};
    *out = (dycl_form_choice){0};
    if (!dycl_kern_narrow(dycl_cpu_isa())) return DYCL_OK;
    const dycl_weights as = {.kind = DYCL_WEIGHTS_NARROW, .narrow = *form};
    return offer(b, weights, ways, NARROW_USES, threads, key, &as, form->n, form->k, out);
}

dycl_status dycl_form_offer_screen(dycl_maker *b, dycl_ref weights, const dycl_screen_form *form, int threads,
                                   const char *key, dycl_form_choice *out) {
    static const char *const ways[] = {"all of it", "screened"};
    *out = (dycl_form_choice){0};
    if (!dycl_kern_screen(dycl_cpu_isa())) return DYCL_OK;
    const dycl_weights as = {.kind = DYCL_WEIGHTS_SCREEN, .screen = *form};
    return offer(b, weights, ways, SCREEN_USES, threads, key, &as, form->n, form->k, out);
}

dycl_status dycl_form_begin(const dycl_form_choice *choice, dycl_plan *plan, dycl_form_run *out) {
    const void *packed = NULL;
    *out = (dycl_form_run){NULL, DYCL_FORM_AS_IT_LIES, 0};
    if (!choice->measure) return DYCL_OK;
    dycl_packing *packing = choice->packing;
    const dycl_feed *feed = &plan->feeds[packing->feed];
    if (!feed->token) return DYCL_OK;
    if (!dycl_measure_is(choice->measure, DYCL_FORM_AS_IT_LIES)) {
        int known = packing->pack && packing->pack->token == feed->token && packing->pack->version == feed->version;
        if (!known && dycl_pack_count_use(feed) < choice->uses) return DYCL_OK;
    }
    out->way = dycl_measure_next(choice->measure, &out->began);
    packing->fresh = 0;
    if (out->way == DYCL_FORM_AS_IT_LIES) {
        if (!out->began && packing->pack) dycl_packing_forget(packing);
        return DYCL_OK;
    }
    dycl_status status = dycl_packing_get(plan, packing, NULL, &packed);
    if (status != DYCL_OK || !packed) return status;
    if (dycl_weights_usable(&packing->as, packed)) out->packed = packed;
    return DYCL_OK;
}

void dycl_form_end(const dycl_form_choice *choice, const dycl_form_run *run) {
    int as_chosen = (run->packed != NULL) == (run->way == DYCL_FORM_OTHER);
    if (run->began && as_chosen && !choice->packing->fresh)
        dycl_measure_note(choice->measure, run->way, run->began); /* a run that packs says nothing about the others */
}
