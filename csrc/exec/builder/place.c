#include "base/alloc.h"
#include "check/zone.h"
#include "exec/builder/group.h"
#include "exec/plan/check.h"

/* Where the slots of a plan lie, when all its steps are there. */

/* A slot keeps another's memory only if that one really dies where it begins, and for one taker. */
static dycl_status confirm_sharing(dycl_builder *b) {
    uint8_t *taken = dycl_alloc_zero(b->slot_count + 1);
    if (!taken) return dycl_error_set("out of memory");
    for (uint32_t s = 0; s < b->slot_count; s++) {
        dycl_slot *slot = &b->slots[s];
        if (slot->share == DYCL_NONE) continue;
        const dycl_slot *from = &b->slots[slot->share];
        if (from->first == DYCL_NONE || from->last != slot->first || from->first >= slot->first || taken[slot->share])
            slot->share = DYCL_NONE;
        else
            taken[slot->share] = 1;
    }
    dycl_free(taken);
    return DYCL_OK;
}

dycl_status dycl_make_places(dycl_builder *b) {
    dycl_plan *plan = b->plan;
    dycl_status status;
    DYCL_TRY(confirm_sharing(b));
    if (plan->mode == DYCL_PLAN_TUNED) DYCL_TRY(dycl_group_steps(b));
    DYCL_TRY(dycl_memory_plan(b->slots, b->slot_count, plan->check ? DYCL_RED_ZONE : 0, &plan->workspace_bytes));
    DYCL_TRY(dycl_check_lay_out(plan, b->slots, b->slot_count));
    plan->slot_count = b->slot_count;
    plan->slots = dycl_alloc_zero((b->slot_count + 1) * sizeof(void *));
    plan->places = dycl_alloc((b->slot_count + 1) * sizeof(int64_t));
    if (!plan->slots || !plan->places) return dycl_error_set("out of memory for a plan");
    for (uint32_t s = 0; s < b->slot_count; s++) {
        plan->slots[s] = b->slots[s].keep;
        plan->places[s] = b->slots[s].fixed || b->slots[s].first == DYCL_NONE ? -1 : b->slots[s].place;
    }
    return DYCL_OK;
fail:
    return status;
}
