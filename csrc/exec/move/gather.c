/* Elements that are picked by index: embedding, index_select, gather. */
#include <string.h>

#include "exec/builder/builder.h"

static dycl_status out_of_range(long long index, int64_t size) {
    dycl_error_set("index %lld is out of range for a dimension of size %lld", index, (long long)size);
    return DYCL_BAIL;
}

/* ---- gather: one element a time along a dimension */

typedef struct {
    dycl_ref to, from, index;
    dycl_gather_desc desc;
} gather_args;

static dycl_status gather_run(const dycl_step *step, dycl_plan *plan) {
    const gather_args *a = step->args;
    const int64_t *bad =
        dycl_kern_gather(&a->desc, dycl_at(plan, a->to), dycl_at(plan, a->from), dycl_at(plan, a->index));
    return bad ? out_of_range(*bad, a->desc.limit) : DYCL_OK;
}

/* Dimensions of one element go, neighbours that both tensors walk evenly become one. */
static void merge(dycl_gather_desc *d) {
    int last = -1;
    for (int i = 0; i < d->rank; i++) {
        if (d->sizes[i] == 1) continue;
        int even = last >= 0 && d->from_strides[last] == d->from_strides[i] * d->sizes[i] &&
                   d->index_strides[last] == d->index_strides[i] * d->sizes[i];
        int at = even ? last : ++last;
        d->sizes[at] = even ? d->sizes[at] * d->sizes[i] : d->sizes[i];
        d->from_strides[at] = d->from_strides[i];
        d->index_strides[at] = d->index_strides[i];
    }
    if (last < 0) d->sizes[0] = 1, d->from_strides[0] = d->index_strides[0] = 0;
    d->rank = last < 0 ? 1 : last + 1;
}

/* desc: rank, sizes and strides of all dimensions; the one of the index is not merged: nothing walks it evenly. */
static dycl_status build_gather(dycl_builder *b, const dycl_tensor *from, int dim, const dycl_tensor *index,
                                const dycl_tensor *to, const int64_t *index_strides) {
    gather_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    a->to = to->ref;
    a->from = from->ref;
    a->index = index->ref;
    dycl_gather_desc *d = &a->desc;
    d->rank = to->rank;
    d->element = dycl_dtype_size(from->dtype);
    d->limit = from->rank ? from->sizes[dim] : 1;
    d->stride = from->rank ? from->strides[dim] : 0;
    memcpy(d->sizes, to->sizes, sizeof d->sizes);
    memcpy(d->from_strides, from->strides, sizeof d->from_strides);
    memcpy(d->index_strides, index_strides, sizeof d->index_strides);
    if (from->rank) d->from_strides[dim] = 0;
    merge(d);
    dycl_make_read(b, from);
    dycl_make_read(b, index);
    dycl_make_write(b, to);
    return dycl_make_step(b, gather_run, a, "gather", 20 + 2.0 * (double)dycl_tensor_numel(to));
}

static dycl_status build_gather_elements(dycl_builder *b, const dycl_node *node) {
    const uint32_t *operands = dycl_node_operands(&b->program->graph, node);
    dycl_tensor from, index, to;
    dycl_status status;
    dycl_make_tensor(b, operands[0], &from);
    dycl_make_tensor(b, operands[1], &index);
    DYCL_TRY(dycl_make_target(b, node->out, &to));
    int dim = (int)dycl_node_attrs(&b->program->graph, node)[0];
    DYCL_TRY(build_gather(b, &from, dim, &index, &to, index.strides));
    return dycl_make_finish(b, node->out, &to);
fail:
    return status;
}

/* ---- embedding and index_select: whole rows */

typedef struct {
    dycl_ref to, table, index, ends[2];
    dycl_dtype index_dtype;
    int is_line;                                              /* the index counts evenly: ends, its start and step */
    int64_t rows, outer, outer_stride, row_stride, to_stride; /* bytes */
    size_t row_bytes, count;
    size_t element;
} take_args;

