/* Tensors without dimensions where torch wants a number: torch.arange(n), x.view(n, -1), torch.zeros((n, 4)). Its
 * parser asks a tensor of ours for its size and its value through __torch_dispatch__, and the first time in a process
 * torch imports torch.distributed.tensor for that: a second, which a plain tensor does not cost.
 *
 * Ownership: none. Threads: GIL held. */
#ifndef DYCL_PY_INTERCEPT_NUMBERS_H
#define DYCL_PY_INTERCEPT_NUMBERS_H

#include "py/bind/call.h"

enum { DYCL_NUMBERS = 8 };

/* Before torch's parser sees a call (is_method: the first argument is self): what may be a number becomes plain, unless
 * it needs a gradient, so that it is none, or a call with a tensor there was recorded before. How many places are new,
 * for dycl_numbers_learn; -1 with an exception. */
int dycl_numbers_compute(PyObject *callable, PyObject *const *args, Py_ssize_t count, PyObject *kwnames, int is_method,
                         uint64_t *out_places);

/* With the call's result (may be NULL): if it was recorded, it takes tensors there. */
void dycl_numbers_learn(PyObject *result, const uint64_t *places, int count);

#endif
