#include "py/bind/call.h"

#include <math.h>
#include <string.h>

#include "py/cpython/collect.h"
#include "py/cpython/int.h"
#include "py/bind/noise.h"
#include "py/bind/numpy.h"
#include "py/bind/write_pending.h"
#include "py/bind/write_through.h"
#include "py/region/replace.h"
#include "py/region/track.h"
#include "py/site/site.h"

/* ---- Parsing */

static int parameter_of(const dycl_binding *row, PyObject *name) {
    for (int i = 0; i < row->parameter_count; i++)
        if (row->names[i] == name) return i;
    for (int i = 0; i < row->parameter_count; i++) /* a name that was not interned */
        if (PyUnicode_Check(name) && PyUnicode_Compare(row->names[i], name) == 0) return i;
    return -1;
}

/* NumPy's names for torch's parameters, which torch's own parser takes too (torch/csrc/utils/python_arg_parser.cpp). */
static int parameter_of_alias(const dycl_binding *row, PyObject *name) {
    static const char *const aliases[][2] = {{"axis", "dim"}, {"keepdims", "keepdim"}, {"x", "input"},
                                             {"a", "input"},  {"x1", "input"},         {"x2", "other"}};
    if (row->python || !PyUnicode_Check(name)) return -1;
    for (size_t k = 0; k < sizeof aliases / sizeof *aliases; k++) {
        if (PyUnicode_CompareWithASCIIString(name, aliases[k][0]) != 0) continue;
        for (int i = 0; i < row->parameter_count; i++)
            if (PyUnicode_CompareWithASCIIString(row->names[i], aliases[k][1]) == 0) return i;
    }
    return -1;
}

static int place_keyword(dycl_call *call, const dycl_binding *row, PyObject *name, PyObject *value) {
    int at = parameter_of(row, name);
    if (at < 0) at = parameter_of_alias(row, name);
    if (at < 0 && call->region->replaces && !call->out && PyUnicode_CompareWithASCIIString(name, "out") == 0 &&
        dycl_is_tensor(value) && !dycl_is_lazy(value)) {
        call->out = value;
        return 1;
    }
    if (at < 0 || call->p[at]) return 0; /* out=None too: torch's functions take it, most of its methods do not */
    call->p[at] = value;
    return 1;
}

int dycl_call_parse(dycl_call *call, const dycl_binding *row) {
    if (call->count > row->positional_count) return 0;
    Py_ssize_t i = 0;
    for (; i < call->count; i++) call->p[i] = call->args[i];
    for (; i < row->parameter_count; i++) call->p[i] = NULL;
    if (call->kwnames) {
        Py_ssize_t n = PyTuple_GET_SIZE(call->kwnames);
        for (Py_ssize_t k = 0; k < n; k++)
            if (!place_keyword(call, row, PyTuple_GET_ITEM(call->kwnames, k), call->args[call->count + k])) return 0;
    }
    if (call->kwdict) {
        Py_ssize_t at = 0;
        PyObject *name, *value;
        while (PyDict_Next(call->kwdict, &at, &name, &value))
            if (!place_keyword(call, row, name, value)) return 0;
    }
    return 1;
}

/* ---- Results */

PyObject *dycl_call_bail(dycl_call *call, dycl_bail why) {
    call->region->recorder.why = why;
    call->region->site->stats.recorded = call->recorded; /* whatever was recorded of it: torch runs it */
    return NULL;
}

PyObject *dycl_call_same(dycl_call *call, PyObject *object) {
    (void)call;
    return Py_NewRef(object);
}

PyObject *dycl_call_written(dycl_call *call, PyObject *result, uint32_t writes) {
    if (result && writes && dycl_region_count_writes(call->region, result, writes) < 0) Py_CLEAR(result);
    return result;
}

PyObject *dycl_call_as_view(dycl_call *call, PyObject *result) {
    if (!result || !dycl_is_lazy(result)) return result;
    dycl_lazy *lazy = dycl_lazy_of(result);
    lazy->own = dycl_call_meta(call, lazy->value)->root == lazy->value ? DYCL_OWN_VIEW : 0;
    return result;
}

/* Not so if the call computed what was pending, and this feeds the segment that began then. */
static int made_here(const dycl_call *call, uint32_t value) {
    return value >= dycl_call_first(call) &&
           (call->epoch == call->region->epoch || dycl_call_meta(call, value)->kind == DYCL_VALUE_NODE);
}

static PyObject *replace_plain(dycl_call *call, PyObject *tensor, uint32_t value) {
    int replaced = made_here(call, value) ? dycl_replace_value(call->region, tensor, value) : 0;
    return replaced > 0 ? Py_NewRef(tensor) : replaced < 0 ? NULL : dycl_call_bail(call, DYCL_BAIL_alias);
}

