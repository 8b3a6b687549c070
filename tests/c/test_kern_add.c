/* Elements added where indices say, against one loop over all of them. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "each_isa.h"
#include "kern/kern.h"
#include "random.h"

static int failures;

static void check(int ok, const char *what) {
    if (!ok && failures++ < 20) printf("FAIL %s\n", what);
}

static void add(dycl_dtype dtype, void *to, int64_t at, const void *from, int64_t own) {
    switch (dtype) {
    case DYCL_F32: ((float *)to)[at] += ((const float *)from)[own]; return;
    case DYCL_F64: ((double *)to)[at] += ((const double *)from)[own]; return;
    case DYCL_I64: ((uint64_t *)to)[at] += ((const uint64_t *)from)[own]; return;
    case DYCL_I32: ((uint32_t *)to)[at] += ((const uint32_t *)from)[own]; return;
    case DYCL_I16: ((uint16_t *)to)[at] = (uint16_t)(((uint16_t *)to)[at] + ((const uint16_t *)from)[own]); return;
    default: ((uint8_t *)to)[at] = (uint8_t)(((uint8_t *)to)[at] + ((const uint8_t *)from)[own]); return;
    }
}

/* 1; 0: an index is out of range. */
static int naive(const dycl_add_desc *d, void *to, const void *from, int64_t *const *index) {
    int64_t count = 1;
    for (int i = 0; i < d->rank; i++) count *= d->sizes[i];
    for (int64_t n = 0; n < count; n++) {
        int64_t at[DYCL_MAX_RANK], rest = n, place = 0, own = 0, skipped = 0;
        for (int i = d->rank - 1; i >= 0; i--) {
            at[i] = rest % d->sizes[i], rest /= d->sizes[i];
            place += at[i] * d->to_strides[i], own += at[i] * d->from_strides[i];
        }
        for (int k = 0; k < d->count; k++) {
            int64_t j = 0;
            for (int i = 0; i < d->rank; i++) j += at[i] * d->index[k].strides[i];
            j = index[k][j];
            skipped |= j == d->skip;
            if (d->wraps && j < 0) j += d->index[k].limit;
            if (j < 0 || j >= d->index[k].limit) return 0;
            place += j * d->index[k].stride;
        }
        if (!skipped) add(d->dtype, to, place, from, own);
    }
    return 1;
}

/* A result of some dimensions, of which the first, the last or some are named by indices that walk one or two
 * dimensions of the source. */
static void check_add(int round) {
    static const dycl_dtype dtypes[] = {DYCL_F32, DYCL_F64, DYCL_I64, DYCL_I32, DYCL_I16, DYCL_I8, DYCL_U8};
    const int large = round % 40 == 0, rank = 1 + (int)below(large ? 2 : 4), named = 1 + (int)below(large ? 1 : rank);
    dycl_add_desc d = {.dtype = dtypes[below(7)], .wraps = (int)below(2), .skip = INT64_MIN, .numel = 1};
    const size_t element = dycl_dtype_size(d.dtype);
    int64_t out[4], strides[4], from_size = 1, index_size[DYCL_MAX_RANK], *index[DYCL_MAX_RANK];
    int uses[4] = {0};
    for (int i = rank - 1; i >= 0; i--) {
        out[i] = 1 + below(large ? 300 : below(3) ? 9 : 40);
        strides[i] = d.numel;
        d.numel *= out[i];
    }
    for (int k = 0; k < named; k++) {
        int dim = (int)below(rank);
        while (uses[dim]) dim = (dim + 1) % rank;
        uses[dim] = 1;
        d.index[d.count].limit = out[dim];
        d.index[d.count++].stride = strides[dim];
    }
    const int walked = 1 + (int)below(2), behind = (int)below(2);
    for (int part = 0; part < 2; part++) { /* dimensions of the indices, and those of the result */
        for (int i = 0; part != behind && i < walked; i++) {
            d.sizes[d.rank] = d.extents[d.rank] = 1 + below(large ? 100 : 12);
            d.rank++;
        }
        for (int i = 0; part == behind && i < rank; i++) {
            if (uses[i]) continue;
            d.sizes[d.rank] = below(4) ? out[i] : 1 + below(out[i]);
            d.extents[d.rank] = out[i];
            d.to_strides[d.rank++] = strides[i];
        }
    }
    const int along = (int)below(2);
    for (int i = d.rank - 1; i >= 0; i--) {
        d.from_strides[i] = below(6) ? from_size : 0;
        from_size += d.from_strides[i] * (d.sizes[i] - 1) + (below(8) ? 0 : below(3));
    }
    for (int k = 0; k < d.count; k++) {
        index_size[k] = 1;
        for (int i = d.rank - 1; i >= 0; i--) {
            d.index[k].strides[i] = (d.to_strides[i] == 0 ? below(8) != 0 : along && below(2)) ? index_size[k] : 0;
            index_size[k] += d.index[k].strides[i] * (d.sizes[i] - 1);
        }
        index[k] = dycl_alloc((size_t)index_size[k] * 8);
        for (int64_t i = 0; i < index_size[k]; i++)
            index[k][i] = below(d.index[k].limit) - (d.wraps && below(2) ? d.index[k].limit : 0);
    }
    if (d.count == 1 && below(4) == 0) d.skip = index[0][below(index_size[0])];
    if (round % 5 == 0) index[0][below(index_size[0])] = below(2) ? -d.index[0].limit - 1 : d.index[0].limit;
    unsigned char *from = dycl_alloc((size_t)(from_size + 1) * element), *to = dycl_alloc((size_t)d.numel * element),
                  *want = dycl_alloc((size_t)d.numel * element);
    for (int64_t i = 0; i <= from_size; i++) {
        if (d.dtype == DYCL_F32)
            ((float *)from)[i] = (float)below(1000) / 7 - 60;
        else if (d.dtype == DYCL_F64)
            ((double *)from)[i] = (double)below(1000) / 7 - 60;
        else
            memset(from + (size_t)i * element, (int)below(9), element);
    }
    const int fills = (int)below(3);
    unsigned char number[8] = {0};
    if (fills == 2) memcpy(number, from, element);
    for (int64_t i = 0; i < d.numel; i++) memcpy(want + (size_t)i * element, number, element);
    if (!fills) memcpy(to, want, (size_t)d.numel * element);
    if (fills) memset(to, 0x77, (size_t)d.numel * element);
    void *scratch = dycl_alloc(dycl_kern_add_scratch(&d) + 1);
    const int good = naive(&d, want, from, index);
    const int64_t *bad = dycl_kern_add(&d, to, fills ? number : NULL, from, (const int64_t *const *)index, scratch);
    check((bad == NULL) == good, "which index is bad");
    check(!good || memcmp(to, want, (size_t)d.numel * element) == 0, "sums");
    for (int k = 0; k < d.count; k++) dycl_free(index[k]);
    dycl_free(from), dycl_free(to), dycl_free(want), dycl_free(scratch);
}

int main(void) { return on_each_isa("add", check_add, 4000, &failures); }
