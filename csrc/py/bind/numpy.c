#include "py/bind/numpy.h"

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION    NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>

#include "py/memory/constant.h"

/* ---- The C API (a table that NumPy fills) */

static enum { UNKNOWN, THERE, MISSING } api;

static int load(void) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    api = _import_array() < 0 ? MISSING : THERE; /* missing: not installed, or its ABI is another */
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    return api == THERE;
}

static int have_numpy(void) { return api == THERE || (api == UNKNOWN && load()); }

/* Where an object is asked about: it can only be NumPy's when somebody has imported NumPy. */
static int is_loaded(void) {
    if (api != UNKNOWN) return api == THERE;
    PyObject *modules = PyImport_GetModuleDict();
    return modules && PyDict_GetItemString(modules, "numpy") && load();
}

static const int type_numbers[DYCL_DTYPE_COUNT] = {
    [DYCL_F32] = NPY_FLOAT32, [DYCL_F64] = NPY_FLOAT64, [DYCL_I64] = NPY_INT64, [DYCL_I32] = NPY_INT32,
    [DYCL_I16] = NPY_INT16,   [DYCL_I8] = NPY_INT8,     [DYCL_U8] = NPY_UINT8,  [DYCL_BOOL] = NPY_BOOL,
    [DYCL_F16] = NPY_HALF,    [DYCL_BF16] = NPY_NOTYPE}; /* torch raises */

/* ---- Arrays over a tensor's memory (as torch/csrc/utils/tensor_numpy.cpp makes them) */

/* The tensor's memory stays because the array's base is an alias of it, whose storage may not be resized from now on.
 */
static PyObject *array_over(dycl_handle tensor) {
    dycl_tensor_view view;
    npy_intp sizes[DYCL_MAX_RANK], strides[DYCL_MAX_RANK];
    dycl_handle alias = dycl_abi_detach(tensor);
    PyObject *base = alias ? dycl_abi_wrap(alias) : NULL, *array = NULL;
    dycl_abi_delete(alias);
    if (!base) return NULL;
    if (dycl_abi_read(dycl_abi_borrow(base), &view) && type_numbers[view.dtype] != NPY_NOTYPE) {
        npy_intp size = (npy_intp)dycl_dtype_size(view.dtype);
        for (int i = 0; i < view.rank; i++) {
            sizes[i] = view.sizes[i];
            strides[i] = view.strides[i] * size;
        }
        array = PyArray_New(&PyArray_Type, view.rank, sizes, type_numbers[view.dtype], strides, view.data, 0,
                            NPY_ARRAY_ALIGNED | NPY_ARRAY_WRITEABLE, NULL);
    }
    if (!array) {
        Py_DECREF(base);
        return NULL;
    }
    dycl_constant_expose(base, 1);
    dycl_abi_storage_make_foreign(dycl_abi_impl(base));
    if (PyArray_SetBaseObject((PyArrayObject *)array, base) < 0) Py_CLEAR(array); /* takes the base in any case */
    return array;
}

static PyObject *converted(PyObject *array, PyObject *dtype) {
    PyObject *convert = array ? PyObject_GetAttrString(array, "astype") : NULL, *names = Py_BuildValue("(s)", "copy"),
             *result = NULL;
    PyObject *arguments[2] = {dtype, Py_False};
    if (convert && names) result = PyObject_Vectorcall(convert, arguments, 1, names);
    Py_XDECREF(names);
    Py_XDECREF(convert);
    Py_XDECREF(array);
    return result;
}

PyObject *dycl_bind_numpy(dycl_call *call, const dycl_binding *row) {
    dycl_region *region = call->region;
    PyObject *self = call->p[0], *option = call->p[1];
    if (!self || !dycl_is_tensor(self) || !have_numpy()) return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (row->op == 0 && option && !PyBool_Check(option)) return dycl_call_bail(call, DYCL_BAIL_arguments);
    int learns = dycl_abi_grad_enabled() ? dycl_region_needs_gradient(self) : 0; /* torch says that it has no array */
    if (learns) return learns < 0 ? NULL : dycl_call_bail(call, DYCL_BAIL_grad);
    if (dycl_region_flush(region, DYCL_BAIL_fetch) < 0)
        return NULL; /* nothing may wait that reads what the program writes into the array */
    dycl_handle tensor;
    if (dycl_is_lazy(self)) {
        dycl_lazy *lazy = dycl_lazy_of(self);
        if (lazy->region != region || !lazy->real || lazy->writes)
            return dycl_call_bail(call, DYCL_BAIL_thread); /* writes: its version is not set yet */
        lazy->aliased = 1;
        tensor = lazy->real;
    } else if (Py_TYPE(self) == dycl_py.tensor_type) {
        const char *impl = dycl_abi_impl(self);
        if (!dycl_abi_is_plain(impl) || (dycl_abi_has_autograd_meta(impl) && dycl_abi_grad_enabled()))
            return dycl_call_bail(call, DYCL_BAIL_grad);
        tensor = dycl_abi_borrow(self);
    } else {
        return dycl_call_bail(call, DYCL_BAIL_subclass);
    }
    PyObject *array = array_over(tensor);
    if (!array && !PyErr_Occurred()) return dycl_call_bail(call, DYCL_BAIL_dtype);
    if (array && row->op == 1 && dycl_call_given(option)) array = converted(array, option);
    if (array && dycl_region_flush(region, DYCL_BAIL_foreign) < 0)
        Py_CLEAR(array); /* a finalizer may have recorded something meanwhile */
    return array;
}

/* ---- Tensors of arrays */

static int is_option(PyObject *o) { /* what can not hold a lazy tensor, nor run code of the program */
    return !o || o == Py_None || PyBool_Check(o) || PyUnicode_CheckExact(o) || Py_TYPE(o) == dycl_py.dtype_type ||
           Py_TYPE(o) == dycl_py.device_type;
}

int dycl_numpy_is_array(PyObject *o) { return o && is_loaded() && PyArray_CheckExact(o); }

PyObject *dycl_numpy_tensor(dycl_call *call, const dycl_binding *row, PyObject *function) {
    for (int i = 1; i < row->parameter_count; i++)
        if (!is_option(call->p[i])) return dycl_call_bail(call, DYCL_BAIL_arguments);
    int state = dycl_abi_torch_function_off();
    PyObject *result = call->kwdict ? PyObject_VectorcallDict(function, call->args, (size_t)call->count, call->kwdict)
                                    : PyObject_Vectorcall(function, call->args, (size_t)call->count, call->kwnames);
    dycl_abi_torch_function_restore(state);
    return result;
}

/* ---- Scalars */

int dycl_numpy_operand(PyObject *o, dycl_operand *out) {
    if (!is_loaded()) return 0;
    const PyTypeObject *type = Py_TYPE(o);
    if (type == &PyDoubleArrType_Type)
        *out = dycl_operand_f64(PyArrayScalar_VAL(o, Double));
    else if (type == &PyFloatArrType_Type)
        *out = dycl_operand_f64((double)PyArrayScalar_VAL(o, Float));
    else if (type == &PyLongArrType_Type)
        *out = dycl_operand_i64(PyArrayScalar_VAL(o, Long));
    else if (type == &PyIntArrType_Type)
        *out = dycl_operand_i64(PyArrayScalar_VAL(o, Int));
    else
        return 0;
    return 1;
}
