#include "exec/builder/builder.h"

/* Resampling of images: positions and weights of both axes are computed with the plan. */

typedef struct {
    dycl_ref from, to, scratch;
    int64_t planes;
    dycl_resize_axis axes[2];
    int threads;
} resize_args;

static dycl_status resize_run(const dycl_step *step, dycl_plan *plan) {
    const resize_args *a = step->args;
    dycl_kern_resize2d(dycl_at(plan, a->to), dycl_at(plan, a->from), a->planes, &a->axes[0], &a->axes[1],
                       dycl_at(plan, a->scratch), a->threads);
    return DYCL_OK;
}

dycl_status dycl_steps_resize(dycl_builder *b, const dycl_block *block) {
    const dycl_node *node = &b->program->graph.nodes[block->first];
    const int64_t *attrs = dycl_node_attrs(&b->program->graph, node);
    dycl_resize_kind kind = (dycl_resize_kind)attrs[0];
    int align = attrs[1] & 1, only_width = attrs[1] >> 1 & 1;
    int64_t most = dycl_kern_resize_taps(kind);
    dycl_tensor from, to;
    dycl_status status;
    resize_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    DYCL_TRY(dycl_make_contiguous(b, dycl_node_operands(&b->program->graph, node)[0], &from));
    DYCL_TRY(dycl_make_target(b, node->out, &to));
    for (int i = 0; i < 2; i++) {
        dycl_resize_axis *axis = &a->axes[i];
        int copied = i == 0 && only_width; /* a neighbour times 0 would make a NaN of an infinity */
        dycl_resize_kind own = copied ? DYCL_RESIZE_NEAREST : kind;
        int64_t taps = dycl_kern_resize_taps(own);
        axis->in = from.sizes[2 + i];
        axis->out = to.sizes[2 + i];
        axis->taps = taps;
        int64_t *index = dycl_plan_alloc(b->plan, (size_t)(axis->out * taps) * sizeof *index);
        float *weight = dycl_plan_alloc(b->plan, (size_t)(axis->out * taps) * sizeof *weight);
        if (!index || !weight) return DYCL_ERROR;
        dycl_kern_resize_axis(own, align, axis->in, axis->out, copied ? 0 : dycl_attr_f64(attrs[4 + i]), index, weight);
        axis->index = index;
        axis->weight = weight;
    }
    a->from = from.ref;
    a->to = to.ref;
    a->planes = from.sizes[0] * from.sizes[1];
    a->threads = b->plan->threads;
    dycl_make_read(b, &from);
    dycl_make_write(b, &to);
    DYCL_TRY(dycl_make_scratch(b, (size_t)(a->threads * most * to.sizes[3]) * sizeof(float), &a->scratch));
    DYCL_TRY(dycl_make_step(b, resize_run, a, "resize", 100 + 0.5 * (double)(most * most * dycl_tensor_numel(&to))));
    return dycl_make_finish(b, node->out, &to);
fail:
    return status;
}
