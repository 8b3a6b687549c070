#include "py/entry/update.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ir/infer.h"
#include "kern/update.h"
#include "py/cpython/collect.h"
#include "py/cpython/dict.h"
#include "py/cpython/error.h"
#include "py/cpython/type.h"
#include "py/entry/numbers.h"
#include "py/region/grow.h"
#include "py/region/region.h"
#include "py/torch/abi.h"

/* ---- Which classes are served */

static PyObject *served; /* owned: class -> ((module's dict or class, name, function, its code), ...) */

/* place: a module's dict, or a class. Borrowed. */
static PyObject *function_at(PyObject *place, PyObject *name) {
    if (PyType_Check(place)) return dycl_type_lookup((PyTypeObject *)place, name);
    return PyDict_Check(place) ? PyDict_GetItemWithError(place, name) : NULL;
}

/* None where it is not written in Python. Borrowed. */
static PyObject *code_of(PyObject *function) {
    return PyFunction_Check(function) ? PyFunction_GET_CODE(function) : Py_None;
}

int dycl_update_serve(PyObject *classes) {
    PyObject *key, *functions, *made = PyDict_New();
    Py_ssize_t at = 0;
    if (!made || dycl_numbers_setup() < 0 || !PyDict_Check(classes)) goto fail;
    while (PyDict_Next(classes, &at, &key, &functions)) {
        Py_ssize_t count = PyTuple_GET_SIZE(functions);
        PyObject *known = PyTuple_New(count);
        for (Py_ssize_t i = 0; known && i < count; i++) {
            PyObject *place, *name, *row = NULL;
            if (PyArg_ParseTuple(PyTuple_GET_ITEM(functions, i), "OU", &place, &name)) {
                PyObject *function = function_at(place, name);
                if (function) row = PyTuple_Pack(4, place, name, function, code_of(function));
            }
            if (!row) Py_CLEAR(known);
            if (row) PyTuple_SET_ITEM(known, i, row);
        }
        int failed = !known || PyDict_SetItem(made, key, known) < 0;
        Py_XDECREF(known);
        if (failed) goto fail;
    }
    Py_XSETREF(served, made);
    return 0;
fail:
    Py_XDECREF(made);
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "classes and their functions");
    return -1;
}

/* torch.compile, once used, puts a wrapper that hides a function from the compiler in the function's place, for good.
 */
static int hides(PyObject *wrapper, PyObject *function) {
    PyObject *hidden = wrapper ? PyObject_GetAttrString(wrapper, "_torchdynamo_orig_callable") : NULL;
    if (!hidden) PyErr_Clear();
    Py_XDECREF(hidden); /* the wrapper has it */
    return hidden == function;
}

static int is_served(PyTypeObject *type) {
    PyObject *functions = served ? PyDict_GetItemWithError(served, (PyObject *)type) : NULL;
    for (Py_ssize_t i = 0; functions && i < PyTuple_GET_SIZE(functions); i++) {
        PyObject *row = PyTuple_GET_ITEM(functions, i), *known = PyTuple_GET_ITEM(row, 2);
        PyObject *found = function_at(PyTuple_GET_ITEM(row, 0), PyTuple_GET_ITEM(row, 1));
        if (found != known && !hides(found, known)) return 0;
        if (code_of(known) != PyTuple_GET_ITEM(row, 3)) return 0;
    }
    return functions != NULL;
}

/* ---- What a step is made of */

typedef struct {
    uint64_t storage;
    int written;
} place;

typedef struct {
    const char *first, *last;
    int written;
} range;

typedef struct {
    float *at;                                 /* of its step's tensor; NULL: it has none */
    const char *impls[2 + DYCL_UPDATE_STATES]; /* parameter, step, states */
    uint8_t writes[2 + DYCL_UPDATE_STATES];    /* that torch's operators would count */
} written;

typedef struct collection {
    dycl_update_item *items;
    written *written;
    range *ranges;
    place *places; /* open addressing, a power of two */
    dycl_update_numbers *numbers;
    PyObject **held; /* owned */
    uint32_t item_room, written_room, range_room, place_room, number_room, held_room;
    uint32_t item_count, range_count, place_count, number_count, held_count;
    int meets; /* two tensors may have memory in common, and one of them is written */
    struct collection *next;
} collection;

