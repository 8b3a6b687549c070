#define _GNU_SOURCE
#include "py/torch/abi.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdbool.h>
#include <string.h>

typedef int32_t (*get_pointer_fn)(dycl_handle, void **);
typedef int32_t (*get_array_fn)(dycl_handle, int64_t **);
typedef int32_t (*get_i64_fn)(dycl_handle, int64_t *);
typedef int32_t (*get_i32_fn)(dycl_handle, int32_t *);

static struct {
    get_pointer_fn data_ptr;
    get_array_fn sizes, strides;
    get_i64_fn dim, storage_offset;
    get_i32_fn dtype;
    int32_t (*empty_strided)(int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, dycl_handle *);
    int32_t (*new_handle)(dycl_handle, dycl_handle *);
    int32_t (*delete_tensor)(dycl_handle);
    int32_t (*new_undefined)(dycl_handle *);
    dycl_handle (*detach)(
        dycl_handle out,
        dycl_handle tensor); /* C++ at::_ops::detach::call: the caller has the room for what it returns */
    bool (*grad_enabled)(void);
    void (*set_grad_enabled)(bool);
    PyObject *(*wrap)(const void *);
    int64_t (*mode_depth)(void);
    const char *(*mode_state)(void);
    int (*function_state)(void);
    void (*set_function_state)(int);
    void *dispatch_state, *library;
} abi;

static int32_t torch_dtypes[DYCL_DTYPE_COUNT];
static int8_t from_torch_dtype[256];

/* Calibrated places. */
static struct {
    size_t mode_stack, key_set, storage, version_pointer, version_inside, autograd_meta, storage_resizable;
    uint64_t plain_keys, inference_keys;
    dycl_dispatch_state inference_state;
} place;

void *dycl_abi_symbol(const char *name) { return abi.library ? dlsym(abi.library, name) : NULL; }

int32_t dycl_abi_torch_dtype(dycl_dtype dtype) { return torch_dtypes[dtype]; }

#define SEARCH_BYTES 256

int dycl_abi_is_inference(const char *impl) {
    uint64_t keys;
    memcpy(&keys, impl + place.key_set, sizeof keys);
    return keys == place.inference_keys;
}

static inline const char *pointer_at(const char *base, size_t offset) {
    const char *p;
    memcpy(&p, base + offset, sizeof p);
    return p;
}

/* `x.data = y` of an inference tensor y takes x's version counter away: torch then refuses views of it. */
int dycl_abi_is_plain(const char *impl) {
    uint64_t keys;
    memcpy(&keys, impl + place.key_set, sizeof keys);
    return (keys == place.plain_keys && pointer_at(impl, place.version_pointer)) || keys == place.inference_keys;
}

int dycl_abi_has_autograd_meta(const char *impl) { return pointer_at(impl, place.autograd_meta) != NULL; }

int dycl_abi_requires_grad(PyObject *tensor) {
    if (!dycl_abi_has_autograd_meta(dycl_abi_impl(tensor))) return 0;
    PyObject *flag = dycl_py_requires_grad(tensor);
    int result = flag != Py_False;
    Py_XDECREF(flag);
    PyErr_Clear();
    return result;
}

uint32_t dycl_abi_version(const char *impl) {
    const char *counter = pointer_at(impl, place.version_pointer);
    uint32_t version = 0;
    if (counter) memcpy(&version, counter + place.version_inside, sizeof version);
    return version;
}

void dycl_abi_add_version(const char *impl, uint32_t writes) {
    char *counter;
    uint32_t version = dycl_abi_version(impl) + writes;
    memcpy(&counter, impl + place.version_pointer, sizeof counter);
    if (counter) memcpy(counter + place.version_inside, &version, sizeof version);
}

int dycl_abi_storage_foreign(const char *impl) {
    const char *storage = pointer_at(impl, place.storage);
    return !storage || *(storage + place.storage_resizable) == 0;
}

