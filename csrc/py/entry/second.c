#include "py/entry/second.h"

#include <string.h>

#include "base/alloc.h"
#include "py/entry/callable.h"
#include "py/entry/enter.h"
#include "py/region/called.h"
#include "py/region/replay.h"
#include "py/region/tape.h"
#include "py/region/track.h"

/* A kind: of one graph. */
typedef enum { UNKNOWN, NAMED, PROVEN, LEFT_TO_TORCH } state;
typedef struct {
    dycl_site *site;  /* owned; NULL: none yet */
    PyObject *names;  /* owned: by source (name of the node, which output) or None; NULL: torch has not said it yet */
    PyObject *record; /* owned: what the site calls */
    state state;
    uint64_t proven; /* for feeds of which these have a history, as bits; or 0 */
} kind;

static void let_go(void *beside) {
    kind *k = beside;
    Py_XDECREF(k->site);
    Py_XDECREF(k->names);
    Py_XDECREF(k->record);
    dycl_free(k);
}

/* ---- Which kinds are recorded */

/* A gradient is what came, or has memory of its own: views of what came, and of each other, torch makes. */
static int are_apart(const dycl_opened_pass *p, uint32_t count) {
    const uint32_t *gradients = p->of->built.gradients;
    for (uint32_t i = 0; i < count; i++) {
        if (gradients[i] == DYCL_NONE) continue;
        const dycl_value *v = &p->graph->values[gradients[i]];
        if (p->graph->values[v->root].kind != DYCL_VALUE_NODE && v->root != gradients[i]) return 0;
        for (uint32_t k = 0; k < i; k++)
            if (gradients[k] != DYCL_NONE && gradients[k] != gradients[i] &&
                p->graph->values[gradients[k]].root == v->root)
                return 0;
    }
    return 1;
}

/* torch differentiates these as parts of one function (_as_one_function of dycl/_replay.py). */
static int is_part(const dycl_graph *graph, const dycl_node *node) {
    const uint32_t *operands = dycl_node_operands(graph, node);
    if (node->op == DYCL_OP_sqrt) return dycl_value_is_made_by(graph, operands[0], DYCL_OP_sumsq);
    if (node->op != DYCL_OP_maximum && node->op != DYCL_OP_minimum) return 0;
    return graph->values[operands[0]].kind == DYCL_VALUE_SCALAR || graph->values[operands[1]].kind == DYCL_VALUE_SCALAR;
}

static int may_be_recorded(const dycl_opened_pass *p, uint32_t count) {
    for (uint32_t i = 0; i < p->of->built.tie_count; i++)
        if (!p->of->built.ties[i].nothing) return 0; /* zeros come for what is tied */
    if (!are_apart(p, count)) return 0;
    for (uint32_t n = 0; n < p->graph->node_count; n++)
        if (is_part(p->graph, &p->graph->nodes[n])) return 0;
    return 1;
}

static kind *kind_of(const dycl_opened_pass *p, uint32_t count) {
    if (p->of->beside) return p->of->beside;
    kind *k = dycl_alloc_zero(sizeof *k);
    if (!k) {
        PyErr_NoMemory();
        return NULL;
    }
    k->state = may_be_recorded(p, count) ? UNKNOWN : LEFT_TO_TORCH;
    p->of->beside = k;
    p->of->let_go = let_go;
    return k;
}

/* ---- Recording */

static _Thread_local struct {
    const dycl_opened_pass *pass; /* NULL: nobody records */
    kind *kind;
    uint32_t count;
    int proven;
} now;

static int lies_as(const dycl_graph *graph, uint32_t value, const dycl_value *wanted) {
    const dycl_value *v = &graph->values[value];
    int same = v->dtype == wanted->dtype && v->rank == wanted->rank;
    for (int i = 0; i < v->rank && same; i++)
        same = v->sizes[i] == wanted->sizes[i] && v->strides[i] == wanted->strides[i];
    return same;
}

/* Of a kind that is new: what is made has a history where an operand has one, and a formula to go back with. */
static dycl_status prove(dycl_region *region, const dycl_node *node, const uint32_t *operands, uint32_t out) {
    if (now.proven) return DYCL_OK;
    int history = dycl_dtype_is_float((dycl_dtype)region->recorder.graph.values[out].dtype) &&
                  dycl_track_any_now(region, node->operand_count, operands);
    if (history && node->op != DYCL_OP_cut && !dycl_track_has_now(region, out)) return DYCL_BAIL;
    return dycl_track_has_formula(region, out) > 0 ? DYCL_OK : DYCL_BAIL;
}

static dycl_status record_node(dycl_region *region, const dycl_node *node, const uint32_t *map, uint32_t *out) {
    const dycl_graph *graph = now.pass->graph;
    uint32_t operands[DYCL_MAX_OPERANDS];
    for (int i = 0; i < node->operand_count; i++) {
        uint32_t value = dycl_node_operands(graph, node)[i];
        operands[i] = value == DYCL_NONE ? DYCL_NONE : map[value];
    }
    int laid = node->op == DYCL_OP_laid; /* how a segment keeps a value, which has no history: here it is the value */
    dycl_status status = laid ? dycl_build_contiguous(&region->recorder, operands[0], out)
                              : dycl_build_node(&region->recorder, (dycl_op)node->op, node->operand_count, operands,
                                                node->attr_count, dycl_node_attrs(graph, node), out);
    return status == DYCL_OK ? prove(region, node, operands, *out) : status;
}

