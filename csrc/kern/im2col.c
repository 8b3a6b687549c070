#include "kern/im2col.h"

#include "kern/transpose.h"

#include <string.h>

#define GROUP     16 /* channels that are copied together: a line of memory */
#define MOST_WIDE 64 /* columns of a panel */

_Static_assert(DYCL_GEMM_VECTORS * 16 <= MOST_WIDE, "a panel's columns");

static int64_t plane_of(const dycl_windows *w) { return dycl_pad_height(&w->pad) * dycl_pad_width(&w->pad); }

size_t dycl_windows_planes_bytes(const dycl_windows *w) {
    return ((size_t)(w->images * w->channels * plane_of(w)) * sizeof(float) + 63) & ~(size_t)63;
}

/* ---- Planes */

/* A line of so many channels: `width` pixels of each, planes `plane` apart. */
static void copy_line(dycl_transpose4 *transpose, const float *from, const int64_t *strides, float *to, int64_t plane,
                      int64_t channels, int64_t width) {
    if (strides[1] == 1) {
        transpose((dycl_word *)to, plane, (const dycl_word *)from, strides[3], (size_t)channels, (size_t)width);
        return;
    }
    for (int64_t c = 0; c < channels; c++)
        if (strides[3] == 1)
            memcpy(to + c * plane, from + c * strides[1], (size_t)width * sizeof *to);
        else
            for (int64_t x = 0; x < width; x++) to[c * plane + x] = from[c * strides[1] + x * strides[3]];
}

void dycl_windows_planes(const dycl_windows *w, dycl_isa isa, const float *x, const int64_t *strides, float *planes,
                         int64_t part, int64_t parts) {
    dycl_transpose4 *transpose = dycl_kern_transpose4(isa);
    const dycl_pad *p = &w->pad;
    int64_t plane = plane_of(w), width = dycl_pad_width(p), groups = dycl_divided_up(w->channels, GROUP),
            all = w->images * groups;
    for (int64_t i = all * part / parts; i < all * (part + 1) / parts; i++) {
        int64_t first = i % groups * GROUP, channels = w->channels - first < GROUP ? w->channels - first : GROUP;
        float *to = planes + (i / groups * w->channels + first) * plane;
        const float *from = x + i / groups * strides[0] + first * strides[1];
        if (dycl_pad_has_zeros(p)) memset(to, 0, (size_t)(channels * plane) * sizeof *to);
        for (int64_t y = 0; y < p->height; y++)
            copy_line(transpose, from + y * strides[2], strides, to + (p->above + y) * width + p->left, plane, channels,
                      p->width);
    }
}

/* ---- Packing: an element lies at the sum of what its pixel and its weight say */

static int64_t at_pixel(const dycl_windows *w, int64_t pixel) {
    int64_t line = pixel / w->out_width, image = line / w->out_height;
    return image * w->channels * plane_of(w) + line % w->out_height * w->stride[0] * dycl_pad_width(&w->pad) +
           pixel % w->out_width * w->stride[1];
}

static int64_t at_weight(const dycl_windows *w, int64_t weight) {
    int64_t places = dycl_windows_places(w), place = weight % places;
    return weight / places * plane_of(w) + place / w->window[1] * w->dilation[0] * dycl_pad_width(&w->pad) +
           place % w->window[1] * w->dilation[1];
}

static inline void pack_row(float *to, const float *from, const int64_t *at, int64_t width) {
    for (int64_t c = 0; c < width; c++) to[c] = from[at[c]];
}

/* What the columns of a panel are at, counted from `first`; those behind the last are as it. Returns how many. */
static int64_t find_columns(const dycl_windows *w, const dycl_gemm_layout *form, int64_t panel, int64_t first,
                            int64_t (*find)(const dycl_windows *, int64_t), int64_t *at) {
    int64_t column = dycl_gemm_column(form, panel), width = dycl_gemm_column(form, panel + 1) - column;
    for (int64_t c = 0; c < width; c++) at[c] = find(w, first + (column + c < form->n ? column + c : form->n - 1));
    return width;
}

void dycl_windows_pack_weights(const dycl_windows *w, const dycl_gemm_layout *form, const float *planes, int64_t first,
                               float *packed) {
    int64_t at[MOST_WIDE], lines = w->images * w->out_height;
    for (int64_t p = 0; p < dycl_gemm_panels(form); p++) {
        int64_t width = find_columns(w, form, p, first, at_weight, at);
        for (int64_t line = 0; line < lines; line++) {
            const float *from = planes + at_pixel(w, line * w->out_width);
            for (int64_t x = 0; x < w->out_width; x++, from += w->stride[1], packed += width)
                pack_row(packed, from, at, width);
        }
    }
}

void dycl_windows_pack_pixels(const dycl_windows *w, const dycl_gemm_layout *form, const float *planes, float *packed,
                              int64_t channel, int64_t end) {
    int64_t at[MOST_WIDE], places = dycl_windows_places(w);
    for (int64_t p = 0; p < dycl_gemm_panels(form); p++) {
        int64_t width = find_columns(w, form, p, 0, at_pixel, at);
        float *to = packed + dycl_gemm_column(form, p) * w->channels * places + channel * places * width;
        for (int64_t weight = channel * places; weight < end * places; weight += w->window[1]) {
            const float *row = planes + at_weight(w, weight);
            for (int64_t x = 0; x < w->window[1]; x++, row += w->dilation[1], to += width) pack_row(to, row, at, width);
        }
    }
}
