#include "py/entry/served.h"

#include "py/cpython/type.h"

static PyObject *served; /* owned: kind -> ((module's dict or class, name, function, its code), ...) */

/* place: a module's dict, or a class. Borrowed. */
static PyObject *function_at(PyObject *place, PyObject *name) {
    if (PyType_Check(place)) return dycl_type_lookup((PyTypeObject *)place, name);
    return PyDict_Check(place) ? PyDict_GetItemWithError(place, name) : NULL;
}

/* None where it is not written in Python. Borrowed. */
static PyObject *code_of(PyObject *function) {
    return PyFunction_Check(function) ? PyFunction_GET_CODE(function) : Py_None;
}

int dycl_served_set(PyObject *kinds) {
    PyObject *key, *functions, *made = PyDict_New();
    Py_ssize_t at = 0;
    if (!made || !PyDict_Check(kinds)) goto fail;
    while (PyDict_Next(kinds, &at, &key, &functions)) {
        Py_ssize_t count = PyTuple_GET_SIZE(functions);
        PyObject *known = PyTuple_New(count);
        for (Py_ssize_t i = 0; known && i < count; i++) {
            PyObject *place, *name, *row = NULL;
            if (PyArg_ParseTuple(PyTuple_GET_ITEM(functions, i), "OU", &place, &name)) {
                PyObject *function = function_at(place, name);
                if (function) row = PyTuple_Pack(4, place, name, function, code_of(function));
            }
            if (!row) Py_CLEAR(known);
            if (row) PyTuple_SET_ITEM(known, i, row);
        }
        int failed = !known || PyDict_SetItem(made, key, known) < 0;
        Py_XDECREF(known);
        if (failed) goto fail;
    }
    Py_XSETREF(served, made);
    return 0;
fail:
    Py_XDECREF(made);
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a dict of what is served and its functions");
    return -1;
}

/* torch.compile, once used, puts a wrapper that hides a function from the compiler in the function's place, for good.
 */
static int hides(PyObject *wrapper, PyObject *function) {
    PyObject *hidden = wrapper ? PyObject_GetAttrString(wrapper, "_torchdynamo_orig_callable") : NULL;
    if (!hidden) PyErr_Clear();
    Py_XDECREF(hidden); /* the wrapper has it */
    return hidden == function;
}

int dycl_served_is(PyObject *kind) {
    PyObject *functions = served ? PyDict_GetItemWithError(served, kind) : NULL;
    for (Py_ssize_t i = 0; functions && i < PyTuple_GET_SIZE(functions); i++) {
        PyObject *row = PyTuple_GET_ITEM(functions, i), *known = PyTuple_GET_ITEM(row, 2);
        PyObject *found = function_at(PyTuple_GET_ITEM(row, 0), PyTuple_GET_ITEM(row, 1));
        if (found != known && !hides(found, known)) return 0;
        if (code_of(known) != PyTuple_GET_ITEM(row, 3)) return 0;
    }
    return functions != NULL;
}
