/* Python's ints without a call. Ownership: none. Threads: GIL held. */
#ifndef DYCL_PY_CPYTHON_INT_H
#define DYCL_PY_CPYTHON_INT_H

#include "py/cpython/compat.h"

/* Of an exact int; 0: it does not fit. */
static inline int dycl_int_value(PyObject *o, int64_t *out) {
#if DYCL_HAS_COMPACT_INT
    if (PyUnstable_Long_IsCompact((const PyLongObject *)o)) { /* one digit: nearly every dimension and index */
        *out = PyUnstable_Long_CompactValue((const PyLongObject *)o);
        return 1;
    }
#elif DYCL_KNOWS_DIGITS
    if (DYCL_KNOW(DYCL_KNOWS_DIGITS) && Py_SIZE(o) >= -1 && Py_SIZE(o) <= 1) {
        *out = Py_SIZE(o) * (int64_t)((PyLongObject *)o)->ob_digit[0];
        return 1;
    }
#endif
    int overflow;
    *out = PyLong_AsLongLongAndOverflow(o, &overflow);
    return !overflow;
}

static inline int dycl_int_is(PyObject *o, int64_t value) {
    int64_t found;
    return PyLong_CheckExact(o) && dycl_int_value(o, &found) && found == value;
}

#endif
