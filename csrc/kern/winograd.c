#include "kern/winograd.h"

#include "base/cpu.h"
#include "kern/kern.h"
#include "kern/winograd_squares.h"

#include <omp.h>
#include <string.h>

#define PLACES     DYCL_WINOGRAD_PLACES
#define divided_up dycl_winograd_share

DYCL_ISA_CHOICE(const dycl_winograd_transforms, dycl_winograd)
const dycl_winograd_transforms *dycl_kern_winograd(dycl_isa isa) { return dycl_winograd_for(isa); }

/* ---- U: panel by panel, in a panel place by place, in a place channel by channel */

static int64_t panels_of(const dycl_gemm_layout *f) {
    return divided_up(divided_up(f->n, f->kernel->lanes), f->vectors);
}

static int64_t panel_column(const dycl_gemm_layout *f, int64_t panel) {
    return divided_up(f->n, f->kernel->lanes) * panel / panels_of(f) * f->kernel->lanes;
}

size_t dycl_winograd_bytes(const dycl_gemm_layout *form) { return PLACES * dycl_gemm_bytes(form); }

void dycl_winograd_pack(const dycl_gemm_layout *form, const float *weights, const float *scale, float *packed,
                        int threads) {
    const dycl_winograd_transforms *transforms = dycl_winograd_for(form->kernel->isa);
    int64_t channels = form->sizes[2], panels = panels_of(form);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t p = 0; p < panels; p++) {
        int64_t first = panel_column(form, p), width = panel_column(form, p + 1) - first;
        float *to = packed + PLACES * first * channels;
        const float *from = weights + first * form->column;
        for (int64_t c = 0; c < channels; c++)
            transforms->weights(to + c * width, channels * width, from + c * form->strides[2], form->column,
                                form->strides[1], scale ? scale + first : NULL, width);
    }
}

/* ---- The driver */

typedef struct {
    const dycl_winograd *w;
    const dycl_gemm_layout *form;
    const dycl_winograd_transforms *transforms;
    const float *src, *packed;
    const dycl_gemm_finish *finish;
    float *dst;
    dycl_winograd_squares squares;
    int64_t block; /* squares at once */
} work;

/* V takes half of the second cache; each block reads all of U again, so there are as few as that allows. */
static int64_t block_of(const dycl_winograd *w) {
    int64_t most = dycl_cpu_cache() / 2 / (PLACES * w->channels * (int64_t)sizeof(float)),
            squares = dycl_winograd_divide(w).count;
    if (most < 16) most = 16;
    return most < squares ? most : squares;
}

static int64_t scratch_of(const dycl_winograd *w, const dycl_gemm_layout *form) {
    return block_of(w) * PLACES * (w->channels + form->vectors * form->kernel->lanes) + w->channels;
}

size_t dycl_winograd_scratch(const dycl_winograd *w, const dycl_gemm_layout *form, int threads) {
    return (size_t)(threads * scratch_of(w, form)) * sizeof(float);
}

static int read_squares(const work *k, const float *zeros, float *v, int64_t begin, int64_t end) {
    const dycl_winograd *w = k->w;
    int large = 0;
    int64_t step = (end - begin) * w->channels;
    for (int64_t s = begin; s < end; s++) {
        const float *square[PLACES];
        int edge = dycl_winograd_inputs(&k->squares, s, k->src, 0, zeros, square);
        large |= k->transforms->input(v + (s - begin) * w->channels, step, square, w->channels, w->limit, edge);
    }
    return large;
}

