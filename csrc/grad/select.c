/* Results of the host's operators that are elements of the operand, by their positions; and elements that were written
 * or added to positions. */
#include "grad/hosted.h"

uint32_t dycl_chain_sibling(dycl_chain *c, int which) {
    const dycl_graph *graph = c->b->job->graph;
    uint32_t first = (uint32_t)(c->node - graph->nodes);
    for (uint32_t n = first + 1; n < graph->node_count && n <= first + 2; n++) {
        const dycl_node *node = &graph->nodes[n];
        const int64_t *attrs = dycl_node_attrs(graph, node);
        if (node->op != c->node->op || dycl_node_operands(graph, node)[0] != c->operands[0] || attrs[0] != which)
            continue;
        int ahead = 3 + 2 * (int)attrs[2], rest = node->attr_count - ahead;
        if (rest == c->node->attr_count - 3 - 2 * (int)c->attrs[2] &&
            memcmp(attrs + ahead, dycl_words_given(c), (size_t)rest * sizeof *attrs) == 0)
            return dycl_chain_value(c, node->out);
    }
    dycl_chain_fail(c);
    return 0;
}

/* One of each row: the others get nothing. */
static void selected(dycl_chain *c, int64_t dim) {
    dycl_value x = *dycl_chain_operand(c, 0);
    if (x.rank == 0 || c->attrs[0] != 0) {
        dycl_chain_fail(c);
        return;
    }
    if (dim < 0) dim += x.rank;
    int64_t sizes[DYCL_MAX_RANK];
    memcpy(sizes, x.sizes, sizeof sizes);
    sizes[dim] = 1;
    uint32_t at = dycl_chain_reshape(c, dycl_chain_sibling(c, 1), x.rank, sizes),
             g = dycl_chain_reshape(c, c->gradient, x.rank, sizes);
    uint32_t own = dycl_chain_2(c, DYCL_OP_eq, dycl_chain_positions(c, x.rank, (int)dim, x.sizes[dim]), at);
    dycl_chain_give(c, 0, dycl_chain_contiguous(c, dycl_chain_keep(c, own, g)));
}

/* median, nanmedian, mode: dimension, keepdim; kthvalue has k in front of them */
void dycl_grad_of_dim(dycl_chain *c) { selected(c, dycl_words_given(c)[0]); }
void dycl_grad_kthvalue(dycl_chain *c) { selected(c, dycl_words_given(c)[1]); }

/* cummax, cummin: an element may have been the largest several times */
void dycl_grad_cummax(dycl_chain *c) {
    dycl_value x = *dycl_chain_operand(c, 0);
    int64_t dim = dycl_words_given(c)[0];
    if (x.rank == 0 || c->attrs[0] != 0) {
        dycl_chain_fail(c);
        return;
    }
    dycl_words a = {{dim < 0 ? dim + x.rank : dim}, 1};
    dycl_chain_take(c, 0); /* torch saves it */
    dycl_infer_contiguous(&x);
    uint32_t operands[3] = {dycl_chain_zeros(c, &x), dycl_chain_sibling(c, 1), c->gradient};
    dycl_chain_give(c, 0, dycl_chain_back(c, DYCL_OP_aten_scatter_add, 0, &x, 3, operands, &a));
}

/* Of all elements: those that are equal to it share the gradient, as all NaN do. */
void dycl_grad_evenly(dycl_chain *c) {
    uint32_t x = dycl_chain_take(c, 0), y = dycl_chain_result(c);
    uint32_t nan =
        dycl_chain_2(c, DYCL_OP_logical_and, dycl_chain_1(c, DYCL_OP_isnan, x), dycl_chain_1(c, DYCL_OP_isnan, y));
    uint32_t own = dycl_chain_2(c, DYCL_OP_logical_or, nan, dycl_chain_2(c, DYCL_OP_eq, x, y));
    const dycl_value *v = dycl_chain_operand(c, 0);
    uint32_t number = dycl_chain_cast(c, own, (dycl_dtype)v->dtype),
             count = dycl_chain_reduce(c, DYCL_OP_sum, number, (UINT32_C(1) << v->rank) - 1);
    uint32_t share = dycl_chain_2(c, DYCL_OP_div, c->gradient, count);
    dycl_chain_give(c, 0, dycl_chain_contiguous(c, dycl_chain_keep(c, own, share)));
}

