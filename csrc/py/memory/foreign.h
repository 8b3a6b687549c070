/* Memory that others than torch may write without its knowing: shared with NumPy (torch marks such a storage itself),
 * exported by DLPack, or reached through a raw pointer or a storage object. What is recorded of such memory may not
 * wait.
 *
 * A storage stays noted as long as it lives: a weak reference keeps its address from being used again, so that nothing
 * is forgotten, and no other storage is taken for it.
 *
 * Ownership: the table holds weak references to storages. Threads: GIL held. */
#ifndef DYCL_PY_MEMORY_FOREIGN_H
#define DYCL_PY_MEMORY_FOREIGN_H

#include "py/torch/abi.h"

typedef enum {
    DYCL_FOREIGN_NOT,
    DYCL_FOREIGN_HELD,    /* through its storage object, while the program holds it */
    DYCL_FOREIGN_POINTED, /* through a raw pointer */
    DYCL_FOREIGN_EXPORTED /* by DLPack */
} dycl_foreign;

int dycl_foreign_setup(void); /* 0, or -1 with an exception */

/* Whether others may write the memory of a tensor's implementation. A raw pointer to a parameter does not count:
 * libraries compare them to find what is tied, and a model would be slow for good. tensor: NULL where there is no
 * object. */
int dycl_foreign_is(const char *impl, PyObject *tensor);
/* From now on they may. 0, or -1 with an exception. */
int dycl_foreign_note(PyObject *tensor, dycl_foreign why);
int dycl_foreign_note_storage(PyObject *storage, dycl_foreign why); /* an UntypedStorage */

#endif
