#include "py/entry/callable.h"

#include "base/alloc.h"
#include "py/cpython/dict.h"
#include "py/cpython/frame.h"
#include "py/cpython/object.h"
#include "py/entry/enter.h"
#include "py/entry/everywhere.h"
#include "py/entry/hint.h"
#include "structmember.h"

static void retain_segment(void *segment) { dycl_segment_retain(segment); }
static void release_segment(void *segment) { dycl_segment_release(segment); }

static dycl_site *last; /* owned when it is a module's */

/* The module whose call this is, among the variables of torch's function that asked it for this site. New reference, or
 * NULL without an exception. */
static PyObject *called_module(const dycl_site *site) {
    PyObject *variables = dycl_frame_variables(), *key, *o, *found = NULL;
    Py_ssize_t at = 0;
    while (variables && !found && PyDict_Check(variables) && PyDict_Next(variables, &at, &key, &o)) {
        PyObject *dict = PyObject_TypeCheck(o, dycl_py.module_type) ? dycl_object_dict(o) : NULL;
        if (dict && PyDict_GetItemString(dict, "_compiled_call_impl") == (PyObject *)site) found = Py_NewRef(o);
    }
    Py_XDECREF(variables);
    PyErr_Clear();
    return found;
}

/* Takes the reference. */
static PyObject *call_in_torch(PyObject *module, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    PyObject *callable = PyObject_GetAttr(module, dycl_py.call_impl_name), *result = NULL;
    Py_DECREF(module);
    if (callable) result = PyObject_Vectorcall(callable, args, nargsf, kwnames);
    Py_XDECREF(callable);
    return result;
}

/* The garbage collector clears weak references to a module before the finalizers of what dies with it, and these may
 * call it: it is still there then. */
static PyObject *call_dying(dycl_site *site, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    PyObject *module = called_module(site);
    if (module) return call_in_torch(module, args, nargsf, kwnames);
    PyErr_SetString(PyExc_ReferenceError, "the accelerated module is gone");
    return NULL;
}

/* A module into whose __dict__ the site came with a copy of its own module's: somebody holds it beside that, the caller
 * and `last`. New reference, or NULL. */
static PyObject *called_copy(dycl_site *site, const PyObject *module) {
    if (site->address || Py_REFCNT(site) <= 2 + (last == site)) return NULL;
    PyObject *called = called_module(site);
    if (called == module) Py_CLEAR(called);
    return called;
}

static PyObject *site_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    dycl_site *site = (dycl_site *)self;
    PyObject *callable;
    if (site->module) {
        if (site->address) dycl_everywhere_trim();
        PyObject *module = dycl_weakref_object(site->module); /* borrowed */
        if (!module) return call_dying(site, args, nargsf, kwnames);
        PyObject *copy = called_copy(site, module);
        if (__builtin_expect(copy != NULL, 0)) return call_in_torch(copy, args, nargsf, kwnames);
        callable = PyObject_GetAttr(module, dycl_py.call_impl_name);
    } else {
        callable = Py_XNewRef(site->callable);
        if (!callable)
            PyErr_SetString(PyExc_ReferenceError,
                            "the accelerated function is gone"); /* cleared by the garbage collector */
    }
    if (!callable) return NULL;
    PyObject *result = dycl_region_call(site, callable, args, nargsf, kwnames);
    Py_DECREF(callable);
    return result;
}

PyObject *dycl_site_create(PyObject *callable, PyObject *module, PyObject *died) {
    dycl_site *site = (dycl_site *)dycl_site_type.tp_alloc(&dycl_site_type, 0);
    if (!site) return NULL;
    site->vectorcall = site_call;
    site->callable = Py_XNewRef(callable);
    site->module = module ? PyWeakref_NewRef(module, died) : NULL;
    site->trace = dycl_trace_create(retain_segment, release_segment);
    if ((module && !site->module) || !site->trace) {
        if (!PyErr_Occurred()) PyErr_NoMemory();
        Py_DECREF(site);
        return NULL;
    }
    return (PyObject *)site;
}

