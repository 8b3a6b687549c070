/* Body of the search for the largest element of a product. Before including: DYCL_LEVEL (1 or 2) and
 * DYCL_PREFILTER_TABLE. */
#include "kern/rowvec.h"
#include "kern/prefilter.h"

#define ALWAYS  static inline __attribute__((always_inline))
#define AHEAD   2048     /* bytes: further than the processor's own prefetching reaches, as in kern/narrow_body.h */
#define LARGE   1e19     /* weights from here on are not bounded: products with them may overflow */
#define TINY    1e-37f   /* more than all that products below the smallest normal number may lose */
#define OF_BIAS 0x1p-20f /* of a bias: its addition is rounded */

/* Columns at once for 1 to 4 rows, and sums of each, all in registers. */
#if DYCL_LEVEL == 2
#define SHAPES(X) X(1, 4, 2) X(2, 4, 2) X(3, 4, 1) X(4, 4, 1)
ALWAYS vf weights(const int8_t *from) {
    return (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from)));
}
/* To the next whole numbers, also stored: within -127 and 127. */
ALWAYS vf rounded(vf x, int8_t *to) {
    __m512i q = _mm512_cvtps_epi32((__m512)x);
    _mm_storeu_si128((__m128i *)to, _mm512_cvtsepi32_epi8(q));
    return (vf)_mm512_cvtepi32_ps(q);
}
ALWAYS unsigned not_below(vf x, vf floor) { return _mm512_cmp_ps_mask((__m512)x, (__m512)floor, _CMP_NLT_UQ); }
#else
#define SHAPES(X) X(1, 4, 1) X(2, 3, 1) X(3, 2, 1) X(4, 2, 1)
ALWAYS vf weights(const int8_t *from) {
    return (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from)));
}
ALWAYS vf rounded(vf x, int8_t *to) {
    __m256i q = _mm256_cvtps_epi32((__m256)x);
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
    _mm_storel_epi64((__m128i *)to, _mm_packs_epi16(words, words));
    return (vf)_mm256_cvtepi32_ps(q);
}
ALWAYS unsigned not_below(vf x, vf floor) {
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps((__m256)x, (__m256)floor, _CMP_NLT_UQ));
}
#endif

ALWAYS float margin(const dycl_prefilter *g, int i, int64_t j) {
    float of_bias = g->bias ? fabsf(g->bias[j]) * OF_BIAS : 0;
    return g->norm[i] * g->packed->slack[j] + of_bias + TINY;
}

ALWAYS void sums(const dycl_prefilter *g, const float *const *rest, int m, int streams, int sets, int64_t column,
                 int64_t apart, float *floor) {
    const dycl_prefilter_header *h = g->packed;
    const int8_t *at[4];
    vf sum[DYCL_PREFILTER_ROWS][4][2];
#pragma GCC unroll 4
    for (int s = 0; s < streams; s++) at[s] = h->columns + (column + s * apart) * h->bytes;
#pragma GCC unroll 4
    for (int i = 0; i < m; i++)
#pragma GCC unroll 4
        for (int s = 0; s < streams; s++) sum[i][s][0] = sum[i][s][sets - 1] = (vf){0};
    int64_t whole = g->k / 64;
    for (int64_t p = 0; p < h->bytes / 64; p++) {
#pragma GCC unroll 4
        for (int s = 0; s < streams; s++) {
            _mm_prefetch((const char *)at[s] + AHEAD, _MM_HINT_T0);
#pragma GCC unroll 8
            for (int chunk = 0; chunk < 64 / vf_lanes; chunk++) {
                vf y = weights(at[s] + chunk * vf_lanes);
#pragma GCC unroll 4
                for (int i = 0; i < m; i++) {
                    const float *x = p < whole ? g->a + i * g->lda + p * 64 : rest[i];
                    vf *to = &sum[i][s][chunk & (sets - 1)];
                    *to = vf_fma(vf_load(x + chunk * vf_lanes), y, *to);
                }
            }
            at[s] += 64;
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < m; i++)
#pragma GCC unroll 4
        for (int s = 0; s < streams; s++) {
            int64_t j = column + s * apart;
            float c = (float)vf_hsum(sets == 2 ? sum[i][s][0] + sum[i][s][1] : sum[i][s][0]) * h->scale[j];
            if (g->bias) c += g->bias[j];
            float low = c - margin(g, i, j);
            g->c[i * g->ldc + j] = c;
            if (low > floor[i]) floor[i] = low;
        }
}

#define SHAPE(M, STREAMS, SETS)                                                                                        \
    static void scores##M(const dycl_prefilter *g, const float *const *rest, int64_t from, int64_t end,                \
                          float *floor) {                                                                              \
        int64_t apart = (end - from) / STREAMS;                                                                        \
        for (int64_t j = 0; j < apart; j++) sums(g, rest, M, STREAMS, SETS, from + j, apart, floor);                   \
        for (int64_t j = from + apart * STREAMS; j < end; j++) sums(g, rest, M, 1, SETS, j, 0, floor);                 \
    }
SHAPES(SHAPE)