/* ---- self, dim, index, source */

static int64_t dim_of(dycl_chain *c) {
    if (dycl_chain_operand(c, 0)->rank == 0) dycl_chain_fail(c);
    return dycl_words_dim(c, 0);
}

/* As torch's clone of the gradient lies. */
static dycl_value cloned(dycl_chain *c) {
    const dycl_value *g = dycl_chain_meta(c, c->gradient);
    dycl_value form = *g;
    dycl_infer_preserve(g, &form);
    return form;
}

static dycl_value contiguous(dycl_chain *c, int nth) {
    dycl_value form = *dycl_chain_operand(c, nth);
    dycl_infer_contiguous(&form);
    return form;
}

/* An index of rows that was expanded to all elements of them. */
static int names_rows(const dycl_value *index, const dycl_value *whole, int64_t dim) {
    for (int i = 0; i < index->rank; i++)
        if (i != dim && (index->sizes[i] != whole->sizes[i] || (index->sizes[i] != 1 && index->strides[i] != 0)))
            return 0;
    return 1;
}

/* What a source of other sizes than the index has beyond it is not read: torch pads with zeros. */
static uint32_t read_back(dycl_chain *c, uint32_t from, uint32_t index, int64_t dim) {
    const dycl_value *at = dycl_chain_operand(c, 1);
    if (!dycl_chain_same_sizes(at, dycl_chain_operand(c, 2))) dycl_chain_fail(c);
    if (c->status == DYCL_OK && names_rows(at, dycl_chain_meta(c, from), dim)) {
        const int64_t count = at->sizes[dim], stride = at->strides[dim];
        c->status = dycl_build_view(&c->b->recorder, index, 0, 1, &count, &stride, &index);
        return dycl_chain_node(c, DYCL_OP_index_select, 2, (uint32_t[]){from, index}, 1, &dim);
    }
    return dycl_chain_node(c, DYCL_OP_gather, 2, (uint32_t[]){from, index}, 1, &dim);
}

/* Zeros where the index says: what was there is replaced. */
static uint32_t replaced(dycl_chain *c, uint32_t gradient, uint32_t index, int64_t dim) {
    dycl_value x = contiguous(c, 0), at = *dycl_chain_operand(c, 1);
    at.dtype = x.dtype;
    uint32_t operands[3] = {gradient, index, dycl_chain_zeros(c, &at)};
    return dycl_chain_hosted_laid(c, DYCL_OP_aten_scatter_src, 0, &x, 3, operands, 1, &dim);
}

void dycl_grad_scatter_add(dycl_chain *c) {
    int64_t dim = dim_of(c);
    dycl_chain_give(c, 0, c->gradient);
    if (dycl_chain_wants(c, 2)) dycl_chain_give(c, 2, read_back(c, c->gradient, dycl_chain_take(c, 1), dim));
}

void dycl_grad_scatter_src(dycl_chain *c) {
    int64_t dim = dim_of(c);
    uint32_t index = dycl_chain_take(c, 1);
    if (dycl_chain_wants(c, 0)) dycl_chain_give(c, 0, replaced(c, c->gradient, index, dim));
    if (dycl_chain_wants(c, 2)) dycl_chain_give(c, 2, read_back(c, c->gradient, index, dim));
}

/* The words of its attribute, in hosted.def's order. */
enum { SUM, PROD, MEAN, AMAX, AMIN };

static uint32_t counted(dycl_chain *c, uint32_t from, uint32_t index, uint32_t source, int64_t dim) {
    dycl_value x = contiguous(c, 0);
    return dycl_chain_hosted_laid(c, DYCL_OP_aten_scatter_add, 0, &x, 3, (uint32_t[]){from, index, source}, 1, &dim);
}

