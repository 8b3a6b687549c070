#include "py/bind/beside.h"

#include "py/memory/foreign.h"
#include "py/region/replace.h"
#include "py/site/site.h"

#define DEEP 4 /* lists in lists */

/* ---- Without tensors */

static int is_tensorless(PyObject *o, int depth) {
    const PyTypeObject *type = Py_TYPE(o);
    if (type == &PyFloat_Type || type == &PyLong_Type || type == &PyBool_Type || o == Py_None ||
        type == &PyUnicode_Type || type == &PyComplex_Type)
        return 1;
    if (type == dycl_py.dtype_type || type == dycl_py.device_type || type == dycl_py.layout_type ||
        type == dycl_py.memory_format_type || type == dycl_py.generator_type)
        return 1;
    if (dycl_py_is_numpy_scalar(o)) return 1;
    int is_list = type == &PyList_Type;
    if (depth == DEEP || !(is_list || type == &PyTuple_Type || type == dycl_py.size_type)) return 0;
    for (Py_ssize_t i = 0, n = PySequence_Fast_GET_SIZE(o); i < n; i++)
        if (!is_tensorless(PySequence_Fast_GET_ITEM(o, i), depth + 1)) return 0;
    return 1;
}

/* but: an argument that does not count */
static int are_tensorless(PyObject *const *args, Py_ssize_t count, PyObject *kwdict, PyObject *but) {
    PyObject *name, *value;
    Py_ssize_t at = 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (args[i] != but && !is_tensorless(args[i], 0)) return 0;
    while (kwdict && PyDict_Next(kwdict, &at, &name, &value))
        if (value != but && !is_tensorless(value, 0)) return 0;
    return 1;
}

int dycl_beside_suits(PyObject *function, PyObject *const *args, Py_ssize_t count, PyObject *kwnames,
                      PyObject *kwdict) {
    return PyCFunction_CheckExact(function) &&
           are_tensorless(args, count + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0), kwdict, NULL);
}

PyObject *dycl_beside_run(dycl_region *region, PyObject *function, PyObject *const *args, Py_ssize_t count,
                          PyObject *kwdict, int fresh) {
    int state = dycl_abi_torch_function_off();
    PyObject *result = PyObject_VectorcallDict(function, args, (size_t)count, kwdict);
    dycl_abi_torch_function_restore(state);
    region->site->stats.beside++;
    return fresh ? dycl_beside_adopt(region, result) : result;
}

/* ---- Results */

static PyObject *adopt(dycl_region *region, PyObject *result, int shared) {
    dycl_tensor_view view;
    if (!result || Py_TYPE(result) != dycl_py.tensor_type || Py_REFCNT(result) != 1 || !dycl_region_open(region))
        return result;
    const char *impl = dycl_abi_impl(result);
    if (!dycl_abi_is_plain(impl) || dycl_abi_requires_grad(result) || dycl_foreign_is(impl, result) ||
        !dycl_abi_read(dycl_abi_borrow(result), &view))
        return result;
    PyObject *lazy = dycl_lazy_computed(region, view.dtype, dycl_abi_borrow(result), shared);
    Py_DECREF(result);
    return lazy;
}

PyObject *dycl_beside_adopt(dycl_region *region, PyObject *result) { return adopt(region, result, 0); }

/* Several results may be views of one tensor. */
static PyObject *adopt_all(dycl_region *region, PyObject *result) {
    if (!result || !(PyTuple_CheckExact(result) || PyList_CheckExact(result)) || Py_REFCNT(result) != 1)
        return dycl_beside_adopt(region, result);
    PyObject **items = PySequence_Fast_ITEMS(result);
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(result); i++) {
        PyObject *item = items[i];
        items[i] = Py_NewRef(Py_None);
        item = adopt(region, item, 1);
        if (!item) {
            Py_DECREF(result);
            return NULL;
        }
        Py_SETREF(items[i], item);
    }
    return result;
}

PyObject *dycl_beside_blank(dycl_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides) {
    dycl_handle handle = dycl_abi_empty(dtype, rank, sizes, strides);
    if (!handle) return PyErr_NoMemory();
    PyObject *tensor = dycl_abi_wrap(handle);
    dycl_abi_delete(handle);
    return tensor;
}

/* ---- With tensors */

/* 1; 0: a tensor of another class, -1 with an exception. */
static int compute_all(dycl_region *region, PyObject *o, int depth) {
    const PyTypeObject *type = Py_TYPE(o);
    if (type == dycl_py.lazy_type) {
        const dycl_lazy *lazy = dycl_lazy_of(o);
        int failed = lazy->region != region ? dycl_region_make_plain(o, DYCL_BAIL_thread)
                     : lazy->real           ? 0
                                            : dycl_region_fetch(o, DYCL_BAIL_fetch);
        return failed < 0 ? -1 : 1;
    }
    if (dycl_is_tensor(o)) {
        if (dycl_replace_settle(region, o) < 0) return -1;
        return type == dycl_py.tensor_type || type == dycl_py.parameter_type || type == dycl_py.buffer_type;
    }
    if (depth == DEEP || !(PyTuple_CheckExact(o) || PyList_CheckExact(o))) return 1;
    int known = 1;
    Py_INCREF(o); /* computing may run Python code */
    for (Py_ssize_t i = 0; known == 1 && i < PySequence_Fast_GET_SIZE(o); i++)
        known = compute_all(region, PySequence_Fast_GET_ITEM(o, i), depth + 1);
    Py_DECREF(o);
    return known;
}

