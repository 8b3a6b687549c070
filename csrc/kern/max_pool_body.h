/* Body of max pooling. Before including: DYCL_LEVEL, DYCL_MAX_POOL_TABLE. */
#include <string.h>

#include "kern/max_pool.h"
#include "kern/rowvec.h"

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

/* Every other element of two vectors' worth. */
static inline vf evens(const float *a) {
    vf low = vf_load(a), high = vf_load(a + vf_lanes);
#if DYCL_LEVEL == 2
    return __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
#elif DYCL_LEVEL == 1
    return __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14);
#else
    return __builtin_shufflevector(low, high, 0, 2, 4, 6);
#endif
}

/* Puts the largest of each window's part of one row into `best`. Rows are read two vectors past the last window. */
static void along(float *best, const float *row, int64_t count, int64_t kernel, int64_t dilation, int64_t stride) {
    if (stride > 2) {
        for (int64_t i = 0; i < count; i++)
            for (int64_t k = 0; k < kernel; k++) {
                float value = row[i * stride + k * dilation];
                if (value > best[i] || value != value) best[i] = value;
            }
        return;
    }
    for (int64_t i = 0; i < count; i += vf_lanes) {
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

/* ---- Back */

/* `along` that also notes where the largest is, counted from where the window meets the plane: `at` and the tap. */
static void along_where(float *best, int32_t *where, const float *row, int64_t count, int64_t kernel, int64_t stride,
                        int32_t at) {
    if (stride > 2) {
        for (int64_t i = 0; i < count; i++)
            for (int32_t k = 0; k < (int32_t)kernel; k++) {
                float value = row[i * stride + k];
                if (value > best[i] || value != value) best[i] = value, where[i] = at + k;
            }
        return;
    }
    for (int64_t i = 0; i < count; i += vf_lanes) {
        vf most = vf_load(best + i);
        vf_int place;
        memcpy(&place, where + i, sizeof place);
        const float *from = row + i * stride;
        for (int32_t k = 0; k < (int32_t)kernel; k++, from++) {
            vf value = stride == 1 ? vf_load(from) : evens(from);
            vf_int wins = (value > most) | (value != value);
            most = vf_select(wins, value, most);
            place = (wins & ((at + k) - (vf_int){0})) | (~wins & place);
        }
        vf_store(best + i, most);
        memcpy(where + i, &place, sizeof place);
    }
}

/* So many windows of a row of the result, in one piece. */
static void piece_back(float *out, const float *gradient, const float *in, const dycl_max_pool *p, taps ys,
                       int64_t begin, int64_t count) {
    float row[COLUMNS + 3 * vf_lanes], best[COLUMNS + vf_lanes];
    int32_t where[COLUMNS + vf_lanes];
    const int64_t stride = p->stride[1], from = begin * stride - p->pad[1], width = p->w;
    int64_t room = (count - 1) * stride + p->kernel[1] + 3 * vf_lanes;
    int64_t first = from < 0 ? -from : 0, end = width - from < room ? width - from : room;
    if (end < first) end = first;
    for (int64_t i = 0; i < first; i++) row[i] = -INFINITY;
    for (int64_t i = end; i < room; i++) row[i] = -INFINITY;
    for (int64_t i = 0; i < count + vf_lanes; i++) {
        best[i] = -INFINITY;
        where[i] = 0;
    }
    for (int64_t i = 0; i < count && from + i * stride < 0; i++) where[i] -= (int32_t)(from + i * stride);
    for (int64_t y = ys.first; y < ys.end; y++) {
        memcpy(row + first, in + (ys.origin + y) * width + from + first, (size_t)(end - first) * sizeof *row);
        along_where(best, where, row, count, p->kernel[1], stride, (int32_t)((y - ys.first) * width));
    }
    int64_t origin = (ys.origin + ys.first) * width + from;
    for (int64_t i = 0; i < count; i++) out[origin + i * stride + where[i]] += gradient[i];
}

static void wide_row_back(float *out, const float *gradient, const float *in, const dycl_max_pool *p, taps ys) {
    for (int64_t ox = 0; ox < p->ow; ox++) {
        const taps xs = taps_of(p, 1, ox);
        int64_t found = (ys.origin + ys.first) * p->w + xs.origin + xs.first;
        float best = -INFINITY;
        for (int64_t y = ys.first; y < ys.end; y++)
            for (int64_t x = xs.first; x < xs.end; x++) {
                int64_t at = (ys.origin + y) * p->w + xs.origin + x;
                if (in[at] > best || in[at] != in[at]) best = in[at], found = at;
            }
        out[found] += gradient[ox];
    }
}

/* Window by window in the result's order, in which torch adds. */
static void plane_back(float *out, const float *gradient, const float *in, const dycl_max_pool *p) {
    const int64_t many = p->kernel[1] > COLUMNS ? 0 : (COLUMNS - p->kernel[1]) / p->stride[1] + 1;
    memset(out, 0, (size_t)(p->h * p->w) * sizeof *out);
    for (int64_t oy = 0; oy < p->oh; oy++, gradient += p->ow) {
        const taps ys = taps_of(p, 0, oy);
        if (!many) wide_row_back(out, gradient, in, p, ys);
        for (int64_t begin = 0; many && begin < p->ow; begin += many) {
            int64_t count = p->ow - begin < many ? p->ow - begin : many;
            piece_back(out, gradient + begin, in, p, ys, begin, count);
        }
    }
}

const dycl_max_pool_table DYCL_MAX_POOL_TABLE = {pixels, plane, plane_back};