static uint32_t equals(dycl_chain *c, uint32_t a, uint32_t b) { /* as numbers */
    return dycl_chain_cast(c, dycl_chain_2(c, DYCL_OP_eq, a, b), (dycl_dtype)dycl_chain_operand(c, 0)->dtype);
}

/* How many numbers a mean is of; of none, one. */
static uint32_t mean_of(dycl_chain *c, uint32_t index, int64_t dim, int with_self) {
    dycl_value x = contiguous(c, 0), source = *dycl_chain_operand(c, 2);
    uint32_t one = dycl_chain_constant(c, c->gradient, 1), from = dycl_chain_zeros(c, &x);
    if (with_self) from = dycl_chain_number(c, DYCL_OP_add, from, 1);
    uint32_t each = dycl_chain_node(c, DYCL_OP_full, 1, &one, source.rank, source.sizes);
    uint32_t n = counted(c, from, index, each, dim);
    return dycl_chain_where(c, dycl_chain_number(c, DYCL_OP_eq, n, 0), one, n);
}

/* dim, how, whether self counts. Those that are equal to the largest share its gradient. */
void dycl_grad_scatter_reduce(dycl_chain *c) {
    const int64_t dim = dim_of(c), how = dycl_words_given(c)[1], with_self = dycl_words_given(c)[2];
    if (how == PROD || !dycl_chain_same_sizes(dycl_chain_operand(c, 1), dycl_chain_operand(c, 2))) dycl_chain_fail(c);
    uint32_t x = dycl_chain_take(c, 0), index = dycl_chain_take(c, 1), source = dycl_chain_take(c, 2),
             result = dycl_chain_result(c), kept = c->gradient, read;
    if (how == SUM) {
        read = read_back(c, kept, index, dim);
    } else if (how == MEAN) {
        uint32_t n = mean_of(c, index, dim, with_self != 0);
        kept = dycl_chain_2(c, DYCL_OP_div, c->gradient, n);
        read = dycl_chain_2(c, DYCL_OP_div, read_back(c, c->gradient, index, dim), read_back(c, n, index, dim));
    } else {
        uint32_t own = equals(c, x, result), theirs = equals(c, source, read_back(c, result, index, dim));
        uint32_t share = dycl_chain_2(c, DYCL_OP_div, c->gradient, counted(c, own, index, theirs, dim));
        kept = dycl_chain_2(c, DYCL_OP_mul, own, share);
        read = dycl_chain_2(c, DYCL_OP_mul, theirs, read_back(c, share, index, dim));
    }
    if (dycl_chain_wants(c, 0)) dycl_chain_give(c, 0, with_self ? kept : replaced(c, kept, index, dim));
    if (dycl_chain_wants(c, 2)) dycl_chain_give(c, 2, read);
}

/* Which rows were filled is asked of torch for one row: the rest is a mask. */
void dycl_grad_index_fill(dycl_chain *c) {
    int64_t dim = dim_of(c), none = 0, sizes[DYCL_MAX_RANK];
    dycl_value x = *dycl_chain_operand(c, 0), row = {.dtype = x.dtype, .rank = 1};
    if (dycl_chain_wants(c, 2)) dycl_chain_fail(c);
    if (c->status != DYCL_OK) return;
    row.sizes[0] = x.sizes[dim];
    dycl_infer_contiguous(&row);
    uint32_t zeros = dycl_chain_zeros(c, &row), one = dycl_chain_constant(c, c->gradient, 1);
    uint32_t operands[3] = {zeros, dycl_chain_take(c, 1), dycl_chain_node(c, DYCL_OP_full, 1, &one, 0, NULL)};
    uint32_t filled = dycl_chain_hosted_laid(c, DYCL_OP_aten_index_fill, 0, &row, 3, operands, 1, &none);
    for (int i = 0; i < x.rank; i++) sizes[i] = i == dim ? x.sizes[dim] : 1;
    filled = dycl_chain_number(c, DYCL_OP_ne, dycl_chain_reshape(c, filled, x.rank, sizes), 0);
    dycl_value form = cloned(c);
    dycl_chain_give(c, 0, dycl_chain_laid(c, dycl_chain_drop(c, filled, c->gradient), &form));
}

