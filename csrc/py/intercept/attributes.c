#include "py/intercept/attributes.h"

#include "py/bind/view.h"
#include "py/intercept/fallback.h"
#include "py/region/life.h"
#include "py/torch/wrap.h"

static PyObject *get_shape(PyObject *self, void *closure) {
    dycl_lazy_meta meta;
    (void)closure;
    return dycl_lazy_describe(self, &meta) < 0 ? NULL : dycl_size_object(meta.rank, meta.sizes);
}

static PyObject *get_dtype(PyObject *self, void *closure) {
    dycl_lazy_meta meta;
    (void)closure;
    return dycl_lazy_describe(self, &meta) < 0 ? NULL : Py_NewRef(dycl_py.dtypes[meta.dtype]);
}

static PyObject *get_ndim(PyObject *self, void *closure) {
    dycl_lazy_meta meta;
    (void)closure;
    return dycl_lazy_describe(self, &meta) < 0 ? NULL : PyLong_FromLong(meta.rank);
}

static PyObject *get_itemsize(PyObject *self, void *closure) {
    dycl_lazy_meta meta;
    (void)closure;
    return dycl_lazy_describe(self, &meta) < 0 ? NULL : PyLong_FromSize_t(dycl_dtype_size(meta.dtype));
}

static PyObject *get_constant(PyObject *self, void *closure) {
    (void)self;
    return Py_NewRef(*(PyObject **)closure);
}

/* x.T, x.H (of a matrix; no complex numbers are represented), x.mT, x.mH (of the last two dimensions) */
static PyObject *get_transposed(PyObject *self, void *closure) {
    dycl_region *region = dycl_region_current;
    const char *name = closure;
    if (dycl_region_records(region)) {
        region->calling = PyDict_GetItemString(dycl_py.tensor_type->tp_base->tp_dict, name);
        PyObject *result = dycl_view_transposed(region, self, name[0] == 'm');
        if (result || PyErr_Occurred()) return result;
    }
    if (dycl_fallback_prepare(region, &self, 1, name, DYCL_BAIL_arguments) < 0) return NULL;
    return PyObject_GetAttrString(self, name);
}

/* requires_grad, grad, __class__: what is set belongs to a plain tensor; what is read of the first two is known */
static int set_on_plain(PyObject *self, PyObject *value, void *closure) {
    const char *name = closure;
    if (dycl_fallback_prepare(dycl_region_current, &self, 1, name, DYCL_BAIL_attribute) < 0) return -1;
    return value ? PyObject_SetAttrString(self, name, value) : PyObject_DelAttrString(self, name);
}

static int is_pending_history(PyObject *self) {
    const dycl_lazy *lazy = dycl_lazy_of(self);
    return !lazy->real && lazy->region && lazy->region->tracks;
}

/* What is known without torch: `without` a history, or `pending` (or NULL) while it is recorded. NULL without an
 * exception: *self is plain now, and torch answers. */
static PyObject *known_of_history(PyObject **self, const char *name, PyObject *without, PyObject *pending) {
    int tracked = dycl_region_needs_gradient(*self);
    if (tracked < 0) return NULL;
    if (!tracked) return Py_NewRef(without);
    if (pending && is_pending_history(*self)) return Py_NewRef(pending);
    dycl_fallback_prepare(dycl_region_current, self, 1, name, DYCL_BAIL_attribute);
    return NULL;
}

/* What is computed needs no gradient, unless the region tracks them. A view of what does needs one too. */
static PyObject *get_requires_grad(PyObject *self, void *closure) {
    PyObject *known = known_of_history(&self, closure, Py_False, Py_True);
    return known || PyErr_Occurred() ? known : dycl_py_requires_grad(self);
}

/* .grad and .grad_fn of what has a history: torch answers, and warns. */
static PyObject *get_of_history(PyObject *self, void *closure) {
    PyObject *known = known_of_history(&self, closure, Py_None, NULL);
    return known || PyErr_Occurred() ? known : PyObject_GetAttrString(self, closure);
}

