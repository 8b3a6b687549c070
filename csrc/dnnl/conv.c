#include "dnnl/internal.h"

#include <math.h>
#include <string.h>

static void conv_key(const dycl_conv_desc *desc, int kind, dycl_key *key) {
    const int64_t numbers[] = {desc->n,
                               desc->c,
                               desc->h,
                               desc->w,
                               desc->oc,
                               desc->kh,
                               desc->kw,
                               desc->oh,
                               desc->ow,
                               desc->stride[0],
                               desc->stride[1],
                               desc->dilation[0],
                               desc->dilation[1],
                               desc->pad_before[0],
                               desc->pad_before[1],
                               desc->pad_after[0],
                               desc->pad_after[1],
                               desc->groups};
    key->count = 0;
    dycl_key_begin(key, kind);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) dycl_key_add(key, numbers[i]);
    dycl_key_add(key, (desc->bias != 0) | (desc->any_src != 0) << 1 | (desc->any_dst != 0) << 2 |
                          (desc->winograd != 0) << 3 | (desc->transposed != 0) << 4 | (desc->bf16 != 0) << 5);
    if (!desc->any_src) dycl_key_add_layout(key, &desc->src);
    if (!desc->any_dst) dycl_key_add_layout(key, &desc->dst);
    dycl_key_add_post(key, &desc->post);
}

static dycl_status activation_md(int any, const dycl_layout *layout, const int64_t *sizes, dnnl_memory_desc_t *out) {
    if (any) {
        dnnl_dims_t dims = {sizes[0], sizes[1], sizes[2], sizes[3]};
        return dycl_dnnl_check(dnnl_memory_desc_create_with_tag(out, 4, dims, dnnl_f32, dnnl_format_tag_any),
                               "convolution operand");
    }
    for (int d = 0; d < 4; d++)
        if (layout->rank != 4 || layout->sizes[d] != sizes[d])
            return dycl_error_set("layout disagrees with the convolution's sizes");
    return dycl_layout_to_md(layout, out);
}

static dycl_status weights_md(const dycl_conv_desc *desc, int any, dnnl_memory_desc_t *out) {
    int64_t g = desc->groups;
    dnnl_dims_t dense = {desc->oc, desc->c, desc->kh, desc->kw},
                grouped = {g, desc->oc / g, desc->c / g, desc->kh, desc->kw};
    dnnl_format_tag_t tag = any ? dnnl_format_tag_any : g == 1 ? dnnl_abcd : dnnl_abcde;
    if (desc->transposed && !any) tag = g == 1 ? dnnl_bacd : dnnl_acbde;
    return dycl_dnnl_check(
        dnnl_memory_desc_create_with_tag(out, g == 1 ? 4 : 5, g == 1 ? dense : grouped, dnnl_f32, tag),
        "convolution weights");
}

static dycl_status check_sizes(const dycl_conv_desc *desc, const int64_t *src_sizes, const int64_t *dst_sizes) {
    for (int d = 0; d < 4; d++)
        if (src_sizes[d] < 1 || dst_sizes[d] < 1) return dycl_error_bail("empty convolution");
    if (desc->groups < 1 || desc->c % desc->groups || desc->oc % desc->groups || desc->kh < 1 || desc->kw < 1)
        return dycl_error_bail("convolution with inconsistent groups");
    if (desc->transposed && desc->post.count) return dycl_error_bail("transposed convolution with post-ops");
    const int64_t *wide = desc->transposed ? dst_sizes : src_sizes, *narrow = desc->transposed ? src_sizes : dst_sizes;
    for (int d = 0; d < 2; d++) {
        /* oneDNN would accept a few of these and read outside: it trusts the output size and the padding behind it. */
        int64_t in = wide[d + 2] + desc->pad_before[d] + desc->pad_after[d], k = d ? desc->kw : desc->kh;
        if (desc->transposed && desc->pad_after[d] < 0)
            return dycl_error_bail("transposed convolution padded beyond its windows");
        if (desc->stride[d] < 1 || desc->dilation[d] < 1 || desc->pad_before[d] < 0)
            return dycl_error_bail("convolution with unusual steps");
        if (in < desc->dilation[d] * (k - 1) + 1 ||
            (in - desc->dilation[d] * (k - 1) - 1) / desc->stride[d] + 1 != narrow[d + 2])
            return dycl_error_bail("convolution with inconsistent sizes");
    }
    return DYCL_OK;
}