/* ---- Indices of several dimensions: index(self, indices), index_put(self, indices, values, accumulate) */

void dycl_grad_index(dycl_chain *c) {
    dycl_value x = contiguous(c, 0);
    uint32_t operands[DYCL_MAX_OPERANDS];
    int count = c->node->operand_count;
    int64_t adds = 1;
    operands[0] = dycl_chain_zeros(c, &x);
    for (int i = 1; i < count; i++) operands[i] = c->operands[i] == DYCL_NONE ? DYCL_NONE : dycl_chain_take(c, i);
    operands[count] = c->gradient;
    dycl_chain_give(c, 0, dycl_chain_hosted_laid(c, DYCL_OP_aten_index_put, 0, &x, count + 1, operands, 1, &adds));
}

/* self, index: of the elements in a line */
void dycl_grad_take(dycl_chain *c) {
    dycl_value x = contiguous(c, 0), line = {.dtype = x.dtype, .rank = 1, .sizes = {dycl_value_numel(&x)}};
    const int64_t count = dycl_value_numel(dycl_chain_operand(c, 1)), adds = 1;
    dycl_chain_take(c, 0); /* torch saves it */
    dycl_infer_contiguous(&line);
    uint32_t operands[3] = {dycl_chain_zeros(c, &line), dycl_chain_reshape(c, dycl_chain_take(c, 1), 1, &count),
                            dycl_chain_reshape(c, c->gradient, 1, &count)};
    uint32_t g = dycl_chain_hosted_laid(c, DYCL_OP_aten_index_put, 0, &line, 3, operands, 1, &adds);
    dycl_chain_give(c, 0, dycl_chain_reshape(c, g, x.rank, x.sizes));
}

/* The rows that an index picks from the gradient lie as torch's iterator sees them, to which the gradient has no stride
 * where it is indexed. at: how the index lies. */
static uint32_t rows_of_gradient(dycl_chain *c, uint32_t index, const dycl_value *at, int64_t dim) {
    const int64_t count = dycl_value_numel(at);
    uint32_t read[2] = {c->gradient, at->rank == 1 ? index : dycl_chain_reshape(c, index, 1, &count)};
    if (c->status != DYCL_OK) return 0;
    const dycl_value given = *dycl_chain_meta(c, c->gradient);
    const int rank = given.rank - 1 + at->rank, behind = (int)dim + at->rank;
    dycl_value form = {.dtype = given.dtype, .rank = (uint8_t)rank}, g = form, positions = form;
    for (int i = 0; i < rank; i++) {
        int inside = i >= dim && i < behind, k = i < dim ? i : i - at->rank + 1;
        form.sizes[i] = g.sizes[i] = inside ? at->sizes[i - dim] : given.sizes[k];
        g.strides[i] = inside ? 0 : given.strides[k];
        positions.sizes[i] = inside ? at->sizes[i - dim] : 1;
        positions.strides[i] = inside ? at->strides[i - dim] : 0;
    }
    dycl_infer_iterator_strides(&form, 2, (const dycl_value *[]){&g, &positions});
    uint32_t rows = dycl_chain_node(c, DYCL_OP_index_select, 2, read, 1, &dim);
    if (at->rank != 1) rows = dycl_chain_reshape(c, rows, rank, form.sizes);
    return dycl_chain_laid(c, rows, &form);
}

/* By one index of rank 1, the last operand but one, which may count from the end. */
static uint32_t read_rows(dycl_chain *c, uint32_t index) {
    int64_t dim = c->node->operand_count - 3;
    const int64_t size = dycl_chain_operand(c, 0)->sizes[dim];
    uint32_t below = dycl_chain_2(c, DYCL_OP_lt, index, dycl_chain_integer(c, index, 0)),
             wrapped = dycl_chain_2(c, DYCL_OP_add, index, dycl_chain_integer(c, index, size));
    return rows_of_gradient(c, dycl_chain_where(c, below, wrapped, index), dycl_chain_operand(c, dim + 1), dim);
}

