#include "kern/gemm.h"

#include "kern/steal.h"
#include "kern/transpose.h"

#include <math.h>
#include <omp.h>
#include <string.h>

DYCL_ISA_CHOICE(const dycl_gemm_kernel, dycl_gemm)
const dycl_gemm_kernel *dycl_kern_gemm(dycl_isa isa) { return dycl_gemm_for(isa); }

/* ---- Panels: the vectors of columns shared out as evenly as they go */

static int64_t vectors_of(const dycl_gemm_layout *form) { return dycl_divided_up(form->n, form->kernel->lanes); }
int64_t dycl_gemm_panels(const dycl_gemm_layout *form) { return dycl_divided_up(vectors_of(form), form->vectors); }
static int64_t depth_of(const dycl_gemm_layout *form) { return form->sizes[0] * form->sizes[1] * form->sizes[2]; }

size_t dycl_gemm_bytes(const dycl_gemm_layout *form) {
    /* the last rows' prefetches may name addresses behind the panel; they are hints and read nothing */
    return (size_t)(vectors_of(form) * form->kernel->lanes * depth_of(form)) * sizeof(float);
}

/* So many rows of k are packed before the next. With rows of B read panel after panel each line was waited for, which
 * took a sixth of a product of 128 rows; with windows read place after place, nine times. */
#define PACKED_ROWS 16

/* A row of a panel: too short to be worth a call of the library's memcpy. */
static inline void copy_row(float *to, const float *from, int64_t columns) {
    for (; columns >= 8; columns -= 8, to += 8, from += 8) memcpy(to, from, 8 * sizeof *to);
    for (; columns > 0; columns--) *to++ = *from++;
}

/* `rows` rows of a panel: `there` columns of each, with zeros up to `width`. */
static void pack_rows(const dycl_gemm_layout *form, const float *from, float *to, int64_t rows, int64_t there,
                      int64_t width) {
    int64_t row = form->strides[2];
    if (form->column == 1) {
        for (int64_t l = 0; l < rows; l++) {
            for (int64_t c = 0; c < there; c += 16) __builtin_prefetch(from + (l + PACKED_ROWS) * row + c);
            copy_row(to + l * width, from + l * row, there);
        }
    } else if (row == 1) {
        dycl_transpose4 *transpose = dycl_kern_transpose4(form->kernel->isa);
        transpose((dycl_word *)to, width, (const dycl_word *)from, form->column, (size_t)rows, (size_t)there);
    } else {
        for (int64_t c = 0; c < there; c++)
            for (int64_t l = 0; l < rows; l++) to[l * width + c] = from[c * form->column + l * row];
    }
    for (int64_t l = 0; l < rows && there < width; l++)
        memset(to + l * width + there, 0, (size_t)(width - there) * sizeof *to);
}

static void scale_rows(const float *scale, float *to, int64_t rows, int64_t there, int64_t width) {
    for (int64_t l = 0; l < rows; l++)
        for (int64_t c = 0; c < there; c++) to[l * width + c] *= scale[c];
}

int64_t dycl_gemm_column(const dycl_gemm_layout *form, int64_t panel) {
    return vectors_of(form) * panel / dycl_gemm_panels(form) * form->kernel->lanes;
}

/* `rows` rows of k for a panel that begins at `to`, at (i, j, l) of k. */
static void pack_part(const dycl_gemm_layout *form, const float *b, const float *scale, float *to, int64_t panel,
                      int64_t i, int64_t j, int64_t l, int64_t rows) {
    int64_t first = dycl_gemm_column(form, panel), width = dycl_gemm_column(form, panel + 1) - first,
            there = form->n - first < width ? form->n - first : width,
            before = (i * form->sizes[1] + j) * form->sizes[2] + l;
    const float *from = b + i * form->strides[0] + j * form->strides[1] + l * form->strides[2] + first * form->column;
    to += before * width;
    pack_rows(form, from, to, rows, there, width);
    if (scale) scale_rows(scale + first, to, rows, there, width);
}

/* Panels [from, end), the first of them to `packed`. What lies together is read together: rows across all panels, or
 * (windows, whose places lie side by side, and columns) some rows of all places for one panel after the other. */