static PyObject *finish_in_place(dycl_call *call, uint32_t value) {
    dycl_region *region = call->region;
    PyObject *self = call->p[0];
    dycl_lazy_meta old;
    int tracked = self && dycl_is_tensor(self) && dycl_track_writes(region, self, value);
    if (tracked && (!made_here(call, value) || !dycl_track_lets(region, dycl_call_first(call), call->whole) ||
                    !dycl_track_may_rebind(region, self, value)))
        return dycl_call_bail(call, DYCL_BAIL_grad);
    if (!self || !dycl_is_tensor(self)) return dycl_call_bail(call, DYCL_BAIL_alias);
    if (region->replaces && !dycl_is_lazy(self)) return replace_plain(call, self, value);
    if (!tracked && (!dycl_is_lazy(self) || !dycl_region_may_write(region, self)))
        return dycl_write_shared(call, self, NULL, 0, value, DYCL_WRITE_SMALL);
    if (dycl_lazy_describe(self, &old) < 0) return NULL;
    const dycl_value *result = dycl_call_meta(call, value);
    int same = result->dtype == old.dtype && result->rank == old.rank && result->root == value;
    for (int i = 0; same && i < old.rank; i++)
        same = result->sizes[i] == old.sizes[i] && result->strides[i] == old.strides[i];
    if (!same) return dycl_call_bail(call, DYCL_BAIL_alias);
    if (dycl_region_rebind(region, self, value) < 0) return NULL;
    if (tracked && call->keeps_result) dycl_track_mark(region, value, DYCL_TRACK_KEPT);
    region->site->stats.recorded++;
    return Py_NewRef(self);
}

PyObject *dycl_call_finish_value(dycl_call *call, dycl_status status, uint32_t value) {
    if (status == DYCL_OK) {
        if (call->in_place) return finish_in_place(call, value);
        if (call->out) return replace_plain(call, call->out, value);
        PyObject *result = dycl_region_result(call->region, value);
        const dycl_value *meta = dycl_call_meta(call, value);
        if (result && meta->root != value && made_here(call, meta->root)) dycl_lazy_of(result)->own = DYCL_OWN_COPY;
        return result;
    }
    if (status == DYCL_ERROR && !PyErr_Occurred()) dycl_py_raise();
    return NULL;
}

/* ---- Arguments */

static dycl_status bad(dycl_call *call) { return dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments); }

int dycl_call_given(PyObject *o) { return o && o != Py_None; }

dycl_status dycl_call_value(dycl_call *call, PyObject *o, uint32_t *out) {
    if (!o || !dycl_is_tensor(o)) return bad(call);
    return dycl_region_value(call->region, o, out);
}

dycl_status dycl_call_optional_value(dycl_call *call, PyObject *o, uint32_t *out) {
    if (dycl_call_given(o)) return dycl_call_value(call, o, out);
    *out = DYCL_NONE;
    return DYCL_OK;
}

dycl_status dycl_call_operand(dycl_call *call, PyObject *o, dycl_operand *out) {
    if (!o) return bad(call);
    if (dycl_is_lazy(o)) {
        out->kind = DYCL_OPERAND_VALUE;
        return dycl_region_value(call->region, o, &out->value);
    }
    if (PyFloat_CheckExact(o)) {
        *out = dycl_operand_f64(PyFloat_AS_DOUBLE(o));
        return DYCL_OK;
    }
    if (PyLong_CheckExact(o)) {
        int64_t i;
        dycl_status status = dycl_call_int(call, o, &i);
        if (status == DYCL_OK) *out = dycl_operand_i64(i);
        return status;
    }
    if (PyBool_Check(o)) {
        *out = (dycl_operand){DYCL_OPERAND_BOOL, 0, o == Py_True, 0};
        return DYCL_OK;
    }
    if (!dycl_is_tensor(o)) return dycl_numpy_operand(o, out) ? DYCL_OK : bad(call);
    *out = dycl_operand_of(0);
    return dycl_region_value(call->region, o, &out->value);
}

#define LEAST_INT (-(INT64_C(1) << 62)) /* below, c10::SymInt takes it for something else, and raises */

dycl_status dycl_call_int(dycl_call *call, PyObject *o, int64_t *out) {
    if (!o || !PyLong_CheckExact(o)) return bad(call);
    return dycl_int_value(o, out) && *out >= LEAST_INT ? DYCL_OK : bad(call);
}

dycl_status dycl_call_int_or(dycl_call *call, PyObject *o, int64_t fallback, int64_t *out) {
    if (dycl_call_given(o)) return dycl_call_int(call, o, out);
    *out = fallback;
    return DYCL_OK;
}

