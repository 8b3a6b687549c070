/* Reductions and column accumulators of one float type; included twice by red_body.h with T, V, N(name) and
 * DYCL_COMPENSATED set. */
#include "kern/rowsum_body.h"

#define V_(name)          DYCL_PASTE(V, _##name)
#define DYCL_PASTE(a, b)  DYCL_PASTE_(a, b)
#define DYCL_PASTE_(a, b) a##b
#define LANES             V_(lanes)

#define SUM_RED(name, kernel, with)                                                                                    \
    static void N(name)(void *out, const void *a, const void *operand, size_t n) {                                     \
        (void)operand;                                                                                                 \
        *(T *)out = (T)N(kernel)(a, with, n);                                                                          \
    }
SUM_RED(red_sum, sum, 0)
SUM_RED(red_sumabs, sum_abs, 0)
SUM_RED(red_sumsq, sum_square, 0)
#undef SUM_RED

static double N(variance)(dycl_red op, const T *a, double correction, size_t n) {
    T mean;
    double m2 = N(deviation)(a, n, &mean);
    if (sizeof(T) == sizeof(float) && !dycl_m2_fits_f32(m2)) m2 = dycl_moments_wide((const void *)a, 1, n).m2;
    return dycl_variance(op, m2, (double)n, correction);
}
static void N(red_var)(void *out, const void *a, const void *correction, size_t n) {
    *(T *)out = (T)N(variance)(DYCL_RED_VAR, a, *(const double *)correction, n);
}
static void N(red_std)(void *out, const void *a, const void *correction, size_t n) {
    *(T *)out = (T)N(variance)(DYCL_RED_STD, a, *(const double *)correction, n);
}

static void N(red_moments)(double out[2], const void *a, const void *m, size_t n) {
    N(moments)(out, a, *(const T *)m, n);
}

static void N(red_prod)(void *out, const void *operand_a, const void *operand, size_t n) {
    const T *a = operand_a;
    const V one = V_(set)(1);
    V p0 = one, p1 = one, p2 = one, p3 = one;
    size_t i = 0;
    (void)operand;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        p0 *= V_(load)(a + i), p1 *= V_(load)(a + i + LANES);
        p2 *= V_(load)(a + i + 2 * LANES), p3 *= V_(load)(a + i + 3 * LANES);
    }
    for (; i + LANES <= n; i += LANES) p0 *= V_(load)(a + i);
    if (i < n) p0 *= V_(load_part)(a + i, n - i, one);
    p0 = (p0 * p1) * (p2 * p3);
    T product = 1;
    for (int lane = 0; lane < LANES; lane++) product *= p0[lane];
    *(T *)out = product;
}

/* The first element equal to `wanted`, or the first NaN; one of them exists. */
static int64_t N(find)(const T *a, T wanted, int bad, size_t n) {
    const V w = V_(set)(wanted);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        V x = V_(load)(a + i);
        if (bad ? V_(any)(V_(unordered)(x, x)) : V_(any_equal)(x, w)) break;
    }
    for (; i + 1 < n; i++)
        if (bad ? a[i] != a[i] : a[i] == wanted) break;
    return (int64_t)i;
}

#define EXTREME_RED(name, kernel)                                                                                      \
    static void N(red_a##name)(void *out, const void *a, const void *operand, size_t n) {                              \
        int bad;                                                                                                       \
        (void)operand;                                                                                                 \
        T best = N(kernel)(a, n, &bad);                                                                                \
        *(T *)out = bad ? (T)NAN : best;                                                                               \
    }                                                                                                                  \
    static void N(red_arg##name)(void *out, const void *a, const void *operand, size_t n) {                            \
        int bad;                                                                                                       \
        (void)operand;                                                                                                 \
        T best = N(kernel)(a, n, &bad);                                                                                \
        *(int64_t *)out = N(find)(a, best, bad, n);                                                                    \
    }
EXTREME_RED(max, largest)
EXTREME_RED(min, smallest)
#undef EXTREME_RED

/* Four rows at a time: one load and store of the accumulator for four of input. */
#define COLUMN(name, ACC)                                                                                              \
    static void N(column_##name)(void *out, const void *in, int64_t stride, size_t rows, const void *operand,          \
                                 size_t n) {                                                                           \
        T *acc = out;                                                                                                  \
        const T *a = in;                                                                                               \
        (void)operand;                                                                                                 \
        for (size_t r = 0; r < rows;) {                                                                                \
            const T *a0 = a + (int64_t)r * stride, *a1 = a0 + stride, *a2 = a1 + stride, *a3 = a2 + stride;            \
            size_t j = 0, step = rows - r >= 4 ? 4 : 1;                                                                \
            for (; j + LANES <= n; j += LANES) {                                                                       \
                V s = V_(load)(acc + j), x;                                                                            \
                x = V_(load)(a0 + j), s = ACC(s, x);                                                                   \
                if (step == 4) {                                                                                       \
                    x = V_(load)(a1 + j), s = ACC(s, x);                                                               \
                    x = V_(load)(a2 + j), s = ACC(s, x);                                                               \
                    x = V_(load)(a3 + j), s = ACC(s, x);                                                               \
                }                                                                                                      \
                V_(store)(acc + j, s);                                                                                 \
            }                                                                                                          \
            if (j < n) {                                                                                               \
                size_t part = n - j;                                                                                   \
                V s = V_(load_part)(acc + j, part, (V){0});                                                            \
                for (size_t k = 0; k < step; k++) {                                                                    \
                    V x = V_(load_part)(a0 + (int64_t)k * stride + j, part, (V){0});                                   \
                    s = ACC(s, x);                                                                                     \
                }                                                                                                      \
                V_(store_part)(acc + j, part, s);                                                                      \
            }                                                                                                          \
            r += step;                                                                                                 \
        }                                                                                                              \
    }
