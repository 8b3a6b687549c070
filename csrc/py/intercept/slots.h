/* The lazy tensor's own slots. Threads: GIL held. */
#ifndef DYCL_PY_INTERCEPT_SLOTS_H
#define DYCL_PY_INTERCEPT_SLOTS_H

#include "py/torch/state.h"

int dycl_slots_install(PyTypeObject *lazy); /* 0 or -1 */
void dycl_slots_bind(void);                 /* after the bindings' table is filled */

#endif
