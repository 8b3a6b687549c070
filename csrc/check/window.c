#include "check/reference.h"

#include <math.h>
#include <string.h>

/* Convolutions, pooling and resampling: windows over images [n, c, h, w]. */

/* ---- Convolutions. attrs: stride h w, padding h w, dilation h w, groups, (transposed: output padding h w) */

/* The input position that window element `tap` of output position `at` sees along dimension d; -1: none. */
static int64_t seen(const dycl_node *node, const int64_t *attrs, int d, int64_t at, int64_t tap, int64_t size) {
    int64_t stride = attrs[d], padding = attrs[2 + d], dilation = attrs[4 + d], from;
    if (node->op == DYCL_OP_conv2d) {
        from = at * stride - padding + tap * dilation;
    } else {
        from = at + padding - tap * dilation;
        if (from % stride) return -1;
        from /= stride;
    }
    return from >= 0 && from < size ? from : -1;
}

/* What element (y, z) of the window adds to the sum of an output element, over all channels of its group. */
static void add_tap(dycl_number_sum *s, const dycl_reference *r, const dycl_node *node, const int64_t *attrs,
                    const uint32_t *o, const int64_t *index, int64_t y, int64_t z) {
    const dycl_value *x = dycl_reference_value(r, o[0]), *out = dycl_reference_value(r, node->out);
    int transposed = node->op == DYCL_OP_conv_transpose2d;
    int64_t per_in = x->sizes[1] / attrs[6], per_out = out->sizes[1] / attrs[6], first = index[1] / per_out * per_in,
            x_step, w_step;
    int64_t p[4] = {index[0], first, seen(node, attrs, 0, index[2], y, x->sizes[2]),
                    seen(node, attrs, 1, index[3], z, x->sizes[3])};
    int64_t q[4] = {transposed ? first : index[1], transposed ? index[1] % per_out : 0, y, z};
    const dycl_number *weights = dycl_reference_line(r, o[1], q, 4, transposed ? 0 : 1, &w_step);
    if (p[2] < 0 || p[3] < 0) { /* some implementations multiply padding, too */
        for (int64_t c = 0; c < per_in; c++)
            s->unknown |= !isfinite(weights[c * w_step].f) || !dycl_number_known(weights[c * w_step]);
        return;
    }
    const dycl_number *from = dycl_reference_line(r, o[0], p, 4, 1, &x_step);
    for (int64_t c = 0; c < per_in; c++) dycl_number_add_product(s, from[c * x_step], weights[c * w_step]);
}

dycl_status dycl_reference_conv(dycl_reference *r, const dycl_node *node, const uint32_t *o, const int64_t *attrs) {
    const dycl_value *w = dycl_reference_value(r, o[1]), *out = dycl_reference_value(r, node->out);
    int64_t index[4] = {0};
    do {
        dycl_number_sum s = {0};
        if (o[2] != DYCL_NONE) {
            dycl_number bias = dycl_reference_get(r, o[2], &index[1], 1);
            dycl_number_add(&s, bias.f, bias.error);
            s.unknown |= !dycl_number_known(bias);
        }
        for (int64_t y = 0; y < w->sizes[2]; y++)
            for (int64_t z = 0; z < w->sizes[3]; z++) add_tap(&s, r, node, attrs, o, index, y, z);
        s.error += s.magnitude * 1e-5; /* a batch norm folded into the weights, Winograd's transforms */
        if (r->graph->options & DYCL_OPTION_BF16) s.error += s.magnitude / 64;
        dycl_reference_set(r, node->out, index, dycl_number_total(DYCL_F32, &s, 1));
    } while (dycl_reference_next(index, out->sizes, 4));
    return DYCL_OK;
}