static void pack_panels(const dycl_gemm_layout *form, const float *b, const float *scale, float *packed, int64_t from,
                        int64_t end) {
    const int64_t *sizes = form->sizes;
    int by_rows = form->column == 1;
    int64_t some = by_rows || form->strides[2] != 1 ? PACKED_ROWS : sizes[2];
    for (int64_t first = from; first < end; first = by_rows ? end : first + 1)
        for (int64_t l = 0; l < sizes[2]; l += some)
            for (int64_t i = 0; i < sizes[0]; i++)
                for (int64_t j = 0; j < sizes[1]; j++)
                    for (int64_t p = first; p < (by_rows ? end : first + 1); p++)
                        pack_part(form, b, scale,
                                  packed + (dycl_gemm_column(form, p) - dycl_gemm_column(form, from)) * depth_of(form),
                                  p, i, j, l, sizes[2] - l < some ? sizes[2] - l : some);
}

void dycl_gemm_pack(const dycl_gemm_layout *form, const float *b, const float *scale, float *packed, int threads) {
    int64_t panels = dycl_gemm_panels(form);
    if (threads < 2) { /* attention packs thousands of small ones, in threads that OpenMP would make teams of one of */
        pack_panels(form, b, scale, packed, 0, panels);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        int64_t team = omp_get_num_threads(), self = omp_get_thread_num(), from = panels * self / team;
        pack_panels(form, b, scale, packed + dycl_gemm_column(form, from) * depth_of(form), from,
                    panels * (self + 1) / team);
    }
}

/* Cycles for a k of a tile: two multiply-adds or two loads in one, four until a sum can be added to again, and two for
 * each vector of B, which comes from the second cache. */
static double cycles(int64_t rows, int64_t vectors) {
    double most = (double)(rows * vectors) / 2, loads = (double)(rows + vectors) / 2;
    if (loads > most) most = loads;
    if (most < 4) most = 4;
    return most < 2.0 * (double)vectors ? 2.0 * (double)vectors : most;
}

int dycl_gemm_vectors(const dycl_gemm_kernel *kernel, int64_t run, int64_t n) {
    static const int order[] = {4, 3, 2, 1}; /* where they are equal: measured in this order, from the fastest */
    int64_t all = dycl_divided_up(n, kernel->lanes);
    double best = INFINITY;
    int chosen = 1;
    for (int i = 0; i < 4; i++) {
        int vectors = order[i];
        if (!kernel->rows[vectors]) continue;
        int64_t panels = dycl_divided_up(all, vectors), tiles = dycl_divided_up(run, kernel->rows[vectors]);
        double half[2] = {0};
        for (int64_t p = 0; p < panels; p++) {
            int64_t width = all * (p + 1) / panels - all * p / panels;
            for (int64_t t = 0; t < tiles; t++)
                half[p < panels / 2] += cycles(run * (t + 1) / tiles - run * t / tiles, width);
        }
        /* two threads may divide the panels; a single panel they do not divide */
        double worst = panels > 1 && half[0] > half[1] ? 2 * half[0] : half[0] + half[1];
        if (worst < best * 0.99) {
            best = worst;
            chosen = vectors;
        }
    }
    return chosen;
}

/* ---- The driver */

typedef struct {
    const dycl_gemm_layout *form;
    const dycl_gemm_rows *rows;
    const float *packed;
    const dycl_gemm_finish *finish;
    int64_t tiles_a_run, panels, depth;
    int fresh;                             /* `packed` is the panel that is multiplied */
    int64_t segments_a_pass, depth_a_pass; /* k is walked in passes: a part of a segment, or a few segments */
} work;

/* What one thread does. */
typedef struct {
    int64_t tile0, tile1, panel0, panel1;
} rectangle;

/* The part of k that a pass covers. */
typedef struct {
    int64_t segment, segments, from, depth, before; /* before: elements of k */
} stretch;

#define MAX_SEGMENTS 64
#define FRESH_ROWS   1024 /* of A that are read again for each panel */
#define SAFE_ROWS    6    /* lines of a set, of eight, that A may take */

/* Passes so short that a panel's part stays in the cache while the tiles pass by. */
static void divide_depth(work *w) {
    const dycl_gemm_rows *r = w->rows;
    int64_t most = DYCL_GEMM_DEPTH / r->depth;
    w->depth_a_pass = r->depth;
    w->segments_a_pass = 1;
    if (most < 2)
        w->depth_a_pass = dycl_divided_up(dycl_divided_up(r->depth, dycl_divided_up(r->depth, DYCL_GEMM_DEPTH)), 2) * 2;
    else
        w->segments_a_pass = dycl_divided_up(
            r->segment_count, dycl_divided_up(r->segment_count, most < MAX_SEGMENTS ? most : MAX_SEGMENTS));
}

static const float *panel_part(const work *w, int64_t panel, int64_t before) {
    int64_t column = dycl_gemm_column(w->form, panel), width = dycl_gemm_column(w->form, panel + 1) - column;
    return w->packed + (w->fresh ? 0 : column * w->depth) + before * width;
}

