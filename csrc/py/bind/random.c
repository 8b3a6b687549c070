/* Random numbers, drawn by torch when the program asks for them, and functions that make a tensor of numbers alone: the
 * segment goes on. */
#include <math.h>
#include <string.h>

#include "ir/infer.h"
#include "py/bind/beside.h"
#include "py/bind/bind.h"
#include "py/bind/noise.h"
#include "py/region/track.h"

/* What has no tensor among its arguments runs beside the segment (py/intercept/mode.c asks); everything else of that
 * name goes to torch. */
static PyObject *at_once(dycl_call *call, const dycl_binding *row) {
    (void)row;
    return dycl_call_bail(call, DYCL_BAIL_arguments);
}

/* Of a tensor that needs a gradient nothing may be drawn that torch would draw again, because its gradient is not known
 * here. */
static int needs_gradient(const dycl_call *call, PyObject *o) {
    return call->region->tracks && dycl_call_needs_gradient(o);
}

/* Draws whose numbers depend on values: op 1 where numbers alone may be given as well. */
static PyObject *of_values(dycl_call *call, const dycl_binding *row) {
    for (Py_ssize_t i = 0; i < call->count; i++)
        if (needs_gradient(call, call->args[i])) return dycl_call_bail(call, DYCL_BAIL_grad);
    if (row->op && dycl_beside_suits(row->callable, call->args, call->count, call->kwnames, call->kwdict))
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    return dycl_beside_values(call, row);
}

/* rand_like and its kin look at sizes, strides and dtype only. */
static PyObject *like(dycl_call *call, const dycl_binding *row) { return dycl_beside_like(call, row); }

/* x.normal_() and its kin replace every element: they are drawn into memory of their own, which becomes x's. */
static PyObject *in_place(dycl_call *call, const dycl_binding *row) {
    dycl_region *region = call->region;
    dycl_lazy_meta meta;
    PyObject *self = call->p[0];
    if (!self || !dycl_is_lazy(self) || dycl_lazy_of(self)->region != region || !dycl_region_may_write(region, self))
        return dycl_call_bail(call, DYCL_BAIL_alias);
    if (dycl_lazy_describe(self, &meta) < 0) return NULL;
    PyObject *blank = dycl_beside_blank(meta.dtype, meta.rank, meta.sizes, meta.strides);
    PyObject *drawn = blank ? dycl_beside_instead(call, row, self, blank) : NULL;
    int done = drawn ? dycl_region_replace(region, self, dycl_abi_borrow(blank)) : -1;
    Py_XDECREF(drawn);
    Py_XDECREF(blank);
    return done == 0 ? Py_NewRef(self) : NULL;
}

/* ---- Dropout (ATen/native/Dropout.cpp): the same draws, the arithmetic recorded */

enum { FEATURES = 1, ALPHA = 2 };

/* Borrowed; NULL with an exception. */
static PyObject *generator(void) {
    static PyObject *found; /* owned: torch.default_generator */
    if (!found) found = PyObject_GetAttrString(dycl_py.torch, "default_generator");
    return found;
}

static int remember_state(dycl_call *call) {
    if (!call->region->tracks || call->drawn_from) return 0;
    PyObject *of = generator();
    call->drawn_from = of ? PyObject_CallMethod(of, "get_state", NULL) : NULL;
    return call->drawn_from ? 0 : -1;
}

PyObject *dycl_noise_undraw(dycl_call *call, PyObject *result) {
    PyObject *state = call->drawn_from;
    call->drawn_from = NULL;
    if (!result && !PyErr_Occurred()) Py_XDECREF(PyObject_CallMethod(generator(), "set_state", "O", state));
    Py_DECREF(state);
    return result;
}

