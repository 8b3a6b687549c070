#include "py/entry/clip.h"

#include <math.h>

#include "kern/clip.h"
#include "py/cpython/collect.h"
#include "py/cpython/error.h"
#include "py/cpython/function.h"
#include "py/entry/dense.h"
#include "py/entry/enter.h"
#include "py/entry/optimizer.h"
#include "py/entry/overlap.h"
#include "py/entry/served.h"
#include "py/region/grow.h"
#include "py/region/region.h"
#include "py/region/replay.h"
#include "py/region/track.h"
#include "py/region/trained.h"

static PyObject *of_norm, *of_value; /* owned: the functions that are redirected */
static vectorcallfunc original;      /* of all Python functions */
static int lanes;                    /* of torch's vectors */
static uint64_t done;

uint64_t dycl_clip_count(void) { return done; }

/* ---- Arguments */

#define MOST 5
enum { PARAMETERS, LIMIT, KIND, RAISES }; /* of clip_grad_norm_; the other has no KIND, nor RAISES */
static const char *const norm_names[MOST] = {"parameters", "max_norm", "norm_type", "error_if_nonfinite", "foreach"};
static const char *const value_names[MOST] = {"parameters", "clip_value", "foreach"};

/* Borrowed, in the function's order; NULL: not given. 0: torch says what is wrong. */
static int read_arguments(const char *const *names, int most, PyObject *const *args, Py_ssize_t count,
                          PyObject *kwnames, PyObject **out) {
    if (count > most) return 0;
    memset(out, 0, MOST * sizeof *out);
    for (Py_ssize_t i = 0; i < count; i++) out[i] = args[i];
    for (Py_ssize_t k = 0; kwnames && k < PyTuple_GET_SIZE(kwnames); k++) {
        int i = 0;
        while (i < most && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, k), names[i])) i++;
        if (i == most || out[i]) return 0;
        out[i] = args[count + k];
    }
    return out[PARAMETERS] && out[LIMIT];
}

static int read_limit(PyObject *o, float *out) {
    double limit = PyFloat_CheckExact(o) ? PyFloat_AS_DOUBLE(o) : PyLong_CheckExact(o) ? PyLong_AsDouble(o) : 0;
    *out = (float)limit;
    return limit > 0 && isfinite(*out) && *out > 0; /* what is left over may be an error, which torch raises */
}

static int is_two(PyObject *o) {
    return !o || (PyFloat_CheckExact(o) && PyFloat_AS_DOUBLE(o) == 2) ||
           (PyLong_CheckExact(o) && PyLong_AsDouble(o) == 2);
}

static int is_flag(PyObject *o) { return !o || o == Py_True || o == Py_False || o == Py_None; }

/* ---- Gradients */

typedef struct gradients {
    dycl_clip_item *items;
    PyObject **held; /* owned: their tensors */
    float *norms;
    uint32_t item_room, held_room, norm_room, count;
    int64_t elements;
    dycl_overlap memory;
    struct gradients *next;
} gradients;

static gradients *spare; /* with the GIL held */

static gradients *take(void) {
    gradients *g = spare;
    if (!g) return dycl_alloc_zero(sizeof *g);
    spare = g->next;
    dycl_overlap_clear(&g->memory);
    g->count = 0;
    g->elements = 0;
    return g;
}

static void give(gradients *g) {
    for (uint32_t i = 0; i < g->count; i++) Py_DECREF(g->held[i]); /* may run Python code */
    g->next = spare;
    spare = g;
}

/* Steals the gradient. OK, BAIL: torch's. */
static dycl_status add(gradients *g, PyObject *gradient) {
    dycl_tensor_view view;
    dycl_clip_item item;
    PyObject **held = dycl_grown(g->held, &g->held_room, g->count + 1, sizeof *held);
    dycl_clip_item *items = held ? dycl_grown(g->items, &g->item_room, g->count + 1, sizeof *items) : NULL;
    if (held) g->held = held;
    if (items) g->items = items;
    if (!items) {
        Py_DECREF(gradient);
        return DYCL_ERROR;
    }
    g->held[g->count++] = gradient;
    if (Py_TYPE(gradient) != dycl_py.tensor_type || !dycl_dense_is_f32(gradient, &view) ||
        !dycl_dense_is_one_block(&view, &item.count) || dycl_abi_requires_grad(gradient))
        return DYCL_BAIL;
    item.data = view.data;
    g->items[g->count - 1] = item;
    g->elements += item.count;
    return dycl_overlap_note(&g->memory, dycl_abi_impl(gradient), view.data, item.count, 1);
}

