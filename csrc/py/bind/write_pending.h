/* Writes into the memory of what was recorded and is not computed yet, which other tensors of the program look at: a
 * slice is written in place, or a tensor that has views. What was recorded before goes on reading the old value; the
 * tensor, and every view of it, are bound to another one (view_put), so that nothing has to be computed first.
 *
 * Ownership: none. Threads: GIL held; no Python code runs. */
#ifndef DYCL_PY_BIND_WRITE_PENDING_H
#define DYCL_PY_BIND_WRITE_PENDING_H

#include "py/bind/call.h"

/* self (part NULL), or the view `part` of it at `offset` elements from its first, becomes the value: so, or at once
 * (write_through.h). most: elements of what is written, as there. New reference to self; NULL without an exception for
 * BAIL. */
PyObject *dycl_write_shared(dycl_call *call, PyObject *self, const dycl_value *part, int64_t offset, uint32_t value,
                            int64_t most);

#endif
