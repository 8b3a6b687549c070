/* torch's functions, and where its fields lie: found by comparing memory with what Python reports for several tensors.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "base/probe.h"
#include "py/torch/wrap.h"
#include "py/torch/places.h"

dycl_abi_functions dycl_abi_torch;
dycl_abi_places dycl_abi_place;
int32_t dycl_abi_to_torch[DYCL_DTYPE_COUNT];
int8_t dycl_abi_from_torch[256];

#define SEARCH_BYTES 256
#define MOST         16 /* samples */

static void *open_library(PyObject *torch, const char *name) {
    PyObject *file = PyObject_GetAttrString(torch, "__file__");
    const char *path = file ? PyUnicode_AsUTF8(file) : NULL;
    void *library = NULL;
    if (path) {
        char full[4096];
        const char *slash = strrchr(path, '/');
        int length = slash ? (int)(slash - path) : 0;
        if (snprintf(full, sizeof full, "%.*s/lib/%s", length, path, name) < (int)sizeof full)
            library = dlopen(full, RTLD_LAZY | RTLD_NOLOAD);
    }
    if (!library) library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    Py_XDECREF(file);
    PyErr_Clear();
    return library;
}

static int find_functions(PyObject *torch) {
    void *cpu = open_library(torch, "libtorch_cpu.so"), *python = open_library(torch, "libtorch_python.so"),
         *c10 = open_library(torch, "libc10.so");
    if (!cpu || !c10) return dycl_torch_lacks("libtorch_cpu.so is not loaded");
    int32_t (*dtype_of[DYCL_DTYPE_COUNT])(void);
    static const char *const getters[DYCL_DTYPE_COUNT] = {
#define DYCL_ROW(e, c, n, t) "aoti_torch_dtype_" t,
        DYCL_DTYPES(DYCL_ROW)
#undef DYCL_ROW
    };
    memset(dycl_abi_from_torch, -1, sizeof dycl_abi_from_torch);
    for (int i = 0; i < DYCL_DTYPE_COUNT; i++) {
        *(void **)&dtype_of[i] = dlsym(cpu, getters[i]);
        if (!dtype_of[i]) return dycl_torch_lacks(getters[i]);
        dycl_abi_to_torch[i] = dtype_of[i]();
        if (dycl_abi_to_torch[i] < 0 || dycl_abi_to_torch[i] > 255) return dycl_torch_lacks("dtype codes");
        dycl_abi_from_torch[dycl_abi_to_torch[i]] = (int8_t)i;
    }
#define FIND(field, name)                                                                                              \
    *(void **)&dycl_abi_torch.field = dlsym(cpu, name);                                                                \
    if (!dycl_abi_torch.field) return dycl_torch_lacks(name)
    FIND(data_ptr, "aoti_torch_get_data_ptr");
    FIND(sizes, "aoti_torch_get_sizes");
    FIND(strides, "aoti_torch_get_strides");
    FIND(dim, "aoti_torch_get_dim");
    FIND(storage_offset, "aoti_torch_get_storage_offset");
    FIND(dtype, "aoti_torch_get_dtype");
    FIND(empty_strided, "aoti_torch_empty_strided");
    FIND(new_handle, "aoti_torch_new_tensor_handle");
    FIND(delete_tensor, "aoti_torch_delete_tensor_object");
    FIND(grad_enabled, "aoti_torch_grad_mode_is_enabled");
    FIND(set_grad_enabled, "aoti_torch_grad_mode_set_enabled");
    FIND(function_state, "_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv");
    FIND(set_function_state,
         "_ZN2at4impl22PythonTorchFunctionTLS18set_disabled_stateENS0_26TorchFunctionDisabledStateE");
    FIND(mode_depth, "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv");
    FIND(mode_state, "_ZN2at4impl22PythonTorchFunctionTLS9get_stateEv");
#undef FIND
    *(void **)&dycl_abi_torch.wrap = python ? dlsym(python, "_Z16THPVariable_WrapRKN2at10TensorBaseE") : NULL;
    *(void **)&dycl_abi_torch.new_undefined = dlsym(cpu, "aoti_torch_new_uninitialized_tensor");
    *(void **)&dycl_abi_torch.detach = dlsym(cpu, "_ZN2at4_ops6detach4callERKNS_6TensorE");
    *(void **)&dycl_abi_torch.as_strided =
        dlsym(cpu, "_ZN2at4_ops10as_strided4callERKNS_6TensorEN3c108ArrayRefINS5_6SymIntEEES8_St8optionalIS7_E");
    *(void **)&dycl_abi_torch.is_leaf = dlsym(cpu, "_ZNK2at10TensorBase7is_leafEv");
    *(void **)&dycl_abi_torch.base = dlsym(cpu, "_ZNK2at10TensorBase5_baseEv");
    *(void **)&dycl_abi_torch.is_view = dlsym(cpu, "_ZNK2at10TensorBase7is_viewEv");
    *(void **)&dycl_abi_torch.gradient_edge = dlsym(cpu, "_ZN5torch8autograd4impl13gradient_edgeERKN2at6TensorE");
    *(void **)&dycl_abi_torch.set_gradient_edge =
        dlsym(cpu, "_ZN5torch8autograd4impl17set_gradient_edgeERKN2at6TensorENS0_4EdgeE");
    *(void **)&dycl_abi_torch.keeps_graph = dlsym(cpu, "_ZN5torch8autograd33get_current_graph_task_keep_graphEv");
    *(void **)&dycl_abi_torch.executed = dlsym(cpu, "_ZN5torch8autograd32get_current_graph_task_exec_infoEv");
    *(void **)&dycl_abi_torch.backward_pass = dlsym(cpu, "_ZN5torch8autograd25get_current_graph_task_idEv");
    *(void **)&dycl_abi_torch.has_callbacks = dlsym(cpu, "_ZN2at12hasCallbacksEv");
    dycl_abi_torch.dispatch_state = c10;
    dycl_abi_torch.library = cpu;
    if (!dlsym(c10, "_ZN3c104impl26raw_local_dispatch_key_setE")) return dycl_torch_lacks("thread-local dispatch keys");
    return 0;
}