static collection *spare; /* with the GIL held */

static collection *take(void) {
    collection *c = spare;
    if (!c) return dycl_alloc_zero(sizeof *c);
    spare = c->next;
    memset(c->places, 0, c->place_room * sizeof *c->places);
    c->item_count = c->range_count = c->place_count = c->number_count = 0;
    c->meets = 0;
    return c;
}

static void give(collection *c) {
    for (uint32_t i = 0; i < c->held_count; i++) Py_DECREF(c->held[i]); /* may run Python code */
    c->held_count = 0;
    c->next = spare;
    spare = c;
}

static place *find_place(const collection *c, uint64_t storage) {
    uint32_t mask = c->place_room - 1, at = (uint32_t)((storage * UINT64_C(0x9e3779b97f4a7c15)) >> 40) & mask;
    while (c->places[at].storage && c->places[at].storage != storage) at = (at + 1) & mask;
    return &c->places[at];
}

static dycl_status grow_places(collection *c) {
    place *old = c->places;
    uint32_t old_room = c->place_room, room = old_room ? 2 * old_room : 256;
    place *next = dycl_alloc_zero(room * sizeof *next);
    if (!next) {
        PyErr_NoMemory();
        return DYCL_ERROR;
    }
    c->places = next;
    c->place_room = room;
    for (uint32_t i = 0; i < old_room; i++)
        if (old[i].storage) *find_place(c, old[i].storage) = old[i];
    dycl_free(old);
    return DYCL_OK;
}

static dycl_status note_memory(collection *c, const char *impl, const void *data, int64_t count, int is_written) {
    if (2 * (c->place_count + 1) > c->place_room && grow_places(c) != DYCL_OK) return DYCL_ERROR;
    DYCL_GROW(c->ranges, c->range_room, c->range_count + 1);
    c->ranges[c->range_count++] = (range){data, (const char *)data + count * (int64_t)sizeof(float), is_written};
    uint64_t storage = dycl_abi_storage(impl);
    place *p = find_place(c, storage);
    if (!p->storage) c->place_count++;
    c->meets |= (p->storage && (p->written || is_written)) || dycl_abi_storage_foreign(impl);
    *p = (place){storage, p->written | is_written};
    return DYCL_OK;
}

