/* Products of matrices, and the recurrent cells that are made of them. */
#include <math.h>

#include "grad/backward.h"
#include "py/bind/bind.h"
#include "py/bind/view.h"
#include "py/region/track.h"
#include "py/torch/answers.h"

/* x * factor, nothing for 1 */
static dycl_status scale(dycl_call *call, uint32_t *x, double factor) {
    return factor == 1 ? DYCL_OK : ew_number(call, DYCL_OP_mul, *x, factor, x);
}

/* ATen/native/Linear.cpp: with a bias, a contiguous operand is flattened, multiplied and viewed; of another the product
 * is made first and the bias added in place. Without a bias, the product of a vector ends with squeeze_. */
PyObject *dycl_linear_result(dycl_region *region, PyObject *result, uint32_t value) {
    const dycl_graph *graph = &region->recorder.graph;
    const dycl_value *out = &graph->values[value];
    if (!result || (out->rank == 2 && out->kind == DYCL_VALUE_NODE)) return result;
    const uint32_t *x = dycl_node_operands(graph, &graph->nodes[out->source]);
    const dycl_value *input = &graph->values[x[0]];
    uint32_t writes = input->rank == 1;
    if (x[2] != DYCL_NONE) {
        if (dycl_value_contiguous(input) && dycl_value_contiguous(&graph->values[x[2]])) {
            if (dycl_torch_answer.linear_is_view) dycl_lazy_of(result)->own = DYCL_OWN_VIEW;
            return result;
        }
        writes++;
    }
    if (writes && dycl_region_count_writes(region, result, writes) < 0) Py_CLEAR(result);
    return result;
}

static PyObject *linear(dycl_call *call, const dycl_binding *row) {
    uint32_t x[3], out = 0;
    (void)row;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x[0]));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[1], &x[1]));
    DYCL_CALL_TRY(dycl_call_optional_value(call, call->p[2], &x[2]));
    if (!is_float(call, x[0])) return dycl_call_bail(call, DYCL_BAIL_dtype);
    PyObject *result =
        dycl_call_finish(call, dycl_build_node(&call->region->recorder, DYCL_OP_linear, 3, x, 0, NULL, &out), out);
    return dycl_linear_result(call->region, result, out);
}

/* ATen/native/LinearAlgebra.cpp, should_fold: a matrix, or a batch of one, that requires a gradient is multiplied from
 * the other side by the rows of the whole second operand, gradients enabled or not. The result is transposed, and
 * copied only where that is not contiguous. 1: it is not copied. */
static int lies_transposed(dycl_call *call, uint32_t a, uint32_t b, int *out) {
    const dycl_value *x = meta(call, a), *y = meta(call, b);
    *out = 0;
    if (y->rank < 3 || !(x->rank == 2 || (x->rank == 3 && y->rank == 3 && x->sizes[0] == 1 && y->sizes[0] != 1)))
        return 0;
    int64_t rows = x->sizes[x->rank - 2], columns = y->sizes[y->rank - 1], count = rows * columns;
    for (int i = 0; i < y->rank - 2; i++) count *= y->sizes[i];
    if (rows != 1 && columns != 1 && count) return 0;
    int needed = dycl_is_lazy(call->p[0]) ? 0 : dycl_region_needs_gradient(call->p[0]);
    *out = needed > 0;
    return needed < 0 ? -1 : 0;
}

static dycl_status transposed_as_it_lies(dycl_recorder *r, uint32_t *value) {
    const dycl_value *v = &r->graph.values[*value];
    int rank = v->rank;
    int64_t sizes[DYCL_MAX_RANK], strides[DYCL_MAX_RANK], columns = v->sizes[rank - 1];
    memcpy(sizes, v->sizes, sizeof sizes);
    sizes[rank - 1] = sizes[rank - 2], sizes[rank - 2] = columns;
    dycl_strides_contiguous(rank, sizes, strides);
    int64_t stride = strides[rank - 1];
    strides[rank - 1] = strides[rank - 2], strides[rank - 2] = stride;
    sizes[rank - 2] = sizes[rank - 1], sizes[rank - 1] = columns;
    return dycl_build_view(r, *value, 0, rank, sizes, strides, value);
}

/* matmul; mm, bmm, mv, dot: the same where the ranks are theirs (op: the first operand's, extra: the second's; 0:
 * any) */
