/* Builtin functions of other modules whose C function (in their PyMethodDef) is replaced by one of ours, which calls
 * the original. Nothing that Python or torch.compile can see changes.
 *
 * Ownership: none. Threads: GIL held. */
#ifndef DYCL_PY_CPYTHON_WRAP_H
#define DYCL_PY_CPYTHON_WRAP_H

#include "py/cpython/compat.h"

typedef PyObject *(*dycl_function_of_array)(PyObject *self, PyObject *const *args,
                                            Py_ssize_t count); /* METH_FASTCALL, also with METH_KEYWORDS: */
typedef PyObject *(*dycl_function_with_names)(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);

/* The original; NULL: it is not there, or takes its arguments in another way than `flags` say. */
PyCFunction dycl_wrap_definition(PyMethodDef *def, int flags, PyCFunction wrapper);
PyCFunction dycl_wrap_builtin(PyObject *function, int flags, PyCFunction wrapper); /* function: or NULL */
#define DYCL_AS_FUNCTION(wrapper)  ((PyCFunction)(void (*)(void))(wrapper))
#define DYCL_AS_KEYWORDS(function) ((PyCFunctionWithKeywords)(void (*)(void))(function))

#endif
