#include "py/region/lazy.h"

#include "base/sanitize.h"
#include "py/cpython/collect.h"
#include "py/cpython/dict.h"
#include "py/cpython/object.h"
#include "py/region/defer.h"
#include "py/region/region.h"

Py_ssize_t dycl_lazy_fields_at;

#define POOL_ROOM (DYCL_SANITIZED ? 2 : 512)
/* Untracked objects with a reference count of 0. Those made in inference mode have other dispatch keys, which torch's
 * C++ code reads where it gets the wrapper itself (vmap). */
static struct {
    PyObject *objects[POOL_ROOM];
    int count;
} pools[2][DYCL_DTYPE_COUNT];
static uint64_t virgin_count_word; /* the reference count word of a wrapper that only its Python object holds */

/* Without Python code and without garbage collection: a finalizer or another thread could end the segment in between,
 * and the value that the wrapper is made for belongs to it. */
static PyObject *make_wrapper(dycl_dtype dtype) {
    PyObject *arguments[4] = {(PyObject *)dycl_py.lazy_type, dycl_py.wrapper_sizes, dycl_py.dtypes[dtype],
                              dycl_py.wrapper_policy};
    int state = dycl_abi_torch_function_off();
    dycl_collect_hold();
    PyObject *o = PyObject_Vectorcall(dycl_py.make_wrapper, arguments, 2, dycl_py.wrapper_names);
    dycl_collect_release();
    dycl_abi_torch_function_restore(state);
    if (!o) return NULL;
    if (!virgin_count_word) virgin_count_word = dycl_abi_use_count_word(dycl_abi_impl(o));
    dycl_lazy_of(o)->wrapper_dtype = (uint8_t)dtype;
    return o;
}

static void link_last(dycl_region *region, PyObject *o, dycl_lazy *lazy) {
    lazy->region = region;
    lazy->next = NULL;
    lazy->prev = region->last;
    if (region->last)
        dycl_lazy_of(region->last)->next = o;
    else
        region->first = o;
    region->last = o;
    region->living++;
}

void dycl_lazy_unlink(dycl_lazy *lazy) {
    dycl_region *region = lazy->region;
    if (!region) return;
    if (lazy->prev)
        dycl_lazy_of(lazy->prev)->next = lazy->next;
    else
        region->first = lazy->next;
    if (lazy->next)
        dycl_lazy_of(lazy->next)->prev = lazy->prev;
    else
        region->last = lazy->prev;
    region->living--;
    lazy->region = NULL;
    lazy->prev = lazy->next = NULL;
    if (__builtin_expect(lazy->deferred != NULL, 0)) {
        struct dycl_deferred *deferred = lazy->deferred;
        lazy->deferred = NULL;
        dycl_defer_release(deferred);
    }
}

void dycl_lazy_lose(PyObject *o, PyObject *error) {
    dycl_lazy *lazy = dycl_lazy_of(o);
    dycl_lazy_unlink(lazy);
    Py_XSETREF(lazy->error, Py_XNewRef(error));
}

int dycl_lazy_raise(const dycl_lazy *lazy) {
    if (lazy->error)
        PyErr_SetObject(PyTuple_GET_ITEM(lazy->error, 0), PyTuple_GET_ITEM(lazy->error, 1));
    else
        PyErr_SetString(PyExc_SystemError, "dycl: a lazy tensor lost its value");
    return -1;
}

static inline PyObject *new_of_dtype(dycl_region *region, dycl_dtype dtype, uint32_t value, uint64_t epoch) {
    PyObject *o;
    int inference = dycl_abi_dispatch_inference(&region->dispatch);
    if (pools[inference][dtype].count) {
        o = pools[inference][dtype].objects[--pools[inference][dtype].count];
        Py_SET_REFCNT(o, 1);
        PyObject_GC_Track(o);
    } else if (!(o = make_wrapper(dtype))) {
        return NULL;
    }
    dycl_lazy *lazy = dycl_lazy_of(o);
    lazy->real = NULL;
    lazy->deferred = NULL;
    lazy->error = NULL;
    lazy->value = value;
    lazy->epoch = epoch;
    lazy->writes = lazy->called = lazy->alias = 0;
    lazy->aliased = lazy->own = lazy->made = 0;
    link_last(region, o, lazy);
    return o;
}

PyObject *dycl_lazy_new(dycl_region *region, uint32_t value) {
    return new_of_dtype(region, (dycl_dtype)region->recorder.graph.values[value].dtype, value, region->epoch);
}

