#include "py/cpython/type.h"

PyObject *dycl_type_search(PyTypeObject *type, PyObject *name) {
    PyObject *order = type->tp_mro; /* borrowed */
    for (Py_ssize_t i = 0; order && i < PyTuple_GET_SIZE(order); i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(order, i);
#if DYCL_HAS_TYPE_DICT
        PyObject *dict = PyType_GetDict(base), *found = dict ? PyDict_GetItem(dict, name) : NULL;
        Py_XDECREF(dict);
#else
        PyObject *found = PyDict_GetItem(base->tp_dict, name);
#endif
        if (found) return found;
    }
    return NULL;
}
