#include "py/region/called_log.h"
#include "py/region/grow.h"
#include "py/region/track.h"

dycl_called_functions dycl_called_python;

int dycl_called_set(PyObject *name, PyObject *operand, PyObject *view, PyObject *show) {
    Py_XSETREF(dycl_called_python.name, Py_NewRef(name));
    Py_XSETREF(dycl_called_python.operand, Py_NewRef(operand));
    Py_XSETREF(dycl_called_python.view, Py_NewRef(view));
    Py_XSETREF(dycl_called_python.show, Py_NewRef(show));
    return 0;
}

/* ---- Noting */

static dycl_status add_word(dycl_called_log *l, uint64_t word) {
    DYCL_GROW(l->words, l->word_room, l->word_count + 1);
    l->words[l->word_count++] = word;
    return DYCL_OK;
}

/* It can be kept without anybody seeing that it lives longer. */
static int is_simple(const PyObject *o) {
    const PyTypeObject *type = Py_TYPE(o);
    return o == Py_None || o == Py_Ellipsis || type == &PyFloat_Type || type == &PyLong_Type || type == &PyBool_Type ||
           type == &PyUnicode_Type || type == &PyComplex_Type || type == &PyRange_Type || type == dycl_py.dtype_type ||
           type == dycl_py.memory_format_type || type == dycl_py.device_type || type == dycl_py.layout_type ||
           dycl_py_is_numpy_scalar(o);
}

static int is_simple_slice(const PyObject *o) {
    const PySliceObject *slice = (const PySliceObject *)o;
    return PySlice_Check(o) && is_simple(slice->start) && is_simple(slice->stop) && is_simple(slice->step);
}

static uint64_t value_word(uint32_t value) { return (uint64_t)value << 3 | DYCL_WORD_VALUE; }

static dycl_status add_looks(dycl_called_log *l, PyObject *tensor) {
    dycl_tensor_view v;
    dycl_status status;
    if (!dycl_abi_read(dycl_abi_borrow(tensor), &v) || v.rank > DYCL_MAX_RANK) return add_word(l, DYCL_WORD_UNKNOWN);
    int history = dycl_abi_requires_grad(tensor) != 0;
    DYCL_TRY(add_word(l, (uint64_t)history << 32 | (uint64_t)v.dtype << 16 | (uint64_t)v.rank << 3 | DYCL_WORD_LOOKS));
    for (int i = 0; i < v.rank; i++) DYCL_TRY(add_word(l, (uint64_t)v.sizes[i] << 3 | DYCL_WORD_SIZE));
    for (int i = 0; i < v.rank; i++) DYCL_TRY(add_word(l, (uint64_t)v.strides[i] << 3 | DYCL_WORD_SIZE));
    return DYCL_OK;
fail:
    return status;
}

static dycl_status add_tensor(dycl_region *region, dycl_called_log *l, PyObject *o) {
    uint32_t value;
    if (dycl_is_lazy(o)) {
        const dycl_lazy *lazy = dycl_lazy_of(o);
        int is_here = lazy->region == region && lazy->epoch == region->epoch;
        return add_word(l, is_here ? value_word(lazy->value) : DYCL_WORD_UNKNOWN);
    }
    return dycl_region_fed(region, o, &value) ? add_word(l, value_word(value)) : add_looks(l, o);
}

static dycl_status add(dycl_region *region, dycl_called_log *l, PyObject *o, int depth) {
    dycl_status status;
    if (dycl_is_tensor(o)) return add_tensor(region, l, o);
    int is_list = PyList_CheckExact(o);
    if (depth < 3 && (is_list || PyTuple_CheckExact(o) || Py_TYPE(o) == dycl_py.size_type)) {
        Py_ssize_t n = Py_SIZE(o);
        DYCL_TRY(add_word(l, (uint64_t)n << 3 | (is_list ? DYCL_WORD_LIST : DYCL_WORD_TUPLE)));
        for (Py_ssize_t i = 0; i < n; i++)
            DYCL_TRY(add(region, l, is_list ? PyList_GET_ITEM(o, i) : PyTuple_GET_ITEM(o, i), depth + 1));
        return DYCL_OK;
    }
    if (!is_simple_slice(o) && !is_simple(o)) return add_word(l, DYCL_WORD_UNKNOWN);
    DYCL_TRY(add_word(l, (uint64_t)(uintptr_t)o));
    Py_INCREF(o);
    return DYCL_OK;
fail:
    return status;
}

