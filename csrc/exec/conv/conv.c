#include "exec/builder/blocked.h"
#include "exec/conv/conv.h"
#include "exec/tile/batch_norm.h"

#include <float.h>
#include <string.h>

/* Convolutions as oneDNN primitives, with what follows them done on the way out. oneDNN chooses the layouts; the
 * weights are packed once when they are constant, else at each run. */

dycl_status dycl_conv_weights(dycl_plan *plan, const dycl_conv_args *a, const void **out) {
    *out = dycl_at(plan, a->weights);
    if (!a->pack) return DYCL_OK;
    const float *scale = a->has_scale ? dycl_at(plan, a->scale) : NULL;
    const void *packed = NULL;
    dycl_status status = a->packing ? dycl_packing_get(plan, a->packing, scale, &packed) : DYCL_OK;
    if (status == DYCL_OK && !packed && !a->fresh) {
        float *scaled = scale && dycl_weights_copies(&a->as) ? dycl_at(plan, a->scaled) : NULL;
        packed = dycl_at(plan, a->repacked);
        status = dycl_weights_pack(&a->as, *out, scale, scaled, dycl_at(plan, a->repacked));
    }
    *out = packed;
    return status;
}

dycl_status dycl_conv_multiply(dycl_plan *plan, const dycl_conv_args *a, const dycl_gemm_rows *rows,
                               const dycl_gemm_finish *finish, int threads) {
    const dycl_gemm_layout *form = &a->as.gemm;
    const void *packed;
    dycl_status status = dycl_conv_weights(plan, a, &packed);
    if (status != DYCL_OK) return status;
    if (packed) {
        dycl_gemm_run(form, rows, packed, finish, threads);
        return DYCL_OK;
    }
    const float *scale = a->has_scale ? dycl_at(plan, a->scale) : NULL, *from = dycl_at(plan, a->weights);
    const dycl_gemm_columns columns = {from + a->as.start, scale, dycl_at(plan, a->repacked)};
    dycl_gemm_run_fresh(form, rows, &columns, finish, threads);
    return DYCL_OK;
}

static dycl_status conv_run(const dycl_step *step, dycl_plan *plan) {
    const dycl_conv_args *a = step->args;
    dycl_prim_args x = {.src = dycl_at(plan, a->src), .dst = dycl_at(plan, a->dst)};
    dycl_status status = dycl_conv_weights(plan, a, &x.weights);
    if (status != DYCL_OK) return status;
    if (a->has_bias) x.bias = dycl_at(plan, a->bias);
    x.scratch = dycl_at(plan, a->scratch);
    for (int i = 0; i < a->post_count; i++)
        if (a->has_post[i]) x.post[i] = dycl_at(plan, a->post[i]);
    return dycl_prim_execute(a->prim, &x);
}

/* What follows the convolution, as post-ops; `residuals[i]`: value that post-op i reads, or DYCL_NONE. */
static void describe_chain(const dycl_builder *b, const dycl_block *block, dycl_post_ops *post, uint32_t *residuals) {
    const dycl_graph *g = &b->program->graph;
    uint32_t before = g->nodes[block->first].out;
    for (uint32_t n = b->program->next[block->first]; n != DYCL_NONE; n = b->program->next[n]) {
        const dycl_node *node = &g->nodes[n];
        const uint32_t *operands = dycl_node_operands(g, node);
        if (node->op != DYCL_OP_batch_norm) {
            dycl_post_op *op = &post->op[post->count];
            residuals[post->count] = DYCL_NONE;
            switch (node->op) {
            case DYCL_EW_relu: op->kind = DYCL_POST_RELU; break;
            case DYCL_EW_relu6:
                op->kind = DYCL_POST_CLAMP;
                op->beta = 6;
                break;
            case DYCL_EW_hardswish: op->kind = DYCL_POST_HARDSWISH; break;
            default:
                op->kind = DYCL_POST_ADD;
                op->operand.rank = 4;
                op->operand.opaque = 2;
                for (int d = 0; d < 4; d++) op->operand.sizes[d] = g->values[before].sizes[d];
                residuals[post->count] = operands[0] == before ? operands[1] : operands[0];
            }
            post->count++;
        }
        before = node->out;
    }
}

