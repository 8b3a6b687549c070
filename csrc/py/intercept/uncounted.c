#include "py/intercept/uncounted.h"

#include <string.h>

#include "py/memory/constant.h"
#include "py/memory/foreign.h"
#include "py/memory/owners.h"
#include "py/region/region.h"
#include "py/torch/wrap.h"

/* ---- Ways to memory */

static getter original_data;
static setter original_set_data;
static PyCFunction original_data_ptr, original_untyped_storage;
static PyCFunctionWithKeywords original_numpy;

/* What waits to be made of a constant is made before its memory can be written. 0 or -1. */
static int make_deferred(void) {
    dycl_region *region = dycl_region_current;
    return region && region->deferred ? dycl_region_flush(region, DYCL_BAIL_alias) : 0;
}

/* Through another tensor, whose writes we see. 0 or -1. */
static int let_out(PyObject *self) {
    if (make_deferred() < 0) return -1;
    dycl_constant_expose(self, 0);
    return 0;
}

/* Through what writes unseen: what waits to be read from this memory is computed first. 0 or -1. */
static int let_out_unseen(PyObject *self, int for_good) {
    dycl_region *region = dycl_region_current;
    int waits = region && (region->deferred || dycl_region_reads(region, self));
    if (waits && dycl_region_flush(region, DYCL_BAIL_alias) < 0) return -1;
    dycl_constant_expose(self, for_good);
    return 0;
}

static int note(PyObject *self, dycl_foreign why) {
    return dycl_abi_is_plain(dycl_abi_impl(self)) ? dycl_foreign_note(self, why) : 0;
}

static PyObject *hook_data(PyObject *self, void *closure) {
    if (let_out(self) < 0) return NULL;
    return original_data(self, closure);
}

/* a.data = b: b's memory under a's version. */
static int hook_set_data(PyObject *self, PyObject *value, void *closure) {
    if (value && dycl_region_make_plain(value, DYCL_BAIL_attribute) < 0) return -1; /* of another thread's region */
    if (value && PyObject_TypeCheck(value, dycl_py.tensor_type) && let_out(value) < 0) return -1;
    return original_set_data(self, value, closure);
}

static PyObject *hook_untyped_storage(PyObject *self, PyObject *unused) {
    if (dycl_owners_looking()) return original_untyped_storage(self, unused);
    if (let_out_unseen(self, 0) < 0) return NULL;
    PyObject *storage = original_untyped_storage(self, unused);
    if (storage && note(self, DYCL_FOREIGN_HELD) < 0) Py_CLEAR(storage);
    return storage;
}

static PyObject *hook_data_ptr(PyObject *self, PyObject *unused) { /* a raw pointer may live for ever */
    if (let_out_unseen(self, 1) < 0 || note(self, DYCL_FOREIGN_POINTED) < 0) return NULL;
    return original_data_ptr(self, unused);
}

static PyObject *hook_numpy(PyObject *self, PyObject *args, PyObject *kwargs) {
    if (let_out_unseen(self, 1) < 0) return NULL;
    return original_numpy(self, args, kwargs);
}

/* ---- Ways from a storage object, which outlive it */

static PyCFunction original_storage_pointer;
static binaryfunc original_storage_item;

static PyObject *hook_storage_pointer(PyObject *self, PyObject *unused) {
    if (!dycl_owners_looking() && dycl_foreign_note_storage(self, DYCL_FOREIGN_POINTED) < 0) return NULL;
    return original_storage_pointer(self, unused);
}

/* storage[1:3] is a storage of its own over the same memory. */
static PyObject *hook_storage_item(PyObject *self, PyObject *key) {
    PyObject *item = original_storage_item(self, key);
    int part = item && PySlice_Check(key) && !PyLong_Check(item);
    if (part && (dycl_foreign_note_storage(self, DYCL_FOREIGN_EXPORTED) < 0 ||
                 dycl_foreign_note_storage(item, DYCL_FOREIGN_EXPORTED) < 0))
        Py_CLEAR(item);
    return item;
}

static int is_storage(const PyObject *o) {
    const char *name = strrchr(Py_TYPE(o)->tp_name, '.');
    const char *last = name ? name + 1 : Py_TYPE(o)->tp_name;
    size_t length = strlen(last);
    return length >= 7 && strcmp(last + length - 7, "Storage") == 0;
}

int dycl_note_storages(PyObject *tensor, PyObject *args) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++)
        if (is_storage(PyTuple_GET_ITEM(args, i))) return note(tensor, DYCL_FOREIGN_HELD);
    return 0;
}

static void watch_storages(void) {
    original_storage_pointer = dycl_wrap_function("StorageBase.data_ptr", METH_NOARGS, hook_storage_pointer);
    PyObject *item = dycl_torch_c("StorageBase.__getitem__");
    if (item && Py_TYPE(item) == &PyWrapperDescr_Type) {
        PyWrapperDescrObject *slot = (PyWrapperDescrObject *)item;
        PyMappingMethods *mapping = slot->d_common.d_type->tp_as_mapping;
        original_storage_item = (binaryfunc)(void (*)(void))slot->d_wrapped;
        if (mapping && mapping->mp_subscript == original_storage_item) mapping->mp_subscript = hook_storage_item;
        slot->d_wrapped = (void *)hook_storage_item;
    }
    Py_XDECREF(item);
}

/* ---- Operators of torch that write without counting */

static PyCFunction original_apply;
static PyCFunctionWithKeywords original_map, original_map2, original_fused[5];

/* These call a function of the program for each element, which may do anything meanwhile: what they write is no
 * constant for a while. */
static PyObject *hook_apply(PyObject *self, PyObject *function) {
    if (let_out(self) < 0) return NULL;
    return original_apply(self, function);
}

