/* Body of Winograd's transforms. Before including: DYCL_SIMD_WIDTH, SUFFIX. */
#include "kern/simd.h"
#include "kern/winograd.h"

#include <string.h>

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

/* As dycl_kern_all_below: the sign of `seen` tells of an element that is not below the limit. */
static int input(float *to, int64_t step, const float *const *square, int64_t channels, uint32_t carry, int all) {
    const vu magnitude = (vu)v_seti(0x7fffffff), more = (vu)v_seti((int32_t)carry);
    uint32_t lanes[VW], any = 0;
    vu seen = (vu)v_seti(0);
    int whole = 1;
    for (int i = 0; i < 16; i++) whole &= square[i] != NULL;
    for (int64_t c = 0; c < channels; c += VW) {
        vf d[16];
        if (whole) {
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++) d[i] = v_load(square[i] + c);
        } else {
            for (int i = 0; i < 16; i++) d[i] = square[i] ? v_load(square[i] + c) : v_set1(0.0f);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) seen |= ((vu)d[5 + i % 2 + i / 2 * 4] & magnitude) + more;
#pragma GCC unroll 16
        for (int i = 0; all && i < 16; i++) seen |= ((vu)d[i] & magnitude) + more;
        transform(to + c, step, d);
    }
    memcpy(lanes, &seen, sizeof lanes);
    for (int i = 0; i < VW; i++) any |= lanes[i];
    return (int)(any >> 31);
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
