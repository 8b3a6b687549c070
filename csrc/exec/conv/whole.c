#include "exec/builder/blocked.h"
#include "exec/conv/conv.h"
#include "exec/matmul/matmul.h"

/* Convolutions whose window is the whole image, or whose image is one pixel: the first layer of a generator, the last
 * one of a discriminator, the gates of squeeze and excitation. Each is one product of matrices that lie there already;
 * as windows, most of what is multiplied would be the zeros around the image. */

static dycl_status contiguous(dycl_builder *b, uint32_t value, dycl_tensor *out) {
    dycl_status status = dycl_make_operand_plain(b, value);
    return status == DYCL_OK ? dycl_make_contiguous(b, value, out) : status;
}

typedef struct {
    dycl_tensor left, right, bias;
} sides;

static int64_t rest(const dycl_tensor *t) { return dycl_tensor_numel(t) / t->sizes[0]; }

static void describe(const sides *s, dycl_op op, dycl_matmul_args *a) {
    const dycl_tensor *left = &s->left, *right = &s->right;
    *a = (dycl_matmul_args){.dtype = DYCL_F32, .batches = 1, .a = left->ref, .b = right->ref};
    switch (op) {
    case DYCL_OP_conv2d: /* x[n, c h w] weight[o, c h w]' */
        a->m = left->sizes[0];
        a->k = rest(left);
        a->n = right->sizes[0];
        a->a_row = a->b_column = a->k;
        a->a_column = a->b_row = 1;
        break;
    case DYCL_OP_conv_transpose2d: /* x[n, c] weight[c, o h w] */
        a->m = left->sizes[0];
        a->k = right->sizes[0];
        a->n = rest(right);
        a->a_row = a->k;
        a->b_row = a->n;
        a->a_column = a->b_column = 1;
        break;
    default: /* gradient[n, o]' x[n, c h w] */
        a->m = rest(left);
        a->k = left->sizes[0];
        a->n = rest(right);
        a->a_row = a->b_column = 1;
        a->a_column = a->m;
        a->b_row = a->n;
    }
    a->c_row = a->n;
}

dycl_status dycl_make_whole_window(dycl_builder *b, const dycl_node *node) {
    const dycl_graph *g = &b->program->graph;
    const uint32_t *operands = dycl_node_operands(g, node);
    int is_gradient = node->op == DYCL_OP_conv2d_back;
    dycl_status status;
    dycl_tensor target;
    sides s;
    if (g->options & DYCL_OPTION_BF16 || !dycl_conv_is_whole(g, node)) return DYCL_BAIL;
    dycl_matmul_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    DYCL_TRY(contiguous(b, operands[is_gradient], &s.left));
    DYCL_TRY(contiguous(b, operands[!is_gradient], &s.right));
    describe(&s, (dycl_op)node->op, a);
    if (!is_gradient && operands[2] != DYCL_NONE) {
        DYCL_TRY(contiguous(b, operands[2], &s.bias));
        a->bias = s.bias.ref;
        a->has_bias = 1;
    }
    DYCL_TRY(dycl_make_target(b, node->out, &target));
    a->c = target.ref;
    DYCL_TRY(dycl_matmul_turn_column(b, a));
    DYCL_TRY(dycl_matmul_choose(b, a));
    return dycl_make_finish(b, node->out, &target);
fail:
    return status;
}
