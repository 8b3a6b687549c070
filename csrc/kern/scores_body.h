/* Body of attention's scores. Before including: DYCL_LEVEL, DYCL_SCORES_TABLE. */
#include "kern/rowvec.h"
#include "kern/scores.h"

static int all_masked(const float *x, int64_t n) {
    for (int64_t j = 0; j < n; j++)
        if (!(x[j] == -INFINITY)) return 0;
    return 1;
}

/* Scales, adds the mask and finds the largest (NaN is none); the last vector ends with -inf. */
static inline float scaled_largest(float *x, int64_t n, float factor, const float *mask) {
    const vf low = vf_set(-INFINITY), zero = {0}, scale = vf_set(factor);
    vf top = low;
    int64_t i = 0;
    if (mask) {
        for (; i + vf_lanes <= n; i += vf_lanes) {
            vf v = vf_fma(vf_load(x + i), scale, vf_load(mask + i));
            vf_store(x + i, v);
            top = vf_max(v, top);
        }
    } else {
        for (; i + vf_lanes <= n; i += vf_lanes) {
            vf v = vf_load(x + i) * scale;
            vf_store(x + i, v);
            top = vf_max(v, top);
        }
    }
    if (i < n) {
        static const float none[DYCL_SCORES_PAD];
        size_t rest = (size_t)(n - i);
        vf v = vf_fma(vf_load_part(x + i, rest, zero), scale, vf_load_part(mask ? mask + i : none, rest, low));
        vf_store(x + i, v);
        top = vf_max(v, top);
    }
    return vf_hmax(top);
}

static inline double exponentials_of(float *x, int64_t n, float largest) {
    const vf m = vf_set(largest);
    vf sum0 = {0}, sum1 = {0};
    int64_t i = 0;
    for (; i + vf_lanes < n; i += 2 * vf_lanes) {
        vf e0 = vf_exp_negative(vf_load(x + i) - m), e1 = vf_exp_negative(vf_load(x + i + vf_lanes) - m);
        vf_store(x + i, e0), vf_store(x + i + vf_lanes, e1);
        sum0 += e0, sum1 += e1;
    }
    if (i < n) {
        vf e = vf_exp_negative(vf_load(x + i) - m);
        vf_store(x + i, e);
        sum0 += e;
    }
    return vf_hsum(sum0 + sum1);
}

static void exponentials(const dycl_scores *s) {
    for (int64_t i = 0; i < s->rows; i++) {
        float *x = s->x + i * s->ld;
        int64_t n = s->seen && s->seen + i < s->n ? s->seen + i : s->n;
        float largest = scaled_largest(x, n, s->scale, s->mask ? s->mask + i * s->mask_row : NULL);
        s->factors[i] = 1;
        if (__builtin_expect(largest == -INFINITY, 0) && all_masked(x, n))
            n = 0; /* torch's result is 0 then */
        else
            s->factors[i] = (float)(1 / exponentials_of(x, n, largest));
        for (int64_t j = n; j < s->n; j++) x[j] = 0;
    }
}

static int scale(float *x, int64_t row, int64_t rows, int64_t n, const float *factors) {
    vf nothing = {0}; /* a sum of zeros, unless one of the numbers was none */
    float rest = 0;
    for (int64_t i = 0; i < rows; i++, x += row) {
        const vf factor = vf_set(factors[i]);
        int64_t j = 0;
        for (; j + vf_lanes <= n; j += vf_lanes) {
            vf scaled = vf_load(x + j) * factor;
            vf_store(x + j, scaled);
            nothing += scaled * 0.0f;
        }
        for (; j < n; j++) rest += (x[j] *= factors[i]) * 0.0f;
    }
    return vf_hsum(nothing) + rest == 0;
}

const dycl_scores_table DYCL_SCORES_TABLE = {exponentials, scale};
