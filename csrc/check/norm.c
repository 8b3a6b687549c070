#include "check/reference.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "kern/batch_norm.h"

/* Normalisations, and what goes back through the statistics of a batch. */

/* (x - mean) * factor, times weight, plus bias. spread: error of x - mean; relative: of the factor. */
static dycl_number normed(dycl_dtype dtype, double centered, double factor, double spread, double relative,
                          const dycl_number *weight, const dycl_number *bias) {
    double eps = dycl_number_epsilon(dtype), y = centered * factor,
           error = spread * fabs(factor) + fabs(y) * (relative + eps);
    if ((weight && !dycl_number_known(*weight)) || (bias && !dycl_number_known(*bias))) return dycl_number_unknown();
    if (weight) {
        error = error * (fabs(weight->f) + weight->error) + fabs(y) * weight->error;
        y *= weight->f;
    }
    if (bias) {
        error += bias->error + eps * (fabs(y) + fabs(bias->f));
        y += bias->f;
    }
    return dycl_number_f(dtype, y, error);
}

/* With given statistics: mean and variance, or mean and 1 / deviation. */
static void batch_norm(dycl_reference *r, const dycl_node *node, const uint32_t *o, const int64_t *attrs) {
    const dycl_value *in = dycl_reference_value(r, o[0]);
    dycl_dtype dtype = (dycl_dtype)in->dtype;
    int64_t index[DYCL_MAX_RANK] = {0};
    double add = dycl_attr_f64(attrs[0]), eps = dycl_number_epsilon(dtype);
    do {
        dycl_number x = dycl_reference_get(r, o[0], index, in->rank), mean = dycl_reference_get(r, o[1], &index[1], 1),
                    var = dycl_reference_get(r, o[2], &index[1], 1);
        dycl_number w = {1, 0, 0}, b = {0};
        if (o[3] != DYCL_NONE) w = dycl_reference_get(r, o[3], &index[1], 1);
        if (o[4] != DYCL_NONE) b = dycl_reference_get(r, o[4], &index[1], 1);
        dycl_number y = dycl_number_unknown();
        int known = dycl_number_known(x) && dycl_number_known(mean) && dycl_number_known(var);
        double spread = x.error + mean.error + 4 * eps * (fabs(x.f) + fabs(mean.f));
        if (known && node->op == DYCL_OP_batch_norm_train)
            y = normed(dtype, x.f - mean.f, var.f, spread, var.f == 0 ? 0 : var.error / fabs(var.f), &w, &b);
        else if (known && var.f - var.error + add > 0)
            y = normed(dtype, x.f - mean.f, 1 / sqrt(var.f + add), spread, var.error / (var.f + add), &w, &b);
        dycl_reference_set(r, node->out, index, y);
    } while (dycl_reference_next(index, in->sizes, in->rank));
}

/* One group of elements that are normalised together, from `start` on. weight_at: the first dimension that indexes
 * weights, and how many do. */
static void norm_group(dycl_reference *r, const dycl_node *node, const uint32_t *o, int64_t *index, int64_t length,
                       double add, int weight_at, int weight_rank) {
    const dycl_value *in = dycl_reference_value(r, o[0]);
    dycl_dtype dtype = (dycl_dtype)in->dtype;
    int rms = node->op == DYCL_OP_rms_norm, unknown = 0;
    int64_t start[DYCL_MAX_RANK];
    double eps = dycl_number_epsilon(dtype), n = (double)length, sum = 0, sizes = 0, worst = 0, squares = 0, most = 0;
    memcpy(start, index, sizeof start);
    for (int64_t k = 0; k < length; k++, dycl_reference_next(index, in->sizes, in->rank)) {
        dycl_number x = dycl_reference_get(r, o[0], index, in->rank);
        unknown |= !dycl_number_known(x);
        sum += x.f;
        sizes += fabs(x.f);
        worst = fmax(worst, x.error);
    }
    double mean = rms ? 0 : sum / n, of_mean = rms ? 0 : eps * (1 + sqrt(n) / 8) * sizes / n + worst;
    memcpy(index, start, sizeof start);
    for (int64_t k = 0; k < length; k++, dycl_reference_next(index, in->sizes, in->rank)) {
        double x = dycl_reference_get(r, o[0], index, in->rank).f - mean;
        squares += x * x;
        most = fmax(most, fabs(x));
    }
    double var = squares / n, deviation = sqrt(var), spread = worst + of_mean + eps * (sizes / n + most);
    double of_var = 2 * deviation * spread + spread * spread + eps * (1 + sqrt(n) / 8) * var, total = var + add;
    if (dtype != DYCL_F64) of_var += FLT_MIN; /* squares that vanish */
    double relative = total > of_var ? of_var / (total - of_var) : INFINITY;
    unknown |= dycl_number_leaves(dtype, squares);
    memcpy(index, start, sizeof start);
    for (int64_t k = 0; k < length; k++, dycl_reference_next(index, in->sizes, in->rank)) {
        dycl_number x = dycl_reference_get(r, o[0], index, in->rank), w, b;
        int has_w = o[1] != DYCL_NONE, has_b = !rms && o[2] != DYCL_NONE;
        if (has_w) w = dycl_reference_get(r, o[1], &index[weight_at], weight_rank);
        if (has_b) b = dycl_reference_get(r, o[2], &index[weight_at], weight_rank);
        dycl_number y = normed(dtype, x.f - mean, 1 / sqrt(total), spread + x.error, relative, has_w ? &w : NULL,
                               has_b ? &b : NULL);
        dycl_reference_set(r, node->out, index,
                           unknown || !isfinite(relative) || !isfinite(total) ? dycl_number_unknown() : y);
    }
}