/* The value's gradient is read where it was written; it has the sizes of what is read there. */
static uint32_t read_at(dycl_chain *c, int count, const uint32_t *operands) {
    const dycl_value *x = dycl_chain_operand(c, 0), *v = dycl_chain_operand(c, count - 1);
    int last = count - 2, one = dycl_chain_operand(c, last)->rank == 1 && v->rank == x->rank;
    for (int i = 0; i < x->rank && one; i++)
        one = v->sizes[i] == (i == last - 1 ? dycl_chain_operand(c, last)->sizes[0] : x->sizes[i]);
    for (int i = 1; i < last; i++) one &= c->operands[i] == DYCL_NONE;
    if (one) return read_rows(c, operands[last]);
    for (int i = 1; i <= last; i++) /* each dimension has an index of the value's sizes */
        if (c->operands[i] == DYCL_NONE || last != x->rank || v->rank == 0 ||
            !dycl_chain_same_sizes(dycl_chain_operand(c, i), v) || !dycl_chain_is_plain(dycl_chain_operand(c, i))) {
            dycl_chain_fail(c);
            return 0;
        }
    dycl_value form = contiguous(c, count - 1);
    return dycl_chain_hosted_laid(c, DYCL_OP_aten_index, 0, &form, count - 1, operands, 0, NULL);
}

/* Rows by positions, each from the start. */
void dycl_grad_put_rows(dycl_chain *c) {
    dycl_value form = cloned(c), v = contiguous(c, 2), index = *dycl_chain_operand(c, 1);
    uint32_t at = dycl_chain_take(c, 1);
    if (dycl_chain_wants(c, 0)) {
        uint32_t put[3] = {dycl_chain_contiguous(c, c->gradient), at, dycl_chain_zeros(c, &v)};
        dycl_chain_give(c, 0, dycl_chain_laid(c, dycl_chain_node(c, DYCL_OP_index_put, 3, put, 0, NULL), &form));
    }
    if (dycl_chain_wants(c, 2)) dycl_chain_give(c, 2, rows_of_gradient(c, at, &index, 0));
}

void dycl_grad_index_put(dycl_chain *c) {
    int count = c->node->operand_count, adds = dycl_words_given(c)[0] != 0;
    uint32_t operands[DYCL_MAX_OPERANDS] = {c->gradient};
    for (int i = 1; i < count - 1; i++) operands[i] = c->operands[i] == DYCL_NONE ? DYCL_NONE : dycl_chain_take(c, i);
    if (adds) dycl_chain_give(c, 0, c->gradient);
    if (!adds && dycl_chain_wants(c, 0)) {
        dycl_value form = cloned(c), v = *dycl_chain_operand(c, count - 1);
        int64_t replaces = 0;
        operands[count - 1] = dycl_chain_zeros(c, &v);
        uint32_t g = dycl_chain_hosted_laid(c, DYCL_OP_aten_index_put, 0, &form, count, operands, 1, &replaces);
        dycl_chain_give(c, 0, g);
    }
    if (dycl_chain_wants(c, count - 1)) dycl_chain_give(c, count - 1, read_at(c, count, operands));
}

/* index_add: an index_put that accumulates, but torch saves the source, and how rows are read is index_select's. */
void dycl_grad_index_add(dycl_chain *c) {
    int count = c->node->operand_count;
    int64_t dim = count - 3;
    dycl_chain_give(c, 0, c->gradient);
    if (!dycl_chain_wants(c, count - 1)) return;
    uint32_t read[2] = {c->gradient, dycl_chain_take(c, count - 2)};
    dycl_chain_take(c, count - 1);
    dycl_chain_give(c, count - 1, dycl_chain_node(c, DYCL_OP_index_select, 2, read, 1, &dim));
}
