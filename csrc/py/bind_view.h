/* Views that the lazy tensor's getters and slots need. Each answers a new reference; NULL without an exception for BAIL (region->recorder.why
 * says why), NULL with an exception for an error. The region is open. Threads: GIL held. */
#ifndef DYCL_PY_BIND_VIEW_H
#define DYCL_PY_BIND_VIEW_H

#include "py/call.h"

/* x.T (matrix 0: all dimensions reversed; torch warns or raises outside ranks 0 and 2: BAIL there) and x.mT, x.mH, x.H (matrix 1: the last two; rank >= 2) */
PyObject *dycl_view_transposed(dycl_region *region, PyObject *self, int matrix);
PyObject *dycl_view_unbind(dycl_region *region, PyObject *self, int dim); /* a tuple of lazy tensors: what iterating over a tensor goes through */

#endif
