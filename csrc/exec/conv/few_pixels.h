/* Convolutions of few pixels and many weights that change at each run (kern/few_pixels.h) as a variant of other steps.
 * Private to csrc/exec. Ownership: arguments live in the plan's arena. Threads: as steps. */
#ifndef DYCL_EXEC_CONV_FEW_PIXELS_H
#define DYCL_EXEC_CONV_FEW_PIXELS_H

#include "exec/conv/conv.h"
#include "kern/few_pixels.h"

typedef struct dycl_conv_few dycl_conv_few;

/* Whether it may be faster than what packs its weights at each run. */
int dycl_conv_has_few_pixels(const dycl_builder *b, const dycl_conv_desc *d, const dycl_conv_args *conv);
/* For the step being built. *out: NULL where it has too many zeros. */
dycl_status dycl_make_few_pixels(dycl_builder *b, const dycl_conv_desc *d, int threads, dycl_conv_few **out);
/* src: with strides in the order images, channels, height, width; weights contiguous; dst channels last. */
void dycl_few_pixels_step(const dycl_conv_few *few, dycl_plan *plan, const float *src, const int64_t *strides,
                          const float *weights, const dycl_gemm_finish *finish, float *dst);

#endif