static void scores(const dycl_prefilter *g, int64_t from, int64_t end, float *floor) {
    static void (*const shapes[DYCL_PREFILTER_ROWS])(const dycl_prefilter *, const float *const *, int64_t, int64_t,
                                                     float *) = {scores1, scores2, scores3, scores4};
    float last[DYCL_PREFILTER_ROWS][64]; /* A's row, with zeros after its end */
    const float *rest[DYCL_PREFILTER_ROWS];
    for (int i = 0; i < g->m; i++) {
        memset(last[i], 0, sizeof last[i]);
        memcpy(last[i], g->a + i * g->lda + g->k / 64 * 64, (size_t)(g->k % 64) * sizeof(float));
        rest[i] = last[i];
        floor[i] = -INFINITY;
    }
    shapes[g->m - 1](g, rest, from, end, floor);
}

static int64_t above(const dycl_prefilter *g, int i, float floor, int64_t from, int64_t end, uint32_t *out) {
    const float *c = g->c + i * g->ldc, *slack = g->packed->slack, *bias = g->bias;
    const vf norm = vf_set(g->norm[i]), tiny = vf_set(TINY), of_bias = vf_set(OF_BIAS), least = vf_set(floor);
    int64_t count = 0, j = from;
    for (; j + vf_lanes <= end; j += vf_lanes) {
        vf most = norm * vf_load(slack + j) + tiny;
        if (bias) most += vf_abs(vf_load(bias + j)) * of_bias;
        for (unsigned found = not_below(vf_load(c + j) + most, least); found; found &= found - 1)
            out[count++] = (uint32_t)(j + __builtin_ctz(found));
    }
    for (; j < end; j++)
        if (!(c[j] + margin(g, i, j) < floor)) out[count++] = (uint32_t)j;
    return count;
}

/* Where the column ends, the rest of a vector is filled with zeros. */
ALWAYS vf part(const void *from, int64_t k, int round, int64_t p) {
    const float *w = from;
    if (round == DYCL_PREFILTER_STORED) {
        typedef uint16_t halves __attribute__((vector_size(DYCL_VBYTES / 2)));
        halves h = {0};
        if (p + vf_lanes <= k)
            memcpy(&h, (const uint16_t *)from + p, sizeof h);
        else
            memcpy(&h, (const uint16_t *)from + p, (size_t)(k - p) * sizeof(uint16_t));
        return (vf)(__builtin_convertvector(h, vf_int) << 16);
    }
    vf x = p + vf_lanes <= k ? vf_load(w + p) : vf_load_part(w + p, (size_t)(k - p), (vf){0});
    if (!round) return x;
    typedef uint32_t words __attribute__((vector_size(DYCL_VBYTES)));
    const words u = (words)x; /* to bfloat16: to nearest, ties to even */
    return (vf)((u + 0x7fff + (u >> 16 & 1)) & 0xffff0000);
}

ALWAYS void quantise_as(const void *w, int64_t k, int round, int8_t *to, int64_t bytes, float *scale, float *slack) {
    vf most_of = {0}, left_of = {0}, norm_of = {0};
    unsigned bad = 0;
    for (int64_t p = 0; p < k; p += vf_lanes) {
        bad |= not_below(vf_abs(part(w, k, round == DYCL_PREFILTER_STORED ? round : 0, p)), vf_set(LARGE));
        most_of = vf_max(vf_abs(part(w, k, round, p)), most_of);
    }
    float most = 0;
    for (int i = 0; i < vf_lanes; i++) most = most_of[i] > most ? most_of[i] : most;
    memset(to + k, 0, (size_t)(bytes - k));
    *scale = 0;
    *slack = 0;
    const float s = most / 127, inverse = 127 / most;
    if (bad || most == 0 || !(inverse < 1e36f)) { /* s is to be a normal number */
        memset(to, 0, (size_t)k);
        if (bad || most) *slack = INFINITY;
        return;
    }
    for (int64_t p = 0; p < k; p += vf_lanes) {
        vf x = part(w, k, round, p) * inverse, q = rounded(x, to + p); /* `bytes` is a multiple of the lanes */
        left_of += (x - q) * (x - q);
        norm_of += q * q;
    }
    /* In units of s: x - q misses w / s - q by the rounding of inverse, of the product and of s, 127 times 2e-7 in all;
     * the sums of squares, of at most 2^17 terms, err by less than a part in a thousand. */
    double left = sqrt(vf_hsum(left_of)) * 1.001 + 3e-5 * sqrt((double)k), norm = sqrt(vf_hsum(norm_of)) * 1.001;
    double rounding = (double)(2 * k + 64) * 0x1p-24; /* of the sum in 8 bits, and of the column's own */
    *scale = s;
    *slack = (float)((double)s * (left + rounding * (norm + 2 * left)) * 1.00001);
}

static void quantise(const void *w, int64_t k, int rounded, int8_t *to, int64_t bytes, float *scale, float *slack) {
    if (rounded == DYCL_PREFILTER_STORED)
        quantise_as(w, k, DYCL_PREFILTER_STORED, to, bytes, scale, slack);
    else if (rounded)
        quantise_as(w, k, 1, to, bytes, scale, slack);
    else
        quantise_as(w, k, 0, to, bytes, scale, slack);
}

const dycl_prefilter_table DYCL_PREFILTER_TABLE = {scores, above, quantise};
