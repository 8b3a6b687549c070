#include "ir/added.h"
#include "ir/hosted.h"

#include <string.h>

/* Another dimension of the walk; its place, or -1. */
static int walk(dycl_added *a, int64_t size) {
    if (a->rank == DYCL_MAX_RANK) return -1;
    const int i = a->rank++;
    a->sizes[i] = size;
    a->to[i] = a->from[i] = -1;
    for (int k = 0; k < DYCL_MAX_RANK; k++) a->index[k].at[i] = -1;
    return i;
}

/* self, index, source: an index of the source's rank */
static int scattered(dycl_added *a, const dycl_value *const *v, int64_t dim) {
    const dycl_value *self = v[0], *index = v[1], *source = v[2];
    const int rank = index->rank;
    if (rank == 0 || source->rank != rank || self->rank != (self->kind == DYCL_VALUE_SCALAR ? 0 : rank)) return 0;
    if (dim < 0) dim += rank;
    if (dim < 0 || dim >= rank) return 0;
    for (int i = 0; i < rank; i++) {
        if (walk(a, index->sizes[i]) < 0 || index->sizes[i] > source->sizes[i]) return 0;
        a->to[i] = (int8_t)(i == dim ? -1 : i);
        a->from[i] = a->index[0].at[i] = (int8_t)i;
    }
    a->base = 0;
    a->source = 2;
    a->count = 1;
    a->index[0].operand = 1;
    a->index[0].dim = (int)dim;
    return 1;
}

/* gradient[index..., columns], index */
static int of_embedding(dycl_added *a, const dycl_value *const *v) {
    const dycl_value *gradient = v[0], *index = v[1];
    const int rank = index->rank;
    if (gradient->rank != rank + 1) return 0;
    for (int i = 0; i <= rank; i++) {
        if (walk(a, gradient->sizes[i]) < 0 || (i < rank && index->sizes[i] != gradient->sizes[i])) return 0;
        a->from[i] = (int8_t)i;
        if (i < rank) a->index[0].at[i] = (int8_t)i;
    }
    a->to[rank] = 1;
    a->base = -1;
    a->source = 0;
    a->count = 1;
    a->index[0].operand = 1;
    a->index[0].dim = 0;
    return 1;
}

/* The shape to which the indices broadcast, aligned at its end; its rank, or -1. */
static int shape_of(const dycl_added *a, const dycl_value *const *v, int64_t *sizes) {
    int rank = 0;
    for (int k = 0; k < a->count; k++) {
        const dycl_value *index = v[a->index[k].operand];
        if (index->rank > rank) rank = index->rank;
    }
    for (int i = 0; i < rank; i++) {
        sizes[i] = 1;
        for (int k = 0; k < a->count; k++) {
            const dycl_value *index = v[a->index[k].operand];
            const int own = i - (rank - index->rank);
            if (own < 0 || index->sizes[own] == 1) continue;
            if (sizes[i] != 1 && sizes[i] != index->sizes[own]) return -1;
            sizes[i] = index->sizes[own];
        }
    }
    return rank;
}

/* self, indices (of the first dimensions, some absent), values that broadcast to what the indices pick. Indices that
 * stand side by side give their dimensions where they stand, others in front. */
static int put(dycl_added *a, const dycl_value *const *v, int operand_count, const dycl_value *out) {
    int64_t sizes[DYCL_MAX_RANK];
    int named[DYCL_MAX_RANK] = {0}, first = -1, last = -1;
    const int given = operand_count - 2;
    if (given > out->rank) return 0;
    for (int i = 0; i < given; i++) {
        if (!v[1 + i]) continue;
        named[i] = 1;
        a->index[a->count].operand = 1 + i;
        a->index[a->count++].dim = i;
        if (first < 0) first = i;
        last = i;
    }
    if (a->count == 0) return 0;
    const int rank = shape_of(a, v, sizes), start = last - first + 1 == a->count ? first : 0;
    if (rank < 0) return 0;
    for (int d = 0; d <= out->rank; d++) {
        for (int i = 0; i < rank && d == start; i++) {
            const int at = walk(a, sizes[i]);
            if (at < 0) return 0;
            for (int k = 0; k < a->count; k++) {
                const dycl_value *index = v[a->index[k].operand];
                const int own = i - (rank - index->rank);
                if (own >= 0 && index->sizes[own] != 1) a->index[k].at[at] = (int8_t)own;
            }
        }
        if (d == out->rank || named[d]) continue;
        const int at = walk(a, out->sizes[d]);
        if (at < 0) return 0;
        a->to[at] = (int8_t)d;
    }
    const dycl_value *source = v[operand_count - 1];
    if (source->rank > a->rank) return 0;
    for (int i = a->rank - source->rank, own = 0; i < a->rank; i++, own++) {
        if (source->sizes[own] != 1 && source->sizes[own] != a->sizes[i]) return 0;
        if (source->sizes[own] != 1) a->from[i] = (int8_t)own;
    }
    a->base = 0;
    a->source = operand_count - 1;
    a->wraps = 1;
    return 1;
}

/* What is added to has the result's sizes, or is one number. */
static int is_base(const dycl_value *base, const dycl_value *out) {
    if (base->dtype != out->dtype) return 0;
    if (base->kind == DYCL_VALUE_SCALAR) return 1;
    for (int i = 0; i < out->rank; i++)
        if (base->rank != out->rank || base->sizes[i] != out->sizes[i]) return 0;
    return 1;
}

int dycl_added_of(const dycl_graph *g, const dycl_node *node, dycl_added *a) {
    const dycl_value *v[DYCL_MAX_OPERANDS], *out = &g->values[node->out];
    const uint32_t *operands = dycl_node_operands(g, node);
    dycl_hosted_form form;
    dycl_hosted_argument given[DYCL_HOSTED_PARAMETERS];
    int takes = 0;
    if (node->op != DYCL_OP_aten_scatter_add && node->op != DYCL_OP_aten_index_put &&
        node->op != DYCL_OP_aten_index_add && node->op != DYCL_OP_aten_embedding_dense_backward)
        return 0;
    if (out->dtype == DYCL_BOOL || dycl_dtype_is_half((dycl_dtype)out->dtype) || dycl_value_numel(out) == 0 ||
        !dycl_hosted_read((dycl_op)node->op, node->operand_count, node->attr_count, dycl_node_attrs(g, node), &form,
                          given))
        return 0; /* torch adds halves in its own way, and of bools it makes one */
    for (int i = 0; i < node->operand_count; i++) v[i] = operands[i] == DYCL_NONE ? NULL : &g->values[operands[i]];
    memset(a, 0, sizeof *a);
    a->skip = INT64_MIN;
    if (node->op == DYCL_OP_aten_scatter_add) {
        takes = scattered(a, v, *given[1].words);
    } else if (node->op == DYCL_OP_aten_embedding_dense_backward) {
        takes = *given[4].words == 0 && of_embedding(a, v); /* torch divides by counts */
        if (*given[3].words >= 0) a->skip = *given[3].words;
    } else {
        takes = *given[3].words != 0 && put(a, v, node->operand_count, out);
    }
    if (!takes || v[a->source]->dtype != out->dtype || (a->base >= 0 && !is_base(v[a->base], out))) return 0;
    for (int k = 0; k < a->count; k++)
        if (v[a->index[k].operand]->dtype != DYCL_I64 || a->index[k].dim >= out->rank) return 0;
    for (int i = 0; i < a->rank; i++)
        if (a->sizes[i] < 1 || (a->to[i] >= 0 && a->sizes[i] > out->sizes[a->to[i]])) return 0;
    return 1;
}