dycl_status dycl_call_bool_or(dycl_call *call, PyObject *o, int fallback, int *out) {
    if (!dycl_call_given(o)) {
        *out = fallback;
        return DYCL_OK;
    }
    if (!PyBool_Check(o)) return bad(call);
    *out = o == Py_True;
    return DYCL_OK;
}

dycl_status dycl_call_f64_or(dycl_call *call, PyObject *o, double fallback, double *out) {
    if (!o) {
        *out = fallback;
        return DYCL_OK;
    }
    if (PyFloat_CheckExact(o)) {
        *out = PyFloat_AS_DOUBLE(o);
        return DYCL_OK;
    }
    int64_t i;
    dycl_status status = dycl_call_int(call, o, &i);
    if (status == DYCL_OK) *out = (double)i;
    return status;
}

dycl_status dycl_call_ints(dycl_call *call, PyObject *o, int most, int *out_count, int64_t *out) {
    if (!o) return bad(call);
    if (PyLong_CheckExact(o)) {
        *out_count = 1;
        return most < 1 ? bad(call) : dycl_call_int(call, o, out);
    }
    int is_tuple = PyTuple_Check(o);
    if (!is_tuple && !PyList_CheckExact(o)) return bad(call);
    Py_ssize_t n = is_tuple ? PyTuple_GET_SIZE(o) : PyList_GET_SIZE(o);
    if (n > most) return bad(call);
    for (Py_ssize_t i = 0; i < n; i++) {
        dycl_status status = dycl_call_int(call, is_tuple ? PyTuple_GET_ITEM(o, i) : PyList_GET_ITEM(o, i), &out[i]);
        if (status != DYCL_OK) return status;
    }
    *out_count = (int)n;
    return DYCL_OK;
}

dycl_status dycl_call_pair(dycl_call *call, PyObject *o, int64_t fallback, int64_t out[2]) {
    int count;
    out[0] = out[1] = fallback;
    if (!dycl_call_given(o)) return DYCL_OK;
    dycl_status status = dycl_call_ints(call, o, 2, &count, out);
    if (status != DYCL_OK) return status;
    if (count == 0) return bad(call);
    if (count == 1) out[1] = out[0];
    return DYCL_OK;
}

dycl_status dycl_call_dim(dycl_call *call, PyObject *o, int rank, int *out) {
    int64_t dim = 0;
    dycl_status status = dycl_call_int(call, o, &dim);
    if (status != DYCL_OK) return status;
    int64_t limit = rank ? rank : 1;
    if (dim < -limit || dim >= limit)
        return dycl_build_bail(&call->region->recorder, DYCL_BAIL_shape); /* torch raises */
    *out = (int)(dim < 0 ? dim + limit : dim);
    return DYCL_OK;
}

dycl_status dycl_call_dtype_or(dycl_call *call, PyObject *o, dycl_dtype fallback, dycl_dtype *out) {
    *out = fallback;
    if (!dycl_call_given(o)) return DYCL_OK;
    if (!dycl_dtype_from_object(o, out)) return dycl_build_bail(&call->region->recorder, DYCL_BAIL_dtype);
    return DYCL_OK;
}

int dycl_call_common_sizes(const dycl_call *call, int count, const uint32_t *values, int64_t *sizes) {
    int rank = 0;
    for (int i = 0; i < count; i++)
        if (dycl_call_meta(call, values[i])->rank > rank) rank = dycl_call_meta(call, values[i])->rank;
    for (int d = 0; d < rank; d++) sizes[d] = 1;
    for (int i = 0; i < count; i++) {
        const dycl_value *v = dycl_call_meta(call, values[i]);
        for (int d = 0; d < v->rank; d++) {
            int64_t *size = &sizes[rank - v->rank + d];
            if (*size == 1) *size = v->sizes[d];
        }
    }
    return rank;
}

/* ---- Running a row */

PyObject *dycl_binding_settle(dycl_call *call, PyObject *result) {
    if (result && dycl_region_settle(call->region) < 0) Py_CLEAR(result);
    return result;
}

/* o, or what is in it, if the view shows a part of it. first: the first tensor that has no value here. Borrowed */
static PyObject *shown(const dycl_call *call, uint32_t root, PyObject *o, PyObject **first) {
    int is_list = PyList_CheckExact(o);
    if (dycl_is_tensor(o)) {
        const dycl_lazy *lazy = dycl_is_lazy(o) ? dycl_lazy_of(o) : NULL;
        int pending = lazy && !lazy->real && lazy->region == call->region && lazy->epoch == call->region->epoch;
        if (pending) return dycl_call_meta(call, lazy->value)->root == root ? o : NULL;
        if (!*first) *first = o;
        return NULL;
    }
    for (Py_ssize_t i = 0; (is_list || PyTuple_CheckExact(o)) && i < Py_SIZE(o); i++) {
        PyObject *found = shown(call, root, is_list ? PyList_GET_ITEM(o, i) : PyTuple_GET_ITEM(o, i), first);
        if (found) return found;
    }
    return NULL;
}

