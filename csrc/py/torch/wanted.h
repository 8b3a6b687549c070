/* What a backward pass is asked for. torch.autograd.grad, and backward(inputs=...), go only through the nodes that lead
 * to some tensors, and torch's own nodes compute only the gradients on that way. A node of Python's is told of all that
 * its inputs ever wanted.
 *
 * Ownership: none. Threads: GIL held, within a pass and in its thread. */
#ifndef DYCL_PY_TORCH_WANTED_H
#define DYCL_PY_TORCH_WANTED_H

#include "py/torch/state.h"

/* The pass that runs now goes wherever it can, or that is not known. */
int dycl_wanted_all(void);
/* Of the node's sources those that are on the pass's way, a tuple of bools. New reference, or NULL with an exception.
 */
PyObject *dycl_wanted_of(PyObject *node);
int dycl_wanted_setup(void); /* 0 or -1 */

#endif
