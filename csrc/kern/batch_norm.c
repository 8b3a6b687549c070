#include "kern/batch_norm.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "kern/parallel.h"

DYCL_ISA_CHOICE(const dycl_batch_table, dycl_batch_table)

#define PARTS 16 /* at most: that many threads sum one channel, or pixels */

/* Memory in channels last, or of one element a plane, is rows of channels; else each channel's planes are summed by
 * themselves, in parts where there are few. Parts depend on the sizes only. */
typedef struct {
    const dycl_batch *b;
    const dycl_batch_row *row;
    const char *g, *x;
    double *sums, *shift; /* [parts, 2, c] or [c, parts, 2]; what is taken from x before it is summed */
    int64_t parts, size, pixels;
    int rows_of_channels, threads;
} job;

static int64_t parts_of(const dycl_batch *b, int rows_of_channels) {
    int64_t total = b->n * b->inner, most = rows_of_channels ? PARTS : PARTS / b->c;
    int64_t useful = total * b->c * (int64_t)dycl_dtype_size(b->dtype) / DYCL_BYTES_PER_THREAD;
    if (useful < most) most = useful;
    if (total < most) most = total;
    return most < 1 ? 1 : most;
}

static int is_rows(const dycl_batch *b) { return b->channels_last || b->inner == 1; }

size_t dycl_kern_batch_scratch(const dycl_batch *b) {
    int64_t parts = parts_of(b, is_rows(b)), size = (int64_t)dycl_dtype_size(b->dtype);
    return (size_t)b->c * (size_t)((parts * 2 + 1) * (int64_t)sizeof(double) + 4 * size);
}

static job begin(const dycl_batch *b, const void *g, const void *x, void *scratch, size_t streams) {
    job j = {.b = b, .g = g, .x = x, .pixels = b->n * b->inner, .size = (int64_t)dycl_dtype_size(b->dtype)};
    j.row = &dycl_batch_table_for(dycl_cpu_isa())->row[b->dtype == DYCL_F64];
    j.rows_of_channels = is_rows(b);
    j.parts = parts_of(b, j.rows_of_channels);
    j.sums = scratch;
    j.shift = j.sums + j.parts * 2 * b->c;
    j.threads = dycl_kern_threads((size_t)(j.pixels * b->c * j.size) * streams);
    memset(j.sums, 0, (size_t)(j.parts * 2 * b->c) * sizeof(double));
    return j;
}

static const char *after(const job *j, const char *p, int64_t elements) { return p ? p + elements * j->size : NULL; }

/* A part of a channel's planes: whole images, or pieces of them. */
static void sum_planes(const job *j, int64_t task) {
    const dycl_batch *b = j->b;
    int64_t channel = task / j->parts, part = task % j->parts;
    int64_t at = j->pixels * part / j->parts, end = j->pixels * (part + 1) / j->parts;
    double *out = j->sums + task * 2, m = j->shift[channel];
    while (at < end) {
        int64_t image = at / b->inner, from = at % b->inner, left = b->inner - from, rows = 1;
        if (from == 0 && end - at >= left)
            rows = (end - at) / b->inner;
        else if (end - at < left)
            left = end - at;
        int64_t first = (image * b->c + channel) * b->inner + from;
        j->row->sums(out, after(j, j->g, first), after(j, j->x, first), m, rows, b->c * b->inner, (size_t)left);
        at += rows * left;
    }
}

static void sum_pixels(const job *j, int64_t part) {
    int64_t at = j->pixels * part / j->parts, end = j->pixels * (part + 1) / j->parts;
    int64_t first = at * j->b->c;
    j->row->pixels(j->sums + part * 2 * j->b->c, after(j, j->g, first), after(j, j->x, first), j->shift, end - at,
                   (size_t)j->b->c);
}

static double total(const job *j, int64_t channel, int which) {
    double sum = 0;
    for (int64_t p = 0; p < j->parts; p++)
        sum += j->rows_of_channels ? j->sums[(p * 2 + which) * j->b->c + channel]
                                   : j->sums[(channel * j->parts + p) * 2 + which];
    return sum;
}

