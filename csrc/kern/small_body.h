/* Body of a product with few rows. Before including: VEC (type), LANES, VECTORS (of a panel), ROWS (at once), LOAD,
 * STORE, SET1, ZERO, FMA, ADD, SUFFIX. */
#include "kern/small.h"

#include <string.h>

static inline __attribute__((always_inline)) void block(int rows, int vectors, float *c, int64_t ldc, const float *a,
                                                        int64_t lda, const float *b, const float *bias, int64_t columns,
                                                        int64_t k) {
    VEC sum[ROWS][VECTORS];
    int64_t whole = columns / LANES, rest = columns - whole * LANES;
    float edge[LANES];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++)
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) sum[r][v] = ZERO();
    for (int64_t p = 0; p < k; p++, b += vectors * LANES) {
        VEC row[VECTORS];
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) row[v] = LOAD(b + v * LANES);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            VEC x = SET1(a[r * lda + p]);
#pragma GCC unroll 8
            for (int v = 0; v < vectors; v++) sum[r][v] = FMA(x, row[v], sum[r][v]);
        }
    }
    if (bias) { /* last: every partial sum would be rounded as coarsely as a large bias */
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) {
            VEC last = ZERO();
            if (v < whole)
                last = LOAD(bias + v * LANES);
            else if (rest) {
                memset(edge, 0, sizeof edge);
                memcpy(edge, bias + v * LANES, (size_t)rest * sizeof(float));
                last = LOAD(edge);
            }
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) sum[r][v] = ADD(sum[r][v], last);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) {
            if (v < whole)
                STORE(c + r * ldc + v * LANES, sum[r][v]);
            else {
                STORE(edge, sum[r][v]);
                memcpy(c + r * ldc + v * LANES, edge, (size_t)rest * sizeof(float));
            }
        }
}

#define CASES(R)                                                                                                       \
    case R:                                                                                                            \
        switch (vectors) {                                                                                             \
        case 1: block(R, 1, c, ldc, a, lda, b, bias, columns, k); return;                                              \
        case 2:                                                                                                        \
            block(R, 2, c, ldc, a, lda, b, bias, columns, k);                                                          \
            return;                                                                                                    \
            MORE_VECTORS(R)                                                                                            \
        }                                                                                                              \
        return;

static void rows_of(int rows, int vectors, float *c, int64_t ldc, const float *a, int64_t lda, const float *b,
                    const float *bias, int64_t columns, int64_t k) {
    switch (rows) {
        CASES(1)
        CASES(2)
        CASES(3)
        CASES(4)
        CASES(5)
        CASES(6)
    }
}

static void run(float *c, int64_t ldc, const float *a, int64_t lda, const float *packed, const float *bias, int64_t m,
                int64_t n, int64_t k) {
    for (int64_t j = 0; j < n; j += VECTORS * LANES) {
        int64_t columns = n - j < VECTORS * LANES ? n - j : VECTORS * LANES;
        int vectors = (int)((columns + LANES - 1) / LANES);
        for (int64_t i = 0; i < m;) {
            int64_t left = m - i, rows = left <= ROWS ? left : left < 2 * ROWS ? (left + 1) / 2 : ROWS;
            rows_of((int)rows, vectors, c + i * ldc + j, ldc, a + i * lda, lda, packed, bias ? bias + j : NULL, columns,
                    k);
            i += rows;
        }
        packed += k * vectors * LANES;
    }
}

const dycl_small SUFFIX = {run, LANES, VECTORS *LANES};
