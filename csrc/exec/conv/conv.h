/* Convolutions and pooling as steps. Private to csrc/exec. Ownership: arguments live in the plan's arena. Threads: as
 * steps. */
#ifndef DYCL_EXEC_CONV_CONV_H
#define DYCL_EXEC_CONV_CONV_H

#include "exec/builder/builder.h"
#include "exec/builder/guard.h"
#include "kern/im2col.h"
#include "kern/winograd.h"

typedef struct {
    dycl_prim *prim; /* borrowed from the plan */
    dycl_ref src, weights, bias, dst, scratch, scale;
    dycl_ref repacked, scaled; /* room for weights that are no constant, packed at each run */
    dycl_packing *packing;
    dycl_weights as; /* in which order its kernel reads the weights */
    size_t fresh;    /* not 0: who multiplies packs these, panel by panel, in so many bytes at `repacked` */
    int has_bias, has_scale, pack, post_count;
    int has_post[DYCL_MAX_POST_OPS];
    dycl_ref post[DYCL_MAX_POST_OPS];
} dycl_conv_args;

void dycl_conv_describe(dycl_conv_desc *d, const dycl_tensor *x, const dycl_tensor *w, const dycl_tensor *out,
                        dycl_op op, const int64_t *attrs);
/* The weights as the step's kernel wants them: as they are, packed before, or packed now (NULL: `fresh`). */
dycl_status dycl_conv_weights(dycl_plan *plan, const dycl_conv_args *a, const void **out);
/* Rows by the weights (a->as.gemm), packed as dycl_conv_weights says, or while they are multiplied. */
dycl_status dycl_conv_multiply(dycl_plan *plan, const dycl_conv_args *a, const dycl_gemm_rows *rows,
                               const dycl_gemm_finish *finish, int threads);
/* Notes what the step reads of its weights; a->prim or a->as says in which order. */
dycl_status dycl_conv_read_weights(dycl_builder *b, dycl_conv_args *a, const dycl_tensor *w, int64_t channels);
/* The same of those that dycl_conv_multiply takes, which says whether they are packed on the way. */
dycl_status dycl_conv_read_columns(dycl_builder *b, dycl_conv_args *a, const dycl_tensor *w, const dycl_gemm_rows *rows,
                                   int threads);

/* As the packed product of kern/gemm.h: a->bias, a->scale are set, `w` is contiguous. BAIL: oneDNN's business.
 * residuals: as describe_chain leaves them. */
dycl_status dycl_make_conv_product(dycl_builder *b, const dycl_block *block, const dycl_conv_desc *d,
                                   const dycl_conv_args *conv, const dycl_tensor *w, const uint32_t *residuals);
/* Transposed ones of few channels as a product and sums (overlap.c); arguments as above. BAIL: others. */
dycl_status dycl_make_conv_overlap(dycl_builder *b, const dycl_node *node, const dycl_conv_desc *d,
                                   const dycl_conv_args *conv, const dycl_tensor *w);
/* Transposed ones with a stride as a product for each place of a stride (phases.c); arguments as above. BAIL: others.
 */
dycl_status dycl_make_conv_phases(dycl_builder *b, const dycl_node *node, const dycl_conv_desc *d,
                                  const dycl_conv_args *conv, const dycl_tensor *w);
void dycl_channels_last(const dycl_tensor *t, dycl_layout *out); /* rank 4 */

/* A convolution, or a weight's gradient, with dycl_conv_is_whole (ir/graph.h) as a product. BAIL: it is another. */
dycl_status dycl_make_whole_window(dycl_builder *b, const dycl_node *node);

/* Where the operand lies contiguous or channels last, or will: what lies in another way is copied. */
dycl_status dycl_image_source(dycl_builder *b, uint32_t operand, int *channels_last, dycl_ref *src);
void dycl_image_layout(dycl_tensor *image, int channels_last, dycl_layout *layout);
/* Means over windows, and what goes back, by our own kernel (mean_pool.c). */
dycl_status dycl_make_mean_pool(dycl_builder *b, const dycl_node *node);
dycl_status dycl_make_mean_pool_back(dycl_builder *b, const dycl_node *node);

/* The mean over whole planes from a blocked layout; BAIL when the operand is not in one. */
dycl_status dycl_make_plane_mean(dycl_builder *b, const dycl_node *node);
double dycl_conv_cost(const dycl_conv_desc *d);

/* Whether Winograd's squares (kern/winograd.h) may be a variant: 3x3 windows next to one another, channels that fill
 * vectors, and at least so many squares of outputs for each weight: transformed weights are 1.8 times as many, which is
 * no way to save memory. */
int dycl_conv_suits_winograd(const dycl_builder *b, const dycl_conv_desc *d, const dycl_gemm_kernel *kernel,
                             int64_t least);
dycl_winograd dycl_conv_squares(const dycl_conv_desc *d);
/* So many variants of the last step, whose times depend on the convolution and `what` is said of it. */
dycl_status dycl_conv_measure(dycl_builder *b, const dycl_conv_desc *d, const char *const *variants, int count,
                              int threads, const char *what, dycl_autotune **out);
/* Zeros around an image are multiplied where windows are rows of memory, and are no zeros any more where a weight is
 * not finite; oneDNN and torch multiply nothing there. An EXACT plan does not either. */
typedef struct {
    dycl_guard *weights; /* NULL: there are no zeros, or the weights were looked at */
    size_t many, made;   /* elements of the weights and of the result */
} dycl_conv_zeros;
dycl_status dycl_conv_guard_zeros(dycl_builder *b, uint32_t weights, const dycl_tensor *w, const dycl_conv_desc *d,
                                  dycl_conv_zeros *out);
/* Behind the products that made dst. Looks at whichever is less, and at weights that stay once. */
void dycl_conv_look_at_zeros(const dycl_conv_zeros *z, dycl_plan *plan, int stay, const float *dst);
/* The pixels that windows see, and the zeros around them. 0: they are not worth their memory. */
int dycl_conv_pad(const dycl_conv_desc *d, dycl_pad *pad);
dycl_windows dycl_conv_windows(const dycl_conv_desc *d, const dycl_pad *pad); /* that dycl_conv_pad found */

#endif
