#include "kern/add.h"
#include "kern/parallel.h"

#include <string.h>

/* Elements added where indices say. Two threads never write one element: each has a slice of a dimension of the result
 * that is no position, or rows, so that what is added to one element comes in the order of the source. */

#define SLICE_BYTES 65536 /* of the result: what is added to in no order stays in the first cache */
#define LEAST_WIDTH 4096  /* bytes of a slice across rows, two lines */

DYCL_ISA_CHOICE(const dycl_add_table, dycl_kern_add)

/* ---- Whole rows, the result filled: a row is first written where it is first added to, the others at the end */

enum { AGAIN, FIRST, NOTHING };

static int is_rows(const dycl_add_desc *d) {
    return d->rank == 2 && d->count == 1 && d->to_strides[0] == 0 && d->to_strides[1] == 1 && d->from_strides[1] == 1 &&
           d->index[0].strides[1] == 0 && d->index[0].stride == d->sizes[1] &&
           d->numel == d->index[0].limit * d->sizes[1];
}

size_t dycl_kern_add_scratch(const dycl_add_desc *d) {
    return is_rows(d) ? (size_t)(d->index[0].limit + d->sizes[0]) : 0;
}

/* seen: which rows get something; how: what each row of the source is. */
static const int64_t *look(const dycl_add_desc *d, const int64_t *index, uint8_t *seen, uint8_t *how) {
    const int64_t limit = d->index[0].limit, by = d->index[0].strides[0];
    memset(seen, 0, (size_t)limit);
    for (int64_t i = 0; i < d->sizes[0]; i++, index += by) {
        int64_t j = *index;
        if (d->wraps && j < 0) j += limit;
        if ((uint64_t)j >= (uint64_t)limit) return index;
        how[i] = *index == d->skip ? NOTHING : seen[j] ? AGAIN : FIRST;
        if (how[i] != NOTHING) seen[j] = 1;
    }
    return NULL;
}

typedef struct {
    const dycl_add_desc *d;
    char *to;
    const char *from, *fill;
    const int64_t *index;
    const uint8_t *seen, *how;
} rows;

/* Of the columns [begin, end) the rows [low, high) of the result. */
static void add_rows(const rows *r, int64_t begin, int64_t end, int64_t low, int64_t high) {
    const dycl_add_desc *d = r->d;
    const int64_t element = (int64_t)dycl_dtype_size(d->dtype), columns = d->sizes[1], limit = d->index[0].limit;
    const dycl_add_table *kernels = dycl_kern_add_for(dycl_cpu_isa());
    const int64_t *index = r->index;
    for (int64_t i = 0; i < d->sizes[0]; i++, index += d->index[0].strides[0]) {
        const int64_t j = *index < 0 ? *index + limit : *index;
        if (r->how[i] == NOTHING || j < low || j >= high) continue;
        char *to = r->to + (j * columns + begin) * element;
        kernels->row(d->dtype, to, r->how[i] == FIRST ? r->fill : NULL,
                     r->from + (i * d->from_strides[0] + begin) * element, end - begin);
    }
}

static void fill_rows(const rows *r, int64_t begin, int64_t end) {
    const int64_t columns = r->d->sizes[1];
    const size_t element = dycl_dtype_size(r->d->dtype);
    for (int64_t j = begin, first; j < end; j++) {
        for (first = j; j < end && !r->seen[j];) j++;
        if (j > first)
            dycl_kern_fill(r->to + (size_t)(first * columns) * element, r->fill, (size_t)((j - first) * columns),
                           element);
    }
}

static void all_rows(const rows *r, int threads) {
    const int64_t columns = r->d->sizes[1], limit = r->d->index[0].limit;
    const int64_t line = 64 / (int64_t)dycl_dtype_size(r->d->dtype), lines = (columns + line - 1) / line;
    const int64_t across = lines / 2 < 1 ? 1 : lines / 2 < threads ? lines / 2 : threads, down = threads / across;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int64_t part = 0; part < threads; part++) {
        const int64_t x = part % across, y = part / across;
        if (y < down) {
            const int64_t end = lines * (x + 1) / across * line;
            add_rows(r, lines * x / across * line, end < columns ? end : columns, limit * y / down,
                     limit * (y + 1) / down);
        }
        fill_rows(r, limit * part / threads, limit * (part + 1) / threads);
    }
}

