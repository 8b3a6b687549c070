/* Row operators over rows that lie side by side: cut into strips of neighbours. */
#include "kern/parallel.h"
#include "kern/row.h"

#define STRIP_ELEMENTS 8192 /* of a task at least: a fraction of the caches, worth its bookkeeping */
#define STRIP_LEAST    64

int dycl_kern_has_row_columns(dycl_row op, dycl_dtype dtype) {
    return (dtype == DYCL_F32 || dtype == DYCL_F64) && dycl_row_table_of(dycl_cpu_isa())->columns[op][0] != NULL;
}

static void run_strips(const dycl_row_columns_desc *d, char *dst, const char *src, int64_t strip, int64_t begin,
                       int64_t end) {
    const dycl_row_columns_fn kernel = dycl_row_table_of(dycl_cpu_isa())->columns[d->op][d->dtype == DYCL_F64];
    const int64_t strips = (d->width + strip - 1) / strip, element = (int64_t)dycl_dtype_size(d->dtype);
    for (int64_t task = begin; task < end; task++) {
        int64_t column = task % strips * strip, to = column, from = column, left = task / strips;
        for (int i = d->rank - 1; i >= 0; i--) {
            int64_t at = left % d->sizes[i];
            left /= d->sizes[i], to += at * d->dst_strides[i], from += at * d->src_strides[i];
        }
        int64_t width = d->width - column < strip ? d->width - column : strip;
        kernel(dst + to * element, d->dst_step, src + from * element, d->src_step, (size_t)d->n, (size_t)width);
    }
}

void dycl_kern_row_columns(const dycl_row_columns_desc *d, void *dst, const void *src) {
    int64_t outer = 1, strip = STRIP_LEAST;
    for (int i = 0; i < d->rank; i++) outer *= d->sizes[i];
    if (strip * d->n < STRIP_ELEMENTS) strip = STRIP_ELEMENTS / d->n / STRIP_LEAST * STRIP_LEAST;
    const int64_t tasks = outer * ((d->width + strip - 1) / strip);
    /* an exponential takes several times as long as moving an element */
    int threads = dycl_kern_threads((size_t)(outer * d->width * d->n) * 4 * dycl_dtype_size(d->dtype));
    if (threads < 2 || tasks < 2) {
        run_strips(d, dst, src, strip, 0, tasks);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        int64_t team = omp_get_num_threads(), self = omp_get_thread_num();
        run_strips(d, dst, src, strip, tasks * self / team, tasks * (self + 1) / team);
    }
}
