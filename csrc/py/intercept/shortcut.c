/* torch's functions (torch.add, F.gelu) are builtins that take a tuple: on the way to a recorded operator, torch's
 * argument parser, its mode stack and __torch_function__ cost 0.9 us. A builtin of this kind leaves its vectorcall
 * field empty, and the interpreter looks there first: what stands there sees the call before the tuple is made. */
#include "py/intercept/shortcut.h"

#include <string.h>

#include "py/bind/beside.h"
#include "py/cpython/frame.h"
#include "py/cpython/type.h"
#include "py/intercept/fallback.h"
#include "py/intercept/table.h"
#include "py/torch/wrap.h"

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

int dycl_shortcut_refused(void) {
    if (!PyErr_Occurred() || !PyErr_ExceptionMatches(PyExc_TypeError)) return 0;
    PyErr_Clear();
    return 1;
}

/* What the interpreter does where the field is empty. */
static PyObject *call_torch(PyObject *callable, PyObject *const *args, Py_ssize_t count, PyObject *kwnames) {
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
    if (!pattern || !dycl_shortcut_known(pattern)) {
        PyObject *result = call_torch(callable, args, count, kwnames);
        if (result) dycl_shortcut_remember(pattern);
        if (result || !lazy || !dycl_shortcut_refused()) return result;
        return dycl_fallback(region, callable, args, count, kwnames, NULL, DYCL_BAIL_arguments);
    }
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

/* ---- Python functions of torch.nn.functional, torch.nn.init, torch.functional and torch itself
 * They ask first whether somebody overrides them. Our mode and our type do, and torch would come back to us by
 * handle_torch_function, 2 us later. The answer no lets their body run as in eager, and what it calls is recorded. */

static PyCFunction original_has, original_has_unary;
static dycl_function_of_array original_has_variadic;

/* What these call is not bound, or in more steps; they are, as a whole. Of operands whose sizes differ, losses warn:
 * they name the caller's line, so their body has to be the one that the program called. */
static const struct {
    const char *name;
    int like; /* only of operands of the same sizes */
} wholes[] = {{"interpolate", 0}, {"mse_loss", 1}, {"l1_loss", 1}};
enum { WHOLE = sizeof wholes / sizeof *wholes };

/* Whose body runs, by code: those of functions, and of bound methods of torch.Tensor for plain tensors, as some look at
 * the exact type; ASKED_UNLIKE: where the first two differ in their sizes. */
typedef enum { ASKED_NEVER, ASKED_PLAIN, ASKED_UNLIKE, ASKED_ALWAYS } asked_kind;
#define BODIES 1024 /* a power of two, more than twice of what there is */
static struct {
    PyObject *code; /* owned */
    asked_kind kind;
} bodies[BODIES];
static int body_count;

static PyObject *whole[WHOLE]; /* owned: code objects */
static _Thread_local const PyObject *forced;

static asked_kind kind_of_code(const PyObject *code) {
    for (uint32_t at = dycl_address_hash(code, 10); code && bodies[at].code; at = (at + 1) % BODIES)
        if (bodies[at].code == code) return bodies[at].kind;
    return ASKED_NEVER;
}

static asked_kind asked_by(const dycl_region *region) {
    if (__builtin_expect(forced != NULL, 0) && dycl_frame_code() == forced) {
        forced = NULL;
        return ASKED_ALWAYS;
    }
    if (!region || region->passing || !dycl_region_records(region)) return ASKED_NEVER;
    return kind_of_code(dycl_frame_code());
}

static int overrides(const PyTypeObject *type) {
    if (type == dycl_py.tensor_type || type == dycl_py.parameter_type || type == dycl_py.buffer_type ||
        type == Py_TYPE(Py_None))
        return 0;
    return dycl_type_lookup((PyTypeObject *)type, dycl_py.torch_function_name) != NULL;
}

/* Nobody else has a say: lazy tensors, and others without an override of their own. *lazy: whether there is one of
 * ours. */
static int only_ours(PyObject *const *args, Py_ssize_t count, int *lazy) {
    *lazy = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (Py_TYPE(args[i]) == dycl_py.lazy_type)
            *lazy = 1;
        else if (overrides(Py_TYPE(args[i])))
            return 0;
    }
    return 1;
}

