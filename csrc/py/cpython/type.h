/* What a class has under a name, and a number that changes when that may. Ownership: results are borrowed.
 *
 * Threads: GIL held. */
#ifndef DYCL_PY_CPYTHON_TYPE_H
#define DYCL_PY_CPYTHON_TYPE_H

#include "py/cpython/compat.h"

/* 0: unknown, and the type has to be asked anew. Never used again for another class. */
static inline unsigned dycl_type_version(const PyTypeObject *type) {
#if DYCL_KNOWS_TYPE_VERSION
    if (DYCL_KNOW(DYCL_KNOWS_TYPE_VERSION)) return type->tp_version_tag; /* a lookup gives it one, if one is left */
#endif
    (void)type;
    return 0;
}

PyObject *dycl_type_search(PyTypeObject *type, PyObject *name);

/* Along the classes' order, without descriptors. NULL without an exception: it is not there. */
static inline PyObject *dycl_type_lookup(PyTypeObject *type, PyObject *name) {
#if DYCL_KNOWS_TYPE_VERSION
    if (DYCL_KNOW(DYCL_KNOWS_TYPE_VERSION)) return _PyType_Lookup(type, name);
#endif
    return dycl_type_search(type, name);
}

/* A slot of the class has another function now. Since 3.12 the specialising interpreter takes methods of classes
 * with a __getattr__ from the class itself and would go on past the slot. */
static inline void dycl_type_changed(PyTypeObject *type) { PyType_Modified(type); }

#endif
