#include "py/modules/stock.h"

#include <string.h>

#include "py/bind/index.h"
#include "py/bind/call.h"
#include "py/modules/composite.h"
#include "py/cpython/trace.h"
#include "py/modules/instance.h"
#include "py/region/called.h"
#include "py/region/track.h"

/* A module's configuration, read once and valid while its __dict__ and its _parameters did not change (CPython's dict
 * version tags). */
typedef struct {
    dycl_instance instance;
    PyObject *parameters, *buffers; /* borrowed from the module's dict */
    uint64_t parameters_version, buffers_version;
    PyObject *tensors[4]; /* borrowed: weight, bias, running mean, running variance; NULL: absent */
    int64_t ints[7];
    double real;
    int flag;
} config;

struct stock;
typedef dycl_status (*record_fn)(dycl_region *region, const struct stock *kind, const config *c, PyObject *input,
                                 uint32_t *out);
typedef int (*read_fn)(const struct stock *kind, PyObject *dict,
                       config *c); /* 1, or 0 when this configuration is not served */

typedef struct stock {
    const char *name;
    read_fn read;
    record_fn record;
    int op;
    PyTypeObject *type;
    PyObject *forward;            /* torch's own */
    const char *function, *given; /* of torch.nn.functional, and the attributes that it is given; | before names */
    PyObject *callable, *names, *keywords; /* owned: that function, interned names, and the last of them as keywords */
} stock;

/* ---- Reading attributes */

static int read_f64(PyObject *dict, const char *name, double *out) {
    PyObject *o = PyDict_GetItemString(dict, name);
    if (o && PyLong_CheckExact(o)) {
        *out = PyLong_AsDouble(o);
        return 1;
    }
    if (!o || !PyFloat_CheckExact(o)) return 0;
    *out = PyFloat_AS_DOUBLE(o);
    return 1;
}

static int read_int(PyObject *dict, const char *name, int64_t *out) {
    PyObject *o = PyDict_GetItemString(dict, name);
    int overflow = 0;
    if (!o || !PyLong_CheckExact(o)) return 0;
    *out = PyLong_AsLongLongAndOverflow(o, &overflow);
    return !overflow;
}

static int read_bool(PyObject *dict, const char *name, int *out) {
    PyObject *o = PyDict_GetItemString(dict, name);
    if (!o || !PyBool_Check(o)) return 0;
    *out = o == Py_True;
    return 1;
}

static int read_pair(PyObject *dict, const char *name, int64_t out[2]) {
    PyObject *o = PyDict_GetItemString(dict, name);
    if (!o || !PyTuple_Check(o) || PyTuple_GET_SIZE(o) != 2) return 0;
    for (int i = 0; i < 2; i++) {
        PyObject *item = PyTuple_GET_ITEM(o, i);
        int overflow = 0;
        if (!PyLong_CheckExact(item)) return 0;
        out[i] = PyLong_AsLongLongAndOverflow(item, &overflow);
        if (overflow) return 0;
    }
    return 1;
}

static int read_tensor(PyObject *holder, const char *name, PyObject **out) { /* a parameter or buffer, or None */
    PyObject *o = holder ? PyDict_GetItemString(holder, name) : NULL;
    *out = o == Py_None ? NULL : o;
    return o != NULL;
}

static int read_weight_and_bias(config *c) {
    return read_tensor(c->parameters, "weight", &c->tensors[0]) && read_tensor(c->parameters, "bias", &c->tensors[1]);
}

/* ---- Recording */

static dycl_status tensor_value(dycl_region *region, PyObject *tensor, uint32_t *out) {
    *out = DYCL_NONE;
    return tensor ? dycl_region_value(region, tensor, out) : DYCL_OK;
}

