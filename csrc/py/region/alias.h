/* What detach answers, while it is pending: in torch views of it come from it, not from what it was detached from.
 * Where one is written with a history, the alias gets it, and what it aliases does not. Only where histories are
 * recorded.
 *
 * Ownership: the tensors are the region's, until the segment ends. Threads: GIL held; making one may let other threads
 * run. */
#ifndef DYCL_PY_REGION_ALIAS_H
#define DYCL_PY_REGION_ALIAS_H

#include "py/region/region.h"

/* The pending lazy tensor is an alias from now on. OK, or ERROR with an exception. */
dycl_status dycl_alias_note(dycl_region *region, dycl_lazy *lazy);
/* The tensor that a view of an alias is a view of; root: what both are views of. Borrowed, or NULL with an exception.
 */
dycl_handle dycl_alias_tensor(dycl_region *region, const dycl_lazy *view, dycl_handle root);
void dycl_alias_bound(dycl_region *region, const dycl_lazy *lazy); /* an alias got its tensor */
void dycl_alias_forget(dycl_region *region);                       /* at the segment's end */

#endif
