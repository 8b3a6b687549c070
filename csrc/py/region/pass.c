#include "py/region/pass.h"

#include <string.h>

#include "base/trim.h"
#include "exec/cache/backwards.h"
#include "ir/infer.h"
#include "py/cpython/collect.h"
#include "py/region/grow.h"
#include "py/region/replay.h"
#include "py/region/segment.h"
#include "py/region/tape.h"
#include "py/site/site.h"

static int plans_made; /* as bits */

int dycl_pass_take_made(void) {
    int taken = plans_made;
    plans_made = 0;
    return taken;
}

static dycl_status read_feed(PyObject *o, const dycl_value *wanted, dycl_feed *out, PyObject **kept) {
    dycl_tensor_view view;
    if (!dycl_is_tensor(o) || dycl_is_lazy(o) || !dycl_abi_is_plain(dycl_abi_impl(o)) ||
        !dycl_abi_read(dycl_abi_borrow(o), &view) || view.dtype != wanted->dtype || view.rank != wanted->rank)
        return dycl_error_bail("a gradient, or what was saved, is no plain tensor of the type that was recorded");
    int sizes_differ = memcmp(view.sizes, wanted->sizes, (size_t)view.rank * sizeof *view.sizes) != 0;
    if (sizes_differ) return dycl_error_bail("a gradient, or what was saved, has other sizes than were recorded");
    *kept = Py_NewRef(o);
    if (memcmp(view.strides, wanted->strides, (size_t)view.rank * sizeof *view.strides)) { /* laid out as the result */
        dycl_handle made = dycl_abi_empty(view.dtype, view.rank, wanted->sizes, wanted->strides);
        dycl_tensor_view to;
        if (!made || !dycl_abi_read(made, &to)) {
            dycl_abi_delete(made);
            PyErr_Clear();
            return dycl_error_bail("torch has no memory for a gradient");
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
    dycl_gradients *of;      /* owned */
    dycl_segment *segment;   /* owned: computes the outputs; NULL: there are none */
    const dycl_graph *graph; /* of either */
    uint32_t *which;         /* results with a gradient, by position in the tape */
    dycl_scalar *scalars;
    dycl_feed *feeds;
    PyObject **kept; /* owned: tensors of the feeds */
    dycl_handle *handles;
    void **addresses;
    uint32_t result_count, made_count; /* made: of the handles */
} pass;

static void pass_free(pass *p) {
    for (uint32_t i = 0; i < p->made_count; i++) dycl_abi_delete(p->handles[i]);
    for (uint32_t i = 0; p->kept && i < p->graph->feed_count; i++) Py_XDECREF(p->kept[i]);
    dycl_free(p->which);
    dycl_free(p->scalars);
    dycl_free(p->feeds);
    dycl_free(p->kept);
    dycl_free(p->handles);
    dycl_free(p->addresses);
    dycl_segment_release(p->segment);
    dycl_gradients_release(p->of);
}

static dycl_status no_memory(void) {
    PyErr_NoMemory();
    return DYCL_ERROR;
}

/* As it lies; as the result does where it is none that the graph takes, which reading it will say. */
static void given_strides(PyObject *gradient, const dycl_value *result, int64_t *out) {
    dycl_tensor_view view;
    int reads = dycl_is_tensor(gradient) && !dycl_is_lazy(gradient) && dycl_abi_is_plain(dycl_abi_impl(gradient)) &&
                dycl_abi_read(dycl_abi_borrow(gradient), &view) && view.rank == result->rank;
    memset(out, 0, sizeof(dycl_strides));
    memcpy(out, reads ? view.strides : result->strides, (size_t)result->rank * sizeof *out);
}

/* The graph for the gradients that came and those that are wanted. */
static dycl_status find(const dycl_pass_job *job, PyObject *gradients, PyObject *needed, pass *p) {
    uint32_t *results = dycl_alloc((job->result_count + 1) * sizeof *results);
    dycl_strides *given = dycl_alloc((job->result_count + 1) * sizeof *given);
    uint8_t *wanted = dycl_alloc(job->source_count + 1);
    dycl_status status = DYCL_ERROR;
    p->which = dycl_alloc((job->result_count + 1) * sizeof *p->which);
    if (!results || !given || !p->which || !wanted) goto fail;
    for (uint32_t i = 0; i < job->result_count; i++) {
        PyObject *gradient = PyTuple_GET_ITEM(gradients, i);
        if (gradient == Py_None) continue;
        given_strides(gradient, &job->segment->graph.values[job->results[i]], given[p->result_count]);
        p->which[p->result_count] = i;
        results[p->result_count++] = job->results[i];
    }
    for (uint32_t i = 0; i < job->source_count; i++) wanted[i] = PyTuple_GET_ITEM(needed, i) == Py_True;
    dycl_backward_job all = {.graph = &job->segment->graph,
                             .numbers = job->scalars,
                             .tracked = job->tracked,
                             .results = results,
                             .sources = job->sources,
                             .wanted = wanted,
                             .given = given,
                             .result_count = p->result_count,
                             .source_count = job->source_count};
    status = dycl_backwards_get(job->segment, &all, 0, &p->of);
    if (status == DYCL_OK &&
        p->of->status == DYCL_BAIL) { /* no formula for one that lies so: a copy lies as it should */
        dycl_gradients_release(p->of);
        p->of = NULL;
        all.given = NULL;
        status = dycl_backwards_get(job->segment, &all, 0, &p->of);
    }
    if (status == DYCL_OK && p->of->status != DYCL_OK) status = dycl_error_bail("%s", dycl_gradients_why_not(p->of));
    if (status != DYCL_OK || !p->of->output_count) goto fail;
    status = dycl_gradients_segment(dycl_site_cache(), p->of, &p->segment);
    if (status == DYCL_OK) dycl_segment_retain(p->segment);
fail:
    if (status == DYCL_OK) p->graph = dycl_gradients_graph(p->of);
    dycl_free(results);
    dycl_free(given);
    dycl_free(wanted);
    return status == DYCL_ERROR ? no_memory() : status;
}

/* The tensor of the nth value that the graph wants of the segment. Borrowed; NULL: it was not saved. */
static PyObject *saved_tensor(const dycl_pass_job *job, PyObject *saved, const pass *p, uint32_t nth) {
    uint32_t value = p->of->built.saved[nth], *at = &p->of->saved_at[nth];
    for (uint32_t k = 0; k <= job->saved_count; k++) {
        if (*at < job->saved_count && job->saved[*at] == value) return PyTuple_GET_ITEM(saved, *at);
        *at = k;
    }
    return NULL;
}

/* The tensor that feeds it. Borrowed; NULL: it was not saved. */
static PyObject *feed_tensor(const dycl_pass_job *job, PyObject *saved, PyObject *gradients, const pass *p,
                             uint32_t nth) {
    return nth < p->result_count ? PyTuple_GET_ITEM(gradients, p->which[nth])
                                 : saved_tensor(job, saved, p, nth - p->result_count);
}

static dycl_status bind_feeds(const dycl_pass_job *job, PyObject *saved, PyObject *gradients, pass *p) {
    const dycl_graph *graph = p->graph;
    dycl_status status = DYCL_OK;
    p->feeds = dycl_alloc((graph->feed_count + 1) * sizeof *p->feeds);
    p->kept = dycl_alloc_zero((graph->feed_count + 1) * sizeof *p->kept);
    p->scalars = dycl_alloc((graph->scalar_count + 1) * sizeof *p->scalars);
    if (!p->feeds || !p->kept || !p->scalars) return no_memory();
    dycl_gradients_numbers(p->of, job->scalars, p->scalars);
    for (uint32_t i = 0; i < graph->feed_count && status == DYCL_OK; i++) {
        PyObject *o = feed_tensor(job, saved, gradients, p, i);
        status = o ? read_feed(o, &graph->values[graph->feeds[i]], &p->feeds[i], &p->kept[i])
                   : dycl_error_bail("a gradient needs what was not saved");
    }
    return status;
}

static dycl_status run_plan(const pass *p, dycl_plan *plan, dycl_pieces *pieces) {
    dycl_status status;
    dycl_plan_retain(plan);
    int sections = dycl_collect_suspend();
    dycl_readers_add(1);
    Py_BEGIN_ALLOW_THREADS;
    if (pieces)
        status = dycl_pieces_run(pieces, p->feeds, p->scalars, p->addresses);
    else
        status = dycl_plan_run(plan, p->feeds, p->scalars, p->addresses);
    Py_END_ALLOW_THREADS;
    dycl_readers_add(-1);
    dycl_collect_resume(sections);
    dycl_plan_release(plan);
    return status;
}

static dycl_status compute(pass *p) {
    const dycl_gradients *g = p->of;
    dycl_segment *segment = p->segment;
    dycl_plan *plan = NULL;
    dycl_pieces *pieces = NULL;
    dycl_status status;
    if (!segment) return DYCL_OK;
    p->handles = dycl_alloc_zero((g->output_count + 1) * sizeof *p->handles);
    p->addresses = dycl_alloc((g->output_count + 1) * sizeof *p->addresses);
    if (!p->handles || !p->addresses) return no_memory();
    if (!dycl_segment_allocate(p->graph, g->looks, g->output_count, p->handles, p->addresses)) {
        PyErr_Clear();
        return dycl_error_bail("torch has no memory for the gradients");
    }
    p->made_count = g->output_count;
    int planned = segment->plan || segment->pieces, tuned = segment->tuned;
    status = dycl_segment_prepare(dycl_site_cache(), segment, 0, NULL, &plan, &pieces);
    plans_made |= !planned ? DYCL_MADE_COLD : tuned != segment->tuned ? DYCL_MADE_TUNED : 0;
    if (status == DYCL_OK) status = run_plan(p, plan, pieces);
    if (status == DYCL_BUSY) { /* another thread runs it: a private plan */
        status = dycl_plan_create(p->graph, g->outputs, (int)g->output_count, DYCL_PLAN_COLD, &plan);
        if (status == DYCL_OK) {
            status = run_plan(p, plan, NULL);
            dycl_plan_release(plan);
        }
    }
    return status == DYCL_OK ? DYCL_OK : DYCL_BAIL;
}

static PyObject *as_view(dycl_handle base, const dycl_value *v) {
    dycl_handle view = dycl_abi_view(base, v->rank, v->sizes, v->strides, dycl_abi_storage_offset(base) + v->offset);
    PyObject *o = view ? dycl_abi_wrap(view) : NULL;
    dycl_abi_delete(view);
    return o;
}

static PyObject *gradient_of(const pass *p, uint32_t nth) {
    uint32_t value = p->of->built.gradients[nth];
    if (value == DYCL_NONE) return Py_NewRef(Py_None);
    const dycl_value *v = &p->graph->values[value], *root = &p->graph->values[v->root];
    if (root->kind == DYCL_VALUE_FEED) {
        PyObject *came = p->kept[root->source];
        return v == root ? Py_NewRef(came) : as_view(dycl_abi_borrow(came), v);
    }
    for (uint32_t i = 0; i < p->made_count; i++)
        if (p->of->outputs[i] == v->root)
            return p->of->looks[i] == value ? dycl_abi_wrap(p->handles[i]) : as_view(p->handles[i], v);
    return Py_NewRef(Py_None);
}

/* Sources of one gradient get one tensor: torch's AccumulateGrad copies what somebody else has, too. */
static PyObject *collect(const dycl_pass_job *job, const pass *p) {
    const uint32_t *values = p->of->built.gradients;
    PyObject *tuple = PyTuple_New(job->source_count);
    for (uint32_t i = 0; tuple && i < job->source_count; i++) {
        int view = values[i] != DYCL_NONE && p->graph->values[values[i]].root != values[i];
        uint32_t same = view ? dycl_tape_place(values[i], values, i) : i;
        PyObject *o = same < i ? Py_NewRef(PyTuple_GET_ITEM(tuple, same)) : gradient_of(p, i);
        if (!o)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, o);
    }
    return tuple;
}

PyObject *dycl_pass_run(const dycl_pass_job *job, PyObject *saved, PyObject *gradients, PyObject *needed) {
    PyObject *result = NULL;
    pass p;
    memset(&p, 0, sizeof p);
    dycl_trim_less();
    dycl_readers_yield();
    dycl_status status = find(job, gradients, needed, &p);
    if (status == DYCL_OK) status = bind_feeds(job, saved, gradients, &p);
    if (status == DYCL_OK) status = compute(&p);
    if (status == DYCL_OK) result = collect(job, &p);
    if (result) {
        p.of->passes++;
        dycl_passes_ran(job->passes);
    }
    pass_free(&p);
    return status == DYCL_BAIL ? Py_NewRef(Py_None) : result;
}

/* ---- Opened */

static dycl_status open_feeds(const dycl_pass_job *job, PyObject *saved, PyObject *gradients, const pass *p,
                              dycl_opened_pass *opened) {
    opened->feeds = dycl_alloc((p->graph->feed_count + 1) * sizeof *opened->feeds);
    opened->numbers = dycl_alloc((p->graph->scalar_count + 1) * sizeof *opened->numbers);
    if (!opened->feeds || !opened->numbers) return no_memory();
    dycl_gradients_numbers(p->of, job->scalars, opened->numbers);
    for (uint32_t i = 0; i < p->graph->feed_count; i++) {
        opened->feeds[i] = feed_tensor(job, saved, gradients, p, i);
        if (opened->feeds[i]) continue;
        PyErr_SetString(PyExc_SystemError, "dycl: a gradient needs what was not saved");
        return DYCL_ERROR;
    }
    return DYCL_OK;
}

dycl_opened_pass dycl_pass_open(const dycl_pass_job *job, PyObject *saved, PyObject *gradients, PyObject *needed) {
    dycl_opened_pass opened = {0};
    pass p;
    memset(&p, 0, sizeof p);
    opened.status = find(job, gradients, needed, &p);
    if (opened.status == DYCL_OK) opened.status = open_feeds(job, saved, gradients, &p, &opened);
    if (opened.status == DYCL_OK) {
        dycl_gradients_retain(p.of);
        opened.of = p.of;
        opened.graph = p.graph;
    } else {
        dycl_pass_close(&opened);
    }
    pass_free(&p);
    return opened;
}

void dycl_pass_close(dycl_opened_pass *opened) {
    dycl_free(opened->feeds);
    dycl_free(opened->numbers);
    dycl_gradients_release(opened->of);
    opened->feeds = NULL;
    opened->numbers = NULL;
    opened->of = NULL;
}

/* ---- As a graph for torch */

/* ((value, its strides), ...) of the feeds, whose tensors may be laid out otherwise. */
static PyObject *feed_strides(const dycl_graph *graph) {
    PyObject *tuple = PyTuple_New(graph->feed_count);
    for (uint32_t i = 0; tuple && i < graph->feed_count; i++) {
        const dycl_value *v = &graph->values[graph->feeds[i]];
        PyObject *row = Py_BuildValue("(IN)", graph->feeds[i], dycl_py_ints(v->rank, v->strides));
        if (row)
            PyTuple_SET_ITEM(tuple, i, row);
        else
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* ((gradient, what is saved, whether nothing comes for it), ...) */
static PyObject *ties_of(const dycl_backward *b) {
    PyObject *tuple = PyTuple_New(b->tie_count);
    for (uint32_t i = 0; tuple && i < b->tie_count; i++) {
        PyObject *pair = Py_BuildValue("(III)", b->ties[i].gradient, b->ties[i].saved, b->ties[i].nothing);
        if (pair)
            PyTuple_SET_ITEM(tuple, i, pair);
        else
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *described(const dycl_pass_job *job, const dycl_opened_pass *p) {
    const dycl_backward *built = &p->of->built;
    PyObject *nodes = NULL, *values = NULL, *result = NULL;
    uint32_t count = 0;
    uint32_t *outputs = dycl_alloc((job->source_count + built->tie_count + 1) * sizeof *outputs);
    dycl_handle *feeds = dycl_alloc((p->graph->feed_count + 1) * sizeof *feeds); /* borrowed */
    if (!outputs || !feeds) {
        PyErr_NoMemory();
        goto fail;
    }
    for (uint32_t i = 0; i < p->graph->feed_count; i++) feeds[i] = dycl_abi_borrow(p->feeds[i]);
    for (uint32_t i = 0; i < job->source_count; i++)
        if (built->gradients[i] != DYCL_NONE) outputs[count++] = built->gradients[i];
    for (uint32_t i = 0; i < built->tie_count; i++) outputs[count++] = built->ties[i].saved;
    if (dycl_replay_describe(p->graph, p->numbers, feeds, outputs, count, &nodes, &values) < 0) goto fail;
    result = Py_BuildValue("(OONNNN)", nodes, values, dycl_replay_words((int)job->source_count, built->gradients),
                           feed_strides(p->graph), dycl_replay_words((int)built->detached_count, built->detached),
                           ties_of(built));
fail:
    dycl_free(outputs);
    dycl_free(feeds);
    Py_XDECREF(nodes);
    Py_XDECREF(values);
    return result;
}

PyObject *dycl_pass_describe(const dycl_pass_job *job, PyObject *saved, PyObject *gradients, PyObject *needed) {
    dycl_passes_replayed(job->passes, dycl_abi_grad_enabled(), dycl_error_message()); /* of the plan that could not */
    dycl_opened_pass opened = dycl_pass_open(job, saved, gradients, needed);
    PyObject *result = opened.status == DYCL_OK ? described(job, &opened) : NULL;
    if (result) opened.of->replays++;
    if (opened.status == DYCL_BAIL)
        PyErr_SetString(PyExc_SystemError, "dycl: no graph of what was differentiated before");
    dycl_pass_close(&opened);
    return result;
}
