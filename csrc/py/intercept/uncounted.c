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

int dycl_make_deferred(void) {
    dycl_region *region = dycl_region_current;
    return region && region->deferred ? dycl_region_flush(region, DYCL_BAIL_alias) : 0;
}

int dycl_let_out(PyObject *self) {
    if (dycl_make_deferred() < 0) return -1;
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
    if (dycl_let_out(self) < 0) return NULL;
    return original_data(self, closure);
}

/* a.data = b: b's memory under a's version. */
static int hook_set_data(PyObject *self, PyObject *value, void *closure) {
    if (value && dycl_region_make_plain(value, DYCL_BAIL_attribute) < 0) return -1; /* of another thread's region */
    if (value && PyObject_TypeCheck(value, dycl_py.tensor_type) && dycl_let_out(value) < 0) return -1;
    if (dycl_region_free_memory(self) < 0) return -1;
    return original_set_data(self, value, closure);
}

static PyObject *hook_untyped_storage(PyObject *self, PyObject *unused) {
    if (dycl_owners_looking()) return original_untyped_storage(self, unused);
    if (let_out_unseen(self, 0) < 0 || dycl_region_free_memory(self) < 0) return NULL; /* storage.resize_ */
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
    hide_references();
    return 1;
}
