#include "base/alloc.h"
#include "base/lock.h"
#include "dnnl/internal.h"

#include <string.h>

#define CAPACITY 1024
#define BUCKETS  2048

static dycl_prim *bucket[BUCKETS], *newest, *oldest;
static int count;

uint64_t dycl_hash_words(const uint64_t *words, int n, uint64_t seed) {
    uint64_t h = seed ^ 0x9e3779b97f4a7c15u;
    for (int i = 0; i < n; i++) {
        h = (h ^ words[i]) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return h;
}

static void unlink_age(dycl_prim *prim) {
    if (prim->newer)
        prim->newer->older = prim->older;
    else
        newest = prim->older;
    if (prim->older)
        prim->older->newer = prim->newer;
    else
        oldest = prim->newer;
    prim->newer = prim->older = NULL;
}

static void link_newest(dycl_prim *prim) {
    prim->older = newest;
    if (newest)
        newest->newer = prim;
    else
        oldest = prim;
    newest = prim;
}

static dycl_prim *lookup(const uint64_t *key, int key_count, uint64_t hash) {
    dycl_prim *prim = bucket[hash % BUCKETS];
    while (prim && !(prim->hash == hash && prim->key_count == key_count &&
                     !memcmp(prim->key, key, (size_t)key_count * sizeof *key)))
        prim = prim->chain;
    if (!prim) return NULL;
    if (prim != newest) {
        unlink_age(prim);
        link_newest(prim);
    }
    dycl_prim_retain(prim);
    return prim;
}

dycl_prim *dycl_cache_find(const dycl_key *key) {
    uint64_t hash = dycl_hash_words(key->word, key->count, 0);
    dycl_lock(DYCL_LOCK_PRIMITIVES);
    dycl_prim *prim = lookup(key->word, key->count, hash);
    dycl_unlock(DYCL_LOCK_PRIMITIVES);
    return prim;
}

dycl_prim *dycl_cache_insert(dycl_prim *prim) {
    dycl_prim *evicted = NULL;
    dycl_lock(DYCL_LOCK_PRIMITIVES);
    dycl_prim *same = lookup(prim->key, prim->key_count, prim->hash);
    if (!same) {
        dycl_prim_retain(prim);
        prim->chain = bucket[prim->hash % BUCKETS];
        bucket[prim->hash % BUCKETS] = prim;
        link_newest(prim);
        if (++count > CAPACITY) {
            evicted = oldest;
            unlink_age(evicted);
            dycl_prim **at = &bucket[evicted->hash % BUCKETS];
            while (*at != evicted) at = &(*at)->chain;
            *at = evicted->chain;
            count--;
        }
    }
    dycl_unlock(DYCL_LOCK_PRIMITIVES);
    if (evicted) dycl_prim_release(evicted);
    if (!same) return prim;
    dycl_prim_release(prim);
    return same;
}

int dycl_dnnl_cached(void) {
    dycl_lock(DYCL_LOCK_PRIMITIVES);
    int n = count;
    dycl_unlock(DYCL_LOCK_PRIMITIVES);
    return n;
}

void dycl_dnnl_clear(void) {
    dycl_lock(DYCL_LOCK_PRIMITIVES);
    dycl_prim *all = newest;
    memset(bucket, 0, sizeof bucket);
    newest = oldest = NULL;
    count = 0;
    dycl_unlock(DYCL_LOCK_PRIMITIVES);
    while (all) {
        dycl_prim *next = all->older;
        all->older = all->newer = NULL;
        dycl_prim_release(all);
        all = next;
    }
}
