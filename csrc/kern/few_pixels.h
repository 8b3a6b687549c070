/* Convolutions of few pixels with many weights, and the gradients of their images, for weights that change from run to
 * run: weights are what takes the time, and are read once, as they lie [outputs, channels, window]. Forward, each
 * output's weights are a row of A, and the windows are packed (kern/im2col.h). Back, a product makes what each pixel
 * gives to each place of its window ("col2im"), some channels at a time, whose weights are copied next to one another
 * but not turned around, and then each pixel of the image gathers what is its own.
 *
 * Ownership: everything is borrowed for the call. Threads: runs use OpenMP inside; any number may run at once, each
 * with memory of its own. */
#ifndef DYCL_KERN_FEW_PIXELS_H
#define DYCL_KERN_FEW_PIXELS_H

#include "kern/im2col.h"

#define DYCL_FEW_PIXELS_PLACES 64 /* of a window, at most, for what goes back */

typedef struct {
    const dycl_gemm_kernel *kernel;
    dycl_windows windows; /* back: those that the image was seen through; pad is not read */
    int64_t outputs;
    int64_t before[2]; /* zeros before the image; read by what goes back */
    int threads;
} dycl_few_pixels;

/* Of memory to work in, 64-byte aligned. */
size_t dycl_few_pixels_bytes(const dycl_few_pixels *f);
size_t dycl_few_pixels_back_bytes(const dycl_few_pixels *f);

/* x: with strides in the order images, channels, height, width; dst [images, out_height, out_width, outputs] as
 * finish's residual. Zeros around x are multiplied as pixels are. */
void dycl_few_pixels_run(const dycl_few_pixels *f, const float *x, const int64_t *strides, const float *weights,
                         const dycl_gemm_finish *finish, float *dst, char *work);
/* gradient [images, out_height, out_width, outputs]; dst [images, height, width, channels] as finish's residual. */
void dycl_few_pixels_back(const dycl_few_pixels *f, const float *gradient, const float *weights,
                          const dycl_gemm_finish *finish, float *dst, char *work);

#endif
