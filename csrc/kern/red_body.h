/* Row reductions, compiled once per ISA: the including file sets DYCL_LEVEL and DYCL_RED_TABLE (the table's name).
 *
 * Ownership: pointers are borrowed. Threads: pure functions. */
#include "kern/red.h"
#include "kern/rowvec.h"

#define ARG_COLUMNS 64 /* columns whose extremes are followed at a time */
typedef int32_t place_f32;
typedef int64_t place_f64;

#define T                float
#define V                vf
#define N(name)          name##_f32
#define DYCL_COMPENSATED 0
#include "kern/red_float_body.h"
#undef T
#undef V
#undef N
#undef DYCL_COMPENSATED

#define T                double
#define V                vd
#define N(name)          name##_f64
#define DYCL_COMPENSATED 1
#include "kern/red_float_body.h"
#undef T
#undef V
#undef N
#undef DYCL_COMPENSATED

/* Integers: sums and products in i64 with wrap-around, as torch. `omp simd` makes the compiler vectorise at -O2. */
#define INT_REDS(s, T)                                                                                                 \
    static void red_sum_##s(void *out, const void *in, const void *operand, size_t n) {                                \
        const T *a = in;                                                                                               \
        uint64_t sum = 0;                                                                                              \
        (void)operand;                                                                                                 \
        _Pragma("omp simd reduction(+ : sum)") for (size_t i = 0; i < n; i++) sum += (uint64_t)(int64_t)a[i];          \
        *(int64_t *)out = (int64_t)sum;                                                                                \
    }                                                                                                                  \
    static void red_prod_##s(void *out, const void *in, const void *operand, size_t n) {                               \
        const T *a = in;                                                                                               \
        uint64_t product = 1;                                                                                          \
        (void)operand;                                                                                                 \
        for (size_t i = 0; i < n; i++) product *= (uint64_t)(int64_t)a[i];                                             \
        *(int64_t *)out = (int64_t)product;                                                                            \
    }                                                                                                                  \
    static void red_amax_##s(void *out, const void *in, const void *operand, size_t n) {                               \
        const T *a = in;                                                                                               \
        T best = a[0];                                                                                                 \
        (void)operand;                                                                                                 \
        _Pragma("omp simd reduction(max : best)") for (size_t i = 0; i < n; i++) best = a[i] > best ? a[i] : best;     \
        *(T *)out = best;                                                                                              \
    }                                                                                                                  \
    static void red_amin_##s(void *out, const void *in, const void *operand, size_t n) {                               \
        const T *a = in;                                                                                               \
        T best = a[0];                                                                                                 \
        (void)operand;                                                                                                 \
        _Pragma("omp simd reduction(min : best)") for (size_t i = 0; i < n; i++) best = a[i] < best ? a[i] : best;     \
        *(T *)out = best;                                                                                              \
    }
/* Separate, as torch has no argmax of bool. */
#define INT_ARGS(s, T)                                                                                                 \
    static void red_argmax_##s(void *out, const void *in, const void *operand, size_t n) {                             \
        T best;                                                                                                        \
        size_t i = 0;                                                                                                  \
        red_amax_##s(&best, in, operand, n);                                                                           \
        while (i + 1 < n && ((const T *)in)[i] != best) i++;                                                           \
        *(int64_t *)out = (int64_t)i;                                                                                  \
    }                                                                                                                  \
    static void red_argmin_##s(void *out, const void *in, const void *operand, size_t n) {                             \
        T best;                                                                                                        \
        size_t i = 0;                                                                                                  \
        red_amin_##s(&best, in, operand, n);                                                                           \
        while (i + 1 < n && ((const T *)in)[i] != best) i++;                                                           \
        *(int64_t *)out = (int64_t)i;                                                                                  \
    }
/* Any dtype; a NaN is true. Chunks, so that the answer stops the scan and the inner loop still vectorises. */
#define TRUTH_REDS(s, T)                                                                                               \
    static inline size_t zeros_##s(const T *a, size_t n) {                                                             \
        size_t zeros = 0;                                                                                              \
        _Pragma("omp simd reduction(+ : zeros)") for (size_t i = 0; i < n; i++) zeros += a[i] == 0;                    \
        return zeros;                                                                                                  \
    }                                                                                                                  \
    static void red_all_##s(void *out, const void *in, const void *operand, size_t n) {                                \
        int all = 1;                                                                                                   \
        (void)operand;                                                                                                 \
        for (size_t i = 0; i < n && all; i += 256) all = zeros_##s((const T *)in + i, n - i < 256 ? n - i : 256) == 0; \
        *(uint8_t *)out = (uint8_t)all;                                                                                \
    }                                                                                                                  \
    static void red_any_##s(void *out, const void *in, const void *operand, size_t n) {                                \
        int any = 0;                                                                                                   \
        (void)operand;                                                                                                 \
        for (size_t i = 0, chunk; i < n && !any; i += 256) {                                                           \
            chunk = n - i < 256 ? n - i : 256;                                                                         \
            any = zeros_##s((const T *)in + i, chunk) != chunk;                                                        \
        }                                                                                                              \
        *(uint8_t *)out = (uint8_t)any;                                                                                \
    }

