/* Shape functions of operators that choose elements or put them in their places, and of the host's own. */
#include <string.h>

#include "ir/hosted.h"
#include "ir/infer.h"

static void like(const dycl_value *x, dycl_value *out) {
    out->rank = x->rank;
    memcpy(out->sizes, x->sizes, sizeof out->sizes);
    memcpy(out->strides, x->strides, sizeof out->strides);
    out->canonical = x->canonical;
}

/* torch pads the rows of its result to 16 bytes (ATen/native/GroupedMMUtils.h), and asks the same of the operands,
 * which the binding looks at. */
dycl_status dycl_infer_grouped(const dycl_draft *draft, dycl_value *out) {
    const dycl_graph *g = draft->graph;
    const uint32_t *operands = draft->operands;
    const dycl_value *x = &g->values[operands[0]], *w = &g->values[operands[1]], *ends = &g->values[operands[2]];
    if (x->dtype != DYCL_F32 || w->dtype != DYCL_F32 || ends->dtype != DYCL_I32 || x->rank != 2 || w->rank != 3 ||
        ends->rank != 1)
        return DYCL_BAIL;
    if (x->sizes[1] != w->sizes[1] || ends->sizes[0] != w->sizes[0] || w->sizes[2] % 4 || dycl_value_numel(x) == 0 ||
        dycl_value_numel(w) == 0)
        return DYCL_BAIL;
    out->dtype = DYCL_F32;
    out->rank = 2;
    out->sizes[0] = x->sizes[0];
    out->sizes[1] = w->sizes[2];
    dycl_infer_contiguous(out);
    return DYCL_OK;
}

/* Whether the view lies inside the memory of x and no two of its elements are one. */
static int is_part(const dycl_value *x, int64_t offset, int rank, const int64_t *sizes, const int64_t *strides) {
    dycl_value view = {.rank = (uint8_t)rank};
    int64_t first = offset - x->offset;
    memcpy(view.sizes, sizes, (size_t)rank * sizeof *sizes);
    memcpy(view.strides, strides, (size_t)rank * sizeof *strides);
    if (dycl_value_numel(&view) == 0) return 0;
    int64_t reached = 0; /* by smaller strides */
    for (int done = 0, used = 0; done < rank; done++) {
        int least = -1;
        for (int i = 0; i < rank; i++)
            if (!(used >> i & 1) && (least < 0 || strides[i] < strides[least])) least = i;
        used |= 1 << least;
        if (sizes[least] < 2) continue;
        if (strides[least] <= reached) return 0;
        reached += (sizes[least] - 1) * strides[least];
    }
    return first >= 0 && first + dycl_value_extent(&view) <= dycl_value_extent(x);
}

dycl_status dycl_infer_scatter(const dycl_draft *draft, dycl_value *out) {
    const dycl_graph *g = draft->graph;
    dycl_op op = draft->op;
    const uint32_t *operands = draft->operands;
    int attr_count = draft->attr_count;
    const int64_t *attrs = draft->attrs;
    const dycl_value *x = &g->values[operands[0]], *source = &g->values[operands[op == DYCL_OP_index_put ? 2 : 1]];
    int64_t sizes[2 * DYCL_MAX_RANK];
    int rank = 0;
    if (source->dtype != x->dtype || !dycl_value_dense(x) || dycl_value_numel(x) == 0) return DYCL_BAIL;
    if (op == DYCL_OP_index_put) {
        const dycl_value *index = &g->values[operands[1]];
        if (x->rank < 1 || !x->canonical || (index->dtype != DYCL_I64 && index->dtype != DYCL_I32) ||
            dycl_value_numel(index) == 0)
            return DYCL_BAIL;
        for (int i = 0; i < index->rank; i++) sizes[rank++] = index->sizes[i];
        for (int i = 1; i < x->rank; i++) sizes[rank++] = x->sizes[i];
    } else {
        rank = (attr_count - 1) / 2;
        if (attr_count % 2 == 0 || rank > DYCL_MAX_RANK ||
            !is_part(x, x->offset + attrs[0], rank, attrs + 1, attrs + 1 + rank))
            return DYCL_BAIL;
        memcpy(sizes, attrs + 1, (size_t)rank * sizeof *sizes);
    }
    if (source->rank != rank || memcmp(source->sizes, sizes, (size_t)rank * sizeof *sizes)) return DYCL_BAIL;
    out->dtype = x->dtype;
    like(x, out);
    return DYCL_OK;
}

dycl_status dycl_infer_host(const dycl_draft *draft, dycl_value *out) {
    const dycl_graph *g = draft->graph;
    dycl_op op = draft->op;
    const uint32_t *operands = draft->operands;
    const int64_t *attrs = draft->attrs;
    const dycl_value *x = &g->values[operands[0]];
    if (dycl_value_numel(x) == 0 || x->dtype == DYCL_BOOL) return DYCL_BAIL;
    if (op == DYCL_OP_histc) {
        if (x->dtype != DYCL_F32 || attrs[0] < 1 || !(dycl_attr_f64(attrs[1]) < dycl_attr_f64(attrs[2])))
            return DYCL_BAIL;
        out->dtype = DYCL_F32;
        out->rank = 1;
        out->sizes[0] = attrs[0];
    } else {
        if (attrs[0] < 0 || attrs[0] >= x->rank) return DYCL_BAIL;
        if (op == DYCL_OP_argtopk && (attrs[1] < 1 || attrs[1] > x->sizes[attrs[0]])) return DYCL_BAIL;
        out->dtype = DYCL_I64;
        out->rank = x->rank;
        memcpy(out->sizes, x->sizes, sizeof out->sizes);
        if (op == DYCL_OP_argtopk) out->sizes[attrs[0]] = attrs[1];
    }
    dycl_infer_contiguous(out);
    return DYCL_OK;
}

/* The host's operators look as was learned from the host. Nothing empty: the host's tensors would have no memory. */
dycl_status dycl_infer_hosted(const dycl_draft *draft, dycl_value *out) {
    const dycl_graph *g = draft->graph;
    dycl_op op = draft->op;
    int count = draft->operand_count;
    const uint32_t *operands = draft->operands;
    int attr_count = draft->attr_count;
    const int64_t *attrs = draft->attrs;
    dycl_hosted_form form;
    if (!dycl_hosted_read(op, count, attr_count, attrs, &form, NULL)) return DYCL_BAIL;
    for (int i = 0; i < count; i++)
        if (operands[i] != DYCL_NONE && dycl_value_numel(&g->values[operands[i]]) == 0) return DYCL_BAIL;
    out->dtype = (uint8_t)form.dtype;
    out->rank = (uint8_t)form.rank;
    memcpy(out->sizes, form.sizes, (size_t)form.rank * sizeof *form.sizes);
    memcpy(out->strides, form.strides, (size_t)form.rank * sizeof *form.strides);
    out->canonical = (uint8_t)dycl_strides_canonical(out);
    return dycl_value_numel(out) > 0 && dycl_value_dense(out) ? DYCL_OK : DYCL_BAIL;
}
