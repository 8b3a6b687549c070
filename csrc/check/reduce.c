#include "check/reference.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Reductions, operators on whole rows. A row is visited by an index that starts somewhere and runs over `sizes`.
 */

typedef struct {
    int64_t at[DYCL_MAX_RANK], inner[DYCL_MAX_RANK], sizes[DYCL_MAX_RANK]; /* sizes: of the row, 1 elsewhere */
    int rank;
} row_walk;

static void row_index(const row_walk *w, int64_t *out) {
    for (int d = 0; d < w->rank; d++) out[d] = w->at[d] + w->inner[d];
}

/* ---- Reductions */

/* What one row comes to, gathered in one walk. Floats. */
typedef struct {
    dycl_number_sum sum, squares, sizes;
    double prod, prod_high, worst; /* prod_high: of sizes with their errors; worst: largest error */
    double prod_most, prod_least;  /* of those above one, of those between zero and one: what some order of
                                      multiplication meets on the way */
    dycl_number most, least;
    int64_t where_most, where_least, count;
    int nan, all, any, unknown, unsure_all, unsure_any;
} gathered;

static void gather_float(gathered *g, dycl_number x) {
    double size = fabs(x.f);
    g->unknown |= !dycl_number_known(x);
    dycl_number_add(&g->sum, x.f, x.error);
    dycl_number_add_product(&g->squares, x, x);
    dycl_number_add(&g->sizes, size, x.error);
    g->prod *= x.f;
    g->prod_high *= size + x.error;
    g->prod_most *= fmax(size + x.error, 1);
    if (size > 0) g->prod_least *= fmin(size, 1);
    g->worst = fmax(g->worst, x.error);
    int above = x.f > g->most.f || g->count == 0, below = x.f < g->least.f || g->count == 0;
    if (isnan(x.f)) { /* the first NaN is above and below all numbers */
        if (!g->nan) g->where_most = g->where_least = g->count;
        g->nan = 1;
    } else if (!g->nan) {
        if (above) g->most = x, g->where_most = g->count;
        if (below) g->least = x, g->where_least = g->count;
    }
    int is = x.f != 0, sure = !(size <= x.error) || x.error == 0;
    g->all &= is;
    g->any |= is;
    g->unsure_all |= !sure;
    g->unsure_any |= !sure;
    g->count++;
}

static void gather_int(gathered *g, dycl_number x, uint64_t *sum, uint64_t *prod) {
    g->unknown |= !dycl_number_known(x);
    *sum += (uint64_t)x.i;
    *prod *= (uint64_t)x.i;
    if (g->count == 0 || x.i > g->most.i) g->most = x, g->where_most = g->count;
    if (g->count == 0 || x.i < g->least.i) g->least = x, g->where_least = g->count;
    g->all &= x.i != 0;
    g->any |= x.i != 0;
    g->count++;
}

/* Another element may be the largest (sign 1) or the smallest (-1). */
static int is_tied(const dycl_reference *r, uint32_t value, row_walk *w, const gathered *g, int sign) {
    dycl_number best = sign > 0 ? g->most : g->least;
    int64_t index[DYCL_MAX_RANK], i = 0, where = sign > 0 ? g->where_most : g->where_least;
    memset(w->inner, 0, sizeof w->inner);
    do {
        row_index(w, index);
        dycl_number x = dycl_reference_get(r, value, index, w->rank);
        double behind = (best.f - x.f) * sign;
        if (i++ != where && x.error + best.error > 0 && behind <= x.error + best.error) return 1;
    } while (dycl_reference_next(w->inner, w->sizes, w->rank));
    return 0;
}

/* Kernels take squares that leave a float's range in doubles, and the root before anything is rounded. */
static dycl_number mean_square(dycl_op op, dycl_dtype dtype, const dycl_number_sum *s, double by) {
    double x = s->sum / by, rounding = dycl_number_epsilon(dtype) * (1 + sqrt((double)s->terms) / 8) * s->magnitude;
    double error = (s->error + rounding) / by;
    if (s->unknown) return dycl_number_unknown();
    if (op == DYCL_OP_std) {
        double root = sqrt(x), low = sqrt(x > error ? x - error : 0), high = sqrt(x + error);
        x = root, error = fmax(high - root, root - low);
    }
    return dycl_number_f(dtype, x, error);
}

