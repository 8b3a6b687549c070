#include "py/region/tape.h"

#include <stddef.h>
#include <string.h>

#include "py/region/called.h"
#include "py/region/grow.h"
#include "py/region/order.h"
#include "py/region/pass.h"
#include "py/region/replay.h"
#include "structmember.h"

static PyObject *attach_function; /* owned: dycl._autograd.attach */

PyObject *dycl_tape_set_attach(PyObject *attach) {
    PyObject *before = attach_function ? attach_function : Py_NewRef(Py_None);
    attach_function = Py_NewRef(attach);
    return before;
}

/* ---- What was recorded */

typedef struct {
    PyObject_HEAD dycl_segment *segment; /* retained */
    dycl_scalar *scalars;                /* owned */
    uint8_t *tracked;                    /* owned */
    dycl_handle *feeds;                  /* owned */
    uint32_t *versions;                  /* owned: of the feeds */
} recording;

static void recording_dealloc(PyObject *self) {
    recording *r = (recording *)self;
    for (uint32_t i = 0; r->feeds && i < r->segment->graph.feed_count; i++) dycl_abi_delete(r->feeds[i]);
    dycl_free(r->feeds);
    dycl_free(r->versions);
    dycl_free(r->scalars);
    dycl_free(r->tracked);
    dycl_segment_release(r->segment);
    Py_TYPE(self)->tp_free(self);
}

static PyTypeObject recording_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dycl.Recording",
    .tp_basicsize = sizeof(recording),
    .tp_dealloc = recording_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

PyObject *dycl_recording_new(const dycl_region *region, dycl_segment *segment) {
    const dycl_graph *graph = &segment->graph;
    recording *r = (recording *)recording_type.tp_alloc(&recording_type, 0);
    if (!r) return NULL;
    dycl_segment_retain(r->segment = segment);
    r->scalars = dycl_alloc((graph->scalar_count + 1) * sizeof *r->scalars);
    r->tracked = dycl_alloc(graph->value_count + 1);
    r->feeds = dycl_alloc_zero((graph->feed_count + 1) * sizeof *r->feeds);
    r->versions = dycl_alloc((graph->feed_count + 1) * sizeof *r->versions);
    if (!r->scalars || !r->tracked || !r->feeds || !r->versions) goto fail;
    if (graph->scalar_count) /* else there is perhaps no array */
        memcpy(r->scalars, region->recorder.scalars, graph->scalar_count * sizeof *r->scalars);
    memcpy(r->tracked, region->tracked, graph->value_count);
    for (uint32_t i = 0; i < graph->feed_count; i++) {
        dycl_handle source = dycl_source_handle(&region->sources[i]);
        r->versions[i] = dycl_abi_version(dycl_abi_handle_impl(source));
        if (!(r->feeds[i] = dycl_abi_copy_handle(source))) goto fail;
    }
    return (PyObject *)r;
fail:
    Py_DECREF(r);
    return PyErr_NoMemory();
}

/* ---- A part of it */

typedef struct {
    PyObject_HEAD recording *of;         /* owned */
    uint32_t *results, *sources, *saved; /* owned, one block */
    uint32_t result_count, source_count, saved_count;
    dycl_handle *between; /* owned: per source, the result of another tape that it is; or NULL */
    char once;            /* a second backward pass is an error */
} tape;

