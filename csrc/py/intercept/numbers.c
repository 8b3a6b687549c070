#include "py/intercept/numbers.h"

#include "py/intercept/shortcut.h"
#include "py/region/region.h"

/* What may be a number: it waits, or was computed, and has no dimensions. */
static int is_single(PyObject *o) {
    dycl_lazy_meta meta;
    if (!dycl_is_lazy(o)) return 0;
    if (dycl_lazy_describe(o, &meta) == 0) return meta.rank == 0;
    PyErr_Clear(); /* torch's way raises it */
    return 0;
}

static int holds_single(PyObject *argument) {
    if (!PyTuple_CheckExact(argument) && !PyList_CheckExact(argument)) return is_single(argument);
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(argument); i++)
        if (is_single(PySequence_Fast_GET_ITEM(argument, i))) return 1;
    return 0;
}

static int make_plain(PyObject *o) {
    if (!is_single(o)) return 0;
    int tracked = dycl_region_needs_gradient(o);
    if (tracked) return tracked < 0 ? -1 : 0;
    return dycl_region_make_plain(o, DYCL_BAIL_arguments);
}

/* Computing may run Python code, which may change a list. */
static int make_argument_plain(PyObject *argument) {
    if (!PyTuple_CheckExact(argument) && !PyList_CheckExact(argument)) return make_plain(argument);
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(argument); i++)
        if (make_plain(PySequence_Fast_GET_ITEM(argument, i)) < 0) return -1;
    return 0;
}

/* A word for the callable and a place among its arguments, kept beside the patterns of its calls. */
static uint64_t place(PyObject *callable, Py_ssize_t i, Py_ssize_t count, PyObject *kwnames) {
    uint64_t name = i < count ? 0 : (uint64_t)PyObject_Hash(PyTuple_GET_ITEM(kwnames, i - count));
    uint64_t h = ((uint64_t)(uintptr_t)callable ^ name) * UINT64_C(0xd6e8feb86659fd93);
    h = (h ^ h >> 32 ^ (uint64_t)i) * UINT64_C(0xd6e8feb86659fd93);
    return h ? h : 1;
}

int dycl_numbers_compute(PyObject *callable, PyObject *const *args, Py_ssize_t count, PyObject *kwnames, int is_method,
                         uint64_t *out_places) {
    Py_ssize_t total = count + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    int found = 0;
    for (Py_ssize_t i = is_method; i < total; i++) {
        if (!holds_single(args[i])) continue;
        uint64_t key = place(callable, i, count, kwnames);
        if (dycl_shortcut_known(key)) continue;
        if (make_argument_plain(args[i]) < 0) return -1;
        if (found < DYCL_NUMBERS) out_places[found++] = key;
    }
    return found;
}

void dycl_numbers_learn(PyObject *result, const uint64_t *places, int count) {
    if (!count || !result || !dycl_is_lazy(result)) return;
    for (int i = 0; i < count; i++) dycl_shortcut_remember(places[i]);
}
