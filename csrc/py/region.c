#include "py/region.h"

#include <string.h>

#include "base/alloc.h"
#include "py/ahead.h"
#include "py/constant.h"
#include "py/site.h"
#include "py/watch.h"
#include "record/work.h"

_Thread_local dycl_region *dycl_region_current __attribute__((tls_model("initial-exec")));

/* ---- Feeds ------------------------------------------------------------------------------------------------------------------ */

static void *grown(void *array, uint32_t *room, uint32_t wanted, size_t element) {
    if (wanted <= *room) return array;
    uint32_t next = *room ? *room : 64;
    while (next < wanted) next *= 2;
    void *block = dycl_realloc(array, next * element);
    if (!block) {
        PyErr_NoMemory();
        return NULL;
    }
    *room = next;
    return block;
}

#define GROW(array, room, wanted)                                                                                      \
    do {                                                                                                               \
        void *block_ = grown(array, &(room), wanted, sizeof *(array));                                                 \
        if (!block_) return DYCL_ERROR;                                                                                \
        (array) = block_;                                                                                              \
    } while (0)

static uint32_t slot_of(const dycl_region *region, const PyObject *object) {
    uint64_t h = (uint64_t)(uintptr_t)object * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(h >> 40) & (region->fed_room - 1);
}

static dycl_fed *find_fed(dycl_region *region, PyObject *object) { /* its entry, or the free one where it belongs */
    uint32_t at = slot_of(region, object);
    while (region->fed[at].epoch == region->epoch && region->fed[at].object != object) at = (at + 1) & (region->fed_room - 1);
    return &region->fed[at];
}

static dycl_status grow_fed(dycl_region *region) {
    dycl_fed *old = region->fed;
    uint32_t old_room = region->fed_room, room = old_room ? 2 * old_room : 256;
    dycl_fed *next = dycl_alloc_zero(room * sizeof *next);
    if (!next) {
        PyErr_NoMemory();
        return DYCL_ERROR;
    }
    region->fed = next;
    region->fed_room = room;
    for (uint32_t i = 0; i < old_room; i++)
        if (old[i].epoch == region->epoch) *find_fed(region, old[i].object) = old[i];
    dycl_free(old);
    return DYCL_OK;
}

static dycl_status add_feed(dycl_region *region, dycl_handle tensor, const char *impl, uint32_t *out_value) {
    dycl_recorder *r = &region->recorder;
    dycl_tensor_view view;
    if (!dycl_abi_is_plain(impl)) return dycl_build_bail(r, DYCL_BAIL_layout);
    if (!dycl_abi_read(tensor, &view)) return dycl_build_bail(r, DYCL_BAIL_dtype);
    uint32_t at = r->graph.feed_count;
    GROW(region->sources, region->source_room, at + 1);
    GROW(region->feeds, region->feed_room, at + 1);
    dycl_status status = dycl_graph_feed(&r->graph, view.dtype, view.rank, view.sizes, view.strides, out_value);
    if (status == DYCL_ERROR) PyErr_NoMemory();
    if (status != DYCL_OK) return status == DYCL_BAIL ? dycl_build_bail(r, DYCL_BAIL_rank) : status;
    region->feeds[at] = (dycl_feed){view.data, 0, 0};
    region->sources[at] = (dycl_source){NULL, NULL};
    return DYCL_OK;
}

static dycl_status lazy_value(dycl_region *region, PyObject *tensor, uint32_t *out_value) {
    dycl_lazy *lazy = dycl_lazy_of(tensor);
    if (lazy->epoch == region->epoch) {
        *out_value = lazy->value;
        return DYCL_OK;
    }
    dycl_handle copy = dycl_abi_copy_handle(lazy->real);
    if (!copy) {
        PyErr_NoMemory();
        return DYCL_ERROR;
    }
    dycl_status status = add_feed(region, lazy->real, dycl_abi_handle_impl(lazy->real), out_value);
    if (status != DYCL_OK) {
        dycl_abi_delete(copy);
        return status;
    }
    region->sources[region->recorder.graph.feed_count - 1].handle = copy;
    if (dycl_watch_is_foreign(dycl_abi_handle_impl(copy))) region->foreign = 1; /* a view of such memory, or its array came later */
    lazy->value = *out_value;
    lazy->epoch = region->epoch;
    return DYCL_OK;
}

