/* The gradient of a convolution's weights as one product: gradient' x, summed over all pixels of the result, where x is
 * the images' windows as a matrix whose columns lie as the weights of an output do (kern/im2col.h): so sums are written
 * where they belong. What is packed of x stays until the end: made for few pixels and many weights.
 *
 * Ownership: everything is borrowed for the call. Threads: run uses OpenMP inside; any number may run at once, each
 * with memory of its own. */
#ifndef DYCL_KERN_WINDOW_GRADIENT_H
#define DYCL_KERN_WINDOW_GRADIENT_H

#include "kern/im2col.h"

typedef struct {
    const dycl_gemm_kernel *kernel;
    dycl_windows windows;
    int64_t outputs;
    /* what dycl_window_gradient_divide finds */
    int across, down; /* so many threads share the weights of an output, and so many the outputs */
    int64_t vectors;  /* of the widest panel */
} dycl_window_gradient;

/* Divides the work, of which all above is known, among so many threads at most. */
void dycl_window_gradient_divide(dycl_window_gradient *g, int threads);
size_t dycl_window_gradient_bytes(const dycl_window_gradient *g); /* of memory to work in; a multiple of 64 */
/* x [images, height, width, channels] and gradient [images, out_height, out_width, outputs] are contiguous, and dst
 * [outputs, channels, window]. Zeros around x are multiplied as pixels are: where the gradient is not
 * finite, that makes a NaN of nothing. Sums of up to DYCL_GEMM_DEPTH pixels are added in order. work: 64-byte aligned.
 */
void dycl_window_gradient_run(const dycl_window_gradient *g, const float *x, const float *gradient, float *dst,
                              char *work);

#endif
