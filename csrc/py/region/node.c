#include "py/region/node.h"

#include <stdbool.h>
#include <string.h>

#include "ir/infer.h"
#include "py/cpython/type.h"
#include "py/region/called.h"
#include "py/region/grow.h"
#include "py/region/order.h"
#include "py/region/replay.h"
#include "py/region/track.h"
#include "py/torch/places.h"
#include "py/torch/wanted.h"

#define BEFORE 3 /* arguments of forward that are no sources, without the node */

static struct {
    PyObject *attach, *apply_of, *otherwise, *again; /* owned: of dycl._autograd */
    PyObject *applies;                               /* owned: by name, what apply_of gave */
} functions;

static PyObject *own_apply, *apply_name; /* owned: what the classes of our nodes have under that name */
static PyObject *materialize_name, *tape_name, *to_save_name, *saved_tensors_name, *shown_name, *needs_name,
    *is_leaf_name, *base_name; /* owned: interned */

PyObject *dycl_node_set_attach(PyObject *attach) {
    PyObject *before = functions.attach ? functions.attach : Py_NewRef(Py_None);
    functions.attach = Py_NewRef(attach);
    return before;
}

/* ---- Attaching */

static PyObject *tensor_of(const dycl_region *region, uint32_t value, const dycl_node_plan *plan) {
    const dycl_value *v = &region->recorder.graph.values[value];
    dycl_handle own = dycl_own_results_tensor(plan->own, value);
    if (own) return dycl_abi_wrap(own);
    if (v->kind == DYCL_VALUE_NODE) return dycl_abi_wrap(region->handles[region->output_of[value] - 1]);
    const dycl_source *source = &region->sources[v->source];
    return source->object ? Py_NewRef(source->object) : dycl_abi_wrap(source->handle);
}

/* known: by position, the tensor of those that are known already, or NULL; may be NULL. */
static PyObject *tensors_of(const dycl_region *region, const uint32_t *values, uint32_t count,
                            const dycl_node_plan *plan, const dycl_handle *known) {
    PyObject *tuple = PyTuple_New(count);
    for (uint32_t i = 0; tuple && i < count; i++) {
        PyObject *o = known && known[i] ? dycl_abi_wrap(known[i]) : tensor_of(region, values[i], plan);
        if (!o)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, o);
    }
    return tuple;
}

/* Of a dense tensor that looks like this. */
static dycl_handle copy_of(dycl_handle tensor, const dycl_value *v) {
    dycl_tensor_view from, to;
    dycl_handle copy = dycl_abi_empty((dycl_dtype)v->dtype, v->rank, v->sizes, v->strides);
    size_t bytes = dycl_value_bytes(v);
    if (copy && bytes && dycl_abi_read(tensor, &from) && dycl_abi_read(copy, &to)) memcpy(to.data, from.data, bytes);
    if (!copy && !PyErr_Occurred()) PyErr_NoMemory();
    return copy;
}

/* The nth of what is saved becomes a tensor of its own: a copy of one that looks like this, or NULL: the same memory.
 */
static int set_apart(PyObject *tensors, uint32_t nth, const dycl_value *copied) {
    dycl_handle tensor = dycl_abi_borrow(PyTuple_GET_ITEM(tensors, nth));
    dycl_handle apart = copied ? copy_of(tensor, copied) : dycl_abi_detach(tensor);
    PyObject *o = apart ? dycl_abi_wrap(apart) : NULL;
    dycl_abi_delete(apart);
    if (!o) return -1;
    Py_DECREF(PyTuple_GET_ITEM(tensors, nth));
    PyTuple_SET_ITEM(tensors, nth, o);
    return 0;
}

/* A feed of which torch saves views only keeps the memory that it has now, whatever its .data will be. */
static int keeps_memory(const dycl_region *region, uint32_t value) {
    const dycl_value *v = &region->recorder.graph.values[value];
    return v->kind == DYCL_VALUE_FEED && region->sources[v->source].object &&
           !dycl_order_saves_itself(&region->recorder.graph, region->tracked, value);
}

/* The program has what the segment gave back, or tensors that share its memory. */
static int is_held(const dycl_region *region, uint32_t value) {
    const dycl_graph *graph = &region->recorder.graph;
    if (graph->values[value].kind == DYCL_VALUE_FEED) return 1;
    for (PyObject *o = region->first; o; o = dycl_lazy_of(o)->next) {
        const dycl_lazy *lazy = dycl_lazy_of(o);
        if (lazy->epoch == region->epoch && graph->values[lazy->value].root == value) return 1;
    }
    return 0;
}

