#include "py/torch/state.h"

#include <string.h>
#include <time.h>

#include "py/torch/abi.h"
#include "record/build.h"

dycl_py_state dycl_py;

void dycl_py_raise(void) {
    const char *text = dycl_error_message();
    PyErr_Format(strncmp(text, "out of memory", 13) == 0 ? PyExc_MemoryError : PyExc_RuntimeError, "dycl: %s", text);
}

int dycl_dtype_from_object(PyObject *dtype, dycl_dtype *out) {
    for (int i = 0; i < DYCL_DTYPE_COUNT; i++)
        if (dycl_py.dtypes[i] == dtype) {
            *out = (dycl_dtype)i;
            return 1;
        }
    if (dtype == (PyObject *)&PyLong_Type)
        *out = DYCL_I64; /* torch takes Python's types for their dtypes */
    else if (dtype == (PyObject *)&PyFloat_Type)
        *out = DYCL_F64;
    else if (dtype == (PyObject *)&PyBool_Type)
        *out = DYCL_BOOL;
    else
        return 0;
    return 1;
}

int dycl_py_ask_default_dtype(void) {
    PyObject *dtype = PyObject_CallNoArgs(dycl_py.get_default_dtype);
    PyErr_Clear();
    Py_XDECREF(dtype); /* torch keeps it */
    if (dtype != dycl_py.dtypes[DYCL_F32] && dtype != dycl_py.dtypes[DYCL_F64]) return 0;
    dycl_default_dtype = dtype == dycl_py.dtypes[DYCL_F64] ? DYCL_F64 : DYCL_F32;
    return 1;
}

int dycl_py_anomaly(void) {
    PyObject *on = dycl_py.anomaly_enabled ? PyObject_CallNoArgs(dycl_py.anomaly_enabled) : Py_NewRef(Py_False);
    int result = on ? on != Py_False : -1;
    Py_XDECREF(on);
    return result;
}

static PyObject *attribute(PyObject *tensor, PyObject *name) {
    int state = dycl_abi_torch_function_off();
    PyObject *result = PyObject_GetAttr(tensor, name);
    dycl_abi_torch_function_restore(state);
    return result;
}

PyObject *dycl_py_requires_grad(PyObject *tensor) { return attribute(tensor, dycl_py.requires_grad_name); }
PyObject *dycl_py_grad_fn(PyObject *tensor) { return attribute(tensor, dycl_py.grad_fn_name); }

PyObject *dycl_py_ints(int count, const int64_t *values) {
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple && i < count; i++) {
        PyObject *n = PyLong_FromLongLong(values[i]);
        if (!n)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, n);
    }
    return tuple;
}

int dycl_py_is_cpu(PyObject *device) {
    if (PyUnicode_Check(device)) return PyUnicode_CompareWithASCIIString(device, "cpu") == 0;
    if (Py_TYPE(device) != dycl_py.device_type) return 0;
    int same = PyObject_RichCompareBool(device, dycl_py.cpu_device, Py_EQ);
    if (same < 0) PyErr_Clear();
    return same == 1;
}

void dycl_py_pause(void) {
    struct timespec tenth_of_a_millisecond = {0, 100000};
    nanosleep(&tenth_of_a_millisecond, NULL);
}

int dycl_py_is_numpy_scalar(const PyObject *o) {
    static PyTypeObject *generic; /* of them all; there can be one only when somebody has imported NumPy */
    if (!generic) {
        PyObject *numpy = PyDict_GetItemString(PyImport_GetModuleDict(), "numpy");
        PyObject *type = numpy ? PyObject_GetAttrString(numpy, "generic") : NULL;
        if (!type) PyErr_Clear();
        if (type && PyType_Check(type)) generic = (PyTypeObject *)Py_NewRef(type);
        Py_XDECREF(type);
    }
    return generic && !PyType_HasFeature(Py_TYPE(o), Py_TPFLAGS_HEAPTYPE) && PyType_IsSubtype(Py_TYPE(o), generic);
}

/* getattr along a dotted path. New reference. */
static PyObject *find(PyObject *from, const char *path) {
    PyObject *at = Py_NewRef(from);
    char name[64];
    while (at && *path) {
        size_t n = 0;
        while (path[n] && path[n] != '.') n++;
        PyOS_snprintf(name, sizeof name, "%.*s", (int)n, path);
        PyObject *next = PyObject_GetAttrString(at, name);
        Py_DECREF(at);
        at = next;
        path += n + (path[n] == '.');
    }
    return at;
}

