/* Layers of nn.RNN, nn.LSTM and nn.GRU: for each layer and direction one product of all steps' inputs, then the
 * recurrence. */
#include <string.h>

#include "ir/infer.h"
#include "py/bind/bind.h"
#include "py/bind/noise.h"
#include "py/region/track.h"

#define MOST_RUNS 64 /* layers times directions */

typedef struct {
    dycl_recurrent_kind kind;
    int64_t layers;
    int biases, both, batch_first, per_run; /* per_run: weights of a layer and direction */
    double dropout;                         /* between layers; 0: none */
    uint32_t weights[4 * MOST_RUNS];
    uint32_t h, c;                 /* [layers * directions, batch, width]; c: LSTM only */
    uint32_t noise[MOST_RUNS / 2]; /* behind each layer but the last: 0 where a state is dropped, else 1 */
} layers;

static dycl_status bad(dycl_call *call, dycl_bail why) { return dycl_build_bail(&call->region->recorder, why); }

/* params has_biases num_layers dropout train bidirectional batch_first, from parameter `first` on */
static dycl_status read_layers(dycl_call *call, int first, layers *l) {
    PyObject *list = call->p[first];
    int train;
    dycl_status status;
    DYCL_TRY(dycl_call_bool_or(call, call->p[first + 1], 1, &l->biases));
    DYCL_TRY(dycl_call_int(call, call->p[first + 2], &l->layers));
    DYCL_TRY(dycl_call_f64_or(call, call->p[first + 3], 0, &l->dropout));
    DYCL_TRY(dycl_call_bool_or(call, call->p[first + 4], 0, &train));
    DYCL_TRY(dycl_call_bool_or(call, call->p[first + 5], 0, &l->both));
    DYCL_TRY(dycl_call_bool_or(call, call->p[first + 6], 0, &l->batch_first));
    if (!list || !(PyList_CheckExact(list) || PyTuple_CheckExact(list)) || !(l->dropout >= 0 && l->dropout <= 1))
        return bad(call, DYCL_BAIL_arguments);
    if (!train || l->layers == 1) l->dropout = 0;
    l->per_run = l->biases ? 4 : 2;
    if (l->layers < 1 || l->layers > MOST_RUNS / 2) return bad(call, DYCL_BAIL_arguments);
    Py_ssize_t count = (Py_ssize_t)(l->layers * (l->both ? 2 : 1) * l->per_run);
    if (PySequence_Fast_GET_SIZE(list) != count)
        return bad(call, DYCL_BAIL_arguments); /* with projections: one more each */
    for (Py_ssize_t i = 0; i < count; i++)
        DYCL_TRY(dycl_call_value(call, PySequence_Fast_GET_ITEM(list, i), &l->weights[i]));
    return DYCL_OK;
fail:
    return status;
}

static int is_f32(const dycl_call *call, uint32_t value, int rank, int64_t first, int64_t second, int64_t third) {
    int64_t sizes[3] = {first, second, third};
    return dycl_infer_is_f32(&call->region->recorder.graph, value, rank, sizes);
}

/* Everything that would bail once a part is recorded, or numbers are drawn. */
static int fits(const dycl_call *call, const layers *l, uint32_t x) {
    const dycl_value *in = meta(call, x);
    int64_t directions = l->both ? 2 : 1, runs = l->layers * directions;
    if (in->dtype != DYCL_F32 || in->rank != 3 || dycl_value_numel(in) == 0 || meta(call, l->weights[1])->rank != 2)
        return 0;
    int64_t width = meta(call, l->weights[1])->sizes[1], batch = in->sizes[!l->batch_first],
            gates = dycl_recurrent_gates(l->kind) * width;
    if (!is_f32(call, l->h, 3, runs, batch, width)) return 0;
    if (l->kind == DYCL_RECURRENT_LSTM && !is_f32(call, l->c, 3, runs, batch, width)) return 0;
    for (int64_t i = 0; i < runs; i++) {
        const uint32_t *w = l->weights + i * l->per_run;
        if (!is_f32(call, w[0], 2, gates, i < directions ? in->sizes[2] : width * directions, 0)) return 0;
        if (!is_f32(call, w[1], 2, gates, width, 0)) return 0;
        if (l->biases && (!is_f32(call, w[2], 1, gates, 0, 0) || !is_f32(call, w[3], 1, gates, 0, 0))) return 0;
    }
    return 1;
}