static int is_leaf(PyObject *tensor) {
    PyObject *answer = PyObject_GetAttrString(tensor, "is_leaf");
    Py_XDECREF(answer);
    return answer == Py_True;
}

static dycl_status collect(gradients *g, PyObject *parameters) {
    static PyObject *grad;
    if (!grad && !(grad = PyUnicode_InternFromString("grad"))) return DYCL_ERROR;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(parameters); i++) {
        PyObject *p = PyList_GET_ITEM(parameters, i);
        if (!dycl_dense_is_stock(p) || (Py_TYPE(p) == dycl_py.tensor_type && dycl_abi_requires_grad(p) && !is_leaf(p)))
            return DYCL_BAIL;                                        /* torch would warn */
        if (!dycl_abi_has_autograd_meta(dycl_abi_impl(p))) continue; /* it has none */
        PyObject *gradient = PyObject_GetAttr(p, grad);
        if (!gradient) return DYCL_ERROR;
        if (gradient == Py_None) {
            Py_DECREF(gradient);
            continue;
        }
        dycl_status status = add(g, gradient);
        if (status != DYCL_OK) return status;
    }
    return !g->count || dycl_overlap_any(&g->memory) ? DYCL_BAIL : DYCL_OK;
}

/* ---- What is done */

#define WITHOUT_GIL (INT64_C(1) << 15) /* elements: some microseconds */

typedef enum { NORMS, SCALE, BOUND } work;

static void do_work(gradients *g, work what, float by) {
    if (what == NORMS)
        dycl_kern_clip_norms(g->items, g->count, lanes, g->norms);
    else if (what == SCALE)
        dycl_kern_clip_scale(g->items, g->count, by);
    else
        dycl_kern_clip_bound(g->items, g->count, -by, by);
}

static void count_writes(const gradients *g, uint32_t writes) {
    for (uint32_t i = 0; i < g->count; i++) dycl_abi_add_version(dycl_abi_impl(g->held[i]), writes);
}

static void run(gradients *g, work what, float by) {
    if (g->elements < WITHOUT_GIL) {
        do_work(g, what, by);
        return;
    }
    dycl_readers_add(1);
    Py_BEGIN_ALLOW_THREADS;
    do_work(g, what, by);
    Py_END_ALLOW_THREADS;
    dycl_readers_add(-1);
}

/* torch's arithmetic, of tensors of one element: max_norm / (total_norm + 1e-6), at most 1. */
static float factor_of(float limit, float total) {
    volatile float below = total + 1e-6f, inverse = 1.0f / below;
    float factor = inverse * limit;
    return factor > 1.0f ? 1.0f : factor;
}

/* A new reference, or NULL: without an exception where torch has to do it. */
static PyObject *clip_norm(gradients *g, float limit) {
    float *norms = dycl_grown(g->norms, &g->norm_room, g->count, sizeof *norms);
    if (!norms) return NULL;
    g->norms = norms;
    run(g, NORMS, 0);
    float total = dycl_kern_clip_norm(norms, g->count, lanes); /* of the norms */
    dycl_handle handle = dycl_abi_empty(DYCL_F32, 0, NULL, NULL);
    PyObject *result = handle ? dycl_abi_wrap(handle) : NULL;
    dycl_tensor_view view;
    if (result && dycl_abi_read(handle, &view)) {
        float factor = factor_of(limit, total);
        *(float *)view.data = total;
        count_writes(g, 1);
        if (factor != 1.0f) run(g, SCALE, factor); /* else each element is what it was */
    } else {
        Py_CLEAR(result);
    }
    if (handle) dycl_abi_delete(handle);
    return result;
}

/* ---- The calls */

static int flushes_denormals(void) {
#if defined(__x86_64__) || defined(__i386__)
    return (__builtin_ia32_stmxcsr() & 0x8040) != 0; /* of what is multiplied by 1, too */
#else
    return 1;
#endif
}

static int is_plain_call(PyObject *function) {
    return dycl_track_on && !dycl_replay_always && !dycl_abi_dispatch_inference(dycl_abi_dispatch_state()) &&
           !flushes_denormals() && dycl_enter_nobody_watches() && dycl_served_is(function);
}

static int are_trained(PyObject *parameters) {
    if (dycl_region_current || dycl_optimizer_counts_all()) return 1;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(parameters); i++)
        if (dycl_trained_has(PyList_GET_ITEM(parameters, i))) return 1;
    return 0;
}