dycl_status dycl_reference_norm(dycl_reference *r, const dycl_node *node, const uint32_t *operands,
                                const int64_t *attrs) {
    const dycl_value *in = dycl_reference_value(r, operands[0]);
    int64_t index[DYCL_MAX_RANK] = {0}, n = dycl_value_numel(in), length = 1;
    int group = node->op == DYCL_OP_group_norm, first = group ? 1 : in->rank - (int)attrs[0];
    if (n == 0) return DYCL_OK;
    if (dycl_op_is_batch_norm((dycl_op)node->op)) {
        batch_norm(r, node, operands, attrs);
        return DYCL_OK;
    }
    for (int d = first; d < in->rank; d++) length *= in->sizes[d];
    if (group) length /= attrs[0];
    for (int64_t i = 0; i < n; i += length)
        norm_group(r, node, operands, index, length, dycl_attr_f64(attrs[1]), first, group ? 1 : (int)attrs[0]);
    return DYCL_OK;
}

/* ---- Statistics of a batch, and what goes back through them */

/* The sizes of one channel, of which index[1] is the number. */
static void channel_sizes(const dycl_value *x, int64_t *sizes) {
    memcpy(sizes, x->sizes, sizeof x->sizes);
    sizes[1] = 1;
}

/* Sums over a channel of so many elements n: of g and of g (x - m). */
static void channel_sums(const dycl_reference *r, uint32_t g, uint32_t x, int64_t *index, dycl_number m,
                         dycl_number_sum *plain, dycl_number_sum *along) {
    const dycl_value *v = dycl_reference_value(r, x);
    int64_t sizes[DYCL_MAX_RANK], at[DYCL_MAX_RANK] = {0}, channel = index[1];
    double eps = dycl_number_epsilon((dycl_dtype)v->dtype);
    channel_sizes(v, sizes);
    do {
        memcpy(index, at, sizeof at);
        index[1] = channel;
        dycl_number a = dycl_reference_get(r, x, index, v->rank), b = dycl_reference_get(r, g, index, v->rank);
        dycl_number centred = {a.f - m.f, 0, a.error + m.error + eps * (fabs(a.f) + fabs(m.f))};
        plain->unknown |= !dycl_number_known(b);
        dycl_number_add(plain, b.f, b.error + eps * fabs(b.f));
        dycl_number_add_product(along, centred, b);
        along->error += eps * fabs(centred.f * b.f);
    } while (dycl_reference_next(at, sizes, v->rank));
}

