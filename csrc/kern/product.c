#include "kern/product.h"

#include "base/cpu.h"
#include "kern/steal.h"
#include "kern/transpose.h"

#include <math.h>
#include <omp.h>

/* Multiply-adds in whose time an element is packed, or copied. */
#define PACKING 16

#define BLOCK 16 /* rows that are transposed at once */

#define UNIT_PANELS 2  /* of B that are packed together, for what lies in a line of memory */
#define UNIT_ROWS   48 /* of A that are copied together: whole blocks, and whole tiles of most kernels */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t panel_of(const dycl_product *p) { return p->vectors * p->kernel->lanes; }
static int64_t tile_of(const dycl_product *p) { return p->kernel->rows[p->vectors]; }
static int lies_in_rows(const dycl_product *p) { return p->a_column == 1 || p->k == 1; }

/* How long the slowest of across * down threads takes, in multiply-adds. */
static double cost(const dycl_product *p, int64_t across, int64_t down) {
    double columns = (double)(dycl_divided_up(dycl_divided_up(p->n, panel_of(p)), across) * panel_of(p)),
           rows = (double)(dycl_divided_up(dycl_divided_up(p->m, tile_of(p)), down) * tile_of(p));
    return (double)p->k * (columns * rows + PACKING * (columns + (lies_in_rows(p) ? 0 : rows)));
}

/* Parts of one length that take no more than `bytes` of the cache, or one `unit` of columns or rows. */
static int64_t part_of(const dycl_product *p, int64_t all, int64_t unit, int64_t bytes) {
    int64_t fit = bytes / (p->depth * (int64_t)sizeof(float)) / unit, units = dycl_divided_up(all, unit);
    if (fit < 1) fit = 1;
    return dycl_divided_up(units, dycl_divided_up(units, fit)) * unit;
}

void dycl_product_divide(dycl_product *p, int threads) {
    double best = INFINITY;
    p->vectors = dycl_gemm_vectors(p->kernel, p->m, p->n);
    for (int across = 1; across <= threads; across++) {
        double c = cost(p, across, threads / across);
        if (c >= best) continue;
        best = c;
        p->across = across;
        p->down = threads / across;
    }
    p->across = (int)least(p->across, dycl_divided_up(p->n, panel_of(p)));
    p->down = (int)least(p->down, dycl_divided_up(p->m, tile_of(p)));
    p->depth =
        dycl_divided_up(p->k, dycl_divided_up(p->k, DYCL_GEMM_DEPTH)); /* one pass: what C holds is added at its end */
    p->columns = part_of(p, dycl_divided_up(dycl_divided_up(p->n, panel_of(p)), p->across) * panel_of(p), panel_of(p),
                         dycl_cpu_cache() / 2);
    p->rows = dycl_divided_up(dycl_divided_up(p->m, tile_of(p)), p->down) * tile_of(p);
    if (!lies_in_rows(p)) p->rows = part_of(p, p->rows, BLOCK, dycl_cpu_cache() / 8);
}

/* From one row of the copy to the next: no multiple of 4096 bytes, or all would share a few sets of the first cache. */
static int64_t copied_row(const dycl_product *p) { return ((p->depth + 15) & ~(int64_t)15) + 16; }

static size_t packed_bytes(const dycl_product *p) {
    return (size_t)(p->columns * p->depth) * sizeof(float); /* whole vectors: whole cache lines, or halves of them */
}

static size_t thread_bytes(const dycl_product *p) {
    size_t copied = lies_in_rows(p) ? 0 : (size_t)(p->rows * copied_row(p)) * sizeof(float);
    return (packed_bytes(p) + copied + 63) & ~(size_t)63;
}

size_t dycl_product_bytes(const dycl_product *p) { return thread_bytes(p) * (size_t)(p->across * p->down); }

static void copy_rows(const dycl_product *p, const float *a, int64_t rows, int64_t depth, float *to) {
    int64_t row = copied_row(p);
    if (p->a_row == 1) {
        dycl_transpose4 *transpose = dycl_kern_transpose4(p->kernel->isa);
        transpose((dycl_word *)to, row, (const dycl_word *)a, p->a_column, (size_t)rows, (size_t)depth);
        return;
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t l = 0; l < depth; l++) to[i * row + l] = a[i * p->a_row + l * p->a_column];
}

/* What a thread makes: a rectangle of C. */
typedef struct {
    int64_t left, right, top, bottom;
} rectangle;

/* What a thread makes with, and the part of B that it has packed last: the units of a share that are some of its rows
 * take the same. */
typedef struct {
    float *packed, *copied;
    int64_t n, columns; /* from column n so many; 0: none yet */
} workplace;

/* A part's columns by the unit's rows, for a part of k. */
static void multiply(const dycl_product *p, const dycl_gemm_layout *form, const rectangle *s, const float *a,
                     const dycl_gemm_finish *finish, float *c, const workplace *at) {
    for (int64_t i = s->top; i < s->bottom; i += p->rows) {
        int64_t count = least(s->bottom - i, p->rows), stride = p->a_row, depth = form->sizes[2];
        const float *rows = a + i * p->a_row;
        dycl_gemm_finish now = *finish;
        if (!lies_in_rows(p)) {
            copy_rows(p, rows, count, depth, at->copied);
            rows = at->copied;
            stride = copied_row(p);
        }
        if (now.residual) now.residual = c + i * p->c_row; /* what the parts of k before have made */
        const dycl_gemm_rows r = dycl_gemm_matrix(rows, count, depth, stride, c + i * p->c_row, p->c_row);
        dycl_gemm_run(form, &r, at->packed, &now, 1);
    }
}

