/* Packed forms of constant weights, shared by all plans.
 *
 * Ownership: an entry is reference counted by the plans that found it; its memory goes as soon as the constant is
 * forgotten or written, and no run is under way. Threads: any; a lock guards the table, runs only touch an atomic
 * counter. */
#ifndef DYCL_EXEC_PACK_PACK_H
#define DYCL_EXEC_PACK_PACK_H

#include "exec/pack/feed.h"
#include "exec/pack/weights.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef struct dycl_pack dycl_pack;
#define DYCL_PACK_SAMPLE 8
struct dycl_pack {
    uint64_t token, version, key;
    uint32_t sample[DYCL_PACK_SAMPLE]; /* words of the constant, sample_step apart: as they were */
    int64_t sample_step;               /* 0: none was taken */
    const void *base;                  /* where the sample begins: a piece (cache/pieces.h) may see a part as a whole */
    const void *source;                /* a view of the same constant has another address */
    atomic_int references, valid;
    void *data;
    size_t bytes;
    dycl_pack *next_in_bucket, *next_dead;
};

/* What to pack: a constant or a part of it, in which order, each output channel times its factor when there is a
 * scale. */
typedef struct {
    uint64_t token, version;
    const dycl_weights *as;
    const float *weights, *scale;
    const void *base; /* the whole constant */
    int64_t words;    /* of 4 bytes; 0: not to be sampled */
} dycl_pack_key;

/* Whether the constant still looks as it did. Versions say when torch writes; what writes without counting (another
 * process, a library, operators of torch that py/memory/constant.c does not know) writes all of a weight, as a rule,
 * which a few elements of it show. */
static inline int dycl_pack_unchanged(const dycl_pack *pack, const void *base) {
    const uint32_t *now = (const uint32_t *)base;
    uint32_t changed = 0;
    if (!pack->sample_step || pack->base != base) return 1;
    for (int i = 0; i < DYCL_PACK_SAMPLE; i++) changed |= now[i * pack->sample_step] ^ pack->sample[i];
    return !changed;
}

/* Finds what was packed before, or (make) packs, which other threads need not wait for. *out is a new reference, NULL
 * when there is none. */
dycl_status dycl_pack_get(const dycl_pack_key *key, int make, dycl_pack **out);
uint64_t dycl_pack_generation(void); /* changes when any constant is forgotten */
void dycl_pack_release(dycl_pack *pack);

/* What the guard has found out about a constant of that version, so that each plan needs not look again. Hints: they
 * may be lost. */
int dycl_pack_is_small(const dycl_feed *feed, size_t extent, int limit);
void dycl_pack_set_small(const dycl_feed *feed, size_t extent, int limit);

/* How often this was called for the constant of that version. A hint: the count may begin anew. */
uint32_t dycl_pack_count_use(const dycl_feed *feed);

/* Every run of a plan is bracketed, so that memory in use is not freed. */
void dycl_pack_enter(void);
void dycl_pack_leave(void);

#endif