/* What torch draws between layers (apply_layer_stack in ATen/native/RNN.cpp). x: the input. */
static dycl_status draw(dycl_call *call, layers *l, uint32_t x) {
    int64_t width = meta(call, l->h)->sizes[2], steps = meta(call, x)->sizes[l->batch_first],
            batch = meta(call, l->h)->sizes[1], sizes[3] = {steps, batch, width * (l->both ? 2 : 1)}, strides[3];
    PyObject *drawn[MOST_RUNS / 2] = {0};
    dycl_status status = DYCL_OK;
    dycl_strides_contiguous(3, sizes, strides);
    for (int64_t i = 0; i + 1 < l->layers && status == DYCL_OK; i++)
        if (!(drawn[i] = dycl_noise_draw(call, DYCL_F32, 3, sizes, strides, 1 - l->dropout))) status = DYCL_ERROR;
    for (int64_t i = 0; i + 1 < l->layers && status == DYCL_OK; i++)
        status = dycl_region_feed_object(call->region, drawn[i], &l->noise[i]);
    for (int64_t i = 0; i + 1 < l->layers; i++) Py_XDECREF(drawn[i]);
    return status;
}

/* A layer's states as the next one gets them. */
static dycl_status dropped(dycl_call *call, const layers *l, int64_t layer, uint32_t *x) {
    uint32_t noise;
    if (l->dropout == 0 || layer + 1 == l->layers) return DYCL_OK;
    dycl_status status = ew_number(call, DYCL_OP_div, l->noise[layer], 1 - l->dropout, &noise);
    return status == DYCL_OK ? ew2(call, DYCL_OP_mul, *x, noise, x) : status;
}

/* The gates are needed once more: the node that keeps them stands behind the recurrence (grad/recurrent.c). */
static int goes_back(const dycl_call *call, const layers *l, const uint32_t operands[5]) {
    return dycl_recurrent_gates(l->kind) > 1 && dycl_track_any_now(call->region, 5, operands);
}

/* One direction of one layer: states [steps, batch, width], the last of them, and the last cell (LSTM). */
static dycl_status run(dycl_call *call, const layers *l, int64_t number, uint32_t x, int reversed, uint32_t *states,
                       uint32_t *last, uint32_t *cell) {
    dycl_recorder *r = &call->region->recorder;
    const uint32_t *w = l->weights + number * l->per_run;
    dycl_status status;
    uint32_t input[3] = {x, w[0], l->biases ? w[2] : DYCL_NONE},
             operands[5] = {0, w[1], l->biases ? w[3] : DYCL_NONE, 0, DYCL_NONE}, flat, kept;
    int64_t attrs[3] = {l->kind, reversed, 0};
    if (l->kind == DYCL_RECURRENT_LSTM) /* so is the gradient that oneDNN gives */
        DYCL_TRY(dycl_build_contiguous(r, w[0], &input[1]));
    DYCL_TRY(dycl_build_node(r, DYCL_OP_linear, 3, input, 0, NULL, &operands[0]));
    DYCL_TRY(dycl_build_select(r, l->h, 0, number, &operands[3]));
    if (l->kind == DYCL_RECURRENT_LSTM) DYCL_TRY(dycl_build_select(r, l->c, 0, number, &operands[4]));
    DYCL_TRY(dycl_build_node(r, DYCL_OP_recurrent, 5, operands, 3, attrs, &flat));
    attrs[2] = 1;
    if (goes_back(call, l, operands)) DYCL_TRY(dycl_build_node(r, DYCL_OP_recurrent, 5, operands, 3, attrs, &kept));
    int64_t width = meta(call, w[1])->sizes[1], batch = meta(call, x)->sizes[1], steps = meta(call, x)->sizes[0];
    int64_t sizes[3] = {steps, batch, width}, strides[3] = {batch * width, width, 1};
    DYCL_TRY(dycl_build_view(r, flat, 0, 3, sizes, strides, states));
    DYCL_TRY(dycl_build_view(r, flat, reversed ? 0 : (steps - 1) * batch * width, 2, sizes + 1, strides + 1, last));
    if (l->kind == DYCL_RECURRENT_LSTM)
        DYCL_TRY(dycl_build_view(r, flat, steps * batch * width, 2, sizes + 1, strides + 1, cell));
fail:
    return status;
}

static dycl_status joined(dycl_call *call, int count, const uint32_t *values, int64_t dim, uint32_t *out) {
    return dycl_build_node(&call->region->recorder, DYCL_OP_cat, count, values, 1, &dim, out);
}

/* Last states of all runs, in a tensor of their own. */
static dycl_status stacked(dycl_call *call, int count, uint32_t *values, uint32_t *out) {
    for (int i = 0; i < count; i++) {
        dycl_status status = dycl_build_unsqueeze(&call->region->recorder, values[i], 0, &values[i]);
        if (status != DYCL_OK) return status;
    }
    return joined(call, count, values, 0, out);
}

