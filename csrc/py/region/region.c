#include "py/region/region.h"

#include <string.h>

#include "base/lock.h"
#include "py/cpython/collect.h"
#include "py/region/ahead.h"
#include "py/memory/constant.h"
#include "py/memory/foreign.h"
#include "py/region/grow.h"
#include "py/region/defer.h"
#include "py/region/replace.h"
#include "py/region/segment.h"
#include "py/region/track.h"
#include "py/site/site.h"
#include "record/work.h"

_Thread_local dycl_region *dycl_region_current __attribute__((tls_model("initial-exec")));

/* ---- Feeds */

static uint32_t slot_of(const dycl_region *region, const PyObject *object) {
    uint64_t h = (uint64_t)(uintptr_t)object * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(h >> 40) & (region->fed_room - 1);
}

static dycl_fed *find_fed(dycl_region *region, PyObject *object) { /* its entry, or the free one where it belongs */
    uint32_t at = slot_of(region, object);
    while (region->fed[at].epoch == region->epoch && region->fed[at].object != object)
        at = (at + 1) & (region->fed_room - 1);
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
    if (dycl_abi_is_inference(impl) &&
        !dycl_abi_dispatch_inference(
            &region->dispatch)) /* there torch's composite operators answer views and versions of their own */
        return dycl_build_bail(r, DYCL_BAIL_mode);
    if (!dycl_abi_read(tensor, &view)) return dycl_build_bail(r, DYCL_BAIL_dtype);
    uint32_t at = r->graph.feed_count;
    DYCL_GROW(region->sources, region->source_room, at + 1);
    DYCL_GROW(region->feeds, region->feed_room, at + 1);
    dycl_status status = dycl_graph_feed(&r->graph, view.dtype, view.rank, view.sizes, view.strides, out_value);
    if (status == DYCL_ERROR) PyErr_NoMemory();
    if (status != DYCL_OK) return status == DYCL_BAIL ? dycl_build_bail(r, DYCL_BAIL_rank) : status;
    region->feeds[at] = (dycl_feed){view.data, 0, 0};
    region->sources[at] = (dycl_source){NULL, NULL};
    return DYCL_OK;
}

/* Where a new feed lies in memory that waits for its value, the segment ends. */
static dycl_status note_fed(dycl_region *region) {
    int waits = dycl_replace_fed(region, region->recorder.graph.feed_count - 1);
    if (waits < 0 || (waits && dycl_region_flush(region, DYCL_BAIL_alias) < 0)) return DYCL_ERROR;
    return waits ? dycl_build_bail(&region->recorder, DYCL_BAIL_alias) : DYCL_OK;
}

dycl_status dycl_region_feed(dycl_region *region, dycl_handle tensor, uint32_t *out_value) {
    dycl_handle copy = dycl_abi_copy_handle(tensor);
    if (!copy) {
        PyErr_NoMemory();
        return DYCL_ERROR;
    }
    dycl_status status = add_feed(region, copy, dycl_abi_handle_impl(copy), out_value);
    if (status != DYCL_OK) {
        dycl_abi_delete(copy);
        return status;
    }
    region->sources[region->recorder.graph.feed_count - 1].handle = copy;
    if (dycl_foreign_is(dycl_abi_handle_impl(copy), NULL))
        region->foreign = 1; /* a view of such memory, or its array came later */
    return dycl_replace_notes(region) ? note_fed(region) : DYCL_OK;
}

/* A segment that begins with gradients disabled tracks none. Where they are enabled later, it ends
 * (dycl_region_enable_gradients). */
static void begin_tracking(dycl_region *region) {
    if (region->may_track && !region->recorder.graph.value_count) region->tracks = dycl_abi_grad_enabled();
}

static dycl_status lazy_value(dycl_region *region, PyObject *tensor, uint32_t *out_value) {
    dycl_lazy *lazy = dycl_lazy_of(tensor);
    if (lazy->deferred && dycl_defer_recall(region) < 0) return DYCL_ERROR;
    if (lazy->epoch == region->epoch) {
        *out_value = lazy->value;
        return DYCL_OK;
    }
    begin_tracking(region);
    dycl_status status = dycl_region_feed(region, lazy->real, out_value);
    if (status != DYCL_OK) return status;
    lazy->value = *out_value;
    lazy->epoch = region->epoch;
    return DYCL_OK;
}

static int needs_gradient(PyObject *object) {
    PyObject *flag = dycl_py_requires_grad(object);
    int required = flag ? flag == Py_True : -1;
    Py_XDECREF(flag);
    return required;
}

