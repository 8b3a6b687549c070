/* Body of means over windows. Before including: DYCL_LEVEL, DYCL_MEAN_POOL_TABLE. Sums begin with 0, as torch's: of -0
 * alone they are 0. */
#include <string.h>

#include "kern/mean_pool.h"
#include "kern/turns.h"

#define COLUMNS 1024 /* of a row, in a piece */
#define WINDOWS 1024

/* What a window sees along an axis, and by what that divides its sum. */
typedef struct {
    int64_t begin, end, count;
} window;

static window window_of(const dycl_mean_pool *p, int axis, int64_t o) {
    const int64_t size = axis ? p->w : p->h, made = axis ? p->ow : p->oh;
    if (p->adaptive && made == 1) return (window){0, size, size};
    if (p->adaptive) {
        int64_t begin = o * size / made, end = ((o + 1) * size + made - 1) / made;
        return (window){begin, end, end - begin};
    }
    int64_t from = o * p->stride[axis] - p->pad[axis], to = from + p->kernel[axis];
    if (to > size + p->pad[axis]) to = size + p->pad[axis];
    window w = {from > 0 ? from : 0, to < size ? to : size, to - from};
    if (!p->padded) w.count = w.end - w.begin;
    return w;
}

/* Windows that lie one or two apart are taken as vectors. */
static int by_vectors(const dycl_mean_pool *p) { return !p->adaptive && p->stride[1] <= 2 && p->kernel[1] <= COLUMNS; }

/* ---- Planes: rows are added up, then what each window sees of their sum */

typedef struct {
    int64_t begin, end; /* windows of a row */
    int64_t from;       /* the column where the first one begins, padding included */
    int64_t first, to;  /* the columns that they see */
    int32_t left[WINDOWS], right[WINDOWS];
    float count[WINDOWS + vf_lanes];
    float sum[COLUMNS + 3 * vf_lanes];
} piece;

/* As many windows as fit, from `begin` on. */
static void take_piece(piece *b, const dycl_mean_pool *p, int64_t begin) {
    b->begin = b->end = begin;
    for (int64_t i = 0; b->end < p->ow && i < WINDOWS; i++, b->end++) {
        const window x = window_of(p, 1, b->end);
        int64_t from = p->adaptive ? x.begin : b->end * p->stride[1] - p->pad[1];
        int64_t reach = (p->adaptive ? x.end : from + p->kernel[1]);
        if (i == 0) b->from = from, b->first = x.begin;
        if (reach - b->from > COLUMNS) break;
        b->left[i] = (int32_t)(x.begin - b->from), b->right[i] = (int32_t)(x.end - b->from);
        b->count[i] = (float)x.count;
        b->to = x.end;
    }
    for (int64_t i = b->end - begin; i % vf_lanes; i++) b->count[i] = 1;
    memset(b->sum, 0, sizeof b->sum);
}

/* The sum of the rows begin..end of the piece's columns. */
static void add_rows(piece *b, const float *in, int64_t w, int64_t begin, int64_t end) {
    float *sum = b->sum + b->first - b->from;
    const int64_t count = b->to - b->first;
    in += begin * w + b->first;
    for (int64_t i = 0; i < count; i += vf_lanes) {
        vf total = vf_set(0);
        for (int64_t y = 0; y < end - begin; y++) total += load_up_to(in + y * w + i, count - i);
        vf_store(sum + i, total);
    }
}

static double sum_of(const float *a, int64_t count) {
    double total = 0;
    for (int64_t i = 0; i < count;) {
        const int64_t end = count - i < 1024 ? count : i + 1024;
        vf even = vf_set(0), odd = vf_set(0);
        for (; i + 2 * vf_lanes <= end; i += 2 * vf_lanes) even += vf_load(a + i), odd += vf_load(a + i + vf_lanes);
        for (; i < end; i += vf_lanes) even += load_up_to(a + i, end - i);
        total += vf_hsum(even + odd);
    }
    return total;
}

static inline __attribute__((always_inline)) void means_by_vectors(float *out, const piece *b, float rows,
                                                                   int64_t kernel, int64_t stride) {
    const int64_t count = b->end - b->begin;
    for (int64_t i = 0; i < count; i += vf_lanes) {
        const float *at = b->sum + i * stride;
        vf total = vf_set(0);
        for (int64_t k = 0; k < kernel; k++) total += stride == 1 ? vf_load(at + k) : evens(at + k);
        store_up_to(out + i, count - i, total / (vf_load(b->count + i) * rows));
    }
}

