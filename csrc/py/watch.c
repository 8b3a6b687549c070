#include "py/watch.h"

#include "py/abi.h"
#include "py/call.h"
#include "py/constant.h"

static PyCFunction wrap(PyMethodDef *def, int flags, PyCFunction door) {
    if (!def || def->ml_flags != flags) return NULL;
    PyCFunction original = def->ml_meth;
    def->ml_meth = door;
    return original;
}

PyCFunction dycl_watch_method(const char *name, int flags, PyCFunction door) {
    PyObject *method = PyDict_GetItemString(dycl_py.tensor_type->tp_base->tp_dict, name);
    if (!method || Py_TYPE(method) != &PyMethodDescr_Type) return NULL;
    return wrap(((PyMethodDescrObject *)method)->d_method, flags, door);
}

PyCFunction dycl_watch_function(const char *name, int flags, PyCFunction door) {
    PyObject *c = PyObject_GetAttrString(dycl_py.torch, "_C"), *function = c ? PyObject_GetAttrString(c, name) : NULL;
    PyCFunction original = function && PyCFunction_CheckExact(function) ? wrap(((PyCFunctionObject *)function)->m_ml, flags, door) : NULL;
    Py_XDECREF(function);
    Py_XDECREF(c);
    PyErr_Clear();
    return original;
}

/* ---- Tensor.set_ ---------------------------------------------------------------------------------------------------------------------- */

static PyCFunctionWithKeywords original_set;

static PyObject *door_set(PyObject *self, PyObject *args, PyObject *kwargs) {
    dycl_region *region = dycl_region_current;
    if (region || dycl_is_lazy(self)) {
        if (dycl_fallback_prepare(region, &self, 1, "set_", DYCL_BAIL_alias) < 0) return NULL;
        if (dycl_fallback_prepare(NULL, ((PyTupleObject *)args)->ob_item, PyTuple_GET_SIZE(args), "set_", DYCL_BAIL_alias) < 0) return NULL;
        if (kwargs && dycl_fallback_prepare(NULL, &kwargs, 1, "set_", DYCL_BAIL_alias) < 0) return NULL;
    }
    return original_set(self, args, kwargs);
}

/* ---- DLPack ----------------------------------------------------------------------------------------------------------------------------
 * Unlike numpy(), an export leaves no mark on the storage. The last ones are remembered by address: a storage that took the place of
 * another costs a few more segments, never a wrong result. */

#define EXPORTED 64
static uint64_t exported[EXPORTED];
static unsigned exported_count;
static PyCFunctionWithKeywords original_dlpack, original_dlpack_versioned;

int dycl_watch_is_foreign(const char *impl) {
    if (dycl_abi_storage_foreign(impl)) return 1;
    if (!exported_count) return 0;
    uint64_t storage = dycl_abi_storage(impl);
    for (unsigned i = 0; i < EXPORTED && i < exported_count; i++)
        if (exported[i] == storage) return 1;
    return 0;
}

static int note_export(PyObject *args) {
    PyObject *tensor = PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, 0) : NULL;
    if (!tensor || !PyObject_TypeCheck(tensor, dycl_py.tensor_type)) return 0;
    if ((dycl_region_current || dycl_is_lazy(tensor)) &&
        dycl_fallback_prepare(dycl_region_current, &tensor, 1, "__dlpack__", DYCL_BAIL_foreign) < 0)
        return -1;
    const char *impl = dycl_abi_impl(tensor);
    if (!dycl_abi_is_plain(impl)) return 0;
    if (!dycl_watch_is_foreign(impl)) exported[exported_count++ % EXPORTED] = dycl_abi_storage(impl);
    dycl_constant_expose(tensor, 1);
    return 0;
}

static PyObject *door_dlpack(PyObject *self, PyObject *args, PyObject *kwargs) {
    return note_export(args) < 0 ? NULL : original_dlpack(self, args, kwargs);
}

static PyObject *door_dlpack_versioned(PyObject *self, PyObject *args, PyObject *kwargs) {
    return note_export(args) < 0 ? NULL : original_dlpack_versioned(self, args, kwargs);
}

/* ---- The default dtype: what is recorded assumes float32 ------------------------------------------------------------------------------- */

static PyCFunction original_default_dtype;

static PyObject *door_default_dtype(PyObject *self, PyObject *dtype) {
    if (dycl_region_current && dycl_region_flush(dycl_region_current, DYCL_BAIL_mode) < 0) return NULL;
    PyObject *result = original_default_dtype(self, dtype);
    if (result && dycl_region_current) dycl_region_current->closed = dtype != dycl_py.dtypes[DYCL_F32];
    return result;
}

static int missing(const char *name) {
    PyErr_Format(PyExc_ImportError, "this torch does not offer what dycl needs (%s); dycl was made for torch 2.13", name);
    return -1;
}

#define AS_FUNCTION(door) ((PyCFunction)(void (*)(void))(door))
#define AS_KEYWORDS(function) ((PyCFunctionWithKeywords)(void (*)(void))(function))

int dycl_watch_setup(void) {
    int keywords = METH_VARARGS | METH_KEYWORDS;
    original_set = AS_KEYWORDS(dycl_watch_method("set_", keywords, AS_FUNCTION(door_set)));
    if (!original_set) return missing("Tensor.set_");
    original_dlpack = AS_KEYWORDS(dycl_watch_function("_to_dlpack", keywords, AS_FUNCTION(door_dlpack)));
    if (!original_dlpack) return missing("torch._C._to_dlpack");
    original_dlpack_versioned = AS_KEYWORDS(dycl_watch_function("_to_dlpack_versioned", keywords, AS_FUNCTION(door_dlpack_versioned)));
    if (!original_dlpack_versioned) return missing("torch._C._to_dlpack_versioned");
    original_default_dtype = dycl_watch_function("_set_default_dtype", METH_O, door_default_dtype);
    return original_default_dtype ? 0 : missing("torch._C._set_default_dtype");
}