/* A view of a leaf is none; nor is what was computed of one. */
static PyObject *get_is_leaf(PyObject *self, void *closure) {
    PyObject *known = known_of_history(&self, closure, Py_True, Py_False);
    return known || PyErr_Occurred() ? known : PyObject_GetAttrString(self, closure);
}

static PyObject *get_base(PyObject *self, void *closure) {
    if (dycl_fallback_prepare(dycl_region_current, &self, 1, closure, DYCL_BAIL_attribute) < 0) return NULL;
    return PyObject_GetAttrString(self, closure);
}

static getter torchs_base;

/* torch finds the base's object by its tensor: the program's own object of it has to be a plain tensor by then. The
 * view may be one for long. */
static PyObject *get_base_of_plain(PyObject *self, void *closure) {
    dycl_region *region = dycl_region_current;
    int perhaps = region && region->first && !region->flushing && dycl_abi_has_autograd_meta(dycl_abi_impl(self));
    if (perhaps && dycl_region_make_all_plain(region, DYCL_BAIL_attribute) < 0) return NULL;
    return torchs_base(self, closure);
}

/* A class of the program's own that is set has torch's layout, which ours adds to: CPython would refuse. */
static PyObject *get_class(PyObject *self, void *closure) {
    (void)self;
    (void)closure;
    return Py_NewRef(dycl_py.tensor_type);
}

static PyObject *py_true = Py_True, *py_false = Py_False;
static PyGetSetDef getters[] = {
    {"shape", get_shape, NULL, NULL, NULL},
    {"dtype", get_dtype, NULL, NULL, NULL},
    {"ndim", get_ndim, NULL, NULL, NULL},
    {"itemsize", get_itemsize, NULL, NULL, NULL},
    {"device", get_constant, NULL, NULL, &dycl_py.cpu_device},
    {"layout", get_constant, NULL, NULL, &dycl_py.strided_layout},
    {"is_leaf", get_is_leaf, NULL, NULL, "is_leaf"},
    {"is_cpu", get_constant, NULL, NULL, &py_true},
    {"is_cuda", get_constant, NULL, NULL, &py_false},
    {"is_meta", get_constant, NULL, NULL, &py_false},
    {"is_mps", get_constant, NULL, NULL, &py_false},
    {"is_xpu", get_constant, NULL, NULL, &py_false},
    {"is_mkldnn", get_constant, NULL, NULL, &py_false},
    {"is_nested", get_constant, NULL, NULL, &py_false},
    {"is_quantized", get_constant, NULL, NULL, &py_false},
    {"is_sparse", get_constant, NULL, NULL, &py_false},
    {"is_sparse_csr", get_constant, NULL, NULL, &py_false},
    {"requires_grad", get_requires_grad, set_on_plain, NULL, "requires_grad"},
    {"grad", get_of_history, set_on_plain, NULL, "grad"},
    {"grad_fn", get_of_history, NULL, NULL, "grad_fn"},
    {"_base", get_base, NULL, NULL, "_base"},
    {"__class__", get_class, set_on_plain, NULL, "__class__"},
    {"T", get_transposed, NULL, NULL, "T"},
    {"H", get_transposed, NULL, NULL, "H"},
    {"mT", get_transposed, NULL, NULL, "mT"},
    {"mH", get_transposed, NULL, NULL, "mH"},
    {0},
};

int dycl_attributes_install(PyTypeObject *lazy) {
    PyObject *base = dycl_torch_attribute("_base");
    if (base && !torchs_base) {
        PyGetSetDef *def = ((PyGetSetDescrObject *)base)->d_getset;
        torchs_base = def->get;
        def->get = get_base_of_plain;
    }
    PyTypeObject *torchs = dycl_py.tensor_type->tp_base; /* whose attributes they are in errors */
    for (PyGetSetDef *def = getters; def->name; def++) {
        int has = PyDict_GetItemString(torchs->tp_dict, def->name) != NULL;
        PyObject *descriptor = PyDescr_NewGetSet(has ? torchs : lazy, def);
        if (!descriptor || PyDict_SetItemString(lazy->tp_dict, def->name, descriptor) < 0) return -1;
        Py_DECREF(descriptor);
    }
    return 0;
}
