#include "py/intercept/bound.h"

#include <string.h>

#include "py/intercept/fallback.h"
#include "py/intercept/watch.h"
#include "py/region/region.h"
#include "py/torch/wrap.h"

/* ---- inference_mode(False) enables gradients, already when the object is made */

static int before_inference(void) {
    dycl_region *region = dycl_region_current;
    return region && !region->flushing && !dycl_abi_grad_enabled() ? dycl_region_enable_gradients(region) : 0;
}

/* ---- Functions that pybind11 made: which calling convention they have depends on its version, so on torch's */

static struct {
    dycl_function_with_names fast;
    PyCFunctionWithKeywords general;
} original_bound[7];

/* ---- Hooks on what is saved for the backward pass: what is saved must be what eager would save, in its order */

static int before_saved_hooks(void) {
    dycl_region *region = dycl_region_current;
    return region && region->may_track && !region->flushing ? dycl_region_meet_gradient(region) : 0;
}

#define BOUND_HOOK(n, before)                                                                                          \
    static PyObject *hook_fast##n(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *kwnames) {        \
        return before() < 0 ? NULL : original_bound[n].fast(self, args, count, kwnames);                               \
    }                                                                                                                  \
    static PyObject *hook_general##n(PyObject *self, PyObject *args, PyObject *kwargs) {                               \
        return before() < 0 ? NULL : original_bound[n].general(self, args, kwargs);                                    \
    }
BOUND_HOOK(0, dycl_watch_before_trace)
BOUND_HOOK(1, dycl_watch_before_trace)
BOUND_HOOK(2, dycl_watch_before_trace)
BOUND_HOOK(3, dycl_watch_before_trace)
BOUND_HOOK(4, before_inference)
BOUND_HOOK(5, before_saved_hooks)

/* ---- What is saved by hand (checkpointing) is looked at in C++, and comes back as the same object */

static int make_plain(PyObject *const *args, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++)
        if (dycl_is_lazy(args[i]) && dycl_region_make_plain(args[i], DYCL_BAIL_grad) < 0) return -1;
    return 0;
}

static PyObject *save_fast(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *kwnames) {
    if (make_plain(args, count + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0)) < 0) return NULL;
    return original_bound[6].fast(self, args, count, kwnames);
}

static PyObject *save_general(PyObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *name, *value;
    Py_ssize_t at = 0;
    if (make_plain(&PyTuple_GET_ITEM(args, 0), PyTuple_GET_SIZE(args)) < 0) return NULL;
    while (kwargs && PyDict_Next(kwargs, &at, &name, &value))
        if (make_plain(&value, 1) < 0) return NULL;
    return original_bound[6].general(self, args, kwargs);
}

static int watch_settings(void) {
    static const struct {
        const char *name;
        dycl_function_with_names fast;
        PyCFunctionWithKeywords general;
    } rows[7] = {{"_create_function_from_trace", hook_fast0, hook_general0},
                 {"_create_function_from_trace_with_dict", hook_fast1, hook_general1},
                 {"ScriptModule._create_method_from_trace", hook_fast2, hook_general2},
                 {"ScriptModule._create_method_from_trace_with_dict", hook_fast3, hook_general3},
                 {"_InferenceMode.__init__", hook_fast4, hook_general4},
                 {"_autograd._push_saved_tensors_default_hooks", hook_fast5, hook_general5},
                 {"_autograd._make_saved_tensor", save_fast, save_general}};
    for (int i = 0; i < 7; i++) {
        original_bound[i].fast = (dycl_function_with_names)(void (*)(void))dycl_wrap_function(
            rows[i].name, METH_FASTCALL | METH_KEYWORDS, DYCL_AS_FUNCTION(rows[i].fast));
        if (original_bound[i].fast) continue;
        original_bound[i].general = DYCL_AS_KEYWORDS(
            dycl_wrap_function(rows[i].name, METH_VARARGS | METH_KEYWORDS, DYCL_AS_FUNCTION(rows[i].general)));
        if (!original_bound[i].general) return dycl_torch_lacks(rows[i].name);
    }
    return 0;
}

/* ---- Whole classes of which each method may write what it is given, or look at its history: compiled TorchScript, and
 * what torch.distributed sends, receives and reduces. Their methods have one C function in common. */

static dycl_function_with_names dispatcher;
static PyCFunctionWithKeywords general_dispatcher;

static int before_foreign_code(PyObject *const *args, Py_ssize_t count) {
    dycl_region *region = dycl_region_current;
    return region ? dycl_fallback_prepare(region, args, count, "torch.distributed", DYCL_BAIL_foreign) : 0;
}

static PyObject *hook_method(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *kwnames) {
    Py_ssize_t total = count + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    return before_foreign_code(args, total) < 0 ? NULL : dispatcher(self, args, count, kwnames);
}

static PyObject *hook_general_method(PyObject *self, PyObject *args, PyObject *kwargs) {
    if (before_foreign_code(&PyTuple_GET_ITEM(args, 0), PyTuple_GET_SIZE(args)) < 0) return NULL;
    if (kwargs && before_foreign_code(&kwargs, 1) < 0) return NULL;
    return general_dispatcher(self, args, kwargs);
}

static void watch_method(PyObject *method) {
    if (!PyInstanceMethod_Check(method)) return;
    PyObject *function = PyInstanceMethod_GET_FUNCTION(method);
    if (!PyCFunction_CheckExact(function)) return;
    PyMethodDef *def = ((PyCFunctionObject *)function)->m_ml;
    PyCFunction original = def->ml_meth;
    if (def->ml_flags == (METH_FASTCALL | METH_KEYWORDS)) {
        if (!dispatcher) dispatcher = (dycl_function_with_names)(void (*)(void))original;
        if (original == DYCL_AS_FUNCTION(dispatcher)) def->ml_meth = DYCL_AS_FUNCTION(hook_method);
    } else if (def->ml_flags == (METH_VARARGS | METH_KEYWORDS)) {
        if (!general_dispatcher) general_dispatcher = DYCL_AS_KEYWORDS(original);
        if (original == DYCL_AS_FUNCTION(general_dispatcher)) def->ml_meth = DYCL_AS_FUNCTION(hook_general_method);
    }
}

/* Its methods, without those that Python calls on its own. */
static void watch_class(const char *path, const char *only) {
    PyObject *class = dycl_torch_c(path), *name, *method;
    Py_ssize_t at = 0;
    if (class && PyType_Check(class))
        while (PyDict_Next(((PyTypeObject *)class)->tp_dict, &at, &name, &method)) {
            const char *text = PyUnicode_AsUTF8(name);
            if (text && (only ? !strcmp(text, only) : text[0] != '_' || text[1] != '_')) watch_method(method);
        }
    Py_XDECREF(class);
    PyErr_Clear();
}

int dycl_bound_watch(void) {
    if (watch_settings() < 0) return -1;
    watch_class("ScriptMethod", "__call__");
    watch_class("ScriptFunction", "__call__");
    watch_class("_distributed_c10d.ProcessGroup", NULL);
    watch_class("_distributed_c10d.Backend", NULL);
    watch_class("_distributed_c10d.ProcessGroupGloo", NULL);
    watch_class("_distributed_c10d.Reducer", NULL);
    return 0;
}
