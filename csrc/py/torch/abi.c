#define _GNU_SOURCE
#include "py/torch/abi.h"

#include <dlfcn.h>
#include <malloc.h>
#include <string.h>

#include "py/torch/places.h"
#include "record/build.h"

void *dycl_abi_symbol(const char *name) { return dycl_abi_torch.library ? dlsym(dycl_abi_torch.library, name) : NULL; }

int32_t dycl_abi_torch_dtype(dycl_dtype dtype) { return dycl_abi_to_torch[dtype]; }

int dycl_abi_is_inference(const char *impl) {
    uint64_t keys;
    memcpy(&keys, impl + dycl_abi_place.key_set, sizeof keys);
    return keys == dycl_abi_place.inference_keys;
}

int dycl_abi_made_in_inference(const char *impl) {
    uint64_t keys;
    memcpy(&keys, impl + dycl_abi_place.key_set, sizeof keys);
    return !(keys & dycl_abi_place.plain_keys & ~dycl_abi_place.inference_keys);
}

/* `x.data = y` of an inference tensor y takes x's version counter away: torch then refuses views of it. */
int dycl_abi_is_plain(const char *impl) {
    uint64_t keys;
    memcpy(&keys, impl + dycl_abi_place.key_set, sizeof keys);
    return (keys == dycl_abi_place.plain_keys && pointer_at(impl, dycl_abi_place.version_pointer)) ||
           keys == dycl_abi_place.inference_keys;
}

int dycl_abi_has_autograd_meta(const char *impl) { return pointer_at(impl, dycl_abi_place.autograd_meta) != NULL; }

int dycl_abi_requires_grad(PyObject *tensor) {
    if (!dycl_abi_has_autograd_meta(dycl_abi_impl(tensor))) return 0;
    PyObject *flag = dycl_py_requires_grad(tensor);
    int result = flag != Py_False;
    Py_XDECREF(flag);
    PyErr_Clear();
    return result;
}

static int has_history(dycl_handle base) {
    PyObject *o = dycl_abi_has_autograd_meta(dycl_abi_handle_impl(base)) ? dycl_abi_wrap(base) : NULL;
    int has = o && dycl_abi_requires_grad(o);
    Py_XDECREF(o);
    return has;
}

int dycl_abi_is_leaf_view(dycl_handle tensor) {
    if (!dycl_abi_torch.is_leaf || !dycl_abi_torch.is_view || !dycl_abi_torch.base) return 0;
    /* where the base has none, the program asked for gradients of the view itself */
    return dycl_abi_torch.is_view(tensor) && dycl_abi_torch.is_leaf(tensor) && has_history(dycl_abi_torch.base(tensor));
}

int dycl_abi_keeps_graph(void) { return !dycl_abi_torch.keeps_graph || dycl_abi_torch.keeps_graph(); }

int dycl_abi_has_callbacks(void) { return !dycl_abi_torch.has_callbacks || dycl_abi_torch.has_callbacks(); }

int64_t dycl_abi_backward_pass(void) { return dycl_abi_torch.backward_pass ? dycl_abi_torch.backward_pass() : -1; }

uint32_t dycl_abi_version(const char *impl) {
    const char *counter = pointer_at(impl, dycl_abi_place.version_pointer);
    uint32_t version = 0;
    if (counter) memcpy(&version, counter + dycl_abi_place.version_inside, sizeof version);
    return version;
}

void dycl_abi_add_version(const char *impl, uint32_t writes) {
    char *counter;
    uint32_t version = dycl_abi_version(impl) + writes;
    memcpy(&counter, impl + dycl_abi_place.version_pointer, sizeof counter);
    if (counter) memcpy(counter + dycl_abi_place.version_inside, &version, sizeof version);
}

int dycl_abi_storage_foreign(const char *impl) {
    const char *storage = pointer_at(impl, dycl_abi_place.storage);
    return !storage || *(storage + dycl_abi_place.storage_resizable) == 0;
}

