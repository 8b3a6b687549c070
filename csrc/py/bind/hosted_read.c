/* The arguments of a call as a row of hosted.def wants them. */
#include "py/bind/hosted_read.h"

#include <stdlib.h>
#include <string.h>

#include "py/bind/index.h"

/* ---- Reading arguments */

static int is_number(PyObject *o) { return PyFloat_CheckExact(o) || PyLong_CheckExact(o); }
static int is_sequence(PyObject *o) { return PyTuple_Check(o) || PyList_CheckExact(o); }

static int holds(PyObject *o, int (*fits)(PyObject *)) {
    if (!is_sequence(o)) return 0;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); i++)
        if (!fits(PySequence_Fast_GET_ITEM(o, i))) return 0;
    return 1;
}

static int is_int(PyObject *o) { return PyLong_CheckExact(o); }
static int is_part(PyObject *o) { return o == Py_None || dycl_is_tensor(o); }

static int word_of(const dycl_hosted_parameter *p, PyObject *o) {
    const char *word = PyUnicode_CheckExact(o) ? PyUnicode_AsUTF8(o) : NULL;
    PyErr_Clear();
    return word ? dycl_hosted_find_word(p, word) : -1;
}

static int fits(const dycl_hosted_parameter *p, PyObject *o) {
    switch (p->kind) {
    case 't': return dycl_is_tensor(o);
    case 'o': return o == Py_None || dycl_is_tensor(o);
    case 'T': return holds(o, is_part);
    case 'i': return is_int(o);
    case 'j': return o == Py_None || is_int(o);
    case 'f': return is_number(o);
    case 'g': return o == Py_None || is_number(o);
    case 'b': return PyBool_Check(o);
    case 'l': return (p->copies && is_int(o)) || holds(o, is_int);
    case 'm': return o == Py_None || (p->copies && is_int(o)) || holds(o, is_int);
    case 'r': return o == Py_None || holds(o, is_number);
    case 'd': return o == Py_None || Py_TYPE(o) == dycl_py.dtype_type;
    case 'w': return word_of(p, o) >= 0;
    default: return 0;
    }
}

static int place(const dycl_hosted *h, PyObject *name, PyObject *value, PyObject **p) {
    int self = PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "input") == 0;
    for (int i = 0; i < h->parameter_count; i++) {
        const char *wanted = h->parameters[i].name;
        if (!(self && i == 0 && strcmp(wanted, "self") == 0) &&
            !(PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, wanted) == 0))
            continue;
        if (p[i]) return 0;
        p[i] = value;
        return 1;
    }
    return 0;
}

int dycl_hosted_match(const dycl_call *call, const dycl_hosted *h, PyObject **p) {
    Py_ssize_t named = call->kwnames ? PyTuple_GET_SIZE(call->kwnames) : 0, at = 0;
    PyObject *name, *value;
    memset(p, 0, DYCL_HOSTED_PARAMETERS * sizeof *p);
    if (call->count > h->parameter_count) return 0;
    for (Py_ssize_t i = 0; i < call->count; i++) {
        if (h->parameters[i].keyword) return 0;
        p[i] = call->args[i];
    }
    for (Py_ssize_t i = 0; i < named; i++)
        if (!place(h, PyTuple_GET_ITEM(call->kwnames, i), call->args[call->count + i], p)) return 0;
    while (call->kwdict && PyDict_Next(call->kwdict, &at, &name, &value))
        if (!place(h, name, value, p)) return 0;
    for (int i = 0; i < h->parameter_count; i++) {
        const dycl_hosted_parameter *parameter = &h->parameters[i];
        if (p[i] == Py_None && parameter->kind == 'l' && parameter->fallback &&
            strncmp(parameter->fallback, "[]", 2) == 0)
            p[i] = NULL; /* what torch's parser has for an empty list */
        if (p[i] ? !fits(parameter, p[i]) : !parameter->fallback) return 0;
    }
    return 1;
}