static dycl_status take_run(const dycl_step *step, dycl_plan *plan) {
    const take_args *a = step->args;
    const void *index = dycl_at(plan, a->index);
    for (int64_t o = 0; o < a->outer; o++) {
        int64_t bad = dycl_kern_take_rows((char *)dycl_at(plan, a->to) + o * a->to_stride,
                                          (char *)dycl_at(plan, a->table) + o * a->outer_stride, a->rows, a->row_bytes,
                                          a->row_stride, index, a->index_dtype, a->count);
        if (bad >= 0)
            return out_of_range(
                a->index_dtype == DYCL_I64 ? ((const int64_t *)index)[bad] : ((const int32_t *)index)[bad], a->rows);
    }
    return DYCL_OK;
}

/* Positions that count evenly are a view, which torch has not where they count down. */
static dycl_status line_run(const dycl_step *step, dycl_plan *plan) {
    const take_args *a = step->args;
    const int64_t start = ((const dycl_scalar *)dycl_at(plan, a->ends[0]))->i64,
                  by = ((const dycl_scalar *)dycl_at(plan, a->ends[1]))->i64, count = (int64_t)a->count;
    int64_t last, element = (int64_t)a->element;
    if (start < 0 || start >= a->rows || __builtin_mul_overflow(by, count - 1, &last) ||
        __builtin_add_overflow(last, start, &last) || last < 0 || last >= a->rows)
        return take_run(step, plan); /* finds the index for the message */
    const int64_t row = (int64_t)a->row_bytes / element, sizes[3] = {a->outer, count, row},
                  to[3] = {count * row, row, 1},
                  from[3] = {a->outer_stride / element, count > 1 ? by * (a->row_stride / element) : 0, 1};
    dycl_kern_copy(dycl_at(plan, a->to), to, (const char *)dycl_at(plan, a->table) + start * a->row_stride, from, sizes,
                   3, a->element);
    return DYCL_OK;
}

/* The table's rows and what is around them; 0: they are not contiguous, or not at one stride. */
static int find_rows(const dycl_tensor *table, int dim, take_args *a) {
    int64_t row = 1, outer = 1, outer_stride = 0, element = (int64_t)dycl_dtype_size(table->dtype);
    int fits = 1;
    for (int d = table->rank - 1; d > dim; d--) {
        if (table->sizes[d] == 1) continue;
        fits &= table->strides[d] == row;
        row *= table->sizes[d];
    }
    for (int d = dim - 1; d >= 0; d--) {
        if (table->sizes[d] == 1) continue;
        if (outer == 1)
            outer_stride = table->strides[d];
        else
            fits &= table->strides[d] == outer_stride * outer;
        outer *= table->sizes[d];
    }
    a->element = (size_t)element;
    a->rows = table->rank ? table->sizes[dim] : 1;
    a->outer = outer;
    a->outer_stride = outer_stride * element;
    a->row_stride = table->rank ? table->strides[dim] * element : element;
    a->row_bytes = (size_t)(row * element);
    return fits;
}

static dycl_status build_take(dycl_builder *b, const dycl_node *node, const dycl_tensor *table,
                              const dycl_tensor *index, int64_t count, take_args *a) {
    const dycl_graph *g = &b->program->graph;
    const uint32_t *operands = dycl_node_operands(g, node);
    dycl_tensor to;
    dycl_status status;
    DYCL_TRY(dycl_make_target(b, node->out, &to));
    a->to = to.ref;
    a->table = table->ref;
    a->index = index->ref;
    a->index_dtype = index->dtype;
    a->count = (size_t)count;
    a->to_stride = (int64_t)(a->count * a->row_bytes);
    a->is_line = index->dtype == DYCL_I64 && dycl_value_is_made_by(g, operands[1], DYCL_OP_iota);
    for (int i = 0; i < 2 && a->is_line; i++) {
        a->ends[i] = dycl_make_ref(b, dycl_node_operands(g, &g->nodes[g->values[operands[1]].source])[i]);
        dycl_make_read_at(b, a->ends[i], sizeof(int64_t));
    }
    dycl_make_read(b, table);
    dycl_make_read(b, index);
    dycl_make_write(b, &to);
    DYCL_TRY(dycl_make_step(b, a->is_line ? line_run : take_run, a, a->is_line ? "copy" : "rows",
                            20 + 0.1 * (double)(a->outer * a->to_stride)));
    return dycl_make_finish(b, node->out, &to);
fail:
    return status;
}

