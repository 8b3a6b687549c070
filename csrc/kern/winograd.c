#include "kern/winograd.h"

#include "base/cpu.h"
#include "kern/kern.h"

#include <omp.h>
#include <string.h>

#define PLACES 16

static int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* ---- U: panel by panel, in a panel place by place, in a place channel by channel */

static int64_t panels_of(const dycl_gemm_layout *f) {
    return divided_up(divided_up(f->n, f->kernel->lanes), f->vectors);
}

static int64_t panel_column(const dycl_gemm_layout *f, int64_t panel) {
    return divided_up(f->n, f->kernel->lanes) * panel / panels_of(f) * f->kernel->lanes;
}

size_t dycl_winograd_bytes(const dycl_gemm_layout *form) { return PLACES * dycl_gemm_bytes(form); }

/* G g G' of one 3x3 window, in f64: it is rounded once. */
static void transform_window(const float *g, double factor, double *u) {
    double half[4][3];
    for (int j = 0; j < 3; j++) {
        double a = g[j] * factor, b = g[3 + j] * factor, c = g[6 + j] * factor;
        half[0][j] = a;
        half[1][j] = (a + b + c) / 2;
        half[2][j] = (a - b + c) / 2;
        half[3][j] = c;
    }
    for (int i = 0; i < 4; i++) {
        double a = half[i][0], b = half[i][1], c = half[i][2];
        u[4 * i] = a;
        u[4 * i + 1] = (a + b + c) / 2;
        u[4 * i + 2] = (a - b + c) / 2;
        u[4 * i + 3] = c;
    }
}

void dycl_winograd_pack(const dycl_gemm_layout *form, const float *weights, const float *scale, float *packed,
                        int threads) {
    int64_t channels = form->sizes[2], panels = panels_of(form);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t p = 0; p < panels; p++) {
        int64_t first = panel_column(form, p), width = panel_column(form, p + 1) - first;
        float *to = packed + PLACES * first * channels;
        for (int64_t c = 0; c < channels; c++)
            for (int64_t n = 0; n < width; n++) {
                double u[PLACES];
                transform_window(weights + ((first + n) * channels + c) * 9, scale ? scale[first + n] : 1, u);
                for (int i = 0; i < PLACES; i++) to[(i * channels + c) * width + n] = (float)u[i];
            }
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
    int64_t down, across, squares; /* squares of an image, and of all */
    int64_t block;                 /* squares at once */
    int above, below, left, right; /* borders of the image that no square has inside */
} work;

static int64_t squares_of(const dycl_winograd *w) {
    return w->images * divided_up(w->out_height, 2) * divided_up(w->out_width, 2);
}

/* V takes half of the second cache; each block reads all of U again, so there are as few as that allows. */
static int64_t block_of(const dycl_winograd *w) {
    int64_t most = dycl_cpu_cache() / 2 / (PLACES * w->channels * (int64_t)sizeof(float)), squares = squares_of(w);
    if (most < 16) most = 16;
    return most < squares ? most : squares;
}

static int64_t scratch_of(const dycl_winograd *w, const dycl_gemm_layout *form) {
    return block_of(w) * PLACES * (w->channels + form->vectors * form->kernel->lanes) + w->channels;
}

size_t dycl_winograd_scratch(const dycl_winograd *w, const dycl_gemm_layout *form, int threads) {
    return (size_t)(threads * scratch_of(w, form)) * sizeof(float);
}

/* Squares overlap by half, each way: what is inner in none of them lies in one at the edge. Where zeros surround the
 * image, there is no such pixel. */
static void find_borders(work *k) {
    const dycl_winograd *w = k->w;
    k->above = w->above == 0;
    k->left = w->left == 0;
    k->below = 2 * k->down - w->above < w->height - 1;
    k->right = 2 * k->across - w->left < w->width - 1;
}

/* zeros: a pixel outside the image. */
static int read_squares(const work *k, const float *zeros, float *v, int64_t begin, int64_t end) {
    const dycl_winograd *w = k->w;
    int large = 0;
    int64_t step = (end - begin) * w->channels;
    for (int64_t s = begin; s < end; s++) {
        int64_t image = s / (k->down * k->across), row = s / k->across % k->down, column = s % k->across;
        int64_t y = row * 2 - w->above, x = column * 2 - w->left;
        const float *square[16];
        for (int64_t i = 0; i < 4; i++)
            for (int64_t j = 0; j < 4; j++) {
                int inside = y + i >= 0 && y + i < w->height && x + j >= 0 && x + j < w->width;
                square[4 * i + j] =
                    inside ? k->src + ((image * w->height + y + i) * w->width + x + j) * w->channels : zeros;
            }
        int edge = (k->above && row == 0) || (k->below && row == k->down - 1) || (k->left && column == 0) ||
                   (k->right && column == k->across - 1);
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
    const dycl_winograd *w = k->w;
    const dycl_gemm_finish *finish = k->finish;
    int64_t first = panel_column(k->form, panel), width = panel_column(k->form, panel + 1) - first;
    for (int64_t s = begin; s < end; s++) {
        int64_t image = s / (k->down * k->across), y = s / k->across % k->down * 2, x = s % k->across * 2;
        float *to[4];
        const float *residual[4];
        for (int64_t i = 0; i < 4; i++) {
            int inside = y + i / 2 < w->out_height && x + i % 2 < w->out_width;
            int64_t at = ((image * w->out_height + y + i / 2) * w->out_width + x + i % 2) * w->outputs + first;
            to[i] = inside ? k->dst + at : NULL;
            residual[i] = inside && finish->residual ? finish->residual + at : NULL;
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

DYCL_ISA_CHOICE(const dycl_winograd_transforms, dycl_winograd)

/* Threads divide the squares, where each gets enough of them to be worth reading all of U, else the panels. */
#define ENOUGH 24

int dycl_winograd_run(const dycl_winograd *w, const dycl_gemm_layout *form, const float *src, const float *packed,
                      const dycl_gemm_finish *finish, float *dst, float *scratch, int threads) {
    work k = {w, form, dycl_winograd_for(form->kernel->isa), src, packed, finish, dst, .squares = squares_of(w)};
    k.down = divided_up(w->out_height, 2);
    k.across = divided_up(w->out_width, 2);
    k.block = block_of(w);
    find_borders(&k);
    int64_t panels = panels_of(form), each = scratch_of(w, form);
    if (threads < 2) return !run_share(&k, scratch, 0, k.squares, 0, panels);
    int large = 0;
    int by_squares = k.squares >= ENOUGH * threads || panels < threads;
#pragma omp parallel num_threads(threads) reduction(| : large)
    {
        int64_t team = omp_get_num_threads(), self = omp_get_thread_num();
        int64_t begin = by_squares ? k.squares * self / team : 0,
                end = by_squares ? k.squares * (self + 1) / team : k.squares;
        int64_t panel0 = by_squares ? 0 : panels * self / team,
                panel1 = by_squares ? panels : panels * (self + 1) / team;
        large = run_share(&k, scratch + self * each, begin, end, panel0, panel1);
    }
    return !large;
}