static dycl_status find_or_make(const dycl_conv_desc *desc, dycl_prim **out) {
    dnnl_engine_t engine;
    dnnl_memory_desc_t src = NULL, weights = NULL, plain = NULL, bias = NULL, dst = NULL;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dycl_status status;
    dycl_key key;
    const int64_t src_sizes[4] = {desc->n, desc->c, desc->h, desc->w},
                  dst_sizes[4] = {desc->n, desc->oc, desc->oh, desc->ow};

    DYCL_TRY(check_sizes(desc, src_sizes, dst_sizes));
    conv_key(desc, DYCL_KEY_CONV, &key);
    *out = dycl_cache_find(&key);
    if (*out) return DYCL_OK;

    DYCL_TRY(dycl_dnnl_engine(&engine));
    DYCL_TRY(activation_md(desc->any_src, &desc->src, src_sizes, &src));
    DYCL_TRY(activation_md(desc->any_dst, &desc->dst, dst_sizes, &dst));
    DYCL_TRY(weights_md(desc, 1, &weights));
    DYCL_TRY(weights_md(desc, 0, &plain));
    if (desc->bias) {
        dnnl_dims_t sizes = {desc->oc};
        DYCL_TRY(
            dycl_dnnl_check(dnnl_memory_desc_create_with_tag(&bias, 1, sizes, dnnl_f32, dnnl_a), "convolution bias"));
    }
    DYCL_TRY(dycl_post_attr(&desc->post, 4, dst_sizes, &attr));
    if (desc->bf16)
        DYCL_TRY(dycl_dnnl_check(dnnl_primitive_attr_set_fpmath_mode(attr, dnnl_fpmath_mode_bf16), "fpmath mode"));
    dnnl_dims_t strides = {desc->stride[0], desc->stride[1]}, dilates = {desc->dilation[0] - 1, desc->dilation[1] - 1};
    dnnl_dims_t before = {desc->pad_before[0], desc->pad_before[1]}, after = {desc->pad_after[0], desc->pad_after[1]};
    if (desc->transposed)
        DYCL_TRY(dycl_dnnl_check(dnnl_deconvolution_forward_primitive_desc_create(
                                     &pd, engine, dnnl_forward_inference, dnnl_deconvolution_direct, src, weights, bias,
                                     dst, strides, dilates, before, after, attr),
                                 "transposed convolution"));
    else
        DYCL_TRY(dycl_dnnl_check(dnnl_convolution_forward_primitive_desc_create(
                                     &pd, engine, dnnl_forward_inference,
                                     desc->winograd ? dnnl_convolution_winograd : dnnl_convolution_direct, src, weights,
                                     bias, dst, strides, dilates, before, after, attr),
                                 desc->winograd ? "Winograd convolution" : "convolution"));
    dycl_prim_parts parts = {&key, pd, plain, &desc->post, desc->bias, 1, 0};
    plain = NULL;
    status = dycl_prim_make(&parts, out);
fail:
    if (src) dnnl_memory_desc_destroy(src);
    if (weights) dnnl_memory_desc_destroy(weights);
    if (plain) dnnl_memory_desc_destroy(plain);
    if (bias) dnnl_memory_desc_destroy(bias);
    if (dst) dnnl_memory_desc_destroy(dst);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return status;
}

/* oneDNN's convolutions by products multiply what relu takes away by 0: -0 for 0. As a clamp it is 0 there, too. */
dycl_status dycl_prim_conv(const dycl_conv_desc *desc, dycl_prim **out) {
    dycl_conv_desc clamped = *desc;
    int found = 0;
    dycl_status status = find_or_make(desc, out);
    for (int i = 0; status == DYCL_OK && i < desc->post.count; i++)
        if (desc->post.op[i].kind == DYCL_POST_RELU) {
            dycl_post_op *op = &clamped.post.op[i];
            op->kind = DYCL_POST_CLAMP;
            op->alpha = 0;
            op->beta = INFINITY;
            found = 1;
        }
    if (!found || !strstr(dycl_prim_info(*out), "gemm")) return status;
    dycl_prim_release(*out);
    *out = NULL;
    return find_or_make(&clamped, out);
}

