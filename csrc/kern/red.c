#include "kern/red.h"

DYCL_ISA_CHOICE(const dycl_red_table, dycl_red_table)
const dycl_red_table *dycl_kern_red_table(dycl_isa isa) { return dycl_red_table_for(isa); }

dycl_red_fn dycl_kern_red(dycl_isa isa, dycl_red op, dycl_dtype dtype) {
    return dycl_kern_red_table(isa)->red[op][dtype];
}

void dycl_kern_add_parts(dycl_dtype dtype, void *sum, const void *parts, int64_t count, double divisor) {
    dycl_kern_red(dycl_cpu_isa(), DYCL_RED_SUM, dtype)(sum, parts, NULL, (size_t)count);
    if (divisor == 0) return;
    if (dtype == DYCL_F32)
        *(float *)sum /= (float)divisor;
    else
        *(double *)sum /= divisor;
}

dycl_dtype dycl_red_result(dycl_red op, dycl_dtype dtype) {
    switch (op) {
    case DYCL_RED_ALL:
    case DYCL_RED_ANY: return DYCL_BOOL;
    case DYCL_RED_ARGMAX:
    case DYCL_RED_ARGMIN: return DYCL_I64;
    case DYCL_RED_SUM:
    case DYCL_RED_PROD: return dycl_dtype_is_float(dtype) ? dtype : DYCL_I64;
    default: return dtype;
    }
}

dycl_moments dycl_moments_wide(const float *a, int64_t stride, size_t n) {
    double sum = 0, m2 = 0, mean;
    for (size_t i = 0; i < n; i++) sum += (double)a[(int64_t)i * stride];
    mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) {
        double x = (double)a[(int64_t)i * stride] - mean;
        m2 += x * x;
    }
    return (dycl_moments){(double)n, mean, m2};
}

/* In pieces that stay in L1, so that the second pass of each is free; each piece's own mean keeps the squares small. */
dycl_moments dycl_kern_moments(const dycl_red_table *table, dycl_dtype dtype, const void *a, size_t n) {
    dycl_moments all = {0, 0, 0};
    const size_t size = dycl_dtype_size(dtype), piece = 4096;
    for (size_t i = 0, count; i < n; i += count) {
        const void *p = (const char *)a + i * size;
        double sums[2], mean;
        count = n - i < piece ? n - i : piece;
        if (dtype == DYCL_F32) {
            float sum, m;
            table->red[DYCL_RED_SUM][dtype](&sum, p, NULL, count);
            m = sum / (float)count, mean = (double)m;
            table->moments[0](sums, p, &m, count);
        } else {
            table->red[DYCL_RED_SUM][dtype](&mean, p, NULL, count);
            mean /= (double)count;
            table->moments[1](sums, p, &mean, count);
        }
        all = dycl_moments_merge(all, dycl_moments_from(sums, mean, (double)count));
    }
    return all;
}