/* The gradient of a weight. attrs: as conv2d's, then kernel h w */
dycl_status dycl_reference_unconv(dycl_reference *r, const dycl_node *node, const uint32_t *o, const int64_t *attrs) {
    const dycl_value *x = dycl_reference_value(r, o[0]), *g = dycl_reference_value(r, o[1]);
    const dycl_value *out = dycl_reference_value(r, node->out);
    const dycl_node like = {.op = DYCL_OP_conv2d};
    int64_t index[4] = {0}, per_out = g->sizes[1] / attrs[6];
    do {
        dycl_number_sum s = {0};
        int64_t at[4] = {0}, channel = index[0] / per_out * out->sizes[1] + index[1];
        for (at[0] = 0; at[0] < g->sizes[0]; at[0]++)
            for (at[2] = 0; at[2] < g->sizes[2]; at[2]++)
                for (at[3] = 0; at[3] < g->sizes[3]; at[3]++) {
                    int64_t from[4] = {at[0], channel, seen(&like, attrs, 0, at[2], index[2], x->sizes[2]),
                                       seen(&like, attrs, 1, at[3], index[3], x->sizes[3])};
                    at[1] = index[0];
                    dycl_number e = dycl_reference_get(r, o[1], at, 4);
                    if (from[2] >= 0 && from[3] >= 0)
                        dycl_number_add_product(&s, dycl_reference_get(r, o[0], from, 4), e);
                    else /* some implementations multiply padding, too */
                        s.unknown |= !isfinite(e.f) || !dycl_number_known(e);
                }
        s.error += s.magnitude * 1e-5;
        dycl_reference_set(r, node->out, index, dycl_number_total(DYCL_F32, &s, 1));
    } while (dycl_reference_next(index, out->sizes, 4));
    return DYCL_OK;
}

/* ---- Pooling */

typedef struct {
    int64_t from, to, step, padded; /* padded: positions that count with the padding */
} pool_range;

static pool_range range_of(const dycl_node *node, const int64_t *attrs, int d, int64_t at, int64_t size) {
    if (node->op == DYCL_OP_adaptive_avg_pool2d || node->op == DYCL_OP_adaptive_avg_pool2d_back)
        return (pool_range){at * size / attrs[d], ((at + 1) * size + attrs[d] - 1) / attrs[d], 1, 0};
    int64_t kernel = attrs[d], step = node->op == DYCL_OP_max_pool2d ? attrs[6 + d] : 1, padding = attrs[4 + d],
            from = at * attrs[2 + d] - padding;
    int64_t to = from + (kernel - 1) * step + 1, end = to < size + padding ? to : size + padding;
    return (pool_range){from, to, step, end - from};
}

dycl_status dycl_reference_pool(dycl_reference *r, const dycl_node *node, const uint32_t *o, const int64_t *attrs) {
    const dycl_value *x = dycl_reference_value(r, o[0]), *out = dycl_reference_value(r, node->out);
    int64_t index[4] = {0};
    do {
        pool_range v = range_of(node, attrs, 0, index[2], x->sizes[2]),
                   h = range_of(node, attrs, 1, index[3], x->sizes[3]);
        dycl_number_sum s = {0};
        double most = -INFINITY, worst = 0;
        for (int64_t y = v.from; y < v.to; y += v.step)
            for (int64_t z = h.from; z < h.to; z += h.step) {
                if (y < 0 || z < 0 || y >= x->sizes[2] || z >= x->sizes[3]) continue;
                dycl_number e = dycl_reference_get(r, o[0], (int64_t[]){index[0], index[1], y, z}, 4);
                s.unknown |= !dycl_number_known(e);
                dycl_number_add(&s, e.f, e.error);
                most = isnan(e.f) || isnan(most) ? NAN : fmax(most, e.f);
                worst = fmax(worst, e.error);
            }
        int64_t by = node->op == DYCL_OP_avg_pool2d && attrs[7] ? v.padded * h.padded : s.terms;
        dycl_number y = node->op == DYCL_OP_max_pool2d
                            ? (s.unknown ? dycl_number_unknown() : dycl_number_f(DYCL_F32, most, worst))
                            : dycl_number_total(DYCL_F32, &s, 1 / (double)by);
        dycl_reference_set(r, node->out, index, y);
    } while (dycl_reference_next(index, out->sizes, 4));
    return DYCL_OK;
}

