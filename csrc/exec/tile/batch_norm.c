#include "exec/tile/batch_norm.h"

#include "exec/builder/blocked.h"
#include "exec/builder/guard.h"

/* y = x * scale + shift per channel, from a mean and a variance, or in training from what batch_stats made. Both
 * vectors are computed again only when one of the four inputs may have changed. */

typedef struct {
    dycl_ref mean, variance, weight, bias, added, scale, shift;
    int has_weight, has_bias, has_added;
    uint32_t feeds[5]; /* DYCL_NONE: absent, or no feed */
    /* folded: into a convolution's weights; large: too much for it, see builder/guard.h */
    int all_feeds, ready, folded, large, inverted; /* inverted: `variance` is 1 / deviation */
    uint64_t tokens[5], versions[5], generation;
    const void *data[5];
    int64_t mean_stride, variance_stride, weight_stride, bias_stride, channels;
    dycl_dtype dtype;
    double eps;
} batch_norm_args;

#define BATCH_NORM_BODY(type, root)                                                                                    \
    {                                                                                                                  \
        const type *mean = dycl_at(plan, a->mean), *variance = dycl_at(plan, a->variance);                             \
        const type *weight = a->has_weight ? dycl_at(plan, a->weight) : NULL,                                          \
                   *bias = a->has_bias ? dycl_at(plan, a->bias) : NULL,                                                \
                   *added = a->has_added ? dycl_at(plan, a->added) : NULL;                                             \
        type *scale = dycl_at(plan, a->scale), *shift = dycl_at(plan, a->shift);                                       \
        const type most = (type)(INT64_C(1) << DYCL_GUARD_SCALE);                                                      \
        for (int64_t i = 0; i < a->channels; i++) {                                                                    \
            type v = variance[i * a->variance_stride], s = a->inverted ? v : 1 / root(v + (type)a->eps);               \
            if (weight) s *= weight[i * a->weight_stride];                                                             \
            scale[i] = s;                                                                                              \
            shift[i] =                                                                                                 \
                (bias ? bias[i * a->bias_stride] : 0) + ((added ? added[i] : 0) - mean[i * a->mean_stride]) * s;       \
            large |= !(s > -most && s < most && shift[i] > -most && shift[i] < most);                                  \
        }                                                                                                              \
    }

/* Are all inputs constants with the contents of the last time? Remembers them. */
static int unchanged(batch_norm_args *a, const dycl_plan *plan) {
    if (!a->all_feeds || !plan->feeds) return 0;
    uint64_t generation = dycl_pack_generation();
    int same = a->ready && a->generation == generation, constant = 1;
    for (int i = 0; i < 5; i++) {
        if (a->feeds[i] == DYCL_NONE) continue;
        const dycl_feed *feed = &plan->feeds[a->feeds[i]];
        constant &= feed->token != 0;
        same &= feed->token == a->tokens[i] && feed->version == a->versions[i] && feed->data == a->data[i];
        a->tokens[i] = feed->token;
        a->versions[i] = feed->version;
        a->data[i] = feed->data;
    }
    a->generation = generation;
    a->ready = constant;
    return same && constant;
}

static dycl_status batch_norm_run(const dycl_step *step, dycl_plan *plan) {
    batch_norm_args *a = step->args;
    int large = 0;
    if (unchanged(a, plan)) {
        plan->suspect |= a->folded & a->large;
        return DYCL_OK;
    }
    if (a->dtype == DYCL_F32)
        BATCH_NORM_BODY(float, __builtin_sqrtf)
    else
        BATCH_NORM_BODY(double, __builtin_sqrt)
    a->large = large;
    plan->suspect |= a->folded & large;
    return DYCL_OK;
}

dycl_status dycl_make_batch_norm(dycl_builder *b, const dycl_node *node, int folded, const dycl_tensor *added,
                                 dycl_ref *out_scale, dycl_ref *out_shift) {
    const dycl_graph *g = &b->program->graph;
    const uint32_t *operands = dycl_node_operands(g, node);
    batch_norm_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    a->folded = folded;
    a->inverted = node->op == DYCL_OP_batch_norm_train;
    b->plan->guarded |= folded;
    a->dtype = (dycl_dtype)g->values[node->out].dtype;
    a->channels = g->values[operands[1]].sizes[0];
    a->eps = dycl_attr_f64(dycl_node_attrs(g, node)[0]);
    dycl_ref *refs[4] = {&a->mean, &a->variance, &a->weight, &a->bias};
    int64_t *strides[4] = {&a->mean_stride, &a->variance_stride, &a->weight_stride, &a->bias_stride};
    a->all_feeds = 1;
    for (int i = 0; i < 5; i++) a->feeds[i] = DYCL_NONE;
    if (added) {
        a->added = added->ref;
        a->has_added = 1;
        dycl_make_read(b, added);
        if (added->ref.slot < g->value_count && g->values[added->ref.slot].kind == DYCL_VALUE_FEED)
            a->feeds[4] = g->values[added->ref.slot].source;
        else
            a->all_feeds = 0;
    }
    for (int i = 0; i < 4; i++) {
        uint32_t v = operands[1 + i];
        if (v == DYCL_NONE) continue;
        const dycl_value *root = &g->values[g->values[v].root];
        if (root->kind == DYCL_VALUE_FEED)
            a->feeds[i] = root->source;
        else
            a->all_feeds = 0;
        dycl_status plain = dycl_make_operand_plain(b, v); /* a part of what a convolution made */
        if (plain != DYCL_OK) return plain;
        *refs[i] = dycl_make_ref(b, v);
        *strides[i] = g->values[v].strides[0];
        dycl_tensor vector;
        dycl_make_tensor(b, v, &vector);
        dycl_make_read(b, &vector);
    }
    a->has_weight = operands[3] != DYCL_NONE;
    a->has_bias = operands[4] != DYCL_NONE;
    size_t bytes = (size_t)a->channels * dycl_dtype_size(a->dtype);
    dycl_status status = dycl_make_kept(b, bytes, &a->scale.slot);
    if (status == DYCL_OK) status = dycl_make_kept(b, bytes, &a->shift.slot);
    if (status != DYCL_OK) return status;
    dycl_make_write_at(b, a->scale, bytes);
    dycl_make_write_at(b, a->shift, bytes);
    *out_scale = a->scale;
    *out_shift = a->shift;
    return dycl_make_step(b, batch_norm_run, a, "scale and shift", 20 + 2 * (double)a->channels);
}
