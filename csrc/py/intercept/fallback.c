#include "py/intercept/fallback.h"

#include "py/bind/hosted.h"
#include "py/cpython/error.h"
#include "py/intercept/overrides.h"
#include "py/region/life.h"
#include "py/site/site.h"

enum { DEEPEST = 4 };

static int concerns(const dycl_region *region, PyObject *o, int depth) {
    if (dycl_is_lazy(o)) return 1;
    if (region && PyObject_TypeCheck(o, dycl_py.tensor_type)) return dycl_region_reads(region, o);
    if (depth > DEEPEST) return 0;
    if (PyTuple_Check(o) || PyList_Check(o)) {
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); i++)
            if (concerns(region, PySequence_Fast_GET_ITEM(o, i), depth + 1)) return 1;
    } else if (PyDict_Check(o)) {
        PyObject *key, *value;
        Py_ssize_t at = 0;
        while (PyDict_Next(o, &at, &key, &value))
            if (concerns(region, value, depth + 1)) return 1;
    }
    return 0;
}

int dycl_fallback_concerns(const dycl_region *region, PyObject *o) { return concerns(region, o, 0); }

static int make_plain(PyObject *o, int depth, dycl_bail why);

static int make_items_plain(PyObject *o, int depth, dycl_bail why) {
    if (PyTuple_Check(o)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); i++)
            if (make_plain(PyTuple_GET_ITEM(o, i), depth + 1, why) < 0) return -1;
    } else if (PyList_Check(o)) {
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(o); i++)
            if (make_plain(PyList_GET_ITEM(o, i), depth + 1, why) < 0) return -1;
    } else if (PyDict_Check(o)) {
        PyObject *key, *value;
        Py_ssize_t at = 0;
        while (PyDict_Next(o, &at, &key, &value))
            if (make_plain(value, depth + 1, why) < 0) return -1;
    }
    return 0;
}

static int make_plain(PyObject *o, int depth, dycl_bail why) {
    if (dycl_is_lazy(o)) return dycl_region_make_plain(o, why);
    if (depth > DEEPEST || !concerns(NULL, o, depth)) return 0;
    Py_INCREF(o); /* computing may run Python code */
    int result = make_items_plain(o, depth, why);
    Py_DECREF(o);
    return result;
}

static int prepare(dycl_region *region, PyObject *const *args, Py_ssize_t total, dycl_bail why) {
    if (region && region->gradient && why == DYCL_BAIL_grad) { /* and so will what follows */
        if (dycl_region_meet_gradient(region) < 0) return -1;
    }
    /* whatever runs now may write to memory that the pending segment reads, or that deferred values are made of */
    if (region && dycl_region_flush(region, why) < 0) return -1;
    if (!region && dycl_region_current && dycl_region_current->deferred &&
        dycl_region_flush(dycl_region_current, why) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < total; i++)
        if (make_plain(args[i], 0, why) < 0) return -1;
    return 0;
}

int dycl_fallback_prepare(dycl_region *region, PyObject *const *args, Py_ssize_t count, const char *name,
                          dycl_bail why) {
    if (prepare(region, args, count, why) < 0) return -1;
    if (!region) return 0;
    PyObject *text = PyUnicode_InternFromString(name);
    if (!text) return -1;
    dycl_site_left_at(region->site, text, why);
    Py_DECREF(text);
    return 0;
}

PyObject *dycl_fallback_passing(PyObject *(*generic)(PyObject *, PyObject *), PyObject *a, PyObject *b) {
    dycl_region *region = dycl_region_current;
    PyObject *args[2] = {a, b};
    if (!region) return generic(a, b);
    dycl_lesson *lesson = dycl_hosted_take_lesson(region);
    dycl_lesson_begin(lesson, args, 2);
    region->passing = 1;
    PyObject *result = generic(a, b);
    region->passing = 0;
    dycl_lesson_end(lesson, result, args, 2, NULL);
    return result;
}

/* What a binding does not represent, torch's own kernel may compute as a step. Other reasons hold for that, too. */
static int may_be_hosted(const dycl_region *region, dycl_bail why) {
    if (!region || !dycl_region_open(region)) return 0;
    return why == DYCL_BAIL_operator || why == DYCL_BAIL_arguments || why == DYCL_BAIL_dtype ||
           why == DYCL_BAIL_layout || why == DYCL_BAIL_shape || why == DYCL_BAIL_rank;
}

PyObject *dycl_fallback_without_mode(PyObject *callable, PyObject *const *args, Py_ssize_t count, PyObject *kwnames) {
    PyObject *type, *value, *traceback;
    dycl_region *region = dycl_region_current;
    int depth = region->mode_depth;
    if (dycl_region_pop_mode() < 0) return NULL;
    region->mode_depth = DYCL_MODE_ASIDE;
    PyObject *result = PyObject_Vectorcall(callable, args, (size_t)count, kwnames);
    PyErr_Fetch(&type, &value, &traceback);
    region->mode_depth = depth;
    if (!(region->closed & DYCL_CLOSED_ASIDE) && dycl_region_push_mode() < 0) Py_CLEAR(result);
    if (type) dycl_error_restore(type, value, traceback);
    return result;
}

static int asks_our_mode(PyObject *callable) {
    const dycl_region *region = dycl_region_current;
    return PyFunction_Check(callable) && region && dycl_abi_mode_depth() == region->mode_depth &&
           !(region->closed & DYCL_CLOSED_ASIDE);
}

PyObject *dycl_fallback(dycl_region *region, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                        PyObject *kwnames, PyObject *kwdict, dycl_bail why) {
    if (may_be_hosted(region, why)) {
        if (dycl_overrides_is_whole(callable)) return dycl_overrides_run_body(callable, args, count, kwnames, kwdict);
        PyObject *hosted = dycl_hosted_record(region, callable, args, count, kwnames, kwdict);
        if (hosted || PyErr_Occurred()) return hosted;
        if (region->lesson) why = DYCL_BAIL_first;
        if (region->recorder.why == DYCL_BAIL_grad) why = DYCL_BAIL_grad;
    }
    dycl_lesson *lesson = region ? dycl_hosted_take_lesson(region) : NULL;
    Py_ssize_t total = count + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    PyObject *result = NULL;
    if (prepare(region, args, total, why) < 0 || (kwdict && make_plain(kwdict, 0, why) < 0)) goto done;
    dycl_lesson_begin(lesson, args, total);
    int without = !kwdict && asks_our_mode(callable);
    if (region) {
        dycl_site_left_at(region->site, callable, why);
        region->passing = !kwdict && !without;
    }
    result = without  ? dycl_fallback_without_mode(callable, args, count, kwnames)
             : kwdict ? PyObject_VectorcallDict(callable, args, (size_t)count, kwdict)
                      : PyObject_Vectorcall(callable, args, (size_t)count, kwnames);
    if (region) region->passing = 0;
done:
    dycl_lesson_end(lesson, result, args, total, kwdict);
    return result;
}
