/* Exchange of arrays with NumPy through its C API, which is looked for when it is first needed: without NumPy
 * everything else works, and what is asked here goes to torch, which says so. Ownership: results are new references.
 * Threads: GIL held. */
#ifndef DYCL_PY_BIND_NUMPY_H
#define DYCL_PY_BIND_NUMPY_H

#include "py/bind/call.h"

/* x.numpy(force) (op 0) and x.__array__(dtype) (op 1): an array over the tensor's memory, as torch makes it; the rows
 * are in tensor.c. */
PyObject *dycl_bind_numpy(dycl_call *call, const dycl_binding *row);

/* torch.tensor and torch.as_tensor of an array make a plain tensor: nothing pending has to be computed for that.
 * function: torch's */
int dycl_numpy_is_array(PyObject *o);
PyObject *dycl_numpy_tensor(dycl_call *call, const dycl_binding *row, PyObject *function);

/* A scalar of NumPy that torch takes for a number of Python: 1 and the operand. 0: anything else. */
int dycl_numpy_operand(PyObject *o, dycl_operand *out);

#endif
