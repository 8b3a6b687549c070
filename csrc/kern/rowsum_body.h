/* Sums over a contiguous run, for one float type: included by red_body.h and row_body.h with T (element), V
 * (vector), N(name) (suffixing) and DYCL_COMPENSATED (1 for f64) set.
 *
 * Accuracy: four accumulators add at most 16 vectors each, their sum goes to an outer vector, that to a double every
 * 4096 elements: shorter chains than torch's cascade. f64 has no wider type, so its blocks are added with Neumaier's
 * correction.
 *
 * Ownership: pointers are borrowed. Threads: pure functions. */

#define LANES             V_(lanes)
#define V_(name)          DYCL_PASTE(V, _##name)
#define DYCL_PASTE(a, b)  DYCL_PASTE_(a, b)
#define DYCL_PASTE_(a, b) a##b

#ifndef DYCL_SUM_BLOCK
#define DYCL_SUM_BLOCK 4096
#endif

static inline void N(block_add)(dycl_running_sum *s, V outer) {
#if DYCL_COMPENSATED
    dycl_sum_add(s, V_(hsum)(outer));
#else
    s->sum += V_(hsum)(outer);
#endif
}

/* ACC(acc, x): one vector into an accumulator; FILL: what adds nothing there. */
#define SUM_KERNEL(name, FILL, ACC)                                                                                    \
    static inline double N(name)(const T *a, T operand, size_t n) {                                                    \
        const V zero = {0}, m = V_(set)(operand);                                                                      \
        dycl_running_sum total = {0, 0};                                                                               \
        (void)m;                                                                                                       \
        while (n > 0) {                                                                                                \
            size_t block = n < DYCL_SUM_BLOCK ? n : DYCL_SUM_BLOCK, i = 0;                                             \
            V outer = zero, x;                                                                                         \
            while (i + 4 * LANES <= block) {                                                                           \
                size_t stop = i + 64 * LANES < block ? i + 64 * LANES : block;                                         \
                V s0 = zero, s1 = zero, s2 = zero, s3 = zero;                                                          \
                for (; i + 4 * LANES <= stop; i += 4 * LANES) {                                                        \
                    x = V_(load)(a + i), s0 = ACC(s0, x);                                                              \
                    x = V_(load)(a + i + LANES), s1 = ACC(s1, x);                                                      \
                    x = V_(load)(a + i + 2 * LANES), s2 = ACC(s2, x);                                                  \
                    x = V_(load)(a + i + 3 * LANES), s3 = ACC(s3, x);                                                  \
                }                                                                                                      \
                outer += (s0 + s1) + (s2 + s3);                                                                        \
            }                                                                                                          \
            for (; i + LANES <= block; i += LANES) x = V_(load)(a + i), outer = ACC(outer, x);                         \
            if (i < block) x = V_(load_part)(a + i, block - i, FILL), outer = ACC(outer, x);                           \
            N(block_add)(&total, outer);                                                                               \
            a += block, n -= block;                                                                                    \
        }                                                                                                              \
        return dycl_sum_value(total);                                                                                  \
    }
#define ACC_SUM(acc, x)       ((acc) + (x))
#define ACC_ABS(acc, x)       ((acc) + V_(abs)(x))
#define ACC_SQUARE(acc, x)    V_(fma)(x, x, acc)
#define ACC_DEVIATION(acc, x) V_(fma)((x)-m, (x)-m, acc)
SUM_KERNEL(sum, zero, ACC_SUM)
SUM_KERNEL(sum_abs, zero, ACC_ABS)
SUM_KERNEL(sum_square, zero, ACC_SQUARE)
SUM_KERNEL(sum_deviation, m, ACC_DEVIATION)

