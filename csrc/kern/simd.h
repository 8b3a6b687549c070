/* A small vector layer: f32 vectors of 1, 8 or 16 lanes (scalar, AVX2+FMA, AVX-512), their masks and integer twins,
 * and f64 vectors of half as many lanes for what f32 cannot do accurately. Arithmetic is written with the C operators,
 * which GNU C defines for vectors; only what has no operator is a function here.
 *
 * The including file sets DYCL_SIMD_WIDTH to 1, 8 or 16 and is compiled with the matching flags and -ffp-contract=off.
 *
 * Ownership: none, no state. Threads: any.
 *
 * Types: vf f32 lanes, vi i32 lanes, vm mask; with more than one lane also vd f64, vl i64 (half as many lanes),
 * and vu, vul: unsigned, for integer arithmetic that may wrap.
 * Prefixes: v_ on f32/i32, k_ on masks, d_ on f64. */
#ifndef DYCL_KERN_SIMD_H
#define DYCL_KERN_SIMD_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef DYCL_SIMD_WIDTH
#error "define DYCL_SIMD_WIDTH (1, 8 or 16) before including kern/simd.h"
#endif

#define DYCL_INLINE static inline __attribute__((always_inline))
#define VW          DYCL_SIMD_WIDTH

#if DYCL_SIMD_WIDTH == 1

typedef float vf;
typedef int32_t vi;
typedef int vm;

DYCL_INLINE vf v_set1(float x) { return x; }
DYCL_INLINE vi v_seti(int32_t x) { return x; }
DYCL_INLINE vf v_load(const float *p) { return *p; }
DYCL_INLINE void v_store(float *p, vf x) { *p = x; }
DYCL_INLINE vf v_load_n(const float *p, size_t n) { return n ? *p : 0.0f; }
DYCL_INLINE void v_store_n(float *p, vf x, size_t n) {
    if (n) *p = x;
}
DYCL_INLINE vi v_bits(vf x) {
    vi r;
    memcpy(&r, &x, sizeof r);
    return r;
}
DYCL_INLINE vf v_from_bits(vi x) {
    vf r;
    memcpy(&r, &x, sizeof r);
    return r;
}
DYCL_INLINE vf v_from_int(vi x) { return (float)x; }
DYCL_INLINE vf v_fma(vf a, vf b, vf c) { return fmaf(a, b, c); }
DYCL_INLINE vf v_sqrt(vf x) { return sqrtf(x); }
/* As the instructions do: the second operand where either is NaN. */
DYCL_INLINE vf v_min(vf a, vf b) { return a < b ? a : b; }
DYCL_INLINE vf v_max(vf a, vf b) { return a > b ? a : b; }
DYCL_INLINE vf v_round(vf x) { return nearbyintf(x); }
DYCL_INLINE vf v_floor(vf x) { return floorf(x); }
DYCL_INLINE vf v_ceil(vf x) { return ceilf(x); }
DYCL_INLINE vf v_trunc(vf x) { return truncf(x); }
DYCL_INLINE vf v_abs(vf x) { return fabsf(x); }
DYCL_INLINE vf v_neg(vf x) { return -x; }
DYCL_INLINE vf v_copysign(vf x, vf s) { return copysignf(x, s); }

DYCL_INLINE vm v_lt(vf a, vf b) { return a < b; }
DYCL_INLINE vm v_le(vf a, vf b) { return a <= b; }
DYCL_INLINE vm v_gt(vf a, vf b) { return a > b; }
DYCL_INLINE vm v_ge(vf a, vf b) { return a >= b; }
DYCL_INLINE vm v_eq(vf a, vf b) { return a == b; }
DYCL_INLINE vm v_ne(vf a, vf b) { return a != b; }
DYCL_INLINE vm v_unordered(vf a, vf b) { return a != a || b != b; }
DYCL_INLINE vf v_select(vm m, vf a, vf b) { return m ? a : b; }

