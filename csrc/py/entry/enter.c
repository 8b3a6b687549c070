/* Entering and leaving a region. */
#include "base/alloc.h"
#include "py/entry/everywhere.h"
#include "py/region/ahead.h"
#include "py/modules/composite.h"
#include "py/cpython/object.h"
#include "py/modules/stock.h"
#include "py/region/region.h"
#include "py/region/segment.h"
#include "py/site/site.h"

static dycl_region *free_regions;

static dycl_region *take_region(void) {
    dycl_region *region = free_regions;
    if (region) {
        free_regions = region->next;
        return region;
    }
    region = dycl_alloc_zero(sizeof *region);
    if (!region) {
        PyErr_NoMemory();
        return NULL;
    }
    dycl_recorder_init(&region->recorder);
    region->epoch = 1;
    region->look_at = DYCL_SEGMENT_LOOK;
    return region;
}

static void give_region(dycl_region *region) {
    region->site = NULL;
    region->next = free_regions;
    free_regions = region;
}

void dycl_regions_trim(void) {
    for (dycl_region *region; (region = free_regions);) {
        free_regions = region->next;
        dycl_recorder_free(&region->recorder);
        dycl_free(region->sources);
        dycl_free(region->feeds);
        dycl_free(region->outputs);
        dycl_free(region->output_of);
        dycl_free(region->handles);
        dycl_free(region->addresses);
        dycl_free(region->fed);
        dycl_free(region->written);
        dycl_free(region);
    }
}

