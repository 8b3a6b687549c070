/* Python functions of torch.nn.functional, torch.nn.init, torch.functional and torch itself ask first whether somebody
 * overrides them. Our mode and our type do, and torch would come back to us by handle_torch_function, 2 us later. The
 * answer no lets their body run as in eager, and what it calls is recorded. */
#include "py/intercept/overrides.h"

#include <string.h>

#include "py/bind/call.h"
#include "py/cpython/frame.h"
#include "py/cpython/type.h"
#include "py/intercept/table.h"
#include "py/torch/own_code.h"
#include "py/torch/wrap.h"

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
 * the exact type; BODY_UNLIKE: where the first two differ in their sizes. */
typedef enum { BODY_NEVER, BODY_PLAIN, BODY_UNLIKE, BODY_ALWAYS } body_kind;
#define BODIES 1024 /* a power of two, more than twice of what there is */
static struct {
    PyObject *code; /* owned */
    body_kind kind;
} bodies[BODIES];
static int body_count;

static PyObject *whole[WHOLE]; /* owned: code objects */
static _Thread_local const PyObject *forced;

static body_kind kind_of_code(const PyObject *code) {
    for (uint32_t at = dycl_address_hash(code, 10); code && bodies[at].code; at = (at + 1) % BODIES)
        if (bodies[at].code == code) return bodies[at].kind;
    return BODY_NEVER;
}

static body_kind body_of_caller(const dycl_region *region) {
    if (__builtin_expect(forced != NULL, 0) && dycl_frame_code() == forced) {
        forced = NULL;
        return BODY_ALWAYS;
    }
    if (!region || region->passing || !dycl_region_records(region)) return BODY_NEVER;
    return kind_of_code(dycl_frame_code());
}

/* An object may have the attribute without its class, one that hands on to a tensor what it lacks has. */
static int overrides(PyObject *o) {
    PyTypeObject *type = Py_TYPE(o);
    if (type == dycl_py.tensor_type || type == dycl_py.parameter_type || type == dycl_py.buffer_type ||
        type == Py_TYPE(Py_None))
        return 0;
    if (dycl_type_lookup(type, dycl_py.torch_function_name)) return 1;
    if (dycl_is_tensor(o) || !(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return 0;
    PyObject *attribute = PyObject_GetAttr(o, dycl_py.torch_function_name);
    PyErr_Clear();
    Py_XDECREF(attribute);
    return attribute != NULL;
}

/* Nobody else has a say: lazy tensors, and others without an override of their own. *lazy: whether there is one of
 * ours. */
static int only_ours(PyObject *const *args, Py_ssize_t count, int *lazy) {
    *lazy = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (Py_TYPE(args[i]) == dycl_py.lazy_type)
            *lazy = 1;
        else if (overrides(args[i]))
            return 0;
    }
    return 1;
}

int dycl_overrides_any(PyObject *const *args, Py_ssize_t count) {
    int lazy;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *o = args[i];
        int items = PyTuple_Check(o) || PyList_Check(o);
        if (!only_ours(&args[i], 1, &lazy) ||
            (items && !only_ours(PySequence_Fast_ITEMS(o), PySequence_Fast_GET_SIZE(o), &lazy)))
            return 1;
    }
    return 0;
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
    body_kind kind = body_of_caller(dycl_region_current);
    return kind != BODY_NEVER && only_ours(args, count, &lazy) && !(lazy && kind == BODY_PLAIN) &&
           (kind != BODY_UNLIKE || differ_in_sizes(args, count));
}

/* torch answers yes. The program's own functions hear what they hear in eager: no, where nobody else has a say. torch's
 * are left that are recorded as a whole. */
static int is_no(PyObject *const *args, Py_ssize_t count) {
    const dycl_region *region = dycl_region_current;
    int lazy, ours = !region || region->mode_depth == DYCL_MODE_ASIDE ? 0 : region->mode_depth;
    if (dycl_abi_mode_depth() > ours || !only_ours(args, count, &lazy)) return 0;
    const PyObject *code = dycl_frame_code();
    return code && !dycl_torchs_own(code);
}

static PyObject *answer(PyObject *torchs, PyObject *const *args, Py_ssize_t count) {
    if (torchs != Py_True || !is_no(args, count)) return torchs;
    Py_DECREF(torchs);
    Py_RETURN_FALSE;
}

static PyObject *hook_has_unary(PyObject *self, PyObject *o) {
    if (dycl_region_current && body_runs(&o, 1)) Py_RETURN_FALSE;
    return answer(original_has_unary(self, o), &o, 1);
}

static PyObject *hook_has_variadic(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (dycl_region_current && body_runs(args, count)) Py_RETURN_FALSE;
    return answer(original_has_variadic(self, args, count), args, count);
}

static PyObject *hook_has(PyObject *self, PyObject *o) {
    PyObject **items = PyList_CheckExact(o) || PyTuple_CheckExact(o) ? PySequence_Fast_ITEMS(o) : NULL;
    Py_ssize_t count = items ? PySequence_Fast_GET_SIZE(o) : 0;
    if (!items) return original_has(self, o);
    if (dycl_region_current && body_runs(items, count)) Py_RETURN_FALSE;
    return answer(original_has(self, o), items, count);
}

