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
static int any_large(const float *const *square, int64_t channels, int limit, int all) {
    for (int i = 0; i < 16; i++)
        if ((all || IS_INNER(i)) && !dycl_kern_all_below(square[i], (size_t)channels, limit)) return 1;
    return 0;
}

/* Sums of squares below the limit's square say that no element is large; they cost one instruction an element, in units
 * that the transform does not use. */
static int input(float *to, int64_t step, const float *const *square, int64_t channels, int limit, int all) {
    const float bound = power_of_two(2 * limit);
    float lanes[VW];
    vf sums[4] = {v_set1(0.0f), v_set1(0.0f), v_set1(0.0f), v_set1(0.0f)};
    int small = 1;
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
    v_store(lanes, (sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (int i = 0; i < VW; i++) small &= lanes[i] < bound;
    return !small && any_large(square, channels, limit, all);
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

const dycl_winograd_transforms SUFFIX = {input, output};
