#include "kern/reduce.h"

#include <string.h>

#include "kern/parallel.h"

#define CHUNK 4096 /* elements gathered before a row kernel sees them */

/* The result of part of a reduction; which members count depends on the operator. */
typedef struct {
    int64_t n; /* elements seen; 0: nothing yet */
    dycl_running_sum sum;
    double value;  /* product, or extreme of a float dtype */
    int64_t whole; /* the same for integers; truth value */
    int64_t index;
    dycl_moments moments;
} partial;

typedef union {
    float f32;
    double f64;
    int64_t i64;
    int32_t i32;
    int16_t i16;
    int8_t i8;
    uint8_t u8;
} scalar;

static double float_of(dycl_dtype dtype, const void *p) {
    return dtype == DYCL_F32 ? (double)*(const float *)p : *(const double *)p;
}

static int64_t int_of(dycl_dtype dtype, const void *p) {
    switch (dtype) {
    case DYCL_I64: return *(const int64_t *)p;
    case DYCL_I32: return *(const int32_t *)p;
    case DYCL_I16: return *(const int16_t *)p;
    case DYCL_I8: return *(const int8_t *)p;
    default: return *(const uint8_t *)p;
    }
}

static void store_float(dycl_dtype dtype, void *p, double x) {
    if (dtype == DYCL_F32)
        *(float *)p = (float)x;
    else
        *(double *)p = x;
}

static void store_int(dycl_dtype dtype, void *p, int64_t x) {
    switch (dtype) {
    case DYCL_I64: *(int64_t *)p = x; break;
    case DYCL_I32: *(int32_t *)p = (int32_t)x; break;
    case DYCL_I16: *(int16_t *)p = (int16_t)x; break;
    default: *(uint8_t *)p = (uint8_t)x; break;
    }
}

static int is_arg(dycl_red op) { return op == DYCL_RED_ARGMAX || op == DYCL_RED_ARGMIN; }
static int is_max(dycl_red op) { return op == DYCL_RED_AMAX || op == DYCL_RED_ARGMAX; }

/* A strict comparison keeps the first of equals; among floats the first NaN beats all. */
static int beats(dycl_red op, int is_float, const partial *b, const partial *a) {
    if (is_float) {
        if (a->value != a->value) return 0;
        if (b->value != b->value) return 1;
        return is_max(op) ? b->value > a->value : b->value < a->value;
    }
    return is_max(op) ? b->whole > a->whole : b->whole < a->whole;
}

static void merge(const dycl_reduce_desc *d, partial *a, const partial *b) {
    int is_float = dycl_dtype_is_float(d->dtype);
    int64_t n = a->n + b->n;
    if (a->n == 0 || b->n == 0) {
        if (a->n == 0) *a = *b;
        return;
    }
    if (dycl_is_variance(d->op)) {
        a->moments = dycl_moments_merge(a->moments, b->moments);
    } else if (d->op == DYCL_RED_PROD) {
        a->value *= b->value;
        a->whole = (int64_t)((uint64_t)a->whole * (uint64_t)b->whole);
    } else if (d->op == DYCL_RED_ALL) {
        a->whole &= b->whole;
    } else if (d->op == DYCL_RED_ANY) {
        a->whole |= b->whole;
    } else if (is_max(d->op) || d->op == DYCL_RED_AMIN || d->op == DYCL_RED_ARGMIN) {
        if (beats(d->op, is_float, b, a)) *a = *b;
    } else {
        dycl_sum_add(&a->sum, dycl_sum_value(b->sum));
        a->whole = (int64_t)((uint64_t)a->whole + (uint64_t)b->whole);
    }
    a->n = n;
}

static dycl_moments moments_of(const dycl_reduce_plan *plan, const void *run, int64_t n) {
    dycl_moments m = dycl_kern_moments(plan->table, plan->desc->dtype, run, (size_t)n);
    if (plan->desc->dtype == DYCL_F32 && !dycl_m2_fits_f32(m.m2)) m = dycl_moments_wide(run, 1, (size_t)n);
    return m;
}

