/* Means over windows, and their gradients, as steps. */
#include "exec/builder/blocked.h"
#include "exec/conv/conv.h"
#include "kern/mean_pool.h"

typedef struct {
    dycl_mean_pool pool;
    dycl_ref src, dst; /* the image and the result; going back, the result's gradient and the image's */
} mean_args;

static dycl_status mean_run(const dycl_step *step, dycl_plan *plan) {
    const mean_args *a = step->args;
    dycl_kern_mean_pool2d(dycl_at(plan, a->dst), dycl_at(plan, a->src), &a->pool);
    return DYCL_OK;
}

static dycl_status back_run(const dycl_step *step, dycl_plan *plan) {
    const mean_args *a = step->args;
    dycl_kern_mean_pool2d_back(dycl_at(plan, a->dst), dycl_at(plan, a->src), &a->pool);
    return DYCL_OK;
}

static void describe(dycl_mean_pool *pool, const dycl_tensor *image, const dycl_tensor *result, const int64_t *attrs,
                     int adaptive) {
    *pool = (dycl_mean_pool){.n = image->sizes[0],
                             .c = image->sizes[1],
                             .h = image->sizes[2],
                             .w = image->sizes[3],
                             .oh = result->sizes[2],
                             .ow = result->sizes[3],
                             .adaptive = adaptive};
    for (int i = 0; i < 2 && !adaptive; i++) {
        pool->kernel[i] = attrs[i];
        pool->stride[i] = attrs[2 + i];
        pool->pad[i] = attrs[4 + i];
        pool->padded = attrs[7] != 0;
    }
}

/* What a step of these takes: the elements of both images. */
static double cost(const dycl_mean_pool *p) {
    return 100 + 0.2 * (double)(p->n * p->c) * (double)(p->h * p->w + p->oh * p->ow);
}

/* With the source read, and lying like this. */
static dycl_status make_step(dycl_builder *b, const dycl_node *node, mean_args *a, const dycl_layout *from,
                             dycl_tensor *out, dycl_step_fn run, const char *kernel) {
    dycl_layout to;
    dycl_status status;
    dycl_image_layout(out, a->pool.channels_last, &to);
    DYCL_TRY(dycl_make_result(b, node->out, &to, &a->dst.slot));
    dycl_make_read_at(b, a->src, dycl_layout_bytes(from));
    dycl_make_write_at(b, a->dst, dycl_layout_bytes(&to));
    DYCL_TRY(dycl_make_step(b, run, a, kernel, cost(&a->pool)));
    return dycl_make_result_done(b, node->out);
fail:
    return status;
}

dycl_status dycl_make_mean_pool(dycl_builder *b, const dycl_node *node) {
    const dycl_graph *g = &b->program->graph;
    uint32_t operand = dycl_node_operands(g, node)[0];
    dycl_tensor x, out;
    dycl_layout from;
    dycl_status status;
    mean_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    dycl_make_tensor(b, operand, &x);
    dycl_make_tensor(b, node->out, &out);
    describe(&a->pool, &x, &out, dycl_node_attrs(g, node), node->op == DYCL_OP_adaptive_avg_pool2d);
    DYCL_TRY(dycl_image_source(b, operand, &a->pool.channels_last, &a->src));
    dycl_image_layout(&x, a->pool.channels_last, &from);
    return make_step(b, node, a, &from, &out, mean_run, "mean pooling");
fail:
    return status;
}

/* The image itself is not read: the gradient decides how its gradient is made. */
dycl_status dycl_make_mean_pool_back(dycl_builder *b, const dycl_node *node) {
    const dycl_graph *g = &b->program->graph;
    uint32_t operand = dycl_node_operands(g, node)[1];
    const struct dycl_blocked *blocked = dycl_blocked_of(b, operand);
    dycl_tensor gradient, out;
    dycl_layout from;
    dycl_status status;
    mean_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    dycl_make_tensor(b, operand, &gradient);
    dycl_make_tensor(b, node->out, &out);
    describe(&a->pool, &out, &gradient, dycl_node_attrs(g, node), node->op == DYCL_OP_adaptive_avg_pool2d_back);
    a->pool.channels_last = !dycl_tensor_contiguous(&out);
    if (blocked) {
        DYCL_TRY(dycl_image_source(b, operand, &a->pool.channels_last, &a->src));
        dycl_image_layout(&gradient, a->pool.channels_last, &from);
    } else {
        dycl_image_layout(&gradient, a->pool.channels_last, &from);
        DYCL_TRY(dycl_make_as(b, operand, &from, &a->src));
    }
    return make_step(b, node, a, &from, &out, back_run, "mean pooling back");
fail:
    return status;
}
