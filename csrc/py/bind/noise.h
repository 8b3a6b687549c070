/* Noise of dropout: drawn by torch's own generator when the program asks for it, as the program draws it. Private to
 * py/bind.
 *
 * Ownership: results are new references. Threads: GIL held; torch may give it up: values of the graph that were asked
 * for before are stale afterwards. */
#ifndef DYCL_PY_BIND_NOISE_H
#define DYCL_PY_BIND_NOISE_H

#include "py/bind/call.h"

/* A tensor of torch's whose elements are 1 with the probability `keep`, else 0; NULL with an exception. Where gradients
 * are recorded, the call may yet turn out to be torch's, which draws again. */
PyObject *dycl_noise_draw(dycl_call *call, dycl_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides,
                          double keep);
/* The call's result: where torch has to run it, as if nothing had been drawn. */
PyObject *dycl_noise_undraw(dycl_call *call, PyObject *result);

#endif
