#include "kern/kern.h"
#include "kern/parallel.h"

#include <string.h>

/* Rows that are dense in the source are copied one by one, so that the borders are written in the same pass. */
static void dense_rows(float *dst, const float *src, const int64_t *src_strides, const dycl_pad *p, int threads) {
    int64_t height = p->height + p->above + p->below, line = (p->width + p->left + p->right) * p->channels;
    int64_t before = p->left * p->channels, inside = p->width * p->channels;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < p->images * height; i++) {
        int64_t row = i % height - p->above;
        float *to = dst + i * line;
        if (row < 0 || row >= p->height) {
            memset(to, 0, (size_t)line * sizeof *to);
            continue;
        }
        memset(to, 0, (size_t)before * sizeof *to);
        memcpy(to + before, src + i / height * src_strides[0] + row * src_strides[2], (size_t)inside * sizeof *to);
        memset(to + before + inside, 0, (size_t)(line - before - inside) * sizeof *to);
    }
}

void dycl_kern_pad(float *dst, const float *src, const int64_t *src_strides, const dycl_pad *p) {
    int64_t height = p->height + p->above + p->below, width = p->width + p->left + p->right, line = width * p->channels;
    int threads = dycl_kern_threads((size_t)(p->images * height * line) * sizeof *dst);
    int dense = (p->channels == 1 || src_strides[1] == 1) && (p->width == 1 || src_strides[3] == p->channels);
    if (dense) {
        dense_rows(dst, src, src_strides, p, threads);
        return;
    }
    int64_t sizes[4] = {p->images, p->height, p->width, p->channels}, to[4] = {height * line, line, p->channels, 1};
    int64_t from[4] = {src_strides[0], src_strides[2], src_strides[3], src_strides[1]};
    for (int64_t i = 0; i < p->images * height; i++) {
        int64_t row = i % height - p->above;
        int inside = row >= 0 && row < p->height;
        memset(dst + i * line, 0, (size_t)(inside ? p->left * p->channels : line) * sizeof *dst);
        if (inside) memset(dst + (i + 1) * line - p->right * p->channels, 0, (size_t)(p->right * p->channels) * sizeof *dst);
    }
    dycl_kern_copy(dst + p->above * line + p->left * p->channels, to, src, from, sizes, 4, sizeof *dst);
}
