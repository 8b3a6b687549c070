/* What the classes of modules have of torch's own ways: a program may replace any of them, also in between.
 *
 * Ownership: classes are not kept alive. Threads: GIL held. */
#ifndef DYCL_PY_MODULES_CLASS_H
#define DYCL_PY_MODULES_CLASS_H

#include "py/cpython/type.h"
#include "py/torch/state.h"

typedef struct {
    PyTypeObject *type; /* borrowed: the key, together with its version tag, which is never used again */
    unsigned version;
    uint8_t calls, attributes; /* ... are torch's own */
} dycl_module_class;

#define DYCL_MODULE_CLASS_BITS 10
extern dycl_module_class dycl_module_classes[1 << DYCL_MODULE_CLASS_BITS];

int dycl_module_class_setup(void); /* 0 or -1 */
/* At an accelerated call: whether functions of nn.Module have got other bodies, or their own again. */
int dycl_module_class_refresh(void);
/* As _compiled_call_impl on the class, this one answers None inside of regions. It lives as long as the process. */
void dycl_module_class_none_inside(PyObject *descriptor);

void dycl_module_class_read(dycl_module_class *row, PyTypeObject *type);

static inline const dycl_module_class *dycl_module_class_of(PyTypeObject *type) {
    dycl_module_class *row = &dycl_module_classes[dycl_address_hash(type, DYCL_MODULE_CLASS_BITS)];
    if (row->type != type || !row->version || row->version != dycl_type_version(type))
        dycl_module_class_read(row, type);
    return row;
}

#endif
