/* torch's functions (torch.add, F.gelu) are builtins that take a tuple: on the way to a recorded operator, torch's
 * argument parser, its mode stack and __torch_function__ cost 0.9 us. A builtin of this kind leaves its vectorcall
 * field empty, and the interpreter looks there first: what stands there sees the call before the tuple is made. */
#include "py/intercept/shortcut.h"

#include "py/bind/beside.h"
#include "py/intercept/fallback.h"
#include "py/intercept/numbers.h"
#include "py/intercept/overrides.h"
#include "py/intercept/table.h"

#define LOOKED_AT 3 /* where torch's functions have their tensors */

static int is_lazy_argument(PyObject *o) {
    if (dycl_is_lazy(o)) return 1;
    if (PyTuple_CheckExact(o)) return PyTuple_GET_SIZE(o) && dycl_is_lazy(PyTuple_GET_ITEM(o, 0));
    return PyList_CheckExact(o) && PyList_GET_SIZE(o) && dycl_is_lazy(PyList_GET_ITEM(o, 0));
}

static int any_lazy(PyObject *const *args, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count && i < LOOKED_AT; i++)
        if (is_lazy_argument(args[i])) return 1;
    return 0;
}

/* ---- What torch's parser accepts
 * Bindings are written for calls that the parser let through: atan2 takes no number, though its binding would. The
 * parser looks at the types of the arguments only, so a call goes its way until one with the same types succeeded.
 * Types that it looks into (a tensor of rank 0 may be a number) or that are not in the list never take the shortcut. */

enum {
    KIND_NONE = 1,
    KIND_LAZY,
    KIND_TENSOR,
    KIND_INT,
    KIND_FLOAT,
    KIND_BOOL,
    KIND_STRING,
    KIND_DTYPE,
    KIND_DEVICE,
    KIND_FORMAT,
    KIND_TENSORS,
    KIND_INTS
};

static int tensor_kind(PyObject *o, int *out_rank) {
    dycl_lazy_meta meta;
    *out_rank = 1;
    if (dycl_is_lazy(o)) {
        if (dycl_lazy_describe(o, &meta) < 0) {
            PyErr_Clear();
            return 0;
        }
        *out_rank = meta.rank;
        return KIND_LAZY;
    }
    if (Py_TYPE(o) == dycl_py.parameter_type) return KIND_TENSOR;
    if (Py_TYPE(o) != dycl_py.tensor_type) return 0;
    *out_rank = dycl_abi_rank(dycl_abi_borrow(o));
    return KIND_TENSOR;
}

static uint64_t kind_of(PyObject *o) {
    int rank, kind = tensor_kind(o, &rank);
    if (kind) return rank ? (uint64_t)kind : 0;
    if (PyLong_CheckExact(o)) return KIND_INT;
    if (PyFloat_CheckExact(o)) return KIND_FLOAT;
    if (PyBool_Check(o)) return KIND_BOOL;
    if (o == Py_None) return KIND_NONE;
    if (PyUnicode_CheckExact(o)) return KIND_STRING;
    if (Py_TYPE(o) == dycl_py.dtype_type) return KIND_DTYPE;
    if (Py_TYPE(o) == dycl_py.device_type) return KIND_DEVICE;
    if (Py_TYPE(o) == Py_TYPE(dycl_py.channels_last)) return KIND_FORMAT;
    int is_list = PyList_CheckExact(o);
    if (!is_list && !PyTuple_CheckExact(o) && Py_TYPE(o) != dycl_py.size_type) return 0;
    Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
    PyObject **items = PySequence_Fast_ITEMS(o);
    if (n == 0 || n > 64) return 0;
    int first = tensor_kind(items[0], &rank);
    for (Py_ssize_t i = 0; i < n; i++)
        if (first ? !tensor_kind(items[i], &rank) : !PyLong_CheckExact(items[i])) return 0;
    return first ? (uint64_t)(KIND_TENSORS << 1 | is_list) : (uint64_t)(KIND_INTS << 1 | is_list) + ((uint64_t)n << 8);
}

static uint64_t mix(uint64_t h, uint64_t word) {
    h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ (h >> 29);
}

uint64_t dycl_shortcut_pattern(PyObject *callable, PyObject *const *args, Py_ssize_t count, PyObject *kwnames,
                               int is_method) {
    Py_ssize_t names = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    uint64_t h = mix((uint64_t)(uintptr_t)callable, (uint64_t)count);
    for (Py_ssize_t i = is_method; i < count + names; i++) { /* a method's self is whatever it is called on */
        uint64_t kind = kind_of(args[i]);
        if (!kind) return 0;
        h = mix(h, kind);
        if (i >= count) h = mix(h, (uint64_t)PyObject_Hash(PyTuple_GET_ITEM(kwnames, i - count)));
    }
    return h ? h : 1;
}

static uint64_t *patterns; /* open addressing, at most half full; 0: free */
static size_t pattern_room, pattern_count;

static uint64_t *place_of(uint64_t *in, size_t room, uint64_t pattern) { /* its own, or the free one where it belongs */
    size_t at = pattern & (room - 1);
    while (in[at] && in[at] != pattern) at = (at + 1) & (room - 1);
    return &in[at];
}

