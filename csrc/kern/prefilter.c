#include "kern/prefilter.h"

#include <math.h>
#include <stdatomic.h>

#define HEADER 128 /* bytes before the slacks */

DYCL_ISA_CHOICE(const dycl_prefilter_table, dycl_prefilter)
const dycl_prefilter_table *dycl_kern_prefilter(dycl_isa isa) { return dycl_prefilter_for(isa); }

static int64_t column_bytes(const dycl_prefilter_layout *form) { return (form->k + 63) / 64 * 64; }
static size_t floats(const dycl_prefilter_layout *form) { return ((size_t)form->n * sizeof(float) + 63) / 64 * 64; }

size_t dycl_prefilter_bytes(const dycl_prefilter_layout *form) {
    return HEADER + 2 * floats(form) + (size_t)(form->n * column_bytes(form));
}

void dycl_prefilter_pack(const dycl_prefilter_table *table, const dycl_prefilter_layout *form, const void *b,
                         void *packed, int threads) {
    dycl_prefilter_header *h = packed;
    float *slack = (float *)((char *)packed + HEADER), *scale = (float *)((char *)slack + floats(form));
    int8_t *columns = (int8_t *)scale + floats(form);
    atomic_llong unbounded;
    atomic_init(&unbounded, 0);
    *h = (dycl_prefilter_header){.bytes = column_bytes(form), .scale = scale, .slack = slack, .columns = columns};
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t j = 0; j < form->n; j++) {
        const size_t element = form->rounded == DYCL_PREFILTER_STORED ? sizeof(uint16_t) : sizeof(float);
        table->quantise((const char *)b + (size_t)(j * form->column) * element, form->k, (int)form->rounded,
                        columns + j * h->bytes, h->bytes, &scale[j], &slack[j]);
        if (!(slack[j] < INFINITY)) atomic_fetch_add_explicit(&unbounded, 1, memory_order_relaxed);
    }
    h->usable = atomic_load(&unbounded) <= form->n / 64;
}

float dycl_prefilter_norm(const float *a, int64_t k) {
    double sum[8] = {0};
    int64_t p = 0;
    for (; p + 8 <= k; p += 8)
        for (int i = 0; i < 8; i++) sum[i] += (double)a[p + i] * (double)a[p + i];
    for (; p < k; p++) sum[0] += (double)a[p] * (double)a[p];
    for (int i = 1; i < 8; i++) sum[0] += sum[i];
    double norm = sqrt(sum[0]) * (1 + 1e-6);
    return norm < 1e15
               ? (float)norm
               : INFINITY; /* weights up to 1e19 then stay far from an overflow; larger ones have an infinite slack */
}
