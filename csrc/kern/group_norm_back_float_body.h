/* Body of what goes back through a group norm, for one dtype. Before including: T, V (its vector), N(name),
 * DYCL_COMPENSATED. */
#include "kern/rowsum_body.h"

#define V_(name)          DYCL_PASTE(V, _##name)
#define DYCL_PASTE(a, b)  DYCL_PASTE_(a, b)
#define DYCL_PASTE_(a, b) a##b
#define LANES             V_(lanes)
#define BLOCK             (size_t)(64 * LANES) /* longer chains of sums would lose too much */

/* ---- Sums of at most BLOCK elements, as vectors whose lanes are not added yet */

static inline V N(vector_sum)(const T *x, size_t n) {
    V a = {0}, b = {0};
    size_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) a += V_(load)(x + i), b += V_(load)(x + i + LANES);
    for (; i + LANES <= n; i += LANES) a += V_(load)(x + i);
    if (i < n) b += V_(load_part)(x + i, n - i, (V){0});
    return a + b;
}

typedef struct {
    V square, plain, along; /* (x - m)^2, g w, g w (x - m) */
} N(triple);

static inline __attribute__((always_inline)) void N(add)(N(triple) * s, V g, V w, V x, V m) {
    V d = x - m, v = g * w;
    s->square = V_(fma)(d, d, s->square), s->plain += v, s->along = V_(fma)(v, d, s->along);
}

/* Of so many rows, side by side. */
static inline __attribute__((always_inline)) void N(vector_sums)(N(triple) * s, const T *g, const T *w, const T *x,
                                                                 int64_t stride, const T *mean, size_t rows, size_t n) {
    const V zero = {0};
    size_t i = 0;
#pragma GCC unroll 4
    for (size_t r = 0; r < rows; r++) s[r] = (N(triple)){zero, zero, zero};
    if (rows == 1) { /* two chains */
        N(triple) o = s[0];
        for (; i + 2 * LANES <= n; i += 2 * LANES) {
            size_t j = i + LANES;
            N(add)(&s[0], V_(load)(g + i), V_(load)(w + i), V_(load)(x + i), V_(set)(mean[0]));
            N(add)(&o, V_(load)(g + j), V_(load)(w + j), V_(load)(x + j), V_(set)(mean[0]));
        }
        s[0] = (N(triple)){s[0].square + o.square, s[0].plain + o.plain, s[0].along + o.along};
    }
    for (; i + LANES <= n; i += LANES)
#pragma GCC unroll 4
        for (size_t r = 0; r < rows; r++) {
            int64_t at = (int64_t)r * stride + (int64_t)i;
            N(add)(&s[r], V_(load)(g + at), V_(load)(w + i), V_(load)(x + at), V_(set)(mean[r]));
        }
    if (i == n) return;
#pragma GCC unroll 4
    for (size_t r = 0; r < rows; r++) {
        int64_t at = (int64_t)r * stride + (int64_t)i;
        V m = V_(set)(mean[r]), part = V_(load_part)(w + i, n - i, zero);
        N(add)(&s[r], V_(load_part)(g + at, n - i, zero), part, V_(load_part)(x + at, n - i, m), m);
    }
}

/* ---- Rows */

typedef struct {
    T mean, plain, along, scale; /* (g w + plain + (x - mean) along) scale */
    int odd;                     /* sums that are infinite or NaN */
} N(row);

static inline N(row) N(row_from)(T mean, double square_sum, double plain, double along, double each, double eps) {
    double square = 1 / (square_sum * each + eps);
    return (N(row)){mean, (T)(-plain * each), (T)(-along * each * square), (T)sqrt(square), !isfinite(plain + along)};
}

/* Whether elements deviate by no more than the mean's own rounding. */
static inline int N(is_level)(double square_sum, T mean, size_t n) {
    return square_sum <= (DYCL_COMPENSATED ? 1e-26 : 1e-10) * (double)n * (double)mean * (double)mean;
}

static void N(row_sums)(double out[3], const T *g, const T *w, const T *x, T mean, size_t n) {
    out[0] = out[1] = out[2] = 0;
    for (size_t i = 0; i < n; i += BLOCK) {
        N(triple) s;
        N(vector_sums)(&s, g + i, w + i, x + i, 0, &mean, 1, n - i < BLOCK ? n - i : BLOCK);
        out[0] += V_(hsum)(s.square), out[1] += V_(hsum)(s.plain), out[2] += V_(hsum)(s.along);
    }
}

