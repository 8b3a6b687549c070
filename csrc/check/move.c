#include "check/reference.h"

#include "base/alloc.h"

#include <math.h>
#include <string.h>

/* Operators that choose elements, put them in their places or make them, and the host's. */

/* ---- Gather. An index that is not known makes the element unknown. */

static int index_of(const dycl_reference *r, uint32_t value, const int64_t *at, int rank, int64_t size, int64_t *out) {
    dycl_number i = dycl_reference_get(r, value, at, rank);
    *out = 0;
    if (!dycl_number_known(i)) return 0;
    *out = i.i;
    return i.i >= 0 && i.i < size ? 1 : -1;
}

dycl_status dycl_reference_gather(dycl_reference *r, const dycl_node *node, const uint32_t *o, const int64_t *attrs) {
    const dycl_value *x = dycl_reference_value(r, o[0]), *index = dycl_reference_value(r, o[1]),
                     *out = dycl_reference_value(r, node->out);
    int64_t at[DYCL_MAX_RANK] = {0}, from[DYCL_MAX_RANK];
    int dim = node->op == DYCL_OP_embedding ? 0 : (int)attrs[0], known;
    if (dycl_value_numel(out) == 0) return DYCL_OK;
    do {
        if (node->op == DYCL_OP_embedding) {
            for (int d = 1; d < x->rank; d++) from[d] = at[index->rank + d - 1];
            known = index_of(r, o[1], at, index->rank, x->sizes[0], &from[0]);
        } else {
            memcpy(from, at, sizeof from);
            known = node->op == DYCL_OP_gather ? index_of(r, o[1], at, index->rank, x->sizes[dim], &from[dim])
                                               : index_of(r, o[1], &at[dim], 1, x->sizes[dim], &from[dim]);
        }
        if (known < 0) return dycl_error_bail("index out of range");
        dycl_reference_set(r, node->out, at,
                           known ? dycl_reference_get(r, o[0], from, x->rank) : dycl_number_unknown());
    } while (dycl_reference_next(at, out->sizes, out->rank));
    return DYCL_OK;
}

/* ---- Scatter: a copy, then elements of it */

static void copy_all(dycl_reference *r, uint32_t to, uint32_t from) {
    const dycl_value *out = dycl_reference_value(r, to);
    int64_t at[DYCL_MAX_RANK] = {0};
    do dycl_reference_set(r, to, at, dycl_reference_get(r, from, at, out->rank));
    while (dycl_reference_next(at, out->sizes, out->rank));
}

static void forget_all(dycl_reference *r, uint32_t value) {
    const dycl_value *out = dycl_reference_value(r, value);
    int64_t at[DYCL_MAX_RANK] = {0};
    do dycl_reference_set(r, value, at, dycl_number_unknown());
    while (dycl_reference_next(at, out->sizes, out->rank));
}

dycl_status dycl_reference_scatter(dycl_reference *r, const dycl_node *node, const uint32_t *o, const int64_t *attrs) {
    const dycl_value *x = dycl_reference_value(r, o[0]);
    int64_t at[2 * DYCL_MAX_RANK] = {0}, to[DYCL_MAX_RANK];
    copy_all(r, node->out, o[0]);
    if (node->op == DYCL_OP_view_put) {
        const dycl_value *source = dycl_reference_value(r, o[1]), *out = dycl_reference_value(r, node->out);
        int rank = (node->attr_count - 1) / 2;
        do {
            int64_t place = out->offset + attrs[0];
            for (int d = 0; d < rank; d++) place += at[d] * attrs[1 + rank + d];
            r->elements[out->root][place] = dycl_reference_get(r, o[1], at, rank);
        } while (dycl_reference_next(at, source->sizes, rank));
        return DYCL_OK;
    }
    const dycl_value *index = dycl_reference_value(r, o[1]), *source = dycl_reference_value(r, o[2]);
    do {
        int known = index_of(r, o[1], at, index->rank, x->sizes[0], &to[0]);
        if (known < 0) return dycl_error_bail("index out of range");
        if (!known) {
            forget_all(r, node->out);
            return DYCL_OK;
        }
        for (int d = 1; d < x->rank; d++) to[d] = at[index->rank + d - 1];
        dycl_reference_set(r, node->out, to, dycl_reference_get(r, o[2], at, source->rank));
    } while (dycl_reference_next(at, source->sizes, source->rank));
    return DYCL_OK;
}

