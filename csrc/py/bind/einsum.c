/* torch.einsum in the steps that torch takes (ATen/native/Linear.cpp, einsum and sumproduct_pair): the result is often
 * a view of a product, or of the operand, and its strides follow from these steps. */
#include <string.h>

#include "py/bind/equation.h"
#include "py/bind/view.h"
#include "py/cpython/error.h"
#include "py/region/track.h"

typedef struct {
    int count;
    uint32_t value[DYCL_EQUATION_OPERANDS]; /* what is left */
    dycl_arrangement arrangement;
    int larger[DYCL_MAX_RANK]; /* by dimension: how many of them are larger than 1 there */
} contraction;

/* Dimensions with the same label become one, the diagonal; `from` says where each common dimension is now, or -1. */
static dycl_status diagonals(dycl_call *call, uint32_t value, const dycl_subscripts *own, const dycl_arrangement *a,
                             int *from, uint32_t *out) {
    const dycl_value v = *meta(call, value);
    int64_t sizes[DYCL_MAX_RANK], strides[DYCL_MAX_RANK];
    int wide = v.rank - own->count + 1, rank = 0, dim = 0;
    for (int i = 0; i < a->rank; i++) from[i] = -1;
    for (int k = 0; k < own->count; k++) {
        int open = own->label[k] == DYCL_EQUATION_WIDE;
        int at = open ? a->wide_at + a->wide - wide : a->place[own->label[k]];
        for (int end = open ? dim + wide : dim + 1; dim < end; dim++, at++) {
            if (from[at] < 0) {
                sizes[rank] = v.sizes[dim];
                strides[rank] = v.strides[dim];
                from[at] = rank++;
            } else if (sizes[from[at]] == v.sizes[dim]) {
                strides[from[at]] += v.strides[dim];
            } else {
                return dycl_build_bail(&call->region->recorder, DYCL_BAIL_shape);
            }
        }
    }
    *out = value;
    if (rank == v.rank) return DYCL_OK;
    return dycl_build_view(&call->region->recorder, value, 0, rank, sizes, strides, out);
}

/* The operand with the common dimensions in their order: those that it lacks have size 1. */
static dycl_status spread(dycl_call *call, uint32_t value, const dycl_subscripts *own, const dycl_arrangement *a,
                          uint32_t *out) {
    int order[DYCL_MAX_RANK], from[DYCL_MAX_RANK];
    dycl_status status;
    DYCL_TRY(diagonals(call, value, own, a, from, &value));
    int rank = meta(call, value)->rank;
    for (int i = 0; i < a->rank; i++) order[i] = from[i] >= 0 ? from[i] : rank++;
    while (meta(call, value)->rank < a->rank)
        DYCL_TRY(dycl_build_unsqueeze(&call->region->recorder, value, meta(call, value)->rank, &value));
    return dycl_build_permute(&call->region->recorder, value, order, out);
fail:
    return status;
}

/* Dimensions in a group, behind each other, and how many elements they make. */
typedef struct {
    int count, dim[DYCL_MAX_RANK];
    int64_t size;
} group;

static void put(group *g, int dim, int64_t size) {
    g->dim[g->count++] = dim;
    g->size *= size;
}

static dycl_status grouped(dycl_call *call, uint32_t x, const group *const groups[4], int rank, const int64_t sizes[3],
                           uint32_t *out) {
    int order[DYCL_MAX_RANK], count = 0;
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < groups[i]->count; k++) order[count++] = groups[i]->dim[k];
    dycl_status status = count == rank ? dycl_build_permute(&call->region->recorder, x, order, &x) : DYCL_BAIL;
    return status == DYCL_OK ? dycl_build_reshape(&call->region->recorder, x, 3, sizes, 0, out) : status;
}

/* sum over `contracted` (a mask) of left * right, dimensions kept: a batched product of matrices */
static dycl_status contract(dycl_call *call, uint32_t left, uint32_t right, int64_t contracted, uint32_t *out) {
    dycl_recorder *r = &call->region->recorder;
    dycl_status status;
    if (!contracted) return ew2(call, DYCL_OP_mul, left, right, out);
    dycl_value a = *meta(call, left), b = *meta(call, right);
    group both = {.size = 1}, only_left = {.size = 1}, only_right = {.size = 1}, sum = {.size = 1};
    for (int d = 0; d < a.rank; d++) {
        if (contracted >> d & 1)
            put(&sum, d, a.sizes[d]);
        else if (a.sizes[d] != 1 && b.sizes[d] != 1)
            put(&both, d, a.sizes[d]);
        else if (a.sizes[d] != 1)
            put(&only_left, d, a.sizes[d]);
        else
            put(&only_right, d, b.sizes[d]);
    }
    if (only_left.count && only_right.count &&
        only_left.dim[0] > only_right.dim[only_right.count - 1]) { /* the right one's come first in the result */
        group g = only_left;
        only_left = only_right;
        only_right = g;
        uint32_t x = left;
        left = right;
        right = x;
    }
    const group *of_left[4] = {&both, &only_left, &sum, &only_right},
                *of_right[4] = {&both, &sum, &only_right, &only_left};
    int64_t left_sizes[3] = {both.size, only_left.size, sum.size},
            right_sizes[3] = {both.size, sum.size, only_right.size}, sizes[DYCL_MAX_RANK];
    int back[DYCL_MAX_RANK], count = 0;
    DYCL_TRY(grouped(call, left, of_left, a.rank, left_sizes, &left));
    DYCL_TRY(grouped(call, right, of_right, a.rank, right_sizes, &right));
    DYCL_TRY(dycl_build_matmul(r, left, right, out));
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < of_left[i]->count; k++) {
            int d = of_left[i]->dim[k];
            sizes[count] = i == 2 ? 1 : a.sizes[d] != 1 ? a.sizes[d] : b.sizes[d];
            back[d] = count++;
        }
    DYCL_TRY(dycl_build_reshape(r, *out, a.rank, sizes, 1, out));
    return dycl_build_permute(r, *out, back, out);