static int by_address(const void *a, const void *b) {
    const range *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Whether what is written overlaps anything else. */
static int overlaps(collection *c) {
    const char *read_to = NULL, *written_to = NULL; /* as far as what began before reaches */
    if (!c->meets) return 0;
    qsort(c->ranges, c->range_count, sizeof *c->ranges, by_address);
    for (uint32_t i = 0; i < c->range_count; i++) {
        const range *r = &c->ranges[i];
        if (r->first == r->last) continue;
        if (r->first < written_to || (r->written && r->first < read_to)) return 1;
        if (r->written && r->last > written_to) written_to = r->last;
        if (r->last > read_to) read_to = r->last;
    }
    return 0;
}

/* ---- The walk */

typedef struct {
    dycl_tensor_view view;
    int64_t count;
} shape;

static int is_f32(PyObject *tensor, dycl_tensor_view *out) {
    const char *impl = dycl_abi_impl(tensor);
    return dycl_abi_is_plain(impl) && !dycl_abi_is_inference(impl) && dycl_abi_read(dycl_abi_borrow(tensor), out) &&
           out->dtype == DYCL_F32;
}

static int is_dense(shape *s) {
    dycl_value value = {.rank = (uint8_t)s->view.rank};
    memcpy(value.sizes, s->view.sizes, (size_t)s->view.rank * sizeof *value.sizes);
    memcpy(value.strides, s->view.strides, (size_t)s->view.rank * sizeof *value.strides);
    s->count = dycl_value_numel(&value);
    return dycl_value_dense(&value);
}

/* Its elements lie in the order of the parameter's. */
static int lies_alike(const shape *s, const dycl_tensor_view *other) {
    int alike = other->rank == s->view.rank;
    for (int i = 0; alike && i < other->rank; i++)
        alike = other->sizes[i] == s->view.sizes[i] &&
                (other->strides[i] == s->view.strides[i] || other->sizes[i] == 1 || s->count == 0);
    return alike;
}

static dycl_status hold(collection *c, PyObject *object) { /* steals it */
    if (c->held_count == c->held_room) {
        PyObject **more = dycl_grown(c->held, &c->held_room, c->held_count + 1, sizeof *c->held);
        if (!more) {
            Py_DECREF(object);
            return DYCL_ERROR;
        }
        c->held = more;
    }
    c->held[c->held_count++] = object;
    return DYCL_OK;
}

/* A tensor of the state that looks like the parameter, to be written. OK, BAIL: it is none. */
static dycl_status add_state(collection *c, const shape *s, PyObject *tensor, written *w, int nth, float **out) {
    dycl_tensor_view view;
    if (!tensor || Py_TYPE(tensor) != dycl_py.tensor_type || !is_f32(tensor, &view) || !lies_alike(s, &view) ||
        dycl_abi_requires_grad(tensor))
        return DYCL_BAIL;
    *out = view.data;
    w->impls[2 + nth] = dycl_abi_impl(tensor);
    dycl_status status = hold(c, Py_NewRef(tensor));
    return status == DYCL_OK ? note_memory(c, dycl_abi_impl(tensor), view.data, s->count, 1) : status;
}

static dycl_status add_step(collection *c, PyObject *tensor, written *w) {
    dycl_tensor_view view;
    if (!tensor || Py_TYPE(tensor) != dycl_py.tensor_type || !is_f32(tensor, &view) || view.rank ||
        dycl_abi_requires_grad(tensor))
        return DYCL_BAIL;
    w->at = view.data;
    w->impls[1] = dycl_abi_impl(tensor);
    w->writes[1] = 1;
    dycl_status status = hold(c, Py_NewRef(tensor));
    return status == DYCL_OK ? note_memory(c, dycl_abi_impl(tensor), view.data, 1, 1) : status;
}

/* A parameter with its gradient (which this steals). */
static dycl_status add_parameter(collection *c, dycl_numbers *n, PyObject *states, PyObject *parameter,
                                 PyObject *gradient) {
    shape s;
    dycl_tensor_view view;
    dycl_status status;
    const dycl_numbers_row *row = n->row;
    dycl_update_item item = {0};
    written w = {0};
    PyObject *state = NULL;
    DYCL_TRY(hold(c, gradient));
    DYCL_TRY(hold(c, Py_NewRef(parameter)));
    if (Py_TYPE(gradient) != dycl_py.tensor_type || !is_f32(parameter, &s.view) || !is_dense(&s) ||
        !is_f32(gradient, &view) || !lies_alike(&s, &view))
        return DYCL_BAIL;
    item.count = s.count;
    item.parameter = s.view.data;
    item.gradient = view.data;
    w.impls[0] = dycl_abi_impl(parameter);
    w.writes[0] = n->writes[0];
    DYCL_TRY(note_memory(c, dycl_abi_impl(parameter), s.view.data, s.count, 1));
    DYCL_TRY(note_memory(c, dycl_abi_impl(gradient), view.data, s.count, 0));
    if (row->steps || n->has[0]) {
        state = dycl_dict_by_address(states, parameter);
        if (!state || !PyDict_CheckExact(state)) return DYCL_BAIL;
    }
    for (int i = 0; i < DYCL_UPDATE_STATES; i++) {
        if (!n->has[i]) continue;
        DYCL_TRY(add_state(c, &s, PyDict_GetItemWithError(state, row->states[i]), &w, i, &item.states[i]));
        w.writes[2 + i] = n->writes[1 + i];
    }
    if (row->steps) DYCL_TRY(add_step(c, PyDict_GetItemWithError(state, dycl_numbers_step), &w));
    float step = w.at ? *w.at + 1.0f : 0.0f;
    if (!n->known || n->step != step) {
        DYCL_GROW(c->numbers, c->number_room, c->number_count + 1);
        if (!dycl_numbers_of(n, step, &c->numbers[c->number_count])) return DYCL_BAIL;
        c->number_count++;
    }
    DYCL_GROW(c->items, c->item_room, c->item_count + 1);
    DYCL_GROW(c->written, c->written_room, c->item_count + 1);
    item.numbers = (const dycl_update_numbers *)(uintptr_t)c->number_count; /* numbers may still move */
    c->items[c->item_count] = item;
    c->written[c->item_count++] = w;
fail:
    return status;
}

static dycl_status add_group(collection *c, dycl_numbers *n, PyObject *states, PyObject *parameters) {
    static PyObject *grad;
    if (!grad && !(grad = PyUnicode_InternFromString("grad"))) return DYCL_ERROR;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(parameters); i++) {
        PyObject *p = PyList_GET_ITEM(parameters, i);
        if (Py_TYPE(p) != dycl_py.parameter_type && Py_TYPE(p) != dycl_py.tensor_type) return DYCL_BAIL;
        PyObject *gradient = PyObject_GetAttr(p, grad);
        if (!gradient) return DYCL_ERROR;
        if (gradient == Py_None) {
            Py_DECREF(gradient);
            continue;
        }
        dycl_status status = add_parameter(c, n, states, p, gradient);
        if (status != DYCL_OK) return status;
    }
    return DYCL_OK;
}

