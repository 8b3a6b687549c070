#include "py/intercept/replaced.h"

#include "py/cpython/type.h"
#include "py/intercept/plain.h"
#include "py/intercept/tensor_method.h"
#include "py/region/region.h"

static setattrofunc original;
static PyObject *torchs, *replaced; /* owned: what torch has under the names of our rows; the names of others */

int dycl_replaced_any(void) { return replaced && PySet_GET_SIZE(replaced) > 0; }

static int set_attribute(PyObject *class, PyObject *name, PyObject *value) {
    PyObject *was = class == (PyObject *)dycl_py.tensor_type ? PyDict_GetItemWithError(torchs, name) : NULL;
    if (!was) {
        PyErr_Clear(); /* a name that cannot be hashed is torch's matter */
        return original(class, name, value);
    }
    if (dycl_region_current && dycl_region_step_aside(dycl_region_current, DYCL_BAIL_mode) < 0) return -1;
    int result = original(class, name, value);
    if (result < 0) return result;
    if (dycl_type_lookup(dycl_py.tensor_type, name) != was) return PySet_Add(replaced, name);
    if (PySet_Discard(replaced, name) < 0) return -1;
    if (!dycl_replaced_any()) dycl_plain_put_back();
    return 0;
}

int dycl_replaced_setup(void) {
    PyTypeObject *metaclass = Py_TYPE(dycl_py.tensor_type);
    PyObject *name, *row;
    Py_ssize_t at = 0;
    if (!(torchs = PyDict_New()) || !(replaced = PySet_New(NULL))) return -1;
    while (PyDict_Next(dycl_py.lazy_type->tp_dict, &at, &name, &row)) {
        PyObject *was = dycl_type_lookup(dycl_py.tensor_type, name);
        if (!was || dycl_tensor_method_is(row) || PyUnicode_CompareWithASCIIString(name, "__doc__") == 0) continue;
        if (PyDict_SetItem(torchs, name, was) < 0) return -1;
    }
    original = metaclass->tp_setattro;
    metaclass->tp_setattro = set_attribute;
    return 0;
}
