#include "exec/tile/tile.h"

#include "kern/steal.h"

#include <omp.h>
#include <string.h>

typedef struct {
    char *ptr[DYCL_TILE_LOCATIONS];  /* where each location is in this tile */
    char *base[DYCL_TILE_LOCATIONS]; /* where it begins */
    int64_t row, column, row_count, column_count;
} tile;

static int64_t odometer_offset(const dycl_tile_program *p, const dycl_tile_location *l, int64_t row) {
    const int64_t *strides = p->strides + l->strides;
    int64_t offset = 0;
    for (int d = p->outer - 1; d > 0; d--) {
        int64_t next = row / p->outer_sizes[d];
        offset += (row - next * p->outer_sizes[d]) * strides[d];
        row = next;
    }
    return offset + row * strides[0];
}

/* Where row r of the tile is. */
static char *row_at(const dycl_tile_program *p, const tile *t, uint8_t location, int64_t r) {
    const dycl_tile_location *l = &p->locations[location];
    if (l->at == DYCL_AT_ODOMETER)
        return t->base[location] + odometer_offset(p, l, t->row + r) + t->column * l->column_bytes;
    return t->ptr[location] + r * l->row_bytes;
}

static void scatter(char *dst, const char *src, int64_t stride, int64_t n, int element) {
    switch (element) {
    case 8:
        for (int64_t i = 0; i < n; i++) memcpy(dst + i * stride * 8, src + i * 8, 8);
        return;
    case 4:
        for (int64_t i = 0; i < n; i++) memcpy(dst + i * stride * 4, src + i * 4, 4);
        return;
    case 2:
        for (int64_t i = 0; i < n; i++) memcpy(dst + i * stride * 2, src + i * 2, 2);
        return;
    default:
        for (int64_t i = 0; i < n; i++) dst[i * stride] = src[i];
    }
}

/* Rows that repeat along the innermost outer dimension (a factor for each channel, channels last): one is read, the
 * others are copies of it, twice as many each time. */
static int load_repeated(const dycl_tile_program *p, const tile *t, const dycl_tile_instruction *i) {
    const dycl_tile_location *l = &p->locations[i->a];
    if (l->at != DYCL_AT_ODOMETER || p->outer < 1 || p->strides[l->strides + (uint32_t)p->outer - 1] != 0) return 0;
    size_t bytes = (size_t)t->column_count * i->element;
    int64_t period = p->outer_sizes[p->outer - 1];
    char *dst = t->ptr[i->dst];
    for (int64_t r = 0; r < t->row_count;) {
        int64_t count = period - (t->row + r) % period;
        if (count > t->row_count - r) count = t->row_count - r;
        char *to = dst + (size_t)r * bytes;
        memcpy(to, row_at(p, t, i->a, r), bytes);
        for (int64_t done = 1; done < count; done *= 2) {
            int64_t more = count - done < done ? count - done : done;
            memcpy(to + (size_t)done * bytes, to, (size_t)more * bytes);
        }
        r += count;
    }
    return 1;
}

static void move_rows(const dycl_tile_program *p, const tile *t, const dycl_tile_instruction *i) {
    size_t width = (size_t)t->column_count;
    size_t element = i->element;
    char *dst = t->ptr[i->dst];
    const char *src = t->ptr[i->a];
    switch (i->what) {
    case DYCL_DO_LOAD:
        if (i->stride == 1 && load_repeated(p, t, i)) return;
        for (int64_t r = 0; r < t->row_count; r++)
            dycl_kern_gather_run(dst + (size_t)r * width * element, row_at(p, t, i->a, r), i->stride, width, element);
        return;
    case DYCL_DO_LOAD_ROW:
        if (p->locations[i->a].at == DYCL_AT_LINEAR) {
            dycl_kern_gather_run(dst, src, p->locations[i->a].row_bytes / (int64_t)element, (size_t)t->row_count,
                                 element);
            return;
        }
        for (int64_t r = 0; r < t->row_count; r++) memcpy(dst + (size_t)r * element, row_at(p, t, i->a, r), element);
        return;
    case DYCL_DO_STORE:
        for (int64_t r = 0; r < t->row_count; r++) {
            char *to = row_at(p, t, i->dst, r);
            const char *from = src + (size_t)r * width * element;
            if (i->stride == 1)
                memcpy(to, from, width * element);
            else
                scatter(to, from, i->stride, (int64_t)width, (int)element);
        }
        return;
    default: /* DYCL_DO_STORE_ROW */
        for (int64_t r = 0; r < t->row_count; r++) memcpy(row_at(p, t, i->dst, r), src + (size_t)r * element, element);
    }
}

