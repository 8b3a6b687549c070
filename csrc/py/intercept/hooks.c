#include "py/intercept/hooks.h"

#include "py/intercept/mode.h"
#include "py/region/region.h"
#include "py/site/site.h"

static int hook_arguments(PyObject *const *args, Py_ssize_t count, PyObject *kwnames, PyObject **out_function,
                          PyObject **out_args, PyObject **out_kwargs) {
    if (count < 2 || count > 4) {
        PyErr_SetString(PyExc_TypeError, "expected (func, types, args=(), kwargs=None)");
        return -1;
    }
    *out_function = args[0];
    *out_args = count > 2 ? args[2] : NULL;
    *out_kwargs = count > 3 && args[3] != Py_None ? args[3] : NULL;
    for (Py_ssize_t i = 0; kwnames && i < PyTuple_GET_SIZE(kwnames); i++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, i);
        if (PyUnicode_CompareWithASCIIString(name, "args") == 0)
            *out_args = args[count + i];
        else if (PyUnicode_CompareWithASCIIString(name, "kwargs") == 0 && args[count + i] != Py_None)
            *out_kwargs = args[count + i];
    }
    return 0;
}

/* Whether only objects that are no tensors are asked, which hand on to a tensor what they do not have themselves, its
 * protocol too: torch.Tensor's answer to that is NotImplemented. Where a lazy tensor is asked beside them, it is made
 * plain, and they are asked once more. */
static int asked_for_others(PyObject *types) {
    PyObject *list = PySequence_Check(types) ? PySequence_Fast(types, "") : NULL;
    int others = 0;
    for (Py_ssize_t i = 0; list && i < PySequence_Fast_GET_SIZE(list); i++) {
        PyObject *type = PySequence_Fast_GET_ITEM(list, i);
        if (type == (PyObject *)dycl_py.lazy_type) {
            others = 0;
            break;
        }
        others |= PyType_Check(type) && !PyType_IsSubtype(dycl_py.tensor_type, (PyTypeObject *)type);
    }
    Py_XDECREF(list);
    PyErr_Clear();
    return others;
}

static PyObject *torch_function(PyObject *cls, PyObject *const *args, Py_ssize_t count, PyObject *kwnames) {
    PyObject *function, *call_args, *kwargs;
    (void)cls;
    if (hook_arguments(args, count, kwnames, &function, &call_args, &kwargs) < 0) return NULL;
    if (asked_for_others(args[1])) Py_RETURN_NOTIMPLEMENTED;
    PyObject *tuple = call_args ? PySequence_Tuple(call_args) : PyTuple_New(0);
    PyObject *result = tuple ? dycl_mode_handle(function, tuple, kwargs) : NULL;
    Py_XDECREF(tuple);
    return result;
}

/* The computed tensor of a lazy one, as an object of its own (the lazy tensor itself may become plain later). */
static PyObject *computed(PyObject *lazy) {
    if (dycl_region_compute(lazy, DYCL_BAIL_dispatch) < 0) return NULL;
    if (!dycl_is_lazy(lazy)) return Py_NewRef(lazy); /* another thread made it plain while we waited */
    dycl_lazy_of(lazy)->aliased = 1;                 /* what C++ makes of it may share its memory */
    return dycl_abi_wrap(dycl_lazy_of(lazy)->real);
}

static PyObject *replace(PyObject *o) {
    if (dycl_is_lazy(o)) return computed(o);
    if (PyTuple_CheckExact(o) || PyList_CheckExact(o)) {
        Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
        PyObject *copy = PyTuple_CheckExact(o) ? PyTuple_New(n) : PyList_New(n);
        for (Py_ssize_t i = 0; copy && i < n; i++) {
            PyObject *given = Py_NewRef(i < PySequence_Fast_GET_SIZE(o) ? PySequence_Fast_GET_ITEM(o, i) : Py_None);
            PyObject *item = replace(given);
            Py_DECREF(given);
            if (!item) {
                Py_CLEAR(copy);
            } else if (PyTuple_CheckExact(o)) {
                PyTuple_SET_ITEM(copy, i, item);
            } else {
                PyList_SET_ITEM(copy, i, item);
            }
        }
        return copy;
    }
    if (PyDict_CheckExact(o)) {
        PyObject *copy = PyDict_New(), *key, *value;
        Py_ssize_t at = 0;
        while (copy && PyDict_Next(o, &at, &key, &value)) {
            Py_INCREF(key); /* another thread may write to the dictionary while a value is waited for */
            Py_INCREF(value);
            PyObject *item = replace(value);
            if (!item || PyDict_SetItem(copy, key, item) < 0) Py_CLEAR(copy);
            Py_XDECREF(item);
            Py_DECREF(key);
            Py_DECREF(value);
        }
        return copy;
    }
    return Py_NewRef(o);
}

/* torch's argument parser asks for the rank of a tensor where it might be a number: no reason to compute anything. */
static PyObject *rank_of(PyObject *function, PyObject *args) {
    static PyObject *dim; /* owned: torch.ops.aten.dim.default */
    dycl_lazy_meta meta;
    if (!dim) {
        PyObject *ops = PyObject_GetAttrString(dycl_py.torch, "ops"),
                 *aten = ops ? PyObject_GetAttrString(ops, "aten") : NULL;
        PyObject *packet = aten ? PyObject_GetAttrString(aten, "dim") : NULL;
        dim = packet ? PyObject_GetAttrString(packet, "default") : NULL;
        Py_XDECREF(ops);
        Py_XDECREF(aten);
        Py_XDECREF(packet);
        PyErr_Clear();
    }
    if (function != dim || !args || !PyTuple_Check(args) || PyTuple_GET_SIZE(args) != 1 ||
        !dycl_is_lazy(PyTuple_GET_ITEM(args, 0)))
        return NULL;
    return dycl_lazy_describe(PyTuple_GET_ITEM(args, 0), &meta) < 0 ? NULL : PyLong_FromLong(meta.rank);
}

