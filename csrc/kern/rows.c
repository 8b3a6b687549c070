#include "kern/row.h"

static void cumsum_i64(void *dst, const void *a, const void *b, const void *c, size_t n, double eps) {
    const int64_t *in = a;
    int64_t *out = dst;
    uint64_t sum = 0;
    (void)b, (void)c, (void)eps;
    for (size_t i = 0; i < n; i++) out[i] = (int64_t)(sum += (uint64_t)in[i]);
}

dycl_row_fn dycl_kern_row(dycl_isa isa, dycl_row op, dycl_dtype dtype) {
    static const dycl_row_table *const tables[DYCL_ISA_COUNT] = {
        [DYCL_ISA_SCALAR] = &dycl_row_table__scalar,
#if defined(__x86_64__)
        [DYCL_ISA_AVX2] = &dycl_row_table__avx2,
        [DYCL_ISA_AVX512] = &dycl_row_table__avx512,
#endif
    };
    if (dtype == DYCL_F32) return tables[isa]->f32[op];
    if (dtype == DYCL_F64) return tables[isa]->f64[op];
    return dtype == DYCL_I64 && op == DYCL_ROW_CUMSUM ? cumsum_i64 : NULL;
}
