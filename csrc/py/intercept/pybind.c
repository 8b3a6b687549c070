#include "py/intercept/pybind.h"

#include <string.h>

#include "py/intercept/fallback.h"
#include "py/region/region.h"
#include "py/torch/wrap.h"

/* 0, or -1 with an exception. */
static int prepare(PyObject *const *args, Py_ssize_t count) {
    dycl_region *region = dycl_region_current;
    if (region && region->flushing == PyThread_get_thread_ident()) return 0; /* called for us */
    for (Py_ssize_t i = 0; i < count; i++)
        if (dycl_fallback_concerns(region, args[i]))
            return dycl_fallback_prepare(region, args, count, "torch._C", DYCL_BAIL_foreign);
    return 0;
}

/* Runs code that may write what nobody gave it, too. */
static int prepare_always(PyObject *const *args, Py_ssize_t count) {
    dycl_region *region = dycl_region_current;
    return region ? dycl_fallback_prepare(region, args, count, "torch.distributed", DYCL_BAIL_foreign) : 0;
}

/* Before a call with a tuple and a dict of arguments. */
static int both(int (*before)(PyObject *const *, Py_ssize_t), PyObject *args, PyObject *kwargs) {
    if (before(&PyTuple_GET_ITEM(args, 0), PyTuple_GET_SIZE(args)) < 0) return -1;
    return kwargs ? before(&kwargs, 1) : 0;
}

/* ---- What pybind11 made: one C function for all, of the calling convention that its version has */

static dycl_function_with_names dispatcher;
static PyCFunctionWithKeywords general_dispatcher;

typedef struct {
    dycl_function_with_names fast;
    PyCFunctionWithKeywords general;
} hooks;

