#include "py/intercept/watch.h"

#include <stdio.h>
#include <string.h>

#include "py/intercept/bound.h"
#include "py/intercept/fallback.h"
#include "py/intercept/pybind.h"
#include "py/intercept/uncounted.h"
#include "py/intercept/writers.h"
#include "py/memory/constant.h"
#include "py/memory/foreign.h"
#include "py/region/ahead.h"
#include "py/torch/wrap.h"

/* ---- Tensor.set_ */

static PyCFunctionWithKeywords original_set;

static PyObject *hook_set(PyObject *self, PyObject *args, PyObject *kwargs) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++)
        dycl_constant_expose(PyTuple_GET_ITEM(args, i), 0); /* one memory under two versions */
    dycl_region *region = dycl_region_current;
    if (region || dycl_is_lazy(self)) {
        if (dycl_fallback_prepare(region, &self, 1, "set_", DYCL_BAIL_alias) < 0) return NULL;
        if (dycl_fallback_prepare(NULL, ((PyTupleObject *)args)->ob_item, PyTuple_GET_SIZE(args), "set_",
                                  DYCL_BAIL_alias) < 0)
            return NULL;
        if (kwargs && dycl_fallback_prepare(NULL, &kwargs, 1, "set_", DYCL_BAIL_alias) < 0) return NULL;
    }
    if (dycl_region_free_memory(self) < 0) return NULL;
    PyObject *result = original_set(self, args, kwargs);
    return result && dycl_note_storages(result, args) < 0 ? (Py_DECREF(result), NULL) : result;
}

/* ---- Constructors of tensor classes (nn.Parameter asks for the exact type of what it is given), and what reinterprets
 * an object */

static ternaryfunc original_construct[3];
static PyTypeObject *metaclasses[3];
static PyCFunctionWithKeywords original_as_subclass, original_make_subclass;

static int make_arguments_plain(PyObject *args, PyObject *kwargs, const char *name) {
    if (!dycl_region_current) return 0;
    if (dycl_fallback_prepare(NULL, ((PyTupleObject *)args)->ob_item, PyTuple_GET_SIZE(args), name,
                              DYCL_BAIL_subclass) < 0)
        return -1;
    return kwargs ? dycl_fallback_prepare(NULL, &kwargs, 1, name, DYCL_BAIL_subclass) : 0;
}

static PyObject *construct(PyObject *cls, PyObject *args, PyObject *kwargs) {
    if (make_arguments_plain(args, kwargs, "__new__") < 0) return NULL;
    ternaryfunc make = PyType_Type.tp_call; /* of a metaclass of the program's own */
    for (int i = 0; i < 3; i++)
        if (Py_TYPE(cls) == metaclasses[i]) make = original_construct[i];
    PyObject *made = make(cls, args, kwargs);
    int is_tensor = made && dycl_is_tensor(made) && !dycl_is_lazy(made);
    return is_tensor && dycl_note_storages(made, args) < 0 ? (Py_DECREF(made), NULL) : made;
}

/* What the program takes for torch.Tensor, type(x) of a lazy x, is that to torch too: made such an object would belong
 * to no region. */
static PyObject *with_class(PyCFunctionWithKeywords function, PyObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *lazy = (PyObject *)dycl_py.lazy_type, *tensor = (PyObject *)dycl_py.tensor_type;
    PyObject *named = kwargs ? PyDict_GetItemString(kwargs, "cls") : NULL, *result = NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(args);
    if (named != lazy && (!n || PyTuple_GET_ITEM(args, 0) != lazy)) return function(self, args, kwargs);
    PyObject *given = PyTuple_New(n), *names = kwargs ? PyDict_Copy(kwargs) : NULL;
    for (Py_ssize_t i = 0; given && i < n; i++) {
        PyObject *o = PyTuple_GET_ITEM(args, i);
        PyTuple_SET_ITEM(given, i, Py_NewRef(i == 0 && o == lazy ? tensor : o));
    }
    if (given && (!kwargs || names) && (named != lazy || PyDict_SetItemString(names, "cls", tensor) == 0))
        result = function(self, given, names);
    Py_XDECREF(given);
    Py_XDECREF(names);
    return result;
}

