/* Body of Winograd's transforms. Before including: DYCL_SIMD_WIDTH, SUFFIX. */
#include "kern/kern.h"
#include "kern/simd.h"
#include "kern/winograd.h"

#include <string.h>

/* Of the 16 pixels of a square, the four in the middle. */
#define IS_INNER(i) ((i) == 5 || (i) == 6 || (i) == 9 || (i) == 10)

/* One column of B' d: rows 0 - 2, 1 + 2, 2 - 1, 1 - 3. */
#define BEFORE(a, b, c, d, out)                                                                                        \
    do {                                                                                                               \
        (out)[0] = (a) - (c);                                                                                          \
        (out)[1] = (b) + (c);                                                                                          \
        (out)[2] = (c) - (b);                                                                                          \
        (out)[3] = (b) - (d);                                                                                          \
    } while (0)

DYCL_INLINE void transform(float *to, int64_t step, const vf *d) {
    vf half[4][4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        vf column[4];
        BEFORE(d[j], d[4 + j], d[8 + j], d[12 + j], column);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) half[i][j] = column[i];
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        vf row[4];
        BEFORE(half[i][0], half[i][1], half[i][2], half[i][3], row);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) v_store(to + (4 * i + j) * step, row[j]);
    }
}

/* Infinite where a float holds no more. */
DYCL_INLINE float power_of_two(int exponent) {
    uint32_t bits = (uint32_t)(exponent < 128 ? exponent + 127 : 255) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

/* Whether an element of the inner pixels, or of all, is not below 2^limit. */
static int any_large(const float *const *square, int count, int64_t channels, int limit, int all) {
    for (int i = 0; i < count; i++)
        if ((all || IS_INNER(i)) && !dycl_kern_all_below(square[i], (size_t)channels, limit)) return 1;
    return 0;
}

DYCL_INLINE int is_below(vf sums, float bound) {
    float lanes[VW];
    int below = 1;
    v_store(lanes, sums);
    for (int i = 0; i < VW; i++) below &= lanes[i] < bound;
    return below;
}

/* Sums of squares below the limit's square say that no element is large; they cost one instruction an element, in units
 * that the transform does not use. */
static int input(float *to, int64_t step, const float *const *square, int64_t channels, int limit, int all) {
    const float bound = power_of_two(2 * limit);
    vf sums[4] = {v_set1(0.0f), v_set1(0.0f), v_set1(0.0f), v_set1(0.0f)};
    for (int64_t c = 0; c < channels; c += VW) {
        vf d[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) d[i] = v_load(square[i] + c);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            if (IS_INNER(i)) sums[i % 2 + i / 8 * 2] = v_fma(d[i], d[i], sums[i % 2 + i / 8 * 2]);
#pragma GCC unroll 16
        for (int i = 0; all && i < 16; i++)
            if (!IS_INNER(i)) sums[i % 4] = v_fma(d[i], d[i], sums[i % 4]);
        transform(to + c, step, d);
    }
    return !is_below((sums[0] + sums[1]) + (sums[2] + sums[3]), bound) && any_large(square, 16, channels, limit, all);
}

static void output(float *const *to, const float *from, int64_t step, const float *bias, const float *const *residual,
                   float low, float high, int64_t columns) {
    const vf least = v_set1(low), most = v_set1(high);
    for (int64_t c = 0; c < columns; c += VW) {
        vf half[2][4], first = bias ? v_load(bias + c) : v_set1(0.0f);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            vf m0 = v_load(from + j * step + c), m1 = v_load(from + (4 + j) * step + c),
               m2 = v_load(from + (8 + j) * step + c), m3 = v_load(from + (12 + j) * step + c);
            half[0][j] = m0 + m1 + m2;
            half[1][j] = m1 - m2 - m3;
        }
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            vf y[2] = {half[i][0] + half[i][1] + half[i][2], half[i][1] - half[i][2] - half[i][3]};
#pragma GCC unroll 2
            for (int j = 0; j < 2; j++) {
                int at = 2 * i + j;
                if (!to[at]) continue;
                vf x = y[j] + first;
                if (residual[at]) x = x + v_load(residual[at] + c);
                v_store(to[at] + c, v_min(most, v_max(least, x)));
            }
        }
    }
}

