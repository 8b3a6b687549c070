#include "py/torch/wrap.h"

#include <string.h>

int dycl_torch_lacks(const char *what) {
    PyErr_Format(PyExc_ImportError, "this torch does not offer what dycl needs (%s)", what);
    return -1;
}

PyObject *dycl_torch_c(const char *path) {
    char name[128];
    PyObject *at = PyObject_GetAttrString(dycl_py.torch, "_C");
    while (at && *path) {
        size_t n = strcspn(path, ".");
        PyOS_snprintf(name, sizeof name, "%.*s", (int)n, path);
        Py_SETREF(at, PyObject_GetAttrString(at, name));
        path += n + (path[n] == '.');
    }
    PyErr_Clear();
    return at;
}

static PyCFunction wrap(PyObject *o, int flags, PyCFunction wrapper) {
    return o && Py_TYPE(o) == &PyMethodDescr_Type
               ? dycl_wrap_definition(((PyMethodDescrObject *)o)->d_method, flags, wrapper)
               : dycl_wrap_builtin(o, flags, wrapper);
}

PyCFunction dycl_wrap_method(const char *name, int flags, PyCFunction wrapper) {
    PyObject *method = PyDict_GetItemString(dycl_py.tensor_type->tp_base->tp_dict, name);
    if (!method || Py_TYPE(method) != &PyStaticMethod_Type) return wrap(method, flags, wrapper);
    PyObject *function = PyObject_GetAttrString(method, "__func__"); /* whose definition it is */
    PyCFunction original = wrap(function, flags, wrapper);
    Py_XDECREF(function);
    return original;
}

PyCFunction dycl_wrap_function(const char *name, int flags, PyCFunction wrapper) {
    PyObject *function = dycl_torch_c(name);
    if (function && PyInstanceMethod_Check(function))
        Py_SETREF(function, Py_NewRef(PyInstanceMethod_GET_FUNCTION(function)));
    PyCFunction original = wrap(function, flags, wrapper);
    Py_XDECREF(function);
    return original;
}

PyObject *dycl_torch_attribute(const char *name) {
    PyObject *found = PyDict_GetItemString(dycl_py.tensor_type->tp_base->tp_dict, name);
    return found && Py_TYPE(found) == &PyGetSetDescr_Type ? found : NULL;
}