static PyObject *hook_as_subclass(PyObject *self, PyObject *args, PyObject *kwargs) {
    if (dycl_is_lazy(self) && dycl_fallback_prepare(NULL, &self, 1, "as_subclass", DYCL_BAIL_subclass) < 0) return NULL;
    return with_class(original_as_subclass, self, args, kwargs);
}

static PyObject *hook_make_subclass(PyObject *self, PyObject *args, PyObject *kwargs) {
    if (make_arguments_plain(args, kwargs, "_make_subclass") < 0) return NULL;
    return with_class(original_make_subclass, self, args, kwargs);
}

static void watch_metaclass(int at, PyTypeObject *cls) {
    PyTypeObject *meta = cls ? Py_TYPE(cls) : NULL;
    if (!meta || !meta->tp_call) return;
    for (int i = 0; i < at; i++)
        if (metaclasses[i] == meta) return;
    metaclasses[at] = meta;
    original_construct[at] = meta->tp_call == construct ? PyType_Type.tp_call : meta->tp_call;
    meta->tp_call = construct;
}

/* ---- autograd.Function: C++ gives the results their history, so they must be plain */

static PyCFunctionWithKeywords original_apply;

static int names_it(PyObject *function, PyObject *name) {
    for (int depth = 0; function && depth < 8; depth++) {
        if (!PyFunction_Check(function)) return 1; /* nobody knows */
        PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(function);
        if (PySequence_Contains(code->co_names, name)) return 1;
        function = ((PyFunctionObject *)function)->func_dict
                       ? PyDict_GetItemString(((PyFunctionObject *)function)->func_dict, "__wrapped__")
                       : NULL;
    }
    return 0;
}

/* Without gradients its steps are recorded as any. But C++ counts what it marks as written, and looks at its inputs as
 * they were before. */
static int marks_dirty(PyObject *cls) {
    static const char *const parts[] = {"forward", "setup_context"};
    PyObject *name = PyUnicode_InternFromString("mark_dirty");
    int found = 0;
    for (int i = 0; i < 2 && name && !found; i++) {
        PyObject *part = PyObject_GetAttrString(cls, parts[i]);
        if (part) found = names_it(part, name);
        Py_XDECREF(part);
    }
    Py_XDECREF(name);
    PyErr_Clear();
    return found;
}

static PyObject *hook_apply(PyObject *cls, PyObject *args, PyObject *kwargs) {
    dycl_region *region = dycl_region_current;
    if (!region) return original_apply(cls, args, kwargs);
    if (!dycl_abi_grad_enabled()) {
        if (marks_dirty(cls) && make_arguments_plain(args, kwargs, "apply") < 0) return NULL;
        return original_apply(cls, args, kwargs);
    }
    if (region->flushing == PyThread_get_thread_ident()) return original_apply(cls, args, kwargs); /* our own node */
    if (make_arguments_plain(args, kwargs, "apply") < 0 || dycl_region_flush(region, DYCL_BAIL_grad) < 0) return NULL;
    int before = region->closed & DYCL_CLOSED_AUTOGRAD;
    region->closed |= DYCL_CLOSED_AUTOGRAD;
    PyObject *result = original_apply(cls, args, kwargs);
    if (!before) region->closed &= ~DYCL_CLOSED_AUTOGRAD;
    return result;
}

/* ---- torch.compile and torch.jit.trace inside a region: they look at the mode stack, and hold tensors in their own
 * ways */

static PyCFunction original_set_eval_frame;

int dycl_watch_before_trace(void) {
    return dycl_region_current ? dycl_region_step_aside(dycl_region_current, DYCL_BAIL_mode) : 0;
}

