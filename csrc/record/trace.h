/* The TraceGraph of a site: which segment follows which, merged over all calls (Terra, NeurIPS'21, section 4). A vertex
 * is a segment, wherever in the program it runs: iterations of a loop are one vertex with an edge to itself, whatever
 * their number. A vertex with several successors is a case select: which one runs is known only when Python has
 * recorded it.
 *
 * Ownership: a trace holds references to segments through the functions it was given, and copies of its strings.
 * Threads: GIL held. Bounded: at DYCL_TRACE_VERTICES all is forgotten and merged anew; it holds predictions, nothing
 * else depends on it. */
#ifndef DYCL_RECORD_TRACE_H
#define DYCL_RECORD_TRACE_H

#include <stdint.h>

#include "base/status.h"

#define DYCL_TRACE_VERTICES   1024
#define DYCL_TRACE_SUCCESSORS 16 /* of one vertex: those that ran longest ago are forgotten */

typedef struct {
    void *segment;        /* retained; NULL for the entry */
    uint32_t *successors; /* most recent first */
    uint32_t successor_count, successor_room;
    uint64_t visits;
    uint64_t last; /* the call, as its site counts them, that it ran in last */
    int why;       /* the reason its last run was flushed for (dycl_bail) */
    char *where;   /* owned: "file:line" that made it end when it was new; NULL: not known */
} dycl_trace_vertex;

typedef struct dycl_trace {
    dycl_trace_vertex *vertices; /* vertex 0 is the entry of the call */
    uint32_t count, room;
    uint32_t *table; /* vertices by segment, open addressing; 0: free */
    uint32_t table_room;
    void (*retain)(void *segment);
    void (*release)(void *segment);
} dycl_trace;

void dycl_trace_forget(dycl_trace *trace); /* all of it: only position 0 is valid then */
int dycl_trace_knows(const dycl_trace *trace, const void *segment);
dycl_trace *dycl_trace_create(void (*retain)(void *), void (*release)(void *)); /* NULL: out of memory */
void dycl_trace_free(dycl_trace *trace);

/* The segment of the nth most recent successor of a position; NULL when there are no more. */
void *dycl_trace_predict(const dycl_trace *trace, uint32_t position, uint32_t nth);
/* The position after that segment ran; merges it when the path is new. UINT32_MAX: lost (out of memory).
 * *out_new: 1 when the segment is new to this trace. */
uint32_t dycl_trace_advance(dycl_trace *trace, uint32_t position, void *segment, int why, int *out_new);
void dycl_trace_set_where(dycl_trace *trace, uint32_t position, const char *where); /* copied */
uint32_t dycl_trace_case_selects(const dycl_trace *trace); /* vertices with several successors */

#endif