void dycl_lazy_made_of(PyObject *view, PyObject *of) {
    dycl_lazy *lazy = dycl_lazy_of(view);
    if (!dycl_abi_grad_enabled()) lazy->made |= DYCL_VIEW_UNRECORDED;
    if (!of || !dycl_is_lazy(of)) return;
    const dycl_lazy *base = dycl_lazy_of(of);
    const dycl_value *values = lazy->region->recorder.graph.values;
    const uint32_t root = values[lazy->value].root;
    int pending = !base->real && !base->deferred && base->region == lazy->region && base->epoch == lazy->epoch;
    /* a view of what was computed from it is none of it */
    if (pending ? values[base->value].root != root : values[root].kind == DYCL_VALUE_NODE) return;
    lazy->made |= base->made;
    if (pending) lazy->alias = base->alias;
}

PyObject *dycl_lazy_computed(dycl_region *region, dycl_dtype dtype, dycl_handle tensor, int aliased) {
    dycl_handle real = dycl_abi_copy_handle(tensor);
    if (!real) return PyErr_NoMemory();
    PyObject *o = new_of_dtype(region, dtype, 0, 0); /* epochs begin at 1 */
    if (!o) {
        dycl_abi_delete(real);
        return NULL;
    }
    dycl_lazy_of(o)->real = real;
    dycl_lazy_of(o)->aliased = (uint8_t)aliased;
    return o;
}

/* torch's dealloc walks tp_base until the function changes: it must see the object as a plain torch.Tensor. */
static void set_plain_type(PyObject *o) {
    PyTypeObject *old = Py_TYPE(o);
    Py_SET_TYPE(o, dycl_py.tensor_type);
    Py_INCREF(dycl_py.tensor_type);
    Py_DECREF(old);
}

static int is_virgin(PyObject *o) {
    if (!dycl_object_is_bare(o)) return 0;
    if (!dycl_abi_impl(o)) return 0; /* the garbage collector has cleared it */
    return dycl_abi_use_count_word(dycl_abi_impl(o)) == virgin_count_word;
}

/* What it lets go of may run Python code, and with it the garbage collector, here or in another thread: it must not
 * find an object without references. torch's dealloc expects one that is tracked. */
static void lazy_dealloc(PyObject *o) {
    dycl_lazy *lazy = dycl_lazy_of(o);
    PyObject_GC_UnTrack(o);
    dycl_lazy_unlink(lazy);
    Py_CLEAR(lazy->error);
    if (lazy->real) {
        dycl_handle real = lazy->real;
        lazy->real = NULL;
        dycl_abi_delete(real);
    }
    if (Py_TYPE(o) == dycl_py.lazy_type && is_virgin(o)) {
        int inference = dycl_abi_made_in_inference(dycl_abi_impl(o)), dtype = lazy->wrapper_dtype;
        if (pools[inference][dtype].count < POOL_ROOM) {
            pools[inference][dtype].objects[pools[inference][dtype].count++] = o;
            return;
        }
    }
    PyObject_GC_Track(o);
    set_plain_type(o);
    dycl_py.tensor_type->tp_dealloc(o);
}

PyObject *dycl_lazy_exchange(PyObject *o) {
    const dycl_lazy *lazy = dycl_lazy_of(o);
    if (Py_REFCNT(o) != 1 || !lazy->real || lazy->aliased || !is_virgin(o)) return o;
    PyObject *plain = dycl_abi_wrap(lazy->real);
    if (!plain ||
        Py_REFCNT(plain) >
            2) { /* ours, and one that C++ has because of our handle; more: somebody holds the computed tensor */
        PyErr_Clear();
        Py_XDECREF(plain);
        return o;
    }
    Py_DECREF(o);
    return plain;
}

_Thread_local int dycl_lazy_swaps;

static PyObject *swap(PyObject *const *both) {
    dycl_lazy_swaps++;
    PyObject *done = PyObject_Vectorcall(dycl_py.swap_impl, both, 2, NULL);
    dycl_lazy_swaps--;
    return done;
}

/* Where torch's C++ code holds the wrapper (saved for backward, wrapped by a transform), it keeps a lazy tensor that is
 * computed: ours gets a wrapper that nobody knows. */