void dycl_abi_storage_make_foreign(char *impl) {
    char *storage;
    memcpy(&storage, impl + place.storage, sizeof storage);
    if (storage) storage[place.storage_resizable] = 0;
}

uint64_t dycl_abi_storage(const char *impl) { return (uint64_t)(uintptr_t)pointer_at(impl, place.storage); }

uint64_t dycl_abi_use_count_word(const char *impl) {
    uint64_t word;
    memcpy(&word, impl + sizeof(void *), sizeof word); /* intrusive_ptr_target: the count follows the vtable */
    return word;
}

int dycl_abi_rank(dycl_handle tensor) {
    int64_t rank;
    return abi.dim(tensor, &rank) ? 0 : (int)rank;
}

int dycl_abi_read(dycl_handle tensor, dycl_tensor_view *out) {
    int64_t rank, *sizes, *strides;
    int32_t dtype;
    if (abi.dim(tensor, &rank) || rank > DYCL_MAX_RANK || abi.dtype(tensor, &dtype) || dtype < 0 || dtype > 255 ||
        from_torch_dtype[dtype] < 0)
        return 0;
    if (abi.sizes(tensor, &sizes) || abi.strides(tensor, &strides) || abi.data_ptr(tensor, &out->data)) return 0;
    out->dtype = (dycl_dtype)from_torch_dtype[dtype];
    out->rank = (int)rank;
    out->sizes = sizes;
    out->strides = strides;
    return 1;
}

dycl_handle dycl_abi_empty(dycl_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides) {
    dycl_handle handle = NULL;
    return abi.empty_strided(rank, sizes, strides, torch_dtypes[dtype], 0, 0, &handle) ? NULL : handle;
}

dycl_handle dycl_abi_copy_handle(dycl_handle tensor) {
    dycl_handle handle = NULL;
    return abi.new_handle(tensor, &handle) ? NULL : handle;
}

dycl_handle dycl_abi_view(dycl_handle base, int rank, const int64_t *sizes, const int64_t *strides, int64_t offset) {
    PyObject *arguments[4] = {dycl_abi_wrap(base), dycl_py_ints(rank, sizes), dycl_py_ints(rank, strides),
                              PyLong_FromLongLong(offset)},
             *view = NULL;
    dycl_handle handle = NULL;
    if (arguments[0] && arguments[1] && arguments[2] && arguments[3]) {
        /* what was recorded did not require gradients, whatever the mode is by now */
        int state = dycl_abi_torch_function_off(),
            quiet = dycl_abi_has_autograd_meta(dycl_abi_handle_impl(base)) && abi.grad_enabled();
        if (quiet) abi.set_grad_enabled(false);
        view = PyObject_Vectorcall(dycl_py.as_strided, arguments, 4, NULL);
        if (quiet) abi.set_grad_enabled(true);
        dycl_abi_torch_function_restore(state);
    }
    if (view && !(handle = dycl_abi_copy_handle(dycl_abi_borrow(view)))) PyErr_NoMemory();
    Py_XDECREF(view);
    for (int i = 0; i < 4; i++) Py_XDECREF(arguments[i]);
    return handle;
}

/* torch's C++ functions that are called directly throw where there is no memory, and nobody here could catch it: is
 * there as much as they take? What is given back at once is what they get, as the GIL is held. */
static int spare(void) {
    void *object = PyObject_Malloc((size_t)dycl_py.tensor_type->tp_basicsize + 2 * sizeof(void *)), *volatile tensor =
                                                                                                        malloc(1024);
    PyObject_Free(object);
    free(tensor);
    if (object && tensor) return 1;
    PyErr_NoMemory();
    return 0;
}

