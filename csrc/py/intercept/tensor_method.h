/* Methods of torch.Tensor that are written in Python ask first whether somebody overrides them, and torch would come
 * to us by handle_torch_function: two frames more in tracebacks, and warnings that name a line of torch's where eager
 * names one of the program's. Called on a lazy tensor, such a method is handed on at once.
 *
 * Ownership: the lazy type keeps them. Threads: GIL held. */
#ifndef DYCL_PY_INTERCEPT_TENSOR_METHOD_H
#define DYCL_PY_INTERCEPT_TENSOR_METHOD_H

#include "py/torch/state.h"

/* Those that no row serves become attributes of the lazy type. 0 or -1. */
int dycl_tensor_method_install(PyTypeObject *lazy);
/* What a program may replace on torch.Tensor at any time: the attribute is looked up at each call. */
int dycl_tensor_method_is(PyObject *attribute);
/* What asked, where function, which torch names as what asks, is the program's: it stands under that name, and has
 * called torch's function, which must not call it again. New reference; NULL without an exception: function itself. */
PyObject *dycl_tensor_method_meant(PyObject *function);

#endif
