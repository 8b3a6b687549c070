#include "exec/builder/group.h"

#include "base/alloc.h"

#include <omp.h>
#include <string.h>

/* Small independent steps side by side: each is too small to be worth several threads, but two of them are (the
 * projections of a recurrent cell, of an attention over few tokens). Waking a team costs about 1 us where it still
 * spins. */

#define LEAST 3000.0 /* nanoseconds of one step */
#define MOST  30000.0

static dycl_status group_run(const dycl_step *step, dycl_plan *plan) {
    const dycl_group *group = step->args;
    dycl_status worst = DYCL_OK;
    int threads = (int)group->count < plan->threads ? (int)group->count : plan->threads;
#pragma omp parallel for schedule(static, 1) num_threads(threads)
    for (uint32_t i = 0; i < group->count; i++) {
        dycl_status status = group->steps[i].run(&group->steps[i], plan);
        if (status != DYCL_OK) {
#pragma omp critical(dycl_group_status)
            worst = status;
        }
    }
    return worst;
}

/* Does step `late` touch what step `early` writes, or write what it reads? */
static int depends(const dycl_builder *b, uint32_t early, uint32_t late) {
    for (uint32_t i = b->touch_start[early]; i < b->touch_start[early + 1]; i++)
        for (uint32_t j = b->touch_start[late]; j < b->touch_start[late + 1]; j++)
            if (b->touches[i].slot == b->touches[j].slot && (b->touches[i].write || b->touches[j].write)) return 1;
    return 0;
}

static int suits(const dycl_builder *b, uint32_t step) {
    const dycl_step_info *info = &b->plan->infos[step];
    return info->serial && info->cost >= LEAST && info->cost <= MOST;
}

/* Where the touches of each step begin. */
static dycl_status index_touches(dycl_builder *b) {
    b->touch_start = dycl_alloc((b->plan->step_count + 2) * sizeof(uint32_t));
    if (!b->touch_start) return dycl_error_set("out of memory");
    uint32_t at = 0;
    for (uint32_t s = 0; s <= b->plan->step_count; s++) {
        while (at < b->touch_count && b->touches[at].step < s) at++;
        b->touch_start[s] = at;
    }
    return DYCL_OK;
}

dycl_status dycl_group_steps(dycl_builder *b) {
    dycl_plan *plan = b->plan;
    if (plan->threads < 2) return DYCL_OK;
    int any = 0;
    for (uint32_t s = 0; s + 1 < plan->step_count; s++) any |= suits(b, s) && suits(b, s + 1);
    if (!any) return DYCL_OK;
    dycl_status status = index_touches(b);
    if (status != DYCL_OK) return status;
    uint32_t made = 0;
    for (uint32_t s = 0; s < plan->step_count;) {
        uint32_t count = 1;
        while (suits(b, s) && s + count < plan->step_count && count < DYCL_GROUP_STEPS && suits(b, s + count)) {
            int free = 1;
            for (uint32_t i = 0; i < count; i++) free &= !depends(b, s + i, s + count);
            if (!free) break;
            count++;
        }
        if (count > 1) {
            dycl_group *group = dycl_plan_alloc(plan, sizeof *group);
            if (!group) return DYCL_ERROR;
            group->count = count;
            for (uint32_t i = 0; i < count; i++) {
                group->steps[i] = plan->steps[s + i];
                group->infos[i] = plan->infos[s + i];
            }
            /* all of them live through the whole group */
            for (uint32_t i = b->touch_start[s]; i < b->touch_start[s + count]; i++) {
                dycl_slot *slot = &b->slots[b->touches[i].slot];
                if (slot->first > s && slot->first < s + count) slot->first = s;
                if (slot->last >= s && slot->last < s + count) slot->last = s + count - 1;
                slot->share = slot->first == s ? DYCL_NONE : slot->share;
            }
            plan->steps[made] = (dycl_step){group_run, group};
            plan->infos[made] = plan->infos[s];
            plan->infos[made].group = group;
            plan->infos[made].kernel = "side by side";
        } else {
            plan->steps[made] = plan->steps[s];
            plan->infos[made] = plan->infos[s];
        }
        made++;
        s += count;
    }
    plan->step_count = made;
    return DYCL_OK;
}