static dycl_status make_primitive(dycl_conv_desc *d, const dycl_tensor *x, const dycl_tensor *out, dycl_prim **prim) {
    d->any_src = d->any_dst = 1;
    dycl_status status = dycl_prim_conv(d, prim);
    if (status != DYCL_BAIL) return status;
    int64_t strides[4];
    d->any_src = d->any_dst = 0;
    dycl_strides_contiguous(4, x->sizes, strides);
    dycl_layout_plain(&d->src, 4, x->sizes, strides);
    dycl_strides_contiguous(4, out->sizes, strides);
    dycl_layout_plain(&d->dst, 4, out->sizes, strides);
    return dycl_prim_conv(d, prim);
}

dycl_status dycl_conv_read_weights(dycl_builder *b, dycl_conv_args *a, const dycl_tensor *w, int64_t channels) {
    dycl_status status;
    dycl_make_read(b, w);
    a->weights = w->ref;
    a->pack = !a->prim || a->has_scale || dycl_prim_weights_bytes(a->prim);
    if (!a->pack) return DYCL_OK;
    if (a->prim) a->as = (dycl_weights){.kind = DYCL_WEIGHTS_PRIM, .prim = a->prim};
    a->as.channels = channels;
    a->as.per_channel = dycl_tensor_numel(w) / channels;
    DYCL_TRY(dycl_make_packing(b, w, &a->as, a->has_scale, &a->packing));
    DYCL_TRY(dycl_make_scratch(b, a->fresh ? a->fresh : dycl_weights_bytes(&a->as), &a->repacked));
    if (a->has_scale && dycl_weights_copies(&a->as))
        DYCL_TRY(dycl_make_scratch(b, (size_t)dycl_tensor_numel(w) * sizeof(float), &a->scaled));
    return DYCL_OK;
fail:
    return status;
}

dycl_status dycl_conv_read_columns(dycl_builder *b, dycl_conv_args *a, const dycl_tensor *w, const dycl_gemm_rows *rows,
                                   int threads) {
    const dycl_gemm_layout *form = &a->as.gemm;
    if (dycl_gemm_suits_fresh(form, rows, threads)) a->fresh = dycl_gemm_fresh_bytes(form, threads);
    return dycl_conv_read_weights(b, a, w, form->n);
}

