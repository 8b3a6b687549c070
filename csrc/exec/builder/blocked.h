/* Values that lie in memory as oneDNN wants them, while a plan is built. Private to csrc/exec.
 *
 * Ownership: the plan's arena. Threads: one at a time. */
#ifndef DYCL_EXEC_BUILDER_BLOCKED_H
#define DYCL_EXEC_BUILDER_BLOCKED_H

#include "exec/builder/builder.h"

struct dycl_blocked {
    dycl_layout layout;
    uint32_t slot;
    int plain_ready;     /* the value's own slot holds it too */
    dycl_layout other;   /* a second form that some consumer asked for */
    uint32_t other_slot; /* DYCL_NONE: none */
};

/* The value's own layout, by its sizes and strides. */
void dycl_make_layout(const dycl_builder *b, uint32_t value, dycl_layout *out);
/* A place for a result of this layout: the value's own slot when that is how it lies anyway, else a new one. The plain
 * form is made when somebody asks. */
dycl_status dycl_make_result(dycl_builder *b, uint32_t value, const dycl_layout *layout, uint32_t *out_slot);
/* A result that is the value, laid otherwise (DYCL_OP_laid): no step where the value was computed there, or where it is
 * a feed, which the result's readers take as it lies. */
dycl_status dycl_make_laid(dycl_builder *b, uint32_t value, uint32_t result);
/* After the step that wrote it: outputs need their plain form. */
dycl_status dycl_make_result_done(dycl_builder *b, uint32_t value);
dycl_status dycl_make_reorder(dycl_builder *b, dycl_ref src, const dycl_layout *from, dycl_ref dst,
                              const dycl_layout *to);
/* The value in a layout, reordered when needed. */
dycl_status dycl_make_as(dycl_builder *b, uint32_t value, const dycl_layout *layout, dycl_ref *out);
dycl_status dycl_make_operand_plain(dycl_builder *b, uint32_t value);
/* Everything that the nodes of a block read, plain. */
dycl_status dycl_make_operands_plain(dycl_builder *b, const dycl_block *block);
const struct dycl_blocked *dycl_blocked_of(const dycl_builder *b, uint32_t value); /* NULL: plain, or a view */

#endif
