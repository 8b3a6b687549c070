#include "py/intercept/writers.h"

#include "py/intercept/uncounted.h"
#include "py/memory/constant.h"
#include "py/region/region.h"
#include "py/torch/wrap.h"

/* ---- apply_, map_ and the fused optimizers */

static PyCFunction original_apply;
static PyCFunctionWithKeywords original_map, original_map2, original_fused[5];

/* These call a function of the program for each element, which may do anything meanwhile: what they write is no
 * constant for a while. */
static PyObject *hook_apply(PyObject *self, PyObject *function) {
    if (dycl_let_out(self) < 0) return NULL;
    return original_apply(self, function);
}

static PyObject *hook_map(PyObject *self, PyObject *args, PyObject *kwargs) {
    if (dycl_let_out(self) < 0) return NULL;
    return original_map(self, args, kwargs);
}

static PyObject *hook_map2(PyObject *self, PyObject *args, PyObject *kwargs) {
    if (dycl_let_out(self) < 0) return NULL;
    return original_map2(self, args, kwargs);
}

/* fused(list of what is written, ...) */
static PyObject *fused(PyCFunctionWithKeywords original, PyObject *self, PyObject *args, PyObject *kwargs) {
    if (dycl_make_deferred() < 0) return NULL;
    PyObject *result = original(self, args, kwargs), *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *list = PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, 0)
                     : kwargs               ? PyDict_GetItemString(kwargs, "self")
                                            : NULL;
    for (Py_ssize_t i = 0; list && (PyList_Check(list) || PyTuple_Check(list)) && i < PySequence_Fast_GET_SIZE(list);
         i++)
        dycl_constant_renew(PySequence_Fast_GET_ITEM(list, i));
    PyErr_Restore(type, value, traceback);
    return result;
}

#define FUSED_HOOK(n)                                                                                                  \
    static PyObject *hook_fused##n(PyObject *self, PyObject *args, PyObject *kwargs) {                                 \
        return fused(original_fused[n], self, args, kwargs);                                                           \
    }
FUSED_HOOK(0)
FUSED_HOOK(1)
FUSED_HOOK(2)
FUSED_HOOK(3)
FUSED_HOOK(4)

static void watch_operators(void) {
    static const struct {
        const char *name;
        PyCFunctionWithKeywords hook;
    } functions[5] = {{"_VariableFunctions._fused_adam_", hook_fused0},
                      {"_VariableFunctions._fused_adamw_", hook_fused1},
                      {"_VariableFunctions._fused_sgd_", hook_fused2},
                      {"_VariableFunctions._fused_adagrad_", hook_fused3},
                      {"_VariableFunctions._amp_foreach_non_finite_check_and_unscale_", hook_fused4}};
    int keywords = METH_VARARGS | METH_KEYWORDS;
    for (int i = 0; i < 5; i++)
        original_fused[i] = DYCL_AS_KEYWORDS(
            dycl_wrap_function(functions[i].name, METH_STATIC | keywords, DYCL_AS_FUNCTION(functions[i].hook)));
    original_apply = dycl_wrap_method("apply_", METH_O, hook_apply);
    original_map = DYCL_AS_KEYWORDS(dycl_wrap_method("map_", keywords, DYCL_AS_FUNCTION(hook_map)));
    original_map2 = DYCL_AS_KEYWORDS(dycl_wrap_method("map2_", keywords, DYCL_AS_FUNCTION(hook_map2)));
}

/* ---- Parts with a counter of their own: what is written through them is not counted here. */

static PyCFunctionWithKeywords original_unsafe_method[3], original_unsafe_function[3];

static PyObject *unsafe_parts(PyCFunctionWithKeywords original, PyObject *of, PyObject *self, PyObject *args,
                              PyObject *kwargs) {
    if (of && dycl_is_tensor(of) && dycl_let_out(of) < 0) return NULL;
    return original(self, args, kwargs);
}

static PyObject *first_of(PyObject *args, PyObject *kwargs) { /* borrowed */
    if (PyTuple_GET_SIZE(args)) return PyTuple_GET_ITEM(args, 0);
    return kwargs ? PyDict_GetItemString(kwargs, "input") : NULL;
}

#define UNSAFE_HOOK(n)                                                                                                 \
    static PyObject *hook_unsafe_method##n(PyObject *self, PyObject *args, PyObject *kwargs) {                         \
        return unsafe_parts(original_unsafe_method[n], self, self, args, kwargs);                                      \
    }                                                                                                                  \
    static PyObject *hook_unsafe_function##n(PyObject *self, PyObject *args, PyObject *kwargs) {                       \
        PyObject *of = first_of(args, kwargs);                                                                         \
        return unsafe_parts(original_unsafe_function[n], of, self, args, kwargs);                                      \
    }
UNSAFE_HOOK(0)
UNSAFE_HOOK(1)
UNSAFE_HOOK(2)

static void watch_unsafe_parts(void) {
    static const struct {
        const char *method, *function;
        PyCFunctionWithKeywords of_method, of_function;
    } all[3] = {{"unsafe_chunk", "_VariableFunctions.unsafe_chunk", hook_unsafe_method0, hook_unsafe_function0},
                {"unsafe_split", "_VariableFunctions.unsafe_split", hook_unsafe_method1, hook_unsafe_function1},
                {"unsafe_split_with_sizes", "_VariableFunctions.unsafe_split_with_sizes", hook_unsafe_method2,
                 hook_unsafe_function2}};
    int keywords = METH_VARARGS | METH_KEYWORDS;
    for (int i = 0; i < 3; i++) {
        original_unsafe_method[i] =
            DYCL_AS_KEYWORDS(dycl_wrap_method(all[i].method, keywords, DYCL_AS_FUNCTION(all[i].of_method)));
        original_unsafe_function[i] = DYCL_AS_KEYWORDS(
            dycl_wrap_function(all[i].function, METH_STATIC | keywords, DYCL_AS_FUNCTION(all[i].of_function)));
    }
}

/* ---- A version counter that is put back: what was written meanwhile looks as if it were not */

static PyCFunctionWithKeywords original_set_counter;
static dycl_function_with_names original_set_counter_by_array; /* as the version of pybind11 has it */

static PyObject *renewed(PyObject *result, PyObject *of) {
    for (Py_ssize_t i = 0; result && of && PyTuple_Check(of) && i < PyTuple_GET_SIZE(of); i++)
        if (dycl_is_tensor(PyTuple_GET_ITEM(of, i))) dycl_constant_renew(PyTuple_GET_ITEM(of, i));
    return result;
}

/* (tensors, versions) */
static PyObject *hook_set_counter(PyObject *self, PyObject *args, PyObject *kwargs) {
    return renewed(original_set_counter(self, args, kwargs), PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, 0) : NULL);
}

static PyObject *hook_set_counter_by_array(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    return renewed(original_set_counter_by_array(self, args, count, names), count ? args[0] : NULL);
}

static void watch_counter(void) {
    const char *name = "_autograd._unsafe_set_version_counter";
    int keywords = METH_VARARGS | METH_KEYWORDS;
    original_set_counter = DYCL_AS_KEYWORDS(dycl_wrap_function(name, keywords, DYCL_AS_FUNCTION(hook_set_counter)));
    if (!original_set_counter)
        original_set_counter_by_array = (dycl_function_with_names)(void (*)(void))dycl_wrap_function(
            name, METH_FASTCALL | METH_KEYWORDS, DYCL_AS_FUNCTION(hook_set_counter_by_array));
}

void dycl_writers_watch(void) {
    watch_operators();
    watch_unsafe_parts();
    watch_counter();
}