/* Which element of a window is the largest (the first one, or the last NaN), as its position in the plane. -1: that
 * hangs on rounding. */
static int64_t largest_of(dycl_reference *r, uint32_t x, const int64_t *index, pool_range v, pool_range h) {
    const int64_t *sizes = dycl_reference_value(r, x)->sizes;
    int64_t found = -1;
    dycl_number most = {.f = -INFINITY};
    int unsure = 0;
    for (int64_t y = v.from < 0 ? 0 : v.from; y < v.to && y < sizes[2]; y++)
        for (int64_t z = h.from < 0 ? 0 : h.from; z < h.to && z < sizes[3]; z++) {
            dycl_number e = dycl_reference_get(r, x, (int64_t[]){index[0], index[1], y, z}, 4);
            double reach = e.error + most.error;
            unsure |= !dycl_number_known(e) || (reach > 0 && !(fabs(e.f - most.f) > reach));
            if (found >= 0 && !(e.f > most.f) && !isnan(e.f)) continue;
            found = y * sizes[3] + z;
            most = e;
        }
    return unsure ? -1 : found;
}

/* By how much a window's sum is divided. */
static double elements_of(const dycl_node *node, const int64_t *attrs, pool_range v, pool_range h,
                          const int64_t *sizes) {
    if (node->op == DYCL_OP_avg_pool2d_back && attrs[7]) return (double)(v.padded * h.padded);
    int64_t top = v.from > 0 ? v.from : 0, left = h.from > 0 ? h.from : 0;
    int64_t bottom = v.to < sizes[2] ? v.to : sizes[2], right = h.to < sizes[3] ? h.to : sizes[3];
    return (double)((bottom - top) * (right - left));
}

dycl_status dycl_reference_unpool(dycl_reference *r, const dycl_node *node, const uint32_t *o, const int64_t *attrs) {
    const dycl_value *x = dycl_reference_value(r, o[0]), *g = dycl_reference_value(r, o[1]);
    const int is_max = node->op == DYCL_OP_max_pool2d_back;
    const dycl_node like = {.op = is_max ? DYCL_OP_max_pool2d : node->op};
    int64_t index[4] = {0};
    do {
        dycl_number_sum s = {0};
        for (int64_t y = 0; y < g->sizes[2]; y++) {
            pool_range v = range_of(&like, attrs, 0, y, x->sizes[2]);
            if (index[2] < v.from || index[2] >= v.to) continue;
            for (int64_t z = 0; z < g->sizes[3]; z++) {
                pool_range h = range_of(&like, attrs, 1, z, x->sizes[3]);
                if (index[3] < h.from || index[3] >= h.to) continue;
                int64_t at = is_max ? largest_of(r, o[0], index, v, h) : 0;
                s.unknown |= at < 0;
                if (is_max && at != index[2] * x->sizes[3] + index[3]) continue;
                dycl_number e = dycl_reference_get(r, o[1], (int64_t[]){index[0], index[1], y, z}, 4);
                double by = is_max ? 1 : elements_of(node, attrs, v, h, x->sizes);
                s.unknown |= !dycl_number_known(e);
                dycl_number_add(&s, e.f / by, e.error / by + (is_max ? 0 : fabs(e.f / by) * 1e-7));
            }
        }
        dycl_reference_set(r, node->out, index, dycl_number_total(DYCL_F32, &s, 1));
    } while (dycl_reference_next(index, x->sizes, 4));
    return DYCL_OK;
}

/* ---- Resampling. attrs: kind, align corners, output h w, scale h w */

typedef struct {
    int count;
    int64_t at[4];
    double weight[4];
    int unsure; /* which element is nearest hangs on rounding */
} taps;