dycl_handle dycl_abi_detach(dycl_handle base) {
    if (abi.detach && abi.new_undefined) {
        dycl_handle alias;
        if (!spare()) return NULL;
        if (abi.new_undefined(&alias)) {
            PyErr_NoMemory();
            return NULL;
        }
        return abi.detach(alias, base); /* an undefined tensor owns nothing: its place is written over */
    }
    PyObject *object = dycl_abi_wrap(base);
    int state = dycl_abi_torch_function_off();
    PyObject *alias = object ? PyObject_CallMethodNoArgs(object, dycl_py.detach_name) : NULL;
    dycl_abi_torch_function_restore(state);
    dycl_handle handle = alias ? dycl_abi_copy_handle(dycl_abi_borrow(alias)) : NULL;
    if (alias && !handle) PyErr_NoMemory();
    Py_XDECREF(alias);
    Py_XDECREF(object);
    return handle;
}

void dycl_abi_delete(dycl_handle tensor) {
    if (tensor) abi.delete_tensor(tensor);
}

int64_t dycl_abi_storage_offset(dycl_handle tensor) {
    int64_t offset = 0;
    abi.storage_offset(tensor, &offset);
    return offset;
}

PyObject *dycl_abi_wrap(dycl_handle tensor) {
    if (abi.wrap) return spare() ? abi.wrap(tensor) : NULL;
    dycl_handle copy = dycl_abi_copy_handle(tensor); /* the callee steals it */
    if (!copy) return PyErr_NoMemory();
    PyObject *address = PyLong_FromVoidPtr(copy);
    if (!address) {
        dycl_abi_delete(copy);
        return NULL;
    }
    PyObject *result = PyObject_CallOneArg(dycl_py.steal_handle, address);
    Py_DECREF(address);
    return result;
}

int dycl_abi_grad_enabled(void) { return abi.grad_enabled(); }
/* A std::vector of shared pointers in torch's thread-local state: asked for every recorded operator, so read without a
 * call. */
static inline int64_t stack_bytes(const char *state, size_t at) {
    const char *begin, *end;
    memcpy(&begin, state + at, sizeof begin);
    memcpy(&end, state + at + sizeof begin, sizeof end);
    return end - begin;
}

#define SHARED_POINTER 16

int dycl_abi_mode_depth(void) {
    static _Thread_local const char *mine __attribute__((tls_model("initial-exec")));
    if (!mine) mine = abi.mode_state();
    return (int)(stack_bytes(mine, place.mode_stack) / SHARED_POINTER);
}

#define ALL_DISABLED 2 /* at::impl::TorchFunctionDisabledState */

int dycl_abi_torch_function_off(void) {
    int before = abi.function_state();
    abi.set_function_state(ALL_DISABLED);
    return before;
}

void dycl_abi_torch_function_restore(int state) { abi.set_function_state(state); }

static inline dycl_dispatch_state *own_dispatch_state(void) {
    static _Thread_local dycl_dispatch_state *mine __attribute__((tls_model("initial-exec")));
    if (!mine) mine = dlsym(abi.dispatch_state, "_ZN3c104impl26raw_local_dispatch_key_setE");
    return mine;
}

const dycl_dispatch_state *dycl_abi_dispatch_state(void) { return own_dispatch_state(); }
void dycl_abi_dispatch_set(const dycl_dispatch_state *state) { *own_dispatch_state() = *state; }

/* Nothing that a thread may have entered (autocast, transforms, dispatch modes) sees the call, and nothing is done for
 * gradients. */
dycl_dispatch_state dycl_abi_dispatch_enter_kernel(void) {
    dycl_dispatch_state before = *own_dispatch_state();
    *own_dispatch_state() = place.inference_state;
    return before;
}

int dycl_abi_dispatch_inference(const dycl_dispatch_state *state) {
    return state->included == place.inference_state.included && state->excluded == place.inference_state.excluded;
}

int dycl_abi_dispatch_plain(const dycl_dispatch_state *state) {
    return (state->included == 0 && state->excluded == 0) || dycl_abi_dispatch_inference(state);
}

/* ---- Setup */

