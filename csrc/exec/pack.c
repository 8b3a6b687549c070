#define _POSIX_C_SOURCE 200809L
#include "exec/pack.h"

#include "base/alloc.h"
#include "exec/plan.h"

#include <pthread.h>
#include <string.h>

#define BUCKETS 1024

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static dycl_pack *buckets[BUCKETS];
static dycl_pack *dead; /* forgotten while a run was under way: their memory waits */
static atomic_int running;
static atomic_int waiting; /* is `dead` not empty? */
static atomic_size_t held;

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

void dycl_pack_enter(void) { atomic_fetch_add(&running, 1); }

void dycl_pack_leave(void) {
    if (atomic_fetch_sub(&running, 1) != 1 || !atomic_load(&waiting)) return;
    pthread_mutex_lock(&lock);
    collect();
    pthread_mutex_unlock(&lock);
}

static void kill_stale(uint64_t token, uint64_t version, int any_version) {
    dycl_pack **link = &buckets[bucket_of(token)];
    while (*link) {
        if ((*link)->token == token && (any_version || (*link)->version != version)) kill(link);
        else link = &(*link)->next_in_bucket;
    }
}

void dycl_pack_forget(uint64_t token) {
    pthread_mutex_lock(&lock);
    kill_stale(token, 0, 1);
    collect();
    pthread_mutex_unlock(&lock);
}

size_t dycl_pack_bytes(void) { return atomic_load(&held); }

void dycl_pack_release(dycl_pack *pack) {
    if (!pack) return;
    pthread_mutex_lock(&lock);
    /* only the table is left: nobody will ask for this form again soon, and the constant itself is in memory */
    if (atomic_load(&pack->references) == 2 && atomic_load(&pack->valid)) {
        dycl_pack **link = &buckets[bucket_of(pack->token)];
        while (*link && *link != pack) link = &(*link)->next_in_bucket;
        if (*link) kill(link);
    }
    unreference(pack);
    collect();
    pthread_mutex_unlock(&lock);
}

dycl_status dycl_pack_get(uint64_t token, uint64_t version, int64_t offset, const dycl_prim *prim, const void *weights, dycl_pack **out) {
    uint64_t key = dycl_prim_weights_key(prim);
    size_t bytes = dycl_prim_weights_bytes(prim);
    dycl_status status = DYCL_OK;
    pthread_mutex_lock(&lock);
    kill_stale(token, version, 0);
    for (dycl_pack *pack = buckets[bucket_of(token)]; pack; pack = pack->next_in_bucket) {
        if (pack->token != token || pack->key != key || pack->bytes != bytes || pack->offset != offset) continue;
        atomic_fetch_add(&pack->references, 1);
        *out = pack;
        goto done;
    }
    dycl_pack *pack = dycl_alloc_zero(sizeof *pack);
    void *data = pack ? dycl_aligned_alloc(bytes) : NULL;
    if (!data) {
        dycl_free(pack);
        status = dycl_error_set("out of memory for packed weights");
        goto done;
    }
    status = dycl_prim_pack(prim, weights, data);
    if (status != DYCL_OK) {
        dycl_aligned_free(data);
        dycl_free(pack);
        goto done;
    }
    *pack = (dycl_pack){.token = token, .version = version, .key = key, .offset = offset, .data = data, .bytes = bytes};
    atomic_init(&pack->references, 2);
    atomic_init(&pack->valid, 1);
    pack->next_in_bucket = buckets[bucket_of(token)];
    buckets[bucket_of(token)] = pack;
    atomic_fetch_add(&held, bytes);
    *out = pack;
done:
    pthread_mutex_unlock(&lock);
    return status;
}