/* The operand that a view shows a part of, wherever the program put it. Borrowed */
static PyObject *viewed(const dycl_call *call, uint32_t root) {
    Py_ssize_t named = call->kwnames ? PyTuple_GET_SIZE(call->kwnames) : 0, at = 0;
    PyObject *first = NULL, *found = NULL, *value;
    for (Py_ssize_t i = 0; i < call->count + named && !found; i++) found = shown(call, root, call->args[i], &first);
    while (call->kwdict && !found && PyDict_Next(call->kwdict, &at, NULL, &value))
        found = shown(call, root, value, &first);
    return found ? found : first;
}

static void view_made(const dycl_call *call, PyObject *o) {
    if (!dycl_is_lazy(o)) return;
    const dycl_lazy *lazy = dycl_lazy_of(o);
    if (lazy->real || lazy->region != call->region || lazy->epoch != call->region->epoch) return;
    const dycl_value *v = dycl_call_meta(call, lazy->value);
    if (v->root == lazy->value && v->kind == DYCL_VALUE_NODE) return;
    dycl_lazy_made_of(o, viewed(call, v->root));
}

__attribute__((noinline)) void dycl_call_made_views(const dycl_call *call, PyObject *result) {
    if (!PyTuple_CheckExact(result)) {
        view_made(call, result);
        return;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(result); i++) view_made(call, PyTuple_GET_ITEM(result, i));
}

PyObject *dycl_call_track(dycl_call *call, int whole, PyObject *result) {
    if (__builtin_expect(call->region->recorder.made_view, 0)) {
        call->region->recorder.made_view = 0;
        if (result) dycl_call_made_views(call, result);
    }
    if (!result || !call->region->tracks) return result;
    if (dycl_track_lets(call->region, dycl_call_first(call), whole)) {
        dycl_call_note(call, result);
        return result;
    }
    Py_DECREF(result);
    return dycl_call_bail(call, DYCL_BAIL_grad);
}

void dycl_call_note(const dycl_call *call, PyObject *result) {
    PyObject *turned[2];
    uint32_t before = call->epoch == call->region->epoch ? call->before : DYCL_NONE;
    dycl_made_call made = {.callable = call->callable,
                           .args = call->args,
                           .count = call->count,
                           .kwnames = call->kwnames,
                           .kwdict = call->kwdict,
                           .before = before,
                           .first_value = dycl_call_first(call)};
    if (call->swapped) {
        turned[0] = call->args[1];
        turned[1] = call->args[0];
        made.args = turned;
    }
    dycl_called_note(call->region, &made, result);
}

PyObject *dycl_binding_bind(const dycl_binding *row, dycl_call *call) {
    call->whole = row->whole;
    dycl_collect_hold(); /* a finalizer could end the segment whose values the call has */
    PyObject *result = dycl_call_track(call, row->whole, row->bind(call, row));
    if (__builtin_expect(call->drawn_from != NULL, 0)) result = dycl_noise_undraw(call, result);
    dycl_collect_release();
    return result;
}

PyObject *dycl_binding_run(const dycl_binding *row, dycl_call *call) {
    if (!dycl_call_parse(call, row)) return dycl_call_bail(call, DYCL_BAIL_arguments);
    PyObject *result = dycl_binding_bind(row, call);
    if (call->out && result && result != call->out) { /* this binding makes its result in another way */
        Py_DECREF(result);
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    }
    return dycl_binding_settle(call, result);
}

PyObject *dycl_binding_record(const dycl_binding *row, dycl_region *region, PyObject *const *args, Py_ssize_t count,
                              PyObject *kwnames, PyObject *kwdict, int in_place, int swapped) {
    dycl_call call;
    PyObject *turned[2];
    dycl_call_begin(&call, region, args, count, in_place);
    call.kwnames = kwnames;
    call.kwdict = kwdict;
    if (swapped) {
        if (count != 2) return dycl_call_bail(&call, DYCL_BAIL_arguments); /* x.__rsub__(other=y) */
        turned[0] = args[1];
        turned[1] = args[0];
        call.args = turned;
        call.before = DYCL_NONE;
        call.swapped = 1;
    }
    return dycl_binding_run(row, &call);
}
