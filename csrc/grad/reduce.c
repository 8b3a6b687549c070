/* Reductions, and rows normalised by what they sum to. */
#include "grad/hosted.h"

#define MUL(a, b) dycl_chain_2(c, DYCL_OP_mul, a, b)
#define DIV(a, b) dycl_chain_2(c, DYCL_OP_div, a, b)
#define SUB(a, b) dycl_chain_2(c, DYCL_OP_sub, a, b)

static uint32_t dims_of(const dycl_chain *c) { return (uint32_t)c->attrs[0]; }

static double reduced_numel(const dycl_chain *c) {
    const dycl_value *x = dycl_chain_operand(c, 0);
    double n = 1;
    for (int i = 0; i < x->rank; i++)
        if (dims_of(c) >> i & 1) n *= (double)x->sizes[i];
    return n;
}

/* What belongs to the result, with the reduced dimensions of size 1 again: one by one as in torch, since a reshape of
 * what has no elements has strides of its own. */
static uint32_t kept(dycl_chain *c, uint32_t a) { return dycl_chain_restored(c, a, dims_of(c)); }

/* Of all elements: expanded at once, as torch does it, whose dimensions of size 1 then have no stride either. */
void dycl_grad_sum(dycl_chain *c) {
    int of_all = c->status == DYCL_OK && dycl_chain_meta(c, c->gradient)->rank == 0;
    dycl_chain_give(c, 0, of_all ? c->gradient : kept(c, c->gradient));
}

/* dimensions, keepdim, dtype: what is no number has no part in it */
void dycl_grad_nansum(dycl_chain *c) {
    const int64_t *given = dycl_words_given(c), count = given[0] < 0 ? 0 : given[0], dtype = given[2 + count];
    const dycl_value x = *dycl_chain_operand(c, 0);
    uint32_t dims = count ? 0 : (UINT32_C(1) << x.rank) - 1;
    for (int i = 0; i < count && x.rank; i++)
        dims |= UINT32_C(1) << (given[1 + i] < 0 ? given[1 + i] + x.rank : given[1 + i]);
    if (x.rank == 0 || (dtype >= 0 && dtype != x.dtype)) dycl_chain_fail(c);
    uint32_t number = dycl_chain_1(c, DYCL_OP_logical_not, dycl_chain_1(c, DYCL_OP_isnan, dycl_chain_take(c, 0)));
    uint32_t g = dycl_chain_expand(c, dycl_chain_restored(c, c->gradient, dims), x.rank, x.sizes);
    dycl_chain_give(c, 0, MUL(g, dycl_chain_cast(c, number, (dycl_dtype)x.dtype)));
}

void dycl_grad_mean(dycl_chain *c) {
    const dycl_value *x = dycl_chain_operand(c, 0);
    dycl_chain_give(c, 0, dycl_chain_mean_back(c, kept(c, c->gradient), x, reduced_numel(c)));
}

/* amax, amin: those that are equal share it */
void dycl_grad_extreme(dycl_chain *c) {
    uint32_t mask = dycl_chain_2(c, DYCL_OP_eq, kept(c, dycl_chain_result(c)), dycl_chain_take(c, 0)),
             ones = dycl_chain_cast(c, mask, (dycl_dtype)dycl_chain_operand(c, 0)->dtype);
    uint32_t count = dycl_chain_reduce(c, DYCL_OP_sum, ones, dims_of(c));
    dycl_chain_give(c, 0, DIV(MUL(kept(c, c->gradient), ones), count));
}

/* The products of what lies in front of each element of the row, without the last element. */
static uint32_t products_before(dycl_chain *c, uint32_t x, int dim) {
    uint32_t operands[2] = {x, dycl_chain_constant(c, x, 1)}, front = 0;
    if (c->status != DYCL_OK) return 0;
    const dycl_value v = *dycl_chain_meta(c, x);
    int64_t words[2] = {dim, -1}, attrs[2 * DYCL_MAX_RANK] = {0};
    attrs[dim] = 1;
    c->status = dycl_build_slice(&c->b->recorder, x, dim, 0, v.sizes[dim] - 1, 1, &operands[0]);
    front = dycl_chain_node(c, DYCL_OP_pad, 2, operands, 2 * v.rank, attrs);
    return dycl_chain_hosted_laid(c, DYCL_OP_aten_cumprod, 0, &v, 1, &front, 2, words);
}

/* Of each element the product of the others: the quotient, where no element is zero. torch asks whether one is; here
 * both are computed, so bindings record none of large tensors. */