static void means(float *out, const piece *b, const dycl_mean_pool *p, float rows) {
    if (by_vectors(p)) {
        if (p->stride[1] == 1)
            means_by_vectors(out, b, rows, p->kernel[1], 1);
        else
            means_by_vectors(out, b, rows, p->kernel[1], 2);
        return;
    }
    for (int64_t i = 0; i < b->end - b->begin; i++) {
        const int64_t width = b->right[i] - b->left[i];
        const float *seen = b->sum + b->left[i];
        float total = 0;
        if (width >= vf_lanes) total = (float)sum_of(seen, width);
        for (int64_t x = 0; x < width && width < vf_lanes; x++) total += seen[x];
        out[i] = total / (b->count[i] * rows);
    }
}

/* A window wider than a piece. */
static float wide_mean(const float *in, const dycl_mean_pool *p, window y, window x) {
    double total = 0;
    if (x.end - x.begin == p->w) {
        total = sum_of(in + y.begin * p->w, (y.end - y.begin) * p->w);
    } else {
        for (int64_t row = y.begin; row < y.end; row++) total += sum_of(in + row * p->w + x.begin, x.end - x.begin);
    }
    return (float)(total / (double)(y.count * x.count));
}

static void planes(float *out, const float *in, const dycl_mean_pool *p, int64_t begin, int64_t end) {
    const double all = (double)(p->h * p->w);
    piece b;
    if (p->adaptive && p->oh == 1 && p->ow == 1) {
        for (; begin < end; begin++) out[begin] = (float)(sum_of(in + begin * p->h * p->w, p->h * p->w) / all);
        return;
    }
    for (int64_t ox = 0; ox < p->ow; ox = b.end) {
        take_piece(&b, p, ox);
        const int is_wide = b.end == ox || p->ow == 1;
        const window x = window_of(p, 1, ox);
        if (is_wide) b.end = ox + 1;
        for (int64_t at = begin; at < end; at++) {
            const float *plane = in + at * p->h * p->w;
            float *made = out + at * p->oh * p->ow + ox;
            for (int64_t oy = 0; oy < p->oh; oy++, made += p->ow) {
                const window y = window_of(p, 0, oy);
                if (is_wide) {
                    *made = wide_mean(plane, p, y, x);
                    continue;
                }
                add_rows(&b, plane, p->w, y.begin, y.end);
                means(made, &b, p, (float)y.count);
            }
        }
    }
}

/* ---- Channels last: vectors of channels. Runs of a window's pixels have sums of their own, which are shorter. */

#define RUN 64

/* A window's runs: the body adds pixel `at` up, `flush` what a run had. */
#define OF_WINDOW(body, flush)                                                                                         \
    for (int64_t row = 0; row < y.end - y.begin; row++) {                                                              \
        const float *at = first + row * p->w * p->c + j;                                                               \
        for (int64_t i = x.begin, stop; i < x.end; i = stop) {                                                         \
            stop = x.end - i < RUN ? x.end : i + RUN;                                                                  \
            for (int64_t k = i; k < stop; k++, at += p->c) {                                                           \
                body;                                                                                                  \
            }                                                                                                          \
            flush;                                                                                                     \
        }                                                                                                              \
    }

static void pixels(float *out, const float *image, const dycl_mean_pool *p, int64_t oy, int64_t begin, int64_t end) {
    const window y = window_of(p, 0, oy);
    const vf zero = vf_set(0);
    for (int64_t ox = 0; ox < p->ow; ox++, out += p->c) {
        const window x = window_of(p, 1, ox);
        const float by = (float)(y.count * x.count), *first = image + (y.begin * p->w + x.begin) * p->c;
        int64_t j = begin;
        for (; j + 4 * vf_lanes <= end; j += 4 * vf_lanes) {
            vf sum0 = zero, sum1 = zero, sum2 = zero, sum3 = zero, a = zero, b = zero, c = zero, d = zero;
            OF_WINDOW((a += vf_load(at), b += vf_load(at + vf_lanes), c += vf_load(at + 2 * vf_lanes),
                       d += vf_load(at + 3 * vf_lanes)),
                      (sum0 += a, sum1 += b, sum2 += c, sum3 += d, a = b = c = d = zero))
            vf_store(out + j, sum0 / by), vf_store(out + j + vf_lanes, sum1 / by);
            vf_store(out + j + 2 * vf_lanes, sum2 / by), vf_store(out + j + 3 * vf_lanes, sum3 / by);
        }
        for (; j < end; j += vf_lanes) {
            vf sum = zero, run = zero;
            OF_WINDOW(run += load_up_to(at, end - j), (sum += run, run = zero))
            store_up_to(out + j, end - j, sum / by);
        }
    }
}
#undef OF_WINDOW

#include "kern/mean_pool_back_body.h"

const dycl_mean_pool_table DYCL_MEAN_POOL_TABLE = {planes, pixels, planes_back, pixels_back};
