/* Names of nodes (called.h). */
#include "py/region/called_log.h"
#include "py/region/grow.h"
#include "py/region/track.h"

static PyObject *known; /* owned: from a kind of call to its name */

typedef struct {
    uint64_t *words;
    uint32_t count, room;
} key;

static dycl_status put(key *k, uint64_t word) {
    DYCL_GROW(k->words, k->room, k->count + 1);
    k->words[k->count++] = word;
    return DYCL_OK;
}

static dycl_status put_value(key *k, const dycl_region *region, uint32_t value) {
    const dycl_value *v = &region->recorder.graph.values[value];
    dycl_status status;
    DYCL_TRY(put(k, (uint64_t)v->rank << 16 | (uint64_t)v->dtype << 8 | (uint64_t)dycl_track_has(region, value)));
    for (int i = 0; i < v->rank; i++) {
        DYCL_TRY(put(k, (uint64_t)v->sizes[i]));
        DYCL_TRY(put(k, (uint64_t)v->strides[i]));
    }
    return DYCL_OK;
fail:
    return status;
}

/* Numbers count by what a name may hang on: which integer, and of others whether they are none, one or neither. */
static dycl_status put_object(key *k, PyObject *o) {
    dycl_status status;
    DYCL_TRY(put(k, (uint64_t)(uintptr_t)Py_TYPE(o)));
    if (PyFloat_CheckExact(o)) {
        double x = PyFloat_AS_DOUBLE(o);
        return put(k, x == 0 ? 0 : x == 1 ? 1 : 2);
    }
    if (PySlice_Check(o)) {
        const PySliceObject *slice = (const PySliceObject *)o;
        DYCL_TRY(put_object(k, slice->start));
        DYCL_TRY(put_object(k, slice->stop));
        return put_object(k, slice->step);
    }
    Py_hash_t hash = PyObject_Hash(o);
    return hash == -1 && PyErr_Occurred() ? DYCL_ERROR : put(k, (uint64_t)hash);
fail:
    return status;
}

static dycl_status put_call(key *k, const dycl_region *region, const dycl_called_log *l, const dycl_called *c,
                            uint32_t nth) {
    dycl_status status;
    DYCL_TRY(put(k, (uint64_t)(uintptr_t)c->callable));
    DYCL_TRY(put(k, (uint64_t)c->positional << 40 | (uint64_t)nth << 1 | (uint64_t)c->in_place));
    for (Py_ssize_t i = 0; c->names && i < PyTuple_GET_SIZE(c->names); i++)
        DYCL_TRY(put_object(k, PyTuple_GET_ITEM(c->names, i)));
    for (uint32_t i = 0; i < c->count; i++) {
        uint64_t word = l->words[c->first + i];
        if ((word & DYCL_WORD_TAG) == DYCL_WORD_VALUE)
            DYCL_TRY(put_value(k, region, (uint32_t)(word >> 3)));
        else if ((word & DYCL_WORD_TAG) == DYCL_WORD_OBJECT)
            DYCL_TRY(put_object(k, (PyObject *)(uintptr_t)word));
        else
            DYCL_TRY(put(k, word));
    }
    return DYCL_OK;
fail:
    return status;
}

#define MOST_KNOWN 4096

static PyObject *ask(dycl_region *region, const dycl_called *c, uint32_t nth) {
    int state = dycl_abi_torch_function_off();
    PyObject *both = dycl_called_arguments(region, c, NULL, 1), *name = NULL;
    if (both) name = PyObject_CallFunction(dycl_called_python.name, "OOIi", c->callable, both, nth, c->in_place);
    dycl_abi_torch_function_restore(state);
    Py_XDECREF(both);
    if (name) return name;
    dycl_region_put_off(region); /* the node keeps our name */
    Py_RETURN_NONE;
}

PyObject *dycl_called_name(dycl_region *region, uint32_t index, uint32_t nth) {
    const dycl_called_log *l = region->called;
    const dycl_called *c = &l->calls[index];
    key k = {NULL, 0, 0};
    PyObject *name = NULL, *bytes = NULL;
    if (index >= l->count) Py_RETURN_NONE; /* there was no memory to keep it */
    if (c->name) return Py_NewRef(c->name);
    if (!known && !(known = PyDict_New())) return NULL;
    if (put_call(&k, region, l, c, nth) == DYCL_OK)
        bytes = PyBytes_FromStringAndSize((const char *)k.words, (Py_ssize_t)(k.count * sizeof *k.words));
    dycl_free(k.words);
    if (bytes) name = Py_XNewRef(PyDict_GetItem(known, bytes));
    PyErr_Clear();
    if (name) {
        Py_DECREF(bytes);
        return name;
    }
    name = ask(region, c, nth);
    if (PyDict_GET_SIZE(known) >= MOST_KNOWN) PyDict_Clear(known);
    if (bytes && PyDict_SetItem(known, bytes, name) < 0) PyErr_Clear();
    Py_XDECREF(bytes);
    return name;
}