dycl_status dycl_region_value_slow(dycl_region *region, PyObject *tensor, uint32_t *out_value) {
    dycl_recorder *r = &region->recorder;
    PyTypeObject *type = Py_TYPE(tensor);
    if (type == dycl_py.lazy_type) {
        if (dycl_lazy_of(tensor)->region == region) return lazy_value(region, tensor, out_value);
        if (dycl_region_make_plain(tensor, DYCL_BAIL_thread) < 0) return DYCL_ERROR;
        return dycl_build_bail(r, DYCL_BAIL_thread); /* meanwhile others may have ended our segment, and operands are values of it */
    }
    if (type != dycl_py.tensor_type && type != dycl_py.parameter_type && type != dycl_py.buffer_type) return dycl_build_bail(r, DYCL_BAIL_subclass);
    if (2 * (region->fed_count + 1) > region->fed_room) {
        dycl_status grow_status = grow_fed(region);
        if (grow_status != DYCL_OK) return grow_status;
    }
    dycl_fed *fed = find_fed(region, tensor);
    if (fed->epoch == region->epoch) {
        *out_value = fed->value;
        return DYCL_OK;
    }
    const char *impl = dycl_abi_impl(tensor);
    if (dycl_abi_has_autograd_meta(impl) && dycl_abi_grad_enabled()) {
        PyObject *flag = dycl_py_requires_grad(tensor);
        if (!flag) return DYCL_ERROR;
        int required = flag == Py_True;
        Py_DECREF(flag);
        if (required) return dycl_build_bail(r, DYCL_BAIL_grad);
    }
    dycl_status status = add_feed(region, dycl_abi_borrow(tensor), impl, out_value);
    if (status != DYCL_OK) return status;
    uint32_t at = r->graph.feed_count - 1;
    region->sources[at].object = Py_NewRef(tensor);
    if (dycl_watch_is_foreign(impl)) region->foreign = 1;
    else if (type == dycl_py.parameter_type) region->feeds[at].token = dycl_constant_token(tensor, &region->feeds[at].version);
    *fed = (dycl_fed){tensor, region->epoch, *out_value};
    region->fed_count++;
    return DYCL_OK;
}

/* ---- Results ------------------------------------------------------------------------------------------------------------------ */

PyObject *dycl_region_result(dycl_region *region, uint32_t value) {
    region->site->stats.recorded++;
    if (__builtin_expect(region->wants_ahead, 0)) dycl_region_ahead_step(region);
    return dycl_lazy_new(region, value);
}

int dycl_region_settle_now(dycl_region *region) {
    uint32_t nodes = region->recorder.graph.node_count;
    if (!region->foreign && nodes < DYCL_SEGMENT_NODES) {
        region->work += dycl_work_of(&region->recorder.graph, region->look_at - DYCL_SEGMENT_LOOK, nodes);
        region->look_at = nodes + DYCL_SEGMENT_LOOK;
        if (region->work < DYCL_SEGMENT_WORK) return 0;
    }
    return dycl_region_flush(region, region->foreign ? DYCL_BAIL_foreign : DYCL_BAIL_limit);
}

int dycl_region_may_write(dycl_region *region, PyObject *tensor) {
    dycl_lazy *lazy = dycl_lazy_of(tensor);
    const dycl_graph *graph = &region->recorder.graph;
    region->recorder.why = DYCL_BAIL_alias;
    if (lazy->aliased) return 0;
    if (lazy->epoch != region->epoch) return 1; /* computed, not shared, and nothing in this segment looks at it */
    if (graph->values[lazy->value].root != lazy->value) return 0;
    if (!lazy->real && graph->values[lazy->value].kind != DYCL_VALUE_NODE) return 0; /* detached from a tensor that others have */
    for (PyObject *o = region->first; o; o = dycl_lazy_of(o)->next) {
        const dycl_lazy *other = dycl_lazy_of(o);
        if (other != lazy && other->epoch == region->epoch && graph->values[other->value].root == lazy->value) return 0;
    }
    return 1;
}

/* Kept beside the object, because a view of it may outlive it. */
static dycl_status note_version(dycl_region *region, uint32_t value, uint32_t version) {
    GROW(region->written, region->written_room, region->written_count + 1);
    region->written[region->written_count++] = (dycl_written){value, version};
    return DYCL_OK;
}

int dycl_region_count_writes(dycl_region *region, PyObject *tensor, uint32_t writes) {
    dycl_lazy *lazy = dycl_lazy_of(tensor);
    lazy->writes += writes;
    return note_version(region, region->recorder.graph.values[lazy->value].root, lazy->writes) == DYCL_OK ? 0 : -1;
}

