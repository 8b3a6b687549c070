#include "py/intercept/asking.h"

#include <string.h>

#include "py/cpython/type.h"
#include "py/intercept/fallback.h"
#include "py/intercept/table.h"

typedef struct {
    PyObject_HEAD PyObject *name, *original; /* owned */
    vectorcallfunc vectorcall;
} asking;

/* As torch.Tensor's own attribute is called. */
static PyObject *call_attribute(PyObject *attribute, PyObject *const *args, Py_ssize_t count, PyObject *kwnames) {
    descrgetfunc get = Py_TYPE(attribute)->tp_descr_get;
    if (!get || !count) return PyObject_Vectorcall(attribute, args, (size_t)count, kwnames);
    PyObject *bound = get(attribute, args[0], (PyObject *)dycl_py.tensor_type);
    PyObject *result = bound ? PyObject_Vectorcall(bound, args + 1, (size_t)count - 1, kwnames) : NULL;
    Py_XDECREF(bound);
    return result;
}

static PyObject *asking_call(PyObject *o, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    asking *method = (asking *)o;
    Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    dycl_region *region = dycl_region_current;
    PyObject *attribute = dycl_type_lookup(dycl_py.tensor_type, method->name);
    if (!attribute) {
        PyErr_SetObject(PyExc_AttributeError, method->name);
        return NULL;
    }
    Py_INCREF(attribute);
    PyObject *result;
    if (attribute != method->original || !count || !dycl_is_lazy(args[0]) ||
        (region && dycl_abi_mode_depth() != region->mode_depth)) /* a mode of the program's has to see it */
        result = call_attribute(attribute, args, count, kwnames);
    else if (region && region->closed & (DYCL_CLOSED_ASIDE | DYCL_CLOSED_GRADIENT))
        result = dycl_fallback(NULL, attribute, args, count, kwnames, NULL, DYCL_BAIL_mode);
    else
        result = dycl_fallback(region, attribute, args, count, kwnames, NULL,
                               !region                    ? DYCL_BAIL_thread
                               : dycl_region_open(region) ? DYCL_BAIL_operator
                                                          : DYCL_BAIL_mode);
    Py_DECREF(attribute);
    return result;
}

/* The method that a program takes from a tensor is torch's. What Python itself asks for by name (copy, pickle) it calls
 * at once. */
static PyObject *asking_get(PyObject *self, PyObject *object, PyObject *type) {
    asking *method = (asking *)self;
    PyObject *attribute = dycl_type_lookup(dycl_py.tensor_type, method->name);
    if (attribute == method->original && object && object != Py_None) {
        const char *text = PyUnicode_AsUTF8(method->name);
        return PyMethod_New(text && text[0] == '_' && text[1] == '_' ? self : attribute, object);
    }
    if (!attribute) {
        PyErr_SetObject(PyExc_AttributeError, method->name);
        return NULL;
    }
    descrgetfunc get = Py_TYPE(attribute)->tp_descr_get;
    return get ? get(attribute, object, type) : Py_NewRef(attribute);
}

static void asking_dealloc(PyObject *self) {
    Py_XDECREF(((asking *)self)->name);
    Py_XDECREF(((asking *)self)->original);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *asking_attribute(PyObject *self, PyObject *name) {
    return PyObject_GetAttr(((asking *)self)->original, name);
}

static PyTypeObject asking_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dycl.asking",
    .tp_basicsize = sizeof(asking),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(asking, vectorcall),
    .tp_descr_get = asking_get,
    .tp_getattro = asking_attribute,
    .tp_dealloc = asking_dealloc,
};

int dycl_asking_is(PyObject *attribute) { return Py_TYPE(attribute) == &asking_type; }