/* in_lists: torch would do it by its operators on lists. limit: of the norm, or of each element. A new reference, or
 * NULL: without an exception where torch has to do it. */
static PyObject *clip(PyObject *parameters, int by_norm, int in_lists, float limit) {
    dycl_readers_yield();
    dycl_enter_learn_threads();
    gradients *g = take();
    if (!g) return PyErr_NoMemory();
    PyObject *result = NULL;
    int functions = dycl_abi_torch_function_off(); /* a region's mode would see Tensor.grad */
    dycl_collect_hold();                           /* a finalizer could change what the walk has seen */
    dycl_status status = collect(g, parameters);
    dycl_collect_release();
    if (status == DYCL_OK && by_norm) {
        result = clip_norm(g, limit);
    } else if (status == DYCL_OK) {
        count_writes(g, in_lists ? 2 : 1);
        run(g, BOUND, limit);
        result = Py_NewRef(Py_None);
    }
    dycl_abi_torch_function_restore(functions);
    give(g);
    done += result != NULL;
    return result;
}

/* Python's function, with what was made of the parameters: a generator can be asked once only. */
static PyObject *call_original(PyObject *function, PyObject *const *args, size_t nargsf, PyObject *kwnames,
                               PyObject *parameters, PyObject *list) {
    PyObject *copies[MOST];
    Py_ssize_t total = PyVectorcall_NARGS(nargsf) + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    if (!list || !PyList_GET_SIZE(list)) return original(function, args, nargsf, kwnames);
    for (Py_ssize_t i = 0; i < total; i++) copies[i] = args[i] == parameters ? list : args[i];
    return original(function, copies, (size_t)PyVectorcall_NARGS(nargsf), kwnames);
}

static PyObject *call(PyObject *function, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    int by_norm = function == of_norm;
    PyObject *given[MOST] = {0}, *list = NULL, *result = NULL;
    float limit = 0;
    if (read_arguments(by_norm ? norm_names : value_names, by_norm ? 5 : 3, args, PyVectorcall_NARGS(nargsf), kwnames,
                       given) &&
        read_limit(given[LIMIT], &limit) && is_flag(given[by_norm ? 4 : 2]) &&
        (!by_norm || (is_two(given[KIND]) && (!given[RAISES] || given[RAISES] == Py_False))) &&
        is_plain_call(function)) {
        if (dycl_dense_is_stock(given[PARAMETERS]) && (list = PyList_New(1)))
            PyList_SET_ITEM(list, 0, Py_NewRef(given[PARAMETERS]));
        else if (!list)
            list = PySequence_List(given[PARAMETERS]);
        if (!list) return NULL;
        if (PyList_GET_SIZE(list) && are_trained(list)) {
            if (dycl_region_current && dycl_region_flush(dycl_region_current, DYCL_BAIL_write) < 0) goto fail;
            result = clip(list, by_norm, given[by_norm ? 4 : 2] != Py_False, limit);
        }
    }
    /* whatever it is, torch meets it where eager does, but not what a signal's handler raised meanwhile */
    if (!result && dycl_error_forgive() == 0)
        result = call_original(function, args, nargsf, kwnames, given[PARAMETERS], list);
fail:
    Py_XDECREF(list);
    return result;
}

/* Of a tensor of that norm; 0: it is added up in neither way. */
static int lanes_that_give(PyObject *sample, double norm) {
    dycl_tensor_view x;
    if (!dycl_is_tensor(sample) || !dycl_abi_read(dycl_abi_borrow(sample), &x) || x.dtype != DYCL_F32 || x.rank != 1)
        return 0;
    for (int tried = 8; tried <= 16; tried *= 2)
        if ((double)dycl_kern_clip_norm(x.data, x.sizes[0], tried) == norm) return tried;
    return 0;
}

int dycl_clip_watch(PyObject *norm, PyObject *value, PyObject *sample, double of_sample) {
    lanes = lanes_that_give(sample, of_sample);
    if (!lanes) return 0;
    PyObject *functions[] = {norm, value};
    for (int i = 0; i < 2; i++) {
        if (!PyFunction_Check(functions[i])) continue;
        vectorcallfunc before = dycl_function_redirect(functions[i], call);
        if (before != call) original = before;
    }
    Py_XSETREF(of_norm, Py_NewRef(norm));
    Py_XSETREF(of_value, Py_NewRef(value));
    return 0;
}
