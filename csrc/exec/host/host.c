#include "base/host.h"
#include "exec/builder/builder.h"
#include "kern/order.h"

/* Operators whose results only the host's kernels give in every case. They may use several threads of their own, so
 * they are never beside other steps. */

typedef struct {
    dycl_ref from, to;
    dycl_tensor x;
    dycl_op op;
    int64_t attrs[4];
} host_args;

/* Few elements, and a result that is the same by any algorithm. */
static int run_here(const host_args *a, const void *from, void *to) {
    int64_t all = dycl_tensor_numel(&a->x), length = a->x.rank ? a->x.sizes[a->x.rank - 1] : 0;
    if (a->op == DYCL_OP_histc)
        return a->x.dtype == DYCL_F32 && dycl_order_histc(from, all, a->attrs[0], (float)dycl_attr_f64(a->attrs[1]),
                                                          (float)dycl_attr_f64(a->attrs[2]), to);
    int last = length > 0 && a->attrs[0] == a->x.rank - 1;
    if (a->op == DYCL_OP_argsort)
        return last && dycl_order_rows(a->x.dtype, from, all / length, length, length, (int)a->attrs[1], to);
    return last && a->attrs[3] &&
           dycl_order_rows(a->x.dtype, from, all / length, length, a->attrs[1], (int)a->attrs[2], to);
}

static dycl_status host_run(const dycl_step *step, dycl_plan *plan) {
    const host_args *a = step->args;
    const dycl_host *host = &dycl_host_functions;
    dycl_host_tensor x = {a->x.dtype, a->x.rank, a->x.sizes, NULL, dycl_at(plan, a->from)};
    void *to = dycl_at(plan, a->to);
    if (run_here(a, x.data, to)) return DYCL_OK;
    if (a->op == DYCL_OP_argsort && host->argsort)
        return host->argsort(&x, a->attrs[0], (int)a->attrs[1], (int)a->attrs[2], to);
    if (a->op == DYCL_OP_argtopk && host->argtopk)
        return host->argtopk(&x, a->attrs[0], a->attrs[1], (int)a->attrs[2], (int)a->attrs[3], to);
    if (a->op == DYCL_OP_histc && host->histc)
        return host->histc(&x, a->attrs[0], dycl_attr_f64(a->attrs[1]), dycl_attr_f64(a->attrs[2]), to);
    return dycl_error_bail("the host has no %s", dycl_op_get(a->op)->name);
}

dycl_status dycl_steps_host(dycl_builder *b, const dycl_block *block) {
    const dycl_node *node = &b->program->graph.nodes[block->first];
    const int64_t *attrs = dycl_node_attrs(&b->program->graph, node);
    dycl_tensor to;
    dycl_status status;
    host_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    DYCL_TRY(dycl_make_contiguous(b, dycl_node_operands(&b->program->graph, node)[0], &a->x));
    DYCL_TRY(dycl_make_target(b, node->out, &to));
    a->from = a->x.ref;
    a->to = to.ref;
    a->op = (dycl_op)node->op;
    for (int i = 0; i < node->attr_count; i++) a->attrs[i] = attrs[i];
    dycl_make_read(b, &a->x);
    dycl_make_write(b, &to);
    DYCL_TRY(dycl_make_step(b, host_run, a, "torch", 3000 + 10 * (double)dycl_tensor_numel(&a->x)));
    return dycl_make_finish(b, node->out, &to);
fail:
    return status;
}
