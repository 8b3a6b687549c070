#include "exec/cache/cache.h"

#include <stdio.h>
#include <string.h>

#include "base/heap.h"
#include "dnnl/dnnl.h"
#include "exec/cache/history.h"
#include "exec/cache/pieces.h"
#include "exec/tune/profile.h"
#include "exec/cache/teams.h"

#define BUCKETS           8192
#define GONE              4096
#define DYCL_CACHE_KEY    48
#define DYCL_CACHE_STEADY 4 /* sightings that count as coming back */

/* By the last use. */
typedef struct {
    dycl_segment *newest, *oldest;
    uint32_t count;
    size_t bytes;
} recency;

struct dycl_plan_cache {
    dycl_segment *bucket[BUCKETS];
    recency young, old;
    uint64_t gone[GONE]; /* hashes of young segments that had to go, each at its place */
};

static size_t adrift;

dycl_plan_cache *dycl_plan_cache_create(void) { return dycl_alloc_zero(sizeof(dycl_plan_cache)); }

void dycl_segment_retain(dycl_segment *segment) { segment->references++; }

void dycl_segment_release(dycl_segment *segment) {
    if (!segment || --segment->references) return;
    adrift -= segment->bytes;
    dycl_backwards_free(segment);
    dycl_history_free(segment->history);
    dycl_pieces_free(segment->pieces);
    dycl_parts_free(&segment->parts);
    dycl_graph_free(&segment->graph);
    dycl_free(segment->outputs);
    dycl_teams_free(segment);
    dycl_plan_release(segment->plan);
    dycl_free(segment);
}

/* ---- In the order of their use */

static recency *list_of(dycl_segment *s) { return s->old ? &s->cache->old : &s->cache->young; }

static void take_out_of_recency(dycl_segment *s) {
    recency *list = list_of(s);
    if (s->newer)
        s->newer->older = s->older;
    else
        list->newest = s->older;
    if (s->older)
        s->older->newer = s->newer;
    else
        list->oldest = s->newer;
    s->newer = s->older = NULL;
    list->count--;
    list->bytes -= s->bytes;
}

static void put_newest(dycl_segment *s) {
    recency *list = list_of(s);
    s->older = list->newest;
    s->newer = NULL;
    if (list->newest)
        list->newest->newer = s;
    else
        list->oldest = s;
    list->newest = s;
    list->count++;
    list->bytes += s->bytes;
}

static void measure(dycl_segment *s) {
    size_t bytes = sizeof *s + dycl_graph_bytes(&s->graph) + (s->plan ? dycl_plan_bytes(s->plan) : 0);
    if (s->cache)
        list_of(s)->bytes += bytes - s->bytes;
    else
        adrift += bytes - s->bytes;
    s->bytes = bytes;
}

/* ---- In and out */

static void insert(dycl_plan_cache *cache, dycl_segment *s) {
    s->chain = cache->bucket[s->hash % BUCKETS];
    cache->bucket[s->hash % BUCKETS] = s;
    s->cache = cache;
    put_newest(s);
}

static void drop(dycl_plan_cache *cache, dycl_segment *s) {
    dycl_segment **link = &cache->bucket[s->hash % BUCKETS];
    while (*link != s) link = &(*link)->chain;
    *link = s->chain;
    take_out_of_recency(s);
    s->cache = NULL;
    adrift += s->bytes;
    dycl_teams_free(s);
    dycl_plan_release(s->plan); /* a TraceGraph may keep the segment: it would make a plan again */
    s->plan = NULL;
    s->tuned = 0;
    measure(s);
    dycl_backwards_free(s); /* one may hold its own segment */
    dycl_segment_release(s);
}

static void drop_young(dycl_plan_cache *cache) {
    dycl_segment *s = cache->young.oldest;
    cache->gone[s->hash % GONE] = s->hash;
    drop(cache, s);
}

/* A primitive's code and descriptors are oneDNN's: 64 KB is what convolutions and products were seen to take. */
size_t dycl_plan_cache_bytes(void) { return dycl_heap_bytes() + (size_t)dycl_dnnl_alive() * 65536; }

size_t dycl_plan_cache_adrift(void) { return adrift; }

/* Room for one more. Segments that somebody keeps free little: a few at a time, so that they never empty the cache. */
static void make_room(dycl_plan_cache *cache) {
    while (cache->young.bytes > DYCL_CACHE_YOUNG && cache->young.count > DYCL_CACHE_YOUNGEST) drop_young(cache);
    for (int n = 0; n < 4 && cache->old.count > DYCL_CACHE_LEAST && dycl_plan_cache_bytes() > DYCL_CACHE_BYTES; n++)
        drop(cache, cache->old.oldest);
    if (cache->young.count + cache->old.count < DYCL_CACHE_SEGMENTS) return;
    if (cache->young.count > DYCL_CACHE_YOUNGEST)
        drop_young(cache);
    else
        drop(cache, cache->old.oldest);
}

void dycl_plan_cache_clear(dycl_plan_cache *cache) {
    while (cache->young.oldest) drop(cache, cache->young.oldest);
    while (cache->old.oldest) drop(cache, cache->old.oldest);
    memset(cache->gone, 0, sizeof cache->gone);
}

void dycl_plan_cache_release(dycl_plan_cache *cache) {
    if (!cache) return;
    dycl_plan_cache_clear(cache);
    dycl_free(cache);
}

