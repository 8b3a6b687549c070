/* Reduction of outer dimensions where the innermost kept dimension is contiguous: rows are added into a tile of
 * columns. */
#include <string.h>

#include "kern/parallel.h"
#include "kern/reduce.h"

#define TILE DYCL_COLUMN_TILE

/* One task: a tile of columns of one outer kept index, over one piece of the reduced space. */
typedef struct {
    const dycl_reduce_plan *plan;
    const char *in; /* at the tile's first column */
    size_t columns;
    int64_t begin, end;
} tile_task;

/* Sums kept wide: f32 rows are added at most DYCL_COLUMN_ROWS at a time, then go to f64; f64 with Neumaier's
 * correction. Products likewise, without one. */
typedef struct {
    double sum[TILE], lost[TILE];
} wide_tile;

static int is_extreme(const dycl_reduce_plan *plan) {
    return plan->column == DYCL_COLUMN_AMAX || plan->column == DYCL_COLUMN_AMIN;
}

static double start_of(const dycl_reduce_plan *plan) {
    switch (plan->column) {
    case DYCL_COLUMN_AMAX: return -INFINITY;
    case DYCL_COLUMN_AMIN: return INFINITY;
    case DYCL_COLUMN_PROD: return 1;
    default: return 0;
    }
}

static int is_f64(const dycl_reduce_plan *plan) { return plan->desc->dtype == DYCL_F64; }

static double wide_value(const wide_tile *wide, size_t j) {
    return dycl_sum_value((dycl_running_sum){wide->sum[j], wide->lost[j]});
}

static void clear(wide_tile *wide, size_t columns) {
    memset(wide->sum, 0, columns * sizeof(double));
    memset(wide->lost, 0, columns * sizeof(double));
}

static void flush_product(const dycl_reduce_plan *plan, wide_tile *wide, void *acc, size_t columns) {
    double *f64 = acc;
    float *f32 = acc;
    for (size_t j = 0; j < columns && is_f64(plan); j++) wide->sum[j] *= f64[j], f64[j] = 1;
    for (size_t j = 0; j < columns && !is_f64(plan); j++) wide->sum[j] *= (double)f32[j], f32[j] = 1;
}

static void flush(const dycl_reduce_plan *plan, wide_tile *wide, void *acc, size_t columns) {
    if (plan->column == DYCL_COLUMN_PROD) {
        flush_product(plan, wide, acc, columns);
        return;
    }
    if (is_f64(plan)) {
        const double *a = acc;
        for (size_t j = 0; j < columns; j++) {
            dycl_running_sum s = {wide->sum[j], wide->lost[j]};
            dycl_sum_add(&s, a[j]);
            wide->sum[j] = s.sum, wide->lost[j] = s.lost;
        }
    } else {
        const float *a = acc;
#pragma omp simd
        for (size_t j = 0; j < columns; j++) wide->sum[j] += (double)a[j];
    }
    memset(acc, 0, columns * plan->element);
}

/* Runs one column kernel over the task's rows. wide: how the accumulators are kept wide, two of them for MOMENTS;
 * NULL where that is not needed. */
static void accumulate(const tile_task *t, dycl_column column, void *acc, const void *operand, wide_tile *wide) {
    const dycl_reduce_plan *plan = t->plan;
    const dycl_column_fn kernel = plan->table->column[column][is_f64(plan)];
    const dycl_space *s = &plan->reduced;
    const int last = s->rank - 1;
    const int64_t inner = s->size[last], stride = s->stride[last], element = (int64_t)plan->element;
    int64_t position[DYCL_MAX_RANK], added = 0;
    int64_t offset = dycl_space_seek(s, t->begin, position), at = position[last];
    char *squares = (char *)acc + TILE * element;
    offset -= at * stride;
    for (int64_t i = t->begin, rows; i < t->end; i += rows) {
        rows = inner - at < t->end - i ? inner - at : t->end - i;
        if (rows > DYCL_COLUMN_ROWS - added) rows = DYCL_COLUMN_ROWS - added;
        kernel(acc, t->in + (offset + at * stride) * element, stride, (size_t)rows, operand, t->columns);
        added += rows, at += rows;
        if (added == DYCL_COLUMN_ROWS || i + rows == t->end) {
            if (wide) flush(plan, wide, acc, t->columns);
            if (column == DYCL_COLUMN_MOMENTS) flush(plan, wide + 1, squares, t->columns);
            added = 0;
        }
        if (at == inner) at = 0, offset = dycl_space_next(s, last, offset, position);
    }
}

