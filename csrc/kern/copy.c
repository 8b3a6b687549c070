#include <string.h>

#include "kern/element.h"
#include "kern/kern.h"
#include "kern/parallel.h"
#include "kern/transpose.h"

typedef struct {
    int64_t size, ds, ss; /* strides in elements */
} dimension;

/* The work is a set of planes (the two innermost dimensions, n1 x n0), cut into units of unit1 x unit0. */
typedef struct {
    char *dst;
    const char *src;
    size_t element;
    int rank; /* of the dimensions around the plane */
    dimension outer[DYCL_MAX_RANK], plane1, plane0;
    int64_t unit1, unit0, units1, units0, units;
    dycl_transpose4 *transpose4; /* NULL: runs along plane0 */
    int transposed;              /* the source is contiguous along plane1 */
} copy_plan;

static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

/* Drops dimensions of one element, orders by destination stride, merges neighbours that walk both tensors evenly. */
static int normalise(dimension *dims, const int64_t *ds, const int64_t *ss, const int64_t *sizes, int rank) {
    int n = 0, merged = 0;
    for (int i = 0; i < rank; i++) {
        dimension d = {sizes[i], ds[i], ss[i]};
        int at = n;
        if (d.size == 1) continue;
        for (; at > 0 &&
               (magnitude(dims[at - 1].ds) < magnitude(d.ds) ||
                (magnitude(dims[at - 1].ds) == magnitude(d.ds) && magnitude(dims[at - 1].ss) < magnitude(d.ss)));
             at--)
            dims[at] = dims[at - 1];
        dims[at] = d;
        n++;
    }
    for (int i = 1; i < n; i++) {
        dimension *last = &dims[merged], d = dims[i];
        if (last->ds == d.ds * d.size && last->ss == d.ss * d.size)
            *last = (dimension){last->size * d.size, d.ds, d.ss};
        else
            dims[++merged] = d;
    }
    return n ? merged + 1 : 0;
}

#define TYPED(element, BODY)                                                                                           \
    switch (element) {                                                                                                 \
    case 1: BODY(dycl_element1) break;                                                                                 \
    case 2: BODY(dycl_element2) break;                                                                                 \
    case 4: BODY(dycl_element4) break;                                                                                 \
    default: BODY(dycl_element8) break;                                                                                \
    }

static void fill_run(void *dst, const void *value, size_t n, size_t element) {
    static const char zeros[8];
    if (memcmp(value, zeros, element) == 0) { /* libc writes long ones without reading them first */
        memset(dst, 0, n * element);
        return;
    }
#define FILL(T)                                                                                                        \
    {                                                                                                                  \
        T v, *d = dst;                                                                                                 \
        memcpy(&v, value, sizeof v);                                                                                   \
        _Pragma("omp simd") for (size_t i = 0; i < n; i++) d[i] = v;                                                   \
    }
    TYPED(element, FILL)
#undef FILL
}

static void strided_run(void *dst, int64_t ds, const void *src, int64_t ss, int64_t n, size_t element) {
#define RUN(T)                                                                                                         \
    {                                                                                                                  \
        T *d = dst;                                                                                                    \
        const T *s = src;                                                                                              \
        int64_t i = 0;                                                                                                 \
        for (; i + 4 <= n; i += 4, d += 4 * ds, s += 4 * ss) {                                                         \
            T a = s[0], b = s[ss], c = s[2 * ss], e = s[3 * ss];                                                       \
            d[0] = a, d[ds] = b, d[2 * ds] = c, d[3 * ds] = e;                                                         \
        }                                                                                                              \
        for (; i < n; i++, d += ds, s += ss) *d = *s;                                                                  \
    }
    TYPED(element, RUN)
#undef RUN
}

/* What is walked backwards, as flip does: lanes change places. */
static void reversed_run(void *dst, const void *src, int64_t n, size_t element) {
#define REVERSE(T, LANES, ...)                                                                                         \
    {                                                                                                                  \
        typedef T lanes __attribute__((vector_size(sizeof(T) * (LANES))));                                             \
        T *d = dst;                                                                                                    \
        const T *s = (const T *)src + 1 - (LANES);                                                                     \
        int64_t i = 0;                                                                                                 \
        lanes v;                                                                                                       \
        _Pragma("GCC unroll 4") for (; i + (LANES) <= n; i += (LANES)) {                                               \
            memcpy(&v, s - i, sizeof v);                                                                               \
            v = __builtin_shufflevector(v, v, __VA_ARGS__);                                                            \
            memcpy(d + i, &v, sizeof v);                                                                               \
        }                                                                                                              \
        for (; i < n; i++) d[i] = ((const T *)src)[-i];                                                                \
    }
    switch (element) {
    case 4: REVERSE(dycl_element4, 4, 3, 2, 1, 0) break;
    case 8: REVERSE(dycl_element8, 2, 1, 0) break;
    default: strided_run(dst, 1, src, -1, n, element);
    }
#undef REVERSE
}

