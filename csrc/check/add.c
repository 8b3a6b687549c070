#include "base/alloc.h"
#include "check/reference.h"
#include "ir/added.h"
#include "ir/losses.h"

#include <string.h>

/* Elements added where indices say, of the host's operators that our own kernel runs. The others define themselves
 * (ir/hosted.def): what they answer is not compared, only where it lies. */

static void forget(dycl_reference *r, uint32_t value) {
    const dycl_value *out = dycl_reference_value(r, value);
    int64_t at[DYCL_MAX_RANK] = {0};
    if (dycl_value_numel(out) == 0) return;
    do dycl_reference_set(r, value, at, dycl_number_unknown());
    while (dycl_reference_next(at, out->sizes, out->rank));
}

/* The place of an element, counted in rows. */
static int64_t place_of(const dycl_value *out, const int64_t *at) {
    int64_t place = 0;
    for (int i = 0; i < out->rank; i++) place = place * out->sizes[i] + at[i];
    return place;
}

static dycl_number read(const dycl_reference *r, uint32_t value, const int8_t *dims, const dycl_added *a,
                        const int64_t *at) {
    int64_t own[DYCL_MAX_RANK] = {0};
    for (int i = 0; i < a->rank; i++)
        if (dims[i] >= 0) own[dims[i]] = at[i];
    return dycl_reference_get(r, value, own, dycl_reference_value(r, value)->rank);
}

/* The place in the result of an element that is added. 1; 0: it gets nothing; -1: nobody knows; -2: out of range */
static int find(const dycl_reference *r, const dycl_node *node, const uint32_t *o, const dycl_added *a,
                const int64_t *at, int64_t *to) {
    const dycl_value *out = dycl_reference_value(r, node->out);
    memset(to, 0, DYCL_MAX_RANK * sizeof *to);
    for (int i = 0; i < a->rank; i++)
        if (a->to[i] >= 0) to[a->to[i]] = at[i];
    for (int k = 0; k < a->count; k++) {
        const int64_t size = out->sizes[a->index[k].dim];
        dycl_number j = read(r, o[a->index[k].operand], a->index[k].at, a, at);
        if (!dycl_number_known(j)) return -1;
        if (j.i == a->skip) return 0;
        if (a->wraps && j.i < 0) j.i += size;
        if (j.i < 0 || j.i >= size) return -2;
        to[a->index[k].dim] = j.i;
    }
    return 1;
}

/* Sums of floats, integers as they wrap. */
typedef struct {
    dycl_number_sum sum;
    int64_t whole;
} total;

static void add(total *t, dycl_number x) {
    if (!dycl_number_known(x)) t->sum.unknown = 1;
    dycl_number_add(&t->sum, x.f, x.error);
    t->whole = (int64_t)((uint64_t)t->whole + (uint64_t)x.i);
}

static dycl_number total_of(dycl_dtype dtype, const total *t) {
    if (t->sum.unknown) return dycl_number_unknown();
    return dycl_dtype_is_float(dtype) ? dycl_number_total(dtype, &t->sum, 1) : dycl_number_i(dtype, t->whole);
}

dycl_status dycl_reference_hosted(dycl_reference *r, const dycl_node *node, const uint32_t *o, const int64_t *attrs) {
    const dycl_value *out = dycl_reference_value(r, node->out);
    int64_t at[DYCL_MAX_RANK] = {0}, to[DYCL_MAX_RANK];
    dycl_loss_node loss;
    dycl_added a;
    int found = 1;
    (void)attrs;
    if (dycl_loss_of(r->graph, node, &loss)) return dycl_reference_loss(r, node, &loss);
    if (!dycl_added_of(r->graph, node, &a)) {
        forget(r, node->out);
        return DYCL_OK;
    }
    total *sums = dycl_alloc_zero((size_t)dycl_value_numel(out) * sizeof *sums);
    if (!sums) return dycl_error_set("out of memory for sums");
    if (a.base >= 0) {
        do add(&sums[place_of(out, at)], dycl_reference_get(r, o[a.base], at, out->rank));
        while (dycl_reference_next(at, out->sizes, out->rank));
    }
    do {
        found = find(r, node, o, &a, at, to);
        if (found > 0) add(&sums[place_of(out, to)], read(r, o[a.source], a.from, &a, at));
    } while (found >= 0 && dycl_reference_next(at, a.sizes, a.rank));
    memset(at, 0, sizeof at);
    if (found >= 0) {
        do dycl_reference_set(r, node->out, at, total_of((dycl_dtype)out->dtype, &sums[place_of(out, at)]));
        while (dycl_reference_next(at, out->sizes, out->rank));
    }
    if (found == -1) forget(r, node->out);
    dycl_free(sums);
    return found == -2 ? dycl_error_bail("index out of range") : DYCL_OK;
}
