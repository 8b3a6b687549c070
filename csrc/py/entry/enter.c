#include "py/cpython/trace.h"
#include "py/entry/enter.h"

#include "py/cpython/error.h"
#include "py/cpython/thread.h"
#include "py/entry/everywhere.h"
#include "py/region/ahead.h"
#include "py/modules/composite.h"
#include "py/cpython/object.h"
#include "py/entry/callable.h"
#include "py/entry/gradient.h"
#include "py/entry/hint.h"
#include "py/entry/method.h"
#include "py/intercept/replaced.h"
#include "py/intercept/watch.h"
#include "py/modules/stock.h"
#include "py/region/life.h"
#include "py/region/segment.h"
#include "py/region/pass.h"
#include "py/region/track.h"
#include "py/site/log.h"
#include "py/site/steps.h"

/* ---- May this call become a region? */

/* Whether a call may become a region: not disabled, no foreign mode, autocast, tracing..., and no gradients wanted that
 * a region would not record (gradient.h). Counts why not. */
typedef enum {
    ENTRY_REGION,
    ENTRY_PLAIN,
    ENTRY_GRADIENTS /* plain, and perhaps a case for hint.h */
} entry;

/* torch.compile looks at every frame that runs now: what it compiles must not see our mode. */
static int compiling(void) {
    if (!dycl_py.eval_frame_callback) return 0;
    PyObject *callback = PyObject_CallNoArgs(dycl_py.eval_frame_callback);
    int result = callback && callback != Py_None && callback != Py_False;
    Py_XDECREF(callback);
    PyErr_Clear();
    return result;
}

int dycl_enter_plain_state(void) {
    return !compiling() && !dycl_watch_dual() && !dycl_abi_mode_depth() && !dycl_replaced_any() &&
           dycl_abi_torch_function_is_on() && dycl_abi_dispatch_plain(dycl_abi_dispatch_state()) &&
           dycl_py_ask_default_dtype();
}

int dycl_enter_nobody_watches(void) {
    return !dycl_disabled && !dycl_traced() && !dycl_abi_has_callbacks() &&
           (dycl_region_current ? dycl_region_records(dycl_region_current) : dycl_enter_plain_state());
}

static entry may_enter(dycl_site *site, PyObject *const *args, Py_ssize_t count, PyObject *kwnames) {
    if (dycl_disabled) {
        site->stats.plain_disabled++;
        return ENTRY_PLAIN;
    }
    if (!dycl_enter_plain_state()) {
        site->stats.plain_mode++;
        return ENTRY_PLAIN;
    }
    dycl_gradient_need need = DYCL_GRADIENT_NONE; /* a step needs none */
    if (dycl_abi_grad_enabled() && !site->replaces) need = dycl_gradient_needed(site, args, count, kwnames);
    if (need == DYCL_GRADIENT_NONE) return ENTRY_REGION;
    site->stats.plain_grad++;
    return need == DYCL_GRADIENT_OF_PARAMETERS ? ENTRY_GRADIENTS : ENTRY_PLAIN;
}

/* ---- The call */

void dycl_enter_learn_threads(void) {
    static _Thread_local int known;
    if (__builtin_expect(known, 1)) return;
    known = 1;
    PyObject *threads = PyObject_CallNoArgs(dycl_py.get_num_threads);
    Py_XDECREF(threads);
    PyErr_Clear();
}