static PyObject *hook_set_eval_frame(PyObject *self, PyObject *callback) {
    if (callback != Py_None && callback != Py_False && dycl_watch_before_trace() < 0) return NULL;
    return original_set_eval_frame(self, callback);
}

/* ---- Forward-mode differentiation: what is recorded carries no tangents */

static PyCFunction original_enter_dual;
static PyCFunctionWithKeywords original_exit_dual;
static int dual_levels; /* of the process, as torch counts them */

int dycl_watch_dual(void) { return dual_levels > 0; }

static PyObject *hook_enter_dual(PyObject *self, PyObject *unused) {
    dycl_region *region = dycl_region_current;
    if (region && dycl_region_records(region) && dycl_region_meet_mode(region) < 0) return NULL;
    PyObject *level = original_enter_dual(self, unused);
    if (level) dual_levels++;
    return level;
}

static PyObject *hook_exit_dual(PyObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *done = original_exit_dual(self, args, kwargs);
    if (done && dual_levels) dual_levels--;
    return done;
}

static int watch_dual(void) {
    PyObject *module = PyImport_ImportModule("torch.autograd.forward_ad");
    PyObject *level = module ? PyObject_GetAttrString(module, "_current_level") : NULL;
    Py_XDECREF(module);
    dual_levels = level ? (int)PyLong_AsLong(level) + 1 : 0;
    Py_XDECREF(level);
    PyErr_Clear();
    original_enter_dual = dycl_wrap_function("_enter_dual_level", METH_NOARGS, hook_enter_dual);
    if (!original_enter_dual) return dycl_torch_lacks("torch._C._enter_dual_level");
    original_exit_dual = DYCL_AS_KEYWORDS(
        dycl_wrap_function("_exit_dual_level", METH_VARARGS | METH_KEYWORDS, DYCL_AS_FUNCTION(hook_exit_dual)));
    return original_exit_dual ? 0 : dycl_torch_lacks("torch._C._exit_dual_level");
}

/* ---- DLPack
 * Unlike numpy(), an export leaves no mark on the storage. */

static PyCFunctionWithKeywords original_dlpack, original_dlpack_versioned;

static int note_export(PyObject *args) {
    PyObject *tensor = PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, 0) : NULL;
    if (!tensor || !PyObject_TypeCheck(tensor, dycl_py.tensor_type)) return 0;
    if ((dycl_region_current || dycl_is_lazy(tensor)) &&
        dycl_fallback_prepare(dycl_region_current, &tensor, 1, "__dlpack__", DYCL_BAIL_foreign) < 0)
        return -1;
    const char *impl = dycl_abi_impl(tensor);
    if (!dycl_abi_is_plain(impl)) return 0;
    if (dycl_foreign_note(tensor, DYCL_FOREIGN_EXPORTED) < 0) return -1;
    dycl_constant_expose(tensor, 1);
    return 0;
}

static PyObject *hook_dlpack(PyObject *self, PyObject *args, PyObject *kwargs) {
    return note_export(args) < 0 ? NULL : original_dlpack(self, args, kwargs);
}

static PyObject *hook_dlpack_versioned(PyObject *self, PyObject *args, PyObject *kwargs) {
    return note_export(args) < 0 ? NULL : original_dlpack_versioned(self, args, kwargs);
}

/* 0, or -1 with an exception. */
static int compute_before_mode(void) {
    return dycl_region_current ? dycl_region_flush(dycl_region_current, DYCL_BAIL_mode) : 0;
}

/* ---- Which kernels attention may choose from: its strides, errors and warnings depend on it */

static const char *const attention_kernels[] = {"flash", "math"}; /* those of a CPU */
static PyCFunction original_use[2];