typedef union {
    _Alignas(64) float f32[2 * TILE];
    double f64[2 * TILE];
} tile_buffer;

static void set_tile(const dycl_reduce_plan *plan, tile_buffer *tile, size_t j, double x) {
    if (is_f64(plan))
        tile->f64[j] = x;
    else
        tile->f32[j] = (float)x;
}

static double tile_at(const dycl_reduce_plan *plan, const tile_buffer *tile, size_t j) {
    return is_f64(plan) ? tile->f64[j] : (double)tile->f32[j];
}

/* The rows of the task in one column, where their squares left a float's range. */
static dycl_moments column_moments(const tile_task *t, size_t column) {
    const dycl_space *s = &t->plan->reduced;
    const int last = s->rank - 1;
    int64_t position[DYCL_MAX_RANK], offset = dycl_space_seek(s, t->begin, position), at = position[last], count;
    dycl_moments all = {0, 0, 0};
    offset -= at * s->stride[last];
    for (int64_t i = t->begin; i < t->end; i += count) {
        const float *from = (const float *)t->in + column + offset + at * s->stride[last];
        count = s->size[last] - at < t->end - i ? s->size[last] - at : t->end - i;
        all = dycl_moments_merge(all, dycl_moments_wide(from, s->stride[last], (size_t)count));
        at = 0, offset = dycl_space_next(s, last, offset, position);
    }
    return all;
}

/* result[0]: sum, product, extreme or mean; result[1]: the sum of squared deviations. */
static void reduce_tile(const tile_task *t, double (*result)[TILE]) {
    const dycl_reduce_plan *plan = t->plan;
    const double n = (double)(t->end - t->begin);
    tile_buffer acc, mean;
    wide_tile wide[2];
    for (size_t j = 0; j < t->columns; j++) set_tile(plan, &acc, j, start_of(plan)); /* and each flush leaves it so */
    if (is_extreme(plan)) {
        accumulate(t, plan->column, &acc, NULL, NULL);
        for (size_t j = 0; j < t->columns; j++) result[0][j] = tile_at(plan, &acc, j);
        return;
    }
    clear(wide, t->columns);
    for (size_t j = 0; j < t->columns; j++) wide->sum[j] = start_of(plan);
    accumulate(t, plan->column, &acc, NULL, wide);
    for (size_t j = 0; j < t->columns; j++) result[0][j] = wide_value(wide, j);
    if (!dycl_is_variance(plan->desc->op)) return;
    for (size_t j = 0; j < t->columns; j++) set_tile(plan, &mean, j, result[0][j] / n);
    clear(&wide[0], t->columns), clear(&wide[1], t->columns);
    memset((char *)&acc + TILE * plan->element, 0, t->columns * plan->element);
    accumulate(t, DYCL_COLUMN_MOMENTS, &acc, &mean, wide);
    for (size_t j = 0; j < t->columns; j++) {
        double sums[2] = {wide_value(&wide[0], j), wide_value(&wide[1], j)};
        dycl_moments m = dycl_moments_from(sums, tile_at(plan, &mean, j), n);
        if (!is_f64(plan) && !dycl_m2_fits_f32(m.m2)) m = column_moments(t, j);
        result[0][j] = m.mean, result[1][j] = m.m2;
    }
}

