#include "dnnl/internal.h"

static void pool_key(const dycl_pool_desc *desc, dycl_key *key) {
    key->count = 0;
    dycl_key_begin(key, DYCL_KEY_POOL);
    dycl_key_add(key, desc->kind);
    dycl_key_add(key, desc->oh);
    dycl_key_add(key, desc->ow);
    for (int d = 0; d < 2; d++) {
        dycl_key_add(key, desc->kernel[d]);
        dycl_key_add(key, desc->stride[d]);
        dycl_key_add(key, desc->dilation[d]);
        dycl_key_add(key, desc->pad_before[d]);
        dycl_key_add(key, desc->pad_after[d]);
    }
    dycl_key_add_layout(key, &desc->src);
}

/* A window that lies in the padding alone has no result that torch and oneDNN agree on. */
static int windows_see_input(const dycl_pool_desc *desc, int d) {
    int64_t in = d ? desc->w : desc->h, out = d ? desc->ow : desc->oh;
    for (int64_t o = 0; o < out; o++) {
        int64_t tap = 0;
        for (; tap < desc->kernel[d]; tap++) {
            int64_t at = o * desc->stride[d] - desc->pad_before[d] + tap * desc->dilation[d];
            if (at >= 0 && at < in) break;
        }
        if (tap == desc->kernel[d]) return 0;
    }
    return 1;
}

dycl_status dycl_prim_pool(const dycl_pool_desc *desc, dycl_prim **out) {
    static const dnnl_alg_kind_t algorithms[] = {
        [DYCL_POOL_MAX] = dnnl_pooling_max,
        [DYCL_POOL_AVG_PADDED] = dnnl_pooling_avg_include_padding,
        [DYCL_POOL_AVG] = dnnl_pooling_avg_exclude_padding,
    };
    dnnl_engine_t engine;
    dnnl_memory_desc_t src = NULL, dst = NULL;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dycl_status status;
    dycl_key key;
    const int64_t sizes[4] = {desc->n, desc->c, desc->h, desc->w};

    if (desc->src.rank != 4) return dycl_error_set("pooling of rank %d", desc->src.rank);
    for (int d = 0; d < 4; d++) {
        if (sizes[d] < 1) return dycl_error_bail("empty pooling");
        if (sizes[d] != desc->src.sizes[d]) return dycl_error_set("layout disagrees with the pooling's sizes");
    }
    for (int d = 0; d < 2; d++) {
        int64_t in = sizes[d + 2] + desc->pad_before[d] + desc->pad_after[d],
                reach = desc->dilation[d] * (desc->kernel[d] - 1) + 1;
        if (desc->kernel[d] < 1 || desc->stride[d] < 1 || desc->dilation[d] < 1 || desc->pad_before[d] < 0 ||
            desc->pad_after[d] < 0)
            return dycl_error_bail("pooling with unusual steps");
        if (in < reach || (in - reach) / desc->stride[d] + 1 != (d ? desc->ow : desc->oh))
            return dycl_error_bail("pooling with inconsistent sizes");
        if (!windows_see_input(desc, d)) return dycl_error_bail("pooling with a window in the padding alone");
    }
    pool_key(desc, &key);
    *out = dycl_cache_find(&key);
    if (*out) return DYCL_OK;

    DYCL_TRY(dycl_dnnl_engine(&engine));
    DYCL_TRY(dycl_layout_to_md(&desc->src, &src));
    dnnl_dims_t dst_sizes = {desc->n, desc->c, desc->oh, desc->ow};
    DYCL_TRY(dycl_dnnl_check(dnnl_memory_desc_create_with_tag(&dst, 4, dst_sizes, dnnl_f32, dnnl_format_tag_any),
                             "pooling result"));
    DYCL_TRY(dycl_post_attr(NULL, 4, dst_sizes, &attr));
    dnnl_dims_t strides = {desc->stride[0], desc->stride[1]}, kernel = {desc->kernel[0], desc->kernel[1]};
    dnnl_dims_t dilation = {desc->dilation[0] - 1, desc->dilation[1] - 1};
    dnnl_dims_t before = {desc->pad_before[0], desc->pad_before[1]}, after = {desc->pad_after[0], desc->pad_after[1]};
    DYCL_TRY(dycl_dnnl_check(dnnl_pooling_forward_primitive_desc_create(&pd, engine, dnnl_forward_inference,
                                                                        algorithms[desc->kind], src, dst, strides,
                                                                        kernel, dilation, before, after, attr),
                             "pooling"));
    /* The reference is accepted: dilated pooling has nothing else, and it is parallel. */
    dycl_prim_parts parts = {&key, pd, NULL, NULL, 0, 0, 0};
    status = dycl_prim_make(&parts, out);
fail:
    if (src) dnnl_memory_desc_destroy(src);
    if (dst) dnnl_memory_desc_destroy(dst);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return status;
}
