/* Views that the lazy tensor's getters and slots need, and what the tables of views, movement, indexing and creation
 * share.
 *
 * Ownership: results are new references. Threads: GIL held; the region is open. */
#ifndef DYCL_PY_BIND_VIEW_H
#define DYCL_PY_BIND_VIEW_H

#include "py/bind/call.h"

/* NULL without an exception for BAIL (region->recorder.why says why), NULL with an exception for an error. */
/* x.T (matrix 0: rank 2 only, torch warns or raises elsewhere) and x.mT, x.mH (matrix 1: the last two of at least two
 * dimensions) */
PyObject *dycl_view_transposed(dycl_region *region, PyObject *self, int matrix);
PyObject *dycl_view_unbind(dycl_region *region, PyObject *self,
                           int dim); /* a tuple of lazy tensors: what iterating over a tensor goes through */

/* Names of parameters that a list of integers may be spread over, x.view(2, 3): no keyword can spell them. */
#define DYCL_SPREAD "*1 *2 *3 *4 *5 *6 *7 *8"
/* Sizes at parameter `first`: a sequence, or spread over the parameters from there on. */
dycl_status dycl_call_spread(dycl_call *call, int first, int *out_count, int64_t *out);
/* A list or tuple of integers; unlike dycl_call_ints no bare integer. */
dycl_status dycl_call_sequence(dycl_call *call, PyObject *o, int *out_count, int64_t *out);
/* The tensors of a list or tuple (at least one, at most `most`). */
dycl_status dycl_call_values(dycl_call *call, PyObject *o, int most, int *out_count, uint32_t *out);
/* Several results: a tuple of lazy tensors. */
PyObject *dycl_call_results(dycl_region *region, int count, const uint32_t *values);

PyObject *dycl_bind_pad_by_mode(dycl_call *call); /* words.c: input, pad, mode (a str), value */

/* Rows of the table in matmul.c */
PyObject *dycl_bind_einsum(dycl_call *call, const dycl_binding *row);    /* einsum.c */
PyObject *dycl_bind_tensordot(dycl_call *call, const dycl_binding *row); /* tensordot.c */
PyObject *dycl_bind_inner(dycl_call *call, const dycl_binding *row);

#endif