void dycl_abi_storage_make_foreign(char *impl) {
    char *storage;
    memcpy(&storage, impl + dycl_abi_place.storage, sizeof storage);
    if (storage) storage[dycl_abi_place.storage_resizable] = 0;
}

uint64_t dycl_abi_storage(const char *impl) { return (uint64_t)(uintptr_t)pointer_at(impl, dycl_abi_place.storage); }

uint64_t dycl_abi_use_count_word(const char *impl) {
    uint64_t word;
    memcpy(&word, impl + sizeof(void *), sizeof word); /* intrusive_ptr_target: the count follows the vtable */
    return word;
}

int dycl_abi_rank(dycl_handle tensor) {
    int64_t rank;
    return dycl_abi_torch.dim(tensor, &rank) ? 0 : (int)rank;
}

int dycl_abi_read(dycl_handle tensor, dycl_tensor_view *out) {
    int64_t rank, *sizes, *strides;
    int32_t dtype;
    if (dycl_abi_torch.dim(tensor, &rank) || rank > DYCL_MAX_RANK || dycl_abi_torch.dtype(tensor, &dtype) ||
        dtype < 0 || dtype > 255 || dycl_abi_from_torch[dtype] < 0)
        return 0;
    if (dycl_abi_torch.sizes(tensor, &sizes) || dycl_abi_torch.strides(tensor, &strides) ||
        dycl_abi_torch.data_ptr(tensor, &out->data))
        return 0;
    out->dtype = (dycl_dtype)dycl_abi_from_torch[dtype];
    out->rank = (int)rank;
    out->sizes = sizes;
    out->strides = strides;
    return 1;
}

dycl_handle dycl_abi_empty(dycl_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides) {
    dycl_handle handle = NULL;
    return dycl_abi_torch.empty_strided(rank, sizes, strides, dycl_abi_to_torch[dtype], 0, 0, &handle) ? NULL : handle;
}

dycl_handle dycl_abi_copy_handle(dycl_handle tensor) {
    dycl_handle handle = NULL;
    return dycl_abi_torch.new_handle(tensor, &handle) ? NULL : handle;
}

/* torch's C++ functions that are called directly throw where there is no memory, and nobody here could catch it: is
 * there as much as they take? What is given back at once is what they get, as the GIL is held. What a tensor is made of
 * are several pieces, which malloc cuts only from a block that is too large for its caches of single sizes. */
enum { OBJECT_BYTES = 1024, TENSOR_BYTES = 2048 };

static int spare(size_t bytes) {
    void *object = PyObject_Malloc((size_t)dycl_py.tensor_type->tp_basicsize + 2 * sizeof(void *));
    void *volatile pieces = malloc(bytes);
    PyObject_Free(object);
    free(pieces);
    if (object && pieces) return 1;
    PyErr_NoMemory();
    return 0;
}

/* An undefined tensor, over which a C++ function writes the tensor that it returns (it owns nothing). NULL with an
 * exception. */
static dycl_handle room_for_result(void) {
    dycl_handle room = NULL;
    if (spare(TENSOR_BYTES) && dycl_abi_torch.new_undefined(&room)) PyErr_NoMemory();
    return room;
}

/* torch would refuse other views than these by an exception of C++, which nobody here could catch. */
static int is_ordinary(int rank, const int64_t *sizes, const int64_t *strides, int64_t offset) {
    const int64_t most = DYCL_VIEW_REACH;
    int64_t last = offset;
    int fine = offset >= 0 && offset <= most;
    for (int i = 0; i < rank && fine; i++) {
        int64_t way = 0;
        fine = sizes[i] >= 0 && strides[i] >= 0 && strides[i] <= most &&
               !__builtin_mul_overflow(sizes[i] ? sizes[i] - 1 : 0, strides[i], &way) && way <= most;
        fine = fine && (last += way) <= most;
    }
    return fine;
}

