#include "py/entry/everywhere.h"

#include <string.h>

#include "py/cpython/collect.h"
#include "py/cpython/error.h"
#include "py/cpython/object.h"
#include "py/entry/callable.h"
#include "py/modules/class.h"
#include "py/region/region.h"

_Thread_local dycl_quiet dycl_quiet_current __attribute__((tls_model("initial-exec")));

void dycl_quiet_same_state(void) {
    dycl_quiet_current =
        (dycl_quiet){DYCL_QUIET_SAME_STATE, dycl_abi_grad_enabled(), dycl_abi_mode_depth(), *dycl_abi_dispatch_state()};
}

static int is_quiet(void) {
    const dycl_quiet *q = &dycl_quiet_current;
    if (q->how != DYCL_QUIET_SAME_STATE) return q->how == DYCL_QUIET_ALL;
    const dycl_dispatch_state *now = dycl_abi_dispatch_state();
    return q->grad == dycl_abi_grad_enabled() && q->mode_depth == dycl_abi_mode_depth() &&
           q->dispatch.included == now->included && q->dispatch.excluded == now->excluded;
}

/* ---- The sites, by their module's address */

#define BUCKET_BITS 12
static dycl_site *buckets[1 << BUCKET_BITS];
static dycl_site *newest, *oldest; /* by creation, or by the last time that trimming passed over them */
static int count;

static dycl_site **bucket_of(const void *module) { return &buckets[dycl_address_hash(module, BUCKET_BITS)]; }

dycl_site *dycl_everywhere_find(PyObject *module) {
    for (dycl_site *s = *bucket_of(module); s; s = s->chain)
        if (s->address == module && dycl_weakref_object(s->module) == module) return s;
    return NULL;
}

static void link_newest(dycl_site *s) {
    s->older = newest;
    s->newer = NULL;
    if (newest)
        newest->newer = s;
    else
        oldest = s;
    newest = s;
}

static void unlink_age(dycl_site *s) {
    if (s->newer)
        s->newer->older = s->older;
    else
        newest = s->older;
    if (s->older)
        s->older->newer = s->newer;
    else
        oldest = s->newer;
}

static void drop(dycl_site *s) { /* may run Python code */
    dycl_site **link = bucket_of(s->address);
    while (*link != s) link = &(*link)->chain;
    *link = s->chain;
    unlink_age(s);
    s->address = NULL;
    count--;
    Py_DECREF(s);
}

void dycl_everywhere_trim(void) {
    for (int looked = 0; count > DYCL_EVERYWHERE_SITES && looked < 64; looked++) {
        dycl_site *s = oldest;
        int called = s->called;
        s->called = 0;
        if (called) {
            unlink_age(s);
            link_newest(s);
        } else {
            drop(s);
        }
    }
}

/* A module died: self is its address, as the key of its site. */
static PyObject *module_died(PyObject *self, PyObject *reference) {
    const void *address = PyLong_AsVoidPtr(self);
    for (dycl_site *s = *bucket_of(address); s; s = s->chain) {
        if (s->address != address || s->module != reference) continue;
        drop(s);
        break;
    }
    Py_RETURN_NONE;
}

static PyMethodDef died_method = {"module_died", module_died, METH_O, NULL};

/* What compiles or runs by itself: a ScriptModule is C++, an OptimizedModule is torch.compile's. */
static int runs_by_itself(PyObject *module) {
    static const char *const known[][2] = {{"torch.jit", "ScriptModule"},
                                           {"torch._dynamo.eval_frame", "OptimizedModule"}};
    int found = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known && found == 0; i++) {
        PyObject *name = PyUnicode_FromString(known[i][0]), *from = name ? PyImport_GetModule(name) : NULL;
        PyObject *cls = from ? PyObject_GetAttrString(from, known[i][1]) : NULL;
        found = cls && PyType_Check(cls) ? PyObject_TypeCheck(module, (PyTypeObject *)cls) : 0;
        Py_XDECREF(name);
        Py_XDECREF(from);
        Py_XDECREF(cls);
    }
    PyErr_Clear();
    return found;
}

