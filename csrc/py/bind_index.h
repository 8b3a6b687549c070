/* Integer tensors as indices: their values are known to be in range before anything is recorded.
 * Ownership: none. Threads: GIL held; the region is open. */
#ifndef DYCL_PY_BIND_INDEX_H
#define DYCL_PY_BIND_INDEX_H

#include "py/call.h"

/* The value of an index tensor (int64 or int32) and the least and greatest of its elements (low > high: it is empty). A pending index whose bounds
 * are not known is computed, which begins a new segment: call this before any other dycl_call_value of the call. */
dycl_status dycl_call_index(dycl_call *call, PyObject *o, uint32_t *out_value, int64_t out_bounds[2]);

#endif
