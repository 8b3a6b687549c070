#include <string.h>

#include "kern/element.h"
#include "kern/kern.h"
#include "kern/parallel.h"

/* Where a run begins, in elements. */
typedef struct {
    int64_t at[DYCL_MAX_RANK], from, index;
} place;

static void begin_at(const dycl_gather_desc *d, int64_t row, place *p) {
    *p = (place){{0}, 0, 0};
    for (int i = d->rank - 2; i >= 0; i--) {
        p->at[i] = row % d->sizes[i], row /= d->sizes[i];
        p->from += p->at[i] * d->from_strides[i], p->index += p->at[i] * d->index_strides[i];
    }
}

static void next_row(const dycl_gather_desc *d, place *p) {
    for (int i = d->rank - 2; i >= 0; i--) {
        p->from += d->from_strides[i], p->index += d->index_strides[i];
        if (++p->at[i] < d->sizes[i]) return;
        p->from -= d->from_strides[i] * d->sizes[i], p->index -= d->index_strides[i] * d->sizes[i];
        p->at[i] = 0;
    }
}

/* A loop for the common case, along the last dimension of what is contiguous, needs no products. */
#define RUN(T)                                                                                                         \
    {                                                                                                                  \
        T *to = out;                                                                                                   \
        const T *elements = from;                                                                                      \
        if (inner == 0 && stride == 1 && step == 1) {                                                                  \
            _Pragma("GCC unroll 8") for (int64_t i = 0; i < n; i++) {                                                  \
                if ((uint64_t)index[i] >= limit) return i;                                                             \
                to[i] = elements[index[i]];                                                                            \
            }                                                                                                          \
            break;                                                                                                     \
        }                                                                                                              \
        for (int64_t i = 0; i < n; i++, elements += inner, index += step) {                                            \
            int64_t j = *index;                                                                                        \
            if ((uint64_t)j >= limit) return i;                                                                        \
            to[i] = elements[j * stride];                                                                              \
        }                                                                                                              \
        break;                                                                                                         \
    }

/* The first bad index of a run, or n. */
static int64_t gather_run(const dycl_gather_desc *d, void *out, const void *from, const int64_t *index, int64_t n) {
    const int64_t inner = d->from_strides[d->rank - 1], step = d->index_strides[d->rank - 1], stride = d->stride;
    const uint64_t limit = (uint64_t)d->limit;
    switch (d->element) {
    case 1: RUN(dycl_element1)
    case 2: RUN(dycl_element2)
    case 4: RUN(dycl_element4)
    default: RUN(dycl_element8)
    }
    return n;
}
#undef RUN

/* The first bad index of the elements [begin, end), or end. */
static int64_t gather_range(const dycl_gather_desc *d, char *out, const char *from, const int64_t *index, int64_t begin,
                            int64_t end) {
    const int64_t columns = d->sizes[d->rank - 1], last = d->rank - 1, element = (int64_t)d->element;
    place p;
    begin_at(d, begin / columns, &p);
    for (int64_t i = begin, column = begin % columns, n; i < end; i += n, column = 0) {
        n = columns - column < end - i ? columns - column : end - i;
        int64_t done = gather_run(d, out + i * element, from + (p.from + column * d->from_strides[last]) * element,
                                  index + p.index + column * d->index_strides[last], n);
        if (done < n) return i + done;
        next_row(d, &p);
    }
    return end;
}

const int64_t *dycl_kern_gather(const dycl_gather_desc *d, void *out, const void *from, const int64_t *index) {
    int64_t count = 1, bad;
    for (int i = 0; i < d->rank; i++) count *= d->sizes[i];
    if (count == 0) return NULL;
    bad = count;
    int threads = dycl_kern_threads((size_t)count * (d->element + 8));
    if (threads < 2) {
        bad = gather_range(d, out, from, index, 0, count);
    } else {
#pragma omp parallel num_threads(threads) reduction(min : bad)
        {
            int64_t team = omp_get_num_threads(), self = omp_get_thread_num();
            int64_t end = count * (self + 1) / team;
            int64_t stopped = gather_range(d, out, from, index, count * self / team, end);
            if (stopped < end) bad = stopped;
        }
    }
    if (bad == count) return NULL;
    place p;
    begin_at(d, bad / d->sizes[d->rank - 1], &p);
    return index + p.index + bad % d->sizes[d->rank - 1] * d->index_strides[d->rank - 1];
}