/* ---- The host's: positions are known where no other order is right too */

static int before(dycl_number a, dycl_number b, int is_float, int descending) {
    double x = is_float ? a.f : (double)a.i, y = is_float ? b.f : (double)b.i;
    if (!is_float && a.i != b.i) return descending ? a.i > b.i : a.i < b.i; /* exact where doubles are not */
    if (isnan(x) || isnan(y))
        return descending ? isnan(x) && !isnan(y) : !isnan(x) && isnan(y); /* a NaN is larger than all */
    return descending ? x > y : x < y;
}

static int may_swap(dycl_number a, dycl_number b, int is_float, int stable) {
    if (!dycl_number_known(a) || !dycl_number_known(b)) return 1;
    if (a.error + b.error > 0 && fabs(a.f - b.f) <= a.error + b.error) return 1;
    int equal = is_float ? a.f == b.f || (isnan(a.f) && isnan(b.f)) : a.i == b.i;
    return equal && !stable;
}

/* The row's elements in order, by insertion. */
static void sort_row(const dycl_reference *r, uint32_t value, int64_t *at, int dim, int64_t n, int is_float,
                     int descending, dycl_number *x, int64_t *order) {
    int rank = dycl_reference_value(r, value)->rank;
    for (int64_t i = 0; i < n; i++) {
        at[dim] = i;
        dycl_number e = dycl_reference_get(r, value, at, rank);
        int64_t k = i;
        for (; k > 0 && before(e, x[k - 1], is_float, descending); k--) x[k] = x[k - 1], order[k] = order[k - 1];
        x[k] = e;
        order[k] = i;
    }
}

static dycl_status positions(dycl_reference *r, const dycl_node *node, uint32_t value, int dim, int descending,
                             int stable, int64_t k, int sorted) {
    const dycl_value *in = dycl_reference_value(r, value);
    int64_t at[DYCL_MAX_RANK] = {0}, rows[DYCL_MAX_RANK], n = in->rank ? in->sizes[dim] : 1;
    int is_float = dycl_dtype_is_float((dycl_dtype)in->dtype);
    dycl_number *x = dycl_alloc((size_t)n * sizeof *x);
    int64_t *order = dycl_alloc((size_t)n * sizeof *order);
    memcpy(rows, in->sizes, sizeof rows);
    if (in->rank) rows[dim] = 1;
    do {
        if (!x || !order) break;
        sort_row(r, value, at, dim, n, is_float, descending, x, order);
        for (int64_t i = 0; i < k; i++) {
            int tied = !sorted; /* errors differ: one that is far may reach here where the next may not */
            for (int64_t other = 0; other < n && !tied; other++)
                tied = other != i && may_swap(x[other < i ? other : i], x[other < i ? i : other], is_float, stable);
            at[dim] = i;
            dycl_reference_set(r, node->out, at, tied ? dycl_number_unknown() : dycl_number_i(DYCL_I64, order[i]));
        }
        at[dim] = 0;
    } while (dycl_reference_next(at, rows, in->rank));
    dycl_status status = x && order ? DYCL_OK : dycl_error_set("out of memory");
    dycl_free(x);
    dycl_free(order);
    return status;
}