static int missing(const char *what) {
    PyErr_Format(PyExc_ImportError, "this torch does not offer what dycl needs (%s); dycl was made for torch 2.13",
                 what);
    return -1;
}

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
    if (!cpu || !c10) return missing("libtorch_cpu.so is not loaded");
    int32_t (*dtype_of[DYCL_DTYPE_COUNT])(void);
    static const char *const getters[DYCL_DTYPE_COUNT] = {
#define DYCL_ROW(e, c, n, t) "aoti_torch_dtype_" t,
        DYCL_DTYPES(DYCL_ROW)
#undef DYCL_ROW
    };
    memset(from_torch_dtype, -1, sizeof from_torch_dtype);
    for (int i = 0; i < DYCL_DTYPE_COUNT; i++) {
        *(void **)&dtype_of[i] = dlsym(cpu, getters[i]);
        if (!dtype_of[i]) return missing(getters[i]);
        torch_dtypes[i] = dtype_of[i]();
        if (torch_dtypes[i] < 0 || torch_dtypes[i] > 255) return missing("dtype codes");
        from_torch_dtype[torch_dtypes[i]] = (int8_t)i;
    }
#define FIND(field, name)                                                                                              \
    *(void **)&abi.field = dlsym(cpu, name);                                                                           \
    if (!abi.field) return missing(name)
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
    *(void **)&abi.wrap = python ? dlsym(python, "_Z16THPVariable_WrapRKN2at10TensorBaseE") : NULL;
    *(void **)&abi.new_undefined = dlsym(cpu, "aoti_torch_new_uninitialized_tensor");
    *(void **)&abi.detach = dlsym(cpu, "_ZN2at4_ops6detach4callERKNS_6TensorE");
    abi.dispatch_state = c10;
    abi.library = cpu;
    if (!dlsym(c10, "_ZN3c104impl26raw_local_dispatch_key_setE")) return missing("thread-local dispatch keys");
    return 0;
}

/* How far all objects reach at most: what lies behind them is somebody else's. */
static size_t extent_of(char *const *objects, int count, size_t limit) {
    for (int i = 0; i < count; i++) {
        size_t size = malloc_usable_size(objects[i]);
        if (size < limit) limit = size;
    }
    return limit;
}

/* The one offset at which every sample holds its expected word; -1 when there is none or more than one. */
static long find_word(char *const *impls, const uint64_t *expected, int count, size_t limit) {
    long found = -1;
    limit = extent_of(impls, count, limit);
    for (size_t at = 8; at + 8 <= limit; at += 8) {
        int match = 1;
        for (int i = 0; i < count && match; i++) match = memcmp(impls[i] + at, &expected[i], 8) == 0;
        if (!match) continue;
        if (found >= 0) return -1;
        found = (long)at;
    }
    return found;
}

/* The byte of a storage that is 1 where it may be resized and 0 where its memory is foreign. Foreign storages have no
 * allocator: a byte of that pointer may happen to be 1 in all the others, and is not meant. */
static long find_resizable(char *const *impls, const int *foreign, int count) {
    long found = -1;
    size_t limit = 96;
    for (int i = 0; i < count; i++) {
        char *storage = (char *)pointer_at(impls[i], place.storage);
        limit = extent_of(&storage, 1, limit);
    }
    for (size_t p = 16; p + 8 <= limit; p++) {
        int match = 1, pointer = 1;
        uint64_t first = 0, word;
        for (int i = 0; i < count && match; i++) {
            const char *storage = pointer_at(impls[i], place.storage);
            match = (unsigned char)storage[p] == (foreign[i] ? 0 : 1);
            memcpy(&word, storage + p / 8 * 8, sizeof word);
            if (foreign[i]) continue;
            if (!first) first = word;
            pointer &= word == first && word >> 12 && !(word >> 47);
        }
        if (!match || pointer) continue;
        if (found >= 0) return -1;
        found = (long)p;
    }
    return found;
}

static PyObject *sample(PyObject *list, Py_ssize_t i) { return PyList_GET_ITEM(list, i); }