static void store_tile(const dycl_reduce_plan *plan, void *out, double (*result)[TILE], size_t columns) {
    const dycl_reduce_desc *d = plan->desc;
    const double n = (double)plan->n_reduced;
    for (size_t j = 0; j < columns; j++) {
        double x = result[0][j];
        if (dycl_is_variance(d->op))
            x = dycl_variance(d->op, result[1][j], n, d->correction);
        else if (d->mean)
            x /= n;
        if (is_f64(plan))
            ((double *)out)[j] = x;
        else
            ((float *)out)[j] = (float)x;
    }
}

/* Extremes, and sums and products so short that nothing wider takes part, are made where they will lie. */
static int is_straight(const dycl_reduce_plan *plan) {
    if (plan->pieces > 1 || dycl_is_variance(plan->desc->op)) return 0;
    return is_extreme(plan) || plan->n_reduced <= DYCL_COLUMN_ROWS;
}

static void reduce_straight(const tile_task *t, void *out) {
    const dycl_reduce_plan *plan = t->plan;
    const double start = start_of(plan), n = (double)plan->n_reduced;
    const float start_f32 = (float)start, n_f32 = (float)n;
    dycl_kern_fill(out, is_f64(plan) ? (const void *)&start : &start_f32, t->columns, plan->element);
    accumulate(t, plan->column, out, NULL, NULL);
    if (!plan->desc->mean) return;
    if (is_f64(plan)) {
#pragma omp simd
        for (size_t j = 0; j < t->columns; j++) ((double *)out)[j] /= n;
    } else {
#pragma omp simd
        for (size_t j = 0; j < t->columns; j++) ((float *)out)[j] /= n_f32;
    }
}

/* total and next hold n_total and n_next rows' worth. */
static void merge_tile(const dycl_reduce_plan *plan, double (*total)[TILE], double n_total, double (*next)[TILE],
                       double n_next, size_t columns) {
    for (size_t j = 0; j < columns; j++) {
        double a = total[0][j], b = next[0][j];
        if (dycl_is_variance(plan->desc->op)) {
            dycl_moments m =
                dycl_moments_merge((dycl_moments){n_total, a, total[1][j]}, (dycl_moments){n_next, b, next[1][j]});
            total[0][j] = m.mean, total[1][j] = m.m2;
        } else if (plan->column == DYCL_COLUMN_PROD) {
            total[0][j] = a * b;
        } else if (plan->column == DYCL_COLUMN_AMAX) {
            total[0][j] = b > a || b != b ? b : a;
        } else if (plan->column == DYCL_COLUMN_AMIN) {
            total[0][j] = b < a || b != b ? b : a;
        } else {
            total[0][j] = a + b;
        }
    }
}

static int64_t columns_of(const dycl_reduce_plan *plan) { return plan->kept.size[plan->kept.rank - 1]; }
static int64_t tiles_of(const dycl_reduce_plan *plan) { return (columns_of(plan) + TILE - 1) / TILE; }