/* out[0]: all states of the last layer, out[1]: last states, out[2]: last cells (LSTM) */
static dycl_status all_layers(dycl_call *call, const layers *l, uint32_t x, uint32_t out[3]) {
    dycl_recorder *r = &call->region->recorder;
    uint32_t last[MOST_RUNS], cells[MOST_RUNS], states[2];
    int runs = 0, directions = l->both ? 2 : 1;
    dycl_status status;
    if (l->batch_first) DYCL_TRY(dycl_build_transpose(r, x, 0, 1, &x));
    for (int64_t layer = 0; layer < l->layers; layer++) {
        for (int d = 0; d < directions; d++, runs++)
            DYCL_TRY(run(call, l, runs, x, d, &states[d], &last[runs], &cells[runs]));
        if (l->both)
            DYCL_TRY(joined(call, 2, states, 2, &x));
        else
            x = states[0];
        DYCL_TRY(dropped(call, l, layer, &x));
    }
    int64_t ordinary = 0;
    if (!l->both)
        DYCL_TRY(dycl_build_node(r, DYCL_OP_contiguous, 1, &x, 1, &ordinary, &x)); /* without what lies behind it */
    out[0] = x;
    if (l->batch_first) DYCL_TRY(dycl_build_transpose(r, x, 0, 1, &out[0]));
    DYCL_TRY(stacked(call, runs, last, &out[1]));
    if (l->kind == DYCL_RECURRENT_LSTM) DYCL_TRY(stacked(call, runs, cells, &out[2]));
fail:
    return status;
}

/* The objects of all results exist before anything may be computed: that ends the graph they point into. Batch first,
 * torch transposes in place, but its oneDNN layers (LSTM) answer a view. */
static PyObject *results(dycl_call *call, const layers *l, const uint32_t values[3]) {
    int count = l->kind == DYCL_RECURRENT_LSTM ? 3 : 2;
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple && i < count; i++) {
        PyObject *o =
            i + 1 < count ? dycl_lazy_new(call->region, values[i]) : dycl_region_result(call->region, values[i]);
        if (o && i == 0 && l->batch_first && l->kind != DYCL_RECURRENT_LSTM) {
            dycl_lazy_of(o)->own = DYCL_OWN_COPY;
            o = dycl_call_written(call, o, 1);
        }
        if (!o)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, o);
    }
    return tuple;
}

/* input, hx, params, ... */
static dycl_status read_call(dycl_call *call, layers *l, uint32_t *x) {
    PyObject *state = call->p[1];
    dycl_status status;
    DYCL_TRY(read_layers(call, 2, l));
    DYCL_TRY(dycl_call_value(call, call->p[0], x));
    if (l->kind != DYCL_RECURRENT_LSTM) return dycl_call_value(call, state, &l->h);
    if (!state || !(PyTuple_CheckExact(state) || PyList_CheckExact(state)) || PySequence_Fast_GET_SIZE(state) != 2)
        return bad(call, DYCL_BAIL_arguments);
    DYCL_TRY(dycl_call_value(call, PySequence_Fast_GET_ITEM(state, 0), &l->h));
    return dycl_call_value(call, PySequence_Fast_GET_ITEM(state, 1), &l->c);
fail:
    return status;
}

/* op is the kind. A second tensor in the place of the list is a packed sequence. */
static PyObject *rnn(dycl_call *call, const dycl_binding *row) {
    layers l = {.kind = (dycl_recurrent_kind)row->op};
    uint32_t x, out[3];
    DYCL_CALL_TRY(read_call(call, &l, &x));
    if (!fits(call, &l, x)) return dycl_call_bail(call, DYCL_BAIL_shape);
    if (l.dropout == 1) return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (l.dropout != 0) {
        DYCL_CALL_TRY(draw(call, &l, x));
        DYCL_CALL_TRY(read_call(call, &l, &x)); /* once more: other threads may have run meanwhile */
    }
    DYCL_CALL_TRY(all_layers(call, &l, x, out));
    return results(call, &l, out);
}

#define PARAMETERS "input hx params has_biases num_layers dropout train bidirectional batch_first"

dycl_binding dycl_bindings_recurrent[] = {
    ROW("rnn_tanh", T, PARAMETERS, rnn, DYCL_RECURRENT_TANH),
    ROW("rnn_relu", T, PARAMETERS, rnn, DYCL_RECURRENT_RELU),
    ROW("gru", T, PARAMETERS, rnn, DYCL_RECURRENT_GRU),
    ROW("lstm", T, PARAMETERS, rnn, DYCL_RECURRENT_LSTM),
    {0},
};
