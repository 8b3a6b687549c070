#include <string.h>

#include "kern/kern.h"
#include "kern/parallel.h"

typedef struct {
    char *out;
    const char *table;
    const void *index;
    int64_t rows, stride;
    size_t row_bytes;
    int wide; /* i64 indices */
} take_plan;

static int64_t row_at(const take_plan *p, int64_t i) {
    return p->wide ? ((const int64_t *)p->index)[i] : (int64_t)((const int32_t *)p->index)[i];
}

/* A constant size lets the compiler make the copy of a short row one load and one store. */
#define TAKE(SIZE)                                                                                                     \
    for (int64_t i = begin; i < end; i++) {                                                                            \
        int64_t row = row_at(p, i);                                                                                    \
        if ((uint64_t)row >= (uint64_t)p->rows) return i;                                                              \
        memcpy(p->out + i * (int64_t)(SIZE), p->table + row * p->stride, SIZE);                                        \
    }

/* The first bad index of [begin, end), or end. */
static int64_t take_range(const take_plan *p, int64_t begin, int64_t end) {
    switch (p->row_bytes) {
    case 1: TAKE(1) break;
    case 4: TAKE(4) break;
    case 8: TAKE(8) break;
    default: TAKE(p->row_bytes) break;
    }
    return end;
}
#undef TAKE

int64_t dycl_kern_take_rows(void *out, const void *table, int64_t rows, size_t row_bytes, int64_t row_stride_bytes,
                            const void *index, dycl_dtype index_dtype, size_t n) {
    take_plan plan = {out, table, index, rows, row_stride_bytes, row_bytes, index_dtype == DYCL_I64};
    int64_t count = (int64_t)n, bad = count;
    int threads = dycl_kern_threads(n * (row_bytes + 8));
    if (threads < 2) {
        bad = take_range(&plan, 0, count);
    } else {
#pragma omp parallel num_threads(threads) reduction(min : bad)
        {
            int64_t team = omp_get_num_threads(), self = omp_get_thread_num();
            int64_t end = count * (self + 1) / team, stopped = take_range(&plan, count * self / team, end);
            if (stopped < end) bad = stopped;
        }
    }
    return bad < count ? bad : -1;
}
