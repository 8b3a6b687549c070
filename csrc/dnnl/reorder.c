#include "dnnl/internal.h"

dycl_status dycl_prim_reorder(const dycl_layout *from, const dycl_layout *to, dycl_prim **out) {
    dnnl_engine_t engine;
    dnnl_memory_desc_t src = NULL, dst = NULL;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dycl_status status;
    dycl_key key;

    if (from->rank != to->rank) return dycl_error_set("reorder from rank %d to %d", from->rank, to->rank);
    for (int d = 0; d < from->rank; d++)
        if (from->sizes[d] != to->sizes[d]) return dycl_error_set("reorder between different sizes");
    key.count = 0;
    dycl_key_begin(&key, DYCL_KEY_REORDER);
    dycl_key_add_layout(&key, from);
    dycl_key_add_layout(&key, to);
    *out = dycl_cache_find(&key);
    if (*out) return DYCL_OK;

    DYCL_TRY(dycl_dnnl_engine(&engine));
    DYCL_TRY(dycl_layout_to_md(from, &src));
    DYCL_TRY(dycl_layout_to_md(to, &dst));
    DYCL_TRY(dycl_post_attr(NULL, to->rank, to->sizes, &attr));
    DYCL_TRY(dycl_dnnl_check(dnnl_reorder_primitive_desc_create(&pd, src, engine, dst, engine, attr), "reorder"));
    dycl_prim_parts parts = {&key, pd, NULL, NULL, 0, 0, 0};
    status = dycl_prim_make(&parts, out);
fail:
    if (src) dnnl_memory_desc_destroy(src);
    if (dst) dnnl_memory_desc_destroy(dst);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return status;
}
