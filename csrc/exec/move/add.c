/* Elements added where indices say: scatter_add, index_add, index_put that accumulates, the gradient of an embedding.
 */
#include <string.h>

#include "exec/builder/builder.h"
#include "ir/added.h"

typedef struct {
    dycl_ref to, from, fill, index[DYCL_MAX_RANK], scratch;
    int fills; /* 0: not, 1: with zeros, 2: with `fill` */
    dycl_add_desc desc;
} add_args;

static dycl_status add_run(const dycl_step *step, dycl_plan *plan) {
    static const dycl_scalar zero = {0};
    const add_args *a = step->args;
    const int64_t *index[DYCL_MAX_RANK];
    const void *fill = a->fills == 2 ? dycl_at(plan, a->fill) : a->fills ? &zero : NULL;
    for (int k = 0; k < a->desc.count; k++) index[k] = dycl_at(plan, a->index[k]);
    const int64_t *bad =
        dycl_kern_add(&a->desc, dycl_at(plan, a->to), fill, dycl_at(plan, a->from), index, dycl_at(plan, a->scratch));
    if (!bad) return DYCL_OK;
    dycl_error_set("index %lld is out of range", (long long)*bad);
    return DYCL_BAIL;
}

/* Two neighbours that everything walks evenly. */
static int is_even(const dycl_add_desc *d, int outer, int inner) {
    const int64_t n = d->sizes[inner];
    int even = d->to_strides[outer] == d->to_strides[inner] * n && d->from_strides[outer] == d->from_strides[inner] * n;
    for (int k = 0; k < d->count; k++) even &= d->index[k].strides[outer] == d->index[k].strides[inner] * n;
    return even;
}

static void move_to(dycl_add_desc *d, int to, int from) {
    d->sizes[to] = d->sizes[from];
    d->extents[to] = d->extents[from];
    d->to_strides[to] = d->to_strides[from];
    d->from_strides[to] = d->from_strides[from];
    for (int k = 0; k < d->count; k++) d->index[k].strides[to] = d->index[k].strides[from];
}

/* Dimensions of one element go, neighbours that are walked evenly become one. */
static void merge(dycl_add_desc *d) {
    int last = -1;
    for (int i = 0; i < d->rank; i++) {
        if (d->sizes[i] == 1) continue;
        const int even = last >= 0 && is_even(d, last, i);
        const int64_t sizes = even ? d->sizes[last] : 1, extents = even ? d->extents[last] : 1;
        if (!even) last++;
        move_to(d, last, i);
        d->sizes[last] *= sizes;
        d->extents[last] *= extents;
    }
    if (last < 0) {
        d->sizes[0] = d->extents[0] = 1;
        d->to_strides[0] = d->from_strides[0] = 0;
        for (int k = 0; k < d->count; k++) d->index[k].strides[0] = 0;
    }
    d->rank = last < 0 ? 1 : last + 1;
}

static int64_t stride_at(const dycl_tensor *t, int dim) { return dim < 0 ? 0 : t->strides[dim]; }

static void describe(const dycl_added *how, const dycl_tensor *to, const dycl_tensor *from, const dycl_tensor *index,
                     dycl_add_desc *d) {
    d->rank = how->rank;
    d->count = how->count;
    d->dtype = to->dtype;
    d->wraps = how->wraps;
    d->skip = how->skip;
    d->numel = dycl_tensor_numel(to);
    for (int k = 0; k < how->count; k++) {
        d->index[k].limit = to->sizes[how->index[k].dim];
        d->index[k].stride = to->strides[how->index[k].dim];
    }
    for (int i = 0; i < how->rank; i++) {
        d->sizes[i] = how->sizes[i];
        d->extents[i] = how->to[i] < 0 ? how->sizes[i] : to->sizes[how->to[i]];
        d->to_strides[i] = stride_at(to, how->to[i]);
        d->from_strides[i] = stride_at(from, how->from[i]);
        for (int k = 0; k < how->count; k++) d->index[k].strides[i] = stride_at(&index[k], how->index[k].at[i]);
    }
    merge(d);
}

/* What is added to: a number, or a tensor that is copied first. */
static dycl_status begin(dycl_builder *b, uint32_t base, const dycl_tensor *to, add_args *a) {
    dycl_tensor x;
    if (dycl_make_value(b, base)->kind == DYCL_VALUE_SCALAR) {
        a->fills = 2;
        a->fill = dycl_make_ref(b, base);
        return DYCL_OK;
    }
    dycl_make_tensor(b, base, &x);
    for (int i = 0; i < to->rank; i++)
        if (to->sizes[i] != 1 && x.strides[i] != to->strides[i]) return dycl_make_copy(b, &x, to);
    return dycl_make_begin(b, &x, to);
}

dycl_status dycl_make_added(dycl_builder *b, const dycl_node *node) {
    const uint32_t *operands = dycl_node_operands(&b->program->graph, node);
    dycl_tensor to, from, index[DYCL_MAX_RANK];
    dycl_added how;
    dycl_status status;
    if (!dycl_added_of(&b->program->graph, node, &how)) return DYCL_BAIL;
    add_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    dycl_make_tensor(b, node->out, &to);
    dycl_make_tensor(b, operands[how.source], &from);
    a->to = to.ref;
    a->from = from.ref;
    a->fills = 1;
    if (how.base >= 0) {
        a->fills = 0;
        DYCL_TRY(begin(b, operands[how.base], &to, a));
    }
    for (int k = 0; k < how.count; k++) {
        dycl_make_tensor(b, operands[how.index[k].operand], &index[k]);
        a->index[k] = index[k].ref;
        dycl_make_read(b, &index[k]);
    }
    describe(&how, &to, &from, index, &a->desc);
    if (a->fills == 2) dycl_make_read_at(b, a->fill, dycl_dtype_size(to.dtype));
    dycl_make_read(b, &from);
    dycl_make_write(b, &to);
    DYCL_TRY(dycl_make_scratch(b, dycl_kern_add_scratch(&a->desc), &a->scratch));
    return dycl_make_step(b, add_run, a, "add at",
                          20 + 2.0 * (double)dycl_tensor_numel(&from) + 0.2 * (double)dycl_tensor_numel(&to));
fail:
    return status;
}