void dycl_kern_gather_run(void *dst, const void *src, int64_t stride, size_t n, size_t element) {
    if (n == 0) return;
    if (stride == 1)
        memcpy(dst, src, n * element);
    else if (stride == 0)
        fill_run(dst, src, n, element);
    else
        strided_run(dst, 1, src, stride, (int64_t)n, element);
}

static void copy_transposed(const copy_plan *p, char *dst, const char *src, int64_t rows, int64_t columns) {
    int64_t ds = p->plane1.ds, ss = p->plane0.ss;
    if (p->transpose4) {
        p->transpose4((dycl_word *)dst, ds, (const dycl_word *)src, ss, (size_t)rows, (size_t)columns);
        return;
    }
    /* Eight source rows side by side: eight contiguous reads, one write of neighbours. 32 lines of dst stay in L1
     * meanwhile. */
#define BLOCKS(T)                                                                                                      \
    for (int64_t r0 = 0, r1, c; r0 < rows; r0 = r1) {                                                                  \
        r1 = rows - r0 < 32 ? rows : r0 + 32;                                                                          \
        for (c = 0; c + 8 <= columns; c += 8) {                                                                        \
            const T *s = (const T *)src + c * ss;                                                                      \
            for (int64_t r = r0; r < r1; r++) {                                                                        \
                T *d = (T *)dst + r * ds + c;                                                                          \
                d[0] = s[r], d[1] = s[ss + r], d[2] = s[2 * ss + r], d[3] = s[3 * ss + r];                             \
                d[4] = s[4 * ss + r], d[5] = s[5 * ss + r], d[6] = s[6 * ss + r], d[7] = s[7 * ss + r];                \
            }                                                                                                          \
        }                                                                                                              \
        for (; c < columns; c++)                                                                                       \
            for (int64_t r = r0; r < r1; r++) ((T *)dst)[r * ds + c] = ((const T *)src)[c * ss + r];                   \
    }
    TYPED(p->element, BLOCKS)
#undef BLOCKS
}

static void copy_runs(const copy_plan *p, char *dst, const char *src, int64_t rows, int64_t columns) {
    size_t element = p->element;
    int64_t d1 = p->plane1.ds * (int64_t)element, s1 = p->plane1.ss * (int64_t)element, d0 = p->plane0.ds,
            s0 = p->plane0.ss;
    size_t bytes = (size_t)columns * element;
    if (d0 == 1 && s0 == 1 && bytes >= 32) {
        for (; rows > 0; rows--, dst += d1, src += s1) memcpy(dst, src, bytes);
        return;
    }
    if (d0 == 1 && s0 == 0 && bytes >= 32) {
        for (; rows > 0; rows--, dst += d1, src += s1) fill_run(dst, src, (size_t)columns, element);
        return;
    }
    if (d0 == 1 && s0 == -1) {
        for (; rows > 0; rows--, dst += d1, src += s1) reversed_run(dst, src, columns, element);
        return;
    }
    for (; rows > 0; rows--, dst += d1, src += s1) strided_run(dst, d0, src, s0, columns, element);
}

