/* Body of the clipping of gradients. Before including: DYCL_SIMD_WIDTH, DYCL_CLIP_TABLE. */
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

const dycl_clip_table DYCL_CLIP_TABLE = {scale, bound};
