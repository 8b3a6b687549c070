#include "py/intercept/hosted_rows.h"

#include "py/bind/hosted.h"
#include "py/intercept/table.h"

/* The parser is passed by, methods of lazy tensors are found, and then all come to dycl_hosted_record. */
static PyObject *no_binding(dycl_call *call, const dycl_binding *row) {
    (void)row;
    return dycl_call_bail(call, DYCL_BAIL_operator);
}

static dycl_binding unbound = {.name = "hosted", .parameters = "", .bind = no_binding};

static int add(PyObject *owner, const char *name, dycl_op op, int in_place, int method) {
    PyObject *callable = owner ? PyObject_GetAttrString(owner, name) : NULL;
    if (!callable) {
        PyErr_Clear(); /* this torch does not have it */
        return 0;
    }
    int result = dycl_hosted_add(callable, op, in_place);
    if (result > 0) result = dycl_bindings_add(callable, &unbound, in_place, method ? name : NULL);
    Py_DECREF(callable);
    return result;
}

static PyObject *submodule(const char *outer, const char *inner) { /* new reference, or NULL */
    PyObject *at = PyObject_GetAttrString(dycl_py.torch, outer);
    if (at && inner) Py_SETREF(at, PyObject_GetAttrString(at, inner));
    PyErr_Clear();
    return at;
}

int dycl_hosted_setup(void) {
    PyObject *tensor = (PyObject *)dycl_py.tensor_type, *vf = submodule("_C", "_VariableFunctions"),
             *nn = submodule("_C", "_nn"), *special = submodule("special", NULL), *linalg = submodule("linalg", NULL);
    int result = 0;
    char name[64];
    for (const dycl_hosted_place *p = dycl_hosted_places; p->name && result == 0; p++) {
        if (p->places & DYCL_AT_TORCH)
            result |= add(vf, p->name, p->op, 0, 0); /* what Python functions of that name in torch call, too */
        if (p->places & DYCL_AT_METHOD) result |= add(tensor, p->name, p->op, 0, 1);
        if (p->places & DYCL_AT_NN) result |= add(nn, p->name, p->op, 0, 0);
        if (p->places & DYCL_AT_SPECIAL) result |= add(special, p->name, p->op, 0, 0);
        if (p->places & DYCL_AT_LINALG) result |= add(linalg, p->name, p->op, 0, 0);
        snprintf(name, sizeof name, "%s_", p->name);
        if (p->places & DYCL_AT_INPLACE) result |= add(tensor, name, p->op, 1, 1);
        if (p->places & DYCL_AT_INPLACE && p->places & DYCL_AT_TORCH) result |= add(vf, name, p->op, 1, 0);
    }
    Py_XDECREF(vf);
    Py_XDECREF(nn);
    Py_XDECREF(special);
    Py_XDECREF(linalg);
    return result;
}