static dycl_number variance(dycl_op op, const dycl_reference *r, uint32_t value, row_walk *w, const gathered *g,
                            dycl_dtype dtype, double correction) {
    double n = (double)g->count, mean = g->sum.sum / n, by = n > correction ? n - correction : 0;
    double rounded = dycl_number_epsilon(dtype) * (fabs(mean) + g->sum.magnitude / n) + g->worst; /* of the mean */
    dycl_number_sum squares = {.unknown = g->unknown};
    int64_t index[DYCL_MAX_RANK];
    memset(w->inner, 0, sizeof w->inner);
    do {
        row_index(w, index);
        dycl_number x = dycl_reference_get(r, value, index, w->rank);
        x.f -= mean;
        x.error += dycl_number_epsilon(dtype) * (fabs(x.f) + fabs(mean)) + rounded;
        dycl_number_add_product(&squares, x, x);
    } while (dycl_reference_next(w->inner, w->sizes, w->rank));
    if (by == 0)
        return squares.error > 0 && squares.sum <= squares.error ? dycl_number_unknown()
                                                                 : dycl_number_f(dtype, squares.sum / 0.0, 0);
    return mean_square(op, dtype, &squares, by);
}

static dycl_number reduced_float(const dycl_reference *r, const dycl_node *node, uint32_t value, const int64_t *attrs,
                                 row_walk *w, gathered *g, dycl_dtype in, dycl_dtype out) {
    double n = (double)g->count;
    if (g->unknown) return dycl_number_unknown();
    g->sum.unknown = g->squares.unknown = g->sizes.unknown = 0;
    switch (node->op) {
    case DYCL_OP_sum: return dycl_number_total(out, &g->sum, 1);
    case DYCL_OP_mean: return n > 0 ? dycl_number_total(out, &g->sum, 1 / n) : dycl_number_f(out, NAN, 0);
    case DYCL_OP_sumsq: return dycl_number_total(out, &g->squares, 1);
    case DYCL_OP_sumabs: return dycl_number_total(out, &g->sizes, 1);
    case DYCL_OP_prod:
        if (!(g->prod_most < 3e38) || (g->prod != 0 && g->prod_least < 1e-37)) return dycl_number_unknown();
        return dycl_number_f(out, g->prod, g->prod_high - fabs(g->prod) + dycl_number_epsilon(out) * n * fabs(g->prod));
    case DYCL_OP_amax: return g->nan ? dycl_number_f(out, NAN, 0) : dycl_number_f(out, g->most.f, g->worst);
    case DYCL_OP_amin: return g->nan ? dycl_number_f(out, NAN, 0) : dycl_number_f(out, g->least.f, g->worst);
    case DYCL_OP_argmax:
        return !g->nan && is_tied(r, value, w, g, 1) ? dycl_number_unknown() : dycl_number_i(out, g->where_most);
    case DYCL_OP_argmin:
        return !g->nan && is_tied(r, value, w, g, -1) ? dycl_number_unknown() : dycl_number_i(out, g->where_least);
    case DYCL_OP_all: return g->unsure_all && g->count ? dycl_number_unknown() : dycl_number_i(out, g->all);
    case DYCL_OP_any: return g->unsure_any && g->count ? dycl_number_unknown() : dycl_number_i(out, g->any);
    default:
        return n > 0 ? variance((dycl_op)node->op, r, value, w, g, in, dycl_attr_f64(attrs[2]))
                     : dycl_number_f(out, NAN, 0);
    }
}

static dycl_number reduced_int(const dycl_node *node, const gathered *g, uint64_t sum, uint64_t prod, dycl_dtype out) {
    if (g->unknown) return dycl_number_unknown();
    switch (node->op) {
    case DYCL_OP_sum: return dycl_number_i(out, (int64_t)sum);
    case DYCL_OP_prod: return dycl_number_i(out, (int64_t)prod);
    case DYCL_OP_amax: return dycl_number_i(out, g->most.i);
    case DYCL_OP_amin: return dycl_number_i(out, g->least.i);
    case DYCL_OP_argmax: return dycl_number_i(out, g->where_most);
    case DYCL_OP_argmin: return dycl_number_i(out, g->where_least);
    case DYCL_OP_all: return dycl_number_i(out, g->all);
    case DYCL_OP_any: return dycl_number_i(out, g->any);
    default: return dycl_number_unknown();
    }
}

