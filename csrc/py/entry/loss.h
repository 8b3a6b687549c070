/* torch's losses of what an accelerated model gave: programs compute them behind the model's end, where no region is
 * any more, and some take longer in torch than the model does. Each such call is a region of its own, so that its
 * kernel, and that of its gradient, are ours.
 *
 * Ownership: a site for each of these functions is kept for good. Threads: GIL held. */
#ifndef DYCL_PY_ENTRY_LOSS_H
#define DYCL_PY_ENTRY_LOSS_H

#include "py/site/site.h"

int dycl_loss_watch(void); /* once torch is known. 0 or -1 */
/* Of one of these builtins, or of the function of torch.nn.functional that calls it. Borrowed; NULL: it has none. */
dycl_site *dycl_loss_site(PyObject *function);

#endif
