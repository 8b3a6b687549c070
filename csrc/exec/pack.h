/* Packed forms of constant weights, shared by all plans.
 *
 * Ownership: an entry is reference counted by the plans that found it; its memory goes as soon as the constant is forgotten or written, and no
 * run is under way. Threads: any; a lock guards the table, runs only touch an atomic counter. */
#ifndef DYCL_EXEC_PACK_H
#define DYCL_EXEC_PACK_H

#include "dnnl/dnnl.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef struct dycl_pack dycl_pack;
struct dycl_pack {
    uint64_t token, version, key;
    int64_t offset;
    atomic_int references, valid;
    void *data;
    size_t bytes;
    dycl_pack *next_in_bucket, *next_dead;
};

/* Packs `weights` with `prim`, or finds what another plan packed. `offset`: which part of the constant. *out is a new reference. */
dycl_status dycl_pack_get(uint64_t token, uint64_t version, int64_t offset, const dycl_prim *prim, const void *weights, dycl_pack **out);
void dycl_pack_release(dycl_pack *pack);

/* Every run of a plan is bracketed, so that memory in use is not freed. */
void dycl_pack_enter(void);
void dycl_pack_leave(void);

#endif
