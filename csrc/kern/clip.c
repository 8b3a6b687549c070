#include "kern/clip.h"

#include <math.h>
#include <stdatomic.h>

#include "kern/parallel.h"
#include "kern/steal.h"

#define BLOCK     4096 /* elements, of what changes */
#define NS_A_BYTE 0.05 /* from the last cache, of one core */

DYCL_ISA_CHOICE(const dycl_clip_table, dycl_clip)

typedef struct {
    const dycl_clip_item *items;
    const dycl_clip_table *table;
    int bounds; /* between by and high; else scaled by `by` */
    float by, high;
} job;

static int64_t blocks_of(const dycl_clip_item *item) { return (item->count + BLOCK - 1) / BLOCK; }

static void do_block(const job *j, float *x, int64_t n) {
    if (j->bounds)
        j->table->bound(x, j->by, j->high, n);
    else
        j->table->scale(x, j->by, n);
}

/* Blocks [from, to) of all items, as if these lay one behind the other. */
static void do_blocks(const job *j, int64_t from, int64_t to) {
    const dycl_clip_item *item = j->items;
    int64_t first = 0; /* block of the item */
    for (int64_t block = from; block < to; block++) {
        while (block - first >= blocks_of(item)) first += blocks_of(item++);
        int64_t at = (block - first) * BLOCK, left = item->count - at;
        do_block(j, item->data + at, left < BLOCK ? left : BLOCK);
    }
}

static void run(const job *j, int64_t count) {
    int64_t bytes = 0, blocks = 0;
    for (int64_t i = 0; i < count; i++) {
        bytes += 2 * j->items[i].count * (int64_t)sizeof(float);
        blocks += blocks_of(&j->items[i]);
    }
    int threads = dycl_kern_threads((size_t)bytes);
    if (threads < 2) {
        do_blocks(j, 0, blocks);
        return;
    }
    dycl_steal steal;
    dycl_steal_begin(&steal, threads);
#pragma omp parallel num_threads(threads)
    {
        int64_t team = omp_get_num_threads(),
                units = dycl_steal_units(NS_A_BYTE * (double)bytes / (double)team, blocks);
        dycl_steal_walk walk = dycl_steal_walk_of(omp_get_thread_num(), team, team, units);
        while (dycl_steal_next(&steal, &walk)) {
            int64_t from, end;
            dycl_steal_range(&walk, blocks, &from, &end);
            do_blocks(j, from, end);
        }
    }
}

float dycl_kern_clip_norm(const float *x, int64_t n, int lanes) {
    return sqrtf(dycl_clip_for(dycl_cpu_isa())->squares(x, n, lanes));
}

/* Each thread takes the next item: within one, the order of sums is torch's. */
void dycl_kern_clip_norms(const dycl_clip_item *items, int64_t count, int lanes, float *norms) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < count; i++) bytes += items[i].count * (int64_t)sizeof(float);
    int threads = count > 1 ? dycl_kern_threads((size_t)bytes) : 1;
    _Atomic int64_t next = 0;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        int64_t i;
        while ((i = atomic_fetch_add_explicit(&next, 1, memory_order_relaxed)) < count)
            norms[i] = dycl_kern_clip_norm(items[i].data, items[i].count, lanes);
    }
}

void dycl_kern_clip_scale(const dycl_clip_item *items, int64_t count, float by) {
    const job scale = {.items = items, .table = dycl_clip_for(dycl_cpu_isa()), .by = by};
    run(&scale, count);
}

void dycl_kern_clip_bound(const dycl_clip_item *items, int64_t count, float low, float high) {
    const job bound = {.items = items, .table = dycl_clip_for(dycl_cpu_isa()), .bounds = 1, .by = low, .high = high};
    run(&bound, count);
}