/* The operands of a module with a weight and a bias. */
static dycl_status weighted(dycl_region *region, const config *c, PyObject *input, uint32_t out[3]) {
    dycl_status status;
    DYCL_TRY(dycl_region_value(region, input, &out[0]));
    DYCL_TRY(tensor_value(region, c->tensors[0], &out[1]));
    return tensor_value(region, c->tensors[1], &out[2]);
fail:
    return status;
}

static int read_linear(const stock *kind, PyObject *dict, config *c) {
    (void)kind;
    (void)dict;
    return read_weight_and_bias(c) && c->tensors[0];
}

static dycl_status record_linear(dycl_region *region, const stock *kind, const config *c, PyObject *input,
                                 uint32_t *out) {
    dycl_status status;
    uint32_t operands[3];
    (void)kind;
    DYCL_TRY(weighted(region, c, input, operands));
    return dycl_build_node(&region->recorder, DYCL_OP_linear, 3, operands, 0, NULL, out);
fail:
    return status;
}

static int read_layer_norm(const stock *kind, PyObject *dict, config *c) {
    PyObject *shape = PyDict_GetItemString(dict, "normalized_shape");
    (void)kind;
    if (!shape || !PyTuple_Check(shape)) return 0;
    c->ints[0] = PyTuple_GET_SIZE(shape);
    if (c->ints[0] < 1 || c->ints[0] > 2) return 0;
    for (int i = 0; i < c->ints[0]; i++) {
        c->ints[1 + i] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, i));
        if (PyErr_Occurred()) {
            PyErr_Clear();
            return 0;
        }
    }
    return read_weight_and_bias(c) && read_f64(dict, "eps", &c->real);
}

static dycl_status record_layer_norm(dycl_region *region, const stock *kind, const config *c, PyObject *input,
                                     uint32_t *out) {
    dycl_status status;
    uint32_t operands[3];
    (void)kind;
    DYCL_TRY(weighted(region, c, input, operands));
    const dycl_value *value = &region->recorder.graph.values[operands[0]];
    if (value->rank < c->ints[0]) return dycl_build_bail(&region->recorder, DYCL_BAIL_shape);
    for (int i = 0; i < c->ints[0]; i++)
        if (value->sizes[value->rank - c->ints[0] + i] != c->ints[1 + i])
            return dycl_build_bail(&region->recorder, DYCL_BAIL_shape);
    int64_t attrs[2] = {c->ints[0], dycl_f64_attr(c->real)};
    return dycl_build_node(&region->recorder, DYCL_OP_layer_norm, 3, operands, 2, attrs, out);
fail:
    return status;
}

static int read_conv2d(const stock *kind, PyObject *dict, config *c) {
    PyObject *mode = PyDict_GetItemString(dict, "padding_mode");
    (void)kind;
    return mode && PyUnicode_Check(mode) && PyUnicode_CompareWithASCIIString(mode, "zeros") == 0 &&
           read_weight_and_bias(c) && c->tensors[0] && read_pair(dict, "stride", c->ints) &&
           read_pair(dict, "padding", c->ints + 2) && read_pair(dict, "dilation", c->ints + 4) &&
           read_int(dict, "groups", c->ints + 6);
}

static dycl_status record_conv2d(dycl_region *region, const stock *kind, const config *c, PyObject *input,
                                 uint32_t *out) {
    dycl_status status;
    uint32_t operands[3];
    (void)kind;
    DYCL_TRY(weighted(region, c, input, operands));
    return dycl_build_node(&region->recorder, DYCL_OP_conv2d, 3, operands, 7, c->ints, out);
fail:
    return status;
}

static int read_batch_norm(const stock *kind, PyObject *dict, config *c) {
    int training, tracks;
    (void)kind;
    return read_bool(dict, "training", &training) && !training && read_bool(dict, "track_running_stats", &tracks) &&
           read_weight_and_bias(c) && read_tensor(c->buffers, "running_mean", &c->tensors[2]) &&
           read_tensor(c->buffers, "running_var", &c->tensors[3]) && c->tensors[2] && c->tensors[3] &&
           read_f64(dict, "eps", &c->real);
}

