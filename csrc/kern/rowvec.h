/* One register's worth of f32 (vf) or f64 (vd), for the row and reduction bodies that are compiled once per ISA.
 * DYCL_LEVEL (0 baseline, 1 AVX2+FMA, 2 AVX-512) is set by the including <family>__<name>.c. Arithmetic is the
 * compiler's vector extension; only what it expresses badly (max, fma, masked tails, NaN tests) is spelled out. Level 0
 * has no intrinsics, so it builds on any processor.
 *
 * Ownership: none. Threads: pure functions. */
#ifndef DYCL_KERN_ROWVEC_H
#define DYCL_KERN_ROWVEC_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef DYCL_LEVEL
#error "included by files that set DYCL_LEVEL only"
#endif
#if DYCL_LEVEL > 0
#include <immintrin.h>
#endif

#if DYCL_LEVEL == 2
#define DYCL_VBYTES 64
#elif DYCL_LEVEL == 1
#define DYCL_VBYTES 32
#else
#define DYCL_VBYTES 16
#endif
#define vf_lanes (DYCL_VBYTES / 4)
#define vd_lanes (DYCL_VBYTES / 8)

typedef float vf __attribute__((vector_size(DYCL_VBYTES)));
typedef double vd __attribute__((vector_size(DYCL_VBYTES)));
typedef int32_t vf_int __attribute__((vector_size(DYCL_VBYTES)));
typedef int64_t vd_int __attribute__((vector_size(DYCL_VBYTES)));

/* x - 0 is x for every x, -0 included, and folds away. */
#define vf_set(x) ((float)(x) - (vf){0})
#define vd_set(x) ((double)(x) - (vd){0})

#define DYCL_VEC_COMMON(V, T)                                                                                          \
    static inline V V##_load(const T *p) {                                                                             \
        V v;                                                                                                           \
        memcpy(&v, p, sizeof v);                                                                                       \
        return v;                                                                                                      \
    }                                                                                                                  \
    static inline void V##_store(T *p, V v) { memcpy(p, &v, sizeof v); }                                               \
    static inline V V##_select(V##_int mask, V a, V b) { return (V)((mask & (V##_int)a) | (~mask & (V##_int)b)); }
DYCL_VEC_COMMON(vf, float)
DYCL_VEC_COMMON(vd, double)
#undef DYCL_VEC_COMMON

static inline vf vf_abs(vf v) { return (vf)((vf_int)v & 0x7fffffff); }
static inline vd vd_abs(vd v) { return (vd)((vd_int)v & 0x7fffffffffffffff); }

/* V_max(v, acc), V_min(v, acc): acc where v is NaN, so a NaN is never stored by them; V_unordered finds it instead.
 * V_hsum adds the lanes in f64: a horizontal sum in f32 would lose more than all that came before it.
 * V_load_part reads n < lanes elements and takes the rest from fill; V_store_part writes n < lanes elements. */
#if DYCL_LEVEL == 2

#define DYCL_VEC(V, T, s, M)                                                                                           \
    typedef M V##_bad;                                                                                                 \
    static inline V V##_max(V v, V acc) { return (V)_mm512_max_##s(v, acc); }                                          \
    static inline V V##_min(V v, V acc) { return (V)_mm512_min_##s(v, acc); }                                          \
    static inline V V##_fma(V a, V b, V c) { return (V)_mm512_fmadd_##s(a, b, c); }                                    \
    static inline V##_bad V##_unordered(V a, V b) { return _mm512_cmp_##s##_mask(a, b, _CMP_UNORD_Q); }                \
    static inline int V##_any(V##_bad bad) { return bad != 0; }                                                        \
    static inline int V##_any_equal(V a, V b) { return _mm512_cmp_##s##_mask(a, b, _CMP_EQ_OQ) != 0; }                 \
    static inline V V##_nan_wins(V v, V acc, V r) {                                                                    \
        (void)acc;                                                                                                     \
        return (V)_mm512_mask_mov_##s(r, _mm512_cmp_##s##_mask(v, v, _CMP_UNORD_Q), v);                                \
    }                                                                                                                  \
    static inline V V##_load_part(const T *p, size_t n, V fill) {                                                      \
        return (V)_mm512_mask_loadu_##s(fill, (M)((1u << n) - 1), p);                                                  \
    }                                                                                                                  \
    static inline void V##_store_part(T *p, size_t n, V v) { _mm512_mask_storeu_##s(p, (M)((1u << n) - 1), v); }       \
    static inline T V##_hmax(V v) { return _mm512_reduce_max_##s(v); }                                                 \
    static inline T V##_hmin(V v) { return _mm512_reduce_min_##s(v); }