#define HOOKS(name, before)                                                                                            \
    static PyObject *name##_fast(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *kwnames) {         \
        Py_ssize_t total = count + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);                                          \
        return before(args, total) < 0 ? NULL : dispatcher(self, args, count, kwnames);                                \
    }                                                                                                                  \
    static PyObject *name##_general(PyObject *self, PyObject *args, PyObject *kwargs) {                                \
        return both(before, args, kwargs) < 0 ? NULL : general_dispatcher(self, args, kwargs);                         \
    }                                                                                                                  \
    static const hooks name = {name##_fast, name##_general};
HOOKS(given, prepare)
HOOKS(foreign, prepare_always)

static PyMethodDef *definition_of(PyObject *function) {
    return function && PyCFunction_CheckExact(function) ? ((PyCFunctionObject *)function)->m_ml : NULL;
}

/* From what is known to be pybind11's. */
static void learn_dispatcher(PyObject *function) {
    const PyMethodDef *def = definition_of(function);
    if (!def) return;
    if (def->ml_flags == (METH_FASTCALL | METH_KEYWORDS) && !dispatcher)
        dispatcher = (dycl_function_with_names)(void (*)(void))def->ml_meth;
    else if (def->ml_flags == (METH_VARARGS | METH_KEYWORDS) && !general_dispatcher)
        general_dispatcher = DYCL_AS_KEYWORDS(def->ml_meth);
}

static void watch_bound(PyObject *function, const hooks *with) {
    PyMethodDef *def = definition_of(function);
    if (def && dispatcher && def->ml_meth == DYCL_AS_FUNCTION(dispatcher)) def->ml_meth = DYCL_AS_FUNCTION(with->fast);
    if (def && general_dispatcher && def->ml_meth == DYCL_AS_FUNCTION(general_dispatcher))
        def->ml_meth = DYCL_AS_FUNCTION(with->general);
}

/* Who replaces __call__ by a Python function (torch.testing) keeps what was there beside it. */
static void watch_replaced(PyObject *function) {
    PyObject *name, *kept;
    Py_ssize_t at = 0;
    while (PyDict_Next(PyFunction_GET_GLOBALS(function), &at, &name, &kept)) {
        PyObject *call = PyInstanceMethod_Check(kept) ? PyInstanceMethod_GET_FUNCTION(kept) : NULL;
        const PyMethodDef *def = definition_of(call);
        if (def && strcmp(def->ml_name, "__call__") == 0) watch_bound(call, &foreign);
    }
}

/* Each method may write what it is given, or look at its history: compiled TorchScript, and what torch.distributed
 * sends, receives and reduces. Not those that Python calls on its own. */
static void watch_foreign(const char *path, const char *only) {
    PyObject *class = dycl_torch_c(path), *name, *method;
    Py_ssize_t at = 0;
    if (class && PyType_Check(class))
        while (PyDict_Next(((PyTypeObject *)class)->tp_dict, &at, &name, &method)) {
            const char *text = PyUnicode_AsUTF8(name);
            if (!text || (only ? strcmp(text, only) != 0 : text[0] == '_' && text[1] == '_')) continue;
            if (PyFunction_Check(method)) watch_replaced(method);
            if (!PyInstanceMethod_Check(method)) continue;
            learn_dispatcher(PyInstanceMethod_GET_FUNCTION(method));
            watch_bound(PyInstanceMethod_GET_FUNCTION(method), &foreign);
        }
    Py_XDECREF(class);
    PyErr_Clear();
}

/* Methods, static ones and what makes an object, too. */
static void watch_class(PyTypeObject *class) {
    PyObject *name, *method;
    Py_ssize_t at = 0;
    while (class->tp_dict && PyDict_Next(class->tp_dict, &at, &name, &method)) {
        if (PyInstanceMethod_Check(method)) {
            watch_bound(PyInstanceMethod_GET_FUNCTION(method), &given);
        } else if (Py_TYPE(method) == &PyStaticMethod_Type) {
            PyObject *function = PyObject_GetAttrString(method, "__func__");
            watch_bound(function, &given);
            Py_XDECREF(function);
            PyErr_Clear();
        }
    }
}

/* At no more than dtypes, and classes that no lazy tensor has. */
static int only_looks(const char *name) {
    return !strncmp(name, "is_", 3) || !strcmp(name, "_group_tensors_by_device_and_dtype");
}

static int watch_module(const char *path) {
    PyObject *module = dycl_torch_c(path), *dict = module && PyModule_Check(module) ? PyModule_GetDict(module) : NULL;
    PyObject *name, *function;
    Py_ssize_t at = 0;
    while (dict && PyDict_Next(dict, &at, &name, &function)) {
        const char *text = PyUnicode_AsUTF8(name);
        if (PyType_Check(function))
            watch_class((PyTypeObject *)function);
        else if (text && !only_looks(text))
            watch_bound(function, &given);
    }
    Py_XDECREF(module);
    return dict ? 0 : dycl_torch_lacks(path);
}

static int watch_modules(void) {
    PyObject *one = dycl_torch_c("_functorch._add_batch_dim");
    learn_dispatcher(one);
    Py_XDECREF(one);
    if (!dispatcher && !general_dispatcher) return dycl_torch_lacks("torch._C._functorch._add_batch_dim");
    watch_foreign("ScriptMethod", "__call__");
    watch_foreign("ScriptFunction", "__call__");
    watch_foreign("_distributed_c10d.ProcessGroup", NULL);
    watch_foreign("_distributed_c10d.Backend", NULL);
    watch_foreign("_distributed_c10d.ProcessGroupGloo", NULL);
    watch_foreign("_distributed_c10d.Reducer", NULL);
    if (watch_module("_distributed_c10d") < 0) PyErr_Clear(); /* a build without it */
    return watch_module("") < 0 || watch_module("_functorch") < 0 || watch_module("_autograd") < 0 ? -1 : 0;
}

/* ---- Others, by themselves */

static PyCFunction original_increment, original_swap, original_set_state, original_restore, original_reverse;
static PyCFunctionWithKeywords original_view[2], original_range;

/* tensors: any iterable, which may be read once only. */
static PyObject *hook_increment(PyObject *self, PyObject *tensors) {
    PyObject *all = PySequence_Tuple(tensors);
    if (!all) { /* torch's to refuse */
        PyErr_Clear();
        return original_increment(self, tensors);
    }
    PyObject *result = prepare(&all, 1) < 0 ? NULL : original_increment(self, all);
    Py_DECREF(all);
    return result;
}

static PyObject *hook_swap(PyObject *self, PyObject *args) {
    if (dycl_lazy_swaps) return original_swap(self, args);
    if (prepare(&args, 1) < 0) return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++) {
        PyObject *o = PyTuple_GET_ITEM(args, i);
        if (PyObject_TypeCheck(o, dycl_py.tensor_type) && dycl_region_free_memory(o) < 0) return NULL;
    }
    return original_swap(self, args);
}

/* A generator's state is read from its memory, with no look at what has none. */
static PyObject *hook_set_state(PyObject *self, PyObject *state) {
    return prepare(&state, 1) < 0 ? NULL : original_set_state(self, state);
}

static PyObject *hook_restore(PyObject *self, PyObject *state) {
    return prepare(&state, 1) < 0 ? NULL : original_restore(self, state);
}

