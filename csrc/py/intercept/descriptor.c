/* Methods of the lazy tensor: descriptors that carry their row. */
#include "py/intercept/fallback.h"
#include "py/intercept/shortcut.h"
#include "py/intercept/table.h"

typedef struct {
    PyObject_HEAD const dycl_binding *row;
    PyObject *original; // owned: torch.Tensor's own method
    int in_place, swapped;
    vectorcallfunc vectorcall;
} dycl_method;

static PyObject *method_call(PyObject *o, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    const dycl_method *method = (const dycl_method *)o;
    Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    dycl_region *region = dycl_region_current;
    if (count && dycl_is_lazy(args[0]) && dycl_region_records(region)) {
        int parsed = count > 1 || kwnames;
        uint64_t pattern = parsed ? dycl_shortcut_pattern(method->original, args, count, kwnames, 1) : 0;
        if (parsed && !region->passing &&
            !(pattern && dycl_shortcut_known(pattern))) /* torch's parser may refuse what the binding would take */
            return dycl_shortcut_parse(region, PyObject_Vectorcall, method->original, args, nargsf, kwnames, pattern, 1,
                                       1);
        region->calling = method->original;
        PyObject *result =
            dycl_binding_record(method->row, region, args, count, kwnames, NULL, method->in_place, method->swapped);
        if (result || PyErr_Occurred()) return result;
        return dycl_fallback(region, method->original, args, count, kwnames, NULL, region->recorder.why);
    }
    return dycl_fallback(region, method->original, args, count, kwnames, NULL, DYCL_BAIL_mode);
}

static PyObject *method_get(PyObject *self, PyObject *object, PyObject *type) {
    (void)type;
    return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
}

static void method_dealloc(PyObject *self) {
    Py_XDECREF(((dycl_method *)self)->original);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *method_attribute(PyObject *self, PyObject *name) { /* __name__, __doc__, ... are torch's */
    return PyObject_GetAttr(((dycl_method *)self)->original, name);
}

static PyTypeObject method_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dycl.method",
    .tp_basicsize = sizeof(dycl_method),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(dycl_method, vectorcall),
    .tp_descr_get = method_get,
    .tp_getattro = method_attribute,
    .tp_dealloc = method_dealloc,
};

int dycl_binding_add_method(const char *name, PyObject *original, const dycl_binding *row, int in_place, int swapped) {
    if (!method_type.tp_dict && PyType_Ready(&method_type) < 0) return -1;
    dycl_method *method = PyObject_New(dycl_method, &method_type);
    if (!method) return -1;
    method->row = row;
    method->original = Py_NewRef(original);
    method->in_place = in_place;
    method->swapped = swapped;
    method->vectorcall = method_call;
    int result = PyDict_SetItemString(dycl_py.lazy_type->tp_dict, name, (PyObject *)method);
    Py_DECREF(method);
    return result;
}