PyObject *dycl_noise_draw(dycl_call *call, dycl_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides,
                          double keep) {
    PyObject *blank = remember_state(call) == 0 ? dycl_beside_blank(dtype, rank, sizes, strides) : NULL, *drawn = NULL;
    if (!blank) return NULL;
    PyObject *p = PyFloat_FromDouble(keep), *arguments[2] = {blank, p};
    int state = dycl_abi_torch_function_off();
    if (p) drawn = PyObject_VectorcallMethod(dycl_py.bernoulli_name, arguments, 2, NULL);
    dycl_abi_torch_function_restore(state);
    Py_XDECREF(p);
    Py_DECREF(blank);
    return drawn;
}

static PyObject *noise_of(dycl_call *call, PyObject *x, int features, double keep) {
    uint32_t value;
    DYCL_CALL_TRY(dycl_call_value(call, x, &value));
    const dycl_value *v = meta(call, value);
    dycl_value like = *v;
    if (features) {
        for (int i = 2; i < like.rank; i++) like.sizes[i] = 1;
        dycl_strides_contiguous(like.rank, like.sizes, like.strides);
    } else {
        dycl_infer_preserve(v, &like);
    }
    return dycl_noise_draw(call, (dycl_dtype)like.dtype, like.rank, like.sizes, like.strides, keep);
}

/* A result in place lies as the tensor does whose memory it takes. Nothing may bail once numbers were drawn. */
static dycl_status as_it_lies(dycl_call *call, uint32_t x, uint32_t *out) {
    dycl_value v = *meta(call, x);
    if (memcmp(v.strides, meta(call, *out)->strides, sizeof v.strides) == 0) return DYCL_OK;
    return dycl_build_view_put(&call->region->recorder, x, *out, 0, v.rank, v.sizes, v.strides, out);
}

/* Noise is scaled in place in torch: it goes on lying as it was drawn. */
static dycl_status scaled(dycl_call *call, dycl_op op, uint32_t x, double number, uint32_t *out) {
    dycl_status status = ew_number(call, op, x, number, out);
    return status == DYCL_OK ? as_it_lies(call, x, out) : status;
}

/* input, p, train */
static PyObject *dropout(dycl_call *call, const dycl_binding *row) {
    uint32_t x, noise, shift = DYCL_NONE, out = 0;
    double p;
    int training, features = row->op & FEATURES, alpha = row->op & ALPHA;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x));
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[1], 0.5, &p));
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[2], 1, &training));
    if (!(p >= 0 && p <= 1) || !call->p[1] || !call->p[2]) return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (p == 0 || !training || dycl_value_numel(meta(call, x)) == 0) return dycl_call_same(call, call->p[0]);
    if (!is_float(call, x) || (features && meta(call, x)->rank < 2)) return dycl_call_bail(call, DYCL_BAIL_dtype);
    if (call->in_place && !dycl_is_lazy(call->p[0]))
        return dycl_call_bail(call, DYCL_BAIL_alias); /* before anything is drawn */
    if (dycl_dtype_is_half(dtype_of(call, x)) && needs_gradient(call, call->p[0]))
        return dycl_call_bail(call, DYCL_BAIL_grad);
    if (p == 1) {
        dycl_operand zero = dycl_operand_f64(0);
        DYCL_CALL_TRY(dycl_build_convert(&call->region->recorder, &zero, dtype_of(call, x), &noise));
        DYCL_CALL_TRY(dycl_build_node(&call->region->recorder, DYCL_OP_full, 1, &noise, 0, NULL, &noise));
        return dycl_call_finish(call, ew2(call, DYCL_OP_mul, x, noise, &out), out);
    }
    if (call->in_place && !dycl_track_may_write(call->region, call->p[0]) &&
        !dycl_region_may_write(call->region, call->p[0]))
        return dycl_call_bail(call, DYCL_BAIL_alias);
    PyObject *drawn = noise_of(call, call->p[0], features, 1 - p);
    if (!drawn) return NULL;
    dycl_status status = dycl_region_feed_object(call->region, drawn, &noise);
    Py_DECREF(drawn);
    DYCL_CALL_TRY(status);
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x)); /* once more: other threads may have run meanwhile */
    if (alpha) {
        const double scale = 1.7580993408473766, a = 1. / sqrt((scale * scale * p + 1) * (1 - p));
        DYCL_CALL_TRY(ew_number(call, DYCL_OP_add, noise, -1, &shift));
        DYCL_CALL_TRY(scaled(call, DYCL_OP_mul, shift, scale * a, &shift));
        DYCL_CALL_TRY(scaled(call, DYCL_OP_add, shift, scale * a * p, &shift));
        DYCL_CALL_TRY(scaled(call, DYCL_OP_mul, noise, a, &noise));
    } else {
        DYCL_CALL_TRY(scaled(call, DYCL_OP_div, noise, 1 - p, &noise));
    }
    DYCL_CALL_TRY(ew2(call, DYCL_OP_mul, x, noise, &out));
    if (alpha) {
        uint32_t product = out;
        DYCL_CALL_TRY(ew2(call, DYCL_OP_add, product, shift, &out));
        DYCL_CALL_TRY(as_it_lies(call, product, &out));
    }
    if (call->in_place) DYCL_CALL_TRY(as_it_lies(call, x, &out));
    if (!alpha) return dycl_call_finish(call, DYCL_OK, out);
    return dycl_call_written(call, dycl_call_finish(call, DYCL_OK, out), 1); /* torch: add_ */
}