static PyObject *sample(PyObject *list, Py_ssize_t i) { return PyList_GET_ITEM(list, i); }

/* Whether a storage may be resized: not where its memory is foreign. */
static long find_resizable(PyObject *rows, const uint64_t *storages, const int *foreign, int count) {
    char *objects[MOST];
    uint64_t memory[MOST];
    int resizable[MOST];
    for (int i = 0; i < count; i++) {
        void *data = NULL;
        if (dycl_abi_torch.data_ptr(dycl_abi_borrow(PyTuple_GET_ITEM(sample(rows, i), 0)), &data)) return -1;
        objects[i] = (char *)(uintptr_t)storages[i];
        memory[i] = (uint64_t)(uintptr_t)data;
        resizable[i] = !foreign[i];
    }
    return dycl_probe_flag(objects, resizable, memory, count, 16, 96);
}

/* rows of (tensor, keys, version, storage address, foreign, has autograd state): see samples_code */
static int calibrate(PyObject *rows) {
    char *impls[MOST] = {0};
    uint64_t keys[MOST] = {0}, versions[MOST] = {0}, storages[MOST] = {0};
    int foreign[MOST], has_meta[MOST], count = (int)PyList_GET_SIZE(rows);
    if (count < 1 || count > MOST) return dycl_torch_lacks("calibration samples");
    for (int i = 0; i < count; i++) {
        PyObject *tensor;
        unsigned long long key, version, storage;
        if (!PyArg_ParseTuple(sample(rows, i), "OKKKpp", &tensor, &key, &version, &storage, &foreign[i], &has_meta[i]))
            return -1;
        impls[i] = dycl_abi_impl(tensor);
        keys[i] = key;
        versions[i] = version;
        storages[i] = storage;
    }
    long at = dycl_probe_word(impls, keys, count, 8, SEARCH_BYTES);
    if (at < 0) return dycl_torch_lacks("the place of a tensor's dispatch keys");
    dycl_abi_place.key_set = (size_t)at;
    dycl_abi_place.plain_keys = keys[0];
    for (int i = 0; i < count; i++)
        if (keys[i] != keys[0]) dycl_abi_place.inference_keys = keys[i];
    at = dycl_probe_word(impls, storages, count, 8, SEARCH_BYTES);
    if (at < 0) return dycl_torch_lacks("the place of a tensor's storage");
    dycl_abi_place.storage = (size_t)at;
    long inside = -1, pointer = -1;
    for (size_t p = 8; p + 8 <= (size_t)dycl_abi_place.key_set && pointer < 0; p += 8) {
        for (size_t q = 8; q <= 24 && pointer < 0; q += 4) {
            int match = 1;
            for (int i = 0; i < count && match; i++) {
                const char *counter = pointer_at(impls[i], p);
                uint32_t version = 0;
                if (keys[i] != keys[0]) { /* an inference tensor has no counter */
                    match = counter == NULL;
                    continue;
                }
                if ((uintptr_t)counter < 4096 || (uintptr_t)counter % 8 || (uintptr_t)counter >> 47) {
                    match = 0;
                    continue;
                }
                memcpy(&version, counter + q, sizeof version);
                match = version == versions[i];
            }
            if (match) {
                pointer = (long)p;
                inside = (long)q;
            }
        }
    }
    if (pointer < 0) return dycl_torch_lacks("the place of a tensor's version");
    dycl_abi_place.version_pointer = (size_t)pointer;
    dycl_abi_place.version_inside = (size_t)inside;
    long meta = -1;
    for (size_t p = dycl_abi_place.storage + 8; p < (size_t)pointer;
         p += 8) { /* declared between the storage and the version counter */
        int match = 1;
        for (int i = 0; i < count && match; i++) match = (pointer_at(impls[i], p) != NULL) == has_meta[i];
        if (match && meta >= 0) return dycl_torch_lacks("the place of a tensor's autograd state");
        if (match) meta = (long)p;
    }
    if (meta < 0) return dycl_torch_lacks("the place of a tensor's autograd state");
    dycl_abi_place.autograd_meta = (size_t)meta;
    long flag = find_resizable(rows, storages, foreign, count);
    if (flag < 0) return dycl_torch_lacks("the place of a storage's resizable flag");
    dycl_abi_place.storage_resizable = (size_t)flag;
    return 0;
}