static void run_tiles(const work *w, const stretch *pass, int64_t tile0, int64_t tile1, int64_t panel,
                      const float *next) {
    const dycl_gemm_layout *form = w->form;
    const dycl_gemm_rows *r = w->rows;
    const dycl_gemm_finish *finish = w->finish;
    int64_t column = dycl_gemm_column(w->form, panel), width = dycl_gemm_column(w->form, panel + 1) - column,
            segments[MAX_SEGMENTS];
    int64_t depth = pass->segments * pass->depth, bytes = depth * width * (int64_t)sizeof(float),
            part = dycl_divided_up(bytes, tile1 - tile0);
    const dycl_gemm_tile_fn *tiles = form->kernel->tile[width / form->kernel->lanes];
    dycl_gemm_tile t = {
        .segments = segments, .segment_count = pass->segments, .depth = pass->depth, .accumulate = pass->before != 0};
    t.c_row = t.residual_row = r->c_row;
    t.a_row = r->a_row;
    t.b = panel_part(w, panel, pass->before);
    t.columns = form->n - column < width ? form->n - column : width;
    t.bias = finish->bias ? finish->bias + column : NULL;
    t.finish = pass->before + depth == w->depth;
    t.low = finish->low;
    t.high = finish->high;
    /* each tile fetches its part of what is read next, a line for each pair of k at most */
    t.next_step = part / (depth / 2 + 1) < 64 ? part / (depth / 2 + 1) : 64;
    for (int64_t i = 0; i < pass->segments; i++)
        segments[i] = (pass->segment + i) * r->segment_stride + pass->from * (int64_t)sizeof(float);
    /* runs are shared out as evenly as they go: the first `longer` tiles of each have a row more. Counted on, because
     * divisions cost as much as a short tile */
    int64_t run = tile0 / w->tiles_a_run, place = tile0 % w->tiles_a_run, least = r->run / w->tiles_a_run,
            longer = r->run % w->tiles_a_run;
    int64_t from = place * least + (place < longer ? place : longer), inner = run % r->run_inner;
    const char *a = r->a + run / r->run_inner * r->run_outer_stride + inner * r->run_stride;
    int64_t skip =
        r->run_outer_stride - (r->run_inner - 1) * r->run_stride; /* from the last run of a group to the next group */
    int64_t c_run = r->c_run ? r->c_run : r->run * r->c_row, c_outer = r->c_run ? r->c_outer : r->run_inner * c_run,
            c = run / r->run_inner * c_outer + inner * c_run;
    t.next = (const char *)next;
    for (int64_t i = tile0; i < tile1; i++) {
        int64_t count = least + (place < longer), at = c + from * r->c_row + column;
        t.a = a + from * r->a_row;
        t.c = r->c + at;
        t.residual = finish->residual ? finish->residual + at : NULL;
        tiles[count](&t);
        t.next += part;
        from += count;
        if (++place == w->tiles_a_run) {
            place = from = 0;
            a += ++inner == r->run_inner ? skip : r->run_stride;
            c += inner == r->run_inner ? c_outer - (r->run_inner - 1) * c_run : c_run;
            if (inner == r->run_inner) inner = 0;
        }
    }
}

/* The pass that begins where *pass says; 0 when nothing is left. */
static int measure_out(const work *w, stretch *pass) {
    int64_t segments = w->rows->segment_count - pass->segment, depth = w->rows->depth - pass->from;
    pass->segments = segments < w->segments_a_pass ? segments : w->segments_a_pass;
    pass->depth = depth < w->depth_a_pass ? depth : w->depth_a_pass;
    return pass->before < w->depth;
}

static int next_pass(const work *w, stretch *pass) {
    pass->before += pass->segments * pass->depth;
    pass->from += pass->depth;
    if (pass->from == w->rows->depth) {
        pass->from = 0;
        pass->segment += pass->segments;
    }
    return measure_out(w, pass);
}

/* Each part of A with all panels, or each panel with all of A: then C stays in the cache from one pass to the next. */
static void run_block(const work *w, const rectangle *s, int64_t tile0, int64_t tile1, int by_panel) {
    int64_t outer = by_panel ? s->panel1 - s->panel0 : 1;
    for (int64_t o = 0; o < outer; o++) {
        int64_t panel0 = by_panel ? s->panel0 + o : s->panel0, panel1 = by_panel ? panel0 + 1 : s->panel1,
                last = panel1 < s->panel1 ? panel1 : s->panel0;
        stretch pass = {0};
        int more = measure_out(w, &pass);
        while (more) {
            stretch now = pass;
            more = next_pass(w, &pass);
            for (int64_t p = panel0; p < panel1; p++) {
                const float *next = p + 1 < panel1 ? panel_part(w, p + 1, now.before)
                                    : more         ? panel_part(w, panel0, pass.before)
                                                   : panel_part(w, last, 0);
                run_tiles(w, &now, tile0, tile1, p, next);
            }
        }
    }
}

