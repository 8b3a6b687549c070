#include "py/entry/numbers.h"

#include <math.h>
#include <string.h>

#include "py/cpython/dict.h"

#define NAMES(ROW)                                                                                                     \
    ROW(lr)                                                                                                            \
    ROW(betas) ROW(eps) ROW(weight_decay) ROW(amsgrad) ROW(maximize) ROW(foreach) ROW(capturable) ROW(differentiable)  \
        ROW(fused) ROW(decoupled_weight_decay) ROW(momentum) ROW(dampening) ROW(nesterov) ROW(alpha) ROW(centered)     \
            ROW(lr_decay) ROW(rho) ROW(params) ROW(param_groups) ROW(state) ROW(defaults) ROW(grad_scale)              \
                ROW(found_inf) ROW(_init_group)

#define NAME_(name) NAME_##name,
enum { NAMES(NAME_) NAME_COUNT };
#define TEXT_(name) #name,
static const char *const texts[NAME_COUNT] = {NAMES(TEXT_)};
static PyObject *interned[NAME_COUNT]; /* owned */
PyObject *dycl_numbers_step;

#define FIND(dict, name) PyDict_GetItemWithError(dict, interned[NAME_##name]) /* borrowed */

static int read_number(PyObject *o, double *out) {
    if (!o) return 0;
    if (PyFloat_CheckExact(o)) {
        *out = PyFloat_AS_DOUBLE(o);
    } else if (PyLong_CheckExact(o)) {
        *out = PyLong_AsDouble(o);
        if (*out == -1.0 && PyErr_Occurred()) return 0;
    } else {
        return 0;
    }
    return 1;
}

static int read_flag(PyObject *o, int *out) {
    *out = o == Py_True;
    return o == Py_True || o == Py_False;
}

static int is_off(PyObject *o) { return o == Py_False || o == Py_None; }

/* What Python's ** gives for these is what pow gives. */
static int is_decay(double x) { return x >= 0.0 && x < 1.0; }

/* ---- The classes */

static int read_betas(dycl_numbers *n, PyObject *group) {
    PyObject *betas = FIND(group, betas);
    return betas && PyTuple_CheckExact(betas) && PyTuple_GET_SIZE(betas) == 2 &&
           read_number(PyTuple_GET_ITEM(betas, 0), &n->first) && read_number(PyTuple_GET_ITEM(betas, 1), &n->second) &&
           is_decay(n->first) && is_decay(n->second) && read_number(FIND(group, eps), &n->eps);
}

static int adam_read(dycl_numbers *n, PyObject *group) {
    n->has[0] = n->has[1] = 1;
    if (!read_betas(n, group) || !read_flag(FIND(group, amsgrad), &n->has[2]) ||
        !read_flag(FIND(group, decoupled_weight_decay), &n->decoupled))
        return 0;
    const uint8_t writes[] = {n->decoupled && n->decay != 0 ? 2 : 1, 1, 2, 1};
    memcpy(n->writes, writes, sizeof writes);
    return 1;
}

static int adam_compute(const dycl_numbers *n, dycl_update_numbers *out) {
    double first = 1 - pow(n->first, n->step), second = 1 - pow(n->second, n->step);
    out->rate = (float)-(n->rate / first);
    out->first = (float)n->first;
    out->first_rest = (float)(1 - n->first);
    out->second = (float)n->second;
    out->second_rest = (float)(1 - n->second);
    out->inverse = (float)(1 / sqrt(second));
    return n->step >= 1.0f && first > 0 && second > 0;
}

static int adamax_read(dycl_numbers *n, PyObject *group) {
    n->has[0] = n->has[1] = 1;
    const uint8_t writes[] = {1, 1, 2, 0};
    memcpy(n->writes, writes, sizeof writes);
    return read_betas(n, group);
}

static int sgd_read(dycl_numbers *n, PyObject *group) {
    const uint8_t writes[] = {1, 2, 0, 0};
    memcpy(n->writes, writes, sizeof writes);
    if (!read_number(FIND(group, momentum), &n->first) || !read_number(FIND(group, dampening), &n->dampening) ||
        !read_flag(FIND(group, nesterov), &n->nesterov))
        return 0;
    n->has[0] = n->first != 0;
    int writes_gradients = n->nesterov && FIND(group, foreach) == Py_True && n->decay == 0 && !n->negates;
    return !writes_gradients; /* torch's step for lists adds the momentum to the program's own gradients */
}

static int sgd_compute(const dycl_numbers *n, dycl_update_numbers *out) {
    out->nesterov = (uint8_t)n->nesterov;
    out->first = (float)n->first;
    out->first_rest = (float)(1 - n->dampening);
    return 1;
}

static int rmsprop_read(dycl_numbers *n, PyObject *group) {
    const uint8_t writes[] = {1, 2, 2, 1};
    memcpy(n->writes, writes, sizeof writes);
    n->has[0] = 1;
    if (!read_number(FIND(group, alpha), &n->second) || !read_number(FIND(group, eps), &n->eps) ||
        !read_number(FIND(group, momentum), &n->first) || !read_flag(FIND(group, centered), &n->has[2]))
        return 0;
    n->has[1] = n->first > 0;
    return 1;
}

static int averages_compute(const dycl_numbers *n, dycl_update_numbers *out) {
    out->first = (float)n->first;
    out->second = (float)n->second;
    out->second_rest = (float)(1 - n->second);
    return 1;
}

