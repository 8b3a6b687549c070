#include "grad/mosaic.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ir/infer.h"

static int by_place(const void *a, const void *b) {
    const dycl_part *l = a, *r = b;
    if (l->start != r->start) return l->start < r->start ? -1 : 1;
    if (l->size != r->size) return l->size < r->size ? -1 : 1;
    return l->nth < r->nth ? -1 : l->nth > r->nth;
}

static int by_taken(const void *a, const void *b) {
    const dycl_part *l = a, *r = b;
    if (l->taken != r->taken) return l->taken ? -1 : 1;
    return l->nth < r->nth ? -1 : l->nth > r->nth;
}

/* The first dimension in which one of them is not as large as the region; the rank: none. */
static int first_open(const dycl_part *parts, int count, const dycl_value *root, int from) {
    for (int d = from; d < root->rank; d++)
        for (int i = 0; i < count; i++)
            if (parts[i].at.size[d] != root->sizes[d]) return d;
    return root->rank;
}

static uint32_t sum(dycl_chain *c, dycl_part *parts, int count) {
    uint32_t out = parts[0].gradient;
    for (int i = 1; i < count; i++) out = dycl_chain_2(c, DYCL_OP_add, out, parts[i].gradient);
    for (int i = 0; i < count; i++) parts[i].taken = 1;
    return out;
}

static uint32_t join(dycl_chain *c, uint32_t *values, int count, int64_t dim) {
    while (count > 1) {
        int joined = 0;
        for (int i = 0, n; i < count; i += n) {
            n = count - i < DYCL_MAX_OPERANDS ? count - i : DYCL_MAX_OPERANDS;
            values[joined++] = n > 1 ? dycl_chain_node(c, DYCL_OP_cat, n, values + i, 1, &dim) : values[i];
        }
        count = joined;
    }
    return values[0];
}

/* region: the root's sizes, and in dimensions before `dim` what all parts have. */
static uint32_t tile(dycl_chain *c, const dycl_value *region, dycl_part *parts, int count, int dim) {
    const int d = first_open(parts, count, region, dim);
    if (d == region->rank) return sum(c, parts, count);
    uint32_t *values = dycl_alloc((2 * (size_t)count + 1) * sizeof *values);
    dycl_value gap = *region;
    int made = 0;
    int64_t covered = 0;
    if (!values && c->status == DYCL_OK) c->status = dycl_error_set("out of memory for parts of gradients");
    for (int i = 0; i < count; i++) {
        parts[i].start = parts[i].at.start[d];
        parts[i].size = parts[i].at.size[d];
    }
    qsort(parts, (size_t)count, sizeof *parts, by_place);
    for (int i = 0, n; i < count && c->status == DYCL_OK; i += n) {
        const int64_t start = parts[i].start;
        dycl_value inside = *region;
        inside.sizes[d] = parts[i].size;
        for (n = 1; i + n < count && parts[i + n].start == start && parts[i + n].size == inside.sizes[d];) n++;
        if (start < covered) continue;
        gap.sizes[d] = start - covered;
        if (gap.sizes[d]) values[made++] = dycl_chain_zeros(c, &gap);
        covered = start + inside.sizes[d];
        values[made++] = tile(c, &inside, parts + i, n, d + 1);
    }
    gap.sizes[d] = region->sizes[d] - covered;
    if (gap.sizes[d] && c->status == DYCL_OK) values[made++] = dycl_chain_zeros(c, &gap);
    uint32_t out = c->status == DYCL_OK ? join(c, values, made, d) : 0;
    dycl_free(values);
    return out;
}

uint32_t dycl_mosaic(dycl_chain *c, const dycl_value *root, dycl_part *parts, int count, int *out_taken) {
    dycl_value region = *root;
    *out_taken = 0;
    dycl_infer_contiguous(&region);
    for (int i = 0; i < count; i++) parts[i].taken = 0;
    uint32_t out = tile(c, &region, parts, count, 0);
    for (int i = 0; i < count; i++) *out_taken += parts[i].taken;
    qsort(parts, (size_t)count, sizeof *parts, by_taken);
    return out;
}