#define WITHOUT_GIL (INT64_C(1) << 14) /* elements: some microseconds */

static void run(collection *c) {
    int64_t total = 0;
    for (uint32_t i = 0; i < c->item_count; i++) {
        const written *w = &c->written[i];
        if (w->at) *w->at += 1.0f;
        for (int k = 0; k < 2 + DYCL_UPDATE_STATES; k++)
            if (w->impls[k]) dycl_abi_add_version(w->impls[k], w->writes[k]);
        c->items[i].numbers = &c->numbers[(uintptr_t)c->items[i].numbers - 1];
        total += c->items[i].count;
    }
    if (total < WITHOUT_GIL) {
        dycl_kern_update(c->items, c->item_count);
    } else {
        dycl_readers_add(1);
        Py_BEGIN_ALLOW_THREADS;
        dycl_kern_update(c->items, c->item_count);
        Py_END_ALLOW_THREADS;
        dycl_readers_add(-1);
    }
}

static dycl_status collect(collection *c, const dycl_numbers_row *row, PyObject *groups, PyObject *states,
                           int *out_torch) {
    for (Py_ssize_t g = 0; g < PyList_GET_SIZE(groups); g++) {
        PyObject *group = PyList_GET_ITEM(groups, g), *parameters = NULL;
        dycl_numbers n = {.row = row};
        if (!PyDict_CheckExact(group)) return DYCL_BAIL;
        dycl_status status = dycl_numbers_read(&n, group, out_torch, &parameters);
        if (status == DYCL_OK) status = add_group(c, &n, states, parameters);
        if (status != DYCL_OK) return status;
    }
    return overlaps(c) ? DYCL_BAIL : DYCL_OK;
}

dycl_update_result dycl_update_step(PyObject *optimizer, uint64_t *out_count) {
    PyObject *groups, *states;
    const dycl_numbers_row *row = is_served(Py_TYPE(optimizer)) ? dycl_numbers_row_of(Py_TYPE(optimizer)) : NULL;
    if (!row) return PyErr_Occurred() ? DYCL_UPDATE_FAILED : DYCL_UPDATE_OTHER;
    if (!dycl_numbers_optimizer(optimizer, &groups, &states)) return DYCL_UPDATE_OTHER;
    dycl_readers_yield();
    collection *c = take();
    if (!c) return DYCL_UPDATE_OTHER;
    int torch = 0, functions = dycl_abi_torch_function_off(); /* a region's mode would see Tensor.grad */
    dycl_collect_hold();                                      /* a finalizer could change what the walk has seen */
    dycl_status status = collect(c, row, groups, states, &torch);
    dycl_collect_release();
    dycl_abi_torch_function_restore(functions);
    if (status == DYCL_OK) {
        *out_count = c->item_count;
        run(c);
    }
    give(c);
    /* whatever it is, the step function meets it where eager does, but not what a signal's handler raised meanwhile */
    if (status != DYCL_OK && dycl_error_forgive() < 0) return DYCL_UPDATE_FAILED;
    return torch ? DYCL_UPDATE_TORCH : status == DYCL_OK ? DYCL_UPDATE_DONE : DYCL_UPDATE_OTHER;
}
