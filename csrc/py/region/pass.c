#include "py/region/pass.h"

#include <string.h>

#include "grad/backward.h"
#include "ir/infer.h"
#include "py/region/grow.h"
#include "py/region/segment.h"
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
    uint32_t *looks; /* per output: the value as which its tensor is made, itself or a view of all of it */
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
    dycl_free(p->looks);
    dycl_free(p->handles);
    dycl_free(p->addresses);
    dycl_backward_free(&p->backward);
}

static dycl_status no_memory(void) {
    PyErr_NoMemory();
    return DYCL_ERROR;
}

/* The graph for the gradients that came and those that are wanted. */
static dycl_status build(const dycl_pass_job *job, PyObject *gradients, PyObject *needed, pass *p) {
    uint32_t *results = dycl_alloc((job->result_count + 1) * sizeof *results);
    p->which = dycl_alloc((job->result_count + 1) * sizeof *p->which);
    p->wanted = dycl_alloc(job->source_count + 1);
    if (!results || !p->which || !p->wanted) {
        dycl_free(results);
        return no_memory();
    }
    for (uint32_t i = 0; i < job->result_count; i++) {
        if (PyTuple_GET_ITEM(gradients, i) == Py_None) continue;
        p->which[p->result_count] = i;
        results[p->result_count++] = job->results[i];
    }
    for (uint32_t i = 0; i < job->source_count; i++) p->wanted[i] = PyTuple_GET_ITEM(needed, i) == Py_True;
    dycl_backward_job all = {.graph = job->graph,
                             .numbers = job->scalars,
                             .tracked = job->tracked,
                             .results = results,
                             .sources = job->sources,
                             .wanted = p->wanted,
                             .result_count = p->result_count,
                             .source_count = job->source_count};
    dycl_status status = dycl_backward_build(&p->backward, &all);
    dycl_free(results);
    return status == DYCL_ERROR ? no_memory() : status;
}

static dycl_status bind_feeds(const dycl_pass_job *job, PyObject *saved, PyObject *gradients, pass *p) {
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
            for (uint32_t k = 0; k < job->saved_count && !o; k++)
                if (job->saved[k] == value) o = PyTuple_GET_ITEM(saved, k);
        }
        status = o ? read_feed(o, &graph->values[graph->feeds[i]], &p->feeds[i], &p->kept[i]) : DYCL_BAIL;
    }
    return status;
}

static uint32_t root_of(const pass *p, uint32_t value) { return p->backward.recorder.graph.values[value].root; }

static int shows_all(const dycl_value *view, const dycl_value *root) {
    return view->offset == 0 && dycl_value_dense(view) && dycl_value_numel(view) == dycl_value_numel(root);
}

static void add_output(pass *p, uint32_t value) {
    const dycl_graph *graph = &p->backward.recorder.graph;
    uint32_t root = root_of(p, value);
    for (uint32_t k = 0; k < p->output_count; k++) {
        if (p->outputs[k] != root) continue;
        if (p->looks[k] != value) p->looks[k] = root; /* of several gradients */
        return;
    }
    p->outputs[p->output_count] = root;
    p->looks[p->output_count++] = shows_all(&graph->values[value], &graph->values[root]) ? value : root;
}

/* Which values the plan computes: what gradients are, or are views of, each once. */
static dycl_status choose_outputs(const dycl_pass_job *job, pass *p) {
    const dycl_graph *graph = &p->backward.recorder.graph;
    p->outputs = dycl_alloc((job->source_count + 1) * sizeof *p->outputs);
    p->looks = dycl_alloc((job->source_count + 1) * sizeof *p->looks);
    p->handles = dycl_alloc_zero((job->source_count + 1) * sizeof *p->handles);
    p->addresses = dycl_alloc((job->source_count + 1) * sizeof *p->addresses);
    if (!p->outputs || !p->looks || !p->handles || !p->addresses) return no_memory();
    for (uint32_t i = 0; i < job->source_count; i++) {
        uint32_t value = p->backward.gradients[i];
        if (value != DYCL_NONE && graph->values[root_of(p, value)].kind == DYCL_VALUE_NODE) add_output(p, value);
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
    if (!dycl_segment_allocate(graph, p->looks, p->output_count, p->handles, p->addresses)) {
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
        if (p->outputs[i] == v->root)
            return p->looks[i] == value ? dycl_abi_wrap(p->handles[i]) : as_view(p->handles[i], v);
    return Py_NewRef(Py_None);
}

static PyObject *collect(const dycl_pass_job *job, const pass *p) {
    PyObject *tuple = PyTuple_New(job->source_count);
    for (uint32_t i = 0; tuple && i < job->source_count; i++) {
        PyObject *o = gradient_of(p, i);
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
    dycl_backward_init(&p.backward);
    dycl_status status = build(job, gradients, needed, &p);
    if (status == DYCL_OK) status = bind_feeds(job, saved, gradients, &p);
    if (status == DYCL_OK) status = choose_outputs(job, &p);
    if (status == DYCL_OK) status = compute(&p);
    if (status == DYCL_OK) result = collect(job, &p);
    for (uint32_t i = 0; i < p.output_count; i++) dycl_abi_delete(p.handles[i]);
    pass_free(&p);
    return status == DYCL_BAIL ? Py_NewRef(Py_None) : result;
}