fail:
    return status;
}

/* Of two operands, with all that can be summed by now. *product: the result is a view of one. */
static dycl_status join(dycl_call *call, contraction *c, uint32_t a, uint32_t b, uint32_t *out, int *product) {
    int64_t contracted = 0, alone[2] = {0, 0};
    dycl_status status;
    for (int d = c->arrangement.outputs; d < c->arrangement.rank; d++) {
        int in_a = meta(call, a)->sizes[d] != 1, in_b = meta(call, b)->sizes[d] != 1;
        if (in_a && in_b) {
            if (--c->larger[d] != 1) continue;
            contracted |= INT64_C(1) << d;
        } else if (c->larger[d] != 1 || !(in_a || in_b)) {
            continue;
        } else {
            alone[in_b] |= INT64_C(1) << d;
        }
        c->larger[d] = 0;
    }
    DYCL_TRY(sum_over(call, alone[0], &a));
    DYCL_TRY(sum_over(call, alone[1], &b));
    *product = contracted != 0;
    return contract(call, a, b, contracted, out);
fail:
    return status;
}

static dycl_status read_operands(dycl_call *call, contraction *c) {
    dycl_recorder *r = &call->region->recorder;
    dycl_status status = DYCL_OK;
    if (call->p[1] && (PyTuple_Check(call->p[1]) || PyList_Check(call->p[1]))) {
        if (call->p[2]) return dycl_build_bail(r, DYCL_BAIL_arguments);
        return dycl_call_values(call, call->p[1], DYCL_EQUATION_OPERANDS, &c->count, c->value);
    }
    for (c->count = 0; c->count < DYCL_EQUATION_OPERANDS && call->p[1 + c->count] && status == DYCL_OK; c->count++)
        status = dycl_call_value(call, call->p[1 + c->count], &c->value[c->count]);
    return status;
}

/* Lays the operands out in the common dimensions, where they have to agree. */
static dycl_status arrange(dycl_call *call, const dycl_equation *equation, contraction *c) {
    int ranks[DYCL_EQUATION_OPERANDS];
    int64_t common[DYCL_MAX_RANK];
    dycl_status status;
    for (int i = 0; i < c->count; i++) {
        ranks[i] = meta(call, c->value[i])->rank;
        if (c->count > 1 &&
            (!is_float(call, c->value[i]) || dtype_of(call, c->value[i]) != dtype_of(call, c->value[0])))
            return dycl_build_bail(&call->region->recorder, DYCL_BAIL_dtype);
        if (dycl_value_numel(meta(call, c->value[i])) == 0)
            return dycl_build_bail(&call->region->recorder, DYCL_BAIL_shape);
    }
    if (c->count != equation->operands || !dycl_equation_arrange(equation, ranks, &c->arrangement))
        return dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
    for (int d = 0; d < c->arrangement.rank; d++) common[d] = 1;
    for (int i = 0; i < c->count; i++) {
        DYCL_TRY(spread(call, c->value[i], &equation->of[i], &c->arrangement, &c->value[i]));
        const dycl_value *v = meta(call, c->value[i]);
        for (int d = 0; d < v->rank; d++) {
            if (v->sizes[d] == 1) continue;
            if (common[d] != 1 && common[d] != v->sizes[d])
                return dycl_build_bail(&call->region->recorder, DYCL_BAIL_shape);
            common[d] = v->sizes[d];
            c->larger[d]++;
        }
    }
fail:
    return status;
}

/* How a gradient lies along dimensions of size 1 hangs on strides that say nothing; so does the name of a node where
 * there are no dimensions. Two operands without "..." and diagonals are recorded all the same. */
static int lies_as_torchs(const dycl_call *call, const dycl_equation *equation, const contraction *c) {
    int plain = c->count == 2, ones = c->count == 1 && meta(call, c->value[0])->rank == 0;
    for (int i = 0; i < c->count; i++) {
        const dycl_value *v = meta(call, c->value[i]);
        plain &= i < 2 && !dycl_equation_repeats(&equation->of[i]);
        for (int d = 0; d < v->rank; d++) ones |= v->sizes[d] == 1;
    }
    return plain || !ones || !dycl_track_any_now(call->region, c->count, c->value);
}

