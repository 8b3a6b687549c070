#include "exec/plan/memory.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

#define ENOUGH ((size_t)256 << 10) /* gaps in so little memory are no matter */
#define MANY   4096                /* intervals: each order takes the square of their number */

/* Offsets for intervals of steps, each at the lowest place that is free during its whole life. Slots that take over
 * another's memory are merged into one interval first, and so are those of a choice's variants. In which order they
 * choose their places decides how well they fit: no order is the best for all plans, so several are tried where the
 * first one leaves gaps. */

typedef struct {
    size_t bytes;
    uint32_t first, last, slot;
    int64_t place;
} interval;

typedef int (*order_fn)(const void *, const void *);

static int larger(const void *x, const void *y) {
    const interval *a = x, *b = y;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
    return a->first != b->first ? (a->first < b->first ? -1 : 1) : (a->slot < b->slot ? -1 : 1);
}

static int longer(const void *x, const void *y) { /* what lives long lies together, below what comes and goes */
    const interval *a = x, *b = y;
    uint32_t steps = a->last - a->first, others = b->last - b->first;
    return steps != others ? (steps < others ? 1 : -1) : larger(x, y);
}

static int earlier(const void *x, const void *y) {
    const interval *a = x, *b = y;
    return a->first != b->first ? (a->first < b->first ? -1 : 1) : larger(x, y);
}

static int later(const void *x, const void *y) {
    const interval *a = x, *b = y;
    return a->last != b->last ? (a->last < b->last ? 1 : -1) : larger(x, y);
}

static int wider(const void *x, const void *y) {
    const interval *a = x, *b = y;
    double area = (double)a->bytes * (a->last - a->first + 1.0), others = (double)b->bytes * (b->last - b->first + 1.0);
    return area != others ? (area < others ? 1 : -1) : larger(x, y);
}

static const order_fn orders[] = {larger, longer, earlier, later, wider};
enum { ORDERS = sizeof orders / sizeof *orders };

static int lower(const void *x, const void *y) {
    const interval *const *a = x, *const *b = y;
    return (*a)->place < (*b)->place ? -1 : (*a)->place > (*b)->place;
}

static uint32_t owner(const dycl_slot *slots, uint32_t s) {
    while (slots[s].share != DYCL_NONE) s = slots[s].share;
    return s;
}

/* Bytes up to the end of the highest. live: room for all. */
static size_t place_in_order(interval *all, uint32_t count, order_fn order, interval **live) {
    size_t total = 0;
    qsort(all, count, sizeof *all, order);
    for (uint32_t i = 0; i < count; i++) {
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
        if ((size_t)place + all[i].bytes > total) total = (size_t)place + all[i].bytes;
    }
    return total;
}

/* What is alive at once takes as much, however it lies. */
static size_t most_at_once(const interval *all, uint32_t count) {
    size_t most = 0;
    for (uint32_t i = 0; i < count; i++) { /* it is reached where one of them begins */
        size_t now = 0;
        for (uint32_t j = 0; j < count; j++)
            if (all[j].first <= all[i].first && all[i].first <= all[j].last) now += all[j].bytes;
        if (now > most) most = now;
    }
    return most;
}

static size_t place_all(interval *all, uint32_t count, interval **live) {
    size_t total = place_in_order(all, count, orders[0], live);
    if (total <= ENOUGH || count > MANY) return total;
    size_t least = most_at_once(all, count), close = least + least / 16, best_total = total;
    int best = 0;
    if (close < ENOUGH) close = ENOUGH;
    for (int i = 1; i < ORDERS && best_total > close; i++) {
        total = place_in_order(all, count, orders[i], live);
        if (total < best_total) {
            best_total = total;
            best = i;
        }
    }
    return best_total == total ? total : place_in_order(all, count, orders[best], live);
}

static void prolong(interval *i, const dycl_slot *slot) {
    if (slot->first < i->first) i->first = slot->first;
    if (slot->last > i->last) i->last = slot->last;
}

/* Makes an interval of each slot that has a place of its own, and one of each choice, as large as its largest variant:
 * `place` is where a slot begins in its interval. at: slot -> interval. */
static uint32_t make_intervals(dycl_slot *slots, uint32_t count, size_t zone, interval *all, uint32_t *at) {
    uint32_t used = 0, choice = 0, variant = 0;
    size_t end = 0;
    for (uint32_t s = 0; s < count; s++) {
        dycl_slot *slot = &slots[s];
        at[s] = DYCL_NONE;
        if (slot->fixed || slot->first == DYCL_NONE || slot->share != DYCL_NONE) continue;
        size_t bytes = (slot->bytes + zone + 63) & ~(size_t)63;
        int follows = slot->choice && slot->choice == choice && !zone;
        if (!follows || slot->variant != variant) end = 0;
        choice = slot->choice;
        variant = slot->variant;
        slot->place = (int64_t)end;
        end += bytes;
        if (follows) {
            interval *i = &all[used - 1];
            if (end > i->bytes) i->bytes = end;
            prolong(i, slot);
        } else
            all[used++] = (interval){bytes, slot->first, slot->last, s, 0};
        at[s] = used - 1;
    }
    return used;
}

dycl_status dycl_memory_plan(dycl_slot *slots, uint32_t count, size_t zone, size_t *out_bytes) {
    interval *all = dycl_alloc((count + 1) * sizeof(interval));
    interval **live = dycl_alloc((count + 1) * sizeof(interval *));
    uint32_t *at = dycl_alloc((count + 1) * sizeof(uint32_t));
    uint32_t used = 0;
    dycl_status status = DYCL_OK;
    if (!all || !live || !at) {
        status = dycl_error_set("out of memory");
        goto done;
    }
    used = make_intervals(slots, count, zone, all, at);
    for (uint32_t s = 0; s < count; s++)
        if (slots[s].share != DYCL_NONE && slots[s].first != DYCL_NONE) prolong(&all[at[owner(slots, s)]], &slots[s]);
    for (uint32_t s = 0; s < count; s++) /* placing sorts the intervals: their first slots stay */
        if (at[s] != DYCL_NONE) at[s] = all[at[s]].slot;
    *out_bytes = place_all(all, used, live);
    for (uint32_t i = 0; i < used; i++) slots[all[i].slot].place = all[i].place;
    for (uint32_t s = 0; s < count; s++)
        if (at[s] != DYCL_NONE && at[s] != s) slots[s].place += slots[at[s]].place;
    for (uint32_t s = 0; s < count; s++)
        if (slots[s].share != DYCL_NONE) slots[s].place = slots[owner(slots, s)].place;
done:
    dycl_free(all);
    dycl_free(live);
    dycl_free(at);
    return status;
}
