/* Conversions of runs between any two dtypes, for one ISA. The including file sets CAST_ISA (scalar, avx2, avx512). A
 * float that an integer cannot hold gives what x86's conversion gives, and so torch: the most negative i64 or i32, and
 * its low bits for narrower integers. C leaves it undefined, so the range is checked first.
 *
 * Ownership: none. Threads: pure functions, immutable table. */
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
    CAST_LOOP(from, T, BOOL, uint8_t, x != 0)
#define CAST_INT_ROW(from, T)                                                                                          \
    CAST_LOOP(from, T, F32, float, x)                                                                                  \
    CAST_LOOP(from, T, F64, double, x)                                                                                 \
    CAST_LOOP(from, T, I64, int64_t, x)                                                                                \
    CAST_LOOP(from, T, I32, int32_t, x)                                                                                \
    CAST_LOOP(from, T, I16, int16_t, x)                                                                                \
    CAST_LOOP(from, T, I8, int8_t, x)                                                                                  \
    CAST_LOOP(from, T, U8, uint8_t, x)                                                                                 \
    CAST_LOOP(from, T, BOOL, uint8_t, x != 0)

#define CAST_BOOL_ROW(from, T)                                                                                         \
    CAST_LOOP(from, T, F32, float, x != 0)                                                                             \
    CAST_LOOP(from, T, F64, double, x != 0)                                                                            \
    CAST_LOOP(from, T, I64, int64_t, x != 0)                                                                           \
    CAST_LOOP(from, T, I32, int32_t, x != 0)                                                                           \
    CAST_LOOP(from, T, I16, int16_t, x != 0)                                                                           \
    CAST_LOOP(from, T, I8, int8_t, x != 0)                                                                             \
    CAST_LOOP(from, T, U8, uint8_t, x != 0)                                                                            \
    CAST_LOOP(from, T, BOOL, uint8_t, x != 0)

CAST_FLOAT_ROW(F32, float)
CAST_FLOAT_ROW(F64, double)
CAST_INT_ROW(I64, int64_t)
CAST_INT_ROW(I32, int32_t)
CAST_INT_ROW(I16, int16_t)
CAST_INT_ROW(I8, int8_t)
CAST_INT_ROW(U8, uint8_t)
CAST_BOOL_ROW(BOOL, uint8_t) /* any byte other than 0 is true */

#define CAST_CELLS(from)                                                                                               \
    [DYCL_##from] = {                                                                                                  \
        [DYCL_F32] = cast_##from##_F32, [DYCL_F64] = cast_##from##_F64,   [DYCL_I64] = cast_##from##_I64,              \
        [DYCL_I32] = cast_##from##_I32, [DYCL_I16] = cast_##from##_I16,   [DYCL_I8] = cast_##from##_I8,                \
        [DYCL_U8] = cast_##from##_U8,   [DYCL_BOOL] = cast_##from##_BOOL,                                              \
    },

const dycl_cast_table CAST_PASTE(dycl_cast_table__, CAST_ISA) = {CAST_CELLS(F32) CAST_CELLS(F64) CAST_CELLS(I64)
                                                                     CAST_CELLS(I32) CAST_CELLS(I16) CAST_CELLS(I8)
                                                                         CAST_CELLS(U8) CAST_CELLS(BOOL)};