static int describe(PyObject *tensor, dycl_value *out) {
    dycl_lazy_meta meta;
    dycl_tensor_view view;
    memset(out, 0, sizeof *out);
    if (dycl_is_lazy(tensor)) {
        if (dycl_lazy_describe(tensor, &meta) < 0) {
            PyErr_Clear();
            return 0;
        }
    } else if (dycl_abi_is_plain(dycl_abi_impl(tensor)) && dycl_abi_read(dycl_abi_borrow(tensor), &view)) {
        meta = (dycl_lazy_meta){view.dtype, view.rank, view.sizes, view.strides};
    } else {
        return 0;
    }
    out->rank = (uint8_t)meta.rank;
    memcpy(out->sizes, meta.sizes, (size_t)meta.rank * sizeof *meta.sizes);
    memcpy(out->strides, meta.strides, (size_t)meta.rank * sizeof *meta.strides);
    return 1;
}

static int is_contiguous(PyObject *tensor) {
    dycl_value v;
    return describe(tensor, &v) && dycl_value_contiguous(&v);
}

int dycl_hosted_is_pure(dycl_op op, PyObject *const *p) {
    switch (op) {
    case DYCL_OP_aten_cross: return p[2] && p[2] != Py_None; /* without: torch warns, and takes the first of size 3 */
    case DYCL_OP_aten_bucketize: return is_contiguous(p[0]) && is_contiguous(p[1]);
    case DYCL_OP_aten_batch_norm:
    case DYCL_OP_aten_instance_norm:
        return p[5] == Py_False || (p[3] == Py_None && p[4] == Py_None); /* running statistics are written */
    case DYCL_OP_aten_attention: return !p[4] || (PyFloat_CheckExact(p[4]) && PyFloat_AS_DOUBLE(p[4]) == 0);
    default: return 1;
    }
}

/* ---- What values decide about */

int dycl_hosted_has_index(dycl_op op) {
    return (op >= DYCL_OP_aten_scatter_src && op <= DYCL_OP_aten_index_add) || op == DYCL_OP_aten_cross_entropy_loss ||
           op == DYCL_OP_aten_nll_loss_nd;
}

static int decides(dycl_op op) { return dycl_hosted_has_index(op) || op == DYCL_OP_aten_binary_cross_entropy; }

static dycl_status bail(dycl_call *call, dycl_bail why) { return dycl_build_bail(&call->region->recorder, why); }

static dycl_status sizes_of(dycl_call *call, PyObject *tensor, int *out_rank, int64_t *out_sizes) {
    uint32_t value;
    dycl_status status = dycl_call_value(call, tensor, &value);
    if (status != DYCL_OK) return status;
    const dycl_value *v = dycl_call_meta(call, value);
    *out_rank = v->rank;
    memcpy(out_sizes, v->sizes, sizeof v->sizes);
    return DYCL_OK;
}

/* The size that an index must stay below; from_end: it may count from the end. */
static dycl_status check_index(dycl_call *call, PyObject *index, int64_t size, int from_end) {
    uint32_t value;
    int64_t bounds[2];
    dycl_status status = dycl_region_index(call->region, index, &value, bounds);
    if (status != DYCL_OK || bounds[0] > bounds[1]) return status;
    return bounds[0] >= (from_end ? -size : 0) && bounds[1] < size ? DYCL_OK : bail(call, DYCL_BAIL_index);
}

static dycl_status check_targets(dycl_call *call, PyObject *const *p) {
    int64_t sizes[DYCL_MAX_RANK];
    int rank;
    uint32_t target;
    dycl_status status;
    DYCL_TRY(dycl_call_value(call, p[1], &target));
    if (dycl_dtype_is_float((dycl_dtype)dycl_call_meta(call, target)->dtype)) return DYCL_OK; /* probabilities */
    DYCL_TRY(sizes_of(call, p[0], &rank, sizes));
    if (rank == 0) return bail(call, DYCL_BAIL_shape);
    return check_index(call, p[1], sizes[rank > 1], 0);
fail:
    return status;
}