/* rows of (tensor, keys, version, storage address, foreign, has autograd state): see samples_code */
static int calibrate(PyObject *rows) {
    enum { MOST = 16 };
    char *impls[MOST] = {0};
    uint64_t keys[MOST] = {0}, versions[MOST] = {0}, storages[MOST] = {0};
    int foreign[MOST], has_meta[MOST], count = (int)PyList_GET_SIZE(rows);
    if (count < 1 || count > MOST) return missing("calibration samples");
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
    long at = find_word(impls, keys, count, SEARCH_BYTES);
    if (at < 0) return missing("the place of a tensor's dispatch keys");
    place.key_set = (size_t)at;
    place.plain_keys = keys[0];
    for (int i = 0; i < count; i++)
        if (keys[i] != keys[0]) place.inference_keys = keys[i];
    at = find_word(impls, storages, count, SEARCH_BYTES);
    if (at < 0) return missing("the place of a tensor's storage");
    place.storage = (size_t)at;
    long inside = -1, pointer = -1;
    for (size_t p = 8; p + 8 <= (size_t)place.key_set && pointer < 0; p += 8) {
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
    if (pointer < 0) return missing("the place of a tensor's version");
    place.version_pointer = (size_t)pointer;
    place.version_inside = (size_t)inside;
    long meta = -1;
    for (size_t p = place.storage + 8; p < (size_t)pointer;
         p += 8) { /* declared between the storage and the version counter */
        int match = 1;
        for (int i = 0; i < count && match; i++) match = (pointer_at(impls[i], p) != NULL) == has_meta[i];
        if (match && meta >= 0) return missing("the place of a tensor's autograd state");
        if (match) meta = (long)p;
    }
    if (meta < 0) return missing("the place of a tensor's autograd state");
    place.autograd_meta = (size_t)meta;
    long flag = find_resizable(impls, foreign, count);
    if (flag < 0) return missing("the place of a storage's resizable flag");
    place.storage_resizable = (size_t)flag;
    return 0;
}

static const char samples_code[] =
    "import torch\n"
    "def keys(t): return torch._C._dispatch_keys(t).raw_repr()\n"
    "def row(t, foreign=False, meta=False, version=None):\n"
    "    return (t, keys(t), t._version if version is None else version, t.untyped_storage()._cdata, foreign, meta)\n"
    "rows = []\n"
    "with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.inference_mode(False):\n"
    "  for i, shape in enumerate([(3,), (2, 5), (1, 2, 3, 4), ()]):\n"
    "    t = torch.empty(shape)\n"
    "    for _ in range(i * 7 + 3): t.zero_()\n"
    "    rows.append(row(t))\n"
    "  n = torch.frombuffer(bytearray(24), dtype=torch.float32).detach(); n.zero_(); rows.append(row(n, "
    "foreign=True))\n"
    "  m = torch.frombuffer(bytearray(16), dtype=torch.float32).detach(); rows.append(row(m, foreign=True))\n"
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
    const char *state = abi.mode_state();
    int64_t base = abi.mode_depth(), pushed = 0;
    for (; c && pushed < DEPTHS; pushed++) {
        for (unsigned at = 0; at < PLACES; at++)
            if (stack_bytes(state, 8 * at) != SHARED_POINTER * (base + pushed)) fits &= ~(1u << at);
        if (!(done = PyObject_CallMethod(c, "_push_on_torch_function_stack", "O", Py_True))) break;
        Py_DECREF(done);
    }
    for (; pushed && (done = PyObject_CallMethod(c, "_pop_torch_function_stack", NULL)); pushed--) Py_DECREF(done);
    Py_XDECREF(c);
    if (PyErr_Occurred()) return -1;
    if (!fits || fits & (fits - 1)) return missing("the stack of function modes");
    for (place.mode_stack = 0; !(fits >> (place.mode_stack / 8) & 1);) place.mode_stack += 8;
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
        if (entered) place.inference_state = *dycl_abi_dispatch_state();
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
