/* Row operators of one float type; included twice by row_body.h with T, V, N(name), DYCL_COMPENSATED and EXP_MINUS
 * set. */
#include "kern/rowsum_body.h"

#define V_(name)          DYCL_PASTE(V, _##name)
#define DYCL_PASTE(a, b)  DYCL_PASTE_(a, b)
#define DYCL_PASTE_(a, b) a##b
#define LANES             V_(lanes)

/* Layer norm's middle: the sum of squared deviations; out = (a - mean) * scale [* weight] [+ bias]. */
#define NORMALISE(name, STEP, STEP_W, STEP_B, STEP_WB)                                                                 \
    static void N(name)(T * out, const T *a, const T *w, const T *b, size_t n, T mean, T scale) {                      \
        const V m = V_(set)(mean), s = V_(set)(scale);                                                                 \
        size_t i = 0;                                                                                                  \
        (void)m, (void)b;                                                                                              \
        if (w && b) {                                                                                                  \
            for (; i + LANES <= n; i += LANES) {                                                                       \
                V x = V_(load)(a + i), vw = V_(load)(w + i), vb = V_(load)(b + i);                                     \
                V_(store)(out + i, STEP_WB);                                                                           \
            }                                                                                                          \
            if (i < n) {                                                                                               \
                size_t part = n - i;                                                                                   \
                V x = V_(load_part)(a + i, part, s), vw = V_(load_part)(w + i, part, s),                               \
                  vb = V_(load_part)(b + i, part, s);                                                                  \
                V_(store_part)(out + i, part, STEP_WB);                                                                \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        for (; i + LANES <= n; i += LANES) {                                                                           \
            V x = V_(load)(a + i);                                                                                     \
            if (w) {                                                                                                   \
                V vw = V_(load)(w + i);                                                                                \
                x = STEP_W;                                                                                            \
            } else if (b) {                                                                                            \
                V vb = V_(load)(b + i);                                                                                \
                x = STEP_B;                                                                                            \
            } else {                                                                                                   \
                x = STEP;                                                                                              \
            }                                                                                                          \
            V_(store)(out + i, x);                                                                                     \
        }                                                                                                              \
        if (i < n) {                                                                                                   \
            size_t part = n - i;                                                                                       \
            V x = V_(load_part)(a + i, part, s);                                                                       \
            if (w) {                                                                                                   \
                V vw = V_(load_part)(w + i, part, s);                                                                  \
                x = STEP_W;                                                                                            \
            } else if (b) {                                                                                            \
                V vb = V_(load_part)(b + i, part, s);                                                                  \
                x = STEP_B;                                                                                            \
            } else {                                                                                                   \
                x = STEP;                                                                                              \
            }                                                                                                          \
            V_(store_part)(out + i, part, x);                                                                          \
        }                                                                                                              \
    }
NORMALISE(normalise, (x - m) * s, (x - m) * s * vw, V_(fma)(x - m, s, vb), V_(fma)((x - m) * s, vw, vb))
#undef NORMALISE

static void N(row_layer_norm)(void *dst, const void *a, const void *b, const void *c, size_t n, double eps) {
    if (n == 0) return;
    T mean;
    double variance = N(deviation)(a, n, &mean) / (double)n;
    N(normalise)(dst, a, b, c, n, mean, (T)(1 / sqrt(variance + eps)));
}

static void N(row_rms_norm)(void *dst, const void *a, const void *b, const void *c, size_t n, double eps) {
    (void)c;
    if (n == 0) return;
    double square = N(sum_square)(a, 0, n) / (double)n;
    N(normalise)(dst, a, b, NULL, n, 0, (T)(1 / sqrt(square + eps)));
}

/* (g - plain - (x - mean) along) scale */
static void N(through_norm)(T *out, const T *g, const T *x, size_t n, T mean, T plain, T along, T scale) {
    const V m = V_(set)(mean), p = V_(set)(plain), f = V_(set)(-along), s = V_(set)(scale);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) V_(store)(out + i, V_(fma)(V_(load)(x + i) - m, f, V_(load)(g + i) - p) * s);
    if (i < n) {
        size_t part = n - i;
        V_(store_part)
        (out + i, part, V_(fma)(V_(load_part)(x + i, part, m) - m, f, V_(load_part)(g + i, part, p) - p) * s);
    }
}

static void N(row_layer_norm_back)(void *dst, const void *a, const void *b, const void *c, size_t n, double eps) {
    double sums[2], count = (double)n;
    T mean;
    (void)c;
    if (n == 0) return;
    double square = 1 / (N(deviation)(b, n, &mean) / count + eps);
    N(paired_sums)(sums, a, b, mean, n);
    N(through_norm)(dst, a, b, n, mean, (T)(sums[0] / count), (T)(sums[1] / count * square), (T)sqrt(square));
}

static void N(row_rms_norm_back)(void *dst, const void *a, const void *b, const void *c, size_t n, double eps) {
    double sums[2], count = (double)n;
    (void)c;
    if (n == 0) return;
    double square = 1 / (N(sum_square)(b, 0, n) / count + eps);
    N(paired_sums)(sums, a, b, 0, n);
    N(through_norm)(dst, a, b, n, 0, 0, (T)(sums[1] / count * square), (T)sqrt(square));
}

/* The accumulator is a double whatever the dtype, as torch's: results agree to the bit. */
static void N(row_cumsum)(void *dst, const void *a, const void *b, const void *c, size_t n, double eps) {
    const T *in = a;
    T *out = dst;
    double sum = 0;
    (void)b, (void)c, (void)eps;
    for (size_t i = 0; i < n; i++) out[i] = (T)(sum += (double)in[i]);
}

/* Sum of e^(x - max), each term stored to out when out is not NULL. -inf as max makes every term NaN, as in torch. */
static inline double N(sum_exp)(T *out, const T *a, T max, size_t n) {
    const V m = V_(set)(max), zero = {0};
    dycl_running_sum total = {0, 0};
    while (n > 0) {
        size_t block = n < DYCL_SUM_BLOCK ? n : DYCL_SUM_BLOCK, i = 0;
        V s0 = zero, s1 = zero;
        for (; i + 2 * LANES <= block; i += 2 * LANES) {
            V e0 = EXP_MINUS(a + i, LANES, m), e1 = EXP_MINUS(a + i + LANES, LANES, m);
            if (out) V_(store)(out + i, e0), V_(store)(out + i + LANES, e1);
            s0 += e0, s1 += e1;
        }
        for (; i < block; i += LANES) {
            size_t part = block - i;
            if (part >= (size_t)LANES) {
                V e = EXP_MINUS(a + i, LANES, m);
                if (out) V_(store)(out + i, e);
                s0 += e;
            } else {
                V e = EXP_MINUS(a + i, part, m);
                if (out) V_(store_part)(out + i, part, e);
                s1 += e;
            }
        }
        N(block_add)(&total, s0 + s1);
        a += block, n -= block;
        if (out) out += block;
    }
    return dycl_sum_value(total);
}

static void N(row_softmax)(void *dst, const void *a, const void *b, const void *c, size_t n, double eps) {
    int bad; /* needs no look: a NaN element makes its own term, then the sum, then all NaN */
    T *out = dst;
    (void)b, (void)c, (void)eps;
    if (n == 0) return;
    T max = N(largest)(a, n, &bad);
    const V scale = V_(set)(1 / (T)N(sum_exp)(out, a, max, n)); /* as below: where one element is all of it, 1 */
    size_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        V x = V_(load)(out + i) * scale, y = V_(load)(out + i + LANES) * scale;
        V_(store)(out + i, x), V_(store)(out + i + LANES, y);
    }
    for (; i + LANES <= n; i += LANES) V_(store)(out + i, V_(load)(out + i) * scale);
    if (i < n) V_(store_part)(out + i, n - i, V_(load_part)(out + i, n - i, scale) * scale);
}

