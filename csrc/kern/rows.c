#include "kern/row.h"

static void cumsum_i64(void *dst, const void *a, const void *b, const void *c, size_t n, double eps) {
    const int64_t *in = a;
    int64_t *out = dst;
    uint64_t sum = 0;
    (void)b, (void)c, (void)eps;
    for (size_t i = 0; i < n; i++) out[i] = (int64_t)(sum += (uint64_t)in[i]);
}

DYCL_ISA_CHOICE(const dycl_row_table, dycl_row_table)

const dycl_row_table *dycl_row_table_of(dycl_isa isa) { return dycl_row_table_for(isa); }

dycl_row_fn dycl_kern_row(dycl_isa isa, dycl_row op, dycl_dtype dtype) {
    if (dtype == DYCL_F32) return dycl_row_table_for(isa)->f32[op];
    if (dtype == DYCL_F64) return dycl_row_table_for(isa)->f64[op];
    return dtype == DYCL_I64 && op == DYCL_ROW_CUMSUM ? cumsum_i64 : NULL;
}
