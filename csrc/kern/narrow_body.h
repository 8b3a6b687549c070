/* Body of the products over weights in fewer bits. Before including: DYCL_LEVEL (1 or 2), DYCL_NARROW_TABLE. */
#include "kern/narrow.h"
#include "kern/rowvec.h"

#define ALWAYS static inline __attribute__((always_inline))
#define GROUP  DYCL_NARROW_GROUP
#define CHUNKS (GROUP / vf_lanes)
#define AHEAD                                                                                                          \
    2048 /* bytes: further than the processor's own prefetching reaches. 1024 to 2560 were the same within 2% */

/* Columns at once for 1 to 4 rows, and sums of each, all in registers. */
#if DYCL_LEVEL == 2
#define SHAPES(X) X(1, 4, 2) X(2, 4, 2) X(3, 4, 1) X(4, 4, 1)
typedef __m512i words;
#define WORDS(name) _mm512_##name
ALWAYS words low_halves(const uint8_t *from) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from));
}
ALWAYS words bytes_signed(const uint8_t *from) { return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from)); }
ALWAYS words bytes_plain(const uint8_t *from) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)from)); }
ALWAYS words load_words(const uint8_t *from) { return _mm512_loadu_si512(from); }
ALWAYS words with_bits(words x, words more, int mask) {
    return _mm512_ternarylogic_epi32(x, more, _mm512_set1_epi32(mask), 0xf8); /* x | (more & mask) */
}
ALWAYS words only(words x, int mask) { return _mm512_and_si512(x, _mm512_set1_epi32(mask)); }
ALWAYS words add_where(words x, int mask, words more) {
    return _mm512_mask_add_epi32(x, _mm512_test_epi32_mask(x, _mm512_set1_epi32(mask)), x, more);
}
#else
#define SHAPES(X)   X(1, 4, 1) X(2, 3, 1) X(3, 2, 1) X(4, 2, 1)
typedef __m256i words;
#define WORDS(name) _mm256_##name
ALWAYS words low_halves(const uint8_t *from) { return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)from)); }
ALWAYS words bytes_signed(const uint8_t *from) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from)); }
ALWAYS words bytes_plain(const uint8_t *from) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)from)); }
ALWAYS words load_words(const uint8_t *from) { return _mm256_loadu_si256((const __m256i *)from); }
ALWAYS words only(words x, int mask) { return _mm256_and_si256(x, _mm256_set1_epi32(mask)); }
ALWAYS words with_bits(words x, words more, int mask) { return _mm256_or_si256(x, only(more, mask)); }
ALWAYS words add_where(words x, int mask, words more) {
    return _mm256_add_epi32(x, _mm256_andnot_si256(_mm256_cmpeq_epi32(only(x, mask), _mm256_setzero_si256()), more));
}
#endif

enum { SIGN_AND_CODE = (int)0x87f00000, CODE = 0x07800000, MIDDLE = 0x000f0000, UPPER = (int)0xffff0000 };

/* Weights [chunk * vf_lanes, + vf_lanes) of a group. */
ALWAYS vf decode(int bits, const uint8_t *group, int chunk, words base) {
    int first = chunk * vf_lanes, half = first / 16; /* of the words that hold two */
    if (bits == 16) {
        words both = load_words(group + first % 16 * 4);
        return (vf)(half ? only(both, UPPER) : WORDS(slli_epi32)(both, 16));
    }
    words x = low_halves(group + first * 2), pairs = bytes_plain(group + 96 + first % 16);
    x = with_bits(x, half ? WORDS(slli_epi32)(pairs, 12) : WORDS(slli_epi32)(pairs, 16), MIDDLE);
    x = with_bits(x, WORDS(slli_epi32)(bytes_signed(group + 64 + first), 20), SIGN_AND_CODE);
    return (vf)add_where(x, CODE, base);
}

/* A's row, with zeros after its end. */
typedef struct {
    const float *row;
    float rest[GROUP];
} left;

