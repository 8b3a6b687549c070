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

/* Columns of outputs from `first` on, as a panel. */
static void pack_panel(const dycl_gemm_layout *f, const float *weights, const float *scale, int64_t first,
                       int64_t width, float *to) {
    const dycl_winograd_transforms *transforms = dycl_winograd_for(f->kernel->isa);
    const float *from = weights + first * f->column;
    int64_t channels = f->sizes[2];
    for (int64_t c = 0; c < channels; c++)
        transforms->weights(to + c * width, channels * width, from + c * f->strides[2], f->column, f->strides[1],
                            scale ? scale + first : NULL, width);
}

void dycl_winograd_pack(const dycl_gemm_layout *form, const float *weights, const float *scale, float *packed,
                        int threads) {
    int64_t channels = form->sizes[2], panels = panels_of(form);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t p = 0; p < panels; p++) {
        int64_t first = panel_column(form, p), width = panel_column(form, p + 1) - first;
        pack_panel(form, weights, scale, first, width, packed + PLACES * first * channels);
    }
}

/* ---- The driver */

typedef struct {
    const dycl_winograd *w;
    const dycl_gemm_layout *form;
    const dycl_winograd_transforms *transforms;
    const float *src;
    const dycl_winograd_weights *weights;
    const dycl_gemm_finish *finish;
    float *dst;
    dycl_winograd_squares squares;
    int64_t block; /* squares at once */
} work;

/* What a thread computes, and where it works. */
typedef struct {
    int64_t begin, end;    /* squares */
    int64_t panels;        /* of the outputs */
    int64_t first, panel0; /* in vectors, where weights are transformed; else the number of its first panel */
    int64_t vectors;
    float *zeros, *v, *m, *u;
} share;

typedef struct {
    int64_t first, width; /* columns */
    const float *u;
} panel;

static int64_t most_columns(const dycl_gemm_layout *form) { return form->vectors * form->kernel->lanes; }

/* V of a block takes half of the second cache at most, with M three quarters; each block reads all of U again, so there
 * are as few as that allows. */
static int64_t block_of(const dycl_winograd *w, const dycl_gemm_layout *form) {
    int64_t v = PLACES * w->channels * (int64_t)sizeof(float), m = PLACES * most_columns(form) * (int64_t)sizeof(float),
            cache = dycl_cpu_cache(), most = cache / 2 / v, squares = dycl_winograd_divide(w).count;
    if (most > cache / 4 * 3 / (v + m)) most = cache / 4 * 3 / (v + m);
    if (most < 16) most = 16;
    return most < squares ? most : squares;
}

int dycl_winograd_is_one_block(const dycl_winograd *w, const dycl_gemm_layout *form) {
    return dycl_winograd_divide(w).count <= block_of(w, form);
}

static int64_t scratch_of(const dycl_winograd *w, const dycl_gemm_layout *form, int anew) {
    int64_t columns = most_columns(form);
    return block_of(w, form) * PLACES * (w->channels + columns) + w->channels +
           (anew ? PLACES * w->channels * columns : 0);
}

