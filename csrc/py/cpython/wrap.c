#include "py/cpython/wrap.h"

PyCFunction dycl_wrap_definition(PyMethodDef *def, int flags, PyCFunction wrapper) {
    if (!def || def->ml_flags != flags) return NULL;
    PyCFunction original = def->ml_meth;
    def->ml_meth = wrapper;
    return original;
}

PyCFunction dycl_wrap_builtin(PyObject *function, int flags, PyCFunction wrapper) {
    if (!function || !PyCFunction_CheckExact(function)) return NULL;
    return dycl_wrap_definition(((PyCFunctionObject *)function)->m_ml, flags, wrapper);
}