static dycl_status histogram(dycl_reference *r, const dycl_node *node, uint32_t value, const int64_t *attrs) {
    const dycl_value *in = dycl_reference_value(r, value);
    int64_t at[DYCL_MAX_RANK] = {0}, bins = attrs[0];
    double low = dycl_attr_f64(attrs[1]), high = dycl_attr_f64(attrs[2]);
    dycl_number *count = r->elements[node->out]; /* a vector of its own */
    for (int64_t b = 0; b < bins; b++) count[b] = (dycl_number){0};
    do {
        dycl_number x = dycl_reference_get(r, value, at, in->rank);
        double place = (x.f - low) / (high - low) * (double)bins, edge = (x.error / (high - low) + 1e-5) * (double)bins;
        int sure = dycl_number_known(x) && !(fabs(place - nearbyint(place)) < edge);
        if (!isfinite(edge)) { /* nothing is known of it */
            for (int64_t b = 0; b < bins; b++) count[b] = dycl_number_unknown();
            return DYCL_OK;
        }
        if (isnan(x.f) || place < -edge || place > (double)bins + edge) continue;
        double first = fmax(floor(place - edge) - 1, 0), last = fmin(place + edge + 1, (double)(bins - 1));
        for (int64_t b = (int64_t)first; !sure && (double)b <= last; b++) count[b] = dycl_number_unknown();
        if (sure && place >= 0 && place < (double)bins) count[(int64_t)place].f += 1;
    } while (dycl_reference_next(at, in->sizes, in->rank));
    return DYCL_OK;
}

dycl_status dycl_reference_host(dycl_reference *r, const dycl_node *node, const uint32_t *o, const int64_t *attrs) {
    if (node->op == DYCL_OP_argsort) {
        const dycl_value *in = dycl_reference_value(r, o[0]);
        return positions(r, node, o[0], (int)attrs[0], attrs[1] != 0, attrs[2] != 0, in->rank ? in->sizes[attrs[0]] : 1,
                         1);
    }
    if (node->op == DYCL_OP_argtopk)
        return positions(r, node, o[0], (int)attrs[0], attrs[2] != 0, 0, attrs[1], attrs[3] != 0);
    if (node->op == DYCL_OP_histc) return histogram(r, node, o[0], attrs);
    return dycl_error_bail("%s has no definition", dycl_op_get((dycl_op)node->op)->name);
}

/* ---- cat, pad, full, iota */

dycl_status dycl_reference_join(dycl_reference *r, const dycl_node *node, const uint32_t *o, const int64_t *attrs) {
    const dycl_value *out = dycl_reference_value(r, node->out);
    int64_t at[DYCL_MAX_RANK] = {0}, from[DYCL_MAX_RANK];
    if (dycl_value_numel(out) == 0) return DYCL_OK;
    do {
        memcpy(from, at, sizeof from);
        uint32_t part = o[0];
        int inside = 1;
        if (node->op == DYCL_OP_cat) {
            int i = 0;
            for (; from[attrs[0]] >= dycl_reference_value(r, o[i])->sizes[attrs[0]]; i++)
                from[attrs[0]] -= dycl_reference_value(r, o[i])->sizes[attrs[0]];
            part = o[i];
        } else {
            const dycl_value *x = dycl_reference_value(r, o[0]);
            for (int d = 0; d < out->rank; d++) {
                from[d] -= attrs[d];
                inside &= from[d] >= 0 && from[d] < x->sizes[d];
            }
        }
        dycl_reference_set(r, node->out, at,
                           inside ? dycl_reference_get(r, part, from, out->rank)
                                  : dycl_reference_get(r, o[1], from, 0));
    } while (dycl_reference_next(at, out->sizes, out->rank));
    return DYCL_OK;
}

dycl_status dycl_reference_create(dycl_reference *r, const dycl_node *node, const uint32_t *o, const int64_t *attrs) {
    const dycl_value *out = dycl_reference_value(r, node->out);
    dycl_dtype dtype = (dycl_dtype)out->dtype;
    int64_t at[DYCL_MAX_RANK] = {0};
    dycl_number start = dycl_reference_get(r, o[0], at, 0),
                step = node->op == DYCL_OP_iota ? dycl_reference_get(r, o[1], at, 0) : (dycl_number){0};
    (void)attrs;
    if (dycl_value_numel(out) == 0) return DYCL_OK;
    do {
        dycl_number x = start;
        if (node->op == DYCL_OP_iota)
            x = dycl_dtype_is_float(dtype)
                    ? dycl_number_f(dtype, start.f + (double)at[0] * step.f, 0)
                    : dycl_number_i(dtype, (int64_t)((uint64_t)start.i + (uint64_t)at[0] * (uint64_t)step.i));
        dycl_reference_set(r, node->out, at, x);
    } while (dycl_reference_next(at, out->sizes, out->rank));
    return DYCL_OK;
}