static int add_body(PyObject *code, body_kind kind) {
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
        return wholes[i].like ? BODY_UNLIKE : BODY_NEVER;
    }
    return -1;
}

int dycl_overrides_is_whole(PyObject *callable) {
    for (int i = 0; i < WHOLE && PyFunction_Check(callable); i++)
        if (whole[i] == PyFunction_GET_CODE(callable)) return 1;
    return 0;
}

PyObject *dycl_overrides_run_body(PyObject *function, PyObject *const *args, Py_ssize_t count, PyObject *kwnames,
                                  PyObject *kwdict) {
    /* torch has set our mode aside for the time of the call that it handed us: what the body calls shall be seen */
    PyObject *type, *value, *traceback, *done = NULL;
    dycl_region *region = dycl_region_current;
    int depth = region->mode_depth, aside = depth == DYCL_MODE_ASIDE;
    if (aside && !(done = PyObject_CallOneArg(dycl_py.push_mode, dycl_py.mode))) return NULL;
    Py_XDECREF(done);
    if (aside) region->mode_depth = dycl_abi_mode_depth();
    forced = PyFunction_GET_CODE(function);
    PyObject *result = kwdict ? PyObject_VectorcallDict(function, args, (size_t)count, kwdict)
                              : PyObject_Vectorcall(function, args, (size_t)count, kwnames);
    forced = NULL;
    region->mode_depth = depth;
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
static int add_bodies(PyObject *module, body_kind bound) {
    PyObject *dict = PyModule_GetDict(module), *name, *function;
    Py_ssize_t at = 0;
    while (PyDict_Next(dict, &at, &name, &function)) {
        if (!PyFunction_Check(function) || PyFunction_GET_GLOBALS(function) != dict) continue;
        int as_whole = kind_of_whole(name, PyFunction_GET_CODE(function));
        body_kind kind = as_whole >= 0 ? (body_kind)as_whole : is_bound(dict, name, function) ? bound : BODY_ALWAYS;
        if (kind != BODY_NEVER && add_body(PyFunction_GET_CODE(function), kind) < 0) return -1;
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
        body_kind kind = bound ? BODY_PLAIN : warns_caller(name) ? BODY_ALWAYS : BODY_NEVER;
        if (kind != BODY_NEVER && add_body(PyFunction_GET_CODE(function), kind) < 0) return -1;
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
        if (function && PyFunction_Check(function)) result = add_body(PyFunction_GET_CODE(function), BODY_ALWAYS);
        if (!function) PyErr_Clear(); /* not in this torch */
        Py_XDECREF(function);
    }
    return result;
}

/* Without gradients they call one operator for all of their forward where nobody overrides their operands: its result
 * has other strides than that of their steps, is NaN where all is masked, and no module within is called. */
static int add_forwards(void) {
    static const char *const names[] = {"MultiheadAttention", "TransformerEncoderLayer", "TransformerEncoder"};
    PyObject *nn = PyObject_GetAttrString(dycl_py.torch, "nn");
    int result = nn ? 0 : -1;
    for (size_t i = 0; i < sizeof names / sizeof *names && result == 0; i++) {
        PyObject *class = PyObject_GetAttrString(nn, names[i]);
        PyObject *forward = class ? PyObject_GetAttrString(class, "forward") : NULL;
        if (forward && PyFunction_Check(forward)) result = add_body(PyFunction_GET_CODE(forward), BODY_ALWAYS);
        Py_XDECREF(class);
        Py_XDECREF(forward);
    }
    Py_XDECREF(nn);
    return result;
}

static int add_all_bodies(void) {
    PyObject *neural = PyImport_ImportModule("torch.nn.functional"),
             *functional = PyImport_ImportModule("torch.functional"), *init = PyImport_ImportModule("torch.nn.init");
    int result = neural && functional && init ? 0 : -1;
    if (result == 0) result = add_bodies(neural, BODY_ALWAYS);
    if (result == 0) result = add_bodies(init, BODY_ALWAYS); /* they warn of what is empty, at the caller's line */
    if (result == 0) result = add_bodies(functional, BODY_NEVER);
    if (result == 0) result = add_methods();
    if (result == 0) result = add_plain();
    if (result == 0) result = add_forwards();
    Py_XDECREF(neural);
    Py_XDECREF(functional);
    Py_XDECREF(init);
    return result;
}

void dycl_overrides_setup(void) {
    if (add_all_bodies() == 0 && !PyErr_Occurred()) {
        original_has = dycl_wrap_function("_has_torch_function", METH_O, hook_has);
        original_has_unary = dycl_wrap_function("_has_torch_function_unary", METH_O, hook_has_unary);
        original_has_variadic = (dycl_function_of_array)(void (*)(void))dycl_wrap_function(
            "_has_torch_function_variadic", METH_FASTCALL, (PyCFunction)(void (*)(void))hook_has_variadic);
    }
    PyErr_Clear(); /* another torch: those functions are recorded as a whole */
}
