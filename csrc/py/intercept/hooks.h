/* The general hooks of the lazy tensor: __torch_function__ (torch's Python functions) and __torch_dispatch__ (torch's
 * C++ code). */
#ifndef DYCL_PY_INTERCEPT_HOOKS_H
#define DYCL_PY_INTERCEPT_HOOKS_H

#include "py/torch/state.h"

int dycl_hooks_install(PyTypeObject *lazy); /* 0 or -1 */

#endif