static PyObject *matmul(dycl_call *call, const dycl_binding *row) {
    uint32_t a, b, out = 0;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &a));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[1], &b));
    if (row->op && (meta(call, a)->rank != row->op || meta(call, b)->rank != row->extra))
        return dycl_call_bail(call, DYCL_BAIL_shape);
    if (row->op == 3 && meta(call, a)->sizes[0] != meta(call, b)->sizes[0])
        return dycl_call_bail(call, DYCL_BAIL_shape);
    if (!is_float(call, a)) return dycl_call_bail(call, DYCL_BAIL_dtype);
    uint32_t writes = meta(call, a)->rank == 1 && meta(call, b)->rank == 2; /* unsqueeze, mm, squeeze_ */
    int transposed = 0;
    if (!row->op && lies_transposed(call, a, b, &transposed) < 0) return NULL;
    DYCL_CALL_TRY(dycl_build_matmul(&call->region->recorder, a, b, &out));
    if (call->region->tracks && dycl_value_numel(meta(call, out)) == 0) /* whether it is a view: torch knows */
        return dycl_call_bail(call, DYCL_BAIL_shape);
    if (transposed) DYCL_CALL_TRY(transposed_as_it_lies(&call->region->recorder, &out));
    return dycl_call_written(call, dycl_call_finish(call, DYCL_OK, out), writes);
}

/* addmm, baddbmm, addmv: beta * input + alpha * (a @ b); input is ignored, NaN and all but its history, where beta is
 * 0 */
static PyObject *addmm(dycl_call *call, const dycl_binding *row) {
    uint32_t x[3], product, out = 0;
    double beta, alpha;
    dycl_recorder *r = &call->region->recorder;
    for (int i = 0; i < 3; i++) DYCL_CALL_TRY(dycl_call_value(call, call->p[i], &x[i]));
    for (int i = 1; call->in_place && i < 3; i++) /* BLAS reads what it has written meanwhile */
        if (meta(call, x[0])->root == meta(call, x[i])->root) return dycl_call_bail(call, DYCL_BAIL_alias);
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[3], 1, &beta));
    DYCL_CALL_TRY(dycl_call_f64_or(call, call->p[4], 1, &alpha));
    if (meta(call, x[1])->rank != row->op || meta(call, x[2])->rank != row->extra)
        return dycl_call_bail(call, DYCL_BAIL_shape);
    if (row->op == 3 && meta(call, x[1])->sizes[0] != meta(call, x[2])->sizes[0])
        return dycl_call_bail(call, DYCL_BAIL_shape);
    if (!is_float(call, x[0]) || meta(call, x[0])->dtype != meta(call, x[1])->dtype)
        return dycl_call_bail(call, DYCL_BAIL_dtype);
    if (beta == 0 && dycl_track_has_now(call->region, x[0])) return dycl_call_bail(call, DYCL_BAIL_grad);
    if (alpha == 0 || !isfinite(alpha))
        return dycl_call_bail(call,
                              DYCL_BAIL_arguments); /* BLAS does not read the product's operands, NaN or not; inf * 0 */
    if (row->op == 2 && row->extra == 1 &&
        (meta(call, x[0])->rank != 1 || meta(call, x[0])->sizes[0] != meta(call, x[1])->sizes[0]))
        return dycl_call_bail(call, DYCL_BAIL_shape);
    const dycl_value *input = meta(call, x[0]), *b = meta(call, x[2]);
    if (row->op == 2 && row->extra == 2 && alpha == 1 && beta == 1 && input->rank == 1 &&
        input->sizes[0] == b->sizes[1]) {
        uint32_t operands[3] = {x[1], x[2], x[0]}; /* a linear layer whose weight lies the other way round */
        DYCL_CALL_TRY(dycl_build_transpose(r, x[2], 0, 1, &operands[1]));
        return dycl_call_finish(call, dycl_build_node(r, DYCL_OP_linear, 3, operands, 0, NULL, &out), out);
    }
    if (is_half(call, x[0])) return dycl_call_bail(call, DYCL_BAIL_dtype); /* the sum would be rounded between */
    DYCL_CALL_TRY(dycl_build_matmul(r, x[1], x[2], &product));
    DYCL_CALL_TRY(scale(call, &product, alpha));
    const dycl_value *result = meta(call, product);
    if (dycl_value_numel(result) == 0)
        return dycl_call_bail(call, DYCL_BAIL_shape); /* scaled, it would lie otherwise */
    input = meta(call, x[0]);
    if (input->rank > result->rank) return dycl_call_bail(call, DYCL_BAIL_shape);
    for (int i = 0; i < input->rank; i++)
        if (input->sizes[i] != 1 && input->sizes[i] != result->sizes[result->rank - input->rank + i])
            return dycl_call_bail(call, DYCL_BAIL_shape);
    if (beta == 0) return dycl_call_finish(call, DYCL_OK, product);
    DYCL_CALL_TRY(scale(call, &x[0], beta));
    if (beta != 1) dycl_track_mark(call->region, x[0], DYCL_GRAD_UNSAVED); /* a number of torch's node */
    DYCL_CALL_TRY(ew2(call, DYCL_OP_add, product, x[0], &out));
    if (meta(call, out)->canonical) return dycl_call_finish(call, DYCL_OK, out);
    int64_t plain[DYCL_MAX_RANK]; /* whatever the input's are */
    dycl_strides_contiguous(meta(call, out)->rank, meta(call, out)->sizes, plain);
    return dycl_call_finish(call, dycl_build_dense(r, out, plain, &out), out);
}