void dycl_grad_prod(dycl_chain *c) {
    const dycl_value v = *dycl_chain_operand(c, 0);
    uint32_t x = dycl_chain_take(c, 0), y = dycl_chain_result(c), g = c->gradient, all = (UINT32_C(1) << v.rank) - 1;
    if (v.rank == 0) {
        dycl_chain_give(c, 0, g);
        return;
    }
    uint32_t zeros = dycl_chain_number(c, DYCL_OP_eq, x, 0), zero = dycl_chain_reduce(c, DYCL_OP_any, zeros, all),
             divisor =
                 dycl_chain_where(c, zeros, dycl_chain_constant(c, x, 1), x); /* who differentiates again meets it */
    int64_t count = dycl_value_numel(&v);
    int dim = dims_of(c) == all ? 0 : __builtin_ctz(dims_of(c));
    uint32_t line = dims_of(c) == all && v.rank > 1 ? dycl_chain_reshape(c, x, 1, &count) : x;
    uint32_t before = products_before(c, line, dim),
             behind = dycl_chain_flip(c, products_before(c, dycl_chain_flip(c, line, dim), dim), dim);
    uint32_t others = dycl_chain_reshape(c, MUL(before, behind), v.rank, v.sizes);
    others = dycl_chain_where(c, zero, others, DIV(dycl_chain_restored(c, y, dims_of(c)), divisor));
    dycl_chain_give(c, 0, MUL(dycl_chain_restored(c, g, dims_of(c)), others));
}

void dycl_grad_sumsq(dycl_chain *c) {
    dycl_chain_give(c, 0, MUL(kept(c, c->gradient), dycl_chain_number(c, DYCL_OP_mul, dycl_chain_take(c, 0), 2)));
}

/* Of rows: their direction, flat where all elements are zero. The chain is that of the sum of squares. */
static void give_norm(dycl_chain *c, uint32_t norm) {
    uint32_t y = dycl_chain_restored(c, dycl_chain_value(c, norm), dims_of(c));
    uint32_t direction = dycl_chain_cleared(c, dycl_chain_number(c, DYCL_OP_eq, y, 0), DIV(dycl_chain_take(c, 0), y));
    dycl_chain_give(c, 0, MUL(dycl_chain_restored(c, c->gradient, dims_of(c)), direction));
}

/* A root of a sum of squares is a norm, which torch differentiates as one function. */
void dycl_grad_sqrt(dycl_chain *c) {
    dycl_chain inner;
    if (dycl_chain_by_operand(c)) {
        uint32_t slope = dycl_chain_1(c, DYCL_OP_rsqrt, dycl_chain_take(c, 0));
        dycl_chain_give(c, 0, MUL(c->gradient, dycl_chain_number(c, DYCL_OP_mul, slope, 0.5)));
    } else if (dycl_chain_behind(c, DYCL_OP_sumsq, &inner)) {
        give_norm(&inner, c->node->out);
        c->status = inner.status;
    } else {
        uint32_t y = dycl_chain_result(c);
        dycl_chain_give(c, 0, DIV(c->gradient, dycl_chain_number(c, DYCL_OP_mul, y, 2)));
    }
}

void dycl_grad_sumabs(dycl_chain *c) {
    dycl_chain_result(c); /* torch saves it */
    uint32_t g = dycl_chain_restored(c, c->gradient, dims_of(c));
    dycl_chain_give(c, 0, MUL(dycl_chain_1(c, DYCL_OP_sign, dycl_chain_take(c, 0)), g));
}

static void give_var(dycl_chain *c, uint32_t g) {
    uint32_t x = dycl_chain_take(c, 0);
    double degrees = reduced_numel(c) - dycl_attr_f64(c->attrs[2]);
    uint32_t off = SUB(x, dycl_chain_reduce(c, DYCL_OP_mean, x, dims_of(c)));
    if (degrees <= 0) dycl_chain_fail(c); /* NaN or infinities: torch's own affair */
    dycl_chain_give(c, 0, MUL(kept(c, dycl_chain_number(c, DYCL_OP_mul, g, 2 / degrees)), off));
}

void dycl_grad_var(dycl_chain *c) { give_var(c, c->gradient); }

void dycl_grad_std(dycl_chain *c) {
    uint32_t y = dycl_chain_result(c), g = DIV(c->gradient, dycl_chain_number(c, DYCL_OP_mul, y, 2));
    give_var(c, dycl_chain_cleared(c, dycl_chain_number(c, DYCL_OP_eq, y, 0), g));
}

/* torch's kernels write rows one behind the other, however what they read lies. */
static void give_rows(dycl_chain *c, uint32_t gradient) { dycl_chain_give(c, 0, dycl_chain_contiguous(c, gradient)); }

static uint32_t row_of(const dycl_chain *c) { return dycl_chain_operand(c, 0)->rank ? UINT32_C(1) << c->attrs[0] : 0; }

