#include "kern/winograd.h"

#include "base/cpu.h"
#include "kern/transpose.h"
#include "kern/winograd_squares.h"

#include <omp.h>
#include <string.h>

#define PLACES     DYCL_WINOGRAD_PLACES
#define divided_up dycl_winograd_share
#define AT_ONCE    8  /* squares of the gradient that are transposed together */
#define OUTPUTS    64 /* at most, whose sums are made together: sums take 16 floats a window */

/* Outputs by outputs, blocks of squares are transformed, by all threads, then multiplied: each thread has some of the
 * places of some of the panels. V lies in panels of channels, place by place, the gradient transposed: its rows are
 * outputs. */
typedef struct {
    const dycl_winograd *w;
    const dycl_gemm_kernel *kernel;
    const dycl_winograd_transforms *transforms;
    dycl_transpose4 *transpose;
    const float *src, *gradient;
    float *dst, *v, *g, *sums;
    dycl_winograd_squares squares;
    int64_t block, panels;
    int64_t first, outputs; /* that are summed up now */
} work;

static int64_t chunks_of(const dycl_winograd *w) { return divided_up(w->outputs, OUTPUTS); }

/* The outputs before those of a chunk, in whole vectors. */
static int64_t chunk_output(const dycl_winograd *w, const dycl_gemm_kernel *kernel, int64_t chunk) {
    return w->outputs / kernel->lanes * chunk / chunks_of(w) * kernel->lanes;
}

/* Of the largest chunk, rounded up to vectors. */
static int64_t most_outputs(const dycl_winograd *w, const dycl_gemm_kernel *kernel) {
    return divided_up(w->outputs / kernel->lanes, chunks_of(w)) * kernel->lanes;
}

/* As many vectors as the widest tile with at least six rows has. */
static int64_t vectors_of(const dycl_gemm_kernel *kernel) {
    int64_t best = 1;
    for (int64_t v = 2; v <= DYCL_GEMM_VECTORS; v++)
        if (kernel->rows[v] >= 6) best = v;
    return best;
}

static int64_t panels_of(const dycl_winograd *w, const dycl_gemm_kernel *kernel) {
    return divided_up(w->channels / kernel->lanes, vectors_of(kernel));
}

static int64_t panel_channel(const work *k, int64_t panel) {
    return k->w->channels / k->kernel->lanes * panel / k->panels * k->kernel->lanes;
}

/* Long sums read and write less of what is summed up; what is transformed for them has to stay in the last cache. */
static int64_t block_of(const dycl_winograd *w, const dycl_gemm_kernel *kernel) {
    int64_t squares = dycl_winograd_divide(w).count, columns = w->channels + most_outputs(w, kernel),
            most = 4 * dycl_cpu_cache() / (PLACES * columns * (int64_t)sizeof(float));
    if (most < 32) most = 32;
    if (most > DYCL_GEMM_DEPTH) most = DYCL_GEMM_DEPTH;
    return divided_up(squares, divided_up(squares, most));
}

/* Of a thread: a pixel outside, and squares of the gradient before they are transposed. */
static int64_t own_scratch(const dycl_winograd *w, const dycl_gemm_kernel *kernel) {
    return (w->channels > w->outputs ? w->channels : w->outputs) + PLACES * AT_ONCE * most_outputs(w, kernel);
}

size_t dycl_winograd_gradient_scratch(const dycl_winograd *w, const dycl_gemm_kernel *kernel, int threads) {
    int64_t outputs = most_outputs(w, kernel);
    int64_t shared = PLACES * (block_of(w, kernel) * (w->channels + outputs) + w->channels * outputs);
    return (size_t)(shared + threads * own_scratch(w, kernel)) * sizeof(float);
}

static int read_image(const work *k, const float *zeros, int64_t begin, int64_t squares, int64_t from, int64_t to) {
    int large = 0;
    for (int64_t p = 0; p < k->panels; p++) {
        int64_t first = panel_channel(k, p), width = panel_channel(k, p + 1) - first;
        float *v = k->v + PLACES * first * squares;
        for (int64_t s = from; s < to; s++) {
            const float *square[PLACES];
            int edge = dycl_winograd_inputs(&k->squares, begin + s, k->src, first, zeros, square);
            large |= k->transforms->input(v + s * width, squares * width, square, width, k->w->limit, edge);
        }
    }
    return large;
}

static int read_gradient(const work *k, const float *zeros, float *plain, int64_t begin, int64_t squares, int64_t from,
                         int64_t to) {
    int64_t outputs = k->outputs;
    int large = 0;
    for (int64_t s0 = from; s0 < to; s0 += AT_ONCE) {
        int64_t count = to - s0 < AT_ONCE ? to - s0 : AT_ONCE;
        for (int64_t s = 0; s < count; s++) {
            int64_t at[4];
            const float *square[4];
            dycl_winograd_outputs(&k->squares, begin + s0 + s, at);
            for (int i = 0; i < 4; i++) square[i] = at[i] >= 0 ? k->gradient + at[i] + k->first : zeros;
            large |= k->transforms->gradient(plain + s * outputs, AT_ONCE * outputs, square, outputs, k->w->limit);
        }
        for (int64_t p = 0; p < PLACES; p++)
            k->transpose((dycl_word *)(k->g + p * outputs * squares + s0), squares,
                         (const dycl_word *)(plain + p * AT_ONCE * outputs), outputs, (size_t)outputs, (size_t)count);
    }
    return large;
}

