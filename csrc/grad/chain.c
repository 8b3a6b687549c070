/* What formulas are made of (formula.h). */
#include <string.h>

#include "grad/formula.h"
#include "ir/infer.h"

const dycl_value *dycl_chain_meta(const dycl_chain *c, uint32_t value) { return &c->b->recorder.graph.values[value]; }

const dycl_value *dycl_chain_operand(const dycl_chain *c, int nth) {
    return &c->b->job->graph->values[c->operands[nth]];
}

int dycl_chain_is_plain(const dycl_value *v) {
    dycl_value made = *v;
    dycl_infer_contiguous(&made);
    return memcmp(v->strides, made.strides, v->rank * sizeof *v->strides) == 0;
}

int dycl_chain_same_sizes(const dycl_value *a, const dycl_value *b) {
    return a->rank == b->rank && memcmp(a->sizes, b->sizes, a->rank * sizeof *a->sizes) == 0;
}

int dycl_chain_wants(const dycl_chain *c, int nth) {
    return c->operands[nth] != DYCL_NONE && dycl_backward_leads(c->b, c->operands[nth]);
}

uint32_t dycl_chain_value(dycl_chain *c, uint32_t value) {
    return c->status == DYCL_OK ? dycl_chain_image(c->b, value, &c->status) : 0;
}

uint32_t dycl_chain_take(dycl_chain *c, int nth) { return dycl_chain_value(c, c->operands[nth]); }
uint32_t dycl_chain_result(dycl_chain *c) { return dycl_chain_value(c, c->node->out); }

int dycl_chain_behind(const dycl_chain *c, dycl_op op, dycl_chain *out) {
    const dycl_graph *graph = c->b->job->graph;
    const dycl_value *x = dycl_chain_operand(c, 0);
    const dycl_node *of = x->kind == DYCL_VALUE_NODE ? &graph->nodes[x->source] : NULL;
    if (!of || of->op != op || dycl_backward_is_source(c->b, c->operands[0])) return 0;
    *out = *c;
    out->node = of;
    out->operands = dycl_node_operands(graph, of);
    out->attrs = dycl_node_attrs(graph, of);
    return 1;
}

int dycl_chain_by_operand(const dycl_chain *c) { return c->b->job->tracked[c->node->out] & DYCL_GRAD_BY_OPERAND; }

void dycl_chain_fail(dycl_chain *c) {
    if (c->status == DYCL_OK) c->status = dycl_build_bail(&c->b->recorder, DYCL_BAIL_grad);
}

void dycl_chain_tie(dycl_chain *c, int nth) { c->tied |= UINT32_C(1) << nth; }

static void tie(dycl_chain *c, uint32_t gradient) {
    for (int i = 0; i < c->node->operand_count; i++) {
        uint32_t operand = c->operands[i];
        if (!(c->tied >> i & 1) || operand == DYCL_NONE || !c->b->job->tracked[operand]) continue;
        uint32_t saved = c->b->image[c->b->job->graph->values[operand].root];
        if (saved != DYCL_NONE && c->status == DYCL_OK)
            c->status = dycl_backward_tie(c->b, (dycl_tie){gradient, saved, c->tied_nothing});
    }
}

void dycl_chain_give(dycl_chain *c, int nth, uint32_t gradient) {
    if (!dycl_chain_wants(c, nth)) return;
    gradient = dycl_chain_sum_to(c, gradient, dycl_chain_operand(c, nth));
    gradient = dycl_chain_cast(c, gradient, (dycl_dtype)dycl_chain_operand(c, nth)->dtype); /* as torch's engine does */
    if (c->tied && c->status == DYCL_OK) tie(c, gradient); /* what is given alone, not what it was summed from */
    if (c->status == DYCL_OK) c->status = dycl_backward_accumulate(c->b, c->operands[nth], gradient);
}

/* ---- Operators */

