/* Parts of algebraic rewriting (fold.c, simplify.c, distribute.c, commute.c). Private to csrc/opt. Ownership: none.
 * Threads: one at a time.
 *
 * A rewriting is taken only where every result stays what eager gives: bit for bit, or within the few ulp that the
 * kernel of the new operator is stated to have; NaN, infinities and overflow as before for every input. What that
 * refuses stands in docs/decisions/rewriting.md. */
#ifndef DYCL_OPT_REWRITE_H
#define DYCL_OPT_REWRITE_H

#include "opt/program.h"

/* The live node whose whole result an operand is (no view of it, or one that changes nothing); NULL: none. */
static inline dycl_node *dycl_rewrite_maker(const dycl_program *p, uint32_t operand) {
    if (operand == DYCL_NONE) return NULL;
    uint32_t n = dycl_program_producer(p, operand);
    if (n == DYCL_NONE || p->dead[n]) return NULL;
    dycl_node *node = &p->graph.nodes[n];
    const dycl_value *v = &p->graph.values[operand], *out = &p->graph.values[node->out];
    if (v->offset != out->offset || v->rank != out->rank || v->dtype != out->dtype) return NULL;
    for (int i = 0; i < v->rank; i++)
        if (v->sizes[i] != out->sizes[i] || (v->sizes[i] > 1 && v->strides[i] != out->strides[i])) return NULL;
    return node;
}

static inline int dycl_rewrite_same_shape(const dycl_program *p, uint32_t a, uint32_t b) {
    const dycl_value *x = &p->graph.values[a], *y = &p->graph.values[b];
    if (x->rank != y->rank || x->dtype != y->dtype) return 0;
    for (int i = 0; i < x->rank; i++)
        if (x->sizes[i] != y->sizes[i]) return 0;
    return 1;
}

/* The same element for the same index: one value, or two views that look alike. */
static inline int dycl_rewrite_equal(const dycl_program *p, uint32_t a, uint32_t b) {
    if (a == b) return 1;
    const dycl_value *x = &p->graph.values[a], *y = &p->graph.values[b];
    if (x->root != y->root || x->offset != y->offset || !dycl_rewrite_same_shape(p, a, b)) return 0;
    for (int i = 0; i < x->rank; i++)
        if (x->sizes[i] > 1 && x->strides[i] != y->strides[i]) return 0;
    return 1;
}

/* Nobody but one reader sees it: when that one does without, it is not computed at all. */
static inline int dycl_rewrite_only_here(const dycl_program *p, const dycl_node *node) {
    return p->uses[node->out] == 1 && !p->is_output[node->out];
}

/* Gives a node another operator with at most as many operands as it has. */
static inline void dycl_rewrite_set(dycl_program *p, dycl_node *node, int op, int count, uint32_t a, uint32_t b) {
    uint32_t *operands = p->graph.operands + node->operands;
    node->op = (uint16_t)op;
    node->operand_count = (uint16_t)count;
    operands[0] = a;
    if (count > 1) operands[1] = b;
}

/* The node's result is that value: an alias where the two lie alike and nobody outside sees the node's own. 1 or 0. */
int dycl_rewrite_is(dycl_program *program, const dycl_node *node, uint32_t value);

#endif
