/* What the files of bindings share: the spelling of their tables, and short names for what they say most often.
 * Private to py/bind.
 *
 * Ownership: none. Threads: GIL held. */
#ifndef DYCL_PY_BIND_BIND_H
#define DYCL_PY_BIND_BIND_H

#include <string.h>

#include "py/bind/call.h"

/* Rows: name, places, parameters, function, and where the function wants them op and extra. */
#define ROW(name_, places_, parameters_, ...)                                                                          \
    { .name = name_, .places = places_, .parameters = parameters_, .bind = __VA_ARGS__ }

#define T  DYCL_AT_TORCH
#define M  DYCL_AT_METHOD
#define I  DYCL_AT_INPLACE
#define F  DYCL_AT_F
#define N  DYCL_AT_NN
#define S  DYCL_AT_SPECIAL
#define L  DYCL_AT_LINALG
#define D  DYCL_AT_DUNDER
#define ID DYCL_AT_IDUNDER
#define RD DYCL_AT_RDUNDER
#define V  DYCL_AT_VF
#define RS DYCL_AT_RSAME

static inline const dycl_value *meta(const dycl_call *call, uint32_t value) { return dycl_call_meta(call, value); }
static inline dycl_dtype dtype_of(const dycl_call *call, uint32_t value) {
    return (dycl_dtype)meta(call, value)->dtype;
}
static inline int is_half(const dycl_call *call, uint32_t value) { return dycl_dtype_is_half(dtype_of(call, value)); }
static inline int is_float(const dycl_call *call, uint32_t value) { return dycl_dtype_is_float(dtype_of(call, value)); }

/* Elementwise operators of tensors, as torch promotes their types. */
static inline dycl_status ew1(dycl_call *call, dycl_op op, uint32_t a, uint32_t *out) {
    dycl_operand x = dycl_operand_of(a);
    return dycl_build_ew(&call->region->recorder, op, DYCL_PROMOTE_COMMON, 1, &x, out);
}

static inline dycl_status ew2(dycl_call *call, dycl_op op, uint32_t a, uint32_t b, uint32_t *out) {
    dycl_operand x[2] = {dycl_operand_of(a), dycl_operand_of(b)};
    return dycl_build_ew(&call->region->recorder, op, DYCL_PROMOTE_COMMON, 2, x, out);
}

static inline dycl_status ew_number(dycl_call *call, dycl_op op, uint32_t a, double number, uint32_t *out) {
    dycl_operand x[2] = {dycl_operand_of(a), dycl_operand_f64(number)};
    return dycl_build_ew(&call->region->recorder, op, DYCL_PROMOTE_COMMON, 2, x, out);
}

/* The strides that torch gives a new contiguous tensor, also where a size is 1. */
static inline int is_canonical(const dycl_value *v) {
    int64_t strides[DYCL_MAX_RANK];
    dycl_strides_contiguous(v->rank, v->sizes, strides);
    return memcmp(strides, v->strides, (size_t)v->rank * sizeof *strides) == 0;
}

/* Summed over the dimensions in the mask, which stay with size 1. */
static inline dycl_status sum_over(dycl_call *call, int64_t mask, uint32_t *x) {
    int64_t attrs[2] = {mask, 1};
    return mask ? dycl_build_node(&call->region->recorder, DYCL_OP_sum, 1, x, 2, attrs, x) : DYCL_OK;
}

/* A result without one of its dimensions, which has size 1: a view. */
static inline dycl_status drop_dim(dycl_call *call, uint32_t value, int dim, uint32_t *out) {
    return dycl_build_select(&call->region->recorder, value, dim, 0, out);
}

/* Elementwise with one operand: row->op, and row->extra is a dycl_promotion (elementwise.c). */
PyObject *dycl_bind_unary(dycl_call *call, const dycl_binding *row);

/* Two results: a tuple, or an object of torch's structseq type (reduce.c). */
PyObject *dycl_call_two_results(dycl_call *call, PyObject *type, uint32_t a, uint32_t b);

#endif