uint32_t dycl_chain_node(dycl_chain *c, dycl_op op, int count, const uint32_t *operands, int attr_count,
                         const int64_t *attrs) {
    uint32_t out = 0;
    if (c->status == DYCL_OK)
        c->status = dycl_build_node(&c->b->recorder, op, count, operands, attr_count, attrs, &out);
    return c->status == DYCL_OK ? out : 0;
}

uint32_t dycl_chain_1(dycl_chain *c, dycl_op op, uint32_t a) { return dycl_chain_node(c, op, 1, &a, 0, NULL); }

uint32_t dycl_chain_2(dycl_chain *c, dycl_op op, uint32_t a, uint32_t b) {
    uint32_t both[2] = {a, b};
    return dycl_chain_node(c, op, 2, both, 0, NULL);
}

uint32_t dycl_chain_in_place(dycl_chain *c, dycl_op op, uint32_t a, uint32_t b) {
    uint32_t out = dycl_chain_2(c, op, a, b);
    if (c->status != DYCL_OK) return 0;
    return dycl_chain_laid(c, out, dycl_chain_meta(c, a));
}

uint32_t dycl_chain_integer(dycl_chain *c, uint32_t like, int64_t number) {
    dycl_operand n = dycl_operand_i64(number);
    uint32_t out = 0;
    if (c->status == DYCL_OK)
        c->status = dycl_build_convert(&c->b->recorder, &n, (dycl_dtype)dycl_chain_meta(c, like)->dtype, &out);
    return out;
}

uint32_t dycl_chain_constant(dycl_chain *c, uint32_t like, double number) {
    uint32_t out = 0;
    dycl_operand n = dycl_operand_f64(number);
    if (c->status == DYCL_OK)
        c->status = dycl_build_convert(&c->b->recorder, &n, (dycl_dtype)dycl_chain_meta(c, like)->dtype, &out);
    return out;
}

uint32_t dycl_chain_number(dycl_chain *c, dycl_op op, uint32_t a, double number) {
    return dycl_chain_2(c, op, a, dycl_chain_constant(c, a, number));
}

uint32_t dycl_chain_cast(dycl_chain *c, uint32_t a, dycl_dtype dtype) {
    if (c->status == DYCL_OK) c->status = dycl_build_cast(&c->b->recorder, a, dtype, &a);
    return a;
}

uint32_t dycl_chain_where(dycl_chain *c, uint32_t condition, uint32_t a, uint32_t b) {
    uint32_t three[3] = {condition, a, b};
    return dycl_chain_node(c, DYCL_OP_where, 3, three, 0, NULL);
}

uint32_t dycl_chain_keep(dycl_chain *c, uint32_t condition, uint32_t a) {
    return dycl_chain_where(c, condition, a, dycl_chain_constant(c, a, 0));
}

uint32_t dycl_chain_drop(dycl_chain *c, uint32_t condition, uint32_t a) {
    return dycl_chain_where(c, condition, dycl_chain_constant(c, a, 0), a);
}

uint32_t dycl_chain_reduce(dycl_chain *c, dycl_op op, uint32_t a, uint32_t dims) {
    int64_t attrs[2] = {dims, 1};
    return dycl_chain_node(c, op, 1, &a, 2, attrs);
}

/* What has these sizes already is itself, as in torch: who gets it sees whether it is another tensor. */
static int has_sizes(const dycl_chain *c, uint32_t a, int rank, const int64_t *sizes) {
    const dycl_value *v = c->status == DYCL_OK ? dycl_chain_meta(c, a) : NULL;
    return v && v->rank == rank && memcmp(v->sizes, sizes, (size_t)rank * sizeof *sizes) == 0;
}

uint32_t dycl_chain_reshape(dycl_chain *c, uint32_t a, int rank, const int64_t *sizes) {
    uint32_t out = 0;
    if (has_sizes(c, a, rank, sizes)) return a;
    if (c->status == DYCL_OK) c->status = dycl_build_reshape(&c->b->recorder, a, rank, sizes, 0, &out);
    return out;
}