/* HISTORY: what needs a gradient is not recorded. */
static dycl_status object_value(dycl_region *region, PyObject *tensor, int history, uint32_t *out_value) {
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
    begin_tracking(region);
    if (history && !region->tracks && dycl_abi_has_autograd_meta(impl) && dycl_abi_grad_enabled()) {
        int required = needs_gradient(tensor);
        if (required < 0) return DYCL_ERROR;
        if (required) {
            region->gradient = 1;
            return dycl_build_bail(&region->recorder, DYCL_BAIL_grad);
        }
    }
    dycl_status status = add_feed(region, dycl_abi_borrow(tensor), impl, out_value);
    if (status != DYCL_OK) return status;
    uint32_t at = region->recorder.graph.feed_count - 1;
    region->sources[at].object = Py_NewRef(tensor);
    if (dycl_foreign_is(impl, tensor))
        region->foreign = 1;
    else if (Py_TYPE(tensor) == dycl_py.parameter_type && !region->replaces && !region->tracks)
        region->feeds[at].token = dycl_constant_token(tensor, &region->feeds[at].version);
    *fed = (dycl_fed){tensor, region->epoch, *out_value};
    region->fed_count++;
    return dycl_replace_notes(region) ? note_fed(region) : DYCL_OK;
}

int dycl_region_fed(dycl_region *region, PyObject *tensor, uint32_t *out_value) {
    if (!region->fed_room) return 0;
    const dycl_fed *fed = find_fed(region, tensor);
    if (fed->epoch != region->epoch) return 0;
    *out_value = fed->value;
    return 1;
}

void dycl_region_refeed(dycl_region *region, PyObject *tensor, uint32_t value) {
    find_fed(region, tensor)->value = value;
}

dycl_status dycl_region_feed_object(dycl_region *region, PyObject *tensor, uint32_t *out_value) {
    return object_value(region, tensor, 0, out_value);
}

int dycl_region_reads(const dycl_region *region, PyObject *tensor) {
    uint32_t count = region->recorder.graph.feed_count;
    uint64_t storage = count ? dycl_abi_storage(dycl_abi_impl(tensor)) : 0;
    if (dycl_replace_notes(region)) return count && dycl_replace_reads(region, storage);
    for (uint32_t i = 0; i < count; i++) {
        if (dycl_abi_storage(dycl_abi_handle_impl(dycl_source_handle(&region->sources[i]))) == storage) return 1;
    }
    return 0;
}

dycl_status dycl_region_value_slow(dycl_region *region, PyObject *tensor, uint32_t *out_value) {
    dycl_recorder *r = &region->recorder;
    PyTypeObject *type = Py_TYPE(tensor);
    if (type == dycl_py.lazy_type) {
        if (dycl_lazy_of(tensor)->region == region) return lazy_value(region, tensor, out_value);
        if (dycl_region_make_plain(tensor, DYCL_BAIL_thread) < 0) return DYCL_ERROR;
        return dycl_build_bail(
            r, DYCL_BAIL_thread); /* meanwhile others may have ended our segment, and operands are values of it */
    }
    if (type != dycl_py.tensor_type && type != dycl_py.parameter_type && type != dycl_py.buffer_type)
        return dycl_build_bail(r, DYCL_BAIL_subclass);
    return object_value(region, tensor, 1, out_value);
}

/* ---- Results */

PyObject *dycl_region_result(dycl_region *region, uint32_t value) {
    region->site->stats.recorded++;
    if (region->tracks) dycl_track_extend(region);
    if (__builtin_expect(region->wants_ahead, 0)) dycl_region_ahead_step(region);
    return dycl_lazy_new(region, value);
}

int dycl_region_settle_now(dycl_region *region) {
    uint32_t nodes = region->recorder.graph.node_count;
    if (!region->foreign && nodes < DYCL_SEGMENT_NODES) {
        if (!dycl_graph_expected(&region->recorder.graph)) /* else it is as long as it was when it was new */
            region->work += dycl_work_of(&region->recorder.graph, region->look_at - DYCL_SEGMENT_LOOK, nodes);
        region->look_at = nodes + DYCL_SEGMENT_LOOK;
        if (region->work < DYCL_SEGMENT_WORK) return 0;
    }
    return dycl_region_flush(region, region->foreign ? DYCL_BAIL_foreign : DYCL_BAIL_limit);
}

/* ---- Flush */

/* The program forked while another thread computed the segment: in the child nobody goes on with it, and it is half
 * done. What waits for it raises where its value is asked for. */
