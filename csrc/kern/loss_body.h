/* Losses of elements, compiled once per ISA: the including file names the table. Formulas, and the order of their
 * operations, are torch's (ATen/native/Loss.cpp, cpu/PointwiseOpsKernel.cpp): at ties, edges, infinities and NaN they
 * give what torch gives.
 *
 * Ownership: pointers are borrowed. Threads: pure functions. */
#include "kern/loss.h"
#include "kern/vact.h"

typedef const dycl_loss_numbers numbers;

#define LEAST ((double)1e-12f) /* of what bce's gradient is divided by: torch has a float for both dtypes */

/* ---- f32 */

/* Division by a power of two is the product with its inverse, and a tenth of the time. */
DYCL_INLINE vf over(vf x, numbers *c) { return c->inverse != 0 ? x * (float)c->inverse : x / (float)c->at; }
DYCL_INLINE vf sign_of(vf d) { return v_select(v_gt(d, v_set1(0.0f)), v_set1(1.0f), v_set1(-1.0f)); }

/* Not a number is no share. */
DYCL_INLINE vm shares(vf x) { return k_and(v_ge(x, v_set1(0.0f)), v_le(x, v_set1(1.0f))); }

#define F32(name) DYCL_INLINE vf f32_##name(numbers *c, vf x, vf y, vf w, vf p, vf g)
#define UNUSED    (void)c, (void)w, (void)p, (void)g

F32(smooth_l1) {
    UNUSED;
    const float beta = (float)c->at;
    vf z = v_abs(x - y);
    return v_select(v_lt(z, v_set1(beta)), over(z * 0.5f * z, c), z - 0.5f * beta);
}
F32(huber) {
    UNUSED;
    const float delta = (float)c->at;
    vf z = v_abs(x - y);
    return v_select(v_lt(z, v_set1(delta)), z * 0.5f * z, delta * (z - 0.5f * delta));
}
F32(soft_margin) {
    UNUSED;
    return vmath_log1p(vmath_exp(v_neg(x) * y));
}
F32(bce) {
    UNUSED;
    vf other = v_max(vmath_log1p(v_neg(x)), v_set1(-100.0f)), own = v_max(vmath_log(x), v_set1(-100.0f));
    return ((y - 1.0f) * other - y * own) * w;
}
F32(logits) {
    UNUSED;
    return ((1.0f - y) * x - vact_logsigmoid(x)) * w;
}
F32(logits_positive) {
    UNUSED;
    return ((1.0f - y) * x - vact_logsigmoid(x) * ((p - 1.0f) * y + 1.0f)) * w;
}
F32(smooth_l1_back) {
    UNUSED;
    vf d = x - y;
    vf slope = v_select(v_ge(v_abs(d), v_set1((float)c->at)), sign_of(d), over(d, c));
    return slope * (float)c->scale * g;
}
F32(huber_back) {
    UNUSED;
    const float delta = (float)c->at;
    vf d = x - y;
    return v_select(v_ge(v_abs(d), v_set1(delta)), sign_of(d) * delta, d) * (float)c->scale * g;
}
F32(soft_margin_back) {
    UNUSED;
    vf z = vmath_exp(v_neg(y) * x);
    return y * z * (float)-c->scale / (z + 1.0f) * g;
}
F32(bce_back) {
    UNUSED;
    vf below = v_max(v_set1((float)LEAST), (1.0f - x) * x); /* NaN stays */
    return g * (x - y) / below * w * (float)c->scale;
}