static N(row) N(row_of)(const T *g, const T *w, const T *x, size_t n, double eps) {
    double sums[3], sum = 0;
    for (size_t i = 0; i < n; i += BLOCK) sum += V_(hsum)(N(vector_sum)(x + i, n - i < BLOCK ? n - i : BLOCK));
    T mean = (T)(sum / (double)n);
    N(row_sums)(sums, g, w, x, mean, n);
    if (N(is_level)(sums[0], mean, n)) {
        double m2 = N(deviation)(x, n, &mean);
        N(row_sums)(sums, g, w, x, mean, n);
        sums[0] = m2;
    }
    return N(row_from)(mean, sums[0], sums[1], sums[2], 1 / (double)n, eps);
}

/* Four rows of one block. */
static inline __attribute__((always_inline)) void N(four_rows)(N(row) k[4], const T *g, const T *w, const T *x,
                                                               int64_t stride, size_t n, double eps) {
    V v[3][4];
    double sums[3][4];
    const double each = 1 / (double)n;
    T mean[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++) v[0][r] = N(vector_sum)(x + r * stride, n);
    V_(hsum4)(sums[0], v[0]);
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++) mean[r] = (T)(sums[0][r] * each);
#pragma GCC unroll 4
    for (int r = 0; r < 4; r += 2) {
        N(triple) s[2];
        N(vector_sums)(s, g + r * stride, w, x + r * stride, stride, mean + r, 2, n);
#pragma GCC unroll 4
        for (int i = 0; i < 2; i++) v[0][r + i] = s[i].square, v[1][r + i] = s[i].plain, v[2][r + i] = s[i].along;
    }
#pragma GCC unroll 4
    for (int i = 0; i < 3; i++) V_(hsum4)(sums[i], v[i]);
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++)
        k[r] = N(is_level)(sums[0][r], mean[r], n)
                   ? N(row_of)(g + r * stride, w, x + r * stride, n, eps)
                   : N(row_from)(mean[r], sums[0][r], sums[1][r], sums[2][r], each, eps);
}

/* As torch computes it, which makes a difference to infinities only. */
static void N(odd_row)(T *out, const T *g, const T *w, const T *x, N(row) k, size_t n) {
    T all = 0, along = 0, each = 1 / (T)n;
    for (size_t i = 0; i < n; i++) all += g[i] * w[i], along += g[i] * w[i] * x[i];
    T b = (all * k.mean - along) * k.scale * k.scale * k.scale * each, c = -b * k.mean - all * k.scale * each;
    for (size_t i = 0; i < n; i++) out[i] = k.scale * g[i] * w[i] + b * x[i] + c;
}

/* A vector of columns of so many rows; part: so many elements of it, 0: all. */
static inline __attribute__((always_inline)) void N(column)(T *out, const T *g, const T *x, const T *w, int64_t stride,
                                                            size_t rows, const N(row) * k, T *along, T *plain,
                                                            size_t part) {
    const V zero = {0};
    V weight = part ? V_(load_part)(w, part, zero) : V_(load)(w);
    V a = part ? V_(load_part)(along, part, zero) : V_(load)(along);
    V p = part ? V_(load_part)(plain, part, zero) : V_(load)(plain);
#pragma GCC unroll 4
    for (size_t r = 0; r < rows; r++) {
        int64_t at = (int64_t)r * stride;
        V v = part ? V_(load_part)(g + at, part, zero) : V_(load)(g + at);
        V d = (part ? V_(load_part)(x + at, part, zero) : V_(load)(x + at)) - k[r].mean;
        a = V_(fma)(v, d * k[r].scale, a), p += v;
        if (!out) continue;
        V back = V_(fma)(d, V_(set)(k[r].along), V_(fma)(v, weight, V_(set)(k[r].plain))) * k[r].scale;
        if (part)
            V_(store_part)(out + at, part, back);
        else
            V_(store)(out + at, back);
    }
    if (part)
        V_(store_part)(along, part, a), V_(store_part)(plain, part, p);
    else
        V_(store)(along, a), V_(store)(plain, p);
}

