#include "exec/builder/weights_choice.h"

#include "base/cpu.h"
#include "exec/tune/autotune.h"
#include "exec/pack/pack.h"

/* Packing narrow weights takes as long as reading 15 to 45 times, as new memory is slow the first time, and gains a
 * sixth of a reading. From here on a program that was a third faster than eager so far stays ahead of it. Eight bits
 * take 5 to 10 readings, and gain more than half of one. */
#define NARROW_USES    128
#define PREFILTER_USES 24

static dycl_status offer(dycl_builder *b, dycl_ref weights, const char *const *variants, uint32_t uses, int threads,
                         const char *key, const dycl_weights *as, int64_t n, int64_t k, dycl_weights_choice *out) {
    dycl_tensor w = {.ref = weights};
    dycl_status status = DYCL_OK;
    *out = (dycl_weights_choice){NULL, NULL, uses};
    if (b->plan->mode != DYCL_PLAN_TUNED) return DYCL_OK;
    DYCL_TRY(dycl_make_packing(b, &w, as, 0, &out->packing));
    if (!out->packing) return DYCL_OK; /* not a constant, or nothing may be packed */
    dycl_autotune *autotune =
        dycl_autotune_get(2, variants, threads, "%s n%lld k%lld", key, (long long)n, (long long)k);
    DYCL_TRY(dycl_make_autotune(b, autotune));
    out->autotune = autotune;
fail:
    return status;
}

dycl_status dycl_weights_offer_narrow(dycl_builder *b, dycl_ref weights, const dycl_narrow_layout *form, int threads,
                                      const char *key, dycl_weights_choice *out) {
    static const char *const variants[] = {"as it lies", "narrow"};
    *out = (dycl_weights_choice){0};
    if (!dycl_kern_narrow(dycl_cpu_isa())) return DYCL_OK;
    const dycl_weights as = {.kind = DYCL_WEIGHTS_NARROW, .narrow = *form};
    return offer(b, weights, variants, NARROW_USES, threads, key, &as, form->n, form->k, out);
}

dycl_status dycl_weights_offer_prefilter(dycl_builder *b, dycl_ref weights, const dycl_prefilter_layout *form,
                                         int threads, const char *key, dycl_weights_choice *out) {
    static const char *const variants[] = {"all of it", "prefiltered"};
    *out = (dycl_weights_choice){0};
    if (!dycl_kern_prefilter(dycl_cpu_isa())) return DYCL_OK;
    const dycl_weights as = {.kind = DYCL_WEIGHTS_PREFILTER, .prefilter = *form};
    return offer(b, weights, variants, PREFILTER_USES, threads, key, &as, form->n, form->k, out);
}

dycl_status dycl_weights_begin(const dycl_weights_choice *choice, dycl_plan *plan, dycl_weights_run *out) {
    const void *packed = NULL;
    *out = (dycl_weights_run){NULL, DYCL_WEIGHTS_AS_THEY_LIE, 0};
    if (!choice->autotune) return DYCL_OK;
    dycl_packing *packing = choice->packing;
    const dycl_feed *feed = &plan->feeds[packing->feed];
    if (!feed->token) return DYCL_OK;
    if (!dycl_autotune_is(choice->autotune, DYCL_WEIGHTS_AS_THEY_LIE)) {
        int known = packing->pack && packing->pack->token == feed->token && packing->pack->version == feed->version;
        if (!known && dycl_pack_count_use(feed) < choice->uses) return DYCL_OK;
    }
    out->variant = dycl_autotune_next(choice->autotune, &out->began);
    packing->fresh = 0;
    if (out->variant == DYCL_WEIGHTS_AS_THEY_LIE) {
        if (!out->began && packing->pack) dycl_packing_forget(packing);
        return DYCL_OK;
    }
    dycl_status status = dycl_packing_get(plan, packing, NULL, &packed);
    if (status != DYCL_OK || !packed) return status;
    if (dycl_weights_usable(&packing->as, packed)) out->packed = packed;
    return DYCL_OK;
}

void dycl_weights_end(const dycl_weights_choice *choice, const dycl_weights_run *run) {
    int as_chosen = (run->packed != NULL) == (run->variant == DYCL_WEIGHTS_PACKED);
    if (run->began && as_chosen && !choice->packing->fresh)
        dycl_autotune_note(choice->autotune, run->variant,
                           run->began); /* a run that packs says nothing about the others */
}
