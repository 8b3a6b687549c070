/* Reductions, for the files that bind what is made of them. Private to py/bind.
 *
 * Ownership: none. Threads: GIL held. */
#ifndef DYCL_PY_BIND_REDUCE_H
#define DYCL_PY_BIND_REDUCE_H

#include "py/bind/bind.h"

/* What an empty list of dimensions means differs between operators. */
typedef enum { EMPTY_IS_ALL, EMPTY_BAILS } dycl_empty_rule;

/* Dimensions to reduce: NULL, None: all; an int or a sequence. A scalar tensor has the dimension 0, which nothing
 * reduces. */
dycl_status dycl_reduced_dims(dycl_call *call, PyObject *o, int rank, dycl_empty_rule empty, uint32_t *out);

static inline int64_t dycl_reduced_numel(const dycl_value *value, uint32_t mask) {
    int64_t n = 1;
    for (int i = 0; i < value->rank; i++)
        if (mask >> i & 1) n *= value->sizes[i];
    return n;
}

static inline dycl_status reduce(dycl_call *call, dycl_op op, uint32_t value, uint32_t mask, int keep, uint32_t *out) {
    int64_t attrs[2] = {mask, keep};
    return dycl_build_node(&call->region->recorder, op, 1, &value, 2, attrs, out);
}

/* The norm of each row of these dimensions; where it has a history, of order 1 or 2 (norms.c). */
dycl_status dycl_call_vector_norm(dycl_call *call, uint32_t x, double order, uint32_t mask, int keep, uint32_t *out);

#endif
