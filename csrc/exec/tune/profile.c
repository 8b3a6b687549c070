#include "exec/tune/profile.h"

#include <string.h>

#include "base/alloc.h"
#include "base/lock.h"

enum { BUCKETS = 8192 };

typedef struct entry {
    struct entry *chain, *later; /* in the order they came */
    uint64_t hash;
    double nanoseconds;
    uint8_t noted, taken;
    char variant[DYCL_PROFILE_VARIANT];
    char key[];
} entry;

static entry *bucket[BUCKETS], *first, *last;
static uint32_t count, pending;
static uint64_t hits;

static uint64_t hash_of(const char *text) {
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (; *text; text++) h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return h ^ h >> 29;
}

static entry *find(const char *key, uint64_t hash) {
    entry *e = bucket[hash % BUCKETS];
    while (e && (e->hash != hash || strcmp(e->key, key))) e = e->chain;
    return e;
}

static entry *find_or_make(const char *key) {
    uint64_t hash = hash_of(key);
    entry *e = find(key, hash);
    if (e || count >= DYCL_PROFILE_ENTRIES) return e;
    size_t length = strlen(key) + 1;
    e = dycl_alloc_zero(sizeof *e + length);
    if (!e) return NULL;
    memcpy(e->key, key, length);
    e->hash = hash;
    e->chain = bucket[hash % BUCKETS];
    bucket[hash % BUCKETS] = e;
    if (last)
        last->later = e;
    else
        first = e;
    last = e;
    count++;
    return e;
}

static int fits(const char *variant) { return strlen(variant) < DYCL_PROFILE_VARIANT; }

void dycl_profile_remember(const char *key, const char *variant) {
    if (!fits(variant)) return;
    dycl_lock(DYCL_LOCK_PROFILE);
    entry *e = find_or_make(key);
    if (e && !e->noted) strcpy(e->variant, variant); /* what this process measured itself is newer */
    dycl_unlock(DYCL_LOCK_PROFILE);
}

int dycl_profile_recall(const char *key, char *out_way) {
    dycl_lock(DYCL_LOCK_PROFILE);
    const entry *e = find(key, hash_of(key));
    if (e) memcpy(out_way, e->variant, DYCL_PROFILE_VARIANT);
    hits += e != NULL;
    dycl_unlock(DYCL_LOCK_PROFILE);
    return e != NULL;
}

void dycl_profile_note(const char *key, const char *variant, double nanoseconds) {
    if (!fits(variant)) return;
    dycl_lock(DYCL_LOCK_PROFILE);
    entry *e = find_or_make(key);
    if (e && !(e->variant[0] && !strcmp(e->variant, variant))) { /* the same again is no news */
        strcpy(e->variant, variant);
        e->nanoseconds = nanoseconds;
        pending += !e->noted || e->taken;
        e->noted = 1;
        e->taken = 0;
    }
    dycl_unlock(DYCL_LOCK_PROFILE);
}

uint32_t dycl_profile_take(dycl_profile_entry *out, uint32_t room) {
    uint32_t n = 0;
    dycl_lock(DYCL_LOCK_PROFILE);
    for (entry *e = pending ? first : NULL; e && n < room; e = e->later) {
        if (!e->noted || e->taken) continue;
        e->taken = 1;
        pending--;
        out[n].key = e->key;
        out[n].nanoseconds = e->nanoseconds;
        memcpy(out[n++].variant, e->variant, DYCL_PROFILE_VARIANT);
    }
    dycl_unlock(DYCL_LOCK_PROFILE);
    return n;
}

void dycl_profile_untake(void) {
    dycl_lock(DYCL_LOCK_PROFILE);
    for (entry *e = first; e; e = e->later) {
        pending += e->taken;
        e->taken = 0;
    }
    dycl_unlock(DYCL_LOCK_PROFILE);
}

void dycl_profile_clear(void) {
    dycl_lock(DYCL_LOCK_PROFILE);
    while (first) {
        entry *later = first->later;
        dycl_free(first);
        first = later;
    }
    memset(bucket, 0, sizeof bucket);
    last = NULL;
    count = pending = 0;
    dycl_unlock(DYCL_LOCK_PROFILE);
}

uint32_t dycl_profile_count(void) {
    dycl_lock(DYCL_LOCK_PROFILE);
    uint32_t n = count;
    dycl_unlock(DYCL_LOCK_PROFILE);
    return n;
}

uint32_t dycl_profile_pending(void) {
    dycl_lock(DYCL_LOCK_PROFILE);
    uint32_t n = pending;
    dycl_unlock(DYCL_LOCK_PROFILE);
    return n;
}

uint64_t dycl_profile_hits(void) {
    dycl_lock(DYCL_LOCK_PROFILE);
    uint64_t n = hits;
    dycl_unlock(DYCL_LOCK_PROFILE);
    return n;
}
