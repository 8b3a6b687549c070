/* Conversions of runs between any two dtypes, for one ISA. The including file sets CAST_ISA (scalar, avx2, avx512). A
 * float that an integer cannot hold gives what x86's conversion gives, and so torch: the most negative i64 or i32, and
 * its low bits for narrower integers. C leaves it undefined, so the range is checked first.
 *
 * Ownership: none. Threads: pure functions, immutable table. */
#include "base/half.h"
#include "kern/ew_table.h"

#define CAST_PASTE_(a, b) a##b
#define CAST_PASTE(a, b)  CAST_PASTE_(a, b)

static inline int64_t to_i64(double x) { return (int64_t)(x >= -0x1p63 && x < 0x1p63 ? x : -0x1p63); }
static inline int32_t f64_to_i32(double x) { return (int32_t)(x > -2147483649.0 && x < 0x1p31 ? x : -0x1p31); }
static inline int32_t f32_to_i32(float x) { return (int32_t)(x >= -0x1p31f && x < 0x1p31f ? x : -0x1p31f); }

/* Float sources by target; torch goes to u8 through i64, to i8 and i16 through i32. */
#define CAST_FROM_F32_TO_I32(x) f32_to_i32(x)
#define CAST_FROM_F32_TO_I64(x) to_i64((double)(x))
#define CAST_FROM_F64_TO_I32(x) f64_to_i32(x)
#define CAST_FROM_F64_TO_I64(x) to_i64(x)

#define CAST_LOOP(from, T, to, R, value)                                                                               \
    static void cast_##from##_##to(void *dst, const void *a, const void *b, const void *c, size_t n) {                 \
        R *d = dst;                                                                                                    \
        const T *p = a;                                                                                                \
        (void)b, (void)c;                                                                                              \
        _Pragma("omp simd") for (size_t i = 0; i < n; i++) {                                                           \
            const T x = p[i];                                                                                          \
            d[i] = (R)(value);                                                                                         \
        }                                                                                                              \
    }