static dycl_handle view_by_call(dycl_handle base, int rank, const int64_t *sizes, const int64_t *strides,
                                int64_t offset) {
    const struct {
        int64_t value;
        bool given;
    } at = {offset, true};
    dycl_handle room = room_for_result();
    return room ? dycl_abi_torch.as_strided(room, base, sizes, (size_t)rank, strides, (size_t)rank, &at) : NULL;
}

static dycl_handle view_by_method(dycl_handle base, int rank, const int64_t *sizes, const int64_t *strides,
                                  int64_t offset) {
    PyObject *arguments[4] = {dycl_abi_wrap(base), dycl_py_ints(rank, sizes), dycl_py_ints(rank, strides),
                              PyLong_FromLongLong(offset)},
             *view = NULL;
    dycl_handle handle = NULL;
    if (arguments[0] && arguments[1] && arguments[2] && arguments[3]) {
        int state = dycl_abi_torch_function_off();
        view = PyObject_Vectorcall(dycl_py.as_strided, arguments, 4, NULL);
        dycl_abi_torch_function_restore(state);
    }
    if (view && !(handle = dycl_abi_copy_handle(dycl_abi_borrow(view)))) PyErr_NoMemory();
    Py_XDECREF(view);
    for (int i = 0; i < 4; i++) Py_XDECREF(arguments[i]);
    return handle;
}

/* The one part that it consists of. Takes the view. */
static dycl_handle as_part(dycl_handle view) {
    PyObject *o = view ? dycl_abi_wrap(view) : NULL, *row = NULL, *parts = NULL;
    dycl_handle part = NULL;
    int state = dycl_abi_torch_function_off();
    if (o) row = PyObject_CallMethod(o, "unsqueeze", "i", 0);
    if (row) parts = PyObject_CallMethod(row, "unbind", NULL);
    dycl_abi_torch_function_restore(state);
    if (parts && !(part = dycl_abi_copy_handle(dycl_abi_borrow(PyTuple_GET_ITEM(parts, 0))))) PyErr_NoMemory();
    Py_XDECREF(parts);
    Py_XDECREF(row);
    Py_XDECREF(o);
    dycl_abi_delete(view);
    return part;
}

typedef struct {
    int recorded, direct, part; /* gradients are enabled then; by torch's function itself; one of several */
} view_way;

static dycl_handle view_by(view_way way, dycl_handle base, int rank, const int64_t *sizes, const int64_t *strides,
                           int64_t offset) {
    int other = dycl_abi_torch.grad_enabled() != way.recorded;
    if (other) dycl_abi_torch.set_grad_enabled(way.recorded != 0);
    int direct = way.direct && dycl_abi_torch.as_strided && dycl_abi_torch.new_undefined &&
                 is_ordinary(rank, sizes, strides, offset);
    dycl_handle view = (direct ? view_by_call : view_by_method)(base, rank, sizes, strides, offset);
    if (way.part) view = as_part(view);
    if (other) dycl_abi_torch.set_grad_enabled(way.recorded == 0);
    return view;
}

/* history: 1 if what was recorded required gradients, whatever the mode is by now. What autograd has to note may take
 * any memory, so its errors are caught, by torch's method. */
static dycl_handle view_of(dycl_handle base, int rank, const int64_t *sizes, const int64_t *strides, int64_t offset,
                           int history) {
    int has = dycl_abi_has_autograd_meta(dycl_abi_handle_impl(base));
    const view_way way = {has ? history : dycl_abi_torch.grad_enabled() != 0, !history, 0};
    return view_by(way, base, rank, sizes, strides, offset);
}

dycl_handle dycl_abi_view(dycl_handle base, int rank, const int64_t *sizes, const int64_t *strides, int64_t offset) {
    return view_of(base, rank, sizes, strides, offset, 0);
}

dycl_handle dycl_abi_view_as_made(dycl_handle base, int rank, const int64_t *sizes, const int64_t *strides,
                                  int64_t offset, int unrecorded, int part) {
    int recorded = !unrecorded && !has_history(base);
    return view_by((view_way){recorded, 1, part && recorded}, base, rank, sizes, strides, offset);
}