/* The one function that makes a tensor, writes `out` and asks no mode. */
static PyObject *hook_range(PyObject *self, PyObject *args, PyObject *kwargs) {
    return both(prepare_always, args, kwargs) < 0 ? NULL : original_range(self, args, kwargs);
}

static PyObject *view_again(int which, PyObject *self, PyObject *args, PyObject *kwargs) {
    if (prepare(&self, 1) < 0 || both(prepare, args, kwargs) < 0) return NULL;
    return original_view[which](self, args, kwargs);
}

static PyObject *hook_view0(PyObject *self, PyObject *args, PyObject *kwargs) {
    return view_again(0, self, args, kwargs);
}

static PyObject *hook_view1(PyObject *self, PyObject *args, PyObject *kwargs) {
    return view_again(1, self, args, kwargs);
}

static PyObject *hook_reverse(PyObject *self, PyObject *view) {
    return prepare(&self, 1) < 0 || prepare(&view, 1) < 0 ? NULL : original_reverse(self, view);
}

static void watch_others(void) {
    int keywords = METH_VARARGS | METH_KEYWORDS;
    original_increment = dycl_wrap_function("_increment_version", METH_O, hook_increment);
    original_swap = dycl_wrap_function("_swap_tensor_impl", METH_VARARGS, hook_swap);
    original_set_state = dycl_wrap_function("Generator.set_state", METH_O, hook_set_state);
    original_restore = dycl_wrap_function("Generator.__setstate__", METH_O, hook_restore);
    original_range = DYCL_AS_KEYWORDS(
        dycl_wrap_function("_VariableFunctions.range", METH_STATIC | keywords, DYCL_AS_FUNCTION(hook_range)));
    original_view[0] = DYCL_AS_KEYWORDS(dycl_wrap_method("_view_func", keywords, DYCL_AS_FUNCTION(hook_view0)));
    original_view[1] = DYCL_AS_KEYWORDS(dycl_wrap_method("_view_func_unsafe", keywords, DYCL_AS_FUNCTION(hook_view1)));
    original_reverse = dycl_wrap_method("_rev_view_func_unsafe", METH_O, hook_reverse);
}

/* ---- Nodes of torch's own that are called, as torch.autograd.gradcheck calls UndefinedGrad */

static ternaryfunc original_call_node;

static PyObject *call_node(PyObject *self, PyObject *args, PyObject *kwargs) {
    return both(prepare, args, kwargs) < 0 ? NULL : original_call_node(self, args, kwargs);
}

static void watch_nodes(void) {
    PyObject *module = dycl_torch_c("_functions"), *name, *type;
    PyObject *one = module ? PyObject_GetAttrString(module, "UndefinedGrad") : NULL;
    Py_ssize_t at = 0;
    PyErr_Clear();
    original_call_node = one && PyType_Check(one) ? ((PyTypeObject *)one)->tp_call : NULL;
    while (original_call_node && PyDict_Next(PyModule_GetDict(module), &at, &name, &type))
        if (PyType_Check(type) && ((PyTypeObject *)type)->tp_call == original_call_node)
            ((PyTypeObject *)type)->tp_call = call_node;
    Py_XDECREF(one);
    Py_XDECREF(module);
}

/* ---- torch._C.DisableTorchFunction: nobody is asked, modes neither, until it is left */

static PyCFunction original_silence, original_end_silence;

static PyObject *hook_silence(PyObject *self, PyObject *unused) {
    dycl_region *region = dycl_region_current;
    if (region && region->flushing != PyThread_get_thread_ident() && dycl_region_meet_silence(region) < 0) return NULL;
    return original_silence(self, unused);
}

static PyObject *hook_end_silence(PyObject *self, PyObject *unused) {
    PyObject *result = original_end_silence(self, unused);
    if (dycl_region_current && dycl_abi_torch_function_is_on()) dycl_region_current->closed &= ~DYCL_CLOSED_SILENCE;
    return result;
}

static int watch_silence(void) {
    original_silence = dycl_wrap_function("DisableTorchFunction.__enter__", METH_NOARGS, hook_silence);
    if (!original_silence) return dycl_torch_lacks("torch._C.DisableTorchFunction");
    original_end_silence = dycl_wrap_function("DisableTorchFunction.__exit__", METH_VARARGS, hook_end_silence);
    return original_end_silence ? 0 : dycl_torch_lacks("torch._C.DisableTorchFunction.__exit__");
}

int dycl_pybind_watch(void) {
    if (watch_modules() < 0 || watch_silence() < 0) return -1;
    watch_others();
    watch_nodes();
    return 0;
}