static void run_tile(const dycl_tile_program *p, tile *t) {
    size_t n = (size_t)(t->row_count * t->column_count), width = (size_t)t->column_count;
    for (int k = 0; k < p->instruction_count; k++) {
        const dycl_tile_instruction *i = &p->instructions[k];
        char *dst = t->ptr[i->dst];
        const char *a = t->ptr[i->a], *b = t->ptr[i->b], *c = t->ptr[i->c];
        switch (i->what) {
        case DYCL_DO_EW: i->fn.ew(dst, a, b, c, n); break;
        case DYCL_DO_EW_ROW: i->fn.ew(dst, a, b, c, (size_t)t->row_count); break;
        case DYCL_DO_EW_COLUMN: i->fn.ew(dst, a, b, c, width); break;
        case DYCL_DO_EW_ONE: i->fn.ew(dst, a, b, c, 1); break;
        case DYCL_DO_RED_TILE: i->fn.red(dst, a, NULL, n); break;
        case DYCL_DO_EW_ROWS:
        case DYCL_DO_RED:
        case DYCL_DO_ROW: {
            for (int64_t r = t->row_count; r > 0; r--) {
                if (i->what == DYCL_DO_EW_ROWS)
                    i->fn.ew(dst, a, b, c, width);
                else if (i->what == DYCL_DO_RED)
                    i->fn.red(dst, a, b, width);
                else
                    i->fn.row(dst, a, b, c, width, i->eps);
                dst += i->dst_step;
                a += i->a_step;
                b += i->b_step;
                c += i->c_step;
            }
            break;
        }
        default: move_rows(p, t, i);
        }
    }
}

static void run_range(const dycl_tile_program *p, dycl_plan *plan, char *scratch, int64_t from, int64_t to) {
    tile t;
    char *parts = p->total.adds ? dycl_at(plan, p->total.parts) : NULL;
    const int64_t element = (int64_t)dycl_dtype_size(p->total.dtype);
    for (int i = 0; i < p->location_count; i++) {
        const dycl_tile_location *l = &p->locations[i];
        t.ptr[i] = t.base[i] = l->at == DYCL_AT_NONE       ? NULL
                               : l->at == DYCL_AT_PART     ? parts
                               : l->at == DYCL_AT_REGISTER ? scratch + l->offset
                               : l->constant               ? (char *)(uintptr_t)&p->constants[l->ref.offset]
                                                           : dycl_at(plan, l->ref);
    }
    for (int64_t k = from; k < to; k++) {
        int64_t row_tile = p->column_tiles == 1 ? k : k / p->column_tiles;
        t.row = row_tile * p->tile_rows;
        t.column = (k - row_tile * p->column_tiles) * p->tile_columns;
        t.row_count = p->rows - t.row < p->tile_rows ? p->rows - t.row : p->tile_rows;
        t.column_count = p->columns - t.column < p->tile_columns ? p->columns - t.column : p->tile_columns;
        for (int m = 0; m < p->moving_count; m++) {
            int i = p->moving[m];
            const dycl_tile_location *l = &p->locations[i];
            int64_t offset = l->at == DYCL_AT_LINEAR ? t.row * l->row_bytes : odometer_offset(p, l, t.row);
            t.ptr[i] = t.base[i] + offset + t.column * l->column_bytes;
        }
        if (parts) t.ptr[p->total.location] = parts + k * element;
        run_tile(p, &t);
    }
}

static void run_tiles(const dycl_tile_program *p, dycl_plan *plan, int64_t tiles) {
    char *scratch = p->scratch_bytes ? dycl_at(plan, p->scratch) : NULL;
    if (p->threads <= 1) {
        run_range(p, plan, scratch, 0, tiles);
        return;
    }
    int threads = p->threads < omp_get_max_threads() ? p->threads : omp_get_max_threads();
    dycl_steal steal;
    dycl_steal_begin(&steal, threads);
#pragma omp parallel num_threads(threads)
    {
        int64_t team = omp_get_num_threads(), self = omp_get_thread_num();
        int64_t units = dycl_steal_units(p->nanoseconds / (double)team, tiles / team);
        char *mine = scratch ? scratch + (size_t)self * p->scratch_bytes : NULL;
        dycl_steal_walk walk = dycl_steal_walk_of(self, team, team, units);
        while (dycl_steal_next(&steal, &walk)) {
            int64_t from, end;
            dycl_steal_range(&walk, tiles, &from, &end);
            run_range(p, plan, mine, from, end);
        }
    }
}

dycl_status dycl_tile_run(const dycl_step *step, dycl_plan *plan) {
    const dycl_tile_program *p = step->args;
    int64_t tiles = p->row_tiles * p->column_tiles;
    run_tiles(p, plan, tiles);
    const dycl_tile_sum *t = &p->total;
    if (t->adds) dycl_kern_add_parts(t->dtype, dycl_at(plan, t->sum), dycl_at(plan, t->parts), tiles, t->divisor);
    return DYCL_OK;
}
