/* Gradients clipped before an optimizer's step: how large they are, and the same scaled or bounded in place, all of
 * them in one parallel loop.
 *
 * Ownership: none. Threads: each function is a parallel driver (kern.h). */
#ifndef DYCL_KERN_CLIP_H
#define DYCL_KERN_CLIP_H

#include "kern/isa.h"
#include "kern/kern.h"

#define DYCL_CLIP_BLOCK 4096 /* elements that are summed in f32, as torch's own norm sums in it */

typedef struct {
    float *data;
    int64_t count;
} dycl_clip_item;

/* sums[i]: of the squares of item i, infinite where a block's sum is; blocks: one for each block of each item. Does not
 * depend on the number of threads. */
int64_t dycl_kern_clip_blocks(const dycl_clip_item *items, int64_t count);
void dycl_kern_clip_squares(const dycl_clip_item *items, int64_t count, float *blocks, double *sums);
void dycl_kern_clip_scale(const dycl_clip_item *items, int64_t count, float by);
/* torch.clamp: a NaN stays one. low <= high */
void dycl_kern_clip_bound(const dycl_clip_item *items, int64_t count, float low, float high);

typedef struct {
    void (*scale)(float *x, float by, int64_t n);
    void (*bound)(float *x, float low, float high, int64_t n);
} dycl_clip_table;
DYCL_ISA_TABLES(const dycl_clip_table, dycl_clip)

#endif
