/* The backward graphs of a segment, and their plans: what is differentiated -> the graph that does it, found without
 * building it again. Numbers of the segment are bound at each pass and belong to no key: no formula looks at them.
 *
 * Ownership: a segment owns its entries, at most DYCL_BACKWARDS_MOST of them (least recently used ones go first), until
 * it dies or leaves the plan cache; an entry outlives that while somebody retains it. An entry holds a reference to the
 * segment that computes it. Threads: GIL held; what an entry says of its graph never changes. */
#ifndef DYCL_EXEC_CACHE_BACKWARDS_H
#define DYCL_EXEC_CACHE_BACKWARDS_H

#include "exec/cache/cache.h"
#include "grad/backward.h"

#define DYCL_BACKWARDS_MOST 256

typedef struct dycl_gradients {
    /* the key: of the segment that owns the entry, and */
    uint8_t *tracked;
    uint32_t *results, *sources;
    uint8_t *wanted;     /* by source */
    dycl_strides *given; /* by result; NULL: as the results lie */
    uint32_t result_count, source_count;
    int ahead;      /* only what will be saved is asked for: there is no graph */
    int one_thread; /* when it was asked for: torch's results lie otherwise then */
    uint64_t hash;
    /* what was built: */
    dycl_status status;  /* OK, or BAIL: there is a case without a formula */
    dycl_backward built; /* its graph is empty where a segment has it */
    uint32_t *saved_at;  /* by what is saved: where its tensor was found among the last pass's */
    uint32_t *outputs;   /* of the plan: what gradients are, or are views of, each once */
    uint32_t *looks;     /* per output: the value as which its tensor is made, itself or a view of all of it */
    uint32_t output_count;
    dycl_segment *segment; /* retained: of the graph and the outputs; NULL: not looked up, or nothing to compute */
    void *beside;          /* what those keep who run it (py/entry/second.h), and how they let go of it; NULL */
    void (*let_go)(void *beside);
    uint64_t passes, replays; /* that ran: by its plan; in torch, operator by operator */
    uint64_t recorded;        /* to be differentiated themselves: as a call of their own */
    uint32_t references;
    struct dycl_gradients *next;
} dycl_gradients;

/* *out: retained. `of` is the segment of job->graph; NULL: there is none yet, and the entry is the caller's alone.
 * ahead: only built.saved and which of built.gradients there are. OK, whatever the entry's status is, or ERROR. */
dycl_status dycl_backwards_get(dycl_segment *of, const dycl_backward_job *job, int ahead, dycl_gradients **out);
/* Why it is of no use: its status is BAIL, or it is open. Static */
const char *dycl_gradients_why_not(const dycl_gradients *g);
void dycl_gradients_retain(dycl_gradients *g);
void dycl_gradients_release(dycl_gradients *g); /* NULL is allowed */
/* The segment of its plan, which is in the cache and the newest there. Borrowed from the entry. output_count > 0. */
dycl_status dycl_gradients_segment(dycl_plan_cache *cache, dycl_gradients *g, dycl_segment **out);
static inline const dycl_graph *dycl_gradients_graph(const dycl_gradients *g) { /* until the next of the above */
    return g->segment ? &g->segment->graph : &g->built.recorder.graph;
}
/* The numbers of its graph where those of the recorded segment are `numbers`: room for scalar_count of them. */
void dycl_gradients_numbers(const dycl_gradients *g, const dycl_scalar *numbers, dycl_scalar *out);

uint64_t dycl_backwards_built(void); /* graphs that were built so far in this process */

#endif