dycl_handle dycl_abi_view_with_history(dycl_handle base, int rank, const int64_t *sizes, const int64_t *strides,
                                       int64_t offset) {
    return view_of(base, rank, sizes, strides, offset, 1);
}

dycl_handle dycl_abi_detach(dycl_handle base) {
    if (dycl_abi_torch.detach && dycl_abi_torch.new_undefined) {
        dycl_handle room = room_for_result();
        return room ? dycl_abi_torch.detach(room, base) : NULL;
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

dycl_handle dycl_abi_leading_along(dycl_handle tensor) {
    static const int64_t strides[DYCL_MAX_RANK] = {0};
    dycl_tensor_view view;
    dycl_edge edge = {NULL, NULL, 0};
    if (!dycl_abi_torch.gradient_edge || !dycl_abi_torch.set_gradient_edge || !dycl_abi_read(tensor, &view))
        return NULL;
    dycl_handle made = dycl_abi_empty(view.dtype, view.rank, view.sizes, strides);
    if (made) dycl_abi_torch.set_gradient_edge(made, dycl_abi_torch.gradient_edge(&edge, tensor));
    return made;
}

void dycl_abi_delete(dycl_handle tensor) {
    if (tensor) dycl_abi_torch.delete_tensor(tensor);
}

int64_t dycl_abi_storage_offset(dycl_handle tensor) {
    int64_t offset = 0;
    dycl_abi_torch.storage_offset(tensor, &offset);
    return offset;
}

PyObject *dycl_abi_wrap(dycl_handle tensor) {
    if (dycl_abi_torch.wrap) return spare(OBJECT_BYTES) ? dycl_abi_torch.wrap(tensor) : NULL;
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

int dycl_abi_grad_enabled(void) { return dycl_abi_torch.grad_enabled(); }
int dycl_abi_mode_depth(void) {
    static _Thread_local const char *mine __attribute__((tls_model("initial-exec")));
    if (!mine) mine = dycl_abi_torch.mode_state();
    return (int)(stack_bytes(mine, dycl_abi_place.mode_stack) / SHARED_POINTER);
}

#define ALL_DISABLED 2 /* at::impl::TorchFunctionDisabledState */

int dycl_abi_torch_function_off(void) {
    int before = dycl_abi_torch.function_state();
    dycl_abi_torch.set_function_state(ALL_DISABLED);
    return before;
}

int dycl_abi_torch_function_is_on(void) { return dycl_abi_torch.function_state() != ALL_DISABLED; }

void dycl_abi_torch_function_restore(int state) { dycl_abi_torch.set_function_state(state); }

static inline dycl_dispatch_state *own_dispatch_state(void) {
    static _Thread_local dycl_dispatch_state *mine __attribute__((tls_model("initial-exec")));
    if (!mine) mine = dlsym(dycl_abi_torch.dispatch_state, "_ZN3c104impl26raw_local_dispatch_key_setE");
    return mine;
}

const dycl_dispatch_state *dycl_abi_dispatch_state(void) { return own_dispatch_state(); }
void dycl_abi_dispatch_set(const dycl_dispatch_state *state) { *own_dispatch_state() = *state; }

/* Nothing that a thread may have entered (autocast, transforms, dispatch modes) sees the call, and nothing is done for
 * gradients. */
dycl_dispatch_state dycl_abi_dispatch_enter_kernel(void) {
    dycl_dispatch_state before = *own_dispatch_state();
    *own_dispatch_state() = dycl_abi_place.inference_state;
    return before;
}

int dycl_abi_dispatch_inference(const dycl_dispatch_state *state) {
    return state->included == dycl_abi_place.inference_state.included &&
           state->excluded == dycl_abi_place.inference_state.excluded;
}

int dycl_abi_dispatch_plain(const dycl_dispatch_state *state) {
    return (state->included == 0 && state->excluded == 0) || dycl_abi_dispatch_inference(state);
}