static void lose_what_waits(dycl_region *region) {
    PyObject *error = Py_BuildValue("(O(s))", PyExc_RuntimeError,
                                    "dycl: the thread that computed this tensor was left behind by a fork");
    PyErr_Clear();
    for (PyObject *o = region->first, *next; o; o = next) {
        next = dycl_lazy_of(o)->next;
        if (!dycl_lazy_of(o)->real) dycl_lazy_lose(o, error);
    }
    Py_XDECREF(error);
}

void dycl_region_pause(void) {
    int sections = dycl_collect_suspend();
    Py_BEGIN_ALLOW_THREADS;
    dycl_py_pause();
    Py_END_ALLOW_THREADS;
    dycl_collect_resume(sections);
}

/* Until no other thread computes its segment. 1: this one does, further up its stack; what torch calls meanwhile (a
 * replay runs Python code) finds nothing that waits. The same where a fork left the other thread behind. */
static int wait_for(dycl_region *region) {
    while (region->flushing) {
        if (region->flushing == PyThread_get_thread_ident()) return 1;
        if (region->flushing_in != dycl_lock_process()) {
            lose_what_waits(region);
            return 1;
        }
        dycl_region_pause();
    }
    return 0;
}

static void begin_flushing(dycl_region *region) {
    region->flushing = PyThread_get_thread_ident();
    region->flushing_in = dycl_lock_process();
}

/* What the program has entered meanwhile (autocast, functorch, a dispatch mode, inference mode), or what another thread
 * is in, must not touch or see the tensors that a flush makes: they belong to the state in which the operators were
 * recorded. */
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
    saved->mode = PyObject_CallOneArg(dycl_py.inference_mode,
                                      dycl_abi_dispatch_inference(&region->dispatch) ? Py_True : Py_False);
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

/* What was recorded: at least one value; without nodes there may still be a lazy tensor that is a feed (detach). */
static int flush(dycl_region *region, dycl_bail why, uint32_t wanted) {
    foreign_state saved;
    /* torch's functions give the GIL up: until the results are bound, other threads wait, and no finalizer of this one
     * asks for values */
    dycl_collect_hold();
    begin_flushing(region);
    int result = enter_own_state(region, &saved);
    if (result == 0) {
        region->elsewhere = saved.mode != NULL;
        result = dycl_region_run_segment(region, why, wanted);
        if (leave_own_state(&saved) < 0) result = -1;
    }
    region->flushing = 0;
    dycl_collect_release();
    if (result == 0) dycl_region_begin_segment(region);
    return result == 0 ? dycl_region_meet_failure(region) : -1;
}

/* What a flush lets go of may record again, or write to what was computed: so often it is looked at once more. */
#define ROUNDS 64

int dycl_region_flush(dycl_region *region, dycl_bail why) {
    for (int round = 0; round < ROUNDS; round++) {
        if (wait_for(region)) return 0;
        if (region->deferred && dycl_defer_recall(region) < 0) return -1;
        if (!region->recorder.graph.value_count) return dycl_region_meet_failure(region);
        if (flush(region, why, DYCL_NONE) < 0) return -1;
    }
    return 0;
}

void dycl_region_let_go(dycl_region *region, PyObject *object, dycl_handle handle) {
    if (!object && !handle) return;
    if (region->late_count == region->late_room) {
        void *more = dycl_grown(region->late, &region->late_room, region->late_count + 1, sizeof *region->late);
        if (!more) { /* then at once */
            PyErr_Clear();
            Py_XDECREF(object);
            dycl_abi_delete(handle);
            return;
        }
        region->late = more;
    }
    region->late[region->late_count++] = (dycl_source){object, handle};
}

/* One step on the way to a value. 0 or -1. */
static int compute_once(const dycl_lazy *lazy, dycl_bail why, int may_defer) {
    dycl_region *region = lazy->region;
    if (!region) return dycl_lazy_raise(lazy);
    int ours = wait_for(region);
    if (lazy->real || lazy->region != region) return 0; /* another thread was first */
    if (ours) {
        PyErr_SetString(PyExc_SystemError, "dycl: a value is asked for while it is computed");
        return -1;
    }
    if (!may_defer || lazy->epoch != region->epoch || region->deferred >= DYCL_DEFER_MOST)
        return dycl_region_flush(region, why);
    return flush(region, why, region->recorder.graph.values[lazy->value].root);
}