/* torch saves copies of it only, so the program may write to it; what nobody else has needs none. */
static int is_copied(const dycl_region *region, const dycl_node_plan *plan, uint32_t nth) {
    const dycl_value *v = &region->recorder.graph.values[plan->saved[nth]];
    return plan->copied[nth] && dycl_value_dense(v) && is_held(region, plan->saved[nth]);
}

static int is_apart(const dycl_region *region, const dycl_node_plan *plan, uint32_t nth) {
    return is_copied(region, plan, nth) || keeps_memory(region, plan->saved[nth]);
}

/* What is saved needs a history for who differentiates the gradients (create_graph=True). These have one and do not
 * show it: what lies between the sources and the results, and what was set apart. In the order of the program. */
static uint32_t find_hidden(const dycl_region *region, const dycl_node_plan *plan, uint32_t *hidden) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->saved_count; i++) {
        uint32_t value = plan->saved[i];
        int shown = !is_apart(region, plan, i) &&
                    (region->recorder.graph.values[value].kind == DYCL_VALUE_FEED ||
                     dycl_tape_place(value, plan->results, plan->result_count) < plan->result_count ||
                     dycl_tape_place(value, plan->sources, plan->source_count) < plan->source_count);
        for (uint32_t k = 0; k < plan->source_count; k++)
            shown |= dycl_tape_is_apart(&region->recorder.graph, plan->sources[k], value);
        if (shown || plan->bare[i] || !dycl_track_has(region, value)) continue;
        uint32_t at = count++;
        for (; at > 0 && plan->saved[hidden[at - 1]] > value; at--) hidden[at] = hidden[at - 1];
        hidden[at] = i;
    }
    return count;
}

/* Sources that neither are saved nor are leaves, which their AccumulateGrad knows: a tuple of positions. */
static PyObject *open_sources(const dycl_region *region, const dycl_node_plan *plan, PyObject *tensors) {
    uint32_t *open = dycl_alloc((plan->source_count + 1) * sizeof *open), count = 0;
    if (!open) return PyErr_NoMemory();
    for (uint32_t i = 0; i < plan->source_count; i++) {
        PyObject *o = PyTuple_GET_ITEM(tensors, i);
        uint32_t value = plan->sources[i];
        uint32_t place = dycl_tape_place(value, plan->saved, plan->saved_count);
        if (Py_TYPE(o) == dycl_py.parameter_type || (place < plan->saved_count && !is_apart(region, plan, place)))
            continue;
        open[count++] = i;
    }
    PyObject *tuple = dycl_replay_words((int)count, open);
    dycl_free(open);
    return tuple;
}

/* 1: the tensor, of position nth among the sources, is a leaf, or the edge stands for it; 0: not here; -1 */
static int keep_edge(PyObject *edges, PyObject *tensor, Py_ssize_t nth) {
    if (dycl_is_lazy(tensor)) return 0; /* asking one may compute */
    PyObject *leaf = PyObject_GetAttr(tensor, is_leaf_name), *base = leaf ? PyObject_GetAttr(tensor, base_name) : NULL;
    int known = !base ? -1 : leaf == Py_True ? 1 : 0;
    Py_XDECREF(leaf);
    Py_XDECREF(base);
    if (known || base != Py_None) return known;
    dycl_handle made = dycl_abi_leading_along(dycl_abi_borrow(tensor));
    if (!made) return 0;
    PyObject *edge = dycl_abi_wrap(made), *place = edge ? PyLong_FromSsize_t(nth) : NULL;
    int result = place && PyDict_SetItem(edges, place, edge) == 0 ? 1 : -1;
    dycl_abi_delete(made);
    Py_XDECREF(edge);
    Py_XDECREF(place);
    return result;
}

/* Sources that cannot be found again are, by tensors that lead where they lead: the tape keeps these. Answers the
 * positions that are left to dycl._autograd: all or none. New reference */
