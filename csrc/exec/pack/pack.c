#define _POSIX_C_SOURCE 200809L
#include "exec/pack/pack.h"

#include "base/alloc.h"
#include "base/lock.h"
#include "base/headroom.h"
#include "check/zone.h"
#include "exec/tune/autotune.h"

#include <pthread.h>
#include <string.h>

#define BUCKETS 1024

static dycl_pack *buckets[BUCKETS];
static dycl_pack *dead; /* forgotten while a run was under way: their memory waits */
static struct small {
    uint64_t token, version;
    const void *data;
    size_t extent;
    int limit;
} found_small[BUCKETS]; /* by token; a newer entry takes the place */
static struct used {
    uint64_t token, version;
    uint32_t count;
} used[BUCKETS]; /* by token, at most USED_PROBES places further */
#define USED_PROBES 8
static atomic_int running;
static atomic_int waiting; /* is `dead` not empty? */
static atomic_size_t held;
static atomic_ullong generation;
static uint32_t forgotten[BUCKETS]; /* how often a token of that bucket was; under the lock */

static uint32_t bucket_of(uint64_t token) { return (uint32_t)((token * 0x9E3779B97F4A7C15ull) >> 54); }

static void drop_memory(dycl_pack *pack) {
    atomic_fetch_sub(&held, pack->bytes);
    dycl_aligned_free(pack->data);
    pack->data = NULL;
}

static void unreference(dycl_pack *pack) {
    if (atomic_fetch_sub(&pack->references, 1) != 1) return;
    if (pack->data) drop_memory(pack);
    dycl_free(pack);
}

/* With the lock held. A run that begins after `valid` was cleared does not touch the data. */
static void collect(void) {
    if (atomic_load(&running)) return;
    while (dead) {
        dycl_pack *pack = dead;
        dead = pack->next_dead;
        drop_memory(pack);
        unreference(pack);
    }
    atomic_store(&waiting, 0);
}

/* With the lock held: takes an entry out of the table. The table's reference goes to the list of the dead. */
static void kill(dycl_pack **link) {
    dycl_pack *pack = *link;
    *link = pack->next_in_bucket;
    atomic_store(&pack->valid, 0);
    pack->next_dead = dead;
    dead = pack;
    atomic_store(&waiting, 1);
}

/* Runs of threads that a fork left behind end no more; the one that forks is in none. */
static void nothing_runs(void) { atomic_store(&running, 0); }
__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, nothing_runs); }

void dycl_pack_enter(void) { atomic_fetch_add(&running, 1); }

void dycl_pack_leave(void) {
    if (atomic_fetch_sub(&running, 1) != 1 || !atomic_load(&waiting)) return;
    dycl_lock(DYCL_LOCK_PACK);
    collect();
    dycl_unlock(DYCL_LOCK_PACK);
}

static void kill_stale(uint64_t token, uint64_t version, int any_version) {
    dycl_pack **link = &buckets[bucket_of(token)];
    while (*link) {
        if ((*link)->token == token && (any_version || (*link)->version != version))
            kill(link);
        else
            link = &(*link)->next_in_bucket;
    }
}

/* With the lock held: where the token's uses are counted, or the place that is easiest to lose. */
static struct used *used_of(uint64_t token) {
    struct used *place = NULL;
    for (uint32_t i = 0; i < USED_PROBES; i++) {
        struct used *at = &used[(bucket_of(token) + i) % BUCKETS];
        if (at->token == token) return at;
        if (!place || at->count < place->count) place = at;
    }
    return place;
}

static void forget(uint64_t token) {
    atomic_fetch_add(&generation, 1);
    forgotten[bucket_of(token)]++;
    kill_stale(token, 0, 1);
    found_small[bucket_of(token)].token = 0;
    struct used *place = used_of(token);
    if (place->token == token) *place = (struct used){0, 0, 0};
    collect();
}

void dycl_pack_forget(uint64_t token) {
    dycl_lock(DYCL_LOCK_PACK);
    forget(token);
    dycl_unlock(DYCL_LOCK_PACK);
}

int dycl_pack_is_small(const dycl_feed *feed, size_t extent, int limit) {
    dycl_lock(DYCL_LOCK_PACK);
    const struct small *seen = &found_small[bucket_of(feed->token)];
    int result = seen->token == feed->token && seen->version == feed->version && seen->data == feed->data &&
                 seen->extent == extent && seen->limit <= limit;
    dycl_unlock(DYCL_LOCK_PACK);
    return result;
}

void dycl_pack_set_small(const dycl_feed *feed, size_t extent, int limit) {
    dycl_lock(DYCL_LOCK_PACK);
    found_small[bucket_of(feed->token)] = (struct small){feed->token, feed->version, feed->data, extent, limit};
    dycl_unlock(DYCL_LOCK_PACK);
}

uint32_t dycl_pack_count_use(const dycl_feed *feed) {
    dycl_lock(DYCL_LOCK_PACK);
    struct used *place = used_of(feed->token);
    if (place->token != feed->token || place->version != feed->version)
        *place = (struct used){feed->token, feed->version, 0};
    uint32_t count = ++place->count;
    dycl_unlock(DYCL_LOCK_PACK);
    return count;
}

size_t dycl_pack_bytes(void) { return atomic_load(&held); }

void dycl_pack_release(dycl_pack *pack) {
    if (!pack) return;
    dycl_lock(DYCL_LOCK_PACK);
    /* only the table is left: nobody will ask for this form again soon, and the constant itself is in memory */
    if (atomic_load(&pack->references) == 2 && atomic_load(&pack->valid)) {
        dycl_pack **link = &buckets[bucket_of(pack->token)];
        while (*link && *link != pack) link = &(*link)->next_in_bucket;
        if (*link) kill(link);
    }
    unreference(pack);
    collect();
    dycl_unlock(DYCL_LOCK_PACK);
}

