/* The extension module dycl._core. */
#include "base/cpu.h"
#include "base/env.h"
#include "base/faults.h"
#include "base/heap.h"
#include "base/sanitize.h"
#include "dnnl/dnnl.h"
#include "exec/cache/backwards.h"
#include "exec/plan/workspace.h"
#include "exec/tune/autotune.h"
#include "exec/tune/profile.h"
#include "ir/hosted.h"
#include "py/cpython/compat.h"
#include "py/cpython/error.h"
#include "py/entry/callable.h"
#include "py/entry/clip.h"
#include "py/entry/everywhere.h"
#include "py/entry/loss.h"
#include "py/entry/optimizer.h"
#include "py/entry/numbers.h"
#include "py/entry/second.h"
#include "py/entry/served.h"
#include "py/entry/zero_grad.h"
#include "py/entry/show.h"
#include "py/site/log.h"
#include "py/entry/method.h"
#include "py/intercept/table.h"
#include "py/region/ahead.h"
#include "py/region/region.h"
#include "py/region/called.h"
#include "py/region/replay.h"
#include "py/region/node.h"
#include "py/region/track.h"
#include "py/setup.h"
#include "structmember.h"

static PyObject *setup(PyObject *self, PyObject *unused) {
    (void)self;
    (void)unused;
    if (dycl_dnnl_init() != DYCL_OK) {
        PyErr_SetString(PyExc_ImportError, dycl_error_message());
        return NULL;
    }
    if (!dycl_site_cache()) return PyErr_NoMemory();
    int result = dycl_py_setup();
    if (result < 0 && !PyErr_Occurred()) PyErr_NoMemory();
    if (result == 0 && PyErr_Occurred()) PyErr_Clear(); /* what is not needed was not found */
    if (result < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *site(PyObject *self, PyObject *args) {
    PyObject *callable, *module;
    unsigned options = 0;
    int replaces = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO|Ip", &callable, &module, &options, &replaces)) return NULL;
    PyObject *made = dycl_site_create(callable == Py_None ? NULL : callable, module == Py_None ? NULL : module, NULL);
    if (made) ((dycl_site *)made)->options = options;
    if (made) ((dycl_site *)made)->replaces = replaces;
    if (made && module != Py_None && PyObject_TypeCheck(module, dycl_py.module_type)) dycl_method_watch(module);
    return made;
}

static PyObject *everywhere(PyObject *self, PyObject *unused) {
    (void)self;
    (void)unused;
    return dycl_everywhere_descriptor();
}

static PyObject *count_all_modules(PyObject *self, PyObject *on) {
    (void)self;
    dycl_everywhere_count_all(on == Py_True);
    Py_RETURN_NONE;
}

static PyObject *ask_parts(PyObject *self, PyObject *function) {
    (void)self;
    dycl_everywhere_ask(function);
    Py_RETURN_NONE;
}

static PyObject *parts_changed(PyObject *self, PyObject *unused) {
    (void)self;
    (void)unused;
    dycl_everywhere_changed();
    Py_RETURN_NONE;
}

static PyObject *site_of(PyObject *self, PyObject *module) {
    (void)self;
    dycl_site *found = dycl_everywhere_find(module);
    if (!found) found = dycl_optimizer_site(module);
    if (!found) found = dycl_loss_site(module);
    return Py_NewRef(found && !found->aside ? (PyObject *)found : Py_None);
}

static PyObject *last_site(PyObject *self, PyObject *unused) {
    (void)self;
    (void)unused;
    dycl_site *found = dycl_site_last();
    return Py_NewRef(found ? (PyObject *)found : Py_None);
}

static dycl_site *as_site(PyObject *o) {
    if (Py_TYPE(o) == &dycl_site_type) return (dycl_site *)o;
    PyErr_SetString(PyExc_TypeError, "expected a dycl.Site");
    return NULL;
}

static PyObject *stats(PyObject *self, PyObject *o) {
    (void)self;
    dycl_site *s = as_site(o);
    return s ? dycl_site_stats_dict(s) : NULL;
}

static PyObject *explain(PyObject *self, PyObject *o) {
    (void)self;
    dycl_site *s = as_site(o);
    return s ? dycl_site_explain(s) : NULL;
}

static PyObject *set_disabled(PyObject *self, PyObject *o) {
    (void)self;
    int on = PyObject_IsTrue(o);
    if (on < 0) return NULL;
    int before = dycl_disabled;
    dycl_disabled = on;
    return PyBool_FromLong(before);
}

static PyObject *set_timing(PyObject *self, PyObject *o) {
    (void)self;
    int on = PyObject_IsTrue(o);
    if (on < 0) return NULL;
    dycl_plan_set_timing(on);
    Py_RETURN_NONE;
}

static PyObject *set_choosing(PyObject *self, PyObject *o) {
    (void)self;
    int on = PyObject_IsTrue(o);
    if (on < 0) return NULL;
    dycl_choose_enabled = on;
    Py_RETURN_NONE;
}

static PyObject *operators(PyObject *self, PyObject *unused) {
    (void)self;
    (void)unused;
    PyObject *list = PyList_New(0);
    for (int op = 0; list && op < DYCL_OP_COUNT; op++) {
        PyObject *name = PyUnicode_FromString(dycl_op_get((dycl_op)op)->name);
        if (!name || PyList_Append(list, name) < 0) Py_CLEAR(list);
        Py_XDECREF(name);
    }
    return list;
}

static PyObject *watch_steps(PyObject *self, PyObject *functions) {
    (void)self;
    if (dycl_optimizer_watch(functions) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *add_optimizer(PyObject *self, PyObject *optimizer) {
    (void)self;
    if (dycl_optimizer_add(optimizer) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *ask_optimizers(PyObject *self, PyObject *function) {
    (void)self;
    dycl_optimizer_ask(function);
    Py_RETURN_NONE;
}

static PyObject *optimizers_changed(PyObject *self, PyObject *all) {
    (void)self;
    dycl_optimizer_changed(all == Py_True);
    Py_RETURN_NONE;
}

static PyObject *watch_zero_grad(PyObject *self, PyObject *function) {
    (void)self;
    if (dycl_zero_grad_watch(function) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *watch_clipping(PyObject *self, PyObject *args) {
    PyObject *norm, *value, *sample;
    double of_sample;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOd", &norm, &value, &sample, &of_sample)) return NULL;
    if (dycl_clip_watch(norm, value, sample, of_sample) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *serve(PyObject *self, PyObject *kinds) {
    (void)self;
    if (dycl_numbers_setup() < 0 || dycl_served_set(kinds) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *set_replay(PyObject *self, PyObject *function) {
    (void)self;
    return dycl_replay_set(function) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *set_tracking(PyObject *self, PyObject *attach) {
    (void)self;
    dycl_track_on = attach != Py_None;
    return dycl_node_set_attach(attach);
}

static PyObject *set_names(PyObject *self, PyObject *args) {
    PyObject *name, *operand, *view, *show;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOO", &name, &operand, &view, &show)) return NULL;
    return dycl_called_set(name, operand, view, show) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *set_replaying(PyObject *self, PyObject *o) {
    (void)self;
    int on = PyObject_IsTrue(o);
    if (on < 0) return NULL;
    dycl_replay_always = on;
    Py_RETURN_NONE;
}

static PyObject *info(PyObject *self, PyObject *unused) {
    (void)self;
    (void)unused;
    return Py_BuildValue(
        "{s:s,s:s,s:i,s:n,s:I,s:K,s:K,s:K,s:i}", "isa", dycl_isa_name(dycl_cpu_isa()), "onednn", dycl_dnnl_version(),
        "segments", dycl_site_cache() ? (int)dycl_plan_cache_count(dycl_site_cache()) : 0, "plan_bytes",
        (Py_ssize_t)dycl_plan_cache_bytes(), "profile", dycl_profile_count(), "profile_hits",
        (unsigned long long)dycl_profile_hits(), "backwards", (unsigned long long)dycl_backwards_built(), "clipped",
        (unsigned long long)dycl_clip_count(), "bf16", dycl_cpu_bf16());
}

/* The profile: (key, way) pairs from the file; what is new, as a list of (key, way, nanoseconds); and whether there is
 * something. */
static PyObject *profile_remember(PyObject *self, PyObject *rows) {
    (void)self;
    PyObject *iterator = PyObject_GetIter(rows), *row;
    while (iterator && (row = PyIter_Next(iterator))) {
        const char *key, *way;
        int right = PyArg_ParseTuple(row, "ss", &key, &way);
        if (right) dycl_profile_remember(key, way);
        Py_DECREF(row);
        if (!right) break;
    }
    Py_XDECREF(iterator);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

static PyObject *profile_take(PyObject *self, PyObject *unused) {
    (void)self;
    (void)unused;
    dycl_profile_entry entries[64];
    PyObject *list = PyList_New(0);
    for (uint32_t n; list && (n = dycl_profile_take(entries, 64));)
        for (uint32_t i = 0; list && i < n; i++) {
            PyObject *row = Py_BuildValue("(ssd)", entries[i].key, entries[i].variant, entries[i].nanoseconds);
            if (!row || PyList_Append(list, row) < 0) Py_CLEAR(list);
            Py_XDECREF(row);
        }
    return list;
}

static PyObject *profile_untake(PyObject *self, PyObject *unused) {
    (void)self;
    (void)unused;
    dycl_profile_untake();
    Py_RETURN_NONE;
}

static PyObject *faults(PyObject *self, PyObject *args) {
    long nth, how_many = 1;
    (void)self;
    if (!PyArg_ParseTuple(args, "l|l", &nth, &how_many)) return NULL;
    long count = dycl_faults_end();
    if (nth >= 0) dycl_faults_begin(nth, how_many);
    return PyLong_FromLong(count);
}

/* As in a process that has just begun, so far as memory goes: what is kept to be used again is let go. */
static PyObject *forget(PyObject *self, PyObject *unused) {
    (void)self;
    (void)unused;
    dycl_plan_cache_clear(dycl_site_cache());
    dycl_dnnl_clear();
    dycl_autotune_clear();
    dycl_workspace_trim();
    dycl_regions_trim();
    dycl_profile_clear();
    Py_RETURN_NONE;
}

/* What the core asks of the environment, asked now, and what is wrong with it. */
static PyObject *environment(PyObject *self, PyObject *unused) {
    (void)self;
    (void)unused;
    dycl_cpu_isa();
    dycl_autotune_begin();
    dycl_log_begin();
    dycl_ahead_forced();
    dycl_plan_begin();
    PyObject *list = PyList_New(0);
    const char *text;
    for (int i = 0; list && (text = dycl_env_complaint(i)); i++) {
        PyObject *o = PyUnicode_DecodeFSDefault(text);
        if (!o || PyList_Append(list, o) < 0) Py_CLEAR(list);
        Py_XDECREF(o);
    }
    return list;
}

static PyObject *bound(PyObject *module, PyObject *callable) {
    int in_place, swapped;
    (void)module;
    return PyBool_FromLong(dycl_py.ready && dycl_binding_find(callable, &in_place, &swapped) != NULL);
}

static PyObject *hosted(PyObject *self, PyObject *unused) {
    (void)self;
    (void)unused;
    PyObject *list = PyList_New(0);
    for (int op = DYCL_HOSTED_FIRST; list && op < DYCL_OP_COUNT; op++) {
        const dycl_hosted *h = dycl_hosted_get((dycl_op)op);
        PyObject *row =
            Py_BuildValue("(sssis)", dycl_op_get((dycl_op)op)->name, h->schema, h->overload, h->results, h->text);
        if (!row || PyList_Append(list, row) < 0) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *set_log(PyObject *self, PyObject *function) {
    (void)self;
    return dycl_log_set_function(function) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *log_take(PyObject *self, PyObject *unused) {
    (void)self;
    (void)unused;
    return dycl_log_take_list();
}

static PyObject *show(PyObject *self, PyObject *args) {
    PyObject *o;
    const char *names;
    unsigned long long calls;
    uint32_t topics;
    (void)self;
    if (!PyArg_ParseTuple(args, "OsK", &o, &names, &calls)) return NULL;
    dycl_site *s = as_site(o);
    if (s && dycl_log_read(names, NULL, &topics) == DYCL_OK) return dycl_site_show(s, topics, calls);
    if (s) PyErr_SetString(PyExc_ValueError, dycl_error_message());
    return NULL;
}

static PyObject *graph_reprint(PyObject *self, PyObject *o) {
    const char *text = PyUnicode_AsUTF8(o);
    (void)self;
    return text ? dycl_log_reprint(text) : NULL;
}

static PyObject *rows(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    return dycl_bindings_list();
}

static PyMethodDef methods[] = {
    {"setup", setup, METH_NOARGS, "Imports torch and finds what dycl needs in it."},
    {"site", site, METH_VARARGS,
     "site(callable, module, options=0, replaces=False): callable or module is None; options: NO_PACK, BF16; replaces: "
     "operators in place on plain tensors are recorded, as in an optimizer's step."},
    {"everywhere", everywhere, METH_NOARGS, "The descriptor that stands on torch.nn.Module (py/entry/everywhere.h)."},
    {"count_all_modules", count_all_modules, METH_O, "Whether calls of all modules count."},
    {"ask_parts", ask_parts, METH_O, "What says of which accelerated model a module is a part: dycl._parts."},
    {"parts_changed", parts_changed, METH_NOARGS, "Another model was accelerated."},
    {"site_of", site_of, METH_O, "The site that a module got from that descriptor, or None."},
    {"last_site", last_site, METH_NOARGS, "The site that was called last, or None."},
    {"stats", stats, METH_O, NULL},
    {"explain", explain, METH_O, NULL},
    {"set_disabled", set_disabled, METH_O, NULL},
    {"set_timing", set_timing, METH_O, NULL},
    {"set_choosing", set_choosing, METH_O, "Whether a site may prefer torch where that is measured to be faster."},
    {"hosted", hosted, METH_NOARGS, "The rows of csrc/ir/hosted.def: (name, schema, overload, results, parameters)."},
    {"operators", operators, METH_NOARGS,
     "The names of the registry's operators (csrc/ir/ops.def, csrc/kern/kern.def)."},
    {"watch_steps", watch_steps, METH_O, "Redirects torch.optim's step functions."},
    {"add_optimizer", add_optimizer, METH_O, "The steps of an optimizer are regions from now on."},
    {"ask_optimizers", ask_optimizers, METH_O, "The function that says whose an optimizer is: dycl._optimizer."},
    {"optimizers_changed", optimizers_changed, METH_O, "Its answers may be others; whether all optimizers count."},
    {"watch_zero_grad", watch_zero_grad, METH_O, "Optimizer.zero_grad below its wrapper: dycl._optimizer."},
    {"watch_clipping", watch_clipping, METH_VARARGS,
     "clip_grad_norm_, clip_grad_value_ below their wrappers; a vector, and its norm by torch."},
    {"serve", serve, METH_O, "What of torch.optim and around it runs without its Python (py/entry/served.h)."},
    {"record_gradients", dycl_second_record, METH_VARARGS, "Gradients with a history (py/entry/second.h)."},
    {"learn_gradients", dycl_second_learn, METH_VARARGS, "What torch calls their nodes."},
    {"set_replay", set_replay, METH_O, "The function that runs nodes in torch: dycl._replay.run."},
    {"set_names", set_names, METH_VARARGS,
     "set_names(name, operand, view, show): functions of dycl._names and dycl._autograd."},
    {"set_tracking", set_tracking, METH_O,
     "What gives results a node in autograd's graph, dycl._autograd.attach: regions record what needs gradients. None: "
     "they do not. What was set before."},
    {"set_replaying", set_replaying, METH_O, "Whether every segment is replayed, without looking for a plan."},
    {"info", info, METH_NOARGS, NULL},
    {"profile_remember", profile_remember, METH_O, "What earlier processes found out: pairs of texts."},
    {"profile_take", profile_take, METH_NOARGS, "What was found out since the last call: (key, way, nanoseconds)."},
    {"profile_untake", profile_untake, METH_NOARGS, "It could not be kept."},
    {"faults", faults, METH_VARARGS,
     "Tests: faults(nth, how_many=1): these allocations of the core fail; faults(-1): none any more. How many were "
     "asked for since the last call."},
    {"forget", forget, METH_NOARGS,
     "Tests: what is kept to be used again (plans, primitives, measures, workspaces, regions, what was found out) is "
     "let go."},
    {"environment", environment, METH_NOARGS, "Complaints about DYCL_ variables that the core reads."},
    {"set_log", set_log, METH_O, "The function that is called behind a call when texts of DYCL_LOG wait."},
    {"log_take", log_take, METH_NOARGS, "These texts: ([(topic, text)], how many had no room)."},
    {"show", show, METH_VARARGS,
     "show(site, topics, calls): [(topic, text)] of the segments that its last calls ran; topic '': about a segment."},
    {"graph_reprint", graph_reprint, METH_O, "A text of a graph, parsed and printed again; ValueError: it is none."},
    {"bound", bound, METH_O, "Whether calls of this callable of torch can be recorded."},
    {"rows", rows, METH_NOARGS,
     "Every spelling of every binding: (owner, name, row's name, parameters, '' or 'in place' or 'swapped')."},
    {0},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "dycl._core", .m_size = -1,
                                        .m_methods = methods};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) {
    if (dycl_cpython_setup() < 0) return NULL;
    if (!DYCL_SANITIZED) dycl_allocator_set(&dycl_heap); /* before anything is allocated */
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    if (PyModule_AddIntConstant(module, "NO_PACK", DYCL_OPTION_NO_PACK) < 0 ||
        PyModule_AddIntConstant(module, "BF16", DYCL_OPTION_BF16) < 0)
        Py_CLEAR(module);
    else if (PyType_Ready(&dycl_site_type) < 0 ||
             PyModule_AddObjectRef(module, "Site", (PyObject *)&dycl_site_type) < 0 ||
             PyModule_AddObjectRef(module, "FORGIVEN", dycl_error_kinds()) < 0 || dycl_node_add(module) < 0)
        Py_CLEAR(module);
    return module;
}
