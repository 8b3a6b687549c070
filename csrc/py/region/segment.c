#include "py/region/segment.h"

#include <string.h>

#include "check/zone.h"
#include "py/cpython/collect.h"
#include "py/region/ahead.h"
#include "py/region/alias.h"
#include "py/region/called.h"
#include "py/region/grow.h"
#include "py/region/defer.h"
#include "py/region/laid.h"
#include "py/region/replace.h"
#include "py/region/replay.h"
#include "py/region/track_flush.h"
#include "py/site/site.h"

static int is_pending(const dycl_region *region, const dycl_lazy *lazy) {
    return lazy->epoch == region->epoch && !lazy->real;
}

dycl_status dycl_segment_grow_outputs(dycl_region *region, uint32_t wanted) {
    if (wanted <= region->output_room) return DYCL_OK;
    uint32_t room = 2 * wanted;
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
    return DYCL_OK;
}

static dycl_status collect_outputs(dycl_region *region, uint32_t *out_count, uint32_t *out_pending) {
    const dycl_graph *graph = &region->recorder.graph;
    uint32_t count = 0, pending = 0;
    DYCL_GROW(region->output_of, region->output_of_room, graph->value_count);
    memset(region->output_of, 0, graph->value_count * sizeof *region->output_of);
    if (dycl_segment_grow_outputs(region, region->living + region->replaced_count) != DYCL_OK) return DYCL_ERROR;
    if (region->replaced_count) {
        DYCL_GROW(region->replaced_feeds, region->replaced_feed_room, region->replaced_count);
        dycl_replace_collect(region);
    }
    count = pending = region->replaced_count;
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

int dycl_segment_allocate(const dycl_graph *graph, const uint32_t *outputs, uint32_t count, dycl_handle *handles,
                          void **addresses) {
    for (uint32_t i = 0; i < count; i++) {
        const dycl_value *value = &graph->values[outputs[i]];
        dycl_tensor_view view;
        handles[i] = dycl_abi_empty((dycl_dtype)value->dtype, value->rank, value->sizes, value->strides);
        if (!handles[i] || !dycl_abi_read(handles[i], &view)) {
            for (uint32_t k = 0; k <= i; k++) dycl_abi_delete(handles[k]);
            return 0;
        }
        addresses[i] = view.data;
    }
    return 1;
}

typedef struct {
    dycl_plan *plan; /* or */
    dycl_pieces *pieces;
} prepared;

#define SHORT_NS 20000.0 /* giving the GIL up and taking it back costs more than others could gain */

static dycl_status run(const dycl_region *region, const prepared *what) {
    dycl_status status;
    double cost = what->plan ? dycl_plan_cost(what->plan) : dycl_pieces_cost(what->pieces);
    if (cost >= DYCL_AHEAD_LEAST_NS) region->site->worth_ahead = 1;
    dycl_plan_retain(what->plan);
    int in_place = dycl_replace_in_place(region, what->plan);
    if (cost < SHORT_NS) {
        status = dycl_replace_run(region, what->plan, what->pieces, in_place);
    } else {
        int sections = dycl_collect_suspend(); /* a finalizer in another thread waits for the results */
        Py_BEGIN_ALLOW_THREADS;
        status = dycl_replace_run(region, what->plan, what->pieces, in_place);
        Py_END_ALLOW_THREADS;
        dycl_collect_resume(sections);
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

/* What never comes back is of no use as a prediction: its segments left the cache long ago. */
#define MOST_ADRIFT ((size_t)4 << 20)
#define FEW         16 /* vertices */

/* The TraceGraph's next position. */
static void advance(dycl_region *region, dycl_segment *segment, dycl_bail why) {
    dycl_site *site = region->site;
    int is_new;
    if (dycl_plan_cache_adrift() > MOST_ADRIFT && site->trace->count > FEW && !dycl_trace_knows(site->trace, segment)) {
        dycl_trace_forget(site->trace);
        region->position = 0;
    }
    region->position = dycl_trace_advance(site->trace, region->position, segment, (int)why, &is_new);
    if (is_new && why != DYCL_BAIL_region_end) note_where(site->trace, region->position);
    if (region->position != UINT32_MAX) site->trace->vertices[region->position].last = site->stats.calls;
    site->stats.segments++;
    site->stats.flushes[why]++;
}

/* *out_segment: retained. */
static dycl_status run_segment(dycl_region *region, uint32_t count, dycl_bail why, dycl_segment **out_segment) {
    const dycl_graph *graph = &region->recorder.graph;
    dycl_segment *segment = NULL;
    prepared what = {NULL, NULL};
    dycl_status status = DYCL_OK;
    for (int nth = 0; nth < region->expected_count && !segment; nth++)
        if (dycl_segment_matches(region->expected[nth], graph, region->outputs, (int)count))
            segment = region->expected[nth];
    if (!segment) DYCL_TRY(dycl_plan_lookup(dycl_site_cache(), graph, region->outputs, (int)count, &segment));
    dycl_segment_retain(*out_segment = segment);
    advance(region, segment, why);
    int planned = segment->plan || segment->pieces, tuned = segment->tuned;
    int others = region->replaced_count ? 0 : region->expected_count; /* pieces write outputs that others read */
    status = dycl_segment_prepare(dycl_site_cache(), segment, others, region->expected, &what.plan, &what.pieces);
    region->made |= (uint8_t)(!planned ? DYCL_MADE_COLD : tuned != segment->tuned ? DYCL_MADE_TUNED : 0);
    if (status == DYCL_OK) status = run(region, &what);
    if (status == DYCL_BUSY) { /* another thread runs it: a private plan */
        what.pieces = NULL;
        status = dycl_plan_create(graph, region->outputs, (int)count, DYCL_PLAN_COLD, &what.plan);
        if (status == DYCL_OK) {
            status = run(region, &what);
            dycl_plan_release(what.plan);
        }
    }
fail:
    return status;
}

static void drop_expected(dycl_region *region) {
    while (region->expected_count) dycl_segment_release(region->expected[--region->expected_count]);
    region->wants_ahead = 0;
}

/* What the runner computed while this segment was recorded. 1; 0: nothing that counts. */
static int take_ahead(dycl_region *region, uint32_t count, dycl_bail why, dycl_segment **out_segment) {
    int taken = dycl_region_ahead_take(region, count, out_segment);
    dycl_region_ahead_drop(region);
    if (!taken) return 0;
    advance(region, *out_segment, why);
    dycl_plan_use(dycl_site_cache(), *out_segment);
    (*out_segment)->sightings++;
    region->site->stats.ahead++;
    return 1;
}

dycl_handle dycl_segment_base(const dycl_region *region, uint32_t root) {
    const dycl_value *value = &region->recorder.graph.values[root];
    if (value->kind == DYCL_VALUE_NODE) return region->handles[region->output_of[root] - 1];
    return dycl_source_handle(&region->sources[value->source]);
}

#define GIVEN (UINT32_C(1) << 31) /* in shares: some object has the computed tensor itself */

/* The replay computed it with the history that it has there. Borrowed; NULL: not this one. */
static dycl_handle replayed_view(const dycl_region *region, const dycl_lazy *lazy, uint32_t *shares) {
    uint32_t output = region->output_of[lazy->value];
    if (region->recorder.graph.values[lazy->value].root == lazy->value || !output || shares[output - 1]) return NULL;
    shares[output - 1] = GIVEN;
    return region->handles[output - 1];
}

/* A view without a history. Of what has one it is a view of an alias (detach), which nobody else has. */
static dycl_handle bind_part(dycl_region *region, const dycl_lazy *lazy, const dycl_value *value, dycl_handle base,
                             int of_node) {
    int64_t offset = dycl_abi_storage_offset(base) + value->offset;
    int alone = lazy->own == DYCL_OWN_ALIAS || (lazy->own == DYCL_OWN_COPY && of_node);
    dycl_handle alias = NULL, made;
    if (!alone && lazy->alias)
        base = dycl_alias_tensor(region, lazy, base);
    else if (!alone && dycl_track_has(region, value->root))
        base = alias = dycl_abi_detach(base);
    if (PyErr_Occurred()) return NULL;
    if (alone)
        made = dycl_abi_view(base, value->rank, value->sizes, value->strides, offset);
    else
        made = dycl_abi_view_as_made(base, value->rank, value->sizes, value->strides, offset,
                                     lazy->made & DYCL_VIEW_UNRECORDED, lazy->made & DYCL_VIEW_PART);
    dycl_abi_delete(alias);
    if (!alone || !made) return made;
    dycl_handle result = dycl_abi_detach(made);
    dycl_abi_delete(made);
    return result;
}

/* Gives one pending lazy tensor its computed tensor. shares: per output, how many use it. 0 or -1. */
static int bind_result(dycl_region *region, dycl_lazy *lazy, uint32_t *shares, dycl_tracked_flush *tracked) {
    const dycl_graph *graph = &region->recorder.graph;
    const dycl_value *value = &graph->values[lazy->value];
    dycl_handle base = dycl_segment_base(region, value->root), real;
    int of_node = graph->values[value->root].kind == DYCL_VALUE_NODE;
    int whole = value->root == lazy->value;
    uint32_t *share = of_node ? &shares[region->output_of[value->root] - 1] : NULL;
    lazy->aliased = (uint8_t)(!whole || !of_node || (*share & ~GIVEN) > 1);
    if (dycl_track_has(region, lazy->value)) {
        dycl_handle made = tracked ? dycl_track_made(region, tracked, lazy) : replayed_view(region, lazy, shares);
        if (!made && PyErr_Occurred()) return -1;
        int a_view = tracked && lazy->own == DYCL_OWN_VIEW; /* in a replay others come from the result itself */
        int own = whole && of_node && !made && !(*share & GIVEN) && !a_view;
        if (own) *share |= GIVEN;
        real = own || made ? dycl_abi_copy_handle(made ? made : base) : dycl_called_view_or_strided(region, lazy, base);
        if (!real && !PyErr_Occurred()) PyErr_NoMemory();
    } else if (whole &&
               (!of_node ||
                *share &
                    GIVEN)) { /* each object has a tensor of its own: t_ or set_ on one does not change the others */
        real = dycl_abi_detach(base);
    } else if (!whole) {
        real = bind_part(region, lazy, value, base, of_node);
    } else {
        *share |= GIVEN;
        if (lazy->own == DYCL_OWN_VIEW)
            real = dycl_abi_view(base, value->rank, value->sizes, value->strides, dycl_abi_storage_offset(base));
        else if (!(real = dycl_abi_copy_handle(base)))
            PyErr_NoMemory();
    }
    lazy->real = real;
    dycl_alias_bound(region, lazy);
    return real ? 0 : -1;
}

/* What operators in place made counts them. To be called once, before anything remembers a version. A replay with a
 * history has done so. */
static void count_writes(const dycl_region *region) {
    for (uint32_t i = 0; i < region->written_count; i++) {
        uint32_t output = region->output_of[region->written[i].value];
        if (output) dycl_abi_add_version(dycl_abi_handle_impl(region->handles[output - 1]), region->written[i].version);
    }
}

/* Gives every pending lazy tensor its computed tensor. torch's view functions let other threads run, and these may let
 * go of lazy tensors: the one that is bound, and the next one in the list, are held meanwhile. */
static int bind_results(dycl_region *region, uint32_t count, const dycl_deferral *later, dycl_tracked_flush *tracked) {
    const dycl_graph *graph = &region->recorder.graph;
    uint32_t *shares = region->outputs; /* the values are no longer needed */
    int result = 0;
    memset(shares, 0, count * sizeof *shares);
    for (uint32_t i = 0; i < region->replaced_count; i++) shares[i] = GIVEN | 1; /* to the tensor that it replaces */
    for (PyObject *o = region->first; o; o = dycl_lazy_of(o)->next) {
        const dycl_lazy *lazy = dycl_lazy_of(o);
        if (!is_pending(region, lazy)) continue;
        uint32_t root = graph->values[lazy->value].root;
        if (dycl_defers(later, root)) continue;
        if (graph->values[root].kind == DYCL_VALUE_NODE)
            shares[region->output_of[root] - 1]++;
        else
            region->output_of[root] = 1; /* a feed: has an alias from now on */
    }
    for (PyObject *o = Py_XNewRef(region->first), *next; o && result == 0; o = next) {
        dycl_lazy *lazy = dycl_lazy_of(o);
        if (is_pending(region, lazy) && !dycl_defers(later, graph->values[lazy->value].root))
            result = bind_result(region, lazy, shares, tracked);
        else if (lazy->epoch == region->epoch)
            lazy->aliased |= (uint8_t)(region->output_of[graph->values[lazy->value].root] != 0);
        next = result == 0 ? Py_XNewRef(lazy->next) : NULL;
        if (Py_REFCNT(o) == 1)
            dycl_region_let_go(region, o, NULL); /* the program has let go of it meanwhile */
        else
            Py_DECREF(o);
    }
    dycl_called_bound(region);
    return result;
}

void dycl_region_expect(dycl_region *region) {
    const dycl_graph *graphs[DYCL_GRAPH_EXPECTED];
    int count = 0;
    for (dycl_segment *s; count < DYCL_GRAPH_EXPECTED &&
                          (s = dycl_trace_predict(region->site->trace, region->position, (uint32_t)count));
         count++) {
        dycl_segment_retain(s);
        region->expected[count] = s;
        graphs[count] = &s->graph;
    }
    region->expected_count = count;
    region->wants_ahead = region->runs_ahead && count && !region->may_track;
    if (dycl_graph_expect(&region->recorder.graph, count, graphs) != DYCL_OK)
        drop_expected(region); /* no memory: recorded as a new trace */
}

static void release(const dycl_source *sources, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        Py_XDECREF(sources[i].object);
        dycl_abi_delete(sources[i].handle);
    }
}

/* The next segment begins; what fed this one is let go last, because that may run Python code. */
void dycl_region_begin_segment(dycl_region *region) {
    dycl_source *sources = region->sources;
    uint32_t count = region->recorder.graph.feed_count, room = region->source_room;
    dycl_source *late = region->late;
    uint32_t late_count = region->late_count;
    struct dycl_called_log *called = dycl_called_take(region);
    dycl_region_ahead_drop(region);
    region->sources = region->late = NULL;
    region->source_room = region->late_room = region->late_count = 0;
    dycl_recorder_reset(&region->recorder);
    drop_expected(region);
    if (!(region->closed & DYCL_CLOSED_END))
        dycl_region_expect(region); /* before Python code may record again, perhaps in another thread */
    region->epoch++;
    region->fed_count = 0;
    region->written_count = region->replaced_count = region->tracked_count = 0;
    dycl_alias_forget(region);
    region->foreign = region->unseen = 0;
    region->look_at = DYCL_SEGMENT_LOOK;
    region->work = 0;
    release(sources, count);
    release(late, late_count);
    dycl_free(late);
    if (!region->sources) {
        region->sources = sources;
        region->source_room = room;
    } else {
        dycl_free(sources);
    }
    dycl_called_free(called);
}

/* By a plan, into fresh tensors. Without success there are no handles. */
static dycl_status run_native(dycl_region *region, uint32_t count, dycl_bail why, dycl_segment **out_segment) {
    if (dycl_replay_always) return DYCL_BAIL;
    uint32_t placed = region->replaced_count; /* the first outputs have their places */
    int bound = dycl_replace_bind(region) == 0;
    if (!bound || !dycl_segment_allocate(&region->recorder.graph, region->outputs + placed, count - placed,
                                         region->handles + placed, region->addresses + placed)) {
        for (uint32_t i = 0; i < placed && bound; i++) dycl_abi_delete(region->handles[i]);
        PyErr_Clear();
        return dycl_error_set("torch has no memory for the results");
    }
    dycl_status status = run_segment(region, count, why, out_segment);
    for (uint32_t i = 0; i < count && status != DYCL_OK; i++) dycl_abi_delete(region->handles[i]);
    return status;
}

/* Node by node in torch, whose results and errors are the program's. Nothing is deferred then. 0 or -1. */
static int replay(dycl_region *region, dycl_deferral *later, uint32_t *count) {
    uint32_t pending;
    dycl_site_replayed(region->site, dycl_replay_always ? "it was asked for" : dycl_error_message());
    if (later->count && collect_outputs(region, count, &pending) != DYCL_OK) return -1;
    later->count = 0;
    uint32_t shown = 0;
    if (dycl_replay_run(region, count, &shown, 0) < 0) return -1;
    return dycl_replace_replayed(region);
}

/* Under checks an error of a plan is what they are for. */
static int found_wrong(void) {
    const char *message = dycl_error_message();
    if (!dycl_check_enabled() || dycl_replay_always || strncmp(message, DYCL_CHECK_PREFIX, strlen(DYCL_CHECK_PREFIX)))
        return 0;
    PyErr_Format(PyExc_SystemError, "dycl: %s", message);
    return 1;
}

/* The same where results have a history: a plan and nodes of autograd's graph, or a replay that torch differentiates.
 */
static int run_tracked(dycl_region *region, uint32_t count, dycl_bail why) {
    const dycl_deferral later = {.count = 0};
    dycl_segment *segment = NULL;
    dycl_tracked_flush *flush = NULL;
    uint32_t total = count;
    int result = 0;
    dycl_status status = dycl_track_prepare(region, &total, &flush);
    if (status == DYCL_OK) {
        status = run_native(region, total, why, &segment);
        if (status != DYCL_OK && found_wrong()) result = -1;
        if (status != DYCL_OK && result == 0 && PyErr_Occurred()) PyErr_Clear();
        if (status != DYCL_OK) status = DYCL_BAIL;
    } else if (status == DYCL_ERROR) {
        result = -1;
    }
    if (status == DYCL_OK) {
        count_writes(region);
        region->tracked_flush = flush;
        result = dycl_track_finish(region, flush, segment);
    } else if (result == 0) {
        dycl_laid_forget(region, count, total);
        uint32_t shown = total = count;
        dycl_track_free(region, flush);
        flush = NULL;
        dycl_site_replayed(region->site, dycl_replay_always ? "it was asked for" : dycl_error_message());
        status = dycl_track_add_views(region, &total, &shown);
        if (status == DYCL_OK && dycl_replay_run(region, &total, &shown, 1) < 0) status = DYCL_ERROR;
        if (status == DYCL_OK) result = dycl_replace_replayed(region);
        if (status == DYCL_OK && result == 0)
            result = dycl_called_show(region, region->outputs, region->handles, shown);
        if (status != DYCL_OK) result = -1;
    }
    if (result == 0) result = bind_results(region, total, &later, flush);
    region->tracked_flush = NULL;
    if (result == 0 && flush) dycl_track_share_saved(region, flush);
    for (uint32_t i = 0; i < total && status == DYCL_OK; i++) dycl_abi_delete(region->handles[i]);
    dycl_segment_release(segment);
    dycl_track_free(region, flush);
    return result;
}

int dycl_region_run_segment(dycl_region *region, dycl_bail why, uint32_t wanted) {
    uint32_t count = 0, pending = 0;
    dycl_deferral later = {.count = 0};
    dycl_segment *segment = NULL;
    if (dycl_track_all(region) < 0 || collect_outputs(region, &count, &pending) != DYCL_OK) return -1;
    if (pending && dycl_track_needed(region, count)) return run_tracked(region, count, why);
    int result = 0;
    if (pending) {
        if (wanted != DYCL_NONE && count && !region->replaced_count) dycl_defer_look(region, wanted, &count, &later);
        int computed =
            !count || take_ahead(region, count, why, &segment) || run_native(region, count, why, &segment) == DYCL_OK;
        if (!computed && (found_wrong() || replay(region, &later, &count) < 0)) {
            dycl_segment_release(segment);
            return -1;
        }
        if (later.count) result = dycl_defer_keep(region, &later, segment);
        count_writes(region);
        if (result == 0) result = bind_results(region, count, &later, NULL);
        for (uint32_t i = 0; i < count; i++) dycl_abi_delete(region->handles[i]);
        dycl_segment_release(segment);
    }
    return result;
}