static int give_away_wrapper(PyObject *o) {
    dycl_lazy *lazy = dycl_lazy_of(o);
    if (dycl_abi_use_count_word(dycl_abi_impl(o)) == virgin_count_word) return 0;
    PyObject *other = make_wrapper((dycl_dtype)lazy->wrapper_dtype);
    if (!other) return -1;
    dycl_lazy *theirs = dycl_lazy_of(other);
    theirs->region = NULL;
    theirs->deferred = NULL;
    theirs->error = NULL;
    theirs->prev = theirs->next = NULL;
    theirs->aliased = 1;
    theirs->value = theirs->epoch = theirs->writes = 0;
    theirs->real = dycl_abi_copy_handle(lazy->real);
    PyObject *arguments[2] = {o, other}, *done = NULL;
    int state = dycl_abi_torch_function_off();
    if (theirs->real)
        done = swap(arguments);
    else
        PyErr_NoMemory();
    dycl_abi_torch_function_restore(state);
    Py_DECREF(other);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* The computed tensor as an object that nobody but C++ and we hold: what somebody holds (it was handed to C++ code that
 * returned it, or it is an argument) is not taken, an alias of it is. New reference */
static PyObject *take_real(const dycl_lazy *lazy) {
    PyObject *real = dycl_abi_wrap(lazy->real);
    if (!real || Py_REFCNT(real) <= 2) return real; /* ours, and the one that C++ has because of our handle */
    dycl_handle alias = dycl_abi_detach(lazy->real);
    Py_SETREF(real, alias ? dycl_abi_wrap(alias) : NULL);
    dycl_abi_delete(alias);
    return real;
}

/* Where torch's C++ code asked the wrapper for its sizes (the interpreter of TorchScript does, and writes inside vmap),
 * it left notes in the object's __dict__, which the program would see. */
static void forget_asked_sizes(PyObject *o) {
    static const char *const notes[] = {"_sizes_capsule",       "_sizes_capsule_len",      "_strides_capsule",
                                        "_strides_capsule_len", "_sym_sizes_capsule",      "_sym_sizes_capsule_len",
                                        "_sym_strides_capsule", "_sym_strides_capsule_len"};
    PyObject *dict = dycl_object_is_bare(o) ? NULL : dycl_object_dict(o), *type, *value, *traceback;
    if (!dict || !PyDict_GET_SIZE(dict)) return;
    PyErr_Fetch(&type, &value, &traceback);
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++)
        if (PyDict_DelItemString(dict, notes[i]) < 0) PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

int dycl_lazy_become_plain(PyObject *o) {
    dycl_lazy *lazy = dycl_lazy_of(o);
    if (!lazy->real) return dycl_lazy_raise(lazy);
    if (give_away_wrapper(o) < 0) return -1;
    forget_asked_sizes(o);
    PyObject *real = take_real(lazy);
    if (!real) return -1;
    dycl_handle handle = lazy->real;
    dycl_lazy_unlink(lazy);
    lazy->real = NULL;
    set_plain_type(o);
    PyObject *arguments[2] = {o, real};
    int state = dycl_abi_torch_function_off();
    PyObject *done = swap(arguments);
    dycl_abi_torch_function_restore(state);
    Py_DECREF(real);
    dycl_abi_delete(handle);
    if (!done) return -1;
    Py_DECREF(done);
    return 0;
}

int dycl_lazy_describe(PyObject *o, dycl_lazy_meta *out) {
    dycl_lazy *lazy = dycl_lazy_of(o);
    dycl_region *region = lazy->region;
    if (region && (lazy->epoch == region->epoch || lazy->deferred)) {
        const dycl_value *value = lazy->deferred ? dycl_defer_value(lazy) : &region->recorder.graph.values[lazy->value];
        out->dtype = (dycl_dtype)value->dtype;
        out->rank = value->rank;
        out->sizes = value->sizes;
        out->strides = value->strides;
        return 0;
    }
    dycl_tensor_view view;
    if (!lazy->real || !dycl_abi_read(lazy->real, &view)) return dycl_lazy_raise(lazy);
    out->dtype = view.dtype;
    out->rank = view.rank;
    out->sizes = view.sizes;
    out->strides = view.strides;
    return 0;
}

PyObject *dycl_size_object(int rank, const int64_t *sizes) {
    PyObject *size = dycl_py.size_type->tp_alloc(dycl_py.size_type, rank);
    if (!size) return NULL;
    for (int i = 0; i < rank; i++) {
        PyObject *n = PyLong_FromLongLong(sizes[i]);
        if (!n) {
            Py_DECREF(size);
            return NULL;
        }
        PyTuple_SET_ITEM(size, i, n);
    }
    return size;
}

/* ---- The type */

int dycl_lazy_setup(void) {
    PyTypeObject *tensor = dycl_py.tensor_type;
    PyObject *space = Py_BuildValue("{s:s,s:s}", "__module__", "torch", "__qualname__", "Tensor");
    if (!space) return -1;
    PyObject *metaclass = dycl_lazy_metaclass();
    PyObject *type = metaclass ? PyObject_CallFunction(metaclass, "s(O)O", "Tensor", tensor, space) : NULL;
    Py_DECREF(space);
    Py_XDECREF(metaclass);
    if (!type) return -1;
    PyTypeObject *lazy = (PyTypeObject *)type;
    dycl_lazy_fields_at = (lazy->tp_basicsize + 15) & ~(Py_ssize_t)15;
    lazy->tp_basicsize = dycl_lazy_fields_at + (Py_ssize_t)sizeof(dycl_lazy);
    lazy->tp_dealloc = lazy_dealloc;
    dycl_py.lazy_type = lazy;
    return 0;
}