static PyObject *keep_edges(const dycl_region *region, dycl_tape *t, PyObject *sources, PyObject *open) {
    int kept = PyTuple_GET_SIZE(open) && !region->elsewhere && dycl_abi_dispatch_plain(dycl_abi_dispatch_state());
    PyObject *edges = kept ? PyDict_New() : NULL;
    int state = dycl_abi_torch_function_off();
    for (Py_ssize_t i = 0; edges && kept > 0 && i < PyTuple_GET_SIZE(open); i++) {
        Py_ssize_t nth = PyLong_AsSsize_t(PyTuple_GET_ITEM(open, i));
        kept = keep_edge(edges, PyTuple_GET_ITEM(sources, nth), nth);
    }
    dycl_abi_torch_function_restore(state);
    if (kept && !edges) kept = -1;
    if (kept > 0 && PyDict_GET_SIZE(edges)) t->edges = Py_NewRef(edges);
    Py_XDECREF(edges);
    return kept < 0 ? NULL : kept ? PyTuple_New(0) : Py_NewRef(open);
}

static PyObject *tape_of(const dycl_region *region, PyObject *of, const dycl_node_plan *plan) {
    uint32_t *hidden = dycl_alloc((plan->saved_count + 1) * sizeof *hidden);
    if (!hidden) return PyErr_NoMemory();
    uint32_t count = find_hidden(region, plan, hidden);
    dycl_tape *t =
        dycl_tape_new((dycl_recording *)of, plan->result_count, plan->source_count, plan->saved_count, count);
    if (t) {
        t->once = t->frees = plan->once || plan->saved_count;
        memcpy(t->results, plan->results, t->result_count * sizeof *t->results);
        memcpy(t->sources, plan->sources, t->source_count * sizeof *t->sources);
        memcpy(t->saved, plan->saved, t->saved_count * sizeof *t->saved);
        memcpy(t->hidden, hidden, count * sizeof *hidden);
        for (uint32_t i = 0; i < count; i++) t->seen[i] = dycl_called_of(region, plan->saved[hidden[i]]) != 0;
    }
    dycl_free(hidden);
    return (PyObject *)t;
}

/* What makes a node that shows this (name, output), or None. New reference. */
static PyObject *apply_for(PyObject *name) {
    if (!functions.applies && !(functions.applies = PyDict_New())) return NULL;
    PyObject *found = PyDict_GetItemWithError(functions.applies, name);
    if (found || PyErr_Occurred()) return Py_XNewRef(found);
    PyObject *made = PyObject_CallOneArg(functions.apply_of, name);
    if (made && PyDict_SetItem(functions.applies, name, made) < 0) Py_CLEAR(made);
    return made;
}

/* The name of the node that one result shows, which is its only output: borrowed. NULL: it takes more. */
static PyObject *single_name(PyObject *names) {
    PyObject *shown = PyTuple_GET_SIZE(names) == 1 ? PyTuple_GET_ITEM(names, 0) : NULL;
    if (!shown || shown == Py_None) return shown;
    PyObject *name = PyTuple_GET_ITEM(shown, 0); /* (name, output) */
    return PyLong_AsLong(PyTuple_GET_ITEM(name, 1)) == 0 ? PyTuple_GET_ITEM(name, 0) : NULL;
}

static PyObject *make_single(PyObject *name, PyObject *t, PyObject *results, PyObject *saved, PyObject *sources) {
    Py_ssize_t count = PyTuple_GET_SIZE(sources);
    PyObject *apply = apply_for(name), *args = apply ? PyTuple_New(BEFORE + count) : NULL, *done = NULL;
    if (args) {
        PyTuple_SET_ITEM(args, 0, Py_NewRef(t));
        PyTuple_SET_ITEM(args, 1, Py_NewRef(results));
        PyTuple_SET_ITEM(args, 2, Py_NewRef(saved));
        for (Py_ssize_t i = 0; i < count; i++)
            PyTuple_SET_ITEM(args, BEFORE + i, Py_NewRef(PyTuple_GET_ITEM(sources, i)));
        int enabled = dycl_abi_grad_enabled(); /* the program may have disabled gradients by now */
        dycl_abi_torch.set_grad_enabled(true);
        done = PyObject_Call(apply, args, NULL);
        dycl_abi_torch.set_grad_enabled(enabled != 0);
    }
    Py_XDECREF(apply);
    Py_XDECREF(args);
    return done;
}

