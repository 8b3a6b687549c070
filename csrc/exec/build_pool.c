#include "exec/builder.h"
#include "exec/conv.h"

#include <math.h>
#include <string.h>

typedef struct {
    dycl_prim *prim;
    dycl_ref src, dst, scratch;
    dycl_pool_desc desc; /* of the plain loops */
    int64_t oh, ow;
} pool_args;

static dycl_status pool_run(const dycl_step *step, dycl_plan *plan) {
    const pool_args *a = step->args;
    dycl_prim_args x = {.src = dycl_at(plan, a->src), .dst = dycl_at(plan, a->dst), .scratch = dycl_at(plan, a->scratch)};
    return dycl_prim_execute(a->prim, &x);
}

static dycl_status adaptive_run(const dycl_step *step, dycl_plan *plan) {
    const pool_args *a = step->args;
    const dycl_pool_desc *d = &a->desc;
    dycl_kern_adaptive_avg_pool2d(dycl_at(plan, a->dst), dycl_at(plan, a->src), d->n * d->c, d->h, d->w, a->oh, a->ow);
    return DYCL_OK;
}

/* One window of NCHW data by torch's definition: windows end at the padded border, and padding counts only where asked for. */
static float window(const dycl_pool_desc *d, const float *plane, int64_t y, int64_t x) {
    int64_t top = y * d->stride[0] - d->pad_before[0], left = x * d->stride[1] - d->pad_before[1];
    int64_t bottom = top + d->kernel[0], right = left + d->kernel[1];
    int64_t limit_h = d->h + d->pad_before[0], limit_w = d->w + d->pad_before[1];
    int64_t area = ((bottom < limit_h ? bottom : limit_h) - top) * ((right < limit_w ? right : limit_w) - left), count = 0;
    float sum = 0, best = -INFINITY;
    for (int64_t i = 0; i < d->kernel[0]; i++)
        for (int64_t j = 0; j < d->kernel[1]; j++) {
            int64_t h = top + i * d->dilation[0], w = left + j * d->dilation[1];
            if (h < 0 || h >= d->h || w < 0 || w >= d->w) continue;
            float value = plane[h * d->w + w];
            sum += value;
            if (value > best || value != value) best = value;
            count++;
        }
    if (d->kind == DYCL_POOL_MAX) return best;
    return sum / (float)(d->kind == DYCL_POOL_AVG_PADDED ? area : count);
}

static dycl_status plain_run(const dycl_step *step, dycl_plan *plan) {
    const pool_args *a = step->args;
    const dycl_pool_desc *d = &a->desc;
    const float *src = dycl_at(plan, a->src);
    float *dst = dycl_at(plan, a->dst);
#pragma omp parallel for schedule(static) if (d->n * d->c * d->oh * d->ow > 20000)
    for (int64_t p = 0; p < d->n * d->c; p++)
        for (int64_t y = 0; y < d->oh; y++)
            for (int64_t x = 0; x < d->ow; x++) dst[(p * d->oh + y) * d->ow + x] = window(d, src + p * d->h * d->w, y, x);
    return DYCL_OK;
}

static dycl_status build_plain(dycl_maker *b, const dycl_node *node, pool_args *a, dycl_step_fn run, const char *kernel) {
    dycl_tensor x, out;
    dycl_status status;
    DYCL_TRY(dycl_make_contiguous(b, dycl_node_operands(&b->program->graph, node)[0], &x));
    DYCL_TRY(dycl_make_target(b, node->out, &out));
    a->src = x.ref;
    a->dst = out.ref;
    dycl_make_read(b, x.ref.slot);
    dycl_make_write(b, out.ref.slot);
    DYCL_TRY(dycl_make_step(b, run, a, kernel, 100 + (double)dycl_tensor_numel(&x)));
    return dycl_make_finish(b, node->out, &out);
fail:
    return status;
}

dycl_status dycl_pool_describe(const dycl_maker *b, const dycl_node *node, dycl_pool_desc *d) {
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
        int64_t needed = (made[i] - 1) * d->stride[i] + (d->kernel[i] - 1) * d->dilation[i] + 1 - in[i] - d->pad_before[i];
        d->pad_after[i] = needed > d->pad_before[i] ? needed : d->pad_before[i];
        /* with ceil mode, torch divides by less than the window at the far border; oneDNN does not */
        if (d->pad_after[i] > d->pad_before[i] && d->kind == DYCL_POOL_AVG_PADDED) fits = DYCL_BAIL;
    }
    return fits;
}

dycl_status dycl_make_pool(dycl_maker *b, const dycl_node *node) {
    const dycl_graph *g = &b->program->graph;
    uint32_t operand = dycl_node_operands(g, node)[0];
    dycl_status status;
    dycl_tensor x, out, made;
    pool_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    if (dycl_value_numel(dycl_make_value(b, node->out)) == 0) return DYCL_OK;
    status = dycl_pool_describe(b, node, &a->desc);
    a->oh = a->desc.oh;
    a->ow = a->desc.ow;
    if (node->op == DYCL_OP_adaptive_avg_pool2d) return build_plain(b, node, a, adaptive_run, "adaptive pooling");
    dycl_make_tensor(b, operand, &x);
    if (status == DYCL_OK) {
        if (!dycl_tensor_contiguous(&x) && !dycl_tensor_channels_last(&x)) DYCL_TRY(dycl_make_contiguous(b, operand, &x));
        dycl_layout_plain(&a->desc.src, 4, x.sizes, x.strides);
        status = dycl_prim_pool(&a->desc, &a->prim);
    }
    if (status == DYCL_BAIL) return build_plain(b, node, a, plain_run, "pooling loops");
    if (status != DYCL_OK) return status;
    DYCL_TRY(dycl_make_prim(b, a->prim));
    dycl_layout layout;
    dycl_prim_dst_layout(a->prim, &layout);
    if (layout.opaque) return build_plain(b, node, a, plain_run, "pooling loops");
    dycl_make_tensor(b, node->out, &out);
    made = out;
    memcpy(made.strides, layout.strides, 4 * sizeof(int64_t));
    for (int i = 0; i < 4; i++)
        if (made.sizes[i] > 1 && made.strides[i] != out.strides[i]) made.ref.slot = out.ref.slot + 1;
    if (made.ref.slot != out.ref.slot) DYCL_TRY(dycl_make_slot(b, dycl_layout_bytes(&layout), &made.ref.slot));
    a->src = x.ref;
    a->dst = made.ref;
    dycl_make_read(b, x.ref.slot);
    dycl_make_write(b, made.ref.slot);
    DYCL_TRY(dycl_make_scratch(b, dycl_prim_scratch(a->prim), &a->scratch));
    DYCL_TRY(dycl_make_step(b, pool_run, a, "pooling", 300 + 0.5 * (double)dycl_tensor_numel(&x)));
    b->plan->infos[b->plan->step_count - 1].prim = a->prim;
    if (made.ref.slot == out.ref.slot) return DYCL_OK;
    return dycl_make_copy(b, &made, &out);
fail:
    return status;
}
