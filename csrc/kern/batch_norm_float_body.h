/* Body of batch norm in training for one dtype. Before including: T, V (its vector), NAME(name). */
#define CAT_(a, b) a##b
#define CAT(a, b)  CAT_(a, b)
#define LANES      (sizeof(V) / sizeof(T))

/* ---- Sums */

static inline __attribute__((always_inline)) void NAME(add)(vd *s0, vd *s1, const T *g, const T *x, vd m, int back) {
    vd a = NAME(wide)(x) - m, b = back ? NAME(wide)(g) : a;
    *s0 += b;
    *s1 = vd_fma(b, a, *s1);
}

/* What is left of a row, as a whole vector whose other lanes add nothing. */
static inline __attribute__((always_inline)) void NAME(add_part)(vd *s0, vd *s1, const T *g, const T *x, double m,
                                                                 size_t n, int back) {
    T rest[2][vd_lanes];
    for (size_t i = 0; i < vd_lanes; i++) {
        rest[0][i] = i < n ? x[i] : (T)m;
        rest[1][i] = i < n && back ? g[i] : 0;
    }
    NAME(add)(s0, s1, rest[1], rest[0], vd_set(m), back);
}

static inline __attribute__((always_inline)) void NAME(sums_of)(double *out, const T *g, const T *x, double m,
                                                                int64_t rows, int64_t stride, size_t n, int back) {
    const vd mean = vd_set(m);
    vd s[8] = {{0}};
    for (; rows > 0; rows--, x += stride, g = back ? g + stride : g) {
        size_t i = 0;
        for (; i + 4 * vd_lanes <= n; i += 4 * vd_lanes)
            for (size_t k = 0; k < 4; k++) {
                size_t at = i + k * vd_lanes;
                NAME(add)(&s[k], &s[4 + k], back ? g + at : NULL, x + at, mean, back);
            }
        for (; i + vd_lanes <= n; i += vd_lanes) NAME(add)(&s[0], &s[4], back ? g + i : NULL, x + i, mean, back);
        if (i < n) NAME(add_part)(&s[1], &s[5], back ? g + i : NULL, x + i, m, n - i, back);
    }
    out[0] += vd_hsum((s[0] + s[1]) + (s[2] + s[3]));
    out[1] += vd_hsum((s[4] + s[5]) + (s[6] + s[7]));
}

static void NAME(sums)(double *out, const void *g, const void *x, double m, int64_t rows, int64_t stride, size_t n) {
    if (g)
        NAME(sums_of)(out, g, x, m, rows, stride, n, 1);
    else
        NAME(sums_of)(out, NULL, x, m, rows, stride, n, 0);
}

/* So many vectors of neighbouring channels. */
static inline __attribute__((always_inline)) void NAME(strip)(double *out, const T *g, const T *x, const double *m,
                                                              int64_t rows, size_t c, size_t vectors, int back) {
    vd s[8] = {{0}}, mean[4];
    for (size_t k = 0; k < vectors; k++) mean[k] = vd_load(m + k * vd_lanes);
    const size_t ahead = (size_t)ROWS * c;
    for (; rows > 0; rows--, x += c, g = back ? g + c : g) {
        for (size_t k = 0; k < vectors * vd_lanes; k += LINE / sizeof(T)) {
            __builtin_prefetch(x + ahead + k);
            if (back) __builtin_prefetch(g + ahead + k);
        }
        for (size_t k = 0; k < vectors; k++)
            NAME(add)(&s[k], &s[4 + k], back ? g + k * vd_lanes : NULL, x + k * vd_lanes, mean[k], back);
    }
    for (size_t k = 0; k < vectors; k++) {
        vd_store(out + k * vd_lanes, vd_load(out + k * vd_lanes) + s[k]);
        vd_store(out + c + k * vd_lanes, vd_load(out + c + k * vd_lanes) + s[4 + k]);
    }
}

static inline __attribute__((always_inline)) void NAME(few_pixels)(double *out, const T *g, const T *x, const double *m,
                                                                   int64_t rows, size_t c, int back) {
    size_t j = 0;
    for (; j + 4 * vd_lanes <= c; j += 4 * vd_lanes)
        NAME(strip)(out + j, back ? g + j : NULL, x + j, m + j, rows, c, 4, back);
    for (; j + vd_lanes <= c; j += vd_lanes) NAME(strip)(out + j, back ? g + j : NULL, x + j, m + j, rows, c, 1, back);
    for (; j < c; j++) {
        double s0 = 0, s1 = 0;
        for (int64_t r = 0; r < rows; r++) {
            double a = (double)x[(size_t)r * c + j] - m[j], b = back ? (double)g[(size_t)r * c + j] : a;
            s0 += b;
            s1 += b * a;
        }
        out[j] += s0;
        out[c + j] += s1;
    }
}

/* Few rows at a time: a strip of the next ones is fetched while these are summed. Strips lie a row apart, which no
 * processor foresees; without it, memory was read at half the speed of planes. */
static void NAME(pixels)(double *out, const void *gradient, const void *from, const double *m, int64_t rows, size_t c) {
    const T *g = gradient, *x = from;
    for (int64_t r = 0, count; r < rows; r += count, x += (size_t)count * c) {
        count = rows - r < ROWS ? rows - r : ROWS;
        if (g)
            NAME(few_pixels)(out, g + (size_t)r * c, x, m, count, c, 1);
        else
            NAME(few_pixels)(out, NULL, x, m, count, c, 0);
    }
}

/* ---- Back */

#define BACK(g, x, k0, k1, k2, k3) ((((g) - (k1)) - ((x) - (k0)) * (k2)) * (k3))

static void NAME(back)(void *to, const void *gradient, const void *from, const void *constants, int64_t rows,
                       int64_t stride, size_t n) {
    const T *k = constants, *g = gradient, *x = from;
    T *out = to;
    const V k0 = k[0] - (V){0}, k1 = k[1] - (V){0}, k2 = k[2] - (V){0}, k3 = k[3] - (V){0};
    for (; rows > 0; rows--, g += stride, x += stride, out += stride) {
        size_t i = 0;
        for (; i + LANES <= n; i += LANES)
            CAT(V, _store)(out + i, BACK(CAT(V, _load)(g + i), CAT(V, _load)(x + i), k0, k1, k2, k3));
        for (; i < n; i++) out[i] = BACK(g[i], x[i], k[0], k[1], k[2], k[3]);
    }
}

static void NAME(back_pixels)(void *to, const void *gradient, const void *from, const void *constants, int64_t rows,
                              size_t c) {
    const T *k = constants, *g = gradient, *x = from;
    T *out = to;
    for (; rows > 0; rows--, g += c, x += c, out += c) {
        size_t i = 0;
        for (; i + LANES <= c; i += LANES) CAT(V, _store)
        (out + i, BACK(CAT(V, _load)(g + i), CAT(V, _load)(x + i), CAT(V, _load)(k + i), CAT(V, _load)(k + c + i),
                       CAT(V, _load)(k + 2 * c + i), CAT(V, _load)(k + 3 * c + i)));
        for (; i < c; i++) out[i] = BACK(g[i], x[i], k[i], k[c + i], k[2 * c + i], k[3 * c + i]);
    }
}

#undef BACK
#undef LANES
#undef CAT
#undef CAT_