int dycl_node_attach(dycl_region *region, PyObject *of, const dycl_node_plan *plan) {
    PyObject *t = tape_of(region, of, plan), *done = NULL;
    /* each only without an error so far: asking for names forgives what torch raises, and an older error with it */
    PyObject *results = t ? tensors_of(region, plan->results, plan->result_count, plan, NULL) : NULL;
    PyObject *sources =
        results ? tensors_of(region, plan->sources, plan->source_count, plan, plan->source_handles) : NULL;
    PyObject *saved = sources ? tensors_of(region, plan->saved, plan->saved_count, plan, NULL) : NULL;
    PyObject *names = saved ? dycl_called_names(region, plan->results, plan->result_count) : NULL;
    PyObject *open = names ? open_sources(region, plan, sources) : NULL;
    if (open) Py_SETREF(open, keep_edges(region, (dycl_tape *)t, sources, open));
    int failed = !open;
    for (uint32_t i = 0; i < plan->saved_count && !failed; i++) {
        const dycl_value *copied = is_copied(region, plan, i) ? &region->recorder.graph.values[plan->saved[i]] : NULL;
        failed = (copied || keeps_memory(region, plan->saved[i])) && set_apart(saved, i, copied) < 0;
    }
    if (!failed && functions.attach) {
        int state = dycl_abi_torch_function_off();
        PyObject *name = PyTuple_GET_SIZE(open) || region->elsewhere || !functions.apply_of ? NULL : single_name(names);
        done = name ? make_single(name, t, results, saved, sources)
                    : PyObject_CallFunctionObjArgs(functions.attach, t, results, saved, sources, open, names, NULL);
        dycl_abi_torch_function_restore(state);
    }
    Py_XDECREF(t);
    Py_XDECREF(results);
    Py_XDECREF(sources);
    Py_XDECREF(saved);
    Py_XDECREF(names);
    Py_XDECREF(open);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* ---- The functions of torch's node */

static PyObject *node_forward(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (count <= BEFORE) return PyErr_Format(PyExc_TypeError, "forward(node, tape, results, saved, *sources)");
    /* None says that nothing came for a result; zeros would reach the parameters */
    if (PyObject_SetAttr(args[0], materialize_name, Py_False) < 0 ||
        PyObject_SetAttr(args[0], tape_name, args[1]) < 0 || PyObject_SetAttr(args[0], to_save_name, args[3]) < 0)
        return NULL;
    return Py_NewRef(args[2]);
}

/* What torch takes: None for each argument that is no source. */
static PyObject *behind_none(PyObject *found, Py_ssize_t count) {
    PyObject *fast = found ? PySequence_Fast(found, "gradients are no sequence") : NULL;
    PyObject *result = fast ? PyTuple_New(BEFORE + count) : NULL;
    for (Py_ssize_t i = 0; result && i < BEFORE + count; i++) {
        int given = i >= BEFORE && i - BEFORE < PySequence_Fast_GET_SIZE(fast);
        PyTuple_SET_ITEM(result, i, Py_NewRef(given ? PySequence_Fast_GET_ITEM(fast, i - BEFORE) : Py_None));
    }
    Py_XDECREF(fast);
    return result;
}

static PyObject *gradients_of(PyObject *node, const dycl_tape *t, PyObject *saved, PyObject *gradients,
                              PyObject *needed) {
    if (!dycl_abi_grad_enabled()) {
        PyObject *found = dycl_tape_backward(t, saved, gradients, needed);
        if (found != Py_None) return found;
        Py_DECREF(found);
    }
    return PyObject_CallFunctionObjArgs(functions.otherwise, node, saved, gradients, needed, NULL);
}

static PyObject *tuple_of(PyObject *const *items, Py_ssize_t count, int *any) {
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple && i < count; i++) {
        *any |= items[i] != Py_None;
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(items[i]));
    }
    return tuple;
}

/* Of each source whether the pass wants a gradient: a tuple. */
static PyObject *needed_of(PyObject *node) {
    PyObject *all = PyObject_GetAttr(node, needs_name);
    PyObject *ever = all ? PyTuple_GetSlice(all, BEFORE, PY_SSIZE_T_MAX) : NULL;
    Py_XDECREF(all);
    if (!ever || dycl_wanted_all()) return ever;
    PyObject *now = dycl_wanted_of(node);
    if (now && PyTuple_GET_SIZE(now) == PyTuple_GET_SIZE(ever)) {
        Py_DECREF(ever);
        return now;
    }
    Py_XDECREF(now);
    if (!PyErr_Occurred()) return ever;
    Py_DECREF(ever);
    return NULL;
}