#define ACC_SUM(acc, x)     ((acc) + (x))
#define ACC_ABS(acc, x)     ((acc) + V_(abs)(x))
#define ACC_SQUARE(acc, x)  V_(fma)(x, x, acc)
#define ACC_MAX(acc, x)     V_(nan_wins)(x, acc, V_(max)(x, acc))
#define ACC_PRODUCT(acc, x) ((acc) * (x))
#define ACC_MIN(acc, x)     V_(nan_wins)(x, acc, V_(min)(x, acc))
COLUMN(sum, ACC_SUM)
COLUMN(sumabs, ACC_ABS)
COLUMN(sumsq, ACC_SQUARE)
COLUMN(amax, ACC_MAX)
COLUMN(amin, ACC_MIN)
COLUMN(prod, ACC_PRODUCT)

static inline void N(moments_step)(const T *a, V m, V *first, V *second) {
    V d = V_(load)(a) - m;
    *first += d, *second = V_(fma)(d, d, *second);
}

static void N(column_moments)(void *out, const void *in, int64_t stride, size_t rows, const void *operand, size_t n) {
    T *acc = out, *squares = acc + DYCL_COLUMN_TILE;
    const T *a = in, *means = operand;
    for (size_t r = 0; r < rows;) {
        const T *a0 = a + (int64_t)r * stride;
        size_t j = 0, step = rows - r >= 4 ? 4 : 1;
        for (; j + LANES <= n; j += LANES) {
            V first = V_(load)(acc + j), second = V_(load)(squares + j), m = V_(load)(means + j);
            N(moments_step)(a0 + j, m, &first, &second);
            if (step == 4) {
                N(moments_step)(a0 + stride + j, m, &first, &second);
                N(moments_step)(a0 + 2 * stride + j, m, &first, &second);
                N(moments_step)(a0 + 3 * stride + j, m, &first, &second);
            }
            V_(store)(acc + j, first), V_(store)(squares + j, second);
        }
        for (size_t k = 0; k < step; k++)
            for (size_t i = j; i < n; i++) {
                T d = a0[(int64_t)k * stride + (int64_t)i] - means[i];
                acc[i] += d, squares[i] += d * d;
            }
        r += step;
    }
}

/* The first of the largest (smallest) in each of n columns; the first NaN beats all. */
#define COLUMN_ARG(name, BEATS)                                                                                        \
    static void N(column_arg##name)(int64_t * out, const void *in, int64_t stride, size_t rows, size_t n) {            \
        const T *a = in;                                                                                               \
        T best[ARG_COLUMNS];                                                                                           \
        N(place) at[ARG_COLUMNS];                                                                                      \
        for (size_t j = 0, many; j < n; j += many, a += many) {                                                        \
            many = n - j < ARG_COLUMNS ? n - j : ARG_COLUMNS;                                                          \
            memcpy(best, a, many * sizeof(T));                                                                         \
            memset(at, 0, sizeof at);                                                                                  \
            for (size_t r = 1; r < rows; r++) {                                                                        \
                const T *row = a + (int64_t)r * stride;                                                                \
                const N(place) here = (N(place))r;                                                                     \
                _Pragma("omp simd") for (size_t i = 0; i < many; i++) {                                                \
                    T x = row[i], b = best[i];                                                                         \
                    int wins = (x BEATS b) | ((x != x) & (b == b));                                                    \
                    best[i] = wins ? x : b, at[i] = wins ? here : at[i];                                               \
                }                                                                                                      \
            }                                                                                                          \
            for (size_t i = 0; i < many; i++) out[j + i] = (int64_t)at[i];                                             \
        }                                                                                                              \
    }
COLUMN_ARG(max, >)
COLUMN_ARG(min, <)
#undef COLUMN_ARG

#undef COLUMN
#undef ACC_SUM
#undef ACC_ABS
#undef ACC_SQUARE
#undef ACC_MAX
#undef ACC_MIN
#undef ACC_PRODUCT
#undef LANES
#undef V_
#undef DYCL_PASTE
#undef DYCL_PASTE_
