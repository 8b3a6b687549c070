#include "py/lazy.h"

#include "py/region.h"
#include "py/slots.h"

Py_ssize_t dycl_lazy_fields_at;

#define POOL_ROOM 512
static PyObject *pools[DYCL_DTYPE_COUNT][POOL_ROOM]; /* untracked objects with a reference count of 0 */
static int pooled[DYCL_DTYPE_COUNT];
static uint64_t virgin_count_word; /* the reference count word of a wrapper that only its Python object holds */

static PyObject *make_wrapper(dycl_dtype dtype) {
    int state = dycl_abi_torch_function_off();
    PyObject *o = PyObject_CallOneArg(dycl_py.make_wrapper, dycl_py.dtypes[dtype]);
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
}

PyObject *dycl_lazy_new(dycl_region *region, uint32_t value) {
    dycl_dtype dtype = (dycl_dtype)region->recorder.graph.values[value].dtype;
    PyObject *o;
    if (pooled[dtype]) {
        o = pools[dtype][--pooled[dtype]];
        _Py_NewReference(o);
        PyObject_GC_Track(o);
    } else if (!(o = make_wrapper(dtype))) {
        return NULL;
    }
    dycl_lazy *lazy = dycl_lazy_of(o);
    lazy->real = NULL;
    lazy->value = value;
    lazy->epoch = region->epoch;
    lazy->writes = 0;
    lazy->aliased = 0;
    link_last(region, o, lazy);
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
    PyObject **dict = _PyObject_GetDictPtr(o), **weak = PyObject_GET_WEAKREFS_LISTPTR(o);
    if (dict && *dict && (Py_REFCNT(*dict) != 1 || PyDict_GET_SIZE(*dict))) return 0;
    return !(weak && *weak) && dycl_abi_use_count_word(dycl_abi_impl(o)) == virgin_count_word;
}

static void lazy_dealloc(PyObject *o) {
    dycl_lazy *lazy = dycl_lazy_of(o);
    dycl_lazy_unlink(lazy);
    if (lazy->real) {
        dycl_handle real = lazy->real;
        lazy->real = NULL;
        dycl_abi_delete(real);
    }
    if (Py_TYPE(o) == dycl_py.lazy_type && is_virgin(o)) {
        int dtype = lazy->wrapper_dtype;
        if (pooled[dtype] < POOL_ROOM) {
            PyObject_GC_UnTrack(o);
            pools[dtype][pooled[dtype]++] = o;
            return;
        }
    }
    set_plain_type(o);
    dycl_py.tensor_type->tp_dealloc(o);
}

PyObject *dycl_lazy_exchange(PyObject *o) {
    const dycl_lazy *lazy = dycl_lazy_of(o);
    if (Py_REFCNT(o) != 1 || !lazy->real || lazy->aliased || lazy->writes || !is_virgin(o)) return o;
    PyObject *plain = dycl_abi_wrap(lazy->real);
    if (!plain || Py_REFCNT(plain) > 1) { /* C++ code knows the computed tensor */
        PyErr_Clear();
        Py_XDECREF(plain);
        return o;
    }
    Py_DECREF(o);
    return plain;
}

int dycl_lazy_become_plain(PyObject *o) {
    dycl_lazy *lazy = dycl_lazy_of(o);
    PyObject *real = dycl_abi_wrap(lazy->real);
    if (!real) return -1;
    if (Py_REFCNT(real) > 1) { /* somebody holds that very object (it was handed to C++ code): become an alias of it */
        dycl_tensor_view view;
        dycl_abi_read(lazy->real, &view);
        dycl_handle alias = dycl_abi_view(lazy->real, view.rank, view.sizes, view.strides, dycl_abi_storage_offset(lazy->real));
        Py_DECREF(real);
        if (!alias) return -1;
        real = dycl_abi_wrap(alias);
        dycl_abi_delete(alias);
        if (!real) return -1;
    }
    uint32_t writes = lazy->writes;
    dycl_lazy_unlink(lazy);
    dycl_abi_delete(lazy->real);
    lazy->real = NULL;
    lazy->writes = 0;
    set_plain_type(o);
    PyObject *arguments[2] = {o, real};
    int state = dycl_abi_torch_function_off();
    PyObject *done = PyObject_Vectorcall(dycl_py.swap_impl, arguments, 2, NULL);
    dycl_abi_torch_function_restore(state);
    Py_DECREF(real);
    if (!done) return -1;
    Py_DECREF(done);
    if (writes && !dycl_abi_is_inference(dycl_abi_impl(o))) {
        PyObject *set = PyObject_CallFunction(dycl_py.set_version, "(O)(k)", o, (unsigned long)writes);
        if (!set) return -1;
        Py_DECREF(set);
    }
    return 0;
}

int dycl_lazy_describe(PyObject *o, dycl_lazy_meta *out) {
    dycl_lazy *lazy = dycl_lazy_of(o);
    dycl_region *region = lazy->region;
    if (region && lazy->epoch == region->epoch) {
        const dycl_value *value = &region->recorder.graph.values[lazy->value];
        out->dtype = (dycl_dtype)value->dtype;
        out->rank = value->rank;
        out->sizes = value->sizes;
        out->strides = value->strides;
        return 0;
    }
    dycl_tensor_view view;
    if (!lazy->real || !dycl_abi_read(lazy->real, &view)) {
        PyErr_SetString(PyExc_SystemError, "dycl: a lazy tensor lost its value");
        return -1;
    }
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

/* ---- The type ------------------------------------------------------------------------------------------------------------- */

int dycl_lazy_setup(void) {
    PyTypeObject *tensor = dycl_py.tensor_type;
    PyObject *space = Py_BuildValue("{s:s,s:s}", "__module__", "torch", "__qualname__", "Tensor");
    if (!space) return -1;
    PyObject *type = PyObject_CallFunction((PyObject *)Py_TYPE(tensor), "s(O)O", "Tensor", tensor, space); /* torch's metaclass */
    Py_DECREF(space);
    if (!type) return -1;
    PyTypeObject *lazy = (PyTypeObject *)type;
    dycl_lazy_fields_at = (lazy->tp_basicsize + 15) & ~(Py_ssize_t)15;
    lazy->tp_basicsize = dycl_lazy_fields_at + (Py_ssize_t)sizeof(dycl_lazy);
    lazy->tp_dealloc = lazy_dealloc;
    dycl_py.lazy_type = lazy;
    if (dycl_slots_install(lazy) < 0) return -1;
    PyType_Modified(lazy);
    return 0;
}
