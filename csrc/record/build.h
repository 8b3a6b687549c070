/* Builds nodes the way torch's operators behave: type promotion (ATen/native/TypeProperties.cpp), broadcasting,
 * decompositions.
 *
 * Ownership: a recorder owns its graph and arrays. Threads: one at a time.
 * Every build function appends nodes and answers OK with the result's value, BAIL (what was appended before is dead
 * code) or ERROR. */
#ifndef DYCL_RECORD_BUILD_H
#define DYCL_RECORD_BUILD_H

#include "ir/graph.h"
#include "record/bail.h"

/* What torch's gradient of a view's operand is: a view of that of the view; a tensor of its own; or the very same,
 * where the operator changes nothing. Who holds both sees the difference. UNFOLD: windows, summed into
 * a contiguous tensor of its own. */
typedef enum { DYCL_BACK_VIEW, DYCL_BACK_OWN, DYCL_BACK_SAME, DYCL_BACK_UNFOLD } dycl_way_back;
static inline dycl_way_back dycl_way_of(const dycl_graph *graph, const dycl_node *view) {
    int named = view->attr_count % 2 == 0; /* offset, sizes and strides are odd */
    return named ? (dycl_way_back)dycl_node_attrs(graph, view)[view->attr_count - 1] : DYCL_BACK_VIEW;
}

typedef struct {
    dycl_graph graph;
    dycl_scalar *scalars; /* values of the graph's scalars */
    uint32_t scalar_room;
    int64_t (*ranges)[2]; /* bounds of integer values; low > high: unknown */
    uint32_t range_room, range_count;
    dycl_bail why;      /* the reason of the last BAIL */
    int made_view;      /* since somebody looked */
    dycl_way_back back; /* of the next view */
} dycl_recorder;

void dycl_recorder_init(dycl_recorder *r);
void dycl_recorder_reset(dycl_recorder *r);
void dycl_recorder_free(dycl_recorder *r);

typedef enum { DYCL_OPERAND_VALUE, DYCL_OPERAND_BOOL, DYCL_OPERAND_INT, DYCL_OPERAND_FLOAT } dycl_operand_kind;
typedef struct {
    dycl_operand_kind kind;
    uint32_t value; /* VALUE */
    int64_t i;      /* BOOL, INT */
    double f;       /* FLOAT */
} dycl_operand;
static inline dycl_operand dycl_operand_of(uint32_t value) { return (dycl_operand){DYCL_OPERAND_VALUE, value, 0, 0}; }
static inline dycl_operand dycl_operand_f64(double f) { return (dycl_operand){DYCL_OPERAND_FLOAT, 0, 0, f}; }
static inline dycl_operand dycl_operand_i64(int64_t i) { return (dycl_operand){DYCL_OPERAND_INT, 0, i, 0}; }

dycl_status dycl_build_node(dycl_recorder *r, dycl_op op, int operand_count, const uint32_t *operands, int attr_count,
                            const int64_t *attrs, uint32_t *out);
dycl_status dycl_build_bail(dycl_recorder *r, dycl_bail why); /* returns DYCL_BAIL */

/* What a Python float has beside integers, and what a function of floats makes of integers: torch's default dtype, F32
 * or F64 (py/torch/state.h asks it). Of the process, as torch's. */
extern dycl_dtype dycl_default_dtype;
dycl_dtype dycl_number_dtype(const dycl_operand *number); /* of a Python number alone */
dycl_dtype dycl_promote(dycl_dtype a, dycl_dtype b);
dycl_dtype dycl_result_type(const dycl_recorder *r, int count, const dycl_operand *operands);

/* An operand as a value of the given dtype: a cast, or a scalar. */
dycl_status dycl_build_convert(dycl_recorder *r, const dycl_operand *operand, dycl_dtype dtype, uint32_t *out);
dycl_status dycl_build_scalar(dycl_recorder *r, dycl_dtype dtype, dycl_scalar number, uint32_t *out);
dycl_status dycl_build_cast(dycl_recorder *r, uint32_t value, dycl_dtype dtype,
                            uint32_t *out); /* same value when nothing to do */