/* Reduces a contiguous run and merges it; base: index of its first element in the whole reduction. */
static void add_run(const dycl_reduce_plan *plan, partial *total, const char *run, int64_t n, int64_t base) {
    const dycl_reduce_desc *d = plan->desc;
    partial part = {.n = n};
    scalar r;
    if (dycl_is_variance(d->op)) {
        part.moments = moments_of(plan, run, n);
        merge(d, total, &part);
        return;
    }
    plan->table->red[d->op][d->dtype](&r, run, NULL, (size_t)n);
    if (is_arg(d->op)) {
        const char *best = run + (size_t)r.i64 * plan->element;
        part.index = base + r.i64;
        if (dycl_dtype_is_float(d->dtype))
            part.value = float_of(d->dtype, best);
        else
            part.whole = int_of(d->dtype, best);
    } else {
        dycl_dtype result = dycl_red_result(d->op, d->dtype);
        if (dycl_dtype_is_float(result))
            part.value = part.sum.sum = float_of(result, &r);
        else
            part.whole = int_of(result, &r);
    }
    merge(d, total, &part);
}

static void store_result(const dycl_reduce_plan *plan, void *out, const partial *p) {
    const dycl_reduce_desc *d = plan->desc;
    dycl_dtype result = dycl_red_result(d->op, d->dtype);
    double n = (double)plan->n_reduced;
    if (dycl_is_variance(d->op))
        store_float(result, out, dycl_variance(d->op, p->n ? p->moments.m2 : 0, n, d->correction));
    else if (d->op == DYCL_RED_ALL)
        store_int(result, out, p->n ? p->whole : 1);
    else if (is_arg(d->op))
        store_int(result, out, p->index);
    else if (d->op == DYCL_RED_PROD && p->n == 0)
        dycl_dtype_is_float(result) ? store_float(result, out, 1) : store_int(result, out, 1);
    else if (!dycl_dtype_is_float(result))
        store_int(result, out, p->whole);
    else if (d->op == DYCL_RED_PROD || is_max(d->op) || d->op == DYCL_RED_AMIN)
        store_float(result, out, p->value);
    else
        store_float(result, out, d->mean ? dycl_sum_value(p->sum) / n : dycl_sum_value(p->sum));
}

/* Elements [begin, end) of the reduced space of one kept element at `in`. */
static void reduce_range(const dycl_reduce_plan *plan, partial *total, const char *in, int64_t begin, int64_t end) {
    _Alignas(64) char buffer[CHUNK * sizeof(double)];
    const dycl_space *s = &plan->reduced;
    const int last = s->rank - 1;
    const int64_t inner = s->size[last], stride = s->stride[last], element = (int64_t)plan->element;
    const int direct = stride == 1 && (inner >= 64 || inner == plan->n_reduced);
    int64_t position[DYCL_MAX_RANK], filled = 0, from = begin, offset, at;
    if (begin == end) return; /* a dimension may be of size 0 */
    offset = dycl_space_seek(s, begin, position), at = position[last];
    offset -= at * stride;
    while (begin < end) {
        int64_t count = inner - at < end - begin ? inner - at : end - begin;
        const char *run = in + (offset + at * stride) * element;
        if (direct) {
            add_run(plan, total, run, count, begin);
        } else {
            if (count > CHUNK - filled) count = CHUNK - filled;
            dycl_kern_gather_run(buffer + filled * element, run, stride, (size_t)count, plan->element);
            filled += count;
            if (filled == CHUNK || begin + count == end) {
                add_run(plan, total, buffer, filled, from);
                from += filled, filled = 0;
            }
        }
        begin += count, at += count;
        if (at == inner) at = 0, offset = dycl_space_next(s, last, offset, position);
    }
}

/* One contiguous row per kept element: nothing to combine. */
static int is_plain_row(const dycl_reduce_plan *plan) {
    return plan->reduced.rank == 1 && plan->reduced.stride[0] == 1 && plan->n_reduced > 0;
}

/* Outer dimension reduced, no column kernel for it (integers, products, indices): a block of columns is transposed
 * into rows that are short enough for several to fit the buffer. */
static int is_transposed(const dycl_reduce_plan *plan) {
    const dycl_space *k = &plan->kept;
    return !dycl_is_variance(plan->desc->op) && !plan->desc->mean && plan->reduced.rank == 1 && k->rank > 0 &&
           k->stride[k->rank - 1] == 1 && plan->n_reduced > 0 && plan->n_reduced <= CHUNK / 16;
}

/* Indices of extremes of floats, with vectors across the columns. */
static int is_arg_columns(const dycl_reduce_plan *plan) {
    const dycl_space *k = &plan->kept;
    return is_arg(plan->desc->op) && dycl_dtype_is_float(plan->desc->dtype) && plan->reduced.rank == 1 && k->rank > 0 &&
           k->stride[k->rank - 1] == 1 && k->size[k->rank - 1] >= 8 && plan->n_reduced > 0 &&
           plan->n_reduced <= INT32_MAX;
}