dycl_status dycl_steps_conv(dycl_builder *b, const dycl_block *block) {
    const dycl_graph *g = &b->program->graph;
    const dycl_node *node = &g->nodes[block->first], *second = NULL;
    const uint32_t *operands = dycl_node_operands(g, node);
    uint32_t result = g->nodes[block->last].out, residuals[DYCL_MAX_POST_OPS], slot;
    dycl_tensor x, w, bias = {0}, out;
    dycl_layout src, dst;
    dycl_status status;
    dycl_conv_desc d;
    int hides = 0; /* a NaN */
    memset(&d, 0, sizeof d);
    dycl_conv_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    if (dycl_value_numel(dycl_make_value(b, node->out)) == 0) return DYCL_OK;
    status = block->count == 1 ? dycl_make_whole_window(b, node) : DYCL_BAIL;
    if (status != DYCL_BAIL) return status;
    dycl_make_tensor(b, operands[0], &x);
    dycl_make_tensor(b, node->out, &out);
    DYCL_TRY(dycl_make_operand_plain(b, operands[1]));
    DYCL_TRY(dycl_make_contiguous(b, operands[1], &w));
    dycl_conv_describe(&d, &x, &w, &out, (dycl_op)node->op, dycl_node_attrs(g, node));
    describe_chain(b, block, &d.post, residuals);
    if (operands[2] != DYCL_NONE) {
        DYCL_TRY(dycl_make_operand_plain(b, operands[2]));
        DYCL_TRY(dycl_make_contiguous(b, operands[2], &bias));
        a->has_bias = 1;
        a->bias = bias.ref;
    }
    if (b->program->next[block->first] != DYCL_NONE) second = &g->nodes[b->program->next[block->first]];
    if (second && second->op == DYCL_OP_batch_norm) {
        DYCL_TRY(dycl_make_batch_norm(b, second, 1, a->has_bias ? &bias : NULL, &a->scale, &a->bias));
        a->has_bias = a->has_scale = 1;
    }
    d.bf16 = (g->options & DYCL_OPTION_BF16) != 0;
    status = d.bf16 ? DYCL_BAIL : dycl_make_conv_product(b, block, &d, a, &w, residuals);
    if (status == DYCL_BAIL && block->count == 1) status = dycl_make_conv_overlap(b, node, &d, a, &w);
    if (status == DYCL_BAIL && block->count == 1) status = dycl_make_conv_phases(b, node, &d, a, &w);
    if (status != DYCL_BAIL) return status;
    for (int i = 0; i < d.post.count; i++) hides |= d.post.op[i].kind != DYCL_POST_ADD;
    d.bias = a->has_bias;
    DYCL_TRY(make_primitive(&d, &x, &out, &a->prim));
    DYCL_TRY(dycl_make_prim(b, a->prim));
    dycl_prim_src_layout(a->prim, &src);
    dycl_prim_dst_layout(a->prim, &dst);
    DYCL_TRY(dycl_make_as(b, operands[0], &src, &a->src));
    if (hides) {
        DYCL_TRY(dycl_guard_look(b, operands[0], a->src, dycl_layout_bytes(&src) / sizeof(float), DYCL_GUARD_ELEMENT));
        DYCL_TRY(dycl_guard_look(b, operands[1], w.ref, (size_t)dycl_tensor_numel(&w), DYCL_GUARD_WEIGHT));
        if (operands[2] != DYCL_NONE)
            DYCL_TRY(dycl_guard_look(b, operands[2], bias.ref, (size_t)dycl_tensor_numel(&bias), DYCL_GUARD_ELEMENT));
    }
    a->post_count = d.post.count;
    for (int i = 0; i < a->post_count; i++) {
        if (residuals[i] == DYCL_NONE) continue;
        DYCL_TRY(dycl_make_as(b, residuals[i], &dst, &a->post[i]));
        if (hides)
            DYCL_TRY(dycl_guard_look(b, residuals[i], a->post[i], dycl_layout_bytes(&dst) / sizeof(float),
                                     DYCL_GUARD_ELEMENT));
        a->has_post[i] = 1;
    }
    for (int i = 0; i < a->post_count; i++)
        if (a->has_post[i]) dycl_make_read_at(b, a->post[i], dycl_layout_bytes(&dst));
    DYCL_TRY(dycl_make_result(b, result, &dst, &slot));
    a->dst.slot = slot;
    dycl_make_read_at(b, a->src, dycl_layout_bytes(&src));
    dycl_make_write_at(b, a->dst, dycl_layout_bytes(&dst));
    if (a->has_bias) dycl_make_read_at(b, a->bias, (size_t)d.oc * sizeof(float));
    if (a->has_scale) dycl_make_read_at(b, a->scale, (size_t)d.oc * sizeof(float));
    DYCL_TRY(dycl_conv_read_weights(b, a, &w, d.oc));
    DYCL_TRY(dycl_make_scratch(b, dycl_prim_scratch(a->prim), &a->scratch));
    DYCL_TRY(dycl_make_step(b, conv_run, a, "convolution", dycl_conv_cost(&d)));
    b->plan->infos[b->plan->step_count - 1].prim = a->prim;
    return dycl_make_result_done(b, result);
fail:
    return status;
}

void dycl_conv_describe(dycl_conv_desc *d, const dycl_tensor *x, const dycl_tensor *w, const dycl_tensor *out,
                        dycl_op op, const int64_t *attrs) {
    d->n = x->sizes[0];
    d->c = x->sizes[1];
    d->h = x->sizes[2];
    d->w = x->sizes[3];
    d->oc = out->sizes[1];
    d->kh = w->sizes[2];
    d->kw = w->sizes[3];
    d->oh = out->sizes[2];
    d->ow = out->sizes[3];
    for (int i = 0; i < 2; i++) {
        d->stride[i] = attrs[i];
        d->pad_before[i] = d->pad_after[i] = attrs[2 + i];
        d->dilation[i] = attrs[4 + i];
    }
    d->groups = attrs[6];
    if (op == DYCL_OP_conv_transpose2d) {
        d->transposed = 1;
        for (int i = 0; i < 2; i++) d->pad_after[i] -= attrs[7 + i];
    }
}

double dycl_conv_cost(const dycl_conv_desc *d) {
    double windows = d->transposed ? (double)(d->h * d->w) : (double)(d->oh * d->ow);
    return 1000 + (double)d->n * (double)d->oc * windows * (double)(d->c / d->groups) * (double)(d->kh * d->kw) / 40;
}

