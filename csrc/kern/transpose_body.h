/* Block transpose of 4-byte elements, compiled once per ISA: the including file sets DYCL_LEVEL and DYCL_TRANSPOSE4.
 * The register block is 4x4, 8x8 or 16x16; all levels walk blocks of 16x16, so that each cache line read or written
 * is used whole while it is near.
 *
 * Ownership: pointers are borrowed. Threads: pure functions. */
#include "kern/transpose.h"

#include <string.h>

#if DYCL_LEVEL > 0
#include <immintrin.h>
#endif

#if DYCL_LEVEL == 2

static inline __attribute__((always_inline)) void block16(dycl_word *dst, int64_t ds, const dycl_word *src,
                                                          int64_t ss) {
    __m512i a[16], b[16];
    for (int i = 0; i < 16; i++) a[i] = _mm512_loadu_si512(src + i * ss);
    for (int i = 0; i < 8; i++) {
        b[2 * i] = _mm512_unpacklo_epi32(a[2 * i], a[2 * i + 1]);
        b[2 * i + 1] = _mm512_unpackhi_epi32(a[2 * i], a[2 * i + 1]);
    }
    for (int i = 0; i < 4; i++) {
        a[4 * i] = _mm512_unpacklo_epi64(b[4 * i], b[4 * i + 2]);
        a[4 * i + 1] = _mm512_unpackhi_epi64(b[4 * i], b[4 * i + 2]);
        a[4 * i + 2] = _mm512_unpacklo_epi64(b[4 * i + 1], b[4 * i + 3]);
        a[4 * i + 3] = _mm512_unpackhi_epi64(b[4 * i + 1], b[4 * i + 3]);
    }
    /* a[4g + k], 128-bit lane q: column 4q + k of rows 4g .. 4g + 3. */
    for (int k = 0; k < 4; k++) {
        __m512i even01 = _mm512_shuffle_i32x4(a[k], a[4 + k], 0x88), odd01 = _mm512_shuffle_i32x4(a[k], a[4 + k], 0xdd);
        __m512i even23 = _mm512_shuffle_i32x4(a[8 + k], a[12 + k], 0x88),
                odd23 = _mm512_shuffle_i32x4(a[8 + k], a[12 + k], 0xdd);
        _mm512_storeu_si512(dst + k * ds, _mm512_shuffle_i32x4(even01, even23, 0x88));
        _mm512_storeu_si512(dst + (4 + k) * ds, _mm512_shuffle_i32x4(odd01, odd23, 0x88));
        _mm512_storeu_si512(dst + (8 + k) * ds, _mm512_shuffle_i32x4(even01, even23, 0xdd));
        _mm512_storeu_si512(dst + (12 + k) * ds, _mm512_shuffle_i32x4(odd01, odd23, 0xdd));
    }
}

#else

#if DYCL_LEVEL == 1
#define SIDE 8
static inline __attribute__((always_inline)) void block_side(dycl_word *dst, int64_t ds, const dycl_word *src,
                                                             int64_t ss) {
    __m256 a[8], b[8];
    for (int i = 0; i < 4; i++) { /* rows i and i + 4 share a register, so that only in-lane shuffles remain */
        __m256 low = _mm256_castps128_ps256(_mm_loadu_ps((const float *)(src + i * ss)));
        a[i] = _mm256_insertf128_ps(low, _mm_loadu_ps((const float *)(src + (i + 4) * ss)), 1);
        low = _mm256_castps128_ps256(_mm_loadu_ps((const float *)(src + i * ss + 4)));
        a[4 + i] = _mm256_insertf128_ps(low, _mm_loadu_ps((const float *)(src + (i + 4) * ss + 4)), 1);
    }
    for (int h = 0; h < 8; h += 4) {
        b[h] = _mm256_unpacklo_ps(a[h], a[h + 1]), b[h + 1] = _mm256_unpackhi_ps(a[h], a[h + 1]);
        b[h + 2] = _mm256_unpacklo_ps(a[h + 2], a[h + 3]), b[h + 3] = _mm256_unpackhi_ps(a[h + 2], a[h + 3]);
        _mm256_storeu_ps((float *)(dst + h * ds), _mm256_shuffle_ps(b[h], b[h + 2], 0x44));
        _mm256_storeu_ps((float *)(dst + (h + 1) * ds), _mm256_shuffle_ps(b[h], b[h + 2], 0xee));
        _mm256_storeu_ps((float *)(dst + (h + 2) * ds), _mm256_shuffle_ps(b[h + 1], b[h + 3], 0x44));
        _mm256_storeu_ps((float *)(dst + (h + 3) * ds), _mm256_shuffle_ps(b[h + 1], b[h + 3], 0xee));
    }
}
#else
#define SIDE 4
typedef uint32_t lanes __attribute__((vector_size(16)));
static inline __attribute__((always_inline)) void block_side(dycl_word *dst, int64_t ds, const dycl_word *src,
                                                             int64_t ss) {
    lanes a[4], b[4];
    for (int i = 0; i < 4; i++) memcpy(&a[i], src + i * ss, sizeof a[i]);
    b[0] = __builtin_shufflevector(a[0], a[1], 0, 4, 1, 5), b[1] = __builtin_shufflevector(a[0], a[1], 2, 6, 3, 7);
    b[2] = __builtin_shufflevector(a[2], a[3], 0, 4, 1, 5), b[3] = __builtin_shufflevector(a[2], a[3], 2, 6, 3, 7);
    a[0] = __builtin_shufflevector(b[0], b[2], 0, 1, 4, 5), a[1] = __builtin_shufflevector(b[0], b[2], 2, 3, 6, 7);
    a[2] = __builtin_shufflevector(b[1], b[3], 0, 1, 4, 5), a[3] = __builtin_shufflevector(b[1], b[3], 2, 3, 6, 7);
    for (int i = 0; i < 4; i++) memcpy(dst + i * ds, &a[i], sizeof a[i]);
}
#endif

