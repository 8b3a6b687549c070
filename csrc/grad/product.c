/* Products of matrices. */
#include "grad/hosted.h"

/* All rows of [..., k] as one matrix. */
static uint32_t as_rows(dycl_chain *c, uint32_t a) {
    if (c->status != DYCL_OK) return 0;
    const dycl_value *v = dycl_chain_meta(c, a);
    int64_t last = v->sizes[v->rank - 1], sizes[2] = {last ? dycl_value_numel(v) / last : 0, last};
    return v->rank == 2 ? a : dycl_chain_reshape(c, a, 2, sizes);
}

static int is_row(const dycl_value *v, int64_t size) { return v->rank == 1 && v->sizes[0] == size; }

/* torch's gradient of a matrix that lies in columns lies in columns, any other in rows (mm_mat1_backward and
 * mm_mat2_backward in FunctionsManual.cpp). */
static int in_columns(const dycl_value *v) {
    return v->rank == 2 && v->strides[0] == 1 && v->strides[1] == v->sizes[0];
}

static int in_rows(const dycl_value *v) { return v->strides[1] == 1 && v->strides[0] == v->sizes[1]; }

/* ---- What torch multiplies and saves: a product of stacked matrices is one of two matrices, or of two stacks */

/* Of all but the last `kept` dimensions it makes one, and so a copy where no view has them as one. */
static int is_copied(const dycl_value *v, int kept) {
    int64_t sizes[3] = {1}, strides[3];
    const int many = v->rank - kept;
    for (int i = 0; i < many; i++) sizes[0] *= v->sizes[i];
    for (int i = 0; i < kept; i++) sizes[1 + i] = v->sizes[many + i];
    return !dycl_view_strides(v, kept + 1, sizes, strides);
}

/* All rows of the operand [..., k]. */
static uint32_t take_rows(dycl_chain *c, int nth) {
    return as_rows(c, dycl_chain_take_as(c, nth, is_copied(dycl_chain_operand(c, nth), 1)));
}

/* The operand [..., k, n], whose transposes are rows of one matrix (should_fold in ATen/native/LinearAlgebra.cpp). */
static uint32_t take_turned(dycl_chain *c, int nth) {
    dycl_value v = *dycl_chain_operand(c, nth), turned = v;
    for (int i = 1; i <= 2; i++) {
        turned.sizes[v.rank - i] = v.sizes[v.rank - 3 + i];
        turned.strides[v.rank - i] = v.strides[v.rank - 3 + i];
    }
    return dycl_chain_take_as(c, nth, is_copied(&turned, 1));
}

/* The operand [..., m, k], expanded to the result's batch and stacked. */
static uint32_t take_stacked(dycl_chain *c, int nth) {
    const dycl_value *v = dycl_chain_operand(c, nth);
    dycl_value wide = c->b->job->graph->values[c->node->out];
    const int ahead = wide.rank - v->rank;
    for (int i = 0; i < wide.rank; i++) {
        if (i >= wide.rank - 2) wide.sizes[i] = v->sizes[i - ahead];
        wide.strides[i] = i < ahead || v->sizes[i - ahead] != wide.sizes[i] ? 0 : v->strides[i - ahead];
    }
    return dycl_chain_take_as(c, nth, is_copied(&wide, 2));
}

/* Rows of no elements: only the bias counts. */
static void linear_of_nothing(dycl_chain *c, const dycl_value *x, const dycl_value *w) {
    dycl_value turned = *w, rows = *x;
    turned.sizes[0] = w->sizes[1];
    turned.sizes[1] = w->sizes[0];
    dycl_infer_contiguous(&turned);
    dycl_infer_contiguous(&rows);
    if (dycl_chain_wants(c, 0)) dycl_chain_give(c, 0, dycl_chain_zeros(c, &rows));
    if (dycl_chain_wants(c, 1)) dycl_chain_give(c, 1, dycl_chain_transpose(c, dycl_chain_zeros(c, &turned)));
    if (dycl_chain_wants(c, 2)) dycl_chain_give(c, 2, as_rows(c, c->gradient));
}

/* x[..., k], weight[n, k], bias[n]*: to torch a product with the weight's transpose */
void dycl_grad_linear(dycl_chain *c) {
    dycl_value x = *dycl_chain_operand(c, 0), w = *dycl_chain_operand(c, 1);
    if (w.rank == 2 && w.sizes[1] == 0 && w.sizes[0]) {
        linear_of_nothing(c, &x, &w);
        return;
    }
    uint32_t g = as_rows(c, c->gradient);
    if (dycl_value_numel(&x) == 0 || w.rank != 2) dycl_chain_fail(c);
    if (dycl_chain_wants(c, 0)) {
        uint32_t rows = dycl_chain_laid_product(c, g, dycl_chain_take(c, 1), in_columns(&x));
        dycl_chain_give(c, 0, x.rank == 2 ? rows : dycl_chain_reshape(c, rows, x.rank, x.sizes));
    }
    int row = dycl_chain_wants(c, 2) && is_row(dycl_chain_operand(c, 2), w.sizes[0]);
    if (dycl_chain_wants(c, 1)) dycl_chain_give_product(c, 1, row ? 2 : -1, g, take_rows(c, 0), !in_rows(&w));
    if (dycl_chain_wants(c, 2) && !(row && dycl_chain_wants(c, 1))) dycl_chain_give(c, 2, g);
}