static dycl_status record_batch_norm(dycl_region *region, const stock *kind, const config *c, PyObject *input,
                                     uint32_t *out) {
    dycl_status status;
    uint32_t operands[5];
    int64_t eps = dycl_f64_attr(c->real);
    DYCL_TRY(dycl_region_value(region, input, &operands[0]));
    if (region->recorder.graph.values[operands[0]].rank != kind->op)
        return dycl_build_bail(&region->recorder, DYCL_BAIL_shape);
    DYCL_TRY(tensor_value(region, c->tensors[2], &operands[1]));
    DYCL_TRY(tensor_value(region, c->tensors[3], &operands[2]));
    DYCL_TRY(tensor_value(region, c->tensors[0], &operands[3]));
    DYCL_TRY(tensor_value(region, c->tensors[1], &operands[4]));
    return dycl_build_node(&region->recorder, DYCL_OP_batch_norm, 5, operands, 1, &eps, out);
fail:
    return status;
}

static int read_activation(const stock *kind, PyObject *dict, config *c) {
    PyObject *approximate;
    c->ints[0] = kind->op;
    c->flag = 0;
    if (PyDict_GetItemString(dict, "inplace") && (!read_bool(dict, "inplace", &c->flag) || c->flag))
        return 0; /* in place: the function path */
    if (kind->op != DYCL_OP_gelu) return 1;
    approximate = PyDict_GetItemString(dict, "approximate");
    if (!approximate || !PyUnicode_Check(approximate)) return 0;
    if (PyUnicode_CompareWithASCIIString(approximate, "tanh") == 0)
        c->ints[0] = DYCL_OP_gelu_tanh;
    else
        return PyUnicode_CompareWithASCIIString(approximate, "none") == 0;
    return 1;
}

static dycl_status record_activation(dycl_region *region, const stock *kind, const config *c, PyObject *input,
                                     uint32_t *out) {
    dycl_status status;
    dycl_operand operand = dycl_operand_of(0);
    (void)kind;
    DYCL_TRY(dycl_region_value(region, input, &operand.value));
    if (!dycl_dtype_is_float((dycl_dtype)region->recorder.graph.values[operand.value].dtype))
        return dycl_build_bail(&region->recorder, DYCL_BAIL_dtype);
    return dycl_build_ew(&region->recorder, (dycl_op)c->ints[0], DYCL_PROMOTE_COMMON, 1, &operand, out);
fail:
    return status;
}

/* scale_grad_by_freq and sparse only concern gradients; max_norm renormalises the weight in place */
static int read_embedding(const stock *kind, PyObject *dict, config *c) {
    PyObject *padding = PyDict_GetItemString(dict, "padding_idx");
    int by_frequency, sparse;
    (void)kind;
    c->flag = padding && padding != Py_None;
    return padding && (!c->flag || read_int(dict, "padding_idx", c->ints)) &&
           PyDict_GetItemString(dict, "max_norm") == Py_None && read_bool(dict, "scale_grad_by_freq", &by_frequency) &&
           read_bool(dict, "sparse", &sparse) && (c->ints[1] = by_frequency || sparse, 1) &&
           read_tensor(c->parameters, "weight", &c->tensors[0]) && c->tensors[0];
}