static PyObject *by_name(const dycl_made_call *call, PyObject *name) { /* borrowed */
    for (Py_ssize_t i = 0; call->kwnames && i < PyTuple_GET_SIZE(call->kwnames); i++)
        if (PyTuple_GET_ITEM(call->kwnames, i) == name) return call->args[call->count + i];
    return call->kwdict ? PyDict_GetItem(call->kwdict, name) : NULL;
}

/* Of the arguments that have one, the operand's first, wherever the program put it. New reference, or NULL */
static PyObject *names_of(const dycl_made_call *call) {
    PyObject *names = call->kwnames ? Py_NewRef(call->kwnames) : PySequence_Tuple(call->kwdict);
    Py_ssize_t count = names ? PyTuple_GET_SIZE(names) : 0, at = 1;
    while (at < count && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, at), "input") != 0) at++;
    if (call->count || at >= count) return names;
    PyObject *moved = PyTuple_New(count);
    for (Py_ssize_t i = 0; moved && i < count; i++) {
        Py_ssize_t from = i == 0 ? at : i == at ? 0 : i;
        PyTuple_SET_ITEM(moved, i, Py_NewRef(PyTuple_GET_ITEM(names, from)));
    }
    Py_DECREF(names);
    return moved;
}

static dycl_status add_arguments(dycl_region *region, dycl_called_log *l, const dycl_made_call *call, dycl_called *c) {
    dycl_status status;
    for (Py_ssize_t i = 0; i < call->count; i++) {
        if (i == 0 && call->before != DYCL_NONE)
            DYCL_TRY(add_word(l, value_word(call->before)));
        else
            DYCL_TRY(add(region, l, call->args[i], 0));
    }
    c->positional = (uint32_t)call->count;
    if (!call->kwnames && !call->kwdict) return DYCL_OK;
    if (!(c->names = names_of(call))) return DYCL_ERROR;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(c->names); i++)
        DYCL_TRY(add(region, l, by_name(call, PyTuple_GET_ITEM(c->names, i)), 0));
    return DYCL_OK;
fail:
    return status;
}

static void drop_words(const dycl_called_log *l, uint32_t from) {
    for (uint32_t i = from; i < l->word_count; i++)
        if ((l->words[i] & DYCL_WORD_TAG) == DYCL_WORD_OBJECT) Py_DECREF((PyObject *)(uintptr_t)l->words[i]);
}

/* Where the segment began within the call, what an operand was before is not known, but then it fed it. */
static int was_written(const dycl_region *region, const dycl_made_call *call, PyObject *operand) {
    if (!dycl_is_lazy(operand)) return 0;
    const dycl_lazy *lazy = dycl_lazy_of(operand);
    if (lazy->region != region || lazy->epoch != region->epoch) return 0;
    int fed = region->recorder.graph.values[lazy->value].kind != DYCL_VALUE_NODE;
    if (!call->count || operand != call->args[0]) return lazy->value >= call->first_value && !fed;
    return lazy->value != call->before && (call->before != DYCL_NONE || !fed);
}

static int is_operand(const dycl_made_call *call, PyObject *o) {
    Py_ssize_t named = call->kwnames ? PyTuple_GET_SIZE(call->kwnames) : 0, at = 0;
    for (Py_ssize_t i = 0; i < call->count + named; i++)
        if (call->args[i] == o) return 1;
    for (PyObject *value; call->kwdict && PyDict_Next(call->kwdict, &at, NULL, &value);)
        if (value == o) return 1;
    return 0;
}

static int came_back(const dycl_region *region, const dycl_made_call *call, PyObject *o) {
    return is_operand(call, o) && !was_written(region, call, o);
}

/* What a result was made by: the tensor knows, and its value, of which there may be several tensors. */
static dycl_status mark(dycl_region *region, dycl_called_log *l, PyObject *o, const dycl_made_call *call, uint32_t nth,
                        int own) {
    if (!dycl_is_lazy(o)) return DYCL_OK;
    if (!own && came_back(region, call, o)) return DYCL_OK;
    dycl_lazy *lazy = dycl_lazy_of(o);
    if (lazy->real || lazy->region != region || lazy->epoch != region->epoch) return DYCL_OK;
    uint32_t values = region->recorder.graph.value_count;
    DYCL_GROW(l->by, l->by_room, values);
    DYCL_GROW(l->nth, l->nth_room, values);
    for (; l->by_count < values; l->by_count++) l->by[l->by_count] = 0;
    lazy->called = l->count + 1;
    lazy->called_nth = nth;
    if (!l->by[lazy->value] || own) {
        l->by[lazy->value] = lazy->called;
        l->nth[lazy->value] = nth;
    }
    return DYCL_OK;
}

