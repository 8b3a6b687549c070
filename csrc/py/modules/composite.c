#include "py/modules/composite.h"

#include "py/cpython/object.h"
#include "py/cpython/trace.h"
#include "py/modules/attribute.h"
#include "py/modules/class.h"
#include "py/modules/instance.h"
#include "py/region/region.h"

static ternaryfunc plain_call;  /* nn.Module's slot */
static PyObject *make_frames;   /* owned: dycl._frames.make */
static unsigned generation = 1; /* of the adoption */

/* ---- Calls */

#define MOST_ARGUMENTS 8 /* of each sort */
#define SIGNATURES     256
/* References that the tuples, dicts and stacks of torch's way hold besides, so that sys.getrefcount tells forward the
 * same number: measured, as every Python passes arguments in its own way. */
static struct { Py_ssize_t self, by_place, by_name; } held;

/* A way of calling: so many positional arguments, and these names. */
typedef struct {
    PyObject
        *function; /* owned: takes the module and all arguments by position. None: there is none; NULL: a free place */
    int count, named;
    PyObject *names[MOST_ARGUMENTS]; /* owned */
} signature;

static signature signatures[SIGNATURES];

/* Its place, or a free one; NULL when the table is full thereabouts. */
static signature *find_signature(int count, int named, PyObject *const *names) {
    uint64_t hash = (uint64_t)count;
    for (int i = 0; i < named; i++) hash = (hash ^ (uint64_t)(uintptr_t)names[i]) * UINT64_C(0x9e3779b97f4a7c15);
    for (unsigned probe = 0; probe < 8; probe++) {
        signature *s = &signatures[((hash >> 40) + probe) % SIGNATURES];
        if (!s->function) return s;
        if (s->count != count || s->named != named) continue;
        int same = 1;
        for (int i = 0; i < named && same; i++) same = s->names[i] == names[i];
        if (same) return s;
    }
    return NULL;
}

/* Borrowed; NULL without an exception: the ordinary way. */
static PyObject *function_for(int count, int named, PyObject *const *names) {
    signature *s = find_signature(count, named, names);
    if (!s) return NULL;
    if (!s->function) {
        PyObject *tuple = PyTuple_New(named);
        for (int i = 0; tuple && i < named; i++) PyTuple_SET_ITEM(tuple, i, Py_NewRef(names[i]));
        PyObject *made = tuple ? PyObject_CallFunction(make_frames, "iO", count, tuple) : NULL;
        if (!made && PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) {
            Py_XDECREF(tuple);
            return NULL;
        }
        PyErr_Clear();
        s = find_signature(count, named, names); /* that was Python code: others may have been here */
        if (s && !s->function) {
            s->function = Py_NewRef(made ? made : Py_None);
            s->count = count;
            s->named = named;
            for (int i = 0; i < named; i++) s->names[i] = Py_NewRef(names[i]);
        }
        Py_XDECREF(made);
        Py_XDECREF(tuple);
        if (!s) return NULL;
    }
    return s->function == Py_None ? NULL : s->function;
}

static dycl_instance instances[DYCL_INSTANCES];

static int is_ordinary(PyObject *self) {
    PyObject *dict = dycl_object_dict(self);
    if (!dict) return 0;
    const dycl_module_class *row = dycl_module_class_of(Py_TYPE(self));
    dycl_instance *instance = &instances[dycl_instance_place(self)];
    return row->calls && (dycl_instance_is_current(instance, self, dict) || dycl_instance_read(instance, self, dict)) &&
           !dycl_instance_hooked(instance);
}

static inline Py_ssize_t held_of(PyObject **o, PyObject **self, PyObject *const *keywords) {
    return o == self ? held.self : o < keywords ? held.by_place : held.by_name;
}

