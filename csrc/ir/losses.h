/* Losses of elements that the host computes, and their gradients, read for a kernel of ours (kern/loss.h).
 *
 * Ownership: none. Threads: pure. */
#ifndef DYCL_IR_LOSSES_H
#define DYCL_IR_LOSSES_H

#include "ir/graph.h"
#include "kern/loss.h"

enum { DYCL_REDUCE_NONE, DYCL_REDUCE_MEAN, DYCL_REDUCE_SUM }; /* at::Reduction */

typedef struct dycl_loss_node {
    dycl_loss kind;
    int reduction; /* of a loss; a gradient has none */
    dycl_loss_numbers numbers;
    uint32_t operand[DYCL_LOSS_OPERANDS]; /* values, or DYCL_NONE */
} dycl_loss_node;

/* 1; 0: the node is no such operator, or one of operands that are left to the host. Weights broadcast to the sizes of
 * what the loss is of; a gradient does too, or has one element. */
int dycl_loss_of(const dycl_graph *graph, const dycl_node *node, dycl_loss_node *out);

#endif
