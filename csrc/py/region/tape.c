#include "py/region/tape.h"

#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "exec/cache/backwards.h"
#include "py/region/inner.h"
#include "py/region/pass.h"
#include "py/region/replay.h"
#include "py/site/log.h"
#include "structmember.h"

/* ---- A part of what was recorded */

typedef dycl_tape tape;

static void tape_dealloc(PyObject *self) {
    tape *t = (tape *)self;
    Py_XDECREF(t->of);
    Py_XDECREF(t->edges);
    Py_XDECREF(t->outer);
    dycl_free(t->gone);
    dycl_free(t->results);
    Py_TYPE(self)->tp_free(self);
}

PyObject *dycl_tape_pass(const tape *t, PyObject *saved, PyObject *gradients, PyObject *needed, dycl_pass_fn run) {
    if (PyTuple_GET_SIZE(saved) != t->saved_count || PyTuple_GET_SIZE(gradients) != t->result_count ||
        PyTuple_GET_SIZE(needed) != t->source_count) {
        PyErr_SetString(PyExc_ValueError, "a tape was called with other tensors than its own");
        return NULL;
    }
    const dycl_pass_job job = {.segment = t->of->segment,
                               .passes = t->of->passes,
                               .scalars = t->of->scalars,
                               .tracked = t->of->tracked,
                               .results = t->results,
                               .sources = t->sources,
                               .saved = t->saved,
                               .result_count = t->result_count,
                               .source_count = t->source_count,
                               .saved_count = t->saved_count};
    return run(&job, saved, gradients, needed);
}

/* What was logged of its plan would wait for the next call, or for ever. */
PyObject *dycl_tape_backward(const dycl_tape *t, PyObject *saved, PyObject *gradients, PyObject *needed) {
    PyObject *result = dycl_tape_pass(t, saved, gradients, needed, dycl_pass_run);
    return dycl_region_current ? result : dycl_log_after(result);
}

static PyObject *tape_backward(PyObject *self, PyObject *args) {
    PyObject *saved, *gradients, *needed;
    if (!PyArg_ParseTuple(args, "O!O!O!", &PyTuple_Type, &saved, &PyTuple_Type, &gradients, &PyTuple_Type, &needed))
        return NULL;
    return dycl_tape_backward((tape *)self, saved, gradients, needed);
}

static PyObject *tape_graph(PyObject *self, PyObject *args) {
    PyObject *saved, *gradients, *needed;
    if (!PyArg_ParseTuple(args, "O!O!O!", &PyTuple_Type, &saved, &PyTuple_Type, &gradients, &PyTuple_Type, &needed))
        return NULL;
    return dycl_tape_pass((tape *)self, saved, gradients, needed, dycl_pass_describe);
}

static PyObject *tape_hidden(PyObject *self, PyObject *unused) {
    (void)unused;
    return dycl_replay_words((int)((tape *)self)->hidden_count, ((tape *)self)->hidden);
}

static PyObject *tape_saved_sources(PyObject *self, PyObject *unused) {
    const tape *t = (tape *)self;
    PyObject *list = PyList_New(0);
    (void)unused;
    for (uint32_t i = 0; list && i < t->source_count; i++)
        for (uint32_t k = 0; k < t->saved_count; k++) {
            int is = t->saved[k] == t->sources[i];
            for (uint32_t h = 0; h < t->hidden_count; h++) is &= t->hidden[h] != k;
            PyObject *pair = is ? Py_BuildValue("(II)", i, k) : NULL;
            if (is && (!pair || PyList_Append(list, pair) < 0)) Py_CLEAR(list);
            Py_XDECREF(pair);
            if (!list) return NULL;
        }
    return list;
}

int dycl_tape_is_apart(const dycl_graph *graph, uint32_t source, uint32_t value) {
    return source != value && graph->values[source].kind == DYCL_VALUE_NODE && graph->values[source].root == value &&
           graph->values[value].kind == DYCL_VALUE_NODE;
}

static PyObject *tape_apart(PyObject *self, PyObject *unused) {
    const tape *t = (tape *)self;
    const dycl_graph *graph = &t->of->segment->graph;
    PyObject *list = PyList_New(0);
    (void)unused;
    for (uint32_t i = 0; list && i < t->source_count; i++)
        for (uint32_t k = 0; list && k < t->saved_count; k++) {
            const dycl_value *v = &graph->values[t->sources[i]];
            if (!dycl_tape_is_apart(graph, t->sources[i], t->saved[k])) continue;
            PyObject *row = Py_BuildValue("(IINNL)", k, i, dycl_py_ints(v->rank, v->sizes),
                                          dycl_py_ints(v->rank, v->strides), (long long)v->offset);
            if (!row || PyList_Append(list, row) < 0) Py_CLEAR(list);
            Py_XDECREF(row);
        }
    return list;
}

