/* Gradients of parts that lie side by side, as of split, unbind or indices in a loop (internal to grad/). */
#ifndef DYCL_GRAD_MOSAIC_H
#define DYCL_GRAD_MOSAIC_H

#include "grad/box.h"
#include "grad/formula.h"

typedef struct {
    dycl_box at;
    uint32_t nth, gradient; /* gradient: with the root's dimensions */
    int64_t start, size;    /* in the dimension that is looked at */
    int taken;
} dycl_part;

/* As much of the root as these have and zeros: of all that do not overlap, which are put first; *out_taken: how many.
 * Alone each would be as large as the root, and so would be their sums. */
uint32_t dycl_mosaic(dycl_chain *c, const dycl_value *root, dycl_part *parts, int count, int *out_taken);

#endif
