#include "exec/pack/weights.h"

#include "kern/parallel.h"
#include "kern/winograd.h"

#include <string.h>

typedef struct {
    size_t described; /* bytes of the member that says how; 0: the primitive's key does */
    size_t (*bytes)(const dycl_weights *w);
    dycl_status (*pack)(const dycl_weights *w, const float *from, const float *scale, float *scaled, void *packed);
    int copies, beside; /* see weights.h */
    int (*usable)(const void *packed);
} layout;

static uint64_t hash_bytes(const void *data, size_t size) {
    const unsigned char *p = data;
    uint64_t h = size * 0x9E3779B97F4A7C15ull + 1;
    for (; size >= 4; size -= 4, p += 4) {
        uint32_t word;
        memcpy(&word, p, 4);
        h = (h ^ word) * 0xff51afd7ed558ccdull;
        h ^= h >> 32;
    }
    return h;
}

/* ---- A primitive's */

static size_t prim_bytes(const dycl_weights *w) {
    size_t bytes = dycl_prim_weights_bytes(w->prim);
    return bytes ? bytes : (size_t)(w->channels * w->per_channel) * sizeof(float);
}

static void multiply(const dycl_weights *w, const float *from, const float *scale, float *to) {
#pragma omp parallel for schedule(static) if (w->channels * w->per_channel > 100000)
    for (int64_t c = 0; c < w->channels; c++)
        for (int64_t i = 0; i < w->per_channel; i++)
            to[c * w->per_channel + i] = from[c * w->per_channel + i] * scale[c];
}

static dycl_status prim_pack(const dycl_weights *w, const float *from, const float *scale, float *scaled,
                             void *packed) {
    int plain = dycl_prim_weights_bytes(w->prim) == 0;
    if (plain && scale)
        multiply(w, from, scale, packed);
    else if (plain)
        memcpy(packed, from, prim_bytes(w));
    if (plain) return DYCL_OK;
    if (scale) multiply(w, from, scale, scaled);
    return dycl_prim_pack(w->prim, scale ? scaled : from, packed);
}

/* ---- Our own */

static size_t small_bytes(const dycl_weights *w) { return dycl_small_bytes(w->small.kernel, w->small.n, w->small.k); }

static dycl_status small_pack(const dycl_weights *w, const float *from, const float *scale, float *scaled,
                              void *packed) {
    const dycl_small_layout *f = &w->small;
    (void)scale, (void)scaled;
    dycl_small_pack(f->kernel, packed, from, f->row, f->column, f->n, f->k);
    return DYCL_OK;
}

static size_t gemm_bytes(const dycl_weights *w) { return dycl_gemm_bytes(&w->gemm); }

static dycl_status gemm_pack(const dycl_weights *w, const float *from, const float *scale, float *scaled,
                             void *packed) {
    (void)scaled;
    dycl_gemm_pack(&w->gemm, from + w->start, scale, packed, dycl_kern_threads(2 * gemm_bytes(w)));
    return DYCL_OK;
}

static size_t winograd_bytes(const dycl_weights *w) { return dycl_winograd_bytes(&w->gemm); }

static dycl_status winograd_pack(const dycl_weights *w, const float *from, const float *scale, float *scaled,
                                 void *packed) {
    (void)scaled;
    dycl_winograd_pack(&w->gemm, from + w->start, scale, packed, dycl_kern_threads(2 * winograd_bytes(w)));
    return DYCL_OK;
}

static size_t bf16_bytes(const dycl_weights *w) { return dycl_bf16_bytes(&w->bf16); }

static dycl_status bf16_pack(const dycl_weights *w, const float *from, const float *scale, float *scaled,
                             void *packed) {
    (void)scale, (void)scaled;
    dycl_bf16_pack(&w->bf16, from, packed, dycl_kern_threads(2 * bf16_bytes(w)));
    return DYCL_OK;
}

static size_t narrow_bytes(const dycl_weights *w) { return dycl_narrow_bytes(&w->narrow); }

static dycl_status narrow_pack(const dycl_weights *w, const float *from, const float *scale, float *scaled,
                               void *packed) {
    (void)scale, (void)scaled;
    dycl_narrow_pack(dycl_kern_narrow(dycl_cpu_isa()), &w->narrow, from, packed,
                     dycl_kern_threads(2 * narrow_bytes(w)));
    return DYCL_OK;
}

static int narrow_usable(const void *packed) { return ((const dycl_narrow_header *)packed)->usable; }

static size_t prefilter_bytes(const dycl_weights *w) { return dycl_prefilter_bytes(&w->prefilter); }

static dycl_status prefilter_pack(const dycl_weights *w, const float *from, const float *scale, float *scaled,
                                  void *packed) {
    (void)scale, (void)scaled;
    dycl_prefilter_pack(dycl_kern_prefilter(dycl_cpu_isa()), &w->prefilter, from, packed,
                        dycl_kern_threads(4 * prefilter_bytes(w)));
    return DYCL_OK;
}

static int prefilter_usable(const void *packed) { return ((const dycl_prefilter_header *)packed)->usable; }

/* ---- The table */

static const layout layouts[DYCL_WEIGHTS_KINDS] = {
    [DYCL_WEIGHTS_PRIM] = {.bytes = prim_bytes, .pack = prim_pack, .copies = 1},
    [DYCL_WEIGHTS_SMALL] = {.described = sizeof(dycl_small_layout), .bytes = small_bytes, .pack = small_pack},
    [DYCL_WEIGHTS_GEMM] = {.described = sizeof(dycl_gemm_layout), .bytes = gemm_bytes, .pack = gemm_pack},
    [DYCL_WEIGHTS_WINOGRAD] = {.described = sizeof(dycl_gemm_layout), .bytes = winograd_bytes, .pack = winograd_pack},
    [DYCL_WEIGHTS_BF16] = {.described = sizeof(dycl_bf16_layout), .bytes = bf16_bytes, .pack = bf16_pack},
    [DYCL_WEIGHTS_NARROW] = {sizeof(dycl_narrow_layout), narrow_bytes, narrow_pack, 0, 1, narrow_usable},
    [DYCL_WEIGHTS_PREFILTER] = {sizeof(dycl_prefilter_layout), prefilter_bytes, prefilter_pack, 0, 1, prefilter_usable},
};

size_t dycl_weights_bytes(const dycl_weights *w) { return layouts[w->kind].bytes(w); }

uint64_t dycl_weights_hash(const dycl_weights *w, const float *scale) {
    size_t described = layouts[w->kind].described;
    uint64_t hash =
        described ? hash_bytes(&w->prim, described) : dycl_prim_weights_key(w->prim); /* every member begins there */
    hash ^= (w->salt + (uint64_t)w->kind + ((uint64_t)w->start << 8)) * 0x9E3779B97F4A7C15ull;
    return scale ? hash ^ hash_bytes(scale, (size_t)w->channels * sizeof(float)) : hash;
}

int dycl_weights_copies(const dycl_weights *w) { return layouts[w->kind].copies; }

dycl_status dycl_weights_pack(const dycl_weights *w, const float *from, const float *scale, float *scaled,
                              void *packed) {
    return layouts[w->kind].pack(w, from, scale, scaled, packed);
}

int dycl_weights_stand_beside(const dycl_weights *w) { return layouts[w->kind].beside; }
int dycl_weights_usable(const dycl_weights *w, const void *packed) {
    return !layouts[w->kind].usable || layouts[w->kind].usable(packed);
}
