/* What the files of csrc/dnnl share: oneDNN's handles never leave this directory.
 *
 * Ownership: a dycl_prim owns its primitive, its key, the descriptor of unpacked weights and idle memories; the cache
 * holds one reference.
 *
 * Threads: everything of a dycl_prim but its reference count, cache links (under the cache's lock) and idle memories
 * is immutable. */
#ifndef DYCL_DNNL_INTERNAL_H
#define DYCL_DNNL_INTERNAL_H

#include "base/cpu.h"
#include "dnnl/dnnl.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdatomic.h>

/* ---- engine.c */
dycl_status dycl_dnnl_engine(dnnl_engine_t *out); /* initialises when needed; borrowed, immortal */
dycl_status dycl_dnnl_stream(dnnl_stream_t *out); /* of this thread; borrowed */
/* OK, BAIL (not implemented, descriptor refused) or ERROR, with a message naming what failed. */
dycl_status dycl_dnnl_check(dnnl_status_t code, const char *what);

/* ---- layout.c */
dycl_status dycl_layout_to_md(const dycl_layout *layout, dnnl_memory_desc_t *out); /* the caller destroys *out */
dycl_status dycl_layout_from_md(const_dnnl_memory_desc_t md, dycl_layout *out);
uint64_t dycl_md_hash(
    const_dnnl_memory_desc_t md); /* 0: the descriptor's form cannot be read (Winograd), so it cannot be compared */

/* ---- key: what identifies a descriptor, only meaningful words in it, so that padding and unused fields never count */
#define DYCL_KEY_WORDS 288
typedef struct {
    int count;
    uint64_t word[DYCL_KEY_WORDS];
} dycl_key;
static inline void dycl_key_add(dycl_key *key, int64_t value) { key->word[key->count++] = (uint64_t)value; }
void dycl_key_add_layout(dycl_key *key, const dycl_layout *layout);
void dycl_key_add_post(dycl_key *key, const dycl_post_ops *post);
uint64_t dycl_hash_words(const uint64_t *words, int count, uint64_t seed);
enum { DYCL_KEY_MATMUL = 1, DYCL_KEY_CONV, DYCL_KEY_POOL, DYCL_KEY_REORDER, DYCL_KEY_CONV_GRADIENT };
/* The kind, and the number of threads: a primitive divides its work when it is made. */
static inline void dycl_key_begin(dycl_key *key, int kind) {
    dycl_key_add(key, kind | (int64_t)dycl_cpu_threads() << 8);
}

/* ---- post.c */
int dycl_post_is_binary(dycl_post_kind kind);
/* Attributes of every primitive of ours: strict f32, user scratchpad, and the post-ops (NULL: none). The caller
 * destroys *out. */
dycl_status dycl_post_attr(const dycl_post_ops *post, int rank, const int64_t *dst_sizes, dnnl_primitive_attr_t *out);

/* ---- prim.c, execute.c, cache.c */
#define DYCL_MAX_ARGS      (5 + DYCL_MAX_POST_OPS)
#define DYCL_PRIM_MEMORIES 16

/* Memory objects of one execution. Making them costs more than a small matmul, so idle ones stay with their
 * primitive. */
typedef struct dycl_prim_memory dycl_prim_memory;

struct dycl_prim {
    atomic_int references;
    dnnl_primitive_t primitive;
    const_dnnl_primitive_desc_t pd;   /* borrowed from primitive */
    dnnl_memory_desc_t plain_weights; /* as the caller's weights are; NULL when there are none */
    const char *info;                 /* of the library, immortal */
    dycl_layout src, dst, gradient;   /* gradient: of those that have one */
    size_t scratch, weights_bytes;
    uint64_t weights_key;

    int arg_count; /* what execute binds */
    struct {
        int arg;
        unsigned offset; /* of the pointer in dycl_prim_args */
        const_dnnl_memory_desc_t md;
    } arg[DYCL_MAX_ARGS];
    _Atomic(dycl_prim_memory *) idle[DYCL_PRIM_MEMORIES];
    _Atomic(dnnl_primitive_t) packer; /* owned: what packs weights for it, while nobody does */

    uint64_t hash; /* of the key */
    int key_count;
    uint64_t *key;
    struct dycl_prim *chain, *newer, *older; /* cache.c */
};

/* Makes a dycl_prim of pd (consumed, also on failure) and puts it into the cache. plain_weights (consumed) may be
 * NULL. */
typedef struct {
    const dycl_key *key;
    dnnl_primitive_desc_t pd;
    dnnl_memory_desc_t plain_weights;
    const dycl_post_ops *post;
    int bias, refuse_reference;
    int gradient; /* of weights, which stand for dst */
} dycl_prim_parts;
dycl_status dycl_prim_make(const dycl_prim_parts *parts, dycl_prim **out);
void dycl_prim_memory_destroy(dycl_prim_memory *own);
void dycl_prim_destroy(dycl_prim *prim);

dycl_prim *dycl_cache_find(const dycl_key *key); /* a new reference, or NULL */
dycl_prim *dycl_cache_insert(
    dycl_prim *prim); /* prim, or the equal one that another thread was faster with; consumes and returns a reference */

#endif
