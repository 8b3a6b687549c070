#include "py/bind/hosted.h"

#include <omp.h>
#include <string.h>

#include "base/alloc.h"
#include "base/host.h"
#include "grad/backward.h"
#include "ir/infer.h"
#include "py/bind/hosted_read.h"
#include "py/cpython/collect.h"
#include "py/region/track.h"

/* ---- From a callable to its operators */

#define OVERLOADS 3

typedef struct {
    PyObject *callable; // owned
    dycl_op ops[OVERLOADS];
    int count, in_place;
} entry;

#define ENTRIES 1024 /* a power of two */
static entry entries[ENTRIES];
static int entry_count;

static entry *find(PyObject *callable) { /* its entry, or the free one where it belongs */
    uint32_t at = dycl_address_hash(callable, 10);
    while (entries[at].callable && entries[at].callable != callable) at = (at + 1) % ENTRIES;
    return &entries[at];
}

int dycl_hosted_add(PyObject *callable, dycl_op op, int in_place) {
    entry *e = find(callable);
    int is_new = !e->callable;
    if (is_new && 2 * ++entry_count > ENTRIES) {
        PyErr_SetString(PyExc_SystemError, "dycl: the table of hosted operators is too small");
        return -1;
    }
    if (is_new) *e = (entry){.callable = Py_NewRef(callable), .in_place = in_place};
    if (e->count < OVERLOADS && !(e->count && e->ops[e->count - 1] == op)) e->ops[e->count++] = op;
    return is_new;
}

/* ---- Recording */

static int has_onednn(void) {
    PyObject *enabled = dycl_py.mkldnn_enabled ? PyObject_CallNoArgs(dycl_py.mkldnn_enabled) : NULL;
    int result = enabled != Py_False;
    Py_XDECREF(enabled);
    PyErr_Clear();
    return result;
}

dycl_form *dycl_hosted_known(dycl_call *call, dycl_op op, int variant, const dycl_hosted_call *h) {
    dycl_region *region = call->region;
    dycl_form_key key;
    int flags = variant * DYCL_FORM_VARIANT;
    region->recorder.why = DYCL_BAIL_shape; /* empty tensors are not recorded: nothing to learn */
    for (int i = 0; i < h->operand_count; i++)
        if (h->operands[i] != DYCL_NONE && dycl_value_numel(&region->recorder.graph.values[h->operands[i]]) == 0)
            return NULL;
    if (call->in_place) flags |= DYCL_FORM_IN_PLACE;
    if (dycl_default_dtype == DYCL_F64) flags |= DYCL_FORM_DOUBLE;
    for (int i = 0; i < h->operand_count && region->tracks; i++)
        if (h->operands[i] != DYCL_NONE && dycl_track_has_now(region, h->operands[i]))
            flags |= DYCL_FORM_HISTORY | DYCL_FORM_OPERAND << i;
    if (dycl_abi_dispatch_inference(&region->dispatch)) flags |= DYCL_FORM_INFERENCE;
    if (dycl_hosted_get(op)->work == 'C') {
        if (!has_onednn()) flags |= DYCL_FORM_NO_ONEDNN;
        if (omp_get_max_threads() == 1) flags |= DYCL_FORM_ONE_THREAD; /* entry/enter.c: that is torch's number */
    }
    region->recorder.why = DYCL_BAIL_limit;
    if (!dycl_form_key_of(&region->recorder.graph, op, flags, h->operand_count, h->operands, h->word_count, h->words,
                          &key))
        return NULL;
    region->recorder.why = DYCL_BAIL_operator;
    dycl_form *form = dycl_form_find(&key);
    if (form && form->gradient < 0) region->recorder.why = DYCL_BAIL_grad;
    if (form) return form->results && form->gradient >= 0 ? form : NULL;
    dycl_free(region->lesson);
    region->lesson = dycl_alloc(sizeof *region->lesson);
    if (region->lesson) *region->lesson = (dycl_lesson){key, flags, 0};
    region->recorder.why = DYCL_BAIL_first;
    return NULL;
}

dycl_status dycl_hosted_node(dycl_call *call, dycl_op op, int which, dycl_dtype dtype, int rank, const int64_t *sizes,
                             const int64_t *strides, const dycl_hosted_call *h, uint32_t *out) {
    int64_t words[3 + 2 * DYCL_MAX_RANK + DYCL_MAX_ATTRS] = {which, dtype, rank};
    int count = 3 + 2 * rank;
    if (count + h->word_count > DYCL_MAX_ATTRS) return dycl_build_bail(&call->region->recorder, DYCL_BAIL_limit);
    memcpy(words + 3, sizes, (size_t)rank * sizeof *words);
    memcpy(words + 3 + rank, strides, (size_t)rank * sizeof *words);
    memcpy(words + count, h->words, (size_t)h->word_count * sizeof *words);
    return dycl_build_node(&call->region->recorder, op, h->operand_count, h->operands, count + h->word_count, words,
                           out);
}