static dycl_site *add(PyObject *module) {
    PyObject *key = PyLong_FromVoidPtr(module), *died = key ? PyCFunction_New(&died_method, key) : NULL;
    dycl_site *site = died ? (dycl_site *)dycl_site_create(NULL, module, died) : NULL;
    Py_XDECREF(key);
    Py_XDECREF(died);
    if (!site) return NULL;
    site->aside = runs_by_itself(module);
    site->address = module;
    dycl_site **bucket = bucket_of(module);
    site->chain = *bucket;
    *bucket = site;
    link_newest(site);
    count++;
    return site;
}

/* ---- Whose calls count */

#define STRANGERS 65536

static int all;             /* every module's */
static PyObject *asked;     /* owned: says of which model a module is a part */
static PyObject *strangers; /* owned: addresses of modules that are no part of any. One that is made where another was
                               is taken for it, and runs in torch */
static const void *near[1 << BUCKET_BITS]; /* of these, those that were asked about last */

void dycl_everywhere_count_all(int on) { all = on; }

void dycl_everywhere_ask(PyObject *function) { Py_XSETREF(asked, Py_NewRef(function)); }

void dycl_everywhere_changed(void) {
    Py_CLEAR(strangers);
    memset(near, 0, sizeof near);
}

static int is_near_stranger(const PyObject *module) { return near[dycl_address_hash(module, BUCKET_BITS)] == module; }

/* The options of its model; -1: it is no part of any, or not known. May run Python code, and leaves no exception but a
 * signal handler's. */
static int64_t options_of_part(PyObject *module) {
    PyObject *key = asked ? PyLong_FromVoidPtr(module) : NULL, *answer = NULL;
    int64_t options = -1;
    if (!strangers) strangers = PySet_New(NULL);
    if (key && strangers && !PySet_Contains(strangers, key)) {
        answer = PyObject_CallOneArg(asked, module);
        if (answer && PyLong_Check(answer)) options = PyLong_AsLongLong(answer);
        if (strangers && PySet_GET_SIZE(strangers) >= STRANGERS) PySet_Clear(strangers);
        if (strangers && answer == Py_None) PySet_Add(strangers, key);
    }
    Py_XDECREF(key);
    Py_XDECREF(answer);
    dycl_error_forgive();
    return options;
}

static dycl_site *site_of_part(PyObject *module) {
    int64_t options = options_of_part(module);
    if (options < 0) {
        near[dycl_address_hash(module, BUCKET_BITS)] = module;
        return NULL;
    }
    dycl_site *site = dycl_everywhere_find(module);
    if (!site) site = add(module);
    if (!site) return NULL;
    site->part = 1;
    site->options = (unsigned)options;
    return site;
}

/* ---- The descriptor */

/* torch asks twice in a row, `is not None` and the call: no Python code may run in here, so that both get the same
 * answer. */
static PyObject *get(PyObject *self, PyObject *module, PyObject *type) {
    (void)self;
    (void)type;
    if (!module || module == Py_None || dycl_region_current || (!all && is_near_stranger(module)) || is_quiet())
        Py_RETURN_NONE;
    if (!all && dycl_abi_backward_pass() >= 0) Py_RETURN_NONE;
    dycl_site *site = dycl_everywhere_find(module);
    if (!site || (!all && !site->part)) {
        dycl_collect_hold();
        site = all ? add(module) : site_of_part(module);
        dycl_collect_release();
        if (!site && dycl_error_forgive() < 0) return NULL; /* no memory, or a class without weak references: none */
    }
    if (!site || site->aside) Py_RETURN_NONE;
    site->called = 1;
    return Py_NewRef(site);
}

static PyTypeObject descriptor_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dycl.everywhere",
    .tp_doc = "Stands as torch.nn.Module._compiled_call_impl: every outermost module call is a region.",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_descr_get = get,
};

PyObject *dycl_everywhere_descriptor(void) {
    static PyObject *descriptor;
    if (!descriptor && PyType_Ready(&descriptor_type) == 0) descriptor = PyObject_New(PyObject, &descriptor_type);
    dycl_module_class_none_inside(descriptor);
    return Py_XNewRef(descriptor);
}
