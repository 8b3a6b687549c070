#include "kern/bf16.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define LANES   16
#define VECTORS (DYCL_BF16_PANEL / LANES)
#define ROWS    4
#define AHEAD   4096 /* bytes: further than the processor's own prefetching reaches */

/* sets 2: even and odd k have sums of their own, so that few rows do not wait for the additions before. */
static inline __attribute__((always_inline)) void block(int rows, int vectors, int sets, float *c, int64_t ldc,
                                                        const float *a, int64_t lda, const uint16_t *b,
                                                        const float *bias, int64_t columns, int64_t k) {
    const __m512i high = _mm512_set1_epi32((int)0xffff0000u);
    __m512 sum[2][ROWS][VECTORS];
    __mmask16 mask[VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
        int64_t left = columns - v * LANES;
        mask[v] = left >= LANES ? 0xffff : (__mmask16)((1u << left) - 1);
        __m512 start = bias ? _mm512_maskz_loadu_ps(mask[v], bias + v * LANES) : _mm512_setzero_ps();
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            sum[0][r][v] = start;
            sum[1][r][v] = _mm512_setzero_ps();
        }
    }
    int64_t p = 0;
    for (; p + 1 < k; p += 2, b += 2 * vectors * LANES) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            __m512i words = _mm512_loadu_si512(b + 2 * v * LANES);
            _mm_prefetch((const char *)(b + 2 * v * LANES) + AHEAD, _MM_HINT_T0);
            __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16)),
                   odd = _mm512_castsi512_ps(_mm512_and_si512(words, high));
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                sum[0][r][v] = _mm512_fmadd_ps(_mm512_set1_ps(a[r * lda + p]), even, sum[0][r][v]);
                sum[sets - 1][r][v] = _mm512_fmadd_ps(_mm512_set1_ps(a[r * lda + p + 1]), odd, sum[sets - 1][r][v]);
            }
        }
    }
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            __m512 total = sum[0][r][v];
            if (sets == 2) total = _mm512_add_ps(total, sum[1][r][v]);
            if (p < k) {
                __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(b + 2 * v * LANES), 16));
                total = _mm512_fmadd_ps(_mm512_set1_ps(a[r * lda + p]), even, total);
            }
            _mm512_mask_storeu_ps(c + r * ldc + v * LANES, mask[v], total);
        }
}

#define CASE(R, V, SETS)                                                                                               \
    case V:                                                                                                            \
        block(R, V, SETS, c, ldc, a, lda, b, bias, columns, k);                                                        \
        return;
#define CASES(R, SETS)                                                                                                 \
    case R:                                                                                                            \
        switch (vectors) { CASE(R, 1, SETS) CASE(R, 2, SETS) CASE(R, 3, SETS) CASE(R, 4, SETS) }                       \
        return;

static void rows_of(int rows, int vectors, float *c, int64_t ldc, const float *a, int64_t lda, const uint16_t *b,
                    const float *bias, int64_t columns, int64_t k) {
    switch (rows) {
        CASES(1, 2)
        CASES(2, 2)
        CASES(3, 1)
        CASES(4, 1)
    }
}

void dycl_bf16_rows__avx512(float *c, int64_t ldc, const float *a, int64_t lda, const uint16_t *packed,
                            const float *bias, int64_t m, int64_t n, int64_t k) {
    int64_t pairs = (k + 1) / 2;
    for (int64_t j = 0; j < n; j += DYCL_BF16_PANEL) {
        int64_t columns = n - j < DYCL_BF16_PANEL ? n - j : DYCL_BF16_PANEL;
        int vectors = (int)((columns + LANES - 1) / LANES);
        for (int64_t i = 0; i < m;) {
            int64_t left = m - i, rows = left <= ROWS ? left : left < 2 * ROWS ? (left + 1) / 2 : ROWS;
            rows_of((int)rows, vectors, c + i * ldc + j, ldc, a + i * lda, lda, packed, bias ? bias + j : NULL, columns,
                    k);
            i += rows;
        }
        packed += pairs * 2 * vectors * LANES;
    }
}

void dycl_bf16_round__avx512(uint16_t *to, const float *from, int64_t count) {
    const __m512i half = _mm512_set1_epi32(0x7fff), one = _mm512_set1_epi32(1), quiet = _mm512_set1_epi32(0x400000);
    for (int64_t i = 0; i < count; i += LANES) {
        __mmask16 mask = count - i >= LANES ? 0xffff : (__mmask16)((1u << (count - i)) - 1);
        __m512 x = _mm512_maskz_loadu_ps(mask, from + i);
        __m512i bits = _mm512_castps_si512(x), even = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
        __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(half, even));
        rounded = _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), bits, quiet);
        _mm256_mask_storeu_epi16(to + i, mask, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
    }
}
#endif
