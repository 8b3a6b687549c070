/* The same for torch's own functions (py/cpython/wrap.h).
 *
 * Ownership: none. Threads: GIL held. */
#ifndef DYCL_PY_TORCH_WRAP_H
#define DYCL_PY_TORCH_WRAP_H

#include "py/cpython/wrap.h"
#include "py/torch/state.h"

int dycl_torch_lacks(const char *what);   /* -1, with an ImportError about it */
PyObject *dycl_torch_c(const char *path); /* torch._C.path; NULL without an exception: not there. New reference */
/* A method of torch._C.TensorBase, and a function of torch._C by its dotted path. NULL: not found, or not of that
 * kind. */
PyCFunction dycl_wrap_method(const char *name, int flags, PyCFunction wrapper);
PyCFunction dycl_wrap_function(const char *name, int flags, PyCFunction wrapper);
/* An attribute of torch._C.TensorBase, whose d_getset can be wrapped. Borrowed; NULL: not found, or not of that kind.
 */
PyObject *dycl_torch_attribute(const char *name);

#endif