static PyObject *outer(dycl_call *call, const dycl_binding *row) {
    uint32_t a, b, out = 0;
    dycl_recorder *r = &call->region->recorder;
    (void)row;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &a));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[1], &b));
    if (meta(call, a)->rank != 1 || meta(call, b)->rank != 1) return dycl_call_bail(call, DYCL_BAIL_shape);
    int64_t column[2] = {meta(call, a)->sizes[0], 1};
    DYCL_CALL_TRY(dycl_build_reshape(r, a, 2, column, 1, &a));
    return dycl_call_finish(call, ew2(call, DYCL_OP_mul, a, b, &out), out);
}

/* ---- Recurrent cells (ATen/native/RNN.cpp) */

/* linear(h, w_hh, b_hh) and linear(x, w_ih, b_ih), each [batch, gates * hidden]. p: x, state, w_ih, w_hh, b_ih, b_hh */
static dycl_status cell_gates(dycl_call *call, PyObject *hidden, int gates, uint32_t *out_x, uint32_t *out_h,
                              uint32_t *out_hidden) {
    dycl_status status;
    uint32_t of_x[3], of_h[3];
    dycl_recorder *r = &call->region->recorder;
    DYCL_TRY(dycl_call_value(call, call->p[0], &of_x[0]));
    DYCL_TRY(dycl_call_value(call, hidden, &of_h[0]));
    DYCL_TRY(dycl_call_value(call, call->p[2], &of_x[1]));
    DYCL_TRY(dycl_call_value(call, call->p[3], &of_h[1]));
    DYCL_TRY(dycl_call_optional_value(call, call->p[4], &of_x[2]));
    DYCL_TRY(dycl_call_optional_value(call, call->p[5], &of_h[2]));
    const dycl_value *x = meta(call, of_x[0]), *h = meta(call, of_h[0]), *w = meta(call, of_h[1]);
    if (x->rank != 2 || h->rank != 2 || w->rank != 2 || x->sizes[0] != h->sizes[0] ||
        w->sizes[0] != gates * h->sizes[1] || meta(call, of_x[1])->rank != 2 ||
        meta(call, of_x[1])->sizes[0] != w->sizes[0])
        return dycl_build_bail(r, DYCL_BAIL_shape);
    if (!is_float(call, of_x[0]) || (of_x[2] == DYCL_NONE) != (of_h[2] == DYCL_NONE))
        return dycl_build_bail(r, DYCL_BAIL_dtype);
    int x_first = gates == 3; /* in torch's GRU only: gradients come in the reverse order */
    if (x_first) DYCL_TRY(dycl_build_node(r, DYCL_OP_linear, 3, of_x, 0, NULL, out_x));
    DYCL_TRY(dycl_build_node(r, DYCL_OP_linear, 3, of_h, 0, NULL, out_h));
    if (!x_first) DYCL_TRY(dycl_build_node(r, DYCL_OP_linear, 3, of_x, 0, NULL, out_x));
    *out_hidden = of_h[0];
    return DYCL_OK;
fail:
    return status;
}

static dycl_status gate(dycl_call *call, uint32_t gates, int64_t hidden, int which, uint32_t *out) {
    return dycl_build_slice(&call->region->recorder, gates, 1, which * hidden, (which + 1) * hidden, 1, out);
}