DYCL_INLINE vm k_and(vm a, vm b) { return a && b; }
DYCL_INLINE vm k_or(vm a, vm b) { return a || b; }
DYCL_INLINE vm k_xor(vm a, vm b) { return a != b; }
DYCL_INLINE vm k_not(vm a) { return !a; }
DYCL_INLINE int k_any(vm a) { return a; }
DYCL_INLINE vm k_set1(uint8_t x) { return x != 0; }
DYCL_INLINE vm k_load(const uint8_t *p) { return *p != 0; }
DYCL_INLINE void k_store(uint8_t *p, vm m) { *p = (uint8_t)(m != 0); }
DYCL_INLINE vm k_load_n(const uint8_t *p, size_t n) { return n ? *p != 0 : 0; }
DYCL_INLINE void k_store_n(uint8_t *p, vm m, size_t n) {
    if (n) *p = (uint8_t)(m != 0);
}

#else /* ------------------------------------------------------------------------------------------------------------  \
       */

#include <immintrin.h>

typedef int32_t vi __attribute__((vector_size(DYCL_SIMD_WIDTH * 4)));
typedef uint32_t vu __attribute__((vector_size(DYCL_SIMD_WIDTH * 4)));
typedef int64_t vl __attribute__((vector_size(DYCL_SIMD_WIDTH * 4)));
typedef uint64_t vul __attribute__((vector_size(DYCL_SIMD_WIDTH * 4)));

#if DYCL_SIMD_WIDTH == 8

typedef __m256 vf;
typedef __m256d vd;
typedef __m256 vm; /* all ones or all zeros per lane */