dycl_status dycl_reference_reduce(dycl_reference *r, const dycl_node *node, const uint32_t *operands,
                                  const int64_t *attrs) {
    const dycl_value *in = dycl_reference_value(r, operands[0]), *out = dycl_reference_value(r, node->out);
    int64_t index[DYCL_MAX_RANK] = {0}, element[DYCL_MAX_RANK];
    int is_float = dycl_dtype_is_float((dycl_dtype)in->dtype);
    row_walk w = {.rank = in->rank};
    int64_t length = 1;
    for (int d = 0; d < in->rank; d++) {
        w.sizes[d] = attrs[0] >> d & 1 ? in->sizes[d] : 1;
        length *= w.sizes[d];
    }
    if (dycl_value_numel(out) == 0) return DYCL_OK;
    do {
        for (int d = 0, k = 0; d < in->rank; d++) {
            int is = attrs[0] >> d & 1;
            w.at[d] = is ? 0 : index[k];
            k += !is || attrs[1];
        }
        gathered g = {.prod = 1, .prod_high = 1, .prod_most = 1, .prod_least = 1, .all = 1};
        uint64_t sum = 0, prod = 1;
        memset(w.inner, 0, sizeof w.inner);
        for (int64_t i = 0; i < length; i++, dycl_reference_next(w.inner, w.sizes, w.rank)) {
            row_index(&w, element);
            dycl_number x = dycl_reference_get(r, operands[0], element, in->rank);
            if (is_float)
                gather_float(&g, x);
            else
                gather_int(&g, x, &sum, &prod);
        }
        dycl_dtype from = (dycl_dtype)in->dtype, to = (dycl_dtype)out->dtype;
        dycl_reference_set(r, node->out, index,
                           is_float ? reduced_float(r, node, operands[0], attrs, &w, &g, from, to)
                                    : reduced_int(node, &g, sum, prod, to));
    } while (dycl_reference_next(index, out->sizes, out->rank));
    return DYCL_OK;
}

/* ---- softmax, log_softmax, cumsum */

static void softmax_row(dycl_reference *r, const dycl_node *node, uint32_t value, int64_t *index, int dim, int64_t n) {
    dycl_dtype dtype = dycl_reference_dtype(r, value);
    int rank = dycl_reference_value(r, value)->rank, unknown = 0;
    double most = -INFINITY, sum = 0, worst = 0, eps = dycl_number_epsilon(dtype);
    for (index[dim] = 0; index[dim] < n; index[dim]++) {
        dycl_number x = dycl_reference_get(r, value, index, rank);
        unknown |= !dycl_number_known(x);
        most = isnan(x.f) || isnan(most) ? NAN : fmax(most, x.f);
        worst = fmax(worst, x.error);
    }
    for (index[dim] = 0; index[dim] < n; index[dim]++) sum += exp(dycl_reference_get(r, value, index, rank).f - most);
    for (index[dim] = 0; index[dim] < n; index[dim]++) {
        double x = dycl_reference_get(r, value, index, rank).f, part = exp(x - most) / sum,
               apart = (fabs(x) + fabs(most)) * eps;
        dycl_number y = node->op == DYCL_OP_softmax
                            ? dycl_number_f(dtype, part, part * expm1(fmin(2 * worst + apart, 600)) + 1e-37)
                            : dycl_number_f(dtype, x - most - log(sum), 2 * worst + apart + eps * (1 + fabs(log(sum))));
        dycl_reference_set(r, node->out, index, unknown ? dycl_number_unknown() : y);
    }
}

static void cumsum_row(dycl_reference *r, const dycl_node *node, uint32_t value, int64_t *index, int dim, int64_t n) {
    dycl_dtype dtype = dycl_reference_dtype(r, node->out);
    int rank = dycl_reference_value(r, value)->rank, unknown = 0;
    dycl_number_sum sum = {0};
    uint64_t whole = 0;
    for (index[dim] = 0; index[dim] < n; index[dim]++) {
        dycl_number x = dycl_reference_get(r, value, index, rank);
        unknown |= !dycl_number_known(x);
        dycl_number_add(&sum, x.f, x.error);
        whole += (uint64_t)x.i;
        dycl_number y =
            dycl_dtype_is_float(dtype) ? dycl_number_total(dtype, &sum, 1) : dycl_number_i(dtype, (int64_t)whole);
        dycl_reference_set(r, node->out, index, unknown ? dycl_number_unknown() : y);
    }
}

