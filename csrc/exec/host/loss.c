/* Losses of elements and their gradients, which torch computes in several passes or without vectors (kern/loss.h). */
#include <string.h>

#include "exec/builder/builder.h"
#include "ir/losses.h"

#define LEAST_PERIOD 64 /* elements: what repeats sooner is spread out first */

typedef struct {
    dycl_ref to, in[DYCL_LOSS_OPERANDS], scratch;
    uint8_t given[DYCL_LOSS_OPERANDS];
    dycl_loss_desc desc;
} loss_args;

static dycl_status loss_run(const dycl_step *step, dycl_plan *plan) {
    const loss_args *a = step->args;
    const void *in[DYCL_LOSS_OPERANDS];
    for (int k = 0; k < DYCL_LOSS_OPERANDS; k++) in[k] = a->given[k] ? dycl_at(plan, a->in[k]) : NULL;
    if (dycl_kern_loss(&a->desc, dycl_at(plan, a->to), in, dycl_at(plan, a->scratch))) return DYCL_OK;
    return dycl_error_bail("an element is not between 0 and 1"); /* torch's kernel says so in its own words */
}

/* One element, wherever one looks. */
static int is_one(const dycl_tensor *t) {
    for (int i = 0; i < t->rank; i++)
        if (t->sizes[i] != 1 && t->strides[i] != 0) return 0;
    return 1;
}

/* As it broadcasts to the sizes of x. */
static dycl_tensor spread(const dycl_tensor *t, const dycl_tensor *x) {
    dycl_tensor all = *x;
    all.ref = t->ref;
    for (int i = 0; i < x->rank; i++) {
        const int own = i - (x->rank - t->rank);
        all.strides[i] = own < 0 || t->sizes[own] == 1 ? 0 : t->strides[own];
    }
    return all;
}

/* The elements of a contiguous operand that repeat along the dimensions in front; 0: it broadcasts otherwise. */
static int64_t period_of(const dycl_tensor *t, const dycl_tensor *x) {
    const int64_t n = dycl_tensor_numel(t);
    int64_t behind = 1;
    for (int i = x->rank; behind < n && i > 0; i--) {
        if (t->rank - (x->rank - i) < 1 || t->sizes[t->rank - 1 - (x->rank - i)] != x->sizes[i - 1]) return 0;
        behind *= x->sizes[i - 1];
    }
    return dycl_tensor_contiguous(t) ? n : 0;
}

static dycl_status operand(dycl_builder *b, uint32_t value, const dycl_tensor *x, dycl_ref *out, int64_t *period) {
    dycl_tensor t, all;
    dycl_status status;
    dycl_make_tensor(b, value, &t);
    if (!is_one(&t)) {
        if (dycl_tensor_numel(&t) == dycl_tensor_numel(x)) DYCL_TRY(dycl_make_contiguous(b, value, &t));
        *period = period_of(&t, x);
        if (*period < dycl_tensor_numel(x) && *period < LEAST_PERIOD) {
            const dycl_tensor from = spread(&t, x);
            all = *x;
            all.ref = (dycl_ref){0, 0, 0};
            dycl_strides_contiguous(all.rank, all.sizes, all.strides);
            *period = dycl_tensor_numel(&all);
            DYCL_TRY(dycl_make_slot(b, (size_t)*period * dycl_dtype_size(all.dtype), &all.ref.slot));
            DYCL_TRY(dycl_make_copy(b, &from, &all));
            t = all;
        }
    }
    *out = t.ref;
    dycl_make_read(b, &t);
    return DYCL_OK;
fail:
    return status;
}

/* All that is not one element lies in channels last: as good as contiguous, element by element. */
static int lie_alike(const dycl_builder *b, const dycl_loss_node *how, const dycl_tensor *to, int64_t n) {
    dycl_tensor t;
    if (how->reduction == DYCL_REDUCE_NONE && !dycl_tensor_channels_last(to)) return 0;
    for (int k = 0; k < DYCL_LOSS_OPERANDS; k++) {
        if (how->operand[k] == DYCL_NONE) continue;
        dycl_make_tensor(b, how->operand[k], &t);
        if (!is_one(&t) && (!dycl_tensor_channels_last(&t) || dycl_tensor_numel(&t) != n)) return 0;
        if (k == DYCL_LOSS_X && is_one(&t)) return 0;
    }
    return 1;
}

dycl_status dycl_make_loss(dycl_builder *b, const dycl_node *node) {
    dycl_tensor x, to;
    dycl_loss_node how;
    dycl_status status;
    if (!dycl_loss_of(&b->program->graph, node, &how)) return DYCL_BAIL;
    loss_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    dycl_make_tensor(b, how.operand[DYCL_LOSS_X], &x);
    dycl_make_tensor(b, node->out, &to);
    const int64_t n = dycl_tensor_numel(&x);
    const int alike = lie_alike(b, &how, &to, n);
    if (!alike) DYCL_TRY(dycl_make_target(b, node->out, &to));
    a->to = to.ref;
    a->desc = (dycl_loss_desc){.kind = how.kind,
                               .dtype = to.dtype,
                               .n = n,
                               .sums = how.reduction != DYCL_REDUCE_NONE,
                               .mean = how.reduction == DYCL_REDUCE_MEAN,
                               .numbers = how.numbers};
    for (int k = 0; k < DYCL_LOSS_OPERANDS; k++) {
        if (how.operand[k] == DYCL_NONE) continue;
        a->given[k] = 1;
        if (!alike) {
            DYCL_TRY(operand(b, how.operand[k], &x, &a->in[k], &a->desc.period[k]));
            continue;
        }
        dycl_tensor t;
        dycl_make_tensor(b, how.operand[k], &t);
        a->in[k] = t.ref;
        a->desc.period[k] = is_one(&t) ? 0 : n;
        dycl_make_read(b, &t);
    }
    dycl_make_write(b, &to);
    DYCL_TRY(dycl_make_scratch(b, dycl_kern_loss_scratch(&a->desc), &a->scratch));
    DYCL_TRY(dycl_make_step(b, loss_run, a, "loss", 50 + 0.5 * (double)n));
    return alike ? DYCL_OK : dycl_make_finish(b, node->out, &to);
fail:
    return status;
}