static int make_wrapper_call(void) {
    dycl_py.make_wrapper = PyObject_GetAttrString((PyObject *)dycl_py.tensor_type, "_make_wrapper_subclass");
    dycl_py.wrapper_sizes = Py_BuildValue("(i)", 0);
    dycl_py.wrapper_policy = PyUnicode_InternFromString("sizes");
    dycl_py.wrapper_names = Py_BuildValue("(NN)", PyUnicode_InternFromString("dtype"),
                                          PyUnicode_InternFromString("dispatch_sizes_strides_policy"));
    return dycl_py.make_wrapper && dycl_py.wrapper_sizes && dycl_py.wrapper_policy && dycl_py.wrapper_names ? 0 : -1;
}

int dycl_state_find(void) {
    PyObject *torch = dycl_py.torch;
    struct {
        PyObject **place;
        const char *path;
    } wanted[] = {
        {(PyObject **)&dycl_py.tensor_type, "Tensor"},
        {(PyObject **)&dycl_py.parameter_type, "nn.Parameter"},
        {(PyObject **)&dycl_py.size_type, "Size"},
        {(PyObject **)&dycl_py.dtype_type, "dtype"},
        {(PyObject **)&dycl_py.device_type, "device"},
        {(PyObject **)&dycl_py.layout_type, "layout"},
        {(PyObject **)&dycl_py.memory_format_type, "memory_format"},
        {(PyObject **)&dycl_py.generator_type, "Generator"},
        {(PyObject **)&dycl_py.module_type, "nn.Module"},
        {&dycl_py.strided_layout, "strided"},
        {&dycl_py.swap_impl, "_C._swap_tensor_impl"},
        {&dycl_py.push_mode, "_C._push_on_torch_function_stack"},
        {&dycl_py.pop_mode, "_C._pop_torch_function_stack"},
        {&dycl_py.steal_handle, "_C._aoti.alloc_tensor_by_stealing_from_void_ptr"},
        {&dycl_py.get_default_dtype, "get_default_dtype"},
        {&dycl_py.get_num_threads, "get_num_threads"},
        {&dycl_py.deterministic, "_C._get_deterministic_algorithms"},
        {&dycl_py.make_tensor, "tensor"},
        {&dycl_py.as_tensor, "as_tensor"},
        {&dycl_py.as_strided, "as_strided"},
        {&dycl_py.set_grad_enabled, "_C._set_grad_enabled"},
        {&dycl_py.inference_mode, "inference_mode"},
        {&dycl_py.contiguous_format, "contiguous_format"},
        {&dycl_py.preserve_format, "preserve_format"},
        {&dycl_py.channels_last, "channels_last"},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!(*wanted[i].place = find(torch, wanted[i].path))) return -1;
    for (int i = 0; i < DYCL_DTYPE_COUNT; i++)
        if (!(dycl_py.dtypes[i] = find(torch, dycl_dtype_torch_name((dycl_dtype)i)))) return -1;
    dycl_py.buffer_type = (PyTypeObject *)find(torch, "nn.Buffer");
    if (!dycl_py.buffer_type || !PyType_Check(dycl_py.buffer_type)) PyErr_Clear();
    PyObject *wrapper = PyObject_GetAttrString(Py_None, "__repr__");
    if (!wrapper) return -1;
    dycl_py.method_wrapper_type = (PyTypeObject *)Py_NewRef(Py_TYPE(wrapper));
    Py_DECREF(wrapper);
    dycl_py.cpu_device = PyObject_CallMethod(torch, "device", "s", "cpu");
    dycl_py.eval_frame_callback = find(torch, "_C._dynamo.eval_frame.get_eval_frame_callback");
    PyErr_Clear(); /* a torch without it has nothing to step aside for */
    dycl_py.mkldnn_enabled = find(torch, "_C._get_mkldnn_enabled");
    PyErr_Clear();
    dycl_py.saved_tensors_hooks = find(torch, "_C._autograd._top_saved_tensors_default_hooks");
    dycl_py.anomaly_enabled = dycl_py.saved_tensors_hooks ? find(torch, "is_anomaly_enabled") : NULL;
    PyErr_Clear();
    dycl_py.detach_name = PyUnicode_InternFromString("detach");
    dycl_py.bernoulli_name = PyUnicode_InternFromString("bernoulli_");
    dycl_py.call_impl_name = PyUnicode_InternFromString("_call_impl");
    dycl_py.requires_grad_name = PyUnicode_InternFromString("requires_grad");
    dycl_py.grad_fn_name = PyUnicode_InternFromString("grad_fn");
    dycl_py.torch_function_name = PyUnicode_InternFromString("__torch_function__");
    if (!dycl_py.cpu_device || !dycl_py.detach_name || !dycl_py.bernoulli_name || !dycl_py.call_impl_name ||
        !dycl_py.requires_grad_name || !dycl_py.grad_fn_name || !dycl_py.torch_function_name)
        return -1;
    return make_wrapper_call();
}