static int site_traverse(PyObject *self, visitproc visit, void *arg) {
    dycl_site *site = (dycl_site *)self;
    Py_VISIT(site->callable);
    Py_VISIT(site->module);
    Py_VISIT(site->dict);
    Py_VISIT(site->methods);
    for (int i = 0; i < site->left_count; i++) {
        Py_VISIT(site->left[i].callable);
        Py_VISIT(site->left[i].code);
    }
    return 0;
}

static int site_clear(PyObject *self) {
    dycl_site *site = (dycl_site *)self;
    Py_CLEAR(site->callable);
    Py_CLEAR(site->replayed);
    Py_CLEAR(site->dict);
    Py_CLEAR(site->methods);
    int count = site->left_count;
    site->left_count = 0;
    for (int i = 0; i < count; i++) {
        Py_CLEAR(site->left[i].callable);
        Py_CLEAR(site->left[i].code);
    }
    return 0;
}

static void site_dealloc(PyObject *self) {
    dycl_site *site = (dycl_site *)self;
    PyObject_GC_UnTrack(self);
    if (site->weak) PyObject_ClearWeakRefs(self);
    site_clear(self);
    dycl_hint_clear(&site->hint);
    Py_CLEAR(site->module);
    dycl_trace_free(site->trace);
    dycl_free(site->left);
    dycl_passes_release(site->passes);
    if (last == site) last = NULL;
    Py_TYPE(self)->tp_free(self);
}

dycl_site *dycl_site_last(void) { return last; }

/* A module's site is kept: it holds the module weakly. A function's is not: it would keep the function. */
void dycl_site_set_last(dycl_site *site) {
    dycl_site *before = last;
    last = site->module ? (dycl_site *)Py_NewRef(site) : site;
    if (before && before->module) Py_DECREF(before);
}

/* Bound methods, builtins, partial objects and others with __call__ alone stay as they are where a class has them. */
static int binds(const dycl_site *site) {
    const PyTypeObject *type = site->callable ? Py_TYPE(site->callable) : NULL;
    return type && type->tp_descr_get && type != &PyMethod_Type && type != &PyStaticMethod_Type;
}

/* Used as a method, an accelerated function binds like a function, and another callable as it says: partial objects of
 * 3.13 have a __get__ that warns, and bind nothing. */
static PyObject *site_get(PyObject *self, PyObject *object, PyObject *type) {
    const dycl_site *site = (const dycl_site *)self;
    PyObject *callable = site->callable;
    if (!object || object == Py_None || !binds(site)) return Py_NewRef(self);
    if (PyFunction_Check(callable)) return PyMethod_New(self, object);
    PyObject *bound = Py_TYPE(callable)->tp_descr_get(callable, object, type);
    if (!bound) return NULL;
    int is_itself = bound == callable;
    Py_DECREF(bound);
    return is_itself ? Py_NewRef(self) : PyMethod_New(self, object);
}

static PyObject *site_repr(PyObject *self) {
    const dycl_site *site = (const dycl_site *)self;
    if (site->callable) return PyUnicode_FromFormat("<dycl.accelerate(%R)>", site->callable);
    PyObject *module = dycl_weakref_object(site->module); /* a module's own repr is long */
    if (!module) return PyUnicode_FromString("<dycl: a module that is gone>");
    return PyUnicode_FromFormat("<dycl: calls of a %s at %p>", Py_TYPE(module)->tp_name, (void *)module);
}

/* ---- Pickles and copies: a function's are by name, and itself. Of a module None: where its __dict__ is copied, the
 * copy is a plain module, not one whose calls run the original. Of what else is called: another site of its copy. */

static PyObject *again(PyObject *self, PyObject *callable) {
    PyObject *api = PyImport_ImportModule("dycl._api"), *made = NULL;
    if (api) made = PyObject_CallMethod(api, "copied", "OI", callable, ((dycl_site *)self)->options);
    Py_XDECREF(api);
    return made;
}