/* Single elements of each row: the index is expanded to all rows. */
static dycl_status build_take_elements(dycl_builder *b, const dycl_node *node, const dycl_tensor *table, int dim) {
    dycl_tensor index, to;
    dycl_status status;
    int64_t strides[DYCL_MAX_RANK] = {0};
    DYCL_TRY(dycl_make_contiguous(b, dycl_node_operands(&b->program->graph, node)[1], &index));
    DYCL_TRY(dycl_make_target(b, node->out, &to));
    strides[dim] = 1;
    DYCL_TRY(build_gather(b, table, dim, &index, &to, strides));
    return dycl_make_finish(b, node->out, &to);
fail:
    return status;
}

static int picks_elements(const dycl_builder *b, const dycl_node *node, const dycl_tensor *table, int dim) {
    const uint32_t index = dycl_node_operands(&b->program->graph, node)[1];
    const dycl_value *v = dycl_make_value(b, index);
    if (node->op != DYCL_OP_index_select || v->dtype != DYCL_I64 || v->rank != 1 || table->rank == 0) return 0;
    for (int d = dim + 1; d < table->rank; d++)
        if (table->sizes[d] != 1) return 0;
    return !dycl_value_is_made_by(&b->program->graph, index, DYCL_OP_iota);
}

/* An index of a gather that was expanded to all elements of rows. */
static int names_rows(const dycl_tensor *table, int dim, const dycl_tensor *index) {
    if (table->rank == 0 || (index->sizes[dim] != 1 && index->strides[dim] != 1)) return 0;
    int behind = 0;
    for (int d = 0; d < table->rank; d++) {
        if (d == dim) continue;
        if (index->sizes[d] != table->sizes[d] || (index->sizes[d] != 1 && index->strides[d] != 0)) return 0;
        behind |= d > dim && index->sizes[d] != 1;
    }
    return behind;
}

dycl_status dycl_steps_gather(dycl_builder *b, const dycl_block *block) {
    const dycl_node *node = &b->program->graph.nodes[block->first];
    if (dycl_value_numel(dycl_make_value(b, node->out)) == 0) {
        /* an empty result reads nothing, so its index cannot be out of range, except a row of no elements, which torch
         * lets pass too */
        return DYCL_OK;
    }
    const uint32_t *operands = dycl_node_operands(&b->program->graph, node);
    int dim = node->op == DYCL_OP_embedding ? 0 : (int)dycl_node_attrs(&b->program->graph, node)[0];
    dycl_tensor table, index;
    dycl_status status;
    dycl_make_tensor(b, operands[0], &table);
    dycl_make_tensor(b, operands[1], &index);
    take_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    const int fits = find_rows(&table, dim, a);
    if (node->op == DYCL_OP_gather && !(fits && names_rows(&table, dim, &index))) return build_gather_elements(b, node);
    if (node->op == DYCL_OP_gather) return build_take(b, node, &table, &index, index.sizes[dim], a);
    if (picks_elements(b, node, &table, dim)) return build_take_elements(b, node, &table, dim);
    if (!fits) {
        DYCL_TRY(dycl_make_contiguous(b, operands[0], &table));
        find_rows(&table, dim, a);
    }
    DYCL_TRY(dycl_make_contiguous(b, operands[1], &index));
    return build_take(b, node, &table, &index, dycl_tensor_numel(&index), a);
fail:
    return status;
}