static dycl_status record_embedding(dycl_region *region, const stock *kind, const config *c, PyObject *input,
                                    uint32_t *out) {
    dycl_status status;
    uint32_t operands[2];
    int64_t bounds[2], padding = c->flag ? c->ints[0] : -1;
    int padded = c->flag, special = (int)c->ints[1];
    PyObject *weight = Py_NewRef(c->tensors[0]); /* reading the indices may compute them, meanwhile other threads run: c
                                                    is not looked at again */
    (void)kind;
    DYCL_TRY(dycl_region_index(region, input, &operands[1], bounds));
    DYCL_TRY(dycl_region_value(region, weight, &operands[0]));
    const dycl_value *v = &region->recorder.graph.values[operands[0]];
    if (padded && padding < 0) padding += v->sizes[0];
    if (v->rank != 2)
        status = dycl_build_bail(&region->recorder, DYCL_BAIL_shape);
    else if (region->tracks && special)
        status = dycl_build_bail(&region->recorder, DYCL_BAIL_grad);
    else if (padded && (padding < 0 || padding >= v->sizes[0]))
        status = dycl_build_bail(&region->recorder, DYCL_BAIL_arguments);
    else if (!dycl_index_within(bounds, v->sizes[0]))
        status = dycl_build_bail(&region->recorder, DYCL_BAIL_index);
    else
        status = dycl_build_node(&region->recorder, DYCL_OP_embedding, 2, operands, 1, &padding, out);
fail:
    Py_DECREF(weight);
    return status;
}

static int read_identity(const stock *kind, PyObject *dict, config *c) {
    int training = 0;
    (void)c;
    return kind->op == 0 || (read_bool(dict, "training", &training) && !training);
}

static stock stocks[] = {
    {"Linear", read_linear, record_linear, 0, NULL, NULL, "linear", "weight bias", NULL, NULL, NULL},
    {"LayerNorm", read_layer_norm, record_layer_norm, 0, NULL, NULL, "layer_norm", "normalized_shape weight bias eps",
     NULL, NULL, NULL},
    {"Embedding", read_embedding, record_embedding, 0, NULL, NULL, "embedding", "weight padding_idx", NULL, NULL, NULL},
    {"Conv2d", read_conv2d, record_conv2d, 0, NULL, NULL, "conv2d", "weight bias stride padding dilation groups", NULL,
     NULL, NULL},
    {"BatchNorm2d", read_batch_norm, record_batch_norm, 4, NULL, NULL, "batch_norm",
     "running_mean running_var weight bias training momentum eps", NULL, NULL, NULL},
    {"ReLU", read_activation, record_activation, DYCL_OP_relu, NULL, NULL, "relu", "", NULL, NULL, NULL},
    {"GELU", read_activation, record_activation, DYCL_OP_gelu, NULL, NULL, "gelu", "| approximate", NULL, NULL, NULL},
    {"SiLU", read_activation, record_activation, DYCL_OP_silu, NULL, NULL, "silu", "", NULL, NULL, NULL},
    {"Sigmoid", read_activation, record_activation, DYCL_OP_sigmoid, NULL, NULL, "sigmoid", "", NULL, NULL, NULL},
    {"Tanh", read_activation, record_activation, DYCL_OP_tanh, NULL, NULL, "tanh", "", NULL, NULL, NULL},
    {"ReLU6", read_activation, record_activation, DYCL_OP_relu6, NULL, NULL, "relu6", "", NULL, NULL, NULL},
    {"Hardswish", read_activation, record_activation, DYCL_OP_hardswish, NULL, NULL, "hardswish", "", NULL, NULL, NULL},
    {"Hardsigmoid", read_activation, record_activation, DYCL_OP_hardsigmoid, NULL, NULL, "hardsigmoid", "", NULL, NULL,
     NULL},
    {"Mish", read_activation, record_activation, DYCL_OP_mish, NULL, NULL, "mish", "", NULL, NULL, NULL},
    {"Identity", read_identity, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL,
     NULL}, /* record NULL: the input itself comes back */
    {"Dropout", read_identity, NULL, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL},
    {"Dropout2d", read_identity, NULL, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL},
};
enum { STOCKS = sizeof stocks / sizeof *stocks };

/* ---- The slot */

static config configs[DYCL_INSTANCES];
static ternaryfunc original;                 /* nn.Module's slot: the same for every stock class */
static PyObject *call_impl, *call_attribute; /* owned: nn.Module's own _call_impl and __call__ */

