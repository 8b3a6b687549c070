#include <string.h>

#include "exec/builder/builder.h"

/* Copies of a tensor where some elements are replaced. */

typedef struct {
    dycl_ref to, index, source;
    dycl_dtype index_dtype;
    int64_t count, rows, row_stride; /* row_stride: bytes */
    size_t row_bytes;
} put_args;

static dycl_status put_run(const dycl_step *step, dycl_plan *plan) {
    const put_args *a = step->args;
    const void *index = dycl_at(plan, a->index);
    const char *source = dycl_at(plan, a->source);
    char *to = dycl_at(plan, a->to);
    for (int64_t i = 0; i < a->count; i++, source += a->row_bytes) {
        int64_t row = a->index_dtype == DYCL_I64 ? ((const int64_t *)index)[i] : ((const int32_t *)index)[i];
        if (row < 0 || row >= a->rows) {
            dycl_error_set("index %lld is out of range for a dimension of size %lld", (long long)row,
                           (long long)a->rows);
            return DYCL_BAIL;
        }
        memcpy(to + row * a->row_stride, source, a->row_bytes);
    }
    return DYCL_OK;
}

/* Rows of `to`, which is contiguous. */
static dycl_status put_rows(dycl_builder *b, const dycl_tensor *to, uint32_t index_value, uint32_t source_value) {
    dycl_tensor index, source;
    dycl_status status;
    put_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    DYCL_TRY(dycl_make_contiguous(b, index_value, &index));
    DYCL_TRY(dycl_make_contiguous(b, source_value, &source));
    a->to = to->ref;
    a->index = index.ref;
    a->source = source.ref;
    a->index_dtype = index.dtype;
    a->count = dycl_tensor_numel(&index);
    a->rows = to->sizes[0];
    a->row_bytes = (size_t)(dycl_tensor_numel(to) / to->sizes[0]) * dycl_dtype_size(to->dtype);
    a->row_stride = (int64_t)a->row_bytes;
    dycl_make_read(b, &index);
    dycl_make_read(b, &source);
    dycl_make_write(b, to);
    return dycl_make_step(b, put_run, a, "put rows", 20 + 0.1 * (double)a->count * (double)a->row_bytes);
fail:
    return status;
}

/* ---- The copy in which elements are replaced: none where nobody needs the original any more */

typedef struct {
    dycl_ref from, to;
    int rank;
    int64_t sizes[DYCL_MAX_RANK], strides[DYCL_MAX_RANK];
    size_t element;
} begin_args;

static dycl_status begin_run(const dycl_step *step, dycl_plan *plan) {
    const begin_args *a = step->args;
    const void *from = dycl_at(plan, a->from);
    void *to = dycl_at(plan, a->to);
    if (from != to) dycl_kern_copy(to, a->strides, from, a->strides, a->sizes, a->rank, a->element);
    return DYCL_OK;
}

dycl_status dycl_make_begin(dycl_builder *b, const dycl_tensor *x, const dycl_tensor *to) {
    begin_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    a->from = x->ref;
    a->to = to->ref;
    a->rank = x->rank;
    a->element = dycl_dtype_size(x->dtype);
    memcpy(a->sizes, x->sizes, sizeof a->sizes);
    memcpy(a->strides, x->strides, sizeof a->strides);
    dycl_slot *old = &b->slots[x->ref.slot], *made = &b->slots[to->ref.slot];
    if (!old->fixed && !made->fixed && !x->ref.offset && !to->ref.offset && old->bytes == made->bytes)
        made->share = x->ref.slot; /* confirmed when all steps are known */
    dycl_make_read(b, x);
    dycl_make_write(b, to);
    return dycl_make_step(b, begin_run, a, "copy", 20 + 0.1 * (double)dycl_tensor_numel(x) * (double)a->element);
}

dycl_status dycl_steps_scatter(dycl_builder *b, const dycl_block *block) {
    const dycl_node *node = &b->program->graph.nodes[block->first];
    const uint32_t *operands = dycl_node_operands(&b->program->graph, node);
    const int64_t *attrs = dycl_node_attrs(&b->program->graph, node);
    dycl_tensor x, to, source;
    dycl_status status;
    dycl_make_tensor(b, operands[0], &x);
    dycl_make_tensor(b, node->out, &to);
    DYCL_TRY(dycl_make_begin(b, &x, &to));
    if (node->op == DYCL_OP_index_put) return put_rows(b, &to, operands[1], operands[2]);
    dycl_make_tensor(b, operands[1], &source);
    to.rank = (node->attr_count - 1) / 2;
    to.ref.offset += attrs[0] * (int64_t)dycl_dtype_size(to.dtype);
    memcpy(to.sizes, attrs + 1, (size_t)to.rank * sizeof *attrs);
    memcpy(to.strides, attrs + 1 + to.rank, (size_t)to.rank * sizeof *attrs);
    return dycl_make_copy(b, &source, &to);
fail:
    return status;
}
