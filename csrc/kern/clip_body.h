/* Body of the clipping of gradients. Before including: DYCL_SIMD_WIDTH, DYCL_CLIP_TABLE. */
#include <math.h>

#include "kern/clip.h"
#include "kern/simd.h"

#define EACH(x, i, n, expression)                                                                                      \
    for (; (i) + VW <= (n); (i) += VW) {                                                                               \
        vf v = v_load((x) + (i));                                                                                      \
        v_store((x) + (i), expression);                                                                                \
    }                                                                                                                  \
    if ((i) < (n)) {                                                                                                   \
        vf v = v_load_n((x) + (i), (size_t)((n) - (i)));                                                               \
        v_store_n((x) + (i), expression, (size_t)((n) - (i)));                                                         \
    }

#define LANES 16 /* at most */

static float squares(const float *x, int64_t n, int lanes) {
    vf sums[LANES / VW];
    float each[LANES], sum;
    int64_t i = 0;
    for (int p = 0; p < LANES / VW; p++) sums[p] = v_set1(0.0f);
    if (lanes < VW) {
        for (; i + lanes <= n; i += lanes) {
            vf v = v_load_n(x + i, (size_t)lanes);
            sums[0] = sums[0] + v * v;
        }
    } else if (lanes == VW) {
        for (; i + VW <= n; i += VW) {
            vf v = v_load(x + i);
            sums[0] = sums[0] + v * v;
        }
    } else {
        for (; i + lanes <= n; i += lanes)
            for (int p = 0; p < lanes / VW; p++) {
                vf v = v_load(x + i + p * VW);
                sums[p] = sums[p] + v * v;
            }
    }
    for (int p = 0; p < LANES / VW; p++) v_store(each + p * VW, sums[p]);
    sum = each[0];
    for (int lane = 1; lane < lanes; lane++) sum += each[lane];
    for (; i < n; i++) sum = fmaf(x[i], x[i], sum); /* torch's compiler made it of a product and a sum */
    return sum;
}

static void scale(float *x, float by, int64_t n) {
    const vf factor = v_set1(by);
    int64_t i = 0;
    EACH(x, i, n, v * factor)
}

static void bound(float *x, float low, float high, int64_t n) {
    const vf least = v_set1(low), most = v_set1(high);
    int64_t i = 0;
    EACH(x, i, n, v_select(v_unordered(v, v), v, v_min(v_max(v, least), most)))
}

const dycl_clip_table DYCL_CLIP_TABLE = {squares, scale, bound};