ALWAYS void dots(const dycl_narrow *g, const left *a, int bits, int m, int streams, int sets, int64_t column,
                 int64_t apart) {
    const int size = dycl_narrow_group_bytes(bits);
    const dycl_narrow_header *h = g->packed;
    const words base = WORDS(set1_epi32)(h->base << 23);
    const uint8_t *at[8];
    vf sum[DYCL_NARROW_ROWS][8][2];
#pragma GCC unroll 8
    for (int s = 0; s < streams; s++) at[s] = h->columns + (g->first + column + s * apart) * h->groups * size;
#pragma GCC unroll 4
    for (int i = 0; i < m; i++)
#pragma GCC unroll 8
        for (int s = 0; s < streams; s++) sum[i][s][0] = sum[i][s][sets - 1] = (vf){0};
    int64_t whole = g->k / GROUP;
    for (int64_t p = 0; p < h->groups; p++) {
        const float *x[DYCL_NARROW_ROWS];
#pragma GCC unroll 4
        for (int i = 0; i < m; i++) x[i] = p < whole ? a[i].row + p * GROUP : a[i].rest;
#pragma GCC unroll 8
        for (int s = 0; s < streams; s++) {
            _mm_prefetch((const char *)at[s] + AHEAD, _MM_HINT_T0);
            if (size > 64) _mm_prefetch((const char *)at[s] + AHEAD + 64, _MM_HINT_T0);
#pragma GCC unroll 4
            for (int chunk = 0; chunk < CHUNKS; chunk++) {
                vf y = decode(bits, at[s], chunk, base);
#pragma GCC unroll 4
                for (int i = 0; i < m; i++) {
                    vf *to = &sum[i][s][chunk & (sets - 1)];
                    *to = vf_fma(vf_load(x[i] + chunk * vf_lanes), y, *to);
                }
            }
            at[s] += size;
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < m; i++)
#pragma GCC unroll 8
        for (int s = 0; s < streams; s++) {
            int64_t j = column + s * apart, of_b = g->first + j;
            double total = vf_hsum(sets == 2 ? sum[i][s][0] + sum[i][s][1] : sum[i][s][0]);
            if (h->begins[of_b] != h->begins[of_b + 1]) total = dycl_narrow_complete(g, i, of_b, total);
            g->c[i * g->ldc + j] = (float)(total + (g->bias ? (double)g->bias[j] : 0));
        }
}

#define SHAPE(BITS, M, STREAMS, SETS)                                                                                  \
    static void run##BITS##_##M(const dycl_narrow *g, const left *a, int64_t from, int64_t end) {                      \
        int64_t apart = (end - from) / STREAMS;                                                                        \
        for (int64_t j = 0; j < apart; j++) dots(g, a, BITS, M, STREAMS, SETS, from + j, apart);                       \
        for (int64_t j = from + apart * STREAMS; j < end; j++) dots(g, a, BITS, M, 1, SETS, j, 0);                     \
    }
#define SHAPE28(M, STREAMS, SETS) SHAPE(28, M, STREAMS, SETS)
#define SHAPE16(M, STREAMS, SETS) SHAPE(16, M, STREAMS, SETS)
SHAPES(SHAPE28)
SHAPES(SHAPE16)

static void run(const dycl_narrow *g, int64_t from, int64_t end) {
    static void (*const shapes[2][DYCL_NARROW_ROWS])(const dycl_narrow *, const left *, int64_t, int64_t) = {
        {run28_1, run28_2, run28_3, run28_4}, {run16_1, run16_2, run16_3, run16_4}};
    left a[DYCL_NARROW_ROWS];
    for (int i = 0; i < g->m; i++) {
        a[i].row = g->a + i * g->lda;
        memset(a[i].rest, 0, sizeof a[i].rest);
        memcpy(a[i].rest, a[i].row + g->k / GROUP * GROUP, (size_t)(g->k % GROUP) * sizeof(float));
    }
    shapes[g->packed->bits == 16][g->m - 1](g, a, from, end);
}

static int encode28(uint8_t *group, const float *weights, int base) {
    uint32_t u[GROUP];
    int kept = 0;
    memcpy(u, weights, sizeof u);
    for (int i = 0; i < GROUP; i++) {
        uint32_t code = (u[i] >> 23 & 255) - (uint32_t)base, fits = code - 1 < 15 ? UINT32_MAX : 0;
        kept += !fits && u[i] << 1;
        u[i] = (u[i] & 0x807fffff & (fits | 0x80000000)) | (code & fits) << 23;
    }
    for (int i = 0; i < GROUP; i++) ((uint16_t *)group)[i] = (uint16_t)u[i];
    for (int i = 0; i < GROUP; i++) group[64 + i] = (uint8_t)(u[i] >> 24 & 0x80) | (uint8_t)(u[i] >> 20 & 0x7f);
    for (int i = 0; i < 16; i++) group[96 + i] = (uint8_t)(u[i] >> 16 & 15) | (uint8_t)(u[i + 16] >> 12 & 0xf0);
    return kept;
}

static int encode16(uint8_t *group, const float *weights, int base) {
    uint32_t u[GROUP];
    int kept = 0;
    (void)base;
    memcpy(u, weights, sizeof u);
    for (int i = 0; i < GROUP; i++) {
        uint32_t fits = u[i] & 0xffff ? 0 : UINT32_MAX;
        kept += !fits;
        u[i] &= fits;
    }
    for (int i = 0; i < 16; i++) ((uint32_t *)group)[i] = u[i] >> 16 | u[i + 16];
    return kept;
}

const dycl_narrow_table DYCL_NARROW_TABLE = {run, encode28, encode16};
