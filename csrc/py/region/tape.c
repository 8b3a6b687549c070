#include "py/region/tape.h"

#include <string.h>

#include "grad/backward.h"
#include "py/region/grow.h"
#include "py/region/replay.h"
#include "py/region/segment.h"
#include "py/site/site.h"

static int plans_made; /* by backward passes, as bits */

int dycl_tape_take_made(void) {
    int taken = plans_made;
    plans_made = 0;
    return taken;
}

static PyObject *attach_function; /* owned: dycl._autograd.attach */

PyObject *dycl_tape_set_attach(PyObject *attach) {
    PyObject *before = attach_function ? attach_function : Py_NewRef(Py_None);
    attach_function = Py_NewRef(attach);
    return before;
}

/* ---- What was recorded */

typedef struct {
    PyObject_HEAD dycl_graph graph; /* owned */
    dycl_scalar *scalars;           /* owned */
    uint8_t *tracked;               /* owned */
    dycl_handle *feeds;             /* owned */
    uint32_t *versions;             /* owned: of the feeds */
} recording;

static void recording_dealloc(PyObject *self) {
    recording *r = (recording *)self;
    for (uint32_t i = 0; r->feeds && i < r->graph.feed_count; i++) dycl_abi_delete(r->feeds[i]);
    dycl_free(r->feeds);
    dycl_free(r->versions);
    dycl_free(r->scalars);
    dycl_free(r->tracked);
    dycl_graph_free(&r->graph);
    Py_TYPE(self)->tp_free(self);
}

static PyTypeObject recording_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dycl.Recording",
    .tp_basicsize = sizeof(recording),
    .tp_dealloc = recording_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

PyObject *dycl_recording_new(const dycl_region *region) {
    const dycl_graph *graph = &region->recorder.graph;
    recording *r = (recording *)recording_type.tp_alloc(&recording_type, 0);
    if (!r) return NULL;
    dycl_graph_init(&r->graph);
    int made = dycl_graph_copy(&r->graph, graph) == DYCL_OK;
    r->scalars = dycl_alloc((graph->scalar_count + 1) * sizeof *r->scalars);
    r->tracked = dycl_alloc(graph->value_count + 1);
    r->feeds = dycl_alloc_zero((graph->feed_count + 1) * sizeof *r->feeds);
    r->versions = dycl_alloc((graph->feed_count + 1) * sizeof *r->versions);
    if (!made || !r->scalars || !r->tracked || !r->feeds || !r->versions) goto fail;
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
} tape;

static void tape_dealloc(PyObject *self) {
    tape *t = (tape *)self;
    Py_XDECREF(t->of);
    for (uint32_t i = 0; t->between && i < t->source_count; i++) dycl_abi_delete(t->between[i]);
    dycl_free(t->between);
    dycl_free(t->results);
    Py_TYPE(self)->tp_free(self);
}

/* ---- Gradients by a plan */

static dycl_status read_feed(PyObject *o, const dycl_value *wanted, dycl_feed *out, PyObject **kept) {
    dycl_tensor_view view;
    if (!dycl_is_tensor(o) || dycl_is_lazy(o) || !dycl_abi_is_plain(dycl_abi_impl(o)) ||
        !dycl_abi_read(dycl_abi_borrow(o), &view) || view.dtype != wanted->dtype || view.rank != wanted->rank)
        return DYCL_BAIL;
    int sizes_differ = memcmp(view.sizes, wanted->sizes, (size_t)view.rank * sizeof *view.sizes) != 0;
    if (sizes_differ) return DYCL_BAIL;
    *kept = Py_NewRef(o);
    if (memcmp(view.strides, wanted->strides, (size_t)view.rank * sizeof *view.strides)) { /* laid out as the result */
        dycl_handle made = dycl_abi_empty(view.dtype, view.rank, wanted->sizes, wanted->strides);
        dycl_tensor_view to;
        if (!made || !dycl_abi_read(made, &to)) {
            dycl_abi_delete(made);
            PyErr_Clear();
            return DYCL_BAIL;
        }
        dycl_kern_copy(to.data, to.strides, view.data, view.strides, to.sizes, to.rank, dycl_dtype_size(to.dtype));
        view = to;
        Py_SETREF(*kept, dycl_abi_wrap(made));
        dycl_abi_delete(made);
        if (!*kept) return DYCL_ERROR;
    }
    *out = (dycl_feed){view.data, 0, 0};
    return DYCL_OK;
}