/* 0, or -1 with an exception. */
static int look_at_kernels(void) {
    int all = 1;
    for (int i = 0; i < 2 && all >= 0; i++) {
        char path[64];
        snprintf(path, sizeof path, "_get_%s_sdp_enabled", attention_kernels[i]);
        PyObject *ask = dycl_torch_c(path), *on = ask ? PyObject_CallNoArgs(ask) : NULL;
        if (PyErr_Occurred())
            all = -1;
        else if (on)
            all &= on == Py_True;
        Py_XDECREF(ask);
        Py_XDECREF(on);
    }
    dycl_py.attention_chosen = all == 0;
    return all < 0 ? -1 : 0;
}

static PyObject *use_kernel(int which, PyObject *self, PyObject *on) {
    if (compute_before_mode() < 0) return NULL;
    PyObject *result = original_use[which](self, on);
    if (result && look_at_kernels() < 0) Py_CLEAR(result);
    return result;
}

static PyObject *hook_use_flash(PyObject *self, PyObject *on) { return use_kernel(0, self, on); }
static PyObject *hook_use_math(PyObject *self, PyObject *on) { return use_kernel(1, self, on); }

static int watch_kernels(void) {
    original_use[0] = dycl_wrap_function("_set_sdp_use_flash", METH_O, hook_use_flash);
    original_use[1] = dycl_wrap_function("_set_sdp_use_math", METH_O, hook_use_math);
    return original_use[0] && original_use[1] ? look_at_kernels() : dycl_torch_lacks("torch._C._set_sdp_use_flash");
}

/* ---- The default dtype: what is recorded depends on it */

static PyCFunction original_default[2]; /* of a dtype, of a type of tensors */

static PyObject *set_default(int which, PyObject *self, PyObject *type) {
    if (compute_before_mode() < 0) return NULL;
    PyObject *result = original_default[which](self, type);
    if (result && dycl_region_current) {
        int *closed = &dycl_region_current->closed;
        *closed = dycl_py_ask_default_dtype() ? *closed & ~DYCL_CLOSED_DTYPE : *closed | DYCL_CLOSED_DTYPE;
    }
    return result;
}

static PyObject *hook_default_dtype(PyObject *self, PyObject *dtype) { return set_default(0, self, dtype); }
static PyObject *hook_default_type(PyObject *self, PyObject *type) { return set_default(1, self, type); }

static int watch_default_dtype(void) {
    original_default[0] = dycl_wrap_function("_set_default_dtype", METH_O, hook_default_dtype);
    original_default[1] = dycl_wrap_function("_set_default_tensor_type", METH_O, hook_default_type); /* deprecated */
    return original_default[0] ? 0 : dycl_torch_lacks("torch._C._set_default_dtype");
}

/* ---- Anomaly mode: nodes that are made while it is on know the line of the program that made them */

static PyCFunctionWithKeywords original_set_anomaly;

static PyObject *hook_set_anomaly(PyObject *self, PyObject *args, PyObject *kwargs) {
    if (compute_before_mode() < 0) return NULL;
    PyObject *result = original_set_anomaly(self, args, kwargs);
    int on = result && dycl_region_current ? dycl_py_anomaly() : 0;
    if (on < 0) Py_CLEAR(result);
    if (result && dycl_region_current) {
        int *closed = &dycl_region_current->closed;
        *closed = on ? *closed | DYCL_CLOSED_ANOMALY : *closed & ~DYCL_CLOSED_ANOMALY;
    }
    return result;
}

/* ---- Denormals: what is recorded is computed as they are treated where it is called */

static PyCFunction original_flush_denormal;

static PyObject *hook_flush_denormal(PyObject *self, PyObject *on) {
    if (compute_before_mode() < 0) return NULL;
    PyObject *result = original_flush_denormal(self, on);
    if (dycl_region_current) dycl_region_ahead_drop(dycl_region_current); /* it runs as before */
    return result;
}

/* ---- Dispatch modes of the program: what was recorded before one is entered is computed before, since torch's Python
 * functions that a flush calls (detach among them) look for modes on their own, whatever the dispatch keys say */

static PyCFunction original_push_dispatch, original_set_dispatch;

