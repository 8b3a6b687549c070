#include "kern/window_gradient.h"

#include "base/cpu.h"
#include "kern/transpose.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#define FEW_CHANNELS 16 /* of a place; a line of the window makes longer products */
#define BLOCK        32 /* outputs whose sums stay in the cache until they are written */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t rounded(int64_t bytes) { return (bytes + 63) & ~(int64_t)63; }

static int64_t pixels_of(const dycl_window_gradient *w) { return w->images * w->out_height * w->out_width; }
static int64_t places_of(const dycl_window_gradient *w) { return w->window[0] * w->window[1]; }

/* Of the images that are read: x, or what windows see with its zeros. */
static int64_t width_of(const dycl_window_gradient *w) {
    return dycl_pad_has_zeros(&w->pad) ? dycl_pad_width(&w->pad) : w->width;
}
static int64_t height_of(const dycl_window_gradient *w) {
    return dycl_pad_has_zeros(&w->pad) ? dycl_pad_height(&w->pad) : w->height;
}

static int by_lines(const dycl_window_gradient *w) { return w->products < places_of(w); }

/* Columns of a product, of so many channels. */
static int64_t columns_of(const dycl_window_gradient *w, int64_t channels) {
    return by_lines(w) ? w->window[1] * channels : channels;
}

/* Channels of a thread, at most: whole vectors. */
static int64_t most_channels(const dycl_window_gradient *w) {
    int64_t lanes = w->kernel->lanes;
    return w->across == 1 ? w->channels : dycl_divided_up(dycl_divided_up(w->channels, lanes), w->across) * lanes;
}

static int64_t most_outputs(const dycl_window_gradient *w) {
    return least(BLOCK, dycl_divided_up(w->outputs, w->down));
}

/* How long the slowest thread takes: products, and packing, which each that shares the outputs does for itself. */
static double cost(const dycl_window_gradient *w, int64_t across, int64_t down) {
    int64_t lanes = w->kernel->lanes, vectors = dycl_divided_up(dycl_divided_up(w->channels, lanes), across);
    return (double)(vectors * lanes) * ((double)dycl_divided_up(w->outputs, down) + 16);
}

void dycl_window_gradient_divide(dycl_window_gradient *w, int threads) {
    int lines = w->channels < FEW_CHANNELS && w->window[1] > 1 && w->dilation[1] == 1;
    double best = INFINITY;
    w->products = lines ? w->window[0] : places_of(w);
    for (int across = 1; across <= (lines ? 1 : threads); across++) {
        double c = cost(w, across, threads / across);
        if (c >= best) continue;
        best = c;
        w->across = across;
        w->down = threads / across;
    }
    w->across = (int)least(w->across, dycl_divided_up(w->channels, w->kernel->lanes));
    w->down = (int)least(w->down, w->outputs);
    w->vectors = dycl_gemm_vectors(w->kernel, most_outputs(w), columns_of(w, most_channels(w)));
}

/* ---- Memory: the image with its zeros, the gradient in planes, and for each thread what is packed and its sums */

static int64_t padded_bytes(const dycl_window_gradient *w) {
    return dycl_pad_has_zeros(&w->pad)
               ? rounded(w->images * height_of(w) * width_of(w) * w->channels * (int64_t)sizeof(float))
               : 0;
}

static int64_t planes_bytes(const dycl_window_gradient *w) {
    return rounded(pixels_of(w) * w->outputs * (int64_t)sizeof(float));
}

/* x for one product. */
static dycl_gemm_layout seen_of(const dycl_window_gradient *w, int64_t columns) {
    int64_t width = width_of(w);
    return (dycl_gemm_layout){
        .kernel = w->kernel,
        .n = columns,
        .sizes = {w->images, w->out_height, w->out_width},
        .strides = {height_of(w) * width * w->channels, w->stride[0] * width * w->channels, w->stride[1] * w->channels},
        .column = 1,
        .vectors = w->vectors};
}

static int64_t packed_bytes(const dycl_window_gradient *w) {
    dycl_gemm_layout seen = seen_of(w, columns_of(w, most_channels(w)));
    return rounded((int64_t)dycl_gemm_bytes(&seen));
}

static int64_t thread_bytes(const dycl_window_gradient *w) {
    return packed_bytes(w) * w->products +
           rounded(most_outputs(w) * places_of(w) * most_channels(w) * (int64_t)sizeof(float));
}

size_t dycl_window_gradient_bytes(const dycl_window_gradient *w) {
    return (size_t)(padded_bytes(w) + planes_bytes(w) + thread_bytes(w) * w->across * w->down);
}

/* ---- The work */

/* What a thread makes, of what and with what. */
typedef struct {
    const dycl_window_gradient *w;
    const float *x, *planes;
    float *dst, *sums;
    char *packed;
    int64_t channel, channels, output, end;
} share;

static float *packed_at(const share *s, int64_t product) { return (float *)(s->packed + product * packed_bytes(s->w)); }

