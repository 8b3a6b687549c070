/* The plan cache: a segment's graph and outputs -> its plan. The first sight of a key makes a COLD plan, the second a
 * TUNED one; what earlier processes saw again and again is tuned at first sight (tune/profile.h).
 *
 * Segments that ran once are *young*, and few: a program whose shapes or structures never repeat makes nothing else.
 * What came twice is kept apart from them, up to DYCL_CACHE_BYTES. Of young segments that had to go the key's hash
 * stays, so that one that comes again counts as seen twice.
 *
 * Ownership: segments are reference counted; the cache holds one reference to each of the DYCL_CACHE_SEGMENTS it keeps,
 * or fewer when they take more (least recently used ones go first). A segment outlives the cache entry while somebody
 * retains it; its plan does not. Threads: GIL held (the cache is not locked). */
#ifndef DYCL_EXEC_CACHE_CACHE_H
#define DYCL_EXEC_CACHE_CACHE_H

#include "exec/plan/plan.h"
#include "opt/parts.h"

#define DYCL_CACHE_SEGMENTS 4096
#define DYCL_CACHE_BYTES    ((size_t)48 << 20)
#define DYCL_CACHE_LEAST    64                /* segments that are kept whatever they take; */
#define DYCL_CACHE_YOUNG    ((size_t)8 << 20) /* young ones, */
#define DYCL_CACHE_YOUNGEST 8                 /* and how many of them are kept */

typedef struct dycl_pieces dycl_pieces; /* pieces.h */

typedef struct dycl_segment {
    dycl_graph graph;  /* a copy: the key */
    uint32_t *outputs; /* key too */
    int output_count;
    uint64_t hash;
    dycl_plan *plan;                  /* owned; COLD or TUNED */
    int threads;                      /* that the plan may use, see teams.h */
    struct dycl_teams *teams;         /* owned, */
    struct dycl_other_threads *other; /* and this */
    int tuned;                        /* 1: plan is TUNED, or tuning was tried and bailed */
    uint64_t sightings;
    dycl_pieces *pieces;              /* owned; how it runs while its loop's trip count or its branches keep changing */
    int looked_at;                    /* 1: what it is made of is known: */
    uint64_t body;                    /* identity of what it repeats, 0: nothing; */
    dycl_parts parts;                 /* owned */
    int steady;                       /* times in a row that it came where it was expected */
    struct dycl_gradients *backwards; /* owned: backwards.h */
    struct dycl_history *history;     /* owned: history.h; NULL: no result had one */
    uint32_t references;
    struct dycl_segment *chain;         /* hash bucket */
    struct dycl_segment *newer, *older; /* recency */
    struct dycl_plan_cache *cache;      /* that it is in, or NULL */
    size_t bytes;                       /* of it and its plan, as they were last measured */
    int old;                            /* 1: it came twice. In the cache: in the list of those */
    int returns;                        /* 1: it came before, and went */
} dycl_segment;

typedef struct dycl_plan_cache dycl_plan_cache;
dycl_plan_cache *dycl_plan_cache_create(void); /* NULL: out of memory */
void dycl_plan_cache_release(dycl_plan_cache *cache);
void dycl_plan_cache_clear(dycl_plan_cache *cache); /* tests: every plan is made anew */
uint32_t dycl_plan_cache_count(const dycl_plan_cache *cache);
size_t dycl_plan_cache_bytes(void);  /* what plans and segments take, about: of the process */
size_t dycl_plan_cache_adrift(void); /* of it, segments that left the cache and that somebody keeps: of the process */

/* Whether a segment is the one of this graph and these outputs. */
int dycl_segment_matches(const dycl_segment *segment, const dycl_graph *graph, const uint32_t *outputs,
                         int output_count);
/* Finds or makes the segment; *out is borrowed from the cache. */
dycl_status dycl_plan_lookup(dycl_plan_cache *cache, const dycl_graph *graph, const uint32_t *outputs, int output_count,
                             dycl_segment **out);
/* A segment that somebody retains is used once more; it comes back to the cache if it had left. */
void dycl_plan_use(dycl_plan_cache *cache, dycl_segment *segment);
/* Counts a sighting and gives the plan to run now (borrowed), tuning when it is time. */
dycl_status dycl_segment_plan(dycl_segment *segment, dycl_plan **out);
/* Its graph, what each pass made of it and its plan, into the log: for who catches them (opt/log.h). */
dycl_status dycl_segment_show(const dycl_segment *segment);
void dycl_segment_retain(dycl_segment *segment);
void dycl_segment_release(dycl_segment *segment);
void dycl_backwards_free(dycl_segment *segment); /* backwards.c; only here */

#endif