static void batch_stats(dycl_reference *r, const dycl_node *node, const uint32_t *o, const int64_t *attrs) {
    const dycl_value *in = dycl_reference_value(r, o[0]);
    dycl_dtype dtype = (dycl_dtype)in->dtype;
    double momentum = dycl_attr_f64(attrs[1]), add = dycl_attr_f64(attrs[2]), eps = dycl_number_epsilon(dtype);
    double n = (double)(dycl_value_numel(in) / in->sizes[1]);
    for (int64_t c = 0; c < in->sizes[1]; c++) {
        int64_t index[DYCL_MAX_RANK] = {0};
        dycl_number_sum sum = {0}, squares = {0}, unused = {0};
        index[1] = c;
        channel_sums(r, o[0], o[0], index, (dycl_number){0}, &sum, &unused);
        dycl_number mean = {sum.sum / n, 0, sum.error / n};
        int64_t sizes[DYCL_MAX_RANK], at[DYCL_MAX_RANK] = {0};
        channel_sizes(in, sizes);
        do {
            memcpy(index, at, sizeof at);
            index[1] = c;
            dycl_number x = dycl_reference_get(r, o[0], index, in->rank);
            dycl_number centred = {x.f - mean.f, 0, x.error + mean.error + eps * fabs(x.f - mean.f)};
            dycl_number_add_product(&squares, centred, centred);
        } while (dycl_reference_next(at, sizes, in->rank));
        double m2 = squares.sum, of_m2 = squares.error + eps * m2, total = m2 / n + add, of_total = of_m2 / n;
        if (dtype == DYCL_F64) of_m2 += 1e-13 * m2, of_total += 1e-13 * total;
        int unknown = sum.unknown || squares.unknown || !isfinite(mean.f) || !isfinite(m2);
        unknown |= dycl_number_leaves(dtype, sum.magnitude) || dycl_number_leaves(dtype, m2);
        dycl_number y = mean;
        if (attrs[0] == DYCL_BATCH_INVSTD) {
            unknown |= total <= of_total;
            y = (dycl_number){1 / sqrt(total), 0, of_total / (total - of_total) / sqrt(total)};
        } else if (attrs[0] != DYCL_BATCH_MEAN) {
            dycl_number old = dycl_reference_get(r, o[attrs[0] - 1], &c, 1);
            if (attrs[0] == DYCL_BATCH_RUNNING_VAR) y = (dycl_number){m2 / (n - 1), 0, of_m2 / (n - 1)};
            double before = (1 - momentum) * old.f, now = momentum * y.f;
            unknown |= !dycl_number_known(old) || !isfinite(old.f) || !isfinite(momentum);
            y = (dycl_number){before + now, 0,
                              fabs(momentum) * y.error + fabs(1 - momentum) * old.error +
                                  eps * (fabs(before) + fabs(now))};
        }
        dycl_reference_set(r, node->out, &c,
                           unknown || !isfinite(y.f) || !isfinite(y.error) ? dycl_number_unknown()
                                                                           : dycl_number_f(dtype, y.f, y.error));
    }
}

static void batch_norm_back(dycl_reference *r, const dycl_node *node, const uint32_t *o, const int64_t *attrs) {
    const dycl_value *x = dycl_reference_value(r, o[1]);
    dycl_dtype dtype = (dycl_dtype)x->dtype;
    double n = (double)(dycl_value_numel(x) / x->sizes[1]), eps = 2 * dycl_number_epsilon(dtype);
    for (int64_t c = 0; c < x->sizes[1]; c++) {
        int64_t index[DYCL_MAX_RANK] = {0}, sizes[DYCL_MAX_RANK], at[DYCL_MAX_RANK] = {0};
        dycl_number_sum plain = {0}, along = {0};
        dycl_number m = dycl_reference_get(r, o[2], &c, 1), s = dycl_reference_get(r, o[3], &c, 1), w = {1, 0, 0};
        if (o[4] != DYCL_NONE) w = dycl_reference_get(r, o[4], &c, 1);
        index[1] = c;
        channel_sums(r, o[0], o[1], index, m, &plain, &along);
        dycl_number sum = {plain.sum, 0, plain.error}, dot = {along.sum, 0, along.error};
        int unknown = plain.unknown || along.unknown || !dycl_number_known(m) || !dycl_number_known(s) ||
                      !dycl_number_known(w) || !isfinite(sum.f + dot.f + m.f + s.f + w.f);
        if (attrs[0]) {
            dycl_number y = attrs[0] == 1 ? dycl_number_product(dot, s, eps) : sum;
            dycl_reference_set(r, node->out, &c, unknown ? dycl_number_unknown() : dycl_number_f(dtype, y.f, y.error));
            continue;
        }
        dycl_number mean = dycl_number_product(sum, (dycl_number){1 / n, 0, 0}, eps),
                    scale = dycl_number_product(s, w, eps);
        dycl_number slope = dycl_number_product(dycl_number_product(dycl_number_product(dot, s, eps), s, eps),
                                                (dycl_number){1 / n, 0, 0}, eps);
        channel_sizes(x, sizes);
        do {
            memcpy(index, at, sizeof at);
            index[1] = c;
            dycl_number g = dycl_reference_get(r, o[0], index, x->rank),
                        e = dycl_reference_get(r, o[1], index, x->rank);
            dycl_number back = dycl_number_product(dycl_number_difference(e, m, eps), slope, eps);
            dycl_number y = dycl_number_product(dycl_number_difference(dycl_number_difference(g, mean, eps), back, eps),
                                                scale, eps);
            int leaves = unknown || !isfinite(y.f) || !isfinite(y.error) || dycl_number_leaves(dtype, fabs(slope.f)) ||
                         dycl_number_leaves(dtype, fabs(scale.f));
            dycl_reference_set(r, node->out, index,
                               leaves ? dycl_number_unknown() : dycl_number_f(dtype, y.f, y.error));
        } while (dycl_reference_next(at, sizes, x->rank));
    }
}

dycl_status dycl_reference_batch(dycl_reference *r, const dycl_node *node, const uint32_t *operands,
                                 const int64_t *attrs) {
    (node->op == DYCL_OP_batch_stats ? batch_stats : batch_norm_back)(r, node, operands, attrs);
    return DYCL_OK;
}
