/* Writes to memory that torch does not count: through `.data`, NumPy arrays, storages and raw pointers, and by some of
 * its own operators. Their C functions (in PyGetSetDef and PyMethodDef) are wrapped once: a few nanoseconds a call, and
 * nothing that Python or torch.compile can see changes.
 *
 * Ownership: none. Threads: GIL held. */
#ifndef DYCL_PY_INTERCEPT_UNCOUNTED_H
#define DYCL_PY_INTERCEPT_UNCOUNTED_H

#include "py/cpython/compat.h"

int dycl_uncounted_watch(void); /* 1; 0: this torch is unknown, and nothing is wrapped */
/* A tensor that was made of these arguments: where one is a storage, its holder writes the tensor. 0 or -1. */
int dycl_note_storages(PyObject *tensor, PyObject *args);

#endif