static void tape_dealloc(PyObject *self) {
    tape *t = (tape *)self;
    Py_XDECREF(t->of);
    for (uint32_t i = 0; t->between && i < t->source_count; i++) dycl_abi_delete(t->between[i]);
    dycl_free(t->between);
    dycl_free(t->results);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *tape_backward(PyObject *self, PyObject *args) {
    const tape *t = (tape *)self;
    PyObject *saved, *gradients, *needed;
    if (!PyArg_ParseTuple(args, "O!O!O!", &PyTuple_Type, &saved, &PyTuple_Type, &gradients, &PyTuple_Type, &needed))
        return NULL;
    if (PyTuple_GET_SIZE(saved) != t->saved_count || PyTuple_GET_SIZE(gradients) != t->result_count ||
        PyTuple_GET_SIZE(needed) != t->source_count) {
        PyErr_SetString(PyExc_ValueError, "a tape was called with other tensors than its own");
        return NULL;
    }
    const dycl_pass_job job = {t->of->segment, t->of->scalars,  t->of->tracked,  t->results,    t->sources,
                               t->saved,       t->result_count, t->source_count, t->saved_count};
    return dycl_pass_run(&job, saved, gradients, needed);
}

/* ---- Gradients by torch */

static int add_between(const tape *t, PyObject *values) {
    for (uint32_t i = 0; i < t->source_count; i++) {
        if (!t->between[i]) continue;
        PyObject *key = PyLong_FromUnsignedLong(t->sources[i]), *o = dycl_abi_wrap(t->between[i]);
        int failed = !key || !o || PyDict_SetItem(values, key, o) < 0;
        Py_XDECREF(key);
        Py_XDECREF(o);
        if (failed) return -1;
    }
    return 0;
}

/* (nodes, values, results, sources, history) for dycl._replay: what leads from the sources to the results. */
static PyObject *tape_recorded(PyObject *self, PyObject *unused) {
    const tape *t = (tape *)self;
    const recording *r = t->of;
    const dycl_graph *graph = &r->segment->graph;
    (void)unused;
    for (uint32_t i = 0; i < graph->feed_count; i++)
        if (dycl_abi_version(dycl_abi_handle_impl(r->feeds[i])) != r->versions[i]) {
            PyErr_SetString(PyExc_RuntimeError,
                            "one of the variables needed for gradient computation has been modified by an inplace "
                            "operation");
            return NULL;
        }
    PyObject *nodes = NULL, *values = NULL, *result = NULL, *history = NULL;
    PyObject *results = dycl_replay_words((int)t->result_count, t->results),
             *sources = dycl_replay_words((int)t->source_count, t->sources);
    if (results && sources &&
        dycl_replay_describe(graph, r->scalars, r->feeds, t->results, t->result_count, t->sources, t->source_count,
                             &nodes, &values) == 0 &&
        add_between(t, values) == 0 && (history = dycl_replay_history(graph, r->tracked)))
        result = PyTuple_Pack(5, nodes, values, results, sources, history);
    Py_XDECREF(history);
    Py_XDECREF(nodes);
    Py_XDECREF(values);
    Py_XDECREF(results);
    Py_XDECREF(sources);
    return result;
}

static PyMethodDef tape_methods[] = {
    {"backward", tape_backward, METH_VARARGS,
     "backward(saved, gradients, needed): gradients of the sources, None where there are none; None for all: torch has "
     "to compute them."},
    {"recorded", tape_recorded, METH_NOARGS, "(nodes, values, results, sources, history) for dycl._replay."},
    {0},
};

static PyMemberDef tape_members[] = {
    {"once", T_BOOL, offsetof(tape, once), READONLY, "Whether torch's graph saves something here, and frees it."},
    {0},
};

static PyTypeObject tape_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dycl.Tape",
    .tp_basicsize = sizeof(tape),
    .tp_dealloc = tape_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = tape_methods,
    .tp_members = tape_members,
};

/* ---- Attaching */

static PyObject *tensor_of(const dycl_region *region, uint32_t value, const dycl_tape_plan *plan) {
    const dycl_value *v = &region->recorder.graph.values[value];
    for (uint32_t i = 0; i < plan->apart_count; i++)
        if (plan->apart[i] == value) return dycl_abi_wrap(plan->apart_handles[i]);
    if (v->kind == DYCL_VALUE_NODE) return dycl_abi_wrap(region->handles[region->output_of[value] - 1]);
    const dycl_source *source = &region->sources[v->source];
    return source->object ? Py_NewRef(source->object) : dycl_abi_wrap(source->handle);
}

