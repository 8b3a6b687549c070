/* Body of the tiles of a packed product. Before including: DYCL_SIMD_WIDTH, TILES (a list of T(rows, vectors)),
 * MOST1..4 (rows), SUFFIX, ADD_PRODUCT (sum += x * y). */
#include "kern/gemm.h"
#include "kern/simd.h"

#include <math.h>

/* Rows in threes: an address is a base plus 0, 1 or 2 times the distance, so that five registers reach fourteen rows.
 * The empty asm keeps the compiler from giving each row a register of its own, which it would then have to spill. */
#define KEEP(x) __asm__ volatile("" : "+r"(x))

#define LINE (64 / (int)sizeof(float)) /* elements of a line of the cache */

DYCL_INLINE void tile(const dycl_gemm_tile *t, const int rows, const int vectors) {
    vf sum[DYCL_GEMM_ROWS][DYCL_GEMM_VECTORS];
    const int64_t tail = t->columns - (int64_t)(vectors - 1) * VW;
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
#pragma GCC unroll 14
        for (int r = 0; r < rows; r++) sum[r][v] = v_set1(0.0f);
    const float *b = t->b;
    const char *next = t->next;
    const int64_t next_step = t->next_step;
    for (int64_t s = 0; s < t->segment_count; s++) {
        int64_t row = t->a_row;
        const char *p0 = t->a + t->segments[s], *p1 = p0 + 3 * row, *p2 = p0 + 6 * row, *p3 = p0 + 9 * row,
                   *p4 = p0 + 12 * row;
        const char *end = p0 + (t->depth & ~(int64_t)1) * (int64_t)sizeof(float);
#define STEP(at)                                                                                                       \
    do {                                                                                                               \
        vf y[DYCL_GEMM_VECTORS];                                                                                       \
        _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) y[v] = v_load(b + ((at)*vectors + v) * VW);          \
        _Pragma("GCC unroll 14") for (int r = 0; r < rows; r++) {                                                      \
            const char *p = r < 3 ? p0 : r < 6 ? p1 : r < 9 ? p2 : r < 12 ? p3 : p4;                                   \
            vf x = v_set1(*(const float *)(p + (r % 3) * row + (at)*4));                                               \
            _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) ADD_PRODUCT(sum[r][v], x, y[v]);                 \
        }                                                                                                              \
        _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) if (((at)*vectors + v) * VW % LINE == 0)             \
            __builtin_prefetch(b + ((at + 8) * vectors + v) * VW, 0, 3);                                               \
    } while (0)
        while (p0 != end) {
            KEEP(row);
            KEEP(p0);
            if (rows > 3) KEEP(p1);
            if (rows > 6) KEEP(p2);
            if (rows > 9) KEEP(p3);
            if (rows > 12) KEEP(p4);
            STEP(0);
            STEP(1);
            __builtin_prefetch(next, 0, 2);
            next += next_step;
            p0 += 8, p1 += 8, p2 += 8, p3 += 8, p4 += 8;
            b += 2 * vectors * VW;
        }
        if (t->depth & 1) {
            STEP(0);
            b += vectors * VW;
        }
    }
    const vf low = v_set1(t->low), high = v_set1(t->high);
#pragma GCC unroll 14
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            int whole = v < vectors - 1 || tail == VW;
            float *to = t->c + r * t->c_row + v * VW;
            vf x = sum[r][v];
            if (t->accumulate) x = x + (whole ? v_load(to) : v_load_n(to, (size_t)tail));
            if (t->finish) {
                if (t->bias) x = x + (whole ? v_load(t->bias + v * VW) : v_load_n(t->bias + v * VW, (size_t)tail));
                if (t->residual) {
                    const float *from = t->residual + r * t->residual_row + v * VW;
                    x = x + (whole ? v_load(from) : v_load_n(from, (size_t)tail));
                }
                x = v_min(high, v_max(low, x));
            }
            if (whole)
                v_store(to, x);
            else
                v_store_n(to, x, (size_t)tail);
        }
}

#define T(rows, vectors)                                                                                               \
    static void tile_##rows##_##vectors(const dycl_gemm_tile *t) { tile(t, rows, vectors); }
TILES
#undef T

#define T(rows, vectors) .tile[vectors][rows] = tile_##rows##_##vectors,
const dycl_gemm_kernel SUFFIX = {.isa = ISA, .lanes = VW, .rows = {0, MOST1, MOST2, MOST3, MOST4}, TILES};
#undef T
