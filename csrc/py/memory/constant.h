/* Constants: parameters whose packed form may be kept, because every write to them shows in their version.
 *
 * torch does not count writes through `.data`, NumPy arrays, storages, DLPack or raw pointers. So a parameter is
 * constant only while its storage belongs to it alone, and from the moment that one of these was asked for, it is not
 * (py/intercept/uncounted.h).
 *
 * Ownership: the table holds weak references. Threads: GIL held. */
#ifndef DYCL_PY_MEMORY_CONSTANT_H
#define DYCL_PY_MEMORY_CONSTANT_H

#include "py/torch/abi.h"

/* Without seeing everything that writes, nothing is constant. 0, or -1 with an exception. */
int dycl_constant_setup(int writes_are_seen);
/* A token that stays the same while the parameter's memory is the same; 0: not constant. */
uint64_t dycl_constant_token(PyObject *parameter, uint64_t *out_version);

/* What torch wrote without counting: the constants in this tensor's memory have new contents. */
void dycl_constant_renew(PyObject *tensor);
/* Memory of this tensor gets out: parameters that share it are constant no longer (for_good: never again). */
void dycl_constant_expose(PyObject *tensor, int for_good);
PyObject *dycl_constant_reference(const PyObject *object); /* our weak reference to it, borrowed; NULL: none */

#endif