DYCL_INLINE vf v_set1(float x) { return _mm256_set1_ps(x); }
DYCL_INLINE vi v_seti(int32_t x) { return (vi)_mm256_set1_epi32(x); }
DYCL_INLINE vf v_load(const float *p) { return _mm256_loadu_ps(p); }
DYCL_INLINE void v_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
DYCL_INLINE vf v_from_int(vi x) { return _mm256_cvtepi32_ps((__m256i)x); }
DYCL_INLINE vf v_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
DYCL_INLINE vf v_sqrt(vf x) { return _mm256_sqrt_ps(x); }
DYCL_INLINE vf v_min(vf a, vf b) { return _mm256_min_ps(a, b); }
DYCL_INLINE vf v_max(vf a, vf b) { return _mm256_max_ps(a, b); }
DYCL_INLINE vf v_round(vf x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
DYCL_INLINE vf v_floor(vf x) { return _mm256_floor_ps(x); }
DYCL_INLINE vf v_ceil(vf x) { return _mm256_ceil_ps(x); }
DYCL_INLINE vf v_trunc(vf x) { return _mm256_round_ps(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }

DYCL_INLINE vm v_lt(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
DYCL_INLINE vm v_le(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
DYCL_INLINE vm v_gt(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
DYCL_INLINE vm v_ge(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_GE_OQ); }
DYCL_INLINE vm v_eq(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
DYCL_INLINE vm v_ne(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_NEQ_UQ); }
DYCL_INLINE vm v_unordered(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_UNORD_Q); }
DYCL_INLINE vf v_select(vm m, vf a, vf b) { return _mm256_blendv_ps(b, a, m); }

DYCL_INLINE vm k_and(vm a, vm b) { return _mm256_and_ps(a, b); }
DYCL_INLINE vm k_or(vm a, vm b) { return _mm256_or_ps(a, b); }
DYCL_INLINE vm k_xor(vm a, vm b) { return _mm256_xor_ps(a, b); }
DYCL_INLINE vm k_not(vm a) { return (vm) ~(vi)a; }
DYCL_INLINE int k_any(vm a) { return _mm256_movemask_ps(a) != 0; }
DYCL_INLINE vm k_set1(uint8_t x) { return (vm)_mm256_set1_epi32(x ? -1 : 0); }
DYCL_INLINE vm k_from_bytes(uint64_t bytes) {
    __m256i wide = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes));
    return (vm)_mm256_cmpgt_epi32(wide, _mm256_setzero_si256());
}
DYCL_INLINE uint64_t k_to_bytes(vm m) {
    __m256i all = _mm256_castps_si256(m);
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    return (uint64_t)_mm_cvtsi128_si64(_mm_packs_epi16(words, words)) & 0x0101010101010101u;
}
DYCL_INLINE vm k_load(const uint8_t *p) {
    uint64_t b;
    memcpy(&b, p, 8);
    return k_from_bytes(b);
}
DYCL_INLINE void k_store(uint8_t *p, vm m) {
    uint64_t b = k_to_bytes(m);
    memcpy(p, &b, 8);
}

/* Tails, 0 < n < 8. The masked store, unlike the masked load, is slow on some processors: stores go in pieces. */
DYCL_INLINE vf v_load_n(const float *p, size_t n) {
    static const int32_t masks[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    return _mm256_maskload_ps(p, _mm256_loadu_si256((const __m256i *)(masks + 8 - n)));
}
DYCL_INLINE void v_store_n(float *p, vf x, size_t n) {
    __m128 part = _mm256_castps256_ps128(x);
    if (n & 4) {
        _mm_storeu_ps(p, part);
        part = _mm256_extractf128_ps(x, 1);
        p += 4;
    }
    if (n & 2) {
        _mm_storel_pi((__m64 *)p, part);
        part = _mm_movehl_ps(part, part);
        p += 2;
    }
    if (n & 1) _mm_store_ss(p, part);
}
DYCL_INLINE vm k_load_n(const uint8_t *p, size_t n) {
    uint64_t b = 0;
    for (size_t i = 0; i < n; i++) b |= (uint64_t)p[i] << (8 * i);
    return k_from_bytes(b);
}
DYCL_INLINE void k_store_n(uint8_t *p, vm m, size_t n) {
    uint64_t b = k_to_bytes(m);
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)(b >> (8 * i));
}

DYCL_INLINE vd d_set1(double x) { return _mm256_set1_pd(x); }
DYCL_INLINE vd d_low(vf x) { return _mm256_cvtps_pd(_mm256_castps256_ps128(x)); }
DYCL_INLINE vd d_high(vf x) { return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)); }
DYCL_INLINE vf d_join(vd low, vd high) { return _mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low)); }
DYCL_INLINE vd d_fma(vd a, vd b, vd c) { return _mm256_fmadd_pd(a, b, c); }
DYCL_INLINE vd d_min(vd a, vd b) { return _mm256_min_pd(a, b); }
DYCL_INLINE vd d_max(vd a, vd b) { return _mm256_max_pd(a, b); }
DYCL_INLINE vd d_round(vd x) { return _mm256_round_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
DYCL_INLINE vd d_trunc(vd x) { return _mm256_round_pd(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }

#else /* DYCL_SIMD_WIDTH == 16 */

typedef __m512 vf;
typedef __m512d vd;
typedef __mmask16 vm;

DYCL_INLINE vf v_set1(float x) { return _mm512_set1_ps(x); }
DYCL_INLINE vi v_seti(int32_t x) { return (vi)_mm512_set1_epi32(x); }
DYCL_INLINE vf v_load(const float *p) { return _mm512_loadu_ps(p); }
DYCL_INLINE void v_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
DYCL_INLINE vf v_from_int(vi x) { return _mm512_cvtepi32_ps((__m512i)x); }
DYCL_INLINE vf v_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
DYCL_INLINE vf v_sqrt(vf x) { return _mm512_sqrt_ps(x); }
DYCL_INLINE vf v_min(vf a, vf b) { return _mm512_min_ps(a, b); }
DYCL_INLINE vf v_max(vf a, vf b) { return _mm512_max_ps(a, b); }
DYCL_INLINE vf v_round(vf x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
DYCL_INLINE vf v_floor(vf x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
DYCL_INLINE vf v_ceil(vf x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC); }
DYCL_INLINE vf v_trunc(vf x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }

DYCL_INLINE vm v_lt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
DYCL_INLINE vm v_le(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
DYCL_INLINE vm v_gt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
DYCL_INLINE vm v_ge(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
DYCL_INLINE vm v_eq(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
DYCL_INLINE vm v_ne(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ); }
DYCL_INLINE vm v_unordered(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q); }
DYCL_INLINE vf v_select(vm m, vf a, vf b) { return _mm512_mask_blend_ps(m, b, a); }

DYCL_INLINE vm k_and(vm a, vm b) { return (vm)(a & b); }
DYCL_INLINE vm k_or(vm a, vm b) { return (vm)(a | b); }
DYCL_INLINE vm k_xor(vm a, vm b) { return (vm)(a ^ b); }
DYCL_INLINE vm k_not(vm a) { return (vm)~a; }
DYCL_INLINE int k_any(vm a) { return a != 0; }
DYCL_INLINE vm k_set1(uint8_t x) { return (vm)(x ? 0xffff : 0); }
DYCL_INLINE vm k_load(const uint8_t *p) {
    __m128i b = _mm_loadu_si128((const __m128i *)p);
    return _mm_test_epi8_mask(b, b);
}
DYCL_INLINE void k_store(uint8_t *p, vm m) { _mm_storeu_si128((__m128i *)p, _mm_maskz_set1_epi8(m, 1)); }

/* Tails, 0 < n < 16. */
DYCL_INLINE vm k_first(size_t n) { return (vm)((1u << n) - 1); }
DYCL_INLINE vf v_load_n(const float *p, size_t n) { return _mm512_maskz_loadu_ps(k_first(n), p); }
DYCL_INLINE void v_store_n(float *p, vf x, size_t n) { _mm512_mask_storeu_ps(p, k_first(n), x); }
DYCL_INLINE vm k_load_n(const uint8_t *p, size_t n) {
    __m128i b = _mm_maskz_loadu_epi8(k_first(n), p);
    return _mm_test_epi8_mask(b, b);
}
DYCL_INLINE void k_store_n(uint8_t *p, vm m, size_t n) {
    _mm_mask_storeu_epi8(p, k_first(n), _mm_maskz_set1_epi8(m, 1));
}

DYCL_INLINE vd d_set1(double x) { return _mm512_set1_pd(x); }
DYCL_INLINE vd d_low(vf x) { return _mm512_cvtps_pd(_mm512_castps512_ps256(x)); }
DYCL_INLINE vd d_high(vf x) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)); }
DYCL_INLINE vf d_join(vd low, vd high) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(low)), _mm512_cvtpd_ps(high), 1);
}
DYCL_INLINE vd d_fma(vd a, vd b, vd c) { return _mm512_fmadd_pd(a, b, c); }
DYCL_INLINE vd d_min(vd a, vd b) { return _mm512_min_pd(a, b); }
DYCL_INLINE vd d_max(vd a, vd b) { return _mm512_max_pd(a, b); }
DYCL_INLINE vd d_round(vd x) { return _mm512_roundscale_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
DYCL_INLINE vd d_trunc(vd x) { return _mm512_roundscale_pd(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }

#endif

DYCL_INLINE vi v_bits(vf x) { return (vi)x; }
DYCL_INLINE vf v_from_bits(vi x) { return (vf)x; }
DYCL_INLINE vf v_abs(vf x) { return (vf)((vi)x & v_seti(0x7fffffff)); }
DYCL_INLINE vf v_neg(vf x) { return -x; }
DYCL_INLINE vf v_copysign(vf x, vf s) { return (vf)(((vi)x & v_seti(0x7fffffff)) | ((vi)s & v_seti(INT32_MIN))); }
DYCL_INLINE vd d_abs(vd x) { return (vd)((vl)x & INT64_MAX); }
/* mask: all ones or all zeros per lane, as a comparison of two vd gives. */
DYCL_INLINE vd d_select(vl mask, vd a, vd b) { return (vd)(((vl)a & mask) | ((vl)b & ~mask)); }

#endif

#if DYCL_SIMD_WIDTH > 1
/* 2^n for integral n in [-126, 127]; anything for NaN. */
DYCL_INLINE vf v_pow2(vf n) {
#if DYCL_SIMD_WIDTH == 16
    return _mm512_scalef_ps(v_set1(1.0f), n);
#else
    return (vf)(((vu)_mm256_cvtps_epi32(n) + 127) << 23);
#endif
}
#endif

/* p * 2^n with one rounding, for normal p near 1 and integral n in [-250, 250]. */
DYCL_INLINE vf v_scale(vf p, vf n) {
#if DYCL_SIMD_WIDTH == 16
    return _mm512_scalef_ps(p, n);
#elif DYCL_SIMD_WIDTH == 8
    /* In two steps, so that both factors are normal numbers; the first product is exact. */
    vi whole = (vi)_mm256_cvtps_epi32(n), half = whole >> 1;
    vu first = (vu)half + 127, second = (vu)(whole - half) + 127;
    return p * (vf)(first << 23) * (vf)(second << 23);
#else
    return ldexpf(p, (int)n);
#endif
}

#endif
