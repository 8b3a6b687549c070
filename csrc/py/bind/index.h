/* Integer tensors as indices: their values are known to be in range before anything is recorded.
 *
 * Ownership: none. Threads: GIL held; the region is open. */
#ifndef DYCL_PY_BIND_INDEX_H
#define DYCL_PY_BIND_INDEX_H

#include "py/bind/call.h"

/* The value of an index tensor (int64 or int32) and the least and greatest of its elements (low > high: it is empty). A
 * pending index whose bounds are not known is computed, which begins a new segment: call this before asking for any
 * other value. */
dycl_status dycl_region_index(dycl_region *region, PyObject *tensor, uint32_t *out_value, int64_t out_bounds[2]);
/* The same without elements of this value; excepted: there are some. */
dycl_status dycl_region_index_but(dycl_region *region, PyObject *tensor, int64_t except, uint32_t *out_value,
                                  int64_t out_bounds[2], int *out_excepted);
/* The same for several (NULL: none): computing one begins a new segment, after which the values of the others are
 * stale, so all are asked again, at most so many times. */
dycl_status dycl_index_values(dycl_call *call, int count, PyObject *const *tensors, int most_rounds, uint32_t *values,
                              int64_t (*bounds)[2]);
/* Looks at the elements of a feed, or of a view of one: at each row of its last dimension. */
typedef void (*dycl_row_look)(const dycl_value *v, const void *data, int64_t count, int64_t stride, void *context);
void dycl_region_each_row(const dycl_region *region, uint32_t feed, dycl_row_look look, void *context);
/* The value of a tensor as a feed: what is pending is computed, which begins a new segment. */
dycl_status dycl_region_computed(dycl_region *region, PyObject *tensor, uint32_t *out_value);
/* Whether indices with these bounds all point into a dimension of that size. */
static inline int dycl_index_within(const int64_t bounds[2], int64_t size) {
    return bounds[0] > bounds[1] || (bounds[0] >= 0 && bounds[1] < size);
}
/* Indices that may count from the end as ones that do not; BAIL where one is out of range. */
dycl_status dycl_index_from_start(dycl_call *call, uint32_t index, const int64_t bounds[2], int64_t size,
                                  uint32_t *out);
/* What a key without tensors looks at: dtype, sizes and strides, and the offset in elements from the tensor's first. */
dycl_status dycl_index_view(dycl_call *call, PyObject *key, const dycl_value *v, int64_t *out_offset, dycl_value *out);

/* The view that slices, integers and None make, one after the other. */
typedef struct {
    int rank, dim; /* dim: where the next one applies */
    int64_t offset, sizes[DYCL_MAX_RANK], strides[DYCL_MAX_RANK];
} dycl_index_cursor;
dycl_status dycl_index_integer(dycl_call *call, dycl_index_cursor *c, int64_t index);
dycl_status dycl_index_slice(dycl_call *call, dycl_index_cursor *c, PyObject *slice);
dycl_status dycl_index_none(dycl_call *call, dycl_index_cursor *c);

/* x[key] and x[key] = value (call->p[2]) for what else a key may be: tensors and lists of positions anywhere, masks. In
 * advanced.c */
PyObject *dycl_index_advanced(dycl_call *call, const dycl_binding *row);
PyObject *dycl_index_put_advanced(dycl_call *call);
/* Whether x[key] = source may give the lazy tensor another value. With a history it is asked once more when there is
 * one (dycl_call_finish). 0 also with an exception. In write.c */
int dycl_index_may_put(dycl_call *call, PyObject *self, PyObject *source);
/* Whether torch takes it as what is written: most of NumPy's numbers it refuses. */
int dycl_index_takes(PyObject *source);

#endif