static double cubic(double x) { /* Keys' convolution with a = -0.75 */
    const double a = -0.75;
    x = fabs(x);
    return x <= 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

static int64_t inside(int64_t i, int64_t size) { return i < 0 ? 0 : i < size ? i : size - 1; }

static taps taps_of(const int64_t *attrs, int d, int64_t i, int64_t in) {
    int64_t out = attrs[2 + d];
    if (d == 0 && attrs[1] & 2) return (taps){.count = 1, .at = {i}, .weight = {1}};
    int align = (int)(attrs[1] & 1);
    double scale = dycl_attr_f64(attrs[4 + d]), step = align ? (out > 1 ? (double)(in - 1) / (double)(out - 1) : 0)
                                                       : scale > 0 ? 1 / scale
                                                                   : (double)in / (double)out;
    taps t = {.count = 1, .weight = {1}};
    if (attrs[0] == DYCL_RESIZE_NEAREST || attrs[0] == DYCL_RESIZE_NEAREST_EXACT) {
        double at = ((double)i + (attrs[0] == DYCL_RESIZE_NEAREST_EXACT ? 0.5 : 0)) * step;
        t.unsure = fabs(at - nearbyint(at)) < 1e-5 * (1 + at) && at > 1e-9 && step != 1;
        t.at[0] = inside((int64_t)floor(at), in);
        return t;
    }
    double at = align ? step * (double)i : step * ((double)i + 0.5) - 0.5;
    if (attrs[0] == DYCL_RESIZE_LINEAR) {
        if (at < 0) at = 0;
        if (in == out) at = (double)i;
        double first = fmin(floor(at), (double)(in - 1)), past = fmin(at - first, 1);
        t = (taps){2, {(int64_t)first, inside((int64_t)first + 1, in)}, {1 - past, past}, 0};
        return t;
    }
    double first = fmin(floor(at), (double)(in - 1)), past = fmin(fmax(at - first, 0), 1);
    t.count = 4;
    for (int k = 0; k < 4; k++) {
        t.at[k] = inside((int64_t)first + k - 1, in);
        t.weight[k] = cubic(past - (k - 1));
    }
    return t;
}

dycl_status dycl_reference_resize(dycl_reference *r, const dycl_node *node, const uint32_t *o, const int64_t *attrs) {
    const dycl_value *x = dycl_reference_value(r, o[0]), *out = dycl_reference_value(r, node->out);
    int64_t index[4] = {0};
    do {
        taps v = taps_of(attrs, 0, index[2], x->sizes[2]), h = taps_of(attrs, 1, index[3], x->sizes[3]);
        dycl_number_sum s = {.unknown = v.unsure || h.unsure};
        double sizes = 0;
        for (int i = 0; i < v.count; i++)
            for (int j = 0; j < h.count; j++) {
                dycl_number e = dycl_reference_get(r, o[0], (int64_t[]){index[0], index[1], v.at[i], h.at[j]}, 4);
                dycl_number_add_product(&s, e, (dycl_number){v.weight[i] * h.weight[j], 0, 0});
                if (!isfinite(e.f) && h.count > 1) s.unknown = 1; /* times a weight of 0 or nearly so */
                sizes += fabs(e.f);
            }
        if (h.count > 1)
            s.error +=
                sizes * dycl_number_epsilon(DYCL_F32) * (double)(1 + x->sizes[2] + x->sizes[3]); /* of positions */
        dycl_number y = v.count * h.count == 1 && !s.unknown
                            ? dycl_reference_get(r, o[0], (int64_t[]){index[0], index[1], v.at[0], h.at[0]}, 4)
                            : dycl_number_total(DYCL_F32, &s, 1);
        dycl_reference_set(r, node->out, index, y);
    } while (dycl_reference_next(index, out->sizes, 4));
    return DYCL_OK;
}
