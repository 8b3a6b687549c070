/* Doors of torch that its function modes do not see: their C functions (in PyMethodDef) are wrapped once, so that a
 * region computes what is pending before memory changes or gets out behind its back. Nothing that Python or
 * torch.compile can see changes.
 *
 * Ownership: none. Threads: GIL held. */
#ifndef DYCL_PY_INTERCEPT_WATCH_H
#define DYCL_PY_INTERCEPT_WATCH_H

#include "py/torch/state.h"

typedef PyObject *(*dycl_function_of_array)(PyObject *self, PyObject *const *args,
                                            Py_ssize_t count); /* METH_FASTCALL, also with METH_KEYWORDS: */
typedef PyObject *(*dycl_function_with_names)(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);

int dycl_watch_setup(void); /* 0, or -1 with an exception */
/* The memory may be written by others than torch: shared with NumPy, or exported by DLPack. */
int dycl_watch_is_foreign(const char *impl);

/* Wraps the C function of a method of torch._C.TensorBase or of a function of torch._C. NULL: not found, or not of that
 * kind. */
PyCFunction dycl_watch_method(const char *name, int flags, PyCFunction door);
PyCFunction dycl_watch_function(const char *name, int flags, PyCFunction door);
PyCFunction dycl_watch_object(PyObject *function, int flags,
                              PyCFunction door); /* the same for a function at hand, or NULL */
#define DYCL_AS_FUNCTION(door)     ((PyCFunction)(void (*)(void))(door))
#define DYCL_AS_KEYWORDS(function) ((PyCFunctionWithKeywords)(void (*)(void))(function))

#endif