int dycl_region_rebind(dycl_region *region, PyObject *tensor, uint32_t value) {
    dycl_lazy *lazy = dycl_lazy_of(tensor);
    dycl_handle old = lazy->real;
    uint32_t version = (old ? dycl_abi_version(dycl_abi_handle_impl(old)) : lazy->writes) + 1;
    if (note_version(region, value, version) != DYCL_OK) return -1;
    lazy->real = NULL;
    lazy->value = value;
    lazy->epoch = region->epoch;
    lazy->writes = version;
    dycl_abi_delete(old);
    return 0;
}

/* ---- Flush -------------------------------------------------------------------------------------------------------------------- */

static int is_pending(const dycl_region *region, const dycl_lazy *lazy) { return lazy->epoch == region->epoch && !lazy->real; }

static dycl_status collect_outputs(dycl_region *region, uint32_t *out_count, uint32_t *out_pending) {
    const dycl_graph *graph = &region->recorder.graph;
    uint32_t count = 0, pending = 0;
    GROW(region->output_of, region->output_of_room, graph->value_count);
    memset(region->output_of, 0, graph->value_count * sizeof *region->output_of);
    if (region->living > region->output_room) {
        uint32_t room = 2 * region->living;
        void *a = dycl_realloc(region->outputs, room * sizeof *region->outputs);
        if (a) region->outputs = a;
        void *b = dycl_realloc(region->handles, room * sizeof *region->handles);
        if (b) region->handles = b;
        void *c = dycl_realloc(region->addresses, room * sizeof *region->addresses);
        if (c) region->addresses = c;
        if (!a || !b || !c) {
            PyErr_NoMemory();
            return DYCL_ERROR;
        }
        region->output_room = room;
    }
    for (PyObject *o = region->first; o; o = dycl_lazy_of(o)->next) {
        const dycl_lazy *lazy = dycl_lazy_of(o);
        if (!is_pending(region, lazy)) continue;
        pending++;
        uint32_t root = graph->values[lazy->value].root;
        if (graph->values[root].kind != DYCL_VALUE_NODE || region->output_of[root]) continue;
        region->outputs[count++] = root;
        region->output_of[root] = count;
    }
    *out_count = count;
    *out_pending = pending;
    return DYCL_OK;
}

static int allocate_outputs(dycl_region *region, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        const dycl_value *value = &region->recorder.graph.values[region->outputs[i]];
        dycl_tensor_view view;
        region->handles[i] = dycl_abi_empty((dycl_dtype)value->dtype, value->rank, value->sizes, value->strides);
        if (!region->handles[i] || !dycl_abi_read(region->handles[i], &view)) {
            for (uint32_t k = 0; k <= i; k++) dycl_abi_delete(region->handles[k]);
            PyErr_NoMemory();
            return -1;
        }
        region->addresses[i] = view.data;
    }
    return 0;
}

typedef struct {
    dycl_plan *plan; /* or */
    dycl_pieces *pieces;
} prepared;

static dycl_status run_prepared(const dycl_region *region, const prepared *what) {
    if (what->pieces) return dycl_pieces_run(what->pieces, region->feeds, region->recorder.scalars, region->addresses);
    return dycl_plan_run(what->plan, region->feeds, region->recorder.scalars, region->addresses);
}

#define SHORT_NS 20000.0 /* giving the GIL up and taking it back costs more than others could gain */

static dycl_status run(const dycl_region *region, const prepared *what) {
    dycl_status status;
    double cost = what->plan ? dycl_plan_cost(what->plan) : dycl_pieces_cost(what->pieces);
    if (cost >= DYCL_AHEAD_LEAST_NS) region->site->worth_ahead = 1;
    if (what->plan) dycl_plan_retain(what->plan);
    if (cost < SHORT_NS) {
        status = run_prepared(region, what);
    } else {
        Py_BEGIN_ALLOW_THREADS;
        status = run_prepared(region, what);
        Py_END_ALLOW_THREADS;
    }
    dycl_plan_release(what->plan);
    return status;
}

/* The Python line that asked for the value, for explain. */
static void note_where(dycl_trace *trace, uint32_t position) {
    PyFrameObject *frame = PyEval_GetFrame(); /* borrowed */
    if (!frame) return;
    PyCodeObject *code = PyFrame_GetCode(frame);
    PyObject *text = PyUnicode_FromFormat("%U:%d", code->co_filename, PyFrame_GetLineNumber(frame));
    const char *where = text ? PyUnicode_AsUTF8(text) : NULL;
    if (where) dycl_trace_set_where(trace, position, where);
    PyErr_Clear();
    Py_XDECREF(text);
    Py_DECREF(code);
}

