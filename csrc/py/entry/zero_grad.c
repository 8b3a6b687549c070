#include "py/entry/zero_grad.h"

#include "py/cpython/dict.h"
#include "py/cpython/function.h"
#include "py/entry/dense.h"
#include "py/entry/enter.h"
#include "py/entry/groups.h"
#include "py/entry/optimizer.h"
#include "py/region/region.h"
#include "py/torch/abi.h"

static PyObject *wrapped;       /* owned: torch's function */
static vectorcallfunc original; /* of the one that is called instead; NULL: not known yet */
static PyObject *called_name, *label_name, *to_none_name, *grad_name; /* owned */

/* zero_grad(self), or with set_to_none=True. */
static int sets_to_none(PyObject *const *args, Py_ssize_t count, PyObject *kwnames) {
    if (!kwnames) return count == 1 || (count == 2 && args[1] == Py_True);
    return count == 1 && PyTuple_GET_SIZE(kwnames) == 1 && args[1] == Py_True &&
           PyUnicode_Compare(PyTuple_GET_ITEM(kwnames, 0), to_none_name) == 0;
}

/* The groups, borrowed, where each is what torch makes of it; else NULL. */
static PyObject *plain_groups(PyObject *optimizer) {
    PyObject *groups = dycl_groups_of(optimizer);
    if (!groups || !PyDict_GetItemWithError(dycl_object_dict(optimizer), label_name)) return NULL;
    for (Py_ssize_t g = 0; g < PyList_GET_SIZE(groups); g++) {
        PyObject *list = dycl_groups_parameters(PyList_GET_ITEM(groups, g));
        if (!list) return NULL;
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++)
            if (!dycl_dense_is_stock(PyList_GET_ITEM(list, i))) return NULL;
    }
    return groups;
}

static int set_to_none(PyObject *p) {
    if (!dycl_dense_is_stock(p) || !dycl_abi_has_autograd_meta(dycl_abi_impl(p))) return 0; /* it has none */
    return PyObject_SetAttr(p, grad_name, Py_None);
}

/* Gradients that go may run what the program hangs on them, and that may change the lists. */
static int set_all_to_none(PyObject *groups) {
    int failed = 0;
    for (Py_ssize_t g = 0; g < PyList_GET_SIZE(groups) && !failed; g++) {
        PyObject *list = Py_XNewRef(dycl_groups_parameters(PyList_GET_ITEM(groups, g)));
        for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list) && !failed; i++) {
            PyObject *p = Py_NewRef(PyList_GET_ITEM(list, i));
            failed = set_to_none(p) < 0;
            Py_DECREF(p);
        }
        Py_XDECREF(list);
    }
    return failed ? -1 : 0;
}

static PyObject *zero_grad(PyObject *function, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    PyObject *groups = NULL;
    dycl_region *region = dycl_region_current;
    if (count && sets_to_none(args, count, kwnames) && dycl_optimizer_site(args[0]) && dycl_enter_nobody_watches())
        groups = plain_groups(args[0]);
    if (!groups) return PyErr_Occurred() ? NULL : original(function, args, nargsf, kwnames);
    if (region && dycl_region_flush(region, DYCL_BAIL_write) < 0) return NULL; /* it may read gradients that go */
    Py_INCREF(groups);
    int functions = dycl_abi_torch_function_off(); /* a region's mode would see Tensor.grad */
    int failed = set_all_to_none(groups) < 0;
    dycl_abi_torch_function_restore(functions);
    Py_DECREF(groups);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

void dycl_zero_grad_find(void) {
    if (original || !wrapped) return;
    PyObject *called = PyObject_GetAttr(wrapped, called_name);
    if (!called) PyErr_Clear(); /* nobody called it yet */
    if (called && PyFunction_Check(called)) original = dycl_function_redirect(called, zero_grad);
    Py_XDECREF(called);
}

int dycl_zero_grad_watch(PyObject *function) {
    static struct {
        PyObject **name;
        const char *text;
    } const names[] = {{&called_name, "__dynamo_disable"},
                       {&label_name, "_zero_grad_profile_name"},
                       {&to_none_name, "set_to_none"},
                       {&grad_name, "grad"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!*names[i].name && !(*names[i].name = PyUnicode_InternFromString(names[i].text))) return -1;
    Py_XSETREF(wrapped, Py_NewRef(function));
    return 0;
}
