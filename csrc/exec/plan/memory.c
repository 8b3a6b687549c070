#include "exec/plan/memory.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

/* Offsets for intervals of steps: largest first, each at the lowest place that is free during its whole life. Slots
 * that take over another's memory are merged into one interval first. */

typedef struct {
    size_t bytes;
    uint32_t first, last, slot;
    int64_t place;
} interval;

static int larger(const void *x, const void *y) {
    const interval *a = x, *b = y;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
    return a->first != b->first ? (a->first < b->first ? -1 : 1) : (a->slot < b->slot ? -1 : 1);
}

static int lower(const void *x, const void *y) {
    const interval *const *a = x, *const *b = y;
    return (*a)->place < (*b)->place ? -1 : (*a)->place > (*b)->place;
}

static uint32_t owner(const dycl_slot *slots, uint32_t s) {
    while (slots[s].share != DYCL_NONE) s = slots[s].share;
    return s;
}

dycl_status dycl_memory_plan(dycl_slot *slots, uint32_t count, size_t zone, size_t *out_bytes) {
    interval *all = dycl_alloc((count + 1) * sizeof(interval));
    interval **live = dycl_alloc((count + 1) * sizeof(interval *));
    uint32_t *at = dycl_alloc((count + 1) * sizeof(uint32_t));
    uint32_t used = 0;
    size_t total = 0;
    dycl_status status = DYCL_OK;
    if (!all || !live || !at) {
        status = dycl_error_set("out of memory");
        goto done;
    }
    for (uint32_t s = 0; s < count; s++) {
        at[s] = DYCL_NONE;
        if (slots[s].fixed || slots[s].first == DYCL_NONE || slots[s].share != DYCL_NONE) continue;
        all[used] = (interval){(slots[s].bytes + zone + 63) & ~(size_t)63, slots[s].first, slots[s].last, s, 0};
        at[s] = used++;
    }
    for (uint32_t s = 0; s < count; s++) {
        if (slots[s].share == DYCL_NONE || slots[s].first == DYCL_NONE) continue;
        interval *i = &all[at[owner(slots, s)]];
        if (slots[s].first < i->first) i->first = slots[s].first;
        if (slots[s].last > i->last) i->last = slots[s].last;
    }
    qsort(all, used, sizeof *all, larger);
    for (uint32_t i = 0; i < used; i++) {
        uint32_t n = 0;
        for (uint32_t j = 0; j < i; j++)
            if (all[j].first <= all[i].last && all[i].first <= all[j].last) live[n++] = &all[j];
        qsort(live, n, sizeof *live, lower);
        int64_t place = 0;
        for (uint32_t j = 0; j < n; j++) {
            if (live[j]->place >= place + (int64_t)all[i].bytes) break;
            int64_t end = live[j]->place + (int64_t)live[j]->bytes;
            if (end > place) place = end;
        }
        all[i].place = place;
        slots[all[i].slot].place = place;
        if ((size_t)place + all[i].bytes > total) total = (size_t)place + all[i].bytes;
    }
    for (uint32_t s = 0; s < count; s++)
        if (slots[s].share != DYCL_NONE) slots[s].place = slots[owner(slots, s)].place;
    *out_bytes = total;
done:
    dycl_free(all);
    dycl_free(live);
    dycl_free(at);
    return status;
}