uint32_t dycl_plan_cache_count(const dycl_plan_cache *cache) { return cache->young.count + cache->old.count; }

int dycl_segment_matches(const dycl_segment *segment, const dycl_graph *graph, const uint32_t *outputs,
                         int output_count) {
    return segment->output_count == output_count &&
           memcmp(segment->outputs, outputs, (size_t)output_count * sizeof *outputs) == 0 &&
           dycl_graph_equal(&segment->graph, graph);
}

static dycl_status make_segment(const dycl_graph *graph, const uint32_t *outputs, int output_count, uint64_t hash,
                                dycl_segment **out) {
    dycl_status status;
    dycl_segment *s = dycl_alloc_zero(sizeof *s);
    if (!s) return dycl_error_set("out of memory for a segment");
    s->references = 1;
    s->hash = hash;
    dycl_graph_init(&s->graph);
    s->outputs = dycl_alloc((size_t)output_count * sizeof *outputs);
    if (!s->outputs) {
        status = dycl_error_set("out of memory for a segment");
        goto fail;
    }
    memcpy(s->outputs, outputs, (size_t)output_count * sizeof *outputs);
    s->output_count = output_count;
    DYCL_TRY(dycl_graph_copy(&s->graph, graph));
    *out = s;
    return DYCL_OK;
fail:
    dycl_segment_release(s);
    return status;
}

void dycl_plan_use(dycl_plan_cache *cache, dycl_segment *s) {
    int old = s->old || s->sightings;
    if (s->cache && s == list_of(s)->newest && s->old == old) return;
    if (s->cache) {
        take_out_of_recency(s);
        s->old = old;
        put_newest(s);
        return;
    }
    dycl_segment_retain(s);
    adrift -= s->bytes;
    make_room(cache);
    s->old = old;
    insert(cache, s);
}

dycl_status dycl_plan_lookup(dycl_plan_cache *cache, const dycl_graph *graph, const uint32_t *outputs, int output_count,
                             dycl_segment **out) {
    uint64_t hash = dycl_graph_key(graph, outputs, output_count);
    for (dycl_segment *s = cache->bucket[hash % BUCKETS]; s; s = s->chain) {
        if (s->hash != hash || !dycl_segment_matches(s, graph, outputs, output_count)) continue;
        dycl_plan_use(cache, s);
        *out = s;
        return DYCL_OK;
    }
    dycl_segment *s = NULL;
    dycl_status status;
    DYCL_TRY(make_segment(graph, outputs, output_count, hash, &s));
    if (cache->gone[hash % GONE] == hash) /* where there is no room, it would only go again, at a higher price */
        s->returns = s->old = dycl_plan_cache_bytes() < DYCL_CACHE_BYTES;
    make_room(cache);
    measure(s);
    adrift -= s->bytes;
    insert(cache, s);
    *out = s;
    return DYCL_OK;
fail:
    return status;
}

/* Does it come back? What earlier processes saw says so at the first sight. */
static void profile_key(const dycl_segment *s, char *out) {
    snprintf(out, DYCL_CACHE_KEY, "segment %016llx comes back", (unsigned long long)s->hash);
}

static int was_steady(const dycl_segment *s) {
    char key[DYCL_CACHE_KEY], variant[DYCL_PROFILE_VARIANT];
    profile_key(s, key);
    return dycl_profile_recall(key, variant);
}

static void note_steady(const dycl_segment *s) {
    char key[DYCL_CACHE_KEY];
    profile_key(s, key);
    dycl_profile_note(key, "yes", dycl_plan_cost(s->plan));
}

/* The plan that runs now. */
static dycl_status choose_plan(dycl_segment *s) {
    dycl_status status;
    DYCL_TRY(dycl_teams_follow(s));
    if (++s->sightings == DYCL_CACHE_STEADY && s->plan) note_steady(s);
    if (!s->plan && (s->graph.options & DYCL_OPTION_BF16 || dycl_teams_tuned_before(s) ||
                     (s->sightings == 1 && (s->returns || was_steady(s))))) {
        status = dycl_plan_create(&s->graph, s->outputs, s->output_count, DYCL_PLAN_TUNED, &s->plan);
        if (status == DYCL_ERROR) return status;
        s->tuned = status == DYCL_OK;
        if (s->tuned) dycl_plan_pack_at_once(s->plan);
    }
    if (!s->plan) {
        DYCL_TRY(dycl_plan_create(&s->graph, s->outputs, s->output_count, DYCL_PLAN_COLD, &s->plan));
    } else if (!s->tuned) {
        dycl_plan *tuned = NULL;
        s->tuned = 1;
        status = dycl_plan_create(&s->graph, s->outputs, s->output_count, DYCL_PLAN_TUNED, &tuned);
        if (status == DYCL_ERROR) return status;
        if (status == DYCL_OK) {
            dycl_plan_release(s->plan);
            s->plan = tuned;
        }
    }
    if (s->tuned) dycl_teams_choose(s);
    return DYCL_OK;
fail:
    return status;
}

dycl_status dycl_segment_plan(dycl_segment *s, dycl_plan **out) {
    const dycl_plan *before = s->plan;
    dycl_status status = choose_plan(s);
    if (s->plan != before) measure(s);
    *out = s->plan;
    return status;
}