uint32_t dycl_chain_expand(dycl_chain *c, uint32_t a, int rank, const int64_t *sizes) {
    uint32_t out = 0;
    if (has_sizes(c, a, rank, sizes)) return a;
    if (c->status == DYCL_OK) c->status = dycl_build_expand(&c->b->recorder, a, rank, sizes, &out);
    return out;
}

uint32_t dycl_chain_mean_back(dycl_chain *c, uint32_t a, const dycl_value *x, double count) {
    uint32_t all = dycl_chain_expand(c, a, x->rank, x->sizes);
    return dycl_chain_number(c, DYCL_OP_div, all, count);
}

uint32_t dycl_chain_transpose(dycl_chain *c, uint32_t a) {
    uint32_t out = 0;
    int rank = c->status == DYCL_OK ? dycl_chain_meta(c, a)->rank : 0;
    if (c->status == DYCL_OK) c->status = dycl_build_transpose(&c->b->recorder, a, rank - 2, rank - 1, &out);
    return out;
}

uint32_t dycl_chain_product(dycl_chain *c, uint32_t a, uint32_t b) {
    uint32_t out = 0;
    if (c->status == DYCL_OK) c->status = dycl_build_matmul(&c->b->recorder, a, b, &out);
    return out;
}

uint32_t dycl_chain_laid_product(dycl_chain *c, uint32_t a, uint32_t b, int turned) {
    if (!turned) return dycl_chain_product(c, a, b);
    uint32_t left = dycl_chain_transpose(c, b);
    return dycl_chain_transpose(c, dycl_chain_product(c, left, dycl_chain_transpose(c, a)));
}

uint32_t dycl_chain_zeros(dycl_chain *c, const dycl_value *like) {
    dycl_value v = *like; /* building may move the graph that it lies in */
    uint32_t zero = 0;
    dycl_operand number = dycl_operand_f64(0);
    if (c->status == DYCL_OK) c->status = dycl_build_convert(&c->b->recorder, &number, (dycl_dtype)v.dtype, &zero);
    return dycl_chain_node(c, DYCL_OP_full, 1, &zero, v.rank, v.sizes);
}

/* `size` integers: start, start + step... */
static uint32_t line(dycl_chain *c, int64_t start, int64_t step, int64_t size) {
    const dycl_operand given[2] = {dycl_operand_i64(start), dycl_operand_i64(step)};
    uint32_t ends[2] = {0};
    for (int i = 0; i < 2; i++)
        if (c->status == DYCL_OK) c->status = dycl_build_convert(&c->b->recorder, &given[i], DYCL_I64, &ends[i]);
    return dycl_chain_node(c, DYCL_OP_iota, 2, ends, 1, &size);
}

uint32_t dycl_chain_positions(dycl_chain *c, int rank, int dim, int64_t size) {
    int64_t sizes[DYCL_MAX_RANK];
    for (int i = 0; i < rank; i++) sizes[i] = i == dim ? size : 1;
    return dycl_chain_reshape(c, line(c, 0, 1, size), rank, sizes);
}

uint32_t dycl_chain_flip(dycl_chain *c, uint32_t a, int dim) {
    int64_t attr = dim, size = c->status == DYCL_OK ? dycl_chain_meta(c, a)->sizes[dim] : 0;
    return dycl_chain_node(c, DYCL_OP_index_select, 2, (uint32_t[]){a, line(c, size - 1, -1, size)}, 1, &attr);
}

dycl_value dycl_chain_formatted(const dycl_value *sizes, const dycl_value *like) {
    dycl_value made = *sizes;
    if (made.rank == 4 && dycl_value_channels_last(like))
        dycl_infer_channels_last(&made);
    else
        dycl_infer_contiguous(&made);
    return made;
}

uint32_t dycl_chain_hosted(dycl_chain *c, dycl_op op, int which, const dycl_value *like, int operand_count,
                           const uint32_t *operands, int word_count, const int64_t *words) {
    dycl_value made = dycl_chain_formatted(like, like);
    return dycl_chain_hosted_laid(c, op, which, &made, operand_count, operands, word_count, words);
}

