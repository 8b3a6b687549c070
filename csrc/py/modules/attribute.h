/* Attributes of modules, as nn.Module.__getattr__ finds them: parameters, buffers and submodules stand in tables of
 * their own, asked one after another when the object itself has none of that name. What was found is remembered, and
 * holds while the object's __dict__, the tables and the class are as they were (py/cpython/dict.h, py/cpython/type.h).
 *
 * Ownership: names are kept alive, modules and what they hold are not. Threads: GIL held. */
#ifndef DYCL_PY_MODULES_ATTRIBUTE_H
#define DYCL_PY_MODULES_ATTRIBUTE_H

#include "py/torch/state.h"

void dycl_attribute_forget(void); /* what was found: Module.__getattr__ is another one */
int dycl_attribute_setup(void);   /* 0 or -1 */
/* The class's slot tp_getattro is ours from now on, where it is torch's. */
void dycl_attribute_adopt(PyTypeObject *type);

/* The slot of adopted classes; and another one, which calls it, for a class that has it or torch's. */
PyObject *dycl_attribute_get(PyObject *self, PyObject *name);
void dycl_attribute_replace(PyTypeObject *type, getattrofunc replacement);

#endif
