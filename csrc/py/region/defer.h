/* Values that the program holds and may never ask for. A step of greedy decoding leaves behind the logits whose largest
 * element it took; Python lets go of them before anybody looks, and computing them is most of what the step reads.
 * Where Python asks for another value (an element, an index), such a product is left out of the segment
 * (opt/prefilter.h); its lazy tensors wait until they are asked for, or die. Then what makes them is recorded once
 * more, in the segment of that time, from the product's operand, which was kept.
 *
 * Nothing that they are made of changes meanwhile: the operand is a tensor of ours, the weight a constant
 * (memory/constant.h), and whatever may write to memory (an operator that torch runs, a write into memory that others
 * see, a way to a constant's memory) recalls them first, like every flush but these.
 *
 * Ownership: a dycl_deferred belongs to the lazy tensors that wait for it; it owns references to what the values are
 * made of. Threads: GIL held. */
#ifndef DYCL_PY_REGION_DEFER_H
#define DYCL_PY_REGION_DEFER_H

#include "py/region/region.h"

#define DYCL_DEFER_CHAIN 4 /* a product and copies of it */
#define DYCL_DEFER_MOST  4 /* at a time: more are recalled, so that the last segment of a call stays short */

typedef struct {
    uint32_t roots[DYCL_DEFER_CHAIN]; /* storages that are not computed now */
    int count;                        /* 0: nothing is deferred */
    uint32_t product;                 /* node */
    uint32_t operand;                 /* value: what is computed and kept instead */
} dycl_deferral;

/* Looks for such a product in the segment that ends, and takes what hangs on it out of region->outputs (*count of
 * them). wanted: the storage in which the element lies that is asked for now. */
void dycl_defer_look(dycl_region *region, uint32_t wanted, uint32_t *count, dycl_deferral *out);
static inline int dycl_defers(const dycl_deferral *p, uint32_t root) {
    for (int i = 0; i < p->count; i++)
        if (p->roots[i] == root) return 1;
    return 0;
}
/* After the segment ran: its lazy tensors wait. 0, or -1 with an exception. */
int dycl_defer_keep(dycl_region *region, const dycl_deferral *p, struct dycl_segment *segment);

/* All that waits becomes pending in the segment that is recorded now. 0, or -1 with an exception. */
int dycl_defer_recall(dycl_region *region);
void dycl_defer_release(struct dycl_deferred *deferred);   /* may run Python code */
const dycl_value *dycl_defer_value(const dycl_lazy *lazy); /* shape, strides and dtype of one that waits */

#endif
