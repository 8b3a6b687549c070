/* What a torch.nn.Module instance itself says about how it is called: hooks, and attributes that replace torch's own
 * ways. Read once, and valid while the __dict__ and the class did not change (py/cpython/dict.h, py/cpython/type.h).
 *
 * Ownership: everything is borrowed from the module. Threads: GIL held. */
#ifndef DYCL_PY_MODULES_INSTANCE_H
#define DYCL_PY_MODULES_INSTANCE_H

#include "py/cpython/dict.h"
#include "py/cpython/type.h"
#include "py/torch/state.h"

typedef struct {
    PyObject *module, *dict; /* the key */
    PyObject *hooks[4];
    uint64_t dict_version;
    unsigned type_version;
} dycl_instance;

#define DYCL_INSTANCE_BITS 12
#define DYCL_INSTANCES     (1 << DYCL_INSTANCE_BITS) /* places in a table of them */

extern PyObject *dycl_global_hooks[4]; /* owned: torch's dicts of hooks of every module */

int dycl_instance_setup(void);    /* 0 or -1 */
void dycl_instance_refresh(void); /* at an accelerated call: another dict may stand for one of torch's */
/* 1; 0 when something of the instance's own decides how it is called. */
int dycl_instance_read(dycl_instance *instance, PyObject *module, PyObject *dict);

static inline uint32_t dycl_instance_place(const void *module) { return dycl_address_hash(module, DYCL_INSTANCE_BITS); }
static inline int dycl_instance_is_current(const dycl_instance *i, PyObject *module, PyObject *dict) {
    return i->module == module && i->dict == dict && i->dict_version == dycl_dict_version(dict) &&
           i->type_version == dycl_type_version(Py_TYPE(module)) && i->type_version != 0;
}
static inline int dycl_instance_hooked(const dycl_instance *instance) {
    for (int i = 0; i < 4; i++)
        if (PyDict_GET_SIZE(instance->hooks[i]) || PyDict_GET_SIZE(dycl_global_hooks[i])) return 1;
    return 0;
}

#endif