static void sum(const job *j) {
    int64_t tasks = j->rows_of_channels ? j->parts : j->parts * j->b->c;
    void (*const task)(const job *, int64_t) = j->rows_of_channels ? sum_pixels : sum_planes;
    if (j->threads < 2) {
        for (int64_t i = 0; i < tasks; i++) task(j, i);
        return;
    }
#pragma omp parallel for num_threads(j->threads) schedule(static)
    for (int64_t i = 0; i < tasks; i++) task(j, i);
}

/* ---- Statistics */

/* Of a channel of doubles whose squares are too large: the mean, and the sum of squared distances from it, which is
 * infinite or not as torch's, that knows the mean before it sums. */
static double distances(const job *j, int64_t channel, double *out_mean) {
    const dycl_batch *b = j->b;
    double sums[2] = {0, 0}, mean = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < j->pixels; i++) {
            int64_t at =
                b->channels_last ? i * b->c + channel : (i / b->inner * b->c + channel) * b->inner + i % b->inner;
            double x = dycl_float_at(j->b->dtype, j->x, at) - mean;
            sums[pass] += pass ? x * x : x;
        }
        if (pass == 0) mean = sums[0] / (double)j->pixels;
    }
    *out_mean = mean;
    return sums[1];
}

/* Whether sums of floats may be infinite on the way, in some order: the sum of all |x|, which is at most n |m| and that
 * of |x - m|, is too large. What is infinite or NaN itself is so in any order. */
static int may_leave(const job *j) {
    double n = (double)j->pixels;
    for (int64_t c = 0; c < j->b->c; c++) {
        double most = n * fabs(j->shift[c]) + sqrt(n * total(j, c, 1));
        if (most > FLT_MAX && isfinite(most)) return 1;
    }
    return 0;
}

/* From the sums of x - m and its square, m an element of the channel: what is lost where they are far from zero is of
 * the doubles' size then. An m that is not finite would make NaN of a mean that is infinite. */
int dycl_kern_batch_stats(const dycl_batch *b, const void *x, const void *const running[2],
                          void *const out[DYCL_BATCH_RESULTS], void *scratch) {
    job j = begin(b, NULL, x, scratch, 1);
    double n = (double)j.pixels;
    for (int64_t c = 0; c < b->c; c++) {
        double m = dycl_float_at(b->dtype, x, b->channels_last ? c : c * b->inner);
        j.shift[c] = isfinite(m) ? m : 0;
    }
    sum(&j);
    if (b->float_sums && may_leave(&j)) return 0;
    for (int64_t c = 0; c < b->c; c++) {
        double s0 = total(&j, c, 0), m2 = total(&j, c, 1) - s0 * s0 / n, mean = j.shift[c] + s0 / n;
        if (m2 < 0) m2 = 0;
        if (b->dtype == DYCL_F64 && !isfinite(m2)) m2 = distances(&j, c, &mean);
        if (b->dtype == DYCL_F32) m2 = (float)m2; /* torch keeps this sum so: it may be infinite */
        if (out[DYCL_BATCH_MEAN]) dycl_float_put(b->dtype, out[DYCL_BATCH_MEAN], c, mean);
        if (out[DYCL_BATCH_INVSTD]) /* as torch has it: nothing divides by nothing */
            dycl_float_put(b->dtype, out[DYCL_BATCH_INVSTD], c, m2 == 0 && b->eps == 0 ? 0 : 1 / sqrt(m2 / n + b->eps));
        const double now[2] = {mean, m2 / (n - 1)};
        for (int i = 0; i < 2; i++)
            if (out[DYCL_BATCH_RUNNING_MEAN + i])
                dycl_float_put(b->dtype, out[DYCL_BATCH_RUNNING_MEAN + i], c,
                               b->momentum * now[i] + (1 - b->momentum) * dycl_float_at(b->dtype, running[i], c));
    }
    return 1;
}

/* ---- Back: x's gradient is what is left of the result's behind its mean and its part along x, times the scale */

typedef struct {
    job j;
    const void *invstd, *weight;
    char *out, *k;
    void *const *results;
} back_job;

