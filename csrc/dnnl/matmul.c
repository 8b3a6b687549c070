#include "dnnl/internal.h"

#define MAX_BATCH 4

/* Strides of size-1 dimensions say nothing, but oneDNN reads them: make them those of the nearest dense matrix. */
static void matrix_strides(int64_t rows, int64_t columns, int64_t *row, int64_t *column) {
    if (columns == 1) *column = 1;
    if (rows == 1) *row = *column == 1 ? columns : 1;
}

static dycl_status matrix_md(const dycl_matmul_desc *desc, const int64_t *strides, int64_t rows, int64_t columns,
                             int broadcasts, dnnl_data_type_t type, dnnl_memory_desc_t *out) {
    int rank = desc->batch_rank + 2;
    dnnl_dims_t sizes, steps;
    int64_t extent;
    sizes[rank - 2] = rows;
    sizes[rank - 1] = columns;
    steps[rank - 2] = strides[rank - 2];
    steps[rank - 1] = strides[rank - 1];
    matrix_strides(rows, columns, &steps[rank - 2], &steps[rank - 1]);
    if (steps[rank - 2] < 1 || steps[rank - 1] < 1 || (steps[rank - 2] != 1 && steps[rank - 1] != 1))
        return dycl_error_bail("matmul operand with strides %lld, %lld", (long long)steps[rank - 2],
                               (long long)steps[rank - 1]);
    extent = (rows - 1) * steps[rank - 2] + (columns - 1) * steps[rank - 1] + 1;
    for (int d = rank - 3; d >= 0; d--) {
        sizes[d] = broadcasts && strides[d] == 0 ? 1 : desc->batch[d];
        steps[d] = sizes[d] == 1 ? extent : strides[d];
        if (steps[d] < 1) return dycl_error_bail("matmul batch stride %lld", (long long)steps[d]);
        if (steps[d] * sizes[d] > extent) extent = steps[d] * sizes[d];
    }
    return dycl_dnnl_check(dnnl_memory_desc_create_with_strides(out, rank, sizes, type, steps), "matmul operand");
}

static void matmul_key(const dycl_matmul_desc *desc, dycl_key *key) {
    const int64_t *all[3] = {desc->a_strides, desc->b_strides, desc->c_strides};
    int64_t rows[3] = {desc->m, desc->k, desc->m}, columns[3] = {desc->k, desc->n, desc->n};
    int rank = desc->batch_rank + 2;
    key->count = 0;
    dycl_key_begin(key, DYCL_KEY_MATMUL);
    dycl_key_add(key, desc->batch_rank);
    for (int d = 0; d < desc->batch_rank; d++) dycl_key_add(key, desc->batch[d]);
    dycl_key_add(key, desc->m);
    dycl_key_add(key, desc->n);
    dycl_key_add(key, desc->k);
    dycl_key_add(key, (desc->bias != 0) | (desc->pack_b != 0) << 1 | (desc->bf16 != 0) << 2 | (desc->half != 0) << 3);
    for (int o = 0; o < 3; o++) {
        int64_t row = all[o][rank - 2], column = all[o][rank - 1];
        matrix_strides(rows[o], columns[o], &row, &column);
        for (int d = 0; d < desc->batch_rank; d++) dycl_key_add(key, desc->batch[d] == 1 ? 0 : all[o][d]);
        dycl_key_add(key, row);
        dycl_key_add(key, column);
    }
    dycl_key_add_post(key, &desc->post);
}

dycl_status dycl_prim_matmul(const dycl_matmul_desc *desc, dycl_prim **out) {
    dnnl_engine_t engine;
    dnnl_memory_desc_t a = NULL, b = NULL, plain_b = NULL, bias = NULL, c = NULL;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dycl_status status;
    dycl_key key;
    int rank = desc->batch_rank + 2;
    int64_t dst_sizes[MAX_BATCH + 2];
    const dnnl_data_type_t type = desc->half ? dnnl_bf16 : dnnl_f32;

    if (desc->batch_rank < 0 || desc->batch_rank > MAX_BATCH)
        return dycl_error_bail("matmul with %d batch dimensions", desc->batch_rank);
    if (desc->bf16 && !(desc->pack_b && desc->batch_rank == 0))
        return dycl_error_bail("matmul in bfloat16 without packed weights");
    if (desc->m < 1 || desc->n < 1 || desc->k < 1) return dycl_error_bail("empty matmul");
    for (int d = 0; d < desc->batch_rank; d++) {
        if (desc->batch[d] < 1) return dycl_error_bail("empty matmul");
        dst_sizes[d] = desc->batch[d];
    }
    dst_sizes[rank - 2] = desc->m;
    dst_sizes[rank - 1] = desc->n;
    matmul_key(desc, &key);
    *out = dycl_cache_find(&key);
    if (*out) return DYCL_OK;

    DYCL_TRY(dycl_dnnl_engine(&engine));
    DYCL_TRY(matrix_md(desc, desc->a_strides, desc->m, desc->k, 1, desc->bf16 ? dnnl_bf16 : type, &a));
    DYCL_TRY(matrix_md(desc, desc->b_strides, desc->k, desc->n, 1, type, &plain_b));
    DYCL_TRY(matrix_md(desc, desc->c_strides, desc->m, desc->n, 0, type, &c));
    if (desc->pack_b && desc->batch_rank == 0) {
        dnnl_dims_t sizes = {desc->k, desc->n};
        DYCL_TRY(dycl_dnnl_check(
            dnnl_memory_desc_create_with_tag(&b, rank, sizes, desc->bf16 ? dnnl_bf16 : type, dnnl_format_tag_any),
            "matmul weights"));
    }
    if (desc->bias) {
        dnnl_dims_t sizes, strides;
        for (int d = 0; d < rank; d++) {
            sizes[d] = d == rank - 1 ? desc->n : 1;
            strides[d] = d == rank - 1 ? 1 : desc->n;
        }
        DYCL_TRY(
            dycl_dnnl_check(dnnl_memory_desc_create_with_strides(&bias, rank, sizes, type, strides), "matmul bias"));
    }
    DYCL_TRY(dycl_post_attr(&desc->post, rank, dst_sizes, &attr));
    DYCL_TRY(
        dycl_dnnl_check(dnnl_matmul_primitive_desc_create(&pd, engine, a, b ? b : plain_b, bias, c, attr), "matmul"));
    dycl_prim_parts parts = {&key, pd, plain_b, &desc->post, desc->bias, 1, 0};
    plain_b = NULL;
    status = dycl_prim_make(&parts, out);
fail:
    if (a) dnnl_memory_desc_destroy(a);
    if (b) dnnl_memory_desc_destroy(b);
    if (plain_b) dnnl_memory_desc_destroy(plain_b);
    if (bias) dnnl_memory_desc_destroy(bias);
    if (c) dnnl_memory_desc_destroy(c);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return status;
}
