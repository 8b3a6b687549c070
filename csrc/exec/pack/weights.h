/* Weight layouts: the order in which a kernel reads constant weights. A tag, what that layout needs to know, and
 * functions that are one row of a table each (weights.c). Who adds a layout adds a row there and its member here.
 *
 * Ownership: a primitive is borrowed. Threads: pure; packing uses OpenMP inside. */
#ifndef DYCL_EXEC_PACK_WEIGHTS_H
#define DYCL_EXEC_PACK_WEIGHTS_H

#include "dnnl/dnnl.h"
#include "kern/bf16.h"
#include "kern/gemm.h"
#include "kern/narrow.h"
#include "kern/prefilter.h"
#include "kern/small.h"

typedef enum {
    DYCL_WEIGHTS_PRIM, /* the primitive's own; as they are, where it packs nothing */
    DYCL_WEIGHTS_SMALL,
    DYCL_WEIGHTS_GEMM,
    DYCL_WEIGHTS_WINOGRAD, /* `gemm` describes its sixteen products */
    DYCL_WEIGHTS_BF16,
    DYCL_WEIGHTS_NARROW,
    DYCL_WEIGHTS_PREFILTER,
    DYCL_WEIGHTS_KINDS
} dycl_weights_kind;

/* A B[k, n] for the product with few rows. */
typedef struct {
    const dycl_small *kernel;
    int64_t n, k, row, column;
} dycl_small_layout;

typedef struct {
    dycl_weights_kind kind;
    union {
        const dycl_prim *prim;
        dycl_small_layout small;
        dycl_gemm_layout gemm;
        dycl_bf16_layout bf16;
        dycl_narrow_layout narrow;
        dycl_prefilter_layout prefilter;
    };
    uint64_t salt;                 /* how the source lies, where the primitive's key does not say */
    int64_t start;                 /* of GEMM and Winograd: from the source to its first element */
    int64_t channels, per_channel; /* of the primitive's and Winograd's: for a scale */
} dycl_weights;

size_t dycl_weights_bytes(const dycl_weights *w);
/* The same number: the same packed memory, of the same source and scale. */
uint64_t dycl_weights_hash(const dycl_weights *w, const float *scale);
/* Whether packing with a scale needs room for channels * per_channel floats. */
int dycl_weights_copies(const dycl_weights *w);
/* packed: dycl_weights_bytes, 64-byte aligned. scale: a factor for each output channel, or NULL; scaled: the room for
 * it. */
dycl_status dycl_weights_pack(const dycl_weights *w, const float *from, const float *scale, float *scaled,
                              void *packed);
/* Made beside the weights as they lie, which go on being read: it can wait, and may turn out not to be usable. */
int dycl_weights_stand_beside(const dycl_weights *w);
int dycl_weights_usable(const dycl_weights *w, const void *packed);

#endif