size_t dycl_winograd_scratch(const dycl_winograd *w, const dycl_gemm_layout *form, int anew, int threads) {
    return (size_t)(threads * scratch_of(w, form, anew)) * sizeof(float);
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
static void multiply(const work *k, const panel *p, const float *v, float *m, int64_t squares) {
    const dycl_gemm_layout *f = k->form;
    int64_t width = p->width, channels = k->w->channels, segment = 0;
    int64_t rows = f->kernel->rows[width / f->kernel->lanes], tiles = divided_up(squares, rows);
    int64_t passes = divided_up(channels, DYCL_GEMM_DEPTH), depth = divided_up(divided_up(channels, passes), 2) * 2;
    dycl_gemm_tile t = {.segments = &segment, .segment_count = 1, .c_row = width, .columns = width};
    t.a_row = channels * (int64_t)sizeof(float);
    t.b = p->u;
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

static void write_squares(const work *k, const panel *p, const float *m, int64_t begin, int64_t end) {
    const dycl_gemm_finish *finish = k->finish;
    int64_t first = p->first, width = p->width;
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

/* The nth panel of a share: its U as it was packed, or transformed now. */
static panel panel_of(const work *k, const share *s, int64_t n) {
    if (k->weights->packed) {
        int64_t first = panel_column(k->form, s->panel0 + n), end = panel_column(k->form, s->panel0 + n + 1);
        return (panel){first, end - first, k->weights->packed + PLACES * first * k->w->channels};
    }
    int64_t lanes = k->form->kernel->lanes, first = (s->first + s->vectors * n / s->panels) * lanes,
            end = (s->first + s->vectors * (n + 1) / s->panels) * lanes;
    pack_panel(k->form, k->weights->from, k->weights->scale, first, end - first, s->u);
    return (panel){first, end - first, s->u};
}

static int run_share(const work *k, const share *s) {
    int large = 0;
    int64_t squares = s->end - s->begin, blocks = divided_up(squares, k->block);
    memset(s->zeros, 0, (size_t)k->w->channels * sizeof *s->zeros);
    for (int64_t b = 0; b < blocks; b++) {
        int64_t from = s->begin + squares * b / blocks, to = s->begin + squares * (b + 1) / blocks;
        large |= read_squares(k, s->zeros, s->v, from, to);
        for (int64_t n = 0; n < s->panels; n++) {
            panel p = panel_of(k, s, n);
            multiply(k, &p, s->v, s->m, to - from);
            write_squares(k, &p, s->m, from, to);
        }
    }
    return large;
}

/* Threads divide the squares, where each gets enough of them to be worth reading all of U, else the panels. Where U is
 * made in between, they divide the vectors of outputs: each makes what it needs. */
#define ENOUGH 24

static share share_of(const work *k, float *scratch, int64_t self, int64_t team) {
    int64_t squares = k->squares.count, panels = panels_of(k->form), channels = k->w->channels,
            vectors = divided_up(k->form->n, k->form->kernel->lanes);
    share s = {.end = squares, .panels = panels, .vectors = vectors};
    if (!k->weights->packed && vectors >= team) {
        s.first = vectors * self / team;
        s.vectors = vectors * (self + 1) / team - s.first;
        s.panels = divided_up(s.vectors, k->form->vectors);
    } else if (squares >= ENOUGH * team || panels < team) {
        s.begin = squares * self / team;
        s.end = squares * (self + 1) / team;
    } else {
        s.panel0 = panels * self / team;
        s.panels = panels * (self + 1) / team - s.panel0;
    }
    s.zeros = scratch + self * scratch_of(k->w, k->form, !k->weights->packed);
    s.v = s.zeros + channels;
    s.m = s.v + k->block * PLACES * channels;
    s.u = s.m + k->block * PLACES * most_columns(k->form);
    return s;
}

int dycl_winograd_run(const dycl_winograd *w, const dycl_gemm_layout *form, const float *src,
                      const dycl_winograd_weights *weights, const dycl_gemm_finish *finish, float *dst, float *scratch,
                      int threads) {
    work k = {.w = w,
              .form = form,
              .transforms = dycl_winograd_for(form->kernel->isa),
              .src = src,
              .weights = weights,
              .finish = finish,
              .dst = dst,
              .squares = dycl_winograd_divide(w),
              .block = block_of(w, form)};
    int large = 0;
    if (threads < 2) {
        share all = share_of(&k, scratch, 0, 1);
        return !run_share(&k, &all);
    }
#pragma omp parallel num_threads(threads) reduction(| : large)
    {
        share own = share_of(&k, scratch, omp_get_thread_num(), omp_get_num_threads());
        large = run_share(&k, &own);
    }
    return !large;
}