/* Recorded for a vector beside a matrix: torch's product of the two is another function, with another gradient. */
static int is_vector(const dycl_chain *c, int nth) {
    const dycl_graph *graph = c->b->job->graph;
    const dycl_value *v = dycl_chain_operand(c, nth);
    if (v->kind != DYCL_VALUE_NODE || v->root == c->operands[nth]) return 0;
    return graph->values[dycl_node_operands(graph, &graph->nodes[v->source])[0]].rank == 1;
}

/* a[..., m, k] b[..., k, n]: batch dimensions that were broadcast are summed */
void dycl_grad_matmul(dycl_chain *c) {
    dycl_value a = *dycl_chain_operand(c, 0), b = *dycl_chain_operand(c, 1);
    /* one that learns meets all matrices, transposed, as one (should_fold in ATen/native/LinearAlgebra.cpp) */
    int folded = a.rank == 2 && b.rank > 2 && dycl_chain_wants(c, 0);
    if (dycl_chain_wants(c, 0)) {
        uint32_t other = dycl_chain_transpose(c, folded ? take_turned(c, 1) : take_stacked(c, 1));
        uint32_t g = dycl_chain_laid_product(c, c->gradient, other, b.rank == 2 && in_columns(&a) && !is_vector(c, 1));
        if (folded && !in_rows(&a)) {
            dycl_value columns = a;
            columns.strides[0] = 1;
            columns.strides[1] = a.sizes[0];
            g = dycl_chain_laid(c, dycl_chain_sum_to(c, g, &a), &columns);
        }
        dycl_chain_give(c, 0, g);
    }
    if (!dycl_chain_wants(c, 1)) return;
    if (a.rank >= 2 && b.rank == 2) {
        dycl_chain_give_product(c, 1, -1, take_rows(c, 0), as_rows(c, c->gradient), in_columns(&b));
        return;
    }
    uint32_t left = dycl_chain_transpose(c, take_stacked(c, 0));
    dycl_chain_give(c, 1, dycl_chain_laid_product(c, left, c->gradient, folded));
}

/* torch pads rows to 16 bytes. */
int dycl_grad_suits_grouped(const dycl_value *x) { return x->sizes[1] % 4 == 0 && in_rows(x); }

/* Groups of rows x[t, k], each with weights[g, k, n] of its own. The weights' gradients are products whose sums differ
 * in length, which torch's kernel takes; they lie as the weights do. */
void dycl_grad_grouped_matmul(dycl_chain *c) {
    const int64_t no_dtype[2] = {0, 0};
    const dycl_value x = *dycl_chain_operand(c, 0), w = *dycl_chain_operand(c, 1);
    uint32_t ends = dycl_chain_take(c, 2);
    if (!dycl_grad_suits_grouped(&x)) dycl_chain_fail(c);
    if (dycl_chain_wants(c, 0)) {
        uint32_t operands[3] = {c->gradient, dycl_chain_transpose(c, dycl_chain_take(c, 1)), ends};
        dycl_chain_give(c, 0, dycl_chain_node(c, DYCL_OP_grouped_matmul, 3, operands, 0, NULL));
    }
    if (!dycl_chain_wants(c, 1)) return;
    int columns = w.strides[1] == 1 && w.strides[2] == w.sizes[1];
    dycl_value form = w;
    if (columns) {
        form.sizes[1] = w.sizes[2];
        form.sizes[2] = w.sizes[1];
    }
    dycl_infer_contiguous(&form);
    uint32_t rows = dycl_chain_take(c, 0), left = dycl_chain_transpose(c, columns ? c->gradient : rows);
    uint32_t operands[4] = {left, columns ? rows : c->gradient, ends, DYCL_NONE};
    uint32_t g = dycl_chain_hosted_laid(c, DYCL_OP_aten__grouped_mm, 0, &form, 4, operands, 2, no_dtype);
    dycl_chain_give(c, 1, columns ? dycl_chain_transpose(c, g) : g);
}

/* self, other; attribute: the dimension. A cross product with the other one, each in its place. */
void dycl_grad_cross(dycl_chain *c) {
    dycl_words a = dycl_words_same(c);
    if (c->status != DYCL_OK) return;
    if (c->node->op == DYCL_OP_aten_cross) a = (dycl_words){{a.words[1]}, 1}; /* whether it is given stands before it */
    dycl_value form = *dycl_chain_meta(c, c->gradient);
    dycl_infer_contiguous(&form);
    for (int i = 0; i < 2; i++) {
        if (!dycl_chain_wants(c, i)) continue;
        uint32_t other = dycl_chain_take(c, 1 - i), operands[2] = {i ? c->gradient : other, i ? other : c->gradient};
        dycl_chain_give(c, i,
                        dycl_chain_hosted_laid(c, DYCL_OP_aten_linalg_cross, 0, &form, 2, operands, a.count, a.words));
    }
}
