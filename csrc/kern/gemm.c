#include "kern/gemm.h"

#include <math.h>
#include <omp.h>

const dycl_gemm_kernel *dycl_kern_gemm(dycl_isa isa) {
    switch (isa) {
#if defined(__x86_64__)
    case DYCL_ISA_AVX512: return &dycl_gemm__avx512;
    case DYCL_ISA_AVX2: return &dycl_gemm__avx2;
#endif
    default: return NULL;
    }
}

/* ---- Panels: the vectors of columns shared out as evenly as they go */

static int64_t divided_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}
static int64_t vectors_of(const dycl_gemm_form *form) {
    return divided_up(form->n, form->kernel->lanes);
}
static int64_t panels_of(const dycl_gemm_form *form) {
    return divided_up(vectors_of(form), form->vectors);
}
static int64_t depth_of(const dycl_gemm_form *form) {
    return form->sizes[0] * form->sizes[1] * form->sizes[2];
}

size_t dycl_gemm_bytes(const dycl_gemm_form *form) {
    /* the last rows' prefetches may name addresses behind the panel; they are hints and read nothing */
    return (size_t)(vectors_of(form) * form->kernel->lanes * depth_of(form)) * sizeof(float);
}

/* One panel: rows of k, `width` columns. Sixteen elements of a column at a time, since k is usually what lies densely. */
static void pack_panel(const dycl_gemm_form *form, const float *b, const float *scale, float *to, int64_t first, int64_t width) {
    int64_t there = form->n - first < width ? form->n - first : width, inner = form->sizes[2];
    for (int64_t i = 0; i < form->sizes[0]; i++)
        for (int64_t j = 0; j < form->sizes[1]; j++) {
            const float *from = b + i * form->strides[0] + j * form->strides[1] + first * form->column;
            for (int64_t l0 = 0; l0 < inner; l0 += 16) {
                int64_t end = l0 + 16 < inner ? l0 + 16 : inner;
                for (int64_t c = 0; c < there; c++) {
                    float factor = scale ? scale[first + c] : 1;
                    const float *column = from + c * form->column;
                    for (int64_t l = l0; l < end; l++) to[l * width + c] = column[l * form->strides[2]] * factor;
                }
                for (int64_t c = there; c < width; c++)
                    for (int64_t l = l0; l < end; l++) to[l * width + c] = 0;
            }
            to += inner * width;
        }
}

void dycl_gemm_pack(const dycl_gemm_form *form, const float *b, const float *scale, float *packed, int threads) {
    int64_t vectors = vectors_of(form), panels = panels_of(form), lanes = form->kernel->lanes, depth = depth_of(form);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t p = 0; p < panels; p++) {
        int64_t first = vectors * p / panels * lanes, end = vectors * (p + 1) / panels * lanes;
        pack_panel(form, b, scale, packed + first * depth, first, end - first);
    }
}

/* Cycles for a k of a tile: two multiply-adds or two loads in one, four until a sum can be added to again, and two for each vector of B, which comes
 * from the second cache. */
static double cycles(int64_t rows, int64_t vectors) {
    double most = (double)(rows * vectors) / 2, loads = (double)(rows + vectors) / 2;
    if (loads > most) most = loads;
    if (most < 4) most = 4;
    return most < 2.0 * (double)vectors ? 2.0 * (double)vectors : most;
}

int dycl_gemm_vectors(const dycl_gemm_kernel *kernel, int64_t run, int64_t n) {
    static const int order[] = {3, 4, 2, 1}; /* where they are equal: measured in this order, from the fastest */
    int64_t all = divided_up(n, kernel->lanes);
    double best = INFINITY;
    int chosen = 1;
    for (int i = 0; i < 4; i++) {
        int vectors = order[i];
        if (!kernel->rows[vectors]) continue;
        int64_t panels = divided_up(all, vectors), tiles = divided_up(run, kernel->rows[vectors]);
        double total = 0;
        for (int64_t p = 0; p < panels; p++) {
            int64_t width = all * (p + 1) / panels - all * p / panels;
            for (int64_t t = 0; t < tiles; t++) total += cycles(run * (t + 1) / tiles - run * t / tiles, width);
        }
        if (total < best * 0.99) {
            best = total;
            chosen = vectors;
        }
    }
    return chosen;
}

/* ---- The driver */

/* What one thread does: tiles [tile0, tile1) of all rows, panels [panel0, panel1). */
typedef struct {
    const dycl_gemm_form *form;
    const dycl_gemm_rows *rows;
    const float *packed;
    const dycl_gemm_finish *finish;
    int64_t tiles_a_run;
} work;

#define CACHE_BYTES  (512 * 1024) /* of A that should stay while all panels pass by */
#define MAX_SEGMENTS 64

/* Consecutive segments of B's k that make up one pass: few enough that the panel's part stays in the cache. */
static int64_t segments_a_pass(const dycl_gemm_rows *r, int64_t *depth_step) {
    *depth_step = r->depth;
    if (r->depth >= DYCL_GEMM_DEPTH) {
        int64_t parts = divided_up(r->depth, DYCL_GEMM_DEPTH);
        *depth_step = divided_up(divided_up(r->depth, parts), 2) * 2;
        return 1;
    }
    int64_t most = DYCL_GEMM_DEPTH / r->depth, parts;
    if (most > MAX_SEGMENTS) most = MAX_SEGMENTS;
    parts = divided_up(r->segment_count, most);
    return divided_up(r->segment_count, parts);
}

