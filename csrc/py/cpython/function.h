/* Python functions whose calls from C (and by f(*args, **kwargs)) go to a function of ours first. Calls by name that
 * the interpreter inlines do not.
 *
 * Ownership: none. Threads: GIL held. */
#ifndef DYCL_PY_CPYTHON_FUNCTION_H
#define DYCL_PY_CPYTHON_FUNCTION_H

#include "py/cpython/compat.h"

/* What the function had before. */
static inline vectorcallfunc dycl_function_redirect(PyObject *function, vectorcallfunc to) {
    vectorcallfunc before = ((PyFunctionObject *)function)->vectorcall;
#if PY_VERSION_HEX >= 0x030C0000
    PyFunction_SetVectorcall((PyFunctionObject *)function, to);
#else
    ((PyFunctionObject *)function)->vectorcall = to;
#endif
    return before;
}

#endif