static PyObject *hook_map(PyObject *self, PyObject *args, PyObject *kwargs) {
    if (let_out(self) < 0) return NULL;
    return original_map(self, args, kwargs);
}

static PyObject *hook_map2(PyObject *self, PyObject *args, PyObject *kwargs) {
    if (let_out(self) < 0) return NULL;
    return original_map2(self, args, kwargs);
}

/* fused(list of what is written, ...) */
static PyObject *fused(PyCFunctionWithKeywords original, PyObject *self, PyObject *args, PyObject *kwargs) {
    if (make_deferred() < 0) return NULL;
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

/* Parts with a counter of their own: what is written through them is not counted here. */
static PyCFunctionWithKeywords original_unsafe_method[3], original_unsafe_function[3], original_set_counter;

static PyObject *unsafe_parts(PyCFunctionWithKeywords original, PyObject *of, PyObject *self, PyObject *args,
                              PyObject *kwargs) {
    if (of && dycl_is_tensor(of) && let_out(of) < 0) return NULL;
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

/* (tensors, versions): what was written meanwhile looks as if it were not. By array or by tuple, as pybind has it. */
static dycl_function_with_names original_set_counter_by_array;

static PyObject *renewed(PyObject *result, PyObject *of) {
    for (Py_ssize_t i = 0; result && of && PyTuple_Check(of) && i < PyTuple_GET_SIZE(of); i++)
        if (dycl_is_tensor(PyTuple_GET_ITEM(of, i))) dycl_constant_renew(PyTuple_GET_ITEM(of, i));
    return result;
}

static PyObject *hook_set_counter(PyObject *self, PyObject *args, PyObject *kwargs) {
    return renewed(original_set_counter(self, args, kwargs), PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, 0) : NULL);
}

static PyObject *hook_set_counter_by_array(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    return renewed(original_set_counter_by_array(self, args, count, names), count ? args[0] : NULL);
}

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
    original_set_counter = DYCL_AS_KEYWORDS(
        dycl_wrap_function("_autograd._unsafe_set_version_counter", keywords, DYCL_AS_FUNCTION(hook_set_counter)));
    if (!original_set_counter)
        original_set_counter_by_array = (dycl_function_with_names)(void (*)(void))dycl_wrap_function(
            "_autograd._unsafe_set_version_counter", METH_FASTCALL | METH_KEYWORDS,
            DYCL_AS_FUNCTION(hook_set_counter_by_array));
}

static void watch_writers(void) {
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

/* ---- Our weak references are nobody's business: torch.utils.swap_tensors refuses tensors that have any */

static PyCFunction original_weak_references, original_weak_reference_count;

static PyObject *foreign_references(PyObject *self, PyObject *object) {
    PyObject *all = original_weak_references(self, object);
    PyObject *ours = all && PyList_Check(all) ? dycl_constant_reference(object) : NULL;
    for (Py_ssize_t i = ours ? PyList_GET_SIZE(all) : 0; i-- > 0;) {
        if (PyList_GET_ITEM(all, i) != ours) continue;
        if (PyList_SetSlice(all, i, i + 1, NULL) < 0) Py_CLEAR(all);
        break;
    }
    return all;
}

static PyObject *foreign_reference_count(PyObject *self, PyObject *object) {
    PyObject *count = original_weak_reference_count(self, object);
    if (!count || !dycl_constant_reference(object)) return count;
    long n = PyLong_AsLong(count);
    Py_DECREF(count);
    return PyLong_FromLong(n - 1);
}

static void hide_references(void) {
    PyObject *module = PyImport_ImportModule("_weakref");
    PyObject *references = module ? PyObject_GetAttrString(module, "getweakrefs") : NULL,
             *count = module ? PyObject_GetAttrString(module, "getweakrefcount") : NULL;
    original_weak_references = dycl_wrap_builtin(references, METH_O, foreign_references);
    original_weak_reference_count = dycl_wrap_builtin(count, METH_O, foreign_reference_count);
    Py_XDECREF(references);
    Py_XDECREF(count);
    Py_XDECREF(module);
    PyErr_Clear();
}

static PyMethodDef *method_def(const char *name, int flags) {
    PyObject *method = PyDict_GetItemString(dycl_py.tensor_type->tp_base->tp_dict, name); /* of torch._C.TensorBase */
    if (!method || Py_TYPE(method) != &PyMethodDescr_Type) return NULL;
    PyMethodDef *def = ((PyMethodDescrObject *)method)->d_method;
    return def->ml_flags == flags ? def : NULL;
}

int dycl_uncounted_watch(void) {
    PyObject *data = dycl_torch_attribute("data");
    PyGetSetDef *data_def = data ? ((PyGetSetDescrObject *)data)->d_getset : NULL;
    PyMethodDef *pointer = method_def("data_ptr", METH_NOARGS), *storage = method_def("untyped_storage", METH_NOARGS),
                *numpy = method_def("numpy", METH_VARARGS | METH_KEYWORDS);
    if (!data_def || !data_def->set || !pointer || !storage || !numpy) return 0;
    original_data = data_def->get;
    original_data_ptr = pointer->ml_meth;
    original_untyped_storage = storage->ml_meth;
    original_numpy = (PyCFunctionWithKeywords)(void (*)(void))numpy->ml_meth;
    original_set_data = data_def->set;
    data_def->get = hook_data;
    data_def->set = hook_set_data;
    pointer->ml_meth = hook_data_ptr;
    storage->ml_meth = hook_untyped_storage;
    numpy->ml_meth = (PyCFunction)(void (*)(void))hook_numpy;
    watch_storages();
    watch_unsafe_parts();
    watch_writers();
    hide_references();
    return 1;
}