static int push_mode(void) {
    PyObject *done = PyObject_CallOneArg(dycl_py.push_mode, dycl_py.mode);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Our mode leaves the stack also where the program entered modes of its own and never left them: these stay. Memory is
 * needed for none of it. */
static int pop_mode(void) {
    PyObject *mode = dycl_abi_mode_depth() > 0 ? PyObject_CallNoArgs(dycl_py.pop_mode) : Py_NewRef(dycl_py.mode);
    int result = mode ? 0 : -1;
    if (mode && mode != dycl_py.mode) {
        result = pop_mode();
        PyObject *done = PyObject_CallOneArg(dycl_py.push_mode, mode);
        if (!done) result = -1;
        Py_XDECREF(done);
    }
    Py_XDECREF(mode);
    return result;
}

static int make_all_plain(dycl_region *region, dycl_bail why) {
    int result = dycl_region_flush(region, why);
    while (region->first && result == 0) {
        PyObject *o = Py_NewRef(region->first);
        result = dycl_region_make_plain(o, why);
        Py_DECREF(o);
    }
    return result;
}

int dycl_region_meet_gradient(dycl_region *region) {
    region->closed |= DYCL_CLOSED_GRADIENT;
    return make_all_plain(region, DYCL_BAIL_grad);
}

int dycl_region_step_aside(dycl_region *region, dycl_bail why) {
    if (region->closed & DYCL_CLOSED_ASIDE) return 0;
    region->closed |= DYCL_CLOSED_ASIDE;
    if (make_all_plain(region, why) < 0) return -1;
    return pop_mode();
}

/* After an error: what the program keeps (a buffer, a cache) should still have its value, so once more, as what failed
 * was perhaps too little memory. */
static void rescue(dycl_region *region) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (make_all_plain(region, DYCL_BAIL_region_end) < 0) PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

/* Every lazy tensor that is still referenced becomes plain. Letting go of what the segment held may run Python code
 * (finalizers) that records again: then once more, and after some rounds without recording. */
static int end_region(dycl_region *region, PyObject **value) {
    int result = 0;
    for (int round = 0; result == 0 && (region->first || region->recorder.graph.value_count); round++) {
        if (round == 8) region->closed |= DYCL_CLOSED_END;
        result = dycl_region_flush(region, DYCL_BAIL_region_end);
        if (result == 0 && *value && dycl_is_lazy(*value)) *value = dycl_lazy_exchange(*value);
        if (result == 0) result = make_all_plain(region, DYCL_BAIL_region_end);
        if (result == 0) dycl_region_begin_segment(region);
    }
    if (result < 0) rescue(region);
    region->closed |= DYCL_CLOSED_END;
    while (region->first) dycl_lazy_unlink(dycl_lazy_of(region->first)); /* only after an error */
    dycl_region_begin_segment(region);
    return result;
}

/* What torch.set_num_threads said holds in a thread from torch's first parallel operator there on, or from this
 * question on. */
static void learn_threads(void) {
    static _Thread_local int known;
    if (__builtin_expect(known, 1)) return;
    known = 1;
    PyObject *threads = PyObject_CallNoArgs(dycl_py.get_num_threads);
    Py_XDECREF(threads);
    PyErr_Clear();
}

static PyObject *run_region(dycl_site *site, PyObject *callable, PyObject *const *args, size_t nargsf,
                            PyObject *kwnames, int *out_made) {
    dycl_region *region = take_region();
    if (!region) return NULL;
    region->site = site;
    region->position = 0;
    region->recorder.graph.options = site->options;
    region->runs_ahead = (uint8_t)dycl_ahead_choose(site);
    learn_threads();
    uint64_t before = dycl_choose_now(), recorded = site->stats.recorded;
    int differentiable = dycl_abi_grad_enabled();
    dycl_region_expect(region);
    if (push_mode() < 0) {
        region->closed |= DYCL_CLOSED_END;
        dycl_region_begin_segment(region);
        give_region(region);
        return NULL;
    }
    dycl_modules_refresh();
    dycl_composite_adopt(site->module ? dycl_weakref_object(site->module) : NULL, &site->adopted);
    site->stats.calls++;
    region->foreign = region->passing = region->closed = region->gradient = 0;
    region->made = 0;
    region->mode_depth = dycl_abi_mode_depth();
    region->dispatch = *dycl_abi_dispatch_state();
    dycl_region_current = region;
    PyObject *result = PyObject_Vectorcall(callable, args, nargsf, kwnames);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    int failed = end_region(region, &result);
    if (failed < 0 && type)
        PyErr_Clear(); /* the program's own exception goes first */
    else if (failed < 0)
        PyErr_Fetch(&type, &value, &traceback);
    dycl_region_current = NULL;
    if (!(region->closed & DYCL_CLOSED_ASIDE) && pop_mode() < 0) {
        if (type) PyErr_Clear();
        failed = -1;
    }
    if (failed < 0) Py_CLEAR(result);
    if (type) PyErr_Restore(type, value, traceback);
    *out_made = region->made;
    if (differentiable) dycl_gradient_learn(&site->gradient, region->gradient, site->stats.recorded - recorded);
    dycl_ahead_done(site, region->runs_ahead, dycl_choose_now() - before, region->made);
    give_region(region);
    return result;
}

/* In torch as a whole. quiet: what dycl.accelerate_all would accelerate inside stays in torch too (DYCL_QUIET_...). */
static PyObject *run_in_torch(int quiet, dycl_site *site, PyObject *callable, PyObject *const *args, size_t nargsf,
                              PyObject *kwnames) {
    dycl_quiet before = dycl_quiet_current;
    site->stats.plain_calls++;
    if (quiet == DYCL_QUIET_ALL)
        dycl_quiet_current.how = DYCL_QUIET_ALL;
    else
        dycl_quiet_same_state();
    PyObject *result = PyObject_Vectorcall(callable, args, nargsf, kwnames);
    dycl_quiet_current = before;
    return result;
}

PyObject *dycl_region_call(dycl_site *site, PyObject *callable, PyObject *const *args, size_t nargsf,
                           PyObject *kwnames) {
    if (dycl_site_last() != site && !dycl_region_current) dycl_site_set_last(site);
    if (dycl_choose_torch(&site->choice)) { /* nothing else may cost here */
        site->stats.plain_faster++;
        return run_in_torch(DYCL_QUIET_ALL, site, callable, args, nargsf, kwnames);
    }
    dycl_entry entry =
        dycl_region_current ? DYCL_ENTRY_PLAIN : dycl_site_may_enter(site, args, PyVectorcall_NARGS(nargsf), kwnames);
    if (entry == DYCL_ENTRY_PLAIN) {
        if (PyErr_Occurred()) return NULL;
        if (dycl_region_current) site->stats.plain_nested++;
        return run_in_torch(DYCL_QUIET_SAME_STATE, site, callable, args, nargsf, kwnames);
    }
    Py_INCREF(site); /* the call may end its last other owner */
    if (entry == DYCL_ENTRY_GRADIENTS) {
        dycl_hint_before(site);
        PyObject *result = run_in_torch(DYCL_QUIET_SAME_STATE, site, callable, args, nargsf, kwnames);
        if (dycl_hint_after(site, result) < 0) Py_CLEAR(result);
        Py_DECREF(site);
        return result;
    }
    int in_torch = !(site->options & DYCL_OPTION_BF16); /* whose results torch's are not */
    dycl_way way = in_torch ? dycl_choose(&site->choice) : DYCL_WAY_REGION;
    uint64_t before = dycl_choose_now();
    uint64_t recorded = site->stats.recorded, left = site->stats.torch;
    int made = 0;
    PyObject *result;
    if (way == DYCL_WAY_REGION) {
        result = run_region(site, callable, args, nargsf, kwnames, &made);
    } else {
        site->stats.plain_faster++;
        result = run_in_torch(DYCL_QUIET_ALL, site, callable, args, nargsf, kwnames);
    }
    if (in_torch)
        dycl_choose_done(&site->choice, way, dycl_choose_now() - before,
                         site->stats.torch - left > site->stats.recorded - recorded, made);
    Py_DECREF(site);
    return result;
}