typedef struct {
    dycl_backward backward;
    uint32_t *which;   /* results with a gradient, by position in the tape */
    uint8_t *wanted;   /* by source */
    uint32_t *outputs; /* of the plan */
    dycl_feed *feeds;
    PyObject **kept; /* owned: tensors of the feeds */
    dycl_handle *handles;
    void **addresses;
    uint32_t result_count, output_count;
} pass;

static void pass_free(pass *p) {
    for (uint32_t i = 0; p->kept && i < p->backward.recorder.graph.feed_count; i++) Py_XDECREF(p->kept[i]);
    dycl_free(p->which);
    dycl_free(p->wanted);
    dycl_free(p->outputs);
    dycl_free(p->feeds);
    dycl_free(p->kept);
    dycl_free(p->handles);
    dycl_free(p->addresses);
    dycl_backward_free(&p->backward);
}

static dycl_status no_memory(void) {
    PyErr_NoMemory();
    return DYCL_ERROR;
}

/* The graph for the gradients that came and those that are wanted. */
static dycl_status build(const tape *t, PyObject *gradients, PyObject *needed, pass *p) {
    uint32_t *results = dycl_alloc((t->result_count + 1) * sizeof *results);
    p->which = dycl_alloc((t->result_count + 1) * sizeof *p->which);
    p->wanted = dycl_alloc(t->source_count + 1);
    if (!results || !p->which || !p->wanted) {
        dycl_free(results);
        return no_memory();
    }
    for (uint32_t i = 0; i < t->result_count; i++) {
        if (PyTuple_GET_ITEM(gradients, i) == Py_None) continue;
        p->which[p->result_count] = i;
        results[p->result_count++] = t->results[i];
    }
    for (uint32_t i = 0; i < t->source_count; i++) p->wanted[i] = PyTuple_GET_ITEM(needed, i) == Py_True;
    dycl_backward_job job = {.graph = &t->of->graph,
                             .numbers = t->of->scalars,
                             .tracked = t->of->tracked,
                             .results = results,
                             .sources = t->sources,
                             .wanted = p->wanted,
                             .result_count = p->result_count,
                             .source_count = t->source_count};
    dycl_status status = dycl_backward_build(&p->backward, &job);
    dycl_free(results);
    return status == DYCL_ERROR ? no_memory() : status;
}

static dycl_status bind_feeds(const tape *t, PyObject *saved, PyObject *gradients, pass *p) {
    const dycl_graph *graph = &p->backward.recorder.graph;
    dycl_status status = DYCL_OK;
    p->feeds = dycl_alloc((graph->feed_count + 1) * sizeof *p->feeds);
    p->kept = dycl_alloc_zero((graph->feed_count + 1) * sizeof *p->kept);
    if (!p->feeds || !p->kept) return no_memory();
    for (uint32_t i = 0; i < graph->feed_count && status == DYCL_OK; i++) {
        PyObject *o = NULL;
        if (i < p->result_count) {
            o = PyTuple_GET_ITEM(gradients, p->which[i]);
        } else {
            uint32_t value = p->backward.saved[i - p->result_count];
            for (uint32_t k = 0; k < t->saved_count && !o; k++)
                if (t->saved[k] == value) o = PyTuple_GET_ITEM(saved, k);
        }
        status = o ? read_feed(o, &graph->values[graph->feeds[i]], &p->feeds[i], &p->kept[i]) : DYCL_BAIL;
    }
    return status;
}

static uint32_t root_of(const pass *p, uint32_t value) { return p->backward.recorder.graph.values[value].root; }

