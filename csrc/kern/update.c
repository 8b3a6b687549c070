#include "kern/update.h"

#include "kern/parallel.h"
#include "kern/steal.h"

#define LINE      16   /* elements of a line of the cache */
#define NS_A_BYTE 0.05 /* from the last cache, of one core */

DYCL_ISA_CHOICE(const dycl_update_table, dycl_update)

/* Elements [from, to) of all of them, as if they lay one behind the other. */
static void run(const dycl_update_table *table, const dycl_update_item *item, int64_t from, int64_t to) {
    for (; to > 0; item++) {
        int64_t end = to < item->count ? to : item->count;
        if (from < end) table->run[item->numbers->kind](item, from > 0 ? from : 0, end);
        from -= item->count;
        to -= item->count;
    }
}

void dycl_kern_update(const dycl_update_item *items, int64_t count) {
    const dycl_update_table *table = dycl_update_for(dycl_cpu_isa());
    int64_t total = 0, bytes = 0;
    for (int64_t i = 0; i < count; i++) {
        int arrays = 3; /* a parameter is read and written */
        for (int s = 0; s < DYCL_UPDATE_STATES; s++) arrays += 2 * (items[i].states[s] != NULL);
        total += items[i].count;
        bytes += items[i].count * arrays * (int64_t)sizeof(float);
    }
    int threads = dycl_kern_threads((size_t)bytes);
    if (threads < 2) {
        run(table, items, 0, total);
        return;
    }
    dycl_steal steal;
    dycl_steal_begin(&steal, threads);
#pragma omp parallel num_threads(threads)
    {
        int64_t team = omp_get_num_threads(), lines = total / LINE,
                units = dycl_steal_units(NS_A_BYTE * (double)bytes / (double)team, lines);
        dycl_steal_walk walk = dycl_steal_walk_of(omp_get_thread_num(), team, team, units);
        while (dycl_steal_next(&steal, &walk)) { /* cuts: whole cache lines, mostly */
            int64_t from, end;
            int last = walk.owner + 1 == team && walk.unit + 1 == units;
            dycl_steal_range(&walk, lines, &from, &end);
            run(table, items, from * LINE, last ? total : end * LINE);
        }
    }
}