/* Blocks of rows whose part of A stays in the second cache while the panels pass by. */
static void run_share(const work *w, const rectangle *s) {
    const dycl_gemm_rows *r = w->rows;
    int64_t rows_a_tile = dycl_divided_up(r->run, w->tiles_a_run), unique = r->unique * w->depth_a_pass / r->depth;
    int64_t block = dycl_cpu_cache() / 2 / (unique * rows_a_tile + 1) + 1,
            blocks = dycl_divided_up(s->tile1 - s->tile0, block);
    for (int64_t b = 0; b < blocks; b++) {
        int64_t tile0 = s->tile0 + (s->tile1 - s->tile0) * b / blocks,
                tile1 = s->tile0 + (s->tile1 - s->tile0) * (b + 1) / blocks;
        run_block(w, s, tile0, tile1, (tile1 - tile0) * rows_a_tile * r->unique <= dycl_cpu_cache() / 2);
    }
}

/* A was written a moment ago, partly by other cores, and is fetched from their caches; B is the same in every cache and
 * is fetched in time. With rows divided, a thread mostly reads what it wrote in the step before: 3x3 convolutions of
 * 14x14 pixels were 10 % faster. */
#define FOREIGN 8

/* How many of the threads divide the panels; the others divide the rows. The slowest thread counts, and, where that is
 * equal, less reading: a thread reads its rows of A and its panels of B. */
static int64_t by_panels(const work *w, int64_t tiles, int64_t panels, int64_t threads) {
    double best = INFINITY, a = FOREIGN * (double)(w->rows->runs * w->rows->run * w->rows->unique),
           b = (double)dycl_gemm_bytes(w->form);
    int64_t chosen = 1;
    for (int64_t n = 1; n <= threads; n++) {
        if (threads % n) continue;
        double slowest =
            (double)(dycl_divided_up(panels, n) * dycl_divided_up(tiles, threads / n)) / (double)(panels * tiles);
        double read = (a * (double)n + b * (double)(threads / n)) / (a + b) / (double)threads;
        double cost = slowest + 0.1 * read;
        if (cost < best) {
            best = cost;
            chosen = n;
        }
    }
    return chosen;
}

/* Rows 4096 bytes apart share a set of the first cache, and more of them than it holds lines for push one another out:
 * 12 rows of 1024 elements ran at a third of their speed. */
static int64_t rows_a_tile(const dycl_gemm_layout *form, int64_t a_row) {
    int64_t most = form->kernel->rows[form->vectors];
    return a_row % 4096 == 0 && most > SAFE_ROWS ? SAFE_ROWS : most;
}

/* Thread `self` of `team` makes its part of A. */
static void make_source(const dycl_gemm_rows *r, int64_t self, int64_t team) {
    const dycl_pad *pad = r->source.pad;
    int64_t lines = pad->images * dycl_pad_height(pad);
    dycl_kern_pad(r->source.to, r->source.src, r->source.src_strides, pad, lines * self / team,
                  lines * (self + 1) / team);
}

static work describe(const dycl_gemm_layout *form, const dycl_gemm_rows *rows, const float *packed,
                     const dycl_gemm_finish *finish) {
    work w = {form, rows, packed, finish, .depth = depth_of(form)};
    w.tiles_a_run = dycl_divided_up(rows->run, rows_a_tile(form, rows->a_row));
    w.panels = dycl_gemm_panels(form);
    divide_depth(&w);
    return w;
}

/* A share is cut into so many parts of its panels and of its tiles. */
typedef struct {
    int64_t by_panels, by_tiles;
} cuts;

#define CUT_ROWS 64 /* of A that a unit multiplies with its panels, for what it reads of B */

/* Where A's share stays in the cache, panels are divided, as run_block takes one after the other with all of A; where
 * it does not, rows are. */