/* What goes back through a row's statistics. Linear in the gradient; x is expected to be exact. */
static void norm_back_row(dycl_reference *r, const dycl_node *node, const uint32_t *operands, double add,
                          int64_t *index, int dim, int64_t n) {
    dycl_dtype dtype = dycl_reference_dtype(r, node->out);
    int rank = dycl_reference_value(r, node->out)->rank, unknown = 0, rms = node->op == DYCL_OP_rms_norm_back;
    double eps = dycl_number_epsilon(dtype) * (4 + sqrt((double)n)), count = (double)n, mean = 0, var = 0, most = 0,
           largest = 0, plain = 0, along = 0, worst = 0;
    for (index[dim] = 0; index[dim] < n; index[dim]++) {
        dycl_number g = dycl_reference_get(r, operands[0], index, rank),
                    x = dycl_reference_get(r, operands[1], index, rank);
        unknown |= !dycl_number_known(g) || !dycl_number_known(x) || x.error > 0;
        mean += rms ? 0 : x.f / count;
        largest = fmax(largest, fabs(x.f));
        most = fmax(most, fabs(g.f));
        worst = fmax(worst, g.error);
    }
    for (index[dim] = 0; index[dim] < n; index[dim]++) {
        double g = dycl_reference_get(r, operands[0], index, rank).f,
               x = dycl_reference_get(r, operands[1], index, rank).f - mean;
        var += x * x / count;
        plain += rms ? 0 : g / count;
        along += g * x / count;
    }
    double scale = 1 / sqrt(var + add), rounding = eps * (1 + largest * scale) * (1 + largest * scale);
    unknown |= !isfinite(scale) || !isfinite(along) || !(rounding < 0.01) || dycl_number_leaves(dtype, count * var);
    for (index[dim] = 0; index[dim] < n; index[dim]++) {
        double g = dycl_reference_get(r, operands[0], index, rank).f,
               x = (dycl_reference_get(r, operands[1], index, rank).f - mean) * scale,
               reach = (2 + fabs(x)) * (1 + fabs(x)) * scale;
        dycl_number y = dycl_number_f(dtype, (g - plain - x * along * scale) * scale,
                                      reach * (worst * (1 + sqrt(count)) + 4 * rounding * most));
        dycl_reference_set(r, node->out, index, unknown ? dycl_number_unknown() : y);
    }
}

/* Linear in the gradient; an element that is not known, or a sum beyond all numbers, leaves none known. */
static void softmax_back_row(dycl_reference *r, const dycl_node *node, const uint32_t *operands, int64_t *index,
                             int dim, int64_t n) {
    dycl_dtype dtype = dycl_reference_dtype(r, node->out);
    int rank = dycl_reference_value(r, node->out)->rank, unknown = 0, is_log = node->op == DYCL_OP_log_softmax_back;
    double eps = dycl_number_epsilon(dtype) * (4 + sqrt((double)n)), sum = 0, error = 0;
    for (index[dim] = 0; index[dim] < n; index[dim]++) {
        dycl_number g = dycl_reference_get(r, operands[0], index, rank),
                    y = dycl_reference_get(r, operands[1], index, rank);
        double weight = is_log ? 1 : fabs(y.f), its = is_log ? 0 : y.error;
        unknown |= !dycl_number_known(g) || !dycl_number_known(y);
        sum += is_log ? g.f : g.f * y.f;
        error += g.error * (weight + its) + fabs(g.f) * (its + eps * weight);
    }
    unknown |= !isfinite(sum) || !isfinite(error) || dycl_number_leaves(dtype, sum);
    for (index[dim] = 0; index[dim] < n; index[dim]++) {
        dycl_number g = dycl_reference_get(r, operands[0], index, rank),
                    y = dycl_reference_get(r, operands[1], index, rank), x;
        if (is_log) {
            double part = exp(y.f), its = part * (expm1(fmin(y.error, 600)) + eps * (1 + fabs(y.f))) + 1e-37;
            x = dycl_number_f(dtype, g.f - part * sum, g.error + (part + its) * error + its * fabs(sum));
        } else {
            double apart = g.error + error + eps * (fabs(g.f) + fabs(sum));
            x = dycl_number_f(dtype, (g.f - sum) * y.f, apart * (fabs(y.f) + y.error) + fabs(g.f - sum) * y.error);
        }
        dycl_reference_set(r, node->out, index, unknown ? dycl_number_unknown() : x);
    }
}

dycl_status dycl_reference_row(dycl_reference *r, const dycl_node *node, const uint32_t *operands,
                               const int64_t *attrs) {
    const dycl_value *in = dycl_reference_value(r, operands[0]);
    int dim = (int)attrs[0];
    int64_t index[DYCL_MAX_RANK] = {0}, sizes[DYCL_MAX_RANK], n = in->sizes[dim];
    if (dycl_value_numel(in) == 0) return DYCL_OK;
    memcpy(sizes, in->sizes, sizeof sizes);
    sizes[dim] = 1;
    do {
        if (node->op == DYCL_OP_softmax_back || node->op == DYCL_OP_log_softmax_back)
            softmax_back_row(r, node, operands, index, dim, n);
        else if (node->operand_count == 2)
            norm_back_row(r, node, operands, dycl_attr_f64(attrs[1]), index, dim, n);
        else
            (node->op == DYCL_OP_cumsum ? cumsum_row : softmax_row)(r, node, operands[0], index, dim, n);
        index[dim] = 0;
    } while (dycl_reference_next(index, sizes, in->rank));
    return DYCL_OK;
}
