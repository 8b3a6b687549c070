#include "py/entry/optimizer.h"

#include "py/cpython/error.h"
#include "py/cpython/function.h"
#include "py/cpython/object.h"
#include "py/entry/callable.h"
#include "py/cpython/trace.h"
#include "py/entry/enter.h"
#include "py/entry/groups.h"
#include "py/entry/update.h"
#include "py/entry/zero_grad.h"
#include "py/intercept/fallback.h"
#include "py/region/region.h"
#include "py/region/replay.h"
#include "py/region/track.h"
#include "py/region/trained.h"
#include "py/site/steps.h"

static vectorcallfunc original;                /* of all Python functions */
static PyObject *sites;                        /* owned: address -> (weak reference, site) */
static _Thread_local const PyObject *stepping; /* the function whose call is ours already */

/* An optimizer died: self is its address. */
static PyObject *forget(PyObject *self, PyObject *weak) {
    PyObject *entry = PyDict_GetItemWithError(sites, self);
    if (entry && PyTuple_GET_ITEM(entry, 0) == weak && PyDict_DelItem(sites, self) < 0) return NULL;
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef forget_method = {"forget", forget, METH_O, NULL};

enum { BELONGS = 1, TRAINS = 2 }; /* of site->belongs: as was found out for good; at the last step */

static PyObject *asked;      /* owned: says whether an optimizer's parameters are those of an accelerated model */
static int everywhere;       /* all optimizers count */
static uint32_t belongs_now; /* changes when the answer may */

void dycl_optimizer_ask(PyObject *function) { Py_XSETREF(asked, Py_NewRef(function)); }

void dycl_optimizer_changed(int all) {
    everywhere = all;
    belongs_now++;
}

int dycl_optimizer_counts_all(void) { return everywhere; }

static dycl_site *find(PyObject *optimizer) {
    PyObject *key = sites ? PyLong_FromVoidPtr(optimizer) : NULL;
    PyObject *entry = key ? PyDict_GetItemWithError(sites, key) : NULL; /* borrowed */
    int known = entry && dycl_weakref_object(PyTuple_GET_ITEM(entry, 0)) == optimizer;
    Py_XDECREF(key);
    PyErr_Clear();
    return known ? (dycl_site *)PyTuple_GET_ITEM(entry, 1) : NULL;
}

dycl_site *dycl_optimizer_site(PyObject *optimizer) {
    dycl_site *site = find(optimizer);
    return site && (site->given || site->belongs) ? site : NULL;
}

static int add(PyObject *optimizer) {
    if (find(optimizer)) return 0;
    if (!sites && !(sites = PyDict_New())) return -1;
    PyObject *key = PyLong_FromVoidPtr(optimizer), *died = key ? PyCFunction_New(&forget_method, key) : NULL;
    PyObject *weak = died ? PyWeakref_NewRef(optimizer, died) : NULL, *entry = NULL;
    PyObject *step = weak ? PyObject_GetAttrString((PyObject *)Py_TYPE(optimizer), "step") : NULL;
    PyObject *site = step ? dycl_site_create(step, NULL, NULL) : NULL;
    if (site) ((dycl_site *)site)->replaces = 1;
    if (site) entry = PyTuple_Pack(2, weak, site);
    int result = entry ? PyDict_SetItem(sites, key, entry) : -1;
    Py_XDECREF(key);
    Py_XDECREF(died);
    Py_XDECREF(weak);
    Py_XDECREF(step);
    Py_XDECREF(site);
    Py_XDECREF(entry);
    return result;
}

int dycl_optimizer_add(PyObject *optimizer) {
    if (add(optimizer) < 0) return -1;
    find(optimizer)->given = 1;
    return 0;
}

/* -1: a signal handler raised. */
static int belongs(PyObject *optimizer) {
    PyObject *answer = asked ? PyObject_CallOneArg(asked, optimizer) : NULL;
    int result = answer == Py_True;
    Py_XDECREF(answer);
    return dycl_error_forgive() < 0 ? -1 : result;
}

/* Whether recorded operators read one of its parameters with gradients: of a loss function that was accelerated, or of
 * a part of its model. */
static int trains_recorded(PyObject *optimizer) {
    PyObject *groups = dycl_groups_of(optimizer);
    for (Py_ssize_t g = 0; groups && g < PyList_GET_SIZE(groups); g++) {
        PyObject *list = dycl_groups_parameters(PyList_GET_ITEM(groups, g));
        for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++)
            if (dycl_trained_has(PyList_GET_ITEM(list, i))) return 1;
    }
    return 0;
}

/* The site of an optimizer whose step is ours: it was accelerated itself, or, where gradients are recorded, its model
 * was, or everything is, or the function that calls it, or one that reads its parameters. NULL: it is not ours, or with
 * an exception. */
static dycl_site *site_of_step(PyObject *optimizer) {
    dycl_site *site = find(optimizer);
    if (site && site->given) return site;
    if (dycl_disabled || !dycl_track_on) return NULL;
    int here = everywhere || dycl_region_current, known = !here && site && site->belongs_at == belongs_now;
    int ours = here ? 1 : known ? site->belongs & BELONGS : belongs(optimizer);
    if (ours < 0) return NULL;
    if (!site && add(optimizer) < 0) {
        PyErr_Clear(); /* no memory, or a class without weak references */
        return NULL;
    }
    site = find(optimizer);
    site->belongs = (uint8_t)(ours ? BELONGS : trains_recorded(optimizer) ? TRAINS : 0);
    site->belongs_at = here ? belongs_now - 1 : belongs_now; /* to be asked again */
    return site->belongs ? site : NULL;
}