/* The sum is rounded before its logarithm, as torch's: where one element is all of it, 0. */
static void N(row_log_softmax)(void *dst, const void *operand, const void *b, const void *c, size_t n, double eps) {
    int bad;
    T *out = dst;
    const T *a = operand;
    (void)b, (void)c, (void)eps;
    if (n == 0) return;
    T max = N(largest)(a, n, &bad);
    const V m = V_(set)(max), log_sum = V_(set)((T)log((T)N(sum_exp)(NULL, a, max, n)));
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) V_(store)(out + i, V_(load)(a + i) - m - log_sum);
    if (i < n) V_(store_part)(out + i, n - i, V_(load_part)(a + i, n - i, m) - m - log_sum);
}

/* (g - sum(g y)) y */
static void N(row_softmax_back)(void *dst, const void *a, const void *b, const void *c, size_t n, double eps) {
    const T *g = a, *y = b;
    T *out = dst;
    double sums[2];
    (void)c, (void)eps;
    N(paired_sums)(sums, g, y, 0, n);
    const V sum = V_(set)((T)sums[1]);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) V_(store)(out + i, (V_(load)(g + i) - sum) * V_(load)(y + i));
    if (i < n) {
        size_t part = n - i;
        V_(store_part)(out + i, part, (V_(load_part)(g + i, part, sum) - sum) * V_(load_part)(y + i, part, sum));
    }
}

/* g - e^y sum(g) */
static void N(row_log_softmax_back)(void *dst, const void *a, const void *b, const void *c, size_t n, double eps) {
    const T *g = a, *y = b;
    T *out = dst;
    (void)c, (void)eps;
    if (n == 0) return;
    const V zero = {0}, sum = V_(set)((T)N(sum)(g, 0, n));
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) V_(store)(out + i, V_(load)(g + i) - EXP_MINUS(y + i, LANES, zero) * sum);
    if (i < n) {
        size_t part = n - i;
        V_(store_part)(out + i, part, V_(load_part)(g + i, part, zero) - EXP_MINUS(y + i, part, zero) * sum);
    }
}

#undef LANES
#undef V_
#undef DYCL_PASTE
#undef DYCL_PASTE_