static int asks(PyObject *function) {
    if (!PyFunction_Check(function)) return 0;
    PyObject *names = PyObject_GetAttrString(PyFunction_GET_CODE(function), "co_names"),
             *name = names ? PyUnicode_InternFromString("handle_torch_function") : NULL;
    int result = name ? PySequence_Contains(names, name) : -1;
    Py_XDECREF(names);
    Py_XDECREF(name);
    return result;
}

/* "torch", or a module of it. */
static int is_torchs_name(PyObject *name) {
    const char *text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    return text && strncmp(text, "torch", 5) == 0 && (!text[5] || text[5] == '.');
}

static int is_torchs(PyObject *function) {
    if (PyMethod_Check(function)) function = PyMethod_GET_FUNCTION(function);
    if (PyFunction_Check(function))
        return is_torchs_name(PyDict_GetItemString(PyFunction_GET_GLOBALS(function), "__name__"));
    if (!(Py_TYPE(function)->tp_flags & Py_TPFLAGS_HEAPTYPE)) return 1; /* Python's, of functions in C */
    PyObject *module = PyObject_GetAttrString((PyObject *)Py_TYPE(function), "__module__");
    int result = !module || is_torchs_name(module);
    Py_XDECREF(module);
    return result;
}

static int runs_in_torch(PyFrameObject *frame, const char *name) {
    PyObject *globals = PyFrame_GetGlobals(frame);
    PyCodeObject *code = PyFrame_GetCode(frame);
    int result = is_torchs_name(PyDict_GetItemString(globals, "__name__")) &&
                 (!name || PyUnicode_CompareWithASCIIString(code->co_name, name) == 0);
    Py_DECREF(code);
    Py_DECREF(globals);
    return result;
}

/* A function of the frame's code. One for each: what torch answers to it is kept by function. */
static PyObject *function_of(PyFrameObject *frame) {
    static PyObject *made; /* owned: by code */
    PyObject *code = (PyObject *)PyFrame_GetCode(frame), *globals = PyFrame_GetGlobals(frame);
    PyObject *names = PyObject_GetAttrString(code, "co_freevars"), *result = NULL;
    if (!made) made = PyDict_New();
    if (made && names && PyTuple_GET_SIZE(names) == 0) {
        result = Py_XNewRef(PyDict_GetItem(made, code));
        if (!result && (result = PyFunction_New(code, globals))) PyDict_SetItem(made, code, result);
    }
    Py_XDECREF(names);
    Py_DECREF(globals);
    Py_DECREF(code);
    return result;
}

PyObject *dycl_asking_meant(PyObject *function) {
    PyFrameObject *handle, *asked;
    if (is_torchs(function) || !(handle = PyEval_GetFrame()) || !runs_in_torch(handle, "handle_torch_function"))
        return NULL;
    asked = PyFrame_GetBack(handle);
    PyObject *result = asked && runs_in_torch(asked, NULL) ? function_of(asked) : NULL;
    Py_XDECREF(asked);
    PyErr_Clear();
    return result;
}

static int add(PyTypeObject *lazy, PyObject *name, PyObject *function) {
    asking *method = PyObject_New(asking, &asking_type);
    if (!method) return -1;
    method->name = Py_NewRef(name);
    method->original = Py_NewRef(function);
    method->vectorcall = asking_call;
    int result = PyDict_SetItem(lazy->tp_dict, name, (PyObject *)method);
    Py_DECREF(method);
    return result;
}

int dycl_asking_install(PyTypeObject *lazy) {
    PyObject *name, *function;
    Py_ssize_t at = 0;
    int in_place, swapped;
    if (PyType_Ready(&asking_type) < 0) return -1;
    while (PyDict_Next(dycl_py.tensor_type->tp_dict, &at, &name, &function)) {
        int has = PyDict_Contains(lazy->tp_dict, name), asked = has ? has : asks(function);
        if (has < 0 || asked < 0) return -1;
        if (!has && asked && !dycl_binding_find(function, &in_place, &swapped) && add(lazy, name, function) < 0)
            return -1;
    }
    return 0;
}
