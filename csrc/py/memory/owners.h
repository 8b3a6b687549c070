/* Who holds a tensor's storage: tensors and storage objects, and Python's holders of the storage object.
 *
 * Ownership: none. Threads: GIL held. */
#ifndef DYCL_PY_MEMORY_OWNERS_H
#define DYCL_PY_MEMORY_OWNERS_H

#include "py/torch/abi.h"

int dycl_owners_setup(void); /* 0, or -1 with an exception */

/* No other tensor and no storage object lies over this tensor's memory, and no other process sees it: it can be written
 * through this tensor only. */
int dycl_owners_none(PyObject *tensor);
/* The program holds the tensor's storage object (`untyped_storage()`); 1 too where it cannot be told. */
int dycl_owners_hold_storage(PyObject *tensor);
PyObject *dycl_owners_storage(PyObject *tensor); /* its storage object, without telling the hooks; new reference */
int dycl_owners_looking(void);                   /* it is us who ask for a storage object: nothing gets out */

#endif
