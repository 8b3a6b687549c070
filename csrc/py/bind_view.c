/* Views and data movement. */
#include "py/bind_view.h"

#include <string.h>

/* Several results of one operator: all of them belong to this segment, so that only the last may end it. */
static PyObject *results(dycl_region *region, int count, const uint32_t *values) {
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple && i < count; i++) {
        PyObject *o = i < count - 1 ? dycl_lazy_new(region, values[i]) : dycl_region_result(region, values[i]);
        if (!o) Py_CLEAR(tuple);
        else PyTuple_SET_ITEM(tuple, i, o);
    }
    return tuple;
}

#define MOST_RESULTS 4096

PyObject *dycl_view_unbind(dycl_region *region, PyObject *self, int dim) {
    dycl_recorder *r = &region->recorder;
    uint32_t value, values[MOST_RESULTS];
    if (dycl_region_value(region, self, &value) != DYCL_OK) return NULL;
    const dycl_value *v = &r->graph.values[value];
    if (v->rank == 0 || v->sizes[dim] > MOST_RESULTS) {
        dycl_build_bail(r, DYCL_BAIL_shape);
        return NULL;
    }
    int count = (int)v->sizes[dim];
    for (int i = 0; i < count; i++)
        if (dycl_build_select(r, value, dim, i, &values[i]) != DYCL_OK) return NULL;
    return results(region, count, values);
}

PyObject *dycl_view_transposed(dycl_region *region, PyObject *self, int matrix) {
    dycl_recorder *r = &region->recorder;
    uint32_t value, out;
    if (dycl_region_value(region, self, &value) != DYCL_OK) return NULL;
    int rank = r->graph.values[value].rank;
    if (matrix ? rank < 2 : rank != 2) {
        dycl_build_bail(r, DYCL_BAIL_shape);
        return NULL;
    }
    if (dycl_build_transpose(r, value, rank - 2, rank - 1, &out) != DYCL_OK) return NULL;
    return dycl_region_result(region, out);
}

dycl_binding dycl_bindings_view[] = {
    {0},
};
