#include "py/entry/groups.h"

#include "py/cpython/dict.h"

/* NULL: there is none, or it is no list. */
static PyObject *list_in(PyObject *dict, PyObject **name, const char *text) {
    if (!*name) *name = PyUnicode_InternFromString(text);
    PyObject *list = *name && dict ? PyDict_GetItemWithError(dict, *name) : NULL;
    PyErr_Clear();
    return list && PyList_CheckExact(list) ? list : NULL;
}

PyObject *dycl_groups_of(PyObject *optimizer) {
    static PyObject *name;
    return list_in(dycl_object_dict(optimizer), &name, "param_groups");
}

PyObject *dycl_groups_parameters(PyObject *group) {
    static PyObject *name;
    return PyDict_CheckExact(group) ? list_in(group, &name, "params") : NULL;
}
