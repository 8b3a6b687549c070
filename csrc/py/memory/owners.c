#include "py/memory/owners.h"

#include "py/cpython/collect.h"

typedef struct {
    long uses;
    Py_ssize_t references;
    int shared; /* with other processes; unknown counts as shared */
} owners;

static PyObject *storage_use_count, *untyped_storage_name, *cdata_name, *is_shared_name; /* owned */
static int looking;
static owners alone; /* of a tensor that nobody shares anything with: measured, as it depends on how torch keeps storage
                        objects */

int dycl_owners_looking(void) { return looking; }

PyObject *dycl_owners_storage(PyObject *tensor) {
    int state = dycl_abi_torch_function_off();
    looking++;
    dycl_collect_hold(); /* who asks has places in tables and in the graph that a finalizer would change */
    PyObject *storage = PyObject_CallMethodNoArgs(tensor, untyped_storage_name);
    dycl_collect_release();
    looking--;
    dycl_abi_torch_function_restore(state);
    return storage;
}

static owners count_owners(PyObject *tensor) {
    PyObject *storage = dycl_owners_storage(tensor);
    PyObject *address = storage ? PyObject_GetAttr(storage, cdata_name) : NULL;
    PyObject *count = address ? PyObject_CallOneArg(storage_use_count, address) : NULL;
    owners found = {count ? PyLong_AsLong(count) : -1, storage ? Py_REFCNT(storage) : -1, 1};
    PyObject *shared = storage ? PyObject_CallMethodNoArgs(storage, is_shared_name) : NULL;
    found.shared = shared != Py_False;
    Py_XDECREF(shared);
    Py_XDECREF(count);
    Py_XDECREF(address);
    Py_XDECREF(storage);
    PyErr_Clear();
    return found;
}

int dycl_owners_none(PyObject *tensor) {
    owners found = count_owners(tensor);
    return found.uses == alone.uses && found.references == alone.references && !found.shared;
}

int dycl_owners_hold_storage(PyObject *tensor) {
    PyObject *storage = dycl_owners_storage(tensor);
    int held = !storage || Py_REFCNT(storage) != alone.references;
    Py_XDECREF(storage);
    PyErr_Clear();
    return held;
}

int dycl_owners_setup(void) {
    PyObject *c = PyObject_GetAttrString(dycl_py.torch, "_C");
    storage_use_count = c ? PyObject_GetAttrString(c, "_storage_Use_Count") : NULL;
    Py_XDECREF(c);
    untyped_storage_name = PyUnicode_InternFromString("untyped_storage");
    cdata_name = PyUnicode_InternFromString("_cdata");
    is_shared_name = PyUnicode_InternFromString("is_shared");
    if (!storage_use_count || !untyped_storage_name || !cdata_name || !is_shared_name) return -1;
    PyObject *sample = PyObject_CallMethod(dycl_py.torch, "empty", "i", 1);
    if (!sample) return -1;
    alone = count_owners(sample);
    owners again = count_owners(sample);
    Py_DECREF(sample);
    if (alone.uses < 1 || again.uses != alone.uses || again.references != alone.references)
        alone.uses = alone.references = -2; /* nothing counts as constant then, and each storage as held */
    return 0;
}
