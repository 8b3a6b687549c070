/* How values lie that only the backward pass will read: as they are computed, instead of as torch would have them.
 * Convolutions of ours leave channels last. Copied into the layout that was recorded, and back by who reads them there,
 * they took a tenth of a training step of a ResNet-50 and a third of a small CNN's.
 *
 * Ownership: the region's. Threads: GIL held. */
#ifndef DYCL_PY_REGION_LAID_H
#define DYCL_PY_REGION_LAID_H

#include "py/region/region.h"

/* Outputs [from, end) are kept for the backward pass alone: those that will be computed in channels last are laid so,
 * as values of nodes that are appended to the recording. region->output_of knows them by both. ERROR: an exception. */
dycl_status dycl_laid_outputs(dycl_region *region, uint32_t from, uint32_t end);
/* They are no outputs, after all. */
void dycl_laid_forget(dycl_region *region, uint32_t from, uint32_t end);

#endif