DYCL_VEC(vf, float, ps, __mmask16)
DYCL_VEC(vd, double, pd, __mmask8)
#undef DYCL_VEC

static inline double vd_hsum(vd v) { return _mm512_reduce_add_pd(v); }
static inline double vf_hsum(vf v) {
    __m256 high = _mm512_extractf32x8_ps(v, 1);
    return vd_hsum((vd)_mm512_cvtps_pd(_mm512_castps512_ps256(v)) + (vd)_mm512_cvtps_pd(high));
}

#else

#if DYCL_LEVEL == 1

static inline vf_int vf_first(size_t n) { return (vf_int){0, 1, 2, 3, 4, 5, 6, 7} < (int32_t)n - (vf_int){0}; }
static inline vd_int vd_first(size_t n) { return (vd_int){0, 1, 2, 3} < (int64_t)n - (vd_int){0}; }

#define DYCL_VEC(V, T, s)                                                                                              \
    typedef V##_int V##_bad;                                                                                           \
    static inline V V##_max(V v, V acc) { return (V)_mm256_max_##s(v, acc); }                                          \
    static inline V V##_min(V v, V acc) { return (V)_mm256_min_##s(v, acc); }                                          \
    static inline V V##_fma(V a, V b, V c) { return (V)_mm256_fmadd_##s(a, b, c); }                                    \
    static inline V##_bad V##_unordered(V a, V b) { return (V##_int)_mm256_cmp_##s(a, b, _CMP_UNORD_Q); }              \
    static inline int V##_any(V##_bad bad) { return _mm256_movemask_##s((V)bad) != 0; }                                \
    static inline int V##_any_equal(V a, V b) { return _mm256_movemask_##s(_mm256_cmp_##s(a, b, _CMP_EQ_OQ)) != 0; }   \
    static inline V V##_nan_wins(V v, V acc, V r) {                                                                    \
        (void)acc;                                                                                                     \
        return (V)_mm256_blendv_##s(r, v, _mm256_cmp_##s(v, v, _CMP_UNORD_Q));                                         \
    }                                                                                                                  \
    static inline V V##_load_part(const T *p, size_t n, V fill) {                                                      \
        V##_int mask = V##_first(n);                                                                                   \
        return (V)_mm256_blendv_##s(fill, _mm256_maskload_##s(p, (__m256i)mask), (V)mask);                             \
    }                                                                                                                  \
    static inline void V##_store_part(T *p, size_t n, V v) { _mm256_maskstore_##s(p, (__m256i)V##_first(n), v); }
DYCL_VEC(vf, float, ps)
DYCL_VEC(vd, double, pd)
#undef DYCL_VEC

static inline double vd_hsum(vd v) {
    __m128d q = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
    return q[0] + q[1];
}
static inline double vf_hsum(vf v) {
    return vd_hsum((vd)_mm256_cvtps_pd(_mm256_castps256_ps128(v)) + (vd)_mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
}

#else

#define DYCL_VEC(V, T)                                                                                                 \
    typedef V##_int V##_bad;                                                                                           \
    static inline V V##_max(V v, V acc) { return V##_select((V##_int)(v > acc), v, acc); }                             \
    static inline V V##_min(V v, V acc) { return V##_select((V##_int)(v < acc), v, acc); }                             \
    static inline V V##_fma(V a, V b, V c) { return a * b + c; }                                                       \
    static inline V##_bad V##_unordered(V a, V b) { return (V##_int)(a != a) | (V##_int)(b != b); }                    \
    static inline int V##_any(V##_bad bad) {                                                                           \
        int64_t halves[2];                                                                                             \
        memcpy(halves, &bad, sizeof halves);                                                                           \
        return (halves[0] | halves[1]) != 0;                                                                           \
    }                                                                                                                  \
    static inline int V##_any_equal(V a, V b) { return V##_any((V##_int)(a == b)); }                                   \
    static inline V V##_nan_wins(V v, V acc, V r) {                                                                    \
        return V##_select((V##_int)(v != v), v, V##_select((V##_int)(acc != acc), acc, r));                            \
    }                                                                                                                  \
    static inline V V##_load_part(const T *p, size_t n, V fill) {                                                      \
        for (size_t i = 0; i < n; i++) fill[i] = p[i];                                                                 \
        return fill;                                                                                                   \
    }                                                                                                                  \
    static inline void V##_store_part(T *p, size_t n, V v) {                                                           \
        for (size_t i = 0; i < n; i++) p[i] = v[i];                                                                    \
    }