/* M of one panel: sixteen products of the block's squares. */
static void multiply(const work *k, const float *v, float *m, int64_t squares, int64_t panel) {
    const dycl_gemm_layout *f = k->form;
    int64_t first = panel_column(f, panel), width = panel_column(f, panel + 1) - first, channels = k->w->channels,
            segment = 0;
    int64_t rows = f->kernel->rows[width / f->kernel->lanes], tiles = divided_up(squares, rows);
    int64_t passes = divided_up(channels, DYCL_GEMM_DEPTH), depth = divided_up(divided_up(channels, passes), 2) * 2;
    dycl_gemm_tile t = {.segments = &segment, .segment_count = 1, .c_row = width, .columns = width};
    t.a_row = channels * (int64_t)sizeof(float);
    t.b = k->packed + PLACES * first * channels;
    for (int place = 0; place < PLACES; place++)
        for (int64_t before = 0; before < channels; before += depth) {
            t.depth = channels - before < depth ? channels - before : depth;
            t.accumulate = before != 0;
            int64_t bytes = t.depth * width * (int64_t)sizeof(float), part = divided_up(bytes, tiles);
            t.next = (const char *)t.b + bytes;
            t.next_step = part / (t.depth / 2 + 1) < 64 ? part / (t.depth / 2 + 1) : 64;
            for (int64_t i = 0; i < tiles; i++) {
                int64_t from = squares * i / tiles, count = squares * (i + 1) / tiles - from;
                t.a = (const char *)(v + (place * squares + from) * channels + before);
                t.c = m + (place * squares + from) * width;
                f->kernel->tile[width / f->kernel->lanes][count](&t);
                t.next += part;
            }
            t.b += t.depth * width;
        }
}

static void write_squares(const work *k, const float *m, int64_t begin, int64_t end, int64_t panel) {
    const dycl_gemm_finish *finish = k->finish;
    int64_t first = panel_column(k->form, panel), width = panel_column(k->form, panel + 1) - first;
    for (int64_t s = begin; s < end; s++) {
        int64_t at[4];
        float *to[4];
        const float *residual[4];
        dycl_winograd_outputs(&k->squares, s, at);
        for (int i = 0; i < 4; i++) {
            to[i] = at[i] >= 0 ? k->dst + at[i] + first : NULL;
            residual[i] = at[i] >= 0 && finish->residual ? finish->residual + at[i] + first : NULL;
        }
        k->transforms->output(to, m + (s - begin) * width, (end - begin) * width,
                              finish->bias ? finish->bias + first : NULL, residual, finish->low, finish->high, width);
    }
}

static int run_share(const work *k, float *scratch, int64_t begin, int64_t end, int64_t panel0, int64_t panel1) {
    int large = 0;
    int64_t blocks = divided_up(end - begin, k->block);
    float *zeros = scratch, *v = zeros + k->w->channels, *m = v + k->block * PLACES * k->w->channels;
    memset(zeros, 0, (size_t)k->w->channels * sizeof *zeros);
    for (int64_t b = 0; b < blocks; b++) {
        int64_t from = begin + (end - begin) * b / blocks, to = begin + (end - begin) * (b + 1) / blocks;
        large |= read_squares(k, zeros, v, from, to);
        for (int64_t p = panel0; p < panel1; p++) {
            multiply(k, v, m, to - from, p);
            write_squares(k, m, from, to, p);
        }
    }
    return large;
}

/* Threads divide the squares, where each gets enough of them to be worth reading all of U, else the panels. */
#define ENOUGH 24

int dycl_winograd_run(const dycl_winograd *w, const dycl_gemm_layout *form, const float *src, const float *packed,
                      const dycl_gemm_finish *finish, float *dst, float *scratch, int threads) {
    work k = {w,          form, dycl_winograd_for(form->kernel->isa), src, packed, finish, dst, dycl_winograd_divide(w),
              block_of(w)};
    int64_t squares = k.squares.count;
    int64_t panels = panels_of(form), each = scratch_of(w, form);
    if (threads < 2) return !run_share(&k, scratch, 0, squares, 0, panels);
    int large = 0;
    int by_squares = squares >= ENOUGH * threads || panels < threads;
#pragma omp parallel num_threads(threads) reduction(| : large)
    {
        int64_t team = omp_get_num_threads(), self = omp_get_thread_num();
        int64_t begin = by_squares ? squares * self / team : 0,
                end = by_squares ? squares * (self + 1) / team : squares;
        int64_t panel0 = by_squares ? 0 : panels * self / team,
                panel1 = by_squares ? panels : panels * (self + 1) / team;
        large = run_share(&k, scratch + self * each, begin, end, panel0, panel1);
    }
    return !large;
}