/* The TraceGraph's next position. */
static void advance(dycl_region *region, dycl_segment *segment, dycl_bail why) {
    dycl_site *site = region->site;
    int is_new;
    region->position = dycl_trace_advance(site->trace, region->position, segment, (int)why, &is_new);
    if (is_new && why != DYCL_BAIL_region_end) note_where(site->trace, region->position);
    site->stats.segments++;
    site->stats.flushes[why]++;
}

static dycl_status run_segment(dycl_region *region, uint32_t count, dycl_bail why) {
    const dycl_graph *graph = &region->recorder.graph;
    dycl_segment *segment = NULL;
    prepared what = {NULL, NULL};
    dycl_status status = DYCL_OK;
    for (int nth = 0; nth < region->expected_count && !segment; nth++)
        if (dycl_segment_matches(region->expected[nth], graph, region->outputs, (int)count)) segment = region->expected[nth];
    if (!segment) DYCL_TRY(dycl_plan_lookup(dycl_site_cache(), graph, region->outputs, (int)count, &segment));
    dycl_segment_retain(segment);
    advance(region, segment, why);
    int planned = segment->plan || segment->pieces, tuned = segment->tuned;
    status = dycl_segment_prepare(dycl_site_cache(), segment, region->expected_count, region->expected, &what.plan, &what.pieces);
    region->made |= (uint8_t)(!planned ? DYCL_MADE_COLD : tuned != segment->tuned ? DYCL_MADE_TUNED : 0);
    if (status == DYCL_OK) status = run(region, &what);
    if (status == DYCL_BAIL) { /* another thread runs it: a private plan */
        what.pieces = NULL;
        status = dycl_plan_create(graph, region->outputs, (int)count, DYCL_PLAN_COLD, &what.plan);
        if (status == DYCL_OK) {
            status = run(region, &what);
            dycl_plan_release(what.plan);
        }
    }
    dycl_segment_release(segment);
fail:
    return status;
}

static void drop_expected(dycl_region *region) {
    while (region->expected_count) dycl_segment_release(region->expected[--region->expected_count]);
    region->wants_ahead = 0;
}

/* What the runner computed while this segment was recorded. 1; 0: nothing that counts. */
static int take_ahead(dycl_region *region, uint32_t count, dycl_bail why) {
    dycl_segment *segment;
    int taken = dycl_region_ahead_take(region, count, &segment);
    dycl_region_ahead_drop(region);
    if (!taken) return 0;
    advance(region, segment, why);
    segment->sightings++;
    dycl_segment_release(segment);
    region->site->stats.ahead++;
    return 1;
}

static dycl_handle base_handle(const dycl_region *region, uint32_t root) {
    const dycl_value *value = &region->recorder.graph.values[root];
    if (value->kind == DYCL_VALUE_NODE) return region->handles[region->output_of[root] - 1];
    const dycl_source *source = &region->sources[value->source];
    return source->object ? dycl_abi_borrow(source->object) : source->handle;
}

#define GIVEN (UINT32_C(1) << 31) /* in shares: some object has the computed tensor itself */