/* The object with torch's own tensors in the place of lazy ones. NULL without an exception: one of them is not computed
 * any more. */
static PyObject *with_values(PyObject *o, int depth) {
    if (dycl_is_lazy(o)) return dycl_lazy_of(o)->real ? dycl_abi_wrap(dycl_lazy_of(o)->real) : NULL;
    int is_list = PyList_CheckExact(o);
    if (depth == DEEP || !(PyTuple_CheckExact(o) || is_list)) return Py_NewRef(o);
    Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
    PyObject *copy = is_list ? PyList_New(n) : PyTuple_New(n);
    for (Py_ssize_t i = 0; copy && i < n; i++) {
        PyObject *item =
            i < PySequence_Fast_GET_SIZE(o) ? with_values(PySequence_Fast_GET_ITEM(o, i), depth + 1) : NULL;
        if (!item)
            Py_CLEAR(copy);
        else if (is_list)
            PyList_SET_ITEM(copy, i, item);
        else
            PyTuple_SET_ITEM(copy, i, item);
    }
    return copy;
}

/* Positional arguments and values of keywords in one row; by_name: the names of the last ones. */
typedef struct {
    PyObject *items[DYCL_MOST_PARAMETERS]; /* owned */
    Py_ssize_t positional, total;
    PyObject *names; /* owned tuple, or NULL */
} arguments;

static void let_go(arguments *a) {
    for (Py_ssize_t i = 0; i < a->total; i++) Py_DECREF(a->items[i]);
    Py_XDECREF(a->names);
}

/* 1; 0 for too many, -1 with an exception. */
static int collect(const dycl_call *call, arguments *a) {
    Py_ssize_t named = call->kwnames  ? PyTuple_GET_SIZE(call->kwnames)
                       : call->kwdict ? PyDict_GET_SIZE(call->kwdict)
                                      : 0,
               at = 0;
    PyObject *name, *value;
    *a = (arguments){.positional = call->count};
    if (call->count + named > DYCL_MOST_PARAMETERS) return 0;
    for (Py_ssize_t i = 0; i < call->count + (call->kwnames ? named : 0); i++)
        a->items[a->total++] = Py_NewRef(call->args[i]);
    if (!named) return 1;
    a->names = call->kwnames ? Py_NewRef(call->kwnames) : PyTuple_New(named);
    if (!a->names) return -1;
    for (Py_ssize_t i = 0; call->kwdict && PyDict_Next(call->kwdict, &at, &name, &value); i++) {
        PyTuple_SET_ITEM(a->names, i, Py_NewRef(name));
        a->items[a->total++] = Py_NewRef(value);
    }
    return 1;
}

static PyObject *run(dycl_region *region, const dycl_binding *row, const arguments *a) {
    int state = dycl_abi_torch_function_off();
    PyObject *result = PyObject_Vectorcall(row->callable, a->items, (size_t)a->positional, a->names);
    dycl_abi_torch_function_restore(state);
    region->site->stats.beside++;
    return result;
}

PyObject *dycl_beside_values(dycl_call *call, const dycl_binding *row) {
    dycl_region *region = call->region;
    arguments a;
    PyObject *result = NULL;
    int known = collect(call, &a);
    for (Py_ssize_t i = 0; known == 1 && i < a.total; i++) known = compute_all(region, a.items[i], 0);
    for (Py_ssize_t i = 0; known == 1 && i < a.total; i++) {
        PyObject *item = with_values(a.items[i], 0);
        if (item)
            Py_SETREF(a.items[i], item);
        else
            known = PyErr_Occurred() ? -1 : 0;
    }
    if (known == 1) result = adopt_all(region, run(region, row, &a));
    let_go(&a);
    return known == 0 ? dycl_call_bail(call, DYCL_BAIL_arguments) : result;
}

PyObject *dycl_beside_instead(dycl_call *call, const dycl_binding *row, PyObject *of, PyObject *stand_in) {
    arguments a;
    PyObject *result = NULL;
    int known = collect(call, &a);
    if (known == 1 && !are_tensorless(a.items, a.total, NULL, of)) known = 0;
    for (Py_ssize_t i = 0; known == 1 && i < a.total; i++)
        if (a.items[i] == of) Py_SETREF(a.items[i], Py_NewRef(stand_in));
    if (known == 1) result = run(call->region, row, &a);
    let_go(&a);
    return known == 0 ? dycl_call_bail(call, DYCL_BAIL_arguments) : result;
}

PyObject *dycl_beside_like(dycl_call *call, const dycl_binding *row) {
    dycl_lazy_meta meta;
    PyObject *of = call->p[0];
    if (!of || !dycl_is_lazy(of)) {
        if (!of || Py_TYPE(of) != dycl_py.tensor_type) return dycl_call_bail(call, DYCL_BAIL_subclass);
        return dycl_beside_adopt(call->region, dycl_beside_instead(call, row, of, of));
    }
    if (dycl_lazy_describe(of, &meta) < 0) return NULL;
    PyObject *blank = dycl_beside_blank(meta.dtype, meta.rank, meta.sizes, meta.strides);
    PyObject *made = blank ? dycl_beside_instead(call, row, of, blank) : NULL;
    Py_XDECREF(blank);
    return dycl_beside_adopt(call->region, made);
}
