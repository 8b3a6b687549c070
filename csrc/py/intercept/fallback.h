/* What is not represented runs in torch, on plain tensors, exactly as it would have.
 *
 * Ownership: arguments are borrowed, results are new references. Threads: GIL held. */
#ifndef DYCL_PY_INTERCEPT_FALLBACK_H
#define DYCL_PY_INTERCEPT_FALLBACK_H

#include "py/bind/call.h"

/* Torch runs it: pending work is computed, lazy tensors among the arguments become plain. New reference or NULL with
 * torch's exception. */
PyObject *dycl_fallback(dycl_region *region, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                        PyObject *kwnames, PyObject *kwdict, dycl_bail why);

/* The same in two steps, for slots: everything plain and pending work done; 0 or -1. */
int dycl_fallback_prepare(dycl_region *region, PyObject *const *args, Py_ssize_t count, const char *name,
                          dycl_bail why);
/* Whether it is lazy, or is what the pending segment reads (NULL: this does not count), or holds such a tensor. */
int dycl_fallback_concerns(const dycl_region *region, PyObject *o);
/* A Python function of torch's runs within the current region, in which nothing is pending, while our mode has left:
 * it asks nobody, and no frame of torch's stands between it and the program. */
PyObject *dycl_fallback_without_mode(PyObject *callable, PyObject *const *args, Py_ssize_t count, PyObject *kwnames);
PyObject *dycl_fallback_passing(PyObject *(*generic)(PyObject *, PyObject *), PyObject *a, PyObject *b);

#endif