static const char samples_code[] =
    "import torch\n"
    "def keys(t): return torch._C._dispatch_keys(t).raw_repr()\n"
    "def row(t, foreign=False, meta=False, version=None):\n"
    "    return (t, keys(t), t._version if version is None else version, t.untyped_storage()._cdata, foreign, meta)\n"
    "rows = []\n"
    "with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.inference_mode(False):\n"
    "  for i, shape in enumerate([(3,), (2, 5), (1, 2, 3, 4), (), (70000,)]):\n"
    "    t = torch.empty(shape)\n"
    "    for _ in range(i * 7 + 3): t.zero_()\n"
    "    rows.append(row(t))\n"
    "  n = torch.frombuffer(bytearray(24), dtype=torch.float32).detach(); n.zero_(); rows.append(row(n, "
    "foreign=True))\n"
    "  m = torch.frombuffer(bytearray(16), dtype=torch.float32).detach(); rows.append(row(m, foreign=True))\n"
    "  m = torch.frombuffer(bytearray(2000), dtype=torch.float32).detach(); rows.append(row(m, foreign=True))\n"
    "  g = torch.empty(4, requires_grad=True); rows.append(row(g, meta=True))\n"
    "  h = torch.empty(9); [h.zero_() for _ in range(41)]; h.requires_grad_(); rows.append(row(h, meta=True))\n"
    "  with torch.inference_mode():\n"
    "    rows.append(row(torch.empty(5), version=0)); rows.append(row(torch.empty(7, 2), version=0))\n";

/* Where the stack of function modes lies in torch's state: the one place that grows by an element with each mode that
 * is pushed. */
static int find_mode_stack(PyObject *torch) {
    enum { PLACES = 8, DEPTHS = 3 };
    unsigned fits = (1u << PLACES) - 1;
    PyObject *c = PyObject_GetAttrString(torch, "_C"), *done = NULL;
    const char *state = dycl_abi_torch.mode_state();
    int64_t base = dycl_abi_torch.mode_depth(), pushed = 0;
    for (; c && pushed < DEPTHS; pushed++) {
        for (unsigned at = 0; at < PLACES; at++)
            if (stack_bytes(state, 8 * at) != SHARED_POINTER * (base + pushed)) fits &= ~(1u << at);
        if (!(done = PyObject_CallMethod(c, "_push_on_torch_function_stack", "O", Py_True))) break;
        Py_DECREF(done);
    }
    for (; pushed && (done = PyObject_CallMethod(c, "_pop_torch_function_stack", NULL)); pushed--) Py_DECREF(done);
    Py_XDECREF(c);
    if (PyErr_Occurred()) return -1;
    if (!fits || fits & (fits - 1)) return dycl_torch_lacks("the stack of function modes");
    for (dycl_abi_place.mode_stack = 0; !(fits >> (dycl_abi_place.mode_stack / 8) & 1);) dycl_abi_place.mode_stack += 8;
    return 0;
}

int dycl_abi_setup(PyObject *torch) {
    if (find_functions(torch) < 0 || find_mode_stack(torch) < 0) return -1;
    PyObject *space = PyDict_New();
    if (!space) return -1;
    int result = -1;
    PyObject *done = NULL;
    if (PyDict_SetItemString(space, "__builtins__", PyEval_GetBuiltins()) == 0)
        done = PyRun_String(samples_code, Py_file_input, space, space);
    PyObject *rows = done ? PyDict_GetItemString(space, "rows") : NULL;
    if (rows) result = calibrate(rows);
    if (result == 0) { /* what inference mode does to this thread's dispatch keys */
        PyObject *mode = PyObject_CallMethod(torch, "inference_mode", NULL);
        PyObject *entered = mode ? PyObject_CallMethod(mode, "__enter__", NULL) : NULL;
        if (entered) dycl_abi_place.inference_state = *dycl_abi_dispatch_state();
        PyObject *left = entered ? PyObject_CallMethod(mode, "__exit__", "OOO", Py_None, Py_None, Py_None) : NULL;
        if (!left) result = -1;
        Py_XDECREF(mode);
        Py_XDECREF(entered);
        Py_XDECREF(left);
    }
    Py_XDECREF(done);
    Py_DECREF(space);
    return result;
}