int dycl_shortcut_known(uint64_t pattern) { return pattern_room && *place_of(patterns, pattern_room, pattern); }

void dycl_shortcut_remember(uint64_t pattern) {
    if (!pattern || dycl_shortcut_known(pattern)) return;
    if (2 * (pattern_count + 1) > pattern_room) {
        size_t room = pattern_room ? 2 * pattern_room : 4096;
        uint64_t *next = PyMem_Calloc(room, sizeof *next);
        if (!next) return; /* the parser is asked again */
        for (size_t i = 0; i < pattern_room; i++)
            if (patterns[i]) *place_of(next, room, patterns[i]) = patterns[i];
        PyMem_Free(patterns);
        patterns = next;
        pattern_room = room;
    }
    *place_of(patterns, pattern_room, pattern) = pattern;
    pattern_count++;
}

/* Python code that ran in between left its frames, and somebody else's answer NotImplemented comes as such an error. */
int dycl_shortcut_refused(PyObject *const *args, Py_ssize_t count, PyObject *kwnames) {
    PyObject *type, *value, *traceback;
    if (!PyErr_Occurred() || !PyErr_ExceptionMatches(PyExc_TypeError)) return 0;
    PyErr_Fetch(&type, &value, &traceback);
    if (!traceback && !dycl_overrides_any(args, count + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0))) {
        Py_DECREF(type);
        Py_XDECREF(value);
        return 1;
    }
    PyErr_Restore(type, value, traceback);
    return 0;
}

PyObject *dycl_shortcut_parse(dycl_region *region, vectorcallfunc call, PyObject *callable, PyObject *const *args,
                              size_t nargsf, PyObject *kwnames, uint64_t pattern, int is_method, int lazy) {
    Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    uint64_t places[DYCL_NUMBERS];
    int numbers = dycl_numbers_compute(callable, args, count, kwnames, is_method, places);
    if (numbers < 0) return NULL;
    PyObject *result = call(callable, args, nargsf, kwnames);
    dycl_numbers_learn(result, places, numbers);
    if (result) dycl_shortcut_remember(pattern);
    if (result || !lazy || !dycl_shortcut_refused(args, count, kwnames)) return result;
    return dycl_fallback(region, callable, args, count, kwnames, NULL, DYCL_BAIL_arguments);
}

/* What the interpreter does where the field is empty. */
static PyObject *call_torch(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    PyObject *tuple = PyTuple_New(count), *kwargs = NULL, *result = NULL;
    if (!tuple) return NULL;
    for (Py_ssize_t i = 0; i < count; i++) PyTuple_SET_ITEM(tuple, i, Py_NewRef(args[i]));
    Py_ssize_t names = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    if (names && !(kwargs = PyDict_New())) goto done;
    for (Py_ssize_t i = 0; i < names; i++)
        if (PyDict_SetItem(kwargs, PyTuple_GET_ITEM(kwnames, i), args[count + i]) < 0) goto done;
    if (Py_EnterRecursiveCall(" while calling a Python object")) goto done;
    result = PyCFunction_Type.tp_call(callable, tuple, kwargs);
    Py_LeaveRecursiveCall();
done:
    Py_DECREF(tuple);
    Py_XDECREF(kwargs);
    return result;
}

static PyObject *shortcut(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    dycl_region *region = dycl_region_current;
    int in_place, swapped;
    if (!region || region->passing || !dycl_region_records(region)) return call_torch(callable, args, count, kwnames);
    int lazy = any_lazy(args, count);
    if (!lazy && !dycl_abi_torch_function_is_on()) return call_torch(callable, args, count, kwnames);
    uint64_t pattern = dycl_shortcut_pattern(callable, args, count, kwnames, 0);
    if (!pattern || !dycl_shortcut_known(pattern))
        return dycl_shortcut_parse(region, call_torch, callable, args, nargsf, kwnames, pattern, 0, lazy);
    const dycl_binding *row = dycl_binding_find(callable, &in_place, &swapped);
    if (!row || swapped) return call_torch(callable, args, count, kwnames);
    if (Py_EnterRecursiveCall(" while calling a Python object")) return NULL;
    region->calling = callable;
    PyObject *result = dycl_binding_record(row, region, args, count, kwnames, NULL, in_place, 0);
    Py_LeaveRecursiveCall();
    if (result || PyErr_Occurred()) return result;
    if (!lazy && !kwnames && dycl_beside_suits(callable, args, count, NULL, NULL))
        return dycl_beside_run(region, callable, args, count, NULL, 1);
    if (!lazy) return call_torch(callable, args, count, kwnames); /* our mode says why */
    return dycl_fallback(region, callable, args, count, kwnames, NULL, region->recorder.why);
}

void dycl_shortcut_install(PyObject *callable) {
    const int kind = METH_VARARGS | METH_KEYWORDS, all = kind | METH_FASTCALL | METH_NOARGS | METH_O | METH_METHOD;
    if (!PyCFunction_CheckExact(callable) || (PyCFunction_GET_FLAGS(callable) & all) != kind) return;
    PyCFunctionObject *function = (PyCFunctionObject *)callable;
    if (!function->vectorcall) function->vectorcall = shortcut;
}