static int adagrad_read(dycl_numbers *n, PyObject *group) {
    const uint8_t writes[] = {1, 1, 0, 0};
    memcpy(n->writes, writes, sizeof writes);
    n->has[0] = 1;
    return read_number(FIND(group, lr_decay), &n->first) && read_number(FIND(group, eps), &n->eps);
}

static int adagrad_compute(const dycl_numbers *n, dycl_update_numbers *out) {
    double divisor = 1 + ((double)n->step - 1) * n->first;
    out->rate = (float)-(n->rate / divisor);
    return divisor > 0;
}

static int adadelta_read(dycl_numbers *n, PyObject *group) {
    const uint8_t writes[] = {1, 2, 2, 0};
    memcpy(n->writes, writes, sizeof writes);
    n->has[0] = n->has[1] = 1;
    return read_number(FIND(group, rho), &n->second) && read_number(FIND(group, eps), &n->eps);
}

#define ADAM {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, adam_read, adam_compute
static dycl_numbers_row rows[] = {
    {"AdamW", DYCL_UPDATE_adam, 1, {0}, ADAM},
    {"Adam", DYCL_UPDATE_adam, 1, {0}, ADAM},
    {"SGD", DYCL_UPDATE_sgd, 0, {0}, {"momentum_buffer"}, sgd_read, sgd_compute},
    {"RMSprop",
     DYCL_UPDATE_rmsprop,
     1,
     {0},
     {"square_avg", "momentum_buffer", "grad_avg"},
     rmsprop_read,
     averages_compute},
    {"Adagrad", DYCL_UPDATE_adagrad, 1, {0}, {"sum"}, adagrad_read, adagrad_compute},
    {"Adadelta", DYCL_UPDATE_adadelta, 1, {0}, {"square_avg", "acc_delta"}, adadelta_read, averages_compute},
    {"Adamax", DYCL_UPDATE_adamax, 1, {0}, {"exp_avg", "exp_inf"}, adamax_read, adam_compute},
};
#undef ADAM
#define ROW_COUNT (sizeof rows / sizeof *rows)

int dycl_numbers_setup(void) {
    if (!dycl_numbers_step && !(dycl_numbers_step = PyUnicode_InternFromString("step"))) return -1;
    for (int i = 0; i < NAME_COUNT; i++)
        if (!interned[i] && !(interned[i] = PyUnicode_InternFromString(texts[i]))) return -1;
    for (size_t r = 0; r < ROW_COUNT; r++)
        for (int i = 0; i < DYCL_UPDATE_STATES; i++)
            if (rows[r].names[i] && !rows[r].states[i] &&
                !(rows[r].states[i] = PyUnicode_InternFromString(rows[r].names[i])))
                return -1;
    return 0;
}

const dycl_numbers_row *dycl_numbers_row_of(PyTypeObject *type) {
    for (size_t r = 0; r < ROW_COUNT; r++)
        if (!strcmp(rows[r].type, type->tp_name)) return &rows[r];
    return NULL;
}

/* ---- Reading */

int dycl_numbers_optimizer(PyObject *optimizer, PyObject **out_groups, PyObject **out_states) {
    PyObject *dict = dycl_object_dict(optimizer), *defaults = dict ? FIND(dict, defaults) : NULL;
    if (!defaults || !PyDict_CheckExact(defaults) || FIND(defaults, differentiable) != Py_False) return 0;
    PyObject *scale = FIND(dict, grad_scale), *found = FIND(dict, found_inf);
    *out_groups = FIND(dict, param_groups);
    *out_states = FIND(dict, state);
    return (!scale || scale == Py_None) && (!found || found == Py_None) && *out_groups &&
           PyList_CheckExact(*out_groups) && *out_states && PyDict_Check(*out_states) && !FIND(dict, _init_group);
}

dycl_status dycl_numbers_read(dycl_numbers *n, PyObject *group, int *torch, PyObject **out_parameters) {
    PyObject *fused = FIND(group, fused), *foreach = FIND(group, foreach), *capturable = FIND(group, capturable),
             *differentiable = FIND(group, differentiable);
    *torch = fused == Py_True || capturable == Py_True || differentiable == Py_True;
    if (*torch || (fused && !is_off(fused)) || !foreach || (!is_off(foreach) && foreach != Py_True) ||
        (capturable && capturable != Py_False) || differentiable != Py_False)
        return DYCL_BAIL;
    *out_parameters = FIND(group, params);
    if (!*out_parameters || !PyList_CheckExact(*out_parameters) || !read_number(FIND(group, lr), &n->rate) ||
        !read_number(FIND(group, weight_decay), &n->decay) || !read_flag(FIND(group, maximize), &n->negates))
        return DYCL_BAIL;
    return n->row->read(n, group) ? DYCL_OK : DYCL_BAIL;
}

int dycl_numbers_of(dycl_numbers *n, float step, dycl_update_numbers *out) {
    memset(out, 0, sizeof *out);
    n->known = 1;
    n->step = step;
    out->kind = (uint8_t)n->row->kind;
    out->negates = (uint8_t)n->negates;
    out->couples = n->decay != 0 && !n->decoupled;
    out->decay = (float)n->decay;
    out->keep = n->decay != 0 && n->decoupled ? (float)(1 - n->rate * n->decay) : 1.0f;
    out->rate = (float)-n->rate;
    out->eps = (float)n->eps;
    return n->row->compute(n, out);
}