/* Where k has several parts, B was packed over. */
static void pack(const dycl_product *p, const dycl_gemm_layout *form, const float *b, int64_t n, workplace *at) {
    if (p->depth >= p->k && at->n == n && at->columns == form->n) return;
    dycl_gemm_pack(form, b, NULL, at->packed, 1);
    at->n = n;
    at->columns = form->n;
}

static void run_unit(const dycl_product *p, const rectangle *s, const float *a, const float *b, const float *bias,
                     float *c, workplace *at) {
    for (int64_t n = s->left; n < s->right; n += p->columns)
        for (int64_t k = 0; k < p->k; k += p->depth) {
            const dycl_gemm_layout form = {.kernel = p->kernel,
                                           .n = least(s->right - n, p->columns),
                                           .sizes = {1, 1, least(p->k - k, p->depth)},
                                           .strides = {0, 0, p->b_row},
                                           .column = p->b_column,
                                           .vectors = p->vectors};
            const dycl_gemm_finish finish = {.bias = bias && k + p->depth >= p->k ? bias + n : NULL,
                                             .residual = k ? c : NULL,
                                             .low = -INFINITY,
                                             .high = INFINITY};
            pack(p, &form, b + n * p->b_column + k * p->b_row, n, at);
            multiply(p, &form, s, a + k * p->a_column, &finish, c + n, at);
        }
}

/* That of thread `part` of across * down. */
static rectangle share_of(const dycl_product *p, int64_t part) {
    int64_t i = part % p->across, j = part / p->across, panels = dycl_divided_up(p->n, panel_of(p)),
            tiles = dycl_divided_up(p->m, tile_of(p));
    return (rectangle){panels * i / p->across * panel_of(p), least(panels * (i + 1) / p->across * panel_of(p), p->n),
                       tiles * j / p->down * tile_of(p), least(tiles * (j + 1) / p->down * tile_of(p), p->m)};
}

/* Units of a share: some of its columns; or, where rows have to be copied for each, some of the rows, if B's columns
 * need not be packed again for them. */
static int64_t units_of(const dycl_product *p) {
    int parts = p->across * p->down;
    double ns = DYCL_GEMM_NS * (double)p->m * (double)p->n * (double)p->k / parts;
    if (lies_in_rows(p)) return dycl_steal_units(ns, dycl_divided_up(p->n, panel_of(p)) / p->across / UNIT_PANELS);
    if (p->depth < p->k || dycl_divided_up(p->n, p->across) > p->columns) return 1;
    return dycl_steal_units(ns, p->m / p->down / UNIT_ROWS);
}

static rectangle unit_of(const dycl_product *p, const rectangle *share, int64_t unit, int64_t units) {
    rectangle s = *share;
    if (lies_in_rows(p)) {
        int64_t panels = dycl_divided_up(share->right - share->left, panel_of(p));
        s.left = share->left + dycl_steal_cut(0, panels, unit, units) * panel_of(p);
        s.right = least(share->left + dycl_steal_cut(0, panels, unit + 1, units) * panel_of(p), share->right);
    } else {
        int64_t bands = dycl_divided_up(share->bottom - share->top, UNIT_ROWS);
        s.top = share->top + dycl_steal_cut(0, bands, unit, units) * UNIT_ROWS;
        s.bottom = least(share->top + dycl_steal_cut(0, bands, unit + 1, units) * UNIT_ROWS, share->bottom);
    }
    return s;
}

static workplace workplace_of(const dycl_product *p, char *work, int64_t thread) {
    char *mine = work + (size_t)thread * thread_bytes(p);
    return (workplace){(float *)mine, (float *)(mine + packed_bytes(p)), 0, 0};
}

void dycl_product_run(const dycl_product *p, const float *a, const float *b, const float *bias, float *c, char *work) {
    int parts = p->across * p->down;
    if (parts == 1) {
        const rectangle all = share_of(p, 0);
        workplace at = workplace_of(p, work, 0);
        run_unit(p, &all, a, b, bias, c, &at);
        return;
    }
    const int64_t units = units_of(p);
    dycl_steal steal;
    dycl_steal_begin(&steal, parts);
#pragma omp parallel num_threads(parts)
    {
        int64_t team = omp_get_num_threads(), self = omp_get_thread_num();
        workplace at = workplace_of(p, work, self);
        dycl_steal_walk walk = dycl_steal_walk_of(self, team, parts, units);
        while (dycl_steal_next(&steal, &walk)) {
            const rectangle share = share_of(p, walk.owner), unit = unit_of(p, &share, walk.unit, units);
            if (unit.left < unit.right && unit.top < unit.bottom) run_unit(p, &unit, a, b, bias, c, &at);
        }
    }
}