static void copy_units(const copy_plan *p, int64_t begin, int64_t end) {
    int64_t index[DYCL_MAX_RANK], d = 0, s = 0, per_plane = p->units1 * p->units0;
    int64_t plane = begin / per_plane, u1 = begin % per_plane / p->units0, u0 = begin % p->units0;
    const int64_t element = (int64_t)p->element;
    for (int i = p->rank - 1; i >= 0; i--) {
        index[i] = plane % p->outer[i].size, plane /= p->outer[i].size;
        d += index[i] * p->outer[i].ds, s += index[i] * p->outer[i].ss;
    }
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t i1 = u1 * p->unit1, i0 = u0 * p->unit0;
        int64_t rows = p->plane1.size - i1 < p->unit1 ? p->plane1.size - i1 : p->unit1;
        int64_t columns = p->plane0.size - i0 < p->unit0 ? p->plane0.size - i0 : p->unit0;
        char *dst = p->dst + (d + i1 * p->plane1.ds + i0 * p->plane0.ds) * element;
        const char *src = p->src + (s + i1 * p->plane1.ss + i0 * p->plane0.ss) * element;
        if (p->transposed)
            copy_transposed(p, dst, src, rows, columns);
        else
            copy_runs(p, dst, src, rows, columns);
        if (++u0 < p->units0) continue;
        u0 = 0;
        if (++u1 < p->units1) continue;
        u1 = 0;
        for (int i = p->rank - 1; i >= 0; i--) {
            d += p->outer[i].ds, s += p->outer[i].ss;
            if (++index[i] < p->outer[i].size) break;
            d -= index[i] * p->outer[i].ds, s -= index[i] * p->outer[i].ss;
            index[i] = 0;
        }
    }
}

DYCL_ISA_CHOICE(dycl_transpose4, dycl_kern_transpose4)
dycl_transpose4 *dycl_kern_transpose4(dycl_isa isa) { return dycl_kern_transpose4_for(isa); }

/* Takes the plane out of dims: the innermost dimension and, where it makes a transpose of useful size, the one along
 * which the source is contiguous; else the next one. */
static void choose_plane(copy_plan *p, dimension *dims, int rank) {
    int other = rank - 2;
    p->plane0 = rank ? dims[rank - 1] : (dimension){1, 1, 1};
    p->plane1 = (dimension){1, 0, 0};
    if (rank > 1 && p->plane0.ds == 1 && p->plane0.ss != 1 && p->plane0.ss != 0)
        for (int i = 0; i < rank - 1; i++)
            if (dims[i].ss == 1 && dims[i].size >= 4 && p->plane0.size >= 2) other = i, p->transposed = 1;
    if (rank > 1) p->plane1 = dims[other];
    for (int i = 0; i < rank - 1; i++)
        if (i != other) p->outer[p->rank++] = dims[i];
}

void dycl_kern_copy(void *dst, const int64_t *dst_strides, const void *src, const int64_t *src_strides,
                    const int64_t *sizes, int rank, size_t element) {
    copy_plan plan = {.dst = dst, .src = src, .element = element};
    dimension dims[DYCL_MAX_RANK];
    int64_t planes = 1;
    for (int i = 0; i < rank; i++)
        if (sizes[i] == 0) return;
    choose_plane(&plan, dims, normalise(dims, dst_strides, src_strides, sizes, rank));
    for (int i = 0; i < plan.rank; i++) planes *= plan.outer[i].size;
    if (plan.transposed) {
        if (element == 4) plan.transpose4 = dycl_kern_transpose4(dycl_cpu_isa());
        plan.unit1 = 256, plan.unit0 = 64; /* measured, flat around it: what matters is the 16x16 block inside */
    } else {
        const int64_t target =
            16384 / (int64_t)element; /* elements of a unit: a fraction of L1, worth its bookkeeping */
        plan.unit0 = plan.plane0.size < 2 * target ? plan.plane0.size : target;
        plan.unit1 = target / plan.unit0 + 1;
    }
    plan.units1 = (plan.plane1.size + plan.unit1 - 1) / plan.unit1;
    plan.units0 = (plan.plane0.size + plan.unit0 - 1) / plan.unit0;
    plan.units = planes * plan.units1 * plan.units0;
    int threads = dycl_kern_threads((size_t)(planes * plan.plane1.size * plan.plane0.size) * element);
    if (threads < 2 || plan.units < 2) {
        copy_units(&plan, 0, plan.units);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        int64_t team = omp_get_num_threads(), self = omp_get_thread_num();
        copy_units(&plan, plan.units * self / team, plan.units * (self + 1) / team);
    }
}

void dycl_kern_fill(void *dst, const void *value, size_t n, size_t element) {
    int threads = dycl_kern_threads(n * element);
    if (threads < 2) {
        fill_run(dst, value, n, element);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        size_t team = (size_t)omp_get_num_threads(), self = (size_t)omp_get_thread_num();
        size_t begin = n / team * self, end = self + 1 == team ? n : n / team * (self + 1);
        fill_run((char *)dst + begin * element, value, end - begin, element);
    }
}