static PyObject *tape_inner(PyObject *self, PyObject *unused) {
    (void)unused;
    return dycl_inner_tapes((tape *)self);
}

static PyMethodDef tape_methods[] = {
    {"backward", tape_backward, METH_VARARGS,
     "backward(saved, gradients, needed): gradients of the sources, None where there are none; None for all: torch has "
     "to compute them."},
    {"graph", tape_graph, METH_VARARGS,
     "graph(saved, gradients, needed): how they are computed, (nodes, values, outputs, strides, detached) for "
     "dycl._replay; an output is None where there is none. strides: ((value, as it is laid out), ...) of what feeds "
     "it. detached: values without a history."},
    {"hidden", tape_hidden, METH_NOARGS, "Positions of what is saved and has a history that its tensor does not show."},
    {"saved_sources", tape_saved_sources, METH_NOARGS,
     "[(position of a source, where it is among what is saved), ...]."},
    {"apart", tape_apart, METH_NOARGS,
     "[(position of what is saved, of a source that is a view of it here, sizes, strides, offset), ...]."},
    {"inner", tape_inner, METH_NOARGS,
     "What is hidden gets its history from tapes of its own: [(tape, where its results are among what is saved, where "
     "its sources are (among the sources, or among what is saved behind these), where what it saves is), ...], in the "
     "order in which their nodes can be made."},
    {0},
};

static PyMemberDef tape_members[] = {
    {"edges", T_OBJECT, offsetof(tape, edges), 0, "Tensors that lead where sources do, by position."},
    {"shown", T_BOOL, offsetof(tape, shown), 0, "Whether its node has `shown`: what is saved, with its history."},
    {"once", T_BOOL, offsetof(tape, once), READONLY, "Whether torch's graph saves something here, and frees it."},
    {0},
};

PyTypeObject dycl_tape_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dycl.Tape",
    .tp_basicsize = sizeof(tape),
    .tp_dealloc = tape_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = tape_methods,
    .tp_members = tape_members,
};

dycl_tape *dycl_tape_new(dycl_recording *of, uint32_t results, uint32_t sources, uint32_t saved, uint32_t hidden) {
    tape *t = (tape *)dycl_tape_type.tp_alloc(&dycl_tape_type, 0);
    if (!t) return NULL;
    t->of = (dycl_recording *)Py_NewRef((PyObject *)of);
    t->result_count = results;
    t->source_count = sources;
    t->saved_count = saved;
    t->hidden_count = hidden;
    t->results = dycl_alloc(((size_t)results + sources + saved + 2 * (size_t)hidden + 1) * sizeof *t->results);
    if (!t->results) {
        Py_DECREF(t);
        PyErr_NoMemory();
        return NULL;
    }
    t->sources = t->results + results;
    t->saved = t->sources + sources;
    t->hidden = t->saved + saved;
    t->seen = t->hidden + hidden;
    return t;
}

/* ---- What passes free */

/* Within one pass eager goes through a node once. */
static int frees_another(int64_t gone, int64_t pass) { return gone && gone != 1 + pass; }

int dycl_tape_is_gone(const dycl_tape *t) {
    const dycl_tape *outer = t->outer ? (const dycl_tape *)t->outer : t;
    if (!outer->gone || !t->frees) return 0;
    int64_t pass = dycl_abi_backward_pass();
    if (t->outer) return frees_another(outer->gone[0], pass) || frees_another(outer->gone[1 + t->nth], pass);
    int any = 0;
    for (uint32_t i = 0; i < t->saved_count; i++) any |= frees_another(t->gone[1 + i], pass);
    return any;
}

void dycl_tape_let_go(dycl_tape *t) {
    dycl_tape *outer = t->outer ? (dycl_tape *)t->outer : t;
    int64_t pass = dycl_abi_backward_pass();
    if (!outer->gone || !t->frees || pass < 0) return;
    int64_t *gone = &outer->gone[t->outer ? 1 + t->nth : 0];
    if (!*gone) *gone = 1 + pass;
}

int dycl_tape_setup(void) { return dycl_recording_setup() < 0 || PyType_Ready(&dycl_tape_type) < 0 ? -1 : 0; }
