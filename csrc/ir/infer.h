/* Shape functions by family (internal to ir/). Each sets dtype, rank, sizes and strides of `out`, or answers BAIL. */
#ifndef DYCL_IR_INFER_H
#define DYCL_IR_INFER_H

#include "ir/graph.h"

void dycl_infer_contiguous(dycl_value *out);
void dycl_infer_channels_last(dycl_value *out); /* rank 4 or 5 */
/* Whether torch takes its flash kernel, of four dimensions; mask: or NULL. */
int dycl_attention_is_flash(const dycl_value *q, const dycl_value *k, const dycl_value *v, const dycl_value *mask);
void dycl_infer_preserve(const dycl_value *in, dycl_value *out);
/* Strides of torch's TensorIterator for a result of out's sizes: with its fast ways for tensors of one shape, and the
 * general rule alone. */
void dycl_infer_iterator(dycl_value *out, int count, const dycl_value *const *in);
void dycl_infer_iterator_strides(dycl_value *out, int count, const dycl_value *const *in);
int dycl_value_dense(const dycl_value *value);    /* non-overlapping and dense */
int dycl_value_overlaps(const dycl_value *value); /* the strides are not those of nested dimensions */
int dycl_value_channels_last(
    const dycl_value *value); /* what torch's suggest_memory_format would call channels last; 3: of volumes */
int dycl_value_channels_last_dense(const dycl_value *value); /* is_contiguous(torch.channels_last); 3: channels_last_3d.
                                                                The sizes that are 1 do not count */

/* A node that is not in its graph yet. */
typedef struct {
    const dycl_graph *graph;
    dycl_op op;
    int operand_count, attr_count;
    const uint32_t *operands;
    const int64_t *attrs;
} dycl_draft;

int dycl_infer_is_f32(const dycl_graph *g, uint32_t id, int rank, const int64_t *sizes);
/* Absent, or a vector of so many elements of this dtype. */
int dycl_infer_is_vector(const dycl_graph *g, uint32_t id, int64_t size, int dtype);

#define DYCL_FAMILY(NAME, name, ...) dycl_status dycl_infer_##name(const dycl_draft *draft, dycl_value *out);
#include "ir/family.def"
#undef DYCL_FAMILY

#endif