/* ---- What a function wrote: torch counts that on the tensor that it was given, which is not the computed one */

#define MOST_WRITTEN 8

typedef struct {
    PyObject *tensors[MOST_WRITTEN]; /* borrowed: the computed ones that the function was given */
    uint32_t versions[MOST_WRITTEN];
    int count;
} written;

/* `given` is what `o` was replaced by. */
static void note_written(written *w, PyObject *o, PyObject *given) {
    if (o == given) return;
    if (PyList_Check(given) || PyTuple_Check(given)) {
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o) && i < PySequence_Fast_GET_SIZE(given); i++)
            note_written(w, PySequence_Fast_GET_ITEM(o, i), PySequence_Fast_GET_ITEM(given, i));
    } else if (PyObject_TypeCheck(given, dycl_py.tensor_type) && w->count < MOST_WRITTEN) {
        w->versions[w->count] = dycl_abi_version(dycl_abi_impl(given));
        w->tensors[w->count++] = given;
    }
}

static int is_written(PyObject *argument) { /* of a schema */
    PyObject *alias = PyObject_GetAttrString(argument, "alias_info");
    PyObject *write = alias && alias != Py_None ? PyObject_GetAttrString(alias, "is_write") : NULL;
    Py_XDECREF(alias);
    Py_XDECREF(write);
    return write == Py_True;
}

/* `plain` and `plain_kwargs` are what `args` and `kwargs` were replaced by. */
static void find_written(written *w, PyObject *function, PyObject *args, PyObject *kwargs, PyObject *plain,
                         PyObject *plain_kwargs) {
    PyObject *schema = PyObject_GetAttrString(function, "_schema");
    PyObject *arguments = schema ? PyObject_GetAttrString(schema, "arguments") : NULL;
    for (Py_ssize_t i = 0; arguments && PyList_Check(arguments) && i < PyList_GET_SIZE(arguments); i++) {
        PyObject *argument = PyList_GET_ITEM(arguments, i);
        if (!is_written(argument)) continue;
        if (args && PyTuple_Check(args) && i < PyTuple_GET_SIZE(args)) {
            note_written(w, PyTuple_GET_ITEM(args, i), PyTuple_GET_ITEM(plain, i));
        } else if (plain_kwargs && PyDict_CheckExact(kwargs)) {
            PyObject *name = PyObject_GetAttrString(argument, "name");
            PyObject *o = name ? PyDict_GetItemWithError(kwargs, name) : NULL;
            PyObject *given = o ? PyDict_GetItemWithError(plain_kwargs, name) : NULL;
            if (given) note_written(w, o, given);
            Py_XDECREF(name);
        }
    }
    Py_XDECREF(arguments);
    Py_XDECREF(schema);
    PyErr_Clear(); /* what has no schema says nothing */
}

static void count_written(const written *w) {
    for (int i = 0; i < w->count; i++)
        if (dycl_abi_version(dycl_abi_impl(w->tensors[i])) == w->versions[i])
            dycl_abi_add_version(dycl_abi_impl(w->tensors[i]), 1);
}

static PyObject *torch_dispatch(PyObject *cls, PyObject *const *args, Py_ssize_t count, PyObject *kwnames) {
    PyObject *function, *call_args, *kwargs, *result = NULL;
    (void)cls;
    if (hook_arguments(args, count, kwnames, &function, &call_args, &kwargs) < 0) return NULL;
    PyObject *rank = rank_of(function, call_args);
    if (rank || PyErr_Occurred()) return rank;
    dycl_region *region = dycl_region_current;
    if (region) {
        if (dycl_region_flush(region, DYCL_BAIL_dispatch) < 0) return NULL;
        dycl_site_left_at(region->site, function, DYCL_BAIL_dispatch);
    }
    PyObject *empty = PyTuple_New(0), *plain_args = replace(call_args ? call_args : empty),
             *plain_kwargs = kwargs ? replace(kwargs) : NULL;
    if (plain_args && (plain_kwargs || !kwargs)) {
        PyObject *tuple = PySequence_Tuple(plain_args);
        written w = {.count = 0};
        if (tuple) find_written(&w, function, call_args, kwargs, tuple, plain_kwargs);
        result = tuple ? PyObject_Call(function, tuple, plain_kwargs) : NULL;
        if (result) count_written(&w);
        Py_XDECREF(tuple);
    }
    Py_XDECREF(empty);
    Py_XDECREF(plain_args);
    Py_XDECREF(plain_kwargs);
    return result;
}

static PyMethodDef methods[] = {
    {"__torch_function__", (PyCFunction)(void (*)(void))torch_function, METH_FASTCALL | METH_KEYWORDS | METH_CLASS,
     NULL},
    {"__torch_dispatch__", (PyCFunction)(void (*)(void))torch_dispatch, METH_FASTCALL | METH_KEYWORDS | METH_CLASS,
     NULL},
    {0},
};

int dycl_hooks_install(PyTypeObject *lazy) {
    for (PyMethodDef *def = methods; def->ml_name; def++) {
        PyObject *method = PyDescr_NewClassMethod(lazy, def);
        int failed = !method || PyObject_SetAttrString((PyObject *)lazy, def->ml_name, method) < 0;
        Py_XDECREF(method);
        if (failed) return -1;
    }
    return 0;
}