/* Gives every pending lazy tensor its computed tensor. */
static int bind_results(dycl_region *region, uint32_t count) {
    const dycl_graph *graph = &region->recorder.graph;
    uint32_t *shares = region->outputs; /* how many lazy tensors use each output; the values are no longer needed */
    memset(shares, 0, count * sizeof *shares);
    for (uint32_t i = 0; i < region->written_count; i++) {
        uint32_t output = region->output_of[region->written[i].value];
        if (output) dycl_abi_add_version(dycl_abi_handle_impl(region->handles[output - 1]), region->written[i].version);
    }
    for (PyObject *o = region->first; o; o = dycl_lazy_of(o)->next) {
        const dycl_lazy *lazy = dycl_lazy_of(o);
        if (!is_pending(region, lazy)) continue;
        uint32_t root = graph->values[lazy->value].root;
        if (graph->values[root].kind == DYCL_VALUE_NODE) shares[region->output_of[root] - 1]++;
        else region->output_of[root] = 1; /* a feed: has an alias from now on */
    }
    for (PyObject *o = region->first; o; o = dycl_lazy_of(o)->next) {
        dycl_lazy *lazy = dycl_lazy_of(o);
        if (lazy->epoch != region->epoch) continue;
        const dycl_value *value = &graph->values[lazy->value];
        if (lazy->real) {
            lazy->aliased |= (uint8_t)(region->output_of[value->root] != 0);
            continue;
        }
        dycl_handle base = base_handle(region, value->root);
        int of_node = graph->values[value->root].kind == DYCL_VALUE_NODE;
        int whole = value->root == lazy->value;
        uint32_t *share = of_node ? &shares[region->output_of[value->root] - 1] : NULL;
        lazy->aliased = (uint8_t)(!whole || !of_node || (*share & ~GIVEN) > 1);
        if (whole && (!of_node || *share & GIVEN)) { /* each object has a tensor of its own: t_ or set_ on one does not change the others */
            if (!(lazy->real = dycl_abi_detach(base))) return -1;
        } else if (!whole) {
            lazy->real = dycl_abi_view(base, value->rank, value->sizes, value->strides, dycl_abi_storage_offset(base) + value->offset);
            if (lazy->real && (lazy->own == DYCL_OWN_ALIAS || (lazy->own == DYCL_OWN_COPY && of_node))) {
                dycl_handle view = lazy->real;
                lazy->real = dycl_abi_detach(view);
                dycl_abi_delete(view);
            }
            if (!lazy->real) return -1;
        } else {
            *share |= GIVEN;
            if (!(lazy->real = dycl_abi_copy_handle(base))) {
                PyErr_NoMemory();
                return -1;
            }
        }
    }
    return 0;
}

void dycl_region_expect(dycl_region *region) {
    const dycl_graph *graphs[DYCL_GRAPH_EXPECTED];
    int count = 0;
    for (dycl_segment *s; count < DYCL_GRAPH_EXPECTED && (s = dycl_trace_predict(region->site->trace, region->position, (uint32_t)count)); count++) {
        dycl_segment_retain(s);
        region->expected[count] = s;
        graphs[count] = &s->graph;
    }
    region->expected_count = count;
    region->wants_ahead = region->runs_ahead && count;
    if (dycl_graph_expect(&region->recorder.graph, count, graphs) != DYCL_OK) drop_expected(region); /* no memory: recorded as a new trace */
}

/* The next segment begins; what fed this one is let go last, because that may run Python code. */
void dycl_region_begin_segment(dycl_region *region) {
    dycl_source *sources = region->sources;
    uint32_t count = region->recorder.graph.feed_count, room = region->source_room;
    dycl_region_ahead_drop(region);
    region->sources = NULL;
    region->source_room = 0;
    dycl_recorder_reset(&region->recorder);
    drop_expected(region);
    if (!(region->closed & DYCL_CLOSED_END)) dycl_region_expect(region); /* before Python code may record again, perhaps in another thread */
    region->epoch++;
    region->fed_count = 0;
    region->written_count = 0;
    region->foreign = 0;
    region->look_at = DYCL_SEGMENT_LOOK;
    region->work = 0;
    for (uint32_t i = 0; i < count; i++) {
        Py_XDECREF(sources[i].object);
        dycl_abi_delete(sources[i].handle);
    }
    if (!region->sources) {
        region->sources = sources;
        region->source_room = room;
    } else {
        dycl_free(sources);
    }
}

static void wait_for(dycl_region *region) {
    while (region->flushing) {
        Py_BEGIN_ALLOW_THREADS;
        dycl_py_pause();
        Py_END_ALLOW_THREADS;
    }
}

/* What the program has entered meanwhile (autocast, functorch, a dispatch mode, inference mode), or what another thread is in, must not touch or
 * see the tensors that a flush makes: they belong to the state in which the operators were recorded. */
typedef struct {
    PyObject *mode; /* owned: NULL when the state is the region's own */
    dycl_dispatch_state state;
} foreign_state;

static int enter_own_state(const dycl_region *region, foreign_state *saved) {
    const dycl_dispatch_state *now = dycl_abi_dispatch_state();
    saved->mode = NULL;
    if (now->included == region->dispatch.included && now->excluded == region->dispatch.excluded) return 0;
    int state = dycl_abi_torch_function_off();
    PyObject *entered = NULL;
    saved->mode = PyObject_CallOneArg(dycl_py.inference_mode, dycl_abi_dispatch_inference(&region->dispatch) ? Py_True : Py_False);
    if (saved->mode) entered = PyObject_CallMethod(saved->mode, "__enter__", NULL);
    dycl_abi_torch_function_restore(state);
    if (!entered) {
        Py_CLEAR(saved->mode);
        return -1;
    }
    Py_DECREF(entered);
    saved->state = *dycl_abi_dispatch_state();
    dycl_abi_dispatch_set(&region->dispatch);
    return 0;
}

