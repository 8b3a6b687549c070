/* Row operators over rows that lie side by side, of one float type; included twice by row_body.h like
 * row_float_body.h, with EXP_OF set too. Neighbours fill the lanes of a vector, and nothing is gathered.
 *
 * Ownership: pointers are borrowed. Threads: pure functions. */

#define V_(name)          DYCL_PASTE(V, _##name)
#define DYCL_PASTE(a, b)  DYCL_PASTE_(a, b)
#define DYCL_PASTE_(a, b) a##b
#define LANES             ((size_t)V_(lanes))
#define GROUP             4  /* vectors at a time: a whole line or more of each element's memory */
#define CHAIN             32 /* terms added in T before their sum goes to something wider */
#define EACH_VECTOR(v)    _Pragma("GCC unroll 4") for (size_t v = 0; v < count; v++)

/* `count` vectors side by side, the last one of `last` lanes. */
static inline __attribute__((always_inline)) V N(side_load)(const T *p, size_t v, size_t count, size_t last, V fill) {
    return v + 1 < count || last == LANES ? V_(load)(p + v * LANES) : V_(load_part)(p + v * LANES, last, fill);
}

static inline __attribute__((always_inline)) void N(side_store)(T *p, size_t v, size_t count, size_t last, V x) {
    if (v + 1 < count || last == LANES)
        V_(store)(p + v * LANES, x);
    else
        V_(store_part)(p + v * LANES, last, x);
}

static inline void N(side_add)(double *sum, double *lost, const V *terms, size_t count) {
    T term[GROUP * LANES];
    memcpy(term, terms, count * sizeof(V));
    for (size_t i = 0; i < count * LANES; i++) {
        dycl_running_sum s = {sum[i], lost[i]};
        dycl_sum_add(&s, (double)term[i]);
        sum[i] = s.sum, lost[i] = s.lost;
    }
}

/* The sums of e^(x - max), each term stored where out is not NULL. */
static inline __attribute__((always_inline)) void N(side_sum_exp)(V *sum, T *out, int64_t out_step, const T *a,
                                                                  int64_t a_step, size_t n, const V *max, size_t count,
                                                                  size_t last) {
    double wide[GROUP * LANES] = {0}, lost[GROUP * LANES] = {0};
    EACH_VECTOR(v) sum[v] = (V){0};
    for (size_t r = 0; r < n;) {
        const size_t end = n - r < CHAIN ? n : r + CHAIN;
        for (; r < end; r++, a += a_step) {
            EACH_VECTOR(v) {
                V e = EXP_OF(N(side_load)(a, v, count, last, max[v]) - max[v]);
                sum[v] += e;
                if (out) N(side_store)(out, v, count, last, e);
            }
            if (out) out += out_step;
        }
        if (n <= CHAIN) return;
        N(side_add)(wide, lost, sum, count);
        EACH_VECTOR(v) sum[v] = (V){0};
    }
    T total[GROUP * LANES];
    for (size_t i = 0; i < count * LANES; i++) total[i] = (T)dycl_sum_value((dycl_running_sum){wide[i], lost[i]});
    memcpy(sum, total, count * sizeof(V));
}

static inline __attribute__((always_inline)) void N(side_max)(V *max, const T *a, int64_t step, size_t n, size_t count,
                                                              size_t last) {
    EACH_VECTOR(v) max[v] = V_(set)(-INFINITY);
    for (; n > 0; n--, a += step) EACH_VECTOR(v) max[v] = V_(max)(N(side_load)(a, v, count, last, max[v]), max[v]);
}

/* NaN and infinities as in row_float_body.h. */
static inline __attribute__((always_inline)) void N(side_softmax)(T *out, int64_t out_step, const T *a, int64_t a_step,
                                                                  size_t n, size_t count, size_t last) {
    V max[GROUP], sum[GROUP];
    N(side_max)(max, a, a_step, n, count, last);
    N(side_sum_exp)(sum, out, out_step, a, a_step, n, max, count, last);
    EACH_VECTOR(v) sum[v] = 1 / sum[v];
    for (; n > 0; n--, out += out_step)
        EACH_VECTOR(v) N(side_store)(out, v, count, last, N(side_load)(out, v, count, last, sum[v]) * sum[v]);
}

static inline __attribute__((always_inline)) void
N(side_log_softmax)(T *out, int64_t out_step, const T *a, int64_t a_step, size_t n, size_t count, size_t last) {
    V max[GROUP], sum[GROUP];
    T log_sum[GROUP * LANES];
    N(side_max)(max, a, a_step, n, count, last);
    N(side_sum_exp)(sum, NULL, 0, a, a_step, n, max, count, last);
    memcpy(log_sum, sum, count * sizeof(V));
    _Pragma("omp simd") for (size_t i = 0; i < count * LANES; i++) log_sum[i] = (T)f64_log_of((double)log_sum[i]);
    memcpy(sum, log_sum, count * sizeof(V));
    for (; n > 0; n--, out += out_step, a += a_step)
        EACH_VECTOR(v) N(side_store)(out, v, count, last, N(side_load)(a, v, count, last, max[v]) - max[v] - sum[v]);
}

#define SIDE_BY_SIDE(name)                                                                                             \
    static void N(columns_##name)(void *dst, int64_t dst_step, const void *src, int64_t src_step, size_t n,            \
                                  size_t width) {                                                                      \
        T *out = dst;                                                                                                  \
        const T *a = src;                                                                                              \
        for (size_t step; width > 0; width -= step, out += step, a += step) {                                          \
            if (width > (GROUP - 1) * LANES) {                                                                         \
                const size_t last = width < GROUP * LANES ? width - (GROUP - 1) * LANES : LANES;                       \
                step = (GROUP - 1) * LANES + last;                                                                     \
                N(side_##name)(out, dst_step, a, src_step, n, GROUP, last);                                            \
            } else {                                                                                                   \
                step = width < LANES ? width : LANES;                                                                  \
                N(side_##name)(out, dst_step, a, src_step, n, 1, step);                                                \
            }                                                                                                          \
        }                                                                                                              \
    }
SIDE_BY_SIDE(softmax)
SIDE_BY_SIDE(log_softmax)
#undef SIDE_BY_SIDE

static void N(columns_cumsum)(void *dst, int64_t dst_step, const void *src, int64_t src_step, size_t n, size_t width) {
    double sum[8 * GROUP];
    for (size_t j = 0, many; j < width; j += many) {
        T *out = (T *)dst + j;
        const T *a = (const T *)src + j;
        many = width - j < 8 * GROUP ? width - j : 8 * GROUP;
        memset(sum, 0, sizeof sum);
        for (size_t r = 0; r < n; r++, out += dst_step, a += src_step)
            _Pragma("omp simd") for (size_t i = 0; i < many; i++) out[i] = (T)(sum[i] += (double)a[i]);
    }
}

#undef EACH_VECTOR
#undef CHAIN
#undef GROUP
#undef LANES
#undef V_
#undef DYCL_PASTE
#undef DYCL_PASTE_
