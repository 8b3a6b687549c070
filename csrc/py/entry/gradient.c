#include "py/entry/gradient.h"

#include "py/cpython/dict.h"
#include "py/torch/abi.h"
#include "py/cpython/object.h"
#include "py/region/track.h"

enum {
    FEW = 16,        /* operators: a call that records no more before it meets a gradient has nothing to gain */
    FIRST_WAIT = 16, /* calls in torch after the first such region, then twice as many each time */
    LONGEST = 16384,
};

static int wants(PyObject *o) {
    if (Py_TYPE(o) != dycl_py.tensor_type && Py_TYPE(o) != dycl_py.parameter_type) return 0;
    int result = dycl_region_needs_gradient(o);
    PyErr_Clear();
    return result > 0;
}

#define MODULES_ASKED 256 /* of one call: modules share parts, and some hold the one that holds them */
#define MODULES_DEEP  16

/* The first parameter in the order of Module.parameters(), among so many modules. Borrowed, or NULL. */
static PyObject *first_parameter(PyObject *module, int depth, int *left) {
    PyObject *dict = dycl_object_dict(module), *key, *o;
    PyObject *parameters = dict ? PyDict_GetItemString(dict, "_parameters") : NULL,
             *children = dict ? PyDict_GetItemString(dict, "_modules") : NULL;
    Py_ssize_t at = 0;
    while (parameters && PyDict_Check(parameters) && PyDict_Next(parameters, &at, &key, &o))
        if (o != Py_None) return o;
    at = 0;
    while (depth && *left > 0 && children && PyDict_Check(children) && PyDict_Next(children, &at, &key, &o)) {
        --*left;
        if (o != Py_None && (o = first_parameter(o, depth - 1, left))) return o;
    }
    return NULL;
}

/* Whether the first parameter wants gradients: a module that is frozen only in part records until it meets the others.
 */
static int module_wants(const dycl_site *site) {
    PyObject *module = site->module ? dycl_weakref_object(site->module) : NULL;
    int left = MODULES_ASKED;
    PyObject *first = module ? first_parameter(module, MODULES_DEEP, &left) : NULL;
    return first && wants(first);
}

int dycl_gradient_may_track(const dycl_site *site) { return dycl_track_suits(site) && dycl_abi_grad_enabled(); }

int dycl_gradient_tracks(const dycl_site *site) { return dycl_gradient_may_track(site) && !dycl_track_is_watched(); }

dycl_gradient_need dycl_gradient_needed(dycl_site *site, PyObject *const *args, Py_ssize_t count, PyObject *kwnames) {
    Py_ssize_t total = count + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    if (dycl_gradient_tracks(site)) return DYCL_GRADIENT_NONE;
    for (Py_ssize_t i = 0; i < total; i++)
        if (wants(args[i])) return DYCL_GRADIENT_WANTED;
    if (module_wants(site)) return DYCL_GRADIENT_OF_PARAMETERS;
    if (!site->gradient.wait) return DYCL_GRADIENT_NONE;
    site->gradient.wait--;
    return DYCL_GRADIENT_WANTED;
}

void dycl_gradient_wait(dycl_gradient *gradient) {
    gradient->interval = gradient->interval ? 2 * gradient->interval : FIRST_WAIT;
    if (gradient->interval > LONGEST) gradient->interval = LONGEST;
    gradient->wait = gradient->interval;
}

void dycl_gradient_learn(dycl_gradient *gradient, int met, uint64_t recorded) {
    if (met && recorded <= FEW)
        dycl_gradient_wait(gradient);
    else
        gradient->interval = 0;
}
