#include "py/region/trained.h"

#include "py/cpython/object.h"

#define BITS 12

static struct {
    const PyObject *leaf; /* compared only */
    PyObject *weak;       /* owned; NULL: nothing was noted here */
} leaves[1 << BITS];

int dycl_trained_has(PyObject *leaf) {
    uint32_t at = dycl_address_hash(leaf, BITS);
    return leaves[at].leaf == leaf && leaves[at].weak && dycl_weakref_object(leaves[at].weak) == leaf;
}

void dycl_trained_note(PyObject *leaf) {
    uint32_t at = dycl_address_hash(leaf, BITS);
    if (Py_TYPE(leaf) != dycl_py.parameter_type || dycl_trained_has(leaf)) return;
    PyObject *weak = PyWeakref_NewRef(leaf, NULL);
    if (!weak) PyErr_Clear(); /* no memory: its optimizer may be torch's */
    leaves[at].leaf = leaf;
    Py_XSETREF(leaves[at].weak, weak);
}