dycl_binding dycl_bindings_random[] = {
    ROW("rand", T, "", at_once),
    ROW("randn", T, "", at_once),
    ROW("randint", T, "", at_once),
    ROW("randperm", T, "", at_once),
    ROW("linspace", T, "start end steps | dtype layout device pin_memory requires_grad", of_values, 1),
    ROW("logspace", T, "start end steps base | dtype layout device pin_memory requires_grad", of_values, 1),
    ROW("range", T, "", at_once),
    ROW("tril_indices", T, "", at_once),
    ROW("triu_indices", T, "", at_once),
    ROW("bartlett_window", T, "", at_once),
    ROW("blackman_window", T, "", at_once),
    ROW("hamming_window", T, "", at_once),
    ROW("hann_window", T, "", at_once),
    ROW("kaiser_window", T, "", at_once),
    ROW("rand_like", T, "input | dtype layout device pin_memory requires_grad memory_format generator", like),
    ROW("randn_like", T, "input | dtype layout device pin_memory requires_grad memory_format generator", like),
    ROW("randint_like", T, "input high low | dtype layout device pin_memory requires_grad memory_format generator",
        like),
    ROW("uniform", I, "self from to | generator", in_place),
    ROW("normal", I, "self mean std | generator", in_place),
    ROW("bernoulli", I, "self p | generator", in_place),
    ROW("exponential", I, "self lambd | generator", in_place),
    ROW("cauchy", I, "self median sigma | generator", in_place),
    ROW("log_normal", I, "self mean std | generator", in_place),
    ROW("geometric", I, "self p | generator", in_place),
    ROW("random", I, "self from to | generator", in_place),
    ROW("normal", T, "mean std size | generator dtype layout device pin_memory requires_grad", of_values, 1),
    ROW("bernoulli", T | M, "input p | generator", of_values, 0),
    ROW("multinomial", T | M, "input num_samples replacement | generator", of_values, 0),
    ROW("poisson", T, "input generator", of_values, 0),
    ROW("binomial", T, "count prob generator", of_values, 0),
    ROW("_standard_gamma", T, "self generator", of_values, 0),
    ROW("dropout", T | I, "input p train", dropout, 0),
    ROW("feature_dropout", T | I, "input p train", dropout, FEATURES),
    ROW("alpha_dropout", T | I, "input p train", dropout, ALPHA),
    ROW("feature_alpha_dropout", T | I, "input p train", dropout, FEATURES | ALPHA),
    {0},
};