/* Which values the plan computes: what gradients are, or are views of, each once. */
static dycl_status choose_outputs(const tape *t, pass *p) {
    const dycl_graph *graph = &p->backward.recorder.graph;
    p->outputs = dycl_alloc((t->source_count + 1) * sizeof *p->outputs);
    p->handles = dycl_alloc_zero((t->source_count + 1) * sizeof *p->handles);
    p->addresses = dycl_alloc((t->source_count + 1) * sizeof *p->addresses);
    if (!p->outputs || !p->handles || !p->addresses) return no_memory();
    for (uint32_t i = 0; i < t->source_count; i++) {
        uint32_t value = p->backward.gradients[i], root = value == DYCL_NONE ? value : root_of(p, value), known = 0;
        if (value == DYCL_NONE || graph->values[root].kind != DYCL_VALUE_NODE) continue;
        for (uint32_t k = 0; k < p->output_count; k++) known |= p->outputs[k] == root;
        if (!known) p->outputs[p->output_count++] = root;
    }
    return DYCL_OK;
}

static dycl_status run_plan(const pass *p, dycl_plan *plan, dycl_pieces *pieces) {
    dycl_status status;
    dycl_plan_retain(plan);
    Py_BEGIN_ALLOW_THREADS;
    if (pieces)
        status = dycl_pieces_run(pieces, p->feeds, p->backward.recorder.scalars, p->addresses);
    else
        status = dycl_plan_run(plan, p->feeds, p->backward.recorder.scalars, p->addresses);
    Py_END_ALLOW_THREADS;
    dycl_plan_release(plan);
    return status;
}

static dycl_status compute(pass *p) {
    const dycl_graph *graph = &p->backward.recorder.graph;
    dycl_segment *segment = NULL;
    dycl_plan *plan = NULL;
    dycl_pieces *pieces = NULL;
    dycl_status status;
    if (!p->output_count) return DYCL_OK;
    if (!dycl_segment_allocate(graph, p->outputs, p->output_count, p->handles, p->addresses)) {
        p->output_count = 0;
        PyErr_Clear();
        return DYCL_BAIL;
    }
    DYCL_TRY(dycl_plan_lookup(dycl_site_cache(), graph, p->outputs, (int)p->output_count, &segment));
    dycl_segment_retain(segment);
    int planned = segment->plan || segment->pieces, tuned = segment->tuned;
    status = dycl_segment_prepare(dycl_site_cache(), segment, 0, NULL, &plan, &pieces);
    plans_made |= !planned ? DYCL_MADE_COLD : tuned != segment->tuned ? DYCL_MADE_TUNED : 0;
    if (status == DYCL_OK) status = run_plan(p, plan, pieces);
    if (status == DYCL_BUSY) { /* another thread runs it: a private plan */
        status = dycl_plan_create(graph, p->outputs, (int)p->output_count, DYCL_PLAN_COLD, &plan);
        if (status == DYCL_OK) {
            status = run_plan(p, plan, NULL);
            dycl_plan_release(plan);
        }
    }
    dycl_segment_release(segment);
fail:
    return status == DYCL_OK ? DYCL_OK : DYCL_BAIL;
}

static PyObject *as_view(dycl_handle base, const dycl_value *v) {
    dycl_handle view = dycl_abi_view(base, v->rank, v->sizes, v->strides, dycl_abi_storage_offset(base) + v->offset);
    PyObject *o = view ? dycl_abi_wrap(view) : NULL;
    dycl_abi_delete(view);
    return o;
}

static PyObject *gradient_of(const pass *p, uint32_t nth) {
    const dycl_graph *graph = &p->backward.recorder.graph;
    uint32_t value = p->backward.gradients[nth];
    if (value == DYCL_NONE) return Py_NewRef(Py_None);
    const dycl_value *v = &graph->values[value], *root = &graph->values[v->root];
    if (root->kind == DYCL_VALUE_FEED) {
        PyObject *came = p->kept[root->source];
        return v == root ? Py_NewRef(came) : as_view(dycl_abi_borrow(came), v);
    }
    for (uint32_t i = 0; i < p->output_count; i++)
        if (p->outputs[i] == v->root) return v == root ? dycl_abi_wrap(p->handles[i]) : as_view(p->handles[i], v);
    return Py_NewRef(Py_None);
}

static PyObject *collect(const tape *t, const pass *p) {
    PyObject *tuple = PyTuple_New(t->source_count);
    for (uint32_t i = 0; tuple && i < t->source_count; i++) {
        PyObject *o = gradient_of(p, i);
        if (!o)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, o);
    }
    return tuple;
}