static PyObject *tape_new(const dycl_region *region, PyObject *of, const dycl_tape_plan *plan) {
    tape *t = (tape *)tape_type.tp_alloc(&tape_type, 0);
    if (!t) return NULL;
    size_t words = (size_t)plan->result_count + plan->source_count + plan->saved_count;
    t->results = dycl_alloc((words + 1) * sizeof *t->results);
    t->between = dycl_alloc_zero((plan->source_count + 1) * sizeof *t->between);
    if (!t->results || !t->between) {
        Py_DECREF(t);
        return PyErr_NoMemory();
    }
    t->of = (recording *)Py_NewRef(of);
    t->result_count = plan->result_count;
    t->source_count = plan->source_count;
    t->saved_count = plan->saved_count;
    t->once = plan->once || plan->saved_count;
    t->sources = t->results + t->result_count;
    t->saved = t->sources + t->source_count;
    memcpy(t->results, plan->results, t->result_count * sizeof *t->results);
    memcpy(t->sources, plan->sources, t->source_count * sizeof *t->sources);
    memcpy(t->saved, plan->saved, t->saved_count * sizeof *t->saved);
    for (uint32_t i = 0; i < t->source_count; i++) {
        PyObject *o = t->of->segment->graph.values[t->sources[i]].kind == DYCL_VALUE_NODE
                          ? tensor_of(region, t->sources[i], plan)
                          : NULL;
        t->between[i] = o ? dycl_abi_copy_handle(dycl_abi_borrow(o)) : NULL;
        Py_XDECREF(o);
    }
    return (PyObject *)t;
}

static PyObject *tensors_of(const dycl_region *region, const uint32_t *values, uint32_t count,
                            const dycl_tape_plan *plan) {
    PyObject *tuple = PyTuple_New(count);
    for (uint32_t i = 0; tuple && i < count; i++) {
        PyObject *o = tensor_of(region, values[i], plan);
        if (!o)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, o);
    }
    return tuple;
}

/* A feed of which torch saves views only keeps the memory that it has now, whatever its .data will be. */
static int keep_memory(const dycl_region *region, PyObject *tensors, const dycl_tape_plan *plan) {
    const dycl_graph *graph = &region->recorder.graph;
    for (uint32_t i = 0; i < plan->saved_count; i++) {
        const dycl_value *v = &graph->values[plan->saved[i]];
        if (v->kind != DYCL_VALUE_FEED || !region->sources[v->source].object ||
            dycl_order_saves_itself(graph, region->tracked, plan->saved[i]))
            continue;
        dycl_handle alias = dycl_abi_detach(dycl_abi_borrow(PyTuple_GET_ITEM(tensors, i)));
        PyObject *o = alias ? dycl_abi_wrap(alias) : NULL;
        dycl_abi_delete(alias);
        if (!o) return -1;
        Py_DECREF(PyTuple_GET_ITEM(tensors, i));
        PyTuple_SET_ITEM(tensors, i, o);
    }
    return 0;
}

int dycl_tape_attach(dycl_region *region, PyObject *of, const dycl_tape_plan *plan) {
    PyObject *t = tape_new(region, of, plan), *done = NULL;
    PyObject *results = tensors_of(region, plan->results, plan->result_count, plan);
    PyObject *sources = tensors_of(region, plan->sources, plan->source_count, plan);
    PyObject *saved = tensors_of(region, plan->saved, plan->saved_count, plan);
    PyObject *names = dycl_called_names(region, plan->results, plan->result_count);
    int kept = t && saved ? keep_memory(region, saved, plan) : -1;
    if (results && sources && names && kept == 0 && attach_function) {
        int state = dycl_abi_torch_function_off();
        done = PyObject_CallFunctionObjArgs(attach_function, t, results, saved, sources, names, NULL);
        dycl_abi_torch_function_restore(state);
    }
    Py_XDECREF(t);
    Py_XDECREF(results);
    Py_XDECREF(sources);
    Py_XDECREF(saved);
    Py_XDECREF(names);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

int dycl_tape_setup(void) { return PyType_Ready(&recording_type) < 0 || PyType_Ready(&tape_type) < 0 ? -1 : 0; }
