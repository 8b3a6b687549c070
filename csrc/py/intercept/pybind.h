/* Functions of torch's C++ code that take tensors and ask nobody who overrides them: those of torch.func, of autograd's
 * inside, nodes of its graph that are called. A lazy tensor has no history that they could see, and no memory.
 *
 * Ownership: none. Threads: GIL held. */
#ifndef DYCL_PY_INTERCEPT_PYBIND_H
#define DYCL_PY_INTERCEPT_PYBIND_H

int dycl_pybind_watch(void); /* after what wraps single ones of them; 0, or -1 with an exception */

#endif
