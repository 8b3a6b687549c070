/* Ways to memory whose writes torch does not count: `.data`, NumPy arrays, storages and raw pointers. Their C functions
 * (in PyGetSetDef and PyMethodDef) are wrapped once: a few nanoseconds a call, and nothing that Python or torch.compile
 * can see changes. Operators that write without counting: writers.h.
 *
 * Ownership: none. Threads: GIL held. */
#ifndef DYCL_PY_INTERCEPT_UNCOUNTED_H
#define DYCL_PY_INTERCEPT_UNCOUNTED_H

#include "py/cpython/compat.h"

int dycl_uncounted_watch(void); /* 1; 0: this torch is unknown, and nothing is wrapped */
/* What waits to be made of a constant is made before its memory can be written. 0 or -1. */
int dycl_make_deferred(void);
/* Its memory gets out through another tensor, whose writes we see. 0 or -1. */
int dycl_let_out(PyObject *self);
/* A tensor that was made of these arguments: where one is a storage, its holder writes the tensor. 0 or -1. */
int dycl_note_storages(PyObject *tensor, PyObject *args);

#endif
