/* Versions of dicts: a number that another one follows whenever the dict changes. CPython has one in the dict
 * (ma_version_tag, up to 3.13); where it does not, a watcher of the dict keeps one here (PyDict_Watch, since
 * 3.12). Where there is neither, a dict is new each time that it is asked for.
 *
 * In 3.13 the values of a __dict__ lie in its object as long as they fit there, and setting an attribute then
 * changes no version and is no event (3.13.0; no release promises it). Such a dict is given a table of its own,
 * which it would get sooner or later: its items, their order and its identity stay.
 *
 * Ownership: none; dicts are not kept alive. Threads: GIL held. */
#ifndef DYCL_PY_CPYTHON_DICT_H
#define DYCL_PY_CPYTHON_DICT_H

#include "py/cpython/compat.h"

typedef struct {
    PyObject *dict; /* borrowed; NULL: free. Its end is an event too */
    uint64_t version;
} dycl_watched_dict;

#define DYCL_WATCHED_BITS 13
extern dycl_watched_dict dycl_watched_dicts[1 << DYCL_WATCHED_BITS];

void dycl_dict_setup(void);
uint64_t dycl_dict_joined_version(PyObject *dict); /* of one whose values lie in an object until now */
/* The version of a dict that is not in the table: in it from now on, if it can be watched. */
uint64_t dycl_dict_watch(PyObject *dict);

static inline dycl_watched_dict *dycl_dict_row(const PyObject *dict) {
    return &dycl_watched_dicts[((uint64_t)(uintptr_t)dict * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - DYCL_WATCHED_BITS)];
}

static inline uint64_t dycl_dict_watched_version(PyObject *dict) {
    const dycl_watched_dict *row = dycl_dict_row(dict);
    return row->dict == dict ? row->version : dycl_dict_watch(dict);
}

#if DYCL_KNOWS_DICT_VERSION
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static inline uint64_t dycl_dict_version(PyObject *dict) {
    const PyDictObject *known = (const PyDictObject *)dict;
    if (!DYCL_KNOW(DYCL_KNOWS_DICT_VERSION)) return dycl_dict_watched_version(dict);
    if (DYCL_KNOWS_DICT_SPLIT && __builtin_expect(known->ma_values != NULL, 0)) return dycl_dict_joined_version(dict);
    return known->ma_version_tag;
}
#pragma GCC diagnostic pop
#else
static inline uint64_t dycl_dict_version(PyObject *dict) { return dycl_dict_watched_version(dict); }
#endif

/* What the dict has under an object whose hash is its address, without asking it: a tensor's is written in Python.
 * Borrowed; NULL without an exception: nothing. */
static inline PyObject *dycl_dict_by_address(PyObject *dict, PyObject *key) {
    PyObject *found = _PyDict_GetItem_KnownHash(dict, key, (Py_hash_t)(uintptr_t)key);
    if (!found) PyErr_Clear();
    return found;
}

/* The __dict__ of an object, made if there is none yet. Borrowed; NULL without an exception: it has none. */
static inline PyObject *dycl_object_dict(PyObject *o) {
#if DYCL_KNOWS_DICT_PLACE
    if (DYCL_KNOW(DYCL_KNOWS_DICT_PLACE)) {
#if DYCL_KNOWS_DICT_WORD
        if (Py_TYPE(o)->tp_flags & Py_TPFLAGS_MANAGED_DICT) {
            uintptr_t word = ((const uintptr_t *)o)[-3];
            if (word && !(word & 1)) return (PyObject *)word;
        }
#endif
        PyObject **place = _PyObject_GetDictPtr(o);
        return place ? *place : NULL;
    }
#endif
    if (PyType_Check(o)) return NULL; /* a class of C would be given one in place of its own */
    PyObject *dict = PyObject_GenericGetDict(o, NULL);
    if (!dict) {
        PyErr_Clear();
        return NULL;
    }
    Py_DECREF(dict); /* the object has it */
    return dict;
}

#endif
