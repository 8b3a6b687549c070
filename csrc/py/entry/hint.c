#include "py/entry/hint.h"

#include "py/cpython/dict.h"
#include "py/torch/abi.h"
#include "py/cpython/object.h"
#include "py/cpython/wrap.h"
#include "py/region/order.h"
#include "py/region/region.h"

enum {
    ENOUGH = 20, /* calls in a row */
    MOST = 400,  /* calls that are looked at in all */
    OBJECTS = 1024,
    DEEP = 8, /* that one result is made of */
};

static PyObject *key, *grad_fn_name, *metadata_name; /* owned: interned */
static PyCFunctionWithKeywords original_backward;
static int differentiates; /* a backward pass ran: this program uses gradients */

static PyObject *hook_backward(PyObject *self, PyObject *args, PyObject *kwargs) {
    dycl_region *region = dycl_region_current;
    int keeps = PyTuple_GET_SIZE(args) > 2 && PyTuple_GET_ITEM(args, 2) == Py_True; /* retain_graph */
    differentiates = 1;
    PyObject *result = original_backward(self, args, kwargs);
    if (region && region == dycl_region_current && !keeps) dycl_order_forget(region);
    return result;
}

/* ---- Marks */

/* 1: marked, or nothing to mark; 0: the graph has a mark already, or cannot take one. */
static int mark_tensor(PyObject *tensor, PyObject *mark) {
    PyObject *node = PyObject_GetAttr(tensor, grad_fn_name);
    PyObject *metadata = node && node != Py_None ? PyObject_GetAttr(node, metadata_name) : NULL;
    int result = node == Py_None;
    if (metadata && PyDict_Check(metadata) && !PyDict_GetItemWithError(metadata, key) && !PyErr_Occurred())
        result = PyDict_SetItem(metadata, key, mark) == 0;
    else if (metadata && PyDict_Check(metadata))
        result = PyDict_GetItem(metadata, key) == mark; /* two results of one operator */
    Py_XDECREF(metadata);
    Py_XDECREF(node);
    return result;
}

static int is_leaf_object(PyObject *o) {
    return o == Py_None || PyBool_Check(o) || PyLong_Check(o) || PyFloat_Check(o) || PyUnicode_Check(o) ||
           PyBytes_Check(o);
}

/* A tensor's attribute may be the program's own code, which may take an item out of what is walked over. */
static int mark_held(PyObject *item, PyObject *mark, int depth, int *left);

/* Every tensor of a result. 0: something in it cannot be looked into. */
static int mark_all(PyObject *o, PyObject *mark, int depth, int *left) {
    PyObject *name, *item;
    Py_ssize_t at = 0;
    int marked = 1;
    if (is_leaf_object(o)) return 1;
    if (depth == 0 || --*left < 0) return 0;
    if (PyObject_TypeCheck(o, dycl_py.tensor_type)) return mark_tensor(o, mark);
    if (PyTuple_Check(o) || PyList_Check(o)) {
        for (Py_ssize_t i = 0; marked && i < PySequence_Fast_GET_SIZE(o); i++)
            marked = mark_held(PySequence_Fast_GET_ITEM(o, i), mark, depth - 1, left);
        return marked;
    }
    PyObject *attributes =
        PyDict_Check(o) ? o : dycl_object_dict(o); /* an output object of the program's: what it holds */
    if (!attributes) return 0;
    Py_INCREF(attributes);
    while (marked && PyDict_Next(attributes, &at, &name, &item)) marked = mark_held(item, mark, depth - 1, left);
    Py_DECREF(attributes);
    return marked;
}

static int mark_held(PyObject *item, PyObject *mark, int depth, int *left) {
    Py_INCREF(item);
    int marked = mark_all(item, mark, depth, left);
    Py_DECREF(item);
    return marked;
}

static int is_alive(PyObject *reference) { return reference && dycl_weakref_object(reference); }

