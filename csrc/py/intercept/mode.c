#include "py/intercept/mode.h"

#include "py/bind/beside.h"
#include "py/bind/view.h"
#include "py/intercept/fallback.h"
#include "py/intercept/plain.h"
#include "py/intercept/table.h"
#include "py/intercept/tensor_method.h"

/* A getter or setter of torch.Tensor, as torch hands it over: the bound __get__ or __set__ of its descriptor. */
static PyObject *descriptor_of(PyObject *function, int *out_is_get) {
    if (Py_TYPE(function) != dycl_py.method_wrapper_type) return NULL;
    PyObject *self = PyObject_GetAttrString(function, "__self__"), *name = PyObject_GetAttrString(function, "__name__");
    PyErr_Clear();
    *out_is_get = name && PyUnicode_CompareWithASCIIString(name, "__get__") == 0;
    Py_XDECREF(name);
    return self;
}

static PyObject *handle_descriptor(dycl_region *region, PyObject *function, PyObject *descriptor, int is_get,
                                   PyObject *args, PyObject *kwargs) {
    Py_ssize_t count = PyTuple_GET_SIZE(args);
    if (is_get && count && !dycl_is_lazy(PyTuple_GET_ITEM(args, 0)) && dycl_plain_is_harmless(descriptor))
        return PyObject_Call(function, args, kwargs);
    int matrix = is_get && count && region && dycl_region_open(region) ? dycl_plain_transposes(descriptor) : -1;
    if (matrix >= 0) region->calling = descriptor;
    PyObject *view = matrix >= 0 ? dycl_view_transposed(region, PyTuple_GET_ITEM(args, 0), matrix) : NULL;
    if (view || PyErr_Occurred()) return view;
    return dycl_fallback(region, function, ((PyTupleObject *)args)->ob_item, count, NULL, kwargs, DYCL_BAIL_attribute);
}

static PyObject *set_grad_enabled(dycl_region *region, PyObject *function, PyObject *args, PyObject *kwargs) {
    int on = PyTuple_GET_SIZE(args) != 1 || PyTuple_GET_ITEM(args, 0) != Py_False;
    region->passing = 0;
    if (on && !dycl_abi_grad_enabled() && dycl_region_enable_gradients(region) < 0) return NULL;
    return PyObject_Call(function, args, kwargs);
}

static PyObject *handle(PyObject *function, PyObject *args, PyObject *kwargs) {
    dycl_region *region = dycl_region_current;
    int in_place, swapped, is_get;
    if (kwargs && PyDict_GET_SIZE(kwargs) == 0) kwargs = NULL;
    if (function == (PyObject *)dycl_py.device_type)
        return PyObject_Call(function, args, kwargs); /* torch.device(...) is no operator */
    if (region && region->closed & (DYCL_CLOSED_ASIDE | DYCL_CLOSED_GRADIENT |
                                    DYCL_CLOSED_MODE)) /* no lazy tensor is left, but perhaps another region's */
        return dycl_fallback(NULL, function, ((PyTupleObject *)args)->ob_item, PyTuple_GET_SIZE(args), NULL, kwargs,
                             DYCL_BAIL_mode);
    if (region && function == dycl_py.set_grad_enabled) return set_grad_enabled(region, function, args, kwargs);
    PyObject *descriptor = descriptor_of(function, &is_get);
    if (descriptor) {
        PyObject *result = handle_descriptor(region, function, descriptor, is_get, args, kwargs);
        Py_DECREF(descriptor);
        return result;
    }
    PyObject *const *items = ((PyTupleObject *)args)->ob_item;
    Py_ssize_t count = PyTuple_GET_SIZE(args);
    if (!region) return dycl_fallback(NULL, function, items, count, NULL, kwargs, DYCL_BAIL_thread);
    int passing = region->passing;
    region->passing = 0;
    dycl_bail why = DYCL_BAIL_operator;
    const dycl_binding *row = NULL;
    if (!passing) {
        row = dycl_binding_find(function, &in_place, &swapped);
        if (row && swapped && count && !PyObject_TypeCheck(items[0], dycl_py.tensor_type))
            row = NULL; /* Tensor.__rsub__(1, x) is an error */
        if (!dycl_region_open(region)) {
            why = DYCL_BAIL_mode;
        } else if (row) {
            region->calling = function;
            PyObject *result = dycl_binding_record(row, region, items, count, NULL, kwargs, in_place, swapped);
            if (result || PyErr_Occurred()) return result;
            why = region->recorder.why;
        }
        if (why != DYCL_BAIL_mode && dycl_beside_suits(function, items, count, NULL, kwargs))
            return dycl_beside_run(region, function, items, count, kwargs,
                                   row != NULL); /* what makes tensors of numbers makes them anew */
    } else {
        return PyObject_Call(function, args, kwargs); /* dycl_fallback sent it: everything is plain already */
    }
    return dycl_fallback(region, function, items, count, NULL, kwargs, why);
}

PyObject *dycl_mode_handle(PyObject *function, PyObject *args, PyObject *kwargs) {
    PyObject *meant = dycl_tensor_method_meant(function), *result = handle(meant ? meant : function, args, kwargs);
    Py_XDECREF(meant);
    return result;
}

/* ---- The mode object */

/* torch.set_default_device puts its mode at the bottom of the stack, where it has its say after ours, which torch has
 * taken off the stack for the time of the call. */
static int another_is_below(const dycl_region *region) {
    return region && !(region->closed & DYCL_CLOSED_MODE) && region->mode_depth != DYCL_MODE_ASIDE &&
           dycl_abi_mode_depth() >= region->mode_depth;
}

static PyObject *mode_torch_function(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *kwnames) {
    (void)self;
    if (count < 2 || count > 4 || (kwnames && PyTuple_GET_SIZE(kwnames))) {
        PyErr_SetString(PyExc_TypeError, "__torch_function__(func, types, args=(), kwargs=None)");
        return NULL;
    }
    PyObject *kwargs = count > 3 && args[3] != Py_None ? args[3] : NULL,
             *tuple = count > 2 ? Py_NewRef(args[2]) : PyTuple_New(0);
    if (!tuple) return NULL;
    if (!PyTuple_Check(tuple)) Py_SETREF(tuple, PySequence_Tuple(tuple));
    dycl_region *region = dycl_region_current;
    int depth = region ? region->mode_depth : 0;
    int failed = tuple && another_is_below(region) && dycl_region_meet_mode(region) < 0;
    if (region) region->mode_depth = DYCL_MODE_ASIDE; /* torch has taken it off the stack */
    PyObject *result = tuple && !failed ? dycl_mode_handle(args[0], tuple, kwargs) : NULL;
    if (region) region->mode_depth = depth;
    Py_XDECREF(tuple);
    return result;
}

static PyMethodDef mode_methods[] = {
    {"__torch_function__", (PyCFunction)(void (*)(void))mode_torch_function, METH_FASTCALL | METH_KEYWORDS, NULL},
    {0},
};

static PyTypeObject mode_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dycl.mode",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = mode_methods,
};

int dycl_mode_setup(void) {
    if (PyType_Ready(&mode_type) < 0) return -1;
    dycl_py.mode = PyObject_New(PyObject, &mode_type);
    return dycl_py.mode ? 0 : -1;
}
