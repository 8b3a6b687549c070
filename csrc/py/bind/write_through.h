/* Writes into memory that others may see: a plain tensor's, or a computed lazy tensor's with views. What was recorded
 * before is computed first, so that it reads what stood there; the write is done at once, and whatever is recorded
 * later reads it as a feed.
 *
 * Ownership: none. Threads: GIL held; the region is open. */
#ifndef DYCL_PY_BIND_WRITE_THROUGH_H
#define DYCL_PY_BIND_WRITE_THROUGH_H

#include "py/bind/call.h"

/* Recomputing a whole tensor and copying it is dearer than torch's operator in place where it is large. */
#define DYCL_WRITE_SMALL 16384 /* elements */

/* self (part NULL), or the view `part` of it at `offset` elements from its first, becomes the value, of the same dtype
 * and sizes. most: elements of what is written; 0: any number. New reference to self; NULL without an exception for
 * BAIL. */
PyObject *dycl_write_value(dycl_call *call, PyObject *self, const dycl_value *part, int64_t offset, uint32_t value,
                           int64_t most);
/* self.index_copy_(dim, index, source) */
PyObject *dycl_write_rows(dycl_call *call, PyObject *self, int64_t dim, PyObject *index, PyObject *source);

#endif