static void tiles_of_panel(const work *w, int64_t tile0, int64_t tile1, int64_t panel) {
    const dycl_gemm_form *form = w->form;
    const dycl_gemm_rows *r = w->rows;
    const dycl_gemm_finish *finish = w->finish;
    int64_t all = vectors_of(form), panels = panels_of(form), lanes = form->kernel->lanes, depth = depth_of(form);
    int64_t first = all * panel / panels, vectors = all * (panel + 1) / panels - first, column = first * lanes, width = vectors * lanes;
    int64_t segments[MAX_SEGMENTS], depth_step, at_once = segments_a_pass(r, &depth_step);
    dycl_gemm_tile t = {.segments = segments, .c_row = r->c_row, .residual_row = r->c_row, .low = finish->low, .high = finish->high};
    t.a_row = r->a_row;
    t.columns = form->n - column < width ? form->n - column : width;
    t.b = w->packed + column * depth;
    for (int64_t s = 0; s < r->segment_count; s += at_once) {
        t.segment_count = r->segment_count - s < at_once ? r->segment_count - s : at_once;
        for (int64_t d = 0; d < r->depth; d += depth_step) {
            t.depth = r->depth - d < depth_step ? r->depth - d : depth_step;
            for (int64_t i = 0; i < t.segment_count; i++) segments[i] = (s + i) * r->segment_stride + d * (int64_t)sizeof(float);
            t.accumulate = s || d;
            t.start = t.accumulate || !finish->bias ? NULL : finish->bias + column;
            t.finish = s + t.segment_count == r->segment_count && d + t.depth == r->depth;
            /* what comes next in memory is what is read next: each tile fetches its share of it */
            int64_t bytes = t.segment_count * t.depth * width * (int64_t)sizeof(float), pairs = t.segment_count * t.depth / 2 + 1;
            int64_t share = divided_up(bytes, tile1 - tile0);
            const char *next = (const char *)t.b + bytes;
            t.next_step = share / pairs < 64 ? share / pairs : 64;
            for (int64_t i = tile0; i < tile1; i++) {
                int64_t run = i / w->tiles_a_run, part = i % w->tiles_a_run;
                int64_t from = r->run * part / w->tiles_a_run, end = r->run * (part + 1) / w->tiles_a_run;
                int64_t row = run * r->run + from;
                t.a = r->a + run / r->run_inner * r->run_outer_stride + run % r->run_inner * r->run_stride + from * r->a_row;
                t.c = r->c + row * r->c_row + column;
                t.residual = finish->residual ? finish->residual + row * r->c_row + column : NULL;
                t.next = next + (i - tile0) * share;
                form->kernel->tile[vectors][end - from](&t);
            }
            t.b += t.segment_count * t.depth * width;
        }
    }
}

static void part(const work *w, int64_t tile0, int64_t tile1, int64_t panel0, int64_t panel1) {
    const dycl_gemm_rows *r = w->rows;
    int64_t rows_a_tile = divided_up(r->run, w->tiles_a_run), block = CACHE_BYTES / (r->unique * rows_a_tile + 1) + 1;
    int64_t blocks = divided_up(tile1 - tile0, block);
    for (int64_t b = 0; b < blocks; b++) {
        int64_t from = tile0 + (tile1 - tile0) * b / blocks, end = tile0 + (tile1 - tile0) * (b + 1) / blocks;
        for (int64_t p = panel0; p < panel1; p++) tiles_of_panel(w, from, end, p);
    }
}

/* How many of the threads divide the panels; the others divide the rows. The slowest thread counts, and, where that is equal, less reading: a thread
 * reads its rows of A and its panels of B. */
static int64_t by_panels(const work *w, int64_t tiles, int64_t panels, int64_t threads) {
    double best = INFINITY, a = (double)(w->rows->runs * w->rows->run * w->rows->unique), b = (double)dycl_gemm_bytes(w->form);
    int64_t chosen = 1;
    for (int64_t n = 1; n <= threads; n++) {
        if (threads % n) continue;
        double slowest = (double)(divided_up(panels, n) * divided_up(tiles, threads / n)) / (double)(panels * tiles);
        double read = (a * (double)n + b * (double)(threads / n)) / (a + b) / (double)threads;
        double cost = slowest + 0.1 * read;
        if (cost < best) {
            best = cost;
            chosen = n;
        }
    }
    return chosen;
}

void dycl_gemm_run(const dycl_gemm_form *form, const dycl_gemm_rows *rows, const float *packed, const dycl_gemm_finish *finish, int threads) {
    work w = {form, rows, packed, finish, divided_up(rows->run, form->kernel->rows[form->vectors])};
    int64_t tiles = w.tiles_a_run * rows->runs, panels = panels_of(form);
    if (threads < 2) {
        part(&w, 0, tiles, 0, panels);
        return;
    }
    int64_t columns = by_panels(&w, tiles, panels, threads);
#pragma omp parallel num_threads(threads)
    {
        int64_t team = omp_get_num_threads(), self = omp_get_thread_num(), n = team == threads ? columns : 1;
        int64_t row = self / n, column = self % n, bands = team / n;
        part(&w, tiles * row / bands, tiles * (row + 1) / bands, panels * column / n, panels * (column + 1) / n);
    }
}