/* One place of one panel: [outputs, squares] times [squares, width]. */
static void multiply(const work *k, int64_t squares, int add, int64_t panel, int64_t place) {
    int64_t first = panel_channel(k, panel), width = panel_channel(k, panel + 1) - first, outputs = k->outputs,
            segment = 0;
    int64_t vectors = width / k->kernel->lanes, tiles = divided_up(outputs, k->kernel->rows[vectors]);
    const float *a = k->g + place * outputs * squares;
    float *c = k->sums + PLACES * first * outputs + place * outputs * width;
    dycl_gemm_tile t = {.segments = &segment, .segment_count = 1, .depth = squares, .c_row = width, .columns = width};
    t.a_row = squares * (int64_t)sizeof(float);
    t.b = k->v + PLACES * first * squares + place * squares * width;
    t.accumulate = add;
    for (int64_t i = 0; i < tiles; i++) {
        int64_t from = outputs * i / tiles, count = outputs * (i + 1) / tiles - from;
        t.a = t.next = (const char *)(a + from * squares);
        t.c = c + from * width;
        k->kernel->tile[vectors][count](&t);
    }
}

static void write_windows(const work *k, int64_t from, int64_t to) {
    int64_t outputs = k->outputs;
    for (int64_t p = 0; p < k->panels; p++) {
        int64_t first = panel_channel(k, p), width = panel_channel(k, p + 1) - first;
        for (int64_t n = from; n < to; n++)
            k->transforms->windows(k->dst + ((k->first + n) * k->w->channels + first) * 9,
                                   k->sums + PLACES * first * outputs + n * width, outputs * width, width);
    }
}

static inline void wait_for(int64_t team) {
    if (team < 2) return;
#pragma omp barrier
}

/* fresh: V is not there yet. */
static int run_chunk(const work *k, float *zeros, float *plain, int64_t self, int64_t team, int fresh) {
    int64_t count = k->squares.count, blocks = divided_up(count, k->block), units = k->panels * PLACES;
    int large = 0;
    for (int64_t b = 0; b < blocks; b++) {
        int64_t begin = count * b / blocks, squares = count * (b + 1) / blocks - begin;
        int64_t from = squares * self / team, to = squares * (self + 1) / team;
        if (fresh || blocks > 1) large |= read_image(k, zeros, begin, squares, from, to);
        large |= read_gradient(k, zeros, plain, begin, squares, from, to);
        wait_for(team);
        for (int64_t u = units * self / team; u < units * (self + 1) / team; u++)
            multiply(k, squares, b > 0, u / PLACES, u % PLACES);
        wait_for(team);
    }
    write_windows(k, k->outputs * self / team, k->outputs * (self + 1) / team);
    wait_for(team); /* the next chunk's sums lie there */
    return large;
}

static int run_share(const work *all, float *own, int64_t self, int64_t team) {
    work k = *all;
    int64_t most = k.w->channels > k.w->outputs ? k.w->channels : k.w->outputs, chunks = chunks_of(k.w);
    int large = 0;
    memset(own, 0, (size_t)most * sizeof *own);
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        k.first = chunk_output(k.w, k.kernel, chunk);
        k.outputs = chunk_output(k.w, k.kernel, chunk + 1) - k.first;
        large |= run_chunk(&k, own, own + most, self, team, chunk == 0);
    }
    return large;
}

int dycl_winograd_gradient(const dycl_winograd *w, const dycl_gemm_kernel *kernel, const float *src,
                           const float *gradient, float *dst, float *scratch, int threads) {
    work k = {.w = w,
              .kernel = kernel,
              .transforms = dycl_kern_winograd(kernel->isa),
              .transpose = dycl_kern_transpose4(kernel->isa),
              .src = src,
              .gradient = gradient,
              .dst = dst,
              .squares = dycl_winograd_divide(w),
              .block = block_of(w, kernel),
              .panels = panels_of(w, kernel)};
    k.v = scratch;
    k.g = k.v + PLACES * k.block * w->channels;
    k.sums = k.g + PLACES * k.block * most_outputs(w, kernel);
    float *own = k.sums + PLACES * w->channels * most_outputs(w, kernel);
    if (threads < 2) return !run_share(&k, own, 0, 1);
    int large = 0;
    int64_t each = own_scratch(w, kernel);
#pragma omp parallel num_threads(threads) reduction(| : large)
    {
        int64_t self = omp_get_thread_num();
        large = run_share(&k, own + self * each, self, omp_get_num_threads());
    }
    return !large;
}
