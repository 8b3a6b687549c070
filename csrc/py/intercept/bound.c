#include "py/intercept/bound.h"

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

int dycl_bound_watch(void) {
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
