/* Aliases, copies and torch.matmul's rank rules. */
#include <string.h>

#include "ir/infer.h"
#include "record/build.h"

static const dycl_value *get(const dycl_recorder *r, uint32_t value) { return &r->graph.values[value]; }

dycl_status dycl_build_view(dycl_recorder *r, uint32_t value, int64_t offset, int rank, const int64_t *sizes,
                            const int64_t *strides, uint32_t *out) {
    int64_t attrs[2 + 2 * DYCL_MAX_RANK];
    const dycl_way_back back = r->back;
    r->back = DYCL_BACK_VIEW;
    if (rank > DYCL_MAX_RANK) return dycl_build_bail(r, DYCL_BAIL_rank);
    for (int i = 0; i < rank; i++)
        if (sizes[i] < 0 || strides[i] < 0 || strides[i] > DYCL_VIEW_REACH)
            return dycl_build_bail(r, DYCL_BAIL_shape); /* torch says what is wrong with it */
    attrs[0] = offset;
    memcpy(attrs + 1, sizes, (size_t)rank * sizeof *sizes);
    memcpy(attrs + 1 + rank, strides, (size_t)rank * sizeof *strides);
    attrs[1 + 2 * rank] = back;
    r->made_view = 1;
    dycl_status status =
        dycl_build_node(r, DYCL_OP_view, 1, &value, 1 + 2 * rank + (back != DYCL_BACK_VIEW), attrs, out);
    if (status == DYCL_OK) dycl_recorder_bound_as(r, *out, value);
    return status;
}

dycl_status dycl_build_view_put(dycl_recorder *r, uint32_t value, uint32_t part, int64_t offset, int rank,
                                const int64_t *sizes, const int64_t *strides, uint32_t *out) {
    uint32_t operands[2] = {value, part};
    int64_t attrs[1 + 2 * DYCL_MAX_RANK] = {offset};
    memcpy(attrs + 1, sizes, (size_t)rank * sizeof *sizes);
    memcpy(attrs + 1 + rank, strides, (size_t)rank * sizeof *strides);
    return dycl_build_node(r, DYCL_OP_view_put, 2, operands, 1 + 2 * rank, attrs, out);
}

dycl_status dycl_build_permute(dycl_recorder *r, uint32_t value, const int *order, uint32_t *out) {
    int64_t sizes[DYCL_MAX_RANK], strides[DYCL_MAX_RANK];
    const dycl_value *v = get(r, value);
    for (int i = 0; i < v->rank; i++) {
        sizes[i] = v->sizes[order[i]];
        strides[i] = v->strides[order[i]];
    }
    return dycl_build_view(r, value, 0, v->rank, sizes, strides, out);
}

dycl_status dycl_build_transpose(dycl_recorder *r, uint32_t value, int a, int b, uint32_t *out) {
    int order[DYCL_MAX_RANK];
    for (int i = 0; i < DYCL_MAX_RANK; i++) order[i] = i;
    order[a] = b;
    order[b] = a;
    return dycl_build_permute(r, value, order, out);
}

dycl_status dycl_build_unsqueeze(dycl_recorder *r, uint32_t value, int dim, uint32_t *out) {
    int64_t sizes[DYCL_MAX_RANK + 1], strides[DYCL_MAX_RANK + 1];
    const dycl_value *v = get(r, value);
    int rank = v->rank + 1;
    for (int i = 0, k = 0; i < rank; i++) {
        if (i == dim) {
            sizes[i] = 1;
            strides[i] = dim < v->rank ? v->sizes[dim] * v->strides[dim] : 1;
        } else {
            sizes[i] = v->sizes[k];
            strides[i] = v->strides[k++];
        }
    }
    return dycl_build_view(r, value, 0, rank, sizes, strides, out);
}

dycl_status dycl_build_select(dycl_recorder *r, uint32_t value, int dim, int64_t index, uint32_t *out) {
    int64_t sizes[DYCL_MAX_RANK], strides[DYCL_MAX_RANK];
    const dycl_value *v = get(r, value);
    int rank = 0;
    for (int i = 0; i < v->rank; i++) {
        if (i == dim) continue;
        sizes[rank] = v->sizes[i];
        strides[rank++] = v->strides[i];
    }
    return dycl_build_view(r, value, index * v->strides[dim], rank, sizes, strides, out);
}

dycl_status dycl_build_slice(dycl_recorder *r, uint32_t value, int dim, int64_t start, int64_t stop, int64_t step,
                             uint32_t *out) {
    int64_t sizes[DYCL_MAX_RANK], strides[DYCL_MAX_RANK];
    const dycl_value *v = get(r, value);
    memcpy(sizes, v->sizes, sizeof sizes);
    memcpy(strides, v->strides, sizeof strides);
    sizes[dim] = stop > start ? (stop - start + step - 1) / step : 0;
    strides[dim] *= step;
    return dycl_build_view(r, value, start * v->strides[dim], v->rank, sizes, strides, out);
}