/* -1: it is no tensor, or none that we represent. */
static int sizes_of(PyObject *o, const int64_t **sizes) {
    dycl_lazy_meta meta;
    dycl_tensor_view view;
    if (dycl_is_lazy(o)) {
        if (dycl_lazy_describe(o, &meta) == 0) return *sizes = meta.sizes, meta.rank;
        PyErr_Clear();
        return -1;
    }
    if (!dycl_is_tensor(o) || !dycl_abi_is_plain(dycl_abi_impl(o)) || !dycl_abi_read(dycl_abi_borrow(o), &view))
        return -1;
    *sizes = view.sizes;
    return view.rank;
}

static int differ_in_sizes(PyObject *const *args, Py_ssize_t count) {
    const int64_t *a, *b;
    int rank = count < 2 ? -1 : sizes_of(args[0], &a), other = rank < 0 ? -1 : sizes_of(args[1], &b);
    return rank >= 0 && other >= 0 && (rank != other || memcmp(a, b, (size_t)rank * sizeof *a) != 0);
}

static int body_runs(PyObject *const *args, Py_ssize_t count) {
    int lazy;
    asked_kind kind = asked_by(dycl_region_current);
    return kind != ASKED_NEVER && only_ours(args, count, &lazy) && !(lazy && kind == ASKED_PLAIN) &&
           (kind != ASKED_UNLIKE || differ_in_sizes(args, count));
}

static PyObject *hook_has_unary(PyObject *self, PyObject *o) {
    if (dycl_region_current && body_runs(&o, 1)) Py_RETURN_FALSE;
    return original_has_unary(self, o);
}

static PyObject *hook_has_variadic(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (dycl_region_current && body_runs(args, count)) Py_RETURN_FALSE;
    return original_has_variadic(self, args, count);
}

static PyObject *hook_has(PyObject *self, PyObject *o) {
    int is_list = PyList_CheckExact(o);
    if (dycl_region_current && (is_list || PyTuple_CheckExact(o)) &&
        body_runs(PySequence_Fast_ITEMS(o), PySequence_Fast_GET_SIZE(o)))
        Py_RETURN_FALSE;
    return original_has(self, o);
}

static int add_body(PyObject *code, asked_kind kind) {
    uint32_t at = dycl_address_hash(code, 10);
    while (bodies[at].code && bodies[at].code != code) at = (at + 1) % BODIES;
    if (bodies[at].code) return 0; /* the first name of a function decides */
    if (2 * ++body_count > BODIES) return -1;
    bodies[at].code = Py_NewRef(code);
    bodies[at].kind = kind;
    return 0;
}

/* Its body's kind, if the function is bound as a whole; -1: it is not. */
static int kind_of_whole(PyObject *name, PyObject *code) {
    for (int i = 0; i < WHOLE; i++) {
        if (PyUnicode_CompareWithASCIIString(name, wholes[i].name) != 0) continue;
        if (!whole[i]) whole[i] = Py_NewRef(code);
        return wholes[i].like ? ASKED_UNLIKE : ASKED_NEVER;
    }
    return -1;
}

int dycl_shortcut_is_whole(PyObject *callable) {
    for (int i = 0; i < WHOLE && PyFunction_Check(callable); i++)
        if (whole[i] == PyFunction_GET_CODE(callable)) return 1;
    return 0;
}

PyObject *dycl_shortcut_run_body(PyObject *function, PyObject *const *args, Py_ssize_t count, PyObject *kwnames,
                                 PyObject *kwdict) {
    /* torch has set our mode aside for the time of the call that it handed us: what the body calls shall be seen */
    PyObject *type, *value, *traceback, *done = NULL;
    int aside = dycl_abi_mode_depth() < dycl_region_current->mode_depth;
    if (aside && !(done = PyObject_CallOneArg(dycl_py.push_mode, dycl_py.mode))) return NULL;
    Py_XDECREF(done);
    forced = PyFunction_GET_CODE(function);
    PyObject *result = kwdict ? PyObject_VectorcallDict(function, args, (size_t)count, kwdict)
                              : PyObject_Vectorcall(function, args, (size_t)count, kwnames);
    forced = NULL;
    if (!aside) return result;
    PyErr_Fetch(&type, &value, &traceback);
    if (!(done = PyObject_CallNoArgs(dycl_py.pop_mode))) Py_CLEAR(result);
    Py_XDECREF(done);
    if (type) PyErr_Restore(type, value, traceback);
    return result;
}