static PyObject *hook_push_dispatch(PyObject *self, PyObject *mode) {
    return compute_before_mode() < 0 ? NULL : original_push_dispatch(self, mode);
}

static PyObject *hook_set_dispatch(PyObject *self, PyObject *mode) {
    return compute_before_mode() < 0 ? NULL : original_set_dispatch(self, mode);
}

static int watch_dispatch_modes(void) {
    original_push_dispatch = dycl_wrap_function("_push_on_torch_dispatch_stack", METH_O, hook_push_dispatch);
    if (!original_push_dispatch) return dycl_torch_lacks("torch._C._push_on_torch_dispatch_stack");
    original_set_dispatch = dycl_wrap_function("_set_dispatch_mode", METH_O, hook_set_dispatch);
    return original_set_dispatch ? 0 : dycl_torch_lacks("torch._C._set_dispatch_mode");
}

int dycl_watch_setup(void) {
    int keywords = METH_VARARGS | METH_KEYWORDS;
    watch_metaclass(0, dycl_py.tensor_type);
    watch_metaclass(1, dycl_py.parameter_type);
    watch_metaclass(2, dycl_py.buffer_type);
    original_as_subclass =
        DYCL_AS_KEYWORDS(dycl_wrap_method("as_subclass", keywords, DYCL_AS_FUNCTION(hook_as_subclass)));
    if (!original_as_subclass) return dycl_torch_lacks("Tensor.as_subclass");
    original_make_subclass = DYCL_AS_KEYWORDS(
        dycl_wrap_method("_make_subclass", keywords | METH_STATIC, DYCL_AS_FUNCTION(hook_make_subclass)));
    if (!original_make_subclass) return dycl_torch_lacks("Tensor._make_subclass");
    original_set = DYCL_AS_KEYWORDS(dycl_wrap_method("set_", keywords, DYCL_AS_FUNCTION(hook_set)));
    if (!original_set) return dycl_torch_lacks("Tensor.set_");
    original_apply = DYCL_AS_KEYWORDS(
        dycl_wrap_function("_FunctionBase.apply", METH_CLASS | keywords, DYCL_AS_FUNCTION(hook_apply)));
    if (!original_apply)
        original_apply = DYCL_AS_KEYWORDS(
            dycl_wrap_function("_FunctionBase.apply", METH_CLASS | METH_VARARGS, DYCL_AS_FUNCTION(hook_apply)));
    if (!original_apply) return dycl_torch_lacks("torch._C._FunctionBase.apply");
    original_set_eval_frame = dycl_wrap_function("_dynamo.eval_frame.set_eval_frame", METH_O, hook_set_eval_frame);
    if (!original_set_eval_frame) return dycl_torch_lacks("torch._C._dynamo.eval_frame.set_eval_frame");
    if (dycl_bound_watch() < 0 || dycl_pybind_watch() < 0) return -1;
    dycl_writers_watch();
    original_dlpack = DYCL_AS_KEYWORDS(dycl_wrap_function("_to_dlpack", keywords, DYCL_AS_FUNCTION(hook_dlpack)));
    if (!original_dlpack) return dycl_torch_lacks("torch._C._to_dlpack");
    original_dlpack_versioned =
        DYCL_AS_KEYWORDS(dycl_wrap_function("_to_dlpack_versioned", keywords, DYCL_AS_FUNCTION(hook_dlpack_versioned)));
    if (!original_dlpack_versioned) return dycl_torch_lacks("torch._C._to_dlpack_versioned");
    if (watch_dual() < 0 || watch_dispatch_modes() < 0 || watch_kernels() < 0) return -1;
    original_set_anomaly =
        DYCL_AS_KEYWORDS(dycl_wrap_function("set_anomaly_enabled", keywords, DYCL_AS_FUNCTION(hook_set_anomaly)));
    original_flush_denormal = dycl_wrap_function("set_flush_denormal", METH_O, hook_flush_denormal);
    return watch_default_dtype();
}
