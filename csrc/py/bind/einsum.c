/* torch.einsum of two operands, in the steps that torch takes (ATen/native/Linear.cpp, einsum and sumproduct_pair): the
 * result is often a view of a product, and its strides follow from these steps. */
#include <string.h>

#include "py/bind/view.h"
#include "py/bind/bind.h"

#define LABELS 52

typedef struct {
    int count; /* labels of one operand or of the result, in order */
    int label[DYCL_MAX_RANK];
} subscripts;

static int label_of(Py_UCS4 c) {
    return c >= 'A' && c <= 'Z' ? (int)(c - 'A') : c >= 'a' && c <= 'z' ? (int)(c - 'a') + 26 : -1;
}

/* "ij,jk->ik" into three lists; 0: a form that goes to torch (one operand or more than two, "...", a diagonal, an
 * error). */
static int parse(PyObject *equation, subscripts part[3], int *has_output) {
    int at = 0;
    if (!equation || !PyUnicode_Check(equation) || !PyUnicode_IS_ASCII(equation)) return 0;
    Py_ssize_t length = PyUnicode_GET_LENGTH(equation);
    memset(part, 0, 3 * sizeof *part);
    for (Py_ssize_t i = 0; i < length; i++) {
        Py_UCS4 c = PyUnicode_READ_CHAR(equation, i);
        int label = label_of(c);
        if (c == ' ') continue;
        if (c == ',' && at == 0) {
            at = 1;
        } else if (c == '-' && at == 1 && i + 1 < length && PyUnicode_READ_CHAR(equation, i + 1) == '>') {
            at = 2;
            i++;
        } else {
            if (label < 0 || part[at].count == DYCL_MAX_RANK) return 0;
            for (int k = 0; k < part[at].count; k++)
                if (part[at].label[k] == label) return 0;
            part[at].label[part[at].count++] = label;
        }
    }
    *has_output = at == 2;
    return at >= 1;
}

typedef struct {
    int rank, outputs; /* common dimensions, the result's first */
    int place[LABELS]; /* of a label; -1: not used */
} arrangement;

static int arrange(const subscripts part[3], int has_output, arrangement *a) {
    int seen[LABELS] = {0};
    for (int i = 0; i < LABELS; i++) a->place[i] = -1;
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < part[i].count; k++) seen[part[i].label[k]]++;
    a->rank = 0;
    if (has_output) {
        for (int k = 0; k < part[2].count; k++) {
            if (!seen[part[2].label[k]]) return 0;
            a->place[part[2].label[k]] = a->rank++;
        }
    } else {
        for (int i = 0; i < LABELS; i++)
            if (seen[i] == 1) a->place[i] = a->rank++;
    }
    a->outputs = a->rank;
    for (int i = 0; i < LABELS; i++)
        if (seen[i] && a->place[i] < 0) a->place[i] = a->rank++;
    return a->rank <= DYCL_MAX_RANK;
}

/* The operand with the common dimensions in their order: those that it lacks have size 1. */
static dycl_status spread(dycl_call *call, uint32_t value, const subscripts *own, const arrangement *a, uint32_t *out) {
    int order[DYCL_MAX_RANK], from[DYCL_MAX_RANK], rank = own->count;
    dycl_status status;
    for (int i = 0; i < a->rank; i++) from[i] = -1;
    for (int k = 0; k < own->count; k++) from[a->place[own->label[k]]] = k;
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

/* einsum(equation, a, b) and einsum(equation, [a, b]) */
PyObject *dycl_bind_einsum(dycl_call *call, const dycl_binding *row) {
    subscripts part[3];
    arrangement a;
    uint32_t x[DYCL_MAX_RANK], out = 0;
    int count = 0, has_output = 0;
    int64_t contracted = 0, alone[2] = {0, 0};
    (void)row;
    if (!parse(call->p[0], part, &has_output) || !arrange(part, has_output, &a))
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (call->p[1] && (PyTuple_Check(call->p[1]) || PyList_Check(call->p[1]))) {
        if (call->p[2]) return dycl_call_bail(call, DYCL_BAIL_arguments);
        DYCL_CALL_TRY(dycl_call_values(call, call->p[1], DYCL_MAX_RANK, &count, x));
    } else {
        for (; count < 2 && call->p[1 + count]; count++)
            DYCL_CALL_TRY(dycl_call_value(call, call->p[1 + count], &x[count]));
        if (call->p[3]) return dycl_call_bail(call, DYCL_BAIL_arguments);
    }
    if (count != 2) return dycl_call_bail(call, DYCL_BAIL_arguments);
    for (int i = 0; i < 2; i++) {
        const dycl_value *v = meta(call, x[i]);
        if (!is_float(call, x[i]) || dtype_of(call, x[i]) != dtype_of(call, x[0]))
            return dycl_call_bail(call, DYCL_BAIL_dtype);
        if (v->rank != part[i].count || dycl_value_numel(v) == 0) return dycl_call_bail(call, DYCL_BAIL_shape);
    }
    for (int i = 0; i < 2; i++) DYCL_CALL_TRY(spread(call, x[i], &part[i], &a, &x[i]));
    const dycl_value *left = meta(call, x[0]), *right = meta(call, x[1]);
    for (int d = 0; d < a.rank; d++) {
        if (left->sizes[d] != right->sizes[d] && left->sizes[d] != 1 && right->sizes[d] != 1)
            return dycl_call_bail(call, DYCL_BAIL_shape);
        if (d < a.outputs) continue;
        if (left->sizes[d] != 1 && right->sizes[d] != 1)
            contracted |= INT64_C(1) << d;
        else if (left->sizes[d] != 1)
            alone[0] |= INT64_C(1) << d;
        else if (right->sizes[d] != 1)
            alone[1] |= INT64_C(1) << d;
    }
    for (int i = 0; i < 2; i++) DYCL_CALL_TRY(sum_over(call, alone[i], &x[i]));
    DYCL_CALL_TRY(contract(call, x[0], x[1], contracted, &out));
    if (a.rank > a.outputs) {
        int64_t sizes[DYCL_MAX_RANK];
        memcpy(sizes, meta(call, out)->sizes, sizeof sizes);
        DYCL_CALL_TRY(dycl_build_reshape(&call->region->recorder, out, a.outputs, sizes, 1, &out));
    }
    PyObject *result = dycl_call_finish(call, DYCL_OK, out);
    return contracted || a.rank > a.outputs ? dycl_call_as_view(call, result) : result; /* of the product, as torch's */
}
