/* Windows of images as a matrix, of a row for each pixel of the result and a column for each weight of an output
 * ("im2col"), packed for products (kern/gemm.h) as B or as its transpose. It is never made as such: the image is copied
 * into planes with zeros around them, and packed from there. The columns are in the order in which the weights of an
 * output lie, places of the window innermost, so that weights and their gradients are rows of a product as they are.
 *
 * Ownership: everything is borrowed for the call. Threads: pure functions; parts of one thing may be made at once. */
#ifndef DYCL_KERN_IM2COL_H
#define DYCL_KERN_IM2COL_H

#include "kern/gemm.h"

typedef struct {
    int64_t images, channels, height, width, out_height, out_width; /* all positive */
    int64_t window[2], stride[2], dilation[2];
    dycl_pad pad; /* what windows see of x, with the zeros around it */
} dycl_windows;

static inline int64_t dycl_windows_pixels(const dycl_windows *w) { return w->images * w->out_height * w->out_width; }
static inline int64_t dycl_windows_places(const dycl_windows *w) { return w->window[0] * w->window[1]; }
static inline int64_t dycl_windows_weights(const dycl_windows *w) { return w->channels * dycl_windows_places(w); }

size_t dycl_windows_planes_bytes(const dycl_windows *w); /* a multiple of 64 */
/* Part `part` of so many. x: with strides in the order images, channels, height, width. */
void dycl_windows_planes(const dycl_windows *w, dycl_isa isa, const float *x, const int64_t *strides, float *planes,
                         int64_t part, int64_t parts);
/* B [pixels, weights] from weight `first`; form: its n, vectors and kernel. */
void dycl_windows_pack_weights(const dycl_windows *w, const dycl_gemm_layout *form, const float *planes, int64_t first,
                               float *packed);
/* The rows of the channels [channel, end) of B [weights, pixels]. */
void dycl_windows_pack_pixels(const dycl_windows *w, const dycl_gemm_layout *form, const float *planes, float *packed,
                              int64_t channel, int64_t end);

#endif
