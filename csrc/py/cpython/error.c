#include "py/cpython/error.h"

static PyObject *kinds; /* owned: a tuple */

PyObject *dycl_error_kinds(void) {
    if (kinds) return kinds;
    return kinds = PyTuple_Pack(12, PyExc_RuntimeError, PyExc_TypeError, PyExc_ValueError, PyExc_LookupError,
                                PyExc_AttributeError, PyExc_ArithmeticError, PyExc_AssertionError, PyExc_ImportError,
                                PyExc_MemoryError, PyExc_SystemError, PyExc_ReferenceError, PyExc_Warning);
}

int dycl_error_forgive(void) {
    if (!PyErr_Occurred()) return 0;
    if (!PyErr_ExceptionMatches(kinds)) return -1;
    PyErr_Clear();
    return 0;
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