static PyObject *lstm_cell(dycl_call *call, const dycl_binding *row) {
    uint32_t gates, of_x, of_h, h, c, part[4], kept, fresh;
    static const dycl_op activation[4] = {DYCL_OP_sigmoid, DYCL_OP_sigmoid, DYCL_OP_tanh, DYCL_OP_sigmoid};
    PyObject *state = call->p[1];
    (void)row;
    if (!state || !(PyTuple_CheckExact(state) || PyList_CheckExact(state)) || PySequence_Fast_GET_SIZE(state) != 2)
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(cell_gates(call, PySequence_Fast_GET_ITEM(state, 0), 4, &of_x, &of_h, &h));
    DYCL_CALL_TRY(dycl_call_value(call, PySequence_Fast_GET_ITEM(state, 1), &c));
    const dycl_value *hidden = meta(call, h), *cell = meta(call, c);
    int64_t size = hidden->sizes[1];
    if (cell->rank != 2 || cell->sizes[0] != hidden->sizes[0] || cell->sizes[1] != size || cell->dtype != hidden->dtype)
        return dycl_call_bail(call, DYCL_BAIL_shape);
    DYCL_CALL_TRY(ew2(call, DYCL_OP_add, of_h, of_x, &gates));
    for (int i = 0; i < 4; i++) {
        DYCL_CALL_TRY(gate(call, gates, size, i, &part[i]));
        DYCL_CALL_TRY(ew1(call, activation[i], part[i], &part[i]));
    }
    DYCL_CALL_TRY(ew2(call, DYCL_OP_mul, part[1], c, &kept));
    DYCL_CALL_TRY(ew2(call, DYCL_OP_mul, part[0], part[2], &fresh));
    DYCL_CALL_TRY(ew2(call, DYCL_OP_add, kept, fresh, &c));
    DYCL_CALL_TRY(ew1(call, DYCL_OP_tanh, c, &h));
    DYCL_CALL_TRY(ew2(call, DYCL_OP_mul, part[3], h, &h));
    /* both objects exist before anything may be computed: that ends the graph they point into */
    PyObject *cell_object = dycl_call_written(call, dycl_lazy_new(call->region, c), 1),
             *result = NULL; /* torch: (f * c).add_(i * g) */
    PyObject *hidden_object = cell_object ? dycl_region_result(call->region, h) : NULL;
    if (hidden_object) result = PyTuple_Pack(2, hidden_object, cell_object);
    Py_XDECREF(hidden_object);
    Py_XDECREF(cell_object);
    return result;
}

/* Where a dimension of size 1 leaves strides open, those of torch's cell, which writes into the chunks of its gates: of
 * one iterator over the two, or (b: DYCL_NONE) of what is written. */
static dycl_status strides_of(dycl_call *call, uint32_t a, uint32_t b, uint32_t *out) {
    dycl_value v = *meta(call, *out);
    uint32_t operands[2] = {a, b};
    if (v.sizes[0] != 1 && v.sizes[1] != 1) return DYCL_OK;
    if (b != DYCL_NONE) return dycl_build_iterated(&call->region->recorder, *out, 2, operands, out);
    v = *meta(call, a);
    return dycl_build_dense(&call->region->recorder, *out, v.strides, out);
}

static PyObject *gru_cell(dycl_call *call, const dycl_binding *row) {
    uint32_t of_x, of_h, h, x_part[3], h_part[3], reset, update, fresh, moved, out = 0;
    (void)row;
    DYCL_CALL_TRY(cell_gates(call, call->p[1], 3, &of_x, &of_h, &h));
    int64_t size = meta(call, h)->sizes[1];
    for (int i = 0; i < 3; i++) {
        DYCL_CALL_TRY(gate(call, of_x, size, i, &x_part[i]));
        DYCL_CALL_TRY(gate(call, of_h, size, i, &h_part[i]));
    }
    DYCL_CALL_TRY(ew2(call, DYCL_OP_add, h_part[0], x_part[0], &reset));
    DYCL_CALL_TRY(ew1(call, DYCL_OP_sigmoid, reset, &reset));
    DYCL_CALL_TRY(ew2(call, DYCL_OP_add, h_part[1], x_part[1], &update));
    DYCL_CALL_TRY(ew1(call, DYCL_OP_sigmoid, update, &update));
    DYCL_CALL_TRY(ew2(call, DYCL_OP_mul, h_part[2], reset, &fresh));
    DYCL_CALL_TRY(ew2(call, DYCL_OP_add, x_part[2], fresh, &fresh));
    DYCL_CALL_TRY(strides_of(call, x_part[2], h_part[2], &fresh));
    DYCL_CALL_TRY(ew1(call, DYCL_OP_tanh, fresh, &fresh));
    DYCL_CALL_TRY(ew2(call, DYCL_OP_sub, h, fresh, &moved));
    DYCL_CALL_TRY(ew2(call, DYCL_OP_mul, moved, update, &out));
    DYCL_CALL_TRY(ew2(call, DYCL_OP_add, out, fresh, &out));
    return dycl_call_written(call, dycl_call_finish(call, strides_of(call, moved, DYCL_NONE, &out), out),
                             2); /* torch: (h - n).mul_(z).add_(n) */
}