/* ---- Everything else: slices of one dimension */

typedef struct {
    int dim;                              /* -1: none can be cut */
    int64_t width, parts, behind, before; /* behind, before: of the result's elements in memory */
} cut;

/* All columns of a row have the same place: slices of them are of use to threads only. */
static int has_rows(const dycl_add_desc *d, int dim) {
    int whole = d->to_strides[dim] == 1;
    for (int k = 0; k < d->count; k++) whole &= d->index[k].strides[dim] == 0;
    return whole;
}

/* The outermost dimension whose slices are small and enough, else the one that has most. */
static cut cut_of(const dycl_add_desc *d, int threads) {
    const int64_t element = (int64_t)dycl_dtype_size(d->dtype);
    cut c = {-1, 0, 0, 0, 0};
    for (int i = 0; i < d->rank; i++) {
        if (d->to_strides[i] == 0) continue;
        const int64_t extent = d->extents[i], each = d->numel / extent * element;
        const int64_t least = d->to_strides[i] == 1 ? LEAST_WIDTH / element : 1,
                      share = (extent + threads - 1) / threads;
        int64_t width = has_rows(d, i) ? share : SLICE_BYTES / each < share ? SLICE_BYTES / each : share;
        if (width < least) width = least;
        const int64_t parts = (extent + width - 1) / width;
        if (parts <= c.parts) continue;
        c = (cut){i, width, parts, d->to_strides[i], d->numel / (d->to_strides[i] * extent)};
        if (parts >= threads && each * width <= SLICE_BYTES) break;
    }
    return c;
}

static const int64_t *add_slice(const dycl_add_desc *d, const cut *c, int64_t part, char *to, const void *fill,
                                const char *from, const int64_t *const *index) {
    const int64_t element = (int64_t)dycl_dtype_size(d->dtype), begin = part * c->width,
                  end = begin + c->width < d->extents[c->dim] ? begin + c->width : d->extents[c->dim];
    for (int64_t b = 0; b < c->before && fill; b++)
        dycl_kern_fill(to + (b * d->extents[c->dim] + begin) * c->behind * element, fill,
                       (size_t)((end - begin) * c->behind), (size_t)element);
    dycl_add_desc own = *d;
    const int64_t *at[DYCL_MAX_RANK];
    const int64_t last = end < d->sizes[c->dim] ? end : d->sizes[c->dim];
    if (last <= begin) return NULL;
    own.sizes[c->dim] = last - begin;
    for (int k = 0; k < d->count; k++) at[k] = index[k] + begin * d->index[k].strides[c->dim];
    return dycl_kern_add_for(dycl_cpu_isa())
        ->elements(&own, to + begin * d->to_strides[c->dim] * element, from + begin * d->from_strides[c->dim] * element,
                   at);
}

const int64_t *dycl_kern_add(const dycl_add_desc *d, void *to, const void *fill, const void *from,
                             const int64_t *const *index, void *scratch) {
    const size_t element = dycl_dtype_size(d->dtype);
    size_t count = 1;
    for (int i = 0; i < d->rank; i++) count *= (size_t)d->sizes[i];
    const int threads = dycl_kern_threads(count * (2 * element + 8) + (fill ? (size_t)d->numel * element : 0));
    const int64_t *bad = NULL;
    if (fill && is_rows(d)) {
        uint8_t *seen = scratch, *how = seen + d->index[0].limit;
        if ((bad = look(d, index[0], seen, how))) return bad;
        const rows r = {d, to, from, fill, index[0], seen, how};
        if (threads < 2) {
            add_rows(&r, 0, d->sizes[1], 0, d->index[0].limit);
            fill_rows(&r, 0, d->index[0].limit);
        } else {
            all_rows(&r, threads);
        }
        return NULL;
    }
    const cut c = cut_of(d, threads);
    if (c.dim < 0) {
        if (fill) dycl_kern_fill(to, fill, (size_t)d->numel, element);
        return dycl_kern_add_for(dycl_cpu_isa())->elements(d, to, from, index);
    }
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t part = 0; part < c.parts; part++) {
        const int64_t *stopped = add_slice(d, &c, part, to, fill, from, index);
        if (stopped) {
#pragma omp atomic write
            bad = stopped;
        }
    }
    return bad;
}