static dycl_status mark_all(dycl_region *region, dycl_called_log *l, PyObject *o, const dycl_made_call *call,
                            uint32_t *nth) {
    dycl_status status;
    if (dycl_is_tensor(o)) return mark(region, l, o, call, (*nth)++, 0);
    int is_list = PyList_CheckExact(o);
    for (Py_ssize_t i = 0; (is_list || PyTuple_Check(o)) && i < Py_SIZE(o); i++)
        DYCL_TRY(mark_all(region, l, is_list ? PyList_GET_ITEM(o, i) : PyTuple_GET_ITEM(o, i), call, nth));
    return DYCL_OK;
fail:
    return status;
}

static int any_history(const dycl_region *region, PyObject *o) {
    if (dycl_is_lazy(o)) {
        const dycl_lazy *lazy = dycl_lazy_of(o);
        return lazy->region == region && lazy->epoch == region->epoch && dycl_track_has(region, lazy->value);
    }
    int is_list = PyList_CheckExact(o);
    for (Py_ssize_t i = 0; (is_list || PyTuple_Check(o)) && i < Py_SIZE(o); i++)
        if (any_history(region, is_list ? PyList_GET_ITEM(o, i) : PyTuple_GET_ITEM(o, i))) return 1;
    return 0;
}

/* The operand that an operator in place writes, by place or by name. Borrowed */
static PyObject *first_operand(const dycl_made_call *call) {
    if (call->count) return call->args[0];
    PyObject *names = call->kwnames || call->kwdict ? names_of(call) : NULL;
    PyObject *found = names && PyTuple_GET_SIZE(names) ? by_name(call, PyTuple_GET_ITEM(names, 0)) : NULL;
    if (!names) PyErr_Clear();
    Py_XDECREF(names);
    return found;
}

static dycl_status note(dycl_region *region, dycl_called_log *l, const dycl_made_call *call, PyObject *result) {
    dycl_status status;
    uint32_t first = l->word_count, nth = 0;
    dycl_called c = {.callable = call->callable, .first = first};
    PyObject *written = first_operand(call);
    DYCL_GROW(l->calls, l->room, l->count + 1);
    c.in_place = written && (result == Py_None || result == written); /* as it was: it is not noted */
    DYCL_TRY(add_arguments(region, l, call, &c));
    if (c.in_place)
        DYCL_TRY(mark(region, l, written, call, 0, 1));
    else
        DYCL_TRY(mark_all(region, l, result, call, &nth));
    c.count = l->word_count - first;
    l->calls[l->count++] = c;
    return DYCL_OK;
fail:
    Py_XDECREF(c.names);
    drop_words(l, first);
    l->word_count = first;
    return status;
}

void dycl_called_note(dycl_region *region, const dycl_made_call *call, PyObject *result) {
    if (!region->tracks || !call->callable) return;
    if (result != Py_None && (!any_history(region, result) || came_back(region, call, result))) return;
    if (!region->called && !(region->called = dycl_alloc_zero(sizeof *region->called))) return;
    if (note(region, region->called, call, result) != DYCL_OK) PyErr_Clear();
}

static dycl_status say(dycl_region *region, PyObject *lazy, PyObject *name) {
    dycl_called_log *l = region->called;
    const dycl_made_call none = {.before = DYCL_NONE};
    dycl_status status;
    DYCL_GROW(l->calls, l->room, l->count + 1);
    DYCL_TRY(mark(region, l, lazy, &none, 0, 1));
    l->calls[l->count++] = (dycl_called){.name = Py_NewRef(name), .first = l->word_count};
    return DYCL_OK;
fail:
    return status;
}

void dycl_called_say(dycl_region *region, PyObject *lazy, PyObject *name) {
    if (!region->tracks || !dycl_is_lazy(lazy)) return;
    if (!region->called && !(region->called = dycl_alloc_zero(sizeof *region->called))) return;
    if (say(region, lazy, name) != DYCL_OK) PyErr_Clear();
}

dycl_called_log *dycl_called_take(dycl_region *region) {
    dycl_called_log *taken = region->called;
    region->called = NULL;
    return taken;
}

void dycl_called_free(dycl_called_log *l) {
    if (!l) return;
    drop_words(l, 0);
    for (uint32_t i = 0; i < l->count; i++) {
        Py_XDECREF(l->calls[i].name);
        Py_XDECREF(l->calls[i].names);
        Py_XDECREF(l->calls[i].made);
    }
    dycl_free(l->calls);
    dycl_free(l->words);
    dycl_free(l->by);
    dycl_free(l->nth);
    dycl_free(l);
}