/* Where a gradient is needed, torch calls another operator, whose second result its backward pass reads: where the
 * largest elements of a pool are, the lengths of a weight's rows. */
static dycl_op with_history(dycl_op op) {
    switch (op) {
    case DYCL_OP_aten_weight_norm: return DYCL_OP_aten_weight_norm_interface;
    case DYCL_OP_aten_max_pool1d: return DYCL_OP_aten_max_pool1d_with_indices;
    case DYCL_OP_aten_max_pool2d: return DYCL_OP_aten_max_pool2d_with_indices;
    case DYCL_OP_aten_max_pool3d: return DYCL_OP_aten_max_pool3d_with_indices;
    default: return op;
    }
}

/* Their results have no history, whatever the operands are. */
static int is_of_no_floats(dycl_op op) {
    return op == DYCL_OP_aten_signbit || op == DYCL_OP_aten_isposinf || op == DYCL_OP_aten_isneginf ||
           op == DYCL_OP_aten_bucketize || op == DYCL_OP_aten_isclose;
}

/* What the second result looks like; comes as the first. 0: torch makes it of several operators (a weight's lengths
 * along an inner dimension, or of what is not contiguous). */
static int describe_second(dycl_call *call, dycl_op op, const dycl_hosted_call *h, dycl_form_result *out) {
    if (op != DYCL_OP_aten_weight_norm) {
        out->dtype = DYCL_I64;
        return 1;
    }
    const dycl_value *v = dycl_call_meta(call, h->operands[0]), *g = dycl_call_meta(call, h->operands[1]);
    const int64_t dim = h->words[0];
    int fits = v->rank > 1 && g->rank == v->rank && g->dtype == v->dtype && (dim == 0 || dim == v->rank - 1);
    for (int i = 0; i < v->rank && fits; i++) fits = g->sizes[i] == (i == dim ? v->sizes[i] : 1);
    dycl_value made = *g;
    dycl_infer_contiguous(&made);
    memcpy(out->sizes, made.sizes, sizeof out->sizes);
    memcpy(out->strides, made.strides, sizeof out->strides);
    return fits && dycl_value_contiguous(v) && dycl_value_contiguous(g);
}

static PyObject *record(dycl_call *call, dycl_op op, dycl_form *form, const dycl_hosted_call *h) {
    uint32_t values[DYCL_HOSTED_RESULTS] = {0};
    int history = dycl_track_any_now(call->region, h->operand_count, h->operands);
    dycl_op made = history ? with_history(op) : op;
    dycl_form_result other = form->result[0];
    if (made != op && !describe_second(call, op, h, &other)) return dycl_call_bail(call, DYCL_BAIL_grad);
    for (int i = 0; i < form->results; i++)
        DYCL_CALL_TRY(dycl_hosted_node(call, made, i, form->result[i].dtype, form->result[i].rank,
                                       form->result[i].sizes, form->result[i].strides, h, &values[i]));
    if (made != op)
        DYCL_CALL_TRY(
            dycl_hosted_node(call, made, 1, other.dtype, other.rank, other.sizes, other.strides, h, &values[1]));
    if (history && !form->gradient) { /* known only when it was recorded */
        int has = dycl_track_has_formula(call->region, values[0]);
        if (has >= 0) form->gradient = has ? 1 : -1;
        if (has <= 0) return dycl_call_bail(call, DYCL_BAIL_grad);
    }
    if (!form->type) {
        PyObject *result = dycl_call_finish(call, DYCL_OK, values[0]);
        if (form->result[0].view) result = dycl_call_as_view(call, result);
        return dycl_call_written(call, result, call->in_place ? 0 : form->writes);
    }
    PyObject *first = dycl_lazy_new(call->region, values[0]),
             *second = first ? dycl_region_result(call->region, values[1]) : NULL, *pair = NULL;
    if (form->result[0].view) first = dycl_call_as_view(call, first);
    if (form->result[1].view) second = dycl_call_as_view(call, second);
    first = dycl_call_written(call, first, form->writes);
    second = dycl_call_written(call, second, form->writes);
    if (first && second) pair = PyTuple_Pack(2, first, second);
    Py_XDECREF(first);
    Py_XDECREF(second);
    if (pair && form->type != (PyObject *)&PyTuple_Type) Py_SETREF(pair, PyObject_CallOneArg(form->type, pair));
    return pair;
}

