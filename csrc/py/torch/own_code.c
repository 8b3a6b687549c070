#include "py/torch/own_code.h"

static PyObject *folder; /* owned: how the names of torch's files begin; NULL: not known */

/* Not known: as if all were torch's, which is left as it is. */
int dycl_torchs_own(const PyObject *code) {
    PyObject *file = ((const PyCodeObject *)code)->co_filename;
    return !folder || !file || PyUnicode_Tailmatch(file, folder, 0, PY_SSIZE_T_MAX, -1) != 0;
}

void dycl_own_code_setup(void) {
    PyObject *file = PyObject_GetAttrString(dycl_py.torch, "__file__");
    Py_ssize_t end =
        file && PyUnicode_Check(file) ? PyUnicode_FindChar(file, '/', 0, PyUnicode_GET_LENGTH(file), -1) : -1;
    if (end >= 0) folder = PyUnicode_Substring(file, 0, end + 1);
    Py_XDECREF(file);
    PyErr_Clear();
}