static dycl_status check_positions(dycl_call *call, PyObject *list, int rank, const int64_t *sizes) {
    dycl_status status = DYCL_OK;
    if (PySequence_Fast_GET_SIZE(list) > rank) return bail(call, DYCL_BAIL_shape);
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list) && status == DYCL_OK; i++)
        if (PySequence_Fast_GET_ITEM(list, i) != Py_None)
            status = check_index(call, PySequence_Fast_GET_ITEM(list, i), sizes[i], 1);
    return status;
}

#define SHARES(type, step)                                                                                             \
    _Pragma("omp simd reduction(| : others)") for (int64_t i = 0; i < count; i++) others |=                            \
        !(((const type *)data)[i * (step)] >= 0) | (((const type *)data)[i * (step)] > 1);
#define NOT_SHARES(type)                                                                                               \
    if (stride == 1)                                                                                                   \
        SHARES(type, 1)                                                                                                \
    else                                                                                                               \
        SHARES(type, stride)

static void look_for_others(const dycl_value *v, const void *data, int64_t count, int64_t stride, void *context) {
    int others = 0;
    if (v->dtype == DYCL_F32) {
        NOT_SHARES(float)
    } else {
        NOT_SHARES(double)
    }
    *(int *)context |= others;
}

/* Numbers from 0 to 1, NaN is none. */
static dycl_status check_shares(dycl_call *call, PyObject *shares) {
    uint32_t value;
    int outside = 0;
    dycl_status status;
    DYCL_TRY(dycl_region_computed(call->region, shares, &value));
    int dtype = dycl_call_meta(call, value)->dtype;
    if (dtype != DYCL_F32 && dtype != DYCL_F64) return bail(call, DYCL_BAIL_dtype);
    dycl_region_each_row(call->region, value, look_for_others, &outside);
    if (outside) return bail(call, DYCL_BAIL_index);
fail:
    return status;
}

/* Whether every index lies in its dimension, and every share between 0 and 1, so that no value is an error later. May
 * begin a new segment: before anything else. */
static dycl_status check_values(dycl_call *call, dycl_op op, PyObject *const *p) {
    int64_t sizes[DYCL_MAX_RANK];
    int rank, dim;
    dycl_status status;
    if (op == DYCL_OP_aten_cross_entropy_loss || op == DYCL_OP_aten_nll_loss_nd) return check_targets(call, p);
    if (op == DYCL_OP_aten_binary_cross_entropy) {
        DYCL_TRY(check_shares(call, p[0]));
        return check_shares(call, p[1]);
    }
    DYCL_TRY(sizes_of(call, p[0], &rank, sizes));
    if (op == DYCL_OP_aten_index || op == DYCL_OP_aten_index_put || op == DYCL_OP_aten_index_add)
        return check_positions(call, p[1], rank, sizes);
    if (op == DYCL_OP_aten_take) {
        int64_t all = 1;
        for (int i = 0; i < rank; i++) all *= sizes[i];
        return check_index(call, p[1], all, 1);
    }
    DYCL_TRY(dycl_call_dim(call, p[1], rank, &dim));
    return check_index(call, p[2], rank ? sizes[dim] : 1, 0);
fail:
    return status;
}

/* ---- Attributes */

#define MOST_INT (INT64_C(1) << 47)

static int push(dycl_hosted_call *a, int64_t word) {
    if (a->word_count == DYCL_MAX_ATTRS) return 0;
    a->words[a->word_count++] = word;
    return 1;
}

static int push_int(dycl_hosted_call *a, PyObject *o) {
    int overflow;
    int64_t word = PyLong_AsLongLongAndOverflow(o, &overflow);
    return !overflow && word >= -MOST_INT && word <= MOST_INT && push(a, word);
}

static int push_float(dycl_hosted_call *a, PyObject *o) {
    double value = PyFloat_AsDouble(o);
    if (value == -1 && PyErr_Occurred()) {
        PyErr_Clear(); /* an integer beyond a double */
        return 0;
    }
    return push(a, dycl_f64_attr(value));
}

