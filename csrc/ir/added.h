/* Operators of the host that add elements where indices say (scatter_add, index_put that accumulates, index_add, the
 * gradient of an embedding), read as one walk over the elements that are added.
 *
 * Ownership: none. Threads: pure. */
#ifndef DYCL_IR_ADDED_H
#define DYCL_IR_ADDED_H

#include "ir/graph.h"

/* For each dimension of the walk the dimension of the result, of the source and of each index that goes along; -1:
 * none does. */
typedef struct {
    int base, source; /* operands; base: what is added to, -1: zeros */
    int rank, count;  /* count: indices */
    int64_t sizes[DYCL_MAX_RANK];
    int8_t to[DYCL_MAX_RANK], from[DYCL_MAX_RANK];
    struct {
        int operand, dim; /* dim: of the result, where it is a position */
        int8_t at[DYCL_MAX_RANK];
    } index[DYCL_MAX_RANK];
    int wraps;    /* negative positions count from the end */
    int64_t skip; /* this position gets nothing; INT64_MIN: there is none */
} dycl_added;

/* 1; 0: the node is no such operator, or one of operands that are left to the host. What is added to may have become
 * the number that it is filled with (opt/fold.c). */
int dycl_added_of(const dycl_graph *graph, const dycl_node *node, dycl_added *out);

#endif