static void reduce_arg_columns(const dycl_reduce_plan *plan, char *out, const char *in, int64_t begin, int64_t end) {
    const dycl_reduce_desc *d = plan->desc;
    const dycl_column_arg_fn kernel = plan->table->column_arg[d->op == DYCL_RED_ARGMIN][d->dtype == DYCL_F64];
    const int64_t width = plan->kept.size[plan->kept.rank - 1];
    for (int64_t i = begin, count; i < end; i += count) {
        const char *from = in + dycl_space_seek(&plan->kept, i, NULL) * (int64_t)plan->element;
        count = width - i % width < end - i ? width - i % width : end - i;
        kernel((int64_t *)out + i, from, plan->reduced.stride[0], (size_t)plan->n_reduced, (size_t)count);
    }
}

static void reduce_transposed(const dycl_reduce_plan *plan, char *out, const char *in, int64_t begin, int64_t end) {
    _Alignas(64) char buffer[CHUNK * sizeof(double)];
    const dycl_red_fn row = plan->table->red[plan->desc->op][plan->desc->dtype];
    const int64_t n = plan->n_reduced, width = plan->kept.size[plan->kept.rank - 1], element = (int64_t)plan->element;
    const int64_t buffer_strides[2] = {n, 1}, in_strides[2] = {1, plan->reduced.stride[0]};
    for (int64_t i = begin, count; i < end; i += count) {
        const char *from = in + dycl_space_seek(&plan->kept, i, NULL) * element;
        count = width - i % width < end - i ? width - i % width : end - i;
        if (count > CHUNK / n) count = CHUNK / n;
        dycl_kern_copy(buffer, buffer_strides, from, in_strides, (int64_t[2]){count, n}, 2, plan->element);
        for (int64_t j = 0; j < count; j++)
            row(out + (i + j) * (int64_t)plan->out_element, buffer + j * n * element, NULL, (size_t)n);
    }
}

static void reduce_kept(const dycl_reduce_plan *plan, char *out, const char *in, int64_t begin, int64_t end) {
    const dycl_reduce_desc *d = plan->desc;
    const int plain = is_plain_row(plan);
    const dycl_red_fn row = plan->table->red[d->op][d->dtype];
    int64_t position[DYCL_MAX_RANK], offset;
    if (!plain && is_arg_columns(plan)) {
        reduce_arg_columns(plan, out, in, begin, end);
        return;
    }
    if (!plain && is_transposed(plan)) {
        reduce_transposed(plan, out, in, begin, end);
        return;
    }
    offset = dycl_space_seek(&plan->kept, begin, position);
    for (int64_t i = begin; i < end; i++) {
        const char *from = in + offset * (int64_t)plan->element;
        char *to = out + i * (int64_t)plan->out_element;
        if (plain && dycl_is_variance(d->op)) {
            dycl_moments m = moments_of(plan, from, plan->n_reduced);
            store_float(d->dtype, to, dycl_variance(d->op, m.m2, m.n, d->correction));
        } else if (plain) {
            row(to, from, NULL, (size_t)plan->n_reduced);
            if (d->mean) store_float(d->dtype, to, float_of(d->dtype, to) / (double)plan->n_reduced);
        } else {
            partial total = {0};
            reduce_range(plan, &total, from, 0, plan->n_reduced);
            store_result(plan, to, &total);
        }
        offset = dycl_space_next(&plan->kept, plan->kept.rank, offset, position);
    }
}

static void reduce_piece(const dycl_reduce_plan *plan, const char *in, partial *parts, int64_t task) {
    int64_t begin = task % plan->pieces * plan->piece, end = begin + plan->piece;
    int64_t offset = dycl_space_seek(&plan->kept, task / plan->pieces, NULL);
    partial total = {0};
    reduce_range(plan, &total, in + offset * (int64_t)plan->element, begin,
                 end < plan->n_reduced ? end : plan->n_reduced);
    parts[task] = total;
}

static void reduce_pieces(const dycl_reduce_plan *plan, char *out, const char *in, partial *parts, int threads) {
    int64_t tasks = plan->n_kept * plan->pieces;
    if (threads < 2) {
        for (int64_t task = 0; task < tasks; task++) reduce_piece(plan, in, parts, task);
    } else {
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t task = 0; task < tasks; task++) reduce_piece(plan, in, parts, task);
    }
    for (int64_t i = 0; i < plan->n_kept; i++) {
        partial total = parts[i * plan->pieces];
        for (int64_t k = 1; k < plan->pieces; k++) merge(plan->desc, &total, &parts[i * plan->pieces + k]);
        store_result(plan, out + i * (int64_t)plan->out_element, &total);
    }
}