dycl_status dycl_build_expand(dycl_recorder *r, uint32_t value, int rank, const int64_t *wanted, uint32_t *out) {
    int64_t sizes[DYCL_MAX_RANK], strides[DYCL_MAX_RANK];
    const dycl_value *v = get(r, value);
    if (rank < v->rank || rank > DYCL_MAX_RANK) return dycl_build_bail(r, DYCL_BAIL_shape);
    for (int i = rank - 1; i >= 0; i--) { /* ATen/ExpandUtils.cpp, inferExpandGeometry */
        int k = i - (rank - v->rank);
        int64_t size = k >= 0 ? v->sizes[k] : 1;
        int64_t stride = k >= 0 ? v->strides[k] : (i + 1 < rank ? sizes[i + 1] * strides[i + 1] : 1);
        int64_t target = wanted[i];
        if (target == -1) {
            if (k < 0) return dycl_build_bail(r, DYCL_BAIL_shape);
            target = size;
        }
        if (target < 0) return dycl_build_bail(r, DYCL_BAIL_shape);
        if (size != target) {
            if (size != 1) return dycl_build_bail(r, DYCL_BAIL_shape);
            stride = 0;
        }
        sizes[i] = target;
        strides[i] = v->rank ? stride : 0;
    }
    return dycl_build_view(r, value, 0, rank, sizes, strides, out);
}

/* ATen/TensorUtils.cpp, computeStride: dimensions that lie in one chunk of memory may be split and merged. */
int dycl_view_strides(const dycl_value *value, int rank, const int64_t *sizes, int64_t *out_strides) {
    int64_t numel = dycl_value_numel(value);
    if (numel == 0) {
        int same = rank == value->rank;
        for (int i = 0; same && i < rank; i++) same = sizes[i] == value->sizes[i];
        if (same) {
            memcpy(out_strides, value->strides, (size_t)rank * sizeof *out_strides);
            return 1;
        }
        for (int i = rank - 1; i >= 0; i--)
            out_strides[i] = i == rank - 1 ? 1 : (sizes[i + 1] > 1 ? sizes[i + 1] : 1) * out_strides[i + 1];
        return 1;
    }
    if (value->rank == 0) {
        for (int i = 0; i < rank; i++) out_strides[i] = 1;
        return 1;
    }
    int d = rank - 1;
    int64_t chunk_stride = value->strides[value->rank - 1], tensor_numel = 1, view_numel = 1;
    for (int t = value->rank - 1; t >= 0; t--) {
        tensor_numel *= value->sizes[t];
        if (t == 0 || (value->sizes[t - 1] != 1 && value->strides[t - 1] != tensor_numel * chunk_stride)) {
            while (d >= 0 && (view_numel < tensor_numel || sizes[d] == 1)) {
                out_strides[d] = view_numel * chunk_stride;
                view_numel *= sizes[d];
                d--;
            }
            if (view_numel != tensor_numel) return 0;
            if (t > 0) {
                chunk_stride = value->strides[t - 1];
                tensor_numel = view_numel = 1;
            }
        }
    }
    return d == -1;
}

dycl_status dycl_build_contiguous(dycl_recorder *r, uint32_t value, uint32_t *out) {
    int64_t format = 0;
    if (dycl_value_contiguous(get(r, value))) {
        *out = value;
        return DYCL_OK;
    }
    return dycl_build_node(r, DYCL_OP_contiguous, 1, &value, 1, &format, out);
}

dycl_status dycl_build_dense(dycl_recorder *r, uint32_t value, const int64_t *strides, uint32_t *out) {
    dycl_status status;
    dycl_value v = *get(r, value);
    int order[DYCL_MAX_RANK], back[DYCL_MAX_RANK], count = 0, same = 1, moved = 0;
    int64_t format = 0;
    *out = value;
    for (int i = 0; i < v.rank; i++) {
        if (v.strides[i] == strides[i]) continue;
        same = 0;
        moved |= v.sizes[i] != 1;
    }
    if (same) return DYCL_OK;
    if (!moved || dycl_value_numel(&v) == 0) return dycl_build_view(r, value, 0, v.rank, v.sizes, strides, out);
    for (int i = 0; i < v.rank; i++) { /* from the largest stride to the smallest; dimensions of size 1 stand last */
        int k = count;
        if (v.sizes[i] == 1) continue;
        for (; k > 0 && strides[order[k - 1]] < strides[i]; k--) order[k] = order[k - 1];
        order[k] = i;
        count++;
    }
    for (int i = 0; i < v.rank; i++)
        if (v.sizes[i] == 1) order[count++] = i;
    for (int i = 0; i < v.rank; i++) back[order[i]] = i;
    DYCL_TRY(dycl_build_permute(r, value, order, &value));
    DYCL_TRY(dycl_build_node(r, DYCL_OP_contiguous, 1, &value, 1, &format, &value));
    DYCL_TRY(dycl_build_permute(r, value, back, &value));
    for (int i = 0; i < v.rank; i++)
        if (v.sizes[i] != 1 && get(r, value)->strides[i] != strides[i])
            return dycl_build_bail(r, DYCL_BAIL_layout); /* they are not dense */
    return dycl_build_view(r, value, 0, v.rank, v.sizes, strides, out);
fail:
    return status;
}

