#include "exec/builder/blocked.h"
#include "exec/conv/conv.h"
#include "kern/max_pool.h"

#include <string.h>

typedef struct {
    dycl_prim *prim;
    dycl_ref src, dst, scratch;
    dycl_pool_desc desc;
} pool_args;

static dycl_status pool_run(const dycl_step *step, dycl_plan *plan) {
    const pool_args *a = step->args;
    dycl_prim_args x = {
        .src = dycl_at(plan, a->src), .dst = dycl_at(plan, a->dst), .scratch = dycl_at(plan, a->scratch)};
    return dycl_prim_execute(a->prim, &x);
}

dycl_status dycl_pool_describe(const dycl_builder *b, const dycl_node *node, dycl_pool_desc *d) {
    const dycl_graph *g = &b->program->graph;
    const int64_t *attrs = dycl_node_attrs(g, node);
    const dycl_value *x = dycl_make_value(b, dycl_node_operands(g, node)[0]), *out = dycl_make_value(b, node->out);
    dycl_status fits = DYCL_OK;
    memset(d, 0, sizeof *d);
    d->n = x->sizes[0];
    d->c = x->sizes[1];
    d->h = x->sizes[2];
    d->w = x->sizes[3];
    d->oh = out->sizes[2];
    d->ow = out->sizes[3];
    d->dilation[0] = d->dilation[1] = 1;
    if (node->op == DYCL_OP_adaptive_avg_pool2d) return DYCL_OK;
    d->kind = node->op == DYCL_OP_max_pool2d ? DYCL_POOL_MAX : attrs[7] ? DYCL_POOL_AVG_PADDED : DYCL_POOL_AVG;
    int64_t in[2] = {d->h, d->w}, made[2] = {d->oh, d->ow};
    for (int i = 0; i < 2; i++) {
        d->kernel[i] = attrs[i];
        d->stride[i] = attrs[2 + i];
        d->pad_before[i] = attrs[4 + i];
        if (d->kind == DYCL_POOL_MAX) d->dilation[i] = attrs[6 + i];
        int64_t needed =
            (made[i] - 1) * d->stride[i] + (d->kernel[i] - 1) * d->dilation[i] + 1 - in[i] - d->pad_before[i];
        d->pad_after[i] = needed > d->pad_before[i] ? needed : d->pad_before[i];
        /* with ceil mode, torch divides by less than the window at the far border; oneDNN does not */
        if (d->pad_after[i] > d->pad_before[i] && d->kind == DYCL_POOL_AVG_PADDED) fits = DYCL_BAIL;
    }
    return fits;
}

/* Pools `x` as it lies; the result goes where oneDNN wants it. */
static dycl_status pool_primitive(dycl_builder *b, const dycl_node *node, pool_args *a, dycl_ref src,
                                  const dycl_layout *layout, uint32_t *out_slot, dycl_layout *made) {
    dycl_status status;
    a->desc.src = *layout;
    DYCL_TRY(dycl_prim_pool(&a->desc, &a->prim));
    DYCL_TRY(dycl_make_prim(b, a->prim));
    dycl_prim_dst_layout(a->prim, made);
    if (dycl_make_value(b, node->out)->rank == 4)
        DYCL_TRY(dycl_make_result(b, node->out, made, out_slot));
    else
        DYCL_TRY(dycl_make_slot(b, dycl_layout_bytes(made), out_slot));
    a->src = src;
    a->dst.slot = *out_slot;
    dycl_make_read_at(b, src, dycl_layout_bytes(layout));
    dycl_make_write_at(b, a->dst, dycl_layout_bytes(made));
    DYCL_TRY(dycl_make_scratch(b, dycl_prim_scratch(a->prim), &a->scratch));
    DYCL_TRY(
        dycl_make_step(b, pool_run, a, "pooling", 300 + 0.3 * (double)(a->desc.n * a->desc.c * a->desc.h * a->desc.w)));
    b->plan->infos[b->plan->step_count - 1].prim = a->prim;
    return DYCL_OK;
fail:
    return status;
}

/* One window over the whole plane. */
static void whole_plane(dycl_pool_desc *d, const dycl_value *x) {
    memset(d, 0, sizeof *d);
    d->kind = DYCL_POOL_AVG;
    d->n = x->sizes[0];
    d->c = x->sizes[1];
    d->h = d->kernel[0] = x->sizes[2];
    d->w = d->kernel[1] = x->sizes[3];
    d->oh = d->ow = d->stride[0] = d->stride[1] = d->dilation[0] = d->dilation[1] = 1;
}

