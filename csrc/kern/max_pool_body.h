/* Body of max pooling. Before including: DYCL_LEVEL, DYCL_MAX_POOL_TABLE. */
#include <string.h>

#include "kern/max_pool.h"
#include "kern/turns.h"

/* The taps of a window that lie inside: [first, end) of those numbered from 0, and where tap 0 is. */
typedef struct {
    int64_t first, end, origin;
} taps;

static taps taps_of(const dycl_max_pool *p, int axis, int64_t o) {
    int64_t size = axis ? p->w : p->h, dilation = p->dilation[axis];
    taps t = {0, p->kernel[axis], o * p->stride[axis] - p->pad[axis]};
    if (t.origin < 0) t.first = (-t.origin + dilation - 1) / dilation;
    if (t.origin + (t.end - 1) * dilation >= size)
        t.end = size > t.origin ? (size - t.origin + dilation - 1) / dilation : 0;
    if (t.first > t.end) t.first = t.end;
    return t;
}

static inline vf larger(vf x, vf most) { return vf_nan_wins(x, most, vf_max(x, most)); }

static void pixel(float *out, const float *image, const dycl_max_pool *p, taps ys, taps xs) {
    const vf low = vf_set(-INFINITY);
    const int64_t down = p->dilation[0] * p->w * p->c, right = p->dilation[1] * p->c;
    const float *first = image + (ys.origin * p->w + xs.origin) * p->c;
    int64_t j = 0;
    for (; j + 4 * vf_lanes <= p->c; j += 4 * vf_lanes) {
        vf a = low, b = low, c = low, d = low;
        for (int64_t y = ys.first; y < ys.end; y++)
            for (int64_t x = xs.first; x < xs.end; x++) {
                const float *at = first + y * down + x * right + j;
                a = larger(vf_load(at), a), b = larger(vf_load(at + vf_lanes), b);
                c = larger(vf_load(at + 2 * vf_lanes), c), d = larger(vf_load(at + 3 * vf_lanes), d);
            }
        vf_store(out + j, a), vf_store(out + j + vf_lanes, b);
        vf_store(out + j + 2 * vf_lanes, c), vf_store(out + j + 3 * vf_lanes, d);
    }
    for (; j < p->c; j += vf_lanes) {
        size_t part = (size_t)(p->c - j < vf_lanes ? p->c - j : vf_lanes);
        vf most = low;
        for (int64_t y = ys.first; y < ys.end; y++)
            for (int64_t x = xs.first; x < xs.end; x++) {
                const float *at = first + y * down + x * right + j;
                most = larger(part == vf_lanes ? vf_load(at) : vf_load_part(at, part, low), most);
            }
        if (part == vf_lanes)
            vf_store(out + j, most);
        else
            vf_store_part(out + j, part, most);
    }
}

static void pixels(float *out, const float *image, const dycl_max_pool *p, int64_t oy) {
    const taps ys = taps_of(p, 0, oy);
    for (int64_t ox = 0; ox < p->ow; ox++) pixel(out + ox * p->c, image, p, ys, taps_of(p, 1, ox));
}

#define COLUMNS 1024

/* A vector of elements that lie so far apart. */
static inline vf apart(const float *a, int64_t stride) {
    vf v = {0};
    if (stride == 1) return vf_load(a);
    if (stride == 2) return evens(a);
    for (int i = 0; i < vf_lanes; i++) v[i] = a[i * stride];
    return v;
}

/* Puts the largest of each window's part of one row into `best`. Rows are read two vectors past the last window. */
static void along(float *best, const float *row, int64_t count, int64_t kernel, int64_t dilation, int64_t stride) {
    int64_t i = 0;
    for (; stride > 2 && i + vf_lanes <= count; i += vf_lanes) {
        vf most = vf_load(best + i);
        const float *at = row + i * stride;
        for (int64_t k = 0; k < kernel; k++, at += dilation) most = larger(apart(at, stride), most);
        vf_store(best + i, most);
    }
    if (stride > 2) {
        for (; i < count; i++)
            for (int64_t k = 0; k < kernel; k++) {
                float value = row[i * stride + k * dilation];
                if (value > best[i] || value != value) best[i] = value;
            }
        return;
    }
    for (; i < count; i += vf_lanes) {
        vf most = vf_load(best + i);
        const float *at = row + i * stride;
        for (int64_t k = 0; k < kernel; k++, at += dilation) most = larger(stride == 1 ? vf_load(at) : evens(at), most);
        vf_store(best + i, most);
    }
}

/* Windows wider than a piece. */
static void wide_row(float *out, const float *in, const dycl_max_pool *p, taps ys) {
    for (int64_t ox = 0; ox < p->ow; ox++) {
        taps xs = taps_of(p, 1, ox);
        float best = -INFINITY;
        for (int64_t y = ys.first; y < ys.end; y++) {
            const float *row = in + (ys.origin + y * p->dilation[0]) * p->w + xs.origin + xs.first * p->dilation[1];
            along(&best, row, 1, xs.end - xs.first, p->dilation[1], 3);
        }
        out[ox] = best;
    }
}

/* In pieces of columns, whose rows are copied with -inf around them. A window's rows come one after the other, as of
 * equal elements the first counts (0 and -0). */
static void plane(float *out, const float *in, const dycl_max_pool *p, int64_t oy_begin, int64_t oy_end) {
    const int64_t stride = p->stride[1], reach = (p->kernel[1] - 1) * p->dilation[1] + 1;
    float row[COLUMNS + 3 * vf_lanes], best[COLUMNS + vf_lanes];
    if (reach > COLUMNS) {
        for (int64_t oy = oy_begin; oy < oy_end; oy++) wide_row(out + oy * p->ow, in, p, taps_of(p, 0, oy));
        return;
    }
    const int64_t many = (COLUMNS - reach) / stride + 1; /* outputs of a piece */
    for (int64_t begin = 0; begin < p->ow; begin += many) {
        int64_t count = p->ow - begin < many ? p->ow - begin : many;
        int64_t from = begin * stride - p->pad[1], room = (count - 1) * stride + reach + 3 * vf_lanes;
        int64_t first = from < 0 ? -from : 0, end = p->w - from < room ? p->w - from : room;
        if (end < first) end = first;
        for (int64_t i = 0; i < first; i++) row[i] = -INFINITY;
        for (int64_t i = end; i < room; i++) row[i] = -INFINITY;
        for (int64_t oy = oy_begin; oy < oy_end; oy++) {
            const taps ys = taps_of(p, 0, oy);
            for (int64_t i = 0; i < count; i += vf_lanes) vf_store(best + i, vf_set(-INFINITY));
            for (int64_t y = ys.first; y < ys.end; y++) {
                const float *line = in + (ys.origin + y * p->dilation[0]) * p->w;
                memcpy(row + first, line + from + first, (size_t)(end - first) * sizeof *row);
                along(best, row, count, p->kernel[1], p->dilation[1], stride);
            }
            memcpy(out + oy * p->ow + begin, best, (size_t)count * sizeof *best);
        }
    }
}

#include "kern/max_pool_back_body.h"
#include "kern/max_pool_pixels_back_body.h"

const dycl_max_pool_table DYCL_MAX_POOL_TABLE = {pixels, plane, plane_back, pixels_back};
