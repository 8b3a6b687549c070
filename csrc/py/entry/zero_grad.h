/* zero_grad of torch's optimizers without its Python: a label for the profiler, and a loop over the parameters, which
 * takes longer than a small model's forward pass. Of optimizers whose steps are ours.
 *
 * Ownership: torch's function is kept. Threads: GIL held. */
#ifndef DYCL_PY_ENTRY_ZERO_GRAD_H
#define DYCL_PY_ENTRY_ZERO_GRAD_H

#include "py/cpython/compat.h"

/* function: what `torch.optim.Optimizer.zero_grad` wraps. 0 or -1 */
int dycl_zero_grad_watch(PyObject *function);
/* Torch makes the function that it calls with the first call of zero_grad. To be called now and then. */
void dycl_zero_grad_find(void);

#endif
