/* The squares of Winograd's transforms: where their pixels lie. Shared by winograd.c and winograd_gradient.c.
 *
 * Ownership: pointers are borrowed. Threads: pure functions. */
#ifndef DYCL_KERN_WINOGRAD_SQUARES_H
#define DYCL_KERN_WINOGRAD_SQUARES_H

#include "kern/winograd.h"

#define DYCL_WINOGRAD_PLACES 16

static inline int64_t dycl_winograd_share(int64_t a, int64_t b) { return (a + b - 1) / b; } /* rounded up */

typedef struct {
    const dycl_winograd *w;
    int64_t down, across, count;   /* squares of an image, and of all */
    int above, below, left, right; /* borders of the image that no square has inside */
} dycl_winograd_squares;

/* Squares overlap by half, each way: what is inner in none of them lies in one at the edge. Where zeros surround the
 * image, there is no such pixel. */
static inline dycl_winograd_squares dycl_winograd_divide(const dycl_winograd *w) {
    dycl_winograd_squares s = {.w = w};
    s.down = dycl_winograd_share(w->out_height, 2);
    s.across = dycl_winograd_share(w->out_width, 2);
    s.count = w->images * s.down * s.across;
    s.above = w->above == 0;
    s.left = w->left == 0;
    s.below = 2 * s.down - w->above < w->height - 1;
    s.right = 2 * s.across - w->left < w->width - 1;
    return s;
}

/* The 16 pixels of the image in square s, from their channel `first`; `zeros`: a pixel outside. Whether the outer ones
 * are inner in no square. */
static inline int dycl_winograd_inputs(const dycl_winograd_squares *q, int64_t s, const float *src, int64_t first,
                                       const float *zeros, const float **square) {
    const dycl_winograd *w = q->w;
    int64_t image = s / (q->down * q->across), row = s / q->across % q->down, column = s % q->across;
    int64_t y = row * 2 - w->above, x = column * 2 - w->left;
    for (int64_t i = 0; i < 4; i++)
        for (int64_t j = 0; j < 4; j++) {
            int inside = y + i >= 0 && y + i < w->height && x + j >= 0 && x + j < w->width;
            square[4 * i + j] =
                inside ? src + ((image * w->height + y + i) * w->width + x + j) * w->channels + first : zeros;
        }
    return (q->above && row == 0) || (q->below && row == q->down - 1) || (q->left && column == 0) ||
           (q->right && column == q->across - 1);
}

/* Where the four outputs of square s begin, in elements; -1: outside. */
static inline void dycl_winograd_outputs(const dycl_winograd_squares *q, int64_t s, int64_t *at) {
    const dycl_winograd *w = q->w;
    int64_t image = s / (q->down * q->across), y = s / q->across % q->down * 2, x = s % q->across * 2;
    for (int64_t i = 0; i < 4; i++)
        at[i] = y + i / 2 < w->out_height && x + i % 2 < w->out_width
                    ? ((image * w->out_height + y + i / 2) * w->out_width + x + i % 2) * w->outputs
                    : -1;
}

#endif
