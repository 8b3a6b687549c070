#include "py/entry/optimizer.h"

#include "py/cpython/function.h"
#include "py/cpython/object.h"
#include "py/entry/callable.h"
#include "py/entry/enter.h"
#include "py/region/region.h"

static vectorcallfunc original;                /* of all Python functions */
static PyObject *sites;                        /* owned: address -> (weak reference, site) */
static _Thread_local const PyObject *stepping; /* the function whose call is ours already */

/* An optimizer died: self is its address. */
static PyObject *forget(PyObject *self, PyObject *weak) {
    PyObject *entry = PyDict_GetItemWithError(sites, self);
    if (entry && PyTuple_GET_ITEM(entry, 0) == weak && PyDict_DelItem(sites, self) < 0) return NULL;
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef forget_method = {"forget", forget, METH_O, NULL};

dycl_site *dycl_optimizer_site(PyObject *optimizer) {
    PyObject *key = sites ? PyLong_FromVoidPtr(optimizer) : NULL;
    PyObject *entry = key ? PyDict_GetItemWithError(sites, key) : NULL; /* borrowed */
    int known = entry && dycl_weakref_object(PyTuple_GET_ITEM(entry, 0)) == optimizer;
    Py_XDECREF(key);
    PyErr_Clear();
    return known ? (dycl_site *)PyTuple_GET_ITEM(entry, 1) : NULL;
}

int dycl_optimizer_add(PyObject *optimizer) {
    if (dycl_optimizer_site(optimizer)) return 0;
    if (!sites && !(sites = PyDict_New())) return -1;
    PyObject *key = PyLong_FromVoidPtr(optimizer), *died = key ? PyCFunction_New(&forget_method, key) : NULL;
    PyObject *weak = died ? PyWeakref_NewRef(optimizer, died) : NULL, *entry = NULL;
    PyObject *step = weak ? PyObject_GetAttrString((PyObject *)Py_TYPE(optimizer), "step") : NULL;
    PyObject *site = step ? dycl_site_create(step, NULL, NULL) : NULL;
    if (site) ((dycl_site *)site)->replaces = 1;
    if (site) entry = PyTuple_Pack(2, weak, site);
    int result = entry ? PyDict_SetItem(sites, key, entry) : -1;
    Py_XDECREF(key);
    Py_XDECREF(died);
    Py_XDECREF(weak);
    Py_XDECREF(step);
    Py_XDECREF(site);
    Py_XDECREF(entry);
    return result;
}

static int has_closure(PyObject *const *args, Py_ssize_t count, PyObject *kwnames) {
    Py_ssize_t total = count + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    for (Py_ssize_t i = 1; i < total; i++)
        if (args[i] != Py_None) return 1;
    return 0;
}

/* Inside of a region, the step is a part of it between two flushes. */
static PyObject *step_within(dycl_region *region, PyObject *function, PyObject *const *args, size_t nargsf,
                             PyObject *kwnames) {
    PyObject *type, *value, *traceback;
    if (dycl_region_flush(region, DYCL_BAIL_write) < 0) return NULL;
    region->replaces = 1;
    PyObject *result = original(function, args, nargsf, kwnames);
    PyErr_Fetch(&type, &value, &traceback);
    int failed = dycl_region_flush(region, DYCL_BAIL_write) < 0;
    region->replaces = region->site->replaces;
    if (failed) Py_CLEAR(result);
    if (type && failed) PyErr_Clear();
    if (type) PyErr_Restore(type, value, traceback);
    return result;
}

static PyObject *call_step(PyObject *function, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    int ours = !stepping && count && !has_closure(args, count, kwnames);
    dycl_site *site = ours ? dycl_optimizer_site(args[0]) : NULL;
    if (!site) return original(function, args, nargsf, kwnames);
    dycl_region *region = dycl_region_current;
    if (region)
        return dycl_region_records(region) ? step_within(region, function, args, nargsf, kwnames)
                                           : original(function, args, nargsf, kwnames);
    stepping = function;
    PyObject *result = dycl_region_call(site, function, args, nargsf, kwnames);
    stepping = NULL;
    return result;
}

int dycl_optimizer_watch(PyObject *functions) {
    PyObject *fast = PySequence_Fast(functions, "a sequence of functions");
    if (!fast) return -1;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast); i++) {
        PyObject *function = PySequence_Fast_GET_ITEM(fast, i);
        if (!PyFunction_Check(function)) continue;
        vectorcallfunc before = dycl_function_redirect(function, call_step);
        if (before != call_step) original = before;
    }
    Py_DECREF(fast);
    return 0;
}
