/* Results with a history that are tensors of their own in torch, and here views of what nobody sees (of a product with
 * a vector, of a stack): the view is the result then, and gets the node.
 *
 * Ownership: the tensors are the struct's. Threads: GIL held. */
#ifndef DYCL_PY_REGION_OWN_RESULTS_H
#define DYCL_PY_REGION_OWN_RESULTS_H

#include "py/region/region.h"

typedef struct {
    uint32_t *values;     /* owned */
    dycl_handle *tensors; /* owned; NULL before they are made */
    uint32_t count;
} dycl_own_results;

/* OK, or ERROR (no memory). */
dycl_status dycl_own_results_find(const dycl_region *region, dycl_own_results *out);
void dycl_own_results_free(dycl_own_results *o);
int dycl_own_results_has(const dycl_own_results *o, uint32_t value);
/* Some pending tensor is the root, or a view of it that has to be one. */
int dycl_own_results_hold(const dycl_region *region, const dycl_own_results *o, uint32_t root);
/* When the segment was computed. 0, or -1. */
int dycl_own_results_make(const dycl_region *region, dycl_own_results *o);
/* Borrowed; NULL: the value is none of them. */
dycl_handle dycl_own_results_tensor(const dycl_own_results *o, uint32_t value);

#endif
