/* Gradients clipped before an optimizer's step: how large they are, and the same scaled or bounded in place, all of
 * them in one parallel loop.
 *
 * Ownership: none. Threads: each function is a parallel driver (kern.h). */
#ifndef DYCL_KERN_CLIP_H
#define DYCL_KERN_CLIP_H

#include "kern/isa.h"
#include "kern/kern.h"

typedef struct {
    float *data;
    int64_t count;
} dycl_clip_item;

/* norms[i]: the root of the sum of squares of item i, as torch's vector_norm adds them up: in f32, one sum for each of
 * so many lanes (8 or 16: of the vectors that this torch uses), then these, then what is left. Its error grows with
 * the item, but a better norm would be another one. */
void dycl_kern_clip_norms(const dycl_clip_item *items, int64_t count, int lanes, float *norms);
float dycl_kern_clip_norm(const float *x, int64_t n, int lanes);
void dycl_kern_clip_scale(const dycl_clip_item *items, int64_t count, float by);
/* torch.clamp: a NaN stays one. low <= high */
void dycl_kern_clip_bound(const dycl_clip_item *items, int64_t count, float low, float high);

typedef struct {
    float (*squares)(const float *x, int64_t n, int lanes);
    void (*scale)(float *x, float by, int64_t n);
    void (*bound)(float *x, float low, float high, int64_t n);
} dycl_clip_table;
DYCL_ISA_TABLES(const dycl_clip_table, dycl_clip)

#endif