static int in_training(const dycl_site *site) { /* or unknown */
    PyObject *module = site->module ? dycl_weakref_object(site->module) : NULL;
    PyObject *dict = module ? dycl_object_dict(module) : NULL;
    return !dict || PyDict_GetItemString(dict, "training") != Py_False;
}

static int is_watched(const dycl_site *site) {
    return original_backward && !site->hint.done && !differentiates && !in_training(site);
}

/* ---- The hint */

static int say(const dycl_site *site) {
    PyObject *module = dycl_weakref_object(site->module);
    PyObject *logging = PyImport_ImportModule("logging"),
             *logger = logging ? PyObject_CallMethod(logging, "getLogger", "s", "dycl") : NULL;
    PyObject *said =
        logger ? PyObject_CallMethod(
                     logger, "warning", "sis",
                     "dycl: the last %d calls of a %s ran in torch, because gradients are enabled, and nothing used "
                     "them. Under "
                     "torch.no_grad() or torch.inference_mode() it runs through dycl. (This is said once a model.)",
                     ENOUGH, Py_TYPE(module)->tp_name)
               : NULL;
    Py_XDECREF(logging);
    Py_XDECREF(logger);
    Py_XDECREF(said);
    if (!said && PyErr_ExceptionMatches(PyExc_Exception))
        PyErr_Clear(); /* a handler of the program's that fails is no failure of the call */
    return PyErr_Occurred() ? -1 : 0;
}

void dycl_hint_before(dycl_site *site) {
    dycl_hint *hint = &site->hint;
    if (!is_watched(site)) {
        hint->unused = 0;
        return;
    }
    /* the result of the last call may still be bound to the variable that takes the next one */
    if (is_alive(hint->marks[0])) hint->unused = 0;
    Py_XSETREF(hint->marks[0], hint->marks[1]);
    hint->marks[1] = NULL;
}

int dycl_hint_after(dycl_site *site, PyObject *result) {
    dycl_hint *hint = &site->hint;
    if (!result || !is_watched(site)) {
        if (differentiates) hint->done = 1;
        hint->unused = 0;
        return 0;
    }
    int left = OBJECTS, state = dycl_abi_torch_function_off();
    PyObject *mark = PySet_New(NULL);
    int marked = mark && mark_all(result, mark, DEEP, &left);
    Py_XSETREF(hint->marks[1], mark ? PyWeakref_NewRef(mark, NULL) : NULL);
    Py_XDECREF(mark);
    dycl_abi_torch_function_restore(state);
    PyErr_Clear();
    hint->unused = marked && hint->marks[1] ? hint->unused + 1 : 0;
    hint->done = ++hint->looked_at >= MOST;
    if (hint->unused <= ENOUGH + 1) return 0; /* the last two may still be used */
    hint->done = 1;
    return say(site);
}

void dycl_hint_clear(dycl_hint *hint) {
    Py_CLEAR(hint->marks[0]);
    Py_CLEAR(hint->marks[1]);
}

int dycl_hint_setup(void) {
    key = PyUnicode_InternFromString("dycl");
    grad_fn_name = PyUnicode_InternFromString("grad_fn");
    metadata_name = PyUnicode_InternFromString("metadata");
    if (!key || !grad_fn_name || !metadata_name) return -1;
    PyObject *autograd = PyObject_GetAttrString(dycl_py.torch, "autograd"),
             *variable = autograd ? PyObject_GetAttrString(autograd, "Variable") : NULL;
    PyObject *engine = variable ? PyObject_GetAttrString(variable, "_execution_engine") : NULL;
    PyObject *function = engine ? PyObject_GetAttrString(engine, "run_backward") : NULL;
    original_backward =
        DYCL_AS_KEYWORDS(dycl_wrap_builtin(function, METH_VARARGS | METH_KEYWORDS, DYCL_AS_FUNCTION(hook_backward)));
    Py_XDECREF(autograd);
    Py_XDECREF(variable);
    Py_XDECREF(engine);
    Py_XDECREF(function);
    PyErr_Clear(); /* where backward passes cannot be seen, nothing is said */
    return 0;
}
