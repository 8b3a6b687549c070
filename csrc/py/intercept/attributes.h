/* What a lazy tensor's attributes answer without being computed: sizes, dtype, device, whether it has a history.
 * Threads: GIL held. */
#ifndef DYCL_PY_INTERCEPT_ATTRIBUTES_H
#define DYCL_PY_INTERCEPT_ATTRIBUTES_H

#include "py/torch/state.h"

int dycl_attributes_install(PyTypeObject *lazy); /* 0 or -1 */

#endif
