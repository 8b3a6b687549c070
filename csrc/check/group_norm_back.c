#include "check/reference.h"

#include <float.h>
#include <math.h>

/* Gradients of a group norm: with n = (x - mean) scale of a group, and means over it,
 * x's is (g w - mean(g w) - n mean(g w n)) scale, weight's the sum of g n, bias's that of g. */

typedef struct {
    const dycl_reference *r;
    const uint32_t *o;
    int64_t c, inner, channels;
    double add, eps;
    dycl_dtype dtype;
} groups;

static dycl_number at(const groups *s, int which, int64_t image, int64_t channel, int64_t i) {
    const int64_t index[3] = {image, channel, i};
    return dycl_reference_get(s->r, s->o[which], index, 3);
}

static dycl_number weight_of(const groups *s, int64_t channel) {
    return s->o[2] == DYCL_NONE ? (dycl_number){1, 0, 0} : dycl_reference_get(s->r, s->o[2], &channel, 1);
}

static int is_odd(dycl_number x) { return !dycl_number_known(x) || !isfinite(x.f); }

/* The statistics of the group from channel `first` on; a scale that is not known makes all that follows so. */
static void measure(const groups *s, int64_t image, int64_t first, dycl_number *mean, dycl_number *scale) {
    double n = (double)(s->channels * s->inner), sum = 0, sizes = 0, worst = 0, squares = 0, most = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t c = first; c < first + s->channels; c++)
            for (int64_t i = 0; i < s->inner; i++) {
                dycl_number x = at(s, 1, image, c, i);
                if (is_odd(x)) worst = INFINITY;
                if (pass == 0) {
                    sum += x.f, sizes += fabs(x.f), worst = fmax(worst, x.error);
                } else {
                    squares += (x.f - sum / n) * (x.f - sum / n), most = fmax(most, fabs(x.f - sum / n));
                }
            }
    double of_mean = s->eps * (1 + sqrt(n) / 8) * sizes / n + worst, var = squares / n, total = var + s->add;
    double spread = worst + of_mean + s->eps * (sizes / n + most);
    double of_var = 2 * sqrt(var) * spread + spread * spread + s->eps * (1 + sqrt(n) / 8) * var;
    if (s->dtype != DYCL_F64) of_var += FLT_MIN; /* squares that vanish */
    *mean = (dycl_number){sum / n, 0, of_mean};
    *scale = (dycl_number){1 / sqrt(total), 0, of_var / (total - of_var) / sqrt(total)};
    if (!(total > of_var) || !isfinite(scale->f + scale->error) || dycl_number_leaves(s->dtype, squares) ||
        dycl_number_leaves(s->dtype, sizes))
        *scale = dycl_number_unknown();
}

static dycl_number total_of(const groups *s, dycl_number_sum sum) {
    double error = sum.error + s->eps * (2 + (double)sum.terms / 8) * sum.magnitude;
    if (sum.unknown || !isfinite(sum.sum) || dycl_number_leaves(s->dtype, sum.magnitude)) return dycl_number_unknown();
    return (dycl_number){sum.sum, 0, error};
}

static dycl_number rounded(const groups *s, dycl_number y) {
    return is_odd(y) || dycl_number_leaves(s->dtype, fabs(y.f)) ? dycl_number_unknown()
                                                                : dycl_number_f(s->dtype, y.f, y.error);
}

static dycl_number normed(const groups *s, int64_t image, int64_t c, int64_t i, dycl_number mean, dycl_number scale) {
    return dycl_number_product(dycl_number_difference(at(s, 1, image, c, i), mean, s->eps), scale, s->eps);
}

static void back_group(dycl_reference *r, const groups *s, uint32_t out, int64_t image, int64_t first) {
    dycl_number mean, scale, one_of = {1 / (double)(s->channels * s->inner), 0, 0};
    dycl_number_sum plain = {0}, along = {0};
    measure(s, image, first, &mean, &scale);
    int unknown = is_odd(scale);
    for (int64_t c = first; c < first + s->channels; c++)
        for (int64_t i = 0; i < s->inner; i++) {
            dycl_number g = dycl_number_product(at(s, 0, image, c, i), weight_of(s, c), s->eps);
            dycl_number_add(&plain, g.f, g.error);
            dycl_number_add_product(&along, g, normed(s, image, c, i, mean, scale));
            unknown |= is_odd(g);
        }
    dycl_number all = dycl_number_product(total_of(s, plain), one_of, s->eps);
    dycl_number dot = dycl_number_product(total_of(s, along), one_of, s->eps);
    unknown |= is_odd(all) || is_odd(dot);
    for (int64_t c = first; c < first + s->channels; c++)
        for (int64_t i = 0; i < s->inner; i++) {
            const int64_t index[3] = {image, c, i};
            dycl_number g = dycl_number_product(at(s, 0, image, c, i), weight_of(s, c), s->eps);
            dycl_number back = dycl_number_product(normed(s, image, c, i, mean, scale), dot, 2 * s->eps);
            dycl_number y = dycl_number_difference(dycl_number_difference(g, all, s->eps), back, s->eps);
            y = dycl_number_product(y, scale, s->eps);
            dycl_reference_set(r, out, index, unknown ? dycl_number_unknown() : rounded(s, y));
        }
}

static void back_weights(dycl_reference *r, const groups *s, uint32_t out, int64_t images, int is_weight) {
    for (int64_t c = 0; c < s->c; c++) {
        dycl_number_sum sum = {0};
        for (int64_t image = 0; image < images; image++) {
            dycl_number mean = {0, 0, 0}, scale = {1, 0, 0};
            if (is_weight) measure(s, image, c - c % s->channels, &mean, &scale);
            for (int64_t i = 0; i < s->inner; i++) {
                dycl_number g = at(s, 0, image, c, i), n = {1, 0, 0};
                if (is_weight) n = normed(s, image, c, i, mean, scale);
                sum.unknown |= is_odd(g) || is_odd(n) || is_odd(scale);
                dycl_number_add_product(&sum, g, n);
            }
        }
        dycl_reference_set(r, out, &c, rounded(s, total_of(s, sum)));
    }
}

dycl_status dycl_reference_group_back(dycl_reference *r, const dycl_node *node, const uint32_t *o,
                                      const int64_t *attrs) {
    const dycl_value *x = dycl_reference_value(r, o[1]);
    dycl_dtype dtype = (dycl_dtype)x->dtype;
    groups s = {r,
                o,
                x->sizes[1],
                x->sizes[2],
                x->sizes[1] / (attrs[1] ? attrs[1] : 1),
                dycl_attr_f64(attrs[2]),
                dycl_number_epsilon(dtype),
                dtype};
    if (attrs[0]) {
        back_weights(r, &s, node->out, x->sizes[0], attrs[0] == 1);
        return DYCL_OK;
    }
    for (int64_t image = 0; image < x->sizes[0] && s.inner && s.channels; image++)
        for (int64_t first = 0; first < s.c; first += s.channels) back_group(r, &s, node->out, image, first);
    return DYCL_OK;
}