static int push_list(dycl_hosted_call *a, const dycl_hosted_parameter *p, PyObject *o) {
    if (o == Py_None) return push(a, -1);
    if (!is_sequence(o)) {
        if (!push(a, p->copies)) return 0;
        for (int i = 0; i < p->copies; i++)
            if (!push_int(a, o)) return 0;
        return 1;
    }
    if (!push(a, PySequence_Fast_GET_SIZE(o))) return 0;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); i++)
        if (!(p->kind == 'r' ? push_float(a, PySequence_Fast_GET_ITEM(o, i))
                             : push_int(a, PySequence_Fast_GET_ITEM(o, i))))
            return 0;
    return 1;
}

static int push_default(dycl_hosted_call *a, const dycl_hosted_parameter *p) {
    char text[32], *at = text;
    size_t length = strcspn(p->fallback, " ");
    memcpy(text, p->fallback, length);
    text[length] = 0;
    int none = strcmp(text, "None") == 0;
    switch (p->kind) {
    case 'i': return push(a, strtoll(text, NULL, 10));
    case 'f': return push(a, dycl_f64_attr(strtod(text, NULL)));
    case 'b': return push(a, strcmp(text, "True") == 0);
    case 'j':
    case 'g': return none && push(a, 0) && push(a, 0);
    case 'd': return push(a, -1);
    case 'w': return push(a, dycl_hosted_find_word(p, text));
    default: break;
    }
    if (none) return push(a, -1);
    if (*at != '[') { /* so many of them */
        for (int i = 0; i <= p->copies; i++)
            if (!push(a, i ? strtoll(text, NULL, 10) : p->copies)) return 0;
        return 1;
    }
    int count = a->word_count;
    if (!push(a, 0)) return 0;
    while (*++at && *at != ']') {
        if (!push(a, strtoll(at, &at, 10))) return 0;
        a->words[count]++;
        if (*at == ']') break;
    }
    return 1;
}

static int push_argument(dycl_hosted_call *a, const dycl_hosted_parameter *p, PyObject *o) {
    dycl_dtype dtype;
    if (!o) return push_default(a, p);
    switch (p->kind) {
    case 'i': return push_int(a, o);
    case 'j': return push(a, o != Py_None) && (o == Py_None ? push(a, 0) : push_int(a, o));
    case 'f': return push_float(a, o);
    case 'g': return push(a, o != Py_None) && (o == Py_None ? push(a, 0) : push_float(a, o));
    case 'b': return push(a, o == Py_True);
    case 'd': return o == Py_None ? push(a, -1) : dycl_dtype_from_object(o, &dtype) && push(a, dtype);
    case 'w': return push(a, word_of(p, o));
    default: return push_list(a, p, o);
    }
}

/* ---- The whole call */

static dycl_status push_operand(dycl_call *call, dycl_hosted_call *out, PyObject *o) {
    if (out->operand_count == DYCL_FORM_OPERANDS) return bail(call, DYCL_BAIL_limit);
    return dycl_call_optional_value(call, o, &out->operands[out->operand_count++]);
}

dycl_status dycl_hosted_read_call(dycl_call *call, dycl_op op, PyObject *const *p, dycl_hosted_call *out) {
    const dycl_hosted *h = dycl_hosted_get(op);
    dycl_status status = decides(op) ? check_values(call, op, p) : DYCL_OK;
    out->operand_count = out->word_count = 0;
    for (int i = 0; i < h->parameter_count && status == DYCL_OK; i++) {
        char kind = h->parameters[i].kind;
        if (kind == 't' || kind == 'o') {
            status = push_operand(call, out, p[i]);
        } else if (kind == 'T') {
            for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(p[i]) && status == DYCL_OK; k++)
                status = push_operand(call, out, PySequence_Fast_GET_ITEM(p[i], k));
        } else if (!push_argument(out, &h->parameters[i], p[i])) {
            status = bail(call, DYCL_BAIL_arguments);
        }
    }
    return status;
}
