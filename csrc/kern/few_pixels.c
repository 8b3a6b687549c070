#include "kern/few_pixels.h"

#include "kern/transpose.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#define GROUP 16 /* channels or outputs: a line of memory */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t rounded(int64_t floats) { return (floats * (int64_t)sizeof(float) + 63) & ~(int64_t)63; }

/* Writes `count` sums, of which the first is at `at` of a pixel's, with what follows of them. NaN stay. residual: NULL,
 * or that of these sums, which may be where they are written. */
static void write_sums(const dycl_gemm_finish *finish, const float *residual, const float *sums, float *to, int64_t at,
                       int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        float sum = sums[i];
        if (finish->bias) sum += finish->bias[at + i];
        if (residual) sum += residual[i];
        sum = sum < finish->low ? finish->low : sum;
        to[i] = sum > finish->high ? finish->high : sum;
    }
}

/* ---- Forward: C' [outputs, pixels] = weights seen' */

static dycl_gemm_layout pixels_of(const dycl_few_pixels *f) {
    int64_t pixels = dycl_windows_pixels(&f->windows);
    return (dycl_gemm_layout){.kernel = f->kernel,
                              .n = pixels,
                              .sizes = {1, 1, dycl_windows_weights(&f->windows)},
                              .vectors = dycl_gemm_vectors(f->kernel, f->outputs, pixels)};
}

static int64_t packed_bytes(const dycl_few_pixels *f) {
    dycl_gemm_layout form = pixels_of(f);
    return ((int64_t)dycl_gemm_bytes(&form) + 63) & ~(int64_t)63;
}

size_t dycl_few_pixels_bytes(const dycl_few_pixels *f) {
    return dycl_windows_planes_bytes(&f->windows) +
           (size_t)(packed_bytes(f) + rounded(f->outputs * dycl_windows_pixels(&f->windows)));
}

/* The outputs [from, end), whose sums for all pixels are at `sums`. */
static void write_outputs(const dycl_few_pixels *f, const float *sums, const dycl_gemm_finish *finish, float *dst,
                          int64_t from, int64_t end) {
    dycl_transpose4 *transpose = dycl_kern_transpose4(f->kernel->isa);
    int64_t pixels = dycl_windows_pixels(&f->windows), outputs = f->outputs;
    float square[GROUP * GROUP];
    for (int64_t o = from; o < end; o += GROUP)
        for (int64_t p = 0; p < pixels; p += GROUP) {
            int64_t count = least(GROUP, end - o), lines = least(GROUP, pixels - p);
            transpose((dycl_word *)square, GROUP, (const dycl_word *)(sums + o * pixels + p), pixels, (size_t)lines,
                      (size_t)count);
            for (int64_t i = 0; i < lines; i++) {
                int64_t at = (p + i) * outputs + o;
                write_sums(finish, finish->residual ? finish->residual + at : NULL, square + i * GROUP, dst + at, o,
                           count);
            }
        }
}

void dycl_few_pixels_run(const dycl_few_pixels *f, const float *x, const int64_t *strides, const float *weights,
                         const dycl_gemm_finish *finish, float *dst, char *work) {
    const dycl_windows *w = &f->windows;
    const dycl_gemm_layout form = pixels_of(f);
    const dycl_gemm_finish later = {.low = -INFINITY, .high = INFINITY};
    const int64_t all = dycl_windows_weights(w), pixels = form.n, groups = dycl_divided_up(f->outputs, GROUP);
    float *planes = (float *)work, *packed = (float *)(work + dycl_windows_planes_bytes(w)),
          *sums = (float *)((char *)packed + packed_bytes(f));
#pragma omp parallel num_threads(f->threads) if (f->threads > 1)
    {
        int64_t team = omp_get_num_threads(), self = omp_get_thread_num();
        dycl_windows_planes(w, f->kernel->isa, x, strides, planes, self, team);
#pragma omp barrier
        dycl_windows_pack_pixels(w, &form, planes, packed, w->channels * self / team, w->channels * (self + 1) / team);
#pragma omp barrier
        int64_t from = least(groups * self / team * GROUP, f->outputs),
                end = least(groups * (self + 1) / team * GROUP, f->outputs);
        if (from < end) {
            const dycl_gemm_rows rows =
                dycl_gemm_matrix(weights + from * all, end - from, all, all, sums + from * pixels, pixels);
            dycl_gemm_run(&form, &rows, packed, &later, 1);
            write_outputs(f, sums, finish, dst, from, end);
        }
    }
}

/* ---- Back: [pixels, weights] = gradient weights */

#define SOME  8 /* channels whose weights are copied together: what is copied stays in the second cache */
#define AHEAD 8 /* lines of weights that are fetched before they are copied */

static dycl_gemm_layout channels_of(const dycl_few_pixels *f, int64_t channels) {
    int64_t n = channels * dycl_windows_places(&f->windows);
    return (dycl_gemm_layout){.kernel = f->kernel,
                              .n = n,
                              .sizes = {1, 1, f->outputs},
                              .strides = {0, 0, dycl_windows_weights(&f->windows)},
                              .column = 1,
                              .vectors = dycl_gemm_vectors(f->kernel, dycl_windows_pixels(&f->windows), n)};
}