uint32_t dycl_chain_hosted_laid(dycl_chain *c, dycl_op op, int which, const dycl_value *form, int operand_count,
                                const uint32_t *operands, int word_count, const int64_t *words) {
    int64_t attrs[DYCL_MAX_ATTRS] = {which, form->dtype, form->rank}, *at = attrs + 3;
    memcpy(at, form->sizes, form->rank * sizeof *at);
    memcpy(at + form->rank, form->strides, form->rank * sizeof *at);
    if (word_count) memcpy(at + 2 * form->rank, words, (size_t)word_count * sizeof *at);
    return dycl_chain_node(c, op, operand_count, operands, 3 + 2 * form->rank + word_count, attrs);
}

/* Laid out anew it is no view of what it was. */
static uint32_t owned(dycl_chain *c, uint32_t before, uint32_t out) {
    if (c->status == DYCL_OK && out != before) c->status = dycl_backward_own(c->b, out);
    return c->status == DYCL_OK ? out : 0;
}

uint32_t dycl_chain_laid(dycl_chain *c, uint32_t a, const dycl_value *form) {
    dycl_value like = *form; /* building may move the graph that it lies in */
    uint32_t out = 0;
    if (c->status == DYCL_OK) c->status = dycl_build_dense(&c->b->recorder, a, like.strides, &out);
    return owned(c, a, out);
}

uint32_t dycl_chain_iterated(dycl_chain *c, uint32_t a, uint32_t first, uint32_t second) {
    uint32_t in[2] = {first, second}, out = 0;
    if (c->status == DYCL_OK) c->status = dycl_build_iterated(&c->b->recorder, a, 2, in, &out);
    return owned(c, a, out);
}

uint32_t dycl_chain_cleared(dycl_chain *c, uint32_t condition, uint32_t a) {
    uint32_t out = dycl_chain_drop(c, condition, a);
    return c->status == DYCL_OK ? dycl_chain_laid(c, out, dycl_chain_meta(c, a)) : 0;
}

uint32_t dycl_chain_restored(dycl_chain *c, uint32_t a, uint32_t dims) {
    const dycl_value *x = dycl_chain_operand(c, 0);
    if (c->status != DYCL_OK || dycl_chain_meta(c, a)->rank == x->rank) return a;
    for (int i = 0; i < x->rank && c->status == DYCL_OK; i++)
        if (dims >> i & 1) c->status = dycl_build_unsqueeze(&c->b->recorder, a, i, &a);
    return a;
}

uint32_t dycl_chain_contiguous(dycl_chain *c, uint32_t a) {
    dycl_value form = *dycl_chain_meta(c, c->status == DYCL_OK ? a : 0);
    dycl_infer_contiguous(&form);
    return dycl_chain_laid(c, a, &form);
}

uint32_t dycl_chain_sum_to(dycl_chain *c, uint32_t a, const dycl_value *shape) {
    uint32_t dims = 0;
    if (c->status != DYCL_OK) return 0;
    dycl_value v = *dycl_chain_meta(c, a);
    int ahead = v.rank - shape->rank;
    for (int i = 0; i < v.rank; i++)
        if (i < ahead || (shape->sizes[i - ahead] == 1 && v.sizes[i] != 1)) dims |= UINT32_C(1) << i;
    if (dims) a = dycl_chain_reduce(c, DYCL_OP_sum, a, dims);
    int same = ahead == 0;
    for (int i = 0; i < v.rank && same; i++) same = shape->sizes[i] == v.sizes[i] || shape->sizes[i] == 1;
    if (ahead < 0 || (ahead == 0 && !same)) { /* it stands for every element of the operand */
        return dycl_chain_expand(c, a, shape->rank, shape->sizes);
    }
    return ahead ? dycl_chain_reshape(c, a, shape->rank, shape->sizes) : a;
}