/* New reference: a tuple of positions, None: from left to right, or NULL with an exception. */
static PyObject *order_of(dycl_call *call, const contraction *c) {
    static PyObject *order; /* owned: dycl._contraction.order */
    if (c->count < 3) return Py_NewRef(Py_None);
    PyObject *module = order ? NULL : PyImport_ImportModule("dycl._contraction");
    if (module) order = PyObject_GetAttrString(module, "order");
    Py_XDECREF(module);
    PyObject *shapes = order ? PyTuple_New(c->count) : NULL;
    for (int i = 0; shapes && i < c->count; i++) {
        const dycl_value *v = meta(call, c->value[i]);
        PyObject *shape = dycl_py_ints(v->rank, v->sizes);
        if (!shape)
            Py_CLEAR(shapes);
        else
            PyTuple_SET_ITEM(shapes, i, shape);
    }
    PyObject *found = shapes ? PyObject_CallFunctionObjArgs(order, call->p[0], shapes, NULL) : NULL;
    Py_XDECREF(shapes);
    return found;
}

/* The two that come next: positions, the smaller first. 0: what was found is no order. */
static int next_two(const contraction *c, PyObject *order, int step, int *i, int *j) {
    *i = 0;
    *j = 1;
    if (order == Py_None) return 1;
    if (!PyTuple_Check(order) || PyTuple_GET_SIZE(order) < 2 * step + 2) return 0;
    long a = PyLong_AsLong(PyTuple_GET_ITEM(order, 2 * step)), b = PyLong_AsLong(PyTuple_GET_ITEM(order, 2 * step + 1));
    PyErr_Clear(); /* -1 is none */
    *i = (int)(a < b ? a : b);
    *j = (int)(a < b ? b : a);
    return *i >= 0 && *i != *j && *j < c->count;
}

static dycl_status join_all(dycl_call *call, contraction *c, PyObject *order, int *product) {
    for (int step = 0, i, j; c->count > 1; step++) {
        uint32_t out;
        if (!next_two(c, order, step, &i, &j)) return dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
        dycl_status status = join(call, c, c->value[i], c->value[j], &out, product);
        if (status != DYCL_OK) return status;
        c->count--;
        memmove(c->value + j, c->value + j + 1, (size_t)(c->count - j) * sizeof *c->value);
        c->count--;
        memmove(c->value + i, c->value + i + 1, (size_t)(c->count - i) * sizeof *c->value);
        int at = order == Py_None ? 0 : c->count;
        memmove(c->value + at + 1, c->value + at, (size_t)(c->count - at) * sizeof *c->value);
        c->value[at] = out;
        c->count++;
    }
    return DYCL_OK;
}

/* einsum(equation, a, b...) and einsum(equation, [a, b...]) */
PyObject *dycl_bind_einsum(dycl_call *call, const dycl_binding *row) {
    dycl_equation equation;
    contraction c = {0};
    uint32_t out;
    int product = 0;
    (void)row;
    if (!dycl_equation_parse(call->p[0], &equation)) return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(read_operands(call, &c));
    PyObject *order = order_of(call, &c);                /* of the operands as they are given */
    if (!order && dycl_error_forgive() < 0) return NULL; /* torch says what is wrong */
    if (!order) return dycl_call_bail(call, DYCL_BAIL_arguments);
    const int count = c.count;
    dycl_status status = lies_as_torchs(call, &equation, &c) ? arrange(call, &equation, &c)
                                                             : dycl_build_bail(&call->region->recorder, DYCL_BAIL_grad);
    if (status == DYCL_OK) status = join_all(call, &c, order, &product);
    Py_DECREF(order);
    DYCL_CALL_TRY(status);
    out = c.value[0];
    const int rank = c.arrangement.rank, outputs = c.arrangement.outputs;
    if (rank == outputs) {
        PyObject *result = dycl_call_finish(call, DYCL_OK, out);
        return product ? dycl_call_as_view(call, result) : result;
    }
    if (count == 1) {
        int64_t attrs[2] = {(INT64_C(1) << rank) - (INT64_C(1) << outputs), 0};
        if (!is_float(call, out)) return dycl_call_bail(call, DYCL_BAIL_dtype);
        return dycl_call_finish(call, dycl_build_node(&call->region->recorder, DYCL_OP_sum, 1, &out, 2, attrs, &out),
                                out);
    }
    int64_t sizes[DYCL_MAX_RANK];
    memcpy(sizes, meta(call, out)->sizes, sizeof sizes);
    DYCL_CALL_TRY(dycl_build_reshape(&call->region->recorder, out, outputs, sizes, 1, &out));
    return dycl_call_as_view(call, dycl_call_finish(call, DYCL_OK, out));
}
