#include "py/region/life.h"

#include "base/alloc.h"
#include "base/lock.h"
#include "py/cpython/error.h"
#include "py/region/replay.h"
#include "py/region/segment.h"

static dycl_region *free_regions, *taken;

dycl_region *dycl_region_take(void) {
    dycl_region *region = free_regions;
    if (region) {
        free_regions = region->next;
    } else {
        region = dycl_alloc_zero(sizeof *region);
        if (!region) {
            PyErr_NoMemory();
            return NULL;
        }
        dycl_recorder_init(&region->recorder);
        region->epoch = 1;
        region->look_at = DYCL_SEGMENT_LOOK;
    }
    region->next = taken;
    taken = region;
    return region;
}

void dycl_region_give(dycl_region *region) {
    dycl_region **at = &taken;
    while (*at != region) at = &(*at)->next;
    *at = region->next;
    region->site = NULL;
    region->next = free_regions;
    free_regions = region;
}

void dycl_regions_trim(void) {
    for (dycl_region *region; (region = free_regions);) {
        free_regions = region->next;
        dycl_recorder_free(&region->recorder);
        dycl_free(region->sources);
        dycl_free(region->late);
        dycl_free(region->feeds);
        dycl_free(region->outputs);
        dycl_free(region->output_of);
        dycl_free(region->handles);
        dycl_free(region->addresses);
        dycl_free(region->fed);
        dycl_free(region->written);
        dycl_free(region->replaced);
        dycl_free(region->replaced_feeds);
        dycl_free(region->storages);
        dycl_free(region->tracked);
        dycl_free(region->leaves);
        dycl_free(region->aliases);
        dycl_free(region);
    }
}