/* Rows that lie along memory: an operator that goes over each while it is in the first cache. */
static int row_back(dycl_chain *c, dycl_op op) {
    const dycl_value *x = dycl_chain_operand(c, 0);
    uint32_t operands[2] = {c->gradient, dycl_chain_result(c)};
    if (x->rank == 0 || c->attrs[0] != x->rank - 1 || dycl_dtype_is_half((dycl_dtype)x->dtype)) return 0;
    give_rows(c, dycl_chain_node(c, op, 2, operands, 1, c->attrs));
    return 1;
}

void dycl_grad_softmax(dycl_chain *c) {
    if (row_back(c, DYCL_OP_softmax_back)) return;
    uint32_t y = dycl_chain_result(c), product = MUL(c->gradient, y);
    give_rows(c, SUB(product, MUL(y, dycl_chain_reduce(c, DYCL_OP_sum, product, row_of(c)))));
}

void dycl_grad_log_softmax(dycl_chain *c) {
    if (row_back(c, DYCL_OP_log_softmax_back)) return;
    uint32_t sum = dycl_chain_reduce(c, DYCL_OP_sum, c->gradient, row_of(c));
    give_rows(c, SUB(c->gradient, MUL(dycl_chain_1(c, DYCL_OP_exp, dycl_chain_result(c)), sum)));
}

static uint32_t running_sum(dycl_chain *c, uint32_t a, int64_t dim) {
    if (c->node->op == DYCL_OP_cumsum) return dycl_chain_node(c, DYCL_OP_cumsum, 1, &a, 1, &dim);
    if (c->status != DYCL_OK) return 0;
    const int64_t words[2] = {dim, -1};
    dycl_value form = *dycl_chain_meta(c, a);
    dycl_infer_preserve(dycl_chain_meta(c, a), &form);
    return dycl_chain_hosted_laid(c, DYCL_OP_aten_cumsum, 0, &form, 1, &a, 2, words);
}

/* Summed up from the other end. */
static void sum_back(dycl_chain *c, int64_t dim) {
    const dycl_value *x = dycl_chain_operand(c, 0);
    if (x->rank == 0 || x->sizes[dim] == 1 || dycl_value_numel(x) <= 1) {
        dycl_chain_give(c, 0, c->gradient);
        return;
    }
    uint32_t g = running_sum(c, dycl_chain_flip(c, c->gradient, (int)dim), dim);
    dycl_chain_give(c, 0, dycl_chain_flip(c, g, (int)dim));
}

void dycl_grad_cumsum(dycl_chain *c) { sum_back(c, c->attrs[0]); }

/* dimension, dtype: along any dimension. A result of another dtype is left to torch. */
void dycl_grad_hosted_cumsum(dycl_chain *c) {
    if (c->attrs[1] != dycl_chain_operand(c, 0)->dtype) dycl_chain_fail(c);
    if (c->status == DYCL_OK) sum_back(c, dycl_words_dim(c, 0));
}

/* dimension, dtype: torch's own kernel, which asks whether an element is zero. How it lies depends on that where the
 * operand is not contiguous. */
void dycl_grad_cumprod(dycl_chain *c) {
    const dycl_value x = *dycl_chain_operand(c, 0);
    const int64_t dim = dycl_words_dim(c, 0);
    if (c->attrs[1] != x.dtype || !dycl_chain_is_plain(&x)) dycl_chain_fail(c);
    uint32_t operands[3] = {c->gradient, dycl_chain_take(c, 0), dycl_chain_result(c)};
    if (dycl_value_numel(&x) <= 1 || x.sizes[dim] == 1)
        dycl_chain_give(c, 0, c->gradient);
    else
        dycl_chain_give(c, 0, dycl_chain_hosted_laid(c, DYCL_OP_aten_cumprod_backward, 0, &x, 3, operands, 1, &dim));
}

/* how often, dimension; self, before*, behind*: once, of self alone */
void dycl_grad_diff(dycl_chain *c) {
    const int rank = dycl_chain_operand(c, 0)->rank;
    int64_t one[DYCL_MAX_RANK] = {0}, none[DYCL_MAX_RANK] = {0};
    if (dycl_words_given(c)[0] != 1 || c->operands[1] != DYCL_NONE || c->operands[2] != DYCL_NONE || !rank)
        dycl_chain_fail(c);
    if (c->status != DYCL_OK) return;
    one[dycl_words_dim(c, 1)] = 1;
    uint32_t later = dycl_chain_padded(c, c->gradient, one, none, rank),
             sooner = dycl_chain_padded(c, dycl_chain_1(c, DYCL_OP_neg, c->gradient), none, one, rank);
    dycl_chain_give(c, 0, dycl_chain_contiguous(c, dycl_chain_2(c, DYCL_OP_add, later, sooner)));
}