static PyObject *site_reduce(PyObject *self, PyObject *unused) {
    const dycl_site *site = (const dycl_site *)self;
    (void)unused;
    if (site->module) return Py_BuildValue("O()", Py_TYPE(Py_None));
    if (!site->callable || PyFunction_Check(site->callable)) return PyObject_GetAttrString(self, "__qualname__");
    PyObject *api = PyImport_ImportModule("dycl._api");
    PyObject *make = api ? PyObject_GetAttrString(api, "copied") : NULL;
    PyObject *how = make ? Py_BuildValue("O(OI)", make, site->callable, site->options) : NULL;
    Py_XDECREF(api);
    Py_XDECREF(make);
    return how;
}

/* memo: a deep copy; NULL: one of the object alone. */
static PyObject *copied_by(PyObject *self, PyObject *memo) {
    const dycl_site *site = (const dycl_site *)self;
    if (site->module) Py_RETURN_NONE;
    if (!site->callable || PyFunction_Check(site->callable)) return Py_NewRef(self);
    PyObject *module = PyImport_ImportModule("copy"), *callable = NULL;
    if (module)
        callable = PyObject_CallMethod(module, memo ? "deepcopy" : "copy", memo ? "OO" : "O", site->callable, memo);
    PyObject *result = !callable ? NULL : callable == site->callable ? Py_NewRef(self) : again(self, callable);
    Py_XDECREF(module);
    Py_XDECREF(callable);
    return result;
}

static PyObject *site_copy(PyObject *self, PyObject *unused) {
    (void)unused;
    return copied_by(self, NULL);
}

static PyMethodDef site_methods[] = {
    {"__reduce__", site_reduce, METH_NOARGS, NULL},
    {"__copy__", site_copy, METH_NOARGS, NULL},
    {"__deepcopy__", copied_by, METH_O, NULL},
    {0},
};

static PyMemberDef site_members[] = {
    {"_options", T_UINT, offsetof(dycl_site, options), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(dycl_site, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(dycl_site, weak), READONLY, NULL},
    {0},
};

/* Borrowed; NULL with an exception: of a module, or of what the collector took apart. */
static PyObject *callable_with(PyObject *self, const char *name) {
    PyObject *callable = ((dycl_site *)self)->callable;
    if (!callable)
        PyErr_Format(PyExc_AttributeError, "'%s' object has no attribute '%s'", Py_TYPE(self)->tp_name, name);
    return callable;
}

/* What makes an object like a function to `inspect`: whether a call makes a coroutine or a generator is asked there. */
static PyObject *functions_own(PyObject *self, void *name) {
    PyObject *callable = callable_with(self, name);
    return callable ? PyObject_GetAttrString(callable, name) : NULL;
}

static int set_functions_own(PyObject *self, PyObject *value, void *name) {
    PyObject *callable = callable_with(self, name);
    return callable ? PyObject_SetAttrString(callable, name, value) : -1;
}

static PyGetSetDef site_getters[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {"__code__", functions_own, set_functions_own, NULL, "__code__"},
    {"__defaults__", functions_own, set_functions_own, NULL, "__defaults__"},
    {"__kwdefaults__", functions_own, set_functions_own, NULL, "__kwdefaults__"},
    {"__closure__", functions_own, set_functions_own, NULL, "__closure__"},
    {"__globals__", functions_own, set_functions_own, NULL, "__globals__"},
    {0},
};

PyTypeObject dycl_site_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dycl.Site",
    .tp_doc = "One accelerated callable: calls run as regions.",
    .tp_basicsize = sizeof(dycl_site),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(dycl_site, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_repr = site_repr,
    .tp_traverse = site_traverse,
    .tp_clear = site_clear,
    .tp_dealloc = site_dealloc,
    .tp_descr_get = site_get,
    .tp_methods = site_methods,
    .tp_members = site_members,
    .tp_getset = site_getters,
    .tp_dictoffset = offsetof(dycl_site, dict),
    .tp_weaklistoffset = offsetof(dycl_site, weak),
};
