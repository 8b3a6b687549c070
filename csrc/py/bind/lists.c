/* Lists among the arguments and the results. */
#include "py/bind/view.h"

dycl_status dycl_call_sequence(dycl_call *call, PyObject *o, int *out_count, int64_t *out) {
    if (!o || PyLong_Check(o)) return dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
    return dycl_call_ints(call, o, DYCL_MAX_RANK, out_count, out);
}

dycl_status dycl_call_spread(dycl_call *call, int first, int *out_count, int64_t *out) {
    PyObject *const *given = call->p + first; /* nine of them: the list's own parameter and those of DYCL_SPREAD */
    int count = 0;
    if (!given[0] || !PyLong_Check(given[0])) {
        if (given[0] && given[1]) return dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
        return dycl_call_sequence(call, given[0], out_count, out);
    }
    for (; count <= DYCL_MAX_RANK && given[count]; count++) {
        if (count == DYCL_MAX_RANK) return dycl_build_bail(&call->region->recorder, DYCL_BAIL_rank);
        dycl_status status = dycl_call_int(call, given[count], &out[count]);
        if (status != DYCL_OK) return status;
    }
    *out_count = count;
    return DYCL_OK;
}

dycl_status dycl_call_values(dycl_call *call, PyObject *o, int most, int *out_count, uint32_t *out) {
    int is_tuple = o && PyTuple_CheckExact(o);
    if (!o || (!is_tuple && !PyList_CheckExact(o)))
        return dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
    Py_ssize_t n = is_tuple ? PyTuple_GET_SIZE(o) : PyList_GET_SIZE(o);
    if (n < 1 || n > most) return dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
    for (Py_ssize_t i = 0; i < n; i++) {
        dycl_status status = dycl_call_value(call, is_tuple ? PyTuple_GET_ITEM(o, i) : PyList_GET_ITEM(o, i), &out[i]);
        if (status != DYCL_OK) return status;
    }
    *out_count = (int)n;
    return DYCL_OK;
}

PyObject *dycl_call_results(dycl_region *region, int count, const uint32_t *values) {
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple && i < count;
         i++) { /* only the last may end the segment: all of them are values of this one */
        PyObject *o = i < count - 1 ? dycl_lazy_new(region, values[i]) : dycl_region_result(region, values[i]);
        if (!o)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, o);
    }
    return tuple;
}