static int64_t copied_bytes(const dycl_few_pixels *f) {
    int64_t lanes = f->kernel->lanes, n = SOME * dycl_windows_places(&f->windows);
    return rounded(dycl_divided_up(n, lanes) * lanes * f->outputs);
}

static int64_t thread_bytes(const dycl_few_pixels *f) {
    return copied_bytes(f) + rounded(dycl_windows_pixels(&f->windows) * SOME * dycl_windows_places(&f->windows));
}

size_t dycl_few_pixels_back_bytes(const dycl_few_pixels *f) { return (size_t)(thread_bytes(f) * f->threads); }

/* A line of a panel, of so many columns, and zeros up to `width`. */
static inline void copy_line(const float *from, float *to, int64_t columns, int64_t width) {
    int64_t c = 0;
    for (; c + 8 <= columns; c += 8) memcpy(to + c, from + c, 8 * sizeof *to);
    for (; c < columns; c++) to[c] = from[c];
    for (; c < width; c++) to[c] = 0;
}

/* As dycl_gemm_pack does, but each line of weights is read whole, once, and fetched in time: in two thirds of its time.
 */
static void copy_weights(const dycl_few_pixels *f, const dycl_gemm_layout *form, const float *from, float *to) {
    int64_t row = form->strides[2], panels = dycl_gemm_panels(form), at[SOME * DYCL_FEW_PIXELS_PLACES / 8 + 1];
    for (int64_t p = 0; p <= panels; p++) at[p] = dycl_gemm_column(form, p);
    for (int64_t l = 0; l < f->outputs; l++, from += row) {
        for (int64_t c = 0; c < form->n; c += 16) __builtin_prefetch(from + AHEAD * row + c);
        for (int64_t p = 0; p < panels; p++) {
            int64_t width = at[p + 1] - at[p];
            copy_line(from + at[p], to + at[p] * f->outputs + l * width, least(form->n - at[p], width), width);
        }
    }
}

/* The pixel of the result that sees line or column `at` of the image through that place of its window, or -1. */
static int64_t seen_from(const dycl_windows *w, int axis, int64_t at, int64_t place) {
    int64_t first = at - place * w->dilation[axis], size = axis ? w->out_width : w->out_height;
    if (first < 0 || first % w->stride[axis]) return -1;
    return first / w->stride[axis] < size ? first / w->stride[axis] : -1;
}

/* What `channels` channels of one pixel of the image are given: parts [pixels, channels, places]. */
static void gather(const dycl_few_pixels *f, const float *parts, int64_t image, int64_t y, int64_t x, int64_t channels,
                   float *sums) {
    const dycl_windows *w = &f->windows;
    int64_t places = dycl_windows_places(w);
    memset(sums, 0, (size_t)channels * sizeof *sums);
    for (int64_t i = 0; i < w->window[0]; i++) {
        int64_t line = seen_from(w, 0, y + f->before[0], i);
        for (int64_t j = 0; line >= 0 && j < w->window[1]; j++) {
            int64_t column = seen_from(w, 1, x + f->before[1], j);
            if (column < 0) continue;
            const float *from = parts + ((image * w->out_height + line) * w->out_width + column) * channels * places +
                                i * w->window[1] + j;
            for (int64_t c = 0; c < channels; c++) sums[c] += from[c * places];
        }
    }
}

static void make_channels(const dycl_few_pixels *f, const float *gradient, const float *weights,
                          const dycl_gemm_finish *finish, float *dst, char *work, int64_t first, int64_t channels) {
    const dycl_windows *w = &f->windows;
    const dycl_gemm_layout form = channels_of(f, channels);
    const dycl_gemm_finish later = {.low = -INFINITY, .high = INFINITY};
    float *copied = (float *)work, *parts = (float *)(work + copied_bytes(f)), sums[SOME];
    const dycl_gemm_rows rows =
        dycl_gemm_matrix(gradient, dycl_windows_pixels(w), f->outputs, f->outputs, parts, form.n);
    copy_weights(f, &form, weights + first * dycl_windows_places(w), copied);
    dycl_gemm_run(&form, &rows, copied, &later, 1);
    for (int64_t image = 0; image < w->images; image++)
        for (int64_t y = 0; y < w->height; y++)
            for (int64_t x = 0; x < w->width; x++) {
                int64_t at = ((image * w->height + y) * w->width + x) * w->channels + first;
                gather(f, parts, image, y, x, channels, sums);
                write_sums(finish, finish->residual ? finish->residual + at : NULL, sums, dst + at, first, channels);
            }
}

void dycl_few_pixels_back(const dycl_few_pixels *f, const float *gradient, const float *weights,
                          const dycl_gemm_finish *finish, float *dst, char *work) {
    const int64_t channels = f->windows.channels, groups = dycl_divided_up(channels, SOME);
#pragma omp parallel num_threads(f->threads) if (f->threads > 1)
    {
        int64_t team = omp_get_num_threads(), self = omp_get_thread_num();
        for (int64_t i = groups * self / team; i < groups * (self + 1) / team; i++)
            make_channels(f, gradient, weights, finish, dst, work + self * thread_bytes(f), i * SOME,
                          least(SOME, channels - i * SOME));
    }
}