/* The pass frees what the node saved. */
static void let_go(PyObject *node, dycl_tape *t) {
    dycl_tape *outer = (dycl_tape *)t->outer;
    dycl_tape_let_go(t);
    if (outer && outer->shown) {
        outer->shown = 0;
        outer->outdated = 1;
    }
    if (!t->shown && !t->outdated) return;
    t->shown = t->outdated = 0;
    if (PyObject_SetAttr(node, shown_name, Py_None) < 0) PyErr_Clear();
}

static PyObject *node_backward(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    PyObject *node = count ? args[0] : NULL, *t = node ? PyObject_GetAttr(node, tape_name) : NULL, *found = NULL;
    (void)self;
    if (!t || Py_TYPE(t) != &dycl_tape_type) {
        Py_XDECREF(t);
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "backward(node, *gradients)");
    }
    int any = 0;
    /* an error where they were freed */
    PyObject *saved = dycl_tape_is_gone((dycl_tape *)t) ? PyObject_CallNoArgs(functions.again)
                      : ((dycl_tape *)t)->once          ? PyObject_GetAttr(node, saved_tensors_name)
                                                        : PyTuple_New(0);
    PyObject *needed = saved ? needed_of(node) : NULL;
    PyObject *gradients = needed ? tuple_of(args + 1, count - 1, &any) : NULL;
    if (gradients) found = any ? gradients_of(node, (dycl_tape *)t, saved, gradients, needed) : PyTuple_New(0);
    if (found && !dycl_abi_keeps_graph()) let_go(node, (dycl_tape *)t);
    PyObject *result = behind_none(found, needed ? PyTuple_GET_SIZE(needed) : 0);
    Py_XDECREF(found);
    Py_XDECREF(gradients);
    Py_XDECREF(needed);
    Py_XDECREF(saved);
    Py_DECREF(t);
    return result;
}

/* ---- What dycl._autograd sees of it */

static PyObject *set_nodes(PyObject *self, PyObject *args) {
    PyObject *apply_of, *otherwise, *again;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO", &apply_of, &otherwise, &again)) return NULL;
    Py_XSETREF(functions.again, Py_NewRef(again));
    Py_XSETREF(functions.apply_of, Py_NewRef(apply_of));
    Py_XSETREF(functions.otherwise, Py_NewRef(otherwise));
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"set_nodes", set_nodes, METH_VARARGS,
     "set_nodes(apply_of, otherwise, again): apply_of(name) makes a node of that name; otherwise(node, saved, "
     "gradients, "
     "needed) gives the gradients where a plan does not; again() raises what torch raises where they were freed."},
    {"node_forward", (PyCFunction)(void *)node_forward, METH_FASTCALL,
     "node_forward(node, tape, results, saved, *sources): the results."},
    {"node_backward", (PyCFunction)(void *)node_backward, METH_FASTCALL,
     "node_backward(node, *gradients): None for each argument that is no source, and the gradients."},
    {0},
};

/* node_apply: node_backward as a method of a class, which a built-in function is not by itself. */
int dycl_node_add(PyObject *module) {
    if (!(materialize_name = PyUnicode_InternFromString("materialize_grads")) ||
        !(tape_name = PyUnicode_InternFromString("tape")) || !(shown_name = PyUnicode_InternFromString("shown")) ||
        !(to_save_name = PyUnicode_InternFromString("to_save")) ||
        !(saved_tensors_name = PyUnicode_InternFromString("saved_tensors")) ||
        !(needs_name = PyUnicode_InternFromString("needs_input_grad")) ||
        !(is_leaf_name = PyUnicode_InternFromString("is_leaf")) || !(base_name = PyUnicode_InternFromString("_base")) ||
        !(apply_name = PyUnicode_InternFromString("apply")) || PyModule_AddFunctions(module, methods) < 0)
        return -1;
    PyObject *function = PyObject_GetAttrString(module, "node_backward");
    Py_XSETREF(own_apply, function ? PyInstanceMethod_New(function) : NULL);
    Py_XDECREF(function);
    return own_apply ? PyModule_AddObjectRef(module, "node_apply", own_apply) : -1;
}

int dycl_node_is(PyObject *node) { return own_apply && dycl_type_lookup(Py_TYPE(node), apply_name) == own_apply; }
