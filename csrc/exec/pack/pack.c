#define _POSIX_C_SOURCE 200809L
#include "exec/pack/pack.h"

#include "base/alloc.h"
#include "base/lock.h"
#include "base/headroom.h"
#include "check/zone.h"
#include "exec/tune/measure.h"
#include "kern/parallel.h"
#include "kern/winograd.h"

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

size_t dycl_pack_size(const dycl_pack_key *key) {
    if (key->winograd) return dycl_winograd_bytes(&key->gemm);
    if (key->gemm.kernel) return dycl_gemm_bytes(&key->gemm);
    if (key->bf16.n) return dycl_bf16_bytes(&key->bf16);
    if (key->narrow.n) return dycl_narrow_bytes(&key->narrow);
    if (key->screen.n) return dycl_screen_bytes(&key->screen);
    if (key->small.kernel) return dycl_small_bytes(key->small.kernel, key->small.n, key->small.k);
    size_t bytes = dycl_prim_weights_bytes(key->prim);
    return bytes ? bytes : (size_t)(key->channels * key->per_channel) * sizeof(float);
}

dycl_status dycl_pack_into(const dycl_pack_key *key, float *scaled, void *packed) {
    const float *from = key->weights;
    const dycl_small_form *small = &key->small;
    if (small->kernel) {
        dycl_small_pack(small->kernel, packed, from, small->row, small->column, small->n, small->k);
        return DYCL_OK;
    }
    if (key->gemm.kernel) {
        (key->winograd ? dycl_winograd_pack : dycl_gemm_pack)(&key->gemm, from, key->scale, packed,
                                                              dycl_kern_threads(2 * dycl_pack_size(key)));
        return DYCL_OK;
    }
    if (key->bf16.n) {
        dycl_bf16_pack(&key->bf16, from, packed, dycl_kern_threads(2 * dycl_bf16_bytes(&key->bf16)));
        return DYCL_OK;
    }
    if (key->narrow.n) {
        dycl_narrow_pack(dycl_kern_narrow(dycl_cpu_isa()), &key->narrow, from, packed,
                         dycl_kern_threads(2 * dycl_narrow_bytes(&key->narrow)));
        return DYCL_OK;
    }
    if (key->screen.n) {
        dycl_screen_pack(dycl_kern_screen(dycl_cpu_isa()), &key->screen, from, packed,
                         dycl_kern_threads(4 * dycl_screen_bytes(&key->screen)));
        return DYCL_OK;
    }
    int plain = dycl_prim_weights_bytes(key->prim) == 0;
    if (key->scale) {
        float *to = plain ? packed : scaled;
#pragma omp parallel for schedule(static) if (key->channels * key->per_channel > 100000)
        for (int64_t c = 0; c < key->channels; c++)
            for (int64_t i = 0; i < key->per_channel; i++)
                to[c * key->per_channel + i] = from[c * key->per_channel + i] * key->scale[c];
        if (plain) return DYCL_OK;
        from = to;
    } else if (plain) {
        memcpy(packed, from, dycl_pack_size(key));
        return DYCL_OK;
    }
    return dycl_prim_pack(key->prim, from, packed);
}

static void take_sample(dycl_pack *pack, const dycl_pack_key *key) {
    const uint32_t *now = key->base;
    if (key->words < DYCL_PACK_SAMPLE) return;
    pack->sample_step = (key->words - 1) / (DYCL_PACK_SAMPLE - 1);
    for (int i = 0; i < DYCL_PACK_SAMPLE; i++) pack->sample[i] = now[i * pack->sample_step];
}

static dycl_status make_pack(const dycl_pack_key *key, uint64_t form, dycl_pack **out) {
    size_t bytes = dycl_pack_size(key);
    dycl_status status;
    int copied = key->scale && !key->gemm.kernel;
    float *scaled = copied ? dycl_aligned_alloc((size_t)(key->channels * key->per_channel) * sizeof(float)) : NULL;
    dycl_pack *pack = dycl_alloc_zero(sizeof *pack);
    size_t zone = dycl_check_enabled() ? DYCL_RED_ZONE : 0;
    char *data = dycl_aligned_alloc(bytes + zone);
    if (!pack || !data || (copied && !scaled)) {
        status = dycl_error_set("out of memory for packed weights");
        goto fail;
    }
    take_sample(pack, key); /* first: what is written meanwhile shows next time */
    if (zone) dycl_check_mark(data + bytes);
    DYCL_TRY(dycl_pack_into(key, scaled, data));
    if (zone && !dycl_check_untouched(data + bytes))
        DYCL_TRY(dycl_error_set("check: packing wrote behind its %zu bytes", bytes));
    dycl_aligned_free(scaled);
    pack->token = key->token;
    pack->version = key->version;
    pack->key = form;
    pack->source = key->weights;
    pack->data = data;
    pack->bytes = bytes;
    atomic_init(&pack->references, 2);
    atomic_init(&pack->valid, 1);
    pack->next_in_bucket = buckets[bucket_of(key->token)];
    buckets[bucket_of(key->token)] = pack;
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
    static uint64_t not_before;
    uint64_t began = dycl_measure_now();
    if (began < not_before) return DYCL_OK;
    int fits = dycl_memory_headroom(bytes);
    dycl_status status = fits ? make_pack(key, form, out) : DYCL_OK;
    uint64_t end = dycl_measure_now();
    not_before = end + 9 * (end - began) + (fits ? 0 : 1000000000); /* memory is asked for again after a second */
    return status;
}

/* With the lock held: something of this constant was packed, and it has other contents now. */
static int is_stale(const dycl_pack_key *key) {
    for (const dycl_pack *pack = buckets[bucket_of(key->token)]; pack; pack = pack->next_in_bucket)
        if (pack->token == key->token && !dycl_pack_unchanged(pack, key->base)) return 1;
    return 0;
}

dycl_status dycl_pack_get(const dycl_pack_key *key, int make, dycl_pack **out) {
    uint64_t form = key->gemm.kernel    ? hash_bytes(&key->gemm, sizeof key->gemm)
                    : key->bf16.n       ? hash_bytes(&key->bf16, sizeof key->bf16)
                    : key->narrow.n     ? hash_bytes(&key->narrow, sizeof key->narrow)
                    : key->screen.n     ? hash_bytes(&key->screen, sizeof key->screen)
                    : key->small.kernel ? hash_bytes(&key->small, sizeof key->small)
                                        : dycl_prim_weights_key(key->prim);
    form ^= (key->salt + (uint64_t)key->winograd) * 0x9E3779B97F4A7C15ull;
    if (key->scale) form ^= hash_bytes(key->scale, (size_t)key->channels * sizeof(float));
    size_t bytes = dycl_pack_size(key);
    dycl_status status = DYCL_OK;
    *out = NULL;
    dycl_lock(DYCL_LOCK_PACK);
    kill_stale(key->token, key->version, 0);
    if (is_stale(key)) forget(key->token);
    for (dycl_pack *pack = buckets[bucket_of(key->token)]; pack && !*out; pack = pack->next_in_bucket) {
        if (pack->token != key->token || pack->key != form || pack->bytes != bytes || pack->source != key->weights)
            continue;
        atomic_fetch_add(&pack->references, 1);
        *out = pack;
    }
    if (!*out && make && (key->narrow.n || key->screen.n))
        status = make_beside(key, form, bytes, out);
    else if (!*out && make)
        status = make_pack(key, form, out);
    dycl_unlock(DYCL_LOCK_PACK);
    return status;
}

uint64_t dycl_pack_generation(void) { return atomic_load_explicit(&generation, memory_order_relaxed); }
