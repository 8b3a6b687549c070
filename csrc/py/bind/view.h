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

/* Several views at once (parts.c): rows of the table in view.c. */
PyObject *dycl_bind_split(dycl_call *call,
                          const dycl_binding *row); /* op 0: split, 1: chunk, 2: only a list of sizes */
PyObject *dycl_bind_tensor_split(dycl_call *call, const dycl_binding *row);
PyObject *dycl_bind_unbind(dycl_call *call, const dycl_binding *row);
PyObject *dycl_bind_iterate(dycl_call *call, const dycl_binding *row);
PyObject *dycl_bind_meshgrid(dycl_call *call, const dycl_binding *row);
PyObject *dycl_bind_as_strided(dycl_call *call, const dycl_binding *row);
PyObject *dycl_bind_broadcast_tensors(dycl_call *call, const dycl_binding *row);

PyObject *dycl_bind_pad_by_mode(dycl_call *call); /* words.c: input, pad, mode (a str), value */

/* Movement (move.c): rows of the table in view.c. */
PyObject *dycl_bind_contiguous(dycl_call *call, const dycl_binding *row);
PyObject *dycl_bind_clone(dycl_call *call, const dycl_binding *row);
PyObject *dycl_bind_repeat(dycl_call *call, const dycl_binding *row); /* op 1: tile */
PyObject *dycl_bind_repeat_interleave(dycl_call *call, const dycl_binding *row);
PyObject *dycl_bind_flip(dycl_call *call, const dycl_binding *row); /* extra: 2 the dimension is op */
PyObject *dycl_bind_roll(dycl_call *call, const dycl_binding *row);
PyObject *dycl_bind_cat(dycl_call *call, const dycl_binding *row);
PyObject *dycl_bind_stack(dycl_call *call, const dycl_binding *row);
PyObject *dycl_bind_stack_along(dycl_call *call, const dycl_binding *row); /* op: 1 hstack, 2 vstack, 3 dstack */
PyObject *dycl_bind_pad(dycl_call *call, const dycl_binding *row);
PyObject *dycl_bind_band(dycl_call *call, const dycl_binding *row); /* op: tril or triu */

PyObject *dycl_bind_einsum(dycl_call *call, const dycl_binding *row); /* einsum.c: a row of the table in matmul.c */

#endif
