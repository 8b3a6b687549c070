#include "py/site/site.h"

#include "base/alloc.h"
#include "py/cpython/frame.h"
#include "py/cpython/object.h"
#include "py/entry/everywhere.h"
#include "py/modules/instance.h"
#include "py/region/region.h"
#include "structmember.h"

int dycl_disabled;

struct dycl_plan_cache *dycl_site_cache(void) {
    static dycl_plan_cache *cache;
    if (!cache) cache = dycl_plan_cache_create();
    return cache;
}

static void retain_segment(void *segment) { dycl_segment_retain(segment); }
static void release_segment(void *segment) { dycl_segment_release(segment); }

/* ---- May this call become a region? */

static int default_dtype_is_f32(void) {
    PyObject *dtype = PyObject_CallNoArgs(dycl_py.get_default_dtype);
    int result = dtype == dycl_py.dtypes[DYCL_F32];
    Py_XDECREF(dtype);
    return result;
}

/* torch.compile looks at every frame that runs now: what it compiles must not see our mode. */
static int compiling(void) {
    if (!dycl_py.eval_frame_callback) return 0;
    PyObject *callback = PyObject_CallNoArgs(dycl_py.eval_frame_callback);
    int result = callback && callback != Py_None && callback != Py_False;
    Py_XDECREF(callback);
    PyErr_Clear();
    return result;
}

dycl_entry dycl_site_may_enter(dycl_site *site, PyObject *const *args, Py_ssize_t count, PyObject *kwnames) {
    if (dycl_disabled) {
        site->stats.plain_disabled++;
        return DYCL_ENTRY_PLAIN;
    }
    if (compiling() || dycl_abi_mode_depth() || !dycl_abi_dispatch_plain(dycl_abi_dispatch_state()) ||
        !default_dtype_is_f32()) {
        site->stats.plain_mode++;
        return DYCL_ENTRY_PLAIN;
    }
    dycl_gradient_need need =
        dycl_abi_grad_enabled() ? dycl_gradient_needed(site, args, count, kwnames) : DYCL_GRADIENT_NONE;
    if (need == DYCL_GRADIENT_NONE) return DYCL_ENTRY_REGION;
    site->stats.plain_grad++;
    return need == DYCL_GRADIENT_OF_PARAMETERS ? DYCL_ENTRY_GRADIENTS : DYCL_ENTRY_PLAIN;
}

/* ---- What was left to torch */

static void note_left(dycl_site *site, PyObject *callable, dycl_bail why) {
    PyFrameObject *frame = PyEval_GetFrame(); /* borrowed */
    PyCodeObject *code = frame ? PyFrame_GetCode(frame) : NULL;
    int line = frame ? PyFrame_GetLineNumber(frame) : 0;
    for (int i = 0; i < site->left_count; i++) {
        dycl_left_row *row = &site->left[i];
        if (row->callable != callable || row->code != (PyObject *)code || row->line != line || row->why != why)
            continue;
        row->count++;
        Py_XDECREF(code);
        return;
    }
    if (site->left_count == site->left_room && site->left_count < DYCL_SITE_LEFT) {
        int room = site->left_room ? 2 * site->left_room : 4;
        void *block = dycl_realloc(site->left, (size_t)room * sizeof *site->left);
        if (block) {
            site->left = block;
            site->left_room = room;
        }
    }
    if (site->left_count < site->left_room && code) {
        site->left[site->left_count++] = (dycl_left_row){Py_NewRef(callable), (PyObject *)code, line, why, 1};
    } else {
        Py_XDECREF(code);
    }
}

void dycl_site_left_at(dycl_site *site, PyObject *callable, dycl_bail why) {
    site->stats.torch++;
    site->stats.bails[why]++;
    if (Py_TYPE(callable) ==
        dycl_py.method_wrapper_type) { /* a getter: made anew for each call, its descriptor is not */
        PyObject *descriptor = PyObject_GetAttrString(callable, "__self__");
        if (descriptor) note_left(site, descriptor, why);
        Py_XDECREF(descriptor);
        PyErr_Clear();
        return;
    }
    note_left(site, callable, why);
}

void dycl_site_replayed(dycl_site *site, const char *why) {
    site->stats.replays++;
    PyObject *text = PyUnicode_FromString(why), *old = site->replayed;
    if (!text) {
        PyErr_Clear(); /* it is only for explain */
        return;
    }
    site->replayed = text;
    Py_XDECREF(old);
}

/* ---- The object */

static dycl_site *last; /* owned when it is a module's */

/* The garbage collector clears weak references to a module before the finalizers of what dies with it, and these may
 * call it: it is still there then, among the variables of torch's function that asked it for this site. New reference,
 * or NULL without an exception. */
static PyObject *dying_module(const dycl_site *site) {
    PyObject *variables = dycl_frame_variables(), *key, *o, *found = NULL;
    Py_ssize_t at = 0;
    while (variables && !found && PyDict_Check(variables) && PyDict_Next(variables, &at, &key, &o)) {
        PyObject *dict = PyObject_TypeCheck(o, dycl_py.module_type) ? dycl_object_dict(o) : NULL;
        if (dict && PyDict_GetItemString(dict, "_compiled_call_impl") == (PyObject *)site) found = Py_NewRef(o);
    }
    Py_XDECREF(variables);
    PyErr_Clear();
    return found;
}

static PyObject *call_dying(dycl_site *site, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    PyObject *module = dying_module(site);
    if (!module) {
        PyErr_SetString(PyExc_ReferenceError, "the accelerated module is gone");
        return NULL;
    }
    PyObject *callable = PyObject_GetAttrString(module, "_call_impl"), *result = NULL;
    Py_DECREF(module);
    if (callable) result = PyObject_Vectorcall(callable, args, nargsf, kwnames);
    Py_XDECREF(callable);
    return result;
}

