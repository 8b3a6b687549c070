/* The gradient of a convolution's weights as products: each place of the window is gradient' x, summed over all pixels
 * of the result, where x is the image seen through that place. What a line of such pixels shows of x lies `stride`
 * pixels apart, so x is packed from where it is (dycl_gemm_pack) and never copied as columns ("im2col"). All that is
 * packed stays until the end, and sums leave the cache once: made for few pixels and many weights.
 *
 * Ownership: everything is borrowed for the call. Threads: run uses OpenMP inside; any number may run at once, each
 * with memory of its own. */
#ifndef DYCL_KERN_WINDOW_GRADIENT_H
#define DYCL_KERN_WINDOW_GRADIENT_H

#include "kern/gemm.h"

typedef struct {
    const dycl_gemm_kernel *kernel;
    int64_t images, channels, height, width, outputs, out_height, out_width; /* all positive */
    int64_t window[2], stride[2], dilation[2];
    dycl_pad pad; /* what windows see of x, with the zeros around it */
    /* what dycl_window_gradient_divide finds */
    int across, down; /* so many threads share the channels, and so many the outputs */
    int64_t products; /* of which a window is made: places, or lines of few channels */
    int64_t vectors;  /* of the widest panel */
} dycl_window_gradient;

/* Divides the work, of which all above is known, among so many threads at most. */
void dycl_window_gradient_divide(dycl_window_gradient *w, int threads);
size_t dycl_window_gradient_bytes(const dycl_window_gradient *w); /* of memory to work in; a multiple of 64 */
/* x [images, height, width, channels] and gradient [images, out_height, out_width, outputs] are contiguous, and dst
 * [outputs, channels, window]. Zeros around x are multiplied as pixels are: where the gradient is not
 * finite, that makes a NaN of nothing. Sums of up to DYCL_GEMM_DEPTH pixels are added in order. work: 64-byte aligned.
 */
void dycl_window_gradient_run(const dycl_window_gradient *w, const float *x, const float *gradient, float *dst,
                              char *work);

#endif