static cuts cuts_of(const work *w, int64_t tiles, int64_t panels, int64_t depth_bytes) {
    int64_t rows = dycl_divided_up(w->rows->run, w->tiles_a_run), few = CUT_ROWS / rows + 1,
            bands = dycl_divided_up(tiles, few);
    double width = (double)w->form->n / (double)w->panels;
    int64_t units = dycl_steal_units(DYCL_GEMM_NS * (double)(tiles * rows) * (double)panels * width * (double)w->depth,
                                     panels * bands);
    int64_t by_panels = units, by_tiles = units;
    if (tiles * rows * depth_bytes <= dycl_cpu_cache() / 2) {
        if (by_panels > panels) by_panels = panels;
        by_tiles = units / by_panels;
    } else {
        if (by_tiles > bands) by_tiles = bands;
        by_panels = units / by_tiles;
    }
    return (cuts){by_panels, by_tiles};
}

static rectangle unit_of(const rectangle *s, const cuts *by, int64_t unit) {
    int64_t i = unit / by->by_panels, j = unit % by->by_panels;
    return (rectangle){dycl_steal_cut(s->tile0, s->tile1, i, by->by_tiles),
                       dycl_steal_cut(s->tile0, s->tile1, i + 1, by->by_tiles),
                       dycl_steal_cut(s->panel0, s->panel1, j, by->by_panels),
                       dycl_steal_cut(s->panel0, s->panel1, j + 1, by->by_panels)};
}

void dycl_gemm_run(const dycl_gemm_layout *form, const dycl_gemm_rows *rows, const float *packed,
                   const dycl_gemm_finish *finish, int threads) {
    work w = describe(form, rows, packed, finish);
    int64_t tiles = w.tiles_a_run * rows->runs, panels = w.panels;
    if (threads < 2) {
        if (rows->source.pad) make_source(rows, 0, 1);
        run_share(&w, &(rectangle){0, tiles, 0, panels});
        return;
    }
    int64_t columns = by_panels(&w, tiles, panels, threads);
    dycl_steal steal;
    dycl_steal_begin(&steal, threads);
#pragma omp parallel num_threads(threads)
    {
        int64_t team = omp_get_num_threads(), self = omp_get_thread_num(), n = team == threads ? columns : 1,
                bands = team / n;
        if (rows->source.pad) {
            make_source(rows, self, team);
#pragma omp barrier
        }
        const cuts by = cuts_of(&w, dycl_divided_up(tiles, bands), dycl_divided_up(panels, n), rows->unique);
        dycl_steal_walk walk = dycl_steal_walk_of(self, team, team, by.by_panels * by.by_tiles);
        while (dycl_steal_next(&steal, &walk)) {
            int64_t row = walk.owner / n, column = walk.owner % n;
            const rectangle share = {tiles * row / bands, tiles * (row + 1) / bands, panels * column / n,
                                     panels * (column + 1) / n};
            const rectangle unit = unit_of(&share, &by, walk.unit);
            if (unit.tile0 < unit.tile1 && unit.panel0 < unit.panel1) run_share(&w, &unit);
        }
    }
}

static int64_t panel_bytes(const dycl_gemm_layout *form) {
    return (form->vectors * form->kernel->lanes * depth_of(form) * (int64_t)sizeof(float) + 63) & ~(int64_t)63;
}

size_t dycl_gemm_fresh_bytes(const dycl_gemm_layout *form, int threads) {
    return (size_t)(panel_bytes(form) * threads);
}

int dycl_gemm_suits_fresh(const dycl_gemm_layout *form, const dycl_gemm_rows *rows, int threads) {
    return rows->run * rows->runs <= FRESH_ROWS && (int64_t)dycl_gemm_bytes(form) > dycl_cpu_cache() / 2 &&
           dycl_gemm_panels(form) >= 2 * threads;
}

void dycl_gemm_run_fresh(const dycl_gemm_layout *form, const dycl_gemm_rows *rows, const dycl_gemm_columns *b,
                         const dycl_gemm_finish *finish, int threads) {
    work all = describe(form, rows, NULL, finish);
    all.fresh = 1;
    dycl_steal steal;
    dycl_steal_begin(&steal, threads);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        int64_t team = omp_get_num_threads(), self = omp_get_thread_num();
        float *room = (float *)(b->room + self * panel_bytes(form));
        work w = all;
        w.packed = room;
        if (rows->source.pad) {
            make_source(rows, self, team);
#pragma omp barrier
        }
        dycl_steal_walk walk = dycl_steal_walk_of(self, team, team, dycl_divided_up(w.panels, team));
        while (dycl_steal_next(&steal, &walk)) {
            int64_t p = w.panels * walk.owner / team + walk.unit;
            if (p >= w.panels * (walk.owner + 1) / team) continue;
            pack_panels(form, b->from, b->scale, room, p, p + 1);
            run_share(&w, &(rectangle){0, w.tiles_a_run * rows->runs, p, p + 1});
        }
    }
}
