#include "py/entry/update.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "kern/update.h"
#include "py/cpython/collect.h"
#include "py/cpython/dict.h"
#include "py/cpython/error.h"
#include "py/entry/dense.h"
#include "py/entry/numbers.h"
#include "py/entry/overlap.h"
#include "py/entry/served.h"
#include "py/region/grow.h"
#include "py/region/region.h"
#include "py/torch/abi.h"

/* ---- What a step is made of */

typedef struct {
    float *at;                                 /* of its step's tensor; NULL: it has none */
    const char *impls[2 + DYCL_UPDATE_STATES]; /* parameter, step, states */
    uint8_t writes[2 + DYCL_UPDATE_STATES];    /* that torch's operators would count */
} written;

typedef struct collection {
    dycl_update_item *items;
    written *written;
    dycl_update_numbers *numbers;
    PyObject **held; /* owned */
    uint32_t item_room, written_room, number_room, held_room;
    uint32_t item_count, number_count, held_count;
    dycl_overlap memory;
    struct collection *next;
} collection;

static collection *spare; /* with the GIL held */

static collection *take(void) {
    collection *c = spare;
    if (!c) return dycl_alloc_zero(sizeof *c);
    spare = c->next;
    dycl_overlap_clear(&c->memory);
    c->item_count = c->number_count = 0;
    return c;
}

static void give(collection *c) {
    for (uint32_t i = 0; i < c->held_count; i++) Py_DECREF(c->held[i]); /* may run Python code */
    c->held_count = 0;
    c->next = spare;
    spare = c;
}

/* ---- The walk */

typedef struct {
    dycl_tensor_view view;
    int64_t count;
} shape;

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
    if (!tensor || Py_TYPE(tensor) != dycl_py.tensor_type || !dycl_dense_is_f32(tensor, &view) ||
        !lies_alike(s, &view) || dycl_abi_requires_grad(tensor))
        return DYCL_BAIL;
    *out = view.data;
    w->impls[2 + nth] = dycl_abi_impl(tensor);
    dycl_status status = hold(c, Py_NewRef(tensor));
    return status == DYCL_OK ? dycl_overlap_note(&c->memory, dycl_abi_impl(tensor), view.data, s->count, 1) : status;
}

static dycl_status add_step(collection *c, PyObject *tensor, written *w) {
    dycl_tensor_view view;
    if (!tensor || Py_TYPE(tensor) != dycl_py.tensor_type || !dycl_dense_is_f32(tensor, &view) || view.rank ||
        dycl_abi_requires_grad(tensor))
        return DYCL_BAIL;
    w->at = view.data;
    w->impls[1] = dycl_abi_impl(tensor);
    w->writes[1] = 1;
    dycl_status status = hold(c, Py_NewRef(tensor));
    return status == DYCL_OK ? dycl_overlap_note(&c->memory, dycl_abi_impl(tensor), view.data, 1, 1) : status;
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
    if (Py_TYPE(gradient) != dycl_py.tensor_type || !dycl_dense_is_f32(parameter, &s.view) ||
        !dycl_dense_is_one_block(&s.view, &s.count) || !dycl_dense_is_f32(gradient, &view) || !lies_alike(&s, &view))
        return DYCL_BAIL;
    item.count = s.count;
    item.parameter = s.view.data;
    item.gradient = view.data;
    w.impls[0] = dycl_abi_impl(parameter);
    w.writes[0] = n->writes[0];
    DYCL_TRY(dycl_overlap_note(&c->memory, dycl_abi_impl(parameter), s.view.data, s.count, 1));
    DYCL_TRY(dycl_overlap_note(&c->memory, dycl_abi_impl(gradient), view.data, s.count, 0));
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
        if (!dycl_dense_is_stock(p)) return DYCL_BAIL;
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
    return dycl_overlap_any(&c->memory) ? DYCL_BAIL : DYCL_OK;
}

dycl_update_result dycl_update_step(PyObject *optimizer, uint64_t *out_count) {
    PyObject *groups, *states;
    const dycl_numbers_row *row =
        dycl_served_is((PyObject *)Py_TYPE(optimizer)) ? dycl_numbers_row_of(Py_TYPE(optimizer)) : NULL;
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
