/* Elements added where indices say, compiled once per ISA: the including file names the table.
 *
 * Ownership: pointers are borrowed. Threads: pure functions. */
#include "kern/add.h"
#include "kern/element.h"

/* Where a run begins, in elements. */
typedef struct {
    int64_t at[DYCL_MAX_RANK], to, from, index[DYCL_MAX_RANK];
} place;

static void next_run(const dycl_add_desc *d, place *p) {
    for (int i = d->rank - 2; i >= 0; i--) {
        const int64_t back = ++p->at[i] < d->sizes[i] ? 0 : d->sizes[i];
        p->to += d->to_strides[i] * (1 - back), p->from += d->from_strides[i] * (1 - back);
        for (int k = 0; k < d->count; k++) p->index[k] += d->index[k].strides[i] * (1 - back);
        if (!back) return;
        p->at[i] = 0;
    }
}

/* Where a position of one index lies. 0: it gets nothing; -1: it is out of range. */
static inline int find(const dycl_add_desc *d, int k, int64_t j, int64_t *offset) {
    if (j == d->skip) return 0;
    if (d->wraps && j < 0) j += d->index[k].limit;
    if ((uint64_t)j >= (uint64_t)d->index[k].limit) return -1;
    *offset += j * d->index[k].stride;
    return 1;
}

/* One index, whose loops have constants where they can; how many went well. */
#define LOOP(T, name)                                                                                                  \
    static inline __attribute__((always_inline))                                                                       \
    int64_t loop_##name(T *to, const T *from, const int64_t *at, int64_t n, uint64_t limit, int64_t wrap,              \
                        int64_t skip, int64_t by, int64_t fs, int64_t ts, int64_t stride) {                            \
        _Pragma("GCC unroll 4") for (int64_t i = 0; i < n; i++) {                                                      \
            int64_t j = at[i * by];                                                                                    \
            if (skip != INT64_MIN && j == skip) continue;                                                              \
            j += j >> 63 & wrap;                                                                                       \
            if (__builtin_expect((uint64_t)j >= limit, 0)) return i;                                                   \
            T *t = to + j * stride + i * ts;                                                                           \
            *t = (T)(*t + from[i * fs]);                                                                               \
        }                                                                                                              \
        return n;                                                                                                      \
    }
LOOP(float, f32)
LOOP(double, f64)
LOOP(dycl_element1, i8)
LOOP(dycl_element2, i16)
LOOP(dycl_element4, i32)
LOOP(dycl_element8, i64)
#undef LOOP

#define RUNS(T, name)                                                                                                  \
    static void row_##name(T *restrict to, const T *fill, const T *restrict b, int64_t n) {                            \
        if (fill) {                                                                                                    \
            const T first = *fill;                                                                                     \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++) to[i] = (T)(first + b[i]);                             \
        } else {                                                                                                       \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++) to[i] = (T)(to[i] + b[i]);                             \
        }                                                                                                              \
    }                                                                                                                  \
    static const int64_t *run_##name(const dycl_add_desc *d, const place *p, T *to, const T *from,                     \
                                     const int64_t *const *index) {                                                    \
        const int last = d->rank - 1;                                                                                  \
        const int64_t n = d->sizes[last], ts = d->to_strides[last], fs = d->from_strides[last];                        \
        to += p->to, from += p->from;                                                                                  \
        if (d->count == 1 && d->index[0].strides[last] != 0) {                                                         \
            const int64_t *at = index[0] + p->index[0], by = d->index[0].strides[last];                                \
            const int64_t stride = d->index[0].stride, wrap = d->wraps ? d->index[0].limit : 0, none = INT64_MIN;      \
            const uint64_t limit = (uint64_t)d->index[0].limit;                                                        \
            const int even = by == 1 && fs == 1 && d->skip == none;                                                    \
            int64_t done;                                                                                              \
            if (even && ts == 0 && stride == 1)                                                                        \
                done = wrap ? loop_##name(to, from, at, n, limit, wrap, none, 1, 1, 0, 1)                              \
                            : loop_##name(to, from, at, n, limit, 0, none, 1, 1, 0, 1);                                \
            else if (even && ts == 1 && !wrap)                                                                         \
                done = loop_##name(to, from, at, n, limit, 0, none, 1, 1, 1, stride);                                  \
            else                                                                                                       \
                done = loop_##name(to, from, at, n, limit, wrap, d->skip, by, fs, ts, stride);                         \
            return done < n ? at + done * by : NULL;                                                                   \
        }                                                                                                              \
        int still = 1;                                                                                                 \
        for (int k = 0; k < d->count; k++) still &= d->index[k].strides[last] == 0;                                    \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            int64_t offset = 0;                                                                                        \
            int found = 1;                                                                                             \
            for (int k = 0; k < d->count && found; k++) {                                                              \
                const int64_t *at = index[k] + p->index[k] + i * d->index[k].strides[last];                            \
                if ((found = find(d, k, *at, &offset)) < 0) return at;                                                 \
            }                                                                                                          \
            if (still && ts == 1 && fs == 1) {                                                                         \
                if (found) row_##name(to + offset, NULL, from, n);                                                     \
                return NULL;                                                                                           \
            }                                                                                                          \
            if (found) to[offset + i * ts] = (T)(to[offset + i * ts] + from[i * fs]);                                  \
        }                                                                                                              \
        return NULL;                                                                                                   \
    }                                                                                                                  \
    static const int64_t *elements_##name(const dycl_add_desc *d, T *to, const T *from, const int64_t *const *index) { \
        place p = {{0}, 0, 0, {0}};                                                                                    \
        int64_t runs = 1;                                                                                              \
        for (int i = 0; i < d->rank - 1; i++) runs *= d->sizes[i];                                                     \
        for (int64_t r = 0; r < runs; r++, next_run(d, &p)) {                                                          \
            const int64_t *bad = run_##name(d, &p, to, from, index);                                                   \
            if (bad) return bad;                                                                                       \
        }                                                                                                              \
        return NULL;                                                                                                   \
    }
RUNS(float, f32)
RUNS(double, f64)
RUNS(dycl_element1, i8)
RUNS(dycl_element2, i16)
RUNS(dycl_element4, i32)
RUNS(dycl_element8, i64)
#undef RUNS

static const int64_t *elements(const dycl_add_desc *d, void *to, const void *from, const int64_t *const *index) {
    switch (d->dtype) {
    case DYCL_F32: return elements_f32(d, to, from, index);
    case DYCL_F64: return elements_f64(d, to, from, index);
    case DYCL_I64: return elements_i64(d, to, from, index);
    case DYCL_I32: return elements_i32(d, to, from, index);
    case DYCL_I16: return elements_i16(d, to, from, index);
    default: return elements_i8(d, to, from, index);
    }
}

static void row(dycl_dtype dtype, void *to, const void *fill, const void *b, int64_t n) {
    switch (dtype) {
    case DYCL_F32: row_f32(to, fill, b, n); return;
    case DYCL_F64: row_f64(to, fill, b, n); return;
    case DYCL_I64: row_i64(to, fill, b, n); return;
    case DYCL_I32: row_i32(to, fill, b, n); return;
    case DYCL_I16: row_i16(to, fill, b, n); return;
    default: row_i8(to, fill, b, n); return;
    }
}

const dycl_add_table DYCL_ADD = {elements, row};