/* rnn_tanh_cell, rnn_relu_cell */
static PyObject *rnn_cell(dycl_call *call, const dycl_binding *row) {
    uint32_t of_x, of_h, h, out = 0;
    DYCL_CALL_TRY(cell_gates(call, call->p[1], 1, &of_x, &of_h, &h));
    DYCL_CALL_TRY(ew2(call, DYCL_OP_add, of_h, of_x, &out));
    return dycl_call_finish(call, ew1(call, (dycl_op)row->op, out, &out), out);
}

/* Rows 16 bytes apart, or columns: torch rejects other operands (ATen/native/GroupedMMUtils.h). */
static int is_aligned(const dycl_value *v) {
    int64_t row = v->strides[v->rank - 2], column = v->strides[v->rank - 1], rows = v->sizes[v->rank - 2],
            columns = v->sizes[v->rank - 1];
    if (row == 1 && column >= (rows > 1 ? rows : 1)) return column % 4 == 0;
    return column == 1 && row >= (columns > 1 ? columns : 1) && row % 4 == 0;
}

/* Groups of rows, each with a matrix of its own: input, mat2, offs, bias, out_dtype */
static PyObject *grouped_mm(dycl_call *call, const dycl_binding *row) {
    uint32_t x[3], out = 0;
    (void)row;
    if (dycl_call_given(call->p[3]) || dycl_call_given(call->p[4])) return dycl_call_bail(call, DYCL_BAIL_arguments);
    for (int i = 0; i < 3; i++) DYCL_CALL_TRY(dycl_call_value(call, call->p[i], &x[i]));
    if (meta(call, x[0])->rank != 2 || meta(call, x[1])->rank != 3 || !is_aligned(meta(call, x[0])) ||
        !is_aligned(meta(call, x[1])))
        return dycl_call_bail(call, DYCL_BAIL_shape);
    if (call->region->tracks && !dycl_grad_suits_grouped(meta(call, x[0]))) return dycl_call_bail(call, DYCL_BAIL_grad);
    return dycl_call_finish(call, dycl_build_node(&call->region->recorder, DYCL_OP_grouped_matmul, 3, x, 0, NULL, &out),
                            out);
}

dycl_binding dycl_bindings_matmul[] = {
    ROW("linear", DYCL_AT_F | DYCL_AT_NN, "input weight bias", linear, 0, 0),
    ROW("matmul", T | M | DYCL_AT_DUNDER | DYCL_AT_RDUNDER, "input other", matmul, 0, 0),
    ROW("matmul", DYCL_AT_LINALG, "input other", matmul, 0, 0),
    ROW("mm", T | M, "input mat2", matmul, 2, 2),
    ROW("bmm", T | M, "input mat2", matmul, 3, 3),
    ROW("mv", T | M, "input vec", matmul, 2, 1),
    ROW("dot", T | M, "input tensor", matmul, 1, 1),
    ROW("vdot", T | M, "input other", matmul, 1, 1),
    ROW("addmm", T | M | I, "input mat1 mat2 | beta alpha", addmm, 2, 2),
    ROW("addmv", T | M | I, "input mat vec | beta alpha", addmm, 2, 1),
    ROW("baddbmm", T | M | I, "input batch1 batch2 | beta alpha", addmm, 3, 3),
    ROW("_grouped_mm", T, "input mat2 offs bias out_dtype", grouped_mm, 0, 0),
    ROW("einsum", T, "equation " DYCL_SPREAD, dycl_bind_einsum, 0, 0),
    ROW("tensordot", V, "self other dims_self dims_other", dycl_bind_tensordot, 0, 0),
    ROW("inner", T | M, "input other", dycl_bind_inner, 0, 0),
    ROW("outer", T | M, "input vec2", outer, 0, 0),
    ROW("ger", T | M, "input vec2", outer, 0, 0),
    ROW("lstm_cell", T, "input hx w_ih w_hh b_ih b_hh", lstm_cell, 0, 0),
    ROW("gru_cell", T, "input hx w_ih w_hh b_ih b_hh", gru_cell, 0, 0),
    ROW("rnn_tanh_cell", T, "input hx w_ih w_hh b_ih b_hh", rnn_cell, DYCL_OP_tanh, 0),
    ROW("rnn_relu_cell", T, "input hx w_ih w_hh b_ih b_hh", rnn_cell, DYCL_OP_relu, 0),
    {0},
};