int dycl_region_push_mode(void) {
    PyObject *done = PyObject_CallOneArg(dycl_py.push_mode, dycl_py.mode);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

int dycl_region_pop_mode(void) {
    PyObject *mode = dycl_abi_mode_depth() > 0 ? PyObject_CallNoArgs(dycl_py.pop_mode) : Py_NewRef(dycl_py.mode);
    int result = mode ? 0 : -1;
    if (mode && mode != dycl_py.mode) {
        result = dycl_region_pop_mode();
        PyObject *done = PyObject_CallOneArg(dycl_py.push_mode, mode);
        if (!done) result = -1;
        Py_XDECREF(done);
    }
    Py_XDECREF(mode);
    return result;
}

int dycl_region_make_all_plain(dycl_region *region, dycl_bail why) {
    int result = dycl_region_flush(region, why);
    while (region->first && result == 0) {
        PyObject *o = Py_NewRef(region->first);
        result = dycl_region_make_plain(o, why);
        if (result == 0 && region->first == o) { /* better an error than no end */
            PyErr_SetString(PyExc_SystemError, "dycl: a plain tensor is in a region's list");
            result = -1;
        }
        Py_DECREF(o);
    }
    return result;
}

/* ---- Memory that goes away */

/* Threads that compute on tensors' memory without the GIL and in no region, and those that wait for them to end. Of
 * this process: a child has none of them. */
static struct { int in_process, reading, waiting; } readers;

static void meet_process(void) {
    if (readers.in_process != dycl_lock_process()) readers.reading = readers.waiting = 0;
    readers.in_process = dycl_lock_process();
}

void dycl_readers_add(int count) {
    meet_process();
    readers.reading += count;
}

static int any_readers(void) {
    meet_process();
    return readers.reading;
}

static void wait_for_readers(void) {
    if (!any_readers()) return;
    readers.waiting++;
    while (any_readers()) dycl_region_pause();
    if (readers.waiting) readers.waiting--; /* none in a child */
}

void dycl_readers_yield(void) {
    meet_process();
    while (__builtin_expect(readers.waiting, 0)) {
        dycl_region_pause();
        meet_process();
    }
}

static int computes(void) { /* this thread does; whom it waited for might wait for it */
    unsigned long me = PyThread_get_thread_ident();
    for (const dycl_region *r = taken; r; r = r->next)
        if (r->flushing == me) return 1;
    return 0;
}

static dycl_region *who_reads(PyObject *tensor) {
    for (dycl_region *r = taken; r; r = r->next)
        if (r != dycl_region_current && (r->deferred || dycl_region_reads(r, tensor)))
            return r; /* perhaps it is being computed */
    return NULL;
}

int dycl_region_free_memory(PyObject *tensor) {
    dycl_region *reader;
    if ((!taken && !any_readers()) || computes()) return 0;
    for (int round = 0; round < 64 && (reader = who_reads(tensor)); round++)
        if (dycl_region_flush(reader, DYCL_BAIL_thread) < 0) return -1;
    wait_for_readers();
    return 0;
}

static int close_for(dycl_region *region, int reason, dycl_bail why) {
    region->closed |= reason;
    return dycl_region_make_all_plain(region, why);
}

int dycl_region_meet_gradient(dycl_region *region) { return close_for(region, DYCL_CLOSED_GRADIENT, DYCL_BAIL_grad); }

int dycl_region_meet_mode(dycl_region *region) { return close_for(region, DYCL_CLOSED_MODE, DYCL_BAIL_mode); }

int dycl_region_meet_silence(dycl_region *region) { return close_for(region, DYCL_CLOSED_SILENCE, DYCL_BAIL_mode); }

int dycl_region_step_aside(dycl_region *region, dycl_bail why) {
    int before = region->closed & DYCL_CLOSED_ASIDE;
    region->closed |= DYCL_CLOSED_ASIDE;
    if (!before && dycl_region_make_all_plain(region, why) < 0) return -1;
    return dycl_region_pop_mode(); /* once more: torch had perhaps set it aside, and put it back since */
}

int dycl_region_meet_failure(dycl_region *region) {
    PyObject *failure = region->failure;
    if (__builtin_expect(!failure, 1) || dycl_region_current != region) return 0;
    region->failure = NULL;
    PyErr_SetObject((PyObject *)Py_TYPE(failure), failure);
    Py_DECREF(failure);
    return -1;
}

void dycl_region_put_off(dycl_region *region) {
    PyObject *type, *value, *traceback;
    if (dycl_error_forgive() == 0) return;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    Py_XSETREF(region->failure, value);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
}

/* After an error: what the program keeps (a buffer, a cache) should still have its value, so once more, as what failed
 * was perhaps too little memory. What has none then raises the error. */
static void rescue(dycl_region *region) {
    PyObject *type, *value, *traceback;
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "dycl: a segment failed without an error");
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyObject *error = dycl_replay_error(value);
    if (error) dycl_region_make_all_plain(region, DYCL_BAIL_region_end);
    while (region->first && dycl_lazy_of(region->first)->region == region) dycl_lazy_lose(region->first, error);
    Py_XDECREF(error);
    dycl_error_restore(type, value, traceback);
}

int dycl_region_end(dycl_region *region, PyObject **value) {
    int result = 0;
    for (int round = 0; result == 0 && (region->first || region->failure || region->recorder.graph.value_count);
         round++) {
        if (round == 8) region->closed |= DYCL_CLOSED_END;
        result = dycl_region_flush(region, DYCL_BAIL_region_end);
        if (result == 0 && *value && dycl_is_lazy(*value)) *value = dycl_lazy_exchange(*value);
        if (result == 0) result = dycl_region_make_all_plain(region, DYCL_BAIL_region_end);
        if (result == 0) dycl_region_begin_segment(region);
    }
    if (result < 0) rescue(region);
    region->closed |= DYCL_CLOSED_END;
    Py_CLEAR(region->failure);
    region->first = region->last = NULL;
    region->living = 0;
    dycl_region_begin_segment(region);
    return result;
}