typedef enum {
    DYCL_PROMOTE_COMMON,  /* all operands to their common dtype */
    DYCL_PROMOTE_FLOAT,   /* ... integers and bool to float32 */
    DYCL_PROMOTE_NO_BOOL, /* COMMON, and a bool result is an error in torch */
    DYCL_PROMOTE_NO_BOOLS /* COMMON, and a bool operand is an error in torch, whatever the others are */
} dycl_promotion;
dycl_status dycl_build_ew(dycl_recorder *r, dycl_op op, dycl_promotion promotion, int count,
                          const dycl_operand *operands, uint32_t *out);
dycl_status dycl_build_where(dycl_recorder *r, const dycl_operand *condition, const dycl_operand *a,
                             const dycl_operand *b, uint32_t *out);
dycl_status dycl_build_pow(dycl_recorder *r, const dycl_operand *base, const dycl_operand *exponent, uint32_t *out);

/* Aliases. Sizes and strides in elements; offset relative to the operand. A step beyond the reach is torch's to refuse:
 * no memory is so large. */
#define DYCL_VIEW_REACH (INT64_C(1) << 48)
dycl_status dycl_build_view(dycl_recorder *r, uint32_t value, int64_t offset, int rank, const int64_t *sizes,
                            const int64_t *strides, uint32_t *out);
/* The value, with `part` in such a view of it. */
dycl_status dycl_build_view_put(dycl_recorder *r, uint32_t value, uint32_t part, int64_t offset, int rank,
                                const int64_t *sizes, const int64_t *strides, uint32_t *out);
dycl_status dycl_build_transpose(dycl_recorder *r, uint32_t value, int a, int b, uint32_t *out);
dycl_status dycl_build_permute(dycl_recorder *r, uint32_t value, const int *order, uint32_t *out);
dycl_status dycl_build_unsqueeze(dycl_recorder *r, uint32_t value, int dim, uint32_t *out);
dycl_status dycl_build_select(dycl_recorder *r, uint32_t value, int dim, int64_t index, uint32_t *out);
dycl_status dycl_build_slice(dycl_recorder *r, uint32_t value, int dim, int64_t start, int64_t stop, int64_t step,
                             uint32_t *out); /* normalised */
dycl_status dycl_build_expand(dycl_recorder *r, uint32_t value, int rank, const int64_t *sizes, uint32_t *out);
/* torch's computeStride: 1 and the strides when the new sizes are a view of the value, else 0. sizes hold no -1. */
int dycl_view_strides(const dycl_value *value, int rank, const int64_t *sizes, int64_t *out_strides);
/* view if possible, else a copy and a view of it (torch.reshape); only_view: BAIL instead of the copy
 * (torch.Tensor.view) */
dycl_status dycl_build_reshape(dycl_recorder *r, uint32_t value, int rank, const int64_t *sizes, int only_view,
                               uint32_t *out);
/* The value with these dense strides, where torch's operator lays its result out otherwise than the nodes that compute
 * it: a view where only dimensions of size 1, or of an empty tensor, differ; else a copy. dycl_build_like: with the
 * strides of torch.empty_like(like); dycl_build_iterated: with those of one TensorIterator over all operands (at most
 * 4). */
dycl_status dycl_build_dense(dycl_recorder *r, uint32_t value, const int64_t *strides, uint32_t *out);
dycl_status dycl_build_iterated(dycl_recorder *r, uint32_t value, int count, const uint32_t *operands, uint32_t *out);
dycl_status dycl_build_like(dycl_recorder *r, uint32_t value, uint32_t like, uint32_t *out);
dycl_status dycl_build_contiguous(dycl_recorder *r, uint32_t value,
                                  uint32_t *out); /* same value when it is contiguous */

dycl_status dycl_build_matmul(dycl_recorder *r, uint32_t a, uint32_t b, uint32_t *out); /* torch.matmul, ranks 1.. */

/* All elements of an integer value lie in low..high; to's are some of from's. Without memory nothing is known. */
void dycl_recorder_bound(dycl_recorder *r, uint32_t value, int64_t low, int64_t high);
void dycl_recorder_bound_as(dycl_recorder *r, uint32_t to, uint32_t from);
static inline int dycl_recorder_bounded(const dycl_recorder *r, uint32_t value) {
    return value < r->range_count && r->ranges[value][0] <= r->ranges[value][1];
}

#endif
