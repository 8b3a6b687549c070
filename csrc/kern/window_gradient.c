#include "kern/window_gradient.h"

#include "base/cpu.h"
#include "kern/transpose.h"

#include <math.h>
#include <omp.h>

#define BLOCK 32 /* outputs that are summed up together: lines of weights that panels share stay in the cache */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t rounded(int64_t bytes) { return (bytes + 63) & ~(int64_t)63; }

/* Single pixels are packed from where they are, which is as fast as a copy. */
static int is_direct(const dycl_window_gradient *g) {
    return dycl_windows_places(&g->windows) == 1 && !dycl_pad_has_zeros(&g->windows.pad);
}

/* Weights of an output for a thread, at most: whole vectors. */
static int64_t most_weights(const dycl_window_gradient *g) {
    int64_t lanes = g->kernel->lanes, all = dycl_windows_weights(&g->windows);
    return g->across == 1 ? all : dycl_divided_up(dycl_divided_up(all, lanes), g->across) * lanes;
}

/* How long the slowest thread takes: products, and packing, which each that shares the outputs does for itself. */
static double cost(const dycl_window_gradient *g, int64_t across, int64_t down) {
    int64_t vectors = dycl_divided_up(dycl_windows_weights(&g->windows), g->kernel->lanes);
    return (double)dycl_divided_up(vectors, across) * ((double)dycl_divided_up(g->outputs, down) + 16);
}

void dycl_window_gradient_divide(dycl_window_gradient *g, int threads) {
    double best = INFINITY;
    for (int across = 1; across <= threads; across++) {
        double c = cost(g, across, threads / across);
        if (c >= best) continue;
        best = c;
        g->across = across;
        g->down = threads / across;
    }
    g->across = (int)least(g->across, dycl_divided_up(dycl_windows_weights(&g->windows), g->kernel->lanes));
    g->down = (int)least(g->down, g->outputs);
    g->vectors = dycl_gemm_vectors(g->kernel, least(BLOCK, dycl_divided_up(g->outputs, g->down)), most_weights(g));
}

/* ---- Memory: the image in planes, the gradient too, and for each thread what is packed */

static int64_t planes_bytes(const dycl_window_gradient *g) {
    return is_direct(g) ? 0 : (int64_t)dycl_windows_planes_bytes(&g->windows);
}

static int64_t turned_bytes(const dycl_window_gradient *g) {
    return rounded(dycl_windows_pixels(&g->windows) * g->outputs * (int64_t)sizeof(float));
}

/* x for so many weights of an output. */
static dycl_gemm_layout seen_of(const dycl_window_gradient *g, int64_t weights) {
    const dycl_windows *w = &g->windows;
    return (dycl_gemm_layout){.kernel = g->kernel,
                              .n = weights,
                              .sizes = {w->images, w->out_height, w->out_width}, /* strides: of single pixels */
                              .strides = {w->height * w->width * w->channels, w->stride[0] * w->width * w->channels,
                                          w->stride[1] * w->channels},
                              .column = 1,
                              .vectors = g->vectors};
}

static int64_t thread_bytes(const dycl_window_gradient *g) {
    dycl_gemm_layout seen = seen_of(g, most_weights(g));
    return rounded((int64_t)dycl_gemm_bytes(&seen));
}

size_t dycl_window_gradient_bytes(const dycl_window_gradient *g) {
    return (size_t)(planes_bytes(g) + turned_bytes(g) + thread_bytes(g) * g->across * g->down);
}

/* ---- The work */

/* What a thread makes, of what and with what. */
typedef struct {
    const dycl_window_gradient *g;
    const float *x, *planes, *turned; /* turned: the gradient [outputs, pixels] */
    float *dst, *packed;
    int64_t weight, weights, output, end;
} share;

static void run_share(const share *s) {
    const dycl_window_gradient *g = s->g;
    const int64_t pixels = dycl_windows_pixels(&g->windows), all = dycl_windows_weights(&g->windows);
    const dycl_gemm_layout seen = seen_of(g, s->weights);
    const dycl_gemm_finish finish = {.low = -INFINITY, .high = INFINITY};
    if (is_direct(g))
        dycl_gemm_pack(&seen, s->x + s->weight, NULL, s->packed, 1);
    else
        dycl_windows_pack_weights(&g->windows, &seen, s->planes, s->weight, s->packed);
    for (int64_t output = s->output; output < s->end; output += BLOCK) {
        const dycl_gemm_rows rows = dycl_gemm_matrix(s->turned + output * pixels, least(BLOCK, s->end - output), pixels,
                                                     pixels, s->dst + output * all + s->weight, all);
        dycl_gemm_run(&seen, &rows, s->packed, &finish, 1);
    }
}

/* Thread `part` of so many makes its part of the planes and of the gradient turned around. */
static void prepare(const dycl_window_gradient *g, const float *x, const float *gradient, float *planes, float *turned,
                    int64_t part, int64_t parts) {
    const dycl_windows *w = &g->windows;
    dycl_transpose4 *transpose = dycl_kern_transpose4(g->kernel->isa);
    const int64_t strides[4] = {w->height * w->width * w->channels, 1, w->width * w->channels, w->channels};
    int64_t pixels = dycl_windows_pixels(w), groups = dycl_divided_up(g->outputs, 16);
    if (planes) dycl_windows_planes(w, g->kernel->isa, x, strides, planes, part, parts);
    for (int64_t i = groups * part / parts; i < groups * (part + 1) / parts; i++)
        transpose((dycl_word *)(turned + i * 16 * pixels), pixels, (const dycl_word *)(gradient + i * 16), g->outputs,
                  (size_t)least(16, g->outputs - i * 16), (size_t)pixels);
}

static share share_of(const dycl_window_gradient *g, int part) {
    int64_t i = part % g->across, j = part / g->across, weights = most_weights(g),
            all = dycl_windows_weights(&g->windows), weight = least(i * weights, all);
    return (share){.g = g,
                   .weight = weight,
                   .weights = least(weights, all - weight),
                   .output = g->outputs * j / g->down,
                   .end = g->outputs * (j + 1) / g->down};
}

void dycl_window_gradient_run(const dycl_window_gradient *g, const float *x, const float *gradient, float *dst,
                              char *work) {
    int parts = g->across * g->down;
    float *planes = is_direct(g) ? NULL : (float *)work, *turned = (float *)(work + planes_bytes(g));
    char *rest = (char *)turned + turned_bytes(g);
#pragma omp parallel num_threads(parts) if (parts > 1)
    {
        int team = omp_get_num_threads(), self = omp_get_thread_num();
        prepare(g, x, gradient, planes, turned, self, team);
#pragma omp barrier
        for (int part = self; part < parts; part += team) {
            share s = share_of(g, part);
            s.x = x;
            s.planes = planes;
            s.turned = turned;
            s.dst = dst;
            s.packed = (float *)(rest + part * thread_bytes(g));
            if (s.weights > 0) run_share(&s);
        }
    }
}