static int compute(PyObject *tensor, dycl_bail why, int may_defer) {
    const dycl_lazy *lazy = dycl_lazy_of(tensor);
    if (lazy->real) return 0;
    int result = 0;
    Py_INCREF(tensor);
    for (int round = 0; result == 0 && dycl_is_lazy(tensor) && !lazy->real; round++) {
        if (round < ROUNDS) {
            result = compute_once(lazy, why, may_defer);
        } else {
            PyErr_SetString(PyExc_SystemError, "dycl: a value is written whenever it is computed");
            result = -1;
        }
    }
    Py_DECREF(tensor);
    return result;
}

int dycl_region_compute(PyObject *tensor, dycl_bail why) { return compute(tensor, why, 0); }
int dycl_region_fetch(PyObject *tensor, dycl_bail why) { return compute(tensor, why, 1); }

static int become_plain(dycl_region *region, PyObject *tensor) {
    foreign_state saved = {NULL, {0, 0}};
    if (!region) return dycl_lazy_become_plain(tensor);
    int nested = wait_for(region);
    if (!dycl_is_lazy(tensor)) return 0; /* another thread was first */
    dycl_collect_hold();
    begin_flushing(region);
    int result = enter_own_state(region, &saved);
    if (result == 0) {
        result = dycl_lazy_become_plain(tensor);
        if (leave_own_state(&saved) < 0) result = -1;
    }
    if (!nested) region->flushing = 0;
    dycl_collect_release();
    return result;
}

int dycl_region_needs_gradient(PyObject *tensor) {
    if (!dycl_is_lazy(tensor)) return dycl_abi_has_autograd_meta(dycl_abi_impl(tensor)) ? needs_gradient(tensor) : 0;
    const dycl_lazy *lazy = dycl_lazy_of(tensor);
    const dycl_region *region = lazy->region;
    dycl_handle base = lazy->real;
    if (!base) {
        if (!region || lazy->deferred || lazy->epoch != region->epoch)
            return 0; /* what is deferred is no view of a feed */
        if (region->tracks) return dycl_track_has(region, lazy->value);
        const dycl_graph *graph = &region->recorder.graph;
        const dycl_value *root = &graph->values[graph->values[lazy->value].root];
        if (root->kind == DYCL_VALUE_NODE) return 0;
        base = dycl_source_handle(&region->sources[root->source]);
    }
    if (!base || !dycl_abi_has_autograd_meta(dycl_abi_handle_impl(base))) return 0;
    PyObject *object = dycl_abi_wrap(base);
    int required = object ? needs_gradient(object) : -1;
    Py_XDECREF(object);
    return required;
}

int dycl_region_enable_gradients(dycl_region *region) {
    if (region->tracks) return 0; /* each value knows */
    int result = dycl_region_flush(region, DYCL_BAIL_grad);
    if (!region->may_track) region->may_track = dycl_track_suits(region->site) && !dycl_track_is_watched();
    if (region->may_track) region->wants_ahead = 0;
    region->tracks = region->may_track;
    for (PyObject *o = Py_XNewRef(region->first), *next; o;
         o = next) { /* torch may let others run, which let go of lazy tensors */
        int tracked = result == 0 && dycl_is_lazy(o) && dycl_lazy_of(o)->real ? dycl_region_needs_gradient(o) : 0;
        int stays = dycl_is_lazy(o) && dycl_lazy_of(o)->region == region; /* else its place is not known any more */
        next = Py_XNewRef(stays ? dycl_lazy_of(o)->next : region->first);
        if (tracked < 0 || (tracked && dycl_region_make_plain(o, DYCL_BAIL_grad) < 0)) result = -1;
        Py_DECREF(o);
    }
    return result;
}

int dycl_region_make_plain(PyObject *tensor, dycl_bail why) {
    if (!dycl_is_lazy(tensor)) return 0;
    PyObject *alive = Py_NewRef(tensor);
    const dycl_lazy *lazy = dycl_lazy_of(tensor);
    int result = 0;
    for (int round = 0; result == 0 && dycl_is_lazy(tensor); round++) {
        dycl_region *region = lazy->region;
        if (!lazy->real) {
            result = dycl_region_compute(tensor, why);
            continue;
        }
        int ours = region && wait_for(region);
        if (!dycl_is_lazy(tensor) || !lazy->real || lazy->region != region) continue;
        /* pending views of it keep their base as a feed of its own: nothing in this segment points to the object */
        int pending = region && !ours && lazy->epoch == region->epoch && region->recorder.graph.value_count;
        result = pending && round < ROUNDS ? dycl_region_flush(region, why) : become_plain(region, tensor);
    }
    Py_DECREF(alive);
    return result;
}