static void take_sample(dycl_pack *pack, const dycl_pack_key *key) {
    const uint32_t *now = key->base;
    pack->base = key->base;
    if (key->words < DYCL_PACK_SAMPLE) return;
    pack->sample_step = (key->words - 1) / (DYCL_PACK_SAMPLE - 1);
    for (int i = 0; i < DYCL_PACK_SAMPLE; i++) pack->sample[i] = now[i * pack->sample_step];
}

/* Without the lock: a packed form that nobody else knows, with one reference. */
static dycl_status make_pack(const dycl_pack_key *key, uint64_t form, size_t bytes, dycl_pack **out) {
    dycl_status status;
    size_t copy = key->scale && dycl_weights_copies(key->as) ? (size_t)(key->as->channels * key->as->per_channel) : 0;
    float *scaled = copy ? dycl_aligned_alloc(copy * sizeof(float)) : NULL;
    dycl_pack *pack = dycl_alloc_zero(sizeof *pack);
    size_t zone = dycl_check_enabled() ? DYCL_RED_ZONE : 0;
    char *data = dycl_aligned_alloc(bytes + zone);
    if (!pack || !data || (copy && !scaled)) {
        status = dycl_error_set("out of memory for packed weights");
        goto fail;
    }
    take_sample(pack, key); /* first: what is written meanwhile shows next time */
    if (zone) dycl_check_mark(data + bytes);
    DYCL_TRY(dycl_weights_pack(key->as, key->weights, key->scale, scaled, data));
    if (zone && !dycl_check_untouched(data + bytes))
        DYCL_TRY(dycl_error_set("check: packing wrote behind its %zu bytes", bytes));
    dycl_aligned_free(scaled);
    pack->token = key->token;
    pack->version = key->version;
    pack->key = form;
    pack->source = key->weights;
    pack->data = data;
    pack->bytes = bytes;
    atomic_init(&pack->references, 1);
    atomic_init(&pack->valid, 0);
    atomic_fetch_add(&held, bytes);
    *out = pack;
    return DYCL_OK;
fail:
    dycl_aligned_free(scaled);
    dycl_aligned_free(data);
    dycl_free(pack);
    return status;
}

/* What stands beside the weights as they lie, which may be most of the memory that there is. It can wait: making such
 * forms takes at most a tenth of the time, so that no call is much longer than others. *out stays NULL then. */
static dycl_status make_beside(const dycl_pack_key *key, uint64_t form, size_t bytes, dycl_pack **out) {
    static atomic_ullong not_before;
    uint64_t began = dycl_clock_ns();
    if (began < atomic_load(&not_before)) return DYCL_OK;
    int fits = dycl_memory_headroom(bytes);
    dycl_status status = fits ? make_pack(key, form, bytes, out) : DYCL_OK;
    uint64_t end = dycl_clock_ns(); /* memory is asked for again after a second */
    atomic_store(&not_before, end + 9 * (end - began) + (fits ? 0 : 1000000000));
    return status;
}

/* With the lock held: something of this constant was packed, and it has other contents now. */
static int is_stale(const dycl_pack_key *key) {
    for (const dycl_pack *pack = buckets[bucket_of(key->token)]; pack; pack = pack->next_in_bucket)
        if (pack->token == key->token && !dycl_pack_unchanged(pack, key->base)) return 1;
    return 0;
}

/* With the lock held: a new reference, or NULL. */
static dycl_pack *find(const dycl_pack_key *key, uint64_t form, size_t bytes) {
    for (dycl_pack *pack = buckets[bucket_of(key->token)]; pack; pack = pack->next_in_bucket) {
        if (pack->token != key->token || pack->version != key->version || pack->key != form || pack->bytes != bytes ||
            pack->source != key->weights)
            continue;
        atomic_fetch_add(&pack->references, 1);
        return pack;
    }
    return NULL;
}

/* With the lock held: what was made goes into the table, unless another thread was there first. Where a constant was
 * forgotten meanwhile, it may be this one, written while it was packed: then this run is the only one that uses it. */
static dycl_pack *share(const dycl_pack_key *key, dycl_pack *made, uint32_t before) {
    dycl_pack *other = find(key, made->key, made->bytes);
    if (other) {
        unreference(made);
        return other;
    }
    if (forgotten[bucket_of(key->token)] != before) return made;
    atomic_store(&made->valid, 1);
    atomic_fetch_add(&made->references, 1); /* the table's */
    made->next_in_bucket = buckets[bucket_of(key->token)];
    buckets[bucket_of(key->token)] = made;
    return made;
}

dycl_status dycl_pack_get(const dycl_pack_key *key, int make, dycl_pack **out) {
    uint64_t form = dycl_weights_hash(key->as, key->scale);
    size_t bytes = dycl_weights_bytes(key->as);
    dycl_lock(DYCL_LOCK_PACK);
    kill_stale(key->token, key->version, 0);
    if (is_stale(key)) forget(key->token);
    *out = find(key, form, bytes);
    uint32_t before = forgotten[bucket_of(key->token)];
    dycl_unlock(DYCL_LOCK_PACK);
    if (*out || !make) return DYCL_OK;
    dycl_status status =
        dycl_weights_stand_beside(key->as) ? make_beside(key, form, bytes, out) : make_pack(key, form, bytes, out);
    if (!*out) return status;
    dycl_lock(DYCL_LOCK_PACK);
    *out = share(key, *out, before);
    dycl_unlock(DYCL_LOCK_PACK);
    return status;
}

uint64_t dycl_pack_generation(void) { return atomic_load_explicit(&generation, memory_order_relaxed); }