static inline __attribute__((always_inline)) void N(some_rows)(T *out, const T *g, const T *x, const T *w,
                                                               int64_t stride, size_t rows, size_t n, double eps,
                                                               T *along, T *plain) {
    N(row) k[DYCL_GROUP_ROWS];
    size_t i = 0;
    if (rows == 4 && n <= BLOCK)
        N(four_rows)(k, g, w, x, stride, n, eps);
    else
        for (size_t r = 0; r < rows; r++) k[r] = N(row_of)(g + (int64_t)r * stride, w, x + (int64_t)r * stride, n, eps);
    for (; i + LANES <= n; i += LANES)
        N(column)(out ? out + i : NULL, g + i, x + i, w + i, stride, rows, k, along + i, plain + i, 0);
    if (i < n) N(column)(out ? out + i : NULL, g + i, x + i, w + i, stride, rows, k, along + i, plain + i, n - i);
    for (size_t r = 0; r < rows && out; r++)
        if (k[r].odd)
            N(odd_row)(out + (int64_t)r * stride, g + (int64_t)r * stride, w, x + (int64_t)r * stride, k[r], n);
}

/* What a group norm gives to its weights in torch is g x - g mean, which is NaN where both are infinite. */
static void N(odd_weights)(T *along, const T *g, const T *x, size_t n, double eps) {
    T mean;
    double scale = 1 / sqrt(N(deviation)(x, n, &mean) / (double)n + eps);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(g[i])) along[i] += (g[i] * x[i] - g[i] * mean) * (T)scale;
}

static void N(rows)(void *out, const void *gradient, const void *from, const void *w, int64_t stride, size_t rows,
                    size_t n, double eps, void *along, void *plain, int layer) {
    const T *g = gradient, *x = from;
    if (out && rows == DYCL_GROUP_ROWS)
        N(some_rows)(out, g, x, w, stride, DYCL_GROUP_ROWS, n, eps, along, plain);
    else
        N(some_rows)(out, g, x, w, stride, rows, n, eps, along, plain);
    if (layer) return;
    for (size_t r = 0; r < rows; r++, g += stride, x += stride)
        if (!isfinite(V_(hsum)(N(vector_sum)(g, n)))) N(odd_weights)(along, g, x, n, eps);
}

/* ---- Planes */

static double N(deviation_of)(double *mean, const void *x, size_t n) {
    T m;
    double m2 = N(deviation)(x, n, &m);
    *mean = (double)m;
    return m2;
}

/* Four planes of one block. */
static inline void N(four_planes)(double *out, const T *g, const T *x, T mean, size_t n) {
    const V zero = {0}, m = V_(set)(mean);
    V plain[4], along[4];
    double sums[2][4];
    for (int p = 0; p < 4; p++, g += n, x += n) {
        size_t i = 0;
        plain[p] = along[p] = zero;
        for (; i + LANES <= n; i += LANES) {
            V v = V_(load)(g + i);
            plain[p] += v, along[p] = V_(fma)(v, V_(load)(x + i) - m, along[p]);
        }
        if (i == n) continue;
        V v = V_(load_part)(g + i, n - i, zero);
        plain[p] += v, along[p] = V_(fma)(v, V_(load_part)(x + i, n - i, m) - m, along[p]);
    }
    V_(hsum4)(sums[0], plain);
    V_(hsum4)(sums[1], along);
    for (int p = 0; p < 4; p++) out[2 * p] = sums[0][p], out[2 * p + 1] = sums[1][p];
}

static void N(sums)(double *out, const void *gradient, const void *from, double m, size_t planes, size_t n) {
    const T *g = gradient, *x = from;
    size_t p = 0;
    for (; n <= BLOCK / 4 && p + 4 <= planes; p += 4) N(four_planes)(out + 2 * p, g + p * n, x + p * n, (T)m, n);
    for (; p < planes; p++) N(paired_sums)(out + 2 * p, g + p * n, x + p * n, (T)m, n);
}

static inline __attribute__((always_inline)) void N(plane)(T *out, const T *g, const T *x, const double k[4],
                                                           size_t n) {
    const T factor = (T)k[0], mean = (T)k[1], along = (T)k[2], shift = (T)k[3];
    const V f = V_(set)(factor), m = V_(set)(mean), a = V_(set)(along), s = V_(set)(shift);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        V_(store)(out + i, V_(fma)(V_(load)(x + i) - m, a, V_(fma)(V_(load)(g + i), f, s)));
    for (; i < n; i++) out[i] = (x[i] - mean) * along + (g[i] * factor + shift);
}

static void N(planes)(void *out, const void *g, const void *x, const double *weight, const double k[4], size_t planes,
                      size_t n) {
    for (size_t p = 0; p < planes; p++) {
        const double of[4] = {k[0] * weight[p], k[1], k[2], k[3]};
        N(plane)((T *)out + p * n, (const T *)g + p * n, (const T *)x + p * n, of, n);
    }
}

#undef V_
#undef DYCL_PASTE
#undef DYCL_PASTE_
#undef LANES
#undef BLOCK
