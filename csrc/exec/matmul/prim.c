#include "exec/matmul/matmul.h"

#include <string.h>

/* bfloat16 is multiplied in pairs. Where the number of products is odd, oneDNN's older kernel pairs the last element of
 * A with a zero and an element again: an infinity makes NaN. (Its newer ones, "brg", do not; tests/py/test_half.py.) */
static int pairs_wrongly(const dycl_matmul_args *a, const dycl_prim *prim) {
    return dycl_dtype_is_half(a->dtype) && a->k % 2 && strncmp(dycl_prim_info(prim), "brg", 3) != 0;
}

/* oneDNN's products without AVX-512 are those of its sgemm, whose first call writes all of its kernels: 30 ms, 3.4 MiB.
 */
static int writes_kernels(const dycl_matmul_args *a, const dycl_prim *prim) {
    return !dycl_dtype_is_half(a->dtype) && dycl_kern_gemm(dycl_cpu_isa()) &&
           strncmp(dycl_prim_info(prim), "gemm", 4) == 0;
}

dycl_status dycl_matmul_try_primitive(dycl_builder *b, const dycl_matmul_args *a, int pack, dycl_prim **prim,
                                      dycl_ref *scratch) {
    dycl_matmul_desc d;
    dycl_status status;
    int rank = a->batches == 1 ? 0 : a->batch_rank;
    memset(&d, 0, sizeof d);
    if (rank > 4) return DYCL_BAIL;
    d.batch_rank = rank;
    memcpy(d.batch, a->batch, (size_t)rank * sizeof *d.batch);
    memcpy(d.a_strides, a->a_batch, (size_t)rank * sizeof *d.batch);
    memcpy(d.b_strides, a->b_batch, (size_t)rank * sizeof *d.batch);
    memcpy(d.c_strides, a->c_batch, (size_t)rank * sizeof *d.batch);
    d.m = a->m;
    d.n = a->n;
    d.k = a->k;
    d.a_strides[rank] = a->a_row;
    d.a_strides[rank + 1] = a->a_column;
    d.b_strides[rank] = a->b_row;
    d.b_strides[rank + 1] = a->b_column;
    d.c_strides[rank] = a->c_row;
    d.c_strides[rank + 1] = 1;
    d.bias = a->has_bias;
    d.half = dycl_dtype_is_half(a->dtype);
    d.pack_b = pack;
    dycl_prim *made;
    DYCL_TRY(dycl_prim_matmul(&d, &made));
    DYCL_TRY(dycl_make_prim(b, made));
    if ((pack && !dycl_prim_weights_bytes(made)) || pairs_wrongly(a, made) || writes_kernels(a, made)) return DYCL_BAIL;
    DYCL_TRY(dycl_make_scratch(b, dycl_prim_scratch(made), scratch));
    *prim = made;
fail:
    return status;
}

dycl_status dycl_matmul_make_packing(dycl_builder *b, dycl_matmul_args *a, const dycl_tensor *w) {
    const dycl_weights as = {
        .kind = DYCL_WEIGHTS_PRIM, .prim = a->prim, .salt = (uint64_t)a->b_row << 32 ^ (uint64_t)a->b_column};
    return dycl_make_packing(b, w, &as, 0, &a->packing);
}

dycl_status dycl_matmul_offer_packed(dycl_builder *b, dycl_matmul_args *a) {
    dycl_tensor w = {.ref = a->b};
    dycl_status status;
    DYCL_TRY(dycl_matmul_try_primitive(b, a, 1, &a->prim, &a->scratch));
    DYCL_TRY(dycl_matmul_make_packing(b, a, &w));
    a->packing->patient = 1;
fail:
    return status;
}

dycl_status dycl_matmul_execute(const dycl_matmul_args *a, dycl_plan *plan, const dycl_prim *prim, const void *weights,
                                dycl_ref scratch) {
    dycl_prim_args x = {.src = dycl_at(plan, a->a),
                        .weights = weights,
                        .bias = a->has_bias ? dycl_at(plan, a->bias) : NULL,
                        .dst = dycl_at(plan, a->c),
                        .scratch = dycl_at(plan, scratch)};
    return dycl_prim_execute(prim, &x);
}
