/* Parts of objects. Ownership: as said. Threads: GIL held. */
#ifndef DYCL_PY_CPYTHON_OBJECT_H
#define DYCL_PY_CPYTHON_OBJECT_H

#include "py/cpython/compat.h"

/* What a weak reference is to, borrowed; NULL: it is gone. */
static inline PyObject *dycl_weakref_object(PyObject *reference) {
#if DYCL_HAS_WEAKREF_GET
    PyObject *o;
    if (PyWeakref_GetRef(reference, &o) <= 0) {
        PyErr_Clear();
        return NULL;
    }
    Py_DECREF(o); /* somebody else has it: we would not have got it otherwise */
    return o;
#else
    PyObject *o = PyWeakref_GetObject(reference);
    return o == Py_None ? NULL : o;
#endif
}

/* Nobody has set an attribute of the object's own, and nobody looks at it weakly. It may be on its way out (no
 * references are left). 0: or unknown. */
static inline int dycl_object_is_bare(PyObject *o) {
#if DYCL_KNOWS_DICT_PLACE
    if (!DYCL_KNOW(DYCL_KNOWS_DICT_PLACE)) return 0;
    Py_ssize_t weak_at = Py_TYPE(o)->tp_weaklistoffset;
    if (weak_at && *(PyObject **)((char *)o + weak_at)) return 0;
#if DYCL_KNOWS_DICT_WORD
    if (Py_TYPE(o)->tp_flags & Py_TPFLAGS_MANAGED_DICT) {
        uintptr_t word = ((const uintptr_t *)o)[-3];
        if (!word) return 1;
        /* Asking for the dict would make one, and methods of objects that have one are slower. */
        if (DYCL_KNOWS_DICT_VALUES && word & 1) return ((const uint8_t *)(word + 1))[-2] == 0;
    }
#endif
    PyObject **dict = _PyObject_GetDictPtr(o);
    return !dict || !*dict || (Py_REFCNT(*dict) == 1 && !PyDict_GET_SIZE(*dict));
#else
    (void)o;
    return 0;
#endif
}

/* So many references more or fewer, of an object that has others: what sys.getrefcount tells. Immortal objects
 * have none to count. */
static inline void dycl_object_count(PyObject *o, Py_ssize_t more) { Py_SET_REFCNT(o, Py_REFCNT(o) + more); }

#endif
