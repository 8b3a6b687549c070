/* Repetition. */
#include <string.h>

#include "ir/infer.h"
#include "py/bind/beside.h"
#include "py/bind/bind.h"
#include "py/bind/view.h"

/* The value with every dimension d repeated times[d] times as a whole (outer) or element by element: an expanded view,
 * copied, seen with the new sizes. Dimensions that are not repeated stay as they are, so that most calls fit the most
 * dimensions. */
static dycl_status repeat(dycl_call *call, uint32_t value, int rank, const int64_t *sizes, const int64_t *times,
                          int outer, uint32_t *out) {
    dycl_recorder *r = &call->region->recorder;
    dycl_status status;
    int64_t split[2 * DYCL_MAX_RANK], wide[2 * DYCL_MAX_RANK], merged[DYCL_MAX_RANK];
    int count = 0, once = 1;
    for (int d = 0; d < rank; d++) {
        merged[d] = sizes[d] * times[d];
        once &= times[d] == 1;
        if (times[d] == 1 || sizes[d] == 1) {
            split[count] = sizes[d];
            wide[count++] = merged[d];
            continue;
        }
        int many = outer ? count : count + 1, one = outer ? count + 1 : count;
        split[many] = 1;
        wide[many] = times[d];
        split[one] = wide[one] = sizes[d];
        count += 2;
    }
    if (count > DYCL_MAX_RANK) return dycl_build_bail(r, DYCL_BAIL_rank);
    const dycl_way_back back = once ? DYCL_BACK_SAME : DYCL_BACK_VIEW;
    dycl_call_back(call, back);
    DYCL_TRY(dycl_build_reshape(r, value, count, split, 1, &value));
    dycl_call_back(call, back);
    DYCL_TRY(dycl_build_expand(r, value, count, wide, &value));
    DYCL_TRY(dycl_build_node(r, DYCL_OP_contiguous, 1, &value, 1, &(int64_t){0}, &value));
    *out = value;
    if (count == rank) return DYCL_OK;
    return dycl_build_reshape(r, value, rank, merged, 1, out);
fail:
    return status;
}

static PyObject *bind_repeat(dycl_call *call, const dycl_binding *row) {
    uint32_t value, out = 0;
    int count, rank;
    int64_t times[DYCL_MAX_RANK], sizes[DYCL_MAX_RANK];
    DYCL_CALL_TRY(row->extra ? dycl_call_spread(call, 1, &count, times)
                             : dycl_call_sequence(call, call->p[1], &count, times));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    dycl_value v = *dycl_call_meta(call, value);
    if (count < v.rank) {
        if (row->op == 0) return dycl_call_bail(call, DYCL_BAIL_shape);
        memmove(times + v.rank - count, times, (size_t)count * sizeof *times); /* tile: the first ones count as 1 */
        for (int i = 0; i < v.rank - count; i++) times[i] = 1;
        count = v.rank;
    }
    rank = count;
    for (int i = 0; i < rank; i++) {
        if (times[i] < 0) return dycl_call_bail(call, DYCL_BAIL_shape);
        sizes[i] = i < rank - v.rank ? 1 : v.sizes[i - (rank - v.rank)];
    }
    dycl_call_back(call, rank == v.rank ? DYCL_BACK_SAME : DYCL_BACK_OWN); /* torch sums over what is added */
    DYCL_CALL_TRY(dycl_build_expand(&call->region->recorder, value, rank, sizes, &value));
    return dycl_call_finish(call, repeat(call, value, rank, sizes, times, 1, &out), out);
}

static PyObject *bind_repeat_interleave(dycl_call *call, const dycl_binding *row) {
    uint32_t value, out = 0;
    int64_t count, times[DYCL_MAX_RANK];
    int dim = 0;
    if (!call->p[1] && row->op) return dycl_call_bail(call, DYCL_BAIL_arguments); /* a method is told how often */
    if (!call->p[1] || dycl_is_tensor(call->p[1])) return dycl_beside_values(call, row);
    DYCL_CALL_TRY(dycl_call_int(call, call->p[1], &count));
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &value));
    if (count < 0) return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (dycl_call_given(call->p[2])) {
        DYCL_CALL_TRY(dycl_call_dim(call, call->p[2], dycl_call_meta(call, value)->rank, &dim));
    } else {
        int64_t numel = dycl_value_numel(dycl_call_meta(call, value));
        DYCL_CALL_TRY(dycl_build_reshape(&call->region->recorder, value, 1, &numel, 0, &value));
    }
    dycl_value v = *dycl_call_meta(call, value);
    if (v.rank == 0) return dycl_call_bail(call, DYCL_BAIL_shape);
    if (dycl_call_given(call->p[3])) { /* torch checks it */
        int64_t said;
        DYCL_CALL_TRY(dycl_call_int(call, call->p[3], &said));
        if (said != v.sizes[dim] * count) return dycl_call_bail(call, DYCL_BAIL_arguments);
    }
    for (int i = 0; i < v.rank; i++) times[i] = i == dim ? count : 1;
    return dycl_call_as_view(
        call, dycl_call_finish(call, repeat(call, value, v.rank, v.sizes, times, 0, &out), out)); /* of the copy */
}

dycl_binding dycl_bindings_repeat[] = {
    ROW("repeat", M, "self repeats " DYCL_SPREAD, bind_repeat, 0, 1),
    ROW("tile", M, "self dims " DYCL_SPREAD, bind_repeat, 1, 1),
    ROW("tile", T, "input dims", bind_repeat, 1, 0),
    ROW("repeat_interleave", T, "input repeats dim | output_size", bind_repeat_interleave, 0, 0),
    ROW("repeat_interleave", M, "self repeats dim | output_size", bind_repeat_interleave, 1, 0),
    {0},
};