static int read_config(const stock *kind, PyObject *module, PyObject *dict, config *c) {
    unsigned known = c->instance.type_version;
    c->instance.module = NULL;
    if (known == 0 || known != dycl_type_version(kind->type)) { /* somebody may have replaced the class's forward */
        PyObject *forward = PyObject_GetAttrString((PyObject *)kind->type, "forward"),
                 *call = PyObject_GetAttrString((PyObject *)kind->type, "_call_impl");
        int same = forward == kind->forward && call == call_impl;
        Py_XDECREF(forward);
        Py_XDECREF(call);
        PyErr_Clear();
        if (!same) return 0;
    }
    c->parameters = PyDict_GetItemString(dict, "_parameters");
    c->buffers = PyDict_GetItemString(dict, "_buffers");
    if (!c->parameters || !c->buffers || !PyDict_Check(c->parameters) || !PyDict_Check(c->buffers)) return 0;
    memset(c->tensors, 0, sizeof c->tensors);
    if (!kind->read(kind, dict, c)) return 0;
    c->parameters_version = dycl_dict_version(c->parameters);
    c->buffers_version = dycl_dict_version(c->buffers);
    return !PyDict_GetItemString(dict, "forward") && dycl_instance_read(&c->instance, module, dict);
}

static config *config_of(const stock *kind, PyObject *module) {
    PyObject *dict = dycl_object_dict(module);
    if (!dict) return NULL;
    config *c = &configs[dycl_instance_place(module)];
    if (!dycl_instance_is_current(&c->instance, module, dict) ||
        c->parameters_version != dycl_dict_version(c->parameters) ||
        c->buffers_version != dycl_dict_version(c->buffers))
        if (!read_config(kind, module, dict, c)) return NULL;
    return dycl_instance_hooked(&c->instance) ? NULL : c;
}

/* ---- What its forward would have called (region/called.h) */

#define MOST_GIVEN 8

static int find_function(stock *kind, PyObject *functional) {
    if (!kind->function) return 0;
    int positional = -1, count = 0;
    PyObject *names = PyList_New(0), *words = PyUnicode_FromString(kind->given), *split = NULL;
    if (words) split = PyUnicode_Split(words, NULL, -1);
    for (Py_ssize_t i = 0; names && split && i < PyList_GET_SIZE(split); i++) {
        PyObject *word = Py_NewRef(PyList_GET_ITEM(split, i));
        if (PyUnicode_CompareWithASCIIString(word, "|") == 0) {
            positional = count;
        } else {
            PyUnicode_InternInPlace(&word);
            if (PyList_Append(names, word) < 0) Py_CLEAR(names);
            count++;
        }
        Py_DECREF(word);
    }
    if (names && split) {
        kind->names = PyList_AsTuple(names);
        if (kind->names && positional >= 0) kind->keywords = PyTuple_GetSlice(kind->names, positional, count);
    }
    Py_XDECREF(names);
    Py_XDECREF(words);
    Py_XDECREF(split);
    kind->callable = PyObject_GetAttrString(functional, kind->function);
    return kind->names && kind->callable && (positional < 0 || kind->keywords) ? 0 : -1;
}

static void note_call(dycl_region *region, const stock *kind, const config *c, PyObject *module, PyObject *x,
                      PyObject *result) {
    PyObject *args[1 + MOST_GIVEN] = {x}, *dict = dycl_object_dict(module);
    Py_ssize_t count = kind->names ? PyTuple_GET_SIZE(kind->names) : 0, named = kind->keywords ? 1 : 0;
    if (!kind->callable || !dict || count > MOST_GIVEN) return;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *name = PyTuple_GET_ITEM(kind->names, i), *o = PyDict_GetItem(dict, name);
        if (!o) o = PyDict_GetItem(c->parameters, name);
        if (!o) o = PyDict_GetItem(c->buffers, name);
        if (!o) return;
        args[1 + i] = o;
    }
    const dycl_made_call made = {kind->callable, args, 1 + count - named, kind->keywords, NULL, DYCL_NONE};
    dycl_called_note(region, &made, result);
}