void dycl_reduce_columns_plan(dycl_reduce_plan *plan) {
    static const uint8_t columns[DYCL_RED_COUNT] = {
        [DYCL_RED_SUM] = DYCL_COLUMN_SUM + 1,     [DYCL_RED_SUMABS] = DYCL_COLUMN_SUMABS + 1,
        [DYCL_RED_SUMSQ] = DYCL_COLUMN_SUMSQ + 1, [DYCL_RED_AMAX] = DYCL_COLUMN_AMAX + 1,
        [DYCL_RED_AMIN] = DYCL_COLUMN_AMIN + 1,   [DYCL_RED_VAR] = DYCL_COLUMN_SUM + 1,
        [DYCL_RED_STD] = DYCL_COLUMN_SUM + 1,     [DYCL_RED_PROD] = DYCL_COLUMN_PROD + 1,
    };
    const dycl_reduce_desc *d = plan->desc;
    const dycl_space *kept = &plan->kept, *reduced = &plan->reduced;
    int column = columns[d->op];
    if (!column || !dycl_dtype_is_float(d->dtype) || plan->n_kept == 0 || plan->n_reduced < 2) return;
    if (kept->rank == 0 || kept->stride[kept->rank - 1] != 1 || columns_of(plan) < 8) return;
    if (reduced->stride[reduced->rank - 1] == 1) return;
    plan->column = (dycl_column)(column - 1);
    int64_t width = columns_of(plan) < TILE ? columns_of(plan) : TILE,
            tasks = plan->n_kept / columns_of(plan) * tiles_of(plan);
    if (tasks < DYCL_PIECES && plan->n_reduced * width >= 2 * DYCL_PIECE) {
        int64_t least = (plan->n_reduced + DYCL_PIECES - 1) / DYCL_PIECES, useful = DYCL_PIECE / width;
        plan->piece = least > useful ? least : useful;
        plan->piece = (plan->piece + DYCL_COLUMN_ROWS - 1) / DYCL_COLUMN_ROWS * DYCL_COLUMN_ROWS;
        plan->pieces = (plan->n_reduced + plan->piece - 1) / plan->piece;
    }
}

size_t dycl_reduce_columns_scratch(const dycl_reduce_plan *plan) {
    if (plan->pieces < 2) return 0;
    return (size_t)(plan->n_kept / columns_of(plan) * tiles_of(plan) * plan->pieces) * sizeof(double[2][TILE]);
}

static void reduce_task(const dycl_reduce_plan *plan, char *out, const char *in, double (*parts)[2][TILE],
                        int64_t task) {
    const int64_t width = columns_of(plan), tiles = tiles_of(plan), output = task / plan->pieces, row = output / tiles;
    const int64_t column = output % tiles * TILE, begin = task % plan->pieces * plan->piece;
    const size_t count = (size_t)(width - column < TILE ? width - column : TILE);
    dycl_space outer = plan->kept;
    outer.rank--;
    int64_t offset = dycl_space_seek(&outer, row, NULL) + column;
    tile_task t = {plan, in + offset * (int64_t)plan->element, count, begin, begin + plan->piece};
    if (t.end > plan->n_reduced) t.end = plan->n_reduced;
    char *to = out + (row * width + column) * (int64_t)plan->element;
    if (plan->pieces > 1) {
        reduce_tile(&t, parts[task]);
    } else if (is_straight(plan)) {
        reduce_straight(&t, to);
    } else {
        double result[2][TILE];
        reduce_tile(&t, result);
        store_tile(plan, to, result, count);
    }
}

void dycl_reduce_columns(const dycl_reduce_plan *plan, void *out, const void *in, void *scratch) {
    const int64_t width = columns_of(plan), tiles = tiles_of(plan), pieces = plan->pieces;
    const int64_t outputs = plan->n_kept / width * tiles, tasks = outputs * pieces;
    double(*parts)[2][TILE] = scratch;
    int threads = dycl_kern_threads((size_t)plan->n_kept * (size_t)plan->n_reduced * plan->element);
    if (threads < 2 || tasks < 2) {
        for (int64_t task = 0; task < tasks; task++) reduce_task(plan, out, in, parts, task);
    } else {
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t task = 0; task < tasks; task++) reduce_task(plan, out, in, parts, task);
    }
    for (int64_t output = 0; output < outputs && pieces > 1; output++) {
        int64_t row = output / tiles, column = output % tiles * TILE;
        size_t count = (size_t)(width - column < TILE ? width - column : TILE);
        double(*total)[TILE] = parts[output * pieces];
        for (int64_t k = 1; k < pieces; k++) {
            int64_t done = k * plan->piece,
                    next = plan->n_reduced - done < plan->piece ? plan->n_reduced - done : plan->piece;
            merge_tile(plan, total, (double)done, parts[output * pieces + k], (double)next, count);
        }
        store_tile(plan, (char *)out + (row * width + column) * (int64_t)plan->element, total, count);
    }
}
