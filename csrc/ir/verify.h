/* Checks that the verifier and the parser share (internal to ir/). Ownership: none. Threads: pure, but for the thread's
 * error message. */
#ifndef DYCL_IR_VERIFY_H
#define DYCL_IR_VERIFY_H

#include "ir/infer.h"

/* Whether dycl_infer may look at these operands and attributes: counts, indices, absent operands, ranges. OK, or ERROR
 * with a message. */
dycl_status dycl_verify_node(const dycl_graph *graph, dycl_op op, int operand_count, const uint32_t *operands,
                             int attr_count, const int64_t *attrs);
/* Whether the result of such a node looks as inference says. */
dycl_status dycl_verify_look(const dycl_graph *graph, const dycl_node *node);
#define DYCL_FAMILY(NAME, name, ...) dycl_status dycl_verify_##name(const dycl_draft *draft);
#include "ir/family.def"
#undef DYCL_FAMILY
dycl_status dycl_verify_sizes(int rank, const int64_t *sizes, const int64_t *strides); /* strides may be NULL */
int dycl_attr_is_f64(dycl_op op, int operand_count, int attr_count, const int64_t *attrs,
                     int attr); /* a double, bit-cast */

#endif
