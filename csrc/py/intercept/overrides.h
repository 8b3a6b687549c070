/* Python functions that ask whether somebody overrides them (has_torch_function).
 *
 * Ownership: none. Threads: GIL held. */
#ifndef DYCL_PY_INTERCEPT_OVERRIDES_H
#define DYCL_PY_INTERCEPT_OVERRIDES_H

#include "py/torch/state.h"

/* A Python function of torch that is bound as a whole; its body, as in eager, what it calls may be recorded. */
int dycl_overrides_is_whole(PyObject *callable);
PyObject *dycl_overrides_run_body(PyObject *function, PyObject *const *args, Py_ssize_t count, PyObject *kwnames,
                                  PyObject *kwdict);

/* Whether an argument, or an item of a list or tuple among them, has an override that is not ours. */
int dycl_overrides_any(PyObject *const *args, Py_ssize_t count);

void dycl_overrides_setup(void);

#endif