/* Sums of v and of v (x - m), in one pass: of g, or, where that is NULL, of x - m itself. */
static inline __attribute__((always_inline)) void N(paired_sums)(double out[2], const T *g, const T *x, T operand,
                                                                 size_t n) {
    const V zero = {0}, m = V_(set)(operand);
    dycl_running_sum first = {0, 0}, second = {0, 0};
    while (n > 0) {
        size_t block = n < DYCL_SUM_BLOCK ? n : DYCL_SUM_BLOCK, i = 0;
        V outer1 = zero, outer2 = zero, d, v;
        while (i + 2 * LANES <= block) {
            size_t stop = i + 32 * LANES < block ? i + 32 * LANES : block;
            V a1 = zero, a2 = zero, b1 = zero, b2 = zero;
            for (; i + 2 * LANES <= stop; i += 2 * LANES) {
                d = V_(load)(x + i) - m, v = g ? V_(load)(g + i) : d;
                a1 += v, a2 = V_(fma)(v, d, a2);
                d = V_(load)(x + i + LANES) - m, v = g ? V_(load)(g + i + LANES) : d;
                b1 += v, b2 = V_(fma)(v, d, b2);
            }
            outer1 += a1 + b1, outer2 += a2 + b2;
        }
        for (; i < block; i += LANES) {
            int whole = block - i >= (size_t)LANES;
            d = (whole ? V_(load)(x + i) : V_(load_part)(x + i, block - i, m)) - m;
            v = !g ? d : whole ? V_(load)(g + i) : V_(load_part)(g + i, block - i, zero);
            outer1 += v, outer2 = V_(fma)(v, d, outer2);
        }
        N(block_add)(&first, outer1), N(block_add)(&second, outer2);
        x += block, n -= block;
        if (g) g += block;
    }
    out[0] = dycl_sum_value(first), out[1] = dycl_sum_value(second);
}

/* Sum and sum of squares of x - m: exact moments even where m is only near the mean. */
static inline void N(moments)(double out[2], const T *a, T operand, size_t n) {
    N(paired_sums)(out, NULL, a, operand, n);
}

/* The mean and the sum of squared deviations from it. The mean is off by the rounding of its sum; where the elements
 * deviate by little more than that, it is taken out, so that equal elements do not deviate at all. */
static inline double N(deviation)(const T *a, size_t n, T *out_mean) {
    const double little = DYCL_COMPENSATED ? 1e-26 : 1e-10;
    T mean = (T)(N(sum)(a, 0, n) / (double)n);
    double m2, sums[2];
    for (int again = 0;; again = 1) {
        m2 = N(sum_deviation)(a, mean, n);
        if (again || !(m2 <= little * (double)n * (double)mean * (double)mean)) break;
        N(moments)(sums, a, mean, n);
        mean = (T)((double)mean + sums[0] / (double)n);
    }
    *out_mean = mean;
    return m2;
}

/* The largest element that is not NaN, -inf when there is none; *bad says whether a NaN was met. */
#define EXTREME_KERNEL(name, fold, hfold, START)                                                                       \
    static inline T N(name)(const T *a, size_t n, int *bad) {                                                          \
        const V start = V_(set)(START);                                                                                \
        V m0 = start, m1 = start, m2 = start, m3 = start;                                                              \
        V_(bad) seen = V_(unordered)(start, start);                                                                    \
        size_t i = 0;                                                                                                  \
        for (; i + 4 * LANES <= n; i += 4 * LANES) {                                                                   \
            V x0 = V_(load)(a + i), x1 = V_(load)(a + i + LANES);                                                      \
            V x2 = V_(load)(a + i + 2 * LANES), x3 = V_(load)(a + i + 3 * LANES);                                      \
            m0 = V_(fold)(x0, m0), m1 = V_(fold)(x1, m1), m2 = V_(fold)(x2, m2), m3 = V_(fold)(x3, m3);                \
            seen |= V_(unordered)(x0, x1) | V_(unordered)(x2, x3);                                                     \
        }                                                                                                              \
        for (; i < n; i += LANES) {                                                                                    \
            V x = n - i >= (size_t)LANES ? V_(load)(a + i) : V_(load_part)(a + i, n - i, start);                       \
            m0 = V_(fold)(x, m0), seen |= V_(unordered)(x, x);                                                         \
        }                                                                                                              \
        *bad = V_(any)(seen);                                                                                          \
        return V_(hfold)(V_(fold)(V_(fold)(m0, m1), V_(fold)(m2, m3)));                                                \
    }
EXTREME_KERNEL(largest, max, hmax, -INFINITY)
EXTREME_KERNEL(smallest, min, hmin, INFINITY)

#undef SUM_KERNEL
#undef EXTREME_KERNEL
#undef ACC_SUM
#undef ACC_ABS
#undef ACC_SQUARE
#undef ACC_DEVIATION
#undef LANES
#undef V_
#undef DYCL_PASTE
#undef DYCL_PASTE_