/* From the sums of one channel: gradients of weight and bias, and the constants of `back`. */
static void finish(const back_job *w, int64_t c, char *k, int64_t stride) {
    const job *j = &w->j;
    double n = (double)j->pixels, all = total(j, c, 0), along = total(j, c, 1),
           s = dycl_float_at(j->b->dtype, w->invstd, c);
    if (w->results[1]) dycl_float_put(j->b->dtype, w->results[1], c, along * s);
    if (w->results[2]) dycl_float_put(j->b->dtype, w->results[2], c, all);
    dycl_float_put(j->b->dtype, k, 0, j->shift[c]);
    dycl_float_put(j->b->dtype, k, stride, all / n);
    if (j->b->dtype == DYCL_F32) along = (float)along; /* as torch has it: it may be infinite */
    dycl_float_put(j->b->dtype, k, 2 * stride, along * s * s / n);
    dycl_float_put(j->b->dtype, k, 3 * stride, w->weight ? s * dycl_float_at(j->b->dtype, w->weight, c) : s);
}

static void back_plane(const back_job *w, int64_t c) {
    const dycl_batch *b = w->j.b;
    int64_t first = c * b->inner * w->j.size;
    w->j.row->back(w->out + first, w->j.g + first, w->j.x + first, w->k + c * 4 * w->j.size, b->n, b->c * b->inner,
                   (size_t)b->inner);
}

/* A channel as a whole: what was summed is near when it is read again. */
static void back_channel(const back_job *w, int64_t c) {
    sum_planes(&w->j, c);
    finish(w, c, w->k + c * 4 * w->j.size, 1);
    if (w->out) back_plane(w, c);
}

static void back_channels(const back_job *w) {
    const dycl_batch *b = w->j.b;
    if (w->j.parts > 1) {
        sum(&w->j);
        for (int64_t c = 0; c < b->c; c++) finish(w, c, w->k + c * 4 * w->j.size, 1);
        if (!w->out) return;
        /* few channels, so in images too */
        int64_t plane = b->inner * w->j.size;
#pragma omp parallel for num_threads(w->j.threads) schedule(static)
        for (int64_t i = 0; i < b->n * b->c; i++)
            w->j.row->back(w->out + i * plane, w->j.g + i * plane, w->j.x + i * plane, w->k + i % b->c * 4 * w->j.size,
                           1, 0, (size_t)b->inner);
        return;
    }
    if (w->j.threads < 2) {
        for (int64_t c = 0; c < b->c; c++) back_channel(w, c);
        return;
    }
#pragma omp parallel for num_threads(w->j.threads) schedule(static)
    for (int64_t c = 0; c < b->c; c++) back_channel(w, c);
}

static void back_rows(const back_job *w) {
    const job *j = &w->j;
    int64_t channels = j->b->c, size = channels * j->size, parts = j->threads < 2 ? 1 : j->threads;
    sum(j);
    for (int64_t c = 0; c < channels; c++) finish(w, c, w->k + c * j->size, channels);
    if (!w->out) return;
    if (parts == 1) {
        j->row->back_pixels(w->out, j->g, j->x, w->k, j->pixels, (size_t)channels);
        return;
    }
#pragma omp parallel for num_threads(j->threads) schedule(static)
    for (int64_t p = 0; p < parts; p++) {
        int64_t at = j->pixels * p / parts, count = j->pixels * (p + 1) / parts - at;
        j->row->back_pixels(w->out + at * size, j->g + at * size, j->x + at * size, w->k, count, (size_t)channels);
    }
}

void dycl_kern_batch_norm_back(const dycl_batch *b, const void *gradient, const void *x, const void *const mean,
                               const void *invstd, const void *weight, void *const out[3], void *scratch) {
    back_job w = {.j = begin(b, gradient, x, scratch, 3), .invstd = invstd, .weight = weight, .results = out};
    w.out = out[0];
    w.k = (char *)(w.j.shift + b->c);
    for (int64_t c = 0; c < b->c; c++) w.j.shift[c] = dycl_float_at(b->dtype, mean, c);
    if (w.j.rows_of_channels)
        back_rows(&w);
    else
        back_channels(&w);
}