DYCL_VEC(vf, float)
DYCL_VEC(vd, double)
#undef DYCL_VEC

static inline double vd_hsum(vd v) { return v[0] + v[1]; }
static inline double vf_hsum(vf v) { return ((double)v[0] + (double)v[2]) + ((double)v[1] + (double)v[3]); }

#endif

#define DYCL_FOLD(V, T, name, op)                                                                                      \
    static inline T V##_##name(V v) {                                                                                  \
        T best = v[0];                                                                                                 \
        for (int i = 1; i < V##_lanes; i++) best = v[i] op best ? v[i] : best;                                         \
        return best;                                                                                                   \
    }
DYCL_FOLD(vf, float, hmax, >)
DYCL_FOLD(vf, float, hmin, <)
DYCL_FOLD(vd, double, hmax, >)
DYCL_FOLD(vd, double, hmin, <)
#undef DYCL_FOLD

#endif

/* The horizontal sums of four vectors, for rows so short that those cost more than what is summed: of vf in f32. */
static inline void vf_hsum4(double out[4], const vf v[4]) {
#if DYCL_LEVEL > 0
    __m256 h[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
#if DYCL_LEVEL == 2
        h[i] = _mm256_add_ps(_mm512_castps512_ps256(v[i]), _mm512_extractf32x8_ps(v[i], 1));
#else
        h[i] = v[i];
#endif
    __m256 q = _mm256_hadd_ps(_mm256_hadd_ps(h[0], h[1]), _mm256_hadd_ps(h[2], h[3]));
    __m128 sums = _mm_add_ps(_mm256_castps256_ps128(q), _mm256_extractf128_ps(q, 1));
    _mm256_storeu_pd(out, _mm256_cvtps_pd(sums));
#else
    for (int i = 0; i < 4; i++) out[i] = vf_hsum(v[i]);
#endif
}
static inline void vd_hsum4(double out[4], const vd v[4]) {
    for (int i = 0; i < 4; i++) out[i] = vd_hsum(v[i]);
}

/* e^x for x <= 0 (NaN propagates), within 1.5 ulp, subnormal results included: what softmax needs and no more. */
static inline vf vf_exp_negative(vf x) {
    const vf floor_x = vf_set(-104.0f); /* e^-104 rounds to 0 */
#if DYCL_LEVEL == 2
    x = (vf)_mm512_max_ps(floor_x, x);
#elif DYCL_LEVEL == 1
    x = (vf)_mm256_max_ps(floor_x, x);
#else
    x = vf_select((vf_int)(x < floor_x), floor_x, x);
#endif
    vf n = vf_fma(x, vf_set(1.44269504f), vf_set(12582912.0f)) -
           12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    vf r = vf_fma(n, vf_set(-0.693359375f), x);
    r = vf_fma(n, vf_set(2.12194440e-4f), r);
    vf p = vf_fma(vf_set(1.9875691500e-4f), r, vf_set(1.3981999507e-3f));
    p = vf_fma(p, r, vf_set(8.3334519073e-3f));
    p = vf_fma(p, r, vf_set(4.1665795894e-2f));
    p = vf_fma(p, r, vf_set(1.6666665459e-1f));
    p = vf_fma(p, r, vf_set(5.0000001201e-1f));
    p = vf_fma(p, r * r, r) + 1.0f;
#if DYCL_LEVEL == 2
    return (vf)_mm512_scalef_ps(p, n);
#else
    /* Two factors, each a normal number: only the second product rounds. A NaN lane converts to anything and stays
     * NaN. */
#if DYCL_LEVEL == 1
    vf_int whole = (vf_int)_mm256_cvtps_epi32(n);
#else
    vf_int whole = __builtin_convertvector(vf_select((vf_int)(n == n), n, (vf){0}), vf_int);
#endif
    vf_int half = whole >> 1;
    return p * (vf)((half + 127) << 23) * (vf)((whole - half + 127) << 23);
#endif
}

#endif