/* Rows at a distance of 4096 bytes share a set of the first cache, which holds some eight of their lines: the side
 * whose distance is the rounder one has each line used whole before the next. */
static inline void block16(dycl_word *dst, int64_t ds, const dycl_word *src, int64_t ss) {
    if ((ss & -ss) > (ds & -ds)) {
        for (int c = 0; c < 16; c += SIDE)
            for (int r = 0; r < 16; r += SIDE) block_side(dst + r * ds + c, ds, src + c * ss + r, ss);
    } else {
        for (int r = 0; r < 16; r += SIDE)
            for (int c = 0; c < 16; c += SIDE) block_side(dst + r * ds + c, ds, src + c * ss + r, ss);
    }
}

#endif

/* What is left of whole blocks: long reads where there are many rows, long writes where there are many columns. */
static void edge(dycl_word *dst, int64_t ds, const dycl_word *src, int64_t ss, size_t rows, size_t columns) {
    if (rows >= columns) {
        for (size_t c = 0; c < columns; c++)
            for (size_t r = 0; r < rows; r++) dst[(int64_t)r * ds + (int64_t)c] = src[(int64_t)c * ss + (int64_t)r];
    } else {
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < columns; c++) dst[(int64_t)r * ds + (int64_t)c] = src[(int64_t)c * ss + (int64_t)r];
    }
}

/* What is left of blocks of 16, in smaller ones as far as they go: panels of 24 columns leave 8. */
static void strip(dycl_word *dst, int64_t ds, const dycl_word *src, int64_t ss, size_t rows, size_t columns) {
    size_t r = 0, c = 0;
#ifdef SIDE
    for (; c + SIDE <= columns; c += SIDE)
        for (r = 0; r + SIDE <= rows; r += SIDE)
            block_side(dst + (int64_t)r * ds + (int64_t)c, ds, src + (int64_t)c * ss + r, ss);
#endif
    edge(dst + (int64_t)r * ds, ds, src + r, ss, rows - r, c);
    edge(dst + c, ds, src + (int64_t)c * ss, ss, rows, columns - c);
}

void DYCL_TRANSPOSE4(dycl_word *dst, int64_t dst_stride, const dycl_word *src, int64_t src_stride, size_t rows,
                     size_t columns) {
    size_t whole_rows = rows & ~(size_t)15, whole_columns = columns & ~(size_t)15;
    for (size_t c = 0; c < whole_columns; c += 16) {
        const dycl_word *from = src + (int64_t)c * src_stride;
        for (size_t r = 0; r < whole_rows; r += 16)
            block16(dst + (int64_t)r * dst_stride + (int64_t)c, dst_stride, from + r, src_stride);
        strip(dst + (int64_t)whole_rows * dst_stride + (int64_t)c, dst_stride, from + whole_rows, src_stride,
              rows - whole_rows, 16);
    }
    strip(dst + whole_columns, dst_stride, src + (int64_t)whole_columns * src_stride, src_stride, rows,
          columns - whole_columns);
}
