/* batch_norm and batch_norm_train as a scale and a shift a channel. Private to csrc/exec. Ownership: the plan's arena.
 * Threads: one at a time. */
#ifndef DYCL_EXEC_TILE_BATCH_NORM_H
#define DYCL_EXEC_TILE_BATCH_NORM_H

#include "exec/builder/builder.h"

/* A step that computes a batch_norm's scale and shift vectors; folded: for a convolution's weights; `added`: a bias
 * added before it, or NULL. */
dycl_status dycl_make_batch_norm(dycl_builder *b, const dycl_node *node, int folded, const dycl_tensor *added,
                                 dycl_ref *out_scale, dycl_ref *out_shift);

#endif