static PyObject *run_region(dycl_site *site, PyObject *callable, PyObject *const *args, size_t nargsf,
                            PyObject *kwnames, int *out_made) {
    dycl_region *region = dycl_region_take();
    if (!region) return NULL;
    region->site = site;
    region->position = 0;
    region->recorder.graph.options = site->options;
    region->replaces = site->replaces;
    region->may_track = region->tracks = dycl_gradient_tracks(site);
    region->leaf_count = 0;
    region->runs_ahead = (uint8_t)(!site->replaces && !region->tracks && /* what is replaced is still read */
                                   dycl_ahead_choose(site));
    dycl_enter_learn_threads();
    uint64_t before = dycl_choose_now(), recorded = site->stats.recorded;
    int differentiable = dycl_abi_grad_enabled();
    dycl_region_expect(region);
    if (dycl_region_push_mode() < 0) {
        region->closed |= DYCL_CLOSED_END;
        dycl_region_begin_segment(region);
        dycl_region_give(region);
        return NULL;
    }
    dycl_modules_refresh();
    PyObject *module = site->module ? dycl_weakref_object(site->module) : NULL;
    if (dycl_composite_adopt(module, &site->adopted) && module) dycl_method_watch(module);
    site->stats.calls++;
    region->foreign = region->passing = region->closed = region->gradient = 0;
    region->made = 0;
    region->mode_depth = dycl_abi_mode_depth();
    region->dispatch = *dycl_abi_dispatch_state();
    dycl_region_current = region;
    dycl_thread_enter();
    PyObject *result = PyObject_Vectorcall(callable, args, nargsf, kwnames);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    int failed = dycl_region_end(region, &result);
    if (failed < 0) {
        if (type) dycl_error_restore(type, value, traceback); /* the program's own goes first */
        PyErr_Fetch(&type, &value, &traceback);
    }
    dycl_region_current = NULL;
    dycl_thread_leave();
    if (dycl_abi_mode_depth() > 0 && dycl_region_pop_mode() < 0) { /* stepping aside has not, where torch put it back */
        if (type) PyErr_Clear();
        failed = -1;
    }
    if (failed < 0) Py_CLEAR(result);
    if (type) PyErr_Restore(type, value, traceback);
    *out_made = region->made;
    if (differentiable) dycl_gradient_learn(&site->gradient, region->gradient, site->stats.recorded - recorded);
    dycl_ahead_done(site, region->runs_ahead, dycl_choose_now() - before, region->made);
    dycl_region_give(region);
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

/* Calls in a row that go the same way in a look. */
static uint8_t whole_rounds(const dycl_rounds *rounds) {
    int calls = dycl_rounds_calls(rounds), least = DYCL_CHOOSE_TRAINING_RUN;
    return (uint8_t)(calls ? (least + calls - 1) / calls * calls : least);
}

/* The call before this one is over, with all that followed it up to an optimizer's step. */
static void end_training_step(dycl_site *site) {
    dycl_training *t = &site->training;
    uint64_t took[2];
    if (!t->timed) return;
    t->timed = 0;
    dycl_rounds_note(&t->rounds, dycl_steps_took(t->begun, took));
    if (!t->choice.looks) t->choice.run = whole_rounds(&t->rounds);
    dycl_choose_took(&t->choice, (dycl_way)t->way, took, t->hopeless, t->made | dycl_pass_take_made());
}

PyObject *dycl_region_call(dycl_site *site, PyObject *callable, PyObject *const *args, size_t nargsf,
                           PyObject *kwnames) {
    if (dycl_site_last() != site && !dycl_region_current && !site->replaces && !site->always) dycl_site_set_last(site);
    int trains =
        dycl_track_on && !dycl_region_current && !site->always && site->stats.nodes && dycl_gradient_may_track(site);
    dycl_choice *choice = trains ? &site->training.choice : &site->choice;
    if (dycl_track_on) end_training_step(site);
    if (dycl_choose_torch(choice)) { /* nothing else may cost here */
        site->stats.plain_faster++;
        return run_in_torch(DYCL_QUIET_ALL, site, callable, args, nargsf, kwnames);
    }
    entry way_in = dycl_region_current ? ENTRY_PLAIN : may_enter(site, args, PyVectorcall_NARGS(nargsf), kwnames);
    if (way_in == ENTRY_PLAIN) {
        if (PyErr_Occurred()) return NULL;
        if (dycl_region_current) site->stats.plain_nested++;
        return run_in_torch(DYCL_QUIET_SAME_STATE, site, callable, args, nargsf, kwnames);
    }
    Py_INCREF(site); /* the call may end its last other owner */
    if (way_in == ENTRY_GRADIENTS) {
        dycl_hint_before(site);
        PyObject *result = run_in_torch(DYCL_QUIET_SAME_STATE, site, callable, args, nargsf, kwnames);
        if (dycl_hint_after(site, result) < 0) Py_CLEAR(result);
        Py_DECREF(site);
        return result;
    }
    int in_torch = !site->always && !(site->options & DYCL_OPTION_BF16); /* whose results torch's are not */
    dycl_way way = in_torch ? dycl_choose(choice) : DYCL_WAY_REGION;
    dycl_moment before = dycl_choose_begin(choice, !site->worth_ahead);
    uint64_t recorded = site->stats.recorded, left = site->stats.torch;
    int made = 0;
    PyObject *result;
    if (way == DYCL_WAY_REGION) {
        result = run_region(site, callable, args, nargsf, kwnames, &made);
    } else {
        site->stats.plain_faster++;
        result = run_in_torch(DYCL_QUIET_ALL, site, callable, args, nargsf, kwnames);
    }
    int hopeless = site->stats.torch - left > site->stats.recorded - recorded;
    if (trains) {
        dycl_training *t = &site->training;
        t->begun = before;
        t->timed = 1;
        t->way = (uint8_t)way;
        t->hopeless = (uint8_t)hopeless;
        t->made = (uint8_t)made;
        dycl_steps_begin(before);
    } else if (in_torch) {
        dycl_choose_done(choice, way, before, hopeless, made);
    }
    Py_DECREF(site);
    return dycl_log_after(result);
}
