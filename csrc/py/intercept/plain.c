#include "py/intercept/plain.h"

#include "py/bind/view.h"
#include "py/intercept/fallback.h"
#include "py/intercept/shortcut.h"
#include "py/intercept/table.h"
#include "py/region/replace.h"
#include "py/torch/wrap.h"

static int is_plain(const PyObject *o) {
    const PyTypeObject *type = Py_TYPE(o);
    return type == dycl_py.tensor_type || type == dycl_py.parameter_type || type == dycl_py.buffer_type;
}

/* Our mode would see a call on this tensor first. */
static inline int is_ours(const dycl_region *region, const PyObject *self) {
    return region && is_plain(self) && !region->passing && dycl_region_records(region);
}

/* The region in which a call on a plain tensor may be answered here; NULL: torch's way. */
static inline dycl_region *answering(const PyObject *self) {
    dycl_region *region = dycl_region_current;
    return is_ours(region, self) && dycl_abi_torch_function_is_on() ? region : NULL;
}

/* What is asked for needs nothing that waits, nor does it change what that reads: torch may write at once. */
static int writes_apart(const dycl_region *region, PyObject *const *args, Py_ssize_t count) {
    if (region->deferred || dycl_region_reads(region, args[0])) return 0;
    if (region->replaces && dycl_abi_rank(dycl_abi_borrow(args[0]))) return 0; /* but a step's count may be written */
    for (Py_ssize_t i = 1; i < count; i++) {
        if (is_plain(args[i]) && dycl_replace_awaited(region, args[i])) return 0;
        const PyTypeObject *type = Py_TYPE(args[i]);
        if (!is_plain(args[i]) && type != &PyFloat_Type && type != &PyLong_Type && type != &PyBool_Type) return 0;
    }
    return 1;
}

/* How a call on a plain tensor is answered. */
typedef enum { TORCH, APART, RECORDED } answer;

/* RECORDED: the result, or NULL with an exception. TORCH: our mode sees it, and says why it was not recorded. */
static answer try_record(dycl_region *region, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                         PyObject *kwnames, PyObject **out_result) {
    int in_place, swapped;
    const dycl_binding *row = dycl_binding_find(callable, &in_place, &swapped);
    if (!row || (swapped && count != 2)) return TORCH;
    if (in_place && !kwnames && writes_apart(region, args, count)) return APART;
    region->calling = callable;
    *out_result = dycl_binding_record(row, region, args, count, kwnames, NULL, in_place, swapped);
    return *out_result || PyErr_Occurred() ? RECORDED : TORCH;
}

static int any_lazy(PyObject *const *args, Py_ssize_t count) {
    for (Py_ssize_t i = 1; i < count; i++)
        if (dycl_is_lazy(args[i])) return 1;
    return 0;
}

/* ---- Methods with parameters: their descriptors' vectorcall fields. torch's parser is asked first (shortcut.h). */

static vectorcallfunc original_call;

static PyObject *call_method(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    dycl_region *region = count ? answering(args[0]) : NULL;
    if (!region) return original_call(callable, args, nargsf, kwnames);
    int parsed = count > 1 || kwnames;
    uint64_t pattern = parsed ? dycl_shortcut_pattern(callable, args, count, kwnames, 1) : 0;
    int known = !parsed || (pattern && dycl_shortcut_known(pattern));
    PyObject *result = NULL;
    if (!known)
        return dycl_shortcut_parse(region, original_call, callable, args, nargsf, kwnames, pattern, 1,
                                   any_lazy(args, count));
    if (Py_EnterRecursiveCall(" while calling a Python object")) return NULL; /* as the original does */
    answer way = try_record(region, callable, args, count, kwnames, &result);
    Py_LeaveRecursiveCall();
    if (way == RECORDED) return result;
    int lazy = any_lazy(args, count), state = way == APART ? dycl_abi_torch_function_off() : 0;
    result = original_call(callable, args, nargsf, kwnames);
    if (way == APART) dycl_abi_torch_function_restore(state);
    if (!result && lazy && dycl_shortcut_refused(args, count, kwnames))
        return dycl_fallback(region, callable, args, count, kwnames, NULL, DYCL_BAIL_arguments);
    return result;
}

/* ---- Methods without: the interpreter calls their C functions directly, which are not told whose they are */

#define MOST 128
static struct {
    PyObject *callable; /* borrowed from the bindings' table; NULL: not bound, and as harmless as attributes are */
    PyCFunction original;
} alone[MOST];
static int alone_count;