static int is_detached(uint32_t value) {
    const dycl_backward *built = &now.pass->of->built;
    for (uint32_t i = 0; i < built->detached_count; i++)
        if (built->detached[i] == value) return 1;
    return 0;
}

/* map: by value of the graph, its value in the region. */
static dycl_status record_value(dycl_region *region, uint32_t v, uint32_t *map) {
    const dycl_graph *graph = now.pass->graph;
    const dycl_value *value = &graph->values[v];
    if (value->kind == DYCL_VALUE_FEED) return dycl_region_value(region, now.pass->feeds[value->source], &map[v]);
    if (value->kind == DYCL_VALUE_NODE) return record_node(region, &graph->nodes[value->source], map, &map[v]);
    dycl_scalar number = now.pass->numbers[value->source];
    return dycl_build_scalar(&region->recorder, (dycl_dtype)value->dtype, number, &map[v]);
}

/* A tensor that is no such feed this time says nothing of the kind. */
static dycl_status record_values(dycl_region *region, uint32_t *map) {
    const dycl_graph *graph = now.pass->graph;
    dycl_status status = DYCL_OK;
    for (uint32_t v = 0; v < graph->value_count && status == DYCL_OK; v++) {
        status = record_value(region, v, map);
        if (status == DYCL_OK && !lies_as(&region->recorder.graph, map[v], &graph->values[v])) status = DYCL_BAIL;
        if (status == DYCL_BAIL && graph->values[v].kind != DYCL_VALUE_FEED) now.kind->state = LEFT_TO_TORCH;
        if (status == DYCL_OK && is_detached(v) && !dycl_track_drop(region, map[v])) status = DYCL_BAIL;
    }
    return status;
}

/* What is tied to a gradient has a part in its history, and nothing more: it must not be the only one. */
static int ties_hold(const dycl_region *region, const uint32_t *map) {
    const dycl_backward *built = &now.pass->of->built;
    for (uint32_t i = 0; i < built->tie_count; i++)
        if (dycl_track_has(region, map[built->ties[i].saved]) && !dycl_track_has(region, map[built->ties[i].gradient]))
            return 0;
    return 1;
}

/* Of a gradient that is a view here: a tensor of its own, as where it is not differentiated. */
static dycl_status own(dycl_region *region, uint32_t *value) {
    if (region->recorder.graph.values[*value].root == *value) return DYCL_OK;
    return dycl_build_node(&region->recorder, DYCL_OP_copy, 1, value, 0, NULL, value);
}

static PyObject *result_of(dycl_region *region, uint32_t nth, const uint32_t *map) {
    uint32_t gradient = now.pass->of->built.gradients[nth];
    if (gradient == DYCL_NONE) return Py_NewRef(Py_None);
    const dycl_value *v = &now.pass->graph->values[gradient];
    if (v->kind == DYCL_VALUE_FEED) return Py_NewRef(now.pass->feeds[v->source]);
    uint32_t value = map[gradient];
    if (own(region, &value) != DYCL_OK) return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    PyObject *result = dycl_region_result(region, value), *name = PyTuple_GET_ITEM(now.kind->names, nth);
    if (result && name != Py_None) dycl_called_say(region, result, name);
    return result;
}

/* Sources of one gradient get one tensor. */
static PyObject *results_of(dycl_region *region, const uint32_t *map) {
    const uint32_t *gradients = now.pass->of->built.gradients;
    PyObject *results = PyTuple_New(now.count);
    for (uint32_t i = 0; results && i < now.count; i++) {
        uint32_t same = dycl_tape_place(gradients[i], gradients, i);
        PyObject *o = same < i ? Py_NewRef(PyTuple_GET_ITEM(results, same)) : result_of(region, i, map);
        if (!o)
            Py_CLEAR(results);
        else
            PyTuple_SET_ITEM(results, i, o);
    }
    return results;
}

/* Which feeds have a history, as bits below one that is set; 0: there are too many. */
static uint64_t histories(const dycl_opened_pass *p) {
    uint64_t bits = p->graph->feed_count < 64;
    for (uint32_t i = 0; bits && i < p->graph->feed_count; i++)
        bits = bits << 1 | (dycl_abi_requires_grad(p->feeds[i]) != 0);
    return bits;
}

