#include "py/cpython/error.h"

int dycl_error_forgive(void) {
    PyObject *const kinds[] = {PyExc_RuntimeError,   PyExc_TypeError,       PyExc_ValueError,     PyExc_LookupError,
                               PyExc_AttributeError, PyExc_ArithmeticError, PyExc_AssertionError, PyExc_ImportError,
                               PyExc_MemoryError,    PyExc_SystemError,     PyExc_ReferenceError, PyExc_Warning};
    if (!PyErr_Occurred()) return 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!PyErr_ExceptionMatches(kinds[i])) continue;
        PyErr_Clear();
        return 0;
    }
    return -1;
}

void dycl_error_restore(PyObject *type, PyObject *value, PyObject *traceback) {
    if (dycl_error_forgive() == 0) {
        PyErr_Restore(type, value, traceback);
        return;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
}
