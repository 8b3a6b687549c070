/* Body of the updates. Before including: DYCL_SIMD_WIDTH, DYCL_UPDATE_TABLE. */
#include "kern/simd.h"
#include "kern/update.h"

/* What one vector of elements needs, and what comes out: written where it was read. */
typedef struct {
    vf p, g, a, b, c; /* parameter, gradient, states */
} element;

/* Which states there are: known to the compiler, as all of this is inlined. */
typedef struct {
    int a, b, c;
} has_states;

/* torch.maximum: a NaN of either. */
DYCL_INLINE vf larger(vf x, vf y) { return v_select(v_unordered(x, x), x, v_max(x, y)); }

/* torch.lerp: from the nearer end, so that the weight 1 gives the end itself. */
DYCL_INLINE vf lerp(vf x, vf end, float weight, float rest) {
    vf difference = end - x;
    return weight < 0.5f ? v_fma(v_set1(weight), difference, x) : v_fma(v_set1(-rest), difference, end);
}

DYCL_INLINE vf decayed_square(vf v, vf g, const dycl_update_numbers *k) {
    return v_fma(v_set1(k->second_rest) * g, g, v * v_set1(k->second));
}

DYCL_INLINE void update_adam(element *e, const dycl_update_numbers *k, has_states has) {
    e->p = e->p * v_set1(k->keep);
    e->a = lerp(e->a, e->g, k->first_rest, k->first);
    e->b = decayed_square(e->b, e->g, k);
    vf largest = e->b;
    if (has.c) largest = e->c = larger(e->b, e->c);
    vf bottom = v_sqrt(largest) * v_set1(k->inverse) + v_set1(k->eps);
    e->p = e->p + v_set1(k->rate) * e->a / bottom;
}

DYCL_INLINE void update_sgd(element *e, const dycl_update_numbers *k, has_states has) {
    vf step = e->g;
    if (has.a) {
        e->a = v_fma(v_set1(k->first_rest), e->g, e->a * v_set1(k->first));
        step = k->nesterov ? v_fma(v_set1(k->first), e->a, e->g) : e->a;
    }
    e->p = v_fma(v_set1(k->rate), step, e->p);
}

DYCL_INLINE void update_rmsprop(element *e, const dycl_update_numbers *k, has_states has) {
    e->a = decayed_square(e->a, e->g, k);
    vf square = e->a;
    if (has.c) {
        e->c = lerp(e->c, e->g, k->second_rest, k->second);
        square = v_fma(v_neg(e->c), e->c, square); /* addcmul's one rounding decides about the root of nearly nothing */
    }
    vf bottom = v_sqrt(square) + v_set1(k->eps);
    if (has.b) {
        e->b = e->b * v_set1(k->first) + e->g / bottom;
        e->p = v_fma(v_set1(k->rate), e->b, e->p);
    } else {
        e->p = e->p + v_set1(k->rate) * e->g / bottom;
    }
}

DYCL_INLINE void update_adagrad(element *e, const dycl_update_numbers *k, has_states has) {
    (void)has;
    e->a = v_fma(e->g, e->g, e->a);
    e->p = e->p + v_set1(k->rate) * e->g / (v_sqrt(e->a) + v_set1(k->eps));
}

DYCL_INLINE void update_adadelta(element *e, const dycl_update_numbers *k, has_states has) {
    (void)has;
    e->a = decayed_square(e->a, e->g, k);
    vf step = v_sqrt(e->b + v_set1(k->eps)) / v_sqrt(e->a + v_set1(k->eps)) * e->g;
    e->b = decayed_square(e->b, step, k);
    e->p = v_fma(v_set1(k->rate), step, e->p);
}

DYCL_INLINE void update_adamax(element *e, const dycl_update_numbers *k, has_states has) {
    (void)has;
    e->a = lerp(e->a, e->g, k->first_rest, k->first);
    e->b = larger(v_abs(e->g) + v_set1(k->eps), e->b * v_set1(k->second));
    e->p = e->p + v_set1(k->rate) * e->a / e->b;
}

DYCL_INLINE vf load(const float *from, size_t n) { return n == VW ? v_load(from) : v_load_n(from, n); }