static int has_closure(PyObject *const *args, Py_ssize_t count, PyObject *kwnames) {
    Py_ssize_t total = count + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    for (Py_ssize_t i = 1; i < total; i++)
        if (args[i] != Py_None) return 1;
    return 0;
}

static int is_recorded(PyObject *tensor) {
    dycl_tensor_view view;
    return PyObject_TypeCheck(tensor, dycl_py.tensor_type) && dycl_abi_is_plain(dycl_abi_impl(tensor)) &&
           dycl_abi_read(dycl_abi_borrow(tensor), &view) && (view.dtype == DYCL_F32 || view.dtype == DYCL_F64);
}

/* Whether the operators of a step are: those of complex parameters, or of sparse gradients, would end a segment each.
 */
static int records_all(PyObject *optimizer) {
    int all = 1, functions = dycl_abi_torch_function_off(); /* a region's mode would see Tensor.grad */
    PyObject *groups = dycl_groups_of(optimizer);
    for (Py_ssize_t g = 0; groups && g < PyList_GET_SIZE(groups); g++) {
        PyObject *list = dycl_groups_parameters(PyList_GET_ITEM(groups, g));
        for (Py_ssize_t i = 0; all && list && i < PyList_GET_SIZE(list); i++) {
            PyObject *p = PyList_GET_ITEM(list, i);
            all = is_recorded(p);
            PyObject *gradient = all ? PyObject_GetAttrString(p, "grad") : NULL;
            if (gradient && gradient != Py_None) all = is_recorded(gradient);
            if (all && !gradient) PyErr_Clear();
            Py_XDECREF(gradient);
        }
    }
    dycl_abi_torch_function_restore(functions);
    return all;
}

/* Inside of a region, the step is a part of it between two flushes, or torch's as a whole. */
static PyObject *step_within(dycl_region *region, PyObject *function, PyObject *const *args, size_t nargsf,
                             PyObject *kwnames) {
    PyObject *type, *value, *traceback;
    if (dycl_region_flush(region, DYCL_BAIL_write) < 0) return NULL;
    if (!records_all(args[0])) {
        stepping = function;
        PyObject *result = dycl_fallback_without_mode(function, args, PyVectorcall_NARGS(nargsf), kwnames);
        stepping = NULL;
        return result;
    }
    region->replaces = 1;
    PyObject *result = original(function, args, nargsf, kwnames);
    PyErr_Fetch(&type, &value, &traceback);
    int failed = dycl_region_flush(region, DYCL_BAIL_write) < 0;
    region->replaces = region->site->replaces;
    if (failed) Py_CLEAR(result);
    if (type) dycl_error_restore(type, value, traceback);
    return result;
}

/* Without its Python, where that does nothing else. */
static dycl_update_result update(dycl_site *site, dycl_region *region, PyObject *optimizer) {
    uint64_t count = 0;
    if (dycl_disabled || dycl_traced() || dycl_replay_always || dycl_abi_dispatch_inference(dycl_abi_dispatch_state()))
        return DYCL_UPDATE_OTHER;
    if (region && dycl_region_flush(region, DYCL_BAIL_write) < 0) return DYCL_UPDATE_FAILED;
    if (!region && !dycl_enter_plain_state()) return DYCL_UPDATE_OTHER;
    dycl_enter_learn_threads();
    dycl_update_result result = dycl_update_step(optimizer, &count);
    if (result == DYCL_UPDATE_DONE) site->stats.updates++;
    return result;
}

static PyObject *take_step(PyObject *function, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    int ours = !stepping && count && !has_closure(args, count, kwnames);
    dycl_site *site = ours ? site_of_step(args[0]) : NULL;
    dycl_region *region = dycl_region_current;
    if (!site && PyErr_Occurred()) return NULL;
    if (!site || (region && !dycl_region_records(region))) return original(function, args, nargsf, kwnames);
    dycl_update_result updated = update(site, region, args[0]);
    if (updated == DYCL_UPDATE_FAILED) return NULL;
    if (updated == DYCL_UPDATE_DONE) {
        dycl_zero_grad_find();
        Py_RETURN_NONE;
    }
    if (updated == DYCL_UPDATE_TORCH && !region) return original(function, args, nargsf, kwnames);
    if (region) return step_within(region, function, args, nargsf, kwnames);
    stepping = function;
    PyObject *result = dycl_region_call(site, function, args, nargsf, kwnames);
    stepping = NULL;
    return result;
}

static PyObject *call_step(PyObject *function, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    int outermost = !stepping && !dycl_region_current;
    PyObject *result = take_step(function, args, nargsf, kwnames);
    if (outermost) dycl_steps_over(PyVectorcall_NARGS(nargsf) ? args[0] : NULL);
    return result;
}

int dycl_optimizer_watch(PyObject *functions) {
    PyObject *fast = PySequence_Fast(functions, "a sequence of functions");
    if (!fast) return -1;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast); i++) {
        PyObject *function = PySequence_Fast_GET_ITEM(fast, i);
        if (!PyFunction_Check(function)) continue;
        vectorcallfunc before = dycl_function_redirect(function, call_step);
        if (before != call_step) original = before;
    }
    Py_DECREF(fast);
    return 0;
}
