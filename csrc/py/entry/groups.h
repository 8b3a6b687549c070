/* The parameters of torch's optimizers: lists in the dicts of a list.
 *
 * Ownership: borrowed. Threads: GIL held. */
#ifndef DYCL_PY_ENTRY_GROUPS_H
#define DYCL_PY_ENTRY_GROUPS_H

#include "py/cpython/compat.h"

/* NULL without an exception: it is not what torch makes of it. */
PyObject *dycl_groups_of(PyObject *optimizer);
PyObject *dycl_groups_parameters(PyObject *group);

#endif