DYCL_INLINE void store(float *to, vf x, size_t n) {
    if (n == VW)
        v_store(to, x);
    else
        v_store_n(to, x, n);
}

/* n: elements of this vector; the compiler knows where it is all of them. Pointers and numbers are copies, which no
 * store changes. */
#define UPDATE_LOOP(name, all)                                                                                         \
    DYCL_INLINE void name##_vector(const dycl_update_item *item, const dycl_update_numbers *k, has_states has,         \
                                   int64_t i, size_t n) {                                                              \
        element e = {.p = load(item->parameter + i, n), .g = load(item->gradient + i, n)};                             \
        if (has.a) e.a = load(item->states[0] + i, n);                                                                 \
        if (has.b) e.b = load(item->states[1] + i, n);                                                                 \
        if (has.c) e.c = load(item->states[2] + i, n);                                                                 \
        if (k->negates) e.g = v_neg(e.g);                                                                              \
        if (k->couples) e.g = v_fma(v_set1(k->decay), e.p, e.g);                                                       \
        update_##name(&e, k, has);                                                                                     \
        store(item->parameter + i, e.p, n);                                                                            \
        if (has.a) store(item->states[0] + i, e.a, n);                                                                 \
        if (has.b) store(item->states[1] + i, e.b, n);                                                                 \
        if (has.c) store(item->states[2] + i, e.c, n);                                                                 \
    }                                                                                                                  \
    DYCL_INLINE void name##_loop(const dycl_update_item *from_item, has_states has, int64_t i, int64_t to) {           \
        const dycl_update_item item = *from_item;                                                                      \
        const dycl_update_numbers k = *from_item->numbers;                                                             \
        for (; i + VW <= to; i += VW) name##_vector(&item, &k, has, i, VW);                                            \
        if (i < to) name##_vector(&item, &k, has, i, (size_t)(to - i));                                                \
    }                                                                                                                  \
    static void run_##name(const dycl_update_item *item, int64_t from, int64_t to) {                                   \
        const has_states has = {item->states[0] != NULL, item->states[1] != NULL, item->states[2] != NULL};            \
        all(name, item, from, to)                                                                                      \
    }

/* The states that a kind has for good, and those that it may have. */
#define LOOP(name, a, b, c, item, from, to) name##_loop(item, (has_states){a, b, c}, from, to)
#define HAS_A(name, item, from, to)         ((void)has, LOOP(name, 1, 0, 0, item, from, to));
#define HAS_AB(name, item, from, to)        ((void)has, LOOP(name, 1, 1, 0, item, from, to));
#define HAS_AB_MAYBE_C(name, item, from, to)                                                                           \
    if (has.c)                                                                                                         \
        LOOP(name, 1, 1, 1, item, from, to);                                                                           \
    else                                                                                                               \
        LOOP(name, 1, 1, 0, item, from, to);
#define MAYBE_A(name, item, from, to)                                                                                  \
    if (has.a)                                                                                                         \
        LOOP(name, 1, 0, 0, item, from, to);                                                                           \
    else                                                                                                               \
        LOOP(name, 0, 0, 0, item, from, to);
#define HAS_A_MAYBE_BC(name, item, from, to)                                                                           \
    if (has.b && has.c)                                                                                                \
        LOOP(name, 1, 1, 1, item, from, to);                                                                           \
    else if (has.b)                                                                                                    \
        LOOP(name, 1, 1, 0, item, from, to);                                                                           \
    else if (has.c)                                                                                                    \
        LOOP(name, 1, 0, 1, item, from, to);                                                                           \
    else                                                                                                               \
        LOOP(name, 1, 0, 0, item, from, to);

UPDATE_LOOP(adam, HAS_AB_MAYBE_C)
UPDATE_LOOP(sgd, MAYBE_A)
UPDATE_LOOP(rmsprop, HAS_A_MAYBE_BC)
UPDATE_LOOP(adagrad, HAS_A)
UPDATE_LOOP(adadelta, HAS_AB)
UPDATE_LOOP(adamax, HAS_AB)

const dycl_update_table DYCL_UPDATE_TABLE = {{run_adam, run_sgd, run_rmsprop, run_adagrad, run_adadelta, run_adamax}};