/* Merges neighbouring dimensions that one stride walks. */
static void collapse(dycl_space *s) {
    int last = 0;
    for (int i = 1; i < s->rank; i++) {
        if (s->stride[last] == s->stride[i] * s->size[i])
            s->size[last] *= s->size[i], s->stride[last] = s->stride[i];
        else
            last++, s->size[last] = s->size[i], s->stride[last] = s->stride[i];
    }
    if (s->rank) s->rank = last + 1;
}

static void make_plan(dycl_reduce_plan *plan, const dycl_reduce_desc *d) {
    dycl_space *r = &plan->reduced;
    *plan = (dycl_reduce_plan){
        .desc = d, .table = dycl_kern_red_table(dycl_cpu_isa()), .n_kept = 1, .n_reduced = 1, .pieces = 1};
    plan->element = dycl_dtype_size(d->dtype);
    plan->out_element = dycl_dtype_size(dycl_red_result(d->op, d->dtype));
    for (int i = 0; i < d->rank; i++) {
        dycl_space *s = d->reduce >> i & 1 ? r : &plan->kept;
        *(s == r ? &plan->n_reduced : &plan->n_kept) *= d->sizes[i];
        if (d->sizes[i] == 1) continue;
        int at = s->rank++;
        /* The order of reduced elements matters to an index only; elsewhere, walk memory in order. */
        for (; s == r && !is_arg(d->op) && at > 0 && s->stride[at - 1] < d->strides[i]; at--)
            s->size[at] = s->size[at - 1], s->stride[at] = s->stride[at - 1];
        s->size[at] = d->sizes[i], s->stride[at] = d->strides[i];
    }
    collapse(&plan->kept);
    collapse(r);
    if (r->rank == 0) *r = (dycl_space){1, {1}, {1}};
    plan->column = DYCL_COLUMN_COUNT;
    plan->piece = plan->n_reduced;
    dycl_reduce_columns_plan(plan);
    if (plan->column == DYCL_COLUMN_COUNT && plan->n_kept < DYCL_PIECES && plan->n_reduced >= 2 * DYCL_PIECE) {
        int64_t least = (plan->n_reduced + DYCL_PIECES - 1) / DYCL_PIECES;
        plan->piece = least > DYCL_PIECE ? least : DYCL_PIECE;
        plan->pieces = (plan->n_reduced + plan->piece - 1) / plan->piece;
    }
}

size_t dycl_kern_reduce_scratch(const dycl_reduce_desc *desc) {
    dycl_reduce_plan plan;
    make_plan(&plan, desc);
    if (plan.column != DYCL_COLUMN_COUNT) return dycl_reduce_columns_scratch(&plan);
    return plan.pieces > 1 ? (size_t)(plan.n_kept * plan.pieces) * sizeof(partial) : 0;
}

dycl_status dycl_kern_reduce(const dycl_reduce_desc *desc, void *out, const void *in, void *scratch) {
    dycl_reduce_plan plan;
    int is_float = dycl_dtype_is_float(desc->dtype);
    make_plan(&plan, desc);
    if (desc->mean && !is_float) return dycl_error_set("mean of %s", dycl_dtype_name(desc->dtype));
    if (!plan.table->red[desc->op][desc->dtype])
        return dycl_error_set("no reduction %d of %s", (int)desc->op, dycl_dtype_name(desc->dtype));
    if (plan.n_kept == 0) return DYCL_OK;
    /* torch has a message of its own for an extreme of nothing. */
    if (plan.n_reduced == 0 && (is_arg(desc->op) || is_max(desc->op) || desc->op == DYCL_RED_AMIN)) return DYCL_BAIL;
    int threads = dycl_kern_threads((size_t)plan.n_kept * (size_t)plan.n_reduced * plan.element);
    if (plan.column != DYCL_COLUMN_COUNT) {
        dycl_reduce_columns(&plan, out, in, scratch);
    } else if (plan.pieces > 1) {
        reduce_pieces(&plan, out, in, scratch, threads);
    } else if (threads < 2 || plan.n_kept < 2) {
        reduce_kept(&plan, out, in, 0, plan.n_kept);
    } else {
#pragma omp parallel num_threads(threads)
        {
            int64_t team = omp_get_num_threads(), self = omp_get_thread_num();
            reduce_kept(&plan, out, in, plan.n_kept * self / team, plan.n_kept * (self + 1) / team);
        }
    }
    return DYCL_OK;
}