#define CAST_FLOAT_ROW(from, T)                                                                                        \
    CAST_LOOP(from, T, F32, float, x)                                                                                  \
    CAST_LOOP(from, T, F64, double, x)                                                                                 \
    CAST_LOOP(from, T, I64, int64_t, CAST_FROM_##from##_TO_I64(x))                                                     \
    CAST_LOOP(from, T, I32, int32_t, CAST_FROM_##from##_TO_I32(x))                                                     \
    CAST_LOOP(from, T, I16, int16_t, CAST_FROM_##from##_TO_I32(x))                                                     \
    CAST_LOOP(from, T, I8, int8_t, CAST_FROM_##from##_TO_I32(x))                                                       \
    CAST_LOOP(from, T, U8, uint8_t, CAST_FROM_##from##_TO_I64(x))                                                      \
    CAST_LOOP(from, T, BOOL, uint8_t, x != 0)                                                                          \
    CAST_LOOP(from, T, BF16, uint16_t, dycl_bf16_of((float)x))                                                         \
    CAST_LOOP(from, T, F16, uint16_t, dycl_f16_of((float)x))
#define CAST_INT_ROW(from, T)                                                                                          \
    CAST_LOOP(from, T, F32, float, x)                                                                                  \
    CAST_LOOP(from, T, F64, double, x)                                                                                 \
    CAST_LOOP(from, T, I64, int64_t, x)                                                                                \
    CAST_LOOP(from, T, I32, int32_t, x)                                                                                \
    CAST_LOOP(from, T, I16, int16_t, x)                                                                                \
    CAST_LOOP(from, T, I8, int8_t, x)                                                                                  \
    CAST_LOOP(from, T, U8, uint8_t, x)                                                                                 \
    CAST_LOOP(from, T, BOOL, uint8_t, x != 0)                                                                          \
    CAST_LOOP(from, T, BF16, uint16_t, dycl_bf16_of((float)x))                                                         \
    CAST_LOOP(from, T, F16, uint16_t, dycl_f16_of((float)x))

#define CAST_BOOL_ROW(from, T)                                                                                         \
    CAST_LOOP(from, T, F32, float, x != 0)                                                                             \
    CAST_LOOP(from, T, F64, double, x != 0)                                                                            \
    CAST_LOOP(from, T, I64, int64_t, x != 0)                                                                           \
    CAST_LOOP(from, T, I32, int32_t, x != 0)                                                                           \
    CAST_LOOP(from, T, I16, int16_t, x != 0)                                                                           \
    CAST_LOOP(from, T, I8, int8_t, x != 0)                                                                             \
    CAST_LOOP(from, T, U8, uint8_t, x != 0)                                                                            \
    CAST_LOOP(from, T, BOOL, uint8_t, x != 0)                                                                          \
    CAST_LOOP(from, T, BF16, uint16_t, dycl_bf16_of(x != 0))                                                           \
    CAST_LOOP(from, T, F16, uint16_t, dycl_f16_of(x != 0))

/* From floats of 16 bits: through float32, which holds them all. */
#define CAST_HALF_ROW(from, to_float)                                                                                  \
    CAST_LOOP(from, uint16_t, F32, float, to_float(x))                                                                 \
    CAST_LOOP(from, uint16_t, F64, double, to_float(x))                                                                \
    CAST_LOOP(from, uint16_t, I64, int64_t, CAST_FROM_F32_TO_I64(to_float(x)))                                         \
    CAST_LOOP(from, uint16_t, I32, int32_t, CAST_FROM_F32_TO_I32(to_float(x)))                                         \
    CAST_LOOP(from, uint16_t, I16, int16_t, CAST_FROM_F32_TO_I32(to_float(x)))                                         \
    CAST_LOOP(from, uint16_t, I8, int8_t, CAST_FROM_F32_TO_I32(to_float(x)))                                           \
    CAST_LOOP(from, uint16_t, U8, uint8_t, CAST_FROM_F32_TO_I64(to_float(x)))                                          \
    CAST_LOOP(from, uint16_t, BOOL, uint8_t, to_float(x) != 0)                                                         \
    CAST_LOOP(from, uint16_t, BF16, uint16_t, dycl_bf16_of(to_float(x)))                                               \
    CAST_LOOP(from, uint16_t, F16, uint16_t, dycl_f16_of(to_float(x)))

CAST_FLOAT_ROW(F32, float)
CAST_FLOAT_ROW(F64, double)
CAST_INT_ROW(I64, int64_t)
CAST_INT_ROW(I32, int32_t)
CAST_INT_ROW(I16, int16_t)
CAST_INT_ROW(I8, int8_t)
CAST_INT_ROW(U8, uint8_t)
CAST_BOOL_ROW(BOOL, uint8_t) /* any byte other than 0 is true */
CAST_HALF_ROW(BF16, dycl_bf16_float)
CAST_HALF_ROW(F16, dycl_f16_float)

/* The sums of a product, with a bias in 16 bits, rounded once. */
#define CAST_FINISH(to)                                                                                                \
    static void finish_##to(void *dst, const void *a, const void *b, const void *c, size_t n) {                        \
        uint16_t *d = dst;                                                                                             \
        const float *sums = a;                                                                                         \
        const uint16_t *bias = b;                                                                                      \
        (void)c;                                                                                                       \
        if (!bias) {                                                                                                   \
            cast_F32_##to(dst, a, b, c, n);                                                                            \
            return;                                                                                                    \
        }                                                                                                              \
        _Pragma("omp simd") for (size_t i = 0; i < n; i++) {                                                           \
            const float x = sums[i] + CAST_##to##_FLOAT(bias[i]);                                                      \
            d[i] = CAST_TO_##to(x);                                                                                    \
        }                                                                                                              \
    }
#define CAST_BF16_FLOAT dycl_bf16_float
#define CAST_F16_FLOAT  dycl_f16_float
#define CAST_TO_BF16    dycl_bf16_of
#define CAST_TO_F16     dycl_f16_of
CAST_FINISH(BF16)
CAST_FINISH(F16)

/* What storing a float in 16 bits and loading it again makes of it. */
CAST_LOOP(ROUND, float, BF16, float, dycl_bf16_float(dycl_bf16_of(x)))
CAST_LOOP(ROUND, float, F16, float, dycl_f16_float(dycl_f16_of(x)))

#define CAST_CELLS(from)                                                                                               \
    [DYCL_##from] = {                                                                                                  \
        [DYCL_F32] = cast_##from##_F32, [DYCL_F64] = cast_##from##_F64,   [DYCL_I64] = cast_##from##_I64,              \
        [DYCL_I32] = cast_##from##_I32, [DYCL_I16] = cast_##from##_I16,   [DYCL_I8] = cast_##from##_I8,                \
        [DYCL_U8] = cast_##from##_U8,   [DYCL_BOOL] = cast_##from##_BOOL, [DYCL_BF16] = cast_##from##_BF16,            \
        [DYCL_F16] = cast_##from##_F16,                                                                                \
    },

const dycl_cast_table CAST_PASTE(dycl_cast_table__, CAST_ISA) = {
    .cast = {CAST_CELLS(F32) CAST_CELLS(F64) CAST_CELLS(I64) CAST_CELLS(I32) CAST_CELLS(I16) CAST_CELLS(I8)
                 CAST_CELLS(U8) CAST_CELLS(BOOL) CAST_CELLS(BF16) CAST_CELLS(F16)},
    .finish = {[DYCL_BF16] = finish_BF16, [DYCL_F16] = finish_F16},
    .round = {[DYCL_BF16] = cast_ROUND_BF16, [DYCL_F16] = cast_ROUND_F16}};