static PyObject *try_stock(const stock *kind, PyObject *module, PyObject *x) {
    dycl_region *region = dycl_region_current;
    if (!dycl_region_records(region)) return NULL;
    if (!dycl_is_lazy(x) && Py_TYPE(x) != dycl_py.tensor_type) return NULL;
    const config *c = config_of(kind, module);
    if (!c) return NULL;
    if (!kind->record) return Py_NewRef(x);
    uint32_t out = 0, first = region->recorder.graph.value_count;
    dycl_status status = kind->record(region, kind, c, x, &out);
    if (status == DYCL_OK && !dycl_track_lets(region, first, 1)) return NULL; /* its forward tells torch */
    if (status == DYCL_OK) {
        PyObject *result = dycl_region_result(region, out);
        if (kind->record == record_linear) result = dycl_linear_result(region, result, out);
        if (result && region->tracks) note_call(region, kind, c, module, x, result);
        if (result && dycl_region_settle(region) < 0) Py_CLEAR(result);
        return result;
    }
    if (status == DYCL_ERROR && !PyErr_Occurred()) dycl_py_raise();
    return NULL;
}

static PyObject *stock_call(PyObject *self, PyObject *args, PyObject *kwargs) {
    if (dycl_region_current && PyTuple_GET_SIZE(args) == 1 && !kwargs && !dycl_traced()) {
        for (int i = 0; i < STOCKS; i++) {
            if (Py_TYPE(self) != stocks[i].type) continue;
            PyObject *result = try_stock(&stocks[i], self, PyTuple_GET_ITEM(args, 0));
            if (result || PyErr_Occurred()) return result;
            break;
        }
    }
    return original(self, args, kwargs);
}

/* Assigning to a class attribute __call__ (torch.fx does, for a while) gives every class below its ordinary slot back.
 */
static void put_slots_back(void) {
    PyObject *attribute = PyObject_GetAttrString((PyObject *)dycl_py.module_type, "__call__");
    for (int i = 0; i < STOCKS && attribute == call_attribute; i++)
        if (stocks[i].type->tp_call == original) stocks[i].type->tp_call = stock_call;
    Py_XDECREF(attribute);
    PyErr_Clear();
}

void dycl_modules_refresh(void) {
    if (__builtin_expect(stocks[0].type->tp_call != stock_call, 0)) {
        put_slots_back();
        dycl_composite_lost();
    }
}

int dycl_modules_setup(void) {
    PyObject *nn = PyObject_GetAttrString(dycl_py.torch, "nn");
    PyObject *functional = nn ? PyObject_GetAttrString(nn, "functional") : NULL;
    int result = functional ? dycl_instance_setup() : -1;
    call_impl = PyObject_GetAttrString((PyObject *)dycl_py.module_type, "_call_impl");
    call_attribute = PyObject_GetAttrString((PyObject *)dycl_py.module_type, "__call__");
    if (!call_impl || !call_attribute) result = -1;
    original = dycl_py.module_type->tp_call;
    for (int i = 0; i < STOCKS && result == 0; i++) {
        stocks[i].type = (PyTypeObject *)PyObject_GetAttrString(nn, stocks[i].name);
        stocks[i].forward = stocks[i].type ? PyObject_GetAttrString((PyObject *)stocks[i].type, "forward") : NULL;
        if (!stocks[i].forward || find_function(&stocks[i], functional) < 0)
            result = -1;
        else if (stocks[i].type->tp_call == original) /* else somebody else is there already */
            stocks[i].type->tp_call = stock_call;
    }
    Py_XDECREF(nn);
    Py_XDECREF(functional);
    return result < 0 ? result : dycl_composite_setup();
}
