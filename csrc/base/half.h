/* One float of 16 bits from and to float32: to nearest, ties to even; a NaN stays one. Threads: pure. */
#ifndef DYCL_BASE_HALF_H
#define DYCL_BASE_HALF_H

#include <stdint.h>
#include <string.h>

#include "base/dtype.h"

static inline uint32_t dycl_half_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline float dycl_half_float(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline uint16_t dycl_bf16_of(float x) {
    const uint32_t u = dycl_half_bits(x), quiet = u >> 16 | 0x40, rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}
static inline float dycl_bf16_float(uint16_t x) { return dycl_half_float((uint32_t)x << 16); }

/* Adding a number 2^13 times as large leaves the 11 bits of an f16, or fewer where it is subnormal: the sum is rounded
 * where f16 ends. */
static inline uint16_t dycl_f16_of(float x) {
    const uint32_t u = dycl_half_bits(x), sign = u >> 16 & 0x8000, size = u & 0x7fffffff;
    const uint32_t normal = (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13;
    const uint32_t tiny = dycl_half_bits(dycl_half_float(size) + 0.5f) - 0x3f000000;
    const uint32_t large = size > 0x7f800000 ? 0x7e00 : 0x7c00;
    return (uint16_t)(sign | (size >= 0x47800000 ? large : size < 0x38800000 ? tiny : normal));
}
static inline float dycl_f16_float(uint16_t x) {
    const uint32_t sign = (uint32_t)(x & 0x8000) << 16, size = (uint32_t)(x & 0x7fff) << 13;
    const uint32_t normal = size + 0x38000000, special = size | 0x7f800000;
    const uint32_t tiny = dycl_half_bits(dycl_half_float(size + 0x38800000) - 6.103515625e-05f);
    return dycl_half_float(sign | (size >= 0x0f800000 ? special : size < 0x00800000 ? tiny : normal));
}

static inline uint16_t dycl_half_of(dycl_dtype dtype, float x) {
    return dtype == DYCL_BF16 ? dycl_bf16_of(x) : dycl_f16_of(x);
}
static inline float dycl_half_value(dycl_dtype dtype, uint16_t x) {
    return dtype == DYCL_BF16 ? dycl_bf16_float(x) : dycl_f16_float(x);
}
static inline float dycl_half_round(dycl_dtype dtype, float x) {
    return dycl_half_value(dtype, dycl_half_of(dtype, x));
}

#endif
