#include "py/entry/method.h"

#include "py/cpython/dict.h"
#include "py/cpython/frame.h"
#include "py/cpython/object.h"
#include "py/cpython/type.h"
#include "py/entry/callable.h"
#include "py/modules/attribute.h"
#include "py/region/region.h"

static PyObject *decorated_code;             /* owned: what every function has that a context decorates */
static Py_ssize_t factory_at;                /* of its cells: makes the context */
static PyTypeObject *no_grad;                /* owned */
static PyObject *site_name, *update_wrapper; /* owned */

static int is_decorated(PyObject *o) {
    if (!PyFunction_Check(o) || !decorated_code) return 0;
    if (!dycl_code_is_a_copy(PyFunction_GET_CODE(o), decorated_code)) return 0; /* torch 2.15 renames each */
    PyObject *cells = PyFunction_GET_CLOSURE(o), *factory = cells && PyTuple_GET_SIZE(cells) > factory_at
                                                                ? PyCell_GET(PyTuple_GET_ITEM(cells, factory_at))
                                                                : NULL;
    return factory && (factory == (PyObject *)no_grad ||
                       (PyMethod_Check(factory) && Py_TYPE(PyMethod_GET_SELF(factory)) == no_grad));
}

/* Borrowed; NULL with an exception. */
static PyObject *site_for(dycl_site *owner, PyObject *function) {
    if (!owner->methods && !(owner->methods = PyDict_New())) return NULL;
    PyObject *site = PyDict_GetItemWithError(owner->methods, function);
    if (site || PyErr_Occurred()) return site;
    if (!(site = dycl_site_create(function, NULL, NULL))) return NULL;
    ((dycl_site *)site)->options = owner->options;
    PyObject *done = PyObject_CallFunctionObjArgs(update_wrapper, site, function, NULL);
    int result = done ? PyDict_SetItem(owner->methods, function, site) : -1;
    Py_XDECREF(done);
    Py_DECREF(site);
    return result == 0 ? site : NULL;
}

/* Outside of regions: the bound method under this name; NULL without an exception: the ordinary way. New reference. */
static PyObject *find(PyObject *module, PyObject *name) {
    if (!PyUnicode_CheckExact(name)) return NULL;
    PyObject *function = dycl_type_lookup(Py_TYPE(module), name), *dict, *owner; /* borrowed */
    if (!function || !is_decorated(function) || !(dict = dycl_object_dict(module))) return NULL;
    if (PyDict_GetItemWithError(dict, name) || PyErr_Occurred()) return NULL;
    owner = PyDict_GetItemWithError(dict, site_name);
    if (!owner || Py_TYPE(owner) != &dycl_site_type || !((dycl_site *)owner)->module ||
        dycl_weakref_object(((dycl_site *)owner)->module) != module)
        return NULL;
    PyObject *site = site_for((dycl_site *)owner, function);
    return site ? PyMethod_New(site, module) : NULL;
}

/* Of classes with an accelerated instance. */
static PyObject *accelerated_getattr(PyObject *self, PyObject *name) {
    if (!dycl_region_current) {
        PyObject *method = find(self, name);
        if (method || PyErr_Occurred()) return method;
    }
    return dycl_attribute_get(self, name);
}

void dycl_method_watch(PyObject *module) { dycl_attribute_replace(Py_TYPE(module), accelerated_getattr); }

static Py_ssize_t place_of(PyObject *names, const char *name) {
    for (Py_ssize_t i = 0; names && PyTuple_Check(names) && i < PyTuple_GET_SIZE(names); i++)
        if (!PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, i), name)) return i;
    return -1;
}

/* Where torch decorates in another way, no method is found. */
static void learn_decorator(void) {
    PyObject *context = PyObject_CallNoArgs((PyObject *)no_grad), *sample = NULL, *names = NULL;
    PyObject *builtin = PyEval_GetBuiltins(), *some = builtin ? PyDict_GetItemString(builtin, "len") : NULL;
    if (context && some) sample = PyObject_CallOneArg(context, some);
    if (sample && PyFunction_Check(sample)) names = PyObject_GetAttrString(PyFunction_GET_CODE(sample), "co_freevars");
    factory_at = place_of(names, "ctx_factory");
    if (factory_at >= 0) decorated_code = Py_NewRef(PyFunction_GET_CODE(sample));
    if (decorated_code && !is_decorated(sample)) Py_CLEAR(decorated_code);
    Py_XDECREF(names);
    Py_XDECREF(sample);
    Py_XDECREF(context);
    PyErr_Clear();
}

int dycl_method_setup(void) {
    PyObject *tools = PyImport_ImportModule("functools");
    if (tools) update_wrapper = PyObject_GetAttrString(tools, "update_wrapper");
    Py_XDECREF(tools);
    site_name = PyUnicode_InternFromString("_compiled_call_impl");
    no_grad = (PyTypeObject *)PyObject_GetAttrString(dycl_py.torch, "no_grad");
    if (!update_wrapper || !site_name || !no_grad) return -1;
    learn_decorator();
    return 0;
}