static PyObject *call_through_frames(PyObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *stack[2 + 2 * MOST_ARGUMENTS], *names[MOST_ARGUMENTS], **next = stack + 1;
    Py_ssize_t count = PyTuple_GET_SIZE(args), at = 0;
    int named = 0;
    if (count > MOST_ARGUMENTS || (kwargs && PyDict_GET_SIZE(kwargs) > MOST_ARGUMENTS)) return NULL;
    *next++ = self;
    for (Py_ssize_t i = 0; i < count; i++) *next++ = PyTuple_GET_ITEM(args, i);
    while (kwargs && PyDict_Next(kwargs, &at, &names[named], next)) {
        named++;
        next++;
    }
    PyObject *function = function_for((int)count, named, names);
    if (!function) return NULL;
    PyObject *const *keywords = next - named;
    for (PyObject **o = stack + 1; o < next; o++) dycl_object_count(*o, held_of(o, stack + 1, keywords));
    PyObject *result =
        PyObject_Vectorcall(function, stack + 1, (size_t)(next - stack - 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    for (PyObject **o = stack + 1; o < next; o++) {
        dycl_object_count(*o, 1 - held_of(o, stack + 1, keywords));
        Py_DECREF(*o); /* it may be the last one by now */
    }
    return result;
}

static PyObject *composite_call(PyObject *self, PyObject *args, PyObject *kwargs) {
    if (dycl_region_open(dycl_region_current) && !dycl_traced() && is_ordinary(self)) {
        PyObject *result = call_through_frames(self, args, kwargs);
        if (result || PyErr_Occurred()) return result;
    }
    return plain_call(self, args, kwargs);
}

/* ---- Adoption */

static void adopt_class(PyTypeObject *type) {
    if (type->tp_call == plain_call) type->tp_call = composite_call;
    dycl_attribute_adopt(type);
}

/* The module and all below it, each once: modules share parts, and some hold the one that holds them. 0, or -1 with an
 * exception. */
static int adopt_below(PyObject *module) {
    PyObject *found = PyList_New(0), *seen = PySet_New(NULL);
    int result = found && seen ? PyList_Append(found, module) : -1;
    for (Py_ssize_t i = 0; result == 0 && i < PyList_GET_SIZE(found); i++) {
        PyObject *o = PyList_GET_ITEM(found, i),
                 *dict = PyObject_TypeCheck(o, dycl_py.module_type) ? dycl_object_dict(o) : NULL, *key, *child;
        PyObject *children = dict ? PyDict_GetItemString(dict, "_modules") : NULL;
        Py_ssize_t at = 0;
        if (dict) adopt_class(Py_TYPE(o));
        while (result == 0 && children && PyDict_Check(children) && PyDict_Next(children, &at, &key, &child)) {
            Py_ssize_t before = PySet_GET_SIZE(seen);
            PyObject *address =
                PyLong_FromVoidPtr(child); /* not the module: a program may define how modules compare */
            result = address ? PySet_Add(seen, address) : -1;
            Py_XDECREF(address);
            if (result == 0 && PySet_GET_SIZE(seen) > before) result = PyList_Append(found, child);
        }
    }
    Py_XDECREF(found);
    Py_XDECREF(seen);
    return result;
}

static PyObject *subclasses(PyTypeObject *type) {
    PyObject *list = PyObject_CallMethod((PyObject *)&PyType_Type, "__subclasses__", "O", type);
    if (!list) PyErr_Clear();
    return list;
}

static void adopt_all(PyObject *list) {
    for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++) {
        PyTypeObject *type = (PyTypeObject *)PyList_GET_ITEM(list, i);
        adopt_class(type);
        PyObject *below = subclasses(type);
        adopt_all(below);
        Py_XDECREF(below);
    }
}

/* A function may call any module. Many functions may be accelerated: the classes are walked once, and again when there
 * are more. */
static void adopt_for_functions(void) {
    static unsigned done;
    static Py_ssize_t seen;
    PyObject *list = subclasses(dycl_py.module_type);
    if (list && (done != generation || seen != PyList_GET_SIZE(list))) {
        adopt_all(list);
        done = generation;
        seen = PyList_GET_SIZE(list);
    }
    Py_XDECREF(list);
}

int dycl_composite_adopt(PyObject *module, unsigned *known) {
    if (*known == generation) return 0;
    *known = generation;
    if (!module)
        adopt_for_functions();
    else if (adopt_below(module) < 0)
        PyErr_Clear(); /* no memory: what is not adopted is called as torch calls it */
    return 1;
}

void dycl_composite_lost(void) { generation++; }

static PyObject *probe_call(PyObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *result = call_through_frames(self, args, kwargs);
    if (!result && !PyErr_Occurred()) PyErr_SetString(PyExc_NotImplementedError, "this torch is written differently");
    return result;
}

/* What _frames.Probe's forward counts of itself, an argument and a named argument, now that its class is called in this
 * way. 0, or -1 with an exception. */
static int count_references(PyTypeObject *probe, ternaryfunc way, Py_ssize_t *out) {
    probe->tp_call = way;
    PyObject *counts = PyObject_CallMethod((PyObject *)probe, "count", NULL);
    int result = counts && PyArg_ParseTuple(counts, "nnn", out, out + 1, out + 2) ? 0 : -1;
    Py_XDECREF(counts);
    return result;
}

/* It fails where no frames can be made: then nothing is called through them. */
static void measure_held(PyObject *frames) {
    PyTypeObject *probe = (PyTypeObject *)PyObject_GetAttrString(frames, "Probe");
    Py_ssize_t torch[3], ours[3], *all[3] = {&held.self, &held.by_place, &held.by_name};
    ternaryfunc way = probe ? probe->tp_call : NULL;
    int result = probe ? count_references(probe, way, torch) : -1;
    if (result == 0) result = count_references(probe, probe_call, ours);
    if (probe) probe->tp_call = way;
    for (int i = 0; i < 3 && result == 0; i++) *all[i] = torch[i] > ours[i] ? torch[i] - ours[i] : 0;
    Py_XDECREF(probe);
    PyErr_Clear();
}

int dycl_composite_setup(void) {
    plain_call = dycl_py.module_type->tp_call;
    if (dycl_module_class_setup() < 0 || dycl_attribute_setup() < 0) return -1;
    PyObject *frames = PyImport_ImportModule("dycl._frames");
    if (frames) make_frames = PyObject_GetAttrString(frames, "make");
    if (make_frames) measure_held(frames);
    Py_XDECREF(frames);
    return make_frames ? 0 : -1;
}
