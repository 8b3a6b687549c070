#include "py/intercept/replaced.h"

#include "py/cpython/type.h"
#include "py/intercept/plain.h"
#include "py/intercept/tensor_method.h"
#include "py/region/region.h"

static setattrofunc original;
static PyObject *torchs, *replaced; /* owned: what torch has under the names of our rows; the names of others */
static unsigned known;              /* version of torch.Tensor that was looked at; 0: there is none */

static int look_again(void) {
    PyObject *name, *was;
    Py_ssize_t at = 0;
    while (PyDict_Next(torchs, &at, &name, &was)) {
        int ours = dycl_type_lookup(dycl_py.tensor_type, name) == was;
        if ((ours ? PySet_Discard(replaced, name) : PySet_Add(replaced, name)) < 0) return -1;
    }
    known = dycl_type_version(dycl_py.tensor_type);
    return 0;
}

int dycl_replaced_any(void) {
    if (!replaced) return 0;
    /* who goes past our method (type.__setattr__(torch.Tensor, ...)) changes the version */
    if (known && known != dycl_type_version(dycl_py.tensor_type) && look_again() < 0) {
        PyErr_Clear(); /* no memory: the next call looks */
        return 1;
    }
    return PySet_GET_SIZE(replaced) > 0;
}

static int set_attribute(PyObject *class, PyObject *name, PyObject *value) {
    PyObject *was = class == (PyObject *)dycl_py.tensor_type ? PyDict_GetItemWithError(torchs, name) : NULL;
    if (!was) {
        PyErr_Clear(); /* a name that cannot be hashed is torch's matter */
        return original(class, name, value);
    }
    if (dycl_region_current && dycl_region_step_aside(dycl_region_current, DYCL_BAIL_mode) < 0) return -1;
    if (original(class, name, value) < 0 || look_again() < 0) return -1;
    if (!PySet_GET_SIZE(replaced)) dycl_plain_put_back();
    return 0;
}

/* ---- __setattr__ and __delattr__ of torch's metaclass */

static PyObject *call_set(PyObject *class, PyObject *args) {
    PyObject *name, *value;
    if (!PyArg_UnpackTuple(args, "__setattr__", 2, 2, &name, &value) || set_attribute(class, name, value) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *call_delete(PyObject *class, PyObject *args) {
    PyObject *name;
    if (!PyArg_UnpackTuple(args, "__delattr__", 1, 1, &name) || set_attribute(class, name, NULL) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"__setattr__", call_set, METH_VARARGS, NULL},
    {"__delattr__", call_delete, METH_VARARGS, NULL},
    {0},
};

/* The slot of a class whose methods are Python's: where one of C is in between, Python refuses to go past it, as
 * super().__setattr__ of a metaclass below torch's does. */
static setattrofunc asking_slot(void) {
    PyObject *class = PyObject_CallFunction((PyObject *)&PyType_Type, "s(){sO}", "dycl.asking", "__setattr__", Py_None);
    setattrofunc slot = class ? ((PyTypeObject *)class)->tp_setattro : NULL;
    Py_XDECREF(class);
    return slot;
}

static int watch_metaclass(PyTypeObject *metaclass) {
    setattrofunc slot = asking_slot();
    for (PyMethodDef *def = methods; slot && def->ml_name; def++) {
        PyObject *method = PyDescr_NewMethod(metaclass, def);
        int failed = !method || PyDict_SetItemString(metaclass->tp_dict, def->ml_name, method) < 0;
        Py_XDECREF(method);
        if (failed) return -1;
    }
    if (!slot) return -1;
    original = metaclass->tp_setattro;
    metaclass->tp_setattro = slot;
    dycl_type_changed(metaclass);
    return 0;
}

int dycl_replaced_setup(void) {
    PyObject *name, *row;
    Py_ssize_t at = 0;
    if (!(torchs = PyDict_New()) || !(replaced = PySet_New(NULL))) return -1;
    while (PyDict_Next(dycl_py.lazy_type->tp_dict, &at, &name, &row)) {
        PyObject *was = dycl_type_lookup(dycl_py.tensor_type, name);
        if (!was || dycl_tensor_method_is(row) || PyUnicode_CompareWithASCIIString(name, "__doc__") == 0) continue;
        if (PyDict_SetItem(torchs, name, was) < 0) return -1;
    }
    known = dycl_type_version(dycl_py.tensor_type);
    return watch_metaclass(Py_TYPE(dycl_py.tensor_type));
}