static PyObject *tape_backward(PyObject *self, PyObject *args) {
    const tape *t = (tape *)self;
    PyObject *saved, *gradients, *needed, *result = NULL;
    if (!PyArg_ParseTuple(args, "O!O!O!", &PyTuple_Type, &saved, &PyTuple_Type, &gradients, &PyTuple_Type, &needed))
        return NULL;
    if (PyTuple_GET_SIZE(saved) != t->saved_count || PyTuple_GET_SIZE(gradients) != t->result_count ||
        PyTuple_GET_SIZE(needed) != t->source_count) {
        PyErr_SetString(PyExc_ValueError, "a tape was called with other tensors than its own");
        return NULL;
    }
    pass p;
    memset(&p, 0, sizeof p);
    dycl_backward_init(&p.backward);
    dycl_status status = build(t, gradients, needed, &p);
    if (status == DYCL_OK) status = bind_feeds(t, saved, gradients, &p);
    if (status == DYCL_OK) status = choose_outputs(t, &p);
    if (status == DYCL_OK) status = compute(&p);
    if (status == DYCL_OK) result = collect(t, &p);
    for (uint32_t i = 0; i < p.output_count; i++) dycl_abi_delete(p.handles[i]);
    pass_free(&p);
    return status == DYCL_BAIL ? Py_NewRef(Py_None) : result;
}

/* ---- Gradients by torch */

static PyObject *as_list(const uint32_t *values, uint32_t count) {
    PyObject *list = PyTuple_New(count);
    for (uint32_t i = 0; list && i < count; i++) {
        PyObject *word = PyLong_FromUnsignedLong(values[i]);
        if (!word) {
            Py_CLEAR(list);
            break;
        }
        PyTuple_SET_ITEM(list, i, word);
    }
    return list;
}

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
    (void)unused;
    for (uint32_t i = 0; i < r->graph.feed_count; i++)
        if (dycl_abi_version(dycl_abi_handle_impl(r->feeds[i])) != r->versions[i]) {
            PyErr_SetString(PyExc_RuntimeError,
                            "one of the variables needed for gradient computation has been modified by an inplace "
                            "operation");
            return NULL;
        }
    PyObject *nodes = NULL, *values = NULL, *result = NULL, *history = NULL;
    PyObject *results = as_list(t->results, t->result_count), *sources = as_list(t->sources, t->source_count);
    if (results && sources &&
        dycl_replay_describe(&r->graph, r->scalars, r->feeds, t->results, t->result_count, t->sources, t->source_count,
                             &nodes, &values) == 0 &&
        add_between(t, values) == 0 && (history = dycl_replay_history(&r->graph, r->tracked)))
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

static PyTypeObject tape_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dycl.Tape",
    .tp_basicsize = sizeof(tape),
    .tp_dealloc = tape_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = tape_methods,
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
    t->sources = t->results + t->result_count;
    t->saved = t->sources + t->source_count;
    memcpy(t->results, plan->results, t->result_count * sizeof *t->results);
    memcpy(t->sources, plan->sources, t->source_count * sizeof *t->sources);
    memcpy(t->saved, plan->saved, t->saved_count * sizeof *t->saved);
    for (uint32_t i = 0; i < t->source_count; i++) {
        PyObject *o = t->of->graph.values[t->sources[i]].kind == DYCL_VALUE_NODE
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

int dycl_tape_attach(dycl_region *region, PyObject *of, const dycl_tape_plan *plan) {
    PyObject *t = tape_new(region, of, plan), *done = NULL;
    PyObject *results = tensors_of(region, plan->results, plan->result_count, plan);
    PyObject *sources = tensors_of(region, plan->sources, plan->source_count, plan);
    PyObject *saved = tensors_of(region, plan->saved, plan->saved_count, plan);
    if (t && results && sources && saved && attach_function) {
        int state = dycl_abi_torch_function_off();
        done = PyObject_CallFunctionObjArgs(attach_function, t, results, saved, sources, NULL);
        dycl_abi_torch_function_restore(state);
    }
    Py_XDECREF(t);
    Py_XDECREF(results);
    Py_XDECREF(sources);
    Py_XDECREF(saved);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

int dycl_tape_setup(void) { return PyType_Ready(&recording_type) < 0 || PyType_Ready(&tape_type) < 0 ? -1 : 0; }