/* Bound, or what a function that is bound calls to ask in its name (_meshgrid). */
static int is_bound(PyObject *dict, PyObject *name, PyObject *function) {
    int in_place, swapped;
    const char *text = PyUnicode_AsUTF8(name);
    PyObject *public = text && *text == '_' ? PyDict_GetItemString(dict, text + 1) : NULL;
    PyErr_Clear();
    return dycl_binding_find(function, &in_place, &swapped) ||
           (public && dycl_binding_find(public, &in_place, &swapped));
}

/* The functions that a module of torch defines. bound: of those that have a binding. */
static int add_bodies(PyObject *module, asked_kind bound) {
    PyObject *dict = PyModule_GetDict(module), *name, *function;
    Py_ssize_t at = 0;
    while (PyDict_Next(dict, &at, &name, &function)) {
        if (!PyFunction_Check(function) || PyFunction_GET_GLOBALS(function) != dict) continue;
        int as_whole = kind_of_whole(name, PyFunction_GET_CODE(function));
        asked_kind kind = as_whole >= 0 ? (asked_kind)as_whole : is_bound(dict, name, function) ? bound : ASKED_ALWAYS;
        if (kind != ASKED_NEVER && add_body(PyFunction_GET_CODE(function), kind) < 0) return -1;
    }
    return 0;
}

static int is_operator(PyObject *name) {
    const char *text = PyUnicode_AsUTF8(name);
    return text && text[0] == '_' && text[1] == '_';
}

/* They warn, and name the line of their caller: it has to be the program's. */
static int warns_caller(PyObject *name) {
    return PyUnicode_CompareWithASCIIString(name, "resize") == 0 ||
           PyUnicode_CompareWithASCIIString(name, "resize_as") == 0;
}

/* Operators of torch.Tensor that are bound and written in Python; the body of another method may call what is not bound
 * (split). */
static int add_methods(void) {
    PyObject *dict = dycl_py.tensor_type->tp_dict, *name, *function;
    Py_ssize_t at = 0;
    int in_place, swapped;
    while (PyDict_Next(dict, &at, &name, &function)) {
        if (!PyFunction_Check(function)) continue;
        int bound = is_operator(name) && dycl_binding_find(function, &in_place, &swapped);
        asked_kind kind = bound ? ASKED_PLAIN : warns_caller(name) ? ASKED_ALWAYS : ASKED_NEVER;
        if (kind != ASKED_NEVER && add_body(PyFunction_GET_CODE(function), kind) < 0) return -1;
    }
    return 0;
}

/* What does Python's arithmetic only. */
static int add_plain(void) {
    static const char *const names[] = {"_assert", "sym_int", "sym_float", "sym_max",
                                        "sym_min", "sym_not", "sym_ite",   "sym_sum"};
    int result = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names && result == 0; i++) {
        PyObject *function = PyObject_GetAttrString(dycl_py.torch, names[i]);
        if (function && PyFunction_Check(function)) result = add_body(PyFunction_GET_CODE(function), ASKED_ALWAYS);
        if (!function) PyErr_Clear(); /* not in this torch */
        Py_XDECREF(function);
    }
    return result;
}

static int add_all_bodies(void) {
    PyObject *neural = PyImport_ImportModule("torch.nn.functional"),
             *functional = PyImport_ImportModule("torch.functional"), *init = PyImport_ImportModule("torch.nn.init");
    int result = neural && functional && init ? 0 : -1;
    if (result == 0) result = add_bodies(neural, ASKED_ALWAYS);
    if (result == 0) result = add_bodies(init, ASKED_ALWAYS); /* they warn of what is empty, at the caller's line */
    if (result == 0) result = add_bodies(functional, ASKED_NEVER);
    if (result == 0) result = add_methods();
    if (result == 0) result = add_plain();
    Py_XDECREF(neural);
    Py_XDECREF(functional);
    Py_XDECREF(init);
    return result;
}

void dycl_shortcut_setup(void) {
    if (add_all_bodies() == 0 && !PyErr_Occurred()) {
        original_has = dycl_wrap_function("_has_torch_function", METH_O, hook_has);
        original_has_unary = dycl_wrap_function("_has_torch_function_unary", METH_O, hook_has_unary);
        original_has_variadic = (dycl_function_of_array)(void (*)(void))dycl_wrap_function(
            "_has_torch_function_variadic", METH_FASTCALL, (PyCFunction)(void (*)(void))hook_has_variadic);
    }
    PyErr_Clear(); /* another torch: those functions are recorded as a whole */
}
