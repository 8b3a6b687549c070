/* Element types of the core. Ownership: none. Threads: immutable. */
#ifndef DYCL_BASE_DTYPE_H
#define DYCL_BASE_DTYPE_H

#include <float.h>
#include <stddef.h>
#include <stdint.h>

/* X(enum suffix, C type, name in the text IR, torch name) */
#define DYCL_DTYPES(X)                                                                                                 \
    X(F32, float, "f32", "float32")                                                                                    \
    X(F64, double, "f64", "float64")                                                                                   \
    X(I64, int64_t, "i64", "int64")                                                                                    \
    X(I32, int32_t, "i32", "int32")                                                                                    \
    X(I16, int16_t, "i16", "int16")                                                                                    \
    X(I8, int8_t, "i8", "int8")                                                                                        \
    X(U8, uint8_t, "u8", "uint8")                                                                                      \
    X(BOOL, uint8_t, "bool", "bool")                                                                                   \
    X(BF16, uint16_t, "bf16", "bfloat16")                                                                              \
    X(F16, uint16_t, "f16", "float16")

typedef enum {
#define DYCL_ROW(e, c, n, t) DYCL_##e,
    DYCL_DTYPES(DYCL_ROW)
#undef DYCL_ROW
        DYCL_DTYPE_COUNT
} dycl_dtype;

size_t dycl_dtype_size(dycl_dtype dtype);
const char *dycl_dtype_name(dycl_dtype dtype);       /* "f32" */
const char *dycl_dtype_torch_name(dycl_dtype dtype); /* "float32" */
/* Floats of 16 bits are only stored: arithmetic on them is f32, rounded to them after each operator, as torch's kernels
 * on CPUs do it. */
static inline int dycl_dtype_is_half(dycl_dtype d) { return d == DYCL_BF16 || d == DYCL_F16; }
static inline dycl_dtype dycl_dtype_computed(dycl_dtype d) { return dycl_dtype_is_half(d) ? DYCL_F32 : d; }
static inline int dycl_dtype_is_float(dycl_dtype d) { return d == DYCL_F32 || d == DYCL_F64 || dycl_dtype_is_half(d); }
static inline double dycl_dtype_most(dycl_dtype d) { /* the largest finite number of a float */
    return d == DYCL_F16 ? 65504 : d == DYCL_BF16 ? 0x1.fep127 : d == DYCL_F32 ? (double)FLT_MAX : DBL_MAX;
}
/* Element i of numbers that are F32, or else F64. */
static inline double dycl_float_at(dycl_dtype d, const void *p, int64_t i) {
    return d == DYCL_F32 ? (double)((const float *)p)[i] : ((const double *)p)[i];
}
static inline void dycl_float_put(dycl_dtype d, void *p, int64_t i, double x) {
    if (d == DYCL_F32)
        ((float *)p)[i] = (float)x;
    else
        ((double *)p)[i] = x;
}
static inline int dycl_dtype_is_int(dycl_dtype d) { return d >= DYCL_I64 && d <= DYCL_U8; }

#endif
