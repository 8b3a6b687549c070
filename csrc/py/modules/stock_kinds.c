#include "py/modules/stock_kinds.h"

#include "py/bind/index.h"
#include "py/bind/call.h"

/* ---- Reading attributes */

static int read_f64(PyObject *dict, const char *name, double *out) {
    PyObject *o = PyDict_GetItemString(dict, name);
    if (o && PyLong_CheckExact(o)) {
        *out = PyLong_AsDouble(o);
        if (*out != -1 || !PyErr_Occurred()) return 1;
        PyErr_Clear(); /* no double holds it */
        return 0;
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

/* A parameter or buffer, or None. What stands in the module's own __dict__ goes before them. */
static int read_tensor(PyObject *dict, PyObject *holder, const char *name, PyObject **out) {
    PyObject *o = holder ? PyDict_GetItemString(holder, name) : NULL;
    *out = o == Py_None ? NULL : o;
    return o != NULL && !PyDict_GetItemString(dict, name);
}

static int read_weight_and_bias(PyObject *dict, dycl_stock_config *c) {
    return read_tensor(dict, c->parameters, "weight", &c->tensors[0]) &&
           read_tensor(dict, c->parameters, "bias", &c->tensors[1]);
}

/* ---- Recording */

static dycl_status tensor_value(dycl_region *region, PyObject *tensor, uint32_t *out) {
    *out = DYCL_NONE;
    return tensor ? dycl_region_value(region, tensor, out) : DYCL_OK;
}

/* The operands of a module with a weight and a bias. */
static dycl_status weighted(dycl_region *region, const dycl_stock_config *c, PyObject *input, uint32_t out[3]) {
    dycl_status status;
    DYCL_TRY(dycl_region_value(region, input, &out[0]));
    DYCL_TRY(tensor_value(region, c->tensors[0], &out[1]));
    return tensor_value(region, c->tensors[1], &out[2]);
fail:
    return status;
}

/* A linear layer, or a convolution: what was read are the attributes. */
static dycl_status record_weighted(dycl_region *region, const dycl_stock *kind, const dycl_stock_config *c,
                                   PyObject *input, uint32_t *out) {
    dycl_status status;
    uint32_t operands[3];
    DYCL_TRY(weighted(region, c, input, operands));
    return dycl_build_node(&region->recorder, (dycl_op)kind->op, 3, operands, c->int_count, c->ints, out);
fail:
    return status;
}

static int read_linear(const dycl_stock *kind, PyObject *dict, dycl_stock_config *c) {
    (void)kind;
    c->int_count = 0;
    return read_weight_and_bias(dict, c) && c->tensors[0];
}

static int read_layer_norm(const dycl_stock *kind, PyObject *dict, dycl_stock_config *c) {
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
    return read_weight_and_bias(dict, c) && read_f64(dict, "eps", &c->real);
}

static dycl_status record_layer_norm(dycl_region *region, const dycl_stock *kind, const dycl_stock_config *c,
                                     PyObject *input, uint32_t *out) {
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

static int read_conv2d(const dycl_stock *kind, PyObject *dict, dycl_stock_config *c) {
    PyObject *mode = PyDict_GetItemString(dict, "padding_mode");
    (void)kind;
    c->int_count = 7;
    return mode && PyUnicode_Check(mode) && PyUnicode_CompareWithASCIIString(mode, "zeros") == 0 &&
           read_weight_and_bias(dict, c) && c->tensors[0] && read_pair(dict, "stride", c->ints) &&
           read_pair(dict, "padding", c->ints + 2) && read_pair(dict, "dilation", c->ints + 4) &&
           read_int(dict, "groups", c->ints + 6);
}

static int read_batch_norm(const dycl_stock *kind, PyObject *dict, dycl_stock_config *c) {
    int training, tracks;
    PyObject *momentum = PyDict_GetItemString(dict, "momentum");
    (void)kind;
    return momentum && (momentum == Py_None || PyFloat_CheckExact(momentum) || PyLong_CheckExact(momentum)) &&
           read_bool(dict, "training", &training) && !training && read_bool(dict, "track_running_stats", &tracks) &&
           read_weight_and_bias(dict, c) && read_tensor(dict, c->buffers, "running_mean", &c->tensors[2]) &&
           read_tensor(dict, c->buffers, "running_var", &c->tensors[3]) && c->tensors[2] && c->tensors[3] &&
           read_f64(dict, "eps", &c->real);
}

static dycl_status record_batch_norm(dycl_region *region, const dycl_stock *kind, const dycl_stock_config *c,
                                     PyObject *input, uint32_t *out) {
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

static int read_activation(const dycl_stock *kind, PyObject *dict, dycl_stock_config *c) {
    PyObject *approximate;
    int has_inplace = kind->op != DYCL_OP_gelu && kind->op != DYCL_OP_sigmoid && kind->op != DYCL_OP_tanh;
    c->ints[0] = kind->op;
    c->flag = 0;
    if (has_inplace && (!read_bool(dict, "inplace", &c->flag) || c->flag)) return 0; /* in place: the function path */
    if (kind->op == DYCL_OP_relu6) { /* a Hardtanh of these bounds, which the program may have moved */
        double low, high;
        return read_f64(dict, "min_val", &low) && low == 0 && read_f64(dict, "max_val", &high) && high == 6;
    }
    if (kind->op != DYCL_OP_gelu) return 1;
    approximate = PyDict_GetItemString(dict, "approximate");
    if (!approximate || !PyUnicode_Check(approximate)) return 0;
    if (PyUnicode_CompareWithASCIIString(approximate, "tanh") == 0)
        c->ints[0] = DYCL_OP_gelu_tanh;
    else
        return PyUnicode_CompareWithASCIIString(approximate, "none") == 0;
    return 1;
}

static dycl_status record_activation(dycl_region *region, const dycl_stock *kind, const dycl_stock_config *c,
                                     PyObject *input, uint32_t *out) {
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
static int read_embedding(const dycl_stock *kind, PyObject *dict, dycl_stock_config *c) {
    PyObject *padding = PyDict_GetItemString(dict, "padding_idx");
    int by_frequency, sparse;
    (void)kind;
    c->flag = padding && padding != Py_None;
    return padding && (!c->flag || read_int(dict, "padding_idx", c->ints)) &&
           PyDict_GetItemString(dict, "max_norm") == Py_None && read_bool(dict, "scale_grad_by_freq", &by_frequency) &&
           read_bool(dict, "sparse", &sparse) && (c->ints[1] = by_frequency || sparse, 1) &&
           read_tensor(dict, c->parameters, "weight", &c->tensors[0]) && c->tensors[0];
}

static dycl_status record_embedding(dycl_region *region, const dycl_stock *kind, const dycl_stock_config *c,
                                    PyObject *input, uint32_t *out) {
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

/* Identity (0), Dropout (1) and Dropout2d (2), which has a word to say of tensors of other ranks than 4. */
static int read_identity(const dycl_stock *kind, PyObject *dict, dycl_stock_config *c) {
    int training = 0;
    c->flag = kind->op == 2;
    if (kind->op == 0) return 1;
    return read_bool(dict, "training", &training) && !training && read_f64(dict, "p", &c->real) && c->real >= 0 &&
           c->real <= 1;
}

dycl_stock dycl_stocks[DYCL_STOCK_COUNT] = {
    {"Linear", read_linear, record_weighted, DYCL_OP_linear, NULL, NULL, "linear", "weight bias", NULL, NULL, NULL},
    {"LayerNorm", read_layer_norm, record_layer_norm, 0, NULL, NULL, "layer_norm", "normalized_shape weight bias eps",
     NULL, NULL, NULL},
    {"Embedding", read_embedding, record_embedding, 0, NULL, NULL, "embedding", "weight padding_idx", NULL, NULL, NULL},
    {"Conv2d", read_conv2d, record_weighted, DYCL_OP_conv2d, NULL, NULL, "conv2d",
     "weight bias stride padding dilation groups", NULL, NULL, NULL},
    {"BatchNorm2d", read_batch_norm, record_batch_norm, 4, NULL, NULL, "batch_norm",
     "running_mean running_var weight bias training momentum eps", NULL, NULL, NULL},
    {"ReLU", read_activation, record_activation, DYCL_OP_relu, NULL, NULL, "relu", "", NULL, NULL, NULL},
    {"GELU", read_activation, record_activation, DYCL_OP_gelu, NULL, NULL, "gelu", "| approximate", NULL, NULL, NULL},
    {"SiLU", read_activation, record_activation, DYCL_OP_silu, NULL, NULL, "silu", "", NULL, NULL, NULL},
    {"Sigmoid", read_activation, record_activation, DYCL_OP_sigmoid, NULL, NULL, "sigmoid", "", NULL, NULL, NULL},
    {"Tanh", read_activation, record_activation, DYCL_OP_tanh, NULL, NULL, "tanh", "", NULL, NULL, NULL},
    {"ReLU6", read_activation, record_activation, DYCL_OP_relu6, NULL, NULL, "hardtanh", "min_val max_val", NULL, NULL,
     NULL},
    {"Hardswish", read_activation, record_activation, DYCL_OP_hardswish, NULL, NULL, "hardswish", "", NULL, NULL, NULL},
    {"Hardsigmoid", read_activation, record_activation, DYCL_OP_hardsigmoid, NULL, NULL, "hardsigmoid", "", NULL, NULL,
     NULL},
    {"Mish", read_activation, record_activation, DYCL_OP_mish, NULL, NULL, "mish", "", NULL, NULL, NULL},
    {"Identity", read_identity, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL,
     NULL}, /* record NULL: the input itself comes back */
    {"Dropout", read_identity, NULL, 1, NULL, NULL, "dropout", "", NULL, NULL, NULL},
    {"Dropout2d", read_identity, NULL, 2, NULL, NULL, "dropout2d", "", NULL, NULL, NULL},
};
