/* The reference interpreter (csrc/check) for the tests of plans: every value of a graph, as numbers with bounds and as
 * plain memory.
 *
 * Ownership: ref_run allocates what ref_free frees. */
#ifndef DYCL_TEST_PLAN_REFERENCE_H
#define DYCL_TEST_PLAN_REFERENCE_H

#include "base/half.h"
#include "check/reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    dycl_reference numbers;
    const dycl_graph *graph;
    void **data;   /* root value of a node -> its memory, of its dtype */
    int bad_index; /* there is an index out of range: nothing else is set */
} reference;

static inline void ref_store(void *p, int64_t i, int dtype, double x) {
    switch (dtype) {
    case DYCL_F32: ((float *)p)[i] = (float)x; return;
    case DYCL_F64: ((double *)p)[i] = x; return;
    case DYCL_BF16:
    case DYCL_F16: ((uint16_t *)p)[i] = dycl_half_of((dycl_dtype)dtype, (float)x); return;
    case DYCL_I64: ((int64_t *)p)[i] = (int64_t)x; return;
    case DYCL_I32: ((int32_t *)p)[i] = (int32_t)(int64_t)x; return;
    case DYCL_I16: ((int16_t *)p)[i] = (int16_t)(int64_t)x; return;
    case DYCL_I8: ((int8_t *)p)[i] = (int8_t)(int64_t)x; return;
    case DYCL_BOOL: ((uint8_t *)p)[i] = x != 0; return;
    default: ((uint8_t *)p)[i] = (uint8_t)(int64_t)x; return;
    }
}

static inline void ref_run(reference *r, const dycl_graph *g, void *const *feeds, const dycl_scalar *scalars) {
    uint32_t *all = malloc((g->node_count + 1) * sizeof *all);
    int count = 0;
    for (uint32_t n = 0; n < g->node_count; n++)
        if (g->nodes[n].op != DYCL_OP_view) all[count++] = g->nodes[n].out;
    *r = (reference){.graph = g, .data = calloc(g->value_count + 1, sizeof(void *))};
    dycl_status status =
        dycl_reference_run(&r->numbers, g, all, count, &(dycl_reference_inputs){(const void *const *)feeds, scalars});
    r->bad_index = status == DYCL_BAIL;
    if (status == DYCL_ERROR) abort();
    for (int i = 0; i < count && status == DYCL_OK; i++) {
        const dycl_value *v = &g->values[all[i]];
        int64_t extent = dycl_value_extent(v);
        r->data[all[i]] = malloc((size_t)extent * 8 + 8);
        for (int64_t k = 0; k < extent; k++) {
            dycl_number x = r->numbers.elements[all[i]][k];
            ref_store(r->data[all[i]], k, v->dtype, dycl_dtype_is_float((dycl_dtype)v->dtype) ? x.f : (double)x.i);
        }
    }
    free(all);
}

static inline void ref_free(reference *r) {
    for (uint32_t v = 0; v < r->graph->value_count; v++) free(r->data[v]);
    free(r->data);
    if (!r->bad_index) dycl_reference_free(&r->numbers);
}

/* The first element of a result (in memory) that is not what the reference says; -1: there is none. */
static inline int64_t ref_first_wrong(const reference *r, uint32_t value, const void *memory) {
    const dycl_value *v = &r->graph->values[value];
    for (int64_t i = 0, extent = dycl_value_extent(v); i < extent; i++)
        if (!dycl_number_accepts((dycl_dtype)v->dtype, r->numbers.elements[value][i], memory, i)) return i;
    return -1;
}

#endif
