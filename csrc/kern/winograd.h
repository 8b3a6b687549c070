/* 3x3 convolutions with stride 1 as sixteen products (Winograd's F(2x2, 3x3); Lavin and Gray, "Fast Algorithms for
 * Convolutional Neural Networks", CVPR 2016, section 4.1): 2.25 times fewer multiplications than the windows' own
 * product.
 *
 * Each 2x2 square of outputs comes from a 4x4 square of inputs: V = B' d B, sums over channels of U V for each of the
 * sixteen places, then A' M A. U = G g G' is made once. All of it is channels last. Squares are walked in blocks whose
 * V and M stay in the second cache, panel by panel of the output channels. Accuracy: the transforms add at most four
 * terms with factors of 1 and 1/2; errors are up to about three times those of the direct product. An infinite or NaN
 * input makes all four outputs of its squares NaN: the caller must not use it then.
 *
 * Ownership: everything is borrowed for the call. Threads: the driver uses OpenMP inside. */
#ifndef DYCL_KERN_WINOGRAD_H
#define DYCL_KERN_WINOGRAD_H

#include "kern/gemm.h"

typedef struct {
    int64_t images, height, width, channels; /* of the input; channels: a multiple of the kernel's lanes */
    int64_t above, left;                     /* zeros before the first row and column */
    int64_t out_height, out_width, outputs;  /* a multiple of the lanes too */
    int limit;                               /* elements of the input are below 2 to the power of this */
} dycl_winograd;

/* form: of U, n = outputs, sizes {1, 1, channels}. A window's nine elements lie strides[1] apart, 1 or -1 (backwards:
 * `weights` is where the last one lies), windows of an output's channels strides[2], those of outputs `column`. */
size_t dycl_winograd_bytes(const dycl_gemm_layout *form);
void dycl_winograd_pack(const dycl_gemm_layout *form, const float *weights, const float *scale, float *packed,
                        int threads);

/* U as dycl_winograd_pack makes it, or (NULL) its arguments: then a panel of U is made where it is needed, in less
 * memory, and stays in the second cache. Each block of squares needs all panels. */
typedef struct {
    const float *packed, *from, *scale;
} dycl_winograd_weights;
int dycl_winograd_is_one_block(const dycl_winograd *w, const dycl_gemm_layout *form);

/* anew: for weights that are not packed. */
size_t dycl_winograd_scratch(const dycl_winograd *w, const dycl_gemm_layout *form, int anew, int threads);
/* src and dst are contiguous, channels last. 1; 0: an element of src is not below the limit, or not a number. */
int dycl_winograd_run(const dycl_winograd *w, const dycl_gemm_layout *form, const float *src,
                      const dycl_winograd_weights *weights, const dycl_gemm_finish *finish, float *dst, float *scratch,
                      int threads);

/* The gradient of the weights, of such an image and a gradient of the outputs: F(3x3, 2x2), the same transforms
 * transposed. Squares are summed up as sixteen products of A g A' and V; each sum becomes G' dU G once. dst [outputs,
 * channels, 3, 3] is contiguous. The sums of up to DYCL_GEMM_DEPTH squares are added in order. The answer is that of
 * dycl_winograd_run, for the gradient's elements, too. */
size_t dycl_winograd_gradient_scratch(const dycl_winograd *w, const dycl_gemm_kernel *kernel, int threads);
int dycl_winograd_gradient(const dycl_winograd *w, const dycl_gemm_kernel *kernel, const float *src,
                           const float *gradient, float *dst, float *scratch, int threads);

/* ---- The transforms of one ISA. */
typedef struct {
    /* square: 16 pixels in rows of four. to: place p at p * step. 1: an element is not below 2^limit, or
     * not a number; of the inner four pixels, or of all. */
    int (*input)(float *to, int64_t step, const float *const *square, int64_t channels, int limit, int all);
    /* from: place p at p * step; up to four outputs (NULL: outside the image) and their residuals (NULL: none). */
    void (*output)(float *const *to, const float *from, int64_t step, const float *bias, const float *const *residual,
                   float low, float high, int64_t columns);
    /* G g G' of `columns` windows, each times its factor (NULL: 1): place p at p * step. In f64: it is rounded once. */
    void (*weights)(float *to, int64_t step, const float *from, int64_t column, int64_t next, const float *scale,
                    int64_t columns);
    /* A g A' of the four pixels of a gradient's square: place p at p * step. 1: as `input`. */
    int (*gradient)(float *to, int64_t step, const float *const *square, int64_t channels, int limit);
    /* G' u G of `columns` windows: nine floats each, one window after the other. */
    void (*windows)(float *to, const float *from, int64_t step, int64_t columns);
} dycl_winograd_transforms;
DYCL_ISA_TABLES(const dycl_winograd_transforms, dycl_winograd)
const dycl_winograd_transforms *dycl_kern_winograd(dycl_isa isa);

#endif