static PyObject *call_alone(int which, PyObject *self, PyObject *unused) {
    dycl_region *region = answering(self);
    PyObject *callable = alone[which].callable, *result = NULL;
    answer way = !region ? TORCH : callable ? try_record(region, callable, &self, 1, NULL, &result) : APART;
    if (way == RECORDED) return result;
    int state = way == APART ? dycl_abi_torch_function_off() : 0;
    result = alone[which].original(self, unused);
    if (way == APART) dycl_abi_torch_function_restore(state);
    return result;
}

#define ONE(n)                                                                                                         \
    static PyObject *alone_##n(PyObject *self, PyObject *unused) { return call_alone(0x##n, self, unused); }
#define EACH_OF_16(X, h)                                                                                               \
    X(h##0)                                                                                                            \
    X(h##1)                                                                                                            \
    X(h##2) X(h##3) X(h##4) X(h##5) X(h##6) X(h##7) X(h##8) X(h##9) X(h##a) X(h##b) X(h##c) X(h##d) X(h##e) X(h##f)
#define EACH(X)                                                                                                        \
    EACH_OF_16(X, 0)                                                                                                   \
    EACH_OF_16(X, 1)                                                                                                   \
    EACH_OF_16(X, 2) EACH_OF_16(X, 3) EACH_OF_16(X, 4) EACH_OF_16(X, 5) EACH_OF_16(X, 6) EACH_OF_16(X, 7)
EACH(ONE)
#define NAME(n) alone_##n,
static const PyCFunction alone_hooks[MOST] = {EACH(NAME)};

static void add_alone(PyMethodDef *def, PyObject *callable) {
    if (alone_count == MOST) return;
    alone[alone_count].callable = callable;
    alone[alone_count].original = def->ml_meth;
    def->ml_meth = alone_hooks[alone_count++];
}

void dycl_plain_add_method(PyObject *callable) {
    if (Py_TYPE(callable) != &PyMethodDescr_Type) return;
    PyMethodDescrObject *method = (PyMethodDescrObject *)callable;
    if (method->d_method->ml_flags == (METH_VARARGS | METH_KEYWORDS)) {
        if (!original_call) original_call = method->vectorcall;
        if (method->vectorcall == original_call) method->vectorcall = call_method;
    } else if (method->d_method->ml_flags == METH_NOARGS) {
        add_alone(method->d_method, callable);
    }
}

static void add_harmless_methods(void) {
    static const char *const names[] = {"storage_offset", "is_inference", "has_names", "_is_view"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        PyObject *found = PyDict_GetItemString(dycl_py.tensor_type->tp_base->tp_dict, names[i]);
        if (!found || Py_TYPE(found) != &PyMethodDescr_Type) continue;
        PyMethodDef *def = ((PyMethodDescrObject *)found)->d_method;
        if (def->ml_flags == METH_NOARGS) add_alone(def, NULL);
    }
}

/* ---- Attributes */

/* Nothing has to be computed for a plain tensor: they look at no values, and memory that `grad`, `data` and `real` hand
 * out lies under plain tensors again (and uncounted.c sees `data`). */
static const char *const harmless[] = {
    "shape",           "dtype",        "device", "ndim",      "requires_grad", "is_leaf",       "layout",   "is_cuda",
    "is_cpu",          "is_meta",      "grad",   "is_sparse", "grad_fn",       "names",         "itemsize", "nbytes",
    "is_quantized",    "is_mps",       "data",   "is_xpu",    "is_mkldnn",     "is_nested",     "_version", "is_mtia",
    "output_nr",       "is_vulkan",    "real",   "is_ipu",    "is_xla",        "is_sparse_csr", "is_ort",   "is_maia",
    "_backward_hooks", "retains_grad", "name"};
static const char *const views[] = {"T", "H", "mT", "mH"};
enum { HARMLESS = sizeof harmless / sizeof *harmless, VIEWS = sizeof views / sizeof *views };

typedef struct {
    getter original;
    void *closure;
    int matrix;           /* of a view: mT and mH */
    PyObject *descriptor; /* borrowed from torch's class */
} attribute;

static attribute attributes[HARMLESS + VIEWS];

static PyObject *get_harmless(PyObject *self, void *closure) {
    const attribute *a = closure;
    if (!is_ours(dycl_region_current, self)) return a->original(self, a->closure);
    int state = dycl_abi_torch_function_off();
    PyObject *value = a->original(self, a->closure);
    dycl_abi_torch_function_restore(state);
    return value;
}

static PyObject *get_view(PyObject *self, void *closure) {
    const attribute *a = closure;
    dycl_region *region = answering(self);
    if (region) region->calling = a->descriptor;
    PyObject *view = region ? dycl_view_transposed(region, self, a->matrix) : NULL;
    return view || (region && PyErr_Occurred()) ? view : a->original(self, a->closure);
}

static const attribute *attribute_of(PyObject *descriptor, getter hook) {
    const PyGetSetDef *def =
        Py_TYPE(descriptor) == &PyGetSetDescr_Type ? ((PyGetSetDescrObject *)descriptor)->d_getset : NULL;
    return def && def->get == hook ? def->closure : NULL;
}

int dycl_plain_is_harmless(PyObject *descriptor) { return attribute_of(descriptor, get_harmless) != NULL; }

int dycl_plain_transposes(PyObject *descriptor) {
    const attribute *a = attribute_of(descriptor, get_view);
    return a ? a->matrix : -1;
}

static void add_attribute(attribute *a, const char *name, getter hook) {
    PyObject *found = dycl_torch_attribute(name);
    if (!found) return;
    PyGetSetDef *def = ((PyGetSetDescrObject *)found)->d_getset;
    if (!def->get || (def->set && def->closure)) return; /* its setter would be given what is ours */
    a->original = def->get;
    a->closure = def->closure;
    a->descriptor = found;
    def->closure = a;
    def->get = hook;
}

/* ---- Elements: `x[key]`, `x[key] = value` */

static PyObject *getitem; /* owned: torch.Tensor.__getitem__ */
static binaryfunc original_subscript;
static objobjargproc original_assign;

static PyObject *subscript(PyObject *self, PyObject *key) {
    PyObject *args[2] = {self, key}, *result = NULL;
    dycl_region *region = answering(self);
    if (region && try_record(region, getitem, args, 2, NULL, &result) == RECORDED) return result;
    return original_subscript(self, key);
}

static int is_number(const PyObject *o) { return o == Py_None || PyLong_CheckExact(o); }

static int is_simple_key(PyObject *key, int depth) {
    if (is_number(key) || key == Py_Ellipsis || is_plain(key)) return 1;
    if (PySlice_Check(key)) {
        const PySliceObject *slice = (const PySliceObject *)key;
        return is_number(slice->start) && is_number(slice->stop) && is_number(slice->step);
    }
    if (depth || !PyTuple_CheckExact(key)) return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); i++)
        if (!is_simple_key(PyTuple_GET_ITEM(key, i), 1)) return 0;
    return 1;
}

static int assign(PyObject *self, PyObject *key, PyObject *value) {
    PyObject *args[2] = {self, value};
    dycl_region *region = value ? answering(self) : NULL;
    if (!region || !is_simple_key(key, 0) || !writes_apart(region, args, 2)) return original_assign(self, key, value);
    int state = dycl_abi_torch_function_off();
    int result = original_assign(self, key, value);
    dycl_abi_torch_function_restore(state);
    return result;
}

static void add_elements(PyTypeObject *type) {
    PyMappingMethods *mapping = type ? type->tp_as_mapping : NULL;
    if (!mapping || mapping->mp_subscript != original_subscript || mapping->mp_ass_subscript != original_assign) return;
    mapping->mp_subscript = subscript;
    mapping->mp_ass_subscript = assign;
}

static void put_back(PyTypeObject *type) {
    PyMappingMethods *mapping = type ? type->tp_as_mapping : NULL;
    if (!mapping || !original_subscript) return;
    if (mapping->mp_subscript == original_subscript) mapping->mp_subscript = subscript;
    if (mapping->mp_ass_subscript == original_assign) mapping->mp_ass_subscript = assign;
}

void dycl_plain_put_back(void) {
    put_back(dycl_py.tensor_type);
    put_back(dycl_py.parameter_type);
}

void dycl_plain_setup(void) {
    add_harmless_methods();
    for (int i = 0; i < HARMLESS; i++) add_attribute(&attributes[i], harmless[i], get_harmless);
    for (int i = 0; i < VIEWS; i++) {
        attributes[HARMLESS + i].matrix = views[i][0] == 'm';
        add_attribute(&attributes[HARMLESS + i], views[i], get_view);
    }
    getitem = PyObject_GetAttrString((PyObject *)dycl_py.tensor_type, "__getitem__");
    PyMappingMethods *mapping = dycl_py.tensor_type->tp_as_mapping;
    if (getitem && Py_TYPE(getitem) == &PyWrapperDescr_Type && mapping->mp_subscript && mapping->mp_ass_subscript) {
        original_subscript = mapping->mp_subscript;
        original_assign = mapping->mp_ass_subscript;
        add_elements(dycl_py.tensor_type);
        add_elements(dycl_py.parameter_type);
    }
    PyErr_Clear();
}
