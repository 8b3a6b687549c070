/* Modules of the program's own classes (and torch's containers). What Module.__call__ and Module.__getattr__ do for
 * them in Python takes longer than recording the operators in between (0.8 and 0.65 us of a call and of a submodule's
 * name). While a region runs, the slots tp_call and tp_getattro of adopted classes do the same in C, wherever no hook,
 * no replaced method and no attribute of the instance has a say.
 *
 * A call passes through two Python functions that stand where _wrapped_call_impl and _call_impl of torch stand
 * (dycl/_frames.py), so that tracebacks, warnings' stack levels and inspect see the frames of eager.
 *
 * Ownership: classes are not kept alive. Threads: GIL held. */
#ifndef DYCL_PY_MODULES_COMPOSITE_H
#define DYCL_PY_MODULES_COMPOSITE_H

#include "py/torch/state.h"

int dycl_composite_setup(void); /* 0 or -1 */
/* Adopts the classes of a module and of all below it (NULL: all subclasses of torch.nn.Module that there are), when
 * *known is not the present state: 1, else 0. */
int dycl_composite_adopt(PyObject *module, unsigned *known);
void dycl_composite_lost(void); /* torch gave classes their slots back: adopt again */

#endif