/* One column of G g: 0, half of 0 + 1 + 2, half of 0 - 1 + 2, 2. */
#define AROUND(a, b, c, out)                                                                                           \
    do {                                                                                                               \
        (out)[0] = (a);                                                                                                \
        (out)[1] = ((a) + (b) + (c)) * d_set1(0.5);                                                                    \
        (out)[2] = ((a) - (b) + (c)) * d_set1(0.5);                                                                    \
        (out)[3] = (c);                                                                                                \
    } while (0)

DYCL_INLINE void transform_windows(const vd *g, vd *u) {
    vd half[3][4];
#pragma GCC unroll 3
    for (int j = 0; j < 3; j++) AROUND(g[j], g[3 + j], g[6 + j], half[j]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) AROUND(half[0][i], half[1][i], half[2][i], u + 4 * i);
}

static void weights(float *to, int64_t step, const float *from, int64_t column, int64_t next, const float *scale,
                    int64_t columns) {
    for (int64_t n = 0; n < columns; n += VW) {
        float apart[9][VW];
        vd low[9], high[9], u[16], v[16];
        const vf factor = scale ? v_load(scale + n) : v_set1(1.0f);
        for (int i = 0; i < VW; i++)
#pragma GCC unroll 9
            for (int k = 0; k < 9; k++) apart[k][i] = from[(n + i) * column + k * next];
#pragma GCC unroll 9
        for (int k = 0; k < 9; k++) {
            vf g = v_load(apart[k]);
            low[k] = d_low(g) * d_low(factor);
            high[k] = d_high(g) * d_high(factor);
        }
        transform_windows(low, u);
        transform_windows(high, v);
#pragma GCC unroll 16
        for (int p = 0; p < 16; p++) v_store(to + p * step + n, d_join(u[p], v[p]));
    }
}

/* One column of A g: 0, 0 + 1, 0 - 1, -1. */
#define BESIDE(a, b, out)                                                                                              \
    do {                                                                                                               \
        (out)[0] = (a);                                                                                                \
        (out)[1] = (a) + (b);                                                                                          \
        (out)[2] = (a) - (b);                                                                                          \
        (out)[3] = -(b);                                                                                               \
    } while (0)

static int gradient(float *to, int64_t step, const float *const *square, int64_t channels, int limit) {
    const float bound = power_of_two(2 * limit);
    vf sums[2] = {v_set1(0.0f), v_set1(0.0f)};
    for (int64_t c = 0; c < channels; c += VW) {
        vf g[4], half[2][4], row[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            g[i] = v_load(square[i] + c);
            sums[i % 2] = v_fma(g[i], g[i], sums[i % 2]);
        }
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) BESIDE(g[j], g[2 + j], half[j]);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            BESIDE(half[0][i], half[1][i], row);
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) v_store(to + (4 * i + j) * step + c, row[j]);
        }
    }
    return !is_below(sums[0] + sums[1], bound) && any_large(square, 4, channels, limit, 1);
}

/* One column of G' u: 0 + half of 1 + 2, half of 1 - 2, half of 1 + 2, + 3. */
#define BACK(a, b, c, d, out)                                                                                          \
    do {                                                                                                               \
        vf sum = ((b) + (c)) * v_set1(0.5f);                                                                           \
        (out)[0] = (a) + sum;                                                                                          \
        (out)[1] = ((b) - (c)) * v_set1(0.5f);                                                                         \
        (out)[2] = sum + (d);                                                                                          \
    } while (0)

static void windows(float *to, const float *from, int64_t step, int64_t columns) {
    for (int64_t c = 0; c < columns; c += VW) {
        vf half[4][3], row[3];
        float apart[9][VW];
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            const float *u = from + j * step + c;
            BACK(v_load(u), v_load(u + 4 * step), v_load(u + 8 * step), v_load(u + 12 * step), half[j]);
        }
#pragma GCC unroll 3
        for (int i = 0; i < 3; i++) {
            BACK(half[0][i], half[1][i], half[2][i], half[3][i], row);
#pragma GCC unroll 3
            for (int j = 0; j < 3; j++) v_store(apart[3 * i + j], row[j]);
        }
        for (int n = 0; n < VW; n++)
            for (int i = 0; i < 9; i++) to[(c + n) * 9 + i] = apart[i][n];
    }
}

const dycl_winograd_transforms SUFFIX = {input, output, weights, gradient, windows};
