#include "py/intercept/tensor_method.h"

#include <string.h>

#include "py/cpython/type.h"
#include "py/intercept/fallback.h"
#include "py/intercept/table.h"
#include "py/torch/own_code.h"

typedef struct {
    PyObject_HEAD PyObject *name, *original; /* owned */
    vectorcallfunc vectorcall;
} tensor_method;

/* As torch.Tensor's own attribute is called. */
static PyObject *call_attribute(PyObject *attribute, PyObject *const *args, Py_ssize_t count, PyObject *kwnames) {
    descrgetfunc get = Py_TYPE(attribute)->tp_descr_get;
    if (!get || !count) return PyObject_Vectorcall(attribute, args, (size_t)count, kwnames);
    PyObject *bound = get(attribute, args[0], (PyObject *)dycl_py.tensor_type);
    PyObject *result = bound ? PyObject_Vectorcall(bound, args + 1, (size_t)count - 1, kwnames) : NULL;
    Py_XDECREF(bound);
    return result;
}

static PyObject *method_call(PyObject *o, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    tensor_method *method = (tensor_method *)o;
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
    else if (region && region->closed & (DYCL_CLOSED_ASIDE | DYCL_CLOSED_GRADIENT | DYCL_CLOSED_MODE))
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
static PyObject *method_get(PyObject *self, PyObject *object, PyObject *type) {
    tensor_method *method = (tensor_method *)self;
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

static void method_dealloc(PyObject *self) {
    Py_XDECREF(((tensor_method *)self)->name);
    Py_XDECREF(((tensor_method *)self)->original);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *method_attribute(PyObject *self, PyObject *name) {
    return PyObject_GetAttr(((tensor_method *)self)->original, name);
}

static PyTypeObject method_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dycl.tensor_method",
    .tp_basicsize = sizeof(tensor_method),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(tensor_method, vectorcall),
    .tp_descr_get = method_get,
    .tp_getattro = method_attribute,
    .tp_dealloc = method_dealloc,
};

int dycl_tensor_method_is(PyObject *attribute) { return Py_TYPE(attribute) == &method_type; }

static int asks(PyObject *function) {
    if (!PyFunction_Check(function)) return 0;
    PyObject *names = PyObject_GetAttrString(PyFunction_GET_CODE(function), "co_names"),
             *name = names ? PyUnicode_InternFromString("handle_torch_function") : NULL;
    int result = name ? PySequence_Contains(names, name) : -1;
    Py_XDECREF(names);
    Py_XDECREF(name);
    return result;
}

/* Functions in C have no code: their type says whose they are. */
static int is_torchs(PyObject *function) {
    if (PyMethod_Check(function)) function = PyMethod_GET_FUNCTION(function);
    if (PyFunction_Check(function)) return dycl_torchs_own(PyFunction_GET_CODE(function));
    if (!(Py_TYPE(function)->tp_flags & Py_TPFLAGS_HEAPTYPE)) return 1; /* Python's */
    PyObject *module = PyObject_GetAttrString((PyObject *)Py_TYPE(function), "__module__");
    const char *name = module && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : NULL;
    int result = !module || (name && strncmp(name, "torch", 5) == 0 && (!name[5] || name[5] == '.'));
    Py_XDECREF(module);
    return result;
}

static int runs_in_torch(PyFrameObject *frame, const char *name) {
    PyCodeObject *code = PyFrame_GetCode(frame);
    int result =
        dycl_torchs_own((PyObject *)code) && (!name || PyUnicode_CompareWithASCIIString(code->co_name, name) == 0);
    Py_DECREF(code);
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

PyObject *dycl_tensor_method_meant(PyObject *function) {
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
    tensor_method *method = PyObject_New(tensor_method, &method_type);
    if (!method) return -1;
    method->name = Py_NewRef(name);
    method->original = Py_NewRef(function);
    method->vectorcall = method_call;
    int result = PyDict_SetItem(lazy->tp_dict, name, (PyObject *)method);
    Py_DECREF(method);
    return result;
}

int dycl_tensor_method_install(PyTypeObject *lazy) {
    PyObject *name, *function;
    Py_ssize_t at = 0;
    int in_place, swapped;
    if (PyType_Ready(&method_type) < 0) return -1;
    while (PyDict_Next(dycl_py.tensor_type->tp_dict, &at, &name, &function)) {
        int has = PyDict_Contains(lazy->tp_dict, name), asked = has ? has : asks(function);
        if (has < 0 || asked < 0) return -1;
        if (!has && asked && !dycl_binding_find(function, &in_place, &swapped) && add(lazy, name, function) < 0)
            return -1;
    }
    return 0;
}