/* It has a history that no formula is known for: all else would be done in vain. */
static int leaves_history(const dycl_region *region, dycl_op op, PyObject *const *p) {
    const dycl_hosted *h = dycl_hosted_get(op);
    if (!region->tracks || dycl_grad_has(with_history(op)) || is_of_no_floats(op) || !dycl_abi_grad_enabled()) return 0;
    for (int i = 0; i < h->parameter_count; i++) {
        if (h->parameters[i].kind != 'T' && dycl_call_needs_gradient(p[i])) return 1;
        for (Py_ssize_t k = 0; h->parameters[i].kind == 'T' && k < PySequence_Fast_GET_SIZE(p[i]); k++)
            if (dycl_call_needs_gradient(PySequence_Fast_GET_ITEM(p[i], k))) return 1;
    }
    return 0;
}

static int reads_itself(const dycl_hosted *h, PyObject *const *p) {
    for (int i = 1; i < h->parameter_count; i++)
        if (p[i] == p[0]) return 1;
    return 0;
}

/* What has a history is looked at when the result is known (call.c finish_in_place): of operators that save nothing but
 * positions. Others may save their result in place, and their operand else (selu). */
static int may_write(dycl_region *region, dycl_op op, PyObject *self) {
    if (!dycl_is_lazy(self)) return 0;
    int adds = op == DYCL_OP_aten_index_add || op == DYCL_OP_aten_scatter_add;
    int learns = region->tracks && adds ? dycl_region_needs_gradient(self) : 0;
    return learns < 0 ? 0 : learns || dycl_region_may_write(region, self);
}

PyObject *dycl_hosted_record_op(dycl_call *call, dycl_op op, int variant, PyObject **p) {
    dycl_region *region = call->region;
    const dycl_hosted *h = dycl_hosted_get(op);
    dycl_hosted_call read;
    uint64_t epoch;
    int rounds = 0;
    if (!dycl_host_functions.call || !dycl_hosted_is_pure(op, p)) return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (leaves_history(region, op, p)) return dycl_call_bail(call, DYCL_BAIL_grad);
    if (call->in_place && dycl_hosted_has_index(op) && reads_itself(h, p))
        return dycl_call_bail(call, DYCL_BAIL_alias); /* torch raises */
    if (call->in_place && !*h->out && h->tensor_count > 1)
        return dycl_call_bail(call, DYCL_BAIL_alias); /* the result may be of another dtype than its target */
    if (call->in_place && !may_write(region, op, p[0]))
        return PyErr_Occurred() ? NULL : dycl_call_bail(call, DYCL_BAIL_alias);
    do {
        epoch = region->epoch;
        DYCL_CALL_TRY(dycl_hosted_read_call(call, op, p, &read));
    } while (epoch != region->epoch &&
             rounds++ < 4); /* indices were computed: the values are those of the segment before */
    if (epoch != region->epoch) return dycl_call_bail(call, DYCL_BAIL_index);
    dycl_form *form = dycl_hosted_known(call, op, variant, &read);
    if (!form) return NULL;
    call->p[0] = p[0]; /* what is written, when it is in place */
    return record(call, op, form, &read);
}

PyObject *dycl_hosted_record(dycl_region *region, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                             PyObject *kwnames, PyObject *kwdict) {
    const entry *e = find(callable);
    PyObject *p[DYCL_HOSTED_PARAMETERS];
    dycl_call call;
    if (!e->callable) return NULL;
    dycl_bail why = region->recorder.why;
    region->calling = callable;
    dycl_call_begin(&call, region, args, count, e->in_place);
    call.kwnames = kwnames;
    call.kwdict = kwdict;
    call.whole = 1; /* formulas of hosted operators are those of functions (grad/hosted.h) */
    for (int i = 0; i < e->count; i++) {
        if (!dycl_hosted_match(&call, dycl_hosted_get(e->ops[i]), p)) continue;
        dycl_collect_hold();
        PyObject *result = dycl_hosted_record_op(&call, e->ops[i], 0, p);
        if (result && region->tracks) result = dycl_call_track(&call, 1, result);
        dycl_collect_release();
        return dycl_binding_settle(&call, result);
    }
    region->recorder.why = why;
    return NULL;
}

dycl_lesson *dycl_hosted_take_lesson(dycl_region *region) {
    dycl_lesson *lesson = region->lesson;
    region->lesson = NULL;
    return lesson;
}