int dycl_conv_suits_winograd(const dycl_builder *b, const dycl_conv_desc *d, const dycl_gemm_kernel *kernel,
                             int64_t least) {
    int64_t squares = d->n * ((d->oh + 1) / 2) * ((d->ow + 1) / 2);
    int square = d->kh == 3 && d->kw == 3 && d->stride[0] == 1 && d->stride[1] == 1 && d->dilation[0] == 1 &&
                 d->dilation[1] == 1 && d->groups == 1;
    return b->plan->mode == DYCL_PLAN_TUNED && dycl_make_may_pack(b) && square && squares >= least && d->c >= 16 &&
           d->oc >= 16 && d->c % kernel->lanes == 0 && d->oc % kernel->lanes == 0;
}

dycl_winograd dycl_conv_squares(const dycl_conv_desc *d) {
    return (dycl_winograd){
        d->n, d->h, d->w, d->c, d->pad_before[0], d->pad_before[1], d->oh, d->ow, d->oc, DYCL_GUARD_ELEMENT};
}

dycl_status dycl_conv_measure(dycl_builder *b, const dycl_conv_desc *d, const char *const *variants, int count,
                              int threads, const char *what, dycl_autotune **out) {
    dycl_autotune *autotune = dycl_autotune_get(
        count, variants, threads, "%lldx%lld%s n%lld c%lld %lldx%lld oc%lld pad%lld,%lld by%lld,%lld dil%lld,%lld",
        (long long)d->kh, (long long)d->kw, what, (long long)d->n, (long long)d->c, (long long)d->h, (long long)d->w,
        (long long)d->oc, (long long)d->pad_before[0], (long long)d->pad_before[1], (long long)d->stride[0],
        (long long)d->stride[1], (long long)d->dilation[0], (long long)d->dilation[1]);
    dycl_status status = dycl_make_autotune(b, autotune);
    if (status == DYCL_OK) *out = autotune;
    return status;
}

/* Zeros that only few windows see are not worth their memory: a stride far longer than the image. */
static int is_worth(const dycl_conv_desc *d, const dycl_pad *pad) {
    double copied = (double)dycl_pad_height(pad) * (double)dycl_pad_width(pad);
    return copied < 4 * ((double)d->h * (double)d->w + (double)(d->oh * d->ow) * (double)(d->kh * d->kw)) + 4096;
}

int dycl_conv_pad(const dycl_conv_desc *d, dycl_pad *pad) {
    int64_t see_h = (d->oh - 1) * d->stride[0] + (d->kh - 1) * d->dilation[0] + 1,
            see_w = (d->ow - 1) * d->stride[1] + (d->kw - 1) * d->dilation[1] + 1;
    *pad = (dycl_pad){.images = d->n,
                      .channels = d->c,
                      .height = d->h,
                      .width = d->w,
                      .above = d->pad_before[0] < see_h ? d->pad_before[0] : see_h,
                      .left = d->pad_before[1] < see_w ? d->pad_before[1] : see_w}; /* few windows see no pixel */
    if (pad->height > see_h - pad->above) pad->height = see_h - pad->above;
    if (pad->width > see_w - pad->left) pad->width = see_w - pad->left;
    if (pad->height < 0) pad->height = 0;
    if (pad->width < 0) pad->width = 0;
    pad->below = see_h - pad->above - pad->height;
    pad->right = see_w - pad->left - pad->width;
    return is_worth(d, pad);
}

dycl_windows dycl_conv_windows(const dycl_conv_desc *d, const dycl_pad *pad) {
    return (dycl_windows){.images = d->n,
                          .channels = d->c,
                          .height = d->h,
                          .width = d->w,
                          .out_height = d->oh,
                          .out_width = d->ow,
                          .window = {d->kh, d->kw},
                          .stride = {d->stride[0], d->stride[1]},
                          .dilation = {d->dilation[0], d->dilation[1]},
                          .pad = *pad};
}

dycl_status dycl_conv_guard_zeros(dycl_builder *b, uint32_t weights, const dycl_tensor *w, const dycl_conv_desc *d,
                                  dycl_conv_zeros *out) {
    out->many = (size_t)dycl_tensor_numel(w);
    out->made = (size_t)(d->n * d->oh * d->ow * d->oc);
    return dycl_guard_make(b, weights, w->ref, out->many, FLT_MAX_EXP, &out->weights);
}

void dycl_conv_look_at_zeros(const dycl_conv_zeros *z, dycl_plan *plan, int stay, const float *dst) {
    if (!z->weights) return;
    if (stay || z->many <= z->made)
        dycl_guard_run(z->weights, plan);
    else if (!dycl_guard_is_small(dst, z->made, FLT_MAX_EXP))
        plan->suspect = 1;
}
