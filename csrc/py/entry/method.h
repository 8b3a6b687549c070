/* Methods of an accelerated module that torch.no_grad decorates (transformers' generate): a call from outside is a
 * region of its own, with all calls of the module inside it, so that what stands between these is recorded too. They
 * are computations for inference, their author says so.
 *
 * The name of such a method then gives a bound method of the module whose function is a site around the original (a
 * site of the module's own, made when it is first asked for). Nothing is stored in the module or its class. Inside a
 * region, for other instances of the class, and through the class, it is the original. What torch.inference_mode
 * decorates is left alone: what is recorded belongs to the dispatch state at entry.
 *
 * Ownership: the module's site owns those of its methods. Threads: GIL held. */
#ifndef DYCL_PY_ENTRY_METHOD_H
#define DYCL_PY_ENTRY_METHOD_H

#include "py/torch/state.h"

int dycl_method_setup(void);              /* 0 or -1 */
void dycl_method_watch(PyObject *module); /* names of this module, and of others of its class, are looked at */

#endif
