/* What a region's program asks of plain tensors (its arguments, weights and buffers): methods, attributes, elements.
 * torch would go through its argument parser, its mode stack and __torch_function__ first, 1 to 2 us each, eager 0.1
 * us. The C functions behind them are wrapped: in a region a bound method records at once, and an attribute that
 * neither hands out memory nor looks at values is read as in eager. Everything else goes on to torch, and nothing that
 * Python can see changes.
 *
 * Ownership: none. Threads: GIL held. */
#ifndef DYCL_PY_INTERCEPT_PLAIN_H
#define DYCL_PY_INTERCEPT_PLAIN_H

#include "py/bind/call.h"

void dycl_plain_add_method(PyObject *callable); /* bound, of torch.Tensor */
/* Of a getter of torch.Tensor: nothing has to be computed for a plain tensor; x.T and x.H (0) or x.mT and x.mH (1),
 * else -1. */
int dycl_plain_is_harmless(PyObject *descriptor);
int dycl_plain_transposes(PyObject *descriptor);
void dycl_plain_put_back(void); /* CPython gave torch.Tensor its own slots again */
void dycl_plain_setup(void);    /* attributes and elements, after the bindings' table is filled */

#endif
