#include "py/modules/class.h"

#include <string.h>

dycl_module_class dycl_module_classes[1 << DYCL_MODULE_CLASS_BITS];

static PyObject *none_inside; /* borrowed */

enum { NAME_call, NAME_call_impl, NAME_compiled, NAME_getattr, NAME_getattribute, NAME_dict, CLASS_NAMES };
static const char *const class_texts[CLASS_NAMES] = {"__call__",    "_call_impl",       "_compiled_call_impl",
                                                     "__getattr__", "__getattribute__", "__dict__"};
static PyObject *class_names[CLASS_NAMES],
    *class_own[CLASS_NAMES]; /* owned: interned; what nn.Module has under that name */
/* Owned: the bodies of those that are written in Python, torch's and those that were seen last. A program may give
 * torch's function another one, which no class tells. */
static PyObject *own_bodies[CLASS_NAMES], *bodies_seen[CLASS_NAMES];

static PyObject *body_of(PyObject *o) { return o && PyFunction_Check(o) ? PyFunction_GET_CODE(o) : NULL; }

static int has_own(PyTypeObject *type, int name) {
    return dycl_type_lookup(type, class_names[name]) == class_own[name] && bodies_seen[name] == own_bodies[name];
}

int dycl_module_class_refresh(void) {
    int changed = 0;
    for (int i = 0; i < CLASS_NAMES; i++) {
        PyObject *body = body_of(class_own[i]);
        if (__builtin_expect(body == bodies_seen[i], 1)) continue;
        Py_XSETREF(bodies_seen[i], Py_XNewRef(body));
        changed = 1;
    }
    if (changed) memset(dycl_module_classes, 0, sizeof dycl_module_classes);
    return changed;
}

void dycl_module_class_read(dycl_module_class *row, PyTypeObject *type) {
    row->attributes =
        (uint8_t)(has_own(type, NAME_getattr) && has_own(type, NAME_getattribute) && has_own(type, NAME_dict));
    PyObject *compiled =
        dycl_type_lookup(type, class_names[NAME_compiled]); /* None, or what answers None in a region */
    row->calls = (uint8_t)(row->attributes && has_own(type, NAME_call) && has_own(type, NAME_call_impl) && compiled &&
                           (compiled == Py_None || compiled == none_inside));
    row->type = type;
    row->version = dycl_type_version(type); /* the lookups gave it one, if there is one left */
}

void dycl_module_class_none_inside(PyObject *descriptor) { none_inside = descriptor; }

int dycl_module_class_setup(void) {
    for (int i = 0; i < CLASS_NAMES; i++) {
        if (!(class_names[i] = PyUnicode_InternFromString(class_texts[i]))) return -1;
        class_own[i] = Py_XNewRef(dycl_type_lookup(dycl_py.module_type, class_names[i]));
        own_bodies[i] = Py_XNewRef(body_of(class_own[i]));
        bodies_seen[i] = Py_XNewRef(own_bodies[i]);
    }
    return 0;
}
