/* Row operators over rows that lie side by side: cut into strips of neighbours. */
#include "kern/parallel.h"
#include "kern/row.h"

#define STRIP_ELEMENTS 8192 /* of a task at least: a fraction of the caches, worth its bookkeeping */
#define STRIP_LEAST    64

int dycl_kern_has_row_columns(dycl_row op, dycl_dtype dtype) {
    return dycl_dtype_is_float(dycl_dtype_computed(dtype)) && dycl_row_table_of(dycl_cpu_isa())->columns[op][0] != NULL;
}

static int64_t strip_of(const dycl_row_columns_desc *d) {
    return STRIP_LEAST * d->n < STRIP_ELEMENTS ? STRIP_ELEMENTS / d->n / STRIP_LEAST * STRIP_LEAST : STRIP_LEAST;
}

static size_t wide_bytes(const dycl_row_columns_desc *d) {
    return dycl_dtype_is_half(d->dtype) ? (size_t)(strip_of(d) * d->n) * sizeof(float) : 0;
}

size_t dycl_kern_row_columns_scratch(const dycl_row_columns_desc *d) { return wide_bytes(d) * (size_t)d->threads; }

/* Floats of 16 bits: the strip as f32, and back. */
static void run_half(const dycl_row_columns_desc *d, dycl_row_columns_fn kernel, uint16_t *dst, const uint16_t *src,
                     float *wide, int64_t width) {
    const dycl_ew_fn widen = dycl_kern_cast(dycl_cpu_isa(), d->dtype, DYCL_F32),
                     narrow = dycl_kern_cast(dycl_cpu_isa(), DYCL_F32, d->dtype);
    for (int64_t r = 0; r < d->n; r++) widen(wide + r * width, src + r * d->src_step, NULL, NULL, (size_t)width);
    kernel(wide, width, wide, width, (size_t)d->n, (size_t)width);
    for (int64_t r = 0; r < d->n; r++) narrow(dst + r * d->dst_step, wide + r * width, NULL, NULL, (size_t)width);
}

static void run_strips(const dycl_row_columns_desc *d, char *dst, const char *src, float *wide, int64_t begin,
                       int64_t end) {
    const dycl_row_columns_fn kernel = dycl_row_table_of(dycl_cpu_isa())->columns[d->op][d->dtype == DYCL_F64];
    const int64_t strip = strip_of(d);
    const int64_t strips = (d->width + strip - 1) / strip, element = (int64_t)dycl_dtype_size(d->dtype);
    for (int64_t task = begin; task < end; task++) {
        int64_t column = task % strips * strip, to = column, from = column, left = task / strips;
        for (int i = d->rank - 1; i >= 0; i--) {
            int64_t at = left % d->sizes[i];
            left /= d->sizes[i], to += at * d->dst_strides[i], from += at * d->src_strides[i];
        }
        int64_t width = d->width - column < strip ? d->width - column : strip;
        if (wide)
            run_half(d, kernel, (uint16_t *)dst + to, (const uint16_t *)src + from, wide, width);
        else
            kernel(dst + to * element, d->dst_step, src + from * element, d->src_step, (size_t)d->n, (size_t)width);
    }
}

void dycl_kern_row_columns(const dycl_row_columns_desc *d, void *dst, const void *src, void *scratch) {
    int64_t outer = 1;
    for (int i = 0; i < d->rank; i++) outer *= d->sizes[i];
    const int64_t strip = strip_of(d), tasks = outer * ((d->width + strip - 1) / strip);
    /* an exponential takes several times as long as moving an element */
    int threads = dycl_kern_threads((size_t)(outer * d->width * d->n) * 4 * dycl_dtype_size(d->dtype));
    if (threads > d->threads) threads = d->threads;
    if (threads < 2 || tasks < 2) {
        run_strips(d, dst, src, wide_bytes(d) ? scratch : NULL, 0, tasks);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        int64_t team = omp_get_num_threads(), self = omp_get_thread_num();
        float *mine = wide_bytes(d) ? (float *)scratch + self * (int64_t)(wide_bytes(d) / sizeof(float)) : NULL;
        run_strips(d, dst, src, mine, tasks * self / team, tasks * (self + 1) / team);
    }
}
