#include "py/entry/loss.h"

#include "py/entry/callable.h"
#include "py/entry/enter.h"
#include "py/entry/gradient.h"
#include "py/region/node.h"
#include "py/region/region.h"
#include "py/region/track.h"
#include "py/torch/own_code.h"

enum {
    OPERANDS = 2, /* one of them is what the model gave */
    WAY = 4,      /* nodes of torch's between the model and its loss: views, mostly */
    TRIES = 4     /* calls in a row that are not recorded before some go to torch */
};

typedef enum { TORCH, NN } place;
typedef struct {
    place place;
    const char *name;
    int64_t least;
} loss;

/* The builtins that torch.nn.functional's losses call, of torch._C._nn or of torch, with the elements of their first
 * argument from which on it pays: a region and a node of its own cost some 20 us. Those that torch composes of many
 * operators always pay. */
static const loss losses[] = {
    {NN, "binary_cross_entropy", 256},
    {NN, "soft_margin_loss", 256},
    {NN, "huber_loss", 65536},
    {NN, "smooth_l1_loss", 65536},
    {NN, "cross_entropy_loss", 65536},
    {TORCH, "binary_cross_entropy_with_logits", 1024},
    {TORCH, "kl_div", 4096},
    {TORCH, "poisson_nll_loss", 1},
    {TORCH, "cosine_embedding_loss", 1},
    {TORCH, "hinge_embedding_loss", 1},
    {TORCH, "margin_ranking_loss", 1},
    {TORCH, "triplet_margin_loss", 1},
    {TORCH, "cosine_similarity", 1},
    {TORCH, "pairwise_distance", 1},
};
enum { SMOOTHING = 5 }; /* argument of cross_entropy_loss that makes many operators of it, too */
enum { COUNT = sizeof losses / sizeof *losses };

static struct {
    PyObject *function;    /* owned; NULL: not in this torch */
    vectorcallfunc before; /* what it had */
    dycl_site *site;       /* owned; NULL: none yet */
    uint32_t missed;       /* calls in a row that were not recorded */
    dycl_gradient rest;
} watched[COUNT];

static PyObject *next_functions_name;
static _Thread_local int within;

/* Whether a node of ours is behind the tensor: the program's own models train in torch as ever. */
static int is_of_accelerated(PyObject *tensor) {
    PyObject *node = dycl_py_grad_fn(tensor);
    int found = 0;
    for (int i = 0; i < WAY && node && node != Py_None && !(found = dycl_node_is(node)); i++) {
        PyObject *next = PyObject_GetAttr(node, next_functions_name), *first = NULL;
        if (next && PyTuple_Check(next) && PyTuple_GET_SIZE(next)) first = PyTuple_GET_ITEM(next, 0);
        Py_SETREF(node, first && PyTuple_Check(first) ? Py_NewRef(PyTuple_GET_ITEM(first, 0)) : NULL);
        Py_XDECREF(next);
    }
    Py_XDECREF(node);
    PyErr_Clear();
    return found;
}

/* Elements of a tensor with a history; -1: it is none. */
static int64_t elements_with_history(PyObject *o) {
    dycl_tensor_view view;
    int64_t elements = 1;
    if (Py_TYPE(o) != dycl_py.tensor_type || !dycl_abi_is_plain(dycl_abi_impl(o)) ||
        !dycl_abi_has_autograd_meta(dycl_abi_impl(o)) || !dycl_abi_read(dycl_abi_borrow(o), &view))
        return -1;
    for (int i = 0; i < view.rank; i++) elements *= view.sizes[i];
    return elements;
}

static int is_large_enough(int nth, PyObject *const *args, Py_ssize_t count, int64_t elements) {
    PyObject *smoothing = count > SMOOTHING ? args[SMOOTHING] : NULL;
    int smooths = smoothing && PyFloat_CheckExact(smoothing) && PyFloat_AS_DOUBLE(smoothing) > 0;
    return elements >= (smooths ? 1 : losses[nth].least);
}

static int pays(int nth, PyObject *const *args, Py_ssize_t count) {
    if (!dycl_track_on || dycl_disabled || within || dycl_region_current || !dycl_abi_grad_enabled()) return 0;
    for (Py_ssize_t i = 0; i < count && i < OPERANDS; i++) {
        int64_t elements = elements_with_history(args[i]);
        if (elements >= 0 && is_large_enough(nth, args, count, elements) && is_of_accelerated(args[i]))
            return !watched[nth].rest.wait || !watched[nth].rest.wait--;
    }
    return 0;
}

/* What dycl does not represent runs in torch, and is not tried again soon. Torch shows once what a result looks like.
 */
static void learn(int nth, uint64_t recorded) {
    if (watched[nth].site->stats.recorded != recorded)
        watched[nth].missed = watched[nth].rest.interval = 0;
    else if (++watched[nth].missed >= TRIES)
        dycl_gradient_wait(&watched[nth].rest);
}

static PyObject *loss_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    int nth = 0;
    while (nth < COUNT && watched[nth].function != callable) nth++;
    if (!pays(nth, args, PyVectorcall_NARGS(nargsf))) return watched[nth].before(callable, args, nargsf, kwnames);
    if (!watched[nth].site) {
        watched[nth].site = (dycl_site *)dycl_site_create(callable, NULL, NULL);
        if (!watched[nth].site) return NULL;
        watched[nth].site->always = 1;
    }
    uint64_t recorded = watched[nth].site->stats.recorded;
    within = 1;
    PyObject *result = dycl_region_call(watched[nth].site, callable, args, nargsf, kwnames);
    within = 0;
    learn(nth, recorded);
    return result;
}

static int calls(PyObject *function, const char *name) {
    if (!PyFunction_Check(function) || !dycl_torchs_own(PyFunction_GET_CODE(function))) return 0;
    PyObject *names = PyObject_GetAttrString(PyFunction_GET_CODE(function), "co_names");
    PyObject *wanted = names ? PyUnicode_FromString(name) : NULL;
    int found = wanted && PySequence_Contains(names, wanted) == 1;
    Py_XDECREF(wanted);
    Py_XDECREF(names);
    PyErr_Clear();
    return found;
}

dycl_site *dycl_loss_site(PyObject *function) {
    for (int i = 0; i < COUNT; i++)
        if (watched[i].site && (watched[i].function == function || calls(function, losses[i].name)))
            return watched[i].site;
    return NULL;
}

static void watch(int nth, PyObject *module) {
    PyObject *o = PyObject_GetAttrString(module, losses[nth].name);
    PyCFunctionObject *function = o && PyCFunction_CheckExact(o) ? (PyCFunctionObject *)o : NULL;
    if (function && function->vectorcall) {
        watched[nth].function = Py_NewRef(o);
        watched[nth].before = function->vectorcall; /* of intercept/shortcut.h */
        function->vectorcall = loss_call;
    }
    Py_XDECREF(o);
    PyErr_Clear(); /* not in this torch */
}

int dycl_loss_watch(void) {
    PyObject *nn = PyImport_ImportModule("torch._C._nn");
    if (!nn || !(next_functions_name = PyUnicode_InternFromString("next_functions"))) {
        Py_XDECREF(nn);
        return -1;
    }
    for (int i = 0; i < COUNT; i++) watch(i, losses[i].place == NN ? nn : dycl_py.torch);
    Py_DECREF(nn);
    return 0;
}