static PyObject *site_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    dycl_site *site = (dycl_site *)self;
    PyObject *callable;
    if (site->module) {
        if (site->address) dycl_everywhere_trim();
        PyObject *module = dycl_weakref_object(site->module); /* borrowed */
        if (!module) return call_dying(site, args, nargsf, kwnames);
        callable = PyObject_GetAttrString(module, "_call_impl");
    } else {
        callable = Py_XNewRef(site->callable);
        if (!callable)
            PyErr_SetString(PyExc_ReferenceError,
                            "the accelerated function is gone"); /* cleared by the garbage collector */
    }
    if (!callable) return NULL;
    PyObject *result = dycl_region_call(site, callable, args, nargsf, kwnames);
    Py_DECREF(callable);
    return result;
}

PyObject *dycl_site_create(PyObject *callable, PyObject *module, PyObject *died) {
    dycl_site *site = (dycl_site *)dycl_site_type.tp_alloc(&dycl_site_type, 0);
    if (!site) return NULL;
    site->vectorcall = site_call;
    site->callable = Py_XNewRef(callable);
    site->module = module ? PyWeakref_NewRef(module, died) : NULL;
    site->trace = dycl_trace_create(retain_segment, release_segment);
    if ((module && !site->module) || !site->trace) {
        if (!PyErr_Occurred()) PyErr_NoMemory();
        Py_DECREF(site);
        return NULL;
    }
    return (PyObject *)site;
}

static int site_traverse(PyObject *self, visitproc visit, void *arg) {
    dycl_site *site = (dycl_site *)self;
    Py_VISIT(site->callable);
    Py_VISIT(site->module);
    Py_VISIT(site->dict);
    Py_VISIT(site->methods);
    for (int i = 0; i < site->left_count; i++) {
        Py_VISIT(site->left[i].callable);
        Py_VISIT(site->left[i].code);
    }
    return 0;
}

static int site_clear(PyObject *self) {
    dycl_site *site = (dycl_site *)self;
    Py_CLEAR(site->callable);
    Py_CLEAR(site->replayed);
    Py_CLEAR(site->dict);
    Py_CLEAR(site->methods);
    int count = site->left_count;
    site->left_count = 0;
    for (int i = 0; i < count; i++) {
        Py_CLEAR(site->left[i].callable);
        Py_CLEAR(site->left[i].code);
    }
    return 0;
}

static void site_dealloc(PyObject *self) {
    dycl_site *site = (dycl_site *)self;
    PyObject_GC_UnTrack(self);
    if (site->weak) PyObject_ClearWeakRefs(self);
    site_clear(self);
    dycl_hint_clear(&site->hint);
    Py_CLEAR(site->module);
    dycl_trace_free(site->trace);
    dycl_free(site->left);
    if (last == site) last = NULL;
    Py_TYPE(self)->tp_free(self);
}

dycl_site *dycl_site_last(void) { return last; }

/* A module's site is kept: it holds the module weakly. A function's is not: it would keep the function. */
void dycl_site_set_last(dycl_site *site) {
    dycl_site *before = last;
    last = site->module ? (dycl_site *)Py_NewRef(site) : site;
    if (before && before->module) Py_DECREF(before);
}

/* Used as a method, an accelerated function binds like a function. */
static PyObject *site_get(PyObject *self, PyObject *object, PyObject *type) {
    (void)type;
    return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
}

static PyObject *site_repr(PyObject *self) {
    const dycl_site *site = (const dycl_site *)self;
    if (site->callable) return PyUnicode_FromFormat("<dycl.accelerate(%R)>", site->callable);
    PyObject *module = dycl_weakref_object(site->module); /* a module's own repr is long */
    if (!module) return PyUnicode_FromString("<dycl: a module that is gone>");
    return PyUnicode_FromFormat("<dycl: calls of a %s at %p>", Py_TYPE(module)->tp_name, (void *)module);
}

/* Pickled by name and copied as itself, like a function. */
static PyObject *site_reduce(PyObject *self, PyObject *unused) {
    (void)unused;
    return PyObject_GetAttrString(self, "__qualname__");
}

static PyObject *site_copy(PyObject *self, PyObject *unused) {
    (void)unused;
    return Py_NewRef(self);
}

static PyMethodDef site_methods[] = {
    {"__reduce__", site_reduce, METH_NOARGS, NULL},
    {"__copy__", site_copy, METH_NOARGS, NULL},
    {"__deepcopy__", site_copy, METH_O, NULL},
    {0},
};

static PyMemberDef site_members[] = {
    {"_options", T_UINT, offsetof(dycl_site, options), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(dycl_site, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(dycl_site, weak), READONLY, NULL},
    {0},
};
static PyGetSetDef site_getters[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL}, {0}};

PyTypeObject dycl_site_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dycl.Site",
    .tp_doc = "One accelerated callable: calls run as regions.",
    .tp_basicsize = sizeof(dycl_site),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(dycl_site, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_repr = site_repr,
    .tp_traverse = site_traverse,
    .tp_clear = site_clear,
    .tp_dealloc = site_dealloc,
    .tp_descr_get = site_get,
    .tp_methods = site_methods,
    .tp_members = site_members,
    .tp_getset = site_getters,
    .tp_dictoffset = offsetof(dycl_site, dict),
    .tp_weaklistoffset = offsetof(dycl_site, weak),
};