uint32_t dycl_called_of(const dycl_region *region, uint32_t value) {
    const dycl_called_log *l = region->called;
    return l && value < l->by_count ? l->by[value] : 0;
}

/* ---- Calling again */

typedef struct {
    const dycl_region *region;
    const dycl_called *call;
    PyObject *self; /* stands for the first operand; NULL: as the others */
    uint32_t next;  /* word */
    int bare;       /* operands that have no values, only a shape: what torch is asked with */
} reader;

static PyObject *stand_in(const reader *r, int dtype, int rank, const int64_t *sizes, const int64_t *strides,
                          int history, int written) {
    PyObject *a = dycl_py_ints(rank, sizes), *b = dycl_py_ints(rank, strides), *o = NULL;
    if (a && b)
        o = PyObject_CallFunction(dycl_called_python.operand, "OOOiii", dycl_py.dtypes[dtype], a, b, history, r->bare,
                                  written);
    Py_XDECREF(a);
    Py_XDECREF(b);
    return o;
}

static PyObject *of_value(const reader *r, uint32_t value, int first) {
    const dycl_value *v = &r->region->recorder.graph.values[value];
    if (!r->bare && v->kind == DYCL_VALUE_FEED) { /* its elements may say which view it is (x[i], of a tensor i) */
        const dycl_source *source = &r->region->sources[v->source];
        return source->object ? Py_NewRef(source->object) : dycl_abi_wrap(source->handle);
    }
    return stand_in(r, v->dtype, v->rank, v->sizes, v->strides, dycl_track_has(r->region, value),
                    first && r->call->in_place);
}

static PyObject *of_looks(reader *r, uint64_t word) {
    int64_t sizes[DYCL_MAX_RANK], strides[DYCL_MAX_RANK];
    int rank = (int)(word >> 3 & 0xff);
    for (int i = 0; i < rank; i++) sizes[i] = (int64_t)(r->region->called->words[r->next++] >> 3);
    for (int i = 0; i < rank; i++) strides[i] = (int64_t)(r->region->called->words[r->next++] >> 3);
    return stand_in(r, (int)(word >> 16 & 0xff), rank, sizes, strides, (int)(word >> 32 & 1), 0);
}

static PyObject *read_argument(reader *r, int first) {
    uint64_t word = r->region->called->words[r->next++];
    uint32_t n = (uint32_t)(word >> 3);
    switch (word & DYCL_WORD_TAG) {
    case DYCL_WORD_OBJECT: return Py_NewRef((PyObject *)(uintptr_t)word);
    case DYCL_WORD_VALUE: return of_value(r, n, first);
    case DYCL_WORD_LOOKS: return of_looks(r, word);
    case DYCL_WORD_LIST:
    case DYCL_WORD_TUPLE: break;
    default: PyErr_SetString(PyExc_LookupError, "an argument that was not kept"); return NULL;
    }
    int is_list = (word & DYCL_WORD_TAG) == DYCL_WORD_LIST;
    PyObject *o = is_list ? PyList_New(n) : PyTuple_New(n);
    for (uint32_t i = 0; o && i < n; i++) {
        PyObject *item = read_argument(r, 0);
        if (!item)
            Py_CLEAR(o);
        else if (is_list)
            PyList_SET_ITEM(o, i, item);
        else
            PyTuple_SET_ITEM(o, i, item);
    }
    return o;
}

PyObject *dycl_called_arguments(const dycl_region *region, const dycl_called *c, PyObject *self, int bare) {
    reader state = {region, c, self, c->first, bare}, *r = &state;
    PyObject *args = PyTuple_New(c->positional), *kwargs = PyDict_New(), *both = NULL;
    for (uint32_t i = 0; args && i < c->positional; i++) {
        int given = i == 0 && r->self;
        PyObject *o = given ? Py_NewRef(r->self) : read_argument(r, i == 0);
        if (given) r->next++;
        if (!o)
            Py_CLEAR(args);
        else
            PyTuple_SET_ITEM(args, i, o);
    }
    for (Py_ssize_t i = 0; args && kwargs && c->names && i < PyTuple_GET_SIZE(c->names); i++) {
        int given = i == 0 && !c->positional && r->self; /* the operand by name */
        PyObject *o = given ? Py_NewRef(r->self) : read_argument(r, i == 0 && !c->positional);
        if (given) r->next++;
        if (!o || PyDict_SetItem(kwargs, PyTuple_GET_ITEM(c->names, i), o) < 0) Py_CLEAR(kwargs);
        Py_XDECREF(o);
    }
    if (args && kwargs) both = PyTuple_Pack(2, args, kwargs);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return both;
}