dycl_status dycl_make_plane_mean(dycl_builder *b, const dycl_node *node) {
    uint32_t operand = dycl_node_operands(&b->program->graph, node)[0], slot;
    const struct dycl_blocked *blocked = dycl_blocked_of(b, operand);
    const dycl_value *x = dycl_make_value(b, operand);
    if (!blocked || blocked->plain_ready || x->rank != 4 || x->dtype != DYCL_F32) return DYCL_BAIL;
    dycl_layout made, plain;
    dycl_status status;
    pool_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    whole_plane(&a->desc, x);
    DYCL_TRY(pool_primitive(b, node, a, (dycl_ref){blocked->slot, 0, 0}, &blocked->layout, &slot, &made));
    if (dycl_make_value(b, node->out)->rank == 4) return dycl_make_result_done(b, node->out);
    /* without the planes' dimensions: the plain form of [n, c, 1, 1] is that of [n, c] */
    int64_t sizes[4] = {x->sizes[0], x->sizes[1], 1, 1}, strides[4];
    dycl_strides_contiguous(4, sizes, strides);
    dycl_layout_plain(&plain, 4, sizes, strides);
    return dycl_make_reorder(b, (dycl_ref){slot, 0, 0}, &made, dycl_make_ref(b, node->out), &plain);
fail:
    return status;
}

/* ---- The largest: our own kernel, as oneDNN's takes the other operand of a NaN */

typedef struct {
    dycl_max_pool pool;
    dycl_ref src, dst;
} max_args;

static dycl_status max_run(const dycl_step *step, dycl_plan *plan) {
    const max_args *a = step->args;
    dycl_kern_max_pool2d(dycl_at(plan, a->dst), dycl_at(plan, a->src), &a->pool);
    return DYCL_OK;
}

dycl_status dycl_image_source(dycl_builder *b, uint32_t operand, int *channels_last, dycl_ref *src) {
    const struct dycl_blocked *blocked = dycl_blocked_of(b, operand);
    dycl_tensor x;
    dycl_layout layout;
    dycl_status status;
    dycl_make_tensor(b, operand, &x);
    if (blocked) memcpy(x.strides, blocked->layout.strides, sizeof blocked->layout.strides);
    *channels_last = blocked ? blocked->layout.opaque || !dycl_tensor_contiguous(&x)
                             : !dycl_tensor_contiguous(&x) && dycl_tensor_channels_last(&x);
    if (blocked) {
        if (*channels_last)
            dycl_channels_last(&x, &layout);
        else
            layout = blocked->layout;
        return dycl_make_as(b, operand, &layout, src);
    }
    DYCL_TRY(dycl_make_operand_plain(b, operand));
    if (!*channels_last) DYCL_TRY(dycl_make_contiguous(b, operand, &x));
    *src = x.ref;
fail:
    return status;
}

void dycl_image_layout(dycl_tensor *image, int channels_last, dycl_layout *layout) {
    if (channels_last) {
        dycl_channels_last(image, layout);
        return;
    }
    dycl_strides_contiguous(4, image->sizes, image->strides);
    dycl_layout_plain(layout, 4, image->sizes, image->strides);
}

static dycl_status make_max(dycl_builder *b, const dycl_node *node, const dycl_pool_desc *d) {
    dycl_tensor out;
    dycl_layout layout;
    dycl_status status;
    max_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    a->pool = (dycl_max_pool){d->n,
                              d->c,
                              d->h,
                              d->w,
                              d->oh,
                              d->ow,
                              {d->kernel[0], d->kernel[1]},
                              {d->stride[0], d->stride[1]},
                              {d->pad_before[0], d->pad_before[1]},
                              {d->dilation[0], d->dilation[1]},
                              0};
    DYCL_TRY(dycl_image_source(b, dycl_node_operands(&b->program->graph, node)[0], &a->pool.channels_last, &a->src));
    dycl_make_tensor(b, node->out, &out);
    dycl_image_layout(&out, a->pool.channels_last, &layout);
    DYCL_TRY(dycl_make_result(b, node->out, &layout, &a->dst.slot));
    dycl_make_read_at(b, a->src, (size_t)(d->n * d->c * d->h * d->w) * sizeof(float));
    dycl_make_write_at(b, a->dst, dycl_layout_bytes(&layout));
    DYCL_TRY(dycl_make_step(b, max_run, a, "max pooling",
                            100 + 0.1 * (double)(d->n * d->c) *
                                      (double)(d->h * d->w + d->oh * d->ow * d->kernel[0] * d->kernel[1])));
    return dycl_make_result_done(b, node->out);
fail:
    return status;
}