dycl_status dycl_build_like(dycl_recorder *r, uint32_t value, uint32_t like, uint32_t *out) {
    dycl_value wanted = *get(r, like);
    if (wanted.canonical && get(r, value)->canonical) {
        *out = value;
        return DYCL_OK;
    }
    dycl_infer_preserve(get(r, like), &wanted);
    return dycl_build_dense(r, value, wanted.strides, out);
}

dycl_status dycl_build_iterated(dycl_recorder *r, uint32_t value, int count, const uint32_t *operands, uint32_t *out) {
    dycl_value wanted = *get(r, value);
    const dycl_value *in[4];
    for (int i = 0; i < count; i++) in[i] = get(r, operands[i]);
    dycl_infer_iterator(&wanted, count, in);
    return dycl_build_dense(r, value, wanted.strides, out);
}

dycl_status dycl_build_reshape(dycl_recorder *r, uint32_t value, int rank, const int64_t *wanted, int only_view,
                               uint32_t *out) {
    int64_t sizes[DYCL_MAX_RANK], strides[DYCL_MAX_RANK], known = 1, numel = dycl_value_numel(get(r, value));
    int unknown = -1;
    if (rank > DYCL_MAX_RANK) return dycl_build_bail(r, DYCL_BAIL_rank);
    for (int i = 0; i < rank; i++) {
        sizes[i] = wanted[i];
        if (sizes[i] == -1) {
            if (unknown >= 0) return dycl_build_bail(r, DYCL_BAIL_shape);
            unknown = i;
        } else if (sizes[i] < 0) {
            return dycl_build_bail(r, DYCL_BAIL_shape);
        } else {
            known *= sizes[i];
        }
    }
    if (unknown >= 0) {
        if (known == 0 || numel % known) return dycl_build_bail(r, DYCL_BAIL_shape);
        sizes[unknown] = numel / known;
    } else if (known != numel) {
        return dycl_build_bail(r, DYCL_BAIL_shape);
    }
    if (!dycl_view_strides(get(r, value), rank, sizes, strides)) {
        if (only_view) return dycl_build_bail(r, DYCL_BAIL_shape);
        dycl_status status = dycl_build_contiguous(r, value, &value);
        if (status != DYCL_OK) return status;
        if (!dycl_view_strides(get(r, value), rank, sizes, strides)) return dycl_build_bail(r, DYCL_BAIL_shape);
    }
    return dycl_build_view(r, value, 0, rank, sizes, strides, out);
}

/* torch.matmul: vectors gain a dimension that the result loses. */
dycl_status dycl_build_matmul(dycl_recorder *r, uint32_t a, uint32_t b, uint32_t *out) {
    dycl_status status;
    int a_rank = get(r, a)->rank, b_rank = get(r, b)->rank;
    if (a_rank == 0 || b_rank == 0) return dycl_build_bail(r, DYCL_BAIL_shape);
    if (a_rank == 1) DYCL_TRY(dycl_build_unsqueeze(r, a, 0, &a));
    if (b_rank == 1) DYCL_TRY(dycl_build_unsqueeze(r, b, 1, &b));
    uint32_t operands[2] = {a, b}, value;
    DYCL_TRY(dycl_build_node(r, DYCL_OP_matmul, 2, operands, 0, NULL, &value));
    if (a_rank > 1 && b_rank > 1) {
        *out = value;
        return DYCL_OK;
    }
    int64_t sizes[DYCL_MAX_RANK];
    int rank = 0;
    const dycl_value *v = get(r, value);
    for (int i = 0; i < v->rank; i++) {
        if ((i == v->rank - 2 && a_rank == 1) || (i == v->rank - 1 && b_rank == 1)) continue;
        sizes[rank++] = v->sizes[i];
    }
    return dycl_build_reshape(r, value, rank, sizes, 1, out);
fail:
    return status;
}
