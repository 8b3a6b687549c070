#include "kern/kern.h"

#include <string.h>

/* Pixels whose channels do not follow one another: squares of 16 by 16, so that what is read and what is written stay
 * in the first cache. */
static void transposed(float *to, const float *from, int64_t width, int64_t channels, int64_t pixel, int64_t channel) {
    for (int64_t x0 = 0; x0 < width; x0 += 16)
        for (int64_t c0 = 0; c0 < channels; c0 += 16) {
            int64_t x1 = x0 + 16 < width ? x0 + 16 : width, c1 = c0 + 16 < channels ? c0 + 16 : channels;
            for (int64_t c = c0; c < c1; c++)
                for (int64_t x = x0; x < x1; x++) to[x * channels + c] = from[x * pixel + c * channel];
        }
}

void dycl_kern_pad(float *dst, const float *src, const int64_t *src_strides, const dycl_pad *p, int64_t begin,
                   int64_t end) {
    int64_t height = dycl_pad_height(p), line = dycl_pad_width(p) * p->channels;
    int64_t before = p->left * p->channels, inside = p->width * p->channels;
    int dense = (p->channels == 1 || src_strides[1] == 1) && (p->width == 1 || src_strides[3] == p->channels);
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i % height - p->above;
        float *to = dst + i * line;
        if (row < 0 || row >= p->height) {
            memset(to, 0, (size_t)line * sizeof *to);
            continue;
        }
        const float *from = src + i / height * src_strides[0] + row * src_strides[2];
        memset(to, 0, (size_t)before * sizeof *to);
        if (dense)
            memcpy(to + before, from, (size_t)inside * sizeof *to);
        else
            transposed(to + before, from, p->width, p->channels, src_strides[3], src_strides[1]);
        memset(to + before + inside, 0, (size_t)(line - before - inside) * sizeof *to);
    }
}