/* All that the thread's products see of x: it stays for all blocks of outputs. */
static void pack(const share *s) {
    const dycl_window_gradient *w = s->w;
    const dycl_gemm_layout seen = seen_of(w, columns_of(w, s->channels));
    for (int64_t product = 0; product < w->products; product++) {
        int64_t row = by_lines(w) ? product : product / w->window[1], place = by_lines(w) ? 0 : product % w->window[1];
        const float *x =
            s->x + s->channel + (row * w->dilation[0] * width_of(w) + place * w->dilation[1]) * w->channels;
        dycl_gemm_pack(&seen, x, NULL, packed_at(s, product), 1);
    }
}

/* The sums of `outputs` outputs from `output` for one product. */
static void multiply(const share *s, int64_t product, int64_t output, int64_t outputs) {
    const dycl_window_gradient *w = s->w;
    int64_t columns = columns_of(w, s->channels), plane = w->out_height * w->out_width;
    int is_weight = places_of(w) == 1; /* what is summed up lies as weights do */
    const dycl_gemm_layout seen = seen_of(w, columns);
    const dycl_gemm_rows rows = {.a = (const char *)(s->planes + output * plane),
                                 .run = outputs,
                                 .runs = 1,
                                 .a_row = plane * (int64_t)sizeof(float),
                                 .run_inner = 1,
                                 .segment_count = w->images,
                                 .segment_stride = w->outputs * plane * (int64_t)sizeof(float),
                                 .depth = plane,
                                 .unique = w->images * plane * (int64_t)sizeof(float),
                                 .c = is_weight ? s->dst + output * w->channels + s->channel
                                                : s->sums + product * columns,
                                 .c_row = is_weight ? w->channels : places_of(w) * s->channels};
    const dycl_gemm_finish finish = {.low = -INFINITY, .high = INFINITY};
    dycl_gemm_run(&seen, &rows, packed_at(s, product), &finish, 1);
}

/* Sums [outputs, places, channels] to weights [outputs, channels, places]. */
static void write_weights(const share *s, int64_t output, int64_t outputs) {
    const dycl_window_gradient *w = s->w;
    int64_t places = places_of(w);
    for (int64_t o = 0; o < outputs; o++) {
        const float *from = s->sums + o * places * s->channels;
        float *to = s->dst + ((output + o) * w->channels + s->channel) * places;
        for (int64_t c = 0; c < s->channels; c++)
            for (int64_t place = 0; place < places; place++) *to++ = from[place * s->channels + c];
    }
}

static void run_share(const share *s) {
    const dycl_window_gradient *w = s->w;
    pack(s);
    for (int64_t output = s->output; output < s->end; output += BLOCK) {
        int64_t outputs = least(BLOCK, s->end - output);
        for (int64_t product = 0; product < w->products; product++) multiply(s, product, output, outputs);
        if (places_of(w) > 1) write_weights(s, output, outputs);
    }
}

/* Thread `part` of so many makes its part of the image with zeros and of the gradient's planes. */
static void prepare(const dycl_window_gradient *w, const float *x, const float *gradient, float *padded, float *planes,
                    int64_t part, int64_t parts) {
    dycl_transpose4 *transpose = dycl_kern_transpose4(w->kernel->isa);
    int64_t lines = w->images * height_of(w), plane = w->out_height * w->out_width,
            groups = dycl_divided_up(w->outputs, 16), all = w->images * groups;
    const int64_t strides[4] = {w->height * w->width * w->channels, 1, w->width * w->channels, w->channels};
    if (padded) dycl_kern_pad(padded, x, strides, &w->pad, lines * part / parts, lines * (part + 1) / parts);
    for (int64_t i = all * part / parts; i < all * (part + 1) / parts; i++) {
        int64_t image = i / groups, output = i % groups * 16;
        transpose((dycl_word *)(planes + (image * w->outputs + output) * plane), plane,
                  (const dycl_word *)(gradient + image * plane * w->outputs + output), w->outputs,
                  (size_t)least(16, w->outputs - output), (size_t)plane);
    }
}

static share share_of(const dycl_window_gradient *w, int part) {
    int64_t i = part % w->across, j = part / w->across, channels = most_channels(w),
            channel = least(i * channels, w->channels);
    return (share){.w = w,
                   .channel = channel,
                   .channels = least(channels, w->channels - channel),
                   .output = w->outputs * j / w->down,
                   .end = w->outputs * (j + 1) / w->down};
}

void dycl_window_gradient_run(const dycl_window_gradient *w, const float *x, const float *gradient, float *dst,
                              char *work) {
    int parts = w->across * w->down;
    float *padded = dycl_pad_has_zeros(&w->pad) ? (float *)work : NULL, *planes = (float *)(work + padded_bytes(w));
    char *rest = (char *)planes + planes_bytes(w);
#pragma omp parallel num_threads(parts) if (parts > 1)
    {
        int team = omp_get_num_threads(), self = omp_get_thread_num();
        prepare(w, x, gradient, padded, planes, self, team);
#pragma omp barrier
        for (int part = self; part < parts; part += team) {
            share s = share_of(w, part);
            s.x = padded ? padded : x;
            s.planes = planes;
            s.dst = dst;
            s.packed = rest + part * thread_bytes(w);
            s.sums = (float *)(s.packed + packed_bytes(w) * w->products);
            if (s.channels > 0) run_share(&s);
        }
    }
}