/* An operand with one element for all is a vector at which the loop stays. */
#define MOVES(k) (ones >> k & 1 ? 0 : ~(size_t)0)
#define F32_LOOP(NAME, name, checked, ...)                                                                             \
    static int loop_f32_##name(numbers *given, void *to, const void *const *in, unsigned ones, size_t n) {             \
        const dycl_loss_numbers own = *given, *c = &own; /* the compiler cannot know that stores are elsewhere */      \
        float same[DYCL_LOSS_OPERANDS][VW], *d = to;                                                                   \
        const float *q[DYCL_LOSS_OPERANDS];                                                                            \
        vm good = k_set1(1);                                                                                           \
        for (int k = 0; k < DYCL_LOSS_OPERANDS; k++) {                                                                 \
            const int one = ones >> k & 1;                                                                             \
            if (one) v_store(same[k], v_set1(*(const float *)in[k]));                                                  \
            q[k] = one ? same[k] : in[k];                                                                              \
        }                                                                                                              \
        const float *px = q[0], *py = q[1], *pw = q[2], *pp = q[3], *pg = q[4];                                        \
        const size_t mx = MOVES(0), my = MOVES(1), mw = MOVES(2), mp = MOVES(3), mg = MOVES(4), whole = n - n % VW;    \
        size_t i;                                                                                                      \
        for (i = 0; i < whole; i += VW) {                                                                              \
            vf x = v_load(px + (i & mx)), y = v_load(py + (i & my));                                                   \
            vf w = v_load(pw + (i & mw)), p = v_load(pp + (i & mp)), g = v_load(pg + (i & mg));                        \
            v_store(d + i, f32_##name(c, x, y, w, p, g));                                                              \
            if (checked) good = k_and(good, k_and(shares(x), shares(y)));                                              \
        }                                                                                                              \
        if (VW > 1 && i < n) {                                                                                         \
            const size_t m = n - i;                                                                                    \
            vf x = v_load_n(px + (i & mx), m), y = v_load_n(py + (i & my), m);                                         \
            vf w = v_load_n(pw + (i & mw), m), p = v_load_n(pp + (i & mp), m), g = v_load_n(pg + (i & mg), m);         \
            v_store_n(d + i, f32_##name(c, x, y, w, p, g), m);                                                         \
            if (checked) good = k_and(good, k_and(shares(x), shares(y)));                                              \
        }                                                                                                              \
        return !k_any(k_not(good));                                                                                    \
    }
DYCL_LOSS_ROWS(F32_LOOP)

/* ---- f64: one element, whose loop the compiler turns into vectors */

#define F64(name) F64_INLINE double f64_loss_##name(numbers *c, double x, double y, double w, double p, double g)

F64(smooth_l1) {
    UNUSED;
    const double z = fabs(x - y), low = 0.5 * z * z / c->at, high = z - 0.5 * c->at;
    return z < c->at ? low : high;
}
F64(huber) {
    UNUSED;
    const double z = fabs(x - y), low = 0.5 * z * z, high = c->at * (z - 0.5 * c->at);
    return z < c->at ? low : high;
}
F64(soft_margin) {
    UNUSED;
    return f64_log1p_of(f64_exp_of(-x * y));
}
F64(bce) {
    UNUSED;
    double other = f64_log1p_of(-x), own = f64_log_of(x);
    other = other < -100 ? -100 : other;
    own = own < -100 ? -100 : own;
    return ((y - 1) * other - y * own) * w;
}
F64(logits) {
    UNUSED;
    return ((1 - y) * x - f64_logsigmoid(x)) * w;
}
F64(logits_positive) {
    UNUSED;
    return ((1 - y) * x - f64_logsigmoid(x) * ((p - 1) * y + 1)) * w;
}
F64(smooth_l1_back) {
    UNUSED;
    const double d = x - y, low = d / c->at;
    double slope = d > 0 ? 1.0 : -1.0;
    slope = fabs(d) >= c->at ? slope : low;
    return slope * c->scale * g;
}
F64(huber_back) {
    UNUSED;
    const double d = x - y;
    double slope = d > 0 ? c->at : -c->at;
    slope = fabs(d) >= c->at ? slope : d;
    return slope * c->scale * g;
}
F64(soft_margin_back) {
    UNUSED;
    const double z = f64_exp_of(-y * x);
    return y * z * -c->scale / (z + 1) * g;
}
F64(bce_back) {
    UNUSED;
    double below = (1 - x) * x;
    below = below < LEAST ? LEAST : below;
    return g * (x - y) / below * w * c->scale;
}

#define BLOCK 256 /* elements of an operand that has one for all: no loop is a vector's that may stay where it is */

#define F64_LOOP(NAME, name, checked, ...)                                                                             \
    static int loop_f64_##name(numbers *c, void *to, const void *const *in, unsigned ones, size_t n) {                 \
        double same[DYCL_LOSS_OPERANDS][BLOCK];                                                                        \
        const double *q[DYCL_LOSS_OPERANDS];                                                                           \
        int bad = 0;                                                                                                   \
        for (int k = 0; k < DYCL_LOSS_OPERANDS; k++) {                                                                 \
            const double one = *(const double *)in[k];                                                                 \
            for (size_t i = 0; (ones >> k & 1) && i < BLOCK && i < n; i++) same[k][i] = one;                           \
        }                                                                                                              \
        for (size_t at = 0; at < n; at += BLOCK) {                                                                     \
            const size_t count = n - at < BLOCK ? n - at : BLOCK;                                                      \
            double *d = (double *)to + at;                                                                             \
            for (int k = 0; k < DYCL_LOSS_OPERANDS; k++) q[k] = ones >> k & 1 ? same[k] : (const double *)in[k] + at;  \
            const double *x = q[0], *y = q[1], *w = q[2], *p = q[3], *g = q[4];                                        \
            const numbers own = *c;                                                                                    \
            _Pragma("omp simd") for (size_t i = 0; i < count; i++) d[i] =                                              \
                f64_loss_##name(&own, x[i], y[i], w[i], p[i], g[i]);                                                   \
            if (checked)                                                                                               \
                for (size_t i = 0; i < count; i++) bad |= !((x[i] >= 0) & (x[i] <= 1) & (y[i] >= 0) & (y[i] <= 1));    \
        }                                                                                                              \
        return !bad;                                                                                                   \
    }
DYCL_LOSS_ROWS(F64_LOOP)

#define ENTRY(NAME, name, ...) [DYCL_LOSS_##NAME] = {loop_f32_##name, loop_f64_##name},
const dycl_loss_table DYCL_LOSS_TABLE = {{DYCL_LOSS_ROWS(ENTRY)}};