/* Layouts: oneDNN's choice, or images in channels last. */
static dycl_status gradient_pd(const dycl_conv_desc *desc, int channels_last, dnnl_primitive_desc_t *out) {
    dnnl_engine_t engine;
    dnnl_memory_desc_t src = NULL, weights = NULL, dst = NULL;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t forward = NULL;
    dycl_status status;
    dnnl_format_tag_t tag = channels_last ? dnnl_acdb : dnnl_format_tag_any;
    dnnl_dims_t src_sizes = {desc->n, desc->c, desc->h, desc->w}, dst_sizes = {desc->n, desc->oc, desc->oh, desc->ow};
    DYCL_TRY(dycl_dnnl_engine(&engine));
    DYCL_TRY(dycl_dnnl_check(dnnl_memory_desc_create_with_tag(&src, 4, src_sizes, dnnl_f32, tag), "image"));
    DYCL_TRY(dycl_dnnl_check(dnnl_memory_desc_create_with_tag(&dst, 4, dst_sizes, dnnl_f32, tag), "result"));
    DYCL_TRY(weights_md(desc, 1, &weights));
    DYCL_TRY(dycl_post_attr(NULL, 4, dst_sizes, &attr));
    dnnl_dims_t strides = {desc->stride[0], desc->stride[1]}, dilates = {desc->dilation[0] - 1, desc->dilation[1] - 1};
    dnnl_dims_t before = {desc->pad_before[0], desc->pad_before[1]}, after = {desc->pad_after[0], desc->pad_after[1]};
    DYCL_TRY(dycl_dnnl_check(dnnl_convolution_forward_primitive_desc_create(&forward, engine, dnnl_forward_training,
                                                                            dnnl_convolution_direct, src, weights, NULL,
                                                                            dst, strides, dilates, before, after, attr),
                             "convolution"));
    DYCL_TRY(dycl_dnnl_check(dnnl_convolution_backward_weights_primitive_desc_create(
                                 out, engine, dnnl_convolution_direct, src, weights, NULL, dst, strides, dilates,
                                 before, after, forward, attr),
                             "gradient of a convolution's weights"));
fail:
    if (src) dnnl_memory_desc_destroy(src);
    if (weights) dnnl_memory_desc_destroy(weights);
    if (dst) dnnl_memory_desc_destroy(dst);
    if (attr) dnnl_primitive_attr_destroy(attr);
    if (forward) dnnl_primitive_desc_destroy(forward);
    return status;
}

/* No kernel of its own for convolutions: a product of matrices for each group and image, or plain loops. */
static int is_general(const_dnnl_primitive_desc_t pd) {
    const char *name = NULL;
    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) != dnnl_success || !name) return 0;
    return strstr(name, "gemm") || strstr(name, "ref");
}

/* With groups, what oneDNN chooses by itself may be general where there is a kernel for images in channels last, which
 * took a half to a quarter of the time at each of ten sizes (windows of 3, 5 and 7, one to ten channels a group). */
static dycl_status choose_gradient(const dycl_conv_desc *desc, dnnl_primitive_desc_t *out) {
    dnnl_primitive_desc_t other = NULL;
    dycl_status status = gradient_pd(desc, 0, out);
    if (status != DYCL_OK || desc->groups == 1 || !is_general(*out)) return status;
    if (gradient_pd(desc, 1, &other) == DYCL_OK && !is_general(other)) {
        dnnl_primitive_desc_destroy(*out);
        *out = other;
    } else if (other) {
        dnnl_primitive_desc_destroy(other);
    }
    return DYCL_OK;
}

dycl_status dycl_prim_conv_gradient(const dycl_conv_desc *desc, dycl_prim **out) {
    dnnl_primitive_desc_t pd = NULL;
    dycl_status status;
    dycl_key key;
    const int64_t src_sizes[4] = {desc->n, desc->c, desc->h, desc->w},
                  dst_sizes[4] = {desc->n, desc->oc, desc->oh, desc->ow};
    DYCL_TRY(check_sizes(desc, src_sizes, dst_sizes));
    conv_key(desc, DYCL_KEY_CONV_GRADIENT, &key);
    *out = dycl_cache_find(&key);
    if (*out) return DYCL_OK;
    DYCL_TRY(choose_gradient(desc, &pd));
    /* The reference is accepted: who asks has nothing else. */
    dycl_prim_parts parts = {.key = &key, .pd = pd, .gradient = 1};
    status = dycl_prim_make(&parts, out);
fail:
    return status;
}
