/* The function mode: while a region runs, torch shows it every function call on plain tensors, and factories. Threads:
 * GIL held. */
#ifndef DYCL_PY_INTERCEPT_MODE_H
#define DYCL_PY_INTERCEPT_MODE_H

#include "py/torch/state.h"

int dycl_mode_setup(void); /* makes dycl_py.mode; 0 or -1 */
/* What our mode and the lazy type's __torch_function__ do with a call. New reference or NULL with torch's exception. */
PyObject *dycl_mode_handle(PyObject *function, PyObject *args, PyObject *kwargs);

#endif