/* ((name, which output), which call), or None */
static PyObject *seen_as(dycl_region *region, uint32_t result) {
    uint32_t called = 0, nth = 0; /* while torch is asked, other threads may let go of the object */
    for (PyObject *o = region->called && dycl_called_python.name ? region->first : NULL; o && !called;
         o = dycl_lazy_of(o)->next) {
        const dycl_lazy *lazy = dycl_lazy_of(o);
        if (lazy->real || lazy->epoch != region->epoch || lazy->value != result) continue;
        called = lazy->called;
        nth = lazy->called_nth;
    }
    PyObject *name = called ? dycl_called_name(region, called - 1, nth) : Py_NewRef(Py_None);
    if (!name || name == Py_None) return name;
    return Py_BuildValue("(NI)", name, called);
}

PyObject *dycl_called_names(dycl_region *region, const uint32_t *results, uint32_t count) {
    PyObject *names = PyTuple_New(count);
    for (uint32_t i = 0; names && i < count; i++) {
        PyObject *name = seen_as(region, results[i]);
        if (!name)
            Py_CLEAR(names);
        else
            PyTuple_SET_ITEM(names, i, name);
    }
    return names;
}

/* What results depend on. NULL with an exception. */
static uint8_t *needed_by_results(const dycl_region *region) {
    const dycl_graph *graph = &region->recorder.graph;
    uint8_t *needed = dycl_alloc_zero(graph->value_count + 1);
    if (!needed) PyErr_NoMemory();
    for (uint32_t n = needed ? graph->node_count : 0; n-- > 0;) {
        const dycl_node *node = &graph->nodes[n];
        if (!needed[node->out] && !region->output_of[node->out]) continue;
        for (int i = 0; i < node->operand_count; i++)
            if (dycl_node_operands(graph, node)[i] != DYCL_NONE) needed[dycl_node_operands(graph, node)[i]] = 1;
    }
    return needed;
}

/* Names of results with a history that others depend on (between: 1) or that none does (0), None for all others. NULL
 * with an exception. */
static PyObject *names_where(dycl_region *region, const uint32_t *values, uint32_t count, int between) {
    uint8_t *needed = needed_by_results(region);
    PyObject *names = needed ? dycl_called_names(region, values, count) : NULL;
    for (uint32_t i = 0; names && i < count; i++)
        if (needed[values[i]] != between || !dycl_track_has(region, values[i]))
            PyTuple_SetItem(names, i, Py_NewRef(Py_None));
    dycl_free(needed);
    return names;
}

PyObject *dycl_called_names_between(dycl_region *region, const uint32_t *values, uint32_t count) {
    return names_where(region, values, count, 1);
}

int dycl_called_show(dycl_region *region, const uint32_t *values, dycl_handle *handles, uint32_t count) {
    PyObject *names = names_where(region, values, count, 0), *tensors = PyTuple_New(count), *shown = NULL;
    int result = names && tensors && dycl_called_python.show ? 0 : -1;
    for (uint32_t i = 0; i < count && result == 0; i++) {
        PyObject *o = dycl_abi_wrap(handles[i]);
        if (o)
            PyTuple_SET_ITEM(tensors, i, o);
        else
            result = -1;
    }
    int state = dycl_abi_torch_function_off();
    if (result == 0) shown = PyObject_CallFunctionObjArgs(dycl_called_python.show, tensors, names, NULL);
    dycl_abi_torch_function_restore(state);
    for (uint32_t i = 0; i < count && shown; i++) {
        dycl_handle handle = dycl_abi_copy_handle(dycl_abi_borrow(PyTuple_GET_ITEM(shown, i)));
        if (!handle) continue; /* it shows what it has */
        dycl_abi_delete(handles[i]);
        handles[i] = handle;
    }
    Py_XDECREF(names);
    Py_XDECREF(tensors);
    Py_XDECREF(shown);
    return shown ? 0 : -1;
}