INT_REDS(i64, int64_t)
INT_REDS(i32, int32_t)
INT_REDS(i16, int16_t)
INT_REDS(i8, int8_t)
INT_REDS(u8, uint8_t)
INT_ARGS(i64, int64_t)
INT_ARGS(i32, int32_t)
INT_ARGS(i16, int16_t)
INT_ARGS(i8, int8_t)
INT_ARGS(u8, uint8_t)
TRUTH_REDS(f32, float)
TRUTH_REDS(f64, double)
TRUTH_REDS(i64, int64_t)
TRUTH_REDS(i32, int32_t)
TRUTH_REDS(i16, int16_t)
TRUTH_REDS(i8, int8_t)

static void center_scale(float *dst, const float *a, float mean, float scale, float shift, size_t n) {
    const vf m = vf_set(mean), s = vf_set(scale), b = vf_set(shift);
    size_t i = 0;
    for (; i + vf_lanes <= n; i += vf_lanes) vf_store(dst + i, vf_fma(vf_load(a + i) - m, s, b));
    if (i < n) vf_store_part(dst + i, n - i, vf_fma(vf_load_part(a + i, n - i, m) - m, s, b));
}

/* A bool is a u8 that is 0 or 1. */
#define ALL_TYPES(op)                                                                                                  \
    {                                                                                                                  \
        red_##op##_f32, red_##op##_f64, red_##op##_i64, red_##op##_i32, red_##op##_i16, red_##op##_i8, red_##op##_u8,  \
            red_##op##_u8                                                                                              \
    }
#define NO_BOOL(op)                                                                                                    \
    {                                                                                                                  \
        red_##op##_f32, red_##op##_f64, red_##op##_i64, red_##op##_i32, red_##op##_i16, red_##op##_i8, red_##op##_u8,  \
            NULL                                                                                                       \
    }
#define BYTE_TRUTH(op)                                                                                                 \
    {                                                                                                                  \
        red_##op##_f32, red_##op##_f64, red_##op##_i64, red_##op##_i32, red_##op##_i16, red_##op##_i8, red_##op##_i8,  \
            red_##op##_i8                                                                                              \
    }
#define FLOATS(op)                                                                                                     \
    { red_##op##_f32, red_##op##_f64 }
#define COLUMNS(op)                                                                                                    \
    { column_##op##_f32, column_##op##_f64 }

const dycl_red_table DYCL_RED_TABLE = {
    .red = {[DYCL_RED_SUM] = ALL_TYPES(sum),
            [DYCL_RED_PROD] = ALL_TYPES(prod),
            [DYCL_RED_AMAX] = ALL_TYPES(amax),
            [DYCL_RED_AMIN] = ALL_TYPES(amin),
            [DYCL_RED_ALL] = BYTE_TRUTH(all),
            [DYCL_RED_ANY] = BYTE_TRUTH(any),
            [DYCL_RED_ARGMAX] = NO_BOOL(argmax),
            [DYCL_RED_ARGMIN] = NO_BOOL(argmin),
            [DYCL_RED_VAR] = FLOATS(var),
            [DYCL_RED_STD] = FLOATS(std),
            [DYCL_RED_SUMSQ] = FLOATS(sumsq),
            [DYCL_RED_SUMABS] = FLOATS(sumabs)},
    .column = {[DYCL_COLUMN_SUM] = COLUMNS(sum),
               [DYCL_COLUMN_SUMABS] = COLUMNS(sumabs),
               [DYCL_COLUMN_SUMSQ] = COLUMNS(sumsq),
               [DYCL_COLUMN_MOMENTS] = COLUMNS(moments),
               [DYCL_COLUMN_AMAX] = COLUMNS(amax),
               [DYCL_COLUMN_AMIN] = COLUMNS(amin),
               [DYCL_COLUMN_PROD] = COLUMNS(prod)},
    .column_arg = {COLUMNS(argmax), COLUMNS(argmin)},
    .moments = {red_moments_f32, red_moments_f64},
    .center_scale = center_scale,
};