/* The body of the call. None: it is not recorded. */
static PyObject *record_body(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    dycl_region *region = dycl_region_current;
    PyObject *result = NULL;
    (void)self;
    (void)args;
    (void)count;
    if (!now.pass || !region || !dycl_region_records(region) || !region->may_track) Py_RETURN_NONE;
    uint32_t *map = dycl_alloc((now.pass->graph->value_count + 1) * sizeof *map);
    if (!map) return PyErr_NoMemory();
    uint64_t with = histories(now.pass);
    now.proven = with && now.kind->state == PROVEN && now.kind->proven == with;
    dycl_status status = record_values(region, map);
    if (status == DYCL_OK && !ties_hold(region, map)) status = DYCL_BAIL;
    if (status == DYCL_OK) result = results_of(region, map);
    if (status == DYCL_BAIL) result = Py_NewRef(Py_None);
    if (status == DYCL_ERROR && !PyErr_Occurred()) PyErr_NoMemory();
    if (status == DYCL_OK && result) {
        now.kind->state = PROVEN;
        now.kind->proven = with;
    }
    dycl_free(map);
    return result;
}

static PyMethodDef body = {"gradients", (PyCFunction)(void *)record_body, METH_FASTCALL, NULL};

static int make_site(kind *k) {
    k->record = PyCFunction_New(&body, NULL);
    k->site = k->record ? (dycl_site *)dycl_site_create(k->record, NULL, NULL) : NULL;
    if (k->site) k->site->always = 1;
    return k->site ? 0 : -1;
}

static PyObject *call(const dycl_opened_pass *p, kind *k, uint32_t count) {
    if (!k->site && make_site(k) < 0) return NULL;
    now.pass = p;
    now.kind = k;
    now.count = count;
    PyObject *result = dycl_region_call(k->site, k->record, NULL, 0, NULL);
    now.pass = NULL;
    return result;
}

static PyObject *record(const dycl_pass_job *job, PyObject *saved, PyObject *gradients, PyObject *needed) {
    if (dycl_replay_always || dycl_region_current || !dycl_enter_plain_state()) Py_RETURN_NONE;
    dycl_opened_pass p = dycl_pass_open(job, saved, gradients, needed);
    PyObject *result = NULL;
    if (p.status == DYCL_OK) {
        kind *k = kind_of(&p, job->source_count);
        int ready = k && (k->state == NAMED || k->state == PROVEN);
        if (k) result = ready ? call(&p, k, job->source_count) : Py_NewRef(Py_None);
        if (result && result != Py_None) {
            p.of->recorded++;
            dycl_passes_ran(job->passes);
        }
    }
    dycl_pass_close(&p);
    return p.status == DYCL_BAIL ? Py_NewRef(Py_None) : result;
}

static int parse(PyObject *args, PyObject **out) {
    PyObject *tape;
    if (!PyArg_ParseTuple(args, "O!O!O!O!|O", &dycl_tape_type, &tape, &PyTuple_Type, &out[1], &PyTuple_Type, &out[2],
                          &PyTuple_Type, &out[3], &out[4]))
        return -1;
    out[0] = tape;
    return 0;
}

PyObject *dycl_second_record(PyObject *self, PyObject *args) {
    PyObject *given[5] = {NULL};
    (void)self;
    if (parse(args, given) < 0) return NULL;
    return dycl_tape_pass((dycl_tape *)given[0], given[1], given[2], given[3], record);
}

/* ---- Learning */

static PyObject *name_of(PyObject *tensor) {
    PyObject *node = tensor == Py_None ? Py_NewRef(Py_None) : dycl_py_grad_fn(tensor);
    PyObject *nth = node && node != Py_None ? PyObject_GetAttrString(tensor, "output_nr") : NULL;
    const char *dot = node ? strrchr(Py_TYPE(node)->tp_name, '.') : NULL;
    PyObject *name = nth ? Py_BuildValue("(sO)", dot ? dot + 1 : Py_TYPE(node)->tp_name, nth) : NULL;
    if (node == Py_None) name = Py_NewRef(Py_None);
    Py_XDECREF(node);
    Py_XDECREF(nth);
    return name;
}

static _Thread_local PyObject *found; /* borrowed: what torch found */

static PyObject *learn(const dycl_pass_job *job, PyObject *saved, PyObject *gradients, PyObject *needed) {
    dycl_opened_pass p = dycl_pass_open(job, saved, gradients, needed);
    kind *k = p.status == DYCL_OK ? kind_of(&p, job->source_count) : NULL;
    PyObject *names = NULL;
    if (k && k->state == UNKNOWN) {
        names = PyTuple_New(job->source_count);
        for (uint32_t i = 0; names && i < job->source_count; i++) {
            PyObject *name = name_of(PyTuple_GET_ITEM(found, i));
            if (name)
                PyTuple_SET_ITEM(names, i, name);
            else
                Py_CLEAR(names);
        }
        if (names) {
            Py_XSETREF(k->names, names);
            k->state = NAMED;
        }
    }
    dycl_pass_close(&p);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

PyObject *dycl_second_learn(PyObject *self, PyObject *args) {
    PyObject *given[5] = {NULL};
    (void)self;
    if (parse(args, given) < 0) return NULL;
    const dycl_tape *t = (dycl_tape *)given[0];
    if (!given[4] || !PyTuple_Check(given[4]) || PyTuple_GET_SIZE(given[4]) != t->source_count)
        return PyErr_Format(PyExc_TypeError, "learn_gradients(tape, saved, gradients, needed, found)");
    found = given[4];
    return dycl_tape_pass(t, given[1], given[2], given[3], learn);
}