/* ---- Its gradient: which element was the largest is seen from the operand again, so no positions are kept */

typedef struct {
    dycl_max_pool pool;
    dycl_ref x, gradient, dst;
} back_args;

static dycl_status back_run(const dycl_step *step, dycl_plan *plan) {
    const back_args *a = step->args;
    dycl_kern_max_pool2d_back(dycl_at(plan, a->dst), dycl_at(plan, a->gradient), dycl_at(plan, a->x), &a->pool);
    return DYCL_OK;
}

dycl_status dycl_steps_unpool(dycl_builder *b, const dycl_block *block) {
    const dycl_graph *g = &b->program->graph;
    const dycl_node *node = &g->nodes[block->first];
    if (node->op != DYCL_OP_max_pool2d_back) return dycl_make_mean_pool_back(b, node);
    const uint32_t *operands = dycl_node_operands(g, node);
    const int64_t *attrs = dycl_node_attrs(g, node);
    dycl_tensor x, gradient, out;
    dycl_layout layout, made;
    dycl_status status;
    back_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    dycl_make_tensor(b, operands[0], &x);
    dycl_make_tensor(b, operands[1], &gradient);
    dycl_make_tensor(b, node->out, &out);
    a->pool = (dycl_max_pool){x.sizes[0],
                              x.sizes[1],
                              x.sizes[2],
                              x.sizes[3],
                              gradient.sizes[2],
                              gradient.sizes[3],
                              {attrs[0], attrs[1]},
                              {attrs[2], attrs[3]},
                              {attrs[4], attrs[5]},
                              {1, 1},
                              0};
    DYCL_TRY(dycl_image_source(b, operands[0], &a->pool.channels_last, &a->x));
    dycl_image_layout(&gradient, a->pool.channels_last, &layout);
    dycl_image_layout(&out, a->pool.channels_last, &made);
    DYCL_TRY(dycl_make_as(b, operands[1], &layout, &a->gradient));
    DYCL_TRY(dycl_make_result(b, node->out, &made, &a->dst.slot));
    dycl_make_read_at(b, a->x, dycl_layout_bytes(&made));
    dycl_make_read_at(b, a->gradient, dycl_layout_bytes(&layout));
    dycl_make_write_at(b, a->dst, dycl_layout_bytes(&made));
    double taps = (double)dycl_tensor_numel(&gradient) * (double)(attrs[0] * attrs[1]);
    DYCL_TRY(dycl_make_step(b, back_run, a, "max pooling back", 100 + 0.1 * (taps + (double)dycl_tensor_numel(&x))));
    return dycl_make_result_done(b, node->out);
fail:
    return status;
}

dycl_status dycl_steps_pool(dycl_builder *b, const dycl_block *block) {
    const dycl_node *node = &b->program->graph.nodes[block->first];
    const dycl_graph *g = &b->program->graph;
    uint32_t slot;
    dycl_status status;
    dycl_layout made;
    pool_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    if (dycl_value_numel(dycl_make_value(b, node->out)) == 0) return DYCL_OK;
    dycl_status fits = dycl_pool_describe(b, node, &a->desc);
    if (node->op == DYCL_OP_max_pool2d) return make_max(b, node, &a->desc);
    const struct dycl_blocked *blocked = dycl_blocked_of(b, dycl_node_operands(g, node)[0]);
    if (node->op == DYCL_OP_adaptive_avg_pool2d) {
        if (a->desc.oh == 1 && a->desc.ow == 1 && dycl_make_plane_mean(b, node) == DYCL_OK) return DYCL_OK;
    } else if (fits == DYCL_OK && blocked && blocked->layout.opaque) { /* as it lies already */
        status = pool_primitive(b, node, a, (dycl_ref){blocked->slot, 0, 0}, &blocked->layout, &slot, &made);
        if (status == DYCL_OK) return dycl_make_result_done(b, node->out);
        if (status != DYCL_BAIL) return status;
    }
    return dycl_make_mean_pool(b, node);
}