static int leave_own_state(foreign_state *saved) {
    PyObject *type, *value, *traceback;
    if (!saved->mode) return 0;
    PyErr_Fetch(&type, &value, &traceback);
    dycl_abi_dispatch_set(&saved->state);
    int state = dycl_abi_torch_function_off();
    PyObject *left = PyObject_CallMethod(saved->mode, "__exit__", "OOO", Py_None, Py_None, Py_None);
    dycl_abi_torch_function_restore(state);
    Py_CLEAR(saved->mode);
    if (type) PyErr_Restore(type, value, traceback);
    Py_XDECREF(left);
    return left ? 0 : -1;
}

static int flush(dycl_region *region, dycl_bail why) {
    uint32_t count = 0, pending = 0;
    if (collect_outputs(region, &count, &pending) != DYCL_OK) return -1;
    int result = 0;
    if (pending) {
        int ahead = count && take_ahead(region, count, why);
        if (!ahead && allocate_outputs(region, count) < 0) return -1;
        dycl_status status = count && !ahead ? run_segment(region, count, why) : DYCL_OK;
        if (status != DYCL_OK) {
            PyErr_Format(PyExc_RuntimeError, "dycl could not execute a segment: %s", dycl_error_message());
            result = -1;
        }
        if (result == 0) result = bind_results(region, count);
        for (uint32_t i = 0; i < count; i++) dycl_abi_delete(region->handles[i]);
    }
    return result;
}

int dycl_region_flush(dycl_region *region, dycl_bail why) {
    foreign_state saved;
    wait_for(region); /* another thread needs a value of ours */
    if (region->recorder.graph.value_count == 0) return 0; /* without nodes there may still be a lazy tensor that is a feed (detach) */
    /* torch's functions give the GIL up: until the results are bound, other threads wait, and no finalizer of this one asks for values */
    int collecting = PyGC_Disable();
    region->flushing = 1;
    int result = enter_own_state(region, &saved);
    if (result == 0) {
        result = flush(region, why);
        if (leave_own_state(&saved) < 0) result = -1;
    }
    region->flushing = 0;
    if (collecting) PyGC_Enable();
    if (result == 0) dycl_region_begin_segment(region);
    return result;
}

int dycl_region_compute(PyObject *tensor, dycl_bail why) {
    dycl_lazy *lazy = dycl_lazy_of(tensor);
    if (lazy->real) return 0;
    dycl_region *region = lazy->region;
    if (!region) {
        PyErr_SetString(PyExc_SystemError, "dycl: a lazy tensor outlived its region");
        return -1;
    }
    wait_for(region);
    if (lazy->real) return 0;
    return dycl_region_flush(region, why);
}

static int become_plain(dycl_region *region, PyObject *tensor) {
    foreign_state saved = {NULL, {0, 0}};
    if (!region) return dycl_lazy_become_plain(tensor);
    wait_for(region);
    if (!dycl_is_lazy(tensor)) return 0; /* another thread was first */
    int collecting = PyGC_Disable();
    region->flushing = 1;
    int result = enter_own_state(region, &saved);
    if (result == 0) {
        result = dycl_lazy_become_plain(tensor);
        if (leave_own_state(&saved) < 0) result = -1;
    }
    region->flushing = 0;
    if (collecting) PyGC_Enable();
    return result;
}

int dycl_region_make_plain(PyObject *tensor, dycl_bail why) {
    if (!dycl_is_lazy(tensor)) return 0;
    PyObject *alive = Py_NewRef(tensor);
    int result = dycl_region_compute(tensor, why);
    if (result == 0 && dycl_is_lazy(tensor)) {
        dycl_lazy *lazy = dycl_lazy_of(tensor);
        dycl_region *region = lazy->region;
        if (region) wait_for(region);
        /* pending views of it keep their base as a feed of its own: nothing in this segment points to the object */
        if (region && lazy->epoch == region->epoch && region->recorder.graph.value_count) result = dycl_region_flush(region, why);
        if (result == 0) result = become_plain(region, tensor);
    }
    Py_DECREF(alive);
    return result;
}
